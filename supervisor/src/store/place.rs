//! Where sessions are kept: a directory of the user's alone, which is held by descriptor from when it was found.
//!
//! SQLite opens files by their path and not by a descriptor. So no part of that path may be a link, it is compared with the
//! held directory after SQLite has opened its files, and no session may write any of the directories on it
//! ([`Place::refuse_reach`]).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use callgate_policy::effective::EffectiveSet;
use callgate_policy::path::HostPath;
use callgate_policy::plan::shared::TREES;
use callgate_policy::plan::system;
use callgate_worker::mountinfo;
use callgate_worker::way::FollowedPath;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::StoreError;
use super::database::{AGAIN, PATIENCE};
use crate::host;
use crate::mounts::MountTable;
use crate::place::{self, Unusable};

/// The database.
pub(super) const DATABASE: &str = "sessions.db";
/// Where it usually is, below a home directory: a protected name.
const KEPT: &str = ".local/state/callgate";
/// The file whose bytes are locked, one for each session that is open.
const LOCKS: &str = "sessions.lock";
/// Files that SQLite makes beside the database.
const BESIDE: [&str; 3] = ["sessions.db-wal", "sessions.db-shm", "sessions.db-journal"];

/// The store's directory, held.
#[derive(Debug)]
pub(super) struct Place(place::Place);

/// A session's lock: while it lives, nobody else has the session open. The kernel ends it with this process.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    number: i64,
}

impl Place {
    /// Finds the directory, or makes it.
    pub(super) fn make(path: &Path) -> Result<Self, StoreError> {
        let failed = |source: io::Error| StoreError::Place { path: path.to_owned(), source };
        let (way, missing) = nearest(path).map_err(failed)?;
        refuse_links(&way, path)?;
        refuse_system(path)?;
        let mut at = way.into_fd();
        for name in missing {
            match rustix::fs::mkdirat(&at, &name, Mode::RWXU) {
                // Somebody else may just have made it; below it is looked at as if it had been there.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            at = rustix::fs::openat(&at, &name, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        }
        refuse_links(&FollowedPath::follow(path).map_err(|errno| failed(errno.into()))?, path)?;
        let found = place::Place::find(path).map_err(|unusable| match unusable {
            Unusable::Io(source) => failed(source),
            Unusable::NotADirectory => failed(io::ErrorKind::NotADirectory.into()),
            Unusable::Replaced => failed(io::ErrorKind::NotFound.into()),
            Unusable::Strangers(_) => {
                StoreError::NotYours { path: path.to_owned(), what: "others decide where its path leads" }
            }
        })?;
        refuse_system(found.path().as_path())?;
        is_ours(path, &rustix::fs::fstat(&found).map_err(|errno| failed(errno.into()))?)?;
        Ok(Self(found))
    }

    /// Its path, without links.
    pub(super) fn path(&self) -> &Path {
        self.0.path().as_path()
    }

    /// Looks at the database and what lies beside it, and makes the database if there is none: an empty file is an empty
    /// database.
    pub(super) fn prepare(&self) -> Result<PathBuf, StoreError> {
        drop(self.open(DATABASE)?);
        for name in BESIDE {
            match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => is_own_file(&self.path().join(name), &stat)?,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(StoreError::place(&self.path().join(name))(errno.into())),
            }
        }
        Ok(self.path().join(DATABASE))
    }

    /// Confirms that its path still leads to what is held.
    pub(super) fn confirm(&self) -> Result<(), StoreError> {
        if self.0.is_there() {
            return Ok(());
        }
        Err(StoreError::place(self.path())(io::Error::other("it was moved or replaced meanwhile")))
    }

    /// Locks a session, if nobody else has it.
    pub(super) fn lock(&self, number: i64) -> Result<Option<Lock>, StoreError> {
        // Each lock has an open file of its own: locks belong to those.
        let file = self.open(LOCKS)?;
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&byte(libc::F_WRLCK, number))) {
            Ok(_) => Ok(Some(Lock { file, number })),
            Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(None),
            Err(errno) => Err(StoreError::place(&self.path().join(LOCKS))(errno.into())),
        }
    }

    /// Waits for the lock under which the database is made: that of no session.
    pub(super) fn set_up(&self) -> Result<Lock, StoreError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lock(0)? {
                Some(lock) => return Ok(lock),
                None if Instant::now() < deadline => std::thread::sleep(AGAIN),
                None => return Err(StoreError::place(self.path())(io::ErrorKind::TimedOut.into())),
            }
        }
    }

    /// True if somebody has this session open, asked of the kernel.
    pub(super) fn is_locked(&self, number: i64) -> Result<bool, StoreError> {
        let mut asked = byte(libc::F_WRLCK, number);
        fcntl(self.open(LOCKS)?, FcntlArg::F_OFD_GETLK(&mut asked))
            .map_err(|errno| StoreError::place(&self.path().join(LOCKS))(errno.into()))?;
        Ok(i32::from(asked.l_type) != libc::F_UNLCK)
    }

    /// Refuses a session that may read or write what is kept here, or decide what stands at this path.
    pub(super) fn refuse_reach(&self, effective: &EffectiveSet, mounts: &MountTable) -> Result<(), StoreError> {
        refuse_reach(self.path(), effective, mounts)
    }

    fn open(&self, name: &str) -> Result<File, StoreError> {
        let path = self.path().join(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let failed = |errno: Errno| match errno {
            Errno::LOOP => StoreError::Linked { path: path.clone(), link: path.clone() },
            errno => StoreError::Place { path: path.clone(), source: errno.into() },
        };
        let file = rustix::fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        is_own_file(&path, &rustix::fs::fstat(&file).map_err(failed)?)?;
        Ok(file.into())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // By name: a process that was forked from this one may hold the file for a moment longer.
        let unlocked = fcntl(&self.file, FcntlArg::F_OFD_SETLK(&byte(libc::F_UNLCK, self.number)));
        if let Err(errno) = unlocked {
            tracing::warn!(%errno, "the lock of a session ends with this process");
        }
    }
}

/// Refuses a session whose grants reach this directory. Before it is there, one that could make it: what is found there later is
/// believed.
pub(super) fn refuse_reach(path: &Path, effective: &EffectiveSet, mounts: &MountTable) -> Result<(), StoreError> {
    let rights = effective.rights();
    let read: Vec<HostPath> = rights.read().iter().map(|(region, _)| region.literal_prefix()).collect();
    let written: Vec<HostPath> = rights.write().iter().map(|(region, _)| region.literal_prefix()).collect();
    let inside = read.iter().chain(&written).find(|granted| granted.as_path().starts_with(path)).cloned();
    let asked = match host::identity_of(path) {
        Some(_) => [read, written].concat(),
        // By this name no call makes anything (`policy/src/plan/protect/names.rs`).
        None if path.ends_with(KEPT) => Vec::new(),
        None => written,
    };
    let reaches = match inside {
        Some(granted) => Some(granted),
        None => reaching(path, asked, mounts).map_err(StoreError::place(path))?,
    };
    match reaches {
        Some(granted) => Err(StoreError::Reached { granted: granted.as_path().to_owned(), path: path.to_owned() }),
        None => Ok(()),
    }
}

/// Path of a directory, or in it, that a session may write: by its name or by another one.
pub(super) fn granted_within(path: &Path, effective: &EffectiveSet) -> Option<PathBuf> {
    let itself = host::identity_of(path);
    let lies_inside = |granted: &Path| {
        granted.starts_with(path)
            || (itself.is_some() && granted.ancestors().any(|above| host::identity_of(above) == itself))
    };
    let written = effective.rights().write().iter();
    written.map(|(region, _)| region.literal_prefix().as_path().to_owned()).find(|granted| lies_inside(granted))
}

/// The first of these that reaches a place, by any name that leads to it or to a directory on the way: a link, a bind mount, one
/// below what is granted.
fn reaching(path: &Path, granted: Vec<HostPath>, mounts: &MountTable) -> io::Result<Option<HostPath>> {
    if granted.is_empty() {
        return Ok(None);
    }
    let itself = host::identity_of(path);
    // Without links: a directory above the real one may have been granted, where root's own link led here.
    let there = path.ancestors().find(|above| host::identity_of(above).is_some()).unwrap_or(path);
    let real = std::fs::canonicalize(there)?;
    let mounts = mounts.known().map_err(io::Error::other)?;
    let others = mountinfo::other_names(mounts, &real);
    let names = [path, &real].into_iter().chain(others.iter().map(PathBuf::as_path));
    let above: Vec<_> = names.flat_map(Path::ancestors).filter_map(host::identity_of).collect();
    Ok(granted.into_iter().find(|granted| {
        let granted = granted.as_path();
        let within = mounts.iter().map(|mount| mount.at.as_path()).filter(|at| at.starts_with(granted));
        let holds =
            std::iter::once(granted).chain(within).filter_map(host::identity_of).any(|seen| above.contains(&seen));
        let lies_inside =
            itself.is_some() && granted.ancestors().filter_map(host::identity_of).any(|seen| Some(seen) == itself);
        holds || lies_inside
    }))
}

/// Nothing is kept where every session may read.
pub(super) fn refuse_system(path: &Path) -> Result<(), StoreError> {
    let read = system::BASE.iter().flat_map(|group| group.paths).chain(&TREES);
    match read.map(Path::new).any(|system| path.starts_with(system)) {
        true => Err(StoreError::NotYours { path: path.to_owned(), what: "every session may read there" }),
        false => Ok(()),
    }
}

/// One byte of the file of locks, which need not be there.
fn byte(kind: i32, number: i64) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(kind).unwrap_or(0),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap_or(0),
        l_start: number,
        l_len: 1,
        l_pid: 0,
    }
}

/// The nearest directory on the way that is there, and the names that are to be made below it.
fn nearest(path: &Path) -> io::Result<(FollowedPath, Vec<std::ffi::OsString>)> {
    let mut missing = Vec::new();
    for above in path.ancestors() {
        match FollowedPath::follow(above) {
            Ok(way) => {
                missing.reverse();
                return Ok((way, missing));
            }
            Err(Errno::NOENT) => missing.extend(above.file_name().map(ToOwned::to_owned)),
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// A link that another user's process, or a call of an earlier session, may have made: any that is not root's. Root's own calls
/// make links that are root's; nobody grants them `/` itself.
fn refuse_links(way: &FollowedPath, path: &Path) -> Result<(), StoreError> {
    let am_root = rustix::process::geteuid().is_root();
    let is_the_systems = |link: &Path| {
        let owner = way.owners.iter().find(|(path, _)| path == link).map(|(_, uid)| *uid);
        owner == Some(0) && (!am_root || link.parent() == Some(Path::new("/")))
    };
    match way.links.iter().find(|link| !is_the_systems(&link.path)) {
        None => Ok(()),
        Some(link) => Err(StoreError::Linked { path: path.to_owned(), link: link.path.clone() }),
    }
}

fn is_own_file(path: &Path, stat: &Stat) -> Result<(), StoreError> {
    let not_ours = |what| Err(StoreError::NotYours { path: path.to_owned(), what });
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return not_ours("it is not a regular file");
    }
    if stat.st_nlink != 1 {
        return not_ours("it has another name elsewhere");
    }
    is_ours(path, stat)
}

fn is_ours(path: &Path, stat: &Stat) -> Result<(), StoreError> {
    let not_ours = |what| Err(StoreError::NotYours { path: path.to_owned(), what });
    match stat {
        stat if stat.st_uid != rustix::process::geteuid().as_raw() => not_ours("it belongs to another user"),
        stat if stat.st_mode & 0o077 != 0 => not_ours("its mode lets others in"),
        _ => Ok(()),
    }
}

/// A path as text, for the database.
pub(super) fn text(path: &HostPath) -> String {
    path.to_string()
}
