//! `read`: a file, or a range of its lines or bytes (S0-10, C-27).
//!
//! The file is never wholly in memory: lines are counted through a buffer of 64 KiB, bytes are fetched where they lie,
//! and at most the limit is kept. Content is returned byte for byte (CRLF, a byte order mark, a missing last newline);
//! it is base64 only where the returned bytes are not UTF-8.
//!
//! The shape (C-27): `{path, content, encoding, start_line, end_line, total_lines?, size}`, where
//! - a range of bytes has `start_line` and `end_line` null and `byte_offset` instead, since nobody counted;
//! - `total_lines` is there when the whole file was scanned, and `size` is null when the kernel does not tell (a file of
//!   `/proc`, cut);
//! - `changed: true` says that the file was written to while it was read, so that the content may mix old and new;
//! - when truncated, the first part of the content is `head` instead of `content`, and `next_byte_offset` says where to go on
//!   (S0-44, S0-48).

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use serde_json::{Map, Value, json};

use super::arguments::{integer, is_told};
use super::write::{MissingPath, open_parent_without_links, split};
use super::{
    Contract, FileKind, FileNeed, HEAD, LinkTreatment, Needs, SyscallNeed, ToolContext, ToolError, ToolResult,
    name_path, numbered, results,
};
use crate::{FileAct, ToolReason};

/// The arguments of `read`.
pub const READ_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "path": {
      "type": ["string", "object"], "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
      "description": "The file to read, absolute or relative to the workspace. Symbolic links are followed. A path that is not UTF-8 is `{\"b64\": \"…\"}`, with the `path_b64` of a result."
    },
    "start_line": {
      "type": "integer", "minimum": 1,
      "description": "First line to return, counted from 1. Default: 1. Not together with byte_offset or byte_length."
    },
    "end_line": {
      "type": "integer", "minimum": 1,
      "description": "Last line to return, included. Default: the last line. May lie past the end of the file. Not together with byte_offset or byte_length."
    },
    "byte_offset": {
      "type": "integer", "minimum": 0,
      "description": "First byte to return, counted from 0. Default: 0. After a truncated result, pass its next_byte_offset to go on. Not together with start_line or end_line."
    },
    "byte_length": {
      "type": "integer", "minimum": 1,
      "description": "How many bytes to return at most. Default: to the end of the file. Not together with start_line or end_line."
    }
  },
  "required": ["path"],
  "additionalProperties": false
}"#;

/// Contract of `read`.
pub const CONTRACT: Contract = Contract {
    name: "read",
    requires: &["fs.read"],
    description: "Read a file: whole, by lines (start_line, end_line; counted from 1, both included) or by bytes \
        (byte_offset, byte_length). Returns `content` exactly as stored, line ends included; `encoding` is `utf-8`, or \
        `base64` when the bytes are not UTF-8. A long result is cut (at the end of a line where possible): the first \
        part is then `head` instead of `content`, and `next_byte_offset` is the byte_offset to go on from. Only regular \
        files are read; list a directory with glob.",
    schema: READ_SCHEMA,
    output: results::READ,
    kind: SyscallNeed::Plain,
    run,
    files: Some(FileNeed::locked(Needs::Read)),
};

/// Word of a surface to the worker to say of a PDF: that it is one, in place of what is in it (X2-13). The supervisor
/// then has `pdftotext` read it.
pub const PDF: &str = "pdf";

const CHUNK: usize = 64 * 1024;

/// Reason why a part of a file is not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Lines and bytes were asked for in one call (C-27).
    #[error("a line range and a byte range in one call")]
    MixedRanges,
    /// The range ends before it starts.
    #[error("end_line {end_line} is before start_line {start_line}")]
    EmptyRange {
        /// The first line asked for.
        start_line: u64,
        /// The last line asked for.
        end_line: u64,
    },
    /// The range starts after the last line.
    #[error("start_line {start_line} is past the end of {path}, which has {total_lines} lines")]
    StartPastEnd {
        /// The file.
        path: HostPath,
        /// The first line asked for.
        start_line: u64,
        /// The lines there are.
        total_lines: u64,
    },
    /// The range starts after the last byte.
    #[error("byte_offset {byte_offset} is past the end of {path}, which has {size} bytes")]
    OffsetPastEnd {
        /// The file.
        path: HostPath,
        /// The first byte asked for.
        byte_offset: u64,
        /// The bytes there are.
        size: u64,
    },
}

impl ToolReason for ReadError {
    fn code(&self) -> ErrorCode {
        ErrorCode::InputInvalid
    }

    fn next_step(&self) -> Option<&'static str> {
        Some(match self {
            Self::MixedRanges => "ask for lines or for bytes",
            Self::EmptyRange { .. } => "lines are counted from 1, and end_line is included",
            Self::StartPastEnd { .. } | Self::OffsetPastEnd { .. } => "start before the end",
        })
    }
}

/// Reads `ctx.path`.
///
/// # Errors
///
/// A range that makes no sense or lies outside the file, a path that is no regular file, or the kernel's refusal.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    numbered::refuse_by_name(args, &ctx.path)?;
    let range = match numbered::lines_of_symbol(args, ctx)? {
        Some((start, end)) => Range::Lines { start, end: Some(end) },
        None => Range::parse(args)?,
    };
    let (file, before) = open(&ctx.path, ctx.links)?;
    if is_told(args, PDF) && is_pdf(&ctx.path, &file) {
        return Ok(ToolResult::of(json!({ PDF: true }), false));
    }
    let limit = ctx.limit.clamp(4, 1 << 30); // 4: the longest character, so that each call makes progress
    let found = match range {
        Range::Lines { start, end } => lines(&file, &before, &ctx.path, start, end, limit)?,
        Range::Bytes { offset, length } => bytes(&file, &before, &ctx.path, offset, length, limit)?,
    };
    let after = rustix::fs::fstat(&file).map_err(|e| ToolError::File {
        act: FileAct::Read,
        path: ctx.path.clone(),
        source: e.into(),
    })?;
    numbered::number(args, ctx, found.into_output(&ctx.path, limit, changed(&before, &after)))
}

/// By its name, or by how it begins.
fn is_pdf(path: &HostPath, file: &File) -> bool {
    let extension = path.as_path().extension();
    let mut magic = [0; 5];
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("pdf"))
        || file.read_exact_at(&mut magic, 0).is_ok_and(|()| magic == *b"%PDF-")
}

/// Part of the file that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Range {
    /// 1-based, inclusive; the whole file is all of its lines.
    Lines {
        start: u64,
        end: Option<u64>,
    },
    Bytes {
        offset: u64,
        length: Option<u64>,
    },
}

impl Range {
    fn parse(args: &Value) -> Result<Self, ToolError> {
        let line = "a line number: a whole number of at least 1";
        let start_line = integer(args, "start_line", 1, line)?;
        let end_line = integer(args, "end_line", 1, line)?;
        let offset = integer(args, "byte_offset", 0, "a whole number of at least 0")?;
        let length = integer(args, "byte_length", 1, "a whole number of at least 1")?;
        let by_line = start_line.is_some() || end_line.is_some();
        let by_byte = offset.is_some() || length.is_some();
        if by_line && by_byte {
            return Err(ReadError::MixedRanges.into());
        }
        if by_byte {
            return Ok(Self::Bytes { offset: offset.unwrap_or(0), length });
        }
        let start = start_line.unwrap_or(1);
        match end_line {
            Some(end_line) if end_line < start => Err(ReadError::EmptyRange { start_line: start, end_line }.into()),
            end => Ok(Self::Lines { start, end }),
        }
    }
}

/// Opens a regular file, and nothing else.
///
/// It is looked at first, because opening can have effects: it lets the writer of a FIFO go on, rewinds a tape, arms a
/// watchdog. It is looked at again once open, because the name may have been given to something else in between;
/// O_NONBLOCK keeps that from hanging (fifo(7), open(2)), and O_NOCTTY from taking a terminal.
pub(super) fn open(path: &HostPath, links: LinkTreatment) -> Result<(File, Stat), ToolError> {
    let failed = |e: rustix::io::Errno| ToolError::File { act: FileAct::Open, path: path.clone(), source: e.into() };
    let regular = |stat: Stat| match FileKind::of_other(stat.st_mode) {
        None => Ok(stat),
        Some(what) => Err(ToolError::NotRegular { path: path.clone(), what }),
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = match links {
        LinkTreatment::Followed => {
            regular(rustix::fs::stat(path.as_path()).map_err(failed)?)?;
            rustix::io::retry_on_intr(|| rustix::fs::open(path.as_path(), flags, Mode::empty())).map_err(failed)?
        }
        LinkTreatment::Refused => {
            let (parent, name) = split(path.as_bytes()).ok_or_else(|| ToolError::NoFileName { path: path.clone() })?;
            let directory = open_parent_without_links(parent, MissingPath::IsAnError).map_err(failed)?;
            regular(rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?)?;
            let flags = flags | OFlags::NOFOLLOW;
            rustix::io::retry_on_intr(|| rustix::fs::openat(&directory, name, flags, Mode::empty())).map_err(failed)?
        }
    };
    let stat = regular(rustix::fs::fstat(&file).map_err(failed)?)?;
    Ok((File::from(file), stat))
}

/// A write between the two looks moved the size or the modification time. (Within one tick of the file system's clock it
/// may move neither; before Linux 6.13 a tick is up to 10 ms.)
fn changed(before: &Stat, after: &Stat) -> bool {
    (before.st_size, before.st_mtime, before.st_mtime_nsec) != (after.st_size, after.st_mtime, after.st_mtime_nsec)
}

/// Bytes that were read, before they are cut and encoded.
struct ReadBytes {
    /// At most one byte more than the limit, which says that there is more.
    bytes: Vec<u8>,
    /// Where the first of them lies in the file.
    offset: u64,
    /// The number of the first line; `None` for a range of bytes.
    start_line: Option<u64>,
    total_lines: Option<u64>,
    size: Option<u64>,
}

impl ReadBytes {
    fn into_output(mut self, path: &HostPath, limit: usize, changed: bool) -> ToolResult {
        let (kept, is_text) = cut(&self.bytes, limit);
        let truncated = kept < self.bytes.len();
        self.bytes.truncate(kept);
        let end_line = self.start_line.map(|start| start + count_lines(&self.bytes) - 1);
        let next = self.offset + kept as u64;

        let mut data = Map::new();
        name_path(&mut data, path);
        let (content, encoding) = match String::from_utf8(self.bytes) {
            Ok(text) if is_text => (text, "utf-8"),
            Ok(text) => (STANDARD.encode(text), "base64"),
            Err(e) => (STANDARD.encode(e.as_bytes()), "base64"),
        };
        data.insert(if truncated { HEAD } else { "content" }.to_owned(), content.into());
        data.insert("encoding".to_owned(), encoding.into());
        data.insert("start_line".to_owned(), self.start_line.into());
        data.insert("end_line".to_owned(), end_line.into());
        if self.start_line.is_none() {
            data.insert("byte_offset".to_owned(), self.offset.into());
        }
        if let Some(total) = self.total_lines {
            data.insert("total_lines".to_owned(), total.into());
        }
        data.insert("size".to_owned(), self.size.into());
        if changed {
            data.insert("changed".to_owned(), true.into());
        }
        if truncated {
            data.insert("next_byte_offset".to_owned(), next.into());
        }
        ToolResult::of(Value::Object(data), truncated)
    }
}

/// How many of `bytes` fit into the limit, and whether they are text.
///
/// Text is cut between characters, and after a whole line unless that would give up more than half of the limit (a file
/// of one long line). A character that the cut itself splits does not make a text binary.
fn cut(bytes: &[u8], limit: usize) -> (usize, bool) {
    let more = bytes.len() > limit;
    let head = &bytes[..bytes.len().min(limit)];
    let text = match std::str::from_utf8(head) {
        Ok(_) => head.len(),
        Err(e) if more && e.error_len().is_none() => e.valid_up_to(),
        Err(_) => return (head.len().min(limit / 4 * 3), false), // three bytes are four characters
    };
    if !more {
        return (text, true);
    }
    let line = head[..text].iter().rposition(|&b| b == b'\n').map_or(0, |newline| newline + 1);
    (if line >= limit / 2 { line } else { text }, true)
}

/// The lines from `start` to `end`, through a bounded buffer.
fn lines(
    file: &File,
    stat: &Stat,
    path: &HostPath,
    start: u64,
    end: Option<u64>,
    limit: usize,
) -> Result<ReadBytes, ToolError> {
    let failed = |source| ToolError::File { act: FileAct::Read, path: path.clone(), source };
    let stat_size = u64::try_from(stat.st_size).unwrap_or(0);
    // A small file needs no more than itself; each page touched is a fault in a process that was just forked.
    let room = usize::try_from(stat_size).unwrap_or(CHUNK).clamp(4096, CHUNK);
    let mut chunk = vec![0; room];
    let mut kept: Vec<u8> = Vec::new();
    let mut offset = 0; // of the first byte kept, once one is
    let mut newlines = 0; // before the place that was reached
    let mut last = b'\n';
    let mut at_end = false;

    'file: while kept.len() <= limit {
        let n = read_some(file, &mut chunk).map_err(failed)?;
        if n == 0 {
            at_end = true;
            break;
        }
        let mut rest = &chunk[..n];
        if newlines < start - 1 {
            last = rest[n - 1];
            match after_newline(rest, start - 1 - newlines) {
                Ok(position) => {
                    newlines = start - 1;
                    offset += position as u64;
                    rest = &rest[position..];
                }
                Err(count) => {
                    newlines += count;
                    offset += n as u64;
                    continue;
                }
            }
        }
        let rest = &rest[..rest.len().min(limit + 1 - kept.len())];
        if let Some(&byte) = rest.last() {
            last = byte;
        }
        if let Some(end) = end {
            match after_newline(rest, end - newlines) {
                Ok(position) => {
                    kept.extend_from_slice(&rest[..position]);
                    last = b'\n';
                    newlines = end;
                    break 'file;
                }
                Err(count) => newlines += count,
            }
        } else {
            newlines += count_newlines(rest);
        }
        kept.extend_from_slice(rest);
    }

    let reached = offset + kept.len() as u64;
    let whole = at_end || (kept.len() <= limit && stat_size > 0 && reached == stat_size);
    let total_lines = whole.then_some(newlines + u64::from(last != b'\n'));
    if at_end && kept.is_empty() && start > 1 {
        let total_lines = total_lines.unwrap_or(0);
        return Err(ReadError::StartPastEnd { path: path.clone(), start_line: start, total_lines }.into());
    }
    let size = if at_end { Some(reached) } else { Some(stat_size).filter(|&size| size > 0) };
    Ok(ReadBytes { bytes: kept, offset, start_line: Some(start), total_lines, size })
}

/// The bytes from `offset`, fetched where they lie.
fn bytes(
    file: &File,
    stat: &Stat,
    path: &HostPath,
    offset: u64,
    length: Option<u64>,
    limit: usize,
) -> Result<ReadBytes, ToolError> {
    let failed = |source| ToolError::File { act: FileAct::Read, path: path.clone(), source };
    let past_end = |size| ToolError::from(ReadError::OffsetPastEnd { path: path.clone(), byte_offset: offset, size });
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    // A size of 0 may mean that the kernel makes the content up as it is read.
    if (size > 0 && offset > size) || i64::try_from(offset).is_err() {
        return Err(past_end(size));
    }
    let wanted = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX).min(limit + 1);
    let mut bytes = vec![0; wanted.min(CHUNK)];
    let mut filled = 0;
    let mut at_end = false;
    while filled < wanted {
        if filled == bytes.len() {
            bytes.resize(wanted.min(filled * 2), 0);
        }
        match file.read_at(&mut bytes[filled..], offset.saturating_add(filled as u64)) {
            Ok(0) => {
                at_end = true;
                break;
            }
            Ok(n) => filled += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(failed(e)),
        }
    }
    bytes.truncate(filled);
    if filled == 0 && offset > 0 && size == 0 && file.read_at(&mut [0], 0).map_err(failed)? == 0 {
        return Err(past_end(0));
    }
    let size = match size {
        _ if at_end && filled > 0 => Some(offset + filled as u64),
        0 => (at_end && offset == 0).then_some(0),
        _ => Some(size),
    };
    Ok(ReadBytes { bytes, offset, start_line: None, total_lines: None, size })
}

fn read_some(mut file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// The place after the `n`th newline, or how many newlines there are if they are fewer. `n` is at least 1.
fn after_newline(bytes: &[u8], n: u64) -> Result<usize, u64> {
    let count = count_newlines(bytes); // first, because counting is many times faster than looking
    if count < n {
        return Err(count);
    }
    let mut left = n;
    let last = bytes.iter().position(|&b| {
        left -= u64::from(b == b'\n');
        left == 0
    });
    last.map(|position| position + 1).ok_or(count)
}

fn count_newlines(bytes: &[u8]) -> u64 {
    // Runs short enough to be summed in a byte, which the compiler turns into vector instructions.
    bytes.chunks(192).map(|run| u64::from(run.iter().map(|&b| u8::from(b == b'\n')).sum::<u8>())).sum()
}

/// Lines, the last of which need not end in a newline.
fn count_lines(bytes: &[u8]) -> u64 {
    count_newlines(bytes) + u64::from(bytes.last().is_some_and(|&b| b != b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    /// As the supervisor sets it (S0-48).
    const DEFAULT_LIMIT: usize = 200 * 1024;

    /// X2-13: by its name or by how it begins, and only if a surface wants to know.
    #[test]
    fn x2_13_a_pdf_is_known_by_its_name_or_by_how_it_begins() {
        let scratch = ScratchDirectory::new();
        let told = json!({ PDF: 1 });
        for (name, content, is_pdf) in
            [("a.PDF", "", true), ("b", "%PDF-1.4", true), ("c", "%PDF", false), ("d.txt", "see a.pdf", false)]
        {
            let path = scratch.path(name);
            fs::write(&path, content).expect("a file");
            let ctx = ToolContext::new(path.as_path().into(), DEFAULT_LIMIT);
            let said = run(&told, &ctx).expect("a result").data;
            assert_eq!(said == json!({ "pdf": true }), is_pdf, "{name}: {said}");
            assert_eq!(run(&json!({}), &ctx).expect("a result").data["content"], content);
        }
    }

    struct ScratchDirectory(tempfile::TempDir);

    impl ScratchDirectory {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a directory"))
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn file(&self, content: impl AsRef<[u8]>) -> PathBuf {
            let path = self.path("f");
            fs::write(&path, content).expect("a file");
            path
        }

        /// A file that is mostly a hole: `size` bytes, of which the first are `start`.
        fn sparse(&self, start: &[u8], size: u64) -> PathBuf {
            let path = self.file(start);
            fs::OpenOptions::new().write(true).open(&path).and_then(|f| f.set_len(size)).expect("a sparse file");
            path
        }
    }

    fn read_up_to(limit: usize, path: &Path, range: Value) -> Result<ToolResult, ToolError> {
        let mut args = range;
        args["path"] = "/decoy".into(); // the path of the plan counts
        run(&args, &ToolContext::new(HostPath::from(path), limit))
    }

    fn read(path: &Path, range: Value) -> Result<ToolResult, ToolError> {
        read_up_to(DEFAULT_LIMIT, path, range)
    }

    /// The data of a result that was not cut.
    fn data(path: &Path, range: Value) -> Value {
        let output = read(path, range).expect("it can be read");
        assert!(!output.truncated, "{:?}", output.data);
        output.data
    }

    /// The shape of C-27, which a test compares without the path.
    fn shape(content: &str, start: u64, end: u64, total: impl Into<Option<u64>>, size: u64) -> Value {
        let mut shape =
            json!({ "content": content, "encoding": "utf-8", "start_line": start, "end_line": end, "size": size });
        if let Some(total) = total.into() {
            shape["total_lines"] = total.into();
        }
        shape
    }

    /// As if the content were all.
    fn uncut(output: &ToolResult) -> Value {
        let mut data = output.data.clone();
        let fields = data.as_object_mut().expect("an object");
        if output.truncated {
            assert!(fields.remove("next_byte_offset").is_some() && !fields.contains_key("content"), "{output:?}");
            let head = fields.remove(HEAD).expect("the first part");
            fields.insert("content".to_owned(), head);
        }
        data
    }

    fn pathless(mut data: Value) -> Value {
        data.as_object_mut().expect("an object").remove("path").expect("a path");
        data
    }

    /// Bytes that this thread has read so far, in all.
    fn bytes_read() -> Option<u64> {
        let io = fs::read_to_string("/proc/thread-self/io").ok()?;
        io.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
    }

    #[test]
    fn a_whole_file_is_returned_byte_for_byte() {
        let dir = ScratchDirectory::new();
        for (content, lines) in [
            ("a\nb\n", 2),
            ("a\nb", 2),
            ("\n", 1),
            ("\n\n", 2),
            ("x", 1),
            ("crlf\r\nand\rcr\r\n", 2),
            ("\u{feff}byte order mark\n", 1),
            ("größe 🦀\n\0nul\n", 2),
        ] {
            let path = dir.file(content);
            let whole = shape(content, 1, lines, lines, content.len() as u64);
            assert_eq!(pathless(data(&path, json!({}))), whole, "{content:?}");
        }
        let path = dir.file("x");
        assert_eq!(data(&path, json!({}))["path"], json!(path));
    }

    #[test]
    fn an_empty_file_has_no_lines() {
        let dir = ScratchDirectory::new();
        let path = dir.file("");
        for range in [json!({}), json!({ "start_line": 1 }), json!({ "end_line": 5 })] {
            assert_eq!(pathless(data(&path, range)), shape("", 1, 0, 0, 0));
        }
        let error = read(&path, json!({ "start_line": 2 })).expect_err("there is no line 2");
        assert!(matches!(error.own(), Some(ReadError::StartPastEnd { total_lines: 0, .. })), "{error}");
        assert_eq!(data(&path, json!({ "byte_offset": 0 }))["size"], 0);
        let error = read(&path, json!({ "byte_offset": 1 })).expect_err("there is no byte 1");
        assert!(matches!(error.own(), Some(ReadError::OffsetPastEnd { size: 0, .. })), "{error}");
    }

    #[test]
    fn lines_are_counted_from_1_and_the_last_is_included() {
        let dir = ScratchDirectory::new();
        let content = "one\r\ntwo\n\nfour";
        let path = dir.file(content);
        let size = content.len() as u64;
        let cases = [
            (json!({ "start_line": 1, "end_line": 1 }), shape("one\r\n", 1, 1, None, size)),
            (json!({ "end_line": 2 }), shape("one\r\ntwo\n", 1, 2, None, size)),
            (json!({ "start_line": 2, "end_line": 3 }), shape("two\n\n", 2, 3, None, size)),
            (json!({ "start_line": 3, "end_line": 3 }), shape("\n", 3, 3, None, size)),
            (json!({ "start_line": 4, "end_line": 4 }), shape("four", 4, 4, 4, size)),
            (json!({ "start_line": 3.0 }), shape("\nfour", 3, 4, 4, size)),
            (json!({ "start_line": 2, "end_line": 99 }), shape("two\n\nfour", 2, 4, 4, size)),
            (json!({ "end_line": u64::MAX }), shape(content, 1, 4, 4, size)),
        ];
        for (range, expected) in cases {
            assert_eq!(pathless(data(&path, range.clone())), expected, "{range}");
        }
        // Where the range ends with the file, the whole file was seen.
        let path = dir.file("one\ntwo\n");
        let range = json!({ "start_line": 2, "end_line": 2 });
        assert_eq!(pathless(data(&path, range)), shape("two\n", 2, 2, 2, 8));
    }

    #[test]
    fn a_range_that_makes_no_sense_is_refused() {
        let dir = ScratchDirectory::new();
        let path = dir.file("one\ntwo\n");
        for range in [
            json!({ "start_line": 1, "byte_offset": 0 }),
            json!({ "end_line": 1, "byte_length": 1 }),
            json!({ "start_line": 1, "end_line": 2, "byte_offset": 0, "byte_length": 1 }),
        ] {
            let error = read(&path, range.clone()).expect_err("C-27: one or the other");
            assert!(matches!(error.own(), Some(ReadError::MixedRanges)), "{range}: {error}");
        }
        for (name, value) in [
            ("start_line", json!(0)),
            ("end_line", json!(0)),
            ("byte_length", json!(0)),
            ("start_line", json!(-1)),
            ("byte_offset", json!(-1)),
            ("start_line", json!("1")),
            ("end_line", json!(1.5)),
            ("byte_offset", json!(null)),
        ] {
            let error = read(&path, json!({ name: value })).expect_err("not such a number");
            assert!(matches!(error, ToolError::Argument { name: n, .. } if n == name), "{name} {value}: {error}");
        }
        let error = read(&path, json!({ "start_line": 2, "end_line": 1 })).expect_err("backwards");
        assert!(matches!(error.own(), Some(ReadError::EmptyRange { start_line: 2, end_line: 1 })), "{error}");
    }

    #[test]
    fn a_start_past_the_end_names_the_end() {
        let dir = ScratchDirectory::new();
        for (content, lines) in [("one\ntwo\n", 2), ("one\ntwo", 2), ("\n", 1)] {
            let path = dir.file(content);
            for start in [lines + 1, lines + 2, u64::MAX] {
                let error = read(&path, json!({ "start_line": start })).expect_err("past the end");
                assert!(
                    matches!(error.own(), Some(ReadError::StartPastEnd { total_lines, start_line, .. })
                        if *total_lines == lines && *start_line == start),
                    "{content:?} {start}: {error}"
                );
                assert!(error.text().contains(&format!("has {lines} lines")), "{}", error.text());
            }
        }
        let path = dir.file("12345");
        for offset in [6, 1 << 40, u64::MAX] {
            let error = read(&path, json!({ "byte_offset": offset })).expect_err("past the end");
            assert!(matches!(error.own(), Some(ReadError::OffsetPastEnd { size: 5, .. })), "{offset}: {error}");
        }
        assert_eq!(
            data(&path, json!({ "byte_offset": 5 }))["content"],
            "",
            "control: the end itself is where paging ends"
        );
    }

    #[test]
    fn a_range_of_bytes_is_exactly_those() {
        let dir = ScratchDirectory::new();
        let path = dir.file("aé\nb");
        let expected = json!({
            "content": "é\n", "encoding": "utf-8", "start_line": null, "end_line": null, "byte_offset": 1, "size": 5
        });
        assert_eq!(pathless(data(&path, json!({ "byte_offset": 1, "byte_length": 3 }))), expected);
        for (range, content, encoding) in [
            (json!({ "byte_length": 1 }), "a", "utf-8"),
            (json!({ "byte_offset": 3 }), "\nb", "utf-8"),
            (json!({ "byte_offset": 4, "byte_length": 100 }), "b", "utf-8"),
            (json!({ "byte_length": u64::MAX }), "aé\nb", "utf-8"),
            (json!({ "byte_offset": 0, "byte_length": 2 }), "YcM=", "base64"), // half of é was asked for
            (json!({ "byte_offset": 2, "byte_length": 1 }), "qQ==", "base64"),
        ] {
            let data = data(&path, range.clone());
            assert_eq!((&data["content"], &data["encoding"]), (&json!(content), &json!(encoding)), "{range}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_base64() {
        let dir = ScratchDirectory::new();
        for bytes in [&b"\xff\xfe\0"[..], b"text \xc3", b"\xed\xa0\x80", b"caf\xe9\n"] {
            let data = data(&dir.file(bytes), json!({}));
            assert_eq!(data["encoding"], "base64", "{bytes:?}");
            assert_eq!(STANDARD.decode(data["content"].as_str().expect("text")).expect("base64"), bytes);
            assert_eq!(data["size"], bytes.len());
        }
        // Only what is returned has to be text.
        let path = dir.file(b"text\n\xff\n");
        assert_eq!(data(&path, json!({ "end_line": 1 }))["encoding"], "utf-8");
        assert_eq!(data(&path, json!({ "start_line": 2 }))["content"], "/wo=");
    }

    /// S0-44, S0-48 and C-15: at the limit nothing is cut, one byte more is.
    #[test]
    fn the_limit_cuts_one_byte_later_not_earlier() {
        let dir = ScratchDirectory::new();
        let exact = "x".repeat(DEFAULT_LIMIT);
        let size = DEFAULT_LIMIT as u64;
        assert_eq!(pathless(data(&dir.file(&exact), json!({}))), shape(&exact, 1, 1, 1, size));
        let output = read(&dir.file(exact.clone() + "y"), json!({})).expect("read");
        assert!(output.truncated);
        assert_eq!(output.data["next_byte_offset"], size);
        assert_eq!(pathless(uncut(&output)), shape(&exact, 1, 1, None, size + 1));
        // The same for a range of bytes, and for base64, which counts encoded.
        for (bytes, range, cut) in [
            (vec![b'x'; 8], json!({ "byte_offset": 0 }), false),
            (vec![b'x'; 9], json!({ "byte_offset": 0 }), true),
            (vec![b'x'; 9], json!({ "byte_offset": 1 }), false),
            (vec![b'x'; 9], json!({ "byte_length": 8 }), false),
            (vec![b'x'; 9], json!({ "byte_length": 9 }), true),
            (vec![0xff; 6], json!({}), false),
            (vec![0xff; 7], json!({}), true),
            (vec![0xff; 7], json!({ "byte_length": 6 }), false),
        ] {
            let output = read_up_to(8, &dir.file(&bytes), range.clone()).expect("read");
            assert_eq!(output.truncated, cut, "{bytes:?} {range}");
            let data = uncut(&output);
            assert!(data["content"].as_str().expect("text").len() <= 8, "{data}");
        }
    }

    #[test]
    fn text_is_cut_between_lines_and_else_between_characters() {
        let dir = ScratchDirectory::new();
        let cases = [
            ("aaa\nbbb\nccc\n", 10, "aaa\nbbb\n", 2, 8),    // the third line does not fit
            ("aaa\nbbb\nccc\n", 8, "aaa\nbbb\n", 2, 8),     // the cut is the end of a line
            ("a\nbbbbbbbbbbbbb", 10, "a\nbbbbbbbb", 2, 10), // too much would be lost: inside the second line
            ("éééééééé", 9, "éééé", 1, 8),                  // a split character is still text
            ("🦀🦀🦀", 7, "🦀", 1, 4),
            ("🦀🦀", 1, "🦀", 1, 4), // each call makes progress, whatever the limit
        ];
        for (content, limit, head, end, next) in cases {
            let output = read_up_to(limit, &dir.file(content), json!({})).expect("read");
            assert!(output.truncated, "{content}");
            let size = content.len() as u64;
            assert_eq!(pathless(uncut(&output)), shape(head, 1, end, None, size), "{content}");
            assert_eq!(output.data["next_byte_offset"], next, "{content}");
        }
        // A range of lines that is too long continues where its head ended, not at the start of the file.
        let path = dir.file("skipped\naaa\nbbb\nccc\n");
        let output = read_up_to(10, &path, json!({ "start_line": 2, "end_line": 4 })).expect("read");
        assert_eq!(pathless(uncut(&output)), shape("aaa\nbbb\n", 2, 3, None, 20));
        assert_eq!(output.data["next_byte_offset"], 16);
    }

    #[test]
    fn following_next_byte_offset_gives_the_whole_file() {
        let dir = ScratchDirectory::new();
        let text = "zeile\n🦀größe\r\n\n".repeat(50) + &"lang".repeat(20);
        let binary: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for bytes in [text.as_bytes(), &binary] {
            let path = dir.file(bytes);
            for limit in [4, 7, 16, 100] {
                let mut seen = Vec::new();
                let mut range = json!({});
                loop {
                    let output = read_up_to(limit, &path, range).expect("read");
                    let data = uncut(&output);
                    let content = data["content"].as_str().expect("text");
                    assert!(content.len() <= limit);
                    match data["encoding"].as_str() {
                        Some("utf-8") => seen.extend_from_slice(content.as_bytes()),
                        _ => seen.extend(STANDARD.decode(content).expect("base64")),
                    }
                    if !output.truncated {
                        break;
                    }
                    assert_eq!(output.data["next_byte_offset"], seen.len());
                    range = json!({ "byte_offset": output.data["next_byte_offset"] });
                }
                assert_eq!(seen, bytes, "{limit}");
            }
        }
    }

    #[test]
    fn a_file_of_one_gibibyte_is_read_in_part() {
        const GIB: u64 = 1 << 30;
        let dir = ScratchDirectory::new();
        let path = dir.sparse(b"one\ntwo\nthree\n", GIB);
        let before = bytes_read();
        let output = read(&path, json!({})).expect("read");
        assert!(output.truncated);
        assert_eq!(output.data["size"], GIB);
        assert_eq!(output.data["head"].as_str().expect("text").len(), DEFAULT_LIMIT);
        assert_eq!(output.data.get("total_lines"), None, "nobody counted");
        let range = json!({ "start_line": 2, "end_line": 3 });
        assert_eq!(pathless(data(&path, range)), shape("two\nthree\n", 2, 3, None, GIB));
        let end = data(&path, json!({ "byte_offset": GIB - 3 }));
        assert_eq!((&end["content"], &end["byte_offset"]), (&json!("\0\0\0"), &json!(GIB - 3)));
        match (before, bytes_read()) {
            (Some(before), Some(after)) => assert!(after - before < 1 << 20, "{} bytes read", after - before),
            _ => eprintln!("SKIPPED: the kernel does not count what a thread reads"),
        }
    }

    #[test]
    fn lines_far_into_a_file_are_found_through_a_small_buffer() {
        let dir = ScratchDirectory::new();
        // Lines that straddle the buffer, and one that is far longer than it and the limit.
        let mut content = "0123456789\n".repeat(20_000);
        content += &"x".repeat(3 * DEFAULT_LIMIT);
        content += "\nlast\n";
        let path = dir.file(&content);
        let size = content.len() as u64;
        let range = json!({ "start_line": 20_002 });
        assert_eq!(pathless(data(&path, range)), shape("last\n", 20_002, 20_002, 20_002, size));
        let range = json!({ "start_line": 5_958, "end_line": 5_959 }); // bytes 65527 to 65549
        assert_eq!(pathless(data(&path, range)), shape("0123456789\n0123456789\n", 5_958, 5_959, None, size));
        let output = read(&path, json!({ "start_line": 20_001, "end_line": 20_001 })).expect("read");
        assert!(output.truncated);
        assert_eq!(output.data["head"], "x".repeat(DEFAULT_LIMIT));
        assert_eq!(output.data["next_byte_offset"], 220_000 + DEFAULT_LIMIT);
    }

    /// The line ranges, against the obvious way to compute them.
    #[test]
    fn line_ranges_agree_with_splitting_the_text() {
        let dir = ScratchDirectory::new();
        for content in ["a\n\nbb\nccc", "a\n\nbb\nccc\n", "\n\n\n", "x"] {
            let path = dir.file(content);
            let all: Vec<&str> = content.split_inclusive('\n').collect();
            for start in 1..=all.len() {
                for end in start..=all.len() + 1 {
                    let data = data(&path, json!({ "start_line": start, "end_line": end }));
                    let last = end.min(all.len());
                    assert_eq!(data["content"], all[start - 1..last].concat(), "{content:?} {start}..={end}");
                    assert_eq!(data["end_line"], last);
                    if let Some(total) = data.get("total_lines") {
                        assert_eq!(total, all.len());
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = ScratchDirectory::new();
        nix::unistd::mkfifo(&dir.path("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
        let _listener = UnixListener::bind(dir.path("socket")).expect("a socket");
        symlink("fifo", dir.path("link")).expect("a link");
        let cases = [
            (dir.path("."), FileKind::Directory),
            (dir.path("fifo"), FileKind::Fifo),
            (dir.path("link"), FileKind::Fifo),
            (dir.path("socket"), FileKind::Socket),
            ("/dev/zero".into(), FileKind::CharacterDevice),
            ("/dev/tty".into(), FileKind::CharacterDevice),
        ];
        let start = Instant::now();
        for (path, kind) in cases {
            for range in [json!({}), json!({ "byte_length": 1 })] {
                let error = read(&path, range).expect_err("no regular file");
                assert!(matches!(error, ToolError::NotRegular { what, .. } if what == kind), "{path:?}: {error}");
                assert_eq!(error.errno(), None, "this is no denial");
            }
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        let error = read(dir.0.path(), json!({})).expect_err("a directory");
        assert!(error.text().contains("is a directory, not a regular file; ") && error.text().contains("glob"));
        match fs::read_dir("/sys/class/block").ok().and_then(|mut names| names.next()?.ok()) {
            Some(name) if Path::new("/dev").join(name.file_name()).metadata().is_ok() => {
                let error = read(&Path::new("/dev").join(name.file_name()), json!({})).expect_err("a device");
                assert!(matches!(error, ToolError::NotRegular { what: FileKind::BlockDevice, .. }), "{error}");
            }
            _ => eprintln!("SKIPPED: no block device here"),
        }
    }

    #[test]
    fn files_that_the_kernel_makes_up_are_read_to_their_end() {
        let path = Path::new("/proc/self/status");
        assert_eq!(fs::metadata(path).expect("proc is mounted").len(), 0, "control: it claims to be empty");
        let whole = data(path, json!({}));
        let content = whole["content"].as_str().expect("text");
        assert!(content.starts_with("Name:") && content.contains("\nSeccomp:"), "{content}");
        assert_eq!(whole["size"], content.len());
        assert_eq!(whole["total_lines"], content.lines().count());
        assert_eq!(data(path, json!({ "byte_length": 5 }))["content"], "Name:");
        assert!(
            data(path, json!({ "start_line": 2, "end_line": 2 }))["content"]
                .as_str()
                .is_some_and(|l| l.starts_with("Umask:"))
        );
        let output = read_up_to(100, path, json!({})).expect("read");
        assert!(output.truncated);
        assert_eq!(output.data["size"], json!(null), "nobody knows");
    }

    #[test]
    fn links_are_followed() {
        let dir = ScratchDirectory::new();
        dir.file("content");
        symlink("f", dir.path("one")).expect("a link");
        symlink(dir.path("one"), dir.path("two")).expect("a link");
        let data = data(&dir.path("two"), json!({}));
        assert_eq!(data["content"], "content");
        assert_eq!(data["path"], json!(dir.path("two")));
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        let dir = ScratchDirectory::new();
        dir.file("content");
        symlink("circle", dir.path("circle")).expect("a link");
        for (path, errno, hint) in [
            (dir.path("missing"), libc::ENOENT, "glob"),
            (dir.path("f/sub"), libc::ENOTDIR, "no directory"),
            (dir.path("circle"), libc::ELOOP, "circle"),
            (dir.path(&"n".repeat(256)), libc::ENAMETOOLONG, "255"),
            (dir.path(&"n/".repeat(2500)), libc::ENAMETOOLONG, "4095"),
        ] {
            let error = read(&path, json!({})).expect_err("no such file");
            assert!(matches!(error, ToolError::File { act: FileAct::Open, .. }), "{error}");
            assert_eq!(error.errno(), Some(errno), "{error}");
            let text = error.text();
            assert!(text.contains(&path.display().to_string()) && text.contains(hint), "{text}");
        }
    }

    #[test]
    fn a_file_without_permission_is_eacces() {
        let dir = ScratchDirectory::new();
        let path = dir.file("content");
        let unprivileged = || {
            std::thread::scope(|scope| {
                let read = || {
                    caps::clear(None, caps::CapSet::Effective).expect("capabilities can be dropped");
                    read(&path, json!({}))
                };
                scope.spawn(read).join().expect("the thread ends")
            })
        };
        unprivileged().expect("control: readable as it is");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("chmod");
        let error = unprivileged().expect_err("mode 0");
        assert!(matches!(error, ToolError::File { act: FileAct::Open, .. }), "{error}");
        assert_eq!(error.errno(), Some(libc::EACCES));
    }

    #[test]
    fn names_of_any_bytes() {
        let dir = ScratchDirectory::new();
        let path = dir.path("new\nline");
        fs::write(&path, "x").expect("a file");
        let found = data(&path, json!({}));
        assert_eq!((&found["path"], found.get("path_b64")), (&json!(path), None));

        let path = dir.0.path().join(OsStr::from_bytes(b"inv\xffalid"));
        fs::write(&path, "y").expect("a file");
        let found = data(&path, json!({}));
        assert_eq!(found["path"], path.to_string_lossy().as_ref());
        let exact = STANDARD.decode(found["path_b64"].as_str().expect("text")).expect("base64");
        assert_eq!(exact, path.as_os_str().as_bytes());
        assert_eq!(found["content"], "y");
        let output = read_up_to(4, &path, json!({})).expect("read");
        assert!(!output.truncated);
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_says_so() {
        let dir = ScratchDirectory::new();
        let path = dir.sparse(b"", 1 << 24);
        let range = json!({ "start_line": 1, "end_line": 1, });
        assert_eq!(read(&path, range.clone()).expect("read").data.get("changed"), None, "control: nobody writes");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                use std::io::Write as _;
                let mut file = fs::OpenOptions::new().append(true).open(&path).expect("a file");
                while !done.load(Ordering::Relaxed) {
                    file.write_all(b"more\n").expect("appended");
                    std::thread::yield_now();
                }
            });
            let deadline = Instant::now() + Duration::from_secs(30);
            let seen = loop {
                // Line 2 comes after 16 MiB, so that there is time enough to write.
                match read(&path, json!({ "start_line": 2, "end_line": 2 })) {
                    Ok(output) if output.data["changed"] == true => break Ok(output),
                    other if Instant::now() > deadline => break other,
                    _ => {}
                }
            };
            done.store(true, Ordering::Relaxed);
            let output = seen.expect("line 2 is there");
            assert_eq!(output.data["content"], "more\n");
            assert_eq!(output.data["changed"], true);
        });
    }
}
