//! The story of one call.

use std::time::{Duration, Instant};

use callgate_policy::approval::ApprovalKey;
use callgate_policy::call_grant::{CallGrant, CallNeeds, ShellNeed};
use callgate_policy::envelope::{Changes, Denial, Layer, Metadata, Outcome, ResultEnvelope, StepReport};
use callgate_policy::limit::{LimitName, LimitReport};
use callgate_policy::path::{HostPath, normalize};
use callgate_policy::plan::compile::{self, CallSpec, PlanError};
use callgate_policy::plan::{CallPlan, Work};
use callgate_policy::rules::Decision;
use callgate_policy::watchdog::{CallFacts, Reason, Verdict};
use callgate_worker::protocol::{LimitHit, ProgramEnd};
use callgate_worker::tools::is_refusal;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::confine::{ConfineError, Output, Outputs, Program, Stdio, ToolError, ToolOutput, ToolRun};
use crate::decide::{Passed, Presented};
use crate::registry::{Context, Prepared, Tool};
use crate::session::Session;
use crate::turn::{Concurrency, Turn};

/// How long a call may take that does not say (X2-1).
const TIMEOUT: Duration = Duration::from_secs(120);
/// How much longer a worker may take to end a program whose time is up, and all that it started: it gives up after a minute
/// for each, and reports what is left.
const GRACE: Duration = Duration::from_secs(150);
/// The most that a program without privilege can make a pipe hold, bytes: `/proc/sys/fs/pipe-max-size`, pipe(7).
const PIPE_MAX: usize = 1024 * 1024;
/// What a `spawn` may take: its host ends it when it wants to.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Why a call gave no result. For a model it becomes an envelope of type `error`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// There is no such tool.
    #[error("there is no tool `{name}`; there are: {}", .known.join(", "))]
    UnknownTool {
        /// The name.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The arguments do not match the schema (S0-4).
    #[error("{0}")]
    Arguments(String),
    /// Layer 1 or 2, or the kernel.
    #[error("{} is denied: {}", .0.asked, .0.reason)]
    Denied(Box<Denial>),
    /// A person would have to be asked and there is none, and the session halts for that (C-6).
    #[error("{tool} needs a person's approval, and there is nobody to ask: {why}; the session is halted")]
    Halted {
        /// The tool.
        tool: String,
        /// Why.
        why: String,
    },
    /// The plan could not be compiled.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The sandbox could not be set up, or the worker gave no result.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// The tool failed.
    #[error("{0}")]
    Tool(String),
    /// A pipe for the program's output could not be made or read.
    #[error("{what}")]
    Output {
        /// The operation.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// A result and what confined it.
struct Done {
    data: Value,
    truncated: bool,
    /// Where the rest is.
    output_path: Option<String>,
    steps: Vec<StepReport>,
    limits: Vec<LimitReport>,
    /// It was ended for a limit: then `data` is what there is of a result, for the error's text.
    ended_for: Option<Denial>,
    changes: Option<Changes>,
    /// Who let it pass.
    passed: Passed,
}

/// Called with each piece of a program's output as it comes.
type OnOutput<'a> = &'a mut (dyn FnMut(&[u8]) + Send);

impl Session {
    /// Calls a tool. Whatever happens is in the envelope: a call never panics and never returns an error besides it (S0-68).
    ///
    /// Dropping the future aborts the call, and ends everything that it started (S0-69).
    pub async fn call(&self, tool: &str, args: Value) -> ResultEnvelope {
        self.call_streaming(tool, args, &mut |_piece| {}).await
    }

    /// The same, and passes a program's output on while it comes.
    pub async fn call_streaming(&self, tool: &str, args: Value, on_output: OnOutput<'_>) -> ResultEnvelope {
        let started = Instant::now();
        let outcome = self.carry_out(tool, args, on_output).await;
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &outcome {
            Ok(_) => tracing::info!(session = self.id, tool, duration_ms, "call"),
            Err(error) => tracing::warn!(session = self.id, tool, duration_ms, %error, "call failed"),
        }
        self.envelope(outcome, duration_ms)
    }

    /// offered? → validate → check → rules and mode → watchdog → plan → person → run → shape (C-7).
    async fn carry_out(&self, name: &str, args: Value, on_output: OnOutput<'_>) -> Result<Done, CallError> {
        self.goes_on(name)?;
        let root = self.root();
        let (tool, Prepared { needs, work, timeout }, grant) = self.granted(name, &args, &root)?;
        // Before anything is waited for: in the order of the calls.
        let place = self.turns.queue(tool.concurrency).await;
        let asking = self.questions.queue(Concurrency::Alone).await;
        let line = self.line_of(tool.id, &args).await?;
        let presented = Presented { tool, args: &args, needs: &needs, root: &root, line: line.as_ref() };
        let (decided, watchdog) = self.judged(&presented, &work).await?;
        let is_tool = matches!(work, Work::Tool { .. });
        let timeout = timeout.or(self.profile.shell_timeout.filter(|_| !is_tool)).unwrap_or(TIMEOUT);
        let mut plan = compile::call(&grant, &self.facts, CallSpec { work, bounds: self.bounds, timeout })?;
        let why = self.asks(&decided.0, watchdog.as_ref());
        plan.as_spelt = self.passes_by_path(tool.id, &why);
        let passed = self.approve(&presented, &plan, decided, why, asking).await?;
        let turn = place.turn().await;
        // A call before it may have been one that nobody answered.
        self.goes_on(name)?;
        let done = self.perform((tool, turn), plan, args, is_tool, on_output).await?;
        Ok(Done { passed, ..done })
    }

    /// Where calls start.
    pub(crate) fn root(&self) -> HostPath {
        self.facts.workspace.first().cloned().unwrap_or_else(|| "/".into())
    }

    /// Offered, well-formed, and granted: layer 1.
    pub(crate) fn granted(
        &self,
        name: &str,
        args: &Value,
        root: &HostPath,
    ) -> Result<(&Tool, Prepared, CallGrant), CallError> {
        let tool = self.registry.find(name).ok_or_else(|| self.unknown(name))?;
        tool.validate(args).map_err(CallError::Arguments)?;
        let shell_dir = self.shell_dir.as_ref().unwrap_or(root);
        let prepared = tool
            .implementation
            .prepare(args, &Context { root, shell_dir, limit: self.registry.output_limit(tool.id) })
            .map_err(|e| CallError::Arguments(e.to_string()))?;
        let grant = self.check(&prepared.needs)?;
        // Whatever its line says, and whatever is made of it: the kernel holds a restricted shell to reading.
        let restricted = prepared.needs.shell.is_some() && self.profile.restricts_the_shell();
        let grant = if restricted { grant.for_reading() } else { grant };
        Ok((tool, prepared, grant))
    }

    /// Rules, mode and watchdogs: layer 2, but for the person, whom the watchdogs may want asked.
    pub(crate) async fn judged(
        &self,
        call: &Presented<'_>,
        work: &Work,
    ) -> Result<((Decision, ApprovalKey), Option<Reason>), CallError> {
        let decided = self.decide(call, work)?;
        let watchdog = self.gate(call).await?;
        Ok((decided, watchdog))
    }

    /// X1-15: nothing else runs once a person would have had to be asked, and there was none.
    fn goes_on(&self, tool: &str) -> Result<(), CallError> {
        if !self.is_halted() {
            return Ok(());
        }
        Err(CallError::Halted { tool: tool.to_owned(), why: "an earlier call has not been answered".to_owned() })
    }

    /// In the sandbox.
    async fn perform(
        &self,
        (tool, turn): (&Tool, Turn),
        plan: CallPlan,
        args: Value,
        is_tool: bool,
        on_output: OnOutput<'_>,
    ) -> Result<Done, CallError> {
        let timeout = crate::limits::ms(plan.timeout);
        self.still_there()?;
        #[cfg(feature = "ablation")]
        if self.lacks(Layer::Sandbox) {
            let data = crate::ablation::unconfined(&plan, &args).map_err(CallError::Tool)?;
            let (steps, limits) = (Vec::new(), Vec::new());
            return Ok(Done {
                data,
                truncated: false,
                output_path: None,
                steps,
                limits,
                ended_for: None,
                changes: None,
                passed: Passed::default(),
            });
        }
        if is_tool {
            return self.shape_tool(tool.id, self.opened.tool(plan, args, turn).await?, timeout);
        }
        self.run_shell(tool, plan, turn, on_output).await
    }

    fn unknown(&self, name: &str) -> CallError {
        let known = self.registry.names().into_iter().map(str::to_owned).collect();
        CallError::UnknownTool { name: name.to_owned(), known }
    }

    /// Layer 1.
    fn check(&self, needs: &CallNeeds) -> Result<CallGrant, CallError> {
        #[cfg(feature = "ablation")]
        #[allow(clippy::disallowed_methods, reason = "a test build lacks the capability check")]
        if let Some(everything) = callgate_policy::effective::everything().filter(|_| self.lacks(Layer::Capability)) {
            return everything.check(needs).map_err(denied);
        }
        self.effective.check(needs).map_err(denied)
    }

    /// Layer 2. Returns what a person must be asked.
    async fn gate(&self, call: &Presented<'_>) -> Result<Option<Reason>, CallError> {
        #[cfg(feature = "ablation")]
        if self.lacks(Layer::Watchdog) {
            return Ok(None);
        }
        let (tool, needs) = (call.tool.id, call.needs);
        let reads_only = needs.shell.is_none() && needs.write.is_empty() && needs.hosts.is_empty();
        let facts = CallFacts {
            tool,
            args: call.args,
            manifest: self.manifest.as_deref(),
            session: &self.id,
            reads_only,
            line: call.line,
        };
        let mode = self.rules.read().unwrap_or_else(std::sync::PoisonError::into_inner).mode;
        match self.gate.judge(&facts, mode).await {
            Verdict::Allow => Ok(None),
            Verdict::Ask(reason) => Ok(Some(reason)),
            Verdict::Deny(reason) => Err(denied(Denial {
                layer: Layer::Watchdog,
                asked: tool.to_owned(),
                reason: reason.told(),
                remedy: None,
            })),
        }
    }

    /// The workspace's roots are what they were.
    fn still_there(&self) -> Result<(), CallError> {
        match self.replaced_root() {
            None => Ok(()),
            Some(root) => Err(denied(Denial {
                layer: Layer::Host,
                asked: root.to_string(),
                reason: "it was replaced or removed since the session was opened, which is bound to the old one"
                    .to_owned(),
                remedy: Some("open a new session".to_owned()),
            })),
        }
    }

    fn shape_tool(&self, tool: &'static str, run: ToolRun, timeout: u64) -> Result<Done, CallError> {
        match run.end {
            Ok(ToolOutput { data, truncated, rest, lost }) => {
                let mut kept = Rest { tool, outputs: self.outputs.as_ref(), file: None, lost };
                if !rest.is_empty() {
                    kept.add(&rest);
                }
                let limits = crate::limits::of_tool(&self.bounds, timeout);
                let changes = run.changes.filter(|changes| !changes.is_empty());
                Ok(Done { limits, changes, ..kept.done(data, truncated, run.steps) })
            }
            // EFBIG: setrlimit(2) bounds it, or the file system does.
            Err(ToolError { errno: Some(27), .. }) => {
                let hit = LimitHit { limit: LimitName::FileSize, used: 0 };
                Err(denied(crate::limits::denial(&self.bounds, hit, 0)))
            }
            Err(ToolError { text, errno: Some(libc_errno) })
                if is_refusal(libc_errno)
                    && run.changes.as_ref().is_some_and(|changes| !changes.refused.is_empty()) =>
            {
                let kept = run.changes.unwrap_or_default().refused.swap_remove(0);
                Err(denied(Denial {
                    layer: Layer::Sandbox,
                    asked: text,
                    reason: format!("{} is kept as it is: {}", kept.path, kept.why),
                    remedy: Some("grant it by its name (requires.fs.write, or --write)".to_owned()),
                }))
            }
            Err(ToolError { text, errno: Some(libc_errno) }) if is_refusal(libc_errno) => Err(denied(Denial {
                layer: Layer::Sandbox,
                asked: text,
                reason: format!("the kernel refused it ({})", std::io::Error::from_raw_os_error(libc_errno)),
                remedy: Some(
                    "grant where its links lead and the directories that it needs made, if it is not the file's own \
                     permissions"
                        .to_owned(),
                ),
            })),
            Err(ToolError { text, .. }) => Err(CallError::Tool(text)),
        }
    }

    /// Runs `bash`: its two output streams are one pipe, so that they come in the order in which they were written.
    async fn run_shell(
        &self,
        tool: &Tool,
        plan: callgate_policy::plan::CallPlan,
        turn: Turn,
        on_output: OnOutput<'_>,
    ) -> Result<Done, CallError> {
        debug_assert_eq!(tool.kind, "execute", "only shells run programs");
        let output = |what| move |source| CallError::Output { what, source };
        let (reader, writer) = std::io::pipe().map_err(output("make a pipe for the output"))?;
        let error = writer.try_clone().map_err(output("make a pipe for the output"))?;
        let null = std::fs::File::open("/dev/null").map_err(output("open /dev/null"))?;
        let started = Instant::now();
        // The worker ends the program when its time is up; one that does not is itself ended.
        let timeout = plan.timeout;
        let stdio = Stdio::new(null.into(), writer.into(), error.into());
        let mut program = self.opened.program(plan, stdio, Some(turn)).await.map_err(not_started)?;
        let mut pipe =
            tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into()).map_err(output("wait on the output"))?;
        let limit = usize::try_from(self.registry.output_limit(tool.id)).unwrap_or(usize::MAX);
        let rest = Rest { tool: tool.id, outputs: self.outputs.as_ref(), file: None, lost: false };
        let mut head = Head { bytes: Vec::new(), limit, dropped: false, seen: 0, rest };
        let patience = timeout.saturating_add(GRACE);
        let followed = head.follow(&program, &mut pipe, self.bounds.output, on_output);
        let Ok(end) = tokio::time::timeout(patience, followed).await else {
            program.kill().await?;
            return Err(CallError::Confine(ConfineError::TimedOut(timeout)));
        };
        let end = end?;
        let truncated = head.dropped;
        let limits = crate::limits::of_program(&self.bounds, &end, Some(crate::limits::ms(timeout)), Some(head.seen));
        let hit = crate::limits::ended_for(&self.bounds, &end, Some(head.seen));
        let ended_for = hit.map(|hit| crate::limits::denial(&self.bounds, hit, end.left));
        let data = match ended_for {
            Some(_) => Value::String(head.text()),
            None => shell_data(&head, end, started.elapsed()),
        };
        let data = if truncated && ended_for.is_none() { json!({ "head": data }) } else { data };
        let changes = program.changes().filter(|changes| !changes.is_empty()).cloned();
        Ok(Done { limits, ended_for, changes, ..head.rest.done(data, truncated, program.steps().to_vec()) })
    }

    /// Starts a program in the sandbox, past the tools: what `callgate run` does. The capability check still holds.
    ///
    /// Nobody is asked about it, for it is not an agent's call; what a rule denies to programs is denied to it.
    ///
    /// It is the host's own program, such as a server that runs as long as the session, and waits for no call; nor does a
    /// call wait for it. What it changes meanwhile is for the host to know.
    ///
    /// # Errors
    /// [`CallError`] if it is denied or could not be started; nothing has run then.
    pub async fn spawn<S: AsRef<std::ffi::OsStr>>(
        &self,
        argv: impl IntoIterator<Item = S>,
        stdio: Stdio,
    ) -> Result<Program, CallError> {
        let argv: Vec<HostPath> =
            argv.into_iter().map(|arg| HostPath::from(std::path::PathBuf::from(arg.as_ref()))).collect();
        let working_dir = self.facts.workspace.first().cloned().unwrap_or_else(|| "/".into());
        let mut named = argv.clone();
        if let Some(program) = named.first_mut().filter(|program| program.as_bytes().contains(&b'/'))
            && let Ok(path) = normalize(&working_dir, program)
        {
            // A grant's path is absolute.
            *program = path;
        }
        let needs = CallNeeds { shell: Some(ShellNeed::Program { argv: named }), ..CallNeeds::default() };
        let grant = self.check(&needs)?;
        self.refuse_by_rule(&needs)?;
        let work = Work::Program { argv, working_dir };
        let spec = CallSpec { work, bounds: self.bounds, timeout: FOREVER };
        let plan = compile::call(&grant, &self.facts, spec)?;
        self.still_there()?;
        Ok(self.opened.program(plan, stdio, None).await?)
    }

    fn envelope(&self, outcome: Result<Done, CallError>, duration_ms: u64) -> ResultEnvelope {
        let metadata = Metadata { duration_ms, ..Metadata::default() };
        match outcome {
            Ok(done) => {
                let metadata = Metadata {
                    truncated: done.truncated.then_some(true),
                    output_path: done.output_path,
                    enforced: crate::session::enforced(self, &done.steps),
                    limits: done.limits,
                    changes: done.changes,
                    decision: done.passed.decision,
                    approved_by: done.passed.approved_by,
                    ..metadata
                };
                match done.ended_for {
                    None => ResultEnvelope { kind: Outcome::Output, data: Some(done.data), error_text: None, metadata },
                    Some(denial) => {
                        let error_text = Some(ended_text(&denial, done.data.as_str().unwrap_or_default()));
                        let metadata = Metadata { denial: Some(denial), ..metadata };
                        ResultEnvelope { kind: Outcome::Error, data: None, error_text, metadata }
                    }
                }
            }
            Err(error) => ResultEnvelope {
                kind: Outcome::Error,
                data: None,
                error_text: Some(error_text(&error)),
                metadata: Metadata { timed_out: timed_out(&error), denial: denial_of(error), ..metadata },
            },
        }
    }
}

/// A directory that cannot be entered is the call's mistake, not the host's.
fn not_started(error: ConfineError) -> CallError {
    if let ConfineError::Refused(failed) = &error
        && failed.step == "working_dir"
    {
        return CallError::Tool(format!("{}; choose a directory that is there and is granted", failed.what_failed()));
    }
    CallError::Confine(error)
}

fn denied(denial: Denial) -> CallError {
    CallError::Denied(Box::new(denial))
}

fn timed_out(error: &CallError) -> Option<bool> {
    matches!(error, CallError::Confine(ConfineError::TimedOut(_))).then_some(true)
}

/// Most characters of a program's output in the error that has no place for a result.
const LAST_WORDS: usize = 2000;

/// What a call was ended for, the next step, and the end of what it had written.
fn ended_text(denial: &Denial, output: &str) -> String {
    let mut text = format!("the call met its `{}` limit: {}", denial.asked, denial.reason);
    if let Some(remedy) = &denial.remedy {
        text.push_str("; ");
        text.push_str(remedy);
    }
    if !output.is_empty() {
        let from = output.char_indices().rev().nth(LAST_WORDS - 1).map_or(0, |(at, _)| at);
        text.push_str("\nIt had written:\n");
        text.push_str(&output[from..]);
    }
    text
}

/// The error with its causes and, where there is one, the next step: all that a model has to go by (X0-60).
fn error_text(error: &CallError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    if let CallError::Denied(denial) = error
        && let Some(remedy) = &denial.remedy
    {
        text.push_str("; ");
        text.push_str(remedy);
    }
    text
}

fn denial_of(error: CallError) -> Option<Denial> {
    match error {
        CallError::Denied(denial) => Some(*denial),
        CallError::Arguments(reason) => {
            Some(Denial { layer: Layer::Schema, asked: "the arguments".to_owned(), reason, remedy: None })
        }
        CallError::Confine(ConfineError::Refused(failed)) => Some(Denial {
            layer: Layer::Host,
            asked: failed.step.clone(),
            reason: failed.to_string(),
            remedy: Some("run `callgate doctor`".to_owned()),
        }),
        CallError::Halted { tool, why } => Some(Denial {
            layer: Layer::Person,
            asked: tool,
            reason: why,
            remedy: Some("have a person look at it, and open a new session".to_owned()),
        }),
        CallError::UnknownTool { .. }
        | CallError::Plan(_)
        | CallError::Confine(_)
        | CallError::Tool(_)
        | CallError::Output { .. } => None,
    }
}

/// Where what a result has no room for goes (S0-44).
struct Rest<'a> {
    tool: &'static str,
    outputs: Option<&'a Outputs>,
    /// Made when there is something to keep.
    file: Option<Output<'a>>,
    /// Some of it is nowhere.
    lost: bool,
}

impl Rest<'_> {
    fn add(&mut self, bytes: &[u8]) {
        if self.file.is_none() && !self.lost {
            self.file = self.outputs.and_then(|outputs| outputs.create(self.tool).ok());
        }
        match &mut self.file {
            Some(file) => {
                file.add(bytes);
                self.lost |= file.lost;
            }
            None => self.lost = true,
        }
    }

    /// The result. What is not to be had any more is told beside its head.
    fn done(self, mut data: Value, truncated: bool, steps: Vec<StepReport>) -> Done {
        if self.lost
            && let Some(data) = data.as_object_mut()
        {
            data.insert("rest_lost".to_owned(), true.into());
        }
        let output_path = self.file.map(|file| file.path);
        Done {
            data,
            truncated,
            output_path,
            steps,
            limits: Vec::new(),
            ended_for: None,
            changes: None,
            passed: Passed::default(),
        }
    }
}

/// The first part of a program's output; the rest is kept elsewhere, or let go, so that the program is not stopped by a full
/// pipe.
struct Head<'a> {
    bytes: Vec<u8>,
    limit: usize,
    dropped: bool,
    /// All bytes that came.
    seen: u64,
    rest: Rest<'a>,
}

impl Head<'_> {
    /// Takes the output until the program has ended, and all that it started with it; one that wrote more than `most` bytes is
    /// ended. Whoever holds the pipe after that is no part of the call, and is not waited for.
    async fn follow(
        &mut self,
        program: &Program,
        pipe: &mut tokio::net::unix::pipe::Receiver,
        most: u64,
        on_output: OnOutput<'_>,
    ) -> Result<ProgramEnd, CallError> {
        let failed = |source| CallError::Output { what: "read the output", source };
        let mut buffer = vec![0; 64 * 1024];
        let mut ended = std::pin::pin!(program.wait());
        let end = loop {
            tokio::select! {
                biased;
                got = pipe.read(&mut buffer) => match got.map_err(failed)? {
                    0 => return Ok(ended.await?),
                    got => {
                        self.take(&buffer[..got], on_output);
                        if self.seen > most {
                            // One that is blocked in a write ends all the same.
                            program.abort().await?;
                            return Ok(ended.await?);
                        }
                    }
                },
                end = &mut ended => break end?,
            }
        };
        // What it wrote last is still in the pipe. The kernel is asked, for tokio may not have heard of it yet.
        for _ in 0..PIPE_MAX / buffer.len() {
            match rustix::io::read(&*pipe, &mut buffer[..]) {
                Ok(0) | Err(_) => break,
                Ok(got) => self.take(&buffer[..got], on_output),
            }
        }
        Ok(end)
    }

    fn take(&mut self, piece: &[u8], on_output: OnOutput<'_>) {
        on_output(piece);
        self.seen += piece.len() as u64;
        let room = if self.dropped { 0 } else { self.limit - self.bytes.len() };
        let (shown, rest) = piece.split_at(piece.len().min(room));
        self.bytes.extend(shown);
        if rest.is_empty() {
            return;
        }
        if !self.dropped {
            self.dropped = true;
            // A character that the limit would cut belongs to the rest.
            let whole = match self.bytes.utf8_chunks().last() {
                Some(last) if is_begun(last.invalid()) => self.bytes.len() - last.invalid().len(),
                _ => self.bytes.len(),
            };
            let cut = self.bytes.split_off(whole);
            self.rest.add(&cut);
        }
        self.rest.add(rest);
    }

    /// As text: bytes that are not UTF-8 become U+FFFD.
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Whether these bytes are the beginning of a character.
fn is_begun(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}

/// C-27's shape, with C-13's unit.
fn shell_data(head: &Head, end: ProgramEnd, took: Duration) -> Value {
    let mut data = json!({
        "output": head.text(),
        "exit_code": end.code,
        "duration_seconds": (took.as_secs_f64() * 1000.0).round() / 1000.0,
        "timed_out": end.timed_out,
        "signal": end.signal,
    });
    crate::limits::tell_left(&mut data, &end);
    data
}
