//! Failures, whose move they are, and what the process exits with: in one place.
//!
//! The library's errors may get more variants. Each that there is has its status here: the lint `wildcard_enum_match_arm`
//! refuses a `_` that stands for one.

use std::io::{self, Write as _};
use std::process::ExitCode;

use callgate::doctor::DoctorError;
use callgate::shown::{escaped_json, escaped_lines};
use callgate::trust::TrustError;
use callgate::{CallError, ConfineError, OpenError, RegistryError, StepFailure, StoreError, with_causes};
use callgate_policy::envelope::Denial;
use callgate_policy::step::Step;

/// sysexits.h's numbers, and the shell's.
pub(super) const TOOL: u8 = 1;
pub(super) const USAGE: u8 = 64;
pub(super) const DATA: u8 = 65;
pub(super) const UNAVAILABLE: u8 = 69;
pub(super) const SOFTWARE: u8 = 70;
pub(super) const DENIED: u8 = 77;
pub(super) const TIMEOUT: u8 = 124;

/// Reason why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandFailure {
    /// Something typed is wrong.
    #[error("{0}")]
    Usage(String),
    /// A manifest or arguments are not valid; the text is whole, with its place.
    #[error("{0}")]
    Data(String),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Reading or writing for the person failed.
    #[error("{what}")]
    Io { what: String, source: io::Error },
    /// The words typed name something that cannot be used.
    #[error("{what}")]
    Named { what: String, source: io::Error },
    /// Whoever read our output is gone: nobody is left to be told.
    #[error("standard output is closed")]
    ReaderGone,
    /// Something that is to be measured does not run.
    #[error("measure {subject}: {reason}")]
    Subject { subject: String, reason: String },
    /// Attempts to break out would tell nothing.
    #[error("nothing can be tried under {what}: {reason}")]
    Untried { what: String, reason: String },
    /// Sessions cannot run on this host.
    #[error("no session can run here: {reason}")]
    Unusable { reason: String },
    /// The process itself could not be set up.
    #[error("set up this process")]
    Runtime(#[source] io::Error),
}

impl From<DoctorError> for CommandFailure {
    fn from(error: DoctorError) -> Self {
        match error {
            DoctorError::Open(open) => Self::Open(open),
            DoctorError::Call(call) => Self::Call(call),
            DoctorError::Io { what, source } => Self::Io { what, source },
            DoctorError::Start { program, source } => Self::Named { what: format!("start {program}"), source },
            DoctorError::Attempt(reason) => Self::Usage(reason),
            DoctorError::Untried { what, reason } => Self::Untried { what, reason },
            DoctorError::Unusable { reason } => Self::Unusable { reason },
            other => Self::Unusable { reason: other.text() },
        }
    }
}

impl From<callgate::HostError> for CommandFailure {
    fn from(error: callgate::HostError) -> Self {
        Self::Open(OpenError::Host(error))
    }
}

impl CommandFailure {
    pub(super) fn runtime(source: io::Error) -> Self {
        Self::Runtime(source)
    }

    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what: what.into(), source }
    }

    /// For paths that were typed.
    pub(super) fn named(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Named { what: what.into(), source }
    }

    /// For what is printed. A reader that has seen enough (`| head`) is not an error worth telling.
    pub(super) fn print(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let gone = source.kind() == io::ErrorKind::BrokenPipe;
            if gone { Self::ReaderGone } else { Self::Io { what: what.to_owned(), source } }
        }
    }

    fn status(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Named { .. } => USAGE,
            // As if SIGPIPE had ended us, which is how a shell knows it.
            Self::ReaderGone => 128 + 13,
            Self::Data(_) => DATA,
            Self::Unusable { .. } | Self::Untried { .. } => UNAVAILABLE,
            Self::Open(open) => open_status(open),
            Self::Call(call) => call_status(call),
            Self::Trust(TrustError::Project { .. } | TrustError::NoManifest(_)) => USAGE,
            Self::Trust(_) => DATA,
            Self::Store(store) => store_status(store),
            Self::Io { .. } | Self::Subject { .. } | Self::Runtime(_) => SOFTWARE,
        }
    }

    /// Advice what to do next, where there is something.
    fn remedy(&self) -> Option<String> {
        match self {
            Self::Open(OpenError::Host(host)) => Some(host.remedy().to_owned()),
            Self::Open(OpenError::Confine(confine)) | Self::Call(CallError::Confine(confine)) => {
                confine_remedy(confine)
            }
            Self::Call(CallError::Denied(denial)) => remedy_of(denial),
            Self::Trust(trust) => trust.remedy(),
            Self::Store(store) | Self::Open(OpenError::Store(store)) | Self::Call(CallError::NotRecorded(store)) => {
                store.remedy()
            }
            Self::Open(OpenError::Home { .. }) => Some(
                "the directory that the work is in (cd, -C, --read, --write); or, with the keys: --allow-home"
                    .to_owned(),
            ),
            Self::Open(OpenError::Strangers { .. }) => Some(
                "go there, look at where that is (pwd -P), and name what you mean by a path of root's; or run callgate as \
                 that user"
                    .to_owned(),
            ),
            Self::Open(OpenError::NoTemporary { .. }) => Some("make that directory, or unset TMPDIR".to_owned()),
            Self::Open(OpenError::Outputs { .. }) => {
                Some("name a directory that exists, that you may write, and that no call may write".to_owned())
            }
            Self::Open(OpenError::NotTrusted { .. }) => {
                Some("name it callgate.toml, in the project's own directory, and: callgate trust DIR".to_owned())
            }
            Self::Open(open) => open.meant().map(|meant| format!("did you mean `{meant}`?")),
            Self::Usage(_)
            | Self::Named { .. }
            | Self::ReaderGone
            | Self::Data(_)
            | Self::Call(_)
            | Self::Io { .. }
            | Self::Subject { .. }
            | Self::Unusable { .. }
            | Self::Untried { .. }
            | Self::Runtime(_) => None,
        }
    }

    /// The error and its causes. What is nobody's fault is told in plain words.
    pub(super) fn text(&self) -> String {
        if let Self::Open(OpenError::Confine(confine)) | Self::Call(CallError::Confine(confine)) = self
            && let Some(words) = confine.in_plain_words()
        {
            return words;
        }
        with_causes(self)
    }

    /// Tells the person, once, and gives the exit status.
    pub(super) fn report(&self, json: bool) -> ExitCode {
        let text = self.text();
        let told = match self.remedy() {
            _ if matches!(self, Self::ReaderGone) => String::new(),
            remedy if json => {
                let record = serde_json::json!({ "error": text, "remedy": remedy, "exit_status": self.status() });
                escaped_json(&format!("{record}\n"))
            }
            Some(remedy) => format!("callgate: {}\n  try: {}\n", escaped_lines(&text), escaped_lines(&remedy)),
            None => format!("callgate: {}\n", escaped_lines(&text)),
        };
        // With standard error gone as well, the exit status is all that is left to tell.
        drop(io::stderr().write_all(told.as_bytes()));
        ExitCode::from(self.status())
    }
}

fn remedy_of(denial: &Denial) -> Option<String> {
    denial.remedy_to_type().map(str::to_owned)
}

/// True if this fails in a sandbox in which everything else works: a second listener (seccomp(2)), and a look at the
/// mounts.
fn is_in_a_sandbox(failed: &StepFailure) -> bool {
    let errno = failed.errno.map(rustix::io::Errno::from_raw_os_error);
    matches!(
        (failed.step, errno),
        (Step::Seccomp, Some(rustix::io::Errno::BUSY)) | (Step::KeptNames, Some(rustix::io::Errno::ACCESS))
    )
}

fn confine_remedy(error: &ConfineError) -> Option<String> {
    match error {
        ConfineError::Refused(failed) if failed.step == Step::Exec => None,
        ConfineError::Refused(failed) if failed.step == Step::WorkingDir => {
            Some("start in a directory that is granted".to_owned())
        }
        ConfineError::Refused(failed) if failed.is_missing_path() => {
            Some("make it before the session is opened, or leave it out of what is granted".to_owned())
        }
        ConfineError::Refused(failed) if failed.limit().is_some() => {
            failed.limit().map(|limit| format!("more of: {limit}"))
        }
        ConfineError::Refused(failed) if is_in_a_sandbox(failed) => Some(
            "run callgate outside of the sandbox that it is in (another callgate's, perhaps): the kernel has one program answer for \
             a system call filter, and a sandbox hides what callgate has to see of mounts"
                .to_owned(),
        ),
        ConfineError::Refused(_) => {
            Some("`callgate doctor` tells what this host can enforce, and how to get more".to_owned())
        }
        ConfineError::Channel { .. }
        | ConfineError::Ended
        | ConfineError::WorkerLost
        | ConfineError::Hostile { .. }
        | ConfineError::TimedOut(_) => None,
        _ => None,
    }
}

fn open_status(error: &OpenError) -> u8 {
    match error {
        OpenError::Host(_) | OpenError::NotYet { .. } | OpenError::Replaced { .. } => UNAVAILABLE,
        OpenError::Workspace { .. }
        | OpenError::NotAWorkspace { .. }
        | OpenError::NoTemporary { .. }
        | OpenError::Strangers { .. }
        | OpenError::Linked { .. }
        | OpenError::Outputs { .. }
        | OpenError::Credential(_)
        | OpenError::Policy { .. }
        | OpenError::Home { .. } => USAGE,
        OpenError::Variable(_)
        | OpenError::Declare(_)
        | OpenError::Plan(_)
        | OpenError::DebugJudged
        | OpenError::LeadsOut { .. }
        | OpenError::Rule(_)
        | OpenError::UnknownTool { .. }
        | OpenError::NeverMatches { .. }
        | OpenError::NotTrusted { .. }
        | OpenError::OtherProject { .. }
        | OpenError::NoLongerTrusted { .. }
        | OpenError::Profile(_)
        | OpenError::Registry(RegistryError::Unknown { .. }) => DATA,
        OpenError::Confine(confine) => confine_status(confine),
        OpenError::Store(store) => store_status(store),
        OpenError::Launcher(_)
        | OpenError::Homes(_)
        | OpenError::Sealed(_)
        | OpenError::Random(_)
        | OpenError::Private(_)
        | OpenError::Registry(_) => SOFTWARE,
        _ => SOFTWARE,
    }
}

fn call_status(error: &CallError) -> u8 {
    match error {
        CallError::Denied(_) => DENIED,
        CallError::UnknownTool { .. } | CallError::LeftOut { .. } => USAGE,
        CallError::Arguments(_) | CallError::Plan(_) => DATA,
        CallError::Confine(confine) => confine_status(confine),
        CallError::NotRecorded(store) => store_status(store),
        CallError::TimedOut(_) => TIMEOUT,
        CallError::Tool(_)
        | CallError::Aborted
        | CallError::Ended
        | CallError::Told { .. }
        | CallError::Halted { .. }
        | CallError::Inactive(_)
        | CallError::Unanswered(_)
        | CallError::Deferred { .. } => TOOL,
        CallError::Output { .. } => SOFTWARE,
        _ => SOFTWARE,
    }
}

fn store_status(error: &StoreError) -> u8 {
    match error {
        StoreError::NoSession { .. }
        | StoreError::Ambiguous { .. }
        | StoreError::Closed { .. }
        | StoreError::OtherWorkspace { .. }
        | StoreError::Reached { .. }
        | StoreError::Declares { .. }
        | StoreError::NoStore { .. } => USAGE,
        StoreError::OtherManifest { .. } | StoreError::OtherProfile { .. } => DATA,
        StoreError::NoHome
        | StoreError::Place { .. }
        | StoreError::NotYours { .. }
        | StoreError::Linked { .. }
        | StoreError::Database { .. }
        | StoreError::Newer { .. }
        | StoreError::Full { .. }
        | StoreError::InUse { .. } => UNAVAILABLE,
        StoreError::Random(_) => SOFTWARE,
        _ => SOFTWARE,
    }
}

/// A program that cannot be started is the person's business, as in a shell (127, 126); a step that the kernel refused
/// is the host's.
fn confine_status(error: &ConfineError) -> u8 {
    match error {
        ConfineError::Refused(failed) => match (failed.step, failed.errno) {
            // ENOENT, ENOTDIR.
            (Step::Exec, Some(2 | 20)) => 127,
            (Step::Exec, _) => 126,
            (Step::WorkingDir, _) => DENIED,
            _ if failed.is_missing_path() => DATA,
            _ => UNAVAILABLE,
        },
        ConfineError::TimedOut(_) => TIMEOUT,
        ConfineError::Channel { .. }
        | ConfineError::Ended
        | ConfineError::WorkerLost
        | ConfineError::Hostile { .. } => SOFTWARE,
        _ => SOFTWARE,
    }
}

/// Exit status of a line that clap does not take. Help and version are asked for; anything else is a mistake of usage.
pub(super) fn usage(mut error: clap::Error, callgate: clap::Command) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    use clap::error::{ContextKind, ContextValue};
    let asked_for = matches!(error.kind(), DisplayHelp | DisplayVersion);
    // clap leaves it out where a value is wrong or missing (X1-12).
    if !asked_for && error.get(ContextKind::Usage).is_none() {
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage_of_typed(callgate)));
    }
    let told = error.print();
    if asked_for && told.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(USAGE) }
}

/// The usage of the command that was typed; of callgate itself if it was none.
fn usage_of_typed(mut callgate: clap::Command) -> clap::builder::StyledStr {
    let mut unbuilt = callgate.clone();
    // For the names of commands in their own usage.
    callgate.build();
    let typed = std::env::args_os().skip(1).find(|word| callgate.find_subcommand(word).is_some());
    match typed.and_then(|word| callgate.find_subcommand_mut(word)) {
        Some(command) => command.render_usage(),
        None => unbuilt.render_usage(),
    }
}
