//! Calls that name a process: only those of the caller's own call may be named.
//!
//! The names are numbers, so the kernel may be left to carry on once one is known to be a sibling. A number could be given
//! to a stranger between the two only if its process ended at that moment and all 2^22 others were used up.

use std::os::fd::AsFd as _;

use rustix::process::{Pid as KernelPid, PidfdFlags};

use super::caller::Caller;
use super::metadata::int;
use super::{Broker, Handler};
use crate::sys::notify::{Answer, Notification};
use crate::sys::process::{Pid, pidfd_signal};

pub(super) const HANDLERS: &[(libc::c_long, Handler)] = &[
    (libc::SYS_pidfd_open, pidfd_open),
    (libc::SYS_sched_setaffinity, first_argument),
    (libc::SYS_sched_setscheduler, first_argument),
    (libc::SYS_sched_setparam, first_argument),
    (libc::SYS_sched_setattr, first_argument),
    (libc::SYS_prlimit64, first_argument),
    (libc::SYS_setpriority, by_kind),
    (libc::SYS_ioprio_set, by_kind),
    (libc::SYS_kill, kill),
    (libc::SYS_tkill, first_argument),
    (libc::SYS_tgkill, first_argument),
    (libc::SYS_rt_sigqueueinfo, first_argument),
    (libc::SYS_rt_tgsigqueueinfo, first_argument),
    (libc::SYS_pidfd_send_signal, pidfd_send_signal),
];

fn sibling(broker: &mut Broker, caller: &Caller<'_>, pid: Pid) -> Result<Answer, i32> {
    if broker.calls.are_siblings(caller, pid) { Ok(Answer::Continue) } else { Err(libc::EPERM) }
}

fn first_argument(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<Answer, i32> {
    sibling(broker, caller, int(n.args[0]))
}

/// A number that means one process, and neither a group nor everybody.
fn one_process(pid: Pid) -> Option<KernelPid> {
    (pid > 0).then(|| KernelPid::from_raw(pid)).flatten()
}

/// Performed here, so that the descriptor is of the process that was judged.
fn pidfd_open(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<Answer, i32> {
    let pid = int(n.args[0]);
    let kernel_pid = one_process(pid).ok_or(libc::EINVAL)?;
    let flags = PidfdFlags::from_bits_retain(n.args[1] as u32);
    let fd = rustix::process::pidfd_open(kernel_pid, flags).map_err(rustix::io::Errno::raw_os_error)?;
    if broker.calls.are_siblings(caller, pid) { Ok(Answer::Fd { fd, cloexec: true }) } else { Err(libc::EPERM) }
}

/// Performed here, on a descriptor of this process's own: the caller could exchange its own after it was judged. And it
/// must be judged, wherever it came from: SO_PEERPIDFD gives one of whoever connected a socket, which is the broker.
fn pidfd_send_signal(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<Answer, i32> {
    let pid = caller.process_of_pidfd(int(n.args[0]))?;
    // What a siginfo carries is lost on the way; who needs it has sigqueue(3).
    let (signal, info, flags) = (int(n.args[1]), n.args[2], n.args[3]);
    if info != 0 || flags != 0 {
        return Err(libc::EPERM);
    }
    let kernel_pid = one_process(pid).ok_or(libc::ESRCH)?;
    let fd = rustix::process::pidfd_open(kernel_pid, PidfdFlags::empty()).map_err(rustix::io::Errno::raw_os_error)?;
    if !broker.calls.are_siblings(caller, pid) {
        return Err(libc::EPERM);
    }
    pidfd_signal(fd.as_fd(), signal).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
    Ok(Answer::Return(0))
}

/// setpriority(2) and ioprio_set(2): a kind (process, group, user) and a number. A process may be a sibling; a group or
/// a user may hold strangers, except the caller's own group, whose session began with the call.
fn by_kind(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<Answer, i32> {
    let (kind, who) = (int(n.args[0]), int(n.args[1]));
    let (process, group) = if n.nr as libc::c_long == libc::SYS_setpriority { (0, 1) } else { (1, 2) };
    match (kind, who) {
        (kind, who) if kind == process => sibling(broker, caller, who),
        (kind, 0) if kind == group => Ok(Answer::Continue),
        _ => Err(libc::EPERM),
    }
}

fn kill(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<Answer, i32> {
    match int(n.args[0]) {
        // The caller's own group: nobody outside the call can be in it, for its session began with the call.
        0 => Ok(Answer::Continue),
        // Everybody.
        -1 => Err(libc::EPERM),
        // A group, if its leader, or what is left of it, is of this call.
        group if group < 0 => {
            let id = group.checked_neg().ok_or(libc::EINVAL)?;
            let own = broker.calls.family_of(caller).into_iter().any(|pid| {
                one_process(pid)
                    .is_some_and(|p| rustix::process::getpgid(Some(p)).is_ok_and(|g| g.as_raw_nonzero().get() == id))
            });
            if own { Ok(Answer::Continue) } else { Err(libc::EPERM) }
        }
        pid => sibling(broker, caller, pid),
    }
}
