//! The kernel's side of a seccomp listener (seccomp_unotify(2)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::errno_if_negative;

/// A system call that waits for an answer. Numbers and pointers are the caller's: hostile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notification {
    pub(crate) id: u64,
    /// The calling thread, in the listener's PID namespace.
    pub(crate) tid: libc::pid_t,
    pub(crate) nr: i32,
    pub(crate) args: [u64; 6],
}

/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS`: `_IOW('!', 4, u64)` (linux/seccomp.h, Linux 6.6).
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` (linux/seccomp.h).
const SYNC_WAKE_UP: u64 = 1;

/// Has the kernel hand the processor from the caller to the answerer and back, as one waits for the other: a hint,
/// which kernels before 6.6 do not know.
pub(crate) fn hand_over(listener: BorrowedFd<'_>, hands_over: bool) -> bool {
    let flags = if hands_over { SYNC_WAKE_UP } else { 0 };
    // SAFETY: the flags are passed by value; nothing is dereferenced.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, flags) == 0 }
}

/// Takes the next notification. `None` if it was gone before it could be taken (its thread was killed).
pub(crate) fn receive(listener: BorrowedFd<'_>) -> io::Result<Option<Notification>> {
    // SAFETY: plain integers, for which all zero is a value; the kernel demands zeroes.
    let mut raw: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: a live, zeroed structure of the size encoded in the request, which the kernel fills.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut raw) };
    match errno_if_negative(done) {
        Ok(_) => {
            let tid = libc::pid_t::try_from(raw.pid).unwrap_or(0);
            Ok(Some(Notification { id: raw.id, tid, nr: raw.data.nr, args: raw.data.args }))
        }
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// True if all are gone who could ask.
pub(crate) fn is_over(listener: BorrowedFd<'_>) -> io::Result<bool> {
    let mut fds = [PollFd::new(listener, PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO)?;
    Ok(fds[0].revents().is_some_and(says_over))
}

/// True if a poll of a listener says so. An error is none: that is what it gives when it was interrupted, as by a
/// signal that stops this process, while another thread held the listener's lock (Linux 6.18, `seccomp_notify_poll`).
pub(crate) fn says_over(happened: PollFlags) -> bool {
    happened.contains(PollFlags::POLLHUP)
}

/// True if the call still waits: if so, what was read from its thread was this thread's, not a reused id's.
pub(crate) fn is_valid(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: a live u64, which the kernel reads.
    uninterrupted(|| unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) })
        .is_ok()
}

/// An answer.
#[derive(Debug)]
pub(crate) enum CallReply {
    /// The call returns this.
    Return(i64),
    /// The call fails with this errno.
    Fail(i32),
    /// The kernel carries the call out as if nobody had asked. Never after judging a pointer.
    Continue,
    /// Not yet: a thread of the broker will answer.
    Later,
    /// The call returns a new descriptor for this file.
    Fd { fd: OwnedFd, cloexec: bool },
}

/// Answers. A call that is gone is no error: its thread was killed. When the caller goes on, this process has let go of the file
/// that it was given: a program that was just written could not be executed (ETXTBSY).
pub(crate) fn answer(listener: BorrowedFd<'_>, id: u64, answer: CallReply) -> io::Result<()> {
    let (val, error, flags) = match answer {
        CallReply::Return(value) => (value, 0, 0),
        CallReply::Fail(errno) => (0, -errno, 0),
        CallReply::Later => return Ok(()),
        CallReply::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        CallReply::Fd { fd, cloexec } => match give(listener, id, fd, cloexec) {
            Ok(number) => (number, 0, 0),
            Err(errno) => (0, -errno, 0),
        },
    };
    let response = libc::seccomp_notif_resp { id, val, error, flags };
    // SAFETY: a live structure of the size encoded in the request, which the kernel reads.
    let send = || unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response) };
    gone_is_fine(uninterrupted(send).map(drop))
}

/// Moves `fd` to the caller. Returns the number there, or the errno: the call must be answered with it, or it waits
/// for ever (C16: the caller's table may be full). In two steps: in one (`SECCOMP_ADDFD_FLAG_SEND`, Linux 5.14) the call counts as
/// answered before the descriptor is there, so that when this process is stopped or frozen in between, the caller is told of a
/// descriptor 0 that nobody gave it. Between the two nothing but its death ends the caller's wait.
pub(crate) fn give(listener: BorrowedFd<'_>, id: u64, fd: OwnedFd, cloexec: bool) -> Result<i64, i32> {
    let request = libc::seccomp_notif_addfd {
        id,
        flags: 0,
        srcfd: fd.as_fd().as_raw_fd() as u32,
        newfd: 0,
        newfd_flags: if cloexec { libc::O_CLOEXEC as u32 } else { 0 },
    };
    // SAFETY: a live structure of the size encoded in the request, which the kernel reads; the descriptor stays ours.
    let add = || unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const request) };
    uninterrupted(add).map(i64::from).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))
}

/// Waiting for the listener's lock ends with EINTR when this process is stopped or frozen, and nothing has happened then
/// (`seccomp_notify_ioctl`, Linux 6.18).
fn uninterrupted(mut ask: impl FnMut() -> libc::c_int) -> io::Result<RawFd> {
    loop {
        match errno_if_negative(ask()) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn gone_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}
