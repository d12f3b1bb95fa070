//! Reasons why a workbook gave no result.

use std::io;

use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;

use crate::ToolReason;

/// A workbook that gave no result.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct WorkbookFault {
    /// The file.
    pub path: HostPath,
    /// Reason.
    pub why: WorkbookError,
}

impl ToolReason for WorkbookFault {
    fn code(&self) -> ErrorCode {
        self.why.code()
    }

    fn next_step(&self) -> Option<&'static str> {
        self.why.next_step()
    }
}

/// Reason why a workbook gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkbookError {
    /// It is something else.
    #[error("it is no workbook: {what}")]
    NoWorkbook {
        /// Kind of file that it looks like.
        what: &'static str,
    },
    /// It needs a password.
    #[error("it is protected with a password")]
    Password,
    /// It is longer than this tool reads.
    #[error("it has {size} bytes, more than the {most} that are read")]
    TooLong {
        /// The bytes there are.
        size: u64,
        /// The most.
        most: u64,
    },
    /// It unpacks to more than this tool holds, or its cells reach further.
    #[error("it is too large to be read: {what}")]
    TooLarge {
        /// Part that is too large.
        what: String,
    },
    /// A part of it is not what it must be.
    #[error("it is broken: {part}: {why}")]
    Broken {
        /// Which part.
        part: String,
        /// Mistake in it.
        why: String,
    },
    /// Reading the file failed.
    #[error("it cannot be read: {source}")]
    Read {
        /// Cause.
        source: io::Error,
    },
    /// It has no such sheet.
    #[error("it has no sheet {sheet}; its sheets are: {known}")]
    NoSheet {
        /// The one that was asked for.
        sheet: String,
        /// Those there are.
        known: String,
    },
    /// The sheet is a chart or a dialog.
    #[error("its sheet {sheet:?} is a chart, which has no cells")]
    NoCells {
        /// The sheet.
        sheet: String,
    },
    /// Two sheets have one name, so that neither can be read.
    #[error("it has two sheets called {sheet:?}")]
    SameName {
        /// The name.
        sheet: String,
    },
    /// The rows start after the last row.
    #[error("start_row {start_row} is past the end of its sheet {sheet:?}, which has {total_rows} rows")]
    StartPastEnd {
        /// The sheet.
        sheet: String,
        /// The first row asked for.
        start_row: u32,
        /// The rows there are.
        total_rows: u32,
    },
}

impl WorkbookError {
    /// Kind of error (X1-25).
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NoSheet { .. } => ErrorCode::NotFound,
            Self::StartPastEnd { .. } | Self::NoCells { .. } => ErrorCode::InputInvalid,
            Self::TooLong { .. } | Self::TooLarge { .. } => ErrorCode::LimitExceeded,
            Self::NoWorkbook { .. }
            | Self::Password
            | Self::Broken { .. }
            | Self::Read { .. }
            | Self::SameName { .. } => ErrorCode::ToolExecutionFailed,
        }
    }

    /// Next step of the caller.
    #[must_use]
    pub fn next_step(&self) -> Option<&'static str> {
        match self {
            Self::NoSheet { .. } => Some("name one of them, or its index, counted from 0"),
            Self::StartPastEnd { .. } => Some("start before the end"),
            Self::NoCells { .. } => Some("name another sheet"),
            Self::Password => Some("save it without one"),
            Self::TooLong { .. } | Self::TooLarge { .. } => Some("save the part that is wanted as a file of its own"),
            Self::NoWorkbook { .. } | Self::Broken { .. } | Self::Read { .. } | Self::SameName { .. } => None,
        }
    }

    /// A part that is not what it must be.
    pub(super) fn broken(part: impl Into<String>, why: impl ToString) -> Self {
        let mut why = why.to_string();
        why.truncate(why.floor_char_boundary(200));
        Self::Broken { part: part.into(), why }
    }
}
