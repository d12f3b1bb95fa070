//! Subject of a rule: a tool, a server's tools, a capability, everything (S0-50).

use serde::{Deserialize, Serialize};

use super::act::EffectStanding;
use super::wildcard::Wildcard;
use crate::effect::{EffectKind, EffectKinds};

/// The capabilities (exactly these six), and none, for a call that uses none of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Capability {
    /// `fs.read`.
    #[serde(rename = "fs.read")]
    FsRead,
    /// `fs.write`.
    #[serde(rename = "fs.write")]
    FsWrite,
    /// `shell.run`.
    #[serde(rename = "shell.run")]
    ShellRun,
    /// `net.fetch`.
    #[serde(rename = "net.fetch")]
    NetFetch,
    /// `secrets.has`.
    #[serde(rename = "secrets.has")]
    SecretsHas,
    /// `stream.send`.
    #[serde(rename = "stream.send")]
    StreamSend,
    /// None of them.
    #[default]
    #[serde(rename = "none")]
    None,
}

impl Capability {
    const NAMED: [(&'static str, Self); 6] = [
        ("fs.read", Self::FsRead),
        ("fs.write", Self::FsWrite),
        ("shell.run", Self::ShellRun),
        ("net.fetch", Self::NetFetch),
        ("secrets.has", Self::SecretsHas),
        ("stream.send", Self::StreamSend),
    ];

    /// The effects that use it.
    #[must_use]
    pub const fn kinds(self) -> EffectKinds {
        match self {
            Self::FsRead => EffectKinds::of(&[EffectKind::Shows, EffectKind::Lists]),
            Self::FsWrite => EffectKinds::of(&[EffectKind::Writes]),
            Self::ShellRun => EffectKinds::of(&[EffectKind::Runs]),
            Self::NetFetch => EffectKinds::of(&[EffectKind::Connects, EffectKind::Searches]),
            Self::SecretsHas => EffectKinds::of(&[EffectKind::UsesSecrets]),
            Self::StreamSend => EffectKinds::of(&[EffectKind::Sends]),
            Self::None => EffectKinds::of(&[]),
        }
    }
}

/// Locked tools whose name in a rule stands for their effect, whichever tool has it.
const LOCKED: [(&str, EffectKinds); 9] = [
    ("read", EffectKinds::of(&[EffectKind::Shows])),
    ("grep", EffectKinds::of(&[EffectKind::Shows])),
    ("glob", EffectKinds::of(&[EffectKind::Lists])),
    ("write", EffectKinds::of(&[EffectKind::Writes])),
    ("edit", EffectKinds::of(&[EffectKind::Writes])),
    ("bash", EffectKinds::of(&[EffectKind::Runs])),
    ("web_fetch", EffectKinds::of(&[EffectKind::Connects, EffectKind::Searches])),
    ("web_search", EffectKinds::of(&[EffectKind::Searches])),
    ("task", EffectKinds::of(&[EffectKind::Delegates])),
];

/// A rule's `permission`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    /// A locked tool's effect, whichever tool has it.
    Effect {
        /// The tool's name.
        name: &'static str,
        /// Kinds of its effect.
        kinds: EffectKinds,
    },
    /// One tool, or one tool of one server.
    Tool(String),
    /// Tools of servers, by globs (X0-10).
    Mcp {
        /// Which servers.
        server: Wildcard,
        /// Which of their tools.
        tool: Wildcard,
    },
    /// Whatever uses a capability.
    Capability(Capability),
    /// Every call.
    Any,
}

/// Mistake in a rule's `permission`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PermissionError {
    /// Nothing, or a character that no name has.
    #[error("permission {0:?} is neither a tool's name, nor a capability, nor `mcp:server:tool`, nor `*`")]
    Malformed(String),
    /// A dot, as capabilities have, and none of them.
    #[error(
        "there is no capability {0:?}; there are fs.read, fs.write, shell.run, net.fetch, secrets.has and stream.send"
    )]
    NoCapability(String),
}

impl Permission {
    /// Reads one.
    ///
    /// # Errors
    /// [`PermissionError`].
    pub fn parse(text: &str) -> Result<Self, PermissionError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if let Some((_, capability)) = Capability::NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(Self::Capability(*capability));
        }
        if let Some((name, kinds)) = LOCKED.iter().find(|(name, _)| *name == text) {
            return Ok(Self::Effect { name, kinds: *kinds });
        }
        let malformed = || PermissionError::Malformed(text.to_owned());
        let plain =
            |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
        if let Some(rest) = text.strip_prefix("mcp:") {
            let (server, tool) = rest.split_once(':').ok_or_else(malformed)?;
            // As servers name their tools; and `resources/read` is a request.
            let at_server = |tool: &str| plain(&tool.replace(['.', '/'], "x"));
            let glob = |part: &str| part.replace('*', "x");
            return match (plain(server) && at_server(tool), plain(&glob(server)) && at_server(&glob(tool))) {
                (true, _) => Ok(Self::Tool(text.to_owned())),
                (false, true) => Ok(Self::Mcp { server: Wildcard::new(server), tool: Wildcard::new(tool) }),
                (false, false) => Err(malformed()),
            };
        }
        match (plain(text), text.contains('.')) {
            (true, _) => Ok(Self::Tool(text.to_owned())),
            (false, true) => Err(PermissionError::NoCapability(text.to_owned())),
            (false, false) => Err(malformed()),
        }
    }

    /// The tool, if it is about one that is not a server's.
    pub(super) fn tool(&self) -> Option<&str> {
        match self {
            Self::Tool(name) if !name.starts_with("mcp:") => Some(name),
            Self::Tool(_) | Self::Effect { .. } | Self::Mcp { .. } | Self::Capability(_) | Self::Any => None,
        }
    }

    /// The server, if it is about tools of one that it names.
    pub(super) fn server(&self) -> Option<&str> {
        match self {
            Self::Tool(name) => name.strip_prefix("mcp:")?.split(':').next(),
            Self::Mcp { server, .. } => Some(server.text()).filter(|server| !server.contains('*')),
            Self::Effect { .. } | Self::Capability(_) | Self::Any => None,
        }
    }

    /// True if it is about an effect of this kind of a tool's call.
    pub(super) fn covers(&self, called: &str, kind: EffectKind, standing: EffectStanding) -> bool {
        match self {
            Self::Any => standing != EffectStanding::Reach,
            Self::Effect { kinds, .. } => standing != EffectStanding::Reach && kinds.has(kind),
            Self::Capability(capability) => capability.kinds().has(kind),
            Self::Tool(name) => standing != EffectStanding::Reach && name == called,
            Self::Mcp { server, tool } => called
                .strip_prefix("mcp:")
                .and_then(|rest| rest.split_once(':'))
                .is_some_and(|(its_server, its_tool)| server.matches(its_server) && tool.matches(its_tool)),
        }
    }
}
