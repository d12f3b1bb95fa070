//! The broker's questions and answers, for the supervisor's log.

use serde::{Deserialize, Serialize};

use super::{ChannelMessage, FRAME_MAX};
use crate::sys::process::Pid;

/// Broker to supervisor, where a session's plan asks for it: a system call that the kernel asked the broker about, and the
/// answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyscallQuestion {
    /// Worker whose call asked, as the supervisor numbers it. `None` for a process of no call.
    pub worker: Option<u64>,
    /// Thread that asked, by its number in the session.
    pub thread: Pid,
    /// Number of the system call on this architecture.
    pub call: i32,
    /// Paths and addresses that the broker read in the caller's memory.
    pub about: Vec<String>,
    /// The answer.
    pub answer: SyscallAnswer,
    /// Reason, where the broker has one beside the errno.
    pub why: Option<String>,
    /// Questions that were not sent before this one, because the supervisor did not read as fast as they came.
    pub lost: u64,
}

impl SyscallQuestion {
    /// Name of the system call.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let number = usize::try_from(self.call).ok();
        number.and_then(syscalls::Sysno::new).map_or("an unknown call", |call| call.name())
    }
}

/// Answer of the broker to a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyscallAnswer {
    /// The broker carried it out, and it returned this.
    Returned(i64),
    /// It failed with this errno.
    Failed(i32),
    /// The kernel carries it out.
    Kernel,
    /// The answer comes later, from a thread that waits.
    Later,
    /// A program that had been let start was ended before its first instruction.
    Ended,
}

impl ChannelMessage for SyscallQuestion {
    const LONGEST: usize = FRAME_MAX;
}
