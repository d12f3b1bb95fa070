//! Descriptors.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use super::errno_if_negative;

/// Closes every descriptor but 0, 1, 2 and those named (close_range(2), Linux 5.9): nothing that was inherited survives
/// by being forgotten (A20).
///
/// Whoever holds another descriptor must not drop it after this: callers are fresh forks that keep only what they name
/// and leave by [`exit_now`](super::process::exit_now).
///
/// # Errors
/// `ENOSYS` before Linux 5.9.
pub(crate) fn close_all_but(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut kept: Vec<u32> = keep.iter().filter_map(|fd| u32::try_from(fd.as_raw_fd()).ok()).collect();
    kept.sort_unstable();
    kept.push(u32::MAX);
    let mut from = 3;
    for number in kept {
        if from < number {
            let to = if number == u32::MAX { number } else { number - 1 };
            // SAFETY: takes integers only; nothing in this process uses these again (see above).
            if unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        from = from.max(number.saturating_add(1));
    }
    Ok(())
}

/// Where the kernel says that an open file is, without links (proc_pid_fd(5)).
///
/// # Errors
/// The kernel's own: without `/proc`, `ENOENT`.
pub(crate) fn path_of(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let path = rustix::fs::readlinkat(rustix::fs::CWD, link, Vec::new())?;
    Ok(OsString::from_vec(path.into_bytes()).into())
}

/// Takes over a descriptor that this process was started with.
///
/// # Errors
/// `EBADF` if it is not open.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes integers only; fails if the number is not open.
    errno_if_negative(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: open (checked above); the caller names a number that its starter reserved for it, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
