//! Programs in the background: their start, their life, and the calls about them (S2-12, S2-13, X2-3, X2-4).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use callgate_policy::effect::{Effect, Effects, ProgramRun};
use callgate_policy::envelope::{Enforced, Metadata, ResultEnvelope};
use callgate_policy::failure::ErrorCode;
use serde_json::{Map, Value, json};
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::kept::{BackgroundTask, Ended, Status};
use super::typed::UnfinishedLine;
use crate::bounds::RUNNING_MAX;
use crate::call::envelope::Done;
use crate::call::error::not_started;
use crate::call::exec_shell::{SHOWN, object, status_of};
use crate::call::shell::add_notes;
use crate::causes::with_causes;
use crate::confine::{ConfineError, WindowSize};
use crate::error::CallError;
use crate::gate::ApprovedPlan;
use crate::gate::Known;
use crate::id::new_id;
use crate::registry::BackgroundAct;
use crate::registry::{ShellCall, Tool, input, refuse_two_inputs, time};
use crate::run::{
    Listener, Orders, ProgramEnded, ProgramInput, ProgramStream, Running, Stop, Streams, Surroundings, limits,
};
use crate::session::Session;
use crate::store::Recording;
use crate::trace::{self, Traceparent};
use crate::turn::Turn;

/// The end of a task, in the record of its session.
const COMPLETION: &str = "exec_shell-completion";
/// How large a task's terminal is.
const SIZE: WindowSize = WindowSize { rows: 24, columns: 80 };
/// How long is waited where a call says nothing: for the end of a task, and for its answer to an input (X2-3).
const WAITS: Duration = Duration::from_secs(5);
const ANSWERS: Duration = Duration::from_secs(1);
/// Bounds on what a call may ask for, milliseconds.
const TIMES: (u64, u64) = (1, 600_000);
/// The fact that a call is told about its task: what has been typed of a line that is not ended.
const BEHIND: &str = "typed_before";
/// How much of a command a list shows, characters.
const LISTED: usize = 200;

/// Who follows a task until its end.
struct Follower {
    task: Arc<BackgroundTask>,
    program: Running,
    /// Input that it reads first.
    stdin: Option<Vec<u8>>,
    surroundings: Surroundings,
    enforced: Vec<Enforced>,
    recording: Recording,
}

impl Session {
    /// Starts a program that goes on when its call is over.
    pub(crate) async fn start_in_background(
        &self,
        tool: &Tool,
        (plan, call, command): (ApprovedPlan, ShellCall<'_>, &str),
        known: &mut Known,
    ) -> Result<Done, CallError> {
        if !self.sandbox.opened.has_readers() {
            let text = "this session is for one call, and a task in the background would end with it; run it in the foreground";
            return Err(CallError::Tool(text.to_owned()));
        }
        let Some(place) = self.background.enter() else {
            return Err(CallError::Told {
                code: ErrorCode::ResourceBusy,
                text: format!(
                    "{RUNNING_MAX} tasks of this session run in the background, and there are at most {RUNNING_MAX}; cancel one \
                     (exec_shell_cancel), or wait until one has ended"
                ),
            });
        };
        let (streams, input) = self.streams(call.has_terminal)?;
        let started = Running::start(&self.sandbox.opened, plan.serving_session(), streams, place).await;
        let program = started.map_err(not_started)?;
        known.steps = program.steps().to_vec();
        let random = |source| CallError::Output { what: "make an id for the task", source };
        let id = new_id("task_").map_err(random)?;
        let about = json!({ "task_id": id, "command": command });
        let mut recording = self.recorder.propose(COMPLETION, &tool.origin.to_string(), &about);
        // Nothing runs that is not recorded: what was started ends with this.
        recording.start().await?;
        let task = Arc::new(BackgroundTask::new(
            (id, command.to_owned()),
            call.has_terminal,
            (input, call.stdin),
            program.aborter(),
        ));
        let follower = Follower {
            task: Arc::clone(&task),
            stdin: call.stdin.map(|stdin| stdin.as_bytes().to_vec()),
            surroundings: self.surroundings(),
            enforced: crate::call::enforced(self, program.steps()),
            recording,
            program,
        };
        self.background.add(Arc::clone(&task));
        let follows = tokio::spawn(trace::within(Traceparent::current(), follower.follow()));
        task.is_followed_by(follows.abort_handle());
        let mut data = self.confinement(false);
        data.extend(object(json!({
            "status": Status::Running,
            "task_id": task.id,
            "exit_code": null,
            "signal": null,
            "stdout": "",
            "stderr": "",
            "stdout_len": 0,
            "stderr_len": 0,
            "stdout_truncated": false,
            "stderr_truncated": false,
            "stdout_omitted": 0,
            "stderr_omitted": 0,
            "summary": format!("started in the background as {}", task.id),
            "duration_ms": limits::ms(task.age()),
        })));
        Ok(Done::of(Value::Object(data)))
    }

    fn streams(&self, has_terminal: bool) -> Result<(Streams, ProgramInput), CallError> {
        if has_terminal {
            let terminal = self.terminal(SIZE).map_err(|error| CallError::Tool(with_causes(&error)))?;
            return Ok(Streams::terminal(terminal));
        }
        Streams::piped().map_err(|source| CallError::Output { what: "make pipes for the task", source })
    }

    /// Answers a call about tasks. Whoever stops waiting leaves the task as it is (X2-4).
    ///
    /// The call keeps its turn until it has its place among those who type to its task, so that inputs come in the order of their
    /// calls. Nobody waits for one that waits itself.
    pub(crate) async fn about_background(
        &self,
        act: BackgroundAct,
        (args, told): (&Value, &Map<String, Value>),
        turn: Turn,
    ) -> Result<Done, CallError> {
        match act {
            BackgroundAct::List => Ok(Done::of(self.listed())),
            BackgroundAct::Cancel => {
                let tasks = self.to_cancel(args)?;
                tasks.iter().for_each(|task| task.stop(Stop::Terminate));
                drop(turn);
                for task in &tasks {
                    task.until(|heard| heard.end.is_some()).await;
                }
                Ok(Done::of(json!({ "tasks": tasks.iter().map(|task| about(task)).collect::<Vec<_>>() })))
            }
            BackgroundAct::Wait => {
                drop(turn);
                let task = self.task(args)?;
                if args["wait"].as_bool() != Some(false) {
                    let is_full = |unread: usize| unread >= SHOWN;
                    let waits = task.until(|heard| {
                        heard.end.is_some() || is_full(heard.stdout.len()) || is_full(heard.stderr.len())
                    });
                    // What is there is the answer, whether it has ended or not.
                    drop(tokio::time::timeout(time(args, TIMES).unwrap_or(WAITS), waits).await);
                }
                Ok(delta(&task, None))
            }
            BackgroundAct::Interact => {
                refuse_two_inputs(args).map_err(|error| CallError::Arguments(error.to_string()))?;
                let task = self.task(args)?;
                let deadline = Instant::now() + time(args, TIMES).unwrap_or(ANSWERS);
                let bytes = input(args).unwrap_or_default().as_bytes();
                let closes = args["close_stdin"].as_bool() == Some(true);
                let before = task.heard().total();
                let mut input = pin!(task.input.lock());
                let first = poll_fn(|context| Poll::Ready(input.as_mut().poll(context))).await;
                drop(turn);
                let input = async {
                    match first {
                        Poll::Ready(input) => input,
                        Poll::Pending => input.await,
                    }
                };
                let behind = told.get(BEHIND).and_then(Value::as_str).unwrap_or_default();
                let typed = type_to((&task, behind), input, (bytes, closes), deadline).await;
                let has_typed = closes || !bytes.is_empty();
                let answers = task.until(|heard| {
                    let is_new = !has_typed || heard.total() > before;
                    heard.end.is_some() || (is_new && heard.is_readable())
                });
                drop(tokio::time::timeout_at(deadline, answers).await);
                Ok(delta(&task, has_typed.then_some(typed)))
            }
        }
    }

    /// Says of a text that is typed to a task which program reads it, and behind what.
    pub(crate) fn complete_typed(&self, effects: &mut Effects, told: &mut Map<String, Value>) {
        for effect in &mut effects.own {
            if let Effect::Runs(ProgramRun::Typed { to, before, on_terminal, .. }) = effect
                && let Some(task) = self.background.find(to)
            {
                *before = task.line().text().to_owned();
                *on_terminal = task.has_terminal;
                *to = format!("{to} (`{}`)", task.command);
                if !before.is_empty() {
                    told.insert(BEHIND.to_owned(), before.clone().into());
                }
            }
        }
    }

    fn task(&self, args: &Value) -> Result<Arc<BackgroundTask>, CallError> {
        let id = args["task_id"].as_str().unwrap_or_default();
        self.background.find(id).ok_or_else(|| {
            let known: Vec<_> = self.background.all().iter().map(|task| task.id.clone()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            CallError::Told {
                code: ErrorCode::NotFound,
                text: format!(
                    "there is no task `{id}` in this session; there are: {known}. Tasks end with the process that has opened their \
                     session, and of those that have ended the last 64 are kept"
                ),
            }
        })
    }

    fn to_cancel(&self, args: &Value) -> Result<Vec<Arc<BackgroundTask>>, CallError> {
        match (args.get("task_id").is_some(), args["all"].as_bool() == Some(true)) {
            (true, false) => Ok(vec![self.task(args)?]),
            (false, true) => Ok(self.background.all().into_iter().filter(|task| task.runs()).collect()),
            (true, true) | (false, false) => {
                Err(CallError::Arguments("give either a `task_id` or `all`: true".to_owned()))
            }
        }
    }

    fn listed(&self) -> Value {
        json!({ "tasks": self.background.all().iter().map(|task| about(task)).collect::<Vec<_>>() })
    }
}

/// Result of an input.
struct Typed {
    written: usize,
    of: usize,
    /// Reason why no more of it was written.
    why: Option<String>,
}

/// Types to a task, and ends its input, as far as it takes that until then.
///
/// What was judged is what would be read: the text behind that of its line which is not ended. If another call has typed since, nothing
/// is written.
async fn type_to(
    (task, behind): (&BackgroundTask, &str),
    input: impl Future<Output = MutexGuard<'_, ProgramInput>>,
    (bytes, closes): (&[u8], bool),
    deadline: Instant,
) -> Typed {
    let mut written = 0;
    let types = async {
        let mut input = input.await;
        if !input.is_open() {
            return Err("its input is closed".to_owned());
        }
        let line = task.line();
        if line.text() != behind {
            return Err("another call has typed to it since this one was judged; make the call again".to_owned());
        }
        // Until all of it is there.
        task.set_line(UnfinishedLine::unknown());
        input.write(bytes, &mut written).await.map_err(|error| format!("it does not read any more ({error})"))?;
        task.set_line(line.and(bytes));
        if closes {
            input.close().await.map_err(|error| format!("its input could not be ended ({error})"))?;
        }
        Ok(())
    };
    let typed = tokio::time::timeout_at(deadline, types).await;
    let why = typed.unwrap_or_else(|_elapsed| Err("it does not read its input".to_owned())).err();
    Typed { written, of: bytes.len(), why }
}

/// Output of a task since somebody read it, and how far it is.
fn delta(task: &BackgroundTask, typed: Option<Typed>) -> Done {
    let mut heard = task.heard();
    let (stdout, stderr) = (heard.stdout.take(SHOWN), heard.stderr.take(SHOWN));
    let (out_total, err_total) = (heard.stdout.total, heard.stderr.total);
    let (status, end) = (heard.status(), heard.end.clone());
    drop(heard);
    let mut data = json!({
        "task_id": task.id,
        "status": status,
        "exit_code": end.as_ref().and_then(|end| end.code),
        "signal": end.as_ref().and_then(|end| end.signal),
        "duration_ms": limits::ms(end.as_ref().map_or_else(|| task.age(), |end| end.took)),
        "stream_delta": true,
        "stdout_len": stdout.len,
        "stderr_len": stderr.len,
        "stdout_total_len": out_total,
        "stderr_total_len": err_total,
        "stdout_omitted": stdout.omitted,
        "stderr_omitted": stderr.omitted,
        "stdout_truncated": stdout.has_more,
        "stderr_truncated": stderr.has_more,
        "stdout": stdout.text,
        "stderr": stderr.text,
    });
    let mut notes = Vec::new();
    if let Some(Typed { written, of, why }) = typed {
        data["input_written"] = written.into();
        notes.extend(why.map(|why| format!("{written} of {of} bytes of the input were written: {why}")));
    }
    for (name, omitted) in [("stdout", stdout.omitted), ("stderr", stderr.omitted)] {
        if omitted > 0 {
            notes.push(format!(
                "{omitted} bytes of {name} before this were dropped: more was unread than is kept; read more often"
            ));
        }
    }
    let mut done = Done::of(Value::Null);
    if let Some(end) = end {
        notes.extend(end.why);
        notes.extend(end.notes);
        (done.limits, done.changes) = (end.limits, end.changes);
    }
    add_notes(&mut data, notes);
    Done { data, ..done }
}

/// A line of a list.
fn about(task: &BackgroundTask) -> Value {
    let heard = task.heard();
    let end = heard.end.as_ref();
    json!({
        "task_id": task.id,
        "command": task.command.chars().take(LISTED).collect::<String>(),
        "status": heard.status(),
        "exit_code": end.and_then(|end| end.code),
        "signal": end.and_then(|end| end.signal),
        "duration_ms": limits::ms(end.map_or_else(|| task.age(), |end| end.took)),
        "tty": task.has_terminal,
        "stdout_unread": heard.stdout.len(),
        "stderr_unread": heard.stderr.len(),
    })
}

impl Follower {
    /// Follows the task until nothing of it runs, and records its end before anybody hears of it.
    async fn follow(self) {
        let Self { task, program, stdin: first, surroundings, enforced, recording } = self;
        let feed = async {
            if let Some(bytes) = &first {
                feed(&task, bytes).await;
            }
        };
        let mut heard = &*task;
        let end = program.follow(&mut heard, feed, Orders::of(task.stops())).await;
        // The next may start, in the same worker: with its end the program and its place are given up.
        let ended = ended(&task, &surroundings, end);
        record(recording, &task, &ended, enforced).await;
        task.hear(|heard| heard.has_ended(ended));
        // Whoever types to it at this moment finds that nobody reads.
        *task.input.lock().await = ProgramInput::Closed;
    }
}

/// End of a task, for whoever asks.
fn ended(task: &BackgroundTask, surroundings: &Surroundings, end: Result<ProgramEnded, ConfineError>) -> Ended {
    let ProgramEnded { program: _, end, took, limits, ended_for, changes } = match end {
        Ok(ended) => ended,
        Err(error) => return Ended::unknown(task.age(), with_causes(&error)),
    };
    let stop = *task.stops().borrow();
    let (status, why) = match (ended_for, stop) {
        (Some(denial), _) => {
            let remedy = denial.remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
            (Status::Failed, Some(format!("it met its `{}` limit: {}{remedy}", denial.asked, denial.reason)))
        }
        (None, Stop::Terminate | Stop::Kill) => (Status::Killed, None),
        (None, Stop::No) => (status_of(&end), end.timed_out.then(|| "its time was up".to_owned())),
    };
    let notes = surroundings.notes(&task.command, &end, changes.as_ref(), &[]);
    Ended { status, code: end.code, signal: end.signal, took, why, notes, limits, changes }
}

/// Output of a task is kept until somebody reads it.
impl Listener for &BackgroundTask {
    fn hear(&mut self, stream: ProgramStream, piece: &[u8]) {
        BackgroundTask::hear(self, |heard| match stream {
            ProgramStream::Out => heard.stdout.add(piece),
            ProgramStream::Err => heard.stderr.add(piece),
        });
    }
}

/// Types what a task is to read first. One that does not read it is not waited for by anybody but who types next.
async fn feed(task: &BackgroundTask, bytes: &[u8]) {
    let mut written = 0;
    drop(task.input.lock().await.write(bytes, &mut written).await);
}

/// The end of a task is a message of its own. If this process ends before, the next opening of the store ends it as an error.
async fn record(recording: Recording, task: &BackgroundTask, ended: &Ended, enforced: Vec<Enforced>) {
    let (data, duration) = {
        let heard = task.heard();
        let data = json!({
            "task_id": task.id,
            "status": ended.status,
            "exit_code": ended.code,
            "signal": ended.signal,
            "stdout_total_len": heard.stdout.total,
            "stderr_total_len": heard.stderr.total,
        });
        (data, limits::ms(ended.took))
    };
    let mut data = data;
    add_notes(&mut data, ended.why.iter().chain(&ended.notes).cloned().collect());
    let mut metadata = Metadata::new(duration);
    metadata.enforced = enforced;
    metadata.limits.clone_from(&ended.limits);
    metadata.changes.clone_from(&ended.changes);
    recording.end(&mut ResultEnvelope::output(data, metadata)).await;
}
