//! Reasons why a patch is not applied.

use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;

use crate::{ToolReason, message};

/// Reason why a patch is not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// It is no patch.
    #[error("line {line} of the patch: {why}")]
    Syntax {
        /// The line of the patch, from 1.
        line: usize,
        /// Mistake.
        why: &'static str,
    },
    /// It is one of something that is not done here.
    #[error("line {line} of the patch: {what}, which apply_patch does not make")]
    Unsupported {
        /// The line of the patch, from 1.
        line: usize,
        /// Thing that has too many or too much.
        what: &'static str,
    },
    /// It names what cannot be a file of the workspace.
    #[error("line {line} of the patch names `{name}`: {why}")]
    Name {
        /// The line of the patch, from 1.
        line: usize,
        /// The name.
        name: String,
        /// Mistake in it.
        why: &'static str,
    },
    /// It changes a file twice.
    #[error("`{name}` is changed twice")]
    Twice {
        /// The name.
        name: String,
    },
    /// Two names lead to one file.
    #[error("{path} and {other} are the same file")]
    Same {
        /// One name.
        path: HostPath,
        /// The other.
        other: HostPath,
    },
    /// It has too many files.
    #[error("more than {most} files in one patch")]
    TooMany {
        /// The most.
        most: usize,
    },
    /// It, or the files that it changes, take too much memory.
    #[error("{what} is too much for one patch: at most {most}")]
    TooLarge {
        /// Thing that is not supported.
        what: &'static str,
        /// The most, with its unit.
        most: &'static str,
    },
    /// A hunk does not fit.
    #[error("{path}: hunk {hunk} of {of} (line {line} of the patch) does not fit{}", why.text())]
    Hunk {
        /// The file.
        path: HostPath,
        /// Which, from 1.
        hunk: usize,
        /// How many the file has.
        of: usize,
        /// The line of the patch that has its header, from 1.
        line: usize,
        /// Reason.
        why: Misfit,
    },
    /// A file that it changes is not there.
    #[error("{path} is not there")]
    Missing {
        /// The file.
        path: HostPath,
    },
    /// A file that it makes is there.
    #[error("{path} is there already, and the patch creates it")]
    There {
        /// The file.
        path: HostPath,
    },
    /// A file that it removes holds something else.
    #[error("{path} holds more than what the patch removes")]
    HoldsMore {
        /// The file.
        path: HostPath,
    },
    /// It names a file that was not checked.
    #[error("`{name}` is not among the files that were checked")]
    NotChecked {
        /// The name.
        name: String,
    },
    /// Neither a patch nor files, or both.
    #[error("give either `patch` or `changes`")]
    Either,
    /// It failed, and what was done could not be undone.
    #[error("{why}; and these files could not be put back and stay changed: {}", listed(.changed))]
    HalfDone {
        /// Reason why it failed.
        why: String,
        /// Paths that stay changed.
        changed: Vec<HostPath>,
    },
}

fn listed(paths: &[HostPath]) -> String {
    paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl ToolReason for PatchError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Syntax { .. } | Self::Unsupported { .. } | Self::Name { .. } | Self::Twice { .. } | Self::Either => {
                ErrorCode::InputInvalid
            }
            Self::Hunk { why: Misfit::Several { .. }, .. } => ErrorCode::AmbiguousMatch,
            Self::Hunk { .. } | Self::Missing { .. } => ErrorCode::NotFound,
            Self::TooMany { .. } | Self::TooLarge { .. } => ErrorCode::LimitExceeded,
            Self::NotChecked { .. } => ErrorCode::Forbidden,
            Self::Same { .. } | Self::There { .. } | Self::HoldsMore { .. } | Self::HalfDone { .. } => {
                ErrorCode::ToolExecutionFailed
            }
        }
    }

    fn next_step(&self) -> Option<&'static str> {
        Some(match self {
            Self::Syntax { why, .. } if why.contains("Begin Patch") => {
                "nothing was changed; give a unified diff, or whole files as `changes`"
            }
            Self::Syntax { .. } => {
                "nothing was changed; give a unified diff as git diff writes it, whose hunks have as many lines as their headers count"
            }
            Self::Unsupported { .. } => "nothing was changed; leave that file out, and make it with bash",
            Self::Name { .. } => "nothing was changed; name files relative to the workspace",
            Self::Twice { .. } => "nothing was changed; put all hunks of a file behind one header",
            Self::Same { .. } => "nothing was changed; name the file itself, once",
            Self::TooMany { .. } | Self::TooLarge { .. } => "nothing was changed; make several calls",
            Self::Hunk { why, .. } => why.next_step(),
            Self::Missing { .. } => {
                "nothing was changed; check the name, or create it with `--- /dev/null` or create_if_missing"
            }
            Self::There { .. } => "nothing was changed; read it, and give a patch that changes it",
            Self::HoldsMore { .. } => "nothing was changed; read it again, and remove all of its lines",
            Self::NotChecked { .. } => "nothing was changed; make the call again",
            Self::Either => "see the tool's schema",
            Self::HalfDone { .. } => "read these files, and put them right",
        })
    }
}

/// Reason why a hunk does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// The file has another line there, or has ended; the text is what the hunk has.
    Differs {
        /// The line of the file, from 1.
        line: usize,
        /// Line of the hunk there.
        hunk: String,
        /// Line of the file there.
        file: Option<String>,
    },
    /// It would fit in several places.
    Several {
        /// Their lines, from 1; the first few.
        lines: Vec<u64>,
    },
    /// Its lines are there, but a hunk of the first line begins the file, or one without context behind it ends the file.
    NotAtTheEdge,
    /// It has no context, and a line number alone says nothing.
    NoContext,
    /// It says that its last line has no newline, and the file goes on behind it.
    NoNewline,
    /// To find its place would take too long.
    TooLong,
}

impl Misfit {
    fn text(&self) -> String {
        match self {
            Self::Differs { line, hunk, file: Some(file) } => {
                format!(": it has {hunk}, and line {line} of the file is {file}")
            }
            Self::Differs { line, hunk, file: None } => format!(": it has {hunk}, and the file has no line {line}"),
            Self::Several { lines } => {
                format!(
                    " where it says, and without some of its context it fits on lines {}",
                    message::listed(lines)
                )
            }
            Self::NotAtTheEdge => {
                ": a hunk of line 1 begins the file, and one without context behind it ends the file; it is there, but not so".to_owned()
            }
            Self::NoContext => ": it has no line that could be found in the file".to_owned(),
            Self::NoNewline => ": its last line has no newline, and the file goes on behind it".to_owned(),
            Self::TooLong => ": it takes too long to find its place".to_owned(),
        }
    }

    fn next_step(&self) -> &'static str {
        match self {
            Self::Differs { .. } => {
                "nothing was changed; read the file again, and give its lines exactly as they are there"
            }
            Self::Several { .. } | Self::NotAtTheEdge | Self::NoContext | Self::NoNewline | Self::TooLong => {
                "nothing was changed; give the lines around it, exactly as they are in the file"
            }
        }
    }
}
