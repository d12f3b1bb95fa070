//! `sql`: what a statement does, as far as its words say it. No tool of a model's: the supervisor calls it before the capability
//! check, in a worker that can read nothing, write nothing and reach nobody. The tools for databases ask it again, since what
//! they are told of a statement comes from another process.
//!
//! **It is strict rather than clever.** Where a word, a literal or a comment ends is read differently by each database, and by
//! each version and setting of one. Whoever knows a difference could show people one statement and run another. So nothing is
//! read that could be read in two ways: no comment, no dollar quote, no escape that decides where a literal ends, no control
//! character, and nothing beyond ASCII outside quotes. A model needs none of them, and is told what to write instead. What is
//! left has words, quotes and marks, and all of it is shown.
//!
//! **It errs towards "changes".** And it is the second line: that a call which reads changes nothing is held by the database, in
//! a read-only transaction or connection, whatever was made of the words here.

use callgate_policy::sql::{Dialect, SQL_MAX, SqlKind, Statement};
use serde_json::Value;

use crate::arguments::required_text;
use crate::{ToolError, ToolResult};

/// The name by which the supervisor calls it.
pub const NAME: &str = "sql";

/// Statements that only read. `WITH` and `EXPLAIN` are looked into.
const READING: [&str; 9] = ["SELECT", "VALUES", "TABLE", "WITH", "EXPLAIN", "SHOW", "DESCRIBE", "DESC", "PRAGMA"];

/// Words that change something where a statement or a part of one begins.
const WRITING: [&str; 5] = ["INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE"];

/// Statements that change what a database holds, and nothing else (S4-16). What is missing does something to the server, the
/// connection or a file: `COPY`, `LOAD`, `ATTACH`, `SET`, `DO`, `BEGIN`.
const CHANGING: [&str; 11] =
    ["INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE", "DROP", "CREATE", "ALTER", "TRUNCATE", "GRANT", "REVOKE"];

/// Words that act behind an `EXPLAIN ANALYZE`, besides those: `CREATE TABLE … AS`, a view that is made anew, what was
/// prepared.
const EXPLAINED: [&str; 3] = ["CREATE", "REFRESH", "EXECUTE"];

/// Other words in the patterns of rules.
const PHRASES: [&str; 17] = [
    "FROM", "INTO", "SET", "WHERE", "DATABASE", "SCHEMA", "VIEW", "INDEX", "IF", "EXISTS", "CASCADE", "COLUMN", "AND",
    "OR", "AS", "ON", "TO",
];

/// Words that follow `FOR` where rows are locked.
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
pub(crate) fn run(args: &Value) -> Result<ToolResult, ToolError> {
    let dialect = serde_json::from_value(args["dialect"].clone()).unwrap_or(Dialect::Sqlite);
    let sql = Sql::read(dialect, required_text(args, "sql")?)?;
    Ok(ToolResult::of(serde_json::to_value(sql.statement).unwrap_or(Value::Null), false))
}

/// A statement whose words are known.
#[derive(Debug)]
pub(super) struct Sql {
    pub(super) statement: Statement,
    /// Whatever could be a name, wherever it stands, in literals too: as it is spelt, and in small letters.
    pub(super) names: Vec<String>,
    /// The words that an opening parenthesis follows, in small letters, wherever they stand.
    pub(super) calls: Vec<String>,
}

/// A part of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SqlPiece {
    /// A keyword or a name without quotes, in capitals.
    Word(String),
    /// A name in quotes.
    Quoted(String),
    /// A literal: a text, or a number.
    Literal,
    /// A mark.
    Mark(char),
}

impl SqlPiece {
    fn is(&self, words: &[&str]) -> bool {
        matches!(self, Self::Word(word) if words.contains(&word.as_str()))
    }

    fn is_mark(&self, mark: char) -> bool {
        *self == Self::Mark(mark)
    }
}

/// A piece, with how it is spelt.
#[derive(Debug)]
struct SqlToken<'a> {
    piece: SqlPiece,
    text: &'a str,
    /// True if a blank is before it.
    apart: bool,
}

impl Sql {
    /// Reads the words of one statement.
    ///
    /// # Errors
    /// What is no statement, more than one, or one that could be read in two ways.
    pub(super) fn read(dialect: Dialect, text: &str) -> Result<Self, ToolError> {
        let bad = |reason: String| ToolError::Pattern {
            argument: "sql",
            pattern: crate::message::shorten(&text.into()),
            reason,
        };
        if text.len() > SQL_MAX {
            return Err(bad(format!(
                "it has more than {SQL_MAX} bytes, and nobody could look at all of it; write less at a time"
            )));
        }
        let mut tokens = tokens(dialect, text).map_err(bad)?;
        // The patterns of rules begin and end with a statement's words.
        while tokens.last().is_some_and(|token| token.piece.is_mark(';')) {
            tokens.pop();
        }
        if tokens.first().is_some_and(|token| token.piece.is_mark(';')) {
            return Err(bad("it begins with a semicolon; leave it out".to_owned()));
        }
        let shown = shown(&tokens);
        let names = names(text, &tokens);
        let pieces: Vec<SqlPiece> = tokens.into_iter().map(|token| token.piece).collect();
        if pieces.iter().any(|piece| piece.is_mark(';')) && !is_a_trigger(&pieces) {
            return Err(bad("it has more than one statement; a call runs one".to_owned()));
        }
        let (kind, verb) = judged(dialect, &pieces).ok_or_else(|| bad("it has no statement".to_owned()))?;
        Ok(Self { statement: Statement { kind, verb, text: shown }, names, calls: calls(text) })
    }

    /// True if these words stand there, one behind the other.
    pub(super) fn has(&self, words: &str) -> bool {
        self.statement.text.to_ascii_uppercase().contains(words)
    }
}

/// Cuts a statement up.
///
/// # Errors
/// What could be read in two ways, with what to write instead.
fn tokens(dialect: Dialect, text: &str) -> Result<Vec<SqlToken<'_>>, String> {
    let is_odd = |c: &char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    if let Some(odd) = text.chars().find(is_odd) {
        return Err(format!("it has the control character {}; leave it out", odd.escape_unicode()));
    }
    let mut tokens: Vec<SqlToken<'_>> = Vec::new();
    let (mut at, mut apart) = (0, true);
    while let Some(c) = text[at..].chars().next() {
        if c.is_ascii_whitespace() {
            (at, apart) = (at + 1, true);
            continue;
        }
        let (piece, length) = first_of(dialect, &text[at..], text[..at].ends_with('&'))?;
        // `1.e0INTO` is a number and a word to some, and to others a column. `1.e5` alone is one number to all.
        let behind_number = !apart
            && matches!(
                &tokens[..],
                [.., number, point] if number.piece == SqlPiece::Literal && point.text == "." && !point.apart
            );
        if behind_number && matches!(piece, SqlPiece::Word(_)) {
            return Err("it has a word right behind a number and a point; write a number as 1.0e5".to_owned());
        }
        let is_text = |piece: &SqlPiece, text: &str| *piece == SqlPiece::Literal && text.ends_with(['\'', '"']);
        let token = SqlToken { piece, text: &text[at..at + length], apart };
        if tokens.last().is_some_and(|last| is_text(&last.piece, last.text)) && is_text(&token.piece, token.text) {
            return Err(
                "it has two texts in quotes with nothing between them; write one text, or put `||` or AS there"
                    .to_owned(),
            );
        }
        tokens.push(token);
        (at, apart) = (at + length, false);
    }
    Ok(tokens)
}

/// The first piece of a text that begins with one, and how many bytes it has.
fn first_of(dialect: Dialect, text: &str, behind_and: bool) -> Result<(SqlPiece, usize), String> {
    let c = text.chars().next().unwrap_or_default();
    let comment = || Err("it has a comment, and databases differ about where one ends; leave it out".to_owned());
    match c {
        _ if text.starts_with("--") => {
            Err("it has `--`, which begins a comment; leave it out, and write a minus before a minus as `- -`"
                .to_owned())
        }
        '#' if dialect == Dialect::Mysql => comment(),
        _ if text.starts_with("/*") => comment(),
        '$' => Err("it has a `$` outside quotes; write a text as '…', and values as they are".to_owned()),
        '\\' => Err("it has a backslash outside quotes; leave it out".to_owned()),
        '`' if dialect == Dialect::Postgres => Err("it has a backtick; write names as \"…\"".to_owned()),
        '\'' | '"' if behind_and => {
            Err("it has a quote right behind `&`, as Unicode escapes (`U&'…'`) have; write the characters themselves"
                .to_owned())
        }
        '\'' | '"' | '`' => quoted(dialect, text, c, c),
        '[' if dialect == Dialect::Sqlite => quoted(dialect, text, c, ']'),
        c if is_of_word(c) => word(text),
        c if c.is_ascii() => Ok((SqlPiece::Mark(c), 1)),
        c => Err(format!("it has {c:?} outside quotes; write a name that has it in quotes")),
    }
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// A name or a text in quotes. A closing quote that is written twice does not close it.
fn quoted(dialect: Dialect, text: &str, opens: char, closes: char) -> Result<(SqlPiece, usize), String> {
    let is_text = opens == '\'' || opens == '"' && dialect == Dialect::Mysql;
    let mut at = 1;
    loop {
        let end = text[at..].find(closes).ok_or_else(|| format!("a quote (`{opens}`) is not closed"))? + at;
        // In a bracket there is no way to write its end.
        if closes != ']' && text[end + 1..].starts_with(closes) {
            at = end + 2;
            continue;
        }
        let inside = &text[1..end];
        // Whether it escapes the quote is a setting of the server.
        if is_text && dialect == Dialect::Mysql && ["\\'", "\\\""].iter().any(|pair| text[..=end].contains(pair)) {
            return Err("it has a backslash before a quote; write a quote in a text twice (''), and a backslash at its end as CHAR(92)".to_owned());
        }
        let twice = format!("{closes}{closes}");
        let piece =
            if is_text { SqlPiece::Literal } else { SqlPiece::Quoted(inside.replace(&twice, &closes.to_string())) };
        return Ok((piece, end + 1));
    }
}

/// A word or a number.
fn word(text: &str) -> Result<(SqlPiece, usize), String> {
    let length = text.find(|c| !is_of_word(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(length);
    let binary = matches!(word, "x" | "X" | "b" | "B") && rest.starts_with('\'');
    if binary {
        let digits = rest[1..].find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len() - 1);
        return if rest[1 + digits..].starts_with('\'') {
            Ok((SqlPiece::Literal, length + digits + 2))
        } else {
            Err(format!("behind `{word}'` there is something else than digits and a quote"))
        };
    }
    if rest.starts_with(['\'', '"']) {
        return Err(format!(
            "a quote stands right behind `{word}`, as in a text with escapes (E'…'); write a plain text '…', or put a blank there"
        ));
    }
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok((SqlPiece::Word(word.to_ascii_uppercase()), length));
    }
    let number = word.to_ascii_lowercase();
    let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = match (number.strip_prefix("0x"), number.split_once('e')) {
        (Some(digits), _) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        (None, Some((mantissa, exponent))) => plain(mantissa) && plain(exponent),
        (None, None) => plain(&number),
    };
    if is_number {
        return Ok((SqlPiece::Literal, length));
    }
    Err(format!("`{word}` begins like a number and goes on like a word; put a blank there, or write a name in quotes"))
}

/// All of a statement, to the byte, but for blanks between its words and the capitals of keywords.
fn shown(tokens: &[SqlToken<'_>]) -> String {
    let is_operator = |piece: &SqlPiece| matches!(piece, SqlPiece::Mark(mark) if !"().,;".contains(*mark));
    let mut shown = String::new();
    let mut before: Option<&SqlPiece> = None;
    for token in tokens {
        let joins = matches!(token.text, "." | "," | ";" | ")" | "(")
            || before.is_some_and(|before| before.is_mark('.') || before.is_mark('('))
            || !token.apart && is_operator(&token.piece) && before.is_some_and(is_operator);
        if !joins && before.is_some() {
            shown.push(' ');
        }
        match &token.piece {
            SqlPiece::Word(_) => shown.push_str(&spelt(token.text)),
            SqlPiece::Quoted(_) | SqlPiece::Literal | SqlPiece::Mark(_) => shown.push_str(token.text),
        }
        before = Some(&token.piece);
    }
    shown
}

/// Whatever a database could take for a name. It does not go by pieces: what is in a literal counts as well.
fn names(text: &str, tokens: &[SqlToken<'_>]) -> Vec<String> {
    let is_of_name = |c: char| is_of_word(c) || c == '$' || !c.is_ascii();
    let runs = text.split(|c| !is_of_name(c)).filter(|run| !run.is_empty()).map(str::to_owned);
    let quoted = tokens.iter().filter_map(|token| match &token.piece {
        SqlPiece::Quoted(name) => Some(name.clone()),
        SqlPiece::Word(_) | SqlPiece::Literal | SqlPiece::Mark(_) => None,
    });
    let mut names: Vec<String> = runs.chain(quoted).flat_map(|name| [name.to_ascii_lowercase(), name]).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The words that are called, with or without quotes.
fn calls(text: &str) -> Vec<String> {
    let called = text.match_indices('(').filter_map(|(at, _)| {
        let before = text[..at].trim_end().trim_end_matches(['`', '"', ']', '\'']);
        before.rsplit(|c| !is_of_word(c)).next().filter(|word| !word.is_empty()).map(str::to_ascii_lowercase)
    });
    let mut calls: Vec<String> = called.collect();
    calls.sort_unstable();
    calls.dedup();
    calls
}

/// Spelling of a word that could be a name as well: only those are shown in capitals that say what a statement does to
/// what.
fn spelt(word: &str) -> String {
    let capitals = word.to_ascii_uppercase();
    let known = [&READING[..], &CHANGING, &PHRASES].iter().any(|words| words.contains(&capitals.as_str()));
    if known { capitals } else { word.to_owned() }
}

/// The body of a trigger or a procedure has statements of its own, each with its semicolon.
fn is_a_trigger(pieces: &[SqlPiece]) -> bool {
    let head: Vec<&SqlPiece> = pieces.iter().take(6).collect();
    let made = head.first().is_some_and(|piece| piece.is(&["CREATE"]));
    let ends = pieces.last().is_some_and(|piece| piece.is(&["END"]));
    made && ends && head.iter().any(|piece| piece.is(&["TRIGGER"]))
}

/// Effect of it, and its verb.
fn judged(dialect: Dialect, pieces: &[SqlPiece]) -> Option<(SqlKind, String)> {
    let start = pieces.iter().position(|piece| !piece.is_mark('('))?;
    let (first, rest) = pieces[start..].split_first()?;
    let SqlPiece::Word(verb) = first else { return Some((SqlKind::Neither, "?".to_owned())) };
    let verb = verb.to_ascii_uppercase();
    if verb == "PRAGMA" {
        let named = matches!(rest, [SqlPiece::Word(name), ..] if PRAGMAS.contains(&name.to_ascii_lowercase().as_str()));
        let sets = rest.iter().any(|piece| piece.is_mark('='));
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
    let locks = |pair: &[SqlPiece]| {
        pair[0].is(&["FOR"]) && pair[1].is(&LOCKING) || pair[0].is(&["LOCK"]) && pair[1].is(&["IN"])
    };
    if pairs.clone().any(locks) {
        return Some((SqlKind::Neither, format!("{verb} FOR UPDATE")));
    }
    Some((SqlKind::Reads, verb))
}

/// The first word that writes where a part of a statement begins: at an opening parenthesis, or behind a closing one, as the
/// statement behind the `WITH` does. A statement that is explained begins behind that and its options.
fn written_within(pieces: &[SqlPiece], explained: bool) -> Option<String> {
    let begins = |at: usize| match at.checked_sub(1).map(|before| &pieces[before]) {
        None => true,
        Some(before) => {
            let behind = before.is_mark('(') || before.is_mark(')');
            behind || explained && !matches!(before, SqlPiece::Mark(_) | SqlPiece::Literal)
        }
    };
    let is_called = |at: usize| pieces.get(at + 1).is_some_and(|next| next.is_mark('('));
    let writes = |piece: &SqlPiece| piece.is(&WRITING) || explained && piece.is(&EXPLAINED);
    let found = pieces.iter().enumerate().find(|(at, piece)| writes(piece) && begins(*at) && !is_called(*at));
    found.and_then(|(_, piece)| match piece {
        SqlPiece::Word(word) => Some(word.clone()),
        SqlPiece::Quoted(_) | SqlPiece::Literal | SqlPiece::Mark(_) => None,
    })
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
                "SELECT 'DELETE FROM t; -- /* #' AS x",
                "SELECT a - -1, 1.5e3 * 2, 1e-5, 'it''s', 'ü', x'00ff' FROM t WHERE a <> '' AND b >= 'two\nlines'",
                "(SELECT 1) UNION (SELECT 2)",
                "WITH x AS (SELECT 1 AS a) SELECT a FROM x",
                "VALUES (1), (2)",
                "EXPLAIN SELECT 1",
                "SELECT replace('a', 'b', 'c'), insert('a', 1, 1, 'b') FROM t",
                "SELECT deleted_at, updated, t1.e0, t1.email FROM t AS t1;",
            ] {
                assert_eq!(judge(dialect, text).0, SqlKind::Reads, "{dialect:?} {text}");
            }
        }
        assert_eq!(judge(Dialect::Sqlite, "PRAGMA table_info(t)").0, SqlKind::Reads);
        assert_eq!(judge(Dialect::Sqlite, "SELECT \"delete\" FROM [update]").0, SqlKind::Reads);
        assert_eq!(judge(Dialect::Mysql, "SELECT `delete` FROM `update`").0, SqlKind::Reads);
        let json = "SELECT a #>> '{b}', c::text, d->'e', ARRAY['f'], '\\d' FROM \"ü\"";
        assert_eq!(judge(Dialect::Postgres, json).0, SqlKind::Reads);
    }

    #[test]
    fn s4_16_what_changes_is_known_by_its_words() {
        for dialect in ALL {
            for (text, verb) in [
                ("insert into t values (1)", "INSERT"),
                ("UPDATE t SET a = 'SELECT'", "UPDATE"),
                ("\n\tDELETE\r\nFROM t", "DELETE"),
                ("DROP TABLE t", "DROP"),
                ("CREATE TABLE t (a int)", "CREATE"),
                ("ALTER TABLE t ADD b int", "ALTER"),
                ("TRUNCATE t", "TRUNCATE"),
                ("WITH x AS (SELECT 1) DELETE FROM t", "WITH DELETE"),
                ("WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x", "WITH DELETE"),
                ("WITH x AS (SELECT 1)insert INTO t SELECT * FROM x", "WITH INSERT"),
                ("EXPLAIN ANALYZE DELETE FROM t", "EXPLAIN DELETE"),
                ("EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1", "EXPLAIN CREATE"),
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
        let trigger = "CREATE TRIGGER a AFTER INSERT ON t BEGIN DELETE FROM u; UPDATE v SET a = 1; END";
        assert_eq!(judge(Dialect::Sqlite, trigger).0, SqlKind::Changes);
    }

    /// S4-16: a statement that two readers could read differently is read by nobody.
    #[test]
    fn s4_16_what_could_be_read_in_two_ways_is_refused() {
        let says = |dialect, text: &str, says: &str| {
            let error = Sql::read(dialect, text).expect_err(text).to_string();
            assert!(error.contains(says), "{dialect:?} {text}: {error}");
        };
        for dialect in ALL {
            for (text, said) in [
                ("SELECT 1 -- x", "begins a comment"),
                ("SELECT 1 --\u{a0}x", "begins a comment"),
                ("SELECT 1 --\u{1}'\n INTO OUTFILE '/x' -- '", "control character"),
                ("SELECT 1--1", "`- -`"),
                ("SELECT 1 /* x */", "has a comment"),
                ("SELECT 1 </*'*/ 2, f('x') /*'*/", "has a comment"),
                ("SELECT 1 /*!50000 INTO OUTFILE '/x' */", "has a comment"),
                ("SELECT $$x$$", "a `$` outside"),
                ("SELECT $€$/*$€$, f(), $€$*/$€$", "a `$` outside"),
                ("DROP \u{feff}TABLE item", "outside quotes"),
                ("SELECT\u{a0}1", "outside quotes"),
                ("SELECT 1\u{c}", "control character"),
                ("SELECT 'a\u{7f}'", "control character"),
                ("SELECT 'a\u{85}'", "control character"),
                ("SELECT E''\n'\\'' || f('x') --'", "right behind `E`"),
                ("SELECT N'x'", "right behind `N`"),
                ("SELECT _gbk'x'", "right behind `_gbk`"),
                ("SELECT U&'\\0061'", "right behind `&`"),
                ("SELECT U&\"x\"", "right behind `&`"),
                ("SELECT 'a'\n'b'", "nothing between them"),
                ("SELECT 'a", "is not closed"),
                ("SELECT 1INTO t", "begins like a number"),
                ("SELECT 1.e0INTO @x", "right behind a number and a point"),
                ("; DROP TABLE item", "begins with a semicolon"),
                ("SELECT \\N", "backslash outside"),
            ] {
                says(dialect, text, said);
            }
        }
        says(Dialect::Mysql, "SELECT 1 # x", "has a comment");
        says(Dialect::Mysql, "SELECT '\\' INTO OUTFILE '/x' -- '", "backslash before a quote");
        says(Dialect::Mysql, "SELECT \"a\\\" b\"", "backslash before a quote");
        says(Dialect::Mysql, "SELECT 'a' \"b\"", "nothing between them");
        says(Dialect::Postgres, "SELECT `a`", "backtick");
    }

    #[test]
    fn what_people_see_is_all_of_it() {
        let shown = |text: &str| Sql::read(Dialect::Postgres, text).expect(text).statement.text;
        assert_eq!(shown("delete\n from public . t where a='b'"), "DELETE FROM public.t WHERE a = 'b'");
        assert_eq!(shown("select a->>'b'::text,c(1)"), "SELECT a ->> 'b' :: text, c(1)");
        assert_eq!(shown("drop table item;;"), "DROP TABLE item");
        let long = format!("WITH x AS (SELECT '{}') DELETE FROM item", "x".repeat(16_000));
        assert_eq!(shown(&long), long.replace("AS (", "AS("));
        let error = Sql::read(Dialect::Postgres, &long.replace("xxx", "xxxx")).expect_err("it is too long");
        assert!(error.to_string().contains("write less at a time"), "{error}");
    }

    /// S4-16: whatever could name a function counts, wherever it stands.
    #[test]
    fn s4_16_names_are_found_everywhere() {
        let read = |text: &str| Sql::read(Dialect::Postgres, text).expect(text);
        let text = "SELECT i.Wipe, 'pg_sleep', \"an odd \"\"one\", 'x.f€g(' FROM Item i";
        let names = read(text).names;
        for name in ["wipe", "Wipe", "pg_sleep", "an odd \"one", "f€g", "item"] {
            assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
        }
        let sql =
            Sql::read(Dialect::Mysql, "SELECT `Load_File` ('x'), sleep\n(1), 'get_lock(', a FROM b").expect("SQL");
        assert_eq!(sql.calls, ["get_lock", "load_file", "sleep"]);
    }
}
