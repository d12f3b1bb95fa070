//! A search: if a provider fails, the next one is asked, which is judged as the first was (S0-34, C-19).

use std::sync::Arc;

use callgate_policy::failure::ErrorCode;

use super::error::error_text;
use super::step::{CallStep, Next, StepOutcome};
use crate::confine::ConfineError;
use crate::error::CallError;
use crate::registry::{Attempt, Searches, Understood, with_failed};
use crate::session::Session;

/// A search that is under way.
pub(super) struct ProviderSearch {
    searches: Arc<Searches>,
    args: Understood,
    attempt: Attempt,
    /// Refusal of the first provider, while none has been asked.
    refused: Option<CallError>,
    /// Providers that were asked in vain, and why.
    failed: Vec<(String, String)>,
    /// Failure of the last one.
    last: Option<CallError>,
    is_counted: bool,
}

impl ProviderSearch {
    pub(super) fn new(searches: Arc<Searches>, args: Understood) -> Self {
        let attempt = Attempt::default();
        Self { searches, args, attempt, refused: None, failed: Vec::new(), last: None, is_counted: false }
    }

    pub(super) fn has_room(&self) -> Result<(), CallError> {
        self.searches.has_room().map_err(too_many)
    }

    pub(super) fn count(&mut self) -> Result<(), CallError> {
        if !self.is_counted {
            self.searches.count().map_err(too_many)?;
            self.is_counted = true;
        }
        Ok(())
    }

    /// Goes on to the next provider, if another may do better, within the time that a call has.
    pub(super) fn next(&mut self, session: &Session, outcome: StepOutcome) -> Next {
        match outcome {
            StepOutcome::NotPassed(error) => self.instead(error).into(),
            StepOutcome::Ran { result: Ok(mut done), .. } => {
                done.data = with_failed(done.data, &self.failed);
                Next::End(Ok(done))
            }
            StepOutcome::Ran { took, result: Err(error) } if is_of_this_host(&error) => {
                let provider = self.searches.provider(&session.id, self.attempt.number);
                let provider = provider.map(|provider| provider.kind.name().to_owned()).unwrap_or_default();
                self.failed.push((provider, error_text(&error)));
                self.last = Some(error);
                // What a person takes to answer is no part of it.
                let left = self.attempt.left.unwrap_or_else(|| self.searches.timeout()).saturating_sub(took);
                self.attempt.left = Some(left);
                self.another().into()
            }
            StepOutcome::Ran { result: Err(error), .. } => Next::End(Err(error)),
        }
    }

    /// The step in place of one that has not passed, or the error.
    pub(super) fn instead(&mut self, error: CallError) -> Result<CallStep, CallError> {
        if !is_of_this_host(&error) {
            return Err(error);
        }
        self.refused.get_or_insert(error);
        self.another()
    }

    fn another(&mut self) -> Result<CallStep, CallError> {
        self.attempt.number += 1;
        let is_over = self.attempt.left.is_some_and(|left| left.is_zero());
        if is_over || self.attempt.number >= self.searches.providers() {
            return Err(self.all_failed());
        }
        Ok(CallStep::itself(self.args.clone(), self.attempt))
    }

    /// One error for all; of a single provider its own. If none could be asked, it is denied for the first.
    fn all_failed(&mut self) -> CallError {
        let Some(last) = self.last.take() else {
            let nobody = || CallError::Told {
                text: "nobody is left to be asked".to_owned(),
                code: ErrorCode::ToolExecutionFailed,
            };
            return self.refused.take().unwrap_or_else(nobody);
        };
        if let [_] = &*self.failed {
            return last;
        }
        let all: Vec<&str> = self.failed.iter().map(|(_, error)| error.as_str()).collect();
        CallError::Told { text: format!("nobody who was asked has answered: {}", all.join("; ")), code: last.code() }
    }
}

/// True if another provider may do better.
fn is_of_this_host(error: &CallError) -> bool {
    match error {
        CallError::Denied(denial) => denial.layer.is_of_the_call(),
        CallError::Told { .. } | CallError::Tool(_) => true,
        CallError::Confine(error) => matches!(error, ConfineError::TimedOut(_)),
        CallError::UnknownTool { .. }
        | CallError::LeftOut { .. }
        | CallError::Inactive(_)
        | CallError::Deferred { .. }
        | CallError::Arguments(_)
        | CallError::Halted { .. }
        | CallError::NotRecorded(_)
        | CallError::Plan(_)
        | CallError::TimedOut(_)
        | CallError::Aborted
        | CallError::Ended
        | CallError::Unanswered(_)
        | CallError::Output { .. } => false,
    }
}

fn too_many(text: String) -> CallError {
    CallError::Told { text, code: ErrorCode::LimitExceeded }
}
