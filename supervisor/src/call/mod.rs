//! The story of one call.

mod decide;
mod enforced;
mod envelope;
mod error;
pub(crate) mod limits;
mod rest;
mod shell;
mod spawn;
mod tool;
mod understand;

pub(crate) use decide::{Presented, interaction_required};
pub(crate) use enforced::enforced;
pub use error::CallError;

use std::time::{Duration, Instant};

use callgate_policy::approval::ApprovalKey;
use callgate_policy::call_grant::{CallGrant, CallNeeds};
use callgate_policy::envelope::{Denial, Layer, ResultEnvelope};
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile::{self, CallSpec};
use callgate_policy::plan::{CallPlan, Work};
use callgate_policy::rules::Decision;
use callgate_policy::watchdog::{CallFacts, Reason, Verdict};
use serde_json::Value;

use self::envelope::Done;
use self::error::denied;
use crate::registry::{Context, Prepared, Tool};
use crate::session::Session;
use crate::turn::{Concurrency, Turn};

/// How long a call may take that does not say (X2-1).
const TIMEOUT: Duration = Duration::from_secs(120);

/// Called with each piece of a program's output as it comes.
pub(super) type OnOutput<'a> = &'a mut (dyn FnMut(&[u8]) + Send);

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
        let timeout = crate::call::limits::ms(plan.timeout);
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
                passed: decide::Passed::default(),
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
}
