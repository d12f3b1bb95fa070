//! Directories that callgate makes for itself, and their end.
//!
//! A call, or another process of the user, may change what lies in such a directory, and often the directory's own place as
//! well. So it is held by descriptor from when it was made, and nothing here follows a link, crosses a mount, or trusts a
//! name to lead twice to the same thing (A11, A21).

use std::collections::HashSet;
use std::ffi::{CStr, CString, OsStr};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use callgate_policy::plan::Identity;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, StatxFlags};
use rustix::io::Errno;

/// How a directory is opened to be read and to remove what is in it.
const LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How a directory is opened of which nothing is known yet.
const FIND: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Prefix of the name of a session's own directory; 32 hexadecimal digits follow, which nobody can guess (A11).
pub const OWN_PREFIX: &str = "callgate-";

/// True if a name is one of those.
#[must_use]
pub fn is_own_name(name: &OsStr) -> bool {
    let digits = name.as_encoded_bytes().strip_prefix(OWN_PREFIX.as_bytes());
    digits.is_some_and(|digits| digits.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// A directory that was made by a process of callgate's and is removed by one.
#[derive(Debug)]
pub struct OwnDirectory {
    /// Path that it was made as: for rules, and for messages.
    path: PathBuf,
    /// Where it was made.
    parent: OwnedFd,
    itself: OwnedFd,
}

impl OwnDirectory {
    /// Makes it, for its owner alone. Nothing may be there (A11).
    ///
    /// A process that gives it to another user does so only where nobody but itself and root can put something else in its
    /// place: see [`open_trusted`].
    ///
    /// # Errors
    /// `EPERM` if such another could; `EEXIST`; the kernel's own.
    pub fn make(path: &Path, parts: &[&str], owner: Identity) -> io::Result<Self> {
        let (Some(place), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::INVAL.into());
        };
        let gives = rustix::process::geteuid().as_raw() != owner.uid;
        let parent = if gives { open_trusted(place)? } else { open_place(place)? };
        rustix::fs::mkdirat(&parent, name, Mode::RWXU)?;
        let itself = match own_and_empty(&parent, name) {
            Ok(itself) => itself,
            // Not what was made; or it cannot be opened, and is removed for being empty.
            Err(error) => return unmake(&parent, name, error),
        };
        let made = Self { path: path.to_owned(), parent, itself };
        match made.complete(parts, gives.then_some(owner)) {
            Ok(()) => Ok(made),
            Err(error) => {
                // What is empty goes; the error says what was wrong first.
                drop(made.remove_if_empty(parts));
                Err(error)
            }
        }
    }

    /// Makes the parts and gives all of it away, the directory itself last: until then nobody else gets in.
    fn complete(&self, parts: &[&str], new_owner: Option<Identity>) -> io::Result<()> {
        for part in parts {
            rustix::fs::mkdirat(&self.itself, *part, Mode::RWXU)?;
            if let Some(owner) = new_owner {
                give(&own_and_empty(&self.itself, OsStr::new(part))?, owner)?;
            }
        }
        new_owner.map_or(Ok(()), |owner| give(&self.itself, owner))
    }

    /// One that another process made and sent the descriptors of.
    pub(crate) fn held(path: PathBuf, parent: OwnedFd, itself: OwnedFd) -> Self {
        Self { path, parent, itself }
    }

    /// Where it was made.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptors for `OwnDirectory::held`: of its parent, and its own.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.parent.as_fd(), self.itself.as_fd()]
    }

    /// Opens what lies in it, or itself, for a rule. No part of the way is a link.
    pub(crate) fn open_below(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let mut at = rustix::io::dup(&self.itself)?;
        for component in path.components() {
            let Component::Normal(name) = component else { return Err(Errno::INVAL) };
            at = rustix::fs::openat(&at, name, FIND, Mode::empty())?;
        }
        Ok(at)
    }

    /// Removes it, with those of its parts that are empty, if nothing else is in it. This may be done with any right: what
    /// is removed is empty and carries the name that was made up for it.
    ///
    /// # Errors
    /// `ENOTEMPTY`; `ENOENT` if it is gone; `ESTALE` if it is not where it was made.
    pub fn remove_if_empty(&self, parts: &[&str]) -> io::Result<()> {
        let name = self.path.file_name().ok_or(Errno::INVAL)?;
        let there = rustix::fs::statat(&self.parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if DirectoryId::of(&there) != DirectoryId::of(&rustix::fs::fstat(&self.itself)?) {
            return Err(Errno::STALE.into());
        }
        for part in parts {
            match rustix::fs::unlinkat(&self.itself, *part, AtFlags::REMOVEDIR) {
                // What is no empty directory stays, and the directory with it.
                Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::NOTDIR | Errno::ACCESS) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(rustix::fs::unlinkat(&self.parent, name, AtFlags::REMOVEDIR)?)
    }
}

/// Opens a directory in one of callgate's own, of which a call may have changed what is in it.
pub(crate) fn open_part(own: BorrowedFd<'_>, name: &str) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(own, name, FIND, Mode::empty())
}

/// Makes a file in a part of one of callgate's own directories, for its owner alone. Nothing may be there.
pub(crate) fn write_new(own: BorrowedFd<'_>, part: &str, name: &str, contents: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(open_part(own, part)?, name, flags, Mode::RUSR | Mode::WUSR)?;
    std::fs::File::from(file).write_all(contents)
}

impl AsFd for OwnDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.itself.as_fd()
    }
}

fn give(directory: &OwnedFd, owner: Identity) -> io::Result<()> {
    let (uid, gid) = (rustix::fs::Uid::from_raw(owner.uid), rustix::fs::Gid::from_raw(owner.gid));
    Ok(rustix::fs::fchown(directory, Some(uid), Some(gid))?)
}

/// Opens what was just made, if it still is what stands there: this user's, closed to others, and empty.
fn own_and_empty(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let opened = rustix::fs::openat(parent, name, LIST, Mode::empty())?;
    let stat = rustix::fs::fstat(&opened)?;
    let own = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o777 & !0o700 == 0;
    let is_empty =
        || Ok::<_, Errno>(Dir::read_from(&opened)?.find(|entry| !entry.as_ref().is_ok_and(is_itself)).is_none());
    if own && is_empty()? { Ok(opened) } else { Err(Errno::PERM.into()) }
}

fn unmake<T>(parent: &OwnedFd, name: &OsStr, error: io::Error) -> io::Result<T> {
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        // What is empty is no loss; the first error tells more than that it stays.
        Ok(()) | Err(_) => Err(error),
    }
}

fn open_place(place: &Path) -> io::Result<OwnedFd> {
    let place = if place.as_os_str().is_empty() { Path::new(".") } else { place };
    Ok(rustix::fs::openat(CWD, place, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a directory in which nobody but this user and root can put anything in another's place: no part of the path is a
/// link, all belong to one of the two, and others may write only where each removes their own alone (sticky).
///
/// # Errors
/// `EPERM` if somebody can; `ELOOP` for a link; the kernel's own.
pub fn open_trusted(place: &Path) -> io::Result<OwnedFd> {
    let mut at = rustix::fs::openat(CWD, "/", FIND, Mode::empty())?;
    for component in place.components() {
        match component {
            Component::RootDir => {}
            // Mounts are root's doing.
            Component::Normal(name) => at = rustix::fs::openat(&at, name, FIND, Mode::empty())?,
            Component::Prefix(_) | Component::CurDir | Component::ParentDir => return Err(Errno::INVAL.into()),
        }
        let stat = rustix::fs::fstat(&at)?;
        let trusted = [0, rustix::process::geteuid().as_raw()].contains(&stat.st_uid);
        let (sticky, others) = (stat.st_mode & 0o1000 != 0, stat.st_mode & 0o022 != 0);
        if !trusted || (others && !sticky) {
            return Err(Errno::PERM.into());
        }
    }
    Ok(at)
}

/// Identity of a directory, as long as somebody holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct DirectoryId(u64, u64);

impl DirectoryId {
    fn of(stat: &Stat) -> Self {
        Self(stat.st_dev, stat.st_ino)
    }
}

/// The mount that a file was opened through. openat2(2) would refuse to cross one by itself, but is not there for a callgate
/// that runs under another, or under an older Docker.
fn mount_of(fd: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    Ok(rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id)
}

fn is_itself(entry: &rustix::fs::DirEntry) -> bool {
    matches!(entry.file_name().to_bytes(), b"." | b"..")
}

/// Most directories that cannot be emptied and are passed over, to remove what lies beside them.
const STUCK_MAX: usize = 1000;
/// How many levels above the walk are held open.
const HELD: usize = 32;

/// Removes all that is in a directory, with this process's own rights. One step at a time, by the descriptor of the
/// directory that it is taken in: links are removed, not followed, and what is mounted somewhere stays. The way up is held,
/// or remembered and compared, so that a directory that is moved meanwhile leads nowhere else. A tree of any depth costs
/// neither stack nor more than a few descriptors, and some bytes for each level.
///
/// # Errors
/// The first that something could not be removed for; what lies beside it was removed all the same. `ESTALE` if a
/// directory was moved away under this walk.
pub(crate) fn empty(top: BorrowedFd<'_>) -> io::Result<()> {
    let mut walk = RemovalWalk { mount: mount_of(top)?, above: Vec::new(), stuck: HashSet::new(), first: None };
    let mut at = Level::of(enter(top)?)?;
    loop {
        if let Some(below) = walk.next_below(&mut at)? {
            walk.remember(std::mem::replace(&mut at, below));
            continue;
        }
        if at.stays {
            walk.pass_over(at.id)?;
        }
        match walk.above.pop() {
            Some(Above::Held(level)) => {
                at = level;
                walk.remove_entered(&mut at);
            }
            Some(Above::Known(id)) => at = at.up(id)?,
            None => return walk.first.map_or(Ok(()), |errno| Err(errno.into())),
        }
    }
}

/// A directory in which the walk is, or was and will be again.
struct Level {
    fd: OwnedFd,
    id: DirectoryId,
    entries: Dir,
    /// Something was removed since the entries were listed from the first.
    removed: bool,
    /// Something could not be.
    stays: bool,
    /// Where the walk has gone from here.
    entered: CString,
}

impl Level {
    fn of(fd: OwnedFd) -> io::Result<Self> {
        let (id, entries) = (DirectoryId::of(&rustix::fs::fstat(&fd)?), Dir::read_from(&fd)?);
        Ok(Self { fd, id, entries, removed: false, stays: false, entered: CString::default() })
    }

    /// The one above, if it still is the one that the walk came through.
    fn up(&self, id: DirectoryId) -> io::Result<Self> {
        let level = Self::of(rustix::fs::openat(&self.fd, "..", LIST, Mode::empty())?)?;
        if level.id == id { Ok(level) } else { Err(Errno::STALE.into()) }
    }
}

enum Above {
    Held(Level),
    Known(DirectoryId),
}

struct RemovalWalk {
    /// Where all of it lies.
    mount: u64,
    /// From the top to the one that holds where the walk is.
    above: Vec<Above>,
    /// Directories that could not be emptied.
    stuck: HashSet<DirectoryId>,
    /// Reason for the first thing that could not be removed.
    first: Option<Errno>,
}

impl RemovalWalk {
    /// Removes what can be, up to the first directory that must be emptied before it can. `None` if nothing is left to do.
    fn next_below(&mut self, at: &mut Level) -> io::Result<Option<Level>> {
        loop {
            while let Some(entry) = at.entries.read() {
                let entry = entry?;
                if is_itself(&entry) {
                    continue;
                }
                match remove(&at.fd, entry.file_name()) {
                    Ok(()) => at.removed = true,
                    Err(Errno::NOTEMPTY | Errno::EXIST) => {
                        if let Some(below) = self.below(at, entry.file_name())? {
                            at.entered = entry.file_name().to_owned();
                            return Ok(Some(below));
                        }
                    }
                    Err(errno) => self.fail(at, errno),
                }
            }
            // Some file systems pass over entries while others are removed (readdir(3)).
            if !std::mem::take(&mut at.removed) {
                return Ok(None);
            }
            at.stays = false;
            at.entries.rewind();
        }
    }

    /// Opens a directory that holds something. `None` if that cannot be, or was done in vain.
    fn below(&mut self, at: &mut Level, name: &CStr) -> io::Result<Option<Level>> {
        let found = rustix::fs::openat(&at.fd, name, FIND, Mode::empty());
        let opened = found.and_then(|found| {
            if mount_of(found.as_fd())? != self.mount {
                return Err(Errno::XDEV);
            }
            let passed_over = self.stuck.contains(&DirectoryId::of(&rustix::fs::fstat(&found)?));
            if passed_over { Err(Errno::NOTEMPTY) } else { enter(found.as_fd()) }
        });
        match opened {
            Ok(fd) => Level::of(fd).map(Some),
            Err(errno) => {
                self.fail(at, errno);
                Ok(None)
            }
        }
    }

    /// Back where the walk went down from: what it went into is empty, or stays.
    fn remove_entered(&mut self, at: &mut Level) {
        match remove(&at.fd, &at.entered) {
            Ok(()) => at.removed = true,
            Err(errno) => self.fail(at, errno),
        }
    }

    fn fail(&mut self, at: &mut Level, errno: Errno) {
        at.stays = true;
        self.first = self.first.or(Some(errno));
    }

    fn remember(&mut self, level: Level) {
        self.above.push(Above::Held(level));
        let far = self.above.len().checked_sub(HELD + 1).and_then(|far| self.above.get_mut(far));
        if let Some(far) = far
            && let Above::Held(level) = far
        {
            *far = Above::Known(level.id);
        }
    }

    fn pass_over(&mut self, id: DirectoryId) -> io::Result<()> {
        self.stuck.insert(id);
        match self.first.filter(|_| self.stuck.len() > STUCK_MAX) {
            Some(errno) => Err(errno.into()),
            None => Ok(()),
        }
    }
}

/// Removes a file, a link or an empty directory.
fn remove(at: &OwnedFd, name: &CStr) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR),
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Opens a directory to remove what is in it, which its mode may not permit: its owner may change that, and who is asked to
/// empty it is its owner, or fails.
#[expect(
    clippy::disallowed_methods,
    reason = "a link of procfs to a descriptor that was looked at: the directory itself"
)]
fn enter(found: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let stat = rustix::fs::fstat(found)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    if stat.st_mode & 0o700 != 0o700 {
        // By a link that the kernel makes, to this very directory: fchmod(2) does not take a descriptor of a mere path.
        let link = format!("/proc/self/fd/{}", found.as_raw_fd());
        rustix::fs::chmod(link, Mode::from_raw_mode(stat.st_mode | 0o700))?;
    }
    rustix::fs::openat(found, ".", LIST, Mode::empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn me() -> Identity {
        Identity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }

    fn is_there(path: &Path) -> bool {
        path.try_exists().unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    /// A tree of any depth costs neither stack nor an error.
    #[test]
    fn a_deep_tree_is_emptied() {
        let top = tempfile::tempdir().unwrap();
        let mut at = rustix::fs::open(top.path(), OFlags::PATH, Mode::empty()).unwrap();
        for _ in 0..1000 {
            for name in ["a", "z"] {
                rustix::fs::mkdirat(&at, name, Mode::RWXU).unwrap();
                let flags = OFlags::CREATE | OFlags::RDWR;
                rustix::fs::openat(&at, format!("{name}/f"), flags, Mode::RUSR).unwrap();
            }
            at = rustix::fs::openat(&at, "a", OFlags::PATH, Mode::empty()).unwrap();
        }
        empty(fs::File::open(top.path()).unwrap().as_fd()).unwrap();
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0);
    }

    /// Links go, and not what they name; a mode is only changed of what lies within.
    #[test]
    fn a21_what_links_name_stays_as_it_is() {
        let (top, victim) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(victim.path().join("precious"), "").unwrap();
        fs::set_permissions(victim.path(), fs::Permissions::from_mode(0o511)).unwrap();
        for (name, mode) in [("none", 0), ("read", 0o400), ("enter", 0o100), ("list", 0o500)] {
            let directory = top.path().join(name);
            fs::create_dir(&directory).unwrap();
            symlink(victim.path(), directory.join("link")).unwrap();
            symlink(victim.path(), top.path().join(format!("{name}.link"))).unwrap();
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
        }
        empty(fs::File::open(top.path()).unwrap().as_fd()).unwrap();
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0);
        assert_eq!((mode(victim.path()), fs::read_dir(victim.path()).unwrap().count()), (0o511, 1));
    }

    /// Where something must stay, what lies beside it goes, and whoever asked hears why.
    #[test]
    fn what_cannot_be_removed_is_told() {
        let top = tempfile::tempdir().unwrap();
        let mut walk = RemovalWalk { mount: 0, above: Vec::new(), stuck: HashSet::new(), first: None };
        walk.mount = mount_of(fs::File::open(top.path()).unwrap().as_fd()).unwrap();
        fs::create_dir_all(top.path().join("stuck/below")).unwrap();
        fs::write(top.path().join("file"), "").unwrap();
        let stuck = fs::metadata(top.path().join("stuck")).unwrap();
        walk.pass_over(DirectoryId(stuck.dev(), stuck.ino())).unwrap();
        let mut at = Level::of(enter(fs::File::open(top.path()).unwrap().as_fd()).unwrap()).unwrap();
        assert!(walk.next_below(&mut at).unwrap().is_none());
        assert!(at.stays);
        assert_eq!(walk.first, Some(Errno::NOTEMPTY));
        assert!(!is_there(&top.path().join("file")) && is_there(&top.path().join("stuck/below")));
    }

    /// A directory that is moved away while it is emptied leads nowhere else.
    #[test]
    fn a_level_that_was_moved_does_not_lead_elsewhere() {
        let (top, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let below = top.path().join("below");
        fs::create_dir(&below).unwrap();
        let at = Level::of(fs::File::open(&below).unwrap().into()).unwrap();
        let above = Level::of(fs::File::open(top.path()).unwrap().into()).unwrap().id;
        assert!(at.up(above).is_ok(), "the control");
        fs::rename(&below, elsewhere.path().join("below")).unwrap();
        assert_eq!(at.up(above).err().and_then(|error| error.raw_os_error()), Some(libc::ESTALE));
    }

    #[test]
    fn a11_what_another_has_put_in_the_place_is_not_taken() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("session");
        let made = OwnDirectory::make(&path, &["tmp", "ipc"], me()).unwrap();
        assert_eq!((mode(&path), mode(&path.join("ipc"))), (0o700, 0o700));
        assert!(OwnDirectory::make(&path, &[], me()).is_err(), "nothing may be there");
        let parent = rustix::fs::open(top.path(), FIND, Mode::empty()).unwrap();
        assert!(own_and_empty(&parent, OsStr::new("session")).is_err(), "it is not empty");
        let moved = top.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        fs::create_dir(&path).unwrap();
        let error = made.remove_if_empty(&["tmp", "ipc"]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
        assert!(is_there(&path) && is_there(&moved.join("tmp")));
        fs::remove_dir(&path).unwrap();
        fs::rename(&moved, &path).unwrap();
        made.remove_if_empty(&["tmp", "ipc"]).unwrap();
        assert!(!is_there(&path));
    }

    #[test]
    fn a11_nobody_else_can_change_a_trusted_place() {
        let top = tempfile::tempdir().unwrap();
        assert!(open_trusted(top.path()).is_ok(), "the control");
        let open = top.path().join("open");
        fs::create_dir(&open).unwrap();
        for (mode, trusted) in [(0o775, false), (0o757, false), (0o1777, true), (0o755, true)] {
            fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(open_trusted(&open).is_ok(), trusted, "{mode:o}");
        }
        symlink(&open, top.path().join("link")).unwrap();
        assert!(open_trusted(&top.path().join("link")).is_err());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&open, Some(4242), Some(4242)).unwrap();
            assert!(open_trusted(&open).is_err());
        }
    }
}
