//! Files that calls of a session have made, known again by the kernel's numbers.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

/// Most that is remembered. What comes after is as if it had been there before.
const MOST: usize = 1 << 16;
/// Most of it that is held open.
const HELD: usize = 256;

/// Device and inode, and when it was made, where the file system says so (`STATX_BTIME`, Linux 4.11): numbers are given out
/// again once a file is gone, but not within one instant.
pub(super) type FileIdentity = (u64, u64, Option<(i64, u32)>);

/// Files or directories.
///
/// Invariant: what a file system tells no time of is held open, so that its number is no other's.
#[derive(Debug, Default)]
pub(super) struct MadeFiles {
    known: HashMap<FileIdentity, Option<OwnedFd>>,
    held: usize,
}

impl MadeFiles {
    /// This was made just now.
    pub(super) fn add(&mut self, what: impl AsFd) {
        let Some(identity) = identity(&what, c"") else { return };
        if self.known.len() >= MOST || self.known.contains_key(&identity) {
            return;
        }
        let held = match identity {
            (.., Some(_made)) => None,
            (.., None) if self.held >= HELD => return,
            (.., None) => match rustix::io::fcntl_dupfd_cloexec(what, 3) {
                Ok(held) => Some(held),
                Err(_) => return,
            },
        };
        self.held += usize::from(held.is_some());
        self.known.insert(identity, held);
    }

    /// Adds what has a name now. It is not followed.
    pub(super) fn add_at(&mut self, from: impl AsFd, name: impl rustix::path::Arg) {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(what) = rustix::fs::openat(from, name, flags, Mode::empty()) {
            self.add(what);
        }
    }

    /// True if nothing is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// It is no longer of account.
    pub(super) fn forget(&mut self, identity: FileIdentity) {
        if let Some(held) = self.known.remove(&identity) {
            self.held -= usize::from(held.is_some());
        }
    }

    /// True if what has a name, or with an empty one the descriptor itself, is of these.
    pub(super) fn has(&self, from: impl AsFd, name: impl rustix::path::Arg) -> bool {
        !self.known.is_empty() && identity(from, name).is_some_and(|identity| self.known.contains_key(&identity))
    }
}

/// Identity of what has a name, which is not followed, or with an empty one the descriptor itself.
pub(super) fn identity(from: impl AsFd, name: impl rustix::path::Arg) -> Option<FileIdentity> {
    let flags = StatxFlags::INO | StatxFlags::BTIME;
    let stat = rustix::fs::statx(from, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH, flags).ok()?;
    let device = u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor);
    let is_told = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    Some((device, stat.stx_ino, is_told.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))))
}
