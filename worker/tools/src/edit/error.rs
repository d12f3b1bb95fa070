//! Reasons why a text is not replaced.

use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;

use super::mismatch::{MatchStage, Mismatch};
use crate::ToolReason;
use crate::message::listed;

/// Reason why a text is not replaced. The file is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
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
}

impl ToolReason for EditError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound { .. } => ErrorCode::NotFound,
            Self::NotUnique { .. } => ErrorCode::AmbiguousMatch,
            Self::NoChange => ErrorCode::InputInvalid,
        }
    }

    fn next_step(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotFound { why, .. } => why.next_step(),
            Self::NotUnique { .. } => "give more of the lines around it, so that it is there once",
            Self::NoChange => "give the text as it is to be",
        })
    }
}
