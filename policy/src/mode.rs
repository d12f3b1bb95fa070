//! What happens to a call that no rule decides (S1-14 to S1-16).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rules::{Part, Wildcard};

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

    /// What [`Mode::AutoEdit`] allows.
    pub const EDITS: [&str; 2] = ["write", "edit"];

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

/// What happens to a call that a person would have to be asked about, where there is none (C-6). In both cases it does not run,
/// and no answer is invented (S0-57).
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

impl fmt::Display for AllowEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tool)?;
        self.keys.as_ref().map_or(Ok(()), |keys| write!(f, ":{}", keys.text()))
    }
}

/// An entry of `allowlist`: a tool's name, or `name:keys` with a pattern for the key of an approval (C-4, X1-8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowEntry {
    tool: String,
    keys: Option<Wildcard>,
}

impl AllowEntry {
    /// Reads one. A server's tool has colons of its own: `mcp:server:tool:keys`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let colons = if text.starts_with("mcp:") { 2 } else { 0 };
        let mut at = text.match_indices(':').skip(colons).map(|(at, _)| at);
        match at.next() {
            Some(at) => Self { tool: text[..at].to_owned(), keys: Some(Wildcard::new(&text[at + 1..])) },
            None => Self { tool: text.to_owned(), keys: None },
        }
    }

    /// The tool that it is about.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Whether it allows some of the tool's calls alone.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// Whether it allows a call.
    #[must_use]
    pub fn matches(&self, tool: &str, key: &str) -> bool {
        self.tool == tool && self.keys.as_ref().is_none_or(|keys| keys.matches(key))
    }

    /// Whether it allows a command, as a rule would.
    #[must_use]
    pub fn covers(&self, tool: &str, command: &Part) -> bool {
        self.tool == tool && self.keys.as_ref().is_none_or(|keys| keys.covers(command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-4: both forms that the same page has.
    #[test]
    fn an_entry_is_a_name_or_a_name_with_keys() {
        assert!(AllowEntry::parse("read").matches("read", "any"));
        assert!(!AllowEntry::parse("read").matches("reader", "any"));
        let git = AllowEntry::parse("bash:git *");
        assert!(git.matches("bash", "git log") && !git.matches("bash", "rm x") && !git.matches("read", "git log"));
        let issue = AllowEntry::parse("mcp:hub:issue:42");
        assert!(issue.matches("mcp:hub:issue", "42") && !issue.matches("mcp:hub:issue", "43"));
        assert!(AllowEntry::parse("mcp:hub:issue").matches("mcp:hub:issue", "43"));
    }
}
