//! `sql`: what a statement does, as far as its words say it. No tool of a model's: the supervisor calls it before the capability
//! check, in a worker that can read nothing, write nothing and reach nobody. The tools for databases ask it again, since what
//! they are told of a statement comes from another process.
//!
//! The words are cut by the tokenizer of the `sqlparser` crate. Its grammar is not asked: it would refuse much that the databases
//! accept, and each database reads its own grammar anyway. What counts here is where a word stands, so that a quoted name, a
//! string or a comment never looks like a keyword.
//!
//! **It errs towards "changes".** And it is the second line: that a call which reads changes nothing is held by the database, in
//! a read-only transaction or connection, whatever was made of the words here.
#![expect(clippy::wildcard_enum_match_arm, reason = "the tokens are a library's, and what it adds is no keyword")]

use callgate_policy::sql::{Dialect, SQL_MAX, SqlKind, Statement};
use serde_json::Value;
use sqlparser::dialect::{MySqlDialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::tokenizer::{Token, Tokenizer, Word};

use crate::tools::{Output, ToolError, required_text};

/// The name by which the supervisor calls it.
pub const NAME: &str = "sql";

/// Characters of a statement that rules and people see.
const SHOWN: usize = 16 * 1024;

/// Statements that only read. `WITH` and `EXPLAIN` are looked into.
const READING: [&str; 9] = ["SELECT", "VALUES", "TABLE", "WITH", "EXPLAIN", "SHOW", "DESCRIBE", "DESC", "PRAGMA"];

/// What changes something where a statement or a part of one begins.
const WRITING: [&str; 5] = ["INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE"];

/// Statements that change what a database holds, and nothing else (S4-16). What is missing does something to the server, the
/// connection or a file: `COPY`, `LOAD`, `ATTACH`, `SET`, `DO`, `BEGIN`.
const CHANGING: [&str; 11] =
    ["INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE", "DROP", "CREATE", "ALTER", "TRUNCATE", "GRANT", "REVOKE"];

/// What else is in the patterns of rules.
const PHRASES: [&str; 17] = [
    "FROM", "INTO", "SET", "WHERE", "DATABASE", "SCHEMA", "VIEW", "INDEX", "IF", "EXISTS", "CASCADE", "COLUMN", "AND",
    "OR", "AS", "ON", "TO",
];

/// What follows `FOR` where rows are locked.
const LOCKING: [&str; 4] = ["UPDATE", "SHARE", "NO", "KEY"];

/// SQLite's questions about the schema, and about what it holds.
pub(super) const PRAGMAS: [&str; 22] = [
    "table_info",
    "table_xinfo",
    "table_list",
    "index_list",
    "index_info",
    "index_xinfo",
    "foreign_key_list",
    "foreign_key_check",
    "database_list",
    "collation_list",
    "function_list",
    "module_list",
    "pragma_list",
    "compile_options",
    "integrity_check",
    "quick_check",
    "page_count",
    "page_size",
    "freelist_count",
    "encoding",
    "user_version",
    "application_id",
];

/// Says what `args["sql"]` does.
///
/// # Errors
/// An argument that is not text, no statement, or more than one.
pub(in crate::tools) fn run(args: &Value) -> Result<Output, ToolError> {
    let dialect = serde_json::from_value(args["dialect"].clone()).unwrap_or(Dialect::Sqlite);
    let sql = Sql::read(dialect, required_text(args, "sql")?)?;
    Ok(Output::of(serde_json::to_value(sql.statement).unwrap_or(Value::Null), false))
}

/// A statement whose words are known.
#[derive(Debug)]
pub(super) struct Sql {
    pub(super) statement: Statement,
    /// The names that an opening parenthesis follows, as the database reads them: in small letters, unless they are quoted.
    pub(super) calls: Vec<String>,
}

/// A word, and what is said of the rest.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    /// A keyword or a name without quotes, in capitals.
    Word(String),
    /// A name in quotes.
    Quoted(String),
    /// Anything else.
    Other(Token),
}

impl Piece {
    fn is(&self, words: &[&str]) -> bool {
        matches!(self, Self::Word(word) if words.contains(&word.as_str()))
    }

    fn is_token(&self, token: &Token) -> bool {
        matches!(self, Self::Other(other) if other == token)
    }
}

impl Sql {
    /// Reads the words of one statement.
    ///
    /// # Errors
    /// What is no statement, or more than one.
    pub(super) fn read(dialect: Dialect, text: &str) -> Result<Self, ToolError> {
        let bad = |reason: String| ToolError::Pattern {
            argument: "sql",
            pattern: crate::tools::shorten(&text.into()),
            reason,
        };
        if text.len() > SQL_MAX {
            return Err(bad(format!("it has more than {SQL_MAX} bytes")));
        }
        if text.contains('\0') {
            return Err(bad("it has a NUL, where databases stop reading".to_owned()));
        }
        // In a string it would be harmless. MySQL and MariaDB run what is in such a comment, each from another version on.
        if dialect == Dialect::Mysql && (text.contains("/*!") || text.contains("/*M!")) {
            return Err(bad("it has a comment that some servers would run (`/*!`); write it out".to_owned()));
        }
        // The name of a function, spelt so that nothing else here would know it.
        if dialect == Dialect::Postgres && text.to_ascii_uppercase().contains("U&\"") {
            return Err(bad("it has a name with Unicode escapes (`U&\"`); write it out".to_owned()));
        }
        let tokens = tokens(dialect, text).map_err(bad)?;
        let (shown, pieces) = taken_apart(tokens);
        let last = pieces.iter().rposition(|piece| !piece.is_token(&Token::SemiColon));
        let pieces = &pieces[..last.map_or(0, |last| last + 1)];
        let first = pieces.iter().position(|piece| !piece.is_token(&Token::SemiColon)).unwrap_or_default();
        let pieces = &pieces[first.min(pieces.len())..];
        if pieces.iter().any(|piece| piece.is_token(&Token::SemiColon)) && !is_a_trigger(pieces) {
            return Err(bad("it has more than one statement; a call runs one".to_owned()));
        }
        let (kind, verb) = judged(dialect, pieces).ok_or_else(|| bad("it has no statement".to_owned()))?;
        Ok(Self { statement: Statement { kind, verb, text: shown }, calls: calls(dialect, pieces) })
    }
}

fn tokens(dialect: Dialect, text: &str) -> Result<Vec<Token>, String> {
    let cut = |dialect: &dyn sqlparser::dialect::Dialect| {
        // As it is spelt: people see the statement, and not what became of it.
        Tokenizer::new(dialect, text).with_unescape(false).tokenize().map_err(|error| error.to_string())
    };
    match dialect {
        Dialect::Sqlite => cut(&SQLiteDialect {}),
        Dialect::Postgres => cut(&PostgreSqlDialect {}),
        Dialect::Mysql => cut(&MySqlDialect {}),
    }
}

/// The statement in a line, and its words.
fn taken_apart(tokens: Vec<Token>) -> (String, Vec<Piece>) {
    let (mut shown, mut pieces) = (String::new(), Vec::new());
    for token in tokens {
        match token {
            Token::Whitespace(_) => {}
            Token::EOF => break,
            token => {
                let text = match &token {
                    Token::Word(Word { value, quote_style: None, .. }) => spelt(value),
                    token => token.to_string(),
                };
                if shown.len() < SHOWN {
                    let joins = matches!(text.as_str(), "." | "," | ";" | ")")
                        || shown.ends_with(['.', '('])
                        || (text == "(" && !shown.is_empty());
                    if !joins && !shown.is_empty() {
                        shown.push(' ');
                    }
                    shown.push_str(&text);
                }
                pieces.push(piece(token));
            }
        }
    }
    shown.truncate(shown.floor_char_boundary(SHOWN));
    (shown, pieces)
}

fn piece(token: Token) -> Piece {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Piece::Word(word.value.to_ascii_uppercase()),
        Token::Word(word) => Piece::Quoted(word.value),
        token => Piece::Other(token),
    }
}

/// Of words that could be names as well, only those are shown in capitals that say what a statement does to what.
fn spelt(word: &str) -> String {
    let capitals = word.to_ascii_uppercase();
    let known = [&READING[..], &CHANGING, &PHRASES].iter().any(|words| words.contains(&capitals.as_str()));
    if known { capitals } else { word.to_owned() }
}

/// The body of a trigger or a procedure has statements of its own, each with its semicolon.
fn is_a_trigger(pieces: &[Piece]) -> bool {
    let head: Vec<&Piece> = pieces.iter().take(6).collect();
    let made = head.first().is_some_and(|piece| piece.is(&["CREATE"]));
    let ends = pieces.last().is_some_and(|piece| piece.is(&["END"]));
    made && ends && head.iter().any(|piece| piece.is(&["TRIGGER"]))
}

/// What it does, and its verb.
fn judged(dialect: Dialect, pieces: &[Piece]) -> Option<(SqlKind, String)> {
    let start = pieces.iter().position(|piece| !piece.is_token(&Token::LParen))?;
    let (first, rest) = pieces[start..].split_first()?;
    let Piece::Word(verb) = first else { return Some((SqlKind::Neither, "?".to_owned())) };
    let verb = verb.to_ascii_uppercase();
    if verb == "PRAGMA" {
        let named = matches!(rest, [Piece::Word(name), ..] if PRAGMAS.contains(&name.to_ascii_lowercase().as_str()));
        let sets = rest.iter().any(|piece| piece.is_token(&Token::Eq));
        let reads = dialect == Dialect::Sqlite && named && !sets;
        return Some((if reads { SqlKind::Reads } else { SqlKind::Neither }, verb));
    }
    if !READING.contains(&verb.as_str()) {
        let kind = if CHANGING.contains(&verb.as_str()) { SqlKind::Changes } else { SqlKind::Neither };
        return Some((kind, verb));
    }
    let explained = verb == "EXPLAIN";
    if let Some(writing) = written_within(pieces, explained) {
        return Some((SqlKind::Changes, if verb == writing { verb } else { format!("{verb} {writing}") }));
    }
    let pairs = pieces.windows(2);
    if pieces.iter().any(|piece| piece.is(&["INTO"])) {
        return Some((SqlKind::Neither, format!("{verb} INTO")));
    }
    let locks =
        |pair: &[Piece]| pair[0].is(&["FOR"]) && pair[1].is(&LOCKING) || pair[0].is(&["LOCK"]) && pair[1].is(&["IN"]);
    if pairs.clone().any(locks) {
        return Some((SqlKind::Neither, format!("{verb} FOR UPDATE")));
    }
    Some((SqlKind::Reads, verb))
}

/// The first word that writes where a part of a statement begins: at an opening parenthesis, or behind a closing one, as the
/// statement behind the `WITH` does. A statement that is explained begins behind that and its options.
fn written_within(pieces: &[Piece], explained: bool) -> Option<String> {
    let begins = |at: usize| match at.checked_sub(1).map(|before| &pieces[before]) {
        None => true,
        Some(before) => {
            let behind = before.is_token(&Token::LParen) || before.is_token(&Token::RParen);
            behind || explained && !matches!(before, Piece::Other(_))
        }
    };
    let is_called = |at: usize| pieces.get(at + 1).is_some_and(|next| next.is_token(&Token::LParen));
    let found = pieces.iter().enumerate().find(|(at, piece)| piece.is(&WRITING) && begins(*at) && !is_called(*at));
    found.and_then(|(_, piece)| match piece {
        Piece::Word(word) => Some(word.clone()),
        Piece::Quoted(_) | Piece::Other(_) => None,
    })
}

/// The functions that a statement names.
fn calls(dialect: Dialect, pieces: &[Piece]) -> Vec<String> {
    let open = |pair: &&[Piece]| pair[1].is_token(&Token::LParen);
    let named = pieces.windows(2).filter(open).filter_map(|pair| match &pair[0] {
        Piece::Word(word) => Some(word.to_lowercase()),
        Piece::Quoted(name) if dialect == Dialect::Postgres => Some(name.clone()),
        Piece::Quoted(name) => Some(name.to_lowercase()),
        Piece::Other(_) => None,
    });
    let mut calls: Vec<String> = named.collect();
    calls.sort_unstable();
    calls.dedup();
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(dialect: Dialect, text: &str) -> (SqlKind, String) {
        let statement = Sql::read(dialect, text).expect(text).statement;
        (statement.kind, statement.verb)
    }

    const ALL: [Dialect; 3] = [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql];

    #[test]
    fn what_reads_is_known_by_its_words() {
        for dialect in ALL {
            for text in [
                "SELECT 1",
                "select * from t -- DELETE FROM t",
                "/* DROP TABLE t; */ SELECT 'DELETE FROM t; --' AS x",
                "(SELECT 1) UNION (SELECT 2)",
                "WITH x AS (SELECT 1 AS a) SELECT a FROM x",
                "VALUES (1), (2)",
                "EXPLAIN SELECT 1",
                "SELECT replace('a', 'b', 'c'), insert('a', 1, 1, 'b') FROM t",
                "SELECT deleted_at, updated FROM t;",
            ] {
                assert_eq!(judge(dialect, text).0, SqlKind::Reads, "{dialect:?} {text}");
            }
        }
        assert_eq!(judge(Dialect::Sqlite, "PRAGMA table_info(t)").0, SqlKind::Reads);
        assert_eq!(judge(Dialect::Sqlite, "SELECT \"delete\" FROM [update]").0, SqlKind::Reads);
        assert_eq!(judge(Dialect::Mysql, "SELECT `delete` FROM `update`").0, SqlKind::Reads);
        assert_eq!(judge(Dialect::Postgres, "SELECT $$DELETE FROM t; DROP TABLE t$$").0, SqlKind::Reads);
    }

    #[test]
    fn s4_16_what_changes_is_known_by_its_words() {
        for dialect in ALL {
            for (text, verb) in [
                ("insert into t values (1)", "INSERT"),
                ("/* SELECT */ UPDATE t SET a = 1", "UPDATE"),
                ("-- SELECT\nDELETE FROM t", "DELETE"),
                ("DROP TABLE t", "DROP"),
                ("CREATE TABLE t (a int)", "CREATE"),
                ("ALTER TABLE t ADD b int", "ALTER"),
                ("TRUNCATE t", "TRUNCATE"),
                ("WITH x AS (SELECT 1) DELETE FROM t", "WITH DELETE"),
                ("WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x", "WITH DELETE"),
                ("WITH x AS (SELECT 1)/**/insert INTO t SELECT * FROM x", "WITH INSERT"),
                ("EXPLAIN ANALYZE DELETE FROM t", "EXPLAIN DELETE"),
            ] {
                assert_eq!(judge(dialect, text), (SqlKind::Changes, verb.to_owned()), "{dialect:?} {text}");
            }
        }
    }

    #[test]
    fn what_is_neither_is_for_no_call() {
        for dialect in ALL {
            for text in [
                "SET x = 1",
                "BEGIN",
                "COMMIT",
                "COPY t TO PROGRAM 'sh'",
                "ATTACH 'x' AS y",
                "LOAD DATA LOCAL INFILE 'x' INTO TABLE t",
                "DO 1",
                "CALL p()",
                "VACUUM INTO 'x'",
                "SELECT * INTO u FROM t",
                "SELECT * FROM t FOR UPDATE",
                "SELECT * FROM t FOR NO KEY UPDATE",
                "SELECT * FROM t LOCK IN SHARE MODE",
                "LOCK TABLE t",
                "\"SELECT\" 1",
            ] {
                assert_eq!(judge(dialect, text).0, SqlKind::Neither, "{dialect:?} {text}");
            }
        }
        for text in ["PRAGMA journal_mode", "PRAGMA writable_schema = 1", "PRAGMA user_version = 7"] {
            assert_eq!(judge(Dialect::Sqlite, text).0, SqlKind::Neither, "{text}");
        }
        assert_eq!(judge(Dialect::Mysql, "SELECT 1 INTO OUTFILE '/tmp/x'").0, SqlKind::Neither);
    }

    #[test]
    fn a_call_runs_one_statement() {
        for dialect in ALL {
            for text in
                ["SELECT 1; DELETE FROM t", "SELECT 1;; SELECT 2", "; SELECT 1;SELECT 2", "", ";", "-- x", "SELECT 1\0"]
            {
                Sql::read(dialect, text).expect_err(text);
            }
            Sql::read(dialect, &"(".repeat(SQL_MAX + 1)).expect_err("it is too long");
            Sql::read(dialect, &"(".repeat(SQL_MAX)).expect_err("it is no statement");
        }
        let error = Sql::read(Dialect::Mysql, "SELECT 1 /*!50000 INTO OUTFILE '/tmp/x' */").expect_err("it runs");
        assert!(error.to_string().contains("write it out"), "{error}");
        let trigger = "CREATE TRIGGER a AFTER INSERT ON t BEGIN DELETE FROM u; UPDATE v SET a = 1; END";
        assert_eq!(judge(Dialect::Sqlite, trigger).0, SqlKind::Changes);
    }

    #[test]
    fn what_people_see_is_one_line_without_comments() {
        let shown = |text| Sql::read(Dialect::Postgres, text).expect(text).statement.text;
        assert_eq!(shown("delete\n from /* x */ public . t where a='b' -- c"), "DELETE FROM public.t WHERE a = 'b'");
        let calls = Sql::read(Dialect::Postgres, "SELECT pg_read_file('x'), \"Odd\" (1), a FROM b").expect("SQL").calls;
        assert_eq!(calls, ["Odd", "pg_read_file"]);
    }
}
