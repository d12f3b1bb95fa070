//! `[agents.NAME]`: who `task` may start (X0-21), and with what.

use std::collections::BTreeMap;

use super::{Manifest, Net};
use crate::approval::ApprovalScope;
use crate::ceiling::Ceiling;
use crate::effective::Kind;
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
    pub(super) lines: BTreeMap<Kind, Vec<usize>>,
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
    fn asks_for(&self) -> RequirementSet {
        let mut requires = self.requires.clone();
        // The manifest was refused if this is no program.
        let program = self.runner.first().and_then(|program| Program::parse(program).ok());
        requires.shell.extend(program.map(|cmd| ShellRunRequirement { cmd, args: None }));
        requires
    }
}

impl Manifest {
    /// Manifest in force for a session of one of its agents, within its parent: the agent's own requirements, ceiling,
    /// tools and rules, with the limits, environment and modes of this manifest, and of its credentials those that the
    /// agent names. Its rules come to those that the session inherits.
    #[must_use]
    pub fn of_agent(&self, name: &str) -> Option<Self> {
        let agent = self.agents.get(name)?;
        // This manifest's may be an agent's themselves: one that this has not got is not passed on either.
        let mut credentials = self.net.credentials.clone();
        credentials.retain(|credential| agent.credentials.contains(&credential.host));
        Some(Self {
            id: Some(name.to_owned()),
            // What a person has said of the project's own calls was not said of its agents'.
            approvals: ApprovalScope::default(),
            tools: agent.tools.clone(),
            // They are roots of its parent by now.
            roots: Vec::new(),
            requires: agent.asks_for(),
            ceiling: agent.ceiling.clone(),
            net: Net { credentials, ..self.net.clone() },
            rules: agent.rules.clone(),
            lines: agent.lines.clone(),
            rule_lines: agent.rule_lines.clone(),
            ceiling_lines: agent.ceiling_lines.clone(),
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;
    use crate::manifest::Format;

    /// X0-27: an agent has the credentials that it names, and one of its own agents no more than that.
    #[test]
    fn x0_27_credentials_are_passed_on_by_name_alone() {
        let text = r#"
            [[net.credentials]]
            host = "a.example"
            header = "X-Key"
            env = "A"
            [[net.credentials]]
            host = "b.example"
            header = "X-Key"
            env = "B"
            [agents.a]
            description = "x"
            credentials = ["A.example"]
            [agents.both]
            description = "x"
            credentials = ["a.example", "b.example"]
            [agents.none]
            description = "x"
        "#;
        let manifest = Manifest::parse(text, Format::Toml, "m.toml").unwrap();
        let of = |manifest: &Manifest, agent: &str| manifest.of_agent(agent).unwrap();
        let hosts = |manifest: &Manifest| -> Vec<String> {
            manifest.net.credentials.iter().map(|credential| credential.host.to_string()).collect()
        };
        assert_eq!(hosts(&of(&manifest, "a")), ["a.example"]);
        assert_eq!(hosts(&of(&manifest, "both")), ["a.example", "b.example"]);
        assert_eq!(hosts(&of(&manifest, "none")), [""; 0]);
        assert_eq!(hosts(&of(&of(&manifest, "a"), "both")), ["a.example"]);
        assert_eq!(hosts(&of(&of(&manifest, "none"), "both")), [""; 0]);
    }
}
