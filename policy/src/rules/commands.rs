//! A command line as the parts that rules look at.

use crate::shell::{Line, Piece, Redirect, Simple, Word};

use super::HOLE;

/// Each part of a line that rules must allow, as text: a command with its arguments; `NAME=value` for each variable that is
/// set, since what a program does hangs on those too; `> file` for each file that the shell itself writes. `None` if the line
/// was not understood as a whole: then there may be others.
#[must_use]
pub fn parts(line: &Line) -> Option<Vec<String>> {
    let commands = line.understood().ok()?;
    Some(commands.iter().flat_map(of_command).collect())
}

/// The same for people, with `…` for what is not known before it runs.
#[must_use]
pub fn shown(line: &Line) -> Option<Vec<String>> {
    Some(parts(line)?.iter().map(|part| part.replace(HOLE, "…")).collect())
}

fn of_command(command: &Simple) -> Vec<String> {
    let words: Vec<String> = command.words.iter().map(text).collect();
    let run = (!words.is_empty()).then(|| words.join(" "));
    let set = command.assignments.iter().map(|assignment| {
        let values: Vec<String> = assignment.values.iter().map(text).collect();
        format!("{}={}", assignment.name, values.join(" "))
    });
    let written = command.redirects.iter().filter_map(|redirect| Some(format!("> {}", text(written(redirect)?))));
    run.into_iter().chain(set).chain(written).collect()
}

/// The file that a redirection writes, if it is one that matters.
fn written(redirect: &Redirect) -> Option<&Word> {
    let target = redirect.target.as_ref()?;
    let reads = matches!(redirect.operator.as_str(), "<" | "<<" | "<<-" | "<<<");
    // A copy of a descriptor, as in `2>&1`, writes no other file.
    let copies = redirect.operator.ends_with('&')
        && target.text().is_some_and(|text| text.bytes().all(|b| b.is_ascii_digit() || b == b'-'));
    let nothing = target.text() == Some("/dev/null");
    (!reads && !copies && !nothing).then_some(target)
}

/// A word, with a hole for all that is only known at run time. Blanks in it stay: a rule that means one word of it means more.
fn text(word: &Word) -> String {
    match word {
        Word::Static(text) => text.replace(HOLE, "?"),
        Word::Dynamic(pieces) => pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.replace(HOLE, "?"),
                Piece::Variable { .. }
                | Piece::Output { .. }
                | Piece::Pipe
                | Piece::Home
                | Piece::Tilde
                | Piece::Number
                | Piece::Glob(_)
                | Piece::Braces => HOLE.to_string(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;
    use crate::shell::Assignment;

    fn word(text: &str) -> Word {
        Word::Static(text.to_owned())
    }

    /// What a command sets and writes is a part of its own: `git log *` allows neither another pager nor a file.
    #[test]
    fn what_is_set_and_written_is_a_part() {
        let redirect = |operator: &str, target: &str| Redirect {
            operator: operator.to_owned(),
            fd: None,
            target: Some(word(target)),
        };
        let command = Simple {
            words: vec![word("git"), word("log"), Word::Dynamic(vec![Piece::Text("a".into()), Piece::Glob('*')])],
            assignments: vec![Assignment { name: "GIT_PAGER".into(), values: vec![word("x")] }],
            redirects: vec![
                redirect(">", "out"),
                redirect(">", "/dev/null"),
                redirect(">&", "1"),
                redirect("<", "in"),
                redirect(">>", "log"),
                redirect("&>", "all"),
            ],
            within: vec![],
        };
        let line = Line { commands: vec![command], unknown: None };
        assert_eq!(parts(&line).unwrap(), ["git log a\0", "GIT_PAGER=x", "> out", "> log", "> all"]);
        assert_eq!(parts(&Line::unknown("it is not bash", 3)), None);
    }
}
