//! Two threads that wait for one another, kept on one processor meanwhile.

use rustix::process::{Pid, getpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use super::caller::Caller;

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
