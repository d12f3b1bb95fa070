//! Finds a text whose white space need not be right (S4-15), in three stages: to the byte; whole lines but for white space at
//! their ends; whole lines but for white space around them. More than one place at a stage is an error, and later stages are
//! not tried: they would find at least those (X4-12).
//!
//! The place is an offset. Whoever replaces the text that was found, wherever that is first, changes another line.

use std::borrow::Cow;

use callgate_policy::path::HostPath;
use memchr::memmem::Finder;

use super::error::EditError;
use super::mismatch::{MatchStage, Mismatch};
use super::place::{PLACES_MAX, Splice, line_of, only_place};

/// Where `old` is, and what is to be there.
pub(super) fn find<'n>(content: &[u8], (old, new): (&str, &'n str), path: &HostPath) -> Result<Splice<'n>, EditError> {
    match only_place(content, old.as_bytes(), path) {
        Ok(at) => {
            let range = at..at + old.len();
            return Ok(Splice { range, new: Cow::Borrowed(new.as_bytes()), stage: MatchStage::Exact });
        }
        Err(EditError::NotFound { .. }) => {}
        Err(other) => return Err(other),
    }
    let found = TextLines::of(content);
    let wanted = TextLines::of(old.as_bytes());
    if !wanted.0.iter().all(|(line, _)| line.trim_ascii().is_empty()) {
        for stage in [MatchStage::TrailingSpace, MatchStage::Indentation] {
            if let Some(first) = place(content, (&found, &wanted), stage, path)? {
                return Ok(splice(
                    (&found.0[first..first + wanted.0.len()], &wanted),
                    (old, new),
                    (stage, content.len()),
                ));
            }
        }
    }
    Err(EditError::NotFound { path: path.clone(), why: Mismatch::find(content, old.as_bytes()) })
}

/// The lines of a text without their ends, and where they begin.
struct TextLines<'t>(Vec<(&'t [u8], usize)>);

impl<'t> TextLines<'t> {
    fn of(text: &'t [u8]) -> Self {
        let mut at = 0;
        let lines = text.split_inclusive(|byte| *byte == b'\n').map(|line| {
            let begins = at;
            at += line.len();
            (line.strip_suffix(b"\n").unwrap_or(line), begins)
        });
        Self(lines.collect())
    }

    /// Bytes that are compared at a stage, with a newline before each line and one at the end, so that only whole lines
    /// are found.
    fn compared(&self, stage: MatchStage) -> Vec<u8> {
        let mut text = Vec::new();
        for (line, _) in &self.0 {
            text.push(b'\n');
            text.extend_from_slice(match stage {
                MatchStage::Exact => line,
                MatchStage::TrailingSpace => line.trim_ascii_end(),
                MatchStage::Indentation => line.trim_ascii(),
            });
        }
        text.push(b'\n');
        text
    }
}

/// The first line of the only place, counted from 0.
fn place(
    content: &[u8],
    (found, wanted): (&TextLines<'_>, &TextLines<'_>),
    stage: MatchStage,
    path: &HostPath,
) -> Result<Option<usize>, EditError> {
    let (text, wanted) = (found.compared(stage), wanted.compared(stage));
    let finder = Finder::new(&wanted);
    let (mut places, mut times, mut from, mut line) = (Vec::new(), 0, 0, 0);
    while let Some(at) = finder.find(&text[from..]) {
        line += memchr::memchr_iter(b'\n', &text[from..from + at]).count();
        times += 1;
        if places.len() < PLACES_MAX {
            places.push(line);
        }
        // The newline with which it begins.
        from += at + 1;
        line += 1;
    }
    match places.as_slice() {
        [] => Ok(None),
        [place] => Ok(Some(*place)),
        several => {
            let lines = several.iter().map(|line| line_of(content, found.0[*line].1)).collect();
            Err(EditError::NotUnique { path: path.clone(), times, lines, stage })
        }
    }
}

/// The new lines in the place of those that were found.
fn splice<'n>(
    (found, wanted): (&[(&[u8], usize)], &TextLines<'_>),
    (old, new): (&str, &str),
    (stage, length): (MatchStage, usize),
) -> Splice<'n> {
    let start = found.first().map_or(0, |(_, at)| *at);
    let (last, at) = found.last().copied().unwrap_or((b"", 0));
    // With `\r\n` in the file, the `\r` belongs to the end of the line. The last line of a file may have no end.
    let has_end = |(line, at): &&(&[u8], usize)| at + line.len() < length;
    let is_crlf =
        found.iter().any(|line| has_end(&line)) && found.iter().filter(has_end).all(|(line, _)| line.ends_with(b"\r"));
    let ends = at + last.len() < length;
    let takes_newline = old.ends_with('\n') && ends;
    let end = if takes_newline { at + last.len() + 1 } else { at + last.len() - usize::from(is_crlf && ends) };
    let new = if old.ends_with('\n') && !ends { new.strip_suffix('\n').unwrap_or(new) } else { new };
    let indents: Vec<(&[u8], &[u8])> = wanted
        .0
        .iter()
        .zip(found)
        .filter(|((line, _), _)| !line.trim_ascii().is_empty())
        .map(|((wanted, _), (found, _))| (indent(wanted), indent(found)))
        .collect();
    let mut text = Vec::new();
    for line in new.split_inclusive('\n') {
        let (line, ends) = line.strip_suffix('\n').map_or((line, false), |line| (line, true));
        match stage {
            MatchStage::Indentation => text.extend(indented(line.as_bytes(), &indents)),
            MatchStage::Exact | MatchStage::TrailingSpace => text.extend_from_slice(line.as_bytes()),
        }
        if ends {
            text.extend_from_slice(if is_crlf && !line.ends_with('\r') { b"\r\n" } else { b"\n" });
        }
    }
    Splice { range: start..end, new: Cow::Owned(text), stage }
}

fn indent(line: &[u8]) -> &[u8] {
    &line[..line.len() - line.trim_ascii_start().len()]
}

/// A new line, indented in the file as it is in the new text: what stands before it there is the indentation of a line that
/// was found, or more, or less.
fn indented(line: &[u8], indents: &[(&[u8], &[u8])]) -> Vec<u8> {
    let (own, rest) = (indent(line), line.trim_ascii_start());
    if rest.is_empty() {
        return line.to_vec();
    }
    let within = indents.iter().filter(|(wanted, _)| own.starts_with(wanted)).max_by_key(|(wanted, _)| wanted.len());
    if let Some((wanted, found)) = within {
        return [found, &own[wanted.len()..], rest].concat();
    }
    let least = indents.iter().min_by_key(|(wanted, _)| wanted.len());
    let (wanted, found) = least.copied().unwrap_or_default();
    let left = found.len().saturating_sub(wanted.len().saturating_sub(own.len()));
    [&found[..left], rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(content: &str, old: &str, new: &str) -> Result<(String, &'static str), EditError> {
        let Splice { range, new, stage } = find(content.as_bytes(), (old, new), &"/f".into())?;
        let after = [&content.as_bytes()[..range.start], &new, &content.as_bytes()[range.end..]].concat();
        Ok((String::from_utf8(after).expect("text"), stage.name()))
    }

    #[test]
    fn s4_15_three_stages() {
        for (content, old, new, after, stage) in [
            ("a\nb\n", "b", "c", "a\nc\n", "exact"),
            ("if x {  \n    y\t\n}\n", "if x {\n    y\n", "if z {\n", "if z {\n}\n", "trailing-space"),
            ("if x {\n    y  \n}\n", "if x {\n    y\n}", "if z {\n}", "if z {\n}\n", "trailing-space"),
            ("a\r\nb\r\nc", "a\nb\n", "x\ny\nz\n", "x\r\ny\r\nz\r\nc", "trailing-space"),
            ("a\r\nb\r\nc", "a\nb", "x\ny", "x\r\ny\r\nc", "trailing-space"),
            // The relative indentation of the new lines is kept.
            (
                "fn f() {\n        if x {\n            y();\n        }\n}\n",
                "if x {\n    y();\n}\n",
                "if x {\n    if z {\n        y();\n    }\n}\n",
                "fn f() {\n        if x {\n            if z {\n                y();\n            }\n        }\n}\n",
                "indentation",
            ),
            // Tabs in the file, blanks in the call.
            (
                "\tif x {\n\t\ty();\n\t}\n",
                "if x {\n    y();\n}\n",
                "if x {\n    z();\n\n}\n",
                "\tif x {\n\t\tz();\n\n\t}\n",
                "indentation",
            ),
            // Less than what was found.
            ("        a\n        b\n", "      a\n      b\n", "    c\n", "      c\n", "indentation"),
            ("a\n", "   a\n", "  b\n", "b\n", "indentation"),
            ("a\n  b", "b\n", "c\n", "a\n  c", "indentation"),
        ] {
            assert_eq!(edit(content, old, new).expect(old), (after.to_owned(), stage), "{content:?}");
        }
    }

    /// The upstream bug: what was found is replaced where it is first as a text, which is in the middle of another line.
    #[test]
    fn x4_12_the_place_that_was_found_is_changed() {
        let content = "x  a = 1;\n  b = 2;\nmid\n  a = 1;\n  b = 2;\n";
        let after = "x  a = 1;\n  b = 2;\nmid\n  a = 3;\n";
        assert_eq!(edit(content, "a = 1;\nb = 2;", "a = 3;").expect("found"), (after.to_owned(), "indentation"));
    }

    #[test]
    fn x4_12_two_places_at_a_stage_are_an_error() {
        for (content, old, stage) in [
            ("a\na\n  a\n", "a\n", MatchStage::Exact),
            // The third stage alone would find three.
            ("x  \ny\n\nx \ny\n\n  x\n  y\n", "x\ny\n", MatchStage::TrailingSpace),
            ("  x\n  y\n\n\tx\n\ty\n", "x\ny\n", MatchStage::Indentation),
        ] {
            let error = edit(content, old, "z\n").expect_err(old);
            assert!(matches!(&error, EditError::NotUnique { stage: at, .. } if *at == stage), "{error:?}");
            assert!(error.to_string().contains(stage.text()), "{error}");
        }
        for (content, old) in [("  \n\n", " \t\n"), ("ab\n", "b\nc\n"), ("ab\n  cd\n", "b\ncd\n")] {
            assert!(matches!(edit(content, old, "z"), Err(EditError::NotFound { .. })), "{old:?}");
        }
    }
}
