//! `grep`: the lines that a regular expression matches, in a file or in all files of a tree (S0-14, C-27).
//!
//! The search is ripgrep's, by its own libraries: line by line, in linear time whatever the expression; UTF-16 is read by
//! its byte order mark; a file with a NUL byte is binary, and searched up to there. A file that the call names itself is
//! searched to its first match after a NUL.
//!
//! The shape (C-27): `{matches: [{path, line, text, before[], after[]}], files_searched}`, where
//! - `text` is the line without its newline; a carriage return before it is part of the line, as it is for a replacement;
//! - `text_b64` is added where the line is not UTF-8; `before` and `after` then lose such bytes;
//! - of a line longer than [`LINE_MAX`] bytes `text` is the part around the first match, `text_start` says where in the line
//!   that begins and `line_bytes` how long the line is; longer lines of context are cut, and `context_cut` says so;
//! - `binary_files` names files in which a NUL byte ended the search after a match, or hid one; `unreadable` what could
//!   not be searched, with the reason.
//!
//! A surface may tell it to take fewer files of a tree: by patterns ([`INCLUDE`](super::INCLUDE), [`EXCLUDE`](super::EXCLUDE)),
//! and none that is longer than so many bytes, or not UTF-8 ([`SKIP_OVER`]).

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use grep_matcher::Matcher as _;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch};
use serde_json::{Map, Value};

use super::arguments::{flag, integer, required_text, text};
use super::search::{
    Chosen, FirstFew, HEAD_MAX, REST_MAX, ShownEntries, Trouble, Visitor, open_found, path_of, sort_key, walk,
};
use super::{
    Contract, FileNeed, HEAD, Needs, SyscallNeed, ToolContext, ToolError, ToolResult, name_path, read, results,
};

/// The arguments of `grep`.
pub const GREP_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "pattern": {
      "type": "string", "minLength": 1, "maxLength": 65536,
      "description": "Regular expression in Rust's syntax, matched against one line at a time: no look-around, no back-references, no newline. Escape . ( ) [ ] { } * + ? ^ $ | and backslash to mean them literally."
    },
    "path": {
      "type": ["string", "object"], "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
      "description": "The file or directory to search, absolute or relative to the workspace. Default: the workspace. A path that is not UTF-8 is `{\"b64\": \"…\"}`, with the `path_b64` of a result."
    },
    "glob": {
      "type": "string", "minLength": 1, "maxLength": 4096,
      "description": "Search only files that match this pattern, relative to `path`: `*.rs` at any depth, `src/**/*.rs`, or `!*.min.js` for all others. Hidden and ignored files are searched if this begins with their directory (`.github/**`) or gives their name (`.env`). A file named by `path` is searched whatever this says."
    },
    "ignore_case": {
      "type": "boolean",
      "description": "Upper and lower case match each other. Default: false."
    },
    "context_lines": {
      "type": "integer", "minimum": 0, "maximum": 50,
      "description": "How many lines to return before and after each match. Default: 0."
    }
  },
  "required": ["pattern"],
  "additionalProperties": false
}"#;

/// Contract of `grep`.
pub const CONTRACT: Contract = Contract {
    name: "grep",
    requires: &["fs.read"],
    description: "Search the contents of files for a regular expression, as ripgrep does. Returns `matches`, sorted by path \
        and line: each has `path`, `line` (counted from 1), `text`, and the lines `before` and `after` it. Not searched are \
        binary files, hidden ones, `.git` among them, and those that .gitignore, .ignore or .rgignore exclude, unless \
        `path` or the beginning of `glob` names them or their directory. Links are not followed. Of more than 200 matches \
        the first are the list `head` instead of `matches`, and the rest is in the file `output_path` of the metadata, one \
        match to a line; a narrower pattern, path or glob is usually better.",
    schema: GREP_SCHEMA,
    output: results::GREP,
    kind: SyscallNeed::Searches,
    run,
    files: Some(FileNeed::locked(Needs::Search)),
};

/// Word of a surface to the worker: of a tree, only files that are UTF-8 and have no more bytes than this (X2-15).
pub const SKIP_OVER: &str = "skip_over";

/// Lines are shown up to this many bytes.
pub const LINE_MAX: usize = 2048;
/// The longest line that is searched, bytes: the memory that each thread may take for one.
const HEAP_MAX: usize = 64 * 1024 * 1024;

/// The buffer of a new searcher, bytes (grep-searcher's own default).
const BUFFER: u64 = 64 * 1024;

/// Searches `ctx.path`.
///
/// # Errors
/// An expression or pattern that makes no sense, or a path that cannot be searched.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let pattern = required_text(args, "pattern")?;
    let matcher = matcher(pattern, flag(args, "ignore_case")?)?;
    let chosen = match text(args, "glob", "a string")? {
        Some(glob) => Chosen::by(ctx, "glob", glob)?,
        None => Chosen::all(),
    };
    let chosen = chosen.within_told(args, ctx)?;
    let skip_over = integer(args, SKIP_OVER, 0, "a whole number of at least 0")?;
    let context = integer(args, "context_lines", 0, "a whole number of at least 0")?.unwrap_or(0);
    let context = usize::try_from(context).unwrap_or(usize::MAX).min(50);
    // What it names must be there, and be content.
    let named = if ctx.is_directory()? { None } else { Some(read::open(ctx.may_be_told()?, ctx.links)?.0) };
    let search = PatternSearch { matcher, context, skip_over };
    let (searches, trouble) = match named {
        Some(file) => {
            let mut one = SearchThread::new(&search);
            let mut trouble = Trouble::default();
            one.search(ctx.path.as_path(), &file, true, &mut trouble);
            (vec![one], vec![trouble])
        }
        None => walk(ctx, &chosen, || SearchThread::new(&search))?,
    };
    let files_searched: u64 = searches.iter().map(|one| one.searched).sum();
    let (files, lost) = FirstFew::of_all(HEAD_MAX + REST_MAX, searches.into_iter().map(|one| one.found));
    Ok(output(files, files_searched, lost, trouble, ctx))
}

fn output(
    files: Vec<(Vec<u8>, FileMatches)>,
    files_searched: u64,
    lost: bool,
    trouble: Vec<Trouble>,
    ctx: &ToolContext,
) -> ToolResult {
    let limit = ctx.limit;
    let mut shown = ShownEntries { lost, ..ShownEntries::default() };
    let mut binary = Vec::new();
    for (key, found) in files {
        let path = path_of(key).into();
        if found.binary {
            let mut entry = Map::new();
            name_path(&mut entry, &path);
            binary.push(Value::Object(entry));
        }
        shown.lost |= found.lost;
        for line in found.lines {
            if !shown.takes_more() {
                shown.lost = true;
                break;
            }
            let mut entry = Map::new();
            name_path(&mut entry, &path);
            line.tell(&mut entry);
            shown.add(Value::Object(entry), limit);
        }
    }
    let truncated = !shown.rest.is_empty() || shown.lost;
    let mut data = Map::new();
    data.insert(if truncated { HEAD } else { "matches" }.to_owned(), shown.head.into());
    data.insert("files_searched".to_owned(), files_searched.into());
    if !binary.is_empty() {
        binary.truncate(limit);
        data.insert("binary_files".to_owned(), binary.into());
    }
    Trouble::tell(trouble, &mut data);
    ctx.left_out.tell(&mut data);
    ToolResult { data: Value::Object(data), truncated, rest: shown.rest, lost: shown.lost }
}

/// The expression, as `rg` compiles it.
fn matcher(pattern: &str, ignore_case: bool) -> Result<RegexMatcher, ToolError> {
    RegexMatcherBuilder::new()
        .multi_line(true)
        .unicode(true)
        .octal(false)
        .case_insensitive(ignore_case)
        .line_terminator(Some(b'\n'))
        .ban_byte(Some(b'\0'))
        .build(pattern)
        .map_err(|e| ToolError::Pattern {
            argument: "pattern",
            pattern: super::message::shorten(&pattern.into()),
            reason: e.to_string(),
        })
}

/// Search for a pattern.
struct PatternSearch {
    matcher: RegexMatcher,
    context: usize,
    /// Limit in bytes for the files of a tree, of which then only text is taken.
    skip_over: Option<u64>,
}

impl PatternSearch {
    /// True if a file of a tree is text that is short enough, where that is wanted. One that cannot be read is taken:
    /// the search says why.
    fn takes(&self, mut file: &File) -> bool {
        use std::io::{Read as _, Seek as _};
        let Some(most) = self.skip_over else { return true };
        let mut bytes = Vec::new();
        let read = file.take(most.saturating_add(1)).read_to_end(&mut bytes);
        let is_text = bytes.len() as u64 <= most && std::str::from_utf8(&bytes).is_ok();
        (read.is_err() || is_text) && file.rewind().is_ok()
    }

    fn searcher(&self) -> Searcher {
        SearcherBuilder::new()
            .line_number(true)
            .before_context(self.context)
            .after_context(self.context)
            .heap_limit(Some(HEAP_MAX))
            .build()
    }
}

/// One thread of a search.
struct SearchThread<'a> {
    search: &'a PatternSearch,
    /// A matcher of its own: its memory for searching is else handed from thread to thread, for every candidate.
    matcher: RegexMatcher,
    searcher: Searcher,
    found: FirstFew<FileMatches>,
    searched: u64,
}

impl<'a> SearchThread<'a> {
    fn new(search: &'a PatternSearch) -> Self {
        let (matcher, searcher) = (search.matcher.clone(), search.searcher());
        Self { search, matcher, searcher, found: FirstFew::new(HEAD_MAX + REST_MAX), searched: 0 }
    }

    fn search(&mut self, path: &Path, file: &File, named: bool, trouble: &mut Trouble) {
        self.searched += 1;
        // As rg: what the walk found is let go at a NUL, what was named is not.
        let binary = if named { BinaryDetection::convert(b'\0') } else { BinaryDetection::quit(b'\0') };
        self.searcher.set_binary_detection(binary);
        let mut lines = LineSink::new(self.search);
        if let Err(error) = self.searcher.search_file(&self.matcher, file, &mut lines) {
            trouble.note(path, error.to_string());
        }
        // What a binary file gives hangs on the size of the buffer, which has grown if a line did not fit into it: one file
        // must not change what another gives.
        if file.metadata().is_ok_and(|metadata| metadata.len() > BUFFER) {
            self.searcher = self.search.searcher();
        }
        let found = lines.found;
        if !found.lines.is_empty() || found.binary {
            self.found.add(sort_key(path), lines.size, found);
        }
    }
}

impl Visitor for SearchThread<'_> {
    fn file(&mut self, path: &Path, named: bool, trouble: &mut Trouble) {
        if !self.found.wants(&sort_key(path)) {
            return;
        }
        match open_found(path) {
            Ok(Some(file)) if !named && !self.search.takes(&file) => {}
            Ok(Some(file)) => self.search(path, &file, named, trouble),
            Ok(None) => {}
            Err(error) => trouble.note(path, error.to_string()),
        }
    }
}

/// Matches in one file.
#[derive(Default)]
struct FileMatches {
    lines: Vec<MatchedLine>,
    binary: bool,
    /// There is more than one file's matches may take.
    lost: bool,
}

/// A line that matches.
struct MatchedLine {
    number: u64,
    text: Vec<u8>,
    /// Where in the line the text begins, and how long the line is; `None` if the text is all of it.
    part: Option<(usize, usize)>,
    before: Vec<Vec<u8>>,
    after: Vec<Vec<u8>>,
    context_cut: bool,
}

impl MatchedLine {
    fn tell(self, entry: &mut Map<String, Value>) {
        entry.insert("line".to_owned(), self.number.into());
        let lossy = |bytes: Vec<u8>| Value::from(String::from_utf8_lossy(&bytes).into_owned());
        match String::from_utf8(self.text) {
            Ok(text) => drop(entry.insert("text".to_owned(), text.into())),
            Err(e) => {
                entry.insert("text_b64".to_owned(), STANDARD.encode(e.as_bytes()).into());
                entry.insert("text".to_owned(), lossy(e.into_bytes()));
            }
        }
        if let Some((start, length)) = self.part {
            entry.insert("text_start".to_owned(), start.into());
            entry.insert("line_bytes".to_owned(), length.into());
        }
        entry.insert("before".to_owned(), self.before.into_iter().map(lossy).collect());
        entry.insert("after".to_owned(), self.after.into_iter().map(lossy).collect());
        if self.context_cut {
            entry.insert("context_cut".to_owned(), true.into());
        }
    }
}

/// Takes the lines of one file as the searcher finds them.
struct LineSink<'a> {
    search: &'a PatternSearch,
    found: FileMatches,
    size: usize,
    /// The last lines that came, with their numbers: what may be context of the next match.
    recent: VecDeque<(u64, Vec<u8>, bool)>,
    /// The first match that may still want lines after it.
    waiting: usize,
    saw_nul: bool,
}

impl<'a> LineSink<'a> {
    fn new(search: &'a PatternSearch) -> Self {
        let (found, recent) = (FileMatches::default(), VecDeque::new());
        Self { search, found, size: 0, recent, waiting: 0, saw_nul: false }
    }

    /// A line, matching or not, is context of its neighbours.
    fn is_context(&mut self, number: u64, line: &[u8]) {
        let most = self.search.context;
        if most == 0 {
            return;
        }
        let kept = &line[..floor_boundary(line, LINE_MAX)];
        let cut = kept.len() < line.len();
        for earlier in &mut self.found.lines[self.waiting..] {
            if number <= earlier.number + most as u64 {
                earlier.after.push(kept.to_vec());
                earlier.context_cut |= cut;
                self.size += kept.len();
            }
        }
        while self.found.lines.get(self.waiting).is_some_and(|line| number >= line.number + most as u64) {
            self.waiting += 1;
        }
        if self.recent.len() == most {
            self.recent.pop_front();
        }
        self.recent.push_back((number, kept.to_vec(), cut));
    }

    /// True if another match would fit: what does not fit into what one result keeps is not looked for.
    fn goes_on(&mut self) -> bool {
        self.found.lost |= self.size > HEAD_MAX + REST_MAX;
        !self.found.lost
    }
}

impl Sink for LineSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        // What was named and is binary: that it matches is all that is told.
        if self.saw_nul && searcher.binary_detection().convert_byte().is_some() {
            self.found.binary = true;
            return Ok(false);
        }
        let number = found.line_number().unwrap_or(0);
        let line = without_newline(found.bytes());
        let first = number.saturating_sub(self.search.context as u64);
        let near = self.recent.iter().filter(|(at, ..)| *at >= first);
        let context_cut = near.clone().any(|(.., cut)| *cut);
        let before: Vec<Vec<u8>> = near.map(|(_, line, _)| line.clone()).collect();
        let (text, part) = self.part(line);
        self.size += text.len() + 64 + before.iter().map(|line| line.len() + 4).sum::<usize>();
        self.is_context(number, line);
        self.found.lines.push(MatchedLine { number, text, part, before, after: Vec::new(), context_cut });
        Ok(self.goes_on())
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.is_context(context.line_number().unwrap_or(0), without_newline(context.bytes()));
        Ok(self.goes_on())
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.saw_nul = true;
        Ok(true)
    }

    fn finish(&mut self, searcher: &Searcher, end: &SinkFinish) -> Result<(), io::Error> {
        let gave_up = end.binary_byte_offset().is_some() && searcher.binary_detection().quit_byte().is_some();
        self.found.binary |= gave_up && !self.found.lines.is_empty();
        Ok(())
    }
}

impl LineSink<'_> {
    /// A line as it is shown: whole, or the part of it that has the first match.
    fn part(&self, line: &[u8]) -> (Vec<u8>, Option<(usize, usize)>) {
        if line.len() <= LINE_MAX {
            return (line.to_vec(), None);
        }
        let found = self.search.matcher.find(line).ok().flatten();
        // A few words before it, if there are any.
        let wanted = found.map_or(0, |found| found.start().saturating_sub(LINE_MAX / 8)).min(line.len() - LINE_MAX);
        let start = floor_boundary(line, wanted);
        let end = floor_boundary(line, start + LINE_MAX);
        (line[start..end].to_vec(), Some((start, line.len())))
    }
}

fn without_newline(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// The last place up to `at` that does not split a character, if the bytes are UTF-8 there.
fn floor_boundary(bytes: &[u8], at: usize) -> usize {
    if at >= bytes.len() {
        return bytes.len();
    }
    let is_start = |&place: &usize| bytes[place] & 0xc0 != 0x80;
    (at.saturating_sub(3)..=at).rev().find(is_start).unwrap_or(at)
}
