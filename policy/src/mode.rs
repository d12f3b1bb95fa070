//! Treatment of a call that no rule decides (S1-14 to S1-16).

use std::fmt;

use serde::{Deserialize, Serialize};

/// `mode`. Fixed when a session is opened (X1-10).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Ask a person; without one, deny (S0-52, S0-57).
    #[default]
    Ask,
    /// Allow what is listed; ask about the rest (C-5).
    Allowlist,
    /// Allow `write` and `edit`; ask about the rest (X3-2).
    AutoEdit,
    /// Allow, and ask about nothing (S1-16). What a manifest or a watchdog denies stays denied (C-7).
    Yolo,
}

impl Mode {
    /// The names in a manifest.
    pub const NAMES: [&str; 4] = ["ask", "allowlist", "auto-edit", "yolo"];

    /// Reads a name, or S3's for the same: `default` asks, `force` does not (X3-1, X3-2).
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "ask" | "default" => Some(Self::Ask),
            "allowlist" => Some(Self::Allowlist),
            "auto-edit" => Some(Self::AutoEdit),
            "yolo" | "force" => Some(Self::Yolo),
            _ => None,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ask => "ask",
            Self::Allowlist => "allowlist",
            Self::AutoEdit => "auto-edit",
            Self::Yolo => "yolo",
        })
    }
}

/// Treatment of a call that a person would have to be asked about, where there is none (C-6). In both cases it does not
/// run, and no answer is invented (S0-57).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Headless {
    /// It fails, and the model hears why.
    #[default]
    Deny,
    /// It halts the session: nothing else runs until a person has looked (X1-15).
    Halt,
}

impl Headless {
    /// The names in a manifest.
    pub const NAMES: [&str; 2] = ["deny", "halt"];

    /// Reads a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "deny" => Some(Self::Deny),
            "halt" => Some(Self::Halt),
            _ => None,
        }
    }

    /// The name in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Halt => "halt",
        }
    }
}
