//! Where a call may write: whole trees, and single names in directories that are not its own (A8).
//!
//! Landlock knows trees and files, and a file is replaced by another that takes its name. So the broker holds a name that is
//! granted alone: calls have no right in its directory, and pass here. To be replaced at once, it has to have a *twin* for a
//! while: a file that the call makes beside it and renames onto it, under whatever name `sed`, git or an editor choose.
//!
//! Invariant: a twin is known by its file, which is held open, and ends with its call.

use std::ffi::CString;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_policy::path::HostPath;
use callgate_policy::plan::{Extent, FsAccess, FsRule, SessionPlan};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::rand::{GetRandomFlags, getrandom};

use super::paths::{lies_in, real};

/// Most twins that a call may have at once: each is held open.
const TWINS: usize = 64;

/// By what a path may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grant {
    /// All that lies in a tree.
    Tree,
    /// This name, for a regular file.
    Name,
    /// It is the call's own, beside such a name.
    Twin,
}

/// Kind of thing that a new name is to stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NewName {
    /// A regular file that is made under it.
    File,
    /// A regular file that is there, or that nothing is held of.
    Linked,
    Directory,
    /// A link, a FIFO, a socket.
    Other,
}

/// Places that a session may write, or a call of it is narrowed to.
#[derive(Debug, Default)]
pub(super) struct Writable {
    trees: Vec<WritableTree>,
    names: Vec<PathBuf>,
}

#[derive(Debug)]
struct WritableTree {
    path: PathBuf,
    /// Mounts in it that are not a part of it.
    without: Vec<PathBuf>,
}

impl WritableTree {
    fn holds(&self, path: &Path) -> bool {
        lies_in(path, &self.path) && !self.without.iter().any(|other| lies_in(path, other))
    }
}

impl Writable {
    /// Places of a session.
    pub(super) fn of(plan: &SessionPlan) -> Self {
        let is_entry = |rule: &&FsRule| rule.access == FsAccess::Kept && rule.extent == Extent::Entry;
        let names: Vec<PathBuf> = plan.rules().filter(is_entry).map(|rule| name(rule.path.as_path())).collect();
        let trees = |rules: &[FsRule]| -> Vec<PathBuf> {
            let rules = rules.iter().filter(|rule| rule.access.changes() && !is_entry(rule));
            rules.map(|rule| real(rule.path.as_path())).collect()
        };
        // A private `/tmp` may have a directory of the host's mounted in it, for a name that is granted there.
        let own = trees(&plan.surroundings).into_iter().map(|path| {
            let directories = names.iter().filter_map(|name| name.parent()).filter(|directory| **directory != *path);
            let without = directories.filter(|directory| lies_in(directory, &path)).map(Path::to_owned).collect();
            WritableTree { path, without }
        });
        let granted = trees(&plan.grants).into_iter().map(|path| WritableTree { path, without: Vec::new() });
        Self { trees: own.chain(granted).collect(), names }
    }

    /// Places of a call, by paths as the kernel spells them.
    ///
    /// What a session was granted in another tree, such as a workspace in a private `/tmp`, is a tree of its own, and is not the
    /// call's because that other one is.
    fn narrowed(session: &Self, trees: Vec<PathBuf>, names: Vec<PathBuf>) -> Self {
        let tree = |path: PathBuf| {
            let inner = session.trees.iter().filter(|tree| tree.path != path && lies_in(&tree.path, &path));
            let apart = session.trees.iter().flat_map(|tree| &tree.without).filter(|other| lies_in(other, &path));
            let without = inner.map(|tree| &tree.path).chain(apart).cloned().collect();
            WritableTree { path, without }
        };
        Self { trees: trees.into_iter().map(tree).collect(), names }
    }

    /// All of it, by paths.
    pub(super) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.trees.iter().map(|tree| &tree.path).chain(&self.names)
    }

    /// The outermost tree in which a path lies.
    fn outermost(&self, path: &Path) -> Option<&Path> {
        let holding = self.trees.iter().filter(|tree| tree.holds(path)).map(|tree| tree.path.as_path());
        holding.min_by_key(|tree| tree.as_os_str().len())
    }

    /// True if two paths lie in trees that were granted apart, which count as file systems of their own: with
    /// namespaces they are. A file that has names in both would stay in a later session's reach that is granted one of
    /// them.
    pub(super) fn are_apart(&self, one: &Path, other: &Path) -> bool {
        match (self.outermost(one), self.outermost(other)) {
            (Some(one), Some(other)) => one != other,
            (None, _) | (_, None) => false,
        }
    }

    fn grant(&self, path: &Path) -> Option<Grant> {
        if self.trees.iter().any(|tree| tree.holds(path)) {
            Some(Grant::Tree)
        } else {
            self.names.iter().any(|name| name == path).then_some(Grant::Name)
        }
    }

    /// True if a name in this directory is granted.
    fn has_a_name_in(&self, directory: &Path) -> bool {
        self.names.iter().any(|name| name.parent() == Some(directory)) || self.grant(directory) == Some(Grant::Tree)
    }

    /// True if a granted name lies below this.
    fn leads_on(&self, directory: &Path) -> bool {
        self.names.iter().any(|name| name != directory && lies_in(name, directory))
            || self.grant(directory) == Some(Grant::Tree)
    }
}

/// A name in its directory, as the kernel spells that. It is not followed: what it leads to was not granted.
pub(super) fn name(path: &Path) -> PathBuf {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => real(parent).join(name),
        _ => path.to_owned(),
    }
}

/// Places that one call may write.
#[derive(Debug)]
pub(super) struct WritablePlaces {
    session: Arc<Writable>,
    /// `None` for all that its session may.
    own: Option<Writable>,
    twins: Vec<Twin>,
}

impl WritablePlaces {
    pub(super) fn new(session: Arc<Writable>) -> Self {
        Self { session, own: None, twins: Vec::new() }
    }

    /// Narrows it to these trees and single names. A name that is a link is granted where it leads as well, if its session may
    /// write there.
    pub(super) fn narrow(&mut self, trees: &[HostPath], names: &[HostPath]) {
        let names = names.iter().flat_map(|path| [name(path.as_path()), real(path.as_path())]).collect();
        let trees = trees.iter().map(|path| real(path.as_path())).collect();
        self.own = Some(Writable::narrowed(&self.session, trees, names));
    }

    /// Narrows without following links, which other calls may have made: paths that are not the kernel's name nothing.
    pub(super) fn narrow_as_spelt(&mut self, trees: &[HostPath], names: &[HostPath]) {
        let paths = |paths: &[HostPath]| paths.iter().map(|path| path.as_path().to_owned()).collect();
        self.own = Some(Writable::narrowed(&self.session, paths(trees), paths(names)));
    }

    /// By what a path may be written, twins aside.
    pub(super) fn grant(&self, path: &Path) -> Option<Grant> {
        let session = self.session.grant(path)?;
        match &self.own {
            None => Some(session),
            Some(own) => own.grant(path).map(|own| if session == Grant::Tree { own } else { session }),
        }
    }

    /// Grant of what is there.
    pub(super) fn grant_of(&self, path: &Path, stat: &Stat) -> Option<Grant> {
        // A name belongs to nothing that has none.
        let granted = self.grant(path).filter(|grant| *grant == Grant::Tree || stat.st_nlink > 0);
        granted.or_else(|| self.twins.iter().any(|twin| twin.path == path && twin.is(stat)).then_some(Grant::Twin))
    }

    /// True if it is a single name of the session's, whatever its call may do with it.
    pub(super) fn is_name(&self, path: &Path, stat: &Stat) -> bool {
        stat.st_nlink > 0 && self.session.grant(path) == Some(Grant::Name)
    }

    /// Grant to make this: `Twin` if only to be renamed.
    pub(super) fn grant_of_new(&self, path: &Path, new: NewName) -> Option<Grant> {
        match (self.grant(path), new) {
            (Some(Grant::Tree), _) => Some(Grant::Tree),
            (Some(grant), NewName::File | NewName::Linked) => Some(grant),
            (None, NewName::File) => {
                let directory = path.parent()?;
                let room = self.twins.len() < TWINS;
                (room && self.both(|all| all.has_a_name_in(directory))).then_some(Grant::Twin)
            }
            // What a granted name is still lacking.
            (None, NewName::Directory) => self.both(|all| all.leads_on(path)).then_some(Grant::Name),
            (Some(_), NewName::Directory | NewName::Other) | (None, NewName::Linked | NewName::Other) => None,
        }
    }

    /// True if it is the directory of a single name, of which the names may be known.
    pub(super) fn may_list(&self, directory: &Path) -> bool {
        self.both(|all| all.names.iter().any(|name| name.parent() == Some(directory)))
    }

    /// True if a file without a name may be made in a directory.
    pub(super) fn may_hold_unnamed(&self, directory: &Path) -> bool {
        self.both(|all| all.has_a_name_in(directory))
    }

    fn both(&self, allows: impl Fn(&Writable) -> bool) -> bool {
        allows(&self.session) && self.own.as_ref().is_none_or(allows)
    }

    pub(super) fn add(&mut self, twin: Twin) {
        self.twins.push(twin);
    }

    /// It has another name now, or none.
    pub(super) fn forget(&mut self, path: &Path) {
        self.twins.retain(|twin| twin.path != path);
    }

    /// The call is over. Returns what it has left, all of which is removed if it can be.
    pub(super) fn end(&mut self) -> Vec<(PathBuf, &'static str)> {
        let left = |twin: Twin| {
            let why = match twin.remove() {
                Removed::Gone => return None,
                Removed::Now => "only the name that is granted may stay here: it was removed when the call ended",
                Removed::Not => "only the name that is granted may stay here, and it could not be removed",
            };
            Some((twin.path, why))
        };
        self.twins.drain(..).filter_map(left).collect()
    }
}

/// A file that a call has made beside a granted name.
#[derive(Debug)]
pub(super) struct Twin {
    path: PathBuf,
    directory: OwnedFd,
    name: CString,
    /// While it is held, its number is no other file's.
    file: OwnedFd,
    identity: (u64, u64),
}

enum Removed {
    /// The name stands for nothing, or for something else.
    Gone,
    Now,
    Not,
}

impl Twin {
    /// Identity of a file that was opened when it was made.
    #[expect(
        clippy::disallowed_methods,
        reason = "a link of procfs to a descriptor that was judged: the file itself, whatever its name leads to now"
    )]
    pub(super) fn of(
        path: &Path,
        (directory, name): (BorrowedFd<'_>, &CString),
        made: &OwnedFd,
    ) -> Result<Self, rustix::io::Errno> {
        // Held as it was opened, it could not be executed.
        let link = format!("/proc/self/fd/{}", made.as_raw_fd());
        let file = rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        let directory = rustix::io::fcntl_dupfd_cloexec(directory, 3)?;
        let identity = (stat.st_dev, stat.st_ino);
        Ok(Self { path: path.to_owned(), directory, name: name.clone(), file, identity })
    }

    fn is(&self, stat: &Stat) -> bool {
        // Numbers are compared only while the file is held.
        let _held = self.file.as_fd();
        (stat.st_dev, stat.st_ino) == self.identity
    }

    fn is_at(&self, name: &CString) -> bool {
        rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| self.is(&stat))
    }

    /// Removes it, with no more rights than the call had: if another program has taken the name, that is not the call's. No
    /// call can say "remove if it is this one", so it is looked at again under a name that nobody knows.
    fn remove(&self) -> Removed {
        if !self.is_at(&self.name) {
            return Removed::Gone;
        }
        let Some(aside) = unknown_name() else { return Removed::Not };
        let renamed = |from: &CString, to: &CString| {
            rustix::fs::renameat_with(&self.directory, from, &self.directory, to, RenameFlags::NOREPLACE).is_ok()
        };
        if !renamed(&self.name, &aside) {
            return Removed::Not;
        }
        if !self.is_at(&aside) {
            return if renamed(&aside, &self.name) { Removed::Gone } else { Removed::Not };
        }
        match rustix::fs::unlinkat(&self.directory, &aside, AtFlags::empty()) {
            Ok(()) => Removed::Now,
            Err(_) => Removed::Not,
        }
    }
}

/// A name that nobody can guess, and that no session lets its calls change.
pub(super) fn unknown_name() -> Option<CString> {
    let mut random = [0; 16];
    getrandom(&mut random, GetRandomFlags::empty()).ok()?; // up to 256 bytes are never short, getrandom(2)
    CString::new(format!(".callgate-{:032x}", u128::from_ne_bytes(random))).ok()
}

/// Kind of new file by its mode.
pub(super) fn new_of(kind: FileType) -> NewName {
    match kind {
        FileType::RegularFile => NewName::Linked,
        FileType::Directory => NewName::Directory,
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => NewName::Other,
    }
}
