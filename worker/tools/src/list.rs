//! `list`: what is in a directory (S4-6, X4-11), and `list_dir`, which leaves out what git ignores (S2-3).
//!
//! Flat, it tells of each entry what `ls -l` tells; with `recursive` it is a tree, of which at most `DEPTH` levels are
//! shown unless the call says more. Directories come first, then names in the order of their bytes. Links are shown with
//! where they lead and are not followed.
//!
//! The shape: `{path, entries: [{name, kind, permissions, size, mtime, target?}], total?, content}`, where `name` is relative
//! to the directory, with `name_b64` beside it if it is not UTF-8; `content` is the same as text, one entry to a line, in
//! which control characters are escaped; and `total`, in a flat list, counts also what is not shown. Where there is more than
//! [`MOST`], the first are `head` in place of `entries`.
//!
//! Invariant: whatever a directory holds, no more than the entries that can be shown are held in memory.

use callgate_policy::tool::Subject;
use std::collections::BTreeMap;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ignore::{DirEntry, WalkBuilder};
use rustix::fs::{FileType, Stat};
use serde_json::{Map, Value};

use super::arguments::{flag, integer, is_told};
use super::search::{Trouble, place, walk_builder};
use super::{Contract, FileNeed, HEAD, Needs, SyscallNeed, ToolContext, ToolError, ToolResult, name_path, results};
use crate::FileAct;

/// The arguments of `list`.
pub const LIST_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "path": {
      "type": ["string", "object"], "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
      "description": "The directory to list, absolute or relative to the workspace. A path that is not UTF-8 is `{\"b64\": \"…\"}`."
    },
    "show_hidden": {
      "type": "boolean", "default": false,
      "description": "List names that begin with a dot too. Default: false."
    },
    "recursive": {
      "type": "boolean", "default": false,
      "description": "List what is in the directories too, as a tree. Default: false."
    },
    "max_depth": {
      "type": "integer", "default": 3, "minimum": 1, "maximum": 32,
      "description": "How many levels of a tree to list. Default: 3. Only with recursive."
    }
  },
  "required": ["path"],
  "additionalProperties": false
}"#;

/// Contract of `list`.
pub const CONTRACT: Contract = Contract {
    name: "list",
    requires: &["fs.read"],
    description: "List a directory. Each of the `entries` has `name`, `kind`, `permissions`, `size`, `mtime`, and for a link \
        its `target`; `content` is the same as text, or a tree with `recursive`. Directories come first. Names that begin \
        with a dot are left out unless show_hidden is true. Links are not followed. Of more than 200 entries the first are \
        the list `head` instead of `entries`; list a directory further down to see the others.",
    schema: LIST_SCHEMA,
    output: results::LIST,
    kind: SyscallNeed::Plain,
    run,
    files: Some(FileNeed::outside(Needs::List, Subject::Search)),
};

/// The most entries that are shown (S4-6).
pub const MOST: usize = 200;
/// How many levels of a tree are shown unless the call says otherwise (X4-11).
const DEPTH: u64 = 3;
/// Word of a surface to the worker to leave out what git ignores (S2-3).
pub const GITIGNORE: &str = "gitignore";

/// Lists `ctx.path`.
///
/// # Errors
/// A path that is no directory, or that cannot be opened.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let recursive = flag(args, "recursive")?;
    let depth = integer(args, "max_depth", 1, "a whole number of at least 1")?.unwrap_or(DEPTH);
    ctx.require_directory()?;
    let mut listing = DirectoryListing {
        ctx,
        hidden: flag(args, "show_hidden")?,
        gitignore: is_told(args, GITIGNORE),
        depth: if recursive { depth } else { 1 },
        most: ctx.limit.min(MOST),
        entries: Vec::new(),
        more: false,
        trouble: Trouble::default(),
    };
    let total = listing.directory(ctx.path.as_path(), "", 1)?;
    Ok(listing.output(recursive, total))
}

/// One entry, as it is shown.
struct ListedEntry {
    /// Relative to the directory that is listed.
    name: PathBuf,
    kind: FileType,
    /// Nothing, if it has gone meanwhile.
    stat: Option<Stat>,
    target: Option<PathBuf>,
    /// The lines of the tree before its name.
    branch: String,
}

struct DirectoryListing<'a> {
    ctx: &'a ToolContext,
    hidden: bool,
    gitignore: bool,
    depth: u64,
    most: usize,
    entries: Vec<ListedEntry>,
    /// There is more than is shown.
    more: bool,
    trouble: Trouble,
}

/// Names of a directory in the order in which they are shown: directories first.
type ListedNames = BTreeMap<(bool, Vec<u8>), FileType>;

impl DirectoryListing<'_> {
    /// Adds what is in a directory, and below it as far as is wanted. Returns how much is in it.
    fn directory(&mut self, path: &Path, indent: &str, depth: u64) -> Result<u64, ToolError> {
        let (names, total) = self.names(path)?;
        let shown = names.len() as u64;
        let last = names.len().saturating_sub(1);
        for (at, ((_, name), kind)) in names.into_iter().enumerate() {
            if self.entries.len() >= self.most {
                self.more = true;
                return Ok(total);
            }
            let path = path.join(std::ffi::OsString::from_vec(name));
            let is_last = at == last && shown == total;
            let (branch, below) = if is_last { ("└── ", "    ") } else { ("├── ", "│   ") };
            self.add(&path, kind, format!("{indent}{branch}"));
            if kind == FileType::Directory && depth < self.depth {
                let indent = format!("{indent}{below}");
                // One that cannot be opened is told of, and the others are listed.
                if let Err(error) = self.directory(&path, &indent, depth + 1) {
                    self.trouble.note(&path, error.text());
                }
            }
        }
        self.more |= shown < total;
        Ok(total)
    }

    fn add(&mut self, path: &Path, kind: FileType, branch: String) {
        let name = path.strip_prefix(self.ctx.path.as_path()).unwrap_or(path).to_owned();
        let target = if kind == FileType::Symlink { std::fs::read_link(path).ok() } else { None };
        self.entries.push(ListedEntry { name, kind, stat: rustix::fs::lstat(path).ok(), target, branch });
    }

    /// The first names of a directory, and how many there are.
    fn names(&mut self, path: &Path) -> Result<(ListedNames, u64), ToolError> {
        let room = self.most.saturating_sub(self.entries.len());
        let (mut names, mut total) = (ListedNames::new(), 0);
        for entry in self.walk(path).build() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.failed(path, &error)?;
                    continue;
                }
            };
            if entry.depth() == 0 || !self.ctx.may_tell_of(entry.path()) {
                if self.ctx.left_out.has(entry.path()) {
                    self.ctx.left_out.count();
                }
                continue;
            }
            total += 1;
            let kind = kind_of(&entry);
            let key = (kind != FileType::Directory, entry.file_name().as_bytes().to_vec());
            names.insert(key, kind);
            if names.len() > room {
                names.pop_last();
            }
        }
        Ok((names, total))
    }

    /// Reads one directory.
    fn walk(&self, path: &Path) -> WalkBuilder {
        let mut builder = if self.gitignore { walk_builder(path) } else { WalkBuilder::new(path) };
        if self.gitignore {
            // What git keeps is no part of what it keeps it of.
            builder.filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git");
        } else {
            builder.standard_filters(false);
        }
        builder.hidden(!self.hidden).max_depth(Some(1));
        builder
    }

    /// A directory that cannot be read is an error; of one of its names it is told.
    fn failed(&mut self, path: &Path, error: &ignore::Error) -> Result<(), ToolError> {
        let about = place(error).unwrap_or_else(|| path.to_owned());
        match error.io_error() {
            Some(source) if about == path => {
                let source = source
                    .raw_os_error()
                    .map_or_else(|| std::io::Error::other(source.to_string()), std::io::Error::from_raw_os_error);
                Err(ToolError::File { act: FileAct::Open, path: path.into(), source })
            }
            source => {
                self.trouble.note(&about, source.map_or_else(|| error.to_string(), ToString::to_string));
                Ok(())
            }
        }
    }

    fn output(self, recursive: bool, total: u64) -> ToolResult {
        let mut data = Map::new();
        name_path(&mut data, &self.ctx.path);
        data.insert("content".to_owned(), self.text(recursive, total).into());
        let entries: Value = self.entries.iter().map(told).collect();
        data.insert(if self.more { HEAD } else { "entries" }.to_owned(), entries);
        if !recursive {
            data.insert("total".to_owned(), total.into());
        }
        Trouble::tell(vec![self.trouble], &mut data);
        self.ctx.left_out.tell(&mut data);
        ToolResult::of(Value::Object(data), self.more)
    }

    fn text(&self, recursive: bool, total: u64) -> String {
        let mut text = String::new();
        if recursive {
            text.push_str(&format!("{}/\n", plain(self.ctx.path.as_path()).trim_end_matches('/')));
        }
        for entry in &self.entries {
            let line = if recursive { in_tree(entry) } else { in_list(entry) };
            text.push_str(&line);
            text.push('\n');
        }
        match (self.more, recursive) {
            (true, false) => text.push_str(&format!("… {} of {total} entries are shown\n", self.entries.len())),
            (true, true) => text.push_str(&format!("… the first {} entries are shown\n", self.entries.len())),
            (false, _) if self.entries.is_empty() => text.push_str("(empty)\n"),
            (false, _) => {}
        }
        text
    }
}

/// Kind of an entry as the directory has it, or the entry itself where that says nothing.
fn kind_of(entry: &DirEntry) -> FileType {
    use std::os::unix::fs::FileTypeExt as _;
    let Some(kind) = entry.file_type() else { return FileType::Unknown };
    match kind {
        _ if kind.is_dir() => FileType::Directory,
        _ if kind.is_file() => FileType::RegularFile,
        _ if kind.is_symlink() => FileType::Symlink,
        _ if kind.is_fifo() => FileType::Fifo,
        _ if kind.is_socket() => FileType::Socket,
        _ if kind.is_char_device() => FileType::CharacterDevice,
        _ if kind.is_block_device() => FileType::BlockDevice,
        _ => FileType::Unknown,
    }
}

/// An entry as a field of the result.
fn told(entry: &ListedEntry) -> Value {
    let mut fields = Map::new();
    let mut named = |field: &str, path: &Path| {
        if path.to_str().is_none() {
            fields.insert(format!("{field}_b64"), STANDARD.encode(path.as_os_str().as_bytes()).into());
        }
        fields.insert(field.to_owned(), path.to_string_lossy().into());
    };
    named("name", &entry.name);
    if let Some(target) = &entry.target {
        named("target", target);
    }
    fields.insert("kind".to_owned(), name_of(entry.kind).into());
    if let Some(stat) = &entry.stat {
        fields.insert("permissions".to_owned(), permissions(stat).into());
        fields.insert("size".to_owned(), u64::try_from(stat.st_size).unwrap_or(0).into());
        fields.insert("mtime".to_owned(), modified(stat).into());
    }
    Value::Object(fields)
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "directory",
        FileType::RegularFile => "file",
        FileType::Symlink => "link",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        FileType::Unknown => "unknown",
    }
}

/// As `ls -l` writes them.
fn permissions(stat: &Stat) -> String {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => 'd',
        FileType::RegularFile => '-',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Unknown => '?',
    };
    let mut text = String::from(kind);
    // For owner, group and others: where their bits begin, the bit beside them, and its letter.
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let may = |bit: u32, letter: char| if stat.st_mode >> shift & bit == 0 { '-' } else { letter };
        text.push(may(4, 'r'));
        text.push(may(2, 'w'));
        text.push(match (stat.st_mode & special != 0, may(1, 'x')) {
            (false, execute) => execute,
            (true, 'x') => letter,
            (true, _) => letter.to_ascii_uppercase(),
        });
    }
    text
}

/// When it was last changed, to the second, in UTC; `None` for a time that no calendar has.
fn modified(stat: &Stat) -> Option<String> {
    jiff::Timestamp::from_second(stat.st_mtime).ok().map(|time| time.to_string())
}

fn in_list(entry: &ListedEntry) -> String {
    let (permissions, size, time) = match &entry.stat {
        Some(stat) => (permissions(stat), stat.st_size.to_string(), modified(stat).unwrap_or_default()),
        None => ("?".repeat(10), "?".to_owned(), "?".to_owned()),
    };
    format!("{permissions} {size:>10} {time:>20} {}", shown(entry, plain(&entry.name)))
}

fn in_tree(entry: &ListedEntry) -> String {
    let name = entry.name.file_name().map(|name| plain(Path::new(name))).unwrap_or_default();
    format!("{}{}", entry.branch, shown(entry, name))
}

fn shown(entry: &ListedEntry, name: String) -> String {
    match &entry.target {
        _ if entry.kind == FileType::Directory => format!("{name}/"),
        Some(target) => format!("{name} -> {}", plain(target)),
        None => name,
    }
}

/// A name in one line of text: it can make no line of its own.
fn plain(path: &Path) -> String {
    let mut text = String::new();
    for c in path.to_string_lossy().chars() {
        if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().expect("a directory")
    }

    fn list(path: &Path, args: Value) -> ToolResult {
        run(&args, &ToolContext::new(path.into(), 1000)).expect("a list")
    }

    fn names(output: &ToolResult) -> Vec<&str> {
        let key = if output.truncated { HEAD } else { "entries" };
        output.data[key].as_array().expect("entries").iter().filter_map(|entry| entry["name"].as_str()).collect()
    }

    /// S4-6: permissions, size, time and name; directories first (X4-11), and nothing hidden unless the call says so.
    #[test]
    fn s4_6_a_flat_list_has_permissions_size_time_and_name() {
        let dir = directory();
        let path = dir.path();
        fs::write(path.join("a.txt"), "12345").expect("a file");
        fs::set_permissions(path.join("a.txt"), fs::Permissions::from_mode(0o4751)).expect("a mode");
        fs::write(path.join(".env"), "").expect("a file");
        fs::create_dir(path.join("z")).expect("a directory");
        fs::create_dir(path.join("z/below")).expect("a directory");
        symlink("/nowhere", path.join("link")).expect("a link");
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        let file = fs::File::options().write(true).open(path.join("a.txt")).expect("open");
        file.set_modified(time).expect("a time");
        let output = list(path, json!({ "path": "." }));
        assert_eq!(names(&output), ["z", "a.txt", "link"]);
        assert_eq!(output.data["total"], 3);
        let file = &output.data["entries"][1];
        assert_eq!(
            *file,
            json!({ "name": "a.txt", "kind": "file", "permissions": "-rwsr-x--x", "size": 5, "mtime": "2023-11-14T22:13:20Z" })
        );
        let content = output.data["content"].as_str().expect("text");
        assert!(content.contains("-rwsr-x--x          5 2023-11-14T22:13:20Z a.txt\n"), "{content}");
        assert!(content.ends_with(" link -> /nowhere\n"), "{content}");
        assert_eq!(names(&list(path, json!({ "show_hidden": true }))), ["z", ".env", "a.txt", "link"]);
    }

    /// X4-11: three levels unless the call says otherwise, directories first.
    #[test]
    fn x4_11_a_tree_has_three_levels() {
        let dir = directory();
        fs::create_dir_all(dir.path().join("b/c/d/e")).expect("directories");
        for name in ["a", "b/x", "b/c/y", "b/c/d/deep"] {
            fs::write(dir.path().join(name), "").expect("a file");
        }
        let output = list(dir.path(), json!({ "recursive": true }));
        assert_eq!(names(&output), ["b", "b/c", "b/c/d", "b/c/y", "b/x", "a"]);
        let content = output.data["content"].as_str().expect("text");
        let (_, tree) = content.split_once('\n').expect("lines");
        assert_eq!(tree, "├── b/\n│   ├── c/\n│   │   ├── d/\n│   │   └── y\n│   └── x\n└── a\n");
        assert_eq!(names(&list(dir.path(), json!({ "recursive": true, "max_depth": 1 }))), ["b", "a"]);
        assert!(names(&list(dir.path(), json!({ "recursive": true, "max_depth": 4 }))).contains(&"b/c/d/deep"));
    }

    /// C-15: all of 200 entries are shown, and of 201 the first 200.
    #[test]
    fn c_15_two_hundred_entries_are_shown_and_no_more() {
        let dir = directory();
        for number in 0..MOST {
            fs::write(dir.path().join(format!("{number:03}")), "").expect("a file");
        }
        for args in [json!({}), json!({ "recursive": true })] {
            let output = list(dir.path(), args);
            assert_eq!((names(&output).len(), output.truncated), (MOST, false));
        }
        fs::write(dir.path().join("zzz"), "").expect("a file");
        for args in [json!({}), json!({ "recursive": true })] {
            let output = list(dir.path(), args);
            assert_eq!((names(&output).len(), output.truncated), (MOST, true));
            assert_eq!(names(&output).last(), Some(&"199"));
            assert!(output.data["content"].as_str().is_some_and(|content| content.contains("200")));
        }
        // A directory further down is begun, and what is after it is said to be missing.
        let below = dir.path().join("below");
        fs::create_dir(&below).expect("a directory");
        for number in 0..300 {
            fs::write(below.join(number.to_string()), "").expect("a file");
        }
        let output = list(dir.path(), json!({ "recursive": true }));
        assert_eq!((names(&output).len(), output.truncated, names(&output)[0]), (MOST, true, "below"));
    }

    /// S2-3: what git ignores is left out if the surface says so, wherever the ignore file is.
    #[test]
    fn s2_3_what_git_ignores_is_left_out() {
        let dir = directory();
        for name in ["src", "src/target", "target", ".git", ".github"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        for (name, content) in [(".gitignore", "target\n*.log\n"), ("src/a.log", ""), ("src/a.rs", "")] {
            fs::write(dir.path().join(name), content).expect("a file");
        }
        let told = json!({ GITIGNORE: 1, "show_hidden": true });
        assert_eq!(names(&list(dir.path(), told.clone())), [".github", "src", ".gitignore"]);
        assert_eq!(names(&list(&dir.path().join("src"), told)), ["a.rs"]);
        let all = json!({ "show_hidden": true });
        assert_eq!(names(&list(dir.path(), all)), [".git", ".github", "src", "target", ".gitignore"]);
        assert_eq!(names(&list(&dir.path().join("src"), json!({}))), ["target", "a.log", "a.rs"]);
    }

    #[test]
    fn names_and_kinds_of_all_sorts_are_told_and_nothing_is_opened() {
        let dir = directory();
        let path = dir.path();
        rustix::fs::mknodat(rustix::fs::CWD, path.join("pipe"), FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .expect("mkfifo");
        let _socket = UnixListener::bind(path.join("socket")).expect("a socket");
        fs::write(path.join(std::ffi::OsStr::from_bytes(b"not\xffutf8")), "").expect("a file");
        fs::write(path.join("two\nlines\x1b[31m"), "").expect("a file");
        symlink(".", path.join("loop")).expect("a link");
        let output = list(path, json!({ "recursive": true, "max_depth": 32 }));
        assert_eq!(names(&output), ["loop", "not\u{fffd}utf8", "pipe", "socket", "two\nlines\x1b[31m"]);
        assert_eq!(output.data["entries"][1]["name_b64"], STANDARD.encode(b"not\xffutf8"));
        let kinds: Vec<_> = (0..4).map(|at| &output.data["entries"][at]["kind"]).collect();
        assert_eq!(kinds, ["link", "file", "fifo", "socket"]);
        let content = output.data["content"].as_str().expect("text");
        assert!(content.contains(r"two\nlines\u{1b}[31m"), "{content}");
        assert_eq!(content.lines().count(), 6);
    }

    #[test]
    fn a_path_that_is_no_directory_is_an_error() {
        let dir = directory();
        fs::write(dir.path().join("f"), "").expect("a file");
        let error =
            |name: &str| run(&json!({}), &ToolContext::new(dir.path().join(name).into(), 9)).expect_err("no directory");
        assert!(matches!(error("f"), ToolError::NotADirectory { .. }));
        assert_eq!(error("gone").errno(), Some(libc::ENOENT));
    }
}
