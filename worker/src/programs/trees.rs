//! Directories below which every program may be started, and whether a file lies in one.
//!
//! A tree is a directory that is held, whatever its name becomes. A file lies in it if the kernel's own name for the file leads
//! to that file *from the directory*, by no link: the names of both only say which way to try. So it counts neither where a
//! directory of that name was put in the tree's place, nor where the file was moved out or lost its name; and a link in the tree
//! is what it leads to.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use callgate_policy::path::HostPath;
use callgate_policy::plan::SessionPlan;
use callgate_policy::plan::exec::{FileId, Located};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat};

use crate::apply::seen::confirm_inside;
use crate::protocol::StepFailure;
use crate::sys::fd::path_of;

/// One of them.
pub(crate) struct ProgramTree {
    fd: OwnedFd,
    id: FileId,
}

impl ProgramTree {
    /// Opens it, if it is there: once, as the session's user, and only what the supervisor saw.
    pub(super) fn open(path: &HostPath, plan: &SessionPlan) -> Result<Option<Self>, StepFailure> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // `/dev/fd/N` would be what this process has open.
        let by = ResolveFlags::NO_MAGICLINKS;
        let opened = rustix::fs::openat2(CWD, path.as_path(), flags, Mode::empty(), by);
        let Ok(fd) = opened else { return Ok(None) };
        confirm_inside(plan, path.as_path(), &fd)?;
        let Ok(stat) = rustix::fs::fstat(&fd) else { return Ok(None) };
        Ok(Some(Self { id: file_of(&stat), fd }))
    }

    pub(super) fn id(&self) -> FileId {
        self.id
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// True if this file, which the kernel calls so, lies in it.
    pub(super) fn holds(&self, file: FileId, path: &Path) -> bool {
        let Ok(own) = path_of(self.fd.as_fd()) else { return false };
        let Ok(below) = path.strip_prefix(own) else { return false };
        if below.as_os_str().is_empty() {
            return false;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let without = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let found = rustix::fs::openat2(&self.fd, below, flags, Mode::empty(), without);
        found.and_then(rustix::fs::fstat).is_ok_and(|stat| file_of(&stat) == file)
    }
}

/// Where a file lies that the kernel calls so. Whether it is a program is not asked here.
pub(crate) fn locate(trees: &[ProgramTree], file: FileId, path: &Path) -> Located {
    let below: Vec<FileId> = trees.iter().filter(|tree| tree.holds(file, path)).map(ProgramTree::id).collect();
    let name = path.file_name().filter(|_| !below.is_empty()).map(|name| name.as_bytes().to_vec());
    Located { below, name: name.unwrap_or_default(), is_program: false }
}

#[allow(clippy::useless_conversion, reason = "the types differ by architecture")]
pub(super) fn file_of(stat: &Stat) -> FileId {
    FileId { device: u64::from(stat.st_dev), inode: u64::from(stat.st_ino) }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::disallowed_methods,
        reason = "a failing test may stop; its files are its own"
    )]
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree(path: &Path) -> ProgramTree {
        let fd = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        ProgramTree { id: file_of(&rustix::fs::fstat(&fd).unwrap()), fd }
    }

    /// True if a tree holds what is open as this, by the kernel's name for it.
    fn holds(tree: &ProgramTree, file: &fs::File) -> bool {
        let id = file_of(&rustix::fs::fstat(file).unwrap());
        let located = locate(std::slice::from_ref(tree), id, &path_of(file.as_fd()).unwrap());
        assert_eq!(located.name.is_empty(), located.below.is_empty());
        located.below == [tree.id]
    }

    /// The directory that is held decides, and the way from there to the file.
    #[test]
    fn s0_39_what_lies_in_a_tree_is_found_from_its_directory() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("t/d")).unwrap();
        for name in ["t/d/in", "t/gone", "t/moved", "out", "tx"] {
            fs::write(at(name), name).unwrap();
        }
        symlink(at("out"), at("t/link")).unwrap();
        fs::hard_link(at("tx"), at("t/x")).unwrap();
        symlink(at("t/d"), at("way")).unwrap();
        let tree = tree(&at("t"));
        let open = |name: &str| fs::File::open(at(name)).unwrap();
        let (inside, gone, moved) = (open("t/d/in"), open("t/gone"), open("t/moved"));
        assert!([&inside, &gone, &moved].into_iter().all(|file| holds(&tree, file)));
        assert!(holds(&tree, &open("way/in")), "by a link from outside it is the same file");
        assert!(!holds(&tree, &open("t/link")), "a link in it is what it leads to");
        assert!(holds(&tree, &open("t/x")), "what tx is, by its name there");
        assert!(!holds(&tree, &open("out")) && !holds(&tree, &open("tx")) && !holds(&tree, &open("t")));
        fs::remove_file(at("t/gone")).unwrap();
        fs::rename(at("t/moved"), at("moved")).unwrap();
        assert!(!holds(&tree, &gone) && !holds(&tree, &moved));
        // By the name that the kernel has for what is gone, there may be another file.
        fs::write(at("t/gone (deleted)"), "").unwrap();
        assert!(!holds(&tree, &gone));
        // The tree goes elsewhere, and another directory takes its name.
        fs::rename(at("t"), at("old")).unwrap();
        fs::create_dir(at("t")).unwrap();
        fs::write(at("t/new"), "").unwrap();
        assert!(holds(&tree, &inside) && !holds(&tree, &open("t/new")));
        fs::remove_dir_all(at("old")).unwrap();
        assert!(!holds(&tree, &inside) && !holds(&tree, &open("t/new")));
    }
}
