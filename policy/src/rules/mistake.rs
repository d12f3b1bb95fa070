//! Mistakes by which a pattern is about no command.
//!
//! A line is compared command by command, as the words that a program gets. So what a shell makes something else of, stands in no
//! command: operators, redirections, quotes, the words of loops, a variable before a command. Within a word anything can stand,
//! which is why only what stands alone is a mistake, and none that is handed to a shell (`sh -c a && b`).

use crate::shell::starts::{assigned, base, is_shell};

/// Mistake by which a pattern can never match a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandMistake {
    /// Several commands.
    #[error(
        "a line is compared command by command, and it has {0:?} in it; write a rule for each command: one about `bash *` is about \
         the `bash` in `x | bash` too"
    )]
    Several(String),
    /// A command in the background.
    #[error("a command is compared without the `&` behind it; write {0:?}")]
    Background(String),
    /// A comment.
    #[error("a shell takes what is behind `#` for a comment; write {0:?}, or `*` for a `#` in quotes")]
    Comment(String),
    /// A redirection behind a command.
    #[error(
        "what a command reads and writes is compared by itself; write {command:?}, and where the file matters a rule with \
         the pattern \"> FILE\" or \"< FILE\""
    )]
    Redirect {
        /// The pattern without it.
        command: String,
    },
    /// A file that is read or written, by another operator than the one that stands for all.
    #[error(
        "a file that is written is compared as `> FILE`, and one that is read as `< FILE`, by whichever operator; write {0:?}"
    )]
    Operator(String),
    /// Blanks that no command has.
    #[error("words are compared with one blank between two, and none before and behind all; write {0:?}")]
    Blanks(String),
    /// A variable that is set for a command.
    #[error(
        "a variable is compared by itself, without the command for which it is set; write a rule with {variable:?} and one with {command:?}"
    )]
    Variable {
        /// The pattern for the variable.
        variable: String,
        /// The pattern for the command.
        command: String,
    },
    /// A word of the shell's own.
    #[error("`{0}` is a word of the shell's and starts nothing; write a rule for each command that stands in it")]
    Keyword(String),
    /// Quotes.
    #[error(
        "a shell takes quotes and `\\` away before a program gets the word; write {0:?}, or `*` for a word with quotes in it"
    )]
    Quotes(String),
}

/// Words of the shell's grammar that no command begins with.
const KEYWORDS: [&str; 19] = [
    "for", "while", "until", "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "select", "function",
    "{", "}", "(", ")", "!",
];

/// The mistake in a pattern for commands, if there is one.
pub(super) fn mistake(pattern: &str) -> Option<CommandMistake> {
    // What stands behind `<<` is a text.
    let (command, document) = match pattern.split_once(" <<") {
        Some((command, document)) if !document.starts_with('<') => (command, Some(document)),
        _ => (pattern, None),
    };
    let name = command.split(' ').next().unwrap_or_default();
    // Their words may be lines, in which all of this stands.
    let is_handed_on =
        is_shell(base(name)) || (name.contains('*') && name != "*") || matches!(base(name), "eval" | "trap");
    let behind = |command: String| document.map_or(command.clone(), |document| format!("{command} <<{document}"));
    let plain = || behind(command.split_whitespace().collect::<Vec<_>>().join(" "));
    if command.trim() != command || (document.is_none() && pattern.trim() != pattern) {
        return Some(CommandMistake::Blanks(plain()));
    }
    let words: Vec<&str> = command.split(' ').collect();
    if is_handed_on {
        return is_line_quoted(base(name), &words).then(|| CommandMistake::Quotes(behind(unquoted(&words))));
    }
    if words.contains(&"") {
        return Some(CommandMistake::Blanks(plain()));
    }
    if let Some(file) = file_of(&words) {
        return file;
    }
    let grouped = ["((", "(", "$(", "!"].into_iter().find(|word| name.starts_with(word));
    if KEYWORDS.contains(&name) || grouped.is_some() {
        return Some(CommandMistake::Keyword(grouped.unwrap_or(name).to_owned()));
    }
    if assigned(name).is_some() && words.len() > 1 {
        let command = words[words.iter().take_while(|word| assigned(word).is_some()).count()..].join(" ");
        return (!command.is_empty())
            .then(|| CommandMistake::Variable { variable: name.to_owned(), command: behind(command) });
    }
    shell_s_own(name, &words, &behind)
}

/// A pattern for a file: nothing, if it is written as such patterns are.
fn file_of(words: &[&str]) -> Option<Option<CommandMistake>> {
    let (first, rest) = words.split_first()?;
    let operator = first.trim_start_matches(|c: char| c.is_ascii_digit() || c == '&');
    let target = operator.trim_start_matches(['>', '<', '|', '&']);
    if target.len() == operator.len() {
        return None;
    }
    let sign = if operator.starts_with('<') { "<" } else { ">" };
    let file = [&[target][..], rest].concat().join(" ");
    let file = if file.trim().is_empty() { "*" } else { file.trim_start() };
    let written = format!("{sign} {file}");
    let is_written_so = *first == sign && !rest.is_empty();
    Some((!is_written_so).then_some(CommandMistake::Operator(written)))
}

/// An operator, a redirection or quotes among the words of a command.
fn shell_s_own(name: &str, words: &[&str], behind: &dyn Fn(String) -> String) -> Option<CommandMistake> {
    // `find -exec x ;` is told its end by a word.
    let ends_by_word = words.iter().any(|word| matches!(*word, "-exec" | "-execdir" | "-ok" | "-okdir"));
    let is_between = |word: &str| {
        matches!(word, "|" | "|&") || word.starts_with("&&") || word.starts_with("||") || (word == ";" && !ends_by_word)
    };
    let last = words.len() - 1;
    if words[last] == "&" {
        return Some(CommandMistake::Background(words[..last].join(" ")));
    }
    if let Some(at) = words.iter().position(|word| *word == "#").filter(|at| *at > 0) {
        return Some(CommandMistake::Comment(behind(words[..at].join(" "))));
    }
    if !has_code(name, words) {
        let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "*-_./".contains(c));
        if let Some(word) = words[last].strip_suffix('&').filter(|word| is_word(word)) {
            return Some(CommandMistake::Background([&words[..last], &[word]].concat().join(" ")));
        }
        if words[last].strip_suffix(';').is_some_and(is_word) {
            return Some(CommandMistake::Several(";".to_owned()));
        }
        let joins = |operator: &&&str| {
            let both = words.iter().filter_map(|word| word.split_once(**operator));
            both.into_iter().any(|(before, after)| !before.is_empty() && is_word(before) && is_word(after))
        };
        if let Some(operator) = ["&&", "||"].iter().find(joins) {
            return Some(CommandMistake::Several((*operator).to_owned()));
        }
    }
    let ends_here = |at: usize, word: &str| {
        at < last && word.len() > 1 && word.ends_with([';', '&']) && (at == 0 || name == "cd") && !word.contains('*')
    };
    let several = words.iter().enumerate().find(|(at, word)| is_between(word) || **word == "&" || ends_here(*at, word));
    if let Some((_, word)) = several {
        let operator = if is_between(word) { *word } else { &word[word.len() - 1..] };
        return Some(CommandMistake::Several(operator.to_owned()));
    }
    if let Some(at) = words.iter().position(|word| is_redirect(word)) {
        return Some(CommandMistake::Redirect { command: behind(words[..at].join(" ")) });
    }
    let is_quoted = |word: &str| {
        let quote = word.chars().next().filter(|c| matches!(c, '"' | '\''));
        word == "\\;"
            || (word.ends_with('\\') && words.last() != Some(&word))
            || quote.is_some_and(|quote| words.join(" ")[..].matches(quote).count() % 2 == 0 && word.len() > 1)
    };
    words.iter().any(|word| is_quoted(word)).then(|| CommandMistake::Quotes(behind(unquoted(words))))
}

/// The words as a program gets them.
fn unquoted(words: &[&str]) -> String {
    words.join(" ").replace("\\;", ";").replace("\\ ", " ").replace(['"', '\''], "")
}

/// True if the line that is handed to a shell (`sh -c "…"`, `eval "…"`) stands in quotes as a whole.
fn is_line_quoted(name: &str, words: &[&str]) -> bool {
    let is_option = |word: &&str| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
    let line = match name {
        "eval" | "trap" => words.get(1..),
        _ => words.iter().position(is_option).and_then(|at| words.get(at + 1..)),
    };
    let line = line.unwrap_or_default().join(" ");
    let Some(quote) = line.chars().next().filter(|c| matches!(c, '"' | '\'')) else { return false };
    match line[1..].split_once(quote) {
        // Behind the line of `trap` stand signals.
        Some((_, after)) => after.is_empty() || name == "trap",
        None => false,
    }
}

/// True if a word may be code in another language, in which operators of the shell's stand too.
fn has_code(name: &str, words: &[&str]) -> bool {
    let is_program = matches!(base(name), "awk" | "gawk" | "mawk" | "sed" | "jq" | "sqlite3" | "grep" | "egrep" | "rg");
    let takes_code = |word: &&str| matches!(*word, "-c" | "-e" | "-exec" | "-execdir" | "-ok" | "-okdir" | "--eval");
    is_program || words.iter().any(takes_code)
}

/// True if a word is a redirection: `>`, `2>&1`, `&>x`, `<<<`.
fn is_redirect(word: &str) -> bool {
    let operator = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let operator = operator.strip_prefix('&').filter(|rest| rest.starts_with('>')).unwrap_or(operator);
    let target = operator.trim_start_matches(['>', '<']);
    // `<x>` and `>=` are words of other languages.
    target.len() < operator.len() && !target.starts_with('=') && !target.ends_with('>')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S0-51: what stands in no command is no pattern, and the error says what to write.
    #[test]
    fn what_no_command_has_is_a_mistake() {
        for (pattern, says) in [
            ("git  push *", "write \"git push *\""),
            (" git push *", "write \"git push *\""),
            ("git push * ", "write \"git push *\""),
            ("git push\t", "write \"git push\""),
            ("sh -c x ", "write \"sh -c x\""),
            ("A=1 git push *", "one with \"git push *\""),
            ("A=1 B=* git push", "one with \"git push\""),
            ("make 2>&1", "write \"make\""),
            ("make * > out", "write \"make *\""),
            ("make >out *", "write \"make\""),
            ("make &> out", "write \"make\""),
            ("make < in", "write \"make\""),
            ("bc <<< x", "write \"bc\""),
            (">> log", "write \"> log\""),
            (">log", "write \"> log\""),
            ("2> *.log", "write \"> *.log\""),
            ("&>log", "write \"> log\""),
            ("sleep * &", "write \"sleep *\""),
            ("sleep 1 & ls", "has \"&\" in it"),
            ("for *", "`for` is a word of the shell's"),
            ("while true", "`while` is"),
            ("! ls", "`!` is"),
            ("{ ls", "`{` is"),
            ("* | bash", "has \"|\" in it"),
            ("curl * | sh *", "about `bash *` is about"),
            ("a && b", "has \"&&\" in it"),
            ("a || b", "has \"||\" in it"),
            ("a |& b", "has \"|&\" in it"),
            ("a ; b", "has \";\" in it"),
            ("ls; rm *", "has \";\" in it"),
            ("cd src; make", "has \";\" in it"),
            ("a &&b", "has \"&&b\" in it"),
            ("git commit -m \"*\"", "write \"git commit -m *\""),
            ("echo 'a b'", "write \"echo a b\""),
            ("find * -exec rm {} \\;", "write \"find * -exec rm {} ;\""),
            ("bash -c \"git push*\"", "write \"bash -c git push*\""),
            ("sh -c 'curl *'", "write \"sh -c curl *\""),
            ("/bin/bash -lc 'curl *'", "write \"/bin/bash -lc curl *\""),
            ("*sh -c 'curl *'", "write \"*sh -c curl *\""),
            ("eval \"git push\"", "write \"eval git push\""),
            ("trap 'rm *' EXIT", "write \"trap rm * EXIT\""),
            ("(rm *)", "`(` is a word of the shell's"),
            ("$(rm *)", "`$(` is a word of the shell's"),
            ("!git push", "`!` is a word of the shell's"),
            ("rm *;", "has \";\" in it"),
            ("git push;", "has \";\" in it"),
            ("git push&", "write \"git push\""),
            ("git push||true", "has \"||\" in it"),
            ("git add a&&git push", "has \"&&\" in it"),
            ("git push origin main # no", "write \"git push origin main\""),
            ("rm My\\ File", "write \"rm My File\""),
        ] {
            let found = mistake(pattern).map(|mistake| mistake.to_string());
            assert!(found.as_ref().is_some_and(|found| found.contains(says)), "{pattern:?}: {found:?}");
        }
        for pattern in [
            "git push *",
            "git push",
            "> out",
            "> *",
            "< *key",
            "> my file",
            "A=1",
            "A=*",
            "PATH=*",
            "python3 - <<*",
            "python3 - <<a  b",
            "sh -c a && b",
            "sh -c a  b",
            "bash -c * | *",
            "*sh -c x; y",
            "eval a | b",
            "trap a; b *",
            "*&&*",
            "*",
            "sqlite3 db SELECT 1;",
            "psql -c SELECT a<b",
            "find * -exec rm {} ;",
            "awk {print} *",
            "grep a|b *",
            "grep -e <x> *",
            "python3 -c print(\"*\")",
            "time ls *",
            "[ -f * ]",
            "[[ -f x ]]",
            "coproc *",
            "test 1 >= 2",
            "sed s/a/b/;p",
            "sed s/a/b/;",
            "awk {print};",
            "awk $1||$2 *",
            "psql -c drop table x;",
            "curl http://x/?a=1&b=2&",
            "bash -c echo \"a b\"",
            "bash -c *\"*",
            "eval echo 'a b'",
            "bash x.sh \"a\"",
            "cat a#b",
            "cat #a",
        ] {
            assert_eq!(mistake(pattern), None, "{pattern:?}");
        }
    }
}
