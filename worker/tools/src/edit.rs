//! `edit`: replaces one piece of text in a file that is there (S0-12, C-14, C-27).
//!
//! The text is looked for byte by byte in what the file holds now, whatever was read before (X0-3): no character is taken
//! for another, no line end for another, no indentation guessed. It must be there exactly once, occurrences that overlap
//! counted, or nothing is changed. The rest of the file stays as it is to the byte, so that CRLF, a byte order mark and
//! bytes that are not UTF-8 pass through. The new content takes the old one's place as `write` does it: at once, with the
//! mode kept.
//!
//! The shape (C-27): `{path, line}`, where `line`, counted from 1, is the one in which the replaced text began.
//!
//! A surface may have its `edit` do one thing differently (C-14), which no caller can: the worker is told besides the arguments.
//! - `all`: every occurrence is replaced, from the beginning on, and `count` says how many they were (X2-14).
//! - `flexible`: a text that is not there to the byte is looked for line by line (`flexible`), and `stage` says how it was
//!   found (S4-15, X4-12).

mod error;
mod flexible;
mod mismatch;
mod place;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd};

use callgate_policy::path::HostPath;
use memchr::memmem::Finder;
use rustix::fs::{CWD, Mode, OFlags, Stat};
use serde_json::{Map, Value};

pub use self::error::EditError;
pub use self::mismatch::{MatchStage, Mismatch};
use self::place::{Splice, line_of, only_place};
use super::arguments::required_text;
use super::write::{MissingPath, WriteTarget, open_parent_without_links, split};
use super::{
    Contract, FileKind, FileNeed, LinkTreatment, Needs, SyscallNeed, ToolContext, ToolError, ToolResult, name_path,
    results,
};
use crate::FileAct;

/// The arguments of `edit`.
pub const EDIT_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "path": {
      "type": ["string", "object"], "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
      "description": "The file to change, absolute or relative to the workspace. It must exist; to make one, use write. A path that is not UTF-8 is `{\"b64\": \"…\"}`, with the `path_b64` of a result."
    },
    "old_string": {
      "type": "string", "minLength": 1,
      "description": "The text to replace, exactly as the file has it, indentation and line ends included. It must be in the file exactly once: give as many lines around it as that takes."
    },
    "new_string": {
      "type": "string",
      "description": "The text to put in its place, exactly as it is to be stored. Empty to remove the old text."
    }
  },
  "required": ["path", "old_string", "new_string"],
  "additionalProperties": false
}"#;

/// Contract of `edit`.
pub const CONTRACT: Contract = Contract {
    name: "edit",
    requires: &["fs.read", "fs.write"],
    description: "Replace a piece of text in a file. `old_string` must be in the file exactly once, to the byte; if it is \
        there more than once, or not at all, the call fails and the file is untouched. A file with CRLF line ends needs \
        `\\r\\n` in both strings. The file is replaced at once and keeps its mode. Returns the line, counted from 1, in which \
        the replaced text began.",
    schema: EDIT_SCHEMA,
    output: results::EDIT,
    kind: SyscallNeed::Plain,
    run,
    files: Some(FileNeed::locked(Needs::Change)),
};

/// Word to the worker where all occurrences are to be replaced.
pub const ALL: &str = "all";
/// Word to it where lines may differ in white space.
pub const FLEXIBLE: &str = "flexible";

/// The longest file that is edited, bytes: it is held in memory, with what becomes of it.
const FILE_MAX: u64 = 64 * 1024 * 1024;

/// Replaces `args["old_string"]` in `ctx.path` by `args["new_string"]`.
///
/// # Errors
///
/// The operation that failed, or why the text cannot be replaced; the file is as it was.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let (old, new) = (required_text(args, "old_string")?, required_text(args, "new_string")?);
    if old.is_empty() {
        let found = "an empty one".to_owned();
        return Err(ToolError::Argument { name: "old_string", wants: "a string that is not empty", found });
    }
    if old == new {
        return Err(EditError::NoChange.into());
    }
    let path = &ctx.path;
    let target = WriteTarget::find(path, MissingPath::IsAnError, ctx.links)?;
    let (before, stat) = content(&target, path)?;
    let mut data = Map::new();
    name_path(&mut data, path);
    if is_told(args, ALL) {
        let (after, first, count) = replace_all(&before, (old.as_bytes(), new.as_bytes()), path)?;
        target.publish(&[&after], Some(&stat))?;
        data.insert("line".to_owned(), line_of(&before, first).into());
        data.insert("count".to_owned(), count.into());
        return Ok(ToolResult::of(Value::Object(data), false));
    }
    let is_flexible = is_told(args, FLEXIBLE);
    let splice = if is_flexible {
        flexible::find(&before, (old, new), path)?
    } else {
        let at = only_place(&before, old.as_bytes(), path)?;
        Splice { range: at..at + old.len(), new: Cow::Borrowed(new.as_bytes()), stage: MatchStage::Exact }
    };
    let (head, tail) = (&before[..splice.range.start], &before[splice.range.end..]);
    target.publish(&[head, &splice.new, tail], Some(&stat))?;
    data.insert("line".to_owned(), line_of(&before, splice.range.start).into());
    if is_flexible {
        data.insert("stage".to_owned(), splice.stage.name().into());
    }
    Ok(ToolResult::of(Value::Object(data), false))
}

/// True if the supervisor has said so: with `true`, or with a number, as some surfaces say it.
fn is_told(args: &Value, name: &str) -> bool {
    args[name].as_bool().unwrap_or(false) || args[name].as_u64().is_some_and(|number| number > 0)
}

/// Text that the file is to hold, where the first occurrence was, and how many there were.
fn replace_all(
    content: &[u8],
    (old, new): (&[u8], &[u8]),
    path: &HostPath,
) -> Result<(Vec<u8>, usize, usize), ToolError> {
    let places: Vec<usize> = Finder::new(old).find_iter(content).collect();
    let Some(first) = places.first().copied() else {
        return Err(EditError::NotFound { path: path.clone(), why: Mismatch::find(content, old) }.into());
    };
    let rest = content.len() - places.len() * old.len();
    let size = (places.len() as u64).saturating_mul(new.len() as u64).saturating_add(rest as u64);
    if size > FILE_MAX {
        return Err(ToolError::TooLong { path: path.clone(), size, most: FILE_MAX });
    }
    let mut after = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    let mut from = 0;
    for place in &places {
        after.extend_from_slice(&content[from..*place]);
        after.extend_from_slice(new);
        from = place + old.len();
    }
    after.extend_from_slice(&content[from..]);
    Ok((after, first, places.len()))
}

/// Content of the file, and its status when that was read.
pub(super) fn content(target: &WriteTarget<'_>, path: &HostPath) -> Result<(Vec<u8>, Stat), ToolError> {
    read(open(target.directory.as_fd(), &target.name, OFlags::NOFOLLOW, path)?, path)
}

/// Content and status of a file that is not changed.
pub(super) fn content_to_read(path: &HostPath, links: LinkTreatment) -> Result<(Vec<u8>, Stat), ToolError> {
    let (parent, name) = split(path.as_bytes()).ok_or_else(|| ToolError::NoFileName { path: path.clone() })?;
    let file =
        match links {
            LinkTreatment::Followed => open(CWD, path.as_path().as_os_str(), OFlags::empty(), path)?,
            LinkTreatment::Refused => {
                let parent = open_parent_without_links(parent, MissingPath::IsAnError)
                    .map_err(|e| ToolError::File { act: FileAct::Open, path: path.clone(), source: e.into() })?;
                open(parent.as_fd(), name, OFlags::NOFOLLOW, path)?
            }
        };
    read(file, path)
}

fn read(file: File, path: &HostPath) -> Result<(Vec<u8>, Stat), ToolError> {
    let failed = |source| ToolError::File { act: FileAct::Read, path: path.clone(), source };
    let stat = rustix::fs::fstat(&file).map_err(|e| failed(e.into()))?;
    if let Some(what) = FileKind::of_other(stat.st_mode) {
        return Err(ToolError::NotRegular { path: path.clone(), what });
    }
    let too_long = |size| ToolError::TooLong { path: path.clone(), size, most: FILE_MAX };
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size > FILE_MAX {
        return Err(too_long(size));
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX { Err(too_long(bytes.len() as u64)) } else { Ok((bytes, stat)) }
}

fn open(directory: BorrowedFd<'_>, name: &OsStr, links: OFlags, path: &HostPath) -> Result<File, ToolError> {
    let flags = OFlags::RDONLY | links | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::fs::openat(directory, name, flags, Mode::empty()))
        .map(File::from)
        .map_err(|e| ToolError::File { act: FileAct::Open, path: path.clone(), source: e.into() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test runs programs")]
    use super::*;
    use serde_json::json;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::path::Path;

    fn edit(path: &Path, old: &str, new: &str) -> Result<Value, ToolError> {
        let ctx = ToolContext::new(HostPath::from(path), 10);
        // The argument is a decoy: the path of the plan counts.
        run(&json!({ "path": "/decoy", "old_string": old, "new_string": new }), &ctx).map(|output| output.data)
    }

    fn scratch(content: impl AsRef<[u8]>) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f");
        fs::write(&path, content).expect("a file");
        (dir, path)
    }

    fn names(dir: &Path) -> Vec<std::ffi::OsString> {
        let mut names: Vec<_> =
            fs::read_dir(dir).expect("listed").map(|entry| entry.expect("one").file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn replaces_the_only_occurrence_and_says_its_line() {
        // S0-12, C-27: {path, line}
        let (dir, path) = scratch("one\ntwo\nthree\n");
        assert_eq!(edit(&path, "two", "2\n2½").expect("edited"), json!({ "path": path, "line": 2 }));
        assert_eq!(fs::read_to_string(&path).expect("there"), "one\n2\n2½\nthree\n");
        assert_eq!(edit(&path, "three\n", "").expect("removed"), json!({ "path": path, "line": 4 }));
        assert_eq!(fs::read_to_string(&path).expect("there"), "one\n2\n2½\n");
        assert_eq!(edit(&path, "one\n2\n2½\n", "").expect("emptied"), json!({ "path": path, "line": 1 }));
        assert_eq!(fs::read(&path).expect("there"), b"");
        assert_eq!(names(dir.path()), ["f"]);
    }

    #[test]
    fn what_is_there_twice_or_not_at_all_changes_nothing() {
        // C-14, X0-3
        let (dir, path) = scratch("aaa\nb x b\nc\nx\n");
        let inode = fs::metadata(&path).expect("there").ino();
        for (old, told) in [
            ("aa", "2 times, first on lines 1 and 1"), // they overlap
            ("x", "2 times, first on lines 2 and 4"),
            ("y", "is not in"),
            ("X", "is not in"),
            ("aaa\nb x b\nc\nx\n\n", "is not in"),
        ] {
            let error = edit(&path, old, "new").expect_err(old);
            assert!(error.to_string().contains(told), "{error}");
            assert!(error.next_step().is_some(), "{error}");
        }
        assert!(matches!(edit(&path, "c", "c").expect_err("refused").own(), Some(EditError::NoChange)));
        assert!(matches!(edit(&path, "", "c"), Err(ToolError::Argument { name: "old_string", .. })));
        assert_eq!(fs::read_to_string(&path).expect("there"), "aaa\nb x b\nc\nx\n");
        assert_eq!(fs::metadata(&path).expect("there").ino(), inode, "not even replaced by its like");
        assert_eq!(names(dir.path()), ["f"]);
        edit(&path, "c", "d").expect("the control");
    }

    #[test]
    fn x2_14_all_occurrences_where_the_surface_says_so() {
        let (_dir, path) = scratch("aaaa\nb a\n");
        let ctx = ToolContext::new(HostPath::from(path.as_path()), 10);
        let all = |old: &str, new: &str| {
            run(&json!({ "old_string": old, "new_string": new, ALL: true }), &ctx).map(|output| output.data)
        };
        assert_eq!(all("aa", "x").expect("replaced"), json!({ "path": path, "line": 1, "count": 2 }));
        assert_eq!(fs::read_to_string(&path).expect("there"), "xx\nb a\n");
        assert_eq!(all("a", "").expect("replaced")["line"], 2);
        assert!(matches!(all("a", "b").expect_err("refused").own(), Some(EditError::NotFound { .. })));
        assert_eq!(fs::read_to_string(&path).expect("there"), "xx\nb \n");
        fs::write(&path, "a".repeat(1 << 20)).expect("a file");
        assert!(matches!(all("a", &"b".repeat(1 << 20)), Err(ToolError::TooLong { .. })));
        assert!(
            matches!(edit(&path, "a", "b").expect_err("refused").own(), Some(EditError::NotUnique { .. })),
            "the control: without that, one"
        );
    }

    #[test]
    fn x4_12_stages_where_the_surface_says_so() {
        let (_dir, path) = scratch("\tif x {\n\t\ty\n");
        let ctx = ToolContext::new(HostPath::from(path.as_path()), 10);
        let args = json!({ "old_string": "if x {\n    y\n", "new_string": "if z {\n    y\n" });
        assert!(
            matches!(run(&args, &ctx).expect_err("refused").own(), Some(EditError::NotFound { .. })),
            "the locked one is exact"
        );
        let mut flexible = args.clone();
        flexible[FLEXIBLE] = true.into();
        let data = run(&flexible, &ctx).expect("edited").data;
        assert_eq!(data, json!({ "path": path, "line": 1, "stage": "indentation" }));
        assert_eq!(fs::read_to_string(&path).expect("there"), "\tif z {\n\t\ty\n");
    }

    #[test]
    fn bytes_around_it_stay_as_they_are() {
        for (before, old, new, after) in [
            (&b"\xef\xbb\xbfa\r\nb\r\n"[..], "b\r\n", "c\r\n", &b"\xef\xbb\xbfa\r\nc\r\n"[..]),
            (b"\xff\x00\xfe x \xc3", " x ", "\u{fffd}", b"\xff\x00\xfe\xef\xbf\xbd\xc3"),
            (b"no newline", "line", "", b"no new"),
        ] {
            let (_dir, path) = scratch(before);
            edit(&path, old, new).expect("edited");
            assert_eq!(fs::read(&path).expect("there"), after);
        }
        let long = format!("{}needle{}", "x".repeat(5_000_000), "y".repeat(5_000_000));
        let (_dir, path) = scratch(&long);
        assert_eq!(edit(&path, "needle", "hay").expect("edited")["line"], 1);
        assert_eq!(fs::metadata(&path).expect("there").len(), 10_000_003);
    }

    #[test]
    fn a_likely_reason_is_told() {
        for (content, old, why) in [
            (&b"a\r\nb\r\n"[..], "a\nb\n", Mismatch::LineEnds),
            (b"\tif x {\n\t\ty\n", "if x {\n    y\n", Mismatch::Space),
            (b"\xff\xfea\0b\0", "ab", Mismatch::Utf16),
            (b"abc\n", "d", Mismatch::Unknown),
            (b"abc\n\n", "  ", Mismatch::Unknown),
        ] {
            let (_dir, path) = scratch(content);
            let error = edit(&path, old, "new").expect_err("it is not there");
            assert!(matches!(error.own(), Some(EditError::NotFound { why: found, .. }) if *found == why), "{error:?}");
            assert_eq!(fs::read(&path).expect("there"), content);
        }
    }

    #[test]
    fn only_what_is_there_and_regular_is_edited() {
        let (dir, path) = scratch("old");
        let missing = dir.path().join("no/such");
        assert_eq!(edit(&missing, "a", "b").expect_err("missing").errno(), Some(libc::ENOENT));
        symlink("nowhere", dir.path().join("dangling")).expect("a link");
        assert_eq!(edit(&dir.path().join("dangling"), "a", "b").expect_err("it dangles").errno(), Some(libc::ENOENT));
        assert!(matches!(edit(dir.path(), "a", "b"), Err(ToolError::NotRegular { what: FileKind::Directory, .. })));
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .expect("made");
        assert!(matches!(edit(&fifo, "a", "b"), Err(ToolError::NotRegular { what: FileKind::Fifo, .. })));
        assert!(matches!(
            edit(Path::new("/dev/zero"), "a", "b"),
            Err(ToolError::NotRegular { what: FileKind::CharacterDevice, .. })
        ));
        assert_eq!(names(dir.path()), ["dangling", "f", "fifo"], "nothing was made");
        // The control, through a link that stays one.
        symlink("f", dir.path().join("link")).expect("a link");
        edit(&dir.path().join("link"), "old", "new").expect("edited");
        assert!(fs::symlink_metadata(dir.path().join("link")).expect("there").is_symlink());
        assert_eq!(fs::read_to_string(path).expect("there"), "new");
    }

    #[test]
    fn modes_are_kept_and_count() {
        let (_dir, path) = scratch("#!/bin/sh\nold");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).expect("chmod");
        edit(&path, "old", "new").expect("edited");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o7777, 0o751);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).expect("chmod");
        let error = std::thread::scope(|scope| {
            let act = || {
                caps::clear(None, caps::CapSet::Effective).expect("capabilities can be dropped");
                edit(&path, "new", "newer")
            };
            scope.spawn(act).join().expect("the thread ends")
        });
        assert_eq!(error.expect_err("it is read-only").errno(), Some(libc::EACCES));
        assert_eq!(fs::read_to_string(&path).expect("there"), "#!/bin/sh\nnew");
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_unread() {
        let (_dir, path) = scratch("");
        let file = fs::File::options().write(true).open(&path).expect("opened");
        file.set_len(FILE_MAX + 1).expect("a hole");
        assert!(matches!(edit(&path, "a", "b"), Err(ToolError::TooLong { size, .. }) if size == FILE_MAX + 1));
        assert_eq!(fs::metadata(&path).expect("there").len(), FILE_MAX + 1);
    }

    #[test]
    fn a_file_that_somebody_else_changed_meanwhile_is_left_to_them() {
        let (dir, path) = scratch("old");
        let host = HostPath::from(&path);
        let target = WriteTarget::find(&host, MissingPath::IsAnError, LinkTreatment::Followed).expect("found");
        let (_, stat) = content(&target, &host).expect("read");
        fs::write(&path, "theirs!").expect("written");
        assert!(matches!(
            target.publish(&[b"mine"], Some(&stat)).expect_err("refused").own(),
            Some(super::super::write::WriteError::Changed { .. })
        ));
        assert_eq!(fs::read_to_string(&path).expect("there"), "theirs!");
        assert_eq!(names(dir.path()), ["f"]);
    }
}
