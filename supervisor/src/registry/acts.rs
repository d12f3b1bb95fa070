//! Acts that the session itself carries out, without a sandbox.

/// Locked tool that the session answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hosted {
    Todo,
    Plan,
    Question,
    Skill,
    ToolSearch,
}

/// How a call has a subagent work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delegation {
    /// `task`.
    Task,
    Spawn,
    Swarm,
    Csv,
    /// A new task for one that was started before.
    Assign,
    /// Once more.
    Resume,
    /// A message to one that runs.
    Input,
}

impl Delegation {
    /// True if it is about an agent that was started before.
    pub(crate) fn is_about_one(self) -> bool {
        match self {
            Self::Assign | Self::Resume | Self::Input => true,
            Self::Task | Self::Spawn | Self::Swarm | Self::Csv => false,
        }
    }
}

/// Other acts about subagents. None of it starts one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentsAct {
    Result,
    Wait,
    Cancel,
    List,
    SwarmStatus,
    SwarmResult,
    /// The subagent itself reports the result of its row.
    Report,
    /// The subagent itself reads what was sent to it.
    Inbox,
}

/// Act on programs in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackgroundAct {
    Wait,
    Interact,
    Cancel,
    List,
}
