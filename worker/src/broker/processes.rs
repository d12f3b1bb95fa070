//! Calls that name a process: only those of the caller's own call may be named.
//!
//! The names are numbers, and a number is another's as soon as its process has ended and been waited for: a limit on
//! processes gives a PID namespace few of them, and a caller can put off what it was allowed to do for seconds. So the kernel
//! is left to carry on only where the number is the caller's own, which nobody else gets while it waits. What else is
//! allowed is done here: to a process by a descriptor that was opened before it was judged.

use std::collections::HashSet;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::process::{Pid as KernelPid, PidfdFlags};
use rustix::thread::CpuSet;

use super::caller::{Caller, process_of};
use super::metadata::int;
use super::state::{Broker, NotificationHandler};
use crate::sys::notify::{CallReply, Notification};
use crate::sys::process::{self, Pid, SignalInfo, pidfd_signal};

pub(super) const HANDLERS: &[(libc::c_long, NotificationHandler)] = &[
    (libc::SYS_pidfd_open, pidfd_open),
    (libc::SYS_sched_setaffinity, set_affinity),
    (libc::SYS_sched_setscheduler, of_oneself),
    (libc::SYS_sched_setparam, of_oneself),
    (libc::SYS_sched_setattr, of_oneself),
    (libc::SYS_prlimit64, of_oneself),
    (libc::SYS_setpriority, set_priority),
    (libc::SYS_ioprio_set, set_io_priority),
    (libc::SYS_kill, kill),
    (libc::SYS_tkill, tkill),
    (libc::SYS_tgkill, of_oneself),
    (libc::SYS_rt_sigqueueinfo, queue_signal),
    (libc::SYS_rt_tgsigqueueinfo, of_oneself),
    (libc::SYS_pidfd_send_signal, pidfd_send_signal),
];

const DONE: Result<CallReply, i32> = Ok(CallReply::Return(0));

/// True if a number is that of the calling thread or of its process. It stays theirs until they have ended, and then
/// nothing is carried out.
fn is_own(caller: &Caller<'_>, pid: Pid) -> bool {
    pid == caller.tid() || process::is_thread_of(pid, caller.tid())
}

/// True if a number is that of another thread of the caller's process. Threads have no descriptors (before Linux 6.9):
/// such a number is acted on at once.
fn is_own_thread(caller: &Caller<'_>, tid: Pid) -> bool {
    process_of(caller.tid()).is_some_and(|process| process::is_thread_of(process, tid)) && caller.confirm().is_ok()
}

/// Calls by which programs act on themselves. A thread that is named beside its process (tgkill(2)) is looked for in
/// that by the kernel.
fn of_oneself(_: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    if is_own(caller, int(n.args[0])) { Ok(CallReply::Continue) } else { Err(libc::EPERM) }
}

/// A number that means one process, and neither a group nor everybody.
fn one_process(pid: Pid) -> Option<KernelPid> {
    (pid > 0).then(|| KernelPid::from_raw(pid)).flatten()
}

fn errno(e: rustix::io::Errno) -> i32 {
    e.raw_os_error()
}

/// Opens a process of the caller's call. What has the number is opened, then judged, and then is there still: so it was the
/// one that was judged.
fn open_sibling(broker: &mut Broker, caller: &Caller<'_>, pid: Pid, flags: PidfdFlags) -> Result<OwnedFd, i32> {
    let fd = rustix::process::pidfd_open(one_process(pid).ok_or(libc::EINVAL)?, flags).map_err(errno)?;
    if !broker.calls.are_siblings(caller, pid) {
        return Err(libc::EPERM);
    }
    if is_there(&fd) { Ok(fd) } else { Err(libc::ESRCH) }
}

/// True if a process has its number still. One that may not be sent a signal has.
fn is_there(process: &OwnedFd) -> bool {
    !matches!(pidfd_signal(process.as_fd(), 0, None), Err(e) if e.raw_os_error() == Some(libc::ESRCH))
}

fn send(process: &OwnedFd, signal: i32, info: Option<&SignalInfo>) -> Result<(), i32> {
    pidfd_signal(process.as_fd(), signal, info).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))
}

fn pidfd_open(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    let flags = PidfdFlags::from_bits_retain(n.args[1] as u32);
    let fd = open_sibling(broker, caller, int(n.args[0]), flags)?;
    Ok(CallReply::Fd { fd, cloexec: true })
}

/// Performed on a descriptor of this process's own: the caller could exchange its own after it was judged. And it
/// must be judged, wherever it came from: SO_PEERPIDFD gives one of whoever connected a socket, which is the broker.
fn pidfd_send_signal(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    let pid = caller.process_of_pidfd(int(n.args[0]))?;
    // What a siginfo carries is lost on the way; who needs it has sigqueue(3).
    let (signal, info, flags) = (int(n.args[1]), n.args[2], n.args[3]);
    if info != 0 || flags != 0 {
        return Err(libc::EPERM);
    }
    let process = open_sibling(broker, caller, pid, PidfdFlags::empty())?;
    // Both have had the number at the same time.
    if caller.process_of_pidfd(int(n.args[0]))? != pid || !is_there(&process) {
        return Err(libc::ESRCH);
    }
    send(&process, signal, None)?;
    DONE
}

/// Programs' libraries bind their threads to processors, also those that they start.
fn set_affinity(_: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    let (tid, length) = (int(n.args[0]), n.args[1]);
    if is_own(caller, tid) {
        return Ok(CallReply::Continue);
    }
    let room = CpuSet::MAX_CPU / 8;
    let mask = caller.bytes(n.args[2], usize::try_from(length).map_or(room, |length| length.min(room)))?;
    let mut processors = CpuSet::new();
    let is_set = |cpu: &usize| mask.get(cpu / 8).is_some_and(|byte| byte >> (cpu % 8) & 1 == 1);
    (0..CpuSet::MAX_CPU).filter(is_set).for_each(|cpu| processors.set(cpu));
    if !is_own_thread(caller, tid) {
        return Err(libc::EPERM);
    }
    rustix::thread::sched_setaffinity(one_process(tid), &processors).map_err(errno)?;
    DONE
}

/// A kind (process, group, user) and a number. A group or a user may hold strangers, except the caller's own group, whose
/// session began with the call.
fn set_priority(_: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    const PROCESS: i32 = libc::PRIO_PROCESS as i32;
    const GROUP: i32 = libc::PRIO_PGRP as i32;
    match (int(n.args[0]), int(n.args[1])) {
        (PROCESS, who) if is_own(caller, who) => Ok(CallReply::Continue),
        (PROCESS, who) if is_own_thread(caller, who) => {
            rustix::process::setpriority_process(one_process(who), int(n.args[2])).map_err(errno)?;
            DONE
        }
        (GROUP, 0) => Ok(CallReply::Continue),
        _ => Err(libc::EPERM),
    }
}

/// Two parts of an argument, whose kinds have other numbers (ioprio_set(2)).
fn set_io_priority(_: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    const PROCESS: i32 = 1;
    const GROUP: i32 = 2;
    match (int(n.args[0]), int(n.args[1])) {
        (PROCESS, who) if is_own(caller, who) => Ok(CallReply::Continue),
        (GROUP, 0) => Ok(CallReply::Continue),
        _ => Err(libc::EPERM),
    }
}

fn kill(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    let signal = int(n.args[1]);
    match int(n.args[0]) {
        // The caller's own group: nobody outside the call can be in it, for its session began with the call.
        0 => Ok(CallReply::Continue),
        // Everybody.
        -1 => Err(libc::EPERM),
        group if group < 0 => kill_group(broker, caller, group.checked_neg().ok_or(libc::EINVAL)?, signal),
        pid if is_own(caller, pid) => Ok(CallReply::Continue),
        pid => {
            // A thread's number stands for its process.
            let process = open_sibling(broker, caller, process_of(pid).unwrap_or(pid), PidfdFlags::empty())?;
            send(&process, signal, None)?;
            DONE
        }
    }
}

/// How often a group is gone through, if what is sent cannot be caught, for those that were forked meanwhile.
const PASSES: usize = 16;

/// Sends a signal to those of a group that are of this call, one by one: a group has no descriptor. The caller is last, for
/// it may be gone by that.
///
/// What is sent twice could be caught twice, and reach what a handler has just started. So whoever is forked between the look
/// and the signal, which the kernel's own kill(2) would not miss, is found only where there can be no handler.
fn kill_group(broker: &mut Broker, caller: &Caller<'_>, group: Pid, signal: i32) -> Result<CallReply, i32> {
    let passes = if matches!(signal, libc::SIGKILL | libc::SIGSTOP) { PASSES } else { 1 };
    let mut reached = HashSet::new();
    for _ in 0..passes {
        let family = broker.calls.family_of(caller).into_iter();
        let mut new: Vec<_> =
            family.filter(|pid| !reached.contains(pid) && process::group_of(*pid) == Some(group)).collect();
        new.sort_by_key(|pid| is_own(caller, *pid));
        let before = reached.len();
        for pid in new {
            let Ok(process) = open_sibling(broker, caller, pid, PidfdFlags::empty()) else { continue };
            match send(&process, signal, None) {
                Err(libc::ESRCH) => {}
                sent => {
                    sent?;
                    reached.insert(pid);
                }
            }
        }
        if reached.len() == before {
            break;
        }
    }
    if reached.is_empty() { Err(libc::EPERM) } else { DONE }
}

/// Signal of musl's pthread_kill(3). Of another process's threads it is refused, as with tgkill(2).
fn tkill(_: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    let (tid, signal) = (int(n.args[0]), int(n.args[1]));
    if tid == caller.tid() {
        return Ok(CallReply::Continue);
    }
    let process = process_of(caller.tid()).ok_or(libc::EPERM)?;
    caller.confirm()?;
    process::signal_thread(process, tid, signal).map_err(|e| match e.raw_os_error() {
        Some(libc::ESRCH) | None => libc::EPERM,
        Some(other) => other,
    })?;
    DONE
}

/// rt_sigqueueinfo(2). What a signal carries is whatever its sender wrote; the kernel refuses what only itself may say.
fn queue_signal(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    let (pid, signal) = (int(n.args[0]), int(n.args[1]));
    if is_own(caller, pid) {
        return Ok(CallReply::Continue);
    }
    let info = SignalInfo::of(signal, &caller.bytes(n.args[2], SignalInfo::LENGTH)?).ok_or(libc::EFAULT)?;
    let process = open_sibling(broker, caller, process_of(pid).unwrap_or(pid), PidfdFlags::empty())?;
    send(&process, signal, Some(&info))?;
    DONE
}
