//! Calls that no library wraps as these acts need them, besides those of the worker's acts; the only unsafe code of this program.
#![allow(unsafe_code, reason = "each block says why it holds")]

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use callgate_worker::probe::outcome::ActFailure;

/// The address of memory that is leaked to the kernel: nothing here looks at it again.
pub(crate) fn leaked(memory: &'static mut [u8]) -> u64 {
    memory.as_mut_ptr().expose_provenance() as u64
}

/// Starts a program as posix_spawn(3) does: in a child that shares this process's memory until its exec, so that the kernel reads
/// its arguments where other threads may write meanwhile. The errno if it could not be started.
///
/// `argv` and `environment` end in zero, and each pointer before is to a NUL-terminated string whatever is written there meanwhile.
pub(crate) fn spawn(file: &CStr, argv: &[AtomicUsize], environment: &[usize]) -> Result<i32, i32> {
    let mut pid = 0;
    // SAFETY: `pid` and `environment` are live, and what that points to is never freed; the vector is one of machine words, as pointers are, and ends in a null one.
    // Other threads change it by atomic stores alone, and only this process's child and the kernel read it. The racer keeps
    // both words alive, and a word that is rewritten keeps its last byte zero.
    let failed = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            file.as_ptr(),
            std::ptr::null(),
            std::ptr::null(),
            argv.as_ptr().cast::<*mut libc::c_char>(),
            environment.as_ptr().cast::<*mut libc::c_char>(),
        )
    };
    if failed == 0 { Ok(pid) } else { Err(failed) }
}

/// Ignores `signal` from now on.
pub(crate) fn ignore(signal: i32) -> bool {
    // SAFETY: SIG_IGN is a disposition, no handler runs.
    let before = unsafe { libc::signal(signal, libc::SIG_IGN) };
    before != libc::SIG_ERR
}

/// From now on, what sleeps in a system call is woken every few milliseconds and told `EINTR`.
pub(crate) fn keep_awake() {
    extern "C" fn nothing(_signal: i32) {}
    let handler = nothing as extern "C" fn(i32);
    // SAFETY: zero is a valid sigaction: no flags (so no SA_RESTART), an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    // SAFETY: the handler does nothing and may run at any time; the old action is not asked for.
    unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) };
    let every = libc::timeval { tv_sec: 0, tv_usec: 3000 };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: `timer` lives during the call; the old one is not asked for.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}

/// A number that all children count on.
pub(crate) fn shared_counter() -> Result<&'static AtomicU64, ActFailure> {
    let (kind, access) = (libc::MAP_SHARED | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping, of nothing.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(ActFailure::errno("mmap", std::io::Error::last_os_error().raw_os_error().unwrap_or(0)));
    }
    // SAFETY: a page of zeros that is never unmapped, and large enough and aligned for an atomic.
    Ok(unsafe { &*page.cast::<AtomicU64>() })
}
