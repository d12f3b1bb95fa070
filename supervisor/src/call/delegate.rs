//! Handing work to a subagent: the way of `task` (X0-20 to X0-23).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use callgate_policy::effective::EffectiveSet;
use callgate_policy::envelope::{Changes, Metadata, ResultEnvelope};
use callgate_policy::failure::ErrorCode;
use callgate_policy::manifest::Agent;
use callgate_policy::need::ShellNeed;
use callgate_policy::path::HostPath;
use callgate_policy::remarks::remarks;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use super::envelope::Done;
use super::error::error_text;
use super::spawn::OfAgent;
use super::{CallError, Known};
use crate::causes::with_causes;
use crate::confine::{Endpoint, Stdio};
use crate::registry::{TASKS, Tool, started};
use crate::session::{
    AGENT_DEPTH_MAX, AGENTS_MAX, AgentRunner, AgentService, AgentTask, FAMILY_MAX, InFlight, Opening, Reared, Served,
    Session,
};
use crate::store::{Recorder, Recording};
use crate::trace::{self, Traceparent};
use crate::turn::Turn;

/// The completion of a subagent that ran in the background, in the record of its parent.
const COMPLETION: &str = "task-completion";
/// Most bytes of an answer.
const ANSWER_MAX: u64 = 4 * 1024 * 1024;
/// Most bytes of what a program says on standard error when it fails.
const COMPLAINT_MAX: usize = 4 * 1024;
/// The line that tells an agent who has started it (X0-30).
const CALLER: &str = "Another agent has started you, and reads your answer.";

/// What a subagent has answered or what went wrong, in words; and what is known of its program however it ended.
struct Answered {
    output: Result<String, String>,
    changes: Option<Changes>,
}

/// Whoever runs the agent, until it has its answer or what went wrong, in words.
type Work = Pin<Box<dyn Future<Output = Result<Answered, String>> + Send>>;

/// Who waits for the answer.
enum Waits {
    /// The call, as long as the sender is there.
    Call(oneshot::Receiver<()>),
    /// Nobody. It goes into the record of the parent.
    Nobody { recorder: Arc<Recorder>, origin: String },
}

/// A subagent from its start to its end.
struct Life {
    parent: String,
    opening: Opening,
    agent: Agent,
    name: String,
    prompt: String,
    metadata: Value,
    runner: Option<Arc<dyn AgentRunner>>,
    /// Who serves its program.
    service: Option<AgentService>,
    reared: Arc<Mutex<Reared>>,
    parents_stop: watch::Receiver<u64>,
    waits: Waits,
    place: (InFlight, OwnedSemaphorePermit),
}

impl Session {
    /// What is in force for an agent, and the program that runs it, if one does.
    pub(super) fn part_for_agent(&self, name: &str) -> Result<(EffectiveSet, Option<ShellNeed>), CallError> {
        let agent = self.subagent(name)?;
        let own = self.part_of_agent(name).ok_or_else(|| self.no_subagent(name))?;
        let own = own.map_err(|error| not_started(name, &with_causes(&error)))?;
        let argv: Vec<HostPath> = agent.runner.iter().map(|word| HostPath::from(word.as_str())).collect();
        Ok((own, (!argv.is_empty()).then(|| started(&argv, &self.root()))))
    }

    /// Starts a subagent for each task that a surface has found in the call, side by side (S3-4), or the one that the call names.
    pub(super) async fn delegate_all(
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
        let results = super::batch::all(each).await;
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
        let agent = self.subagent(name)?;
        if self.rearing.depth >= AGENT_DEPTH_MAX {
            return Err(CallError::Told {
                code: ErrorCode::LimitExceeded,
                text: format!(
                    "subagents are nested at most {AGENT_DEPTH_MAX} deep, and this session is at that depth; do the work here"
                ),
            });
        }
        let is_program = !agent.runner.is_empty();
        let runner = self.rearing.runner.clone().filter(|_| !is_program);
        if !is_program && runner.is_none() {
            return Err(CallError::Tool(format!(
                "nobody runs the subagent `{name}` here: its manifest names no program (`runner`), and this host runs none"
            )));
        }
        let Some(place) = self.children.enter() else {
            return Err(CallError::Told {
                code: ErrorCode::ResourceBusy,
                text: format!(
                    "{AGENTS_MAX} subagents of this session are in flight, and there are at most {AGENTS_MAX}; wait until one of \
                 them has ended"
                ),
            });
        };
        let Some(of_family) = self.rearing.ancestry.places.take() else {
            return Err(CallError::Told {
                code: ErrorCode::ResourceBusy,
                text: format!(
                    "{FAMILY_MAX} subagents are in flight together, below the session that began, and there are at most {FAMILY_MAX}; \
                 wait until one of them has ended"
                ),
            });
        };
        let prompt = args["prompt"].as_str().unwrap_or_default();
        let is_background = args["background"].as_bool() == Some(true);
        let (guard, left) = oneshot::channel();
        let life = Life {
            parent: self.id.clone(),
            opening: self.opening(name, most, call).ok_or_else(|| self.no_subagent(name))?,
            agent: agent.clone(),
            name: name.to_owned(),
            prompt: if agent.knows_caller { format!("{CALLER}\n{prompt}") } else { prompt.to_owned() },
            metadata: args["metadata"].clone(),
            runner,
            service: self.rearing.endpoint.as_ref().filter(|_| is_program).map(|endpoint| endpoint.service()),
            reared: self.children.reared_by(),
            parents_stop: self.children.listen(),
            waits: match is_background {
                true => Waits::Nobody { recorder: Arc::clone(&self.recorder), origin: tool.origin.to_string() },
                false => Waits::Call(left),
            },
            place: (place, of_family),
        };
        let (tell, told) = oneshot::channel();
        // Whatever becomes of this call, what was begun is ended by whoever began it.
        let mut lives = tokio::spawn(trace::within(Traceparent::current(), life.live(tell)));
        if is_background {
            let broke = |_| CallError::Tool(format!("the subagent `{name}` broke"));
            let id = told.await.map_err(broke)??;
            return Ok(Done::of(json!({ "session_id": id })));
        }
        let timeout = tool.timeout.unwrap_or(super::TIMEOUT);
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
        let id = told.await.ok().and_then(Result::ok).filter(|_| agent.inspectable);
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

    fn subagent(&self, name: &str) -> Result<&Agent, CallError> {
        let agent = self.manifest.as_ref().and_then(|manifest| manifest.agents.get(name));
        agent.filter(|agent| agent.mode.is_subagent()).ok_or_else(|| self.no_subagent(name))
    }

    fn no_subagent(&self, name: &str) -> CallError {
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
    async fn live(self, tell: oneshot::Sender<Result<String, CallError>>) -> Result<Answered, CallError> {
        let Self {
            parent,
            opening,
            agent,
            name,
            prompt,
            metadata,
            runner,
            service,
            reared,
            mut parents_stop,
            waits,
            place,
        } = self;
        let child = match opening.open(&reared).await {
            Ok(child) => child,
            Err(error) => {
                let what = with_causes(&error);
                drop(tell.send(Err(not_started(&name, &what))));
                return Err(not_started(&name, &what));
            }
        };
        let id = child.id().to_owned();
        let (left, completion) = match waits {
            Waits::Call(left) => (Some(left), None),
            Waits::Nobody { recorder, origin } => {
                let arguments = json!({ "subagent_type": name, "session_id": id });
                let mut completion = recorder.propose(COMPLETION, &origin, &arguments);
                // Nothing runs that is not recorded.
                if let Err(error) = completion.start().await {
                    child.end_child().await;
                    drop(tell.send(Err(error.into())));
                    return Err(CallError::Ended);
                }
                (None, Some(completion))
            }
        };
        drop(tell.send(Ok(id.clone())));
        let work: Work = match runner {
            None => Box::pin(run_program(Arc::clone(&child), agent.runner, prompt, service)),
            Some(runner) => {
                let (session, depth) = (Arc::clone(&child), child.rearing.depth);
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
            _ = parents_stop.changed() => Err(CallError::Ended),
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
        complete(completion, &id, outcome).await;
        Err(CallError::Ended)
    }
}

/// What whoever runs an agent returns. If it panics, the agent has failed, and its session is ended as any other.
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

/// What `work` returns. Until then, `other` is done as well.
async fn beside<T>(other: impl Future<Output = ()>, work: impl Future<Output = T>) -> T {
    let other = async {
        other.await;
        std::future::pending().await
    };
    tokio::select! {
        biased;
        done = work => done,
        never = other => never,
    }
}

/// Runs a program as the agent: the prompt on its standard input, its answer on standard output.
async fn run_program(
    child: Arc<Session>,
    argv: Vec<String>,
    prompt: String,
    service: Option<AgentService>,
) -> Result<Answered, String> {
    if let Some(ShellNeed::Program { argv }) =
        argv.first().map(|program| started(&[program.as_str().into()], &child.root()))
        && let Some(why) = argv.first().and_then(|program| child.chosen_by_calls(program))
    {
        return Err(format!("{why}; a runner is a program that no call can change"));
    }
    let failed = |what: &str, error: &dyn std::error::Error| format!("{}: {what}: {}", argv[0], with_causes(error));
    let (stdio, pipes) = Stdio::piped().map_err(|error| failed("make its pipes", &error))?;
    let begun = std::time::Instant::now();
    // It is a part of the child, and ends with it.
    let turn = child.agents_program.take(crate::turn::Concurrency::SideBySide).await;
    let (mut served, endpoint) = match service {
        Some(service) => {
            let (ours, brokers) = Endpoint::pair().map_err(|error| failed("make its endpoint", &error))?;
            (Some(Served::new(ours, service)), Some(brokers))
        }
        None => (None, None),
    };
    let agents = OfAgent { turn, endpoint };
    let program = child.spawn_agent(&argv, stdio, agents).await.map_err(|error| error_text(&error))?;
    let (mut input, mut output, mut error) = pipes.into_async().map_err(|error| failed("wait on its pipes", &error))?;
    let feed = async {
        // One that does not read its prompt has its reasons.
        drop(input.write_all(prompt.as_bytes()).await);
        drop(input);
    };
    let answer = async {
        let mut answer = Vec::new();
        let read = (&mut output).take(ANSWER_MAX + 1).read_to_end(&mut answer).await;
        if answer.len() as u64 > ANSWER_MAX {
            program.abort().await.ok();
        }
        read.map(|_| answer)
    };
    let complaint = async {
        let (mut last, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
        while let Ok(got @ 1..) = error.read(&mut buffer).await {
            last.extend_from_slice(&buffer[..got]);
            let excess = last.len().saturating_sub(COMPLAINT_MAX);
            last.drain(..excess);
        }
        last
    };
    let serve = async {
        if let Some(served) = &mut served {
            served.serve(&child).await;
        }
    };
    let work = async { tokio::join!(feed, answer, complaint, program.wait()) };
    let ((), answer, complaint, end) = beside(serve, work).await;
    if let Some(served) = served {
        served.end().await;
    }
    let end = end.map_err(|error| failed("wait for its end", &error))?;
    let report = child.report(&program, &end, begun.elapsed());
    let changes = report.metadata.changes;
    let answer = answer.map_err(|error| failed("read its answer", &error))?;
    if answer.len() as u64 > ANSWER_MAX {
        let output = Err(format!("{} answered with more than {ANSWER_MAX} bytes", argv[0]));
        return Ok(Answered { output, changes });
    }
    if end.code == Some(0) {
        return Ok(Answered { output: Ok(String::from_utf8_lossy(&answer).into_owned()), changes });
    }
    let ended = match (end.code, end.signal) {
        (Some(code), _) => format!("it ended with status {code}"),
        (None, Some(signal)) => format!("it was ended by signal {signal}"),
        (None, None) => "it was ended".to_owned(),
    };
    let limit =
        child.ended_for(&end).map(|denial| format!(" ({}: {})", denial.asked, denial.reason)).unwrap_or_default();
    let mut failure =
        format!("{}: {ended}{limit}; it had written: {}", argv[0], String::from_utf8_lossy(&complaint).trim_end());
    for note in changes.iter().flat_map(|changes| remarks(changes, true)) {
        failure.push_str("; ");
        failure.push_str(&note);
    }
    Ok(Answered { output: Err(failure), changes })
}
