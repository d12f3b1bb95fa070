//! Layer 2: rules and mode, watchdogs, and the person. It knows no session: what it judges is handed to it as a [`Case`].

mod approved;
mod case;
mod decide;
pub(crate) mod execs;
mod halt;
pub(crate) mod people;
mod places;
mod program;
mod watchdogs;

pub(crate) use approved::{Approved, ApprovedPlan, ApprovedTask, HostTask, ProgramTask};
pub(crate) use case::{Case, Known};
pub(crate) use decide::{Gate, Judged};
pub use decide::{Preview, interaction_required};
pub(crate) use halt::Halt;
pub use people::{Answer, Approver, Asked, Question, ShownEffect};
pub(crate) use places::GrantedPlaces;
pub use program::{WatchdogProgram, WatchdogProgramError};
pub(crate) use watchdogs::Watchdogs;

/// Whose calls a session's are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AskedBy {
    /// An agent's: what no rule allows, a person is asked about (S0-52).
    #[default]
    Agent,
    /// A person's, who has typed them, and by that approved of what no rule decides. What a rule or a watchdog wants
    /// asked is asked all the same, and what is denied stays denied.
    Person,
}

impl AskedBy {
    /// Whose message a call is a part of, as conversations name it.
    pub(crate) fn role(self) -> &'static str {
        match self {
            Self::Agent => "assistant",
            Self::Person => "user",
        }
    }
}
