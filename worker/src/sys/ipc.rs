//! System V IPC.

use std::io;

use super::errno_if_negative;
use super::process::Pid;

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

/// The process that made a segment.
pub(crate) fn shm_creator(id: i32) -> io::Result<Pid> {
    // SAFETY: plain integers, for which all zero is a value.
    let mut about: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: a live structure of the kind that IPC_STAT fills.
    errno_if_negative(unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut about) })?;
    Ok(about.shm_cpid)
}

/// Fields of a segment that `IPC_SET` changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
}

/// How long the kernel's structure is.
pub(crate) const SHM_SET: usize = size_of::<libc::shmid_ds>();

impl Access {
    /// Out of a caller's structure: `struct ipc64_perm` is at its beginning, with six ints (asm-generic/ipcbuf.h): key, user,
    /// group, and those of the maker, then the mode.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |at: usize| words.get(at).map(|word| u32::from_ne_bytes(*word));
        Some(Self { uid: word(1)?, gid: word(2)?, mode: word(5)? & 0o777 })
    }
}

/// Changes who may use a segment.
pub(crate) fn shm_set(id: i32, access: Access) -> io::Result<()> {
    // SAFETY: plain integers, for which all zero is a value.
    let mut about: libc::shmid_ds = unsafe { std::mem::zeroed() };
    about.shm_perm.uid = access.uid;
    about.shm_perm.gid = access.gid;
    about.shm_perm.mode = (access.mode & 0o777) as _;
    // SAFETY: a live structure of the kind that IPC_SET reads.
    errno_if_negative(unsafe { libc::shmctl(id, libc::IPC_SET, &raw mut about) }).map(drop)
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
