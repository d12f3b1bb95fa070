//! What results have no room for (S0-44 to S0-47): files in a directory of the session's own, which the session may read and
//! cannot change.
//!
//! Invariant: the directory lies where nothing that the session was granted to write reaches it; files are made by its
//! descriptor, with names that are not there yet, and never opened again.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use callgate_policy::path::HostPath;
use callgate_policy::plan::Identity;
use callgate_worker::directory::Directory;
use rustix::fs::{Mode, OFlags};

use super::private::places;
use crate::host;

/// The most bytes that a session's files may take, together.
const QUOTA: u64 = 64 * 1024 * 1024;

/// The directory of a session.
#[derive(Debug)]
pub(crate) struct Outputs {
    /// UTF-8, so that an envelope can name what is in it.
    path: String,
    directory: Directory,
    owner: Identity,
    /// Of the quota.
    left: AtomicU64,
    made: AtomicU64,
    handed_over: bool,
}

impl Outputs {
    /// Makes it where a session cannot write that may change what lies at or below `written`. `None` if there is no such
    /// place: then nothing that a result has no room for is kept.
    pub(crate) fn make(owner: Identity, written: &[HostPath]) -> Option<Self> {
        let places = places(owner, written).into_iter();
        places.filter(|place| place.to_str().is_some()).find_map(|place| Self::below(&place, owner).ok())
    }

    fn below(place: &Path, owner: Identity) -> io::Result<Self> {
        let path = place.join(format!("callgate-out-{}", host::random()?));
        let directory = Directory::make(&path, &[], owner)?;
        Ok(Self {
            path: path.to_string_lossy().into_owned(),
            directory,
            owner,
            left: AtomicU64::new(QUOTA),
            made: AtomicU64::new(0),
            handed_over: false,
        })
    }

    /// For the launcher.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        self.directory.descriptors()
    }

    pub(crate) fn path(&self) -> HostPath {
        self.path.as_str().into()
    }

    /// The session stands: its launcher removes the directory when it has ended.
    pub(crate) fn hand_over(&mut self) {
        self.handed_over = true;
    }

    /// A new file, for a result of this tool.
    pub(crate) fn create(&self, tool: &str) -> io::Result<Output<'_>> {
        let name = format!("{:04}-{tool}.txt", self.made.fetch_add(1, Ordering::Relaxed) + 1);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.directory.as_fd(), &name, flags, Mode::from_raw_mode(0o400))?;
        if rustix::process::geteuid().as_raw() != self.owner.uid {
            std::os::unix::fs::fchown(&file, Some(self.owner.uid), Some(self.owner.gid))?;
        }
        Ok(Output { path: format!("{}/{name}", self.path), file: file.into(), left: &self.left, lost: false })
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        if !self.handed_over {
            // Empty: no session has run. Its launcher may have removed it.
            drop(self.directory.remove_if_empty(&[]));
        }
    }
}

/// A file that is written to.
pub(crate) struct Output<'a> {
    pub(crate) path: String,
    file: File,
    left: &'a AtomicU64,
    /// Not all is in it: the quota was used up, or the disk was full.
    pub(crate) lost: bool,
}

impl Output<'_> {
    /// Adds to it, as much as there is room for.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if self.lost {
            return;
        }
        let wanted = bytes.len() as u64;
        let take = |left: u64| Some(left.saturating_sub(wanted));
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or(0);
        let room = usize::try_from(left.min(wanted)).unwrap_or(usize::MAX);
        let written = self.file.write_all(&bytes[..room]);
        self.lost = room < bytes.len() || written.is_err();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use std::fs;

    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    fn me() -> Identity {
        Identity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }

    #[test]
    fn a_place_that_can_be_written_is_passed_over() {
        let default = Outputs::make(me(), &[]).unwrap();
        assert!(Path::new(&default.path).starts_with(fs::canonicalize(std::env::temp_dir()).unwrap()));
        assert_eq!(fs::metadata(&default.path).unwrap().permissions().mode() & 0o7777, 0o700);
        let temp = HostPath::from(std::env::temp_dir());
        // Also what is not there yet: the directory above it is what may be written.
        for written in [temp.clone(), HostPath::from(temp.as_path().join("no/such/directory"))] {
            let other = Outputs::make(me(), &[written]).unwrap();
            assert!(!Path::new(&other.path).starts_with(&temp), "{}", other.path);
            let path = other.path.clone();
            drop(other);
            assert!(fs::metadata(path).is_err(), "an unused one is removed");
        }
        assert!(Outputs::make(me(), &["/".into()]).is_none());
        let beside = tempfile::tempdir().unwrap();
        let same = Outputs::make(me(), &[beside.path().into()]).unwrap();
        assert!(Path::new(&same.path).starts_with(&temp), "the control: another directory there is no hindrance");
    }

    #[test]
    fn files_are_new_and_end_at_the_quota() {
        let outputs = Outputs::make(me(), &[]).unwrap();
        outputs.left.store(10, Ordering::Relaxed);
        let mut first = outputs.create("bash").unwrap();
        first.add(b"1234");
        assert!(!first.lost);
        let mut second = outputs.create("bash").unwrap();
        assert_ne!(first.path, second.path);
        second.add(b"123456");
        assert!(!second.lost, "exactly what was left");
        second.add(b"7");
        assert!(second.lost);
        assert_eq!(fs::read(&first.path).unwrap(), b"1234");
        assert_eq!(fs::read(&second.path).unwrap(), b"123456");
        assert_eq!(fs::metadata(&first.path).unwrap().mode() & 0o7777, 0o400);
        // A name that somebody has put there is not followed.
        let target = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::symlink(target.path(), format!("{}/0003-bash.txt", outputs.path)).unwrap();
        assert!(outputs.create("bash").is_err());
        assert_eq!(target.as_file().metadata().unwrap().len(), 0);
    }
}
