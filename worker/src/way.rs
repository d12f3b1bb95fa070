//! The way on which a path is followed: the directories in which names are looked up, and the links in them.
//!
//! Whoever may write in a directory can put a link there, and so lead elsewhere whoever goes by a path. What a session is
//! granted, and what callgate itself goes to, is led nowhere by a link that a call may have put there (A2, A10). Directories
//! are told apart by device and inode: one may have many paths.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::sys::fd::path_of;

/// As many links as the kernel follows (path_resolution(7)).
const LINKS: usize = 40;
/// More directories than this are in no path (PATH_MAX).
const DEEPEST: usize = 2048;

/// Device and inode of a file: no other's while somebody holds it.
pub type Id = (u64, u64);

/// A link that was followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Where it is: as the path spells it, and absolute if the path or the directory that it starts in is known.
    pub path: PathBuf,
    /// The directory that it is in and those above, and the directories that led there: it may be moved meanwhile.
    above: Vec<Id>,
    /// True if `above` reaches the root. If not, nothing is known of the rest.
    is_complete: bool,
}

impl Link {
    /// True if it lies, or may lie, in one of these directories, at any depth.
    #[must_use]
    pub fn may_lie_in(&self, directories: &[Id]) -> bool {
        !self.is_complete || self.above.iter().any(|id| directories.contains(id))
    }

    /// The directory that it is in.
    #[must_use]
    pub fn directory(&self) -> Option<Id> {
        self.above.first().copied()
    }
}

/// A path that was followed to its end.
#[derive(Debug)]
pub struct FollowedPath {
    fd: OwnedFd,
    stat: Stat,
    /// Each directory in which a name was looked up and each link, with its owner's user id.
    pub owners: Vec<(PathBuf, u32)>,
    /// The links.
    pub links: Vec<Link>,
    /// Directories that were reached by a name and left by `..`: where that leads hangs on where they are.
    pub passed: Vec<PathBuf>,
}

impl FollowedPath {
    /// Follows a path from where this process is: see [`FollowedPath::follow_from`].
    ///
    /// # Errors
    /// The same.
    pub fn follow(path: &Path) -> rustix::io::Result<Self> {
        let here = if path.has_root() { Ok(PathBuf::new()) } else { std::env::current_dir() };
        Self::follow_from((CWD, &here.unwrap_or_default()), path)
    }

    /// Follows a path from a directory and its path, one name at a time, each looked up in the directory that was reached. What
    /// is the kernel's alone, below `/proc` and `/dev`, is opened as a whole: its links lead where no path does.
    ///
    /// # Errors
    /// The kernel's own; `ELOOP` after 40 links, `ENOTDIR` if the path ends in a slash and what it leads to is no directory.
    pub fn follow_from((from, here): (BorrowedFd<'_>, &Path), path: &Path) -> rustix::io::Result<Self> {
        if is_the_kernels(path) {
            return Self::open(from, path);
        }
        let start = if path.has_root() { Path::new("/") } else { Path::new(".") };
        let Self { mut fd, mut stat, mut owners, mut links, passed: mut left } = Self::open(from, start)?;
        let mut at = if path.has_root() { PathBuf::from("/") } else { here.to_owned() };
        let mut rest: VecDeque<OsString> = names(path).collect();
        let mut passed: Vec<Id> = Vec::new();
        while let Some(name) = rest.pop_front() {
            // What lies above is seen from the directory itself.
            if name == ".." {
                left.extend((!passed.is_empty()).then(|| at.clone()));
                passed.clear()
            } else {
                passed.push(id(&stat))
            }
            owners.push((if at.as_os_str().is_empty() { ".".into() } else { at.clone() }, stat.st_uid));
            let next = open_name(&fd, &name)?;
            let next_stat = rustix::fs::fstat(&next)?;
            let next_at = if name == ".." { at.parent().unwrap_or(&at).to_owned() } else { at.join(&name) };
            if FileType::from_raw_mode(next_stat.st_mode) != FileType::Symlink {
                (fd, stat, at) = (next, next_stat, next_at);
                continue;
            }
            owners.push((next_at.clone(), next_stat.st_uid));
            let (mut above, is_complete) = with_those_above(fd.as_fd(), &stat);
            above.extend(&passed);
            links.push(Link { path: next_at, above, is_complete });
            if links.len() > LINKS {
                return Err(Errno::LOOP);
            }
            let target = rustix::fs::readlinkat(&next, "", Vec::new())?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if target.has_root() {
                let root = Self::open(from, Path::new("/"))?;
                (fd, stat, at) = (root.fd, root.stat, "/".into());
                passed.clear();
            }
            for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
                rest.push_front(name);
            }
        }
        let wants_a_directory = [&b"/"[..], b"/."].iter().any(|end| path.as_os_str().as_bytes().ends_with(end));
        if wants_a_directory && FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        Ok(Self { fd, stat, owners, links, passed: left })
    }

    fn open(from: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<Self> {
        let fd = rustix::fs::openat(from, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { stat: rustix::fs::fstat(&fd)?, fd, owners: Vec::new(), links: Vec::new(), passed: Vec::new() })
    }

    /// Status of what was reached.
    #[must_use]
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Device and inode of that.
    #[must_use]
    pub fn id(&self) -> Id {
        id(&self.stat)
    }

    /// Name of it now, without links.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn real_path(&self) -> std::io::Result<PathBuf> {
        path_of(self.fd.as_fd())
    }

    /// A descriptor of it (`O_PATH`).
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// True if a link was followed, the last name included.
    #[must_use]
    pub fn has_links(&self) -> bool {
        !self.links.is_empty()
    }
}

/// Most components of a path that are followed: four times as many as a path can have that is opened at once.
const COMPONENTS: usize = 2 * libc::PATH_MAX as usize;

/// The links on the way to a path, and where they lead; also where nothing is. A relative one starts from the root. Whoever
/// wrote the path chose its length: what is longer than anybody can open is left where that shows.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "it only looks, as whoever asks")]
pub fn trace(path: &Path) -> (Vec<PathBuf>, PathBuf) {
    let (mut links, mut at) = (Vec::new(), PathBuf::from("/"));
    let parts = path.components().take(COMPONENTS);
    let mut pending: VecDeque<PathBuf> = parts.map(|part| PathBuf::from(part.as_os_str())).collect();
    while let Some(part) = pending.pop_front().filter(|_| at.as_os_str().len() < libc::PATH_MAX as usize) {
        match part.components().next() {
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::Normal(name)) => {
                let next = at.join(name);
                match fs::read_link(&next) {
                    Ok(target) if links.len() < LINKS => {
                        links.push(next);
                        target.components().rev().for_each(|part| pending.push_front(part.as_os_str().into()));
                    }
                    Ok(_) | Err(_) => at = next,
                }
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    (links, at)
}

/// Where distributions put programs and libraries, and nobody works. (Not `/opt`, `/usr/local` or `/usr/src`, where people do.)
pub const SYSTEM: &[&str] = &[
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/share",
    "/usr/include",
    "/nix/store",
    "/gnu/store",
];

/// True if a path lies where a distribution's own files are.
#[must_use]
pub fn is_the_systems(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

/// True if nobody can put anything in the place of what has this path: the kernel makes what is there.
#[must_use]
pub fn is_the_kernels(path: &Path) -> bool {
    let top = path.starts_with("/proc") || (path.starts_with("/dev") && !path.starts_with("/dev/shm"));
    // These lead back to the file systems, and so does what follows a descriptor.
    let leads_out = |name: &OsStr| ["..", "cwd", "root"].iter().any(|other| name == *other);
    let mut names = path.components().map(|component| component.as_os_str());
    let after_a_descriptor = || names.clone().skip_while(|name| *name != "fd").nth(2).is_some();
    top && !after_a_descriptor() && !names.any(leads_out)
}

/// A directory and all above it, and whether that is all: this process may not be let look.
fn with_those_above(directory: BorrowedFd<'_>, stat: &Stat) -> (Vec<Id>, bool) {
    let mut ids = vec![id(stat)];
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut above = rustix::fs::openat(directory, "..", flags, Mode::empty());
    while let Ok(fd) = above
        && ids.len() < DEEPEST
    {
        let Ok(stat) = rustix::fs::fstat(&fd) else { break };
        if ids.last() == Some(&id(&stat)) {
            return (ids, true); // the root is above itself
        }
        ids.push(id(&stat));
        above = rustix::fs::openat(&fd, "..", flags, Mode::empty());
    }
    (ids, false)
}

#[allow(clippy::useless_conversion, reason = "the types differ by architecture")]
fn id(stat: &Stat) -> Id {
    (u64::from(stat.st_dev), u64::from(stat.st_ino))
}

/// Where a path leads, without links; what is not there would lie below the nearest directory that is.
#[must_use]
pub fn would_lead_to(path: &Path) -> Option<PathBuf> {
    would_lead_to_by(FollowedPath::follow, path)
}

/// As [`would_lead_to`], with a way to follow paths.
pub fn would_lead_to_by(follow: impl Fn(&Path) -> rustix::io::Result<FollowedPath>, path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|above| {
        let (real, rest) = (follow(above).ok()?.real_path().ok()?, path.strip_prefix(above).ok()?);
        Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A10, C12: nobody works where a distribution puts its files; elsewhere people do.
    #[test]
    fn a10_c12_where_people_work_is_not_the_systems() {
        for path in ["/bin/sh", "/usr/bin", "/usr/lib/x/y", "/lib64/ld.so", "/nix/store/x/bin/sh", "/gnu/store/x"] {
            assert!(is_the_systems(Path::new(path)), "{path}");
        }
        for path in [
            "/",
            "/usr",
            "/usr/local/bin/x",
            "/usr/src/x",
            "/opt/conda/bin",
            "/binary",
            "/usr/bin2",
            "/nix/var",
            "bin/sh",
        ] {
            assert!(!is_the_systems(Path::new(path)), "{path}");
        }
    }
}
