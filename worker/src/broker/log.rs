//! Reports of the broker's questions to the supervisor's log (`--log trace`).
//!
//! Nobody waits for the log: a report for which the supervisor has made no room is counted and left out.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use callgate_policy::plan::SessionPlan;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::protocol::{Channel, SyscallAnswer, SyscallQuestion, shortened_to};
use crate::sys::notify::CallReply;

/// Longest path or reason in a report, bytes. All of a report's fit in a frame, whatever JSON makes of their characters.
const TEXT: usize = 1024;
/// Most paths and addresses in a report.
const NAMED: usize = 2;

/// The broker's end of the log.
pub(super) struct Log {
    channel: Channel,
    /// Reports that were left out since the last that was sent.
    lost: u64,
}

impl Log {
    /// The log of a session, and the supervisor's end of it; `None` if its plan asks for none.
    pub(super) fn of(plan: &SessionPlan) -> io::Result<Option<(Self, OwnedFd)>> {
        if !plan.log_questions {
            return Ok(None);
        }
        let (ours, supervisors) = Channel::pair()?;
        fcntl_setfl(ours.as_fd(), fcntl_getfl(ours.as_fd())? | OFlags::NONBLOCK)?;
        Ok(Some((Self { channel: ours, lost: 0 }, supervisors.into())))
    }

    /// Takes the number of reports that were left out since the last that was sent.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Sends a report, if there is room for it.
    pub(super) fn send(&mut self, question: SyscallQuestion) {
        let question = SyscallQuestion {
            about: question.about.into_iter().take(NAMED).map(|text| shortened_to(TEXT, text)).collect(),
            why: question.why.map(|why| shortened_to(TEXT, why)),
            lost: self.lost,
            ..question
        };
        match self.channel.send(&question, &[]) {
            Ok(()) => self.lost = 0,
            Err(_) => self.lost += 1,
        }
    }
}

/// Answer as the log has it. `None` for a descriptor that the caller has not been given yet.
pub(super) fn answered(answer: &CallReply) -> Option<SyscallAnswer> {
    match answer {
        CallReply::Return(value) => Some(SyscallAnswer::Returned(*value)),
        CallReply::Fail(errno) => Some(SyscallAnswer::Failed(*errno)),
        CallReply::Continue => Some(SyscallAnswer::Kernel),
        CallReply::Later => Some(SyscallAnswer::Later),
        CallReply::Fd { .. } => None,
    }
}
