//! Reasons why the store cannot be used.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// Reason why the store of sessions cannot be used, or a session in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Whose sessions they are is not known.
    #[error("find the directory for sessions: neither XDG_STATE_HOME nor HOME nor the user database names one")]
    NoHome,
    /// A file or directory of the store cannot be made or opened.
    #[error("use {path} for sessions")]
    Place {
        /// Which.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Others could have written it, or can read it.
    #[error("{path} is not yours alone ({what}), so no session is kept there")]
    NotYours {
        /// Which file or directory.
        path: PathBuf,
        /// Mistake.
        what: &'static str,
    },
    /// A symbolic link decides where sessions are kept.
    #[error("{link} on the way to {path} is a symbolic link, which a program may have made")]
    Linked {
        /// Where sessions were to be kept.
        path: PathBuf,
        /// The link.
        link: PathBuf,
    },
    /// The database failed: it is locked, damaged or read-only, or the disk is full.
    #[error("{act} in {path}")]
    Database {
        /// Act that was to be done.
        act: &'static str,
        /// The database.
        path: PathBuf,
        /// Cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A later version of callgate has written it.
    #[error("{path} has version {found}, and this callgate knows versions up to {known}")]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The latest version that this build knows.
        known: u32,
    },
    /// Subagents have recorded as much as they may. A model, or a program that it wrote, decides how many calls there are.
    #[error("{who} may record {most} bytes, and that is used up")]
    Full {
        /// Which sessions: one subagent's, or those of all that a session has started.
        who: &'static str,
        /// The most, in bytes.
        most: u64,
    },
    /// There is no such session.
    #[error("there is no session {id:?}")]
    NoSession {
        /// Text that was given as its id.
        id: String,
    },
    /// The text that was given is the beginning of several ids.
    #[error("several sessions have ids that begin with {id:?}")]
    Ambiguous {
        /// Text that was given.
        id: String,
    },
    /// Somebody else has the session open.
    #[error("session {id} is open in another process, or in this one a second time")]
    InUse {
        /// The session.
        id: String,
    },
    /// The session is closed.
    #[error("session {id} is closed")]
    Closed {
        /// The session.
        id: String,
    },
    /// The workspace of a session is fixed when it is made (X0-55).
    #[error("session {id} works in {was}, not in {now}")]
    OtherWorkspace {
        /// The session.
        id: String,
        /// Its workspace.
        was: String,
        /// Workspace that it was to have.
        now: String,
    },
    /// The manifest says something else than when the session was made.
    #[error("the manifest of session {id} has changed since the session was made, and with it what the session may do")]
    OtherManifest {
        /// The session.
        id: String,
    },
    /// The file of the profile says something else than when the session was made.
    #[error("the profile of session {id} has changed since the session was made, and with it what the session may do")]
    OtherProfile {
        /// The session.
        id: String,
    },
    /// A session's grants reach the store.
    #[error("{granted} is granted, which reaches {path}, where sessions are kept")]
    Reached {
        /// The tree or file that is granted.
        granted: PathBuf,
        /// The store's directory.
        path: PathBuf,
    },
    /// A session may write where tools are declared that count without being trusted.
    #[error(
        "{granted} is granted to write, which reaches {path}, where tools are declared or projects trusted: what is there counts, \
         and nobody is asked"
    )]
    Declares {
        /// The tree or file that is granted.
        granted: PathBuf,
        /// The user's directory for settings.
        path: PathBuf,
    },
    /// A session is to be continued by a supervisor that has no store.
    #[error("session {id} cannot be continued without the store that it is in")]
    NoStore {
        /// The session.
        id: String,
    },
    /// The kernel gave no random bytes.
    #[error("get random bytes for an id")]
    Random(#[source] io::Error),
}

impl StoreError {
    /// Advice about it.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::NoHome => Some("set XDG_STATE_HOME to a directory of yours".to_owned()),
            Self::Place { .. } => Some("make it possible, or set XDG_STATE_HOME to another directory of yours".to_owned()),
            Self::NotYours { path, .. } => Some(format!(
                "look at it, then move it aside (callgate makes a new one), or: chown $(id -u) {0}; chmod go= {0}",
                path.display()
            )),
            Self::Linked { .. } => {
                Some("set XDG_STATE_HOME to the place that it leads to, if that is what you mean".to_owned())
            }
            Self::Database { .. } => Some(
                "make room on the disk, end what has the database open, or move the database aside: callgate makes a new one"
                    .to_owned(),
            ),
            Self::Newer { .. } => Some("update callgate, or set XDG_STATE_HOME to another directory".to_owned()),
            Self::Full { .. } => Some("have another subagent do the rest, or another session".to_owned()),
            Self::NoSession { .. } => Some("callgate session list".to_owned()),
            Self::Ambiguous { .. } => Some("give more of the id".to_owned()),
            Self::InUse { .. } => Some("wait until its call has ended, or fork it: callgate session fork ID".to_owned()),
            Self::Closed { .. } => Some("callgate session fork ID makes one that goes on".to_owned()),
            Self::OtherWorkspace { .. } | Self::OtherManifest { .. } | Self::OtherProfile { .. } => {
                Some("make a new one: callgate session new".to_owned())
            }
            Self::Reached { .. } => {
                Some("grant the directories that the work is in, not what holds them all".to_owned())
            }
            Self::Declares { .. } => Some(
                "work on tools in a project's .callgate/tools, or in another directory, and put them there yourself"
                    .to_owned(),
            ),
            Self::NoStore { .. } | Self::Random(_) => None,
        }
    }

    pub(super) fn place(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Place { path, source }
    }
}
