//! One step of a call, and what came of it.

use std::time::Duration;

use super::envelope::Done;
use crate::error::CallError;
use crate::registry::{Attempt, Tool, Understood};

/// One step, which passes all layers.
pub(super) struct CallStep {
    /// Its tool, if that is not the call's.
    pub(super) other: Option<Box<Tool>>,
    pub(super) args: Understood,
    pub(super) attempt: Attempt,
    pub(super) standing: StepStanding,
}

impl CallStep {
    /// A step that is the call itself.
    pub(super) fn itself(args: Understood, attempt: Attempt) -> Self {
        Self { other: None, args, attempt, standing: StepStanding::Itself }
    }
}

/// Relation of a step to its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepStanding {
    /// It is the call: a person may be asked about it, its output is the call's, and the envelope reports what confined it.
    Itself,
    /// It only finds something out for the call: nobody is asked about it, and nothing of it is reported.
    Beside,
}

/// End of a step.
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and most calls have no other")]
pub(super) enum StepOutcome {
    /// A layer, or what comes before the layers, has refused it.
    NotPassed(CallError),
    /// It has run for so long.
    Ran { took: Duration, result: Result<Done, CallError> },
}

impl StepOutcome {
    pub(super) fn result(self) -> Result<Done, CallError> {
        match self {
            Self::NotPassed(error) => Err(error),
            Self::Ran { result, .. } => result,
        }
    }
}

/// Result of a step for its call: one step more, or the end.
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and most calls have no other")]
pub(super) enum Next {
    Step(CallStep),
    End(Result<Done, CallError>),
}

impl From<Result<CallStep, CallError>> for Next {
    fn from(next: Result<CallStep, CallError>) -> Self {
        match next {
            Ok(step) => Self::Step(step),
            Err(error) => Self::End(Err(error)),
        }
    }
}
