//! Subagents: sessions that a session starts (X0-20 to X0-30).
//!
//! A child is opened as any other session is, with its parent's rights as one more bound, its parent's rules and watchdogs, and
//! tools that its parent has. What its ancestors may write counts where links are looked for that a call may have planted. Its
//! workspace is that directory which its parent holds, and not what has its name by now.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use callgate_policy::effective::{Bound, EffectiveSet, Source};
use callgate_policy::limit::Limits;
use callgate_policy::manifest::Env;
use callgate_policy::path::HostPath;
use callgate_policy::plan::{AskedFor, compile};
use callgate_policy::rules::{Action, Rule, RuleScope, RuleSet, RuleSource};
use callgate_worker::way::Id;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::agents::{Agents, Kept};
use super::endpoint::AgentEndpoint;
use super::open::{bounds, effective};
use super::rules::rules;
use super::tools::{Inherited, chosen_by_calls, has_skills, replaced_by_calls};
use super::{Session, SessionSpec};
use crate::bounds::{AGENTS_MAX, FAMILY_MAX};
use crate::credentials::Credentials;
use crate::gate::people::Approver;
use crate::gate::{Halt, Watchdogs};
use crate::open_error::OpenError;
use crate::place::Place;
use crate::registry::hosted::agents::INBOX;
use crate::registry::hosted::skill;
use crate::registry::{Registry, Tool, ToolState};
use crate::store::{Parent, Room};
use crate::supervisor::Supervisor;
use crate::turn::Turns;

/// Runs agents whose manifest names no program: a host's own loop of model and tools ([`SessionSpec::agent_runner`]).
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

/// Relation of a child to its ancestors.
#[derive(Clone)]
pub(crate) struct Lineage {
    pub(crate) supervisor: Supervisor,
    pub(crate) parent: String,
    /// The call that has started it.
    pub(crate) call: String,
    pub(crate) agent: String,
    pub(crate) is_listed: bool,
    pub(crate) depth: usize,
    pub(crate) bound: Bound,
    pub(crate) rules: RuleSet,
    pub(crate) watchdogs: Arc<Watchdogs>,
    /// Taken when it is opened.
    pub(crate) inherited: Option<Inherited>,
    pub(crate) roots: Vec<Id>,
    pub(crate) ancestry: Ancestry,
    pub(crate) halt: Arc<Halt>,
    /// Held while a person is asked.
    pub(crate) asking: Arc<tokio::sync::Mutex<()>>,
    /// Record that its parent keeps of it, if it does.
    pub(crate) kept: Option<Arc<Kept>>,
}

impl Lineage {
    pub(super) fn asking(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.asking)
    }

    pub(super) fn halt(&self) -> Arc<Halt> {
        Arc::clone(&self.halt)
    }

    /// Relation to its parent, as it is recorded.
    pub(crate) fn parent(&self) -> Parent<'_> {
        let Self { parent, agent, call, is_listed, .. } = self;
        Parent { session: parent, agent, call, is_listed: *is_listed, room: &self.ancestry.room }
    }
}

/// A child that is to be opened.
#[derive(Clone)]
pub(crate) struct Opening {
    spec: SessionSpec,
    lineage: Lineage,
    /// How many rules its parent had been given when its own were taken from it.
    rules: usize,
}

/// Subagents of a session, and its own place among them.
pub(crate) struct Family {
    /// The subagents that it has started.
    pub(crate) children: Children,
    /// Records of those that work in the background.
    pub(crate) agents: Agents,
    /// Record that its parent keeps of it, if it is a subagent that works in the background.
    pub(crate) kept: Option<Arc<Kept>>,
    pub(crate) rearing: Rearing,
    /// Turns of the program that is this session's agent, if a program is.
    pub(crate) agents_program: Turns,
}

impl Family {
    pub(super) fn new(rearing: Rearing, kept: Option<Arc<Kept>>) -> Self {
        let (children, agents) = (Children::default(), Agents::default());
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
    rules: Vec<Rule>,
    live: Vec<Weak<Session>>,
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

impl Session {
    /// Specification of a session for one of the manifest's agents, and the tools that there are for it. `None` if
    /// there is no such agent.
    fn spec_for_agent(&self, agent: &str) -> Option<(SessionSpec, Registry)> {
        let manifest = self.manifest.as_ref()?;
        let declared = manifest.agents.get(agent)?;
        let mut manifest = manifest.of_agent(agent)?;
        let mut tools = Registry::clone(&self.registry());
        if let Err(error) = tools.add_inbox() {
            tracing::warn!(error = &error as &dyn std::error::Error, "a subagent takes no input");
        }
        let tools =
            tools.only(|tool| self.tools.lifecycle.state(&tool.name) == ToolState::Active && !tool.is_single_level());
        if let Some(wanted) = &mut manifest.tools {
            wanted.retain(|name| tools.tools().any(|tool| tool.is_called(name)));
        }
        // A variable may hold a credential, whatever it is called (X0-27).
        let mut env = self.family.rearing.env.clone();
        env.pass.retain(|name| declared.env.contains(name));
        env.set.retain(|name, _| declared.env.contains(name));
        manifest.env = Env::default();
        let spec = SessionSpec {
            workspace: self.sandbox.roots.iter().map(|root| root.path().as_path().to_owned()).collect(),
            ad_hoc: self.family.rearing.ad_hoc.clone(),
            user_data: self.family.rearing.user_data.clone(),
            manifest: Some(manifest),
            profile: Some(self.gate.profile.clone()),
            strength: self.strength().into(),
            limits: self.family.rearing.limits,
            env,
            watch_execs: self.family.rearing.watch_execs,
            approvers: self.family.rearing.approvers.clone(),
            patience: self.family.rearing.patience,
            coercion: self.tools.coercion,
            title: Some(agent.to_owned()),
            allow_home: self.family.rearing.allow_home,
            agent_runner: self.family.rearing.runner.clone(),
            agent_endpoint: self.family.rearing.endpoint.clone(),
            ..SessionSpec::new(PathBuf::new())
        };
        Some((spec, tools))
    }

    /// The most that one of the manifest's agents gets: what it asks for with its tools, and its ceiling and this session leave.
    pub(crate) fn part_of_agent(&self, agent: &str) -> Option<Result<EffectiveSet, OpenError>> {
        let (mut spec, tools) = self.spec_for_agent(agent)?;
        let offered = spec.manifest.as_ref().and_then(|manifest| manifest.tools.as_ref());
        let tools = tools.only(|tool| offered.is_none_or(|offered| offered.iter().any(|name| tool.is_called(name))));
        if has_skills(&tools)
            && let Some(requires) = skill::requires(&self.sandbox.unlinked)
        {
            spec.requires.push((Source::Tool("skill".to_owned()), requires));
        }
        let own = bounds(&spec, &self.gate.profile, &self.variables).and_then(|mut bounds| {
            bounds.push(self.effective.as_parent());
            Ok(effective(&spec, &bounds, &tools, &self.variables)?.0)
        });
        Some(own)
    }

    /// The rules that hold in a session for one of the manifest's agents.
    pub(crate) fn rules_of_agent(&self, agent: &str) -> Option<Result<RuleSet, OpenError>> {
        let (spec, tools) = self.spec_for_agent(agent)?;
        let inherited = self.gate.rules().inherited();
        Some(rules(&spec, Some(inherited), &self.gate.profile, &tools, &self.variables))
    }

    /// A session for one of the manifest's agents, with `most` at most in force. `None` if there is no such agent.
    /// `only` are the tools that it has of those that it would have.
    pub(crate) fn opening(
        &self,
        agent: &str,
        most: &EffectiveSet,
        (call, only): (&str, Option<&[String]>),
    ) -> Option<Opening> {
        let (mut spec, tools) = self.spec_for_agent(agent)?;
        if let (Some(manifest), Some(only)) = (&mut spec.manifest, only) {
            manifest.tools = Some(narrowed(manifest.tools.take(), only, &tools));
        }
        let is_listed = self.manifest.as_ref()?.agents.get(agent)?.inspectable;
        let reared = self.family.children.reared();
        let rules = self.gate.rules().inherited();
        let lineage = Lineage {
            supervisor: self.family.rearing.supervisor.clone(),
            parent: self.id.clone(),
            call: call.to_owned(),
            agent: agent.to_owned(),
            is_listed,
            depth: self.family.rearing.depth + 1,
            bound: most.as_parent(),
            rules,
            watchdogs: Arc::clone(&self.gate.watchdogs),
            inherited: Some(Inherited { tools, skills: self.notebook.skills.found() }),
            roots: self.sandbox.roots.iter().map(Place::id).collect(),
            ancestry: self.family.rearing.ancestry.clone(),
            halt: Arc::clone(&self.gate.halt),
            asking: self.gate.people.turn(),
            kept: None,
        };
        Some(Opening { spec, lineage, rules: reared.rules.len() })
    }

    /// A rule that denies or asks was added to its parent: it holds here too, whatever its own rules say (X0-25).
    fn inherit(&self, rule: &Rule) -> Result<(), OpenError> {
        let source = RuleSource { scope: RuleScope::Session, place: "its parent's session".to_owned() };
        let mut reared = self.family.children.reared();
        let mut rules = self.gate.rules_to_change();
        rules.inherit(rule, &source, &self.variables).map_err(OpenError::Rule)?;
        drop(rules);
        reared.pass_on(rule)
    }

    /// Reason why calls of its ancestors, or its own, would choose what this program is.
    pub(crate) fn chosen_by_calls(&self, program: &HostPath) -> Option<String> {
        chosen_by_calls(program, self.most(), &self.sandbox.facts.path)
    }

    /// Reason why calls of this session would choose what a command is that another session starts: its program, or a
    /// place that its arguments or its own variables name where they may write, whatever is there now. Not what is
    /// `data`: places as those have them, on which the command works and from which it loads nothing.
    ///
    /// It finds what somebody has overlooked who wrote the command. What a command loads by itself, or by a name that leads
    /// elsewhere, is not seen.
    #[must_use]
    pub fn would_choose(
        &self,
        argv: &[OsString],
        variables: &[OsString],
        data: &[OsString],
        other: &Self,
    ) -> Option<String> {
        let (program, arguments) = argv.split_first()?;
        let path = |word: &OsStr| HostPath::from(PathBuf::from(word));
        if let Some(why) = chosen_by_calls(&path(program), self.most(), &other.sandbox.facts.path) {
            return Some(why);
        }
        arguments.iter().chain(variables).find_map(|word| {
            // `--repository=/x` names a place as well.
            let bytes = word.as_bytes();
            let value = bytes.iter().position(|byte| *byte == b'=').map_or(bytes, |at| &bytes[at + 1..]);
            let value = OsStr::from_bytes(value);
            if data.iter().any(|place| place == value || place == word) {
                return None;
            }
            let written = compile::written(self.most());
            // Anywhere in a word: `sh -c "cd /x && …"`.
            let named = written.iter().find(|place| {
                let place = place.as_bytes();
                place.len() > 1 && bytes.windows(place.len()).any(|part| part == place)
            });
            named.map(|place| format!("{} names {place}, where calls may write", word.display())).or_else(|| {
                let is_there = Path::new(value).is_absolute() && std::fs::symlink_metadata(value).is_ok();
                is_there.then(|| replaced_by_calls(&path(value), self.most()))?
            })
        })
    }

    /// The most that its family may.
    fn most(&self) -> &EffectiveSet {
        self.family.rearing.ancestry.most.as_deref().unwrap_or(&self.effective)
    }

    /// Ends a child: what is in flight is aborted, and nothing runs in it from now on, whoever has kept it.
    pub(crate) async fn end_child(&self) {
        self.aborts.end();
        self.abort().await;
        self.background.end().await;
        self.sandbox.opened.end_programs().await;
        if let Err(error) = self.recorder.close() {
            tracing::warn!(error = &error as &dyn std::error::Error, "the end of a subagent's session is not recorded");
        }
    }
}

/// Tools that are named among those that an agent would have. What its parent sends it comes by none of them.
fn narrowed(offered: Option<Vec<String>>, only: &[String], tools: &Registry) -> Vec<String> {
    let is_wanted = |tool: &Tool| tool.own_name() == INBOX || only.iter().any(|name| tool.is_called(name));
    let is_offered = |tool: &Tool| match &offered {
        Some(offered) => offered.iter().any(|name| tool.is_called(name)),
        // As without a list: a server's tools come by name alone.
        None => !tool.is_a_servers(),
    };
    tools.tools().filter(|tool| is_offered(tool) && is_wanted(tool)).map(|tool| tool.name.clone()).collect()
}

impl Opening {
    /// This opening for an agent that its parent keeps.
    pub(crate) fn kept_as(mut self, kept: &Arc<Kept>) -> Self {
        self.lineage.kept = Some(Arc::clone(kept));
        self
    }

    /// True if the child will have a tool, by its own name.
    pub(crate) fn has(&self, tool: &str) -> bool {
        self.tools().iter().any(|has| has.own_name() == tool)
    }

    /// The names of the tools that it will have.
    pub(crate) fn names(&self) -> Vec<String> {
        self.tools().iter().map(|tool| tool.name.clone()).collect()
    }

    fn tools(&self) -> Vec<&Tool> {
        let offered = self.spec.manifest.as_ref().and_then(|manifest| manifest.tools.as_ref());
        let is_offered = |tool: &&Tool| match offered {
            Some(offered) => offered.iter().any(|name| tool.is_called(name)),
            None => !tool.is_a_servers(),
        };
        let inherited = self.lineage.inherited.iter();
        inherited.flat_map(|inherited| inherited.tools.tools()).filter(is_offered).collect()
    }

    /// Opens it. From now on it hears of what its parent is given.
    pub(crate) async fn open(self, reared: &Mutex<Reared>) -> Result<Arc<Session>, OpenError> {
        let Self { spec, lineage, rules } = self;
        let supervisor = lineage.supervisor.clone();
        let child = Arc::new(Box::pin(supervisor.open_with(spec, None, Some(lineage))).await?);
        let missed = {
            let mut reared = reared.lock().unwrap_or_else(PoisonError::into_inner);
            reared.live.retain(|child| child.strong_count() > 0);
            reared.live.push(Arc::downgrade(&child));
            reared.rules.iter().skip(rules).try_for_each(|rule| child.inherit(rule))
        };
        if let Err(error) = missed {
            child.end_child().await;
            return Err(error);
        }
        Ok(child)
    }
}
