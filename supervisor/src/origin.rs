//! Where a tool or a skill comes from.

use std::fmt;

/// Where a tool comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// It is part of callgate.
    Bundled,
    /// The host or its user registered it.
    User,
    /// The project declares it.
    Project,
    /// An MCP server offers it.
    Mcp(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundled => f.write_str("bundled"),
            Self::User => f.write_str("user"),
            Self::Project => f.write_str("project"),
            Self::Mcp(server) => write!(f, "mcp:{server}"),
        }
    }
}

impl serde::Serialize for Origin {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
