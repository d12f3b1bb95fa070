//! Reasons why nothing ran, or why a call has no result.

use std::io;
use std::time::Duration;

use callgate_policy::step::Step;
use callgate_worker::protocol::StepFailure;

/// Reason why nothing ran, or why a call has no result.
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
        /// Cause.
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
        /// Thing that failed.
        what: &'static str,
    },
    /// The call's time was up.
    #[error("the call took longer than {}s, and was killed", .0.as_secs_f32())]
    TimedOut(Duration),
}

impl ConfineError {
    /// The failure as a person would put it, where it is no fault of the host's: a program that is not there, as a shell
    /// has it, a granted path that is not there, or a limit that was met. `None` for all else, whose own message says it.
    #[must_use]
    pub fn in_plain_words(&self) -> Option<String> {
        let Self::Refused(failed) = self else { return None };
        if failed.step == Step::Exec
            && let Some(errno) = failed.errno
        {
            let what = failed.what.strip_prefix("start ").unwrap_or(&failed.what);
            return Some(match errno {
                // ENOENT.
                2 if !what.contains('/') => format!("{what}: there is no such program on PATH"),
                _ => format!("{what}: {}", io::Error::from_raw_os_error(errno)),
            });
        }
        if failed.is_missing_path() {
            return Some(format!("a path that is granted is not there: {failed}"));
        }
        failed.limit().map(|_raise| format!("a limit of this process or host was met: {failed}"))
    }
}

pub(super) fn channel(what: &'static str) -> impl FnOnce(io::Error) -> ConfineError {
    move |source| ConfineError::Channel { what, source }
}

/// Makes the error of a frame. What a worker says may be hostile: a frame that is none, or too long, tells so.
pub(super) fn heard(what: &'static str) -> impl FnOnce(io::Error) -> ConfineError {
    move |source| {
        if source.kind() == io::ErrorKind::InvalidData {
            ConfineError::Hostile { what: "a frame that is too long, or none" }
        } else {
            ConfineError::Channel { what, source }
        }
    }
}
