//! Where a path leads, found out once and held from then on.
//!
//! A path is looked up anew by whoever is handed it, and whoever owns a directory or a link on its way says where it leads.
//! So a workspace is its descriptor here: whose it is, which it is and what it is called is asked of that. Those who confine
//! the session compare what they open with it ([`callgate_policy::plan::Seen`]).

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use callgate_policy::path::HostPath;
use callgate_policy::plan::{Extent, FsRule, Identity, Seen};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::host;

/// As many links as the kernel follows (path_resolution(7)).
const LINKS: usize = 40;
/// Who owns what belongs to nobody in this user namespace (user_namespaces(7)).
const NOBODY: u32 = 65534;

/// Who can have a path lead elsewhere, and is neither root nor the owner of what it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stranger {
    /// The directory or link that is theirs.
    pub(crate) on_the_way: PathBuf,
    pub(crate) uid: u32,
    /// Whose it is what the path leads to.
    pub(crate) owner: u32,
}

/// Why a place cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    Io(io::Error),
    NotADirectory,
    /// It has no name any more that leads to it.
    Replaced,
    Strangers(Stranger),
}

impl From<Errno> for Unusable {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// A directory that is held.
#[derive(Debug)]
pub(crate) struct Place {
    path: HostPath,
    fd: OwnedFd,
    /// Device and inode. While it is held they are no other's.
    id: (u64, u64),
    owner: Identity,
}

impl Place {
    /// Finds a directory. Root goes no way that a stranger laid.
    pub(crate) fn find(path: &Path) -> Result<Self, Unusable> {
        let found = Found::at(CWD, path)?;
        if FileType::from_raw_mode(found.stat.st_mode) != FileType::Directory {
            return Err(Unusable::NotADirectory);
        }
        if let Some(stranger) = found.stranger() {
            return Err(Unusable::Strangers(stranger));
        }
        let Found { fd, stat, .. } = found;
        let id = (stat.st_dev, stat.st_ino);
        let path = std::fs::read_link(link(&fd)).map_err(Unusable::Io)?;
        if host::identity_of(&path) != Some(id) {
            return Err(Unusable::Replaced);
        }
        Ok(Self { path: path.into(), fd, id, owner: Identity { uid: stat.st_uid, gid: stat.st_gid } })
    }

    /// What it was called when it was found, without links.
    pub(crate) fn path(&self) -> &HostPath {
        &self.path
    }

    /// Whose it is.
    pub(crate) fn owner(&self) -> Identity {
        self.owner
    }

    /// Device and inode.
    pub(crate) fn id(&self) -> (u64, u64) {
        self.id
    }

    /// A name that leads to it, whatever has its own by now.
    pub(crate) fn link(&self) -> PathBuf {
        link(&self.fd)
    }

    /// Whether the name that it was found by still leads to it.
    pub(crate) fn is_there(&self) -> bool {
        host::identity_of(self.path.as_path()) == Some(self.id)
    }
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A link that the kernel makes, to what a descriptor is open for.
fn link(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// What stands at the paths of grants, and at those above a single name, which is made there: from the workspace's roots on where
/// a path lies in one, wherever that is now. For a session that runs as root, a stranger's say in it is an error.
pub(crate) fn look(roots: &[Place], grants: &[FsRule], session: Identity) -> Result<Vec<Seen>, (HostPath, Stranger)> {
    let mut seen: Vec<Seen> = Vec::new();
    for rule in grants {
        let (is_entry, mut decided) = (rule.extent == Extent::Entry, false);
        for path in rule.path.as_path().ancestors().take(if is_entry { usize::MAX } else { 1 }) {
            let Ok(found) = from_roots(roots, path) else { continue };
            // A single name is replaced in the nearest directory.
            let decides = !decided && (!is_entry || path != rule.path.as_path());
            decided |= decides;
            if let Some(stranger) = found.stranger().filter(|_| decides && session.uid == 0) {
                return Err((rule.path.clone(), stranger));
            }
            let path = HostPath::from(path.to_owned());
            if !seen.iter().any(|seen| seen.path == path) {
                seen.push(Seen { path, device: found.stat.st_dev, inode: found.stat.st_ino });
            }
        }
    }
    Ok(seen)
}

fn from_roots(roots: &[Place], path: &Path) -> rustix::io::Result<Found> {
    let below = roots.iter().find_map(|root| Some((root, path.strip_prefix(root.path.as_path()).ok()?)));
    match below {
        Some((root, rest)) => Found::at(root.fd.as_fd(), rest),
        None => Found::at(CWD, path),
    }
}

/// Who else has a say in where this path leads, if root is about to go there.
pub(crate) fn stranger_to(path: &Path) -> Option<Stranger> {
    Found::at(CWD, path).ok()?.stranger()
}

/// Opens a regular file of this user's or root's for reading. Root goes no way that a stranger laid. What is opened is what was
/// looked at: a FIFO or a device is not opened at all. `None` if it is not such a file.
pub(crate) fn open_own_file(path: &Path) -> Option<std::fs::File> {
    let found = Found::at(CWD, path).ok()?;
    let is_file = FileType::from_raw_mode(found.stat.st_mode) == FileType::RegularFile;
    let is_own = [0, rustix::process::geteuid().as_raw()].contains(&found.stat.st_uid);
    (is_file && is_own && found.stranger().is_none()).then(|| std::fs::File::open(link(&found.fd)).ok())?
}

/// What a path leads to, and what decided that.
struct Found {
    fd: OwnedFd,
    stat: Stat,
    /// Directories in which a name was looked up, and links that were followed, each with its owner. Of root's ways alone.
    way: Vec<(PathBuf, u32)>,
}

impl Found {
    fn at(from: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<Self> {
        if rustix::process::geteuid().is_root() { Self::walk(from, path) } else { Self::open(from, path) }
    }

    fn open(from: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let fd = rustix::fs::openat(from, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { stat: rustix::fs::fstat(&fd)?, fd, way: Vec::new() })
    }

    /// One name at a time, each looked up in what was looked at.
    fn walk(from: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<Self> {
        let start = if path.has_root() { Path::new("/") } else { Path::new(".") };
        let Self { mut fd, mut stat, mut way } = Self::open(from, start)?;
        let mut at = if path.has_root() { PathBuf::from("/") } else { PathBuf::new() };
        let mut links = 0;
        let mut rest: VecDeque<OsString> = names(path).collect();
        while let Some(name) = rest.pop_front() {
            way.push((if at.as_os_str().is_empty() { ".".into() } else { at.clone() }, stat.st_uid));
            let next = open_name(&fd, &name)?;
            let next_stat = rustix::fs::fstat(&next)?;
            let next_at = at.join(&name);
            if FileType::from_raw_mode(next_stat.st_mode) != FileType::Symlink {
                (fd, stat, at) = (next, next_stat, next_at);
                continue;
            }
            way.push((next_at, next_stat.st_uid));
            links += 1;
            if links > LINKS {
                return Err(Errno::LOOP);
            }
            let target = rustix::fs::readlinkat(&next, "", Vec::new())?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if target.has_root() {
                let root = Self::open(from, Path::new("/"))?;
                (fd, stat, at) = (root.fd, root.stat, "/".into());
            }
            for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
                rest.push_front(name);
            }
        }
        Ok(Self { fd, stat, way })
    }

    fn stranger(&self) -> Option<Stranger> {
        let owner = self.stat.st_uid;
        let (on_the_way, uid) = self.way.iter().find(|(_, uid)| *uid != 0 && *uid != owner && is_somebody(*uid))?;
        Some(Stranger { on_the_way: on_the_way.clone(), uid: *uid, owner })
    }
}

fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// As a directory first, by which the kernel mounts what is mounted when it is asked for.
fn open_name(at: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(at, name, flags | OFlags::DIRECTORY, Mode::empty()) {
        Err(Errno::NOTDIR) => rustix::fs::openat(at, name, flags, Mode::empty()),
        opened => opened,
    }
}

/// Whether somebody in this user namespace is this user. What an outer namespace's users own is shown as nobody's: whoever set
/// this one up has put it there, and none of its processes acts as them.
fn is_somebody(uid: u32) -> bool {
    uid != NOBODY || host::text_of(Path::new("/proc/self/uid_map"), 64 * 1024).map_or(true, |map| maps(&map, uid))
}

fn maps(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(_)), Some(Ok(count))) = (fields.next(), fields.next(), fields.next()) else {
            return true;
        };
        (first..first + count).contains(&u64::from(uid))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use std::os::unix::fs::{chown, lchown, symlink};

    use super::*;

    /// A10: what lies on the way is root's, or the owner's of what it leads to.
    #[test]
    fn a10_root_goes_no_way_that_a_stranger_laid() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        for name in ["roots/ws", "users/ws", "users/roots"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        symlink(at("roots"), at("users/to-roots")).unwrap();
        symlink("../roots/ws", at("users/to-ws")).unwrap();
        symlink(at("users/ws"), at("users/to-own")).unwrap();
        symlink(at("users/ws"), at("to-users")).unwrap();
        symlink("users/to-roots/ws", at("far")).unwrap();
        ["users", "users/ws"].iter().for_each(|name| chown(at(name), Some(4242), Some(4242)).unwrap());
        ["users/to-roots", "users/to-ws", "users/to-own"]
            .iter()
            .for_each(|name| lchown(at(name), Some(4242), None).unwrap());
        let ours =
            ["", "roots/ws", "users", "users/ws", "users/ws/", "users/to-own", "to-users", "roots/../users/./ws"];
        for name in ours {
            let place = Place::find(&at(name)).map_err(|why| format!("{name}: {why:?}")).unwrap();
            assert_eq!(place.path().as_path(), std::fs::canonicalize(at(name)).unwrap(), "{name}");
            assert!(place.is_there());
        }
        for name in ["users/to-roots/ws", "users/to-ws", "users/roots", "far", "users/ws/../../roots/ws", "users/.."] {
            let refused = Place::find(&at(name));
            assert!(
                matches!(&refused, Err(Unusable::Strangers(Stranger { uid: 4242, owner: 0, .. }))),
                "{name}: {refused:?}"
            );
        }
        assert_eq!(Place::find(&at("users/ws")).unwrap().owner(), Identity { uid: 4242, gid: 4242 });
    }

    /// A10: what is held is what was found, whatever has its name since.
    #[test]
    fn a10_a_place_is_not_what_takes_its_name() {
        let top = tempfile::tempdir().unwrap();
        let (ws, aside) = (top.path().join("ws"), top.path().join("aside"));
        std::fs::create_dir_all(ws.join("sub")).unwrap();
        let place = Place::find(&ws).unwrap();
        let rule = |name: &str| FsRule {
            path: ws.join(name).into(),
            access: callgate_policy::plan::FsAccess::Read,
            extent: Extent::Subtree,
            presence: callgate_policy::plan::Presence::Optional,
            exactness: callgate_policy::plan::Exactness::Exact,
            source: String::new(),
        };
        std::fs::rename(&ws, &aside).unwrap();
        std::fs::create_dir_all(ws.join("sub")).unwrap();
        assert!(!place.is_there());
        let seen = look(&[place], &[rule("sub"), rule("absent")], Identity { uid: 4242, gid: 4242 }).unwrap();
        let held = host::identity_of(&aside.join("sub")).unwrap();
        assert_eq!(seen, [Seen { path: ws.join("sub").into(), device: held.0, inode: held.1 }]);
        assert!(matches!(Place::find(&ws.join("absent")), Err(Unusable::Io(_))));
        std::fs::write(ws.join("file"), "").unwrap();
        assert!(matches!(Place::find(&ws.join("file")), Err(Unusable::NotADirectory)));
    }

    #[test]
    fn who_is_nobody_here() {
        assert!(maps("0 0 4294967295\n", NOBODY) && maps("0 100000 65536\n", NOBODY) && maps("?", NOBODY));
        assert!(!maps("0 1000 1\n", NOBODY) && !maps("", NOBODY));
    }
}
