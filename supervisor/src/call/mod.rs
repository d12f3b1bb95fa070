//! The story of one call.

#[cfg(feature = "ablation")]
mod ablation;
mod answer;
pub(crate) mod batch;
mod declared;
mod document;
mod enforced;
pub(crate) mod envelope;
pub(crate) mod error;
pub(crate) mod exec_shell;
mod going;
mod hosted;
mod pass;
mod report;
mod rest;
mod search;
mod server;
pub(crate) mod shell;
mod skills;
pub(crate) mod spawn;
mod step;
mod tests_of;
mod tool;
mod understand;
mod versions;

use std::time::{Duration, Instant};

use callgate_policy::call_grant::CallGrant;
use callgate_policy::effect::{Effect, Effects};
use callgate_policy::effective::EffectiveSet;
use callgate_policy::envelope::{Coerced, Denial, Deprecation, Layer, ResultEnvelope};
use callgate_policy::failure::ErrorCode;
use callgate_policy::limit::Bounds;
use callgate_policy::manifest::{Credential, Env};
use callgate_policy::path::HostPath;
use callgate_policy::plan::{CallWork, Secured};
use callgate_policy::tool::Subject;
use serde_json::{Map, Value};

use self::envelope::Done;
use self::going::Going;
use self::step::{CallStep, Next, StepOutcome, StepStanding};
use crate::agents::work::work_of;
use crate::confine::ConfineError;
use crate::error::{CallError, denied};
use crate::gate::{Approved, ApprovedTask, HostTask, Known, ProgramTask};
use crate::registry::catalogue::not_configured;
use crate::registry::{
    Attempt, Context, Delegation, Executor, HostTool, InFlight, Inactive, NO_PROVIDER, Prepared, ProgramTool, Registry,
    Tool, Understood, VERSION, removed,
};
use crate::run::limits;
use crate::session::{Coercion, Session};
use crate::store::Recording;
use crate::trace::Traceparent;
use crate::turn::{Concurrency, Place, Turn};

pub(crate) use self::enforced::enforced;

/// How long a call may take that does not say (X2-1).
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// Called with each piece of a program's output as it comes.
pub(crate) type OnOutput<'a> = &'a mut (dyn FnMut(&[u8]) + Send);

/// A call that somebody has asked for.
struct Proposed<'a> {
    started: Instant,
    tool: String,
    /// Those that it holds: they are its until it has ended, whatever replaces them (S1-26).
    registry: Result<&'a Registry, &'a Inactive>,
    /// Taken by layer 1.
    args: Value,
    coerced: Vec<Coerced>,
    known: Known,
    recording: Recording,
}

/// A call whose first step has passed.
struct PassedStep<'a> {
    registry: &'a Registry,
    tool: &'a Tool,
    going: Going,
    first: Ready<'a>,
}

/// A step of a call that may run when it is its turn.
struct Ready<'a> {
    approved: Approved<'a>,
    place: Place,
}

/// A call that layer 1 has let pass: offered, well-formed and granted.
pub(crate) struct Checked<'a> {
    pub(crate) tool: &'a Tool,
    pub(crate) args: Value,
    pub(crate) effects: Effects,
    /// The key that its tool derives from the arguments (S1-13), if it has one.
    pub(crate) key: Option<String>,
    pub(crate) grant: CallGrant,
    /// Rights in force for a declared tool: its part of the session's.
    pub(crate) own: Option<EffectiveSet>,
    /// `None` for what does not run in the sandbox.
    pub(crate) work: Option<CallWork>,
    pub(crate) timeout: Duration,
    pub(crate) root: HostPath,
    /// Credentials that egress adds to its requests.
    pub(crate) credentials: Vec<Credential>,
    /// How egress makes the TLS, with credentials, if it does.
    pub(crate) secured: Option<Secured>,
    /// Facts that its worker is told besides the arguments.
    pub(crate) told: Map<String, Value>,
}

impl Session {
    /// Calls a tool. Whatever happens is in the envelope: a call never panics and never returns an error besides it (S0-68).
    ///
    /// Dropping the future aborts the call, and ends everything that it started (S0-69).
    pub async fn call(&self, tool: &str, args: Value) -> ResultEnvelope {
        self.call_streaming(tool, args, &mut |_piece| {}).await
    }

    /// Calls a tool, and passes a program's output on while it comes.
    pub async fn call_streaming(&self, tool: &str, args: Value, on_output: OnOutput<'_>) -> ResultEnvelope {
        let mut aborted = self.aborts.listen();
        let entered = self.tools.lifecycle.enter(tool).await;
        let mut call = self.propose(&entered, tool.to_owned(), args);
        let carried_out = async {
            let passed = self.let_pass(&mut call).await?;
            self.run(passed, on_output, &mut call).await
        };
        let outcome = aborted.unless(carried_out).await;
        self.conclude(call, outcome).await
    }

    /// A call is asked for.
    fn propose<'a>(&self, entered: &'a Result<InFlight, Inactive>, tool: String, args: Value) -> Proposed<'a> {
        let started = Instant::now();
        // Before anything looks at them: rules, watchdogs and people see the arguments that the tool gets.
        let registry = entered.as_ref().map(InFlight::registry);
        let found = registry.ok().and_then(|registry| registry.find(&tool));
        let (args, coerced) = match found.filter(|_| self.tools.coercion == Coercion::Lossless) {
            Some(tool) => tool.coerce(args),
            None => (args, Vec::new()),
        };
        let origin = found.map(|tool| tool.origin.to_string()).unwrap_or_default();
        let recording = self.recorder.propose(&tool, &origin, &args);
        Proposed { started, tool, registry, args, coerced, known: Known::default(), recording }
    }

    /// offered? → understand → the layers before the sandbox, for the first step of the call.
    async fn let_pass<'a>(&self, call: &mut Proposed<'a>) -> Result<PassedStep<'a>, CallError> {
        let registry = call.registry.map_err(|inactive| CallError::Inactive(inactive.0.clone()))?;
        self.goes_on(&call.tool)?;
        let tool = self.offered(registry, &call.tool)?;
        let args = tool.understand(std::mem::take(&mut call.args)).map_err(CallError::Arguments)?;
        let mut going = Going::of(tool, &args);
        going.has_room()?;
        let mut step = CallStep::itself(args, Attempt::default());
        loop {
            let about = (&mut call.known, &mut call.recording);
            match self.let_step_pass(tool, step, registry, about).await {
                Ok(first) => return Ok(PassedStep { registry, tool, going, first }),
                Err(error) => step = going.instead(error)?,
            }
        }
    }

    /// Runs the first step of a call, and takes those that follow.
    async fn run(
        &self,
        passed: PassedStep<'_>,
        on_output: OnOutput<'_>,
        call: &mut Proposed<'_>,
    ) -> Result<Done, CallError> {
        let PassedStep { registry, tool, mut going, first } = passed;
        let about = (&*call.tool, &mut call.known, &mut call.recording);
        let mut outcome = self.run_step(first, registry, &mut going, &mut *on_output, about).await?;
        loop {
            let mut step = match going.next(self, &call.known, outcome) {
                Next::Step(step) => step,
                Next::End(result) => return result,
            };
            let other = step.other.take();
            let of_step = other.as_deref().unwrap_or(tool);
            // What only finds something out is confined by what does not confine the call.
            let (mut of_other, mut unseen) = (Known::default(), |_: &[u8]| {});
            let (known, on_output): (&mut Known, OnOutput<'_>) = match step.standing {
                StepStanding::Itself => (&mut call.known, &mut *on_output),
                StepStanding::Beside => (&mut of_other, &mut unseen),
            };
            let passes = self.let_step_pass(of_step, step, registry, (&mut *known, &mut call.recording));
            outcome = match Box::pin(passes).await {
                Err(error) => StepOutcome::NotPassed(error),
                Ok(ready) => {
                    let about = (&*call.tool, known, &mut call.recording);
                    Box::pin(self.run_step(ready, registry, &mut going, on_output, about)).await?
                }
            };
        }
    }

    /// validate → check → rules and mode → watchdog → plan → person (C-7).
    async fn let_step_pass<'a>(
        &self,
        tool: &'a Tool,
        CallStep { mut args, attempt, standing, .. }: CallStep,
        registry: &Registry,
        about: (&mut Known, &mut Recording),
    ) -> Result<Ready<'a>, CallError> {
        // Before anything is waited for: in the order of the calls.
        let place = self.turns.queue(tool.concurrency).await;
        let asking = self.gate.questions.queue(Concurrency::Alone).await;
        let read = Box::pin(self.read_first(tool, &mut args)).await?;
        let checked = self.checked_on(tool, registry, (args, &read), attempt)?;
        if standing == StepStanding::Beside && self.would_ask(&checked).await? {
            let text = "a person would have to be asked".to_owned();
            return Err(CallError::Told { text, code: ErrorCode::Forbidden });
        }
        let approved = self.pass(checked, asking, about).await?;
        Ok(Ready { approved, place })
    }

    /// its turn → record → run (C-7). An error ends the call, whatever it would go on as.
    async fn run_step(
        &self,
        Ready { approved, place }: Ready<'_>,
        registry: &Registry,
        going: &mut Going,
        on_output: OnOutput<'_>,
        (called, known, recording): (&str, &mut Known, &mut Recording),
    ) -> Result<StepOutcome, CallError> {
        let turn = place.turn().await;
        // A call before it may have been one that nobody answered.
        self.goes_on(called)?;
        going.count()?;
        // Nothing runs that is not recorded.
        recording.start().await?;
        let began = Instant::now();
        let result = self.execute(registry, approved, turn, on_output, (known, recording)).await;
        Ok(StepOutcome::Ran { took: began.elapsed(), result })
    }

    /// The envelope, which is recorded with the call's end.
    async fn conclude(&self, call: Proposed<'_>, outcome: Result<Done, CallError>) -> ResultEnvelope {
        let Proposed { started, tool, registry, coerced, known, recording, .. } = call;
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let trace = Traceparent::current();
        let traceparent = trace.as_ref().map(Traceparent::as_str);
        match &outcome {
            Ok(_) => tracing::info!(session = self.id, tool, duration_ms, traceparent, "call"),
            // Whoever called is told by the envelope.
            Err(error) => tracing::info!(session = self.id, tool, duration_ms, traceparent, %error, "call failed"),
        }
        let is_cancelled = matches!(outcome, Err(CallError::Aborted | CallError::Ended));
        let found = registry.ok().and_then(|registry| registry.find(&tool));
        let runs = found.is_some_and(|tool| tool.subject == Subject::Execute);
        let outcome = outcome.map(|done| match found {
            Some(tool) => done.seen_by(tool),
            None => done,
        });
        let mut envelope = self.envelope(outcome, runs, known, duration_ms);
        envelope.metadata.deprecation = registry.ok().and_then(|registry| registry.deprecation(&tool));
        if let Some(Deprecation { use_instead, removed_in, .. }) = &envelope.metadata.deprecation {
            tracing::warn!(session = self.id, tool, use_instead, removed_in, "a call by a deprecated name");
        }
        envelope.metadata.coerced = coerced;
        envelope.metadata.traceparent = traceparent.map(str::to_owned);
        if is_cancelled {
            recording.cancel(&mut envelope).await;
        } else {
            recording.end(&mut envelope).await;
        }
        envelope
    }

    /// Offered, well-formed, and granted: layer 1.
    pub(crate) async fn checked<'a>(
        &self,
        registry: &'a Registry,
        name: &str,
        args: Value,
    ) -> Result<Checked<'a>, CallError> {
        let tool = self.offered(registry, name)?;
        let mut understood = tool.understand(args).map_err(CallError::Arguments)?;
        let read = self.read_first(tool, &mut understood).await?;
        self.checked_on(tool, registry, (understood, &read), Attempt::default())
    }

    /// The tool of a call, which may be called.
    pub(crate) fn offered<'a>(&self, registry: &'a Registry, name: &str) -> Result<&'a Tool, CallError> {
        let tool = registry.find(name).ok_or_else(|| self.unknown(registry, name))?;
        self.refuse_what_is_deferred(tool)?;
        Ok(tool)
    }

    /// Check of a call in the tool's own words.
    fn checked_on<'a>(
        &self,
        tool: &'a Tool,
        registry: &Registry,
        (Understood { mut args, told: of_surface, limit }, read): (Understood, &Value),
        attempt: Attempt,
    ) -> Result<Checked<'a>, CallError> {
        tool.validate(&args).map_err(CallError::Arguments)?;
        let root = self.root();
        let shell_dir = self.sandbox.shell_dir.as_ref().unwrap_or(&root);
        let limit = limit.unwrap_or_else(|| registry.output_limit(&tool.name));
        let (session, credentials) = (&*self.id, &*self.gate.credentials);
        let (databases, profile) = (&self.tools.databases, &self.gate.profile);
        let effective = &*self.effective.for_tool(tool.own_name());
        let none = std::collections::BTreeMap::new();
        let context = Context {
            root: &root,
            shell_dir,
            limit,
            session,
            credentials,
            attempt,
            read,
            databases,
            profile,
            effective,
            servers: self.manifest.as_ref().map_or(&none, |manifest| &manifest.lsp),
        };
        let mut prepared = tool.prepare(&args, &context).map_err(|e| CallError::Arguments(e.to_string()))?;
        #[cfg(feature = "ablation")]
        self.forget(&mut prepared.effects);
        let own = match &tool.executor {
            Executor::Program(ProgramTool::Declared(_)) => Some(self.part_for(tool)?),
            Executor::Host(HostTool::Delegate(how)) => {
                let agent = self.agent_of(*how, &args)?;
                let (own, runner) = self.part_for_agent(&agent)?;
                args["subagent_type"] = agent.clone().into();
                // What is read before an agent starts is read by this session.
                self.check(&prepared.effects)?;
                let before = self.task_before(*how, &args)?;
                let work = work_of((*how, &agent), (&args, &of_surface), before);
                prepared.effects.own.insert(0, Effect::Delegates(work));
                // The model starts it, with what it says: rules, watchdogs and people see it as they see what a shell starts.
                prepared.effects.implied.extend(runner.map(Effect::Runs));
                Some(own)
            }
            Executor::Host(HostTool::Background(_)) => {
                self.complete_typed(&mut prepared.effects, &mut prepared.told);
                None
            }
            Executor::Worker(_) | Executor::Program(_) | Executor::Host(_) => None,
        };
        let grant = match &own {
            // What agents are started for is no need of theirs.
            Some(own) if tool.executor.delegation().is_some() => {
                let runner = prepared.effects.implied.iter().filter(|effect| matches!(effect, Effect::Runs(_)));
                own.check(&Effects { implied: runner.cloned().collect(), ..Effects::default() }).map_err(denied)?
            }
            Some(own) => own.check(&prepared.effects).map_err(denied)?,
            None => self.check_within(effective, &prepared.effects)?,
        };
        // Whatever its line says, and whatever is made of it: the kernel holds a restricted shell to reading.
        let runs = prepared.effects.run().is_some();
        let grant = if runs && self.gate.profile.restricts_the_shell() { grant.for_reading() } else { grant };
        let of_profile = self.gate.profile.shell_timeout.filter(|_| runs);
        let timeout = prepared.timeout.or(tool.timeout).or(of_profile).unwrap_or(TIMEOUT);
        let Prepared { mut effects, work, credentials, secured, mut told, .. } = prepared;
        let key = tool.key_of.as_ref().map(|key_of| key_of(&args)).filter(|key| !key.is_empty());
        for effect in &mut effects.own {
            if let Effect::Serves(request) = effect {
                request.key.clone_from(&key);
            }
        }
        told.extend(of_surface);
        Ok(Checked { tool, args, effects, key, grant, own, work, timeout, root, credentials, secured, told })
    }

    /// Reason why there is no tool of this name.
    fn unknown(&self, registry: &Registry, name: &str) -> CallError {
        let has_providers = self.manifest.as_ref().is_some_and(|manifest| manifest.net.search.is_some());
        if name == "web_search" && !has_providers {
            return CallError::Told { text: NO_PROVIDER.to_owned(), code: ErrorCode::ToolNotActive };
        }
        if let Some(text) = removed(name, VERSION) {
            return CallError::Told { text, code: ErrorCode::NotFound };
        }
        match not_configured(name, self.manifest.as_ref().map(|manifest| &manifest.net)) {
            Some(text) => CallError::Told { text, code: ErrorCode::ToolNotActive },
            None => unknown(registry, name),
        }
    }

    /// Where calls start.
    pub(crate) fn root(&self) -> HostPath {
        self.sandbox.facts.workspace.first().cloned().unwrap_or_else(|| "/".into())
    }

    /// X1-15: nothing else runs once a person would have had to be asked, and there was none.
    fn goes_on(&self, tool: &str) -> Result<(), CallError> {
        if !self.is_halted() {
            return Ok(());
        }
        Err(CallError::Halted { tool: tool.to_owned(), why: "an earlier call has not been answered".to_owned() })
    }

    /// Has an approved call carried out by whoever does that: the one way to a worker, a program, the host and others. What few calls
    /// come to is boxed: a host that makes several at once holds all of them on its stack.
    async fn execute(
        &self,
        registry: &Registry,
        approved: Approved<'_>,
        turn: Turn,
        on_output: OnOutput<'_>,
        (known, recording): (&mut Known, &mut Recording),
    ) -> Result<Done, CallError> {
        self.still_there()?;
        let (tool, task) = approved.into_parts();
        #[cfg(feature = "ablation")]
        if self.lacks(Layer::Sandbox) {
            let data = ablation::unconfined(&task).map_err(CallError::Tool)?;
            return Ok(Done::of(data));
        }
        match task {
            ApprovedTask::Worker { plan, mut args, told } => {
                if let Value::Object(args) = &mut args {
                    args.extend(told);
                }
                let (bounds, timeout) = (plan.bounds, limits::ms(plan.timeout));
                // What is in force for this tool alone is in no sandbox of the session's programs.
                let run = match self.own_of_worker(tool, &plan) {
                    Some(own) => {
                        let part = Box::pin(self.open_part(&own, (&Env::default(), None), &bounds)).await?;
                        part.opened.tool(plan, args, turn).await
                    }
                    None => self.sandbox.opened.tool(plan, args, turn).await,
                };
                let mut run = run.map_err(|error| lost(tool, &bounds, error))?;
                known.steps = std::mem::take(&mut run.steps);
                self.shape_tool(tool.own_name(), run, (&bounds, timeout))
            }
            ApprovedTask::Program(program, task) => {
                Box::pin(self.run_program((tool, program), task, turn, on_output, known)).await
            }
            ApprovedTask::Host(host, task) => {
                Box::pin(self.have_host_answer((tool, host), task, registry, turn, (known, recording))).await
            }
        }
    }

    /// Runs a program, as its tool says.
    async fn run_program(
        &self,
        (tool, program): (&Tool, &ProgramTool),
        ProgramTask { plan, places, args, told, own }: ProgramTask,
        turn: Turn,
        on_output: OnOutput<'_>,
        known: &mut Known,
    ) -> Result<Done, CallError> {
        places.refuse_links()?;
        match program {
            ProgramTool::Plain(_) | ProgramTool::Tests(_) => self.run_shell(tool, plan, turn, on_output, known).await,
            ProgramTool::Document(document) => self.run_document((tool, document), plan, turn, on_output, known).await,
            ProgramTool::Interactive(_) => self.run_exec_shell(tool, (plan, &args), turn, on_output, known).await,
            ProgramTool::Server(_) => self.run_server(tool, (plan, args, told), turn, known).await,
            ProgramTool::Declared(declared) => {
                let own = own.ok_or_else(|| pass::lost(tool, "has no sandbox of its own"))?;
                self.run_declared((tool, declared), (plan, &own), args, turn, on_output, known).await
            }
        }
    }

    /// Has the host answer: the session itself, an agent's session, or whoever embeds it.
    async fn have_host_answer(
        &self,
        (tool, host): (&Tool, &HostTool),
        HostTask { args, told, most }: HostTask,
        registry: &Registry,
        turn: Turn,
        (known, recording): (&mut Known, &mut Recording),
    ) -> Result<Done, CallError> {
        match host {
            HostTool::Session(hosted) => {
                let data = self.answer_itself(*hosted, registry, args, recording).await?;
                drop(turn);
                self.cut(tool, data)
            }
            HostTool::Agents(act) => {
                drop(turn);
                self.about_agents(tool, *act, &args).await
            }
            HostTool::Background(act) => self.about_background(*act, (&args, &told), turn).await,
            HostTool::Handler(handler) => self.answered(tool, &**handler, args, turn).await,
            HostTool::Delegate(how) => {
                let most = most.ok_or_else(|| pass::lost(tool, "has no agent to start"))?;
                match how {
                    Delegation::Task => {
                        self.delegate_all(tool, (&args, &told, &most), (known, recording.id()), turn).await
                    }
                    Delegation::Spawn
                    | Delegation::Swarm
                    | Delegation::Csv
                    | Delegation::Assign
                    | Delegation::Resume
                    | Delegation::Input => self.start_agents(tool, *how, (&args, &most), recording.id()).await,
                }
            }
        }
    }

    /// Layer 1, for a call of the session itself.
    pub(crate) fn check(&self, effects: &Effects) -> Result<CallGrant, CallError> {
        self.check_within(&self.effective, effects)
    }

    /// Layer 1, within these rights.
    fn check_within(&self, effective: &EffectiveSet, effects: &Effects) -> Result<CallGrant, CallError> {
        #[cfg(feature = "ablation")]
        #[allow(clippy::disallowed_methods, reason = "a test build lacks the capability check")]
        if let Some(everything) = callgate_policy::effective::everything().filter(|_| self.lacks(Layer::Capability)) {
            return everything.check(effects).map_err(denied);
        }
        effective.check(effects).map_err(denied)
    }

    /// The workspace's roots are what they were.
    pub(crate) fn still_there(&self) -> Result<(), CallError> {
        match self.replaced_root() {
            None => Ok(()),
            Some(root) => Err(denied({
                let reason = "it was replaced or removed since the session was opened, which is bound to the old one";
                Denial::new(Layer::Host, root.to_string(), reason).remedy("open a new session")
            })),
        }
    }
}

/// A worker that has ended without a result: by what it read, as far as anybody knows.
fn lost(tool: &Tool, bounds: &Bounds, error: ConfineError) -> CallError {
    let ConfineError::WorkerLost = error else { return CallError::Confine(error) };
    let text = format!(
        "`{}` ended without a result: what it read may be damaged, or made to break it, or takes more than its {} MiB of memory",
        tool.name,
        bounds.memory >> 20
    );
    CallError::Told { text, code: ErrorCode::ToolExecutionFailed }
}

fn unknown(registry: &Registry, name: &str) -> CallError {
    let why = registry.left_out().iter().rev().find(|left_out| left_out.name.as_deref() == Some(name));
    if let Some(left_out) = why {
        return CallError::LeftOut { name: name.to_owned(), file: left_out.file.clone(), why: left_out.why.clone() };
    }
    let known = registry.names().into_iter().map(str::to_owned).collect();
    CallError::UnknownTool { name: name.to_owned(), known }
}
