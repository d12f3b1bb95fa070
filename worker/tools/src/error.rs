//! Reasons why a tool gave no result, and what each of them means for the caller.

use std::{fmt, io};

use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;
use callgate_worker::toolset::ToolFailure;

use super::file_kind::FileKind;

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
    /// The file is longer than the tool takes.
    #[error("{path} has {size} bytes, more than the {most} that this tool takes")]
    TooLong {
        /// The file.
        path: HostPath,
        /// The bytes there are.
        size: u64,
        /// The most.
        most: u64,
    },
    /// A symbolic link is on the way, and rules have judged the path as it is spelt.
    #[error("{path} goes by a symbolic link to {real}, and rules are about names")]
    ByLink {
        /// The path.
        path: HostPath,
        /// Where it leads.
        real: HostPath,
    },
    /// A system call on a file failed.
    #[error("{act} {path}")]
    File {
        /// Act that failed.
        act: FileAct,
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
    /// A server, a service or a database has not done what it was asked.
    #[error("{what}: {why}")]
    Remote {
        /// Who was asked, and what for.
        what: String,
        /// Reason.
        why: String,
        /// Kind of error.
        code: ErrorCode,
    },
    /// A reason that one tool alone has.
    #[error("{0}")]
    Own(Box<dyn ToolReason>),
}

/// Reason that one tool alone has for giving no result.
pub trait ToolReason: std::error::Error + Send + Sync + 'static {
    /// Kind of error (X1-25).
    fn code(&self) -> ErrorCode;

    /// Next step of the caller.
    fn next_step(&self) -> Option<&'static str> {
        None
    }
}

impl<E: ToolReason> From<E> for ToolError {
    fn from(reason: E) -> Self {
        Self::Own(Box::new(reason))
    }
}

/// Act on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAct {
    /// Finding or opening it.
    Open,
    /// Reading from it once it was open.
    Read,
    /// Opening or making a directory on the way to it.
    Parents,
    /// Making a temporary file beside it for its new content.
    Temporary,
    /// Storing its new content. The old content is as it was.
    Write,
    /// Giving its new content the old one's mode. The old content is as it was.
    Mode,
    /// Removing it. It is as it was.
    Remove,
    /// Putting its new content, which was complete, in the old one's place. The old content is as it was.
    Publish,
}

impl fmt::Display for FileAct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Parents => "make the directories above",
            Self::Temporary => "make a temporary file beside",
            Self::Write => "write",
            Self::Mode => "keep the mode of",
            Self::Remove => "remove",
            Self::Publish => "replace",
        })
    }
}

impl ToolError {
    /// The kernel's own answer, where a system call failed. For EACCES, EPERM and EROFS the supervisor looks for the
    /// layer that refused.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.cause().and_then(io::Error::raw_os_error)
    }

    /// Reason that one tool alone has, if it is of this type.
    #[must_use]
    pub fn own<E: ToolReason>(&self) -> Option<&E> {
        let Self::Own(reason) = self else { return None };
        let reason: &(dyn std::error::Error + 'static) = &**reason;
        reason.downcast_ref()
    }

    /// Kind of error (X1-25).
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Argument { .. } | Self::NoFileName { .. } | Self::Pattern { .. } => ErrorCode::InputInvalid,
            Self::UnknownTool { .. } => ErrorCode::NotFound,
            Self::TooLong { .. } => ErrorCode::LimitExceeded,
            Self::ByLink { .. } => ErrorCode::Forbidden,
            Self::NotText { .. } | Self::NotRegular { .. } | Self::NotADirectory { .. } => {
                ErrorCode::ToolExecutionFailed
            }
            Self::Remote { code, .. } => *code,
            Self::Own(reason) => reason.code(),
            Self::File { source, .. } => match source.raw_os_error() {
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
            Self::NoFileName { .. } => Some("name a file"),
            Self::NotText { .. } => Some("use a program that reads such files, by the shell"),
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
            Self::TooLong { .. } => Some("use a program, such as sed, by bash"),
            Self::ByLink { .. } => Some("name the file itself"),
            Self::Remote { .. } => None,
            Self::Own(reason) => reason.next_step(),
            Self::File { source, .. } => next_step_for(source.raw_os_error()?),
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
        if let Self::File { source, .. } = self { Some(source) } else { None }
    }
}

impl From<ToolError> for ToolFailure {
    fn from(error: ToolError) -> Self {
        Self { text: error.text(), errno: error.errno(), code: error.code() }
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
        let error = ToolError::File { act: FileAct::Open, path: HostPath::from("/no\nwhere"), source };
        assert_eq!(error.errno(), Some(libc::ENOENT));
        assert_eq!(
            error.text(),
            "open /no\\nwhere: No such file or directory (os error 2); check the spelling; glob lists what there is"
        );
        let refused = ToolError::File {
            act: FileAct::Open,
            path: HostPath::from("/x"),
            source: io::Error::from_raw_os_error(libc::EROFS),
        };
        assert_eq!((refused.errno(), refused.text().as_str()), (Some(libc::EROFS), "open /x"));
    }
}
