//! Course of a call. Most calls are one step; some go on as another call once it has ended: to another host, to the next provider, as the
//! program that reads a document, as programs that say their versions. Each step passes all layers, as the first did (C-7).

use callgate_policy::failure::ErrorCode;

use super::search::ProviderSearch;
use super::step::{CallStep, Next, StepOutcome};
use super::versions::Versions;
use crate::error::CallError;
use crate::gate::Known;
use crate::registry::{Attempt, Hop, Then, Tool, Understood, instead_of_read, is_a_pdf, read_pdf};
use crate::session::Session;

/// Course of a call from its first step to its last.
pub(super) enum Going {
    /// One step.
    Once,
    /// The arguments of a fetch, and how often it may still be sent on.
    Redirect(Understood, u64),
    NextProvider(Box<ProviderSearch>),
    /// The arguments with which a document would be read.
    Pdf(Understood),
    Versions(Box<Versions>),
}

impl Going {
    pub(super) fn of(tool: &Tool, args: &Understood) -> Self {
        match tool.executor.then() {
            Then::Nothing => Self::Once,
            Then::Redirect => Self::Redirect(args.clone(), Hop::MOST),
            Then::NextProvider(searches) => Self::NextProvider(Box::new(ProviderSearch::new(searches, args.clone()))),
            Then::Pdf => instead_of_read(args).map_or(Self::Once, Self::Pdf),
            Then::Versions => Self::Versions(Box::default()),
        }
    }

    /// Check of a call before anybody is asked about it. The error is for the model.
    pub(super) fn has_room(&self) -> Result<(), CallError> {
        match self {
            Self::NextProvider(search) => search.has_room(),
            Self::Once | Self::Redirect(..) | Self::Pdf(_) | Self::Versions(_) => Ok(()),
        }
    }

    /// Counts the call, once, when a step of it is about to run.
    pub(super) fn count(&mut self) -> Result<(), CallError> {
        match self {
            Self::NextProvider(search) => search.count(),
            Self::Once | Self::Redirect(..) | Self::Pdf(_) | Self::Versions(_) => Ok(()),
        }
    }

    /// The step in place of a first one that has not passed, or the error.
    pub(super) fn instead(&mut self, error: CallError) -> Result<CallStep, CallError> {
        match self {
            Self::NextProvider(search) => search.instead(error),
            Self::Once | Self::Redirect(..) | Self::Pdf(_) | Self::Versions(_) => Err(error),
        }
    }

    /// The next step, or the end.
    pub(super) fn next(&mut self, session: &Session, known: &Known, outcome: StepOutcome) -> Next {
        match self {
            Self::Once => Next::End(outcome.result()),
            Self::NextProvider(search) => search.next(session, outcome),
            Self::Versions(versions) => versions.next(session, known, outcome.result()),
            Self::Redirect(args, left) => {
                let done = match outcome.result() {
                    Ok(done) => done,
                    Err(error) => return Next::End(Err(error)),
                };
                let Some(hop) = Hop::of(&done.data) else { return Next::End(Ok(done)) };
                // A worker that was told how many are left ends before that.
                let Some(fewer) = left.checked_sub(1) else {
                    let text = "it redirects too often".to_owned();
                    return Next::End(Err(CallError::Told { text, code: ErrorCode::LimitExceeded }));
                };
                *left = fewer;
                *args = hop.next(args);
                Next::Step(CallStep::itself(args.clone(), Attempt::default()))
            }
            Self::Pdf(args) => match outcome.result() {
                Ok(done) if is_a_pdf(&done.data) => {
                    let args = std::mem::take(args);
                    *self = Self::Once;
                    session.as_a_pdf(args).into()
                }
                result => Next::End(result),
            },
        }
    }
}

impl Session {
    /// A call of `read` that has come upon a PDF goes on as a call of `read_pdf`, which starts a program.
    fn as_a_pdf(&self, args: Understood) -> Result<CallStep, CallError> {
        let tool = read_pdf().map_err(|error| CallError::Tool(error.to_string()))?;
        if !self.gate.profile.offers(tool.subject) {
            let text =
                format!("it is a PDF, and the profile `{}` starts no program to read it", self.gate.profile.name);
            return Err(CallError::Told { text, code: ErrorCode::Forbidden });
        }
        Ok(CallStep { other: Some(Box::new(tool)), ..CallStep::itself(args, Attempt::default()) })
    }
}
