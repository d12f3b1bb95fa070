//! Reasons why a session was not opened.

use std::path::{Path, PathBuf};

use callgate_policy::effective::DeclareError;
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile::PlanError;
use callgate_policy::rules::RuleError;
use callgate_policy::variable::VariableError;

use crate::confine::{ConfineError, LauncherError, OutputsError, PrivateError};
use crate::credentials::CredentialError;
use crate::host::HostError;
use crate::place::{self, Misled, Stranger};
use crate::profile::ProfileError;
use crate::registry::{RegistryError, nearest};
use crate::store::StoreError;
use crate::trust::TrustError;

/// Reason why a session was not opened. Nothing has run then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A rule makes no sense.
    #[error(transparent)]
    Rule(RuleError),
    /// A profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A rule is about a tool that there is not.
    #[error("{place}: there is no tool `{tool}`; there are: {known}")]
    UnknownTool {
        /// Where the rule stands.
        place: String,
        /// The name.
        tool: String,
        /// Names that there are.
        known: String,
    },
    /// A rule that no call of the session can ever match.
    #[error("{place}: this rule can never match: {what}")]
    NeverMatches {
        /// Where the rule stands.
        place: String,
        /// The name that there is not, and names that there are.
        what: String,
    },
    /// Approvals cannot be kept for a project whose manifest nobody trusts (S1-18).
    #[error("`approvals = \"project\"` of {file}: approvals are kept only for a project whose own manifest is trusted")]
    NotTrusted {
        /// The manifest.
        file: String,
    },
    /// The workspace is not the directory in which the trusted manifest was found.
    #[error("{path} is not the directory any more whose manifest is trusted")]
    OtherProject {
        /// Where it was.
        path: HostPath,
    },
    /// The project's manifest does not count any more as it did when the spec was made of it.
    #[error(
        "the manifest of {path} is not trusted as it was: trust was taken back, was for one session, or the manifest is another; look \
         at it, then: callgate trust {path}; if it is another, start what opens the session again"
    )]
    NoLongerTrusted {
        /// The project's directory.
        path: HostPath,
        /// Error of its files about that.
        source: Option<Box<TrustError>>,
    },
    /// The host cannot enforce what every session needs.
    #[error(transparent)]
    Host(#[from] HostError),
    /// No launcher.
    #[error(transparent)]
    Launcher(#[from] LauncherError),
    /// The workspace cannot be used.
    #[error("use {path} as {role}")]
    Workspace {
        /// Role that it was to have: the workspace, or what a variable of patterns stands for.
        role: &'static str,
        /// Which directory.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A root that is not a directory, or that holds the whole system.
    #[error("use {path} as {role}: {reason}")]
    NotAWorkspace {
        /// Role that it was to have: the workspace, or what a variable of patterns stands for.
        role: &'static str,
        /// Which directory.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// Root would go where somebody else has a say.
    #[error(
        "{act}: {} on the way belongs to user {uid}, who can have it lead anywhere; now it leads to what belongs to user {owner}",
        on_the_way.display()
    )]
    Strangers {
        /// Act that was to be done with which path.
        act: String,
        /// The directory or link.
        on_the_way: PathBuf,
        /// Whose that is.
        uid: u32,
        /// Whose it is what it leads to.
        owner: u32,
    },
    /// A symbolic link that a call may have made decides what would be granted.
    #[error(
        "{act}: {} on the way is a symbolic link in a directory that calls may write in, so a call may have made it; name the \
         place that it leads to, if that is what you mean",
        link.display()
    )]
    Linked {
        /// Act that was to be done with which path.
        act: String,
        /// The link.
        link: PathBuf,
    },
    /// A link leads from what is granted within a ceiling or another bound to what that does not grant (C-1).
    #[error(
        "grant {}: it leads to {}, which {bound} does not grant; ask for that place itself, where the bound grants it",
        granted.display(),
        to.display()
    )]
    LeadsOut {
        /// As it is spelt.
        granted: PathBuf,
        /// Where that leads.
        to: PathBuf,
        /// Bound that does not grant that, in words.
        bound: String,
    },
    /// A path that was granted led to another thing when the session was confined than when it was looked at.
    #[error("{what}")]
    Replaced {
        /// Which, and what to do.
        what: String,
    },
    /// Calls could change what the policy came from, and so what the next session may do that is started with the same words.
    #[error("{what}")]
    Policy {
        /// Which file, and what to do.
        what: String,
    },
    /// A home directory would be granted, and nobody has insisted.
    #[error("{act}: {why}")]
    Home {
        /// Act that was to be done with which directory.
        act: String,
        /// Reason: what is in it.
        why: String,
    },
    /// Variables cannot stand for what was given.
    #[error(transparent)]
    Variable(#[from] VariableError),
    /// Rights that were asked for cannot be compiled.
    #[error(transparent)]
    Declare(#[from] DeclareError),
    /// Rights in force cannot be told the kernel.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A right is in force that this build cannot enforce.
    #[error("this build cannot enforce {what}: {remedy}")]
    NotYet {
        /// Right that was granted.
        what: String,
        /// Advice about it.
        remedy: &'static str,
    },
    /// `debug` where every start of a program is judged.
    #[error(
        "`debug` cannot be had in a session that judges each program before it starts (--exec, [[requires.shell]] with names, \
         `watch_execs`, a watchdog that sees programs, a profile that restricts the shell): callgate traces them for that, and a \
         process has one tracer; grant any program, or leave `debug` out"
    )]
    DebugJudged,
    /// A credential of the manifest cannot be used.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// Credentials cannot be handed over to who adds them to requests.
    #[error("hand the credentials over")]
    Sealed(#[source] std::io::Error),
    /// The user database cannot be read, so that it is unknown which directories are homes.
    #[error("read /etc/passwd, which has the home directories that no session is granted")]
    Homes(#[source] std::io::Error),
    /// The kernel gave no random bytes.
    #[error("get random bytes")]
    Random(#[source] std::io::Error),
    /// No name could be made up for the session's private directory.
    #[error("make up a name for the session's private directory")]
    Private(#[source] std::io::Error),
    /// There is no directory for temporary files.
    #[error("use {path} for temporary files, as TMPDIR says")]
    NoTemporary {
        /// Path that was named.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// Rests that results have no room for cannot be kept where the host wants them.
    #[error("keep what results have no room for in {path}")]
    Outputs {
        /// The directory.
        path: PathBuf,
        /// Cause.
        source: OutputsError,
    },
    /// The session cannot be recorded or continued, or would reach where sessions are recorded.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A contract of ours is broken.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The session's processes could not be confined, or could not be reached.
    #[error(transparent)]
    Confine(#[from] ConfineError),
}

impl From<PrivateError> for OpenError {
    fn from(error: PrivateError) -> Self {
        match error {
            PrivateError::NoTemporary { path, source } => Self::NoTemporary { path, source },
            PrivateError::Name(source) => Self::Private(source),
        }
    }
}

impl OpenError {
    /// A name that is there and may have been meant by one that is not.
    #[must_use]
    pub fn meant(&self) -> Option<String> {
        let (name, known) = self.name_and_known()?;
        nearest(name, known.split(", ")).map(str::to_owned)
    }

    /// A name of no tool, and of nothing else that is called or ruled.
    #[must_use]
    pub fn unknown(&self) -> Option<&str> {
        self.name_and_known().map(|(name, _)| name)
    }

    fn name_and_known(&self) -> Option<(&str, &str)> {
        if let Self::UnknownTool { tool, known, .. }
        | Self::Registry(
            RegistryError::Unknown { tool, known }
            | RegistryError::NotInTheCatalogue { tool, known }
            | RegistryError::UnknownToAgent { tool, known, .. },
        ) = self
        {
            return Some((tool, known));
        }
        None
    }

    pub(crate) fn misled(act: String, misled: Misled) -> Self {
        match misled {
            Misled::ByAStranger(stranger) => Self::strangers(act, stranger),
            Misled::ByALink(link) => Self::Linked { act, link },
        }
    }

    pub(crate) fn strangers(act: String, Stranger { on_the_way, uid, owner }: Stranger) -> Self {
        Self::Strangers { act, on_the_way, uid, owner }
    }
}

/// Refuses a path that root is about to use and in whose way somebody else has a say: for a host that looks at a path before
/// a session does. `act` says in the error what was to be done with it.
///
/// # Errors
/// [`OpenError::Strangers`].
pub fn refuse_strangers(act: &str, path: &Path) -> Result<(), OpenError> {
    let stranger = place::stranger_to(path);
    stranger.map_or(Ok(()), |stranger| Err(OpenError::strangers(act.to_owned(), stranger)))
}
