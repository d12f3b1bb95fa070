//! The host's side of callgate: makes sessions.

use std::sync::{Arc, OnceLock};

use crate::confine::Launcher;
use crate::confine::cgroup::Delegated;
use crate::gate::WatchdogProgram;
use crate::host::{HostSupport, Missing};
use crate::open_error::OpenError;
use crate::store::Store;

/// The host's side of callgate: makes sessions.
#[derive(Debug, Clone)]
pub struct Supervisor {
    pub(crate) launcher: Launcher,
    pub(crate) support: HostSupport,
    /// Set once the host has refused namespaces: why, and what then takes their place.
    pub(crate) without_namespaces: Arc<OnceLock<Missing>>,
    /// For a cgroup for each program, if the host has delegated one.
    pub(crate) groups: Option<Arc<Delegated>>,
    /// Asked of every call of every session.
    pub(crate) watchdogs: Vec<WatchdogProgram>,
    /// Where sessions are recorded.
    pub(crate) store: Option<Store>,
}

/// Makes a [`Supervisor`].
#[derive(Debug, Default)]
pub struct Builder {
    launcher: Option<Launcher>,
    watchdogs: Vec<WatchdogProgram>,
    store: Option<Store>,
}

impl Builder {
    /// The launcher to use: [`Launcher::fork`] in programs that can call it first thing, [`Launcher::spawn`] in others.
    #[must_use]
    pub fn launcher(mut self, launcher: Launcher) -> Self {
        self.launcher = Some(launcher);
        self
    }

    /// Has a program of the host's judge every call of every session (S0-58). It can only tighten (S0-60).
    #[must_use]
    pub fn watchdog_program(mut self, program: WatchdogProgram) -> Self {
        self.watchdogs.push(program);
        self
    }

    /// Has every session recorded in this store, where it can be continued later ([`resume`](crate::SessionSpec::resume)). A call
    /// that cannot be recorded is not made.
    #[must_use]
    pub fn store(mut self, store: Store) -> Self {
        self.store = Some(store);
        self
    }

    /// Looks at the host, and makes the supervisor.
    ///
    /// # Errors
    /// [`OpenError::Host`] if the host cannot enforce anything (no Landlock, no seccomp); [`OpenError::Launcher`] if no
    /// launcher was given and none could be forked.
    pub fn build(self) -> Result<Supervisor, OpenError> {
        let launcher = match self.launcher {
            Some(launcher) => launcher,
            None => Launcher::fork()?,
        };
        let support = HostSupport::probe()?;
        let groups = match Delegated::take() {
            Ok(groups) => Some(Arc::new(groups)),
            Err(reason) => {
                // Not a downgrade: the init of each program holds the same limits, and every result says so.
                tracing::debug!(%reason, "no cgroups");
                None
            }
        };
        Ok(Supervisor {
            launcher,
            support,
            without_namespaces: Arc::default(),
            groups,
            watchdogs: self.watchdogs,
            store: self.store,
        })
    }
}

impl Supervisor {
    /// Starts to make one.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Mechanisms that this host can enforce.
    #[must_use]
    pub fn support(&self) -> &HostSupport {
        &self.support
    }
}
