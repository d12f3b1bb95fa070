//! Reasons why a host could not be examined, or no attempt be made.

use std::io;

use crate::causes::with_causes;
use crate::confine::ConfineError;
use crate::error::CallError;
use crate::open_error::OpenError;

/// Reason why a host could not be examined, or no attempt to break out be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoctorError {
    /// A session could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A program could not be run in a session.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A file that sessions or attempts work on could not be made or looked at.
    #[error("{what}")]
    Io {
        /// The operation.
        what: String,
        /// Cause.
        source: io::Error,
    },
    /// A command to make attempts under could not be started.
    #[error("start {program}")]
    Start {
        /// Its program.
        program: String,
        /// Cause.
        source: io::Error,
    },
    /// An attempt makes no sense.
    #[error("{0}")]
    Attempt(String),
    /// Attempts to break out would tell nothing.
    #[error("nothing can be tried under {what}: {reason}")]
    Untried {
        /// Where they were to be made.
        what: String,
        /// Fact that shows it.
        reason: String,
    },
    /// Sessions cannot run on this host.
    #[error("no session can run here: {reason}")]
    Unusable {
        /// Finding.
        reason: String,
    },
}

impl DoctorError {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what: what.into(), source }
    }

    /// The error and its causes, in one line.
    #[must_use]
    pub fn text(&self) -> String {
        if let Self::Open(OpenError::Confine(confine)) | Self::Call(CallError::Confine(confine)) = self
            && let Some(words) = confine.in_plain_words()
        {
            return words;
        }
        with_causes(self)
    }

    /// The step of confinement that failed, if that is the reason.
    pub(super) fn failed_step(&self) -> Option<&callgate_worker::protocol::StepFailure> {
        match self {
            Self::Open(OpenError::Confine(ConfineError::Refused(failed)))
            | Self::Call(CallError::Confine(ConfineError::Refused(failed))) => Some(failed),
            Self::Open(_)
            | Self::Call(_)
            | Self::Io { .. }
            | Self::Start { .. }
            | Self::Attempt(_)
            | Self::Untried { .. }
            | Self::Unusable { .. } => None,
        }
    }
}
