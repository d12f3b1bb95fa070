//! Lines that a program was typed and that are not ended: rules judge the next text together with them.

use callgate_policy::shell::input::SIGNALS;

/// Most bytes of a line that are remembered.
const KEPT: usize = 16 * 1024;
/// A character that no shell reads as a part of a command: what a line with it says is not known.
const UNKNOWN: char = '\u{1b}';

/// The line that a program has been typed, as far as it is not ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UnfinishedLine(String);

impl UnfinishedLine {
    /// One of which nothing is known: an input that was cut short.
    pub(crate) fn unknown() -> Self {
        Self(UNKNOWN.to_string())
    }

    /// This line with more behind it: what is behind the last end of a line. A backslash before that end takes it away.
    pub(crate) fn and(&self, bytes: &[u8]) -> Self {
        let all = self.0.clone() + &String::from_utf8_lossy(bytes).replace(SIGNALS, "");
        let is_end = |at: usize| {
            let backslashes = all[..at].bytes().rev().take_while(|byte| *byte == b'\\').count();
            backslashes % 2 == 0
        };
        let end = all.rmatch_indices(['\n', '\r']).map(|(at, _)| at).find(|at| is_end(*at));
        let rest = end.map_or(&*all, |end| &all[end + 1..]);
        if rest.len() > KEPT { Self::unknown() } else { Self(rest.to_owned()) }
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_kept_until_its_end() {
        let typed = |texts: &[&str]| {
            texts.iter().fold(UnfinishedLine::default(), |line, text| line.and(text.as_bytes())).text().to_owned()
        };
        assert_eq!(typed(&["git pu", "sh"]), "git push");
        assert_eq!(typed(&["git pu", "sh\n"]), "");
        assert_eq!(typed(&["git pu", "ll\rgit pu"]), "git pu");
        assert_eq!(typed(&["git pu\\\n", "sh"]), "git pu\\\nsh");
        assert_eq!(typed(&["echo \\\\\n", "sh"]), "sh");
        assert_eq!(typed(&["git pu", "\u{4}", "sh"]), "git push");
        assert_eq!(UnfinishedLine::default().and(&vec![b'x'; KEPT + 1]), UnfinishedLine::unknown());
        assert_eq!(UnfinishedLine::unknown().and(b"\nls"), UnfinishedLine("ls".to_owned()));
    }
}
