//! Rules: (permission, pattern, action) (S0-49 to S0-52). Parsed here; ranking and matching come with the rule engine.

/// One rule of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// A tool's id, a capability, `mcp:server:tool` or `*` (S0-50, X0-10).
    pub permission: String,
    /// A command, path or host pattern (S0-51); without it, everything.
    pub pattern: Option<String>,
    /// What to do.
    pub action: Action,
}

/// S0-52.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Action {
    /// Let it pass.
    Allow,
    /// Refuse it.
    Deny,
    /// Ask a person.
    #[default]
    Ask,
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
