//! The locked tools, as they run inside an already confined worker.
//!
//! Nothing here decides what is allowed: the plan granted a path, the kernel holds the worker to it, and a tool does its
//! work or says which operation failed. What comes from the model (the arguments) and what lies in the workspace (the
//! files) are both hostile: a tool never blocks on what it opens, never holds more than its limit of a file in memory,
//! and never panics.
//!
//! Each tool's [`Contract`] stands beside its code, as data, so that the supervisor can list and validate a tool without
//! running it.

use std::fmt;
use std::io;

use callgate_policy::path::HostPath;
use rustix::fs::FileType;
use serde_json::{Map, Value};

pub mod read;
pub mod write;

/// The bytes of a file that one result carries at most, unless the supervisor says otherwise (S0-48, C-15).
pub const DEFAULT_LIMIT: usize = 200 * 1024;

/// What a tool promises: its name, what it needs, and what a model reads about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contract {
    /// The locked name (S0-9).
    pub name: &'static str,
    /// The capabilities that a call needs.
    pub requires: &'static [&'static str],
    /// Prose for the model.
    pub description: &'static str,
    /// JSON Schema 2020-12 of the arguments.
    pub schema: &'static str,
}

/// The tools that this module carries out.
pub const CONTRACTS: &[Contract] = &[read::CONTRACT, write::CONTRACT];

/// What a call runs with, besides its arguments.
#[derive(Debug, Clone)]
pub struct Context {
    /// The absolute path that the plan granted. It, never `args["path"]`, is what a tool opens: the argument was
    /// resolved and checked to become this one, and may not even be able to spell it (a name that is not UTF-8).
    pub path: HostPath,
    /// The most bytes of `content` in the result, as they are returned: base64 counts encoded.
    pub limit: usize,
}

/// A result, in the shape that C-27 gives the tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The result; when truncated, its first part is under `head`, in the same shape.
    pub data: Value,
    /// The result was cut to the limit (S0-44).
    pub truncated: bool,
}

/// Runs the tool `name`.
///
/// # Errors
///
/// The operation that failed. Nothing was changed then, but for parent directories that `write` may have made.
pub fn run(name: &str, args: &Value, ctx: &Context) -> Result<Output, ToolError> {
    match name {
        "read" => read::run(args, ctx),
        "write" => write::run(args, ctx),
        _ => Err(ToolError::UnknownTool { name: name.to_owned() }),
    }
}

/// Why a tool gave no result. `Display` says what failed and on what, the cause is `source`, the way on is
/// [`ToolError::next_step`]; [`ToolError::text`] is all three in a line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// No tool of that name runs here.
    #[error("unknown tool {name:?}")]
    UnknownTool {
        /// The name that was asked for.
        name: String,
    },
    /// An argument is missing, or is not what the schema says.
    #[error("argument `{name}` must be {wants}, not {found}")]
    Argument {
        /// The argument.
        name: &'static str,
        /// What it must be.
        wants: &'static str,
        /// What it was, shortened.
        found: String,
    },
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
    /// The path ends in `/`, `.` or `..`, so that it cannot name a file.
    #[error("{path} does not end in a file name")]
    NoFileName {
        /// The path.
        path: HostPath,
    },
    /// The path names something that is not a regular file.
    #[error("{path} is {what}, not a regular file")]
    NotRegular {
        /// The path.
        path: HostPath,
        /// What it is.
        what: FileKind,
    },
    /// The file could not be found or opened.
    #[error("open {path}")]
    Open {
        /// The file.
        path: HostPath,
        /// Why.
        source: io::Error,
    },
    /// The file was open, and reading it failed.
    #[error("read {path}")]
    Read {
        /// The file.
        path: HostPath,
        /// Why.
        source: io::Error,
    },
    /// A directory on the way to the file could not be opened or made.
    #[error("make the directories above {path}")]
    Parent {
        /// The file.
        path: HostPath,
        /// Why.
        source: io::Error,
    },
    /// Symbolic links led the kernel and this code to different files: somebody is changing them.
    #[error("the symbolic links of {path} changed while they were followed")]
    LinkChanged {
        /// The file.
        path: HostPath,
    },
    /// The new content's temporary file could not be made beside the file.
    #[error("make a temporary file beside {path}")]
    Temporary {
        /// The file.
        path: HostPath,
        /// Why.
        source: io::Error,
    },
    /// The new content could not be stored. The old content is as it was.
    #[error("write {path}")]
    Write {
        /// The file.
        path: HostPath,
        /// Why.
        source: io::Error,
    },
    /// The new content could not be given the old file's mode. The old content is as it was.
    #[error("keep the mode of {path}")]
    Mode {
        /// The file.
        path: HostPath,
        /// Why.
        source: io::Error,
    },
    /// The new content was complete and could not be put in the old one's place. The old content is as it was.
    #[error("replace {path}")]
    Publish {
        /// The file.
        path: HostPath,
        /// Why.
        source: io::Error,
    },
}

impl ToolError {
    /// The kernel's own answer, where a system call failed. For EACCES, EPERM and EROFS the supervisor looks for the
    /// layer that refused.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.cause().and_then(io::Error::raw_os_error)
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn next_step(&self) -> Option<&'static str> {
        match self {
            Self::UnknownTool { .. } => Some("call one of the tools that the registry lists"),
            Self::Argument { .. } => Some("see the tool's schema"),
            Self::MixedRanges => Some("ask for lines or for bytes"),
            Self::EmptyRange { .. } => Some("lines are counted from 1, and end_line is included"),
            Self::StartPastEnd { .. } | Self::OffsetPastEnd { .. } => Some("start before the end"),
            Self::NoFileName { .. } => Some("name a file"),
            Self::NotRegular { what: FileKind::Directory, .. } => {
                Some("name a file in it; glob, or `ls` by bash, lists a directory")
            }
            Self::NotRegular { .. } => Some("only regular files are read and written"),
            Self::LinkChanged { .. } => Some("try again, or name the file that the link leads to"),
            Self::Open { source, .. }
            | Self::Read { source, .. }
            | Self::Parent { source, .. }
            | Self::Temporary { source, .. }
            | Self::Write { source, .. }
            | Self::Mode { source, .. }
            | Self::Publish { source, .. } => next_step_for(source.raw_os_error()?),
        }
    }

    /// The failure in one line: the operation and its object, the cause, the next step. The envelope's `error_text`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.to_string();
        if let Some(cause) = self.cause() {
            text.push_str(&format!(": {cause}"));
        }
        if let Some(step) = self.next_step() {
            text.push_str(&format!("; {step}"));
        }
        text
    }

    fn cause(&self) -> Option<&io::Error> {
        match self {
            Self::Open { source, .. }
            | Self::Read { source, .. }
            | Self::Parent { source, .. }
            | Self::Temporary { source, .. }
            | Self::Write { source, .. }
            | Self::Mode { source, .. }
            | Self::Publish { source, .. } => Some(source),
            Self::UnknownTool { .. }
            | Self::Argument { .. }
            | Self::MixedRanges
            | Self::EmptyRange { .. }
            | Self::StartPastEnd { .. }
            | Self::OffsetPastEnd { .. }
            | Self::NoFileName { .. }
            | Self::NotRegular { .. }
            | Self::LinkChanged { .. } => None,
        }
    }
}

fn next_step_for(errno: i32) -> Option<&'static str> {
    Some(match errno {
        libc::ENOENT => "check the spelling; glob lists what there is",
        libc::ENOTDIR => "a name before the last is no directory",
        libc::ELOOP => "the symbolic links go in a circle; name the file itself",
        libc::ENAMETOOLONG => "a name has at most 255 bytes and a path 4095",
        libc::EACCES | libc::EPERM => "both the grant and the file's own permissions have to allow it",
        libc::EROFS => "this file system is read-only; use a writable directory",
        libc::ENOSPC => "the file system is full; free some space or write less",
        libc::EDQUOT => "the disk quota is used up; free some space or write less",
        libc::EFBIG => "the limit on the size of a file is reached; write less",
        libc::EAGAIN => "the file would block until somebody else acts; only stored content is read",
        libc::EBUSY => "the file is a mount point and cannot be replaced; write another file",
        libc::ETXTBSY => "the program is running; try again when it has ended",
        _ => return None,
    })
}

/// What a path names when it is not a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A named pipe.
    Fifo,
    /// A unix socket.
    Socket,
    /// A character device, such as a terminal or `/dev/zero`.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A symbolic link where none can be followed.
    Symlink,
    /// Something that this code does not know.
    Unknown,
}

impl FileKind {
    /// `None` for a regular file.
    pub(crate) fn of_other(mode: rustix::fs::RawMode) -> Option<Self> {
        match FileType::from_raw_mode(mode) {
            FileType::RegularFile => None,
            FileType::Directory => Some(Self::Directory),
            FileType::Fifo => Some(Self::Fifo),
            FileType::Socket => Some(Self::Socket),
            FileType::CharacterDevice => Some(Self::CharacterDevice),
            FileType::BlockDevice => Some(Self::BlockDevice),
            FileType::Symlink => Some(Self::Symlink),
            FileType::Unknown => Some(Self::Unknown),
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::CharacterDevice => "a character device",
            Self::BlockDevice => "a block device",
            Self::Symlink => "a symbolic link",
            Self::Unknown => "of a kind unknown here",
        })
    }
}

/// Puts `path` into a result, and `path_b64` beside it where text would lose bytes (C-27).
pub(crate) fn name_path(data: &mut Map<String, Value>, path: &HostPath) {
    use base64::Engine as _;
    let bytes = path.as_bytes();
    data.insert("path".to_owned(), String::from_utf8_lossy(bytes).into());
    if std::str::from_utf8(bytes).is_err() {
        data.insert("path_b64".to_owned(), base64::engine::general_purpose::STANDARD.encode(bytes).into());
    }
}

/// The optional argument `name`, an integer of at least `least`.
///
/// `2.0` is an integer too: JSON Schema 2020-12 says so, and some models write it.
pub(crate) fn integer(
    args: &Value,
    name: &'static str,
    least: u64,
    wants: &'static str,
) -> Result<Option<u64>, ToolError> {
    /// Up to here every integer has its own f64.
    const EXACT: f64 = 9_007_199_254_740_992.0;

    let Some(value) = args.get(name) else { return Ok(None) };
    let whole = |n: &f64| n.fract() == 0.0 && (0.0..=EXACT).contains(n);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`whole` holds: in range, no fraction")]
    let number = value.as_u64().or_else(|| value.as_f64().filter(whole).map(|n| n as u64));
    match number.filter(|&n| n >= least) {
        Some(number) => Ok(Some(number)),
        None => Err(ToolError::Argument { name, wants, found: shorten(value) }),
    }
}

/// A value as an error message can carry it.
pub(crate) fn shorten(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > 40 {
        text.truncate(text.floor_char_boundary(37));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn contracts_are_closed_json_schemas_and_carry_the_locked_names() {
        for contract in CONTRACTS {
            let schema: Value = serde_json::from_str(contract.schema).expect("a schema is JSON");
            assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
            assert_eq!(schema["additionalProperties"], false, "{}", contract.name);
            let properties = schema["properties"].as_object().expect("properties");
            for (name, property) in properties {
                assert!(property["description"].is_string(), "{}: {name} has no description", contract.name);
            }
            for name in schema["required"].as_array().expect("required") {
                assert!(properties.contains_key(name.as_str().expect("a name")));
            }
            assert!(!contract.description.is_empty());
        }
        assert_eq!(CONTRACTS.iter().map(|c| c.name).collect::<Vec<_>>(), ["read", "write"]); // S0-10, S0-11
        assert_eq!(read::CONTRACT.requires, ["fs.read"]);
        assert_eq!(write::CONTRACT.requires, ["fs.write"]);
    }

    #[test]
    fn an_unknown_tool_is_named() {
        let ctx = Context { path: HostPath::from("/"), limit: DEFAULT_LIMIT };
        let error = run("raed", &json!({}), &ctx).expect_err("no such tool");
        assert_eq!(error.text(), "unknown tool \"raed\"; call one of the tools that the registry lists");
        assert_eq!(error.errno(), None);
    }

    #[test]
    fn integers_are_what_json_schema_calls_integers() {
        let wants = "a whole number of at least 1";
        for (value, expected) in [(json!(1), 1), (json!(2.0), 2), (json!(u64::MAX), u64::MAX)] {
            assert_eq!(integer(&json!({ "n": value }), "n", 1, wants).expect("an integer"), Some(expected));
        }
        assert_eq!(integer(&json!({}), "n", 1, wants).expect("absent"), None);
        for value in [json!(0), json!(-1), json!(1.5), json!("1"), json!(null), json!(1e300), json!([1])] {
            let error = integer(&json!({ "n": value }), "n", 1, wants).expect_err("no such line");
            assert!(matches!(error, ToolError::Argument { name: "n", .. }), "{value}: {error}");
        }
        let long = integer(&json!({ "n": "ü".repeat(500) }), "n", 1, wants).expect_err("a string");
        assert!(long.to_string().len() < 120, "{long}");
    }

    #[test]
    fn an_error_says_operation_cause_and_next_step() {
        let source = io::Error::from_raw_os_error(libc::ENOENT);
        let error = ToolError::Open { path: HostPath::from("/no\nwhere"), source };
        assert_eq!(error.errno(), Some(libc::ENOENT));
        assert_eq!(
            error.text(),
            "open /no\\nwhere: No such file or directory (os error 2); check the spelling; glob lists what there is"
        );
    }
}
