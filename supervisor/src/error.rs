//! Reasons why a call gave no result.

use callgate_policy::envelope::Denial;
use callgate_policy::failure::ErrorCode;
use callgate_policy::plan::compile::PlanError;

use crate::confine::ConfineError;
use crate::inquiry::Unanswered;
use crate::store::StoreError;

/// Reason why a call gave no result. For a model it becomes an envelope of type `error`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// There is no such tool.
    #[error("there is no tool `{name}`; there are: {}", .known.join(", "))]
    UnknownTool {
        /// The name.
        name: String,
        /// Names that there are.
        known: Vec<String>,
    },
    /// A file declares it, and it is not there.
    #[error("there is no tool `{name}`: {} declares it, but it was left out: {why}", file.display())]
    LeftOut {
        /// The name.
        name: String,
        /// The file.
        file: std::path::PathBuf,
        /// Reason.
        why: String,
    },
    /// It takes no calls ([`Session::deactivate_tool`](crate::Session::deactivate_tool)).
    #[error("the tool `{0}` was deactivated, and takes no calls")]
    Inactive(String),
    /// Its schema has not been asked for (S3-8).
    #[error("`{tool}` is deferred; have {search} return it, with its parameters, and call it then")]
    Deferred {
        /// The tool.
        tool: String,
        /// Name of the tool that looks for it.
        search: String,
    },
    /// The arguments do not match the schema (S0-4).
    #[error("{0}")]
    Arguments(String),
    /// Layer 1 or 2, or the kernel.
    #[error("{} is denied: {}", .0.asked, .0.reason)]
    Denied(Box<Denial>),
    /// A person would have to be asked and there is none, and the session halts for that (C-6).
    #[error("{tool} needs a person's approval, and there is nobody to ask: {why}; the session is halted")]
    Halted {
        /// The tool.
        tool: String,
        /// Reason.
        why: String,
    },
    /// The call cannot be recorded, so it was not made.
    #[error("the call was not made, because it cannot be recorded")]
    NotRecorded(#[from] StoreError),
    /// The plan could not be compiled.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The sandbox could not be set up, or the worker gave no result.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// Whoever answers outside the sandbox did not do so in time.
    #[error("there was no answer within {}s", .0.as_secs_f32())]
    TimedOut(std::time::Duration),
    /// The session's calls were aborted ([`Session::abort`](crate::Session::abort)).
    #[error("the call was aborted")]
    Aborted,
    /// The session is a subagent's, and its parent has ended it.
    #[error("the call was aborted by the parent of its session, which has ended")]
    Ended,
    /// A person was to be asked, and there is no answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The tool failed.
    #[error("{0}")]
    Tool(String),
    /// The tool failed, and it is known in what way.
    #[error("{text}")]
    Told {
        /// Message: what went wrong, and the next step.
        text: String,
        /// In which way.
        code: ErrorCode,
    },
    /// A pipe for the program's output could not be made or read.
    #[error("{what}")]
    Output {
        /// The operation.
        what: &'static str,
        /// Cause.
        source: std::io::Error,
    },
}

impl CallError {
    /// Kind of error (X1-25).
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::UnknownTool { .. } => ErrorCode::NotFound,
            Self::LeftOut { .. } | Self::Inactive(_) => ErrorCode::ToolNotActive,
            Self::Deferred { .. } => ErrorCode::SchemaNotLoaded,
            Self::Arguments(_) => ErrorCode::InputInvalid,
            Self::Denied(denial) => denial.layer.code(),
            Self::Halted { .. } => ErrorCode::HeadlessInteractionRequired,
            Self::NotRecorded(_) => ErrorCode::NotRecorded,
            Self::Plan(_) => ErrorCode::PlanInvalid,
            Self::TimedOut(_) | Self::Confine(ConfineError::TimedOut(_)) => ErrorCode::ExecutionTimeout,
            Self::Confine(_) | Self::Output { .. } => ErrorCode::SandboxFailed,
            Self::Aborted => ErrorCode::TurnCancelled,
            Self::Ended => ErrorCode::SessionEnded,
            Self::Unanswered(why) => why.code(),
            Self::Told { code, .. } => *code,
            Self::Tool(_) => ErrorCode::ToolExecutionFailed,
        }
    }
}

pub(crate) fn denied(denial: Denial) -> CallError {
    CallError::Denied(Box::new(denial))
}
