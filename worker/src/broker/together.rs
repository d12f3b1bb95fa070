//! Two threads that wait for one another, kept on one processor meanwhile; and when they are not.

use std::os::fd::BorrowedFd;

use rustix::process::{Pid, getpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use super::caller::{Caller, process_of};
use crate::sys::{notify, process};

/// Hand-over of the processor: whether it is handed from callers to this thread and back.
///
/// While one process asks, that saves waking an idle processor for each question. While several do, all processors may be
/// busy with them: handing over then puts two of them on one, and leaves the other idle until the kernel looks (milliseconds;
/// `make -j2` on two processors took a fifth longer). Threads of one process mostly wait for one another.
pub(super) struct HandOver {
    is_on: bool,
    /// Who asked last, and its process if that is known.
    tid: process::Pid,
    process: Option<process::Pid>,
}

impl HandOver {
    /// For a listener from which nothing has been heard.
    pub(super) fn of(listener: BorrowedFd<'_>) -> Self {
        // Without it everything works, and takes longer.
        let _hint = notify::hand_over(listener, true);
        Self { is_on: true, tid: 0, process: None }
    }

    /// Before a question is answered. Whether the caller and this thread had better stay together.
    pub(super) fn heard(&mut self, listener: BorrowedFd<'_>, tid: process::Pid) -> bool {
        let same = tid == self.tid || self.process.is_some_and(|process| process::is_thread_of(process, tid));
        if !same {
            self.process = process_of(tid);
        }
        self.tid = tid;
        if same != self.is_on {
            self.is_on = same;
            let _hint = notify::hand_over(listener, same);
        }
        same
    }
}

/// While this lives, a caller and this thread stay on the processor that this one is on.
///
/// The kernel hands the processor over when a caller asks and when it is answered (`SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`), and
/// at no other time: a thread that is woken by a descriptor's coming, or by a tracer, is sent to an idle processor if there is
/// one, and to wake that takes longer than all the rest (Linux 6.18, `select_idle_sibling`).
///
/// What another thread sets for the caller in these microseconds is lost, and what it reads is the one processor; what a thread
/// sets and reads for itself is right.
pub(super) struct Together {
    /// With the processors that each may use.
    threads: [(Option<Pid>, CpuSet); 2],
}

impl Together {
    /// `None` where there is nothing to gain, or it may not be.
    pub(super) fn with(caller: &Caller<'_>) -> Option<Self> {
        let (thread, cpu) = (Some(Pid::from_raw(caller.tid())?), sched_getcpu());
        let has_choice = |set: &CpuSet| set.count() > 1 && set.is_set(cpu);
        let own = sched_getaffinity(None).ok().filter(has_choice)?;
        let theirs = sched_getaffinity(thread).ok().filter(has_choice)?;
        // One that gives way to others would have everybody wait for its turn here.
        getpriority_process(thread).ok().filter(|nice| *nice <= 0)?;
        // What was read was this thread's.
        caller.confirm().ok()?;
        let mut here = CpuSet::new();
        here.set(cpu);
        sched_setaffinity(None, &here).ok()?;
        // Restores both, whatever comes.
        let together = Self { threads: [(thread, theirs), (None, own)] };
        sched_setaffinity(thread, &here).ok()?;
        Some(together)
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        for (thread, processors) in &self.threads {
            // One that is gone needs none.
            let _restored = sched_setaffinity(*thread, processors);
        }
    }
}
