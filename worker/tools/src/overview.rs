//! `repo_overview`: the files of a tree, and the languages that they are written in (S0-25).
//!
//! The walk is that of `glob` and `grep`: hidden and ignored files are left out, links are not followed. A language is what
//! a file's name says: its extension, or all of the name. Considered: `tokei`, which also tells comments from code. It opens what it
//! finds as it is, so that a pipe among the files would keep it waiting, and it parses each of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::arguments::integer;
use super::search::{Chosen, FirstFew, Trouble, Visitor, open_found, path_of, sort_key, walk};
use super::{Contract, HEAD, SyscallNeed, ToolContext, ToolError, ToolResult, name_path};

mod languages;

/// The name.
pub const NAME: &str = "repo_overview";

/// Contract of `repo_overview`.
pub const CONTRACT: Contract = Contract {
    name: NAME,
    requires: &["fs.read"],
    description: "Show what a directory holds: `content` is a tree of its directories and files down to `depth`, each \
        directory with the number and the size of all files below it; `languages` says how many files, lines and bytes there \
        are of each language, the largest first, by the names of files. Left out are hidden files, `.git` among them, and those \
        that .gitignore, .ignore or .rgignore exclude. Binary files count without lines. Links are not followed.",
    schema: SCHEMA,
    output: OUTPUT,
    kind: SyscallNeed::Searches,
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
      "description": "The directory, absolute or relative to the workspace. Default: the workspace. A path that is not UTF-8 is `{\"b64\": \"…\"}`."
    },
    "depth": {
      "type": "integer", "minimum": 1, "maximum": 20,
      "description": "How many levels the tree shows. Default: 3. What lies deeper is counted all the same."
    }
  },
  "required": [],
  "additionalProperties": false
}"#;

const OUTPUT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "path": { "type": "string" },
    "path_b64": { "type": "string" },
    "files": { "type": "integer" },
    "bytes": { "type": "integer" },
    "lines": { "type": "integer", "description": "Of files that are text." },
    "languages": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {
          "language": { "type": "string" },
          "files": { "type": "integer" },
          "lines": { "type": "integer" },
          "bytes": { "type": "integer" }
        },
        "required": ["language", "files", "lines", "bytes"]
      }
    },
    "unreadable": { "type": "array" },
    "incomplete": { "type": "boolean", "description": "There are more files than the tree has room for." },
    "content": { "type": "string" },
    "head": { "description": "The first part of a tree that was too long." }
  },
  "required": ["path", "files", "bytes", "lines", "languages"],
  "anyOf": [{ "required": ["head"] }, { "required": ["content"] }]
}"#;

/// The most of a tree that is shown, bytes.
const SHOWN_MAX: usize = 32 * 1024;
/// About how much memory the names of a tree take in each thread, bytes.
const NAMES_MAX: usize = 4 * 1024 * 1024;
/// The most of one file that is read for its lines, bytes. A longer one counts as binary.
const READ_MAX: u64 = 64 * 1024 * 1024;
/// How much of a file is looked at for a NUL before it is taken for text.
const BINARY_LOOK: usize = 8000;
/// Bytes that a name takes beside its own.
const ENTRY: usize = 64;

/// Looks over `ctx.path`.
///
/// # Errors
/// If it is no directory, or cannot be looked at.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let depth = integer(args, "depth", 1, "a whole number from 1 to 20")?.unwrap_or(3).min(20);
    let depth = usize::try_from(depth).unwrap_or(20);
    ctx.require_directory()?;
    let (counts, trouble) = walk(ctx, &Chosen::all(), || ThreadCounts::new(ctx.path.as_path(), depth))?;
    let mut total = Sum::default();
    let mut languages: BTreeMap<&'static str, Sum> = BTreeMap::new();
    let mut directories: BTreeMap<Vec<u8>, Sum> = BTreeMap::new();
    let mut is_short = false;
    for one in &counts {
        one.languages.iter().for_each(|(language, sum)| languages.entry(language).or_default().add(sum));
        one.directories.iter().for_each(|(directory, sum)| directories.entry(directory.clone()).or_default().add(sum));
        is_short |= one.is_short;
    }
    languages.values().for_each(|sum| total.add(sum));
    let (files, lost) = FirstFew::of_all(NAMES_MAX, counts.into_iter().map(|one| one.files));
    let tree = tree(&files, &directories);
    let at = tree.floor_char_boundary(SHOWN_MAX.min(ctx.limit).min(tree.len()));
    let (shown, rest) = tree.split_at(at);
    let mut data = Map::new();
    name_path(&mut data, &ctx.path);
    data.insert("files".to_owned(), total.files.into());
    data.insert("bytes".to_owned(), total.bytes.into());
    data.insert("lines".to_owned(), total.lines.into());
    let mut languages: Vec<_> = languages.into_iter().collect();
    languages.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.bytes));
    data.insert("languages".to_owned(), languages.into_iter().map(|(language, sum)| sum.data(language)).collect());
    data.insert(if rest.is_empty() { "content" } else { HEAD }.to_owned(), shown.into());
    if lost || is_short {
        data.insert("incomplete".to_owned(), true.into());
    }
    Trouble::tell(trouble, &mut data);
    let truncated = !rest.is_empty();
    Ok(ToolResult { data: Value::Object(data), truncated, rest: rest.as_bytes().to_vec(), lost: lost || is_short })
}

/// Files, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    files: u64,
    lines: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.lines += other.lines;
        // Files without content may be of any size.
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    fn data(self, language: &str) -> Value {
        json!({ "language": language, "files": self.files, "lines": self.lines, "bytes": self.bytes })
    }
}

/// Counts of one thread.
struct ThreadCounts<'a> {
    top: &'a Path,
    depth: usize,
    languages: BTreeMap<&'static str, Sum>,
    /// Down to the depth that is shown, by the key of the path.
    directories: BTreeMap<Vec<u8>, Sum>,
    /// About what they take.
    taken: usize,
    /// There were more directories than there is room for.
    is_short: bool,
    /// Those that the tree names.
    files: FirstFew<u64>,
}

impl<'a> ThreadCounts<'a> {
    fn new(top: &'a Path, depth: usize) -> Self {
        let (languages, directories) = (BTreeMap::new(), BTreeMap::new());
        Self { top, depth, languages, directories, taken: 0, is_short: false, files: FirstFew::new(NAMES_MAX) }
    }

    /// Counts a file for each directory above it that is shown.
    fn place(&mut self, path: &Path, sum: &Sum) {
        let Ok(below) = path.strip_prefix(self.top) else { return };
        let levels = below.components().count();
        if levels <= self.depth {
            let key = sort_key(below);
            if self.files.wants(&key) {
                self.files.add(key.clone(), key.len() + ENTRY, sum.bytes);
            }
        }
        let above = below.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
        for above in above.filter(|above| above.components().count() <= self.depth) {
            let key = sort_key(above);
            if let Some(counted) = self.directories.get_mut(&key) {
                counted.add(sum);
            } else if self.taken < NAMES_MAX {
                self.taken += key.len() + ENTRY;
                self.directories.insert(key, *sum);
            } else {
                self.is_short = true;
            }
        }
    }
}

impl Visitor for ThreadCounts<'_> {
    fn file(&mut self, path: &Path, _: bool, trouble: &mut Trouble) {
        let language = languages::of(path);
        let sum = match open_found(path).and_then(|file| file.map(counted).transpose()) {
            Ok(Some(sum)) => sum,
            Ok(None) => return,
            Err(error) => {
                trouble.note(path, error.to_string());
                Sum { files: 1, ..Sum::default() }
            }
        };
        self.languages.entry(language).or_default().add(&sum);
        self.place(path, &sum);
    }
}

/// A file's size and its lines; of one that is no text, none.
fn counted(file: File) -> std::io::Result<Sum> {
    let bytes = file.metadata()?.len();
    let sum = Sum { files: 1, lines: 0, bytes };
    if bytes > READ_MAX {
        return Ok(sum);
    }
    let mut file = file.take(READ_MAX);
    let mut buffer = vec![0; 64 * 1024];
    let (mut lines, mut last, mut is_first) = (0, b'\n', true);
    loop {
        let read = file.read(&mut buffer)?;
        let Some(end) = buffer[..read].last() else { break };
        if is_first && buffer[..read.min(BINARY_LOOK)].contains(&0) {
            return Ok(sum);
        }
        (is_first, last) = (false, *end);
        lines += memchr::memchr_iter(b'\n', &buffer[..read]).count();
    }
    // The last line counts without its end too.
    let lines = lines + usize::from(last != b'\n');
    Ok(Sum { lines: u64::try_from(lines).unwrap_or(u64::MAX), ..sum })
}

/// A line for each directory and file, below the directory that it is in.
fn tree(files: &[(Vec<u8>, u64)], directories: &BTreeMap<Vec<u8>, Sum>) -> String {
    let mut all: Vec<(&[u8], String)> = Vec::new();
    for (key, sum) in directories {
        let files = if sum.files == 1 { "file" } else { "files" };
        all.push((key, format!("/ ({} {files}, {})", sum.files, size(sum.bytes))));
    }
    all.extend(files.iter().map(|(key, bytes)| (key.as_slice(), format!(" ({})", size(*bytes)))));
    all.sort();
    let mut tree = String::new();
    for (key, about) in all {
        let level = key.iter().filter(|byte| **byte == 0).count();
        let path = path_of(key.to_vec());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // A line of the tree is one line, whatever a file is called.
        let name: String = name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        tree.push_str(&format!("{}{name}{about}\n", "  ".repeat(level)));
    }
    tree
}

/// A size as people read it.
fn size(bytes: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn overview(dir: &TempDir, args: &Value) -> ToolResult {
        run(args, &ToolContext::new(dir.path().into(), 200 * 1024)).expect("it is there")
    }

    fn write(dir: &TempDir, name: &str, text: &[u8]) {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// S0-25: the tree, what it holds, and in which languages.
    #[test]
    fn s0_25_files_and_languages() {
        let dir = TempDir::new().expect("a directory");
        write(&dir, "src/main.rs", b"fn main() {\n}\n");
        write(&dir, "src/a/b/c/deep.rs", b"// one");
        write(&dir, "Makefile", b"all:\n\ttrue\n");
        write(&dir, "logo.PNG", b"\x89PNG\0\n\n\n");
        write(&dir, "what", b"?\n");
        write(&dir, ".hidden", b"no");
        write(&dir, ".gitignore", b"target\n");
        write(&dir, "target/big.rs", &[b'\n'; 4096]);
        nix::unistd::mkfifo(&dir.path().join("pipe.rs"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
        std::os::unix::fs::symlink("/etc", dir.path().join("link")).expect("a link");
        let output = overview(&dir, &json!({ "depth": 2 }));
        let tree =
            "Makefile (11 B)\nlogo.PNG (8 B)\nsrc/ (2 files, 20 B)\n  a/ (1 file, 6 B)\n  main.rs (14 B)\nwhat (2 B)\n";
        assert_eq!(output.data["content"], tree);
        let languages = json!([
            { "language": "Rust", "files": 2, "lines": 3, "bytes": 20 },
            { "language": "Make", "files": 1, "lines": 2, "bytes": 11 },
            { "language": "binary", "files": 1, "lines": 0, "bytes": 8 },
            { "language": "other", "files": 1, "lines": 1, "bytes": 2 },
        ]);
        assert_eq!(output.data["languages"], languages);
        assert_eq!(
            (&output.data["files"], &output.data["lines"], &output.data["bytes"]),
            (&json!(5), &json!(6), &json!(41))
        );
        assert!(!output.truncated && output.data.get("incomplete").is_none());
        let error = run(&json!({}), &ToolContext::new(dir.path().join("what").into(), 10)).expect_err("a file");
        assert!(matches!(error, ToolError::NotADirectory { .. }), "{error}");
    }

    /// Names that are no text, and more of them than are shown.
    #[test]
    fn a_tree_is_bounded_and_its_lines_are_lines() {
        use std::os::unix::ffi::OsStrExt as _;
        let dir = TempDir::new().expect("a directory");
        let name = std::ffi::OsStr::from_bytes(b"no\ntext \xff");
        fs::write(dir.path().join(name), "").expect("written");
        assert_eq!(overview(&dir, &json!({})).data["content"], "no\u{fffd}text \u{fffd} (0 B)\n");
        for n in 0..2000 {
            write(&dir, &format!("a file of a longer name, number {n}"), b"");
        }
        let huge = File::create(dir.path().join("huge.rs")).expect("made");
        huge.set_len(1 << 40).expect("made longer");
        let output = overview(&dir, &json!({}));
        let head = output.data["head"].as_str().expect("a head");
        assert!(output.truncated && head.len() == SHOWN_MAX, "{}", head.len());
        assert_eq!(
            (output.rest.iter().chain(head.as_bytes()).filter(|byte| **byte == b'\n').count(), output.lost),
            (2002, false)
        );
        assert_eq!(
            output.data["languages"][0],
            json!({ "language": "Rust", "files": 1, "lines": 0, "bytes": 1_u64 << 40 })
        );
    }
}
