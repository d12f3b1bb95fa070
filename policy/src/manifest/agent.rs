//! `[agents.NAME]`: who `task` may start (X0-21), and with what.

use std::collections::BTreeMap;

use crate::ceiling::Ceiling;
use crate::effective::ItemLines;
use crate::pattern::HostPattern;
use crate::requirement::{Program, RequirementSet, ShellRunRequirement};
use crate::rules::Rule;

/// An agent that a manifest declares. What it asks for is bounded by its parent (X0-24).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Purpose, in words for the model that chooses among agents.
    pub description: String,
    /// Who may start it.
    pub mode: AgentMode,
    /// The tools that it is offered, of those that its parent has; without it, all of them.
    pub tools: Option<Vec<String>>,
    /// Rights that it asks for.
    pub requires: RequirementSet,
    /// The most that it and its tools may be granted.
    pub ceiling: Ceiling,
    /// Rules besides those that it inherits.
    pub rules: Vec<Rule>,
    /// The program that is the agent, with its arguments: it gets the prompt on standard input and prints its answer. Without one
    /// the host runs it.
    pub runner: Vec<String>,
    /// The names of its parent's variables that it gets; the others stay behind (X0-27).
    pub env: Vec<String>,
    /// For which hosts it gets its parent's credentials; the others stay behind (X0-27).
    pub credentials: Vec<HostPattern>,
    /// True if its session is listed, and its id is a part of the result (X0-29).
    pub inspectable: bool,
    /// True if it is told that an agent has started it (X0-30).
    pub knows_caller: bool,
    pub(super) lines: ItemLines,
    pub(super) rule_lines: Vec<usize>,
    pub(super) ceiling_lines: BTreeMap<&'static str, usize>,
}

/// Who may start an agent (X0-22).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AgentMode {
    /// A person, who picks it.
    Primary,
    /// Another agent, by `task`.
    #[default]
    Subagent,
    /// Both.
    All,
}

impl AgentMode {
    /// Names in a manifest.
    pub const NAMES: [&str; 3] = ["primary", "subagent", "all"];

    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "primary" => Some(Self::Primary),
            "subagent" => Some(Self::Subagent),
            "all" => Some(Self::All),
            _ => None,
        }
    }

    /// Its name in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Subagent => "subagent",
            Self::All => "all",
        }
    }

    /// True if `task` may start it.
    #[must_use]
    pub fn is_subagent(self) -> bool {
        matches!(self, Self::Subagent | Self::All)
    }
}

impl Agent {
    /// Requirements of its own and of the program that runs it.
    pub(super) fn asks_for(&self) -> RequirementSet {
        let mut requires = self.requires.clone();
        // The manifest was refused if this is no program.
        let program = self.runner.first().and_then(|program| Program::parse(program).ok());
        requires.shell.extend(program.map(|cmd| ShellRunRequirement { cmd, args: None }));
        requires
    }
}
