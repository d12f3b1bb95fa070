//! Which tools there are, and which of them nobody is asked about, unless the manifest says so (S4-1, C-8, C-24).

use crate::mode::Mode;

/// `profile`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Profile {
    /// Tools that change nothing, and a shell for commands that only read (S4-9).
    Readonly,
    /// All tools.
    #[default]
    Developer,
    /// For evaluations: nothing that asks (X4-1).
    Eval,
    /// For planning: reading and searching (X3-5, C-24).
    Plan,
}

/// Tools that change nothing, and start nothing.
const READING: [&str; 3] = ["read", "glob", "grep"];

/// With a shell that only reads.
const READONLY: [&str; 4] = ["read", "glob", "grep", "bash"];

impl Profile {
    /// The names in a manifest.
    pub const NAMES: [&str; 4] = ["readonly", "developer", "eval", "plan"];

    /// Reads a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "readonly" => Some(Self::Readonly),
            "developer" => Some(Self::Developer),
            "eval" => Some(Self::Eval),
            "plan" => Some(Self::Plan),
            _ => None,
        }
    }

    /// The name in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Readonly => "readonly",
            Self::Developer => "developer",
            Self::Eval => "eval",
            Self::Plan => "plan",
        }
    }

    /// Whether a tool is there at all. One that is not is unavailable before anything else is looked at (C-7, X3-4).
    #[must_use]
    pub fn offers(self, tool: &str) -> bool {
        match self {
            Self::Developer | Self::Eval => true,
            Self::Readonly => READONLY.contains(&tool),
            Self::Plan => READING.contains(&tool),
        }
    }

    /// Tools that nobody is asked about, because they change nothing (C-8).
    #[must_use]
    pub fn silent(self) -> &'static [&'static str] {
        match self {
            Self::Readonly => &READONLY,
            Self::Developer | Self::Eval | Self::Plan => &READING,
        }
    }

    /// Whether a shell is for commands that only read (S4-9, C-23).
    #[must_use]
    pub fn restricts_the_shell(self) -> bool {
        self == Self::Readonly
    }

    /// Whether anything may be changed at all, whatever is asked for.
    #[must_use]
    pub fn may_write(self) -> bool {
        match self {
            Self::Developer | Self::Eval => true,
            Self::Readonly | Self::Plan => false,
        }
    }

    /// The mode, where nobody names one.
    #[must_use]
    pub fn mode(self) -> Mode {
        match self {
            Self::Eval => Mode::Yolo,
            Self::Readonly | Self::Developer | Self::Plan => Mode::Ask,
        }
    }
}
