//! Family of a session: the subagents that it starts, who runs them, and its own place among them.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use callgate_policy::effective::EffectiveSet;
use callgate_policy::limit::Limits;
use callgate_policy::manifest::Env;
use callgate_policy::path::HostPath;
use callgate_policy::plan::AskedFor;
use callgate_policy::rules::{Action, Rule};
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::Session;
use crate::agents::kept::{KeptAgent, KeptAgents};
use crate::bounds::{AGENTS_MAX, FAMILY_MAX};
use crate::credentials::Credentials;
use crate::gate::people::Approver;
use crate::open_error::OpenError;
use crate::store::Room;
use crate::supervisor::Supervisor;
use crate::turn::Turns;

/// Runs agents whose manifest names no program: a host's own loop of model and tools
/// ([`agent_runner`](crate::SessionSpec::agent_runner)).
pub trait AgentRunner: Send + Sync + fmt::Debug {
    /// Runs an agent until it has its answer. Dropping what it returns ends the agent.
    fn run(&self, task: AgentTask) -> AgentRun;
}

/// Result of an [`AgentRunner`]: the answer, or what went wrong, in words for the model that waits for it.
pub type AgentRun = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// Task of a subagent, and its session.
#[derive(Debug)]
#[non_exhaustive]
pub struct AgentTask {
    /// The agent's name in the manifest.
    pub agent: String,
    /// The prompt. If the agent is to know that another has started it, the first line says so (X0-30).
    pub prompt: String,
    /// Metadata that the caller has passed on.
    pub metadata: Value,
    /// 1 for a subagent of a session that a host has opened.
    pub depth: usize,
    /// The session whose call this is.
    pub parent: String,
    /// The agent's session. It ends with the task: its calls are then refused, also for whoever has kept it.
    pub session: Arc<Session>,
}

/// Serves the manifest's agents that are programs ([`SessionSpec::agent_endpoint`](super::SessionSpec::agent_endpoint)): each finds
/// a socket in its sandbox by which it makes the calls of its own session. What is spoken there is for whoever implements this.
pub trait AgentEndpoint: Send + Sync + fmt::Debug {
    /// Service for the program of an agent. The call of `task` that starts it asks for this, within its own future: so
    /// what belongs to a task of the runtime is its caller's.
    fn service(&self) -> AgentService;
}

/// Serves one connection of an agent's program, on its session, until either side closes it.
///
/// The program is confined, and may have been written by a model: what comes from it is to be bounded before it is read. It is
/// the agent, so it must not be asked about its own calls.
pub type AgentService = Box<dyn Fn(Arc<Session>, UnixStream) -> AgentServed + Send + Sync>;

/// Result of an [`AgentService`]. It is dropped when the session ends.
pub type AgentServed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Subagents of a session, and its own place among them.
pub(crate) struct Family {
    /// The subagents that it has started.
    pub(crate) children: Children,
    /// Records of those that work in the background.
    pub(crate) agents: KeptAgents,
    /// Record that its parent keeps of it, if it is a subagent that works in the background.
    pub(crate) kept: Option<Arc<KeptAgent>>,
    pub(crate) rearing: Rearing,
    /// Turns of the program that is this session's agent, if a program is.
    pub(crate) agents_program: Turns,
}

impl Family {
    pub(super) fn new(rearing: Rearing, kept: Option<Arc<KeptAgent>>) -> Self {
        let (children, agents) = (Children::default(), KeptAgents::default());
        Self { children, agents, kept, rearing, agents_program: Turns::default() }
    }
}

/// Facts that are equal in a whole family of sessions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ancestry {
    /// Where the first session may write, and so all of them.
    pub(crate) written: Vec<HostPath>,
    /// Places that it was asked to write in, whatever it may: another session of the workspace may write there.
    pub(crate) asked: Vec<AskedFor>,
    /// All that the first session may: what a child cannot write, its parent may have written.
    pub(crate) most: Option<Arc<EffectiveSet>>,
    /// The first session's variables: their secrets are in nobody's record.
    pub(crate) env: Env,
    /// Its credentials. A child has but those that its agent names, and hears from its parent what servers have said to that: none
    /// is in anybody's record.
    pub(crate) credentials: Arc<Credentials>,
    /// Places for subagents.
    pub(crate) places: Places,
    /// Room for what they record.
    pub(crate) room: Room,
}

/// Places for the subagents of a family.
#[derive(Debug, Clone)]
pub(crate) struct Places(Arc<Semaphore>);

impl Default for Places {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(FAMILY_MAX)))
    }
}

impl Places {
    /// `None` if there is none left.
    pub(crate) fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }

    /// Waits for one; `None` if there will be none.
    pub(crate) async fn wait(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).acquire_owned().await.ok()
    }
}

/// Facts that the children of a session are opened with.
#[derive(Debug)]
pub(crate) struct Rearing {
    pub(crate) supervisor: Supervisor,
    pub(crate) depth: usize,
    /// Which agent it is.
    pub(crate) agent: Option<String>,
    pub(crate) ancestry: Ancestry,
    pub(crate) ad_hoc: Vec<PathBuf>,
    pub(crate) user_data: Option<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) env: Env,
    pub(crate) approvers: Vec<Arc<dyn Approver>>,
    pub(crate) patience: Duration,
    pub(crate) allow_home: bool,
    pub(crate) watch_execs: bool,
    pub(crate) runner: Option<Arc<dyn AgentRunner>>,
    pub(crate) endpoint: Option<Arc<dyn AgentEndpoint>>,
}

/// The children that are in flight.
#[derive(Debug, Default)]
pub(crate) struct Children {
    in_flight: watch::Sender<usize>,
    stops: watch::Sender<u64>,
    reared: Arc<Mutex<Reared>>,
}

/// Facts that a session has to tell its children.
#[derive(Debug, Default)]
pub(crate) struct Reared {
    /// Rules that were added since it was opened.
    pub(super) rules: Vec<Rule>,
    pub(super) live: Vec<Weak<Session>>,
}

impl Reared {
    /// A rule that was added.
    pub(crate) fn pass_on(&mut self, rule: &Rule) -> Result<(), OpenError> {
        if rule.action == Action::Allow {
            return Ok(());
        }
        self.rules.push(rule.clone());
        self.live.iter().filter_map(Weak::upgrade).try_for_each(|child| child.inherit(rule))
    }
}

/// Places among those in flight, to wait for.
#[derive(Debug, Clone)]
pub(crate) struct Queue(watch::Sender<usize>);

/// A child's place among those in flight.
#[derive(Debug)]
pub(crate) struct InFlight(watch::Sender<usize>);

impl Children {
    /// `None` if as many are in flight as may be.
    pub(crate) fn enter(&self) -> Option<InFlight> {
        enter(&self.in_flight, AGENTS_MAX)
    }

    /// The way to a place, for whoever waits for one without the session.
    pub(crate) fn queue(&self) -> Queue {
        Queue(self.in_flight.clone())
    }

    pub(crate) fn reared(&self) -> MutexGuard<'_, Reared> {
        self.reared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The facts for whoever has not the session.
    pub(crate) fn reared_by(&self) -> Arc<Mutex<Reared>> {
        Arc::clone(&self.reared)
    }

    /// Hears when they are to stop, which is also when their parent is gone.
    pub(crate) fn listen(&self) -> watch::Receiver<u64> {
        self.stops.subscribe()
    }

    /// Stops all of them, and waits until they have ended.
    pub(crate) async fn stop(&self) {
        self.stops.send_modify(|count| *count = count.wrapping_add(1));
        // It is not an error: this sender is there.
        drop(self.in_flight.subscribe().wait_for(|count| *count == 0).await);
    }
}

/// A place, if fewer than `most` are in flight.
fn enter(in_flight: &watch::Sender<usize>, most: usize) -> Option<InFlight> {
    let entered = in_flight.send_if_modified(|count| {
        let has_room = *count < most;
        *count += usize::from(has_room);
        has_room
    });
    entered.then(|| InFlight(in_flight.clone()))
}

impl Queue {
    /// Waits until fewer than `most` are in flight.
    pub(crate) async fn enter(&self, most: usize) -> InFlight {
        let mut count = self.0.subscribe();
        loop {
            if let Some(entered) = enter(&self.0, most) {
                return entered;
            }
            // The sender is here.
            drop(count.changed().await);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
