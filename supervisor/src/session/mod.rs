//! A confined place for one agent's calls.

mod abort;
mod child;
mod endpoint;
mod family;
mod lineage;
mod notebook;
mod opening;
mod part;
mod rules;
mod sandbox;
mod sources;
mod spec;
mod tools;
mod warning;
mod written;

pub(crate) use child::Opening;
pub(crate) use endpoint::Served;
pub use family::{AgentEndpoint, AgentRun, AgentRunner, AgentServed, AgentService, AgentTask};
pub(crate) use family::{Family, InFlight, Places, Queue, Reared, Rearing};
pub(crate) use lineage::Lineage;
pub(crate) use notebook::Notebook;
pub(crate) use opening::OpenedBy;
pub use opening::{Examined, MissingPlace};
pub(crate) use sandbox::Sandbox;
pub use sources::Coercion;
pub(crate) use sources::Tools;
pub use spec::{Overflow, SessionSpec, StrengthChoice, WatchdogObject};
pub use tools::ReloadError;
pub use warning::Warning;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_policy::effective::EffectiveSet;
use callgate_policy::envelope::StepReport;
use callgate_policy::limit::Bounds;
use callgate_policy::manifest::Manifest;
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile::{self, LeftOut};
use callgate_policy::plan::env::{self, Variable};
use callgate_policy::plan::{SessionPlan, Strength};
use callgate_policy::variable::Variables;

use crate::aborts::Aborts;
use crate::background::kept::Background;
use crate::confine::{Launcher, Stdio, Terminal, TerminalError, WindowSize};
use crate::etc;
use crate::gate::Gate;
use crate::host;
use crate::mounts::MountTable;
use crate::place::Place;
use crate::store::{Events, Recorder};
use crate::turn::Turns;

/// A confined place for one agent's calls. Dropping it ends everything that runs in it.
pub struct Session {
    pub(crate) id: String,
    pub(crate) manifest: Option<Arc<Manifest>>,
    pub(crate) tools: Tools,
    pub(crate) effective: EffectiveSet,
    warnings: Vec<Warning>,
    pub(crate) gate: Gate,
    pub(crate) variables: Variables,
    pub(crate) sandbox: Sandbox,
    /// Before what could still be recorded.
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) notebook: Notebook,
    pub(crate) turns: Turns,
    pub(crate) aborts: Aborts,
    /// Programs that calls have started and not waited for.
    pub(crate) background: Background,
    pub(crate) family: Family,
    /// Held, because it kills what is left of its sessions a while after the last copy has gone.
    launcher: Launcher,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("strength", &self.sandbox.facts.strength)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// The session's id: `ses_`, the time at which it was made, and a random part. Ids sort by that time (X0-58).
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Events of the session's calls from now on. Several may listen.
    #[must_use]
    pub fn events(&self) -> Events {
        self.recorder.events()
    }

    /// The grant by which calls may read or change what is at this path, by this name or another one; `None` if nothing does. For
    /// a host that keeps something from its sessions.
    ///
    /// # Errors
    /// [`StoreError::Place`](crate::StoreError::Place) if that cannot be told.
    pub fn reaches(&self, path: &std::path::Path) -> Result<Option<std::path::PathBuf>, crate::StoreError> {
        crate::store::reached(path, &self.effective, &MountTable::read())
    }

    /// Rights in force.
    #[must_use]
    pub fn effective(&self) -> &EffectiveSet {
        &self.effective
    }

    /// Warnings that its user should be shown, each once.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The variables of the caller's environment and of the session's, by name: what programs get, what they do not, and why.
    #[must_use]
    pub fn environment(&self) -> Vec<Variable> {
        let offline = compile::is_offline(&self.effective);
        // It was made from the same when the session was opened.
        env::explain(env::EnvSources { facts: &self.sandbox.facts, env: &self.sandbox.env, offline })
            .unwrap_or_default()
    }

    /// The limits of each call.
    #[must_use]
    pub fn bounds(&self) -> &Bounds {
        &self.sandbox.bounds
    }

    /// The strength that the session has: what was chosen, or the best that the host offers.
    #[must_use]
    pub fn strength(&self) -> Strength {
        self.sandbox.plan.strength
    }

    /// Confinement of the session, in words: what is readable and writable, for which manifest or tool, and how.
    pub fn explain(&self) -> impl std::fmt::Display + '_ {
        &self.sandbox.plan
    }

    /// The plan that the session was confined by, for callgate's own tests and measurements. Its parts change with each
    /// release, so it is no part of what hosts may use.
    #[doc(hidden)]
    #[must_use]
    pub fn plan(&self) -> &SessionPlan {
        &self.sandbox.plan
    }

    /// Finds what has to be granted for a program to start that lies in `/usr` or `/opt` and is somebody's own there, by its path or by its
    /// name on this process's `PATH`. `None` for any other program.
    #[must_use]
    pub fn not_shared(&self, program: &OsStr) -> Option<PathBuf> {
        let left_out = self.sandbox.facts.path_left_out.iter().filter(|(_, why)| *why == LeftOut::NotReadable);
        let named = match Path::new(program).components().count() {
            1 => left_out.map(|(directory, _)| directory.as_path().join(program)).collect(),
            _ => vec![PathBuf::from(program)],
        };
        let mut found =
            named.iter().filter(|path| host::is_startable(path)).filter_map(|path| path.canonicalize().ok());
        found.find_map(|path| etc::not_shared(&path, &self.sandbox.facts.shared))
    }

    /// The steps that confined the session, each confirmed.
    pub fn steps(&self) -> impl Iterator<Item = &StepReport> {
        self.sandbox.opened.steps()
    }

    /// Makes a terminal for one program of this session: `spawn` it with the [`Stdio`]. It is the program's controlling
    /// terminal, with its own job control, and its name in the session.
    ///
    /// In a session for one call ([`Calls::One`](callgate_policy::plan::Calls::One)) the program can open it by that name, and so by `/dev/stderr`. In one for
    /// many calls it cannot, because they could open each other's: there is `/dev/tty`.
    ///
    /// # Errors
    /// [`TerminalError`] if the host gives no pseudo-terminal.
    pub fn terminal(&self, size: WindowSize) -> Result<(Terminal, Stdio), TerminalError> {
        self.sandbox.opened.terminal(size, self.sandbox.facts.identity)
    }

    /// The workspace's first root, held.
    pub(crate) fn first_root(&self) -> Option<&Place> {
        self.sandbox.roots.first()
    }

    /// The roots that are no longer what they were when the session was opened. The kernel holds the session to the old
    /// ones, wherever they are now.
    pub(crate) fn replaced_root(&self) -> Option<&HostPath> {
        self.sandbox.roots.iter().find(|root| !root.is_there()).map(Place::path)
    }
}
