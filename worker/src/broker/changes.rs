//! Changes of a call where the broker is the writer, for its result.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::ops::Bound;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_policy::envelope::{Blocked, Carried, Changes, NotReached, Note};
use callgate_policy::plan::protect::gitconfig;
use callgate_policy::plan::protect::later::{self, FormerHolder, Later};
use callgate_policy::plan::{FsRule, SessionPlan};

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags};

use super::ends::Unseen;
use super::paths::{lies_in, real};
use super::planted;
use super::settings::settings;
use crate::apply::landlock::reach;
use crate::protocol::notice;

/// Most names of each kind that are kept for the result; the rest is counted.
const NAMES: usize = 1000;
/// Most bytes of those.
const KEPT: usize = 128 * 1024;
/// Most addresses that are kept, and most bytes of them.
const ADDRESSES: usize = 32;
const ADDRESS_BYTES: usize = 3 * 1024;
/// Most names of what goes with the session.
const VANISHED: usize = 16;
/// Most bytes of those.
const VANISHED_BYTES: usize = 2 * 1024;
/// Most names that are looked at below a directory that has come to another name.
const BELOW: usize = 4096;
/// Reason that is given where there are more.
const TOO_MANY: &str = "it holds too many names to be looked at: some of them may run later";
/// Most bytes of names, and of notes, that a result's frame has room for.
const BYTES: usize = 10 * 1024;

/// Where the supervisor sees, without asking, whether a call has changed anything: most have not. A file in memory of one
/// word for each call that runs, by the number of its worker; what is written there was so before the call's next answer.
pub(super) struct ChangeNotices(OwnedFd);

impl ChangeNotices {
    pub(super) fn new() -> std::io::Result<Self> {
        notice::make().map(Self)
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// A worker's call has something to report. `runs` tells of another worker, whose word it might be.
    pub(super) fn put(&self, worker: u64, runs: impl FnOnce(u64) -> bool) -> rustix::io::Result<()> {
        let (at, mine) = notice::of(worker);
        let mut word = [0; 8];
        rustix::io::pread(&self.0, &mut word, at)?;
        let other = notice::worker(u64::from_ne_bytes(word)).filter(|other| *other != worker && runs(*other));
        let word = if other.is_some() || u64::from_ne_bytes(word) == notice::SEVERAL { notice::SEVERAL } else { mine };
        rustix::io::pwrite(&self.0, &word.to_ne_bytes(), at).map(drop)
    }

    /// It has been reported. A word of several stays.
    pub(super) fn take_back(&self, worker: u64) -> rustix::io::Result<()> {
        let (at, mine) = notice::of(worker);
        let mut word = [0; 8];
        rustix::io::pread(&self.0, &mut word, at)?;
        if u64::from_ne_bytes(word) == mine {
            rustix::io::pwrite(&self.0, &[0; 8], at)?;
        }
        Ok(())
    }
}

/// Places of the session's own, which go with it: nobody outside will find what lies there (`TMPDIR`, a `/tmp` of its own).
#[derive(Debug, Default)]
pub(super) struct Own {
    own: Vec<PathBuf>,
    /// The session's directory, with `TMPDIR` in it.
    private: PathBuf,
    /// Granted, and seen by everybody, also within one of the above.
    granted: Vec<PathBuf>,
}

impl Own {
    pub(super) fn of(plan: &SessionPlan) -> Self {
        let trees = |rules: &[FsRule]| {
            rules.iter().filter(|rule| rule.access.changes()).map(|rule| real(&reach(rule))).collect()
        };
        let private = real(plan.private.inside.as_path());
        Self { own: trees(&plan.surroundings), private, granted: trees(&plan.grants) }
    }

    /// The inner of two trees says whose a path is.
    fn has(&self, path: &Path) -> bool {
        let innermost = |trees: &[PathBuf]| {
            trees.iter().filter(|tree| lies_in(path, tree)).map(|tree| tree.as_os_str().len()).max()
        };
        innermost(&self.own) > innermost(&self.granted)
    }

    /// True if something of the session's own has the name of a place that others see as well, so that a person may
    /// look for it there. What is made below `TMPDIR` is known to be temporary.
    fn looks_shared(&self, path: &Path) -> bool {
        path.starts_with("/tmp") && !lies_in(path, &self.private)
    }
}

/// As many of one kind as are kept: a call chooses how many there are, and how long.
#[derive(Debug)]
struct BoundedSet<T> {
    all: BTreeSet<T>,
    bytes: usize,
}

impl<T> Default for BoundedSet<T> {
    fn default() -> Self {
        Self { all: BTreeSet::new(), bytes: 0 }
    }
}

/// Something that takes room for its length.
trait Long: Ord {
    fn bytes(&self) -> usize;
}

impl Long for PathBuf {
    fn bytes(&self) -> usize {
        self.as_os_str().len()
    }
}

/// A name and why it is told of.
type Noted = (PathBuf, Cow<'static, str>);

impl Long for Noted {
    fn bytes(&self) -> usize {
        self.0.bytes() + self.1.len()
    }
}

impl<T: Long> BoundedSet<T> {
    /// False if there is no room for it.
    fn insert(&mut self, one: T) -> bool {
        if self.all.contains(&one) {
            return true;
        }
        if self.all.len() >= NAMES || self.bytes + one.bytes() > KEPT {
            return false;
        }
        self.put(one);
        true
    }

    fn put(&mut self, one: T) {
        self.bytes += one.bytes();
        self.all.insert(one);
    }

    fn forget(&mut self, mut which: impl FnMut(&T) -> bool) {
        let bytes = &mut self.bytes;
        self.all.retain(|one| {
            let goes = which(one);
            if goes {
                *bytes -= one.bytes();
            }
            !goes
        });
    }
}

impl BoundedSet<Noted> {
    /// There is always room for the first of a kind, so that no number of others hides it: there are few kinds.
    fn insert_later(&mut self, one: Noted) -> bool {
        if self.all.iter().any(|(_, why)| *why == one.1) {
            return self.insert(one);
        }
        self.put(one);
        true
    }

    /// The first of each kind, and the others.
    fn by_kind(&self) -> (Vec<&Noted>, Vec<&Noted>) {
        let mut kinds = BTreeSet::new();
        self.all.iter().partition(|(_, why)| kinds.insert(why))
    }
}

impl BoundedSet<PathBuf> {
    fn remove(&mut self, path: &Path) -> bool {
        let was = self.all.remove(path);
        if was {
            self.bytes -= path.as_os_str().len();
        }
        was
    }

    /// Takes out what lies below a directory. Paths are in the order of their components.
    fn take_below(&mut self, directory: &Path) -> Vec<PathBuf> {
        let below = self.all.range::<Path, _>((Bound::Excluded(directory), Bound::Unbounded));
        let below: Vec<PathBuf> = below.take_while(|path| path.starts_with(directory)).cloned().collect();
        for path in &below {
            self.remove(path);
        }
        below
    }
}

/// Names that go with a directory to its new name.
struct NamesBelow {
    changed: Vec<PathBuf>,
    /// Those that run later.
    noted: Vec<PathBuf>,
}

/// The names in a directory, to which no link leads.
fn listed(directory: &Path) -> Option<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Dir::new(rustix::fs::openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()?).ok()
}

/// Collected while the call runs.
#[derive(Debug, Default)]
pub(super) struct Collected {
    own: Arc<Own>,
    created: BoundedSet<PathBuf>,
    changed: BoundedSet<PathBuf>,
    removed: BoundedSet<PathBuf>,
    repositories: BoundedSet<PathBuf>,
    later: BoundedSet<Noted>,
    /// Settings of git that this call has left, at some time, following a remote without an address: files and settings.
    followed: BoundedSet<Noted>,
    refused: BoundedSet<Noted>,
    not_started: BoundedSet<Noted>,
    not_reached: BTreeMap<String, (u64, Option<String>)>,
    blocked: BTreeMap<Blocked, u64>,
    vanished: BTreeSet<PathBuf>,
    more: u64,
    /// It has asked egress for a connection.
    pub(super) went_out: bool,
    /// The last refusal: its reason, until the log takes it.
    last_refusal: Option<Cow<'static, str>>,
    pub(super) carried: Option<Carried>,
    /// There are names that the call may not leave: whether it has, is known when it has ended.
    pub(super) unfinished: bool,
}

impl Collected {
    pub(super) fn new(own: &Arc<Own>) -> Self {
        Self { own: Arc::clone(own), ..Self::default() }
    }

    pub(super) fn created(&mut self, path: &Path) {
        if self.own.has(path) {
            if self.own.looks_shared(path) && self.vanished.len() < VANISHED {
                self.vanished.insert(path.to_owned());
            }
            return;
        }
        let before = if self.removed.remove(path) { FormerHolder::Another } else { FormerHolder::Nothing };
        self.runs_later(path, before);
        note(&mut self.created, path, &mut self.more);
    }

    pub(super) fn changed(&mut self, path: &Path) {
        if self.own.has(path) {
            return;
        }
        let own = self.created.all.contains(path);
        self.runs_later(path, if own { FormerHolder::Nothing } else { FormerHolder::Another });
        if !own {
            note(&mut self.changed, path, &mut self.more);
        }
    }

    pub(super) fn removed(&mut self, path: &Path) {
        if self.own.has(path) {
            self.vanished.remove(path);
            return;
        }
        self.changed.remove(path);
        self.repositories.remove(path);
        self.later.forget(|(noted, _)| noted == path);
        if !self.created.remove(path) {
            note(&mut self.removed, path, &mut self.more);
        }
    }

    pub(super) fn moved(&mut self, from: &Path, to: &Path, replaced: bool) {
        let with_it = self.take_repositories(from, to);
        let below = self.take_below(from, to);
        self.removed(from);
        self.came(to, replaced);
        self.put_below(below);
        with_it.iter().for_each(|path| self.repository(path));
    }

    /// The repositories at or below a path, by the names that they have in another place.
    fn take_repositories(&mut self, from: &Path, to: &Path) -> Vec<PathBuf> {
        let there = |path: &PathBuf| Some(to.join(path.strip_prefix(from).ok()?));
        // With nothing behind it, the path would have a slash.
        let taken = self.repositories.all.iter().filter_map(there).map(|path| path.components().collect()).collect();
        self.repositories.forget(|path| path.starts_with(from));
        taken
    }

    /// Two names were exchanged, with all that lies below them.
    pub(super) fn exchanged(&mut self, one: &Path, other: &Path) {
        let with_them = [self.take_repositories(one, other), self.take_repositories(other, one)].concat();
        let below = [self.take_below(one, other), self.take_below(other, one)];
        self.changed(one);
        self.changed(other);
        below.into_iter().for_each(|below| self.put_below(below));
        with_them.iter().for_each(|path| self.repository(path));
    }

    /// Takes what the call has made and changed below a directory, and what of that runs later, under the names that it
    /// has in another place.
    fn take_below(&mut self, from: &Path, to: &Path) -> NamesBelow {
        let mut taken = Vec::new();
        for set in [&mut self.created, &mut self.changed] {
            taken.extend(set.take_below(from));
        }
        let mut noted = Vec::new();
        self.later.forget(|(path, _)| {
            let is_below = path != from && path.starts_with(from);
            if is_below {
                noted.push(path.clone());
            }
            is_below
        });
        let there = |path: &PathBuf| Some(to.join(path.strip_prefix(from).ok()?));
        NamesBelow {
            changed: taken.iter().filter_map(there).collect(),
            noted: noted.iter().filter_map(there).collect(),
        }
    }

    fn put_below(&mut self, NamesBelow { changed, noted }: NamesBelow) {
        changed.iter().for_each(|path| self.created(path));
        // There may have been no room for their changes.
        for path in noted {
            // The one that is said of a directory is said for what lies in it.
            for named in [path.clone(), path.join("x")] {
                if let Some(Later { why, of_directory }) =
                    later::why(named.as_os_str().as_bytes(), FormerHolder::Nothing)
                    && (of_directory || named == path)
                {
                    self.note_later(path.clone(), why);
                }
            }
        }
    }

    /// Something that was of no account before has a name now.
    pub(super) fn came(&mut self, to: &Path, replaced: bool) {
        if replaced { self.changed(to) } else { self.created(to) }
    }

    pub(super) fn repository(&mut self, path: &Path) {
        if self.own.has(path) {
            return;
        }
        note(&mut self.repositories, path, &mut self.more);
    }

    /// A repository's settings were replaced. What follows a remote that lost its address in that may be as it was again when
    /// the call ends, as after `git remote rename`: only then is it known.
    pub(super) fn settings_replaced(&mut self, path: &Path, old: &[u8], new: &[u8]) {
        let was = gitconfig::without_address(old);
        for setting in gitconfig::without_address(new).into_iter().filter(|setting| !was.contains(setting)) {
            self.more += u64::from(!self.followed.insert((path.to_owned(), setting.into())));
        }
    }

    /// Which settings follow a remote without an address now, because of this call.
    fn followed(&self) -> Vec<Noted> {
        let mut found = Vec::new();
        let mut read: Option<(&Path, BTreeSet<String>)> = None;
        for (path, setting) in &self.followed.all {
            let now = match &mut read {
                Some((last, now)) if *last == path.as_path() => now,
                _ => {
                    let now = settings(path).map(|text| gitconfig::without_address(&text)).unwrap_or_default();
                    &mut read.insert((path, now)).1
                }
            };
            if now.contains(setting.as_ref()) {
                let why = format!("git takes the name for a path, as no remote has an address by it: {setting}");
                found.push((path.clone(), why.into()));
            }
        }
        found
    }

    pub(super) fn refused(&mut self, path: &Path, why: impl Into<Cow<'static, str>>) {
        let why = why.into();
        self.last_refusal = Some(why.clone());
        self.refused.insert((path.to_owned(), why));
    }

    pub(super) fn not_started(&mut self, argv: String, why: Cow<'static, str>) {
        self.last_refusal = Some(why.clone());
        if !self.not_started.insert((PathBuf::from(argv), why)) {
            self.more += 1;
        }
    }

    /// An address that is not granted.
    pub(super) fn not_reached(&mut self, address: String) {
        self.not_reached_because(address, None);
    }

    /// Records an address that was not reached, with another reason.
    pub(super) fn not_reached_because(&mut self, address: String, why: Option<String>) {
        self.last_refusal = Some(why.clone().map_or("it is not granted, or nobody is there".into(), Cow::from));
        if self.not_reached.len() >= ADDRESSES && !self.not_reached.contains_key(&address) {
            self.more += 1;
            return;
        }
        let (count, last) = self.not_reached.entry(address).or_default();
        *count += 1;
        *last = why.or_else(|| last.take());
    }

    /// One that could not be reached before, because nobody was there yet.
    pub(super) fn reached(&mut self, address: impl FnOnce() -> Option<String>) {
        if !self.not_reached.is_empty()
            && let Some(address) = address()
        {
            self.not_reached.remove(&address);
        }
    }

    /// Something that no call may do.
    pub(super) fn blocked(&mut self, kind: Blocked) {
        self.last_refusal = Some(format!("no call may do this ({kind:?})").into());
        *self.blocked.entry(kind).or_default() += 1;
    }

    /// Takes the reason of the last refusal.
    pub(super) fn take_last_refusal(&mut self) -> Option<Cow<'static, str>> {
        self.last_refusal.take()
    }

    fn runs_later(&mut self, path: &Path, before: FormerHolder) {
        let bytes = path.as_os_str().as_bytes();
        if let Some(Later { why, of_directory }) = later::why(bytes, before) {
            let directory = path.parent().filter(|_| of_directory);
            self.note_later(directory.unwrap_or(path).to_owned(), why);
        }
        // What was there before the call means something because of a new name above it.
        if later::why_below(bytes).is_some() {
            self.look_below(path);
        }
    }

    /// Looks at what lies below a directory that has a new name. Of a link it is enough that it has it: what it leads to can be
    /// changed at any time, by another name.
    #[expect(
        clippy::disallowed_methods,
        reason = "it only looks, in the session's domain; what it finds is reported and nothing else"
    )]
    fn look_below(&mut self, top: &Path) {
        let (mut pending, mut left) = (vec![top.to_owned()], BELOW);
        while let Some(path) = pending.pop() {
            let Some(why) = later::why_below(path.as_os_str().as_bytes()) else { continue };
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            if about.is_symlink() {
                self.note_later(path, why);
                continue;
            }
            if !about.is_dir() {
                continue;
            }
            let Some(entries) = listed(&path) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                if left == 0 {
                    return self.note_later(top.to_owned(), TOO_MANY);
                }
                left -= 1;
                let path = path.join(OsStr::from_bytes(name));
                if let Some(Later { why, of_directory }) =
                    later::why(path.as_os_str().as_bytes(), FormerHolder::Nothing)
                {
                    let directory = path.parent().filter(|_| of_directory);
                    self.note_later(directory.unwrap_or(&path).to_owned(), why);
                }
                pending.push(path);
            }
        }
    }

    fn note_later(&mut self, path: PathBuf, why: &'static str) {
        self.more += u64::from(!self.later.insert_later((path, why.into())));
    }

    /// A file has a second name now, by which it can be changed.
    pub(super) fn linked(&mut self, path: &Path) {
        if !self.own.has(path)
            && let Some(Later { why, .. }) = later::why(path.as_os_str().as_bytes(), FormerHolder::Another)
        {
            self.note_later(path.to_owned(), why);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let sets = [&self.created, &self.changed, &self.removed, &self.repositories];
        let noted = [&self.later, &self.refused, &self.not_started];
        let told = !self.went_out && self.not_reached.is_empty() && self.blocked.is_empty() && self.vanished.is_empty();
        told && !self.unfinished
            && sets.iter().all(|set| set.all.is_empty())
            && noted.iter().all(|set| set.all.is_empty())
    }

    /// As much as fits in a frame, and how much did not. Where something was changed, with what nobody has looked at.
    pub(super) fn report(&self, unseen: &Unseen) -> Changes {
        let (mut names, mut notes, mut more) = (BYTES, BYTES, self.more);
        let sets = [&self.created, &self.changed, &self.removed, &self.repositories];
        let has_changed = sets.iter().any(|set| !set.all.is_empty());
        let mut places = BoundedSet::default();
        if has_changed {
            let all = unseen.places().iter().map(|(path, why)| (path.clone(), (*why).into()));
            more += unseen.more() + all.map(|one| u64::from(!places.insert(one))).sum::<u64>();
        }
        let mut planted = BoundedSet::default();
        for (path, why) in self.repositories.all.iter().flat_map(|repository| planted::programs(repository)) {
            more += u64::from(!planted.insert((path, why.into())));
        }
        for one in self.followed() {
            more += u64::from(!planted.insert(one));
        }
        let mut list = |paths: &BoundedSet<PathBuf>| -> Vec<String> {
            paths.all.iter().filter_map(|path| take(path, 0, &mut names, &mut more)).collect()
        };
        // First what a call could hide among many others.
        let repositories = list(&self.repositories);
        let (created, changed, removed) = (list(&self.created), list(&self.changed), list(&self.removed));
        let mut noted = |kept: &mut dyn Iterator<Item = &Noted>| -> Vec<Note> {
            let note = |(path, why): &Noted| {
                take(path, why.len(), &mut notes, &mut more).map(|path| Note::new(path, why.clone().into_owned()))
            };
            kept.filter_map(note).collect()
        };
        let (first, rest) = self.later.by_kind();
        let mut runs_later = noted(&mut first.into_iter());
        runs_later.extend(noted(&mut planted.all.iter().chain(&places.all)));
        runs_later.extend(noted(&mut rest.into_iter()));
        let (refused, not_started) = (noted(&mut self.refused.all.iter()), noted(&mut self.not_started.all.iter()));
        let (mut addresses, mut vanished) = (ADDRESS_BYTES, VANISHED_BYTES);
        let not_reached = self.not_reached.iter().filter_map(|(address, (count, why))| {
            let besides = 24 + why.as_ref().map_or(0, String::len);
            let address = take(Path::new(address), besides, &mut addresses, &mut more)?;
            Some(NotReached::new(address, *count).because(why.clone()))
        });
        let not_reached = not_reached.collect();
        let vanished = self.vanished.iter().filter_map(|path| take(path, 0, &mut vanished, &mut more)).collect();
        let mut changes = Changes::default();
        (changes.created, changes.changed, changes.removed) = (created, changed, removed);
        (changes.repositories, changes.runs_later) = (repositories, runs_later);
        (changes.refused, changes.not_started, changes.more) = (refused, not_started, more);
        (changes.not_reached, changes.blocked, changes.vanished) = (not_reached, self.blocked.clone(), vanished);
        changes.carried = self.carried;
        changes
    }
}

fn note(names: &mut BoundedSet<PathBuf>, path: &Path, more: &mut u64) {
    if !names.insert(path.to_owned()) {
        *more += 1;
    }
}

fn take(path: &Path, besides: usize, left: &mut usize, more: &mut u64) -> Option<String> {
    let text = path.to_string_lossy().into_owned();
    // A byte may take six in JSON, though hardly ever: room is left for some.
    let cost = text.chars().map(|c| if c.is_control() { 6 } else { c.len_utf8() }).sum::<usize>() + besides + 24;
    if cost > *left {
        *more += 1;
        return None;
    }
    *left -= cost;
    Some(text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a directory of the test's own")]
    use super::*;

    #[test]
    fn a_notice_is_of_one_worker_or_of_several() -> std::io::Result<()> {
        let notices = ChangeNotices::new()?;
        let file = notice::accept(rustix::io::dup(notices.file())?)?;
        assert!(notice::accept(rustix::pipe::pipe()?.0).is_err());
        let told = |worker| notice::is_there(&file, worker).unwrap_or(false);
        assert!(!told(0) && !told(7));
        notices.put(7, |_| true)?;
        assert!(told(7) && !told(0) && !told(8) && !told(7 + notice::WORDS));
        // The older is over: its word is the newer's.
        notices.put(7 + notice::WORDS, |_| false)?;
        assert!(!told(7) && told(7 + notice::WORDS));
        notices.take_back(7)?;
        assert!(told(7 + notice::WORDS));
        notices.take_back(7 + notice::WORDS)?;
        assert!(!told(7 + notice::WORDS));
        notices.put(7 + notice::WORDS, |_| true)?;
        notices.put(7, |_| true)?;
        notices.take_back(7)?;
        assert!(told(7) && told(7 + notice::WORDS) && told(7 + 2 * notice::WORDS), "whoever has this word asks");
        notices.put(0, |_| true)?;
        assert!(told(0));
        Ok(())
    }

    #[test]
    fn what_came_and_went_is_no_change() {
        let mut all = Collected::default();
        all.created(Path::new("/w/a.lock"));
        all.moved(Path::new("/w/a.lock"), Path::new("/w/a"), true);
        all.created(Path::new("/w/Makefile"));
        all.created(Path::new("/w/build.rs"));
        all.removed(Path::new("/w/build.rs"));
        all.removed(Path::new("/w/old"));
        all.refused(Path::new("/w/.env"), "it is kept");
        let report = all.report(&Unseen::default());
        assert_eq!((report.created, report.changed), (vec!["/w/Makefile".to_owned()], vec!["/w/a".to_owned()]));
        assert_eq!(report.removed, ["/w/old"]);
        assert_eq!(report.runs_later.len(), 1);
        assert_eq!((report.refused.len(), report.more), (1, 0));
    }

    /// F2: what lies in a directory that is moved has another meaning in its new place.
    #[test]
    fn f2_what_moves_with_its_directory_is_looked_at_again() {
        let mut all = Collected::default();
        for path in ["/w/t", "/w/t/config.yml", "/w/t/more/x", "/w/ta"] {
            all.created(Path::new(path));
        }
        all.changed(Path::new("/w/t/was"));
        assert_eq!(all.report(&Unseen::default()).runs_later, []);
        all.moved(Path::new("/w/t"), Path::new("/w/.circleci"), false);
        let report = all.report(&Unseen::default());
        let now = ["/w/.circleci", "/w/.circleci/config.yml", "/w/.circleci/more/x", "/w/.circleci/was", "/w/ta"];
        assert_eq!((report.created, report.changed.len()), (now.map(str::to_owned).to_vec(), 0));
        assert!(report.runs_later.iter().any(|note| note.path == "/w/.circleci/config.yml"));
        all.created(Path::new("/w/u"));
        all.exchanged(Path::new("/w/.circleci"), Path::new("/w/u"));
        let report = all.report(&Unseen::default());
        assert!(report.created.contains(&"/w/u/config.yml".to_owned()), "{:?}", report.created);
        assert_eq!(report.runs_later, []);
    }

    /// F2: what an earlier call has made, or somebody else, is looked at when a name above it comes to mean something.
    #[test]
    fn f2_what_was_there_is_looked_at_under_its_new_name() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let top = real(directory.path());
        let told = |all: &Collected| -> Vec<PathBuf> {
            all.report(&Unseen::default()).runs_later.into_iter().map(|note| note.path.into()).collect()
        };
        fs::create_dir_all(top.join("t/workflows"))?;
        fs::create_dir_all(top.join("u/plain"))?;
        fs::write(top.join("t/workflows/ci.yml"), "")?;
        for (name, act) in [
            (".github", Collected::moved as fn(&mut Collected, &Path, &Path, bool)),
            (".gitea", |all, from, to, _| all.exchanged(from, to)),
            (".forgejo", |all, from, to, _| all.exchanged(to, from)),
        ] {
            let mut all = Collected::default();
            fs::rename(top.join("t"), top.join(name))?;
            act(&mut all, &top.join("t"), &top.join(name), false);
            assert_eq!(told(&all), [top.join(name).join("workflows/ci.yml")]);
            fs::rename(top.join(name), top.join("t"))?;
        }
        let mut all = Collected::default();
        all.moved(&top.join("u"), &top.join("v"), false);
        assert_eq!(told(&all), Vec::<PathBuf>::new(), "the control");
        std::os::unix::fs::symlink("t", top.join(".circleci"))?;
        all.created(&top.join(".circleci"));
        assert_eq!(told(&all), [top.join(".circleci")]);
        let mut all = Collected::default();
        all.linked(&top.join("Makefile"));
        all.linked(&top.join("main.c"));
        assert_eq!(told(&all), [top.join("Makefile")]);
        let mut all = Collected::default();
        fs::create_dir_all(top.join("w/plugins"))?;
        (0..=BELOW).try_for_each(|n| fs::write(top.join(format!("w/plugins/{n}")), ""))?;
        fs::rename(top.join("w"), top.join(".yarn"))?;
        all.moved(&top.join("w"), &top.join(".yarn"), false);
        let report = all.report(&Unseen::default());
        assert!(report.runs_later.iter().any(|note| note.why == TOO_MANY), "{:?}", report.runs_later);
        Ok(())
    }

    /// F2: no number of changes hides one that runs later, nor any kind of those the others.
    #[test]
    fn f2_many_changes_hide_none_that_runs_later() {
        let mut all = Collected::default();
        let noise = |n: usize| PathBuf::from(format!("/w/{n:04}/{}", "x".repeat(200)));
        for n in 0..3000 {
            all.created(&noise(n));
            all.created(&noise(n).join("Makefile"));
        }
        all.created(Path::new("/w/zz/.github/workflows/ci.yml"));
        all.moved(Path::new("/w/zz"), Path::new("/w/zy"), false);
        let report = all.report(&Unseen::default());
        let told: Vec<&str> = report.runs_later.iter().map(|note| note.path.as_str()).collect();
        assert!(told[..2].contains(&"/w/zy/.github/workflows/ci.yml"), "{:?}", &told[..3]);
        let all_told = (report.created.len() + told.len()) as u64 + report.more;
        assert!(all_told >= 3000 * 3 + 2, "what is not named is counted: {all_told}");
    }

    /// F2: a program that was there is named when another takes its place, in whatever way; new ones are named together.
    #[test]
    fn f2_a_program_of_an_environment_is_named() {
        let mut all = Collected::default();
        for name in ["a", "b"] {
            all.created(&Path::new("/w/node_modules/.bin").join(name));
        }
        all.removed(Path::new("/w/.venv/bin/python"));
        all.created(Path::new("/w/.venv/bin/python"));
        all.changed(Path::new("/w/.venv/bin/pip"));
        all.changed(Path::new("/w/node_modules/.bin/a"));
        let mut told: Vec<_> = all.report(&Unseen::default()).runs_later.into_iter().map(|note| note.path).collect();
        told.sort();
        assert_eq!(told, ["/w/.venv/bin/pip", "/w/.venv/bin/python", "/w/node_modules/.bin"]);
    }

    /// A file in a `/tmp` of the session's own is there for nobody else; a workspace in it is.
    #[test]
    fn what_goes_with_the_session_is_no_change() {
        let own = Own {
            own: vec!["/tmp".into(), "/w/t".into()],
            private: "/tmp/own".into(),
            granted: vec!["/tmp/w".into(), "/w".into()],
        };
        let mut all = Collected::new(&Arc::new(own));
        for path in ["/tmp/Makefile", "/tmp/wx", "/w/t/x", "/tmp/w/a", "/w/b", "/w/tx", "/tmp/own/tmp/x", "/tmp/gone"] {
            all.created(Path::new(path));
        }
        all.removed(Path::new("/tmp/gone"));
        all.moved(Path::new("/tmp/w/old"), Path::new("/tmp/old"), true);
        all.repository(Path::new("/tmp/.git"));
        let report = all.report(&Unseen::default());
        assert_eq!(report.created, ["/tmp/w/a", "/w/b", "/w/tx"]);
        assert_eq!((report.removed, report.changed), (vec!["/tmp/w/old".to_owned()], vec![]));
        assert!(report.runs_later.is_empty() && report.repositories.is_empty());
        assert_eq!(report.vanished, ["/tmp/Makefile", "/tmp/wx"]);
    }

    /// Memory of a call is bounded by its bytes too, and what has gone makes room.
    #[test]
    fn what_is_remembered_is_bounded() {
        let mut all = Collected::default();
        let name = |n: usize| PathBuf::from(format!("/w/{n}/{}/Makefile", "x".repeat(4000)));
        for n in 0..3000 {
            all.created(&name(n));
            all.repository(&name(n));
            all.not_started(name(n).to_string_lossy().into_owned(), "why".into());
        }
        let bytes = [all.created.bytes, all.repositories.bytes, all.later.bytes, all.not_started.bytes];
        assert!(bytes.iter().all(|bytes| (1..=KEPT).contains(bytes)), "{bytes:?}");
        (0..3000).for_each(|n| all.removed(&name(n)));
        assert_eq!([all.created.bytes, all.repositories.bytes, all.later.bytes], [0; 3]);
        all.created(Path::new("/w/new"));
        assert_eq!(all.report(&Unseen::default()).created, ["/w/new"]);
    }

    /// A frame holds 32 KiB; what does not fit is counted.
    #[test]
    fn a_report_fits_in_a_frame() {
        let mut all = Collected::default();
        for n in 0..3000 {
            all.created(Path::new(&format!("/w/{}/{n}\u{1}", "x".repeat(200))));
            all.refused(Path::new(&format!("/w/{n}/.env")), "it is kept");
        }
        let report = all.report(&Unseen::default());
        let text = serde_json::to_vec(&report).map(|text| text.len());
        assert!(matches!(text, Ok(..=28_000)), "{text:?}");
        assert_eq!(report.created.len() as u64 + report.refused.len() as u64 + report.more, 4000);
    }
}
