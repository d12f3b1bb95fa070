//! Why nothing ran, or why a call has no result.

use std::io;
use std::time::Duration;

use callgate_worker::protocol::StepFailure;

/// Why nothing ran, or why a call has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// A step of confinement failed: the host cannot enforce what was asked.
    #[error("the host cannot enforce this")]
    Refused(#[source] StepFailure),
    /// Talking to the session's processes failed.
    #[error("{what}")]
    Channel {
        /// The operation.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The session's processes are gone.
    #[error("the session has ended: its zygote or broker is gone; open another")]
    Ended,
    /// The worker was gone before it gave a result.
    #[error("the worker ended without a result")]
    WorkerLost,
    /// A worker broke the protocol, or sent more than it may.
    #[error("the worker sent {what}, and was killed")]
    Hostile {
        /// What.
        what: &'static str,
    },
    /// The call's time was up.
    #[error("the call took longer than {}s, and was killed", .0.as_secs_f32())]
    TimedOut(Duration),
}

pub(super) fn channel(what: &'static str) -> impl FnOnce(io::Error) -> ConfineError {
    move |source| ConfineError::Channel { what, source }
}

/// What a worker says may be hostile: a frame that is none, or too long, tells so.
pub(super) fn heard(what: &'static str) -> impl FnOnce(io::Error) -> ConfineError {
    move |source| {
        if source.kind() == io::ErrorKind::InvalidData {
            ConfineError::Hostile { what: "a frame that is too long, or none" }
        } else {
            ConfineError::Channel { what, source }
        }
    }
}
