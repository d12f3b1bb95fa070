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
/// Reason of the end of a life that never began.
pub(crate) const UNBEGUN: &str = "it was cancelled before it had a place";

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
}

/// One life of an agent, from its start, or from the next one, to its end. An agent has one at a time: whoever has the ticket begins
/// that life and says how it ends, and the ticket of a life that is over changes nothing any more. Dropped, it ends its life: whatever
/// becomes of an agent, that ends for whoever waits.
#[derive(Debug)]
pub(crate) struct LifeTicket {
    agent: Arc<KeptAgent>,
    /// Which of its agent's lives.
    life: u32,
    cancel: watch::Receiver<bool>,
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
    /// Number of the life that is its last.
    life: u32,
    status: AgentStatus,
    /// Asks that life to end.
    cancel: watch::Sender<bool>,
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
            life: 1,
            status: AgentStatus::Pending,
            cancel: watch::Sender::new(false),
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
        }
    }

    /// Keeps it, with its first life.
    pub(crate) fn begins(self) -> LifeTicket {
        let agent = Arc::new(self);
        let (life, cancel) = {
            let known = agent.known();
            (known.life, known.cancel.subscribe())
        };
        LifeTicket { agent, life, cancel }
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

    /// Starts another life, with another task or another prompt. `None` if its last one has not ended.
    pub(crate) fn starts_again(self: &Arc<Self>, task: &str, prompt: &str) -> Option<LifeTicket> {
        let mut known = self.known();
        if !known.status.has_ended() {
            return None;
        }
        known.life += 1;
        known.cancel = watch::Sender::new(false);
        (known.status, known.session, known.took) = (AgentStatus::Pending, None, None);
        (known.began, known.end) = (Instant::now(), AgentEnd::default());
        task.clone_into(&mut known.task);
        prompt.clone_into(&mut known.prompt);
        let ticket = LifeTicket::of(self, &known);
        drop(known);
        // What its last life has not read was about that.
        self.inbox().clear();
        self.news.send_replace(());
        Some(ticket)
    }

    /// Asks its life to end. That of a swarm's that has not begun is over at once: nobody takes it up before others have ended.
    pub(crate) fn cancel(&self) {
        let mut known = self.known();
        known.cancel.send_replace(true);
        if known.status == AgentStatus::Pending && self.item.is_some() {
            known.ends(AgentStatus::Cancelled, UNBEGUN, self.keeps);
        }
        drop(known);
        self.news.send_replace(());
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

impl AgentState {
    /// Its life has ended. Only the first end counts.
    fn ends(&mut self, status: AgentStatus, text: &str, keeps: usize) {
        if self.status.has_ended() {
            return;
        }
        self.status = status;
        self.took = Some(self.began.elapsed());
        let kept = Some(text[..text.floor_char_boundary(keeps)].to_owned());
        if status == AgentStatus::Completed {
            (self.end.output_len, self.end.output) = (text.len(), kept);
        } else {
            self.end.error = kept;
        }
    }
}

impl Drop for LifeTicket {
    fn drop(&mut self) {
        self.end(AgentStatus::Interrupted, "whoever started it stopped");
    }
}

impl LifeTicket {
    /// A ticket of the life that an agent has.
    fn of(agent: &Arc<KeptAgent>, known: &AgentState) -> Self {
        Self { agent: Arc::clone(agent), life: known.life, cancel: known.cancel.subscribe() }
    }

    pub(crate) fn agent(&self) -> &Arc<KeptAgent> {
        &self.agent
    }

    /// True if it has ended, whatever its agent does now.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over_in(&self.agent.known())
    }

    fn is_over_in(&self, known: &AgentState) -> bool {
        known.life != self.life || known.status.has_ended()
    }

    /// It works, in this session. `false` if it is over: then nothing of it may begin.
    #[must_use]
    pub(crate) fn runs(&self, session: &str, takes_input: bool) -> bool {
        let mut known = self.agent.known();
        if self.is_over_in(&known) {
            return false;
        }
        known.status = AgentStatus::Running;
        known.session = Some(session.to_owned());
        known.takes_input = takes_input;
        known.runs += 1;
        drop(known);
        self.agent.news.send_replace(());
        true
    }

    /// It has ended, unless it was over before.
    pub(crate) fn ends(self, status: AgentStatus, text: &str) {
        self.end(status, text);
    }

    fn end(&self, status: AgentStatus, text: &str) {
        let mut known = self.agent.known();
        if !self.is_over_in(&known) {
            known.ends(status, text, self.agent.keeps);
        }
        drop(known);
        self.agent.news.send_replace(());
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *self.cancel.borrow()
    }

    /// Waits until it is asked to end, or its agent has another life.
    pub(crate) async fn cancelled(&self) {
        drop(self.cancel.clone().wait_for(|is| *is).await);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> LifeTicket {
        let swarm = Arc::new(Swarm::new("job_1".to_owned(), true));
        KeptAgent::new(("agent_1".to_owned(), "any"), None, "do").of_swarm(&swarm, "r1".to_owned()).begins()
    }

    /// X2-19: an agent has one life at a time, and what is said of one that is over changes nothing of the next.
    #[test]
    fn x2_19_a_life_that_is_over_changes_nothing() {
        let first = row();
        let agent = Arc::clone(first.agent());
        assert!(agent.starts_again("do", "do").is_none(), "it has not ended");
        agent.cancel();
        assert_eq!((agent.status(), first.is_over(), first.is_cancelled()), (AgentStatus::Cancelled, true, true));
        assert!(!first.runs("ses_1", true), "nothing of it begins");
        let second = agent.starts_again("do", "do").expect("it has ended");
        assert!(!second.is_over() && !second.is_cancelled());
        assert!(second.runs("ses_2", true), "the control");
        assert!(first.is_over() && !first.runs("ses_1", true), "its agent runs, and it does not");
        assert_eq!((&agent.shown(false)["session_id"], &agent.shown(false)["runs"]), (&json!("ses_2"), &json!(1)));
        first.ends(AgentStatus::Completed, "of the first");
        assert_eq!(agent.status(), AgentStatus::Running, "neither its end nor its drop is that of the second");
        agent.cancel();
        assert!(second.is_cancelled() && !second.is_over(), "who runs it ends it");
        second.ends(AgentStatus::Completed, "of the second");
        assert_eq!(agent.ending(), (AgentStatus::Completed, "of the second".to_owned()));
    }

    /// A life that nobody begins or follows any more has ended, for whoever waits.
    #[test]
    fn a_ticket_that_is_dropped_ends_its_life() {
        let ticket = row();
        let agent = Arc::clone(ticket.agent());
        assert_eq!(agent.status(), AgentStatus::Pending);
        drop(ticket);
        assert_eq!(agent.status(), AgentStatus::Interrupted);
    }
}
