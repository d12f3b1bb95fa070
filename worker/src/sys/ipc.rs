//! System V IPC and POSIX message queues.

use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::errno_if_negative;

/// Makes a shared memory segment of its own (`IPC_PRIVATE`).
pub(crate) fn shm_create(size: usize, flags: i32) -> io::Result<i32> {
    // SAFETY: takes integers only.
    errno_if_negative(unsafe { libc::shmget(libc::IPC_PRIVATE, size, flags | libc::IPC_CREAT) })
}

/// Makes a semaphore set of its own.
pub(crate) fn sem_create(count: i32, flags: i32) -> io::Result<i32> {
    // SAFETY: takes integers only.
    errno_if_negative(unsafe { libc::semget(libc::IPC_PRIVATE, count, flags | libc::IPC_CREAT) })
}

/// Makes a message queue of its own.
pub(crate) fn msg_create(flags: i32) -> io::Result<i32> {
    // SAFETY: takes integers only.
    errno_if_negative(unsafe { libc::msgget(libc::IPC_PRIVATE, flags | libc::IPC_CREAT) })
}

/// Removes a segment.
pub(crate) fn shm_remove(id: i32) -> io::Result<()> {
    // SAFETY: IPC_RMID reads no buffer.
    errno_if_negative(unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) }).map(drop)
}

/// Removes a semaphore set.
pub(crate) fn sem_remove(id: i32) -> io::Result<()> {
    // SAFETY: IPC_RMID takes no fourth argument.
    errno_if_negative(unsafe { libc::semctl(id, 0, libc::IPC_RMID) }).map(drop)
}

/// Removes a queue.
pub(crate) fn msg_remove(id: i32) -> io::Result<()> {
    // SAFETY: IPC_RMID reads no buffer.
    errno_if_negative(unsafe { libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()) }).map(drop)
}

/// mq_open(2) by the system call: `name` is without the leading slash that the library takes off. With `O_CREAT`, `attr`
/// holds the flags, the most messages and their size, as in mq_open(3).
pub(crate) fn mq_open(name: &CStr, flags: i32, mode: u32, attr: Option<[i64; 4]>) -> io::Result<OwnedFd> {
    // struct mq_attr is eight longs, the last four reserved (mq_getattr(2)).
    let attr = attr.map(|[a, b, c, d]| [a, b, c, d, 0, 0, 0, 0]);
    let pointer = attr.as_ref().map_or(std::ptr::null(), |a| a.as_ptr());
    // SAFETY: a NUL-terminated name; the attributes are null or eight live longs, which is struct mq_attr.
    let fd = unsafe { libc::syscall(libc::SYS_mq_open, name.as_ptr(), flags | libc::O_CLOEXEC, mode, pointer) };
    let fd = libc::c_int::try_from(fd).map_err(io::Error::other).and_then(errno_if_negative)?;
    // SAFETY: a descriptor that the kernel has just given to this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// mq_unlink(2), the name as in [`mq_open`].
pub(crate) fn mq_unlink(name: &CStr) -> io::Result<()> {
    // SAFETY: a NUL-terminated name.
    let done = unsafe { libc::syscall(libc::SYS_mq_unlink, name.as_ptr()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
