//! Parts that `glob` and `grep` have in common: the walk through a tree, by ripgrep's own libraries, and results in one
//! order.
//!
//! Which files a search takes is what ripgrep takes: hidden ones and what `.gitignore`, `.ignore` and `.rgignore` name are
//! left out, links are not followed, and only regular files count. It differs from a bare `rg` in three ways. The sandbox has
//! to give the same answer wherever the grants begin: `.gitignore` counts outside of git repositories too
//! (`rg --no-require-git`), and the user's own global ignore file does not (`rg --no-ignore-global`). And a pattern takes
//! hidden and ignored files only where it spells them out (`Chosen::by`): with `rg --glob '*'` the objects of `.git` and
//! what a build made would be most of a result.
//!
//! A surface may tell a search more ([`INCLUDE`], [`EXCLUDE`]): those are patterns too, and what is excluded is not looked into.
//!
//! Invariant: results are in the order of their paths, name by name, and what a limit cuts off is the end of that order,
//! however many threads there were.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callgate_policy::path::HostPath;
use ignore::overrides::{Override, OverrideBuilder};
use ignore::{DirEntry, WalkBuilder, WalkState};
use rustix::fs::{Mode, OFlags};
use serde_json::{Map, Value, json};

use super::arguments::list_of_text;
use super::{FileKind, ToolContext, ToolError};
use crate::FileAct;

/// The most bytes of a result that are shown, whatever the number of its entries: a bound for what a supervisor takes.
pub(super) const HEAD_MAX: usize = 1024 * 1024;
/// The most bytes that are kept of what a result has no room for.
pub(super) const REST_MAX: usize = 8 * 1024 * 1024;
/// How many things that could not be read are named.
const UNREADABLE_MAX: usize = 20;

/// Word of a surface to the worker: only files that match one of these patterns (X2-15).
pub const INCLUDE: &str = "include";
/// Word of a surface to the worker: no files and no directories that match one of these, whatever else names them
/// (X2-15, S4-4).
pub const EXCLUDE: &str = "exclude";

/// Treatment of each file of a tree, on one of several threads.
pub(super) trait Visitor: Send {
    /// A file that the search takes. `named` if the call itself named it, and not its directory.
    fn file(&mut self, path: &Path, named: bool, trouble: &mut Trouble);
}

/// Files that could not be read.
#[derive(Default)]
pub(super) struct Trouble {
    /// The first that each thread met; which are first depends on chance, and so only few are told.
    found: Vec<(Vec<u8>, String)>,
}

impl Trouble {
    /// Notes that `path` could not be read.
    pub(super) fn note(&mut self, path: &Path, reason: String) {
        self.found.push((sort_key(path), reason));
        if self.found.len() > 2 * UNREADABLE_MAX {
            self.found.sort_unstable();
            self.found.truncate(UNREADABLE_MAX);
        }
    }

    /// Puts the list into a result, if there is one.
    pub(super) fn tell(all: Vec<Self>, data: &mut Map<String, Value>) {
        let mut found: Vec<_> = all.into_iter().flat_map(|trouble| trouble.found).collect();
        found.sort_unstable();
        found.truncate(UNREADABLE_MAX);
        if found.is_empty() {
            return;
        }
        let list = found.into_iter().map(|(key, reason)| {
            let mut entry = Map::new();
            super::name_path(&mut entry, &path_of(key).into());
            entry.insert("reason".to_owned(), reason.into());
            Value::Object(entry)
        });
        data.insert("unreadable".to_owned(), list.collect());
    }
}

/// Which files a search takes, of those below its directory.
#[derive(Clone)]
pub(super) struct Chosen {
    /// By the pattern: what it ignores is not taken.
    pattern: Override,
    /// Patterns that a surface includes, if there is a pattern besides.
    included: Override,
    /// Patterns that a surface excludes: it matches those.
    excluded: Override,
    /// Part of the pattern that ripgrep's walk is told. A name that this matches is taken though it be hidden or
    /// ignored, so it holds only what the pattern spells out.
    spelt_out: Override,
    /// The directory that the pattern begins with: nothing outside of it can match.
    below: Option<PathBuf>,
}

impl Chosen {
    /// All that a search takes without a pattern.
    pub(super) fn all() -> Self {
        let none = Override::empty;
        Self { pattern: none(), included: none(), excluded: none(), spelt_out: none(), below: None }
    }

    /// This selection within what a surface tells of it.
    ///
    /// # Errors
    /// A pattern that makes no sense.
    pub(super) fn within_told(mut self, args: &Value, ctx: &ToolContext) -> Result<Self, ToolError> {
        let included = list_of_text(args, INCLUDE)?;
        if !included.is_empty() {
            if self.pattern.is_empty() {
                self.spelt_out = overrides(ctx, INCLUDE, &spelt_out_of(&included))?;
            }
            self.included = overrides(ctx, INCLUDE, &included)?;
        }
        self.excluded = overrides(ctx, EXCLUDE, &list_of_text(args, EXCLUDE)?)?;
        Ok(self)
    }

    /// Selection by what `rg --glob` takes, but that a wildcard matches nothing that is hidden or ignored. Only what
    /// the pattern spells out is taken whatever leaves it out: the directories that it begins with (`.git/**`,
    /// `target/**/*.d`), and a last name that has no wildcard or begins with a dot (`.env`, `debug.log`, `.env*`).
    pub(super) fn by(ctx: &ToolContext, argument: &'static str, glob: &str) -> Result<Self, ToolError> {
        let bad =
            |reason: String| ToolError::Pattern { argument, pattern: super::message::shorten(&glob.into()), reason };
        let base = ctx.path.as_path();
        if Path::new(glob).is_absolute() && Path::new(glob).starts_with(base) && base != Path::new("/") {
            return Err(bad("it is relative to the directory that is searched, and here it repeats that".to_owned()));
        }
        // Not a comment.
        let escaped = glob.strip_prefix('#').map(|rest| format!("\\#{rest}"));
        let glob = escaped.as_deref().unwrap_or(glob);
        let pattern = overrides(ctx, argument, &[glob])?;
        if pattern.is_empty() {
            return Err(bad("it names nothing".to_owned()));
        }
        if glob.starts_with('!') {
            // Directories too that it excludes are not looked into.
            return Ok(Self { spelt_out: pattern.clone(), pattern, ..Self::all() });
        }
        let spelt_out = overrides(ctx, argument, &spelt_out_of(&[glob]))?;
        let mut names: Vec<&str> = glob.trim_start_matches('/').split('/').collect();
        names.pop();
        let names: Vec<&str> = names.into_iter().take_while(|name| is_name(name)).collect();
        let below = (!names.is_empty()).then(|| names.iter().fold(base.to_owned(), |below, name| below.join(name)));
        Ok(Self { pattern, spelt_out, below, ..Self::all() })
    }

    fn takes(&self, path: &Path) -> bool {
        [&self.pattern, &self.included].iter().all(|pattern| !pattern.matched(path, false).is_ignore())
            && !self.excluded.matched(path, false).is_whitelist()
    }
}

/// Patterns, relative to the directory that is searched.
fn overrides(ctx: &ToolContext, argument: &'static str, globs: &[impl AsRef<str>]) -> Result<Override, ToolError> {
    let mut builder = OverrideBuilder::new(ctx.path.as_path());
    for glob in globs.iter().map(AsRef::as_ref) {
        let bad = |error: ignore::Error| ToolError::Pattern {
            argument,
            pattern: super::message::shorten(&glob.into()),
            reason: error.to_string(),
        };
        builder.add(glob).map_err(bad)?;
    }
    let bad = |error: ignore::Error| ToolError::Pattern {
        argument,
        pattern: super::message::shorten(&globs.iter().map(AsRef::as_ref).collect()),
        reason: error.to_string(),
    };
    builder.build().map_err(bad)
}

/// Those patterns that take what they name though it be hidden or ignored: their last name is one that they spell out.
fn spelt_out_of(globs: &[impl AsRef<str>]) -> Vec<&str> {
    let mut spelt_out = Vec::new();
    for glob in globs.iter().map(AsRef::as_ref).filter(|glob| !glob.starts_with('!')) {
        match glob.rsplit('/').next().unwrap_or_default() {
            last if is_name(last) => spelt_out.push(glob),
            // Files: a hidden directory would be looked into.
            last if last.starts_with('.') => spelt_out.extend([glob, "!**/.*/"]),
            _ => {}
        }
    }
    spelt_out
}

/// True if a part of a pattern stands for one name alone.
fn is_name(part: &str) -> bool {
    !matches!(part, "" | "." | "..") && !part.contains(['*', '?', '[', ']', '{', '}', '\\'])
}

/// Where a walk begins.
struct WalkStart {
    path: PathBuf,
    /// An ignore file leaves it out, so that what they say of the names in it does not count either.
    is_ignored: bool,
}

/// Where a walk for these files begins, of what was granted. Links are not followed.
fn starts(roots: &[&HostPath], chosen: &Chosen) -> Vec<WalkStart> {
    let as_granted = |path: &Path| WalkStart { path: path.to_owned(), is_ignored: false };
    let Some(below) = &chosen.below else {
        return roots.iter().map(|root| as_granted(root.as_path())).collect();
    };
    let start = |root: &&HostPath| {
        let root = root.as_path();
        let Ok(names) = below.strip_prefix(root) else { return root.starts_with(below).then(|| as_granted(root)) };
        let parts = names.ancestors().collect::<Vec<_>>();
        let is_directory = |part: &&Path| {
            rustix::fs::lstat(root.join(part))
                .is_ok_and(|stat| FileKind::of_other(stat.st_mode) == Some(FileKind::Directory))
        };
        // The last one is the root itself.
        let leads = parts[..parts.len() - 1].iter().all(is_directory);
        leads.then(|| WalkStart { path: below.clone(), is_ignored: is_ignored(root, below) })
    };
    roots.iter().filter_map(start).collect()
}

/// True if an ignore file leaves out a directory below `root`, or one that it lies in: then the same walk does not get
/// there.
fn is_ignored(root: &Path, directory: &Path) -> bool {
    let depth = directory.strip_prefix(root).map_or(0, |names| names.components().count());
    let wanted = directory.to_owned();
    let mut builder = walk_builder(root);
    builder.hidden(false).max_depth(Some(depth)).filter_entry(move |entry| wanted.starts_with(entry.path()));
    !builder.build().any(|entry| entry.is_ok_and(|entry| entry.path() == directory))
}

/// A walk by ripgrep's rules.
pub(super) fn walk_builder(root: &Path) -> WalkBuilder {
    let mut builder = WalkBuilder::new(root);
    builder.require_git(false).git_global(false).add_custom_ignore_filename(".rgignore");
    builder
}

/// Walks through what the call was granted below `ctx.path`, and gives back every thread's visitor and trouble.
///
/// # Errors
/// If `ctx.path` itself cannot be looked at.
pub(super) fn walk<V: Visitor>(
    ctx: &ToolContext,
    chosen: &Chosen,
    make: impl Fn() -> V,
) -> Result<(Vec<V>, Vec<Trouble>), ToolError> {
    let failed =
        |e: rustix::io::Errno| ToolError::File { act: FileAct::Open, path: ctx.path.clone(), source: e.into() };
    let mut roots: Vec<&HostPath> = ctx.roots.iter().collect();
    roots.sort_unstable();
    // Patterns that begin alike were widened to the same tree.
    roots.dedup_by(|inner, outer| inner.as_path().starts_with(outer.as_path()));
    if roots.iter().any(|root| **root == ctx.path) {
        rustix::fs::stat(ctx.path.as_path()).map_err(failed)?;
    }
    // A grant below it may be for something that is not there.
    roots.retain(|root| **root == ctx.path || rustix::fs::lstat(root.as_path()).is_ok());
    let walker = || Walker { ctx, chosen, visitor: make(), trouble: Trouble::default() };
    // Under a limit on processes, one thread is slower and finds the same.
    let has_threads = ctx.threads > 1 && may_have(ctx.threads);
    let mut done = Vec::new();
    let starts = starts(&roots, chosen);
    for is_ignored in [false, true] {
        let mut starts = starts.iter().filter(|start| start.is_ignored == is_ignored).map(|start| &start.path);
        let Some(first) = starts.next() else { continue };
        let mut builder = walk_builder(first);
        for start in starts {
            builder.add(start);
        }
        builder.threads(ctx.threads).overrides(chosen.spelt_out.clone());
        if !chosen.excluded.is_empty() || !ctx.left_out.is_empty() {
            let (chosen_here, left_out) = (chosen.clone(), ctx.left_out.clone());
            builder.filter_entry(move |entry| {
                let kind = entry.file_type();
                let is_directory = kind.is_some_and(|kind| kind.is_dir());
                if entry.depth() == 0 {
                    return true;
                }
                if chosen_here.excluded.matched(entry.path(), is_directory).is_whitelist() {
                    return false;
                }
                let is_denied = left_out.has(entry.path());
                let is_wanted =
                    is_directory || (kind.is_some_and(|kind| kind.is_file()) && chosen_here.takes(entry.path()));
                if is_denied && is_wanted {
                    left_out.count();
                }
                !is_denied
            });
        }
        if is_ignored {
            builder.ignore(false).git_ignore(false).git_exclude(false).parents(false);
        }
        if has_threads {
            let members = Mutex::new(done);
            builder.build_parallel().run(|| {
                let mut member = Member { walker: Some(walker()), done: &members };
                Box::new(move |entry| {
                    if let Some(walker) = &mut member.walker {
                        walker.entry(entry);
                    }
                    WalkState::Continue
                })
            });
            done = members.into_inner().unwrap_or_else(PoisonError::into_inner);
        } else {
            let mut walker = walker();
            builder.build().for_each(|entry| walker.entry(entry));
            done.push((walker.visitor, walker.trouble));
        }
    }
    Ok(done.into_iter().unzip())
}

/// True if so many threads can be made now. The walk's own library takes for granted that they can.
fn may_have(threads: usize) -> bool {
    let (held, end) = std::sync::mpsc::channel::<()>();
    let end = Mutex::new(end);
    std::thread::scope(|scope| {
        // Each stays until the last has been made: it ends when the channel does.
        let wait = || drop(end.lock().map(|end| end.recv()));
        let made = (0..threads).all(|_| std::thread::Builder::new().spawn_scoped(scope, wait).is_ok());
        drop(held);
        made
    })
}

/// One thread of a walk.
struct Walker<'a, V> {
    ctx: &'a ToolContext,
    chosen: &'a Chosen,
    visitor: V,
    trouble: Trouble,
}

impl<V: Visitor> Walker<'_, V> {
    fn entry(&mut self, entry: Result<DirEntry, ignore::Error>) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                let path = place(&error).unwrap_or_else(|| self.ctx.path.as_path().to_owned());
                let reason = error.io_error().map_or_else(|| error.to_string(), ToString::to_string);
                if self.ctx.may_tell_of(&path) {
                    self.trouble.note(&path, reason);
                }
                return;
            }
        };
        let named = entry.depth() == 0 && entry.path() == self.ctx.path.as_path();
        let Some(kind) = entry.file_type() else { return };
        // What was named is opened, also through a link. Of the rest, what is no regular file is not content.
        let taken = if named { !entry.path().is_dir() } else { kind.is_file() };
        // The walk itself knows only what the pattern spells out, and takes where it starts for wanted: that a file was granted
        // by itself does not make it so.
        let taken = taken && (named || self.chosen.takes(entry.path()));
        if taken && self.ctx.may_tell_of(entry.path()) {
            self.visitor.file(entry.path(), named, &mut self.trouble);
        }
    }
}

/// A walker that is kept when its thread has no more for it.
struct Member<'a, V: Visitor> {
    walker: Option<Walker<'a, V>>,
    done: &'a Mutex<Vec<(V, Trouble)>>,
}

impl<V: Visitor> Drop for Member<'_, V> {
    fn drop(&mut self) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.extend(self.walker.take().map(|walker| (walker.visitor, walker.trouble)));
    }
}

/// The file's place in the order of paths: name by name, so that what lies in `a/` comes before `a-b`. No name holds a NUL.
pub(super) fn sort_key(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut key = path.as_os_str().as_bytes().to_vec();
    key.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = 0);
    key
}

/// The path that a key was made of.
pub(super) fn path_of(mut key: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    key.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b'/');
    std::ffi::OsString::from_vec(key).into()
}

/// The path that an error of the walk is about.
pub(super) fn place(error: &ignore::Error) -> Option<PathBuf> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path.clone()),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => place(err),
        ignore::Error::Loop { child, .. } => Some(child.clone()),
        ignore::Error::Partial(errors) => errors.iter().find_map(place),
        ignore::Error::Io(_)
        | ignore::Error::Glob { .. }
        | ignore::Error::UnrecognizedFileType(_)
        | ignore::Error::InvalidDefinition => None,
    }
}

/// Opens what a walk has found: a regular file, or nothing. The name may have been given to something else since: a link
/// is not followed, and a pipe or a device is neither waited for nor read.
pub(super) fn open_found(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let opened = rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()));
    let file = match opened {
        Ok(file) => file,
        Err(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let is_other = FileKind::of_other(rustix::fs::fstat(&file)?.st_mode).is_some();
    Ok((!is_other).then(|| File::from(file)))
}

/// The first of what comes in any order, as much of it as is kept.
pub(super) struct FirstFew<T> {
    found: Vec<(Vec<u8>, usize, T)>,
    size: usize,
    most: usize,
    /// Nothing that comes after this can be among the first.
    bound: Option<Vec<u8>>,
    /// Something was left out.
    lost: bool,
}

impl<T> FirstFew<T> {
    /// Keeps about `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { found: Vec::new(), size: 0, most, bound: None, lost: false }
    }

    /// True if something with this key could be kept; notes it as left out if not.
    pub(super) fn wants(&mut self, key: &[u8]) -> bool {
        let wanted = self.bound.as_ref().is_none_or(|bound| key <= bound.as_slice());
        self.lost |= !wanted;
        wanted
    }

    /// Adds what has this key and takes `size` bytes.
    pub(super) fn add(&mut self, key: Vec<u8>, size: usize, what: T) {
        self.size += size;
        self.found.push((key, size, what));
        if self.size > 2 * self.most {
            self.prune();
        }
    }

    /// Drops all beyond what is kept. The same, whatever was dropped before: what one thread drops has enough before it.
    fn prune(&mut self) {
        self.found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut size = 0;
        let kept = self.found.iter().take_while(|(_, each, _)| {
            let more = size < self.most;
            size += if more { *each } else { 0 };
            more
        });
        let kept = kept.count();
        if kept < self.found.len() {
            self.found.truncate(kept);
            self.lost = true;
            self.bound = self.found.last().map(|(key, ..)| key.clone());
        }
        self.size = size;
    }

    /// Results that several threads kept, as one; in order, and whether something was left out.
    pub(super) fn of_all(most: usize, all: impl IntoIterator<Item = Self>) -> (Vec<(Vec<u8>, T)>, bool) {
        let mut first = Self::new(most);
        for one in all {
            first.lost |= one.lost;
            first.size += one.size;
            first.found.extend(one.found);
        }
        first.prune();
        (first.found.into_iter().map(|(key, _, what)| (key, what)).collect(), first.lost)
    }
}

/// A result's entries: those that are shown, and those that it has no room for.
#[derive(Default)]
pub(super) struct ShownEntries {
    pub(super) head: Vec<Value>,
    pub(super) size: usize,
    /// One entry to a line, as JSON.
    pub(super) rest: Vec<u8>,
    pub(super) lost: bool,
}

impl ShownEntries {
    /// True if another would still be kept.
    pub(super) fn takes_more(&self) -> bool {
        self.rest.len() < REST_MAX
    }

    /// Adds the next entry; at most `limit` are shown.
    pub(super) fn add(&mut self, entry: Value, limit: usize) {
        let text = entry.to_string();
        if self.rest.is_empty() && self.head.len() < limit && self.size + text.len() <= HEAD_MAX {
            self.size += text.len();
            self.head.push(entry);
        } else if self.takes_more() {
            self.rest.extend_from_slice(text.as_bytes());
            self.rest.push(b'\n');
        } else {
            self.lost = true;
        }
    }
}

/// A path as an entry of a list: text, or with its bytes where text would lose some (C-27).
pub(super) fn path_entry(path: PathBuf) -> Value {
    match path.into_os_string().into_string() {
        Ok(text) => text.into(),
        Err(bytes) => {
            use std::os::unix::ffi::OsStrExt as _;
            json!({ "path": bytes.to_string_lossy(), "path_b64": STANDARD.encode(bytes.as_bytes()) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        let names =
            ["a.rs", "b.min.js", "node_modules/m.rs", "src/c.rs", "src/d.py", "src/node_modules/e.rs", ".github/f.rs"];
        for name in names {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, "needle\n").expect("a file");
        }
        dir
    }

    fn found(dir: &Path, tool: &str, args: &Value) -> Vec<String> {
        let ctx = ToolContext { threads: 2, ..ToolContext::new(dir.into(), 1000) };
        let data = super::super::run(tool, args, &ctx).expect("a result").data;
        let list = if tool == "glob" { &data["paths"] } else { &data["matches"] };
        let path = |entry: &Value| entry.as_str().or(entry["path"].as_str()).expect("a path").to_owned();
        let relative = |path: String| Path::new(&path).strip_prefix(dir).expect("below").to_string_lossy().into_owned();
        list.as_array().expect("a list").iter().map(path).map(relative).collect()
    }

    /// X2-15: what a surface includes and excludes narrows a search, also one that has a pattern of its own.
    #[test]
    fn x2_15_a_surface_includes_and_excludes() {
        let dir = tree();
        let grep = |mut args: Value| {
            args["pattern"] = "needle".into();
            found(dir.path(), "grep", &args)
        };
        let all = ["a.rs", "b.min.js", "node_modules/m.rs", "src/c.rs", "src/d.py", "src/node_modules/e.rs"];
        assert_eq!(grep(json!({})), all);
        assert_eq!(
            grep(json!({ INCLUDE: ["*.rs", "*.py"], EXCLUDE: ["node_modules"] })),
            ["a.rs", "src/c.rs", "src/d.py"]
        );
        assert_eq!(grep(json!({ EXCLUDE: ["node_modules", "*.min.js", "src/*.py"] })), ["a.rs", "src/c.rs"]);
        assert_eq!(grep(json!({ INCLUDE: ["src/*"] })), ["src/c.rs", "src/d.py"]);
        assert_eq!(grep(json!({ INCLUDE: ["*.rs"], "glob": "src/**", EXCLUDE: ["node_modules"] })), ["src/c.rs"]);
        let glob = json!({ "pattern": "*.rs", EXCLUDE: ["node_modules"] });
        assert_eq!(found(dir.path(), "glob", &glob), ["a.rs", "src/c.rs"]);
        // What it excludes is searched if the call names it as the place to search.
        let below = dir.path().join("node_modules");
        assert_eq!(found(&below, "grep", &json!({ "pattern": "needle", EXCLUDE: ["node_modules"] })), ["m.rs"]);
    }

    /// X2-15: files that are too long or not UTF-8 are not searched, at the limit and one beyond.
    #[test]
    fn x2_15_only_text_up_to_a_length_is_searched() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("at"), "needle 89\n").expect("a file");
        fs::write(dir.path().join("beyond"), "needle 890\n").expect("a file");
        fs::write(dir.path().join("latin"), b"needle\xe9\n").expect("a file");
        let args = json!({ "pattern": "needle" });
        assert_eq!(found(dir.path(), "grep", &args), ["at", "beyond", "latin"]);
        assert_eq!(found(dir.path(), "grep", &json!({ "pattern": "needle", "skip_over": 10 })), ["at"]);
    }

    #[test]
    fn a_pattern_of_a_surface_that_makes_no_sense_is_an_error() {
        let dir = tree();
        for args in [json!({ INCLUDE: ["a{"] }), json!({ EXCLUDE: ["[z-a]"] }), json!({ INCLUDE: "*.rs" })] {
            let mut args = args;
            args["pattern"] = "needle".into();
            let error =
                super::super::run("grep", &args, &ToolContext::new(dir.path().into(), 9)).expect_err("no pattern");
            assert!(matches!(error, ToolError::Pattern { .. } | ToolError::Argument { .. }), "{error}");
        }
    }
}
