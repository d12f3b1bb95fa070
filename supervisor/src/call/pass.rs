//! Layer 2 of a session's calls: what a call is goes before the gate, with its plan, and what comes back may be carried out.

use callgate_policy::call_grant::CallGrant;
use callgate_policy::effect::Effects;
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile::{self, CallSpec};
use callgate_policy::plan::{CallPlan, CallRules};
use callgate_policy::rules::{RuleSet, SubPolicy, SubPolicyReport};
use callgate_policy::shell::Line;
use serde_json::Value;

use super::Checked;
use crate::error::CallError;
use crate::gate::{
    Approved, ApprovedPlan, ApprovedTask, Case, GrantedPlaces, HostTask, Judged, Known, Preview, ProgramTask,
};
use crate::open_error::OpenError;
use crate::registry::{Executor, HostTool, Tool};
use crate::session::Session;
use crate::store::Recording;
use crate::turn::Place;

/// Rules in the session of the agent that a call starts, if it starts one.
type OfAgent = Option<Result<RuleSet, OpenError>>;

/// A call's plan, and the places where a rule lets it write.
type Planned = (Option<CallPlan>, GrantedPlaces);

impl Session {
    /// Layer 2, whole: rules and mode, watchdogs, and the person. What it returns may be carried out, and nothing else may.
    ///
    /// `known` is what an error's envelope can say of the call.
    pub(crate) async fn pass<'a>(
        &self,
        checked: Checked<'a>,
        asking: Place,
        (known, recording): (&mut Known, &mut Recording),
    ) -> Result<Approved<'a>, CallError> {
        let line = self.line_of(&checked).await?;
        let of_agent = self.rules_of_its_agent(&checked);
        let case = self.case(&checked, line.as_ref(), of_agent.as_ref());
        let judged = self.gate.judge(case, known).await?;
        let sub_policy = judged.sub_policy().cloned();
        let (plan, places) = self.plan_of(&checked, &judged)?;
        known.passed.sub_policy = match (&checked.own, &sub_policy) {
            (Some(own), Some(sub_policy)) => Some(sub_policy.told(own)),
            (_, sub_policy) => plan.as_ref().and_then(|plan| self.sub_policy_report(plan, sub_policy.as_ref())),
        };
        known.asked_for = plan.as_ref().filter(|plan| plan.timeout < checked.timeout).map(|_| checked.timeout);
        let understand = |command| self.understand(command);
        let passage = self.gate.approve(judged, plan, understand, (asking, recording)).await?;
        known.passed.approved_by = passage.approved_by();
        let whole = matches!(checked.tool.executor, Executor::Host(HostTool::Session(_))).then(|| case.whole());
        passage.approve(checked.tool, |plan| task(checked, (plan, places), sub_policy.as_ref(), whole))
    }

    /// Judgement of the capability check, the rules, the mode and the watchdogs on a call. It is not made: nobody is
    /// asked, and nothing runs but what takes its command line apart. The answer holds for this moment;
    /// [`Session::call`] decides anew.
    ///
    /// `line` is what [`Session::understand`] said of its command line, for a host that has asked already. Without it the
    /// line is taken apart here, if anything looks at it.
    ///
    /// # Errors
    /// [`CallError::Denied`] if one of them denies it, and what else a call returns before it runs.
    pub async fn preview(&self, tool: &str, args: &Value, line: Option<&Line>) -> Result<Preview, CallError> {
        let registry = self.registry();
        let checked = self.checked(&registry, tool, args.clone()).await?;
        let understood = match line {
            Some(_) => None,
            None => self.line_of(&checked).await?,
        };
        let of_agent = self.rules_of_its_agent(&checked);
        let case = self.case(&checked, line.or(understood.as_ref()), of_agent.as_ref());
        Ok(self.gate.judge(case, &mut Known::default()).await?.preview())
    }

    /// True if a person would be asked about a call that runs a program.
    pub(super) async fn would_ask(&self, checked: &Checked<'_>) -> Result<bool, CallError> {
        let line = self.line_of(checked).await?;
        let of_agent = self.rules_of_its_agent(checked);
        let case = self.case(checked, line.as_ref(), of_agent.as_ref());
        Ok(self.gate.judge(case, &mut Known::default()).await?.asks())
    }

    /// The gate of a program that the host starts past the tools: what a rule denies to programs is denied to it, and nobody is
    /// asked.
    pub(super) fn pass_of_host(&self, about: (&Effects, &HostPath), plan: CallPlan) -> Result<ApprovedPlan, CallError> {
        self.gate.pass_of_host(about, &self.effective, plan)
    }

    /// True if a person would have had to be asked, and there was none (`headless = "halt"`): nothing else will run.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        self.gate.halt.is_halted()
    }

    /// The command line of a shell, taken apart, if rules or watchdogs look at its commands or the profile restricts it.
    async fn line_of(&self, checked: &Checked<'_>) -> Result<Option<Line>, CallError> {
        let Some(command) = checked.effects.command_line() else { return Ok(None) };
        if !self.gate.looks_at_lines(checked.tool) {
            return Ok(None);
        }
        self.understand(command).await.map(Some)
    }

    fn rules_of_its_agent(&self, checked: &Checked<'_>) -> OfAgent {
        checked.tool.executor.delegation()?;
        self.rules_of_agent(checked.args["subagent_type"].as_str().unwrap_or_default())
    }

    fn case<'a>(
        &'a self,
        checked: &'a Checked<'a>,
        line: Option<&'a Line>,
        of_agent: Option<&'a Result<RuleSet, OpenError>>,
    ) -> Case<'a> {
        let Checked { tool, args, effects, key, root, own, credentials, told, .. } = checked;
        Case {
            tool,
            args,
            effects,
            key: key.as_deref(),
            root,
            shell_dir: self.sandbox.shell_dir.as_ref().unwrap_or(root),
            line,
            effective: &self.effective,
            own: own.as_ref(),
            of_agent,
            credentials,
            told,
        }
    }

    /// The plan of a call that runs in the sandbox, with what its sub-policy leaves.
    fn plan_of(&self, checked: &Checked<'_>, judged: &Judged<'_>) -> Result<Planned, CallError> {
        let Checked { tool, effects, grant, own, work, timeout, secured, .. } = checked;
        let Some(work) = work.clone() else { return Ok(Planned::default()) };
        let bounds = self.sandbox.bounds.within(&tool.limits);
        let plan = compile::call(grant, &self.sandbox.facts, CallSpec { work, bounds, timeout: *timeout })?;
        // A declared tool has a sandbox of its own, which is made with what is left to it.
        let sub_policy = judged.sub_policy().filter(|_| own.is_none());
        let (mut plan, places) = self.narrowed(plan, grant, sub_policy)?;
        plan.as_spelt = self.gate.passes_by_path(judged);
        plan = compile::leaving_out(plan, judged.left_out().to_vec());
        if tool.executor.reads_alone() {
            plan = compile::reading_alone(plan, self.plan(), &self.sandbox.facts);
        }
        if let Some(network) = &mut plan.network {
            network.secured.clone_from(secured);
            network.past_session = effects.query().is_some();
        }
        Ok((Some(plan), places))
    }

    /// The plan, with what its sub-policy leaves; and where the rules let it write.
    fn narrowed(
        &self,
        plan: CallPlan,
        grant: &CallGrant,
        sub_policy: Option<&SubPolicy>,
    ) -> Result<(CallPlan, GrantedPlaces), CallError> {
        let Some(sub_policy) = sub_policy else { return Ok((plan, GrantedPlaces::default())) };
        let places = GrantedPlaces::of(sub_policy, grant);
        places.refuse_links()?;
        Ok((compile::narrowed(plan, grant, sub_policy, self.plan(), &self.sandbox.facts)?, places))
    }

    /// For the envelope.
    fn sub_policy_report(&self, plan: &CallPlan, sub_policy: Option<&SubPolicy>) -> Option<SubPolicyReport> {
        match &plan.rules {
            CallRules::OfSession | CallRules::Own(_) => None,
            CallRules::Reading => {
                let network = plan.network.as_ref().or(self.plan().network.as_ref());
                let net = network.map(|network| network.hosts.iter().map(ToString::to_string).collect());
                let by = format!("profile {}", self.gate.profile.name);
                Some(SubPolicyReport { by, net: net.unwrap_or_default(), ..SubPolicyReport::default() })
            }
            CallRules::Narrowed(_) => sub_policy.map(|sub_policy| sub_policy.told(&self.effective)),
        }
    }
}

/// Work of a call that passed.
fn task<'a>(
    Checked { tool, args, own, told, .. }: Checked<'a>,
    (plan, places): (Option<ApprovedPlan>, GrantedPlaces),
    sub_policy: Option<&SubPolicy>,
    whole: Option<Value>,
) -> Result<ApprovedTask<'a>, CallError> {
    let own = match (own, sub_policy) {
        (Some(own), Some(sub_policy)) => Some(own.narrowed_to(sub_policy)),
        (own, _) => own,
    };
    let own = own.map(Box::new);
    match (&tool.executor, plan) {
        (Executor::Worker(_), Some(plan)) => Ok(ApprovedTask::Worker { plan, args, told }),
        (Executor::Program(program), Some(plan)) => {
            Ok(ApprovedTask::Program(program, ProgramTask { plan, places, args, told, own }))
        }
        (Executor::Host(host), _) => {
            Ok(ApprovedTask::Host(host, HostTask { args: whole.unwrap_or(args), told, most: own }))
        }
        (Executor::Worker(_) | Executor::Program(_), None) => Err(lost(tool, "gave the sandbox nothing to do")),
    }
}

/// A tool whose call lacks what it is carried out with.
pub(super) fn lost(tool: &Tool, what: &str) -> CallError {
    CallError::Tool(format!("`{}` {what}", tool.name))
}
