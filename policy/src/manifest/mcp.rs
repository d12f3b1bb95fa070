//! `[mcp.NAME]`: servers of the Model Context Protocol, whose tools a session has besides its own (X0-41).

use std::time::Duration;

use super::env::Env;
use crate::effective::ItemLines;
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
    pub(super) lines: ItemLines,
}

impl McpServer {
    /// Requirements of its own; without programs, any that it can read.
    pub(super) fn asks_for(&self) -> RequirementSet {
        let mut requires = self.requires.clone();
        if requires.shell.is_empty() {
            requires.shell.push(ShellRunRequirement { cmd: Program::Any, args: None });
        }
        requires
    }
}
