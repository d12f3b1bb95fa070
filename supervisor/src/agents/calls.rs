//! S2's calls about subagents (S2-21, X2-19, C-31): over the way of `task`, with agents that a session keeps by an id.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use callgate_policy::effect::Effects;
use callgate_policy::effective::EffectiveSet;
use callgate_policy::failure::ErrorCode;
use callgate_policy::path::{HostPath, normalize};
use callgate_policy::plan::CallWork;
use callgate_policy::plan::compile::{self, CallSpec};
use callgate_tools::csv_tasks;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::kept::{AgentStatus, KeptAgent, LifeTicket, Swarm, UNBEGUN};
use super::life::Beginning;
use super::tools::{INBOX, REPORT};
use crate::bounds::{AGENTS_MAX, CSV_WORKERS_MAX, ROWS_MAX};
use crate::call::envelope::Done;
use crate::error::CallError;
use crate::gate::ApprovedPlan;
use crate::id::new_id;
use crate::registry::{AgentsAct, Delegation};
use crate::registry::{Tool, time};
use crate::session::{InFlight, Places, Queue, Session};
use crate::trace::{self, Traceparent};
use crate::turn::{Concurrency, Turns};

/// Bounds on what a call may ask for, and what it gets if it does not: for an answer (X2-19), milliseconds.
const RESULT_TIMES: (u64, u64) = (1000, 3_600_000);
/// Times to wait for several.
const WAIT_TIMES: (u64, u64) = (10_000, 3_600_000);
/// For both.
const WAITS: Duration = Duration::from_secs(30);
/// Times for a message.
const INBOX_TIMES: (u64, u64) = (0, 600_000);
/// Types that are any agent, where the manifest has none of that name.
const ANY: [&str; 2] = ["general", "custom"];
/// The type that has explicit tools.
const CUSTOM: &str = "custom";

/// Wait of several agents: their first lives, in order, and their places. What is left of them ends with this.
struct SwarmQueue {
    lives: Mutex<VecDeque<LifeTicket>>,
    swarm: Arc<Swarm>,
    queue: Queue,
    places: Places,
    /// How many of the session may be in flight.
    most: usize,
}

impl Session {
    /// The manifest's agent that a call is about.
    pub(crate) fn agent_of(&self, how: Delegation, args: &Value) -> Result<String, CallError> {
        if how == Delegation::Task {
            return Ok(args["subagent_type"].as_str().unwrap_or_default().to_owned());
        }
        if how.is_about_one() {
            return Ok(self.kept_agent(args)?.agent.clone());
        }
        let asked = args["type"].as_str().unwrap_or("general");
        if asked == CUSTOM && args["allowed_tools"].as_array().is_none_or(Vec::is_empty) {
            return Err(CallError::Arguments(
                "an agent of the type `custom` has explicit tools: name them in `allowed_tools`".to_owned(),
            ));
        }
        if self.subagent(asked).is_ok() {
            return Ok(asked.to_owned());
        }
        let agents = self.manifest.iter().flat_map(|manifest| &manifest.agents);
        let first = agents.filter(|(_, agent)| agent.mode.is_subagent()).map(|(name, _)| name);
        let general = self.subagent(ANY[0]).is_ok().then(|| ANY[0].to_owned());
        let any = general.or_else(|| first.into_iter().next().cloned()).filter(|_| ANY.contains(&asked));
        any.ok_or_else(|| CallError::Told {
            code: ErrorCode::NotFound,
            text: format!(
                "{}. A type is an agent of the manifest; to have this one, declare `[agents.{asked}]`",
                self.no_subagent(asked)
            ),
        })
    }

    /// Task of the agent that a call has go on.
    pub(crate) fn task_before(&self, how: Delegation, args: &Value) -> Result<Option<String>, CallError> {
        match how {
            Delegation::Resume => self.kept_agent(args).map(|kept| Some(kept.task())),
            Delegation::Task
            | Delegation::Spawn
            | Delegation::Swarm
            | Delegation::Csv
            | Delegation::Assign
            | Delegation::Input => Ok(None),
        }
    }

    /// Has subagents work in the background. None is waited for.
    pub(crate) async fn start_agents(
        &self,
        tool: &Tool,
        how: Delegation,
        (args, most): (&Value, &EffectiveSet),
        call: &str,
    ) -> Result<Done, CallError> {
        if !self.sandbox.opened.has_readers() {
            let text = "this session is for one call, and an agent in the background would end with it; use `task`";
            return Err(CallError::Tool(text.to_owned()));
        }
        match how {
            Delegation::Spawn => {
                let only = only(args);
                let kept = KeptAgent::new(
                    (agent_id()?, args["subagent_type"].as_str().unwrap_or_default()),
                    only,
                    text(args, "prompt"),
                );
                let beginning = self.beginning_of(tool, &kept, (most, call))?;
                let place = self.place_for_agent()?;
                let ticket = kept.begins();
                let kept = Arc::clone(ticket.agent());
                // Before it begins: if nobody waits for this call any more, it can still be found, and cancelled.
                self.family.agents.add(Arc::clone(&kept));
                if let Err(error) = self.start_one(ticket, beginning, place).await {
                    self.family.agents.forget(&kept.id);
                    return Err(error);
                }
                Ok(Done::of(kept.shown(false)))
            }
            Delegation::Swarm => self.start_swarm(tool, args, (most, call)),
            Delegation::Csv => self.start_on_csv(tool, args, (most, call)).await,
            Delegation::Input => {
                let kept = self.kept_agent(args)?;
                send(&kept, text(args, "message").to_owned())?;
                Ok(delivered(&kept, "queued"))
            }
            Delegation::Assign => {
                let kept = self.kept_agent(args)?;
                let prompt = text(args, "prompt");
                if !kept.status().has_ended() {
                    send(&kept, format!("Your task is now another one:\n{prompt}"))?;
                    return Ok(delivered(&kept, "queued"));
                }
                self.start_again(tool, (&kept, prompt, prompt), (most, call)).await
            }
            Delegation::Resume => {
                let kept = self.kept_agent(args)?;
                let (status, said) = kept.ending();
                let said = &said[..said.floor_char_boundary(TOLD_AGAIN)];
                let mut prompt = format!(
                    "{}\n\nYou worked on this before, and that ended ({status:?}). What came of it:\n{said}",
                    kept.task()
                );
                if let Some(message) = args["message"].as_str() {
                    prompt.push_str("\n\nGo on with this:\n");
                    prompt.push_str(message);
                }
                self.start_again(tool, (&kept, &kept.task(), &prompt), (most, call)).await
            }
            Delegation::Task => Err(CallError::Tool("`task` starts its agents by itself".to_owned())),
        }
    }

    fn beginning_of(
        &self,
        tool: &Tool,
        kept: &KeptAgent,
        (most, call): (&EffectiveSet, &str),
    ) -> Result<Beginning, CallError> {
        let only = kept.only.as_deref();
        let beginning = self.beginning(tool, (&kept.agent, &Value::Null, only), (most, call))?;
        let has = |name: &&String| beginning.opening().names().contains(name) || beginning.opening().has(name);
        if let Some(unknown) = only.iter().copied().flatten().find(|name| !has(name)) {
            let all = self.beginning(tool, (&kept.agent, &Value::Null, None), (most, call))?;
            return Err(CallError::Arguments(format!(
                "the agent `{}` has no tool `{unknown}` that it could be narrowed to; it has: {}",
                kept.agent,
                all.opening().names().join(", ")
            )));
        }
        Ok(beginning)
    }

    /// Starts a life, and returns when it works.
    async fn start_one(
        &self,
        ticket: LifeTicket,
        beginning: Beginning,
        place: (InFlight, OwnedSemaphorePermit),
    ) -> Result<(), CallError> {
        let (tell, told) = oneshot::channel();
        let agent = ticket.agent().agent.clone();
        let lives = beginning.live_kept(ticket, place, tell);
        // Whatever becomes of this call, what was begun is ended by whoever began it.
        drop(tokio::spawn(trace::within(Traceparent::current(), lives)));
        let broke = |_| CallError::Tool(format!("the subagent `{agent}` broke"));
        told.await.map_err(broke)?.map(drop)
    }

    async fn start_again(
        &self,
        tool: &Tool,
        (kept, task, prompt): (&Arc<KeptAgent>, &str, &str),
        (most, call): (&EffectiveSet, &str),
    ) -> Result<Done, CallError> {
        let beginning = self.beginning_of(tool, kept, (most, call))?;
        // A place first: one that is not started stays as it is.
        let place = self.place_for_agent()?;
        let ticket = kept.starts_again(task, prompt).ok_or_else(|| runs(kept))?;
        self.start_one(ticket, beginning, place).await?;
        Ok(delivered(kept, "started"))
    }

    fn start_swarm(&self, tool: &Tool, args: &Value, about: (&EffectiveSet, &str)) -> Result<Done, CallError> {
        let tasks = args["tasks"].as_array().into_iter().flatten().enumerate().map(|(number, task)| {
            let id = task["id"].as_str().map_or_else(|| (number + 1).to_string(), str::to_owned);
            (id, text(task, "prompt").to_owned())
        });
        let swarm = Swarm::new(new_id("swarm_").map_err(random)?, false);
        self.start_several(tool, (args, tasks.collect()), (swarm, AGENTS_MAX, None), about)
    }

    /// Has a worker make tasks of a file's rows, and starts an agent for each.
    async fn start_on_csv(&self, tool: &Tool, args: &Value, about: (&EffectiveSet, &str)) -> Result<Done, CallError> {
        let number = |name: &str, default: u64| args[name].as_u64().unwrap_or(default);
        let tasks = self.tasks_of_csv(args).await?;
        let swarm = Swarm::new(new_id("job_").map_err(random)?, true);
        let workers = usize::try_from(number("max_concurrency", u64::MAX)).unwrap_or(usize::MAX).min(CSV_WORKERS_MAX);
        let time = Duration::from_secs(number("max_runtime_seconds", ROW_TIME));
        let reports = {
            let kept = KeptAgent::new((agent_id()?, text(args, "subagent_type")), only(args), "");
            self.beginning_of(tool, &kept, about)?.can_report()
        };
        let told = |(id, prompt): (String, String)| {
            let report = format!("\n\nWhen you are done, report with {REPORT}: job_id `{}`, item_id `{id}`.", swarm.id);
            let prompt = if reports { format!("{prompt}{report}") } else { prompt };
            (id, prompt)
        };
        let tasks = tasks.into_iter().map(told).collect();
        self.start_several(tool, (args, tasks), (swarm, workers, Some(time)), about)
    }

    async fn tasks_of_csv(&self, args: &Value) -> Result<Vec<(String, String)>, CallError> {
        let bad = |reason: String| CallError::Arguments(format!("argument `csv_path`: {reason}"));
        let given: HostPath = serde_json::from_value(args["csv_path"].clone()).map_err(|e| bad(e.to_string()))?;
        let path = normalize(&self.root(), &given).map_err(|e| bad(e.to_string()))?;
        let needs = Effects::default().showing(path.clone());
        let grant = self.check(&needs)?;
        let work = CallWork::Tool { name: csv_tasks::NAME.to_owned(), paths: vec![path], limit: 0 };
        let mut plan = compile::call(
            &grant,
            &self.sandbox.facts,
            CallSpec { work, bounds: self.sandbox.bounds, timeout: READ_TIME },
        )?;
        // Rules have judged the path, and not where a link leads.
        plan.as_spelt = true;
        let turn = Turns::default().take(Concurrency::SideBySide).await;
        let args = json!({ "instruction": args["instruction"], "id_column": args["id_column"], "most": ROWS_MAX });
        let run = self.sandbox.opened.tool(ApprovedPlan::of_the_rows(plan), args, turn).await?;
        let said = run.end.map_err(|error| CallError::Told { text: error.text, code: error.code })?;
        let tasks = said.data["tasks"].as_array().into_iter().flatten();
        Ok(tasks.map(|task| (text(task, "id").to_owned(), text(task, "prompt").to_owned())).collect())
    }

    /// Starts several, as places come free.
    pub(super) fn start_several(
        &self,
        tool: &Tool,
        (args, tasks): (&Value, Vec<(String, String)>),
        (swarm, workers, time): (Swarm, usize, Option<Duration>),
        about: (&EffectiveSet, &str),
    ) -> Result<Done, CallError> {
        if !self.family.agents.has_room_for_a_swarm() {
            let text = "too many swarms are under way; wait until one of them has ended".to_owned();
            return Err(CallError::Told { code: ErrorCode::ResourceBusy, text });
        }
        let agent = args["subagent_type"].as_str().unwrap_or_default();
        let swarm = Arc::new(swarm);
        let mut lives = VecDeque::new();
        for (item, prompt) in tasks {
            let kept = KeptAgent::new((agent_id()?, agent), only(args), &prompt).of_swarm(&swarm, item).within(time);
            lives.push_back(kept.begins());
        }
        let Some(first) = lives.front() else {
            return Err(CallError::Arguments("there is nothing to do: no row, and no task".to_owned()));
        };
        let beginning = self.beginning_of(tool, first.agent(), about)?;
        let workers = workers.min(lives.len());
        lives.iter().for_each(|ticket| swarm.add(Arc::clone(ticket.agent())));
        self.family.agents.add_swarm(Arc::clone(&swarm));
        let most = if swarm.is_csv { CSV_WORKERS_MAX } else { AGENTS_MAX };
        let (queue, places) = (self.family.children.queue(), self.family.rearing.ancestry.places.clone());
        let waiting = Arc::new(SwarmQueue { lives: Mutex::new(lives), swarm: Arc::clone(&swarm), queue, places, most });
        for _ in 0..workers {
            // Each serves its agents by itself, one after the other.
            let its = beginning.again(self.service_for_agent(agent)?);
            drop(tokio::spawn(trace::within(Traceparent::current(), work_through(Arc::clone(&waiting), its))));
        }
        Ok(Done::of(swarm.shown(false)))
    }

    /// Answers a call about agents. Nobody waits for one that waits itself.
    pub(crate) async fn about_agents(&self, tool: &Tool, act: AgentsAct, args: &Value) -> Result<Done, CallError> {
        match act {
            AgentsAct::Result => {
                let kept = self.kept_agent(args)?;
                let timed_out = waits(args, kept.ended()).await;
                let mut shown = kept.shown(true);
                shown["timed_out"] = timed_out.into();
                let Some(Value::String(output)) = shown.get_mut("output").map(Value::take) else {
                    return Ok(Done::of(shown));
                };
                Ok(self.cut_text(tool, &output, |output| {
                    shown["output"] = output.into();
                    shown
                }))
            }
            AgentsAct::SwarmStatus => Ok(Done::of(self.swarm(args)?.shown(false))),
            AgentsAct::SwarmResult => {
                let swarm = self.swarm(args)?;
                let timed_out = waits(args, swarm.ended()).await;
                let mut shown = swarm.shown(true);
                shown["timed_out"] = timed_out.into();
                self.cut(tool, shown)
            }
            AgentsAct::Wait => self.wait_for_agents(args).await,
            AgentsAct::Cancel => {
                let kept = self.kept_agent(args)?;
                if kept.status().has_ended() {
                    // C-31: nothing else changes.
                    self.family.agents.forget(&kept.id);
                    return Ok(Done::of(kept.shown(false)));
                }
                kept.cancel();
                kept.ended().await;
                Ok(Done::of(kept.shown(false)))
            }
            AgentsAct::List => {
                let agents = self.family.agents.each();
                let running = agents.iter().filter(|kept| kept.status() == AgentStatus::Running).count();
                let agents: Vec<Value> = agents.iter().map(|kept| kept.shown(false)).collect();
                self.cut(tool, json!({ "agents": agents, "running": running, "max_running": AGENTS_MAX }))
            }
            AgentsAct::Report => self.report_row(args),
            AgentsAct::Inbox => {
                let Some(kept) = &self.family.kept else {
                    return Err(CallError::Tool("whoever started you keeps nothing for you".to_owned()));
                };
                let time = time(args, INBOX_TIMES).unwrap_or_default();
                Ok(Done::of(json!({ "messages": kept.messages(time).await })))
            }
        }
    }

    async fn wait_for_agents(&self, args: &Value) -> Result<Done, CallError> {
        let ids: Vec<&str> = args["ids"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let agents = match ids.is_empty() {
            true => self.family.agents.each().into_iter().filter(|kept| !kept.status().has_ended()).collect(),
            false => ids.iter().map(|id| self.kept(id)).collect::<Result<Vec<_>, _>>()?,
        };
        let is_all = args["wait_mode"].as_str() == Some("all");
        let ended = async {
            if is_all || agents.is_empty() {
                for kept in &agents {
                    kept.ended().await;
                }
            } else {
                any(agents.iter().map(|kept| kept.ended())).await;
            }
        };
        let timed_out = tokio::time::timeout(time(args, WAIT_TIMES).unwrap_or(WAITS), ended).await.is_err();
        let agents: Vec<Value> = agents.iter().map(|kept| kept.shown(false)).collect();
        Ok(Done::of(json!({ "agents": agents, "timed_out": timed_out })))
    }

    /// Takes the result of the row that this session works on.
    fn report_row(&self, args: &Value) -> Result<Done, CallError> {
        let item =
            self.family.kept.as_ref().and_then(|kept| Some((kept, kept.item.as_ref().filter(|item| item.is_of_csv)?)));
        let Some((kept, item)) = item else {
            return Err(CallError::Tool(format!(
                "this session works on no row; {REPORT} is for the agents of spawn_agents_on_csv"
            )));
        };
        if (args["job_id"].as_str(), args["item_id"].as_str()) != (Some(&item.swarm_id), Some(&item.id)) {
            return Err(CallError::Arguments(format!(
                "this session works on the item `{}` of the job `{}`, and reports of no other",
                item.id, item.swarm_id
            )));
        }
        let size = args["result"].to_string().len();
        if size > ROW_MAX {
            let text = format!("the result has {size} bytes of JSON, and at most {ROW_MAX} are kept; say less");
            return Err(CallError::Told { code: ErrorCode::LimitExceeded, text });
        }
        let recorded = kept.reports(args["result"].clone());
        if args["stop"].as_bool() == Some(true) {
            item.stop_swarm();
        }
        Ok(Done::of(json!({ "recorded": recorded })))
    }

    fn kept_agent(&self, args: &Value) -> Result<Arc<KeptAgent>, CallError> {
        self.kept(args["agent_id"].as_str().unwrap_or_default())
    }

    fn kept(&self, id: &str) -> Result<Arc<KeptAgent>, CallError> {
        self.family.agents.find(id).ok_or_else(|| {
            let known: Vec<_> = self.family.agents.each().iter().map(|kept| kept.id.clone()).take(LISTED).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            CallError::Told {
                code: ErrorCode::NotFound,
                text: format!(
                    "there is no agent `{id}` of this session; there are: {known}. Agents end with the process that has opened their \
                     session, and of those that have ended the last 64 are kept"
                ),
            }
        })
    }

    fn swarm(&self, args: &Value) -> Result<Arc<Swarm>, CallError> {
        let id = args["swarm_id"].as_str().unwrap_or_default();
        self.family.agents.swarm(id).ok_or_else(|| CallError::Told {
            code: ErrorCode::NotFound,
            text: format!("there is no swarm `{id}` of this session; of those that have ended the last 8 are kept"),
        })
    }
}

/// How long a row's agent may take if the call does not say (X2-19), seconds.
const ROW_TIME: u64 = 1800;
/// How long the file of the rows may take to read.
const READ_TIME: Duration = Duration::from_secs(30);
/// Most bytes of JSON that a row's agent reports.
const ROW_MAX: usize = 16 * 1024;
/// Most bytes of an answer that an agent is told when it is started again.
const TOLD_AGAIN: usize = 16 * 1024;
/// Most ids in an error.
const LISTED: usize = 20;

/// Starts one agent after the other, until there is nothing more to do or nobody wants it.
async fn work_through(waiting: Arc<SwarmQueue>, beginning: Beginning) {
    let mut stops = beginning.stops();
    loop {
        let next = waiting.lives.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(ticket) = next else { return };
        // Its agent may have another life by now, and that is not this queue's.
        if ticket.is_over() {
            continue;
        }
        if waiting.swarm.stops() {
            ticket.ends(AgentStatus::Cancelled, "an agent of its job has stopped the job");
            continue;
        }
        let place = async {
            let place = waiting.queue.enter(waiting.most).await;
            Some((place, waiting.places.wait().await?))
        };
        let place = tokio::select! {
            biased;
            _ = stops.changed() => {
                let why = "the session that started it was aborted, or has ended";
                let rest = std::mem::take(&mut *waiting.lives.lock().unwrap_or_else(PoisonError::into_inner));
                std::iter::once(ticket).chain(rest).for_each(|ticket| ticket.ends(AgentStatus::Interrupted, why));
                return;
            }
            () = ticket.cancelled() => {
                ticket.ends(AgentStatus::Cancelled, UNBEGUN);
                continue;
            }
            place = place => place,
        };
        let Some(place) = place else { return };
        let (tell, _told) = oneshot::channel();
        let its = beginning.again(beginning.service());
        Box::pin(its.live_kept(ticket, place, tell)).await;
    }
}

/// Waits until one of them is done.
async fn any(futures: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut all: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        let is_done = all.iter_mut().any(|one| one.as_mut().poll(context).is_ready());
        if is_done { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// Waits for an end if that is asked for, and says whether it did not come.
async fn waits(args: &Value, ended: impl Future<Output = ()>) -> bool {
    let time = match args["block"].as_bool() {
        Some(false) => Duration::ZERO,
        Some(true) | None => time(args, RESULT_TIMES).unwrap_or(WAITS),
    };
    tokio::time::timeout(time, ended).await.is_err()
}

/// Puts a message where its agent finds it.
fn send(kept: &KeptAgent, message: String) -> Result<(), CallError> {
    let told = |text: String, code| Err(CallError::Told { code, text });
    if kept.status().has_ended() {
        let text = format!("the agent `{}` has ended ({:?}); agent_assign gives it a new task", kept.id, kept.status());
        return told(text, ErrorCode::InputInvalid);
    }
    if kept.status() == AgentStatus::Pending {
        let text = format!("the agent `{}` has not begun yet, so it takes no message; wait until it runs", kept.id);
        return told(text, ErrorCode::ResourceBusy);
    }
    if !kept.takes_input() {
        return told(
            format!(
                "the agent `{}` takes no input while it runs: it has no tool `{INBOX}`, or cannot call tools. Wait until it has ended, \
                 and give it the task with agent_assign; or name `{INBOX}` in the `tools` of `[agents.{}]`",
                kept.id, kept.agent
            ),
            ErrorCode::InputInvalid,
        );
    }
    if kept.tell(message) {
        Ok(())
    } else {
        told(format!("the agent `{}` has not read its last 64 messages", kept.id), ErrorCode::ResourceBusy)
    }
}

fn runs(kept: &KeptAgent) -> CallError {
    let text = format!("the agent `{}` has not ended; agent_send_input sends it a message", kept.id);
    CallError::Told { code: ErrorCode::ResourceBusy, text }
}

fn delivered(kept: &KeptAgent, how: &str) -> Done {
    let mut shown = kept.shown(false);
    shown["delivered"] = how.into();
    Done::of(shown)
}

/// The tools that a call narrows its agents to.
fn only(args: &Value) -> Option<Vec<String>> {
    let names = args["allowed_tools"].as_array()?;
    Some(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

fn text<'a>(args: &'a Value, name: &str) -> &'a str {
    args[name].as_str().unwrap_or_default()
}

fn agent_id() -> Result<String, CallError> {
    new_id("agent_").map_err(random)
}

fn random(source: std::io::Error) -> CallError {
    CallError::Output { what: "make an id for the agent", source }
}
