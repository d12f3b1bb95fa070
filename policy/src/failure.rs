//! Kinds of errors that end a call, for whoever decides what to do next (X1-25): a class, and a code in its context. A
//! host need not read the text for that, which is for the model and may change.

use serde::{Deserialize, Serialize};

/// The kind of an error (X1-25). A code belongs to one class, whatever it went through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// Its class.
    pub class: ErrorClass,
    /// The rest of what is known for programs.
    pub context: FailureContext,
}

/// Details that a class does not give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailureContext {
    /// Code of what happened.
    pub code: ErrorCode,
}

impl From<ErrorCode> for Failure {
    fn from(code: ErrorCode) -> Self {
        Self { class: code.class(), context: FailureContext { code } }
    }
}

/// Class of errors by what is to be done about them, roughly. The two of providers are for hosts: callgate calls no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorClass {
    /// Settings or answers that make no sense.
    Validation,
    /// A model's provider failed, and may not the next time.
    ProviderTransient,
    /// A model's provider cannot do this.
    ProviderCapability,
    /// Repeating the call may succeed.
    ToolTransient,
    /// It will not: it has to be another call.
    ToolTerminal,
    /// The session, or the host that it runs on.
    Session,
    /// Somebody no longer wants it.
    Cancellation,
    /// A tool that is declared, and cannot be used.
    ExtensionHost,
}

/// Event, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The arguments do not match the tool's schema, or make no sense.
    InputInvalid,
    /// The tool's result is not what it promises.
    OutputMalformed,
    /// A grant, a rule, a watchdog or the kernel does not allow it.
    Forbidden,
    /// A program's or a command line's arguments were rejected.
    CommandRejected,
    /// A person does not allow it, or nobody could be asked.
    ApprovalDenied,
    /// It met a limit.
    LimitExceeded,
    /// There is no such tool, file or skill.
    NotFound,
    /// More than one thing matches what was to be found.
    AmbiguousMatch,
    /// The tool's schema has to be asked for first (S3-8).
    SchemaNotLoaded,
    /// The tool failed otherwise.
    ToolExecutionFailed,
    /// Its time was up.
    ExecutionTimeout,
    /// Somebody else has what it needs.
    ResourceBusy,
    /// A person would have had to be asked, there was none, and the session is halted for that (X1-17).
    HeadlessInteractionRequired,
    /// There is nobody to ask (X1-19).
    NoInteractorAttached,
    /// Answer to something else (X1-19).
    InteractionPayloadMismatch,
    /// Nobody answered in time.
    InteractionTimeout,
    /// People are given no time (X1-19).
    TimeoutMsInvalid,
    /// Rights that cannot be compiled for this host.
    PlanInvalid,
    /// The call cannot be recorded, so it was not made.
    NotRecorded,
    /// The sandbox could not be set up, or what runs in it was lost.
    SandboxFailed,
    /// The host does not allow it, or is not what the session was opened on.
    HostRefused,
    /// The session ended before the call did.
    SessionEnded,
    /// A person or the host no longer wants it.
    TurnCancelled,
    /// The tool is declared and was left out, or takes no calls.
    ToolNotActive,
}

impl ErrorCode {
    /// The class that it belongs to.
    #[must_use]
    pub fn class(self) -> ErrorClass {
        match self {
            Self::InputInvalid
            | Self::OutputMalformed
            | Self::Forbidden
            | Self::CommandRejected
            | Self::ApprovalDenied
            | Self::LimitExceeded
            | Self::NotFound
            | Self::AmbiguousMatch
            | Self::SchemaNotLoaded
            | Self::ToolExecutionFailed => ErrorClass::ToolTerminal,
            Self::ExecutionTimeout | Self::ResourceBusy | Self::InteractionTimeout => ErrorClass::ToolTransient,
            Self::HeadlessInteractionRequired
            | Self::NoInteractorAttached
            | Self::InteractionPayloadMismatch
            | Self::TimeoutMsInvalid
            | Self::PlanInvalid => ErrorClass::Validation,
            Self::NotRecorded | Self::SandboxFailed | Self::HostRefused | Self::SessionEnded => ErrorClass::Session,
            Self::TurnCancelled => ErrorClass::Cancellation,
            Self::ToolNotActive => ErrorClass::ExtensionHost,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use super::*;

    /// X1-25: what hosts read, and that a code is of its class whatever it went through.
    #[test]
    fn x1_25_an_error_is_a_class_and_a_code() {
        let written = serde_json::to_string(&Failure::from(ErrorCode::ExecutionTimeout)).unwrap();
        assert_eq!(written, r#"{"class":"ToolTransient","context":{"code":"ExecutionTimeout"}}"#);
        assert_eq!(serde_json::from_str::<Failure>(&written).unwrap(), ErrorCode::ExecutionTimeout.into());
        assert!(serde_json::from_str::<Failure>(r#"{"class":"Other","context":{"code":"NotFound"}}"#).is_err());
    }
}
