//! Records of the subagents that its calls have started in the background (S2-21, X2-19).
//!
//! An agent is known by an id that it keeps when it is started again. What is kept of answers is bounded; the record of the session
//! has them whole.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

/// Most agents that have ended and are remembered.
const ENDED_MAX: usize = 64;
/// Most swarms that are remembered.
const SWARMS_MAX: usize = 8;
/// Most bytes that are kept of an answer.
pub(crate) const ANSWER_KEPT: usize = 256 * 1024;
/// Most bytes that are kept of the answer of one of a CSV's.
pub(crate) const ROW_KEPT: usize = 16 * 1024;
/// Most messages that an agent has not read.
const UNREAD_MAX: usize = 64;
/// Most characters of a prompt in a list.
const LISTED: usize = 200;

/// How far an agent is (X2-19).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum AgentStatus {
    /// It has no place yet.
    Pending,
    Running,
    Completed,
    Failed,
    /// A call has ended it.
    Cancelled,
    /// Its parent was aborted, or has ended.
    Interrupted,
}

impl AgentStatus {
    pub(crate) fn has_ended(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Interrupted => true,
        }
    }
}

/// The agents of one session.
#[derive(Debug, Default)]
pub(crate) struct KeptAgents {
    /// In the order of their starts.
    all: Mutex<Vec<Arc<KeptAgent>>>,
    swarms: Mutex<Vec<Arc<Swarm>>>,
}

/// An agent, whether it runs or not.
#[derive(Debug)]
pub(crate) struct KeptAgent {
    pub(crate) id: String,
    /// Its name in the manifest.
    pub(crate) agent: String,
    /// The tools that it was narrowed to.
    pub(crate) only: Option<Vec<String>>,
    /// Place in a swarm: which swarm, and which of its tasks.
    pub(crate) item: Option<Item>,
    /// How long it may run.
    pub(crate) time: Option<Duration>,
    /// Bytes that are kept of its answer.
    keeps: usize,
    known: Mutex<AgentState>,
    inbox: Mutex<VecDeque<String>>,
    /// Tells that something has changed.
    news: watch::Sender<()>,
    cancel: watch::Sender<bool>,
}

/// A task of a swarm.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    swarm: Weak<Swarm>,
    /// The swarm's.
    pub(crate) swarm_id: String,
    pub(crate) id: String,
    pub(crate) is_of_csv: bool,
}

impl Item {
    /// Has its swarm start no more.
    pub(crate) fn stop_swarm(&self) {
        if let Some(swarm) = self.swarm.upgrade() {
            swarm.stops.store(true, Ordering::Relaxed);
        }
    }
}

/// Facts known of an agent.
#[derive(Debug)]
struct AgentState {
    status: AgentStatus,
    session: Option<String>,
    takes_input: bool,
    /// Task that it was given.
    task: String,
    /// Prompt: the task, with what it is told besides.
    prompt: String,
    runs: u32,
    began: Instant,
    took: Option<Duration>,
    end: AgentEnd,
}

/// Result of it.
#[derive(Debug, Default)]
struct AgentEnd {
    output: Option<String>,
    output_len: usize,
    error: Option<String>,
    reported: Option<Value>,
}

/// Several agents that were started together.
#[derive(Debug)]
pub(crate) struct Swarm {
    pub(crate) id: String,
    pub(crate) is_csv: bool,
    members: Mutex<Vec<Arc<KeptAgent>>>,
    /// No more of them are to start.
    stops: AtomicBool,
}

impl KeptAgents {
    /// Remembers an agent. Of those that have ended the oldest are forgotten; a swarm has its own.
    pub(crate) fn add(&self, kept: Arc<KeptAgent>) {
        let mut all = self.all();
        let ended = all.iter().filter(|kept| kept.status().has_ended()).count();
        let mut excess = (ended + 1).saturating_sub(ENDED_MAX);
        all.retain(|kept| {
            let goes = excess > 0 && kept.status().has_ended();
            excess -= usize::from(goes);
            !goes
        });
        all.push(kept);
    }

    /// Remembers a swarm. Of those that have ended the oldest are forgotten.
    pub(crate) fn add_swarm(&self, swarm: Arc<Swarm>) {
        let mut swarms = self.swarms();
        while swarms.len() >= SWARMS_MAX
            && let Some(oldest) = swarms.iter().position(|swarm| swarm.has_ended())
        {
            swarms.remove(oldest);
        }
        swarms.push(swarm);
    }

    /// True if there is room for one more.
    pub(crate) fn has_room_for_a_swarm(&self) -> bool {
        self.swarms().iter().filter(|swarm| !swarm.has_ended()).count() < SWARMS_MAX
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<KeptAgent>> {
        let of_swarms = || self.swarms().iter().find_map(|swarm| swarm.member(id));
        self.all().iter().find(|kept| kept.id == id).cloned().or_else(of_swarms)
    }

    pub(crate) fn swarm(&self, id: &str) -> Option<Arc<Swarm>> {
        self.swarms().iter().find(|swarm| swarm.id == id).cloned()
    }

    /// Forgets an agent.
    pub(crate) fn forget(&self, id: &str) {
        self.all().retain(|kept| kept.id != id);
        self.swarms().iter().for_each(|swarm| swarm.members().retain(|kept| kept.id != id));
    }

    /// All that are remembered: those of swarms last.
    pub(crate) fn each(&self) -> Vec<Arc<KeptAgent>> {
        let mut each = self.all().clone();
        each.extend(self.swarms().iter().flat_map(|swarm| swarm.members().clone()));
        each
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<KeptAgent>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn swarms(&self) -> MutexGuard<'_, Vec<Arc<Swarm>>> {
        self.swarms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptAgent {
    pub(crate) fn new((id, agent): (String, &str), only: Option<Vec<String>>, prompt: &str) -> Self {
        let known = AgentState {
            status: AgentStatus::Pending,
            session: None,
            takes_input: false,
            task: prompt.to_owned(),
            prompt: prompt.to_owned(),
            runs: 0,
            began: Instant::now(),
            took: None,
            end: AgentEnd::default(),
        };
        Self {
            id,
            agent: agent.to_owned(),
            only,
            item: None,
            time: None,
            keeps: ANSWER_KEPT,
            known: Mutex::new(known),
            inbox: Mutex::default(),
            news: watch::Sender::new(()),
            cancel: watch::Sender::new(false),
        }
    }

    /// One of a swarm's.
    pub(crate) fn of_swarm(self, swarm: &Arc<Swarm>, item: String) -> Self {
        let keeps = if swarm.is_csv { ROW_KEPT } else { ANSWER_KEPT };
        let (swarm_id, is_of_csv) = (swarm.id.clone(), swarm.is_csv);
        Self { item: Some(Item { swarm: Arc::downgrade(swarm), swarm_id, id: item, is_of_csv }), keeps, ..self }
    }

    /// It is to end after this long.
    pub(crate) fn within(self, time: Option<Duration>) -> Self {
        Self { time, ..self }
    }

    pub(crate) fn status(&self) -> AgentStatus {
        self.known().status
    }

    pub(crate) fn prompt(&self) -> String {
        self.known().prompt.clone()
    }

    pub(crate) fn task(&self) -> String {
        self.known().task.clone()
    }

    /// How it ended, with its answer or the error.
    pub(crate) fn ending(&self) -> (AgentStatus, String) {
        let known = self.known();
        let text = known.end.output.as_ref().or(known.end.error.as_ref()).cloned().unwrap_or_default();
        (known.status, text)
    }

    pub(crate) fn takes_input(&self) -> bool {
        self.known().takes_input
    }

    /// It is started again, with another task or another prompt. `false` if it has not ended.
    pub(crate) fn starts_again(&self, task: &str, prompt: &str) -> bool {
        let mut known = self.known();
        if !known.status.has_ended() {
            return false;
        }
        (known.status, known.session, known.took) = (AgentStatus::Pending, None, None);
        (known.began, known.end) = (Instant::now(), AgentEnd::default());
        task.clone_into(&mut known.task);
        prompt.clone_into(&mut known.prompt);
        drop(known);
        // What its last life has not read was about that.
        self.inbox().clear();
        self.cancel.send_replace(false);
        self.news.send_replace(());
        true
    }

    /// It works, in this session.
    pub(crate) fn runs(&self, session: &str, takes_input: bool) {
        let mut known = self.known();
        if known.status == AgentStatus::Pending {
            known.status = AgentStatus::Running;
        }
        known.session = Some(session.to_owned());
        known.takes_input = takes_input;
        known.runs += 1;
        drop(known);
        self.news.send_replace(());
    }

    /// It has ended. Only the first end counts.
    pub(crate) fn ends(&self, status: AgentStatus, text: &str) {
        let mut known = self.known();
        if known.status.has_ended() {
            return;
        }
        known.status = status;
        known.took = Some(known.began.elapsed());
        if status == AgentStatus::Completed {
            known.end.output_len = text.len();
            known.end.output = Some(text[..text.floor_char_boundary(self.keeps)].to_owned());
        } else {
            known.end.error = Some(text[..text.floor_char_boundary(self.keeps)].to_owned());
        }
        drop(known);
        self.news.send_replace(());
    }

    /// Asks it to end.
    pub(crate) fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *self.cancel.borrow()
    }

    /// Waits until it is asked to end.
    pub(crate) async fn cancelled(&self) {
        // The sender is here.
        drop(self.cancel.subscribe().wait_for(|is| *is).await);
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) {
        let mut news = self.news.subscribe();
        while !self.status().has_ended() {
            drop(news.changed().await);
        }
    }

    /// Puts a message into its inbox. `false` if that is full.
    pub(crate) fn tell(&self, message: String) -> bool {
        let mut inbox = self.inbox();
        let has_room = inbox.len() < UNREAD_MAX;
        if has_room {
            inbox.push_back(message);
        }
        drop(inbox);
        self.news.send_replace(());
        has_room
    }

    /// Takes the messages out of its inbox, once there are some.
    pub(crate) async fn messages(&self, time: Duration) -> Vec<String> {
        let mut news = self.news.subscribe();
        let waits = async {
            while self.inbox().is_empty() {
                drop(news.changed().await);
            }
        };
        // What is there is the answer.
        drop(tokio::time::timeout(time, waits).await);
        self.inbox().drain(..).collect()
    }

    /// Takes what it reports of its row. `false` if it has ended.
    pub(crate) fn reports(&self, result: Value) -> bool {
        let mut known = self.known();
        let runs = !known.status.has_ended();
        if runs {
            known.end.reported = Some(result);
        }
        runs
    }

    /// Facts known of it. Its answer is a part of that only if it is asked for.
    pub(crate) fn shown(&self, with_answer: bool) -> Value {
        let known = self.known();
        let took = known.took.unwrap_or_else(|| known.began.elapsed());
        let mut shown = json!({
            "agent_id": self.id,
            "type": self.agent,
            "status": known.status,
            "prompt": known.task.chars().take(LISTED).collect::<String>(),
            "runs": known.runs,
            "duration_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "takes_input": known.takes_input,
            "unread_messages": self.inbox().len(),
        });
        if let Some(session) = &known.session {
            shown["session_id"] = session.as_str().into();
        }
        if let Some(item) = &self.item {
            shown["swarm_id"] = item.swarm_id.as_str().into();
            shown["item_id"] = item.id.as_str().into();
        }
        if with_answer && let Some(output) = &known.end.output {
            shown["output"] = output.as_str().into();
            shown["output_len"] = known.end.output_len.into();
            shown["truncated"] = (output.len() < known.end.output_len).into();
        }
        if with_answer && let Some(reported) = &known.end.reported {
            shown["result"] = reported.clone();
        }
        if let Some(error) = &known.end.error {
            shown["error"] = error.as_str().into();
        }
        shown
    }

    fn known(&self) -> MutexGuard<'_, AgentState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inbox(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Swarm {
    pub(crate) fn new(id: String, is_csv: bool) -> Self {
        Self { id, is_csv, members: Mutex::default(), stops: AtomicBool::new(false) }
    }

    pub(crate) fn add(&self, kept: Arc<KeptAgent>) {
        self.members().push(kept);
    }

    pub(crate) fn stops(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.members().iter().all(|kept| kept.status().has_ended())
    }

    /// Waits until all of them have ended.
    pub(crate) async fn ended(&self) {
        let members = self.members().clone();
        for kept in members {
            kept.ended().await;
        }
    }

    /// Facts known of them.
    pub(crate) fn shown(&self, with_answers: bool) -> Value {
        let members = self.members().clone();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for kept in &members {
            *counts.entry(format!("{:?}", kept.status())).or_default() += 1;
        }
        let status = if members.iter().all(|kept| kept.status().has_ended()) { "Ended" } else { "Running" };
        let agents: Vec<Value> = members.iter().map(|kept| kept.shown(with_answers)).collect();
        let mut shown = json!({
            "swarm_id": self.id,
            "status": status,
            "total": members.len(),
            "counts": counts,
            "agents": agents,
        });
        if self.is_csv {
            shown["job_id"] = self.id.as_str().into();
        }
        shown
    }

    fn member(&self, id: &str) -> Option<Arc<KeptAgent>> {
        self.members().iter().find(|kept| kept.id == id).cloned()
    }

    fn members(&self) -> MutexGuard<'_, Vec<Arc<KeptAgent>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
