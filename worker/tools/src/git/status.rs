//! `git_status`: which files of a repository have changed, as `git status --porcelain=v1 -b` prints it (S2-14, X2-18).

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::AtomicBool;

use gix::bstr::{BStr, BString, ByteSlice as _};
use gix::diff::index::ChangeRef;
use gix::index::entry::Mode;
use gix::status::plumbing::index_as_worktree::traits::{CompareBlobs, FastEq, ReadData, SubmoduleStatus};
use gix::status::plumbing::index_as_worktree::{Change as TreeChange, Conflict, EntryStatus};
use gix::status::plumbing::index_as_worktree_with_renames::{Entry, Recorder};
use serde_json::{Map, Value, json};

use super::super::{Contract, SyscallNeed, ToolContext, ToolError, ToolResult};
use super::repository::Repository;
use super::{Blanks, GitError, GitText, failed, name, quoted};

/// The name.
pub const NAME: &str = "git_status";

/// Contract of `git_status`.
pub const CONTRACT: Contract = Contract {
    name: NAME,
    requires: &["fs.read"],
    description: "Show which files of a git repository have changed, without running git: `content` is what \
        `git status --porcelain=v1 -b` prints, `branch` and `entries` are the same as data. `index` is the state of the staged \
        file, `worktree` that of the file itself: M modified, A added, D deleted, R renamed, T another type, U unmerged, \
        ? untracked. Programs that the repository configures do not run, so a file with a filter of its own counts as modified \
        if it was written since it was staged. Nothing is changed.",
    schema: SCHEMA,
    output: OUTPUT,
    kind: SyscallNeed::Plain,
    run,
    files: None,
};

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "path": {
      "type": ["string", "object"], "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
      "description": "The directory or file to report on, absolute or relative to the workspace; the repository is the one that it lies in. Default: the workspace. A path that is not UTF-8 is `{\"b64\": \"…\"}`."
    }
  },
  "required": [],
  "additionalProperties": false
}"#;

const OUTPUT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "path": { "type": "string", "description": "The top of the repository; the paths of entries are relative to it." },
    "path_b64": { "type": "string" },
    "branch": {
      "type": "object",
      "properties": {
        "name": { "type": ["string", "null"], "description": "null if HEAD is on no branch." },
        "commit": { "type": ["string", "null"], "description": "null if there is no commit yet." },
        "upstream": { "type": "string" },
        "gone": { "type": "boolean", "description": "The upstream is configured and is not there." },
        "ahead": { "type": "integer" },
        "behind": { "type": "integer" }
      },
      "required": ["name", "commit"]
    },
    "entries": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {
          "path": { "type": "string" },
          "path_b64": { "type": "string" },
          "from": { "type": "string", "description": "What a renamed file was called." },
          "from_b64": { "type": "string" },
          "index": { "type": "string" },
          "worktree": { "type": "string" }
        },
        "required": ["path", "index", "worktree"]
      }
    },
    "clean": { "type": "boolean" },
    "content": { "type": "string" },
    "lossy": { "type": "boolean", "description": "Bytes that are no text were replaced in the content." },
    "head": { "description": "The first part of a content that was too long." }
  },
  "required": ["path", "branch", "entries", "clean"],
  "anyOf": [{ "required": ["head"] }, { "required": ["content"] }]
}"#;

/// How many entries are shown as data.
const ENTRIES_MAX: usize = 1000;
/// How many commits are counted on either side of two branches.
const COMMITS_MAX: usize = 100_000;

/// Reports on `ctx.path`.
///
/// # Errors
/// If there is no repository, or it cannot be read.
pub fn run(_: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let repository = Repository::of(ctx)?;
    let branch = Branch::of(&repository.gix)?;
    let changes = StatusChanges::of(&repository, ctx, Untracked::Shown)?;
    let mut text = GitText::new();
    text.add(format!("## {}\n", branch.line()).as_bytes());
    let all = changes.in_order();
    all.iter().for_each(|change| text.add(&change.line()));
    let mut data = Map::new();
    super::super::name_path(&mut data, &repository.top.clone().into());
    data.insert("branch".to_owned(), branch.data());
    data.insert("clean".to_owned(), all.is_empty().into());
    data.insert("entries".to_owned(), all.iter().take(ENTRIES_MAX).map(PorcelainLine::data).collect());
    let mut output = text.into_output(data, ctx.limit);
    output.truncated |= all.len() > ENTRIES_MAX;
    Ok(output)
}

/// State of a repository, in few words; `None` if there is none.
///
/// # Errors
/// If it cannot be read.
pub(in super::super) fn summary(ctx: &ToolContext) -> Result<Option<Value>, ToolError> {
    let repository = match Repository::of(ctx) {
        Ok(repository) => repository,
        Err(error) if matches!(error.own(), Some(GitError::NoRepository { .. })) => return Ok(None),
        Err(error) => return Err(error),
    };
    let branch = Branch::of(&repository.gix)?;
    let changes = StatusChanges::of(&repository, ctx, Untracked::Shown)?;
    let mut data = Map::new();
    super::super::name_path(&mut data, &repository.top.clone().into());
    data.insert("branch".to_owned(), branch.data());
    let all = changes.in_order();
    let untracked = all.iter().filter(|change| change.index == '?').count();
    data.insert("changed".to_owned(), (all.len() - untracked).into());
    data.insert("untracked".to_owned(), untracked.into());
    Ok(Some(Value::Object(data)))
}

/// Branch that HEAD is on.
struct Branch {
    name: Option<BString>,
    commit: Option<gix::ObjectId>,
    upstream: Option<Upstream>,
}

/// Upstream that a branch follows.
struct Upstream {
    name: BString,
    /// How many commits each has that the other has not; `None` if there is no such branch.
    ahead_and_behind: Option<(usize, usize)>,
}

impl Branch {
    fn of(repository: &gix::Repository) -> Result<Self, ToolError> {
        let head = repository.head().map_err(|e| failed("read HEAD", e))?;
        let commit = head.id().map(gix::Id::detach);
        let Some(referent) = head.referent_name().map(ToOwned::to_owned) else {
            return Ok(Self { name: None, commit, upstream: None });
        };
        let upstream = followed(repository, referent.as_ref()).map(|tracking| {
            let theirs = repository.try_find_reference(tracking.as_bstr()).ok().flatten();
            let theirs = theirs.and_then(|mut found| found.peel_to_id().ok());
            let counted = theirs.zip(commit).map(|(theirs, ours)| {
                (count(repository, ours, theirs.detach()), count(repository, theirs.detach(), ours))
            });
            Upstream { name: short(&tracking), ahead_and_behind: counted }
        });
        Ok(Self { name: Some(referent.as_ref().shorten().to_owned()), commit, upstream })
    }

    fn line(&self) -> String {
        let Some(name) = &self.name else { return "HEAD (no branch)".to_owned() };
        let mut line = if self.commit.is_none() { "No commits yet on ".to_owned() } else { String::new() };
        line.push_str(&name.to_str_lossy());
        if let Some(upstream) = &self.upstream {
            line.push_str(&format!("...{}", upstream.name.to_str_lossy()));
            match upstream.ahead_and_behind {
                Some((0, 0)) => {}
                Some((ahead, 0)) => line.push_str(&format!(" [ahead {ahead}]")),
                Some((0, behind)) => line.push_str(&format!(" [behind {behind}]")),
                Some((ahead, behind)) => line.push_str(&format!(" [ahead {ahead}, behind {behind}]")),
                None => line.push_str(" [gone]"),
            }
        }
        line
    }

    fn data(&self) -> Value {
        let name = self.name.as_ref().map(|name| name.to_str_lossy().into_owned());
        let mut data = json!({ "name": name, "commit": self.commit.map(|commit| commit.to_string()) });
        if let Some(upstream) = &self.upstream {
            data["upstream"] = upstream.name.to_str_lossy().into();
            match upstream.ahead_and_behind {
                Some((ahead, behind)) => {
                    data["ahead"] = ahead.into();
                    data["behind"] = behind.into();
                }
                None => data["gone"] = true.into(),
            }
        }
        data
    }
}

/// The reference that a branch follows, as its repository says (git-config(1), `branch.NAME.merge`).
fn followed(repository: &gix::Repository, branch: &gix::refs::FullNameRef) -> Option<BString> {
    let config = repository.config_snapshot();
    let config = config.plumbing();
    let of_branch = |key: &str| config.string_by("branch", Some(branch.shorten()), key);
    let (remote, merge) = (of_branch("remote")?, of_branch("merge")?);
    if remote == b"." {
        return Some(merge);
    }
    let specs = config.strings_by("remote", Some(remote.as_bstr()), "fetch")?;
    specs.iter().find_map(|spec| {
        let (from, to) = spec.strip_prefix(b"+").unwrap_or(spec).split_once_str(":")?;
        match from.split_once_str("*") {
            Some((before, after)) => {
                let part = merge.strip_prefix(before)?.strip_suffix(after)?;
                Some(to.replacen("*", part, 1).into())
            }
            None => (from == merge.as_slice()).then(|| to.into()),
        }
    })
}

/// A reference as people call it.
fn short(reference: &BString) -> BString {
    let kinds = [&b"refs/heads/"[..], b"refs/remotes/", b"refs/tags/", b"refs/"];
    kinds.iter().find_map(|kind| reference.strip_prefix(*kind)).unwrap_or(reference).into()
}

/// How many commits lead to one and not to the other, as far as they are there.
fn count(repository: &gix::Repository, from: gix::ObjectId, without: gix::ObjectId) -> usize {
    if from == without {
        return 0;
    }
    let walk = repository.rev_walk([from]).with_hidden([without]).all();
    walk.map(|walk| walk.take(COMMITS_MAX).take_while(Result::is_ok).count()).unwrap_or_default()
}

/// Search for files that are not tracked, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Untracked {
    Shown,
    Hidden,
}

/// A file of an index: what it is, and where its content is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexFile {
    pub(super) mode: Mode,
    pub(super) id: gix::ObjectId,
}

/// A file that was staged as something else than HEAD has.
#[derive(Debug, Clone)]
pub(super) struct Staged {
    pub(super) path: BString,
    /// Earlier name of it.
    pub(super) from: Option<BString>,
    pub(super) old: Option<IndexFile>,
    pub(super) new: Option<IndexFile>,
}

impl Staged {
    /// Part of it that may be told. Of a file that was renamed one end may not: nothing came from there then, or
    /// nothing went there.
    fn told(self, may_tell_of: impl Fn(&BString) -> bool) -> Option<Self> {
        let is_told = may_tell_of(&self.path);
        match self.from {
            Some(from) if !may_tell_of(&from) => is_told.then_some(Self { from: None, old: None, ..self }),
            Some(from) if !is_told => Some(Self { path: from, from: None, new: None, ..self }),
            from => is_told.then_some(Self { from, ..self }),
        }
    }

    fn letter(&self) -> char {
        match (&self.old, &self.new) {
            (None, _) => 'A',
            (_, None) => 'D',
            (Some(_), Some(_)) if self.from.is_some() => 'R',
            (Some(old), Some(new)) if kind(old.mode) != kind(new.mode) => 'T',
            (Some(_), Some(_)) => 'M',
        }
    }
}

/// Kind of a mode, whatever it says of being executable.
fn kind(mode: Mode) -> Mode {
    if mode == Mode::FILE_EXECUTABLE { Mode::FILE } else { mode }
}

/// A file that is something else than what is staged.
#[derive(Debug, Clone)]
pub(super) struct Worktree {
    pub(super) path: BString,
    pub(super) what: FileChange,
    /// Side that is staged; `None` for what is unmerged or not tracked.
    pub(super) staged: Option<IndexFile>,
}

/// Change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileChange {
    Modified,
    Deleted,
    Type,
    /// It is to be added, and nothing of it is staged yet.
    Intended,
    Unmerged(Conflict),
    Untracked,
}

/// All that has changed.
pub(super) struct StatusChanges {
    pub(super) staged: Vec<Staged>,
    pub(super) worktree: Vec<Worktree>,
}

impl StatusChanges {
    /// Compares HEAD, the index and the working tree.
    pub(super) fn of(repository: &Repository, ctx: &ToolContext, untracked: Untracked) -> Result<Self, ToolError> {
        let index = repository.gix.index_or_empty().map_err(|e| failed("read the index", e))?;
        let staged = staged(repository, &index)?;
        let may_tell_of = |path: &BString| ctx.may_tell_of(&repository.place(path));
        let mut staged: Vec<Staged> = staged.into_iter().filter_map(|change| change.told(may_tell_of)).collect();
        let mut worktree = worktree(repository, ctx, &index, untracked)?;
        let is_unmerged = |path: &BString| index.entry_range(path.as_bstr()).is_some();
        // The library does not count them as tracked.
        worktree.retain(|change| change.what != FileChange::Untracked || !is_unmerged(&change.path));
        worktree.retain(|change| may_tell_of(&change.path));
        staged.sort_by(|a, b| a.path.cmp(&b.path));
        worktree.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { staged, worktree })
    }

    /// A line for each file: those that are tracked first, each group by its paths.
    fn in_order(self) -> Vec<PorcelainLine> {
        let mut tracked: BTreeMap<BString, PorcelainLine> = BTreeMap::new();
        let mut untracked = Vec::new();
        for staged in self.staged {
            let (index, from) = (staged.letter(), staged.from);
            tracked.insert(staged.path.clone(), PorcelainLine { path: staged.path, from, index, worktree: ' ' });
        }
        for file in self.worktree {
            let (index, worktree) = file.what.letters();
            if file.what == FileChange::Untracked {
                untracked.push(PorcelainLine { path: file.path, from: None, index, worktree });
                continue;
            }
            let both = PorcelainLine { path: file.path.clone(), from: None, index, worktree };
            let change = tracked.entry(file.path).or_insert(both);
            change.worktree = worktree;
            if index != ' ' {
                change.index = index;
            }
        }
        tracked.into_values().chain(untracked).collect()
    }
}

impl FileChange {
    /// As the porcelain has them: for the index and for the working tree.
    fn letters(self) -> (char, char) {
        match self {
            Self::Modified => (' ', 'M'),
            Self::Deleted => (' ', 'D'),
            Self::Type => (' ', 'T'),
            Self::Intended => (' ', 'A'),
            Self::Untracked => ('?', '?'),
            Self::Unmerged(Conflict::BothDeleted) => ('D', 'D'),
            Self::Unmerged(Conflict::AddedByUs) => ('A', 'U'),
            Self::Unmerged(Conflict::DeletedByThem) => ('U', 'D'),
            Self::Unmerged(Conflict::AddedByThem) => ('U', 'A'),
            Self::Unmerged(Conflict::DeletedByUs) => ('D', 'U'),
            Self::Unmerged(Conflict::BothAdded) => ('A', 'A'),
            Self::Unmerged(Conflict::BothModified) => ('U', 'U'),
        }
    }
}

/// A line of the porcelain.
struct PorcelainLine {
    path: BString,
    from: Option<BString>,
    index: char,
    worktree: char,
}

impl PorcelainLine {
    fn line(&self) -> Vec<u8> {
        let mut line = format!("{}{} ", self.index, self.worktree).into_bytes();
        if let Some(from) = &self.from {
            line.extend(quoted(from, Blanks::Quoted));
            line.extend_from_slice(b" -> ");
        }
        line.extend(quoted(&self.path, Blanks::Quoted));
        line.push(b'\n');
        line
    }

    fn data(&self) -> Value {
        let mut data = Map::new();
        name(&mut data, "path", self.path.as_bstr());
        if let Some(from) = &self.from {
            name(&mut data, "from", from.as_bstr());
        }
        data.insert("index".to_owned(), self.index.to_string().into());
        data.insert("worktree".to_owned(), self.worktree.to_string().into());
        Value::Object(data)
    }
}

/// HEAD against the index.
fn staged(repository: &Repository, index: &gix::index::State) -> Result<Vec<Staged>, ToolError> {
    let head = repository.gix.head_tree_id_or_empty().map_err(|e| failed("read HEAD", e))?;
    let compare = |renames| -> gix::Result<Vec<Staged>> {
        let mut found = Vec::new();
        let source = gix::worktree::stack::state::attributes::Source::IdMapping;
        let mut pathspec = repository.gix.pathspec(false, repository.patterns(), true, index, source)?;
        repository.gix.tree_index_status(&head, index, Some(&mut pathspec), renames, |change, _, _| {
            found.push(one(change));
            Ok(gix::diff::index::Action::Continue(()))
        })?;
        Ok(found)
    };
    let renames = gix::status::tree_index::TrackRenames::Given(gix::diff::Rewrites::default());
    // Where a content is too large to be compared with others, files are told as deleted and added.
    let found = compare(renames).or_else(|_too_large| compare(gix::status::tree_index::TrackRenames::Disabled));
    found.map_err(|e| failed("compare the index with HEAD", e))
}

fn one(change: ChangeRef<'_, '_>) -> Staged {
    let side = |mode, id: &gix::oid| Some(IndexFile { mode, id: id.to_owned() });
    match change {
        ChangeRef::Addition { location, entry_mode, id, .. } => {
            Staged { path: location.into_owned(), from: None, old: None, new: side(entry_mode, &id) }
        }
        ChangeRef::Deletion { location, entry_mode, id, .. } => {
            Staged { path: location.into_owned(), from: None, old: side(entry_mode, &id), new: None }
        }
        ChangeRef::Modification { location, previous_entry_mode, previous_id, entry_mode, id, .. } => Staged {
            path: location.into_owned(),
            from: None,
            old: side(previous_entry_mode, &previous_id),
            new: side(entry_mode, &id),
        },
        ChangeRef::Rewrite { source_location, source_entry_mode, source_id, location, entry_mode, id, .. } => Staged {
            path: location.into_owned(),
            from: Some(source_location.into_owned()),
            old: side(source_entry_mode, &source_id),
            new: side(entry_mode, &id),
        },
    }
}

/// The index against the working tree.
fn worktree(
    repository: &Repository,
    ctx: &ToolContext,
    index: &gix::index::State,
    untracked: Untracked,
) -> Result<Vec<Worktree>, ToolError> {
    let gix = &repository.gix;
    let mut options = gix.dirwalk_options().map_err(|e| failed("read the settings", e))?;
    // Where only parts are granted, a directory may hold both.
    let emission = if ctx.within.is_empty() {
        gix::dir::walk::EmissionMode::CollapseDirectory
    } else {
        gix::dir::walk::EmissionMode::Matching
    };
    options = options.emit_untracked(emission).emit_ignored(None);
    let options = gix::status::index_worktree::Options {
        dirwalk_options: (untracked == Untracked::Shown).then_some(options),
        thread_limit: Some(1),
        ..gix::status::index_worktree::Options::default()
    };
    let mut recorder = Recorder::default();
    gix.index_worktree_status(
        index,
        repository.patterns(),
        &mut recorder,
        Compare,
        Submodules { ctx, top: &repository.top },
        &mut gix::progress::Discard,
        &AtomicBool::new(false),
        options,
    )
    .map_err(|e| failed("compare the working tree with the index", e))?;
    Ok(recorder.records.into_iter().filter_map(told).collect())
}

fn told(entry: Entry<'_, (), ()>) -> Option<Worktree> {
    match entry {
        Entry::Modification { entry, rela_path, status, .. } => {
            let (what, is_merged) = match status {
                EntryStatus::Conflict { summary, .. } => (FileChange::Unmerged(summary), false),
                EntryStatus::Change(TreeChange::Removed) => (FileChange::Deleted, true),
                EntryStatus::Change(TreeChange::Type { .. }) => (FileChange::Type, true),
                EntryStatus::Change(TreeChange::Modification { .. } | TreeChange::SubmoduleModification(())) => {
                    (FileChange::Modified, true)
                }
                EntryStatus::NeedsUpdate(_) => return None,
                EntryStatus::IntentToAdd => (FileChange::Intended, true),
            };
            let staged = is_merged.then_some(IndexFile { mode: entry.mode, id: entry.id });
            Some(Worktree { path: rela_path.to_owned(), what, staged })
        }
        Entry::DirectoryContents { entry, .. } => {
            let mut path = entry.rela_path;
            match entry.disk_kind {
                Some(gix::dir::entry::Kind::Directory | gix::dir::entry::Kind::Repository) => path.push(b'/'),
                Some(gix::dir::entry::Kind::Untrackable) => return None,
                Some(gix::dir::entry::Kind::File | gix::dir::entry::Kind::Symlink) | None => {}
            }
            let is_untracked = entry.status == gix::dir::entry::Status::Untracked;
            is_untracked.then_some(Worktree { path, what: FileChange::Untracked, staged: None })
        }
        // Renames are looked for among staged files alone.
        Entry::Rewrite { .. } => None,
    }
}

/// Compares a file with what is staged. One that cannot be read is not what is staged, as far as anybody can tell.
#[derive(Clone)]
struct Compare;

impl CompareBlobs for Compare {
    type Output = ();

    fn compare_blobs<'a, 'b>(
        &mut self,
        entry: &gix::index::Entry,
        size: u64,
        data: impl ReadData<'a>,
        buffer: &mut Vec<u8>,
    ) -> gix::Result<Option<()>> {
        Ok(FastEq.compare_blobs(entry, size, data, buffer).unwrap_or(Some(())))
    }
}

/// Compares the commit of a submodule with the one that is staged. What has changed in it is its own business: a look into it would
/// open another repository, with settings of its own.
#[derive(Clone)]
struct Submodules<'a> {
    ctx: &'a ToolContext,
    top: &'a std::path::Path,
}

impl SubmoduleStatus for Submodules<'_> {
    type Output = ();

    fn status(&mut self, entry: &gix::index::Entry, path: &BStr) -> gix::Result<Option<()>> {
        let at = self.top.join(std::ffi::OsStr::from_bytes(path));
        Ok(super::repository::head_of(self.ctx, &at).filter(|head| *head != entry.id).map(drop))
    }
}
