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
    if is_handed_on {
        return None;
    }
    let words: Vec<&str> = command.split(' ').collect();
    if words.contains(&"") {
        return Some(CommandMistake::Blanks(plain()));
    }
    if let Some(file) = file_of(&words) {
        return file;
    }
    if KEYWORDS.contains(&name) || name.starts_with("((") {
        return Some(CommandMistake::Keyword(name.to_owned()));
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
            || quote.is_some_and(|quote| words.join(" ")[..].matches(quote).count() % 2 == 0 && word.len() > 1)
    };
    words.iter().any(|word| is_quoted(word)).then(|| {
        let plain = words.join(" ").replace("\\;", ";").replace(['"', '\''], "");
        CommandMistake::Quotes(behind(plain))
    })
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
        ] {
            assert_eq!(mistake(pattern), None, "{pattern:?}");
        }
    }
}
