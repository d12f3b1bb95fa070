//! A session's file of notices, which comes with its zygotes' channels: a word for each call that runs, by the number of its
//! worker. The broker writes it, the supervisor reads it, in place of a question for every call.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, SealFlags};

/// How many words it has: calls further apart share one.
pub const WORDS: u64 = 4096;
/// Its length in bytes.
pub const SIZE: u64 = WORDS * 8;
/// The word of several workers.
pub const SEVERAL: u64 = u64::MAX;

/// Where the word of a worker is, and what it is when its call has something to report.
#[must_use]
pub fn of(worker: u64) -> (u64, u64) {
    (worker % WORDS * 8, worker.saturating_add(1))
}

/// Whose word it is, if it is one worker's.
#[must_use]
pub fn worker(word: u64) -> Option<u64> {
    if word == SEVERAL { None } else { word.checked_sub(1) }
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Makes one.
///
/// # Errors
/// From memfd_create(2), ftruncate(2) and fcntl(2).
pub fn make() -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(c"notices", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, SIZE)?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

/// Takes what should be one: only a file in memory has seals, so that reading it never waits for anybody.
///
/// # Errors
/// `InvalidData` for anything else.
pub fn accept(file: OwnedFd) -> io::Result<File> {
    match rustix::fs::fcntl_get_seals(&file) {
        Ok(seals) if seals.contains(SEALS) => Ok(File::from(file)),
        Ok(_) | Err(_) => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

/// True if a worker's call has something to report, or one that shares its word.
///
/// # Errors
/// From pread(2): a file that is shorter than it should be.
pub fn is_there(notices: &File, worker: u64) -> io::Result<bool> {
    let (at, mine) = of(worker);
    let mut word = [0; 8];
    notices.read_exact_at(&mut word, at)?;
    let word = u64::from_ne_bytes(word);
    Ok(word == mine || word == SEVERAL)
}
