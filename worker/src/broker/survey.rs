//! A look at all directories of granted trees, before the first change in one: which of them are repositories, and which
//! kept names are links (A1, A18).
//!
//! What a repository's settings and a kept name lead to may lie anywhere in the workspace, so that it is too late to look when
//! a call acts in that repository. The look is bounded, and what the bound leaves out is reported.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use callgate_policy::plan::protect::{self, NextName, State, names};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use super::planted::PARTS;

/// How much is looked at in one session.
#[derive(Debug, Clone, Copy)]
pub(super) struct SurveyBounds {
    /// Most names.
    pub(super) names: usize,
    /// Most bytes of paths that wait to be looked at: calls of earlier sessions chose how long each is.
    pub(super) bytes: usize,
    /// The longest time.
    pub(super) time: Duration,
}

/// A million names, or what the disk gives in that time: whoever waits is the first program that writes.
pub(super) const BOUNDS: SurveyBounds =
    SurveyBounds { names: 1_000_000, bytes: 64 << 20, time: Duration::from_secs(2) };

/// How often the time is looked at, in names.
const OFTEN: usize = 1024;
/// Bytes of names that the kernel hands over at once.
const BUFFER: usize = 32 * 1024;

/// Acts on what is found.
pub(super) trait Finds {
    /// A directory that may be a repository, or says where one is.
    fn repository(&mut self, directory: &Path);
    /// A link that has a kept name, or lies below one. Returns the directory that is to be looked at as if it stood there.
    fn link(&mut self, link: &Path) -> Option<PathBuf>;
    /// A place that was not looked at.
    fn unseen(&mut self, place: &Path, why: &'static str);
}

/// Treatment of names below a directory: whether they are kept because of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Below {
    Ordinary,
    Kept,
}

/// A directory that is still to be looked at.
struct Pending {
    /// The tree that it lies in.
    tree: usize,
    path: PathBuf,
    state: State,
    below: Below,
}

/// A name that leads to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leads {
    Directory,
    Link,
}

/// Contents of a directory that matter.
#[derive(Default)]
struct Listed {
    names: Vec<(OsString, Leads)>,
    parts: HashSet<&'static [u8]>,
    has_git: bool,
    /// There was no room for some of the names.
    is_cut: bool,
}

impl Listed {
    fn is_repository(&self) -> bool {
        let has = |part: &[u8]| self.parts.contains(part);
        has(b"HEAD") && ((has(b"objects") && has(b"refs")) || has(b"commondir"))
    }
}

/// Reason why a directory was not looked at as a whole.
enum SurveyStop {
    Bound,
    Failed(Errno),
}

/// Looks at trees, the nearest directories first. `apart` are those that are judged by themselves.
pub(super) fn survey(
    trees: &[(PathBuf, State)],
    apart: &HashSet<PathBuf>,
    bounds: SurveyBounds,
    finds: &mut impl Finds,
) {
    let end = Instant::now() + bounds.time;
    let mut walk = SurveyWalk { pending: VecDeque::new(), apart, left: bounds.names, room: bounds.bytes, end };
    walk.pending.extend(trees.iter().enumerate().map(|(tree, (path, state))| Pending {
        tree,
        path: path.clone(),
        state: *state,
        below: Below::Ordinary,
    }));
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    while let Some(at) = walk.pending.pop_front() {
        walk.room += at.bytes();
        match walk.list(&at.path, &mut buffer) {
            Ok(listed) => {
                if !walk.look(&at, &listed, finds)
                    && let Some((tree, _)) = trees.get(at.tree)
                {
                    finds.unseen(tree, TOO_LARGE);
                }
            }
            Err(SurveyStop::Bound) => {
                let of_all = [at.tree].into_iter().chain(walk.pending.iter().map(|pending| pending.tree));
                let unseen: BTreeSet<usize> = of_all.collect();
                let unseen = unseen.into_iter().filter_map(|tree| trees.get(tree));
                unseen.for_each(|(tree, _)| finds.unseen(tree, TOO_LARGE));
                return;
            }
            // It has gone meanwhile, or was a file all along.
            Err(SurveyStop::Failed(Errno::NOENT | Errno::NOTDIR)) => {}
            Err(SurveyStop::Failed(Errno::ACCESS)) if is_anothers(&at.path) => {}
            Err(SurveyStop::Failed(_)) => finds.unseen(&at.path, CLOSED),
        }
    }
}

const TOO_LARGE: &str = "too large to be looked at as a whole: a repository in it may run what was changed";
const CLOSED: &str = "it cannot be looked at: a repository in it may run what was changed";

/// True if a directory is another user's. No call can have closed it, and git does not run what it finds there.
fn is_anothers(path: &Path) -> bool {
    let stat = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| stat.st_uid != rustix::process::geteuid().as_raw())
}

struct SurveyWalk<'a> {
    pending: VecDeque<Pending>,
    apart: &'a HashSet<PathBuf>,
    left: usize,
    /// Bytes for what waits.
    room: usize,
    end: Instant,
}

impl Pending {
    fn bytes(&self) -> usize {
        self.path.as_os_str().len() + size_of::<Self>()
    }
}

impl SurveyWalk<'_> {
    /// Reads a directory, to which no link leads.
    fn list(&mut self, path: &Path, buffer: &mut [MaybeUninit<u8>]) -> Result<Listed, SurveyStop> {
        // What the last one led to may have taken long.
        if Instant::now() > self.end {
            return Err(SurveyStop::Bound);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        let directory = opened.map_err(SurveyStop::Failed)?;
        let (mut listed, mut room) = (Listed::default(), self.room);
        let mut entries = RawDir::new(&directory, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(SurveyStop::Failed)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if self.left == 0 || (self.left.is_multiple_of(OFTEN) && Instant::now() > self.end) {
                return Err(SurveyStop::Bound);
            }
            self.left -= 1;
            // A file system may compare without regard to case.
            let part = PARTS.iter().find(|part| part.eq_ignore_ascii_case(name));
            listed.parts.extend(part);
            listed.has_git |= protect::is_git(name);
            let Some(leads) = leads(&directory, name, entry.file_type()) else { continue };
            match room.checked_sub(name.len() + size_of::<(OsString, Leads)>()) {
                Some(rest) => {
                    room = rest;
                    listed.names.push((owned(name), leads));
                }
                None => listed.is_cut = true,
            }
        }
        Ok(listed)
    }

    /// False if there was no room for all that it leads to.
    fn look(&mut self, at: &Pending, listed: &Listed, finds: &mut impl Finds) -> bool {
        let mut is_whole = !listed.is_cut;
        let is_repository = listed.is_repository();
        if is_repository || listed.has_git {
            finds.repository(&at.path);
        }
        // A working tree is its own, wherever it stands (`.claude/worktrees/x`).
        let below = if listed.has_git { Below::Ordinary } else { at.below };
        let state = if is_repository { at.state.in_repository() } else { at.state };
        for (name, leads) in &listed.names {
            // git's own, which lead nowhere; a working tree may lie in a repository that is called otherwise.
            let is_gits = protect::is_git(name.as_bytes())
                || (is_repository && names::NEVER_DEEP.iter().any(|never| *never == *name));
            let path = at.path.join(name);
            let (state, below) = match names().step(state, name.as_bytes()) {
                _ if is_gits || self.apart.contains(&path) => continue,
                NextName::Open(state) if state.is_free() => continue,
                NextName::Open(state) => (state, below),
                NextName::Kept(_) => (State::default(), Below::Kept),
            };
            let tree = at.tree;
            let next = match leads {
                Leads::Directory => Some(Pending { tree, path, state, below }),
                Leads::Link if below == Below::Kept => {
                    finds.link(&path).map(|path| Pending { tree, path, state: State::default(), below })
                }
                Leads::Link => None,
            };
            let Some(next) = next else { continue };
            match self.room.checked_sub(next.bytes()) {
                Some(rest) => {
                    self.room = rest;
                    self.pending.push_back(next);
                }
                None => is_whole = false,
            }
        }
        is_whole
    }
}

/// Kind of what a name leads to, by what its directory says of it, or by a look where a file system says nothing.
fn leads(directory: &OwnedFd, name: &[u8], told: FileType) -> Option<Leads> {
    match told {
        FileType::Directory => Some(Leads::Directory),
        FileType::Symlink => Some(Leads::Link),
        FileType::Unknown => {
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            (kind != FileType::Unknown).then(|| leads(directory, name, kind)).flatten()
        }
        FileType::RegularFile
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice => None,
    }
}

fn owned(name: &[u8]) -> OsString {
    OsStr::from_bytes(name).to_owned()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a directory of the test's own")]
    use std::fs;

    use super::*;

    #[derive(Default)]
    struct SurveyFindings {
        repositories: Vec<PathBuf>,
        links: Vec<PathBuf>,
        unseen: Vec<(PathBuf, &'static str)>,
    }

    impl Finds for SurveyFindings {
        fn repository(&mut self, directory: &Path) {
            self.repositories.push(directory.to_owned());
        }

        fn link(&mut self, link: &Path) -> Option<PathBuf> {
            self.links.push(link.to_owned());
            None
        }

        fn unseen(&mut self, place: &Path, why: &'static str) {
            self.unseen.push((place.to_owned(), why));
        }
    }

    fn look(top: &Path, bounds: SurveyBounds) -> SurveyFindings {
        let mut found = SurveyFindings::default();
        survey(&[(top.to_owned(), State::default())], &HashSet::new(), bounds, &mut found);
        found
    }

    /// A1, A18: each directory with a `.git` or a repository's parts, and each link with or below a kept name.
    #[test]
    fn a18_repositories_and_kept_links_are_found() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let top = super::super::paths::real(directory.path());
        for made in [
            "plain/.git/deep/.git",
            "bare/objects/x/.git",
            "bare/refs",
            "bare/work/.git",
            "half/objects",
            "a/b",
            "node_modules/x/.git",
            ".claude/worktrees/w/.git",
            ".vscode/deep",
        ] {
            fs::create_dir_all(top.join(made))?;
        }
        for file in ["bare/HEAD", "half/HEAD", "a/b/.git", "a/HEAD"] {
            fs::write(top.join(file), "x")?;
        }
        for link in [".env", "x", ".vscode/deep/y", ".claude/worktrees/w/z", ".claude/worktrees/w/.npmrc", "a/.GIT"] {
            std::os::unix::fs::symlink("/", top.join(link))?;
        }
        let mut found = look(&top, BOUNDS);
        let all = |names: &[&str]| names.iter().map(|name| top.join(name)).collect::<Vec<_>>();
        found.repositories.sort();
        found.links.sort();
        assert_eq!(found.repositories, all(&[".claude/worktrees/w", "a", "a/b", "bare", "bare/work", "plain"]));
        assert_eq!(found.links, all(&[".claude/worktrees/w/.npmrc", ".env", ".vscode/deep/y"]));
        assert_eq!(found.unseen, []);
        Ok(())
    }

    /// A18: what the bounds leave out is told, and only that.
    #[test]
    fn a18_what_is_left_out_is_told() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let top = super::super::paths::real(directory.path());
        for number in 0..100 {
            fs::create_dir_all(top.join(format!("{number}/x/.git")))?;
        }
        let (bytes, time) = (BOUNDS.bytes, Duration::from_secs(600));
        let all = look(&top, SurveyBounds { names: 300, bytes, time });
        assert_eq!((all.repositories.len(), all.unseen), (100, vec![]));
        let some = look(&top, SurveyBounds { names: 299, bytes, time });
        assert_eq!((some.repositories.len(), some.unseen), (99, vec![(top.clone(), TOO_LARGE)]));
        // Room for some of the names of the first directory, and for some of what they lead to.
        let few = look(&top, SurveyBounds { names: 300, bytes: 4096, time });
        assert!((1..100).contains(&few.repositories.len()), "{:?}", few.repositories);
        assert_eq!(few.unseen.first(), Some(&(top.clone(), TOO_LARGE)));
        let none = look(&top, SurveyBounds { names: OFTEN, bytes, time: Duration::ZERO });
        assert_eq!((none.repositories.len(), none.unseen), (0, vec![(top, TOO_LARGE)]));
        Ok(())
    }
}
