//! `git_diff`: what has changed in the files of a repository, as `git diff` prints it (S2-15, X2-18).

use std::io::Read as _;
use std::path::Path;

use gix::bstr::{BStr, BString, ByteSlice as _};
use gix::index::entry::Mode;
use serde_json::{Map, Value};

use super::super::arguments::{flag, integer};
use super::super::search::open_found;
use super::super::{Contract, SyscallNeed, ToolContext, ToolError, ToolResult};
use super::repository::Repository;
use super::status::{FileChange, IndexFile, StatusChanges, Untracked};
use super::unified::ComparedTexts;
use super::{Blanks, GitText, failed, name, quoted};

/// The name.
pub const NAME: &str = "git_diff";

/// Contract of `git_diff`.
pub const CONTRACT: Contract = Contract {
    name: NAME,
    requires: &["fs.read"],
    description: "Show what has changed in the files of a git repository, without running git: `content` is what `git diff` \
        prints, or `git diff --staged`; `files` says for each file what has become of it and how many lines were added and \
        removed. Files that are not tracked are not part of it; git_status names them. Programs that the repository configures \
        (external diffs, text conversions, filters) do not run. Of more than 40,000 characters the first are `head` instead of \
        `content`, and the rest is in the file `output_path` of the metadata; a narrower path is usually better. Nothing is \
        changed.",
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
      "description": "The directory or file to compare, absolute or relative to the workspace; the repository is the one that it lies in. Default: the workspace. A path that is not UTF-8 is `{\"b64\": \"…\"}`."
    },
    "staged": {
      "type": "boolean", "default": false,
      "description": "Compare what is staged with the last commit, instead of the files with what is staged. Default: false."
    },
    "context": {
      "type": "integer", "default": 3, "minimum": 0, "maximum": 50,
      "description": "How many lines to show around each change. Default: 3."
    }
  },
  "required": [],
  "additionalProperties": false
}"#;

const OUTPUT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "path": { "type": "string", "description": "The top of the repository; the paths of files are relative to it." },
    "path_b64": { "type": "string" },
    "staged": { "type": "boolean" },
    "files": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {
          "path": { "type": "string" },
          "path_b64": { "type": "string" },
          "from": { "type": "string", "description": "What a renamed file was called." },
          "from_b64": { "type": "string" },
          "status": { "enum": ["added", "modified", "deleted", "renamed", "unmerged"] },
          "added": { "type": "integer", "description": "Lines." },
          "removed": { "type": "integer", "description": "Lines." },
          "binary": { "type": "boolean", "description": "It is no text, or too long to be compared." },
          "unreadable": { "type": "string", "description": "Why it was not compared." }
        },
        "required": ["path", "status"]
      }
    },
    "content": { "type": "string" },
    "lossy": { "type": "boolean", "description": "Bytes that are no text were replaced in the content." },
    "head": { "description": "The first part of a content that was too long." }
  },
  "required": ["path", "staged", "files"],
  "anyOf": [{ "required": ["head"] }, { "required": ["content"] }]
}"#;

/// The most of a diff that is shown (X2-18).
const SHOWN_MAX: usize = 40_000;
/// The longest content that is compared line by line, bytes: it is held in memory, as is each of its lines.
const CONTENT_MAX: u64 = 8 * 1024 * 1024;
/// How much of a content is looked at for a NUL, as git does it.
const BINARY_LOOK: usize = 8000;
/// How many files are shown as data.
const FILES_MAX: usize = 1000;
/// How many digits of a content's name are shown.
const DIGITS: usize = 7;

/// Compares what `ctx.path` holds.
///
/// # Errors
/// If there is no repository, or it cannot be read.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let is_staged = flag(args, "staged")?;
    let context = integer(args, "context", 0, "a whole number from 0 to 50")?.unwrap_or(3).min(50);
    let context = u32::try_from(context).unwrap_or(50);
    let repository = Repository::of(ctx)?;
    let changes = StatusChanges::of(&repository, ctx, Untracked::Hidden)?;
    let pairs = if is_staged { staged(&changes) } else { unstaged(&changes) };
    let mut reader = ContentReader::new(&repository, ctx)?;
    let mut text = GitText::new();
    let mut files = Vec::new();
    for pair in &pairs {
        if text.is_full() {
            text.lost = true;
            break;
        }
        files.push(pair.tell(&mut reader, context, &mut text));
    }
    let is_short = files.len() > FILES_MAX;
    files.truncate(FILES_MAX);
    let mut data = Map::new();
    super::super::name_path(&mut data, &repository.top.clone().into());
    data.insert("staged".to_owned(), is_staged.into());
    data.insert("files".to_owned(), files.into());
    let mut output = text.into_output(data, SHOWN_MAX.min(ctx.limit));
    output.truncated |= is_short;
    Ok(output)
}

/// A file and what has become of it.
struct Pair {
    path: BString,
    from: Option<BString>,
    old: Option<IndexFile>,
    new: New,
}

/// State of a file now.
enum New {
    /// It is not there.
    Gone,
    /// It is staged.
    Staged(IndexFile),
    /// It is in the working tree.
    File,
    Unmerged,
}

/// Pairs that are staged against HEAD.
fn staged(changes: &StatusChanges) -> Vec<Pair> {
    let unmerged = changes.worktree.iter().filter(|file| matches!(file.what, FileChange::Unmerged(_)));
    let unmerged = unmerged.map(|file| Pair { path: file.path.clone(), from: None, old: None, new: New::Unmerged });
    let is_unmerged = |path: &BString| {
        changes.worktree.iter().any(|file| file.path == *path && matches!(file.what, FileChange::Unmerged(_)))
    };
    let staged = changes.staged.iter().filter(|file| !is_unmerged(&file.path)).map(|file| Pair {
        path: file.path.clone(),
        from: file.from.clone(),
        old: file.old.clone(),
        new: file.new.clone().map_or(New::Gone, New::Staged),
    });
    let mut all: Vec<Pair> = staged.chain(unmerged).collect();
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

/// Files against what is staged.
fn unstaged(changes: &StatusChanges) -> Vec<Pair> {
    let pair = |file: &super::status::Worktree| {
        let (old, new) = match file.what {
            FileChange::Modified | FileChange::Type => (file.staged.clone(), New::File),
            FileChange::Deleted => (file.staged.clone(), New::Gone),
            FileChange::Intended => (None, New::File),
            FileChange::Unmerged(_) => (None, New::Unmerged),
            FileChange::Untracked => return None,
        };
        Some(Pair { path: file.path.clone(), from: None, old, new })
    };
    changes.worktree.iter().filter_map(pair).collect()
}

/// A content, as git would store it.
struct Content {
    mode: Mode,
    id: gix::ObjectId,
    /// `None` for more than is compared.
    bytes: Option<Vec<u8>>,
}

impl Content {
    fn is_binary(&self) -> bool {
        self.bytes.as_ref().is_none_or(|bytes| bytes[..bytes.len().min(BINARY_LOOK)].contains(&0))
    }
}

impl Pair {
    /// Adds what git prints of it, and gives back what a result says of it.
    fn tell(&self, reader: &mut ContentReader<'_>, context: u32, text: &mut GitText) -> Value {
        let mut data = Map::new();
        name(&mut data, "path", self.path.as_bstr());
        if let Some(from) = &self.from {
            name(&mut data, "from", from.as_bstr());
        }
        let status = match (&self.old, &self.new) {
            (_, New::Unmerged) => "unmerged",
            (_, New::Gone) => "deleted",
            (None, _) => "added",
            (Some(_), _) if self.from.is_some() => "renamed",
            (Some(_), _) => "modified",
        };
        data.insert("status".to_owned(), status.into());
        if let Err(why) = self.compare(reader, context, text, &mut data) {
            data.insert("unreadable".to_owned(), why.into());
        }
        Value::Object(data)
    }

    fn compare(
        &self,
        reader: &mut ContentReader<'_>,
        context: u32,
        text: &mut GitText,
        data: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let old = self.old.as_ref().map(|side| reader.stored(side)).transpose()?;
        let new = match &self.new {
            New::Gone => None,
            New::Staged(side) => Some(reader.stored(side)?),
            New::File => Some(reader.file(&self.path)?),
            New::Unmerged => {
                text.add(b"* Unmerged path ");
                text.add(&quoted(&self.path, Blanks::Plain));
                text.add(b"\n");
                return Ok(());
            }
        };
        // One that became something else goes, and another comes.
        match (&old, &new) {
            (Some(old), Some(new)) if of_a_kind(old.mode, new.mode) => {
                self.one(Some(old), Some(new), context, text, data)
            }
            (Some(old), Some(new)) => {
                self.one(Some(old), None, context, text, data);
                self.one(None, Some(new), context, text, data);
            }
            (old, new) => self.one(old.as_ref(), new.as_ref(), context, text, data),
        }
        Ok(())
    }

    fn one(
        &self,
        old: Option<&Content>,
        new: Option<&Content>,
        context: u32,
        text: &mut GitText,
        data: &mut Map<String, Value>,
    ) {
        let is_same = old.zip(new).is_some_and(|(old, new)| old.id == new.id);
        let is_binary = [old, new].into_iter().flatten().any(Content::is_binary);
        let bytes =
            |content: Option<&'_ Content>| content.and_then(|content| content.bytes.clone()).unwrap_or_default();
        let (before, after) = (bytes(old), bytes(new));
        let compared = (!is_binary && !is_same).then(|| ComparedTexts::new(&before, &after));
        // A file that was only touched has no diff.
        if is_same && self.from.is_none() && old.map(|old| old.mode) == new.map(|new| new.mode) {
            return;
        }
        let similarity = if is_same { 100 } else { compared.as_ref().map_or(0, ComparedTexts::similarity) };
        text.add(&self.header(old, new, similarity));
        let sum = |key: &str, more: u32| data.get(key).and_then(Value::as_u64).unwrap_or(0) + u64::from(more);
        match &compared {
            Some(compared) => {
                let (added, removed) = (sum("added", compared.added()), sum("removed", compared.removed()));
                data.insert("added".to_owned(), added.into());
                data.insert("removed".to_owned(), removed.into());
                if compared.added() + compared.removed() > 0 {
                    text.add(&self.names(old, new, "--- ", "+++ ", "\n"));
                    compared.hunks(context, |hunk| text.add(hunk));
                }
            }
            None if is_same => {}
            None => {
                data.insert("binary".to_owned(), true.into());
                text.add(&self.names(old, new, "Binary files ", " and ", " differ\n"));
            }
        }
    }

    /// Header before the lines: which file, its modes, its contents' names.
    fn header(&self, old: Option<&Content>, new: Option<&Content>, similarity: usize) -> Vec<u8> {
        let from = self.from.as_ref().unwrap_or(&self.path);
        let mut header = b"diff --git ".to_vec();
        header.extend(prefixed("a/", from));
        header.push(b' ');
        header.extend(prefixed("b/", &self.path));
        header.push(b'\n');
        let mut add = |line: String| header.extend_from_slice(line.as_bytes());
        match (old, new) {
            (None, Some(new)) => add(format!("new file mode {:06o}\n", new.mode.bits())),
            (Some(old), None) => add(format!("deleted file mode {:06o}\n", old.mode.bits())),
            (Some(old), Some(new)) if old.mode != new.mode => {
                add(format!("old mode {:06o}\nnew mode {:06o}\n", old.mode.bits(), new.mode.bits()));
            }
            (Some(_) | None, Some(_) | None) => {}
        }
        if self.from.is_some() {
            add(format!("similarity index {similarity}%\n"));
            for (what, path) in [("rename from ", from), ("rename to ", &self.path)] {
                header.extend_from_slice(what.as_bytes());
                header.extend(quoted(path, Blanks::Plain));
                header.push(b'\n');
            }
        }
        let id = |content: Option<&Content>| {
            content.map_or_else(|| "0".repeat(DIGITS), |content| content.id.to_hex_with_len(DIGITS).to_string())
        };
        if old.map(|old| old.id) != new.map(|new| new.id) {
            let mode = old.zip(new).filter(|(old, new)| old.mode == new.mode);
            let mode = mode.map(|(old, _)| format!(" {:06o}", old.mode.bits())).unwrap_or_default();
            header.extend_from_slice(format!("index {}..{}{mode}\n", id(old), id(new)).as_bytes());
        }
        header
    }

    fn names(&self, old: Option<&Content>, new: Option<&Content>, first: &str, then: &str, end: &str) -> Vec<u8> {
        let nothing = || b"/dev/null".to_vec();
        let mut line = first.as_bytes().to_vec();
        // A name with a blank ends in a tab, so that patch(1) finds the end of it.
        let tab = |path: &BStr| if then == "+++ " && path.contains(&b' ') { "\t" } else { "" };
        let from = self.from.as_ref().unwrap_or(&self.path);
        line.extend(old.map_or_else(nothing, |_| prefixed("a/", from)));
        if then == "+++ " {
            line.extend_from_slice(old.map_or("", |_| tab(from.as_bstr())).as_bytes());
            line.push(b'\n');
        }
        line.extend_from_slice(then.as_bytes());
        line.extend(new.map_or_else(nothing, |_| prefixed("b/", &self.path)));
        line.extend_from_slice(new.map_or("", |_| tab(self.path.as_bstr())).as_bytes());
        line.extend_from_slice(end.as_bytes());
        line
    }
}

/// A path behind `a/` or `b/`, in quotes together if in quotes.
fn prefixed(prefix: &str, path: &[u8]) -> Vec<u8> {
    quoted(&[prefix.as_bytes(), path].concat(), Blanks::Plain)
}

/// True if a change from one mode to the other leaves a file a file.
fn of_a_kind(old: Mode, new: Mode) -> bool {
    let is_file = |mode| mode == Mode::FILE || mode == Mode::FILE_EXECUTABLE;
    old == new || (is_file(old) && is_file(new))
}

/// Reads contents.
struct ContentReader<'a> {
    ctx: &'a ToolContext,
    repository: &'a Repository,
    /// Steps that git takes with a file's lines before it stores them; no filter of the repository's is among it.
    pipeline: gix::filter::Pipeline<'a>,
    index: gix::worktree::IndexPersistedOrInMemory,
}

impl<'a> ContentReader<'a> {
    fn new(repository: &'a Repository, ctx: &'a ToolContext) -> Result<Self, ToolError> {
        let (pipeline, index) =
            repository.gix.filter_pipeline(None).map_err(|e| failed("read the attributes of files", e))?;
        Ok(Self { ctx, repository, pipeline, index })
    }

    /// Content that is stored.
    fn stored(&self, side: &IndexFile) -> Result<Content, String> {
        let content = |bytes| Content { mode: side.mode, id: side.id, bytes };
        if side.mode == Mode::COMMIT {
            return Ok(content(Some(format!("Subproject commit {}\n", side.id).into_bytes())));
        }
        let told = |e: gix::Error| failed("read an object", e).to_string();
        let header = self.repository.gix.find_header(side.id).map_err(told)?;
        if header.size() > CONTENT_MAX {
            return Ok(content(None));
        }
        let object = self.repository.gix.find_object(side.id).map_err(told)?;
        Ok(content(Some(object.detach().data)))
    }

    /// Content in the working tree.
    fn file(&mut self, path: &BString) -> Result<Content, String> {
        let place = self.repository.place(path);
        let about = std::fs::symlink_metadata(&place).map_err(|e| e.to_string())?;
        let kind = self.repository.gix.object_hash();
        let hashed = |bytes: &[u8]| {
            gix::objs::compute_hash(kind, gix::objs::Kind::Blob, bytes)
                .map_err(|e| failed("read a file", e).to_string())
        };
        if about.is_symlink() {
            let target = std::fs::read_link(&place).map_err(|e| e.to_string())?;
            let bytes = target.into_os_string().into_encoded_bytes();
            return Ok(Content { mode: Mode::SYMLINK, id: hashed(&bytes)?, bytes: Some(bytes) });
        }
        if about.is_dir() {
            let id = super::repository::head_of(self.ctx, &place).ok_or("it is a directory")?;
            let bytes = format!("Subproject commit {id}\n").into_bytes();
            return Ok(Content { mode: Mode::COMMIT, id, bytes: Some(bytes) });
        }
        let mode = self.mode(path, &about);
        let Some(bytes) = self.bytes(path, &place)? else {
            return Ok(Content { mode, id: gix::ObjectId::null(kind), bytes: None });
        };
        Ok(Content { mode, id: hashed(&bytes)?, bytes: Some(bytes) })
    }

    /// The mode that a file has; where the repository says that modes do not count, the one that it had.
    fn mode(&self, path: &BString, about: &std::fs::Metadata) -> Mode {
        use std::os::unix::fs::MetadataExt as _;
        let counts = self.repository.gix.filesystem_options().is_ok_and(|options| options.executable_bit);
        let staged = self.index.entry_by_path(path.as_bstr()).map(|entry| entry.mode);
        match staged {
            Some(staged) if !counts && staged != Mode::SYMLINK => staged,
            Some(_) | None if about.mode() & 0o100 != 0 => Mode::FILE_EXECUTABLE,
            Some(_) | None => Mode::FILE,
        }
    }

    /// A file as git would store it; `None` if it is longer than what is compared.
    fn bytes(&mut self, path: &BString, place: &Path) -> Result<Option<Vec<u8>>, String> {
        let file = open_found(place).map_err(|e| e.to_string())?.ok_or("it is no regular file")?;
        let mut bytes = Vec::new();
        file.take(CONTENT_MAX + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > CONTENT_MAX {
            return Ok(None);
        }
        let told = |e: gix::Error| failed("read a file", e).to_string();
        let relative = gix::path::from_bstr(path.as_bstr()).map_err(|e| e.to_string())?;
        let mut stored = Vec::new();
        let mut converted = self.pipeline.convert_to_git(bytes.as_slice(), &relative, &self.index).map_err(told)?;
        converted.read_to_end(&mut stored).map_err(|e| e.to_string())?;
        Ok(Some(stored))
    }
}
