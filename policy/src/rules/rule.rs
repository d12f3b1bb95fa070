//! A rule as people write it, and whose it is.

use serde::{Deserialize, Serialize};

/// One rule as it is written (X0-4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// A tool's id, a capability, `mcp:server:tool` or `*` (S0-50, X0-10).
    pub permission: String,
    /// A command, path or host pattern (S0-51); without it, everything.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pattern: Option<String>,
    /// What to do.
    #[serde(default)]
    pub action: Action,
}

/// S0-52. In the order of their strength.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Let it pass.
    Allow,
    /// Ask a person.
    #[default]
    Ask,
    /// Refuse it.
    Deny,
}

impl Action {
    /// The names in a manifest.
    pub const NAMES: [&str; 3] = ["allow", "deny", "ask"];

    /// Reads a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "allow" => Some(Self::Allow),
            "deny" => Some(Self::Deny),
            "ask" => Some(Self::Ask),
            _ => None,
        }
    }
}

/// How long a rule holds, and who may make one (S0-53, X0-5). In the order in which ties between rules are broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleScope {
    /// For this session: a person's "always".
    Session,
    /// For all sessions of a project: a person's, or the host's.
    Project,
    /// The author's. What it denies, nothing lifts (S0-55, C-2).
    Manifest,
}

/// Whose a rule is, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RuleSource {
    /// How long it holds.
    pub scope: RuleScope,
    /// `callgate.toml:12`, `this session`.
    pub place: String,
}
