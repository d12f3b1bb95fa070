//! Rests that results have no room for (S0-44 to S0-47): files in a directory of the session's own, which the session
//! may read and cannot change, or in one that the host named, where they stay when the session has ended.
//!
//! Invariant: the directory lies where nothing that the session was granted to write reaches it; files are made by its
//! descriptor, with names that are not there yet, and never opened again.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use callgate_policy::path::HostPath;
use callgate_policy::plan::Identity;
use callgate_worker::directory::OwnDirectory;
use rustix::fs::{Access, AtFlags, Mode, OFlags};

use super::private::{is_out_of_reach, places};
use crate::host;
use crate::mounts::MountTable;
use crate::place::{Changeable, Place, Stranger, Unusable};
use crate::store::{DIRECTORY, KnownOutputs, names};

/// The most bytes that a session's files may take, together.
const QUOTA: u64 = 64 * 1024 * 1024;

/// Where a session's files are made.
#[derive(Debug)]
pub(crate) struct Outputs {
    /// UTF-8, so that an envelope can name what is in it.
    path: String,
    directory: Held,
    /// Rest of the quota.
    left: AtomicU64,
    made: AtomicU64,
    handed_over: bool,
}

/// A directory, and whose it is.
#[derive(Debug)]
enum Held {
    /// The session's, which goes with it. Its processes run as this user, who reads what is in it.
    Sessions(OwnDirectory, Identity),
    /// A recorded session's, which stays until that is closed. Held by descriptor; with what removes it if no session comes of it.
    Kept(OwnedFd, Identity, Option<OwnDirectory>),
    /// The host's. The files of this session have names that begin with its id.
    Hosts(Place, String),
}

/// Reason why a directory that the host named cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputsError {
    /// It cannot be opened or written.
    #[error("open it, to make files in it")]
    Open(#[source] io::Error),
    /// Its name is not UTF-8, so that no result can give it.
    #[error("its path is not UTF-8, and results are")]
    NotUtf8,
    /// Calls could put something else in the place of what is kept.
    #[error("it lies in what calls may write, so that they could change what is kept there")]
    Written,
    /// A link that a call may have made decides where it is.
    #[error("{} on the way is a symbolic link in a directory that calls may write in; name the place that it leads to", .0.display())]
    Linked(PathBuf),
    /// Somebody else decides where its path leads.
    #[error("{} on the way belongs to user {uid}, who can have it lead anywhere", on_the_way.display())]
    Strangers {
        /// The directory or link.
        on_the_way: PathBuf,
        /// Whose that is.
        uid: u32,
    },
}

impl Outputs {
    /// Makes it where a session cannot write that may change what lies at or below `written`. `None` if there is no such
    /// place: then nothing that a result has no room for is kept.
    pub(crate) fn make(owner: Identity, written: &[HostPath], mounts: &MountTable) -> Option<Self> {
        let places = places(owner, written, mounts).into_iter();
        places.filter(|place| place.to_str().is_some()).find_map(|place| Self::below(&place, owner).ok())
    }

    fn below(place: &Path, owner: Identity) -> io::Result<Self> {
        let (path, directory) = new_directory(place, owner)?;
        Ok(Self {
            path,
            directory: Held::Sessions(directory, owner),
            left: AtomicU64::new(QUOTA),
            made: AtomicU64::new(0),
            handed_over: false,
        })
    }

    /// For a session that lasts: where its files were before, if that is still there and out of its reach, or else in a new
    /// directory, `beside` the store if its owner is this user.
    pub(crate) fn keep(
        known: Option<&KnownOutputs>,
        beside: &Path,
        owner: Identity,
        (written, mounts): (&[HostPath], &MountTable),
    ) -> Option<Self> {
        if let Some(kept) = known.and_then(|known| Self::known(known, owner, (written, mounts)).ok()) {
            return Some(kept);
        }
        let own = Some(beside.to_owned()).filter(|_| owner.uid == rustix::process::geteuid().as_raw());
        let mut places = own.into_iter().chain(places(owner, written, mounts)).filter(|place| place.to_str().is_some());
        places.find_map(|place| {
            let (path, directory) = new_directory(&place, owner).ok()?;
            let held = rustix::io::dup(&directory).ok()?;
            Some(Self {
                path,
                directory: Held::Kept(held, owner, Some(directory)),
                left: AtomicU64::new(QUOTA),
                made: AtomicU64::new(0),
                handed_over: false,
            })
        })
    }

    fn known(known: &KnownOutputs, owner: Identity, (written, mounts): (&[HostPath], &MountTable)) -> io::Result<Self> {
        let held = known.open()?;
        let stat = rustix::fs::fstat(&held)?;
        let is_ours = stat.st_uid == owner.uid && stat.st_mode & 0o077 == 0;
        if !is_ours || !is_out_of_reach(Path::new(&known.path), written, mounts) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (mut used, mut made) = (0u64, 0u64);
        for name in names(&held)? {
            let stat = rustix::fs::statat(&held, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
            used = used.saturating_add(u64::try_from(stat.st_size).unwrap_or(0));
            let number = name.to_str().ok().and_then(|name| name.split('-').next()?.parse().ok());
            made = made.max(number.unwrap_or(0));
        }
        Ok(Self {
            path: known.path.clone(),
            directory: Held::Kept(held, owner, None),
            left: AtomicU64::new(QUOTA.saturating_sub(used)),
            made: AtomicU64::new(made),
            handed_over: true,
        })
    }

    /// Facts that the store keeps of it.
    pub(crate) fn to_know(&self) -> Option<KnownOutputs> {
        let Held::Kept(held, ..) = &self.directory else { return None };
        let stat = rustix::fs::fstat(held).ok()?;
        Some(KnownOutputs { path: self.path.clone(), device: stat.st_dev, inode: stat.st_ino })
    }

    /// In a directory of the host's, for a session with this id that may change what lies at or below `written`.
    ///
    /// # Errors
    /// [`OutputsError`] if files cannot be made there, or would not stay what they are.
    pub(crate) fn in_directory(
        path: &Path,
        session: &str,
        written: &[HostPath],
        changeable: &Changeable,
    ) -> Result<Self, OutputsError> {
        let place = Place::find(path).map_err(|unusable| match unusable {
            Unusable::Io(source) => OutputsError::Open(source),
            Unusable::NotADirectory => OutputsError::Open(io::ErrorKind::NotADirectory.into()),
            Unusable::Replaced => OutputsError::Open(io::ErrorKind::NotFound.into()),
            Unusable::Strangers(Stranger { on_the_way, uid, .. }) => OutputsError::Strangers { on_the_way, uid },
        })?;
        rustix::fs::accessat(&place, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|e| OutputsError::Open(e.into()))?;
        if !is_out_of_reach(place.path().as_path(), written, changeable.mounts()) {
            return Err(OutputsError::Written);
        }
        if let Some(link) = place.planted_link(changeable) {
            return Err(OutputsError::Linked(link));
        }
        let path = place.path().as_path().to_str().ok_or(OutputsError::NotUtf8)?.to_owned();
        Ok(Self {
            path,
            directory: Held::Hosts(place, session.to_owned()),
            left: AtomicU64::new(QUOTA),
            made: AtomicU64::new(0),
            handed_over: false,
        })
    }

    /// For the launcher, if it is to remove the directory.
    pub(crate) fn descriptors(&self) -> Option<[BorrowedFd<'_>; 2]> {
        match &self.directory {
            Held::Sessions(directory, _) => Some(directory.descriptors()),
            Held::Kept(..) | Held::Hosts(..) => None,
        }
    }

    /// The directory, if the session is to read it.
    pub(crate) fn of_session(&self) -> Option<HostPath> {
        match &self.directory {
            Held::Sessions(..) | Held::Kept(..) => Some(self.path.as_str().into()),
            Held::Hosts(..) => None,
        }
    }

    /// The session stands: its launcher removes the directory when it has ended.
    pub(crate) fn hand_over(&mut self) {
        self.handed_over = true;
    }

    /// A new file, for a result of this tool.
    pub(crate) fn create(&self, tool: &str) -> io::Result<Output<'_>> {
        let name = format!("{:04}-{tool}.txt", self.made.fetch_add(1, Ordering::Relaxed) + 1);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (name, file) = match &self.directory {
            Held::Sessions(directory, owner) => {
                let file = for_session(directory.as_fd(), &name, flags, *owner)?;
                (name, file)
            }
            Held::Kept(directory, owner, _) => {
                let file = for_session(directory.as_fd(), &name, flags, *owner)?;
                (name, file)
            }
            Held::Hosts(place, session) => {
                let name = format!("{session}-{name}");
                let file = rustix::fs::openat(place, &name, flags, Mode::from_raw_mode(0o600))?;
                (name, file)
            }
        };
        Ok(Output {
            path: format!("{}/{name}", self.path.trim_end_matches('/')),
            file: file.into(),
            left: &self.left,
            lost: false,
        })
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        if let Held::Sessions(directory, _) | Held::Kept(_, _, Some(directory)) = &self.directory
            && !self.handed_over
        {
            // Empty: no session has run. Its launcher may have removed it.
            drop(directory.remove_if_empty(&[]));
        }
    }
}

/// A directory of callgate's own, and its path as text.
fn new_directory(place: &Path, owner: Identity) -> io::Result<(String, OwnDirectory)> {
    let path = place.join(format!("{DIRECTORY}{}", host::random()?));
    let directory = OwnDirectory::make(&path, &[], owner)?;
    Ok((path.to_string_lossy().into_owned(), directory))
}

fn for_session(directory: BorrowedFd<'_>, name: &str, flags: OFlags, owner: Identity) -> rustix::io::Result<OwnedFd> {
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o400))?;
    if rustix::process::geteuid().as_raw() != owner.uid {
        let (uid, gid) = (rustix::fs::Uid::from_raw(owner.uid), rustix::fs::Gid::from_raw(owner.gid));
        rustix::fs::fchown(&file, Some(uid), Some(gid))?;
    }
    Ok(file)
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
        let default = Outputs::make(me(), &[], &MountTable::read()).unwrap();
        assert!(Path::new(&default.path).starts_with(fs::canonicalize(std::env::temp_dir()).unwrap()));
        assert_eq!(fs::metadata(&default.path).unwrap().permissions().mode() & 0o7777, 0o700);
        let temp = HostPath::from(std::env::temp_dir());
        // Also what is not there yet: the directory above it is what may be written.
        for written in [temp.clone(), HostPath::from(temp.as_path().join("no/such/directory"))] {
            let other = Outputs::make(me(), &[written], &MountTable::read()).unwrap();
            assert!(!Path::new(&other.path).starts_with(&temp), "{}", other.path);
            let path = other.path.clone();
            drop(other);
            assert!(fs::metadata(path).is_err(), "an unused one is removed");
        }
        assert!(Outputs::make(me(), &["/".into()], &MountTable::read()).is_none());
        let beside = tempfile::tempdir().unwrap();
        let same = Outputs::make(me(), &[beside.path().into()], &MountTable::read()).unwrap();
        assert!(Path::new(&same.path).starts_with(&temp), "the control: another directory there is no hindrance");
    }

    /// A10: a record says where its outputs are, and may have been written by somebody else. Nothing else is removed for it.
    #[test]
    fn a10_nothing_is_removed_but_outputs() {
        let top = tempfile::tempdir().unwrap();
        let known = |path: &Path| {
            let stat = fs::metadata(path).unwrap();
            KnownOutputs { path: path.to_str().unwrap().to_owned(), device: stat.dev(), inode: stat.ino() }
        };
        let (theirs, mixed) = (top.path().join("theirs"), top.path().join("callgate-out-1"));
        for made in [&theirs, &mixed] {
            fs::create_dir(made).unwrap();
            fs::write(made.join("0001-bash.txt"), "x").unwrap();
        }
        fs::write(mixed.join("letter.txt"), "x").unwrap();
        assert!(known(&theirs).remove().is_err());
        assert!(fs::exists(theirs.join("0001-bash.txt")).unwrap());
        assert!(known(&mixed).remove().is_err(), "it is not empty");
        let left: Vec<_> = fs::read_dir(&mixed).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["letter.txt"]);
        fs::remove_file(mixed.join("letter.txt")).unwrap();
        known(&mixed).remove().unwrap();
        assert!(!fs::exists(&mixed).unwrap(), "the control");
    }

    #[test]
    fn files_are_new_and_end_at_the_quota() {
        let outputs = Outputs::make(me(), &[], &MountTable::read()).unwrap();
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
