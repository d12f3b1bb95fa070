//! Where a right came from.

use std::collections::BTreeMap;
use std::fmt;

/// Who asked for a right, or bounded it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A line of a manifest.
    Manifest {
        /// The file's name, as the person gave it.
        file: String,
        /// From 1.
        line: usize,
    },
    /// A tool's own `requires` (S0-5).
    Tool(String),
    /// A flag such as `--read`.
    CommandLine,
    /// callgate's default, for want of a manifest.
    Default,
    /// Ceiling that the operator or the person set (X0-1).
    Ceiling,
    /// A manifest's own ceiling.
    ManifestCeiling {
        /// The file's name, as the person gave it.
        file: String,
        /// Where the table stands, from 1.
        line: usize,
        /// A kind that the table bounds.
        kind: Kind,
    },
    /// A profile that changes nothing.
    Profile(String),
    /// The session that started this one (X0-1).
    Parent,
}

impl Source {
    /// Its name in a sentence.
    #[doc(hidden)]
    #[must_use]
    pub fn in_a_sentence(&self) -> String {
        match self {
            Self::Ceiling | Self::Profile(_) | Self::Parent | Self::CommandLine | Self::Default => {
                format!("the {self}")
            }
            Self::ManifestCeiling { .. } | Self::Manifest { .. } | Self::Tool(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest { file, line } => write!(f, "{file}:{line}"),
            Self::Tool(id) => write!(f, "tool {id}"),
            Self::CommandLine => f.write_str("command line"),
            Self::Default => f.write_str("default"),
            Self::Ceiling => f.write_str("ceiling"),
            Self::ManifestCeiling { file, line, kind } => write!(f, "`{}`, {file} line {line}", kind.ceiling_table()),
            Self::Profile(name) => write!(f, "profile {name}"),
            Self::Parent => f.write_str("parent"),
        }
    }
}

/// One item of someone's requirements.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Origin {
    /// Whose.
    pub source: Source,
    /// Under which key.
    pub kind: Kind,
    /// As it was written.
    pub text: String,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {:?}", self.source, self.kind, self.text)
    }
}

/// The kinds of right (S0-36).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `fs.read`
    Read,
    /// `fs.write`
    Write,
    /// `net.hosts`
    Hosts,
    /// `shell`
    Shell,
    /// `capabilities`
    Capabilities,
}

impl Kind {
    /// The manifest's table that bounds it.
    #[must_use]
    pub fn ceiling_table(self) -> &'static str {
        match self {
            Self::Read | Self::Write => "[ceiling.fs]",
            Self::Hosts => "[ceiling.net]",
            Self::Shell => "[[ceiling.shell]]",
            Self::Capabilities => "[ceiling]",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "fs.read",
            Self::Write => "fs.write",
            Self::Hosts => "net.hosts",
            Self::Shell => "shell",
            Self::Capabilities => "capabilities",
        })
    }
}

/// Lines of a manifest on which the items of a `requires` stand, from 1, in their order.
pub(crate) type ItemLines = BTreeMap<Kind, Vec<usize>>;

/// The line of one item; the first if nothing is known of it.
pub(crate) fn line_of(lines: &ItemLines, kind: Kind, place: usize) -> usize {
    lines.get(&kind).and_then(|lines| lines.get(place)).copied().unwrap_or(1)
}
