//! How a text was found, and why one may not be found.

use memchr::memmem::Finder;

/// How a text was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatchStage {
    /// To the byte.
    Exact,
    /// But for white space at the ends of its lines.
    TrailingSpace,
    /// But for white space at the beginnings and ends of its lines.
    Indentation,
}

impl MatchStage {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::TrailingSpace => "trailing-space",
            Self::Indentation => "indentation",
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Exact => "",
            Self::TrailingSpace => ", but for white space at the ends of lines,",
            Self::Indentation => ", but for white space around lines,",
        }
    }
}

/// Possible reason why a text is not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// The file's lines end in CRLF, and with that it would be found.
    LineEnds,
    /// It would be found with other white space at the beginnings and ends of its lines.
    Space,
    /// The file is UTF-16, by its byte order mark.
    Utf16,
    /// None that is known.
    Unknown,
}

impl Mismatch {
    pub(super) fn find(content: &[u8], old: &[u8]) -> Self {
        if content.starts_with(b"\xff\xfe") || content.starts_with(b"\xfe\xff") {
            return Self::Utf16;
        }
        // Also one that has CRLF in some of its lines only.
        let crlf =
            lines(old).map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect::<Vec<_>>().join(&b"\r\n"[..]);
        if crlf != old && Finder::new(&crlf).find(content).is_some() {
            return Self::LineEnds;
        }
        let (content, old): (Vec<_>, Vec<_>) =
            (lines(content).map(<[u8]>::trim_ascii).collect(), lines(old).map(<[u8]>::trim_ascii).collect());
        let blank = old.iter().all(|line| line.is_empty());
        let near = !blank && content.windows(old.len()).any(|window| window == old);
        if near { Self::Space } else { Self::Unknown }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::LineEnds => ", whose lines end in \\r\\n",
            Self::Space => ", but for the white space around its lines",
            Self::Utf16 => ", which is UTF-16",
            Self::Unknown => "",
        }
    }

    pub(crate) fn next_step(self) -> &'static str {
        match self {
            Self::LineEnds => "end the lines of both strings with \\r\\n",
            Self::Space => "read those lines again, and give tabs and spaces exactly as they are",
            Self::Utf16 => "convert the file, or use a program such as iconv by bash",
            Self::Unknown => "read the file again, and give the text exactly as it is there",
        }
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}
