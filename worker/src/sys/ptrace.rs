//! Tracing (ptrace(2)), as far as judging an exec takes it. All of it belongs to the thread that seized: no other may ask.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

use super::errno_if_negative;
use super::process::Pid;

/// Becomes the tracer of a thread, without stopping it. From now on it stops when it has executed a program, before that runs
/// an instruction; and should this thread end, however that comes, the kernel kills it (`PTRACE_O_EXITKILL`, Linux 3.8).
///
/// # Errors
/// `EPERM` if it may not be traced (Yama, another user's, not dumpable, traced already); `ESRCH`.
pub(crate) fn seize(tid: Pid) -> io::Result<()> {
    let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;
    request(libc::PTRACE_SEIZE, tid, options as usize)
}

/// Has a seized thread stop at its next chance. Does not wait for it.
pub(crate) fn interrupt(tid: Pid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0)
}

/// Lets a stopped thread go on, untraced.
pub(crate) fn detach(tid: Pid) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0)
}

/// Lets a stopped thread go on with a signal, or none.
pub(crate) fn go_on(tid: Pid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, usize::try_from(signal).unwrap_or(0))
}

/// The number that a thread had before the exec that it has stopped for.
pub(crate) fn former_number(tid: Pid) -> io::Result<Pid> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes one unsigned long through the last argument, which is a live local; the third is ignored.
    let done =
        unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, std::ptr::null_mut::<libc::c_void>(), &raw mut message) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Pid::try_from(message).map_err(io::Error::other)
}

/// The requests used here take a number, or nothing, in the place of data.
fn request(request: libc::c_uint, tid: Pid, data: usize) -> io::Result<()> {
    // SAFETY: none of SEIZE, INTERRUPT, DETACH and CONT dereferences an address of this process: the third argument is
    // ignored (zero for SEIZE), and the fourth is a number.
    let done = unsafe { libc::ptrace(request, tid, std::ptr::null_mut::<libc::c_void>(), data as *mut libc::c_void) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Next event of a traced thread: its number and wait(2)'s status word. `None` if there is nothing new. Of this
/// thread's own tracees alone, since no other thread's are its business.
pub(crate) fn next_event() -> io::Result<Option<(Pid, i32)>> {
    let mut status = 0;
    let flags = libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: a live local of the type that waitpid(2) writes.
    match errno_if_negative(unsafe { libc::waitpid(-1, &raw mut status, flags) }) {
        Ok(0) => Ok(None),
        Ok(pid) => Ok(Some((pid, status))),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ECHILD | libc::EINTR)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Blocks `SIGCHLD`, by which the kernel tells a tracer of stops, and gives it back as a descriptor to poll (signalfd(2)).
/// Children that end are still reaped by the kernel. Comes before other threads are made, so that they block it too.
pub(crate) fn stops_as_fd() -> io::Result<OwnedFd> {
    // SAFETY: plain integers and an optional function pointer, for which all zero is a value: SIG_DFL, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_flags = libc::SA_NOCLDWAIT;
    // SAFETY: a live action that installs no code; the old one is not wanted.
    errno_if_negative(unsafe { libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()) })?;
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) initialises the set it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised by the line above; a valid signal number.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD) };
    // SAFETY: initialised above.
    let set: libc::sigset_t = unsafe { set.assume_init() };
    // SAFETY: a live set to read; the old one is not wanted.
    let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if blocked != 0 {
        return Err(io::Error::from_raw_os_error(blocked));
    }
    // SAFETY: a live set; -1 asks for a new descriptor.
    let fd = errno_if_negative(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
    // SAFETY: a descriptor that the kernel has just given to this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
