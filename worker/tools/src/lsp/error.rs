//! Reasons why a language server has not answered.

use std::io;

use callgate_policy::failure::ErrorCode;

use crate::ToolReason;

/// Reason why a server has not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LspError {
    /// It has ended, or closed its output.
    #[error("it ended before it had answered")]
    Ended,
    /// It took too long.
    #[error("it did not answer in time")]
    TimedOut,
    /// It said what makes no sense.
    #[error("it sent what is no message: {0}")]
    Broken(&'static str),
    /// It said too much.
    #[error("it sent more than 64 MiB")]
    TooMuch,
    /// It asks and does not read.
    #[error("it does not read what it is sent")]
    DoesNotRead,
    /// It answered with an error.
    #[error("it refused, with error {code}: {message}")]
    Refused {
        /// The protocol's number.
        code: i64,
        /// Its own words.
        message: String,
    },
    /// Nobody is there to talk to.
    #[error("it was not started")]
    Absent,
    /// A stream failed.
    #[error("{0}")]
    Stream(io::Error),
}

/// A language server that has not answered.
#[derive(Debug, thiserror::Error)]
#[error("{server}: {why}{}", last_words(.words))]
pub struct ServerFault {
    /// Its name.
    pub server: String,
    /// Reason.
    pub why: LspError,
    /// The end of what it had written on standard error.
    pub words: String,
}

impl ToolReason for ServerFault {
    fn code(&self) -> ErrorCode {
        self.why.code()
    }
}

impl LspError {
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::TimedOut => ErrorCode::ExecutionTimeout,
            Self::Broken(_) => ErrorCode::OutputMalformed,
            Self::TooMuch => ErrorCode::LimitExceeded,
            Self::Ended | Self::DoesNotRead | Self::Refused { .. } | Self::Absent | Self::Stream(_) => {
                ErrorCode::ToolExecutionFailed
            }
        }
    }
}

/// Text about a server's last words in an error.
fn last_words(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!("; it had written on standard error:\n{words}") }
}
