//! `[mcp.NAME]`: servers of the Model Context Protocol, whose tools a session has besides its own (X0-41).

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Env, Manifest, Net};
use crate::approval::ApprovalScope;
use crate::effective::Kind;
use crate::pattern::HostPattern;
use crate::requirement::{Program, RequirementSet, ShellRunRequirement};

/// How long a server may take to start, without `start_timeout`.
pub const MCP_START: Duration = Duration::from_secs(30);
/// Most characters of a tool's description, without `max_description_length` (X0-46).
pub const MCP_DESCRIPTION: u64 = 200;

/// A server that a manifest names. It runs in a sandbox of its own, with what it asks for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServer {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Those of its arguments that are places on which it works and from which it loads nothing.
    pub data: Vec<String>,
    /// True if it is started.
    pub enabled: bool,
    /// True if its calls are made without asking, unless a rule says otherwise (X0-46, X1-39).
    pub trusted: bool,
    /// Which of its tools are offered; without it, all.
    pub tools: Option<Vec<String>>,
    /// Rights that it asks for. Nothing comes of itself; without programs, it may start any that it can read.
    pub requires: RequirementSet,
    /// Variables of its environment, besides what every program does.
    pub env: Env,
    /// For which hosts it gets the manifest's credentials.
    pub credentials: Vec<HostPattern>,
    /// How long it may take until it speaks the protocol.
    pub start_timeout: Duration,
    /// How long a call may take.
    pub timeout: Option<Duration>,
    /// Most characters of a tool's description that a model is shown.
    pub max_description_length: u64,
    pub(super) lines: BTreeMap<Kind, Vec<usize>>,
}

impl McpServer {
    fn asks_for(&self) -> RequirementSet {
        let mut requires = self.requires.clone();
        if requires.shell.is_empty() {
            requires.shell.push(ShellRunRequirement { cmd: Program::Any, args: None });
        }
        requires
    }
}

impl Manifest {
    /// Manifest in force for the session in which one of its servers runs: the server's own requirements, environment
    /// and credentials, with the ceiling, limits and rules of this manifest. It has no tools.
    #[must_use]
    pub fn of_server(&self, name: &str) -> Option<Self> {
        let server = self.mcp.get(name)?;
        let mut credentials = self.net.credentials.clone();
        credentials.retain(|credential| server.credentials.contains(&credential.host));
        Some(Self {
            id: Some(name.to_owned()),
            approvals: ApprovalScope::default(),
            tools: Some(Vec::new()),
            requires: server.asks_for(),
            env: server.env.clone(),
            net: Net { credentials, search: None, rlm: None },
            agents: BTreeMap::new(),
            mcp: BTreeMap::new(),
            lsp: BTreeMap::new(),
            lines: server.lines.clone(),
            ..self.clone()
        })
    }
}
