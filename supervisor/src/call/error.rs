//! Words in which a model is told why a call gave no result.

use callgate_policy::envelope::{Denial, Layer};
use callgate_policy::failure::{ErrorCode, Failure};
use callgate_policy::step::Step;

use crate::causes::with_causes;
use crate::confine::ConfineError;
use crate::error::CallError;

/// Failure of a call that runs programs or does not.
pub(super) fn failure(code: ErrorCode, runs: bool) -> Failure {
    let is_of_a_command = runs && code == ErrorCode::Forbidden;
    if is_of_a_command { ErrorCode::CommandRejected.into() } else { code.into() }
}

/// A directory that cannot be entered is the call's mistake, not the host's.
pub(crate) fn not_started(error: ConfineError) -> CallError {
    if let ConfineError::Refused(failed) = &error
        && failed.step == Step::WorkingDir
    {
        return CallError::Tool(format!("{}; choose a directory that is there and is granted", failed.what_failed()));
    }
    CallError::Confine(error)
}

pub(super) fn timed_out(error: &CallError) -> Option<bool> {
    matches!(error, CallError::TimedOut(_) | CallError::Confine(ConfineError::TimedOut(_))).then_some(true)
}

/// The error with its causes and, where there is one, the next step: all that a model has to go by (X0-60).
pub(crate) fn error_text(error: &CallError) -> String {
    let mut text = with_causes(error);
    if let CallError::Denied(denial) = error
        && let Some(remedy) = &denial.remedy
    {
        text.push_str("; ");
        text.push_str(remedy);
    }
    text
}

pub(super) fn denial_of(error: CallError) -> Option<Denial> {
    match error {
        CallError::Denied(denial) => Some(*denial),
        CallError::Arguments(reason) => Some(Denial::new(Layer::Schema, "the arguments", reason)),
        CallError::Confine(ConfineError::Refused(failed)) => {
            Some(Denial::new(Layer::Host, failed.step.name(), failed.to_string()).remedy("run `callgate doctor`"))
        }
        CallError::Halted { tool, why } => {
            Some(Denial::new(Layer::Person, tool, why).remedy("have a person look at it, and open a new session"))
        }
        CallError::NotRecorded(error) => {
            let denial = Denial::new(Layer::Host, "the record of the session", with_causes(&error));
            Some(match error.remedy() {
                Some(remedy) => denial.remedy(remedy),
                None => denial,
            })
        }
        CallError::UnknownTool { .. }
        | CallError::LeftOut { .. }
        | CallError::Inactive(_)
        | CallError::Deferred { .. }
        | CallError::Plan(_)
        | CallError::Confine(_)
        | CallError::TimedOut(_)
        | CallError::Aborted
        | CallError::Ended
        | CallError::Unanswered(_)
        | CallError::Tool(_)
        | CallError::Told { .. }
        | CallError::Output { .. } => None,
    }
}
