//! The launcher from the supervisor's side.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use callgate_policy::plan::SessionPlan;
use callgate_worker::launcher;
use callgate_worker::protocol::{Channel, OpenSession};
use std::os::fd::{AsFd as _, OwnedFd};

/// The name under which the `callgate` binary is started to be a launcher, with its channel as standard input.
pub const LAUNCHER_NAME: &str = "callgate-launcher";

/// The small process that forks brokers; it ends with the last copy of this.
#[derive(Debug, Clone)]
pub struct Launcher(Arc<Channel>);

/// A launcher could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LauncherError {
    /// fork(2) failed, or this process already has threads: start it first thing in `main`, or use [`Launcher::spawn`].
    #[error("fork the launcher")]
    Fork(#[source] io::Error),
    /// The channel could not be made.
    #[error("make the launcher's channel")]
    Channel(#[source] io::Error),
    /// The binary could not be started.
    #[error("start {path} as the launcher")]
    Spawn {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Launcher {
    /// Forks it from this process, which must have one thread still: the cheapest way, for programs that call this first
    /// thing in `main`.
    ///
    /// # Errors
    /// [`LauncherError::Fork`], with `EBUSY` if this process has threads.
    pub fn fork() -> Result<Self, LauncherError> {
        let launcher = launcher::start().map_err(LauncherError::Fork)?;
        Ok(Self(Arc::new(launcher.channel)))
    }

    /// Starts the `callgate` binary at `path` as the launcher: for programs that have threads already.
    ///
    /// # Errors
    /// [`LauncherError::Spawn`] if the binary cannot be started.
    pub fn spawn(path: &Path) -> Result<Self, LauncherError> {
        let (ours, theirs) = Channel::pair().map_err(LauncherError::Channel)?;
        Command::new(path)
            .arg0(LAUNCHER_NAME)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(drop)
            .map_err(|source| LauncherError::Spawn { path: path.to_owned(), source })?;
        Ok(Self(Arc::new(ours)))
    }

    /// What the binary does when it was started by [`Launcher::spawn`]. Never returns.
    pub fn serve_as_started() -> ! {
        match callgate_worker::sys::fd::inherited(0) {
            Ok(channel) => launcher::run(Channel::from(channel)),
            Err(_) => std::process::exit(70),
        }
    }

    pub(super) fn open(&self, plan: SessionPlan, session: &Channel) -> io::Result<()> {
        self.0.send(&OpenSession { plan }, &[session.as_fd()])
    }
}
