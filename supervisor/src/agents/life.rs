//! Handing work to a subagent: the way of `task` (X0-20 to X0-23).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use callgate_policy::effect::ProgramRun;
use callgate_policy::effective::EffectiveSet;
use callgate_policy::envelope::{Metadata, ResultEnvelope};
use callgate_policy::failure::ErrorCode;
use callgate_policy::manifest::Agent;
use callgate_policy::path::HostPath;
use callgate_policy::remarks::remarks;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use super::kept::{AgentStatus, LifeTicket};
use super::program::{Answered, run_program};
use super::tools::{INBOX, REPORT};
use crate::bounds::{AGENT_DEPTH_MAX, AGENTS_MAX, FAMILY_MAX};
use crate::call::envelope::Done;
use crate::call::error::error_text;
use crate::causes::with_causes;
use crate::error::CallError;
use crate::gate::Known;
use crate::registry::{TASKS, Tool, started};
use crate::session::{AgentRunner, AgentService, AgentTask, InFlight, Opening, Reared, Session};
use crate::store::{Recorder, Recording};
use crate::trace::{self, Traceparent};
use crate::turn::Turn;

/// The completion of a subagent that ran in the background, in the record of its parent.
const COMPLETION: &str = "task-completion";
/// The line that tells an agent who has started it (X0-30).
const CALLER: &str = "Another agent has started you, and reads your answer.";

/// Whoever runs the agent, until it has its answer or what went wrong, in words.
type Work = Pin<Box<dyn Future<Output = Result<Answered, String>> + Send>>;

/// Who waits for the answer.
enum Waits {
    /// The call, as long as the sender is there.
    Call(oneshot::Receiver<()>),
    /// Nobody. It goes into the record of the parent, and to whoever keeps the agent.
    Nobody { keeps: Option<LifeTicket> },
}

/// All that a subagent is started with, but its place and its prompt.
#[derive(Clone)]
pub(super) struct Beginning {
    parent: String,
    opening: Opening,
    agent: Agent,
    name: String,
    metadata: Value,
    runner: Option<Arc<dyn AgentRunner>>,
    service: Option<Arc<AgentService>>,
    reared: Arc<Mutex<Reared>>,
    parents_stop: watch::Receiver<u64>,
    recorder: Arc<Recorder>,
    origin: String,
}

impl Beginning {
    /// Opening that the agent will be made with.
    pub(super) fn opening(&self) -> &Opening {
        &self.opening
    }

    /// True if what is sent to the agent can reach it: it has the tool for that, and can call it.
    pub(super) fn takes_input(&self) -> bool {
        self.opening.has(INBOX) && (self.runner.is_some() || self.service.is_some())
    }

    /// True if it can report what came of its row.
    pub(super) fn can_report(&self) -> bool {
        self.opening.has(REPORT) && (self.runner.is_some() || self.service.is_some())
    }

    /// Who serves the agent's program, if a program is.
    pub(super) fn service(&self) -> Option<Arc<AgentService>> {
        self.service.clone()
    }

    /// Hears when the parent stops its agents.
    pub(super) fn stops(&self) -> watch::Receiver<u64> {
        self.parents_stop.clone()
    }

    /// Once more, for another agent of the same kind.
    pub(super) fn again(&self, service: Option<Arc<AgentService>>) -> Self {
        Self { service, ..self.clone() }
    }

    /// Has a life of an agent begin in the background, as its parent keeps it. It ends with this future, or before.
    pub(super) async fn live_kept(self, ticket: LifeTicket, place: (InFlight, OwnedSemaphorePermit), tell: Tell) {
        let kept = ticket.agent();
        let life = Life {
            prompt: told_who_calls(&self.agent, &kept.prompt()),
            takes_input: self.takes_input(),
            place,
            beginning: Self { opening: self.opening.kept_as(kept), ..self },
            waits: Waits::Nobody { keeps: Some(ticket) },
        };
        // What came of it is kept.
        drop(life.live(tell).await);
    }
}

/// Hears the id of the agent's session once it works, or why it does not.
pub(super) type Tell = oneshot::Sender<Result<String, CallError>>;

fn told_who_calls(agent: &Agent, prompt: &str) -> String {
    if agent.knows_caller { format!("{CALLER}\n{prompt}") } else { prompt.to_owned() }
}

/// A subagent from its start to its end.
struct Life {
    beginning: Beginning,
    prompt: String,
    waits: Waits,
    place: (InFlight, OwnedSemaphorePermit),
    takes_input: bool,
}

impl Session {
    /// Rights in force for an agent, and the program that runs it, if one does.
    pub(crate) fn part_for_agent(&self, name: &str) -> Result<(EffectiveSet, Option<ProgramRun>), CallError> {
        let agent = self.subagent(name)?;
        let own = self.part_of_agent(name).ok_or_else(|| self.no_subagent(name))?;
        let own = own.map_err(|error| not_started(name, &with_causes(&error)))?;
        let argv: Vec<HostPath> = agent.runner.iter().map(|word| HostPath::from(word.as_str())).collect();
        Ok((own, (!argv.is_empty()).then(|| started(&argv, &self.root()))))
    }

    /// Starts a subagent for each task that a surface has found in the call, side by side (S3-4), or the one that the call names.
    pub(crate) async fn delegate_all(
        &self,
        tool: &Tool,
        (args, told, most): (&Value, &Map<String, Value>, &EffectiveSet),
        (known, call): (&mut Known, &str),
        _turn: Turn,
    ) -> Result<Done, CallError> {
        let Some(tasks) = told.get(TASKS).and_then(Value::as_array) else {
            return self.delegate(tool, (args, most), (known, call)).await;
        };
        let each = tasks.iter().map(|prompt| async {
            let mut args = args.clone();
            args["prompt"] = prompt.clone();
            match self.delegate(tool, (&args, most), (&mut Known::default(), call)).await {
                Ok(done) => done.data,
                Err(error) => json!({ "error": error_text(&error) }),
            }
        });
        let results = crate::call::batch::all(each).await;
        self.cut(tool, json!({ "results": results }))
    }

    /// Starts a subagent, and waits for its answer unless it is to work in the background.
    async fn delegate(
        &self,
        tool: &Tool,
        (args, most): (&Value, &EffectiveSet),
        (known, call): (&mut Known, &str),
    ) -> Result<Done, CallError> {
        let name = args["subagent_type"].as_str().unwrap_or_default();
        let beginning = self.beginning(tool, (name, &args["metadata"], None), (most, call))?;
        let place = self.place_for_agent()?;
        let prompt = args["prompt"].as_str().unwrap_or_default();
        let is_background = args["background"].as_bool() == Some(true);
        let (guard, left) = oneshot::channel();
        let is_inspectable = beginning.agent.inspectable;
        let life = Life {
            prompt: told_who_calls(&beginning.agent, prompt),
            waits: if is_background { Waits::Nobody { keeps: None } } else { Waits::Call(left) },
            place,
            takes_input: false,
            beginning,
        };
        let (tell, told) = oneshot::channel();
        // Whatever becomes of this call, what was begun is ended by whoever began it.
        let mut lives = tokio::spawn(trace::within(Traceparent::current(), life.live(tell)));
        if is_background {
            let broke = |_| CallError::Tool(format!("the subagent `{name}` broke"));
            let id = told.await.map_err(broke)??;
            return Ok(Done::of(json!({ "session_id": id })));
        }
        let timeout = tool.timeout.unwrap_or(crate::call::TIMEOUT);
        let Ok(lived) = tokio::time::timeout(timeout, &mut lives).await else {
            drop(guard);
            drop(lives.await);
            return Err(CallError::TimedOut(timeout));
        };
        drop(guard);
        let broke = |error| CallError::Tool(format!("the subagent `{name}` broke: {error}"));
        let Answered { output, changes } = lived.map_err(broke)??;
        let output = match output {
            Ok(output) => output,
            Err(text) => {
                known.changes = changes;
                return Err(CallError::Tool(text));
            }
        };
        let notes = changes.as_ref().map(|changes| remarks(changes, true)).unwrap_or_default();
        let id = told.await.ok().and_then(Result::ok).filter(|_| is_inspectable);
        let data = |output: &str| {
            let mut data = json!({ "output": output });
            if let Some(id) = id {
                data["session_id"] = id.into();
            }
            if !notes.is_empty() {
                data["notes"] = json!(notes);
            }
            data
        };
        Ok(Done { changes, ..self.cut_text(tool, &output, data) })
    }

    /// Arguments that a subagent is started with, if it may be: `only` are the tools that it has of those that it would
    /// have.
    pub(super) fn beginning(
        &self,
        tool: &Tool,
        (name, metadata, only): (&str, &Value, Option<&[String]>),
        (most, call): (&EffectiveSet, &str),
    ) -> Result<Beginning, CallError> {
        let agent = self.subagent(name)?;
        if self.family.rearing.depth >= AGENT_DEPTH_MAX {
            return Err(CallError::Told {
                code: ErrorCode::LimitExceeded,
                text: format!(
                    "subagents are nested at most {AGENT_DEPTH_MAX} deep, and this session is at that depth; do the work here"
                ),
            });
        }
        let is_program = !agent.runner.is_empty();
        let runner = self.family.rearing.runner.clone().filter(|_| !is_program);
        if !is_program && runner.is_none() {
            return Err(CallError::Tool(format!(
                "nobody runs the subagent `{name}` here: its manifest names no program (`runner`), and this host runs none"
            )));
        }
        Ok(Beginning {
            parent: self.id.clone(),
            opening: self.opening(name, most, (call, only)).ok_or_else(|| self.no_subagent(name))?,
            agent: agent.clone(),
            name: name.to_owned(),
            metadata: metadata.clone(),
            runner,
            service: self.service_for_agent(name)?,
            reared: self.family.children.reared_by(),
            parents_stop: self.family.children.listen(),
            recorder: Arc::clone(&self.recorder),
            origin: tool.origin.to_string(),
        })
    }

    /// Who serves the program of an agent, if a program is.
    pub(super) fn service_for_agent(&self, name: &str) -> Result<Option<Arc<AgentService>>, CallError> {
        let is_program = !self.subagent(name)?.runner.is_empty();
        let endpoint = self.family.rearing.endpoint.as_ref().filter(|_| is_program);
        Ok(endpoint.map(|endpoint| Arc::new(endpoint.service())))
    }

    /// A place for one more.
    pub(super) fn place_for_agent(&self) -> Result<(InFlight, OwnedSemaphorePermit), CallError> {
        let Some(place) = self.family.children.enter() else {
            return Err(CallError::Told {
                code: ErrorCode::ResourceBusy,
                text: format!(
                    "{AGENTS_MAX} subagents of this session are in flight, and there are at most {AGENTS_MAX}; wait until one of \
                     them has ended"
                ),
            });
        };
        let Some(of_family) = self.family.rearing.ancestry.places.take() else {
            return Err(CallError::Told {
                code: ErrorCode::ResourceBusy,
                text: format!(
                    "{FAMILY_MAX} subagents are in flight together, below the session that began, and there are at most {FAMILY_MAX}; \
                 wait until one of them has ended"
                ),
            });
        };
        Ok((place, of_family))
    }

    pub(crate) fn subagent(&self, name: &str) -> Result<&Agent, CallError> {
        let agent = self.manifest.as_ref().and_then(|manifest| manifest.agents.get(name));
        agent.filter(|agent| agent.mode.is_subagent()).ok_or_else(|| self.no_subagent(name))
    }

    pub(crate) fn no_subagent(&self, name: &str) -> CallError {
        let agents = self.manifest.iter().flat_map(|manifest| &manifest.agents);
        let known: Vec<&str> =
            agents.filter(|(_, agent)| agent.mode.is_subagent()).map(|(name, _)| name.as_str()).collect();
        CallError::Told {
            code: ErrorCode::NotFound,
            text: format!("there is no subagent `{name}`; there are: {}", known.join(", ")),
        }
    }
}

fn not_started(name: &str, what: &str) -> CallError {
    CallError::Tool(format!("the subagent `{name}` could not be started: {what}"))
}

impl Life {
    /// From the opening of its session until it has its answer, its parent stops it, or whoever waits for it does not any more.
    /// When this returns, nothing of it runs. `tell` hears its session's id once it works.
    async fn live(self, tell: Tell) -> Result<Answered, CallError> {
        let Self { beginning, prompt, waits, place, takes_input } = self;
        let Beginning {
            parent,
            opening,
            agent,
            name,
            metadata,
            runner,
            service,
            reared,
            mut parents_stop,
            recorder,
            origin,
        } = beginning;
        let child = match opening.open(&reared).await {
            Ok(child) => child,
            Err(error) => {
                let what = with_causes(&error);
                if let Waits::Nobody { keeps } = waits {
                    has_failed(keeps, &not_started(&name, &what));
                }
                drop(tell.send(Err(not_started(&name, &what))));
                return Err(not_started(&name, &what));
            }
        };
        let id = child.id().to_owned();
        let (left, completion, keeps) = match waits {
            Waits::Call(left) => (Some(left), None, None),
            Waits::Nobody { keeps } => {
                let mut arguments = json!({ "subagent_type": name, "session_id": id });
                if let Some(ticket) = &keeps {
                    arguments["agent_id"] = ticket.agent().id.as_str().into();
                }
                let mut completion = recorder.propose(COMPLETION, &origin, &arguments);
                // Nothing runs that is not recorded.
                if let Err(error) = completion.start().await {
                    child.end_child().await;
                    let error = CallError::from(error);
                    has_failed(keeps, &error);
                    drop(tell.send(Err(error)));
                    return Err(CallError::Ended);
                }
                (None, Some(completion), keeps)
            }
        };
        let begins = keeps.as_ref().is_none_or(|ticket| ticket.runs(&id, takes_input));
        drop(tell.send(Ok(id.clone())));
        let work: Work = match runner {
            None => Box::pin(run_program(Arc::clone(&child), agent.runner, prompt, service)),
            Some(runner) => {
                let (session, depth) = (Arc::clone(&child), child.family.rearing.depth);
                let task = AgentTask { agent: name, prompt, metadata, depth, parent, session };
                Box::pin(async move {
                    let output = unbroken(async move { runner.run(task).await }).await;
                    Ok(Answered { output, changes: None })
                })
            }
        };
        let is_left = async {
            match left {
                Some(left) => drop(left.await),
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            biased;
            // It was cancelled while its session was opened.
            () = std::future::ready(()), if !begins => Err(CallError::Ended),
            _ = parents_stop.changed() => Err(CallError::Ended),
            error = is_to_end(keeps.as_ref()) => Err(error),
            () = is_left => Err(CallError::Ended),
            done = work => done.map_err(CallError::Tool),
        };
        let is_halted = child.is_halted();
        child.end_child().await;
        drop((child, place));
        let outcome = match outcome {
            // X1-41: nobody could be asked, and that is for its parent to know.
            _ if is_halted => Err(CallError::Halted {
                tool: "task".to_owned(),
                why: "a call of the subagent needs an approval, and there is nobody to ask".to_owned(),
            }),
            outcome => outcome,
        };
        let Some(completion) = completion else { return outcome };
        let (status, text) = ending(&outcome, keeps.as_ref());
        complete(completion, &id, outcome).await;
        if let Some(ticket) = keeps {
            ticket.ends(status, &text);
        }
        Err(CallError::Ended)
    }
}

/// Ends the life of an agent that is kept, which could not begin.
fn has_failed(ticket: Option<LifeTicket>, error: &CallError) {
    if let Some(ticket) = ticket {
        ticket.ends(AgentStatus::Failed, &error_text(error));
    }
}

/// Waits until the life of an agent that is kept is to end, and says why.
async fn is_to_end(ticket: Option<&LifeTicket>) -> CallError {
    let Some(ticket) = ticket else { return std::future::pending().await };
    let most = ticket.agent().time;
    let time = async {
        match most {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = ticket.cancelled() => CallError::Ended,
        () = time => CallError::TimedOut(most.unwrap_or_default()),
    }
}

/// How an agent has ended for whoever keeps it, and its answer or why it has none.
fn ending(outcome: &Result<Answered, CallError>, ticket: Option<&LifeTicket>) -> (AgentStatus, String) {
    match outcome {
        Ok(Answered { output: Ok(output), .. }) => (AgentStatus::Completed, output.clone()),
        Ok(Answered { output: Err(text), .. }) => (AgentStatus::Failed, text.clone()),
        Err(CallError::Ended) if ticket.is_some_and(LifeTicket::is_cancelled) => {
            (AgentStatus::Cancelled, "it was cancelled".to_owned())
        }
        Err(CallError::Ended) => {
            (AgentStatus::Interrupted, "the session that started it was aborted, or has ended".to_owned())
        }
        Err(CallError::TimedOut(time)) => (AgentStatus::Failed, format!("its time was up ({}s)", time.as_secs())),
        Err(error) => (AgentStatus::Failed, error_text(error)),
    }
}

/// Result of whoever runs an agent. If it panics, the agent has failed, and its session is ended as any other.
async fn unbroken(run: impl Future<Output = Result<String, String>> + Send) -> Result<String, String> {
    let mut run = Box::pin(run);
    let poll = move |context: &mut std::task::Context<'_>| {
        let polled = catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context)));
        polled.unwrap_or_else(|_panic| Poll::Ready(Err("whoever runs this subagent broke (it panicked)".to_owned())))
    };
    std::future::poll_fn(poll).await
}

/// X0-23: the answer of a subagent in the background is a message of its own. If this process ends before, the next opening of
/// the store ends it as an error.
async fn complete(completion: Recording, session: &str, outcome: Result<Answered, CallError>) {
    let mut metadata = Metadata::new(0);
    match outcome {
        Ok(Answered { output, changes }) => {
            metadata.changes = changes;
            let mut envelope = match output {
                Ok(output) => ResultEnvelope::output(json!({ "output": output, "session_id": session }), metadata),
                Err(text) => {
                    metadata.error = Some(ErrorCode::ToolExecutionFailed.into());
                    ResultEnvelope::error(text, metadata)
                }
            };
            completion.end(&mut envelope).await;
        }
        Err(CallError::Ended) => completion.cancel(&mut ResultEnvelope::error("", metadata)).await,
        Err(error) => {
            metadata.error = Some(error.code().into());
            completion.end(&mut ResultEnvelope::error(error_text(&error), metadata)).await;
        }
    }
}
