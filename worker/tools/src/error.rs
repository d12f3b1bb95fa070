//! Reasons why a tool gave no result, and what each of them means for the caller.

use std::io;

use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;
use callgate_worker::toolset::ToolFailure;

use super::edit::{MatchStage, Mismatch};
use super::file_kind::FileKind;
use super::lsp::{LspError, last_words};
use super::message::listed;
use super::patch::PatchError;
use super::workbook::WorkbookError;

/// Reason why a tool gave no result. `Display` says what failed and on what, the cause is `source`, the way on is
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
        /// Type that it must have.
        wants: &'static str,
        /// Value that it had, shortened.
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
    /// The file is not text, and text is what was asked for.
    #[error("{path} is not text: {why}")]
    NotText {
        /// The file.
        path: HostPath,
        /// How that is known.
        why: String,
    },
    /// No line of the file defines the name.
    #[error("nothing in {path} defines `{symbol}`")]
    NoSymbol {
        /// The file.
        path: HostPath,
        /// The name.
        symbol: String,
    },
    /// The path names something that is not a regular file.
    #[error("{path} is {what}, not a regular file")]
    NotRegular {
        /// The path.
        path: HostPath,
        /// Kind of file that it is.
        what: FileKind,
    },
    /// The path names no directory.
    #[error("{path} is not a directory")]
    NotADirectory {
        /// The path.
        path: HostPath,
    },
    /// An expression or a pattern that makes no sense.
    #[error("argument `{argument}`, {pattern}: {reason}")]
    Pattern {
        /// The argument.
        argument: &'static str,
        /// Pattern, shortened.
        pattern: String,
        /// Mistake in it.
        reason: String,
    },
    /// The text to be replaced is not in the file.
    #[error("`old_string` is not in {path}{}", .why.text())]
    NotFound {
        /// The file.
        path: HostPath,
        /// Possible cause.
        why: Mismatch,
    },
    /// The text to be replaced is there more than once.
    #[error("`old_string`{} is in {path} {times} times, first on lines {}", .stage.text(), listed(.lines))]
    NotUnique {
        /// The file.
        path: HostPath,
        /// How often.
        times: usize,
        /// Where the first of them begin.
        lines: Vec<u64>,
        /// How it was looked for.
        stage: MatchStage,
    },
    /// The replacement is what is there.
    #[error("`old_string` and `new_string` are the same")]
    NoChange,
    /// The file is longer than this tool holds in memory.
    #[error("{path} has {size} bytes, more than the {most} that edit takes")]
    TooLong {
        /// The file.
        path: HostPath,
        /// The bytes there are.
        size: u64,
        /// The most.
        most: u64,
    },
    /// Somebody else wrote to the file meanwhile. It is as they left it.
    #[error("{path} was changed by somebody else meanwhile")]
    Changed {
        /// The file.
        path: HostPath,
    },
    /// The file could not be found or opened.
    #[error("open {path}")]
    Open {
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
    /// The file was open, and reading it failed.
    #[error("read {path}")]
    Read {
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
    /// Only new files may be made, and the name is taken. What has it is as it was.
    #[error("{path} is there already, and only new files may be made")]
    Exists {
        /// The file.
        path: HostPath,
    },
    /// A directory on the way to the file could not be opened or made.
    #[error("make the directories above {path}")]
    Parent {
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
    /// A symbolic link is on the way, and rules have judged the path as it is spelt.
    #[error("{path} goes by a symbolic link to {real}, and rules are about names")]
    ByLink {
        /// The path.
        path: HostPath,
        /// Where it leads.
        real: HostPath,
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
        /// Cause.
        source: io::Error,
    },
    /// The new content could not be stored. The old content is as it was.
    #[error("write {path}")]
    Write {
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
    /// The new content could not be given the old file's mode. The old content is as it was.
    #[error("keep the mode of {path}")]
    Mode {
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
    /// No repository is there, nor above it as far as the call may look.
    #[error("there is no git repository at {path}, nor above it in the workspace")]
    NoRepository {
        /// Where one was looked for.
        path: HostPath,
    },
    /// A repository could not be read.
    #[error("{what}: {why}")]
    Repository {
        /// Act that failed.
        what: &'static str,
        /// Reason.
        why: String,
    },
    /// A page was not fetched.
    #[error("fetch {url}: {why}")]
    Fetch {
        /// The page.
        url: String,
        /// Reason.
        why: String,
        /// Kind of error.
        code: ErrorCode,
    },
    /// A database has done nothing.
    #[error("{database}: {why}")]
    Database {
        /// Which, by its tool and its alias.
        database: String,
        /// Reason.
        why: String,
        /// Kind of error.
        code: ErrorCode,
    },
    /// A provider has given no results.
    #[error("ask {provider}: {why}")]
    Search {
        /// Its name in a manifest.
        provider: String,
        /// Reason.
        why: String,
        /// Kind of error.
        code: ErrorCode,
    },
    /// A workbook gave no result.
    #[error("{path}: {why}")]
    Workbook {
        /// The file.
        path: HostPath,
        /// The reason.
        why: WorkbookError,
    },
    /// A file could not be removed. It is as it was.
    #[error("remove {path}")]
    Remove {
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
    /// A patch makes no sense, or does not fit. All files are as they were, unless it says otherwise.
    #[error("{0}")]
    Patch(Box<PatchError>),
    /// A service has not done what it was asked.
    #[error("ask {service}: {why}")]
    Service {
        /// Name of it for people.
        service: &'static str,
        /// Reason.
        why: String,
        /// Kind of error.
        code: ErrorCode,
    },
    /// A language server has not answered.
    #[error("{server}: {why}{}", last_words(.words))]
    LanguageServer {
        /// Its name.
        server: String,
        /// Reason.
        why: LspError,
        /// The end of what it had written on standard error.
        words: String,
    },
    /// The new content was complete and could not be put in the old one's place. The old content is as it was.
    #[error("replace {path}")]
    Publish {
        /// The file.
        path: HostPath,
        /// Cause.
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

    /// Kind of error (X1-25).
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Argument { .. }
            | Self::MixedRanges
            | Self::EmptyRange { .. }
            | Self::StartPastEnd { .. }
            | Self::OffsetPastEnd { .. }
            | Self::NoFileName { .. }
            | Self::Pattern { .. }
            | Self::NoChange => ErrorCode::InputInvalid,
            Self::UnknownTool { .. } | Self::NotFound { .. } | Self::NoSymbol { .. } | Self::NoRepository { .. } => {
                ErrorCode::NotFound
            }
            Self::NotUnique { .. } => ErrorCode::AmbiguousMatch,
            Self::TooLong { .. } => ErrorCode::LimitExceeded,
            Self::Changed { .. } | Self::LinkChanged { .. } => ErrorCode::ResourceBusy,
            Self::Exists { .. } | Self::ByLink { .. } => ErrorCode::Forbidden,
            Self::NotText { .. } | Self::NotRegular { .. } | Self::NotADirectory { .. } | Self::Repository { .. } => {
                ErrorCode::ToolExecutionFailed
            }
            Self::Fetch { code, .. }
            | Self::Search { code, .. }
            | Self::Service { code, .. }
            | Self::Database { code, .. } => *code,
            Self::Workbook { why, .. } => why.code(),
            Self::LanguageServer { why, .. } => why.code(),
            Self::Patch(error) => error.code(),
            Self::Open { source, .. }
            | Self::Read { source, .. }
            | Self::Parent { source, .. }
            | Self::Temporary { source, .. }
            | Self::Write { source, .. }
            | Self::Mode { source, .. }
            | Self::Remove { source, .. }
            | Self::Publish { source, .. } => match source.raw_os_error() {
                Some(libc::ENOENT) => ErrorCode::NotFound,
                Some(libc::EBUSY | libc::EAGAIN | libc::ETXTBSY) => ErrorCode::ResourceBusy,
                _ => ErrorCode::ToolExecutionFailed,
            },
        }
    }

    /// Next step of the caller.
    #[must_use]
    pub fn next_step(&self) -> Option<&'static str> {
        match self {
            Self::UnknownTool { .. } => Some("call one of the tools that the registry lists"),
            Self::Argument { .. } => Some("see the tool's schema"),
            Self::MixedRanges => Some("ask for lines or for bytes"),
            Self::EmptyRange { .. } => Some("lines are counted from 1, and end_line is included"),
            Self::StartPastEnd { .. } | Self::OffsetPastEnd { .. } => Some("start before the end"),
            Self::NoFileName { .. } => Some("name a file"),
            Self::NotText { .. } => Some("use a program that reads such files, by the shell"),
            Self::NoSymbol { .. } => Some("look for it with a search, or read by lines"),
            Self::NotRegular { what: FileKind::Directory, .. } => {
                Some("name a file in it; glob, or `ls` by bash, lists a directory")
            }
            Self::NotRegular { .. } => Some("only regular files are read and written"),
            Self::NotADirectory { .. } => Some("name the directory that it is in"),
            Self::Pattern { argument: "pattern", reason, .. } if reason.contains("\\n") => {
                Some("each line is matched alone; look for a part of one line, with context_lines")
            }
            Self::Pattern { argument: "sql", .. } => Some("a statement is words, numbers and plain texts in quotes"),
            Self::Pattern { .. } => Some("see the tool's schema; a backslash takes a character literally"),
            Self::NotFound { why, .. } => Some(why.next_step()),
            Self::NotUnique { .. } => Some("give more of the lines around it, so that it is there once"),
            Self::NoChange => Some("give the text as it is to be"),
            Self::TooLong { .. } => Some("use a program, such as sed, by bash"),
            Self::Changed { .. } => Some("read it again"),
            Self::Exists { .. } => Some("choose a name that is free"),
            Self::ByLink { .. } => Some("name the file itself"),
            Self::Workbook { why, .. } => why.next_step(),
            Self::Patch(error) => Some(error.next_step()),
            Self::NoRepository { .. } => {
                Some("name a directory of a repository; one above the workspace is not looked for")
            }
            Self::Repository { .. }
            | Self::Fetch { .. }
            | Self::Search { .. }
            | Self::Service { .. }
            | Self::LanguageServer { .. }
            | Self::Database { .. } => None,
            Self::LinkChanged { .. } => Some("try again, or name the file that the link leads to"),
            Self::Open { source, .. }
            | Self::Read { source, .. }
            | Self::Parent { source, .. }
            | Self::Temporary { source, .. }
            | Self::Write { source, .. }
            | Self::Mode { source, .. }
            | Self::Remove { source, .. }
            | Self::Publish { source, .. } => next_step_for(source.raw_os_error()?),
        }
    }

    /// The failure in one line: the operation and its object, the cause, the next step. Of a refusal the operation alone: what
    /// to do about that depends on what was granted, which the supervisor knows. The envelope's `error_text`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.to_string();
        if self.errno().is_some_and(is_refusal) {
            return text;
        }
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
            | Self::Remove { source, .. }
            | Self::Publish { source, .. } => Some(source),
            Self::UnknownTool { .. }
            | Self::Argument { .. }
            | Self::MixedRanges
            | Self::EmptyRange { .. }
            | Self::StartPastEnd { .. }
            | Self::OffsetPastEnd { .. }
            | Self::NoFileName { .. }
            | Self::NotText { .. }
            | Self::NoSymbol { .. }
            | Self::NotRegular { .. }
            | Self::NotADirectory { .. }
            | Self::NoRepository { .. }
            | Self::Repository { .. }
            | Self::Pattern { .. }
            | Self::NotFound { .. }
            | Self::NotUnique { .. }
            | Self::NoChange
            | Self::TooLong { .. }
            | Self::Changed { .. }
            | Self::Exists { .. }
            | Self::ByLink { .. }
            | Self::Fetch { .. }
            | Self::Search { .. }
            | Self::Workbook { .. }
            | Self::Patch(_)
            | Self::Service { .. }
            | Self::LanguageServer { .. }
            | Self::Database { .. }
            | Self::LinkChanged { .. } => None,
        }
    }
}

impl From<ToolError> for ToolFailure {
    fn from(error: ToolError) -> Self {
        Self { text: error.text(), errno: error.errno(), code: error.code() }
    }
}

impl From<PatchError> for ToolError {
    fn from(error: PatchError) -> Self {
        Self::Patch(Box::new(error))
    }
}

/// True if an error number is what the layers refuse with.
#[must_use]
pub fn is_refusal(errno: i32) -> bool {
    matches!(errno, libc::EACCES | libc::EPERM | libc::EROFS)
}

fn next_step_for(errno: i32) -> Option<&'static str> {
    Some(match errno {
        libc::ENOENT => "check the spelling; glob lists what there is",
        libc::ENOTDIR => "a name before the last is no directory",
        libc::ELOOP => "the symbolic links go in a circle; name the file itself",
        libc::ENAMETOOLONG => "a name has at most 255 bytes and a path 4095",
        libc::ENOSPC => "the file system is full; free some space or write less",
        libc::EDQUOT => "the disk quota is used up; free some space or write less",
        libc::EFBIG => "the limit on the size of a file is reached; write less",
        libc::EAGAIN => "the file would block until somebody else acts; only stored content is read",
        libc::EBUSY => "the file is a mount point and cannot be replaced; write another file",
        libc::ETXTBSY => "the program is running; try again when it has ended",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_operation_cause_and_next_step() {
        let source = io::Error::from_raw_os_error(libc::ENOENT);
        let error = ToolError::Open { path: HostPath::from("/no\nwhere"), source };
        assert_eq!(error.errno(), Some(libc::ENOENT));
        assert_eq!(
            error.text(),
            "open /no\\nwhere: No such file or directory (os error 2); check the spelling; glob lists what there is"
        );
        let refused = ToolError::Open { path: HostPath::from("/x"), source: io::Error::from_raw_os_error(libc::EROFS) };
        assert_eq!((refused.errno(), refused.text().as_str()), (Some(libc::EROFS), "open /x"));
    }
}
