//! The story of one call.

use std::time::{Duration, Instant};

use callgate_policy::call_grant::{CallGrant, CallNeeds, ShellNeed};
use callgate_policy::envelope::{Denial, Layer, Metadata, Outcome, ResultEnvelope, StepReport};
use callgate_policy::path::HostPath;
use callgate_policy::plan::Work;
use callgate_policy::plan::compile::{self, CallSpec, PlanError};
use callgate_policy::watchdog::{CallFacts, Reason, Verdict};
use callgate_worker::protocol::ProgramEnd;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::confine::{ConfineError, Program, Stdio, ToolError, ToolOutput, ToolRun};
use crate::registry::{Context, Prepared, Tool};
use crate::session::Session;

/// How long a call may take that does not say (X2-1).
const TIMEOUT: Duration = Duration::from_secs(120);
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
    steps: Vec<StepReport>,
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

    /// validate → check → gate → plan → run → shape.
    async fn carry_out(&self, name: &str, args: Value, on_output: OnOutput<'_>) -> Result<Done, CallError> {
        let tool = self.registry.find(name).ok_or_else(|| self.unknown(name))?;
        tool.validate(&args).map_err(CallError::Arguments)?;
        let root = self.facts.workspace.first().cloned().unwrap_or_else(|| "/".into());
        let prepared = tool
            .implementation
            .prepare(&args, &Context { root: &root })
            .map_err(|e| CallError::Arguments(e.to_string()))?;
        let grant = self.check(&prepared.needs)?;
        self.gate(tool.id, &args)?;
        let Prepared { work, timeout, .. } = prepared;
        let timeout = timeout.unwrap_or(TIMEOUT);
        let spec = CallSpec { work: work.clone(), limits: self.limits, timeout };
        let plan = compile::call(&grant, &self.facts, spec)?;
        self.still_there()?;
        #[cfg(feature = "ablation")]
        if self.lacks(Layer::Sandbox) {
            let path = plan.rules.own().first().map(|rule| &rule.path);
            let data = crate::ablation::unconfined(&work, path, &args).map_err(CallError::Tool)?;
            return Ok(Done { data, truncated: false, steps: Vec::new() });
        }
        match work {
            Work::Tool { .. } => self.shape_tool(self.opened.tool(plan, args).await?, &root),
            Work::Program { .. } => {
                let limit = self.registry.output_limit(tool.id);
                self.run_shell(tool, plan, limit, on_output).await
            }
        }
    }

    fn unknown(&self, name: &str) -> CallError {
        let known = self.registry.names().into_iter().map(str::to_owned).collect();
        CallError::UnknownTool { name: name.to_owned(), known }
    }

    /// Layer 1.
    fn check(&self, needs: &CallNeeds) -> Result<CallGrant, CallError> {
        #[cfg(feature = "ablation")]
        if let Some(everything) = crate::ablation::everything().filter(|_| self.lacks(Layer::Capability)) {
            return everything.check(needs).map_err(denied);
        }
        self.effective.check(needs).map_err(denied)
    }

    /// Layer 2.
    fn gate(&self, tool: &str, args: &Value) -> Result<(), CallError> {
        #[cfg(feature = "ablation")]
        if self.lacks(Layer::Watchdog) {
            return Ok(());
        }
        let facts = CallFacts { tool, args, manifest: self.manifest.as_deref(), session: &self.id };
        match self.gate.judge(&facts) {
            Verdict::Allow => Ok(()),
            Verdict::Ask(Reason { rule, text }) | Verdict::Deny(Reason { rule, text }) => Err(denied(Denial {
                layer: Layer::Watchdog,
                asked: tool.to_owned(),
                reason: format!("{text} (watchdog rule `{rule}`)"),
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

    fn shape_tool(&self, run: ToolRun, root: &HostPath) -> Result<Done, CallError> {
        match run.end {
            Ok(ToolOutput { data, truncated }) => Ok(Done { data, truncated, steps: run.steps }),
            Err(ToolError { text, errno: Some(libc_errno) }) if is_denial(libc_errno) => Err(denied(Denial {
                layer: Layer::Sandbox,
                asked: text,
                reason: format!("the kernel refused it ({})", std::io::Error::from_raw_os_error(libc_errno)),
                remedy: Some(format!("grant the path it leads to, or choose one below {root}")),
            })),
            Err(ToolError { text, .. }) => Err(CallError::Tool(text)),
        }
    }

    /// Runs `bash`: its two output streams are one pipe, so that they come in the order in which they were written.
    async fn run_shell(
        &self,
        tool: &Tool,
        plan: callgate_policy::plan::CallPlan,
        limit: usize,
        on_output: OnOutput<'_>,
    ) -> Result<Done, CallError> {
        debug_assert_eq!(tool.kind, "execute", "only shells run programs");
        let output = |what| move |source| CallError::Output { what, source };
        let (reader, writer) = std::io::pipe().map_err(output("make a pipe for the output"))?;
        let error = writer.try_clone().map_err(output("make a pipe for the output"))?;
        let null = std::fs::File::open("/dev/null").map_err(output("open /dev/null"))?;
        let started = Instant::now();
        // The worker ends the program when its time is up; a worker that does not is itself ended with the session.
        let stdio = Stdio::new(null.into(), writer.into(), error.into());
        let program = self.opened.program(plan, stdio).await.map_err(not_started)?;
        let mut pipe =
            tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into()).map_err(output("wait on the output"))?;
        let mut head = Head::new(limit);
        // Until everything that holds the pipe has ended, or has closed it.
        head.fill(&mut pipe, on_output).await.map_err(output("read the output"))?;
        let end = program.wait().await?;
        let truncated = head.dropped;
        let data = shell_data(&head, end, started.elapsed());
        let data = if truncated { json!({ "head": data }) } else { data };
        Ok(Done { data, truncated, steps: program.steps().to_vec() })
    }

    /// Starts a program in the sandbox, past the tools: what `callgate run` does. The capability check still holds.
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
        let needs = CallNeeds { shell: Some(ShellNeed::Program { argv: argv.clone() }), ..CallNeeds::default() };
        let grant = self.check(&needs)?;
        let work = Work::Program { argv, working_dir };
        let spec = CallSpec { work, limits: self.limits, timeout: FOREVER };
        let plan = compile::call(&grant, &self.facts, spec)?;
        self.still_there()?;
        Ok(self.opened.program(plan, stdio).await?)
    }

    fn envelope(&self, outcome: Result<Done, CallError>, duration_ms: u64) -> ResultEnvelope {
        let metadata = Metadata { duration_ms, ..Metadata::default() };
        match outcome {
            Ok(done) => ResultEnvelope {
                kind: Outcome::Output,
                data: Some(done.data),
                error_text: None,
                metadata: Metadata {
                    truncated: done.truncated.then_some(true),
                    enforced: crate::session::enforced(self, &done.steps),
                    ..metadata
                },
            },
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

fn is_denial(errno: i32) -> bool {
    // EACCES, EPERM, EROFS.
    matches!(errno, 13 | 1 | 30)
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
        CallError::UnknownTool { .. }
        | CallError::Plan(_)
        | CallError::Confine(_)
        | CallError::Tool(_)
        | CallError::Output { .. } => None,
    }
}

/// The first part of a program's output; the rest is read and let go, so that the program is not stopped by a full pipe.
struct Head {
    bytes: Vec<u8>,
    limit: usize,
    dropped: bool,
}

impl Head {
    fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, dropped: false }
    }

    async fn fill(
        &mut self,
        pipe: &mut tokio::net::unix::pipe::Receiver,
        on_output: OnOutput<'_>,
    ) -> std::io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let got = pipe.read(&mut buffer).await?;
            if got == 0 {
                return Ok(());
            }
            let piece = &buffer[..got];
            on_output(piece);
            let room = self.limit - self.bytes.len();
            self.bytes.extend(&piece[..got.min(room)]);
            self.dropped |= got > room;
        }
    }

    /// As text: bytes that are not UTF-8 become U+FFFD, and a character that the limit cut is left out.
    fn text(&self) -> String {
        let whole = match self.bytes.utf8_chunks().last() {
            Some(last) if self.dropped && !last.invalid().is_empty() => self.bytes.len() - last.invalid().len(),
            _ => self.bytes.len(),
        };
        String::from_utf8_lossy(&self.bytes[..whole]).into_owned()
    }
}

/// C-27's shape, with C-13's unit.
fn shell_data(head: &Head, end: ProgramEnd, took: Duration) -> Value {
    json!({
        "output": head.text(),
        "exit_code": end.code,
        "duration_seconds": (took.as_secs_f64() * 1000.0).round() / 1000.0,
        "timed_out": end.timed_out,
        "signal": end.signal,
    })
}
