//! A rule as people write it, and whose it is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::pattern::{HostPattern, PathTemplate};

/// One rule as it is written (X0-4). Start with [`Rule::new`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Rule {
    /// A tool's id, a capability, `mcp:server:tool` or `*` (S0-50, X0-10).
    pub permission: String,
    /// A command, path or host pattern (S0-51); without it, everything.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pattern: Option<String>,
    /// Action to take.
    #[serde(default)]
    pub action: Action,
    /// Rights of a command that this rule lets pass, where that is less than its session may (S0-15).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub grant: Option<RuleGrant>,
}

impl Rule {
    /// A rule about all that the permission is about.
    #[must_use]
    pub fn new(permission: impl Into<String>, action: Action) -> Self {
        Self { permission: permission.into(), pattern: None, action, grant: None }
    }

    /// Only about what this pattern matches.
    #[must_use]
    pub fn pattern(self, pattern: impl Into<String>) -> Self {
        Self { pattern: Some(pattern.into()), ..self }
    }

    /// With a narrower grant for the commands that it is about (S0-15).
    #[must_use]
    pub fn grant(self, grant: RuleGrant) -> Self {
        Self { grant: Some(grant), ..self }
    }
}

/// The narrower grant of a rule. A kind that is left out stays as the session has it; an empty list leaves nothing of it.
///
/// Start with [`RuleGrant::default`], which bounds nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RuleGrant {
    /// Places that may be changed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub write: Option<Vec<PathTemplate>>,
    /// Whom it may reach: host patterns, as in `requires.net`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub net: Option<Vec<HostPattern>>,
}

impl RuleGrant {
    /// Bounds what may be changed.
    #[must_use]
    pub fn write(self, places: Vec<PathTemplate>) -> Self {
        Self { write: Some(places), ..self }
    }

    /// Bounds which hosts may be reached.
    #[must_use]
    pub fn net(self, hosts: Vec<HostPattern>) -> Self {
        Self { net: Some(hosts), ..self }
    }
}

impl fmt::Display for RuleGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = self.write.as_ref().map(|write| format!("write = [{}]", listed(write)));
        let net = self.net.as_ref().map(|net| format!("net = [{}]", listed(net)));
        let kinds: Vec<String> = write.into_iter().chain(net).collect();
        write!(f, "{{ {} }}", kinds.join(", "))
    }
}

fn listed<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(|item| format!("{:?}", item.to_string())).collect::<Vec<_>>().join(", ")
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

/// How long a rule holds, and who may make one (S0-53, X0-5). In the order in which ties between rules are broken. Of these,
/// nobody writes [`RuleScope::Default`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleScope {
    /// For this session: a person's "always".
    Session,
    /// For all sessions of a project: a person's, or the host's.
    Project,
    /// The author's. What it denies, nothing lifts (S0-55, C-2).
    Manifest,
    /// A default of the host's. It comes after every rule that somebody has written, and does not count where somebody has named
    /// a mode.
    Default,
}

/// Whose a rule is, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RuleSource {
    /// How long it holds.
    pub scope: RuleScope,
    /// `callgate.toml:12`, `this session`.
    pub place: String,
}
