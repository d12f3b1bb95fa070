//! The launcher from the supervisor's side.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use callgate_policy::plan::{PrivateKind, SessionPlan};
use callgate_policy::step::Step;
use callgate_tools::BuiltIn;
use callgate_worker::launcher::{self, Ahead, AskedLauncher};
use callgate_worker::protocol::{Channel, Leftover, OpenSession, StepFailure};

use super::error::ConfineError;
use super::outputs::Outputs;
use crate::credentials;

/// The name under which the `callgate` binary is started to be a launcher, with its channel as standard input.
pub const LAUNCHER_NAME: &str = "callgate-launcher";

/// The small process that forks brokers; it ends with the last copy of this.
#[derive(Debug, Clone)]
pub struct Launcher(Kind);

#[derive(Debug, Clone)]
enum Kind {
    /// A process of its own.
    Process(Arc<Process>),
    /// This one, while it has one thread.
    Here(Arc<Here>),
}

#[derive(Debug)]
struct Process {
    /// `None` only while this is dropped.
    channel: Option<Channel>,
    /// To be waited for, if it was started and not forked.
    child: Option<Child>,
}

impl Process {
    fn send(&self, message: &OpenSession, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let channel = self.channel.as_ref().ok_or_else(gone)?;
        // What it had to report since the last session.
        while let Some(leftover) = channel.receive_if_there::<Leftover>()? {
            report(&leftover);
        }
        channel.send(message, fds)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends when its sessions have; until somebody has waited for it, its entry stays.
        let (channel, child) = (self.channel.take(), self.child.take());
        let wait = move || {
            channel.iter().flat_map(launcher::wait_for_the_end).for_each(|leftover| report(&leftover));
            child.map(|mut child| child.wait())
        };
        // Where no thread can be made, the entry stays until this process ends.
        drop(std::thread::Builder::new().spawn(wait));
    }
}

fn report(leftover: &Leftover) {
    tracing::warn!(%leftover, "a session has left something");
}

/// Possessions of a launcher that is this very process.
#[derive(Debug, Default)]
struct Here {
    /// For its first session, if that runs as this user.
    ahead: Mutex<Option<Ahead>>,
    /// Who was asked for that.
    asked: OnceLock<AskedLauncher>,
    /// A process of its own, once a session needs one.
    process: OnceLock<Channel>,
    /// One that was started afresh, once a session needs it that has a network, or that comes after credentials were read.
    afresh: OnceLock<Arc<Process>>,
}

impl Here {
    /// To a launcher that is a process, which is started if there is none.
    fn send(&self, message: &OpenSession, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let ask = |channel: &Channel| channel.send(message, fds);
        match self.asked.get().map(|asked| ask(&asked.channel)) {
            Some(Err(e)) if e.kind() == io::ErrorKind::BrokenPipe => {}
            Some(other) => return other,
            None => {}
        }
        match self.process.get() {
            Some(channel) => ask(channel),
            None => launcher::start(&BuiltIn).and_then(|started| ask(self.process.get_or_init(|| started.channel))),
        }
    }
}

impl Here {
    /// To a launcher that has nothing of this process, started if there is none. What holds a network has an event loop of its
    /// own, which does not come about in the copy of a process that has one. And workers are copies of their launcher: none may
    /// have a credential in its memory (decision 0033).
    fn send_afresh(&self, message: &OpenSession, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let process = match self.afresh.get() {
            Some(process) => process,
            None => {
                let started = Launcher::spawn(Path::new("/proc/self/exe"));
                let Launcher(Kind::Process(process)) = started.map_err(io::Error::other)? else {
                    return Err(io::ErrorKind::Unsupported.into());
                };
                self.afresh.get_or_init(|| process)
            }
        };
        process.send(message, fds)
    }
}

/// A launcher could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LauncherError {
    /// fork(2) failed, or this process already has threads or has read credentials: start it first thing in `main`, or use
    /// [`Launcher::spawn`].
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
        /// Cause.
        source: io::Error,
    },
}

impl Launcher {
    /// Forks it from this process, which must have one thread still: the cheapest way, for programs that call this first
    /// thing in `main`.
    ///
    /// # Errors
    /// [`LauncherError::Fork`], with `EBUSY` if this process has threads. Once it has read credentials there is no fork that does
    /// not hold them: then too.
    pub fn fork() -> Result<Self, LauncherError> {
        if credentials::were_read() {
            return Err(LauncherError::Fork(io::Error::other("this process has read credentials")));
        }
        let launcher = launcher::start(&BuiltIn).map_err(LauncherError::Fork)?;
        Ok(Self::process(launcher.channel, None))
    }

    /// Starts the `callgate` binary at `path` as the launcher: for programs that have threads already.
    ///
    /// # Errors
    /// [`LauncherError::Spawn`] if the binary cannot be started.
    #[allow(clippy::disallowed_methods, reason = "the launcher is what confines; it cannot be started confined")]
    pub fn spawn(path: &Path) -> Result<Self, LauncherError> {
        let (ours, theirs) = Channel::pair().map_err(LauncherError::Channel)?;
        let child = Command::new(path)
            .arg0(LAUNCHER_NAME)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| LauncherError::Spawn { path: path.to_owned(), source })?;
        Ok(Self::process(ours, Some(child)))
    }

    fn process(channel: Channel, child: Option<Child>) -> Self {
        Self(Kind::Process(Arc::new(Process { channel: Some(channel), child })))
    }

    /// Runs as the launcher when it was started by [`Launcher::spawn`]. Never returns.
    pub fn serve_as_started() -> ! {
        // Away from 0, which becomes /dev/null.
        match callgate_worker::sys::fd::inherited(0).and_then(|channel| channel.try_clone()) {
            Ok(channel) => launcher::run(Channel::from(channel), &BuiltIn),
            Err(_) => std::process::exit(70),
        }
    }

    /// Takes what a fuzz target says for a launcher, and everything behind it.
    #[cfg(any(fuzzing, test))]
    #[must_use]
    pub fn over(channel: Channel) -> Self {
        Self::process(channel, None)
    }

    /// Starts to make the namespaces of the first session, for [`Launcher::here`]. This process must have one thread.
    ///
    /// # Errors
    /// `EBUSY` if it has more; fork's own. What fails later is told to the session.
    pub fn ahead() -> io::Result<Ahead> {
        Ahead::start(&BuiltIn)
    }

    /// No process of its own: brokers are forked from this one, for programs that open one session and have one thread. A
    /// process is started when a session needs one that outlives this. `ahead` is for the first session: started first
    /// thing in `main`, it gets ready meanwhile. For the `callgate` binary alone: a session with a network starts it afresh, and so
    /// does each after credentials were read.
    #[must_use]
    pub fn here(ahead: Option<Ahead>) -> Self {
        Self(Kind::Here(Arc::new(Here { ahead: Mutex::new(ahead), ..Here::default() })))
    }

    /// To be called when a session that was asked for has answered.
    pub(super) fn answered(&self) {
        if let Kind::Here(here) = &self.0
            && let Some(asked) = here.asked.get()
        {
            asked.reap();
        }
    }

    /// Waits until nothing is left of all its sessions, which must have been dropped, and returns what could not be removed.
    /// No more can be opened. Without this a host may end before they have: they end all the same.
    #[must_use]
    pub fn wait_for_its_end(&self) -> Vec<Leftover> {
        match &self.0 {
            Kind::Process(process) => process.channel.iter().flat_map(launcher::wait_for_the_end).collect(),
            Kind::Here(here) => {
                let channels = here.asked.get().map(|asked| &asked.channel).into_iter().chain(here.process.get());
                let afresh = here.afresh.get().and_then(|process| process.channel.as_ref());
                let channels = channels.chain(afresh);
                channels.flat_map(launcher::wait_for_the_end).collect()
            }
        }
    }

    /// `outputs` and `credentials` are the session's, if there are any.
    pub(super) fn open(
        &self,
        plan: SessionPlan,
        session: &Channel,
        (outputs, credentials): (Option<&Outputs>, Option<&OwnedFd>),
    ) -> Result<(), ConfineError> {
        let mut fds = vec![session.as_fd()];
        fds.extend(outputs.and_then(Outputs::descriptors).into_iter().flatten());
        fds.extend(credentials.map(OwnedFd::as_fd));
        let credentials = credentials.is_some();
        let afresh = plan.network.is_some() || credentials::were_read();
        let asked = match (&self.0, plan.private.kind) {
            (Kind::Process(process), _) => process.send(&OpenSession { plan, credentials }, &fds),
            (Kind::Here(here), _) if afresh => here.send_afresh(&OpenSession { plan, credentials }, &fds),
            (Kind::Here(here), PrivateKind::InNamespace) if plan.outputs.is_none() => {
                let ahead = here.ahead.lock().unwrap_or_else(PoisonError::into_inner).take();
                match ahead.filter(|ahead| ahead.is_for(plan.identity)) {
                    Some(ahead) => ahead.open(plan, session).map(|asked| drop(here.asked.set(asked))),
                    None => launcher::open_here(&plan, session, &BuiltIn),
                }
            }
            // Somebody must be left to remove the directory, even if this process is killed.
            (Kind::Here(here), _) => here.send(&OpenSession { plan, credentials }, &fds),
        };
        // A launcher that is not there has met a step that it could not do, or was killed.
        asked.map_err(|source| {
            ConfineError::Refused(StepFailure::new(Step::Launcher, "ask it for a session").errno(source.raw_os_error()))
        })
    }
}
