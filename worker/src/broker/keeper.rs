//! Which names the broker keeps as they are, in the trees whose one writer it is (A1, A3, A4, A9, A16 to A19).
//!
//! Landlock lets calls only read there, so everything that changes such a tree passes here, one act after the other: what
//! was judged is still so when it is acted on. (Only the host may come in between, which is trusted.) Paths are the
//! kernel's, of what was opened; never what a caller wrote.
#![expect(
    clippy::disallowed_methods,
    reason = "it only looks, in the session's domain: `files.rs` acts, by descriptor"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::{CStr, OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

use callgate_policy::plan::protect::gitconfig::{self, ValueBase};
use callgate_policy::plan::protect::{self, FREE, Match, NameGroup, NameGuard, NextName, State, names};
use callgate_policy::plan::{Extent, FsAccess, SessionPlan};
use callgate_policy::step;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Timespec};

use super::ends::{Ends, KeepResult, Unseen};
use super::made::{self, FileIdentity, MadeFiles};
use super::mounts::{AliasName, GrantedTree, Mounts};
use super::paths::{lies_in, real};
use super::planted;
use super::settings::settings;
use super::survey::{self, BOUNDS, survey};
use super::writable::name;
use crate::apply::landlock::reach;
use crate::directory::is_own_name;
use crate::protocol::StepFailure;
use crate::toolset::TEMPORARY_PREFIX;
use crate::way::{is_the_systems, trace};

/// Most bytes that what is remembered of directories takes, about: a hundred thousand of them with common paths.
const REMEMBERED: usize = 16 << 20;
/// Includes that include others are followed this far.
const INCLUDES: usize = 5;
/// Most paths that the settings of one repository lead to.
const REDIRECTS: usize = 1000;
/// Most repositories of other names than `.git` that are remembered; those beyond are looked at each time.
const REPOSITORIES: usize = 1 << 16;
/// A `.git` may be a link to a file that says where the repository is, and no more than that.
const POINTERS: usize = 3;

/// Reason why a path is kept that has no kept name.
const LED_BY_GIT: &str = "a repository's configuration leads git here";
const LED_BY_A_LINK: &str = "a kept name is a link that leads here";
/// Reason why a result names a place that was not looked at as a whole.
const LEADS_FURTHER: &str = "not all of it was looked at: what it leads to may have been changed";
const LINKED_BESIDE: &str = "too large to be looked at as a whole: a protected file in it may have another name";
const UNREADABLE: &str = "these settings cannot be read: what they lead to may have been changed";
const WHOLE_TREE: &str = "a repository's configuration or a kept name leads to the whole of it, which is not kept";

/// A tree that the broker writes.
struct Root {
    path: PathBuf,
    state: State,
    /// It was granted, and is not the session's own.
    is_granted: bool,
    /// It is the name of one file, which another takes the place of.
    is_single: bool,
    /// It has a protected name, and was granted by that: nothing is kept in it because somebody said so, not for where it is.
    is_named: bool,
    /// It was left of a larger tree, from which it is judged what is kept.
    is_left: bool,
    /// It was asked for and not granted: what is in it may lead to what was.
    is_further: bool,
}

impl Root {
    /// The name of a file that was granted alone, in a directory of that state; whatever it is called.
    fn single(path: PathBuf, directory: State) -> Self {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let (state, is_named) = match names().step(directory, name) {
            NextName::Kept(_) => (State::FREE, true),
            NextName::Open(state) => (state, false),
        };
        Self { path, state, is_granted: true, is_single: true, is_named, is_left: false, is_further: false }
    }

    /// True if it is a tree in which names are kept.
    fn keeps(&self) -> bool {
        !self.state.is_free() && !self.is_single
    }
}

/// A kept directory in which single files are granted. What lies beside them stays kept.
struct Beside {
    /// Reason why it is kept.
    reason: &'static str,
    granted: Vec<OsString>,
}

impl Beside {
    /// True if a name may be made and changed. What is to replace a granted file has to lie beside it for a while: only
    /// names that say what they are for can, for whatever has another is believed there.
    fn allows(&self, name: &OsStr) -> bool {
        let name = name.as_bytes();
        let hidden = name.strip_prefix(b".").unwrap_or(name);
        name.starts_with(TEMPORARY_PREFIX.as_bytes())
            || self.granted.iter().any(|granted| {
                name == granted.as_bytes()
                    || hidden.strip_prefix(granted.as_bytes()).is_some_and(|rest| matches!(rest, [b'.' | b'~', ..]))
            })
    }
}

/// Facts known of a name.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Judgement {
    /// Protection state that applies to names inside it.
    pub(super) state: State,
    /// Reason why it may not be changed, if it may not.
    kept: Option<&'static str>,
    /// A repository's settings, which may be replaced by some that run nothing else.
    settings: bool,
    /// Reason why only the session that made it may change it, if so. Such a file is made by an opening.
    temporary: Option<&'static str>,
    /// It is called `.git`.
    pointer: bool,
    /// It is the name of a file that was granted alone.
    single: bool,
    /// That is a protected name, and so a file's.
    file: bool,
    /// Something that is kept lies, or may lie, beneath.
    above: bool,
}

/// Keeper of names: what is kept, and what calls have made themselves.
pub(super) struct Keeper {
    /// The longest first.
    roots: Vec<Root>,
    /// Repositories' directories and pointers, and temporary files, that calls of this session have made.
    made: MadeFiles,
    /// Directories that calls of this session have made where names are kept.
    directories: MadeFiles,
    /// Files that have a kept name and another. Found when the first file with several names is to be changed: until then no
    /// call can have made one.
    linked: Option<Linked>,
    /// Linked files from before the session was confined, where that saw more than the session can.
    linked_before: Option<Linked>,
    /// Files that had one name until a call of this session gave them another.
    made_links: MadeFiles,
    /// Trees that were left of larger ones.
    left: Vec<PathBuf>,
    /// Trees that were granted and that Landlock alone lets be written, in which nothing is kept.
    unkept: Vec<PathBuf>,
    /// Kept directories in which single files are granted.
    beside: HashMap<PathBuf, Beside>,
    /// The other names of what lies in directories that are mounted twice.
    aliases: Vec<AliasName>,
    /// Directories whose repository, if they have one, is known.
    seen: Remembered<()>,
    /// Repositories that no call has made, by their directories, and directories that a `.git` or a `commondir` leads to:
    /// those whose names do not say so.
    repositories: HashSet<PathBuf>,
    /// Directories that calls of this session have made such.
    planted: MadeFiles,
    /// Ends to which repositories' settings (A18) and links with kept names (A1) lead.
    ends: Ends,
    /// Places that rules close for writing, wherever they lie.
    closed: Ends,
    /// Places that were not looked at for such.
    unseen: Unseen,
    /// Homes that `~` may stand for in the settings of repositories: whoever runs git is not known here.
    homes: BTreeSet<PathBuf>,
    /// All of them have been looked at before the session was confined.
    looked_before: bool,
    /// All directories of granted trees have been looked at, as far as that is bounded.
    surveyed: bool,
    /// The state of directories in which something was judged, by their paths.
    states: Remembered<State>,
}

/// Settings of the repositories that granted trees lie in, and of the trees' own. Their settings may lie where the
/// session cannot read, or include what does, so that they are read before it is confined.
#[derive(Default)]
pub(super) struct SettingsAbove {
    repositories: HashSet<PathBuf>,
    ends: Ends,
    unseen: Unseen,
    linked: Option<Linked>,
}

/// Files that have a kept name and another.
#[derive(Default)]
struct Linked {
    /// By device and inode.
    files: HashSet<(u64, u64)>,
    /// Something could not be looked at: there may be more.
    more: bool,
    /// How much is looked at yet.
    left: LookBudget,
}

/// How much is looked at yet.
#[derive(Debug, Clone, Copy, Default)]
struct LookBudget {
    names: usize,
    /// Until when, of what is no reason to wait longer.
    until: Option<Instant>,
    /// It was too much.
    is_spent: bool,
}

impl LookBudget {
    fn names(names: usize) -> Self {
        Self { names, ..Self::default() }
    }

    /// Counts one of the names that are looked at. Fails if it was too many: calls choose how many there are.
    fn take_one(&mut self) -> std::io::Result<()> {
        const OFTEN: usize = 1024;
        let is_late = || self.names.is_multiple_of(OFTEN) && self.until.is_some_and(|until| Instant::now() > until);
        self.is_spent |= self.names == 0 || is_late();
        if self.is_spent {
            return Err(std::io::ErrorKind::QuotaExceeded.into());
        }
        self.names -= 1;
        Ok(())
    }
}

/// Memory of directories, by their paths; it begins anew when it becomes too much. Paths are a call's to make, each up
/// to 4,096 bytes long.
#[derive(Default)]
struct Remembered<T> {
    of: HashMap<OsString, T>,
    bytes: usize,
}

impl<T: Copy> Remembered<T> {
    fn get(&self, directory: &Path) -> Option<T> {
        self.of.get(directory.as_os_str()).copied()
    }

    fn insert(&mut self, directory: &Path, what: T) {
        let bytes = directory.as_os_str().len() + 2 * size_of::<(OsString, T)>();
        if self.bytes + bytes > REMEMBERED {
            *self = Self { of: HashMap::new(), bytes: 0 };
        }
        if self.of.insert(directory.as_os_str().to_owned(), what).is_none() {
            self.bytes += bytes;
        }
    }
}

/// The rest of a path below a directory; all of it if it does not lie there.
fn below<'p>(path: &'p Path, directory: &Path) -> &'p Path {
    path.strip_prefix(directory).unwrap_or(path)
}

/// A directory, reached through no link: another session can put one in the place of what lay on the way. It can put no
/// directory there below which something is kept, since that is not moved.
fn reached(directory: &Path) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()
}

/// True if a link's text leads to what only lives as long as a process: `/proc/PID`, which leads anywhere, or a
/// session's own directory, in which names are as its calls like. Whoever follows `/proc/self` is that process; but
/// from a directory in it `..` leads to the others, whatever links lie between. So of `/proc` only what is known to be
/// no directory is let be, and nothing that goes back from a name and then on by a number.
fn leads_to_a_process(target: &Path) -> bool {
    let parts: Vec<&OsStr> = target.iter().collect();
    let is_number = |part: &OsStr| part.as_bytes().iter().all(u8::is_ascii_digit);
    let is_file = |rest: &[&OsStr]| match rest {
        [name] => *name == "mounts",
        [this, name] if *this == "self" => ["mounts", "mountinfo", "exe"].iter().any(|file| name == file),
        [this, fd, number] => *this == "self" && *fd == "fd" && is_number(number),
        _ => false,
    };
    let after = parts.iter().position(|part| *part == "proc").filter(|_| parts.len() > 1);
    let by_proc = after.is_some_and(|at| !is_file(parts.get(at + 1..).unwrap_or_default()));
    let (mut named, mut back, mut by_number) = (false, false, false);
    for part in &parts {
        if *part == ".." {
            back = named;
        } else {
            by_number |= back && is_number(part);
            (named, back) = (named || *part != "/", false);
        }
    }
    by_proc || by_number || back || parts.iter().any(|part| is_own_name(part))
}

/// Homes that `~` may stand for in the settings of repositories: the home directories that are known, and any directory above
/// something that may be written.
fn homes(plan: &SessionPlan, places: &[(PathBuf, bool)]) -> BTreeSet<PathBuf> {
    let above = places.iter().flat_map(|(place, _)| place.ancestors());
    above.chain(plan.protection.homes.iter().map(|home| home.as_path())).map(Path::to_owned).collect()
}

fn is_directory(from: impl AsFd, name: impl rustix::path::Arg) -> bool {
    let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory)
}

/// Trees that the broker writes, from a plan.
struct Layout {
    roots: Vec<Root>,
    /// Granted paths, and whether each is a tree.
    places: Vec<(PathBuf, bool)>,
    beside: HashMap<PathBuf, Beside>,
}

impl Layout {
    fn of(plan: &SessionPlan) -> Self {
        let mut roots: BTreeMap<PathBuf, Root> = BTreeMap::new();
        let kept = |rules: &[_]| -> Vec<(PathBuf, PathBuf, Extent)> {
            let rules = rules.iter().filter(|rule: &&callgate_policy::plan::FsRule| rule.access == FsAccess::Kept);
            rules.map(|rule| (real(&reach(rule)), name(rule.path.as_path()), rule.extent)).collect()
        };
        // The session's own, such as a private `/tmp`, is nobody's project.
        roots.extend(kept(&plan.surroundings).into_iter().map(|(path, ..)| {
            let (state, is_granted) = (State::FREE, false);
            let (is_single, is_named, is_left, is_further) = (false, false, false, false);
            (path.clone(), Root { path, state, is_granted, is_single, is_named, is_left, is_further })
        }));
        let mut grants = kept(&plan.grants);
        let mut places = Vec::new();
        // What was left of a larger tree is a part of that, as far as it is asked what is kept.
        let mut left: HashMap<PathBuf, PathBuf> =
            plan.protection.left_of.iter().map(|(place, tree)| (name(place.as_path()), real(tree.as_path()))).collect();
        let trees = grants.iter().filter(|(.., extent)| *extent == Extent::Subtree);
        left = in_what_is_granted(left, trees.map(|(granted, ..)| granted.as_path()));
        // Where a link leads out of that tree it is judged by itself.
        let is_left = |at: &Path, path: &Path| left.get(path).is_some_and(|tree| at.starts_with(tree));
        grants.retain(|(tree, path, extent)| {
            let stays = *extent != Extent::Subtree || !is_left(tree, path);
            if !stays {
                places.push((tree.clone(), true));
            }
            stays
        });
        // Where nothing may be written, nothing has to be judged.
        let writes = plan.grants.iter().any(|rule| rule.access.changes());
        let further = plan.protection.judged_from.iter().filter(|_| writes).map(|tree| real(tree.as_path()));
        let further: BTreeSet<PathBuf> = further.collect();
        // What lies in what is granted, however it is spelt, is judged from there.
        let whole = || grants.iter().filter(|(.., extent)| *extent == Extent::Subtree).map(|(granted, ..)| granted);
        let is_granted = |tree: &PathBuf| whole().any(|granted| granted == tree);
        let is_beside = |tree: &&PathBuf| !whole().any(|granted| lies_in(tree, granted));
        let mut trees: BTreeSet<PathBuf> = left.values().filter(|tree| !is_granted(tree)).cloned().collect();
        trees.extend(further.iter().filter(is_beside).cloned());
        grants.extend(trees.iter().map(|tree| (tree.clone(), tree.clone(), Extent::Subtree)));
        // Outer trees first: where an inner one stands is told by the outer.
        grants.sort_by_key(|(tree, ..)| tree.as_os_str().len());
        let whole: HashSet<PathBuf> =
            grants.iter().filter(|(.., extent)| *extent == Extent::Subtree).map(|(tree, ..)| tree.clone()).collect();
        // With each, whether it is called by a protected name.
        let mut granted: Vec<(PathBuf, State, bool)> = Vec::new();
        let mut beside: HashMap<PathBuf, Beside> = HashMap::new();
        for (tree, path, extent) in grants {
            let outer = granted.iter().rev().find(|(outer, ..)| tree != *outer && tree.starts_with(outer));
            if extent == Extent::Entry && is_left(&tree, &path) {
                let single = Root { is_left: true, is_named: false, ..Root::single(path.clone(), State::default()) };
                roots.insert(path.clone(), single);
                places.extend([(tree, false), (path, false)]);
                continue;
            }
            if extent == Extent::Entry
                && !whole.contains(&tree)
                && let (Some(directory), Some(name)) = (path.parent(), path.file_name())
                && let (start, below) =
                    outer.map_or((State::default(), directory), |(outer, state, _)| (*state, below(directory, outer)))
                && let Match::Kept { group, .. } = names().find(start, below.as_os_str().as_bytes())
            {
                let new = || Beside { reason: group.reason, granted: Vec::new() };
                beside.entry(directory.to_owned()).or_insert_with(new).granted.push(name.to_owned());
                if outer.is_some() {
                    // Its directory is judged as a part of that tree.
                    places.push((path.clone(), false));
                    roots
                        .insert(path.clone(), Root { state: State::FREE, is_named: true, ..Root::single(path, start) });
                    continue;
                }
            }
            let (state, is_named) = match outer.and_then(|(outer, state, is_named)| {
                Some((names().find(*state, tree.strip_prefix(outer).ok()?.as_os_str().as_bytes()), *is_named))
            }) {
                // Nothing is free because a bound took it away.
                Some((Match::Kept { .. }, _)) if further.contains(&tree) && !left.values().any(|of| *of == tree) => {
                    continue;
                }
                Some((Match::Kept { .. }, _)) => (State::FREE, true),
                // Below such a one.
                Some((Match::Open(state), is_named)) => (state, is_named && state.is_free()),
                None => (names().root(tree.as_os_str().as_bytes()), false),
            };
            places.push((tree.clone(), extent == Extent::Subtree));
            if extent == Extent::Entry {
                // Named as it is: granted, whatever it is called.
                places.push((path.clone(), false));
                let single = Root::single(path.clone(), state);
                roots.insert(path, Root { is_named: single.is_named || is_named, ..single });
            }
            granted.push((tree, state, is_named));
        }
        roots.extend(granted.into_iter().map(|(path, state, is_named)| {
            let (is_granted, is_single, is_left) = (true, false, false);
            let is_further = trees.contains(&path);
            (path.clone(), Root { path, state, is_granted, is_single, is_named, is_left, is_further })
        }));
        let mut roots: Vec<Root> = roots.into_values().collect();
        roots.sort_by_key(|root| std::cmp::Reverse(root.path.as_os_str().len()));
        Self { roots, places, beside }
    }
}

/// A tree that lies in what is granted is a part of that, and so is what was left of it. But where it has a protected name there, it
/// would free all that has this, and not the place alone.
fn in_what_is_granted<'g>(
    left: HashMap<PathBuf, PathBuf>,
    granted: impl Iterator<Item = &'g Path>,
) -> HashMap<PathBuf, PathBuf> {
    let granted: Vec<&Path> = granted.collect();
    let whole = |(place, tree): (&PathBuf, &PathBuf)| {
        let outer = granted.iter().filter(|outer| **outer != tree && lies_in(tree, outer));
        let Some(outer) = outer.min_by_key(|outer| outer.as_os_str().len()) else {
            return Some((place.clone(), tree.clone()));
        };
        let of_outer = left.iter().find(|(place, _)| place == outer).map(|(_, tree)| tree.as_path());
        let outer = of_outer.unwrap_or(outer);
        let found =
            names().find(names().root(outer.as_os_str().as_bytes()), below(&real(place), outer).as_os_str().as_bytes());
        matches!(found, Match::Open(_)).then(|| (place.clone(), outer.to_owned()))
    };
    left.iter().filter_map(whole).collect()
}

impl Keeper {
    /// Looks at the repositories that granted trees lie in. To be called before the session is confined.
    pub(super) fn look_above(plan: &SessionPlan, mounts: &Mounts) -> Result<SettingsAbove, StepFailure> {
        let Layout { roots, places, beside } = Layout::of(plan);
        let mut keeper = Self::of((roots, beside), homes(plan, &places), SettingsAbove::default());
        let linked_policy = keeper.keep_policy(plan)?;
        keeper.close(plan)?;
        let linked_closed = keeper.find_linked_closed();
        let trees = keeper.trees();
        for (tree, _) in &trees {
            tree.ancestors().for_each(|directory| keeper.look_for_repository(directory));
        }
        // From inside, what the session may not see leads nowhere: a link of the person's, or a file that settings include.
        let mut linked = None;
        if keeper.roots.iter().any(|root| root.is_granted && root.keeps()) {
            let places: Vec<GrantedTree<'_>> =
                places.iter().map(|(path, is_tree)| GrantedTree { path, is_tree: *is_tree }).collect();
            keeper.aliases = mounts.aliases(&places)?;
            keeper.look_at_all();
            linked = keeper.roots.iter().any(|root| root.is_further).then(|| keeper.find_linked_beside());
        }
        // Those outside of what is granted may have a name inside, which only a look from outside tells.
        if !linked_policy.is_empty() {
            linked.get_or_insert_default().files.extend(linked_policy);
        }
        let Self { repositories, ends, mut unseen, roots, .. } = keeper;
        if !keeper.closed.is_empty() {
            let linked = linked.get_or_insert_default();
            linked.files.extend(linked_closed.files);
            linked.more |= linked_closed.more;
        }
        // A name that the session may not read is not told to it.
        let reads = |place: &Path| {
            let mut readable = plan.grants.iter().filter(|rule| rule.access.reads_files());
            readable.any(|rule| lies_in(place, &real(rule.path.as_path())))
        };
        let tree_of =
            |place: &Path| roots.iter().rev().find(|root| lies_in(place, &root.path)).map(|root| root.path.clone());
        unseen.rename(|place| if reads(place) { None } else { tree_of(place) });
        Ok(SettingsAbove { repositories, ends, unseen, linked })
    }

    /// Keeps the files that the session's policy came from: a call that could change one would choose what the next session that
    /// is started with the same words may do. Returns those that have several names. Fails where a call could change one all the
    /// same, since somebody granted that.
    fn keep_policy(&mut self, plan: &SessionPlan) -> Result<Vec<(u64, u64)>, StepFailure> {
        let written = plan.grants.iter().filter(|rule| rule.access == FsAccess::Write);
        let by_kernel: Vec<PathBuf> = written.map(|rule| real(&reach(rule))).collect();
        let mut linked = Vec::new();
        for path in plan.protection.policy.kept.iter().map(|path| path.as_path()) {
            let refuse = |why: &str| {
                let what = format!("the policy came from {}, {why}; keep it elsewhere", path.display());
                Err(StepFailure::new(step::Step::Policy, what))
            };
            let several = fs::symlink_metadata(path).ok().filter(|stat| stat.is_file() && stat.nlink() > 1);
            if several.is_some() && !by_kernel.is_empty() {
                return refuse("which has a second name (a hard link), by which calls may be able to write it");
            }
            linked.extend(several.map(|stat| (stat.dev(), stat.ino())));
            if by_kernel.iter().any(|tree| lies_in(path, tree)) {
                return refuse("where calls may write, and nothing is protected");
            }
            match self.tree(path) {
                Some(root) if root.keeps() && root.path != path => {
                    if self.ends.insert(path.to_owned(), protect::POLICY) == KeepResult::Full {
                        return refuse("which is one more place than can be protected");
                    }
                }
                Some(root) if root.is_granted || root.path == path => {
                    return refuse("which calls may write, for that name was granted");
                }
                // The session's own, or not the broker's to write.
                Some(_) | None => {}
            }
        }
        for directory in plan.protection.policy.passed.iter().map(|path| path.as_path()) {
            let is_kept = |root: &Root| root.keeps() && root.path != directory;
            if self.tree(directory).is_some_and(is_kept) && self.ends.pass(directory.to_owned()) == KeepResult::Full {
                let what = format!(
                    "the policy came by way of {}, which is one more place than can be protected",
                    directory.display()
                );
                return Err(StepFailure::new(step::Step::Policy, what));
            }
        }
        Ok(linked)
    }

    /// Closes the places that rules close. Fails if there are too many.
    fn close(&mut self, plan: &SessionPlan) -> Result<(), StepFailure> {
        for closed in &plan.protection.closed {
            // It is told as long as the broker lives, which serves one session.
            let why: &'static str = closed.place.rule.clone().leak();
            let names = closed.names.iter().map(|name| self.closed.insert(name.as_path().to_owned(), why));
            let mut kept: Vec<KeepResult> = names.collect();
            kept.extend(closed.passed.iter().map(|passed| self.closed.pass(passed.as_path().to_owned())));
            if kept.contains(&KeepResult::Full) {
                let what = format!("{why}: there are too many places that rules close");
                return Err(StepFailure::new(step::Step::KeptNames, what));
            }
        }
        Ok(())
    }

    /// Files with several names in places that rules close: by another name they would be written all the same.
    fn find_linked_closed(&self) -> Linked {
        let mut linked = Linked { left: LookBudget::names(BOUNDS.names), ..Linked::default() };
        self.closed.paths().for_each(|closed| linked.collect(closed));
        linked
    }

    fn of(
        (roots, beside): (Vec<Root>, HashMap<PathBuf, Beside>),
        homes: BTreeSet<PathBuf>,
        above: SettingsAbove,
    ) -> Self {
        Self {
            homes,
            looked_before: false,
            roots,
            made: MadeFiles::default(),
            directories: MadeFiles::default(),
            linked: None,
            linked_before: above.linked,
            made_links: MadeFiles::default(),
            left: Vec::new(),
            unkept: Vec::new(),
            beside,
            aliases: Vec::new(),
            // From inside it is looked once more, before the first change: what somebody has made since is seen then.
            seen: Remembered::default(),
            repositories: above.repositories,
            planted: MadeFiles::default(),
            ends: above.ends,
            closed: Ends::default(),
            unseen: above.unseen,
            surveyed: false,
            states: Remembered::default(),
        }
    }

    pub(super) fn new(plan: &SessionPlan, mounts: &Mounts, above: SettingsAbove) -> Result<Self, StepFailure> {
        let Layout { roots, places, beside } = Layout::of(plan);
        let mut keeper = Self::of((roots, beside), homes(plan, &places), above);
        let places: Vec<GrantedTree<'_>> =
            places.iter().map(|(path, is_tree)| GrantedTree { path, is_tree: *is_tree }).collect();
        keeper.close(plan)?;
        keeper.looked_before = true;
        let unkept = plan.grants.iter().filter(|rule| rule.access == FsAccess::Write);
        keeper.unkept = unkept.map(|rule| real(rule.path.as_path())).collect();
        keeper.left = places.iter().filter(|place| place.is_tree).map(|place| place.path.to_owned()).collect();
        keeper.left.retain(|tree| keeper.roots.iter().all(|root| root.path != *tree));
        keeper.aliases = mounts.aliases(&places)?;
        // A tree may lie within one.
        for root in &mut keeper.roots {
            for repository in keeper.repositories.iter().filter(|repository| root.path.starts_with(repository)) {
                let below = root.path.strip_prefix(repository).unwrap_or(&root.path).as_os_str().as_bytes();
                if let Match::Open(state) = names().find(State::default().in_repository(), below)
                    && !root.state.is_free()
                {
                    root.state = root.state.and(state);
                }
            }
        }
        keeper.refuse_what_the_kernel_writes(plan, mounts, &places)?;
        Ok(keeper)
    }

    /// Landlock lets calls write trees of which nobody keeps any name, as well as what is mounted in them: none may be another
    /// place of a kept name.
    fn refuse_what_the_kernel_writes(
        &mut self,
        plan: &SessionPlan,
        mounts: &Mounts,
        kept: &[GrantedTree<'_>],
    ) -> Result<(), StepFailure> {
        let written: Vec<PathBuf> = plan
            .grants
            .iter()
            .filter(|rule| rule.access == FsAccess::Write)
            .map(|rule| real(rule.path.as_path()))
            .collect();
        let trees: Vec<GrantedTree<'_>> = written.iter().map(|path| GrantedTree { path, is_tree: true }).collect();
        let all: Vec<GrantedTree<'_>> = trees.iter().chain(kept).copied().collect();
        for alias in mounts.aliases(&all)? {
            let here = alias.local();
            if self.root(here).is_some() || !written.iter().any(|tree| lies_in(here, tree)) {
                continue;
            }
            let other = alias.other(Path::new("")).filter(|other| !written.iter().any(|tree| lies_in(other, tree)));
            let judged = other.as_ref().and_then(|other| self.judge_granted(other));
            let holds = |other: &PathBuf| self.roots.iter().any(|root| root.keeps() && lies_in(&root.path, other));
            let keeps = match (judged, alias.outside()) {
                _ if other.as_ref().is_some_and(holds) => true,
                (Some(judged), _) => judged.kept.is_some() || !judged.state.is_free(),
                (None, Match::Kept { .. }) => true,
                (None, Match::Open(state)) => state.is_begun(),
            };
            if keeps {
                let other = other.map(|other| format!(" ({})", other.display())).unwrap_or_default();
                let what = format!(
                    "{} is mounted from where names are kept{other}: unmount it, or do not grant it for writing",
                    here.display()
                );
                return Err(StepFailure::new(step::Step::KeptNames, what));
            }
        }
        Ok(())
    }

    /// The trees in which names are kept, and where they stand.
    fn trees(&self) -> Vec<(PathBuf, State)> {
        self.roots.iter().filter(|root| root.keeps()).map(|root| (root.path.clone(), root.state)).collect()
    }

    /// Looks for repositories and kept links in all trees, once. Before the first change: what is found then no call has made.
    fn look_at_all(&mut self) {
        if std::mem::replace(&mut self.surveyed, true) {
            return;
        }
        // What was left of a tree is a part of that, whatever it is; and a single name may be a directory's by now.
        let apart = |root: &&Root| !root.is_left && !root.is_single;
        let apart = self.roots.iter().filter(apart).map(|root| root.path.clone()).collect();
        // From inside there is nothing new to be seen where nothing may be written, and much that may not be read.
        let is_seen = |root: &&Root| {
            let holds = |place: &PathBuf| lies_in(place, &root.path);
            let granted =
                || self.roots.iter().filter(|root| root.is_granted && !root.is_further).map(|root| &root.path);
            !self.looked_before || !root.is_further || self.left.iter().chain(granted()).any(holds)
        };
        let trees = self.roots.iter().filter(|root| root.keeps()).filter(is_seen);
        let trees: Vec<(PathBuf, State)> = trees.map(|root| (root.path.clone(), root.state)).collect();
        survey(&trees, &apart, BOUNDS, self);
    }

    /// Places that were not looked at.
    pub(super) fn unseen(&self) -> &Unseen {
        &self.unseen
    }

    /// True if nothing is kept in this session.
    pub(super) fn is_idle(&self) -> bool {
        self.roots.is_empty()
    }

    fn root(&self, path: &Path) -> Option<&Root> {
        self.roots.iter().find(|root| lies_in(path, &root.path))
    }

    /// The tree from which it is judged what is kept at a path: that of a name that was left of it is not the name's own.
    fn tree(&self, path: &Path) -> Option<&Root> {
        self.roots.iter().filter(|root| !root.is_left).find(|root| lies_in(path, &root.path))
    }

    /// Judgement on a path. `None` where the broker is not the writer: Landlock judges there.
    pub(super) fn judge(&mut self, path: &Path) -> Option<Judgement> {
        let is_free = self.tree(path)?.state.is_free();
        if !is_free || !self.aliases.is_empty() {
            self.look_at_all();
        }
        let mut judgement = self.judge_name(path)?;
        if !self.aliases.is_empty() {
            let others: Vec<Judgement> =
                self.aliases.clone().iter().filter_map(|alias| self.judge_alias(path, alias)).collect();
            judgement = others.into_iter().fold(judgement, Judgement::and);
            // Where it is mounted from, and where, is known by its path.
            judgement.above |= self.aliases.iter().flat_map(AliasName::both).any(|place| lies_in(place, path));
        }
        Some(judgement)
    }

    /// Judgement on a path for another name that it has.
    fn judge_alias(&mut self, path: &Path, alias: &AliasName) -> Option<Judgement> {
        let rest = alias.rest(path)?;
        if let Some(judgement) = alias.other(rest).and_then(|other| self.judge_granted(&other)) {
            return Some(judgement);
        }
        let found = match alias.outside() {
            Match::Open(state) => names().find(state, rest.as_os_str().as_bytes()),
            kept @ Match::Kept { .. } => kept,
        };
        Some(match found {
            Match::Open(state) => Judgement { state, ..Judgement::default() },
            Match::Kept { group, depth, beneath } => {
                let repository = alias.local().join(rest.iter().take(depth.saturating_sub(1)).collect::<PathBuf>());
                let is_outside = matches!(alias.outside(), Match::Kept { .. });
                let own = !is_outside && self.has_made(&repository);
                Judgement { settings: false, ..Judgement::of(group, own, beneath || is_outside) }
            }
        })
    }

    /// Judgement on a path of the host's, if it was granted. (In a private `/tmp` it would be another file's.)
    fn judge_granted(&mut self, path: &Path) -> Option<Judgement> {
        self.root(path).filter(|root| root.is_granted)?;
        self.judge_name(path)
    }

    /// Judgement on a path for this name alone.
    fn judge_name(&mut self, path: &Path) -> Option<Judgement> {
        let judgement = self.judge_protected(path)?;
        Some(if self.closed.is_empty() { judgement } else { self.with_closed(judgement, path) })
    }

    /// A judgement on a path, with what rules close. No state makes that free, and whoever makes what lies there has it no more than others.
    fn with_closed(&self, mut judgement: Judgement, path: &Path) -> Judgement {
        if let Some(why) = self.closed.why(path) {
            judgement.kept = Some(why);
            judgement.settings = false;
        }
        judgement.above |= self.closed.at_or_below(path);
        judgement
    }

    /// Judgement on a path by the names that are protected.
    fn judge_protected(&mut self, path: &Path) -> Option<Judgement> {
        let root = self.root(path)?;
        let of_root =
            |judgement| Judgement { single: root.is_single, file: root.is_single && root.is_named, ..judgement };
        if path == root.path && !root.is_left {
            return Some(of_root(Judgement { state: root.state, ..Judgement::default() }));
        }
        let single = (path == root.path).then(|| of_root(Judgement::default()));
        let judgement = self.judge_in_tree(path)?;
        Some(match single {
            Some(of) => Judgement { single: of.single, file: of.file, ..judgement },
            None => judgement,
        })
    }

    /// Judgement on a path, from the tree that it lies in.
    fn judge_in_tree(&mut self, path: &Path) -> Option<Judgement> {
        let root = self.tree(path)?;
        let (top, start) = (root.path.clone(), root.state);
        let name = path.file_name().unwrap_or_default().as_bytes();
        let mut judgement = Judgement { state: start, ..Judgement::default() };
        if path == top {
            return Some(judgement);
        }
        let parent = path.parent().unwrap_or(path);
        if let Some((directory, beside)) = self.beside_of(path, &top) {
            let allows = parent == directory && path.file_name().is_some_and(|name| beside.allows(name));
            judgement.kept = (!allows).then_some(beside.reason);
            judgement.temporary = name.starts_with(TEMPORARY_PREFIX.as_bytes()).then_some(beside.reason);
            return Some(self.with_ends(judgement, path, start));
        }
        let known = self.states.get(parent);
        if !start.is_free() && known.is_none() {
            let below = path.ancestors().skip(1).take_while(|directory| lies_in(directory, &top));
            below.for_each(|directory| self.look_for_repository(directory));
        }
        let found = match known {
            Some(state) => match names().step(state, name) {
                NextName::Kept(group) => Match::Kept { group, depth: 0, beneath: false },
                NextName::Open(state) => Match::Open(self.state_of(path, state)),
            },
            None => self.find(&top, start, path),
        };
        match found {
            Match::Open(state) => {
                judgement.state = state;
                judgement.pointer = !state.is_free() && protect::is_git(name);
                judgement.above |= self.roots.iter().any(|root| root.path != path && lies_in(&root.path, path));
                if known.is_none() {
                    self.remember(&top, start, parent);
                }
            }
            Match::Kept { group, depth, beneath } => {
                let repository = if depth == 0 {
                    parent.to_owned()
                } else {
                    let below = path.strip_prefix(&top).unwrap_or(path).components().take(depth - 1);
                    top.join(below.collect::<PathBuf>())
                };
                judgement = Judgement { state: start, ..Judgement::of(group, self.has_made(&repository), beneath) };
            }
        }
        Some(self.with_ends(judgement, path, start))
    }

    /// A judgement on a path, with what is kept because something leads there.
    fn with_ends(&self, mut judgement: Judgement, path: &Path, start: State) -> Judgement {
        if self.ends.is_empty() || start.is_free() {
            return judgement;
        }
        if let Some(why) = self.ends.why(path) {
            judgement.kept = Some(why);
            judgement.settings = false;
        }
        // Under that name git writes the settings that a link or an `include.path` leads to.
        judgement.temporary = judgement.temporary.or_else(|| self.ends.why_of_lock(path));
        judgement.above |= self.ends.at_or_below(path);
        judgement
    }

    /// The kept directory of single files that a path lies in, if no tree in that is granted with it.
    fn beside_of(&self, path: &Path, top: &Path) -> Option<(&Path, &Beside)> {
        let lies = |directory: &Path| lies_in(path, directory) && lies_in(directory, top);
        let (directory, beside) = self.beside.iter().find(|(directory, _)| lies(directory))?;
        Some((directory, beside))
    }

    /// The state of a directory, so that the next name in it is found in one step.
    fn remember(&mut self, top: &Path, start: State, directory: &Path) {
        if let Match::Open(state) = self.find(top, start, directory) {
            self.states.insert(directory, state);
        }
    }

    /// Result of a path in a tree: by names, and by the repositories that it lies in.
    fn find(&self, top: &Path, start: State, path: &Path) -> Match {
        let below = path.strip_prefix(top).unwrap_or(path);
        if self.repositories.is_empty() || start.is_free() {
            return names().find(start, below.as_os_str().as_bytes());
        }
        let (mut at, mut state) = (top.to_owned(), self.state_of(top, start));
        let mut components = below.components();
        let mut depth = 0;
        while let Some(name) = components.next() {
            depth += 1;
            at.push(name);
            match names().step(state, name.as_os_str().as_bytes()) {
                NextName::Kept(group) => return Match::Kept { group, depth, beneath: components.next().is_some() },
                NextName::Open(next) => state = self.state_of(&at, next),
            }
        }
        Match::Open(state)
    }

    /// The state of what has a path, which has this one by names alone.
    fn state_of(&self, path: &Path, state: State) -> State {
        let unknown = self.repositories.len() >= REPOSITORIES;
        let is = self.repositories.contains(path) || (unknown && self.is_repository(path));
        if is && !state.is_free() { state.in_repository() } else { state }
    }

    /// True if this is a repository that no call of this session has made.
    fn is_repository(&self, directory: &Path) -> bool {
        planted::is_repository(directory) && !self.planted.has(CWD, directory) && !self.made.has(CWD, directory)
    }

    /// A call has changed this just now. If that has made, or changed, a repository that is the call's: where it is.
    pub(super) fn own_repository(&mut self, path: &Path) -> Option<PathBuf> {
        let directory = planted::may_be_repository(path)?;
        let opened = reached(directory).filter(planted::is_repository_at)?;
        let root = self.root(directory)?;
        let (top, start) = (root.path.clone(), root.state);
        if self.repositories.contains(directory) {
            return None;
        }
        // Below `.git`, and what it names.
        let begun = matches!(self.find(&top, start, directory), Match::Open(state) if state.is_begun());
        if begun && !self.has_made(directory) {
            return None;
        }
        self.planted.add(opened);
        Some(directory.to_owned())
    }

    fn has_made(&self, path: &Path) -> bool {
        self.made.has(CWD, path)
    }

    /// A call has made this file just now, by opening it.
    pub(super) fn was_opened(&mut self, file: &OwnedFd, judgement: &Judgement) {
        if judgement.temporary.is_some() {
            self.made.add(file);
        }
    }

    /// Forgets what a call has made that is gone, or has a name now under which it is of no account.
    pub(super) fn forget(&mut self, gone: Option<FileIdentity>) {
        if let Some(identity) = gone {
            self.made.forget(identity);
            self.directories.forget(identity);
        }
    }

    /// True if anything is remembered that a call has made; with directories or without.
    pub(super) fn has_made_any(&self, with_directories: bool) -> bool {
        !self.made.is_empty() || (with_directories && !self.directories.is_empty())
    }

    /// A call has made this directory just now, and not before `since`: another session may have put another in its place.
    pub(super) fn was_made_directory(
        &mut self,
        (from, name): (BorrowedFd<'_>, &CStr),
        judgement: &Judgement,
        since: Timespec,
    ) {
        if judgement.is_free() {
            return;
        }
        let is_new = |made: &OwnedFd| {
            let known = made::identity(made, c"");
            known
                .is_some_and(|(.., at)| at.is_none_or(|at| at >= (since.tv_sec, since.tv_nsec.try_into().unwrap_or(0))))
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Some(made) = rustix::fs::openat(from, name, flags, Mode::empty()).ok().filter(is_new) {
            self.directories.add(made);
        }
    }

    /// True if a call of this session has made the directory that has a name.
    pub(super) fn has_made_directory(&self, (from, name): (BorrowedFd<'_>, &CStr)) -> bool {
        self.directories.has(from, name)
    }

    /// Reason why a symbolic link may not lead there, if so: into a directory in which nothing is protected by name, so
    /// that below the link anything can be. What counts is the text: each way into such a directory has its name in a
    /// link or is typed by a person. Case does not count, since a file system may ignore it. Where a path leads that
    /// does not begin at the link is not asked, for the same directory may have other names; only the system's own
    /// trees and the session's are known.
    pub(super) fn closes_to_target(&self, place: &Path, judgement: &Judgement, target: &CStr) -> Option<&'static str> {
        if judgement.is_free() && self.is_anything(place) {
            return None;
        }
        let target = Path::new(OsStr::from_bytes(target.to_bytes()));
        if leads_to_a_process(target) {
            return Some("it leads to what only a process has (/proc/PID, the session's own directory)");
        }
        let climbs = target.components().any(|part| part == Component::ParentDir);
        let known = self.roots.iter().filter(|root| root.keeps() && !climbs);
        let below = known.filter_map(|root| target.strip_prefix(&root.path).ok()).next().unwrap_or(target);
        let named = self.roots.iter().filter(|root| root.is_named && !root.is_single);
        let trees = named.map(|root| root.path.as_path()).chain(self.unkept.iter().map(PathBuf::as_path));
        let free: Vec<&OsStr> = trees.filter_map(Path::file_name).chain(FREE.iter().map(OsStr::new)).collect();
        if !below.iter().any(|part| free.iter().any(|free| part.eq_ignore_ascii_case(free))) {
            return None;
        }
        let mut ours =
            self.roots.iter().map(|root| root.path.as_path()).chain(self.unkept.iter().map(PathBuf::as_path));
        let is_ours = ours.any(|root| target.starts_with(root));
        let is_the_systems = !climbs && !is_ours && is_the_systems(target);
        (!is_the_systems).then_some("it leads to where names are not protected (node_modules, target)")
    }

    /// True if what lies at one place and may lead anywhere would come to where that is not so, though nothing is kept there
    /// either: in a tree that is granted by a protected name.
    pub(super) fn leads_in(&self, from: &Path, to: &Path) -> bool {
        self.is_anything(from) && !self.is_anything(to)
    }

    /// True if this lies where anything may be, whatever it is called: in the session's own directories, or below one
    /// of the names of [`FREE`]; not only in what was granted by a protected name.
    fn is_anything(&self, place: &Path) -> bool {
        let is_free = |part: &OsStr| FREE.iter().any(|free| part == *free);
        self.root(place).is_none_or(|root| !root.is_named || below(place, &root.path).iter().any(is_free))
    }

    /// A call has made this just now. True if it is called as a repository, or says where one is.
    pub(super) fn was_made(&mut self, path: &Path, judgement: &Judgement) -> bool {
        if let (Some(name), Some(directory)) = (path.file_name(), path.parent().and_then(reached))
            && (judgement.pointer || (judgement.state.is_begun() && is_directory(&directory, name)))
        {
            self.made.add_at(directory, name);
        }
        judgement.pointer
    }

    /// Reason why nothing may be made under this name, if so.
    pub(super) fn closes_to_new(&self, judgement: &Judgement, what: MadeKind) -> Option<&'static str> {
        match what {
            _ if judgement.kept.is_some() => judgement.kept,
            // In a directory of that name nothing would be kept, and a link would be another name of one.
            MadeKind::Link | MadeKind::Directory if judgement.file => Some("it was granted as a file"),
            MadeKind::Link | MadeKind::File | MadeKind::Directory if judgement.temporary.is_some() => {
                judgement.temporary
            }
            // What lies beneath would be looked for where the link leads.
            MadeKind::Link if judgement.state.is_begun() || judgement.above => {
                Some("kept names are looked for below it")
            }
            MadeKind::Link | MadeKind::File | MadeKind::Opened if judgement.above => {
                Some("kept names are looked for below it")
            }
            MadeKind::Link | MadeKind::File | MadeKind::Opened | MadeKind::Directory => None,
        }
    }

    /// Reason why what has this name may not be changed, moved, replaced or removed, if so. `is_dir` of what is there.
    /// With an empty name, of the descriptor itself.
    pub(super) fn closes(
        &self,
        (from, name): (BorrowedFd<'_>, &CStr),
        judgement: &Judgement,
        is_dir: bool,
    ) -> Option<&'static str> {
        let pointer = (judgement.pointer && !is_dir).then_some("it says where git finds the repository");
        judgement.kept.or_else(|| pointer.or(judgement.temporary).filter(|_| !self.made.has(from, name)))
    }

    /// Reason why a file with several names may not be changed, if so: one of them is kept (A3).
    pub(super) fn closes_linked(&mut self, file: &OwnedFd) -> Option<&'static str> {
        let Ok(stat) = rustix::fs::fstat(file) else { return Some("it cannot be looked at") };
        let linked = self.linked.take().unwrap_or_else(|| self.find_linked());
        let both = || std::iter::once(&linked).chain(&self.linked_before);
        let is_kept = both().any(|linked| linked.files.contains(&(stat.st_dev, stat.st_ino)));
        let more = both().any(|linked| linked.more);
        self.linked = Some(linked);
        let is_calls = || self.made_links.has(file, c"");
        if is_kept {
            Some("it is another name of a file that is kept")
        } else if more && !is_calls() {
            Some("it has another name, which may be kept: not every directory can be looked into")
        } else {
            None
        }
    }

    fn find_linked(&self) -> Linked {
        let mut linked = Linked { left: LookBudget::names(BOUNDS.names), ..Linked::default() };
        let mut left = linked.left;
        let own = self.roots.iter().filter(|root| !root.is_further);
        let roots = own.map(|root| (root.path.as_path(), Match::Open(root.state)));
        let parts = self.left.iter().filter_map(|place| {
            let root = self.tree(place)?;
            Some((place.as_path(), names().find(root.state, below(place, &root.path).as_os_str().as_bytes())))
        });
        let aliases = self.aliases.iter().map(|alias| (alias.local(), alias.outside()));
        for (path, found) in roots.chain(parts).chain(aliases) {
            let state = match found {
                Match::Open(state) => state,
                Match::Kept { .. } => {
                    linked.collect(path);
                    continue;
                }
            };
            let whole = self.walk(path, state, &mut left, &mut |path| {
                linked.collect(path);
                false
            });
            linked.more |= whole.is_err();
        }
        self.ends.paths().chain(self.closed.paths()).for_each(|kept| linked.collect(kept));
        linked
    }

    /// Linked files in what was asked for and not granted, which the session does not see. What is there is found as
    /// far as it is quickly, as in the look for repositories, and the rest is no reason to refuse what was granted.
    fn find_linked_beside(&mut self) -> Linked {
        let until = Some(Instant::now() + BOUNDS.time);
        let mut linked = Linked { left: LookBudget { until, ..LookBudget::names(BOUNDS.names) }, ..Linked::default() };
        let mut left = linked.left;
        let mut cut = Vec::new();
        for root in self.roots.iter().filter(|root| root.is_further) {
            let whole = self.walk(&root.path, root.state, &mut left, &mut |path| {
                linked.collect(path);
                false
            });
            if whole.is_err() && left.is_spent || linked.left.is_spent {
                cut.push(root.path.clone());
            }
        }
        self.ends.paths().for_each(|kept| linked.collect(kept));
        cut.iter().for_each(|tree| self.unseen.add(tree, LINKED_BESIDE));
        Linked { more: false, ..linked }
    }

    /// A call has given a file that had one name another.
    pub(super) fn was_linked(&mut self, file: &OwnedFd) {
        self.made_links.add(file);
    }

    /// Reason why a directory may not be moved away, if so: with it would go what is kept in it (A4).
    pub(super) fn holds(&mut self, path: &Path, judgement: &Judgement) -> Option<&'static str> {
        // A tree that is granted by itself: its rules are bound to where it is.
        if judgement.above || self.roots.iter().any(|root| lies_in(&root.path, path)) {
            return Some("kept names lie below it");
        }
        if judgement.state.is_free() {
            return None;
        }
        let mut left = LookBudget::names(BOUNDS.names);
        match self.walk(path, judgement.state, &mut left, &mut |_kept| true) {
            Ok(false) => None,
            Ok(true) => Some("kept names lie below it"),
            Err(_unreadable) => Some("what lies below it cannot be looked at"),
        }
    }

    /// Visits what is kept below a directory, until told to stop. Fails if it was not, and something could not be looked at.
    /// `left` is how much is looked at.
    fn walk(
        &self,
        top: &Path,
        state: State,
        left: &mut LookBudget,
        stop: &mut dyn FnMut(&Path) -> bool,
    ) -> std::io::Result<bool> {
        let mut pending = vec![(top.to_owned(), state)];
        let mut failed = Ok(false);
        while let Some((directory, state)) = pending.pop() {
            match self.walk_one((&directory, state), &mut pending, left, stop) {
                Ok(false) => {}
                Ok(true) => return Ok(true),
                Err(e) if left.is_spent => return Err(e),
                Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {}
                Err(e) => failed = Err(e),
            }
        }
        failed
    }

    fn walk_one(
        &self,
        (directory, state): (&Path, State),
        pending: &mut Vec<(PathBuf, State)>,
        left: &mut LookBudget,
        stop: &mut dyn FnMut(&Path) -> bool,
    ) -> std::io::Result<bool> {
        let bare = !state.is_free() && (self.repositories.contains(directory) || self.is_repository(directory));
        let state = if bare { state.in_repository() } else { state };
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            left.take_one()?;
            let name = entry.file_name();
            match names().step(state, name.as_bytes()) {
                // It goes with its directory, and is its maker's there.
                NextName::Kept(NameGroup { guard: NameGuard::Temporary, .. }) => {}
                NextName::Kept(group) => {
                    let own = group.guard != NameGuard::Closed && self.has_made(directory);
                    if !own && stop(&entry.path()) {
                        return Ok(true);
                    }
                }
                NextName::Open(below) if below.is_free() => {}
                NextName::Open(below) if entry.file_type()?.is_dir() => pending.push((entry.path(), below)),
                NextName::Open(_) => {
                    let pointer = protect::is_git(name.as_bytes()) && !self.has_made(&entry.path());
                    if pointer && stop(&entry.path()) {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Reads where the settings of the repository in a directory lead, and of one that it is itself, if no call has made them.
    fn look_for_repository(&mut self, directory: &Path) {
        if self.seen.get(directory).is_some() {
            return;
        }
        self.seen.insert(directory, ());
        let is_git = protect::is_git(directory.file_name().unwrap_or_default().as_bytes());
        if !is_git && self.is_repository(directory) {
            self.keep_repository(directory, directory);
        }
        let git = directory.join(".git");
        if fs::symlink_metadata(&git).is_ok() && !self.has_made(&git) {
            self.follow_pointer(git, directory);
        }
    }

    /// Keeps the repository that a `.git` is or leads to: it may be a directory, a file that names one, or a link to either.
    fn follow_pointer(&mut self, mut pointer: PathBuf, worktree: &Path) {
        for _ in 0..POINTERS {
            let found = self.redirect_links(&pointer);
            match fs::symlink_metadata(&found) {
                Ok(stat) if stat.is_dir() => return self.keep_repository(&found, worktree),
                Ok(stat) if stat.is_file() => {
                    if found != pointer {
                        self.redirect(&found);
                    }
                    pointer = pointed_to(found.parent().unwrap_or(worktree), &found);
                }
                // What is made there would be believed.
                Ok(_) | Err(_) => return self.redirect(&found),
            }
        }
    }

    /// Keeps what git reads and runs in a repository, whatever that is called, and what its settings lead to.
    fn keep_repository(&mut self, git: &Path, worktree: &Path) {
        let common = git.join("commondir");
        let common = settings(&common).map(|text| git.join(OsStr::from_bytes(text.trim_ascii())));
        let mut places = vec![git.to_owned()];
        if let Some(common) = common {
            places.push(self.redirect_links(&common));
        }
        for place in &places {
            let named = names().step(State::default(), place.file_name().unwrap_or_default().as_bytes());
            let is_named = matches!(named, NextName::Open(state) if state == state.in_repository());
            let room = self.repositories.len() < REPOSITORIES;
            if !is_named && room && self.repositories.insert(place.clone()) {
                // What was said of what lies in it was said without knowing.
                (self.states, self.linked) = (Remembered::default(), None);
            }
        }
        for place in &places {
            self.keep_ends(place);
        }
        let files = places.iter().flat_map(|place| ["config", "config.worktree"].map(|name| place.join(name)));
        self.follow(files, worktree);
    }

    /// Keeps where a repository's settings and hooks lead that are symbolic links.
    fn keep_ends(&mut self, repository: &Path) {
        for name in ["config", "config.worktree", "hooks"] {
            let path = repository.join(name);
            if fs::symlink_metadata(&path).is_ok_and(|stat| stat.is_symlink()) {
                self.redirect(&path);
            }
        }
        self.keep_ends_of_hooks(&repository.join("hooks"));
    }

    /// Keeps where the links in a directory of hooks lead.
    fn keep_ends_of_hooks(&mut self, hooks: &Path) {
        let mut entries = fs::read_dir(hooks).into_iter().flatten().flatten();
        let is_link = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
        let links: Vec<PathBuf> = entries.by_ref().take(REDIRECTS).filter(is_link).map(|entry| entry.path()).collect();
        if entries.next().is_some() {
            self.unseen.add(hooks, LEADS_FURTHER);
        }
        links.iter().for_each(|link| self.redirect(link));
    }

    /// Keeps what files of settings lead to, the nearest first and each file once: they may include each other. No call can write
    /// what is followed here, so whoever has made more than is followed has made settings that run programs.
    fn follow(&mut self, files: impl Iterator<Item = PathBuf>, worktree: &Path) {
        let mut pending: VecDeque<(PathBuf, usize)> = files.map(|file| (file, INCLUDES)).collect();
        let mut seen = HashSet::new();
        let mut left = REDIRECTS;
        while let Some((file, depth)) = pending.pop_front() {
            if !seen.insert(file.clone()) {
                continue;
            }
            for (kind, value) in self.redirects(&file) {
                let base = match kind {
                    ValueBase::FromWorktree => worktree,
                    ValueBase::FromFile => file.parent().unwrap_or(worktree),
                };
                for target in self.meant(base, &value) {
                    // Nobody can open a longer one.
                    if target.as_os_str().len() >= libc::PATH_MAX as usize {
                        continue;
                    }
                    if left == 0 {
                        return self.unseen.add(&file, LEADS_FURTHER);
                    }
                    left -= 1;
                    self.redirect(&target);
                    match kind {
                        ValueBase::FromWorktree => self.keep_ends_of_hooks(&target),
                        ValueBase::FromFile if depth > 0 => pending.push_back((target, depth - 1)),
                        ValueBase::FromFile => self.unseen.add(&file, LEADS_FURTHER),
                    }
                }
            }
        }
    }

    /// Redirects of a file of settings.
    fn redirects(&mut self, file: &Path) -> Vec<(ValueBase, Vec<u8>)> {
        let text = settings(file).filter(|text| gitconfig::parse(text).is_ok());
        let Some(text) = text else {
            // One that lies outside the user cannot read either, or the session may not know.
            if self.root(file).is_some() && fs::symlink_metadata(file).is_ok() {
                self.unseen.add(file, UNREADABLE);
            }
            return Vec::new();
        };
        gitconfig::redirects(&text)
    }

    /// The paths that a value may mean.
    fn meant(&self, base: &Path, value: &[u8]) -> Vec<PathBuf> {
        let Some(rest) = value.strip_prefix(b"~") else { return vec![base.join(OsStr::from_bytes(value))] };
        let Some(slash) = rest.iter().position(|c| *c == b'/') else { return Vec::new() };
        let below = OsStr::from_bytes(rest.get(slash + 1..).unwrap_or_default());
        let above = base.ancestors().filter(|above| !self.homes.contains(*above));
        let targets = self.homes.iter().map(PathBuf::as_path).chain(above).map(|home| home.join(below));
        // What lies in no tree is no call's to change.
        targets.filter(|target| self.root(&trace(target).1).is_some()).collect()
    }

    /// Keeps a path, the links on the way to it, and where they lead.
    fn redirect(&mut self, target: &Path) {
        let end = self.redirect_links(target);
        self.keep(end, LED_BY_GIT);
    }

    /// Keeps the links on the way to a path. Returns where they lead.
    fn redirect_links(&mut self, target: &Path) -> PathBuf {
        let (links, end) = trace(target);
        for link in links {
            self.keep(link, LED_BY_GIT);
        }
        end
    }

    /// Keeps a path. True if it was not kept yet.
    fn keep(&mut self, path: PathBuf, why: &'static str) -> bool {
        // What lies outside is not the broker's to write; a whole tree is not a hook.
        let Some(root) = self.tree(&path).filter(|root| root.keeps()) else { return false };
        let holds = |outer: &Root| outer.keeps() && outer.path != path && lies_in(&path, &outer.path);
        // Where one begins for the look alone, it is a part of the tree that it lies in.
        if root.path == path && !(root.is_further && self.roots.iter().any(holds)) {
            self.unseen.add(&path, WHOLE_TREE);
            return false;
        }
        let top = root.path.clone();
        match self.ends.insert(path, why) {
            KeepResult::Now => {
                // What was said of files with several names was said without knowing.
                self.linked = None;
                true
            }
            KeepResult::Already => false,
            KeepResult::Full => {
                self.unseen.add(&top, LEADS_FURTHER);
                false
            }
        }
    }
}

impl survey::Finds for Keeper {
    fn repository(&mut self, directory: &Path) {
        self.look_for_repository(directory);
    }

    fn link(&mut self, link: &Path) -> Option<PathBuf> {
        let (links, end) = trace(link);
        for other in links.into_iter().skip(1) {
            self.keep(other, LED_BY_A_LINK);
        }
        let root = self.root(&end)?;
        match self.find(&root.path, root.state, &end) {
            Match::Open(state) if !state.is_free() => {}
            // In a directory in which nothing is kept, or kept by its name.
            Match::Open(_) | Match::Kept { .. } => return None,
        }
        (self.keep(end.clone(), LED_BY_A_LINK) && is_directory(CWD, &end)).then_some(end)
    }

    fn unseen(&mut self, place: &Path, why: &'static str) {
        self.unseen.add(place, why);
    }
}

/// Kind of thing to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MadeKind {
    /// A regular file that an opening makes: nobody has it open, and it has no other name.
    Opened,
    /// Any other, but for these.
    File,
    Directory,
    /// A symbolic one.
    Link,
}

impl Judgement {
    /// Judgement on a name of a group, or on what lies beneath one. `own` if calls of this session have made what it
    /// lies in.
    fn of(group: &'static NameGroup, own: bool, beneath: bool) -> Self {
        let reason = (!own || group.guard == NameGuard::Closed).then_some(group.reason);
        let (kept, temporary) = match group.guard {
            NameGuard::Temporary if !beneath => (None, reason),
            NameGuard::Closed | NameGuard::Repository | NameGuard::GitConfig | NameGuard::Temporary => (reason, None),
        };
        let settings = reason.is_some() && group.guard == NameGuard::GitConfig && !beneath;
        Self { kept, temporary, settings, ..Self::default() }
    }

    /// Judgement on what has two names: kept under either is kept.
    fn and(self, other: Self) -> Self {
        let settings = match (self.kept, other.kept) {
            (Some(_), Some(_)) => self.settings && other.settings,
            (None, _) => other.settings,
            (_, None) => self.settings,
        };
        Self {
            state: self.state.and(other.state),
            kept: self.kept.or(other.kept),
            settings,
            temporary: self.temporary.or(other.temporary),
            single: self.single,
            file: self.file || other.file,
            pointer: self.pointer || other.pointer,
            above: self.above || other.above,
        }
    }

    /// True if this is settings that may be replaced by others.
    pub(super) fn is_settings(&self) -> bool {
        self.settings
    }

    /// True if something that is kept may be beneath.
    pub(super) fn is_above(&self) -> bool {
        self.above
    }

    /// True if nothing below it is kept, whatever it is called.
    pub(super) fn is_free(&self) -> bool {
        self.state.is_free()
    }

    /// True if it is a file that only the session that made it may change.
    pub(super) fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    /// True if what has this name may be given that one: below both the same names are kept, or none below that one.
    /// What lies in it need not be known then, which another session could change, as it could put a directory in a
    /// file's place. A temporary file is its maker's alone; what is granted as a single file, whatever it is called, is
    /// believed for its name.
    pub(super) fn may_become(&self, other: &Self, what: MadeKind) -> bool {
        let keeps_no_more = self.state == other.state || other.state.is_free();
        keeps_no_more || (what == MadeKind::File && (self.is_temporary() || self.single || other.single))
    }

    /// True if it is the name of a file that was granted alone.
    pub(super) fn is_single(&self) -> bool {
        self.single
    }

    /// True if it is called `.git`.
    pub(super) fn is_pointer(&self) -> bool {
        self.pointer
    }
}

impl Linked {
    /// The files with several names at or below a path.
    fn collect(&mut self, path: &Path) {
        let mut pending = vec![path.to_owned()];
        while let Some(path) = pending.pop() {
            let looked = fs::symlink_metadata(&path).and_then(|stat| {
                if stat.is_dir() {
                    for entry in fs::read_dir(&path)? {
                        self.left.take_one()?;
                        pending.push(entry?.path());
                    }
                } else if stat.nlink() > 1 {
                    self.files.insert((stat.dev(), stat.ino()));
                }
                Ok(())
            });
            self.more |= looked.is_err_and(|e| e.kind() != std::io::ErrorKind::NotFound);
        }
    }
}

/// The repository that a `.git` file names.
fn pointed_to(directory: &Path, pointer: &Path) -> PathBuf {
    let text = settings(pointer).unwrap_or_default();
    let named = text.strip_prefix(b"gitdir:").unwrap_or_default().trim_ascii();
    directory.join(OsStr::from_bytes(named))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A18: each link of a chain is one that could be replaced, and where the last leads something could be made.
    #[test]
    fn a18_links_are_followed_as_the_kernel_does() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let top = real(directory.path());
        fs::create_dir_all(top.join("a/b"))?;
        for (link, to) in [("one", "a/two"), ("a/two", "b/../../three"), ("three", "gone/x"), ("round", "round")] {
            std::os::unix::fs::symlink(to, top.join(link))?;
        }
        let found = trace(&top.join("a/b/../../one/y"));
        assert_eq!(found, (["one", "a/two", "three"].map(|name| top.join(name)).to_vec(), top.join("gone/x/y")));
        assert_eq!(trace(&top.join("round")).1, top.join("round"));
        let long = trace(&top.join("x/".repeat(500_000))).1;
        assert!(long.as_os_str().len() <= libc::PATH_MAX as usize + "x/".len(), "{}", long.as_os_str().len());
        Ok(())
    }

    /// A18: another session can put a link on the way to what a call has just made; what that leads to is not the call's.
    #[test]
    fn a18_what_a_call_has_made_is_not_looked_for_through_a_link() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let top = real(directory.path());
        fs::create_dir_all(top.join("theirs/.git"))?;
        std::os::unix::fs::symlink("theirs", top.join("link"))?;
        let mut keeper = Keeper::of((Vec::new(), HashMap::new()), BTreeSet::new(), SettingsAbove::default());
        let git = Judgement { pointer: true, ..Judgement::default() };
        keeper.was_made(&top.join("link/.git"), &git);
        assert!(!keeper.has_made(&top.join("theirs/.git")));
        keeper.was_made(&top.join("theirs/.git"), &git);
        assert!(keeper.has_made(&top.join("theirs/.git")), "the control");
        Ok(())
    }

    /// A walk over what calls have made ends, and what it has not seen is as if it were kept.
    #[test]
    fn a3_a4_looks_at_trees_are_bounded() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let top = real(directory.path());
        for name in ["a/b", "c", "d"] {
            fs::create_dir_all(top.join(name))?;
        }
        let keeper = Keeper::of((Vec::new(), HashMap::new()), BTreeSet::new(), SettingsAbove::default());
        let walk = |left| keeper.walk(&top, State::default(), &mut LookBudget::names(left), &mut |_kept| true).ok();
        assert_eq!((walk(4), walk(3), walk(0)), (Some(false), None, None));
        let more = |left| {
            let mut linked = Linked { left: LookBudget::names(left), ..Linked::default() };
            linked.collect(&top);
            linked.more
        };
        assert_eq!((more(4), more(3)), (false, true));
        Ok(())
    }

    #[test]
    fn a18_what_is_remembered_of_directories_is_bounded_by_their_bytes() {
        let mut remembered = Remembered::default();
        let (mut last, mut most, mut begun) = (0, 0, 0);
        for number in 0_u32..20_000 {
            let path = PathBuf::from(format!("/{}/{number}", "long/".repeat(800)));
            remembered.insert(&path, number);
            assert_eq!(remembered.get(&path), Some(number));
            begun += u32::from(remembered.bytes < last);
            last = remembered.bytes;
            most = most.max(last);
        }
        assert!((REMEMBERED / 2..=REMEMBERED).contains(&most), "{most}");
        assert!(begun > 0, "the control: it was too much");
        let before = remembered.bytes;
        remembered.insert(Path::new("/a"), 1);
        remembered.insert(Path::new("/a"), 2);
        assert_eq!(
            (remembered.get(Path::new("/a")), remembered.bytes),
            (Some(2), before + 2 + 2 * size_of::<(OsString, u32)>())
        );
    }
}
