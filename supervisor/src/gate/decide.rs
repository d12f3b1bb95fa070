//! Between the capability check and the sandbox: rules and mode, the watchdog's question, and the person (C-7).

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use callgate_policy::approval::{ApprovalScope, Approvals, EffectKey};
use callgate_policy::denied::DeniedFiles;
#[cfg(feature = "ablation")]
use callgate_policy::effect::EffectKinds;
use callgate_policy::effect::{Effect, Effects, HostConnection, ProgramRun};
use callgate_policy::effective::EffectiveSet;
use callgate_policy::envelope::{Denial, Layer};
use callgate_policy::manifest::{Credential, Manifest, Over};
use callgate_policy::mode::Headless;
use callgate_policy::path::HostPath;
use callgate_policy::pattern::Host;
use callgate_policy::plan::{CallPlan, CallWork};
use callgate_policy::profile::{Database, Profile};
use callgate_policy::rules::commands::{self, Begin};
use callgate_policy::rules::{
    Act, Action, Capability, CommandPart, Compared, DecidedBy, Decision, EffectStanding, JudgedCall, JudgedEffect,
    RuleJudgement, RuleSet, SubPolicy,
};
use callgate_policy::shell::{Line, restricted};
use callgate_policy::sql::SqlKind;
use callgate_policy::watchdog::Reason;
use callgate_policy::watchdog::{CallFacts, Verdict};
use serde_json::json;

use super::approved::{ApprovedPlan, Passage};
use super::case::{Case, Known, words};
use super::execs::{Watch, Watching};
use super::people::{self, Approvable, NoAnswer, People, Question, ShownEffect, Yes};
use super::{AskedBy, Halt, Watchdogs};
use crate::causes::with_causes;
use crate::confine::AsyncChannel;
use crate::error::CallError;
use crate::registry::{Executor, HostTool, ProgramTool, Tool};
use crate::store::Recording;
use crate::turn::{Place, Turns};

/// Name of a program that no tool starts.
const PROGRAM: &str = "run";

/// A call that layers 1 and 2 let pass, perhaps on the condition that a person says yes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preview {
    /// Decision of rules and mode.
    pub decision: Decision,
    /// Reasons why a person would be asked. Empty if nobody would be.
    pub asks: Vec<String>,
}

/// Decision of rules and mode on a call, none of which denies it.
pub(super) struct Decided {
    judgement: RuleJudgement,
    /// Decision of an agent's rules on the program that runs it, if they ask.
    of_program: Option<Decision>,
    /// Sub-policy to which it is narrowed.
    sub_policy: Option<SubPolicy>,
    /// Files that it leaves out of what it searches.
    left_out: Vec<DeniedFiles>,
}

impl Decided {
    /// Decisions on all that it does.
    fn all(&self) -> impl Iterator<Item = &Decision> {
        self.judgement.each.iter().chain(&self.of_program)
    }

    /// The strictest of them.
    fn decision(&self) -> &Decision {
        let of_program = self.of_program.as_ref().filter(|_| self.judgement.decision.action == Action::Allow);
        of_program.unwrap_or(&self.judgement.decision)
    }
}

/// Everything that judges the calls of a session: its rules and mode, its profile, the watchdogs, and people.
pub(crate) struct Gate {
    /// Id of the session.
    pub(crate) session: String,
    /// The subagent whose session it is, if it is one's.
    pub(crate) agent: Option<String>,
    pub(crate) manifest: Option<Arc<Manifest>>,
    /// Added to while the session runs; read by every call.
    pub(crate) rules: RwLock<RuleSet>,
    pub(crate) profile: Profile,
    pub(crate) watchdogs: Arc<Watchdogs>,
    pub(crate) people: Arc<People>,
    /// The order in which people are asked.
    pub(crate) questions: Turns,
    pub(crate) asked_by: AskedBy,
    pub(crate) headless: Headless,
    pub(crate) halt: Arc<Halt>,
    /// Hosts for which there are credentials. Their values are not here.
    pub(crate) credentials: Vec<Credential>,
    /// Layer that a test's session lacks.
    #[cfg(feature = "ablation")]
    pub(crate) ablated: Option<Layer>,
    /// Kinds of effects that a test's tools forget to declare.
    #[cfg(feature = "ablation")]
    pub(crate) forgotten: EffectKinds,
}

/// RuleJudgement of rules, mode and watchdogs on a call. Nobody has been asked yet.
pub(crate) struct Judged<'a> {
    case: Case<'a>,
    decided: Decided,
    /// Reason of a watchdog that wants a person to be asked.
    watchdog: Option<Reason>,
    /// Reasons why a person has to say yes; none if nobody has to.
    why: Vec<String>,
}

impl Judged<'_> {
    /// Sub-policy to which the call is narrowed.
    pub(crate) fn sub_policy(&self) -> Option<&SubPolicy> {
        self.decided.sub_policy.as_ref()
    }

    /// Files that the call leaves out of what it searches.
    pub(crate) fn left_out(&self) -> &[DeniedFiles] {
        &self.decided.left_out
    }

    /// True if a person would be asked.
    pub(crate) fn asks(&self) -> bool {
        !self.why.is_empty()
    }

    /// Answer to a host that only wants to know.
    pub(crate) fn preview(self) -> Preview {
        Preview { decision: self.decided.decision().clone(), asks: self.why }
    }
}

impl Gate {
    pub(crate) fn rules(&self) -> RwLockReadGuard<'_, RuleSet> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn rules_to_change(&self) -> RwLockWriteGuard<'_, RuleSet> {
        self.rules.write().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(feature = "ablation")]
    fn lacks(&self, layer: Layer) -> bool {
        self.ablated == Some(layer)
    }

    /// Answers for every program that is about to run in the session, until it is dropped.
    pub(crate) fn watch(&self, tracer: AsyncChannel) -> Watching {
        let (watchdogs, people) = (Arc::clone(&self.watchdogs), Arc::clone(&self.people));
        let (manifest, session, agent) = (self.manifest.clone(), self.session.clone(), self.agent.clone());
        Watch { watchdogs, people, manifest, session, agent }.start(tracer)
    }

    /// True if somebody looks at the command lines of a tool: rules, a watchdog, or the profile.
    pub(crate) fn looks_at_lines(&self, tool: &Tool) -> bool {
        let looked_at = self.rules().looks_at_commands(&tool.rule_name());
        looked_at || self.profile.restricts_the_shell() || self.watchdogs.wants().lines
    }

    /// Sub-policy that rules give its commands; else, for a line whose commands all only read, one with nothing to
    /// change. Only a line that something looks at is taken apart, so nothing is known of others.
    fn sub_policy(&self, ruled: &JudgedCall<'_>, line: Option<&Line>) -> Option<SubPolicy> {
        let of_rules = self.rules().sub_policy(ruled);
        let reads = || line.is_some_and(|line| restricted::judge(line).is_ok());
        of_rules.or_else(|| reads().then(SubPolicy::reading))
    }

    /// Judges a call by rules, mode and watchdogs: all but the person, whom these may want asked.
    pub(crate) async fn judge<'a>(&self, case: Case<'a>, known: &mut Known) -> Result<Judged<'a>, CallError> {
        let decided = self.decide(&case, known)?;
        let watchdog = self.ask_watchdogs(&case).await?;
        let why = self.asks(&case, &decided, watchdog.as_ref(), &self.people.approvals());
        Ok(Judged { case, decided, watchdog, why })
    }

    /// Asks the watchdogs. Returns what a person must be asked.
    async fn ask_watchdogs(&self, call: &Case<'_>) -> Result<Option<Reason>, CallError> {
        #[cfg(feature = "ablation")]
        if self.lacks(Layer::Watchdog) {
            return Ok(None);
        }
        let name = call.tool.rule_name();
        let mut facts = CallFacts::new(&name, call.args, call.effects, call.root);
        (facts.subject, facts.line) = (call.tool.subject, call.line);
        (facts.manifest, facts.session) = (self.manifest.as_deref(), &self.session);
        let mode = self.rules().mode;
        match self.watchdogs.judge(&facts, mode).await {
            Verdict::Allow => Ok(None),
            Verdict::Ask(reason) => Ok(Some(reason)),
            Verdict::Deny(reason) => {
                Err(CallError::Denied(Box::new(Denial::new(Layer::Watchdog, call.tool.name.clone(), reason.told()))))
            }
        }
    }

    /// S4-9, C-23: a shell that only reads, whatever the mode.
    fn refuse_what_does_more_than_read(&self, line: Option<&Line>) -> Result<(), CallError> {
        #[cfg(feature = "ablation")]
        if self.lacks(Layer::Rule) {
            return Ok(());
        }
        let Some(line) = line.filter(|_| self.profile.restricts_the_shell()) else { return Ok(()) };
        restricted::judge(line).map_err(|refusal| {
            let reason =
                format!("the profile `{}` has a shell that only reads, and {}", self.profile.name, refusal.why);
            CallError::Denied(Box::new(Denial::new(Layer::Rule, refusal.command, reason).remedy(refusal.remedy)))
        })
    }

    /// X4-4: what the profile's tools may write, besides that only some of them are there.
    fn refuse_writing_past_the_profile(&self, call: &Case<'_>) -> Result<(), CallError> {
        let Some(reason) = self.profile.refuses(call.effects) else { return Ok(()) };
        let asked = call.effects.written().next().map_or(call.tool.name.clone(), ToString::to_string);
        let remedy = "choose another place, or have its author change the profile";
        Err(CallError::Denied(Box::new(Denial::new(Layer::Rule, asked, reason).remedy(remedy))))
    }

    /// S4-16: what a statement may do.
    fn refuse_statement_past_the_profile(&self, call: &Case<'_>) -> Result<(), CallError> {
        let Some(sql) = call.effects.query() else { return Ok(()) };
        let verb = &sql.statement.verb;
        let denied = |reason: String| {
            Denial::new(Layer::Rule, format!("{} {}: {verb}", sql.dialect.tool(), sql.database), reason)
        };
        let denial = match sql.statement.kind {
            SqlKind::Reads => return Ok(()),
            SqlKind::Changes if self.profile.database == Database::Mutations => return Ok(()),
            SqlKind::Changes => {
                let name = &self.profile.name;
                denied(format!("it changes something, and the profile `{name}` has databases that are only read"))
                    .remedy("open a session with a profile that has `database: mutations`, such as `eval`")
            }
            SqlKind::Neither => {
                denied("it neither reads what a database holds nor changes that; it is about the server, the connection or a file".to_owned())
                    .remedy("use a statement that reads; SELECT … INTO, FOR UPDATE, COPY, SET and the like are for no call")
            }
        };
        Err(CallError::Denied(Box::new(denial)))
    }

    /// S0-15: a tool that names its hosts is judged by the grant of the rule that lets it pass, as a program would be held to it.
    fn refuse_hosts_past_the_rule(&self, call: &Case<'_>, judged: &JudgedCall<'_>) -> Result<(), CallError> {
        #[cfg(feature = "ablation")]
        if self.lacks(Layer::Rule) {
            return Ok(());
        }
        // The plan of such a call has these hosts and no others.
        let mut hosts = call.effects.connections().filter(|_| call.effects.run().is_none()).peekable();
        let Some(sub_policy) = hosts.peek().and_then(|_| self.sub_policy(judged, None)) else { return Ok(()) };
        let is_left =
            |need: &&HostConnection| Host::parse(&need.host).is_ok_and(|host| sub_policy.leaves_host(&host, need.port));
        let Some(need) = hosts.find(|need| !is_left(need)) else { return Ok(()) };
        let asked = format!("net.hosts {}:{}", need.host.escape_default(), need.port);
        let reason = format!("the `grant` of the {} leaves its calls other hosts, or none", sub_policy.by());
        let remedy = "have the rule's `grant` name the host, or a rule without a `grant` decide";
        Err(CallError::Denied(Box::new(Denial::new(Layer::Rule, asked, reason).remedy(remedy))))
    }

    /// Profile, rules and mode.
    fn decide(&self, call: &Case<'_>, known: &mut Known) -> Result<Decided, CallError> {
        if call.effects.run().is_some() {
            self.refuse_what_does_more_than_read(call.line)?;
        }
        self.refuse_writing_past_the_profile(call)?;
        self.refuse_statement_past_the_profile(call)?;
        let tool = call.tool.rule_name();
        let judged = self.judged_call(call, &tool);
        let judgement = self.judgement(&judged, &self.people.approvals());
        known.passed.decision = Some(judgement.decision.clone());
        unless_denied(&judgement.decision, (&call.tool.name, &tool))?;
        let sub_policy = call.effects.run().and_then(|_| self.sub_policy(&judged, call.line));
        self.refuse_hosts_past_the_rule(call, &judged)?;
        let (of_program, sub_policy) = self.decide_program_of_agent(call, &judged, sub_policy, known)?;
        let left_out = self.rules().left_out(&judged);
        Ok(Decided { judgement, of_program, sub_policy, left_out })
    }

    /// A call as rules see it.
    fn judged_call<'a>(&self, call: &Case<'a>, tool: &'a str) -> JudgedCall<'a> {
        let rules = self.rules();
        let effects = call.judged(|line, parts| rules.has_phrase_across(line, parts));
        let reach = match call.effects.run() {
            // It is held to reading, whatever was granted.
            Some(_) if call.tool.executor.reads_alone() => vec![Capability::FsRead],
            Some(_) => self.in_force_for(call, None).capabilities_of_programs().collect(),
            None => Vec::new(),
        };
        // A tool of the host's own says itself that it changes nothing.
        let is_harmless = matches!(call.tool.executor, Executor::Host(HostTool::Handler(_)))
            && !call.tool.is_a_servers()
            && call.tool.subject.changes_nothing();
        JudgedCall { tool, ungated: !call.tool.gated || is_harmless, key: call.key, effects, reach }
    }

    /// RuleJudgement of the rules on a call.
    fn judgement(&self, call: &JudgedCall<'_>, approvals: &Approvals) -> RuleJudgement {
        let rules = self.rules();
        if tracing::enabled!(tracing::Level::TRACE) {
            for Compared { rule, act, action } in rules.compared(call) {
                tracing::trace!(session = self.session, tool = call.tool, %rule, act, ?action, "a rule was compared");
            }
        }
        let judgement = rules.judge(call, approvals, &key_of);
        tracing::debug!(session = self.session, tool = call.tool, decision = %judgement.decision, "rules decided");
        judgement
    }

    /// Decision of the rules in an agent's session on the program that runs it: they ask or deny as they do about a
    /// program that a call starts there, though a rule lets `task` pass; and a grant of theirs narrows it.
    fn decide_program_of_agent(
        &self,
        call: &Case<'_>,
        judged: &JudgedCall<'_>,
        sub_policy: Option<SubPolicy>,
        known: &mut Known,
    ) -> Result<(Option<Decision>, Option<SubPolicy>), CallError> {
        let Some(rules) = call.of_agent.filter(|_| call.effects.run().is_some()) else {
            return Ok((None, sub_policy));
        };
        let rules = rules.as_ref().map_err(|error| CallError::Tool(with_causes(error)))?;
        let programs = judged.effects.iter().filter(|one| matches!(one.effect, Effect::Runs(_)));
        let judged = JudgedCall { effects: programs.cloned().collect(), ..judged.clone() };
        let sub_policy = match (sub_policy, rules.sub_policy(&judged)) {
            (Some(one), Some(other)) => Some(one.within(other)),
            (one, other) => one.or(other),
        };
        let Some(decision) = rules.tightens(&judged.effects, &judged.reach) else { return Ok((None, sub_policy)) };
        let passed = &mut known.passed.decision;
        if passed.as_ref().is_none_or(|passed| passed.action < decision.action) {
            *passed = Some(decision.clone());
        }
        unless_denied(&decision, (&call.tool.name, judged.tool))?;
        Ok((Some(decision), sub_policy))
    }

    /// Rights that a program of this call could use: a restricted shell has nothing to write (S4-9), and a sub-policy
    /// leaves less.
    fn in_force_for<'a>(&'a self, call: &Case<'a>, sub_policy: Option<&SubPolicy>) -> Cow<'a, EffectiveSet> {
        let in_force = call.own.unwrap_or(call.effective);
        match (call.effects.run().is_some() && self.profile.restricts_the_shell(), sub_policy) {
            (true, _) => Cow::Owned(in_force.for_reading()),
            (false, Some(sub_policy)) => Cow::Owned(in_force.narrowed_to(sub_policy)),
            (false, None) => Cow::Borrowed(in_force),
        }
    }

    /// The gate of a program that the host starts past the tools: what a rule denies to programs is denied to it, and nobody is
    /// asked.
    pub(crate) fn pass_of_host(
        &self,
        (effects, directory): (&Effects, &HostPath),
        effective: &EffectiveSet,
        plan: CallPlan,
    ) -> Result<ApprovedPlan, CallError> {
        self.refuse_by_rule((effects, directory), effective)?;
        Ok(ApprovedPlan::of_gate(plan))
    }

    fn refuse_by_rule(
        &self,
        (effects, directory): (&Effects, &HostPath),
        effective: &EffectiveSet,
    ) -> Result<(), CallError> {
        let Some((effect, ProgramRun::Program { argv, .. })) = effects.own.first().zip(effects.run()) else {
            return Ok(());
        };
        // The host has chosen the directory.
        let begin = Begin { directory, usual: directory, root: directory };
        let commands = CommandPart::of_argv(&words(argv)).map(|parts| commands::beginning_in(parts, begin));
        let acts =
            commands.map_or_else(|| vec![Act::UnknownCommand], |parts| parts.into_iter().map(Act::Command).collect());
        let effects = vec![JudgedEffect::new(effect, EffectStanding::Own).with(acts)];
        let reach = effective.capabilities_of_programs().collect();
        let call = JudgedCall { tool: PROGRAM, effects, reach, ..JudgedCall::default() };
        unless_denied(&self.judgement(&call, &Approvals::default()).decision, (PROGRAM, PROGRAM))
    }

    /// True if what lets a call pass looked at its path, a rule or a person, now or before: then no symbolic link may lead it elsewhere.
    pub(crate) fn passes_by_path(&self, judged: &Judged<'_>) -> bool {
        let is_answered = |decision: &Decision| matches!(decision.by, DecidedBy::Approval { .. });
        // An earlier answer also covers what a watchdog asks.
        let by_person = judged.asks() || judged.watchdog.is_some() || judged.decided.all().any(is_answered);
        by_person || self.rules().looks_at_paths(&judged.case.tool.rule_name())
    }

    /// Reasons why a person has to say yes; none if nobody has to.
    fn asks(
        &self,
        call: &Case<'_>,
        decided: &Decided,
        watchdog: Option<&Reason>,
        approvals: &Approvals,
    ) -> Vec<String> {
        // Who types a call has approved of it; of what a rule or a watchdog wants asked they are asked.
        let typed = |decision: &Decision| self.asked_by == AskedBy::Person && decision.by == DecidedBy::Default;
        let asking = decided.all().filter(|decision| decision.action == Action::Ask && !typed(decision));
        let mut why: Vec<String> = Vec::new();
        for reason in asking.map(Decision::to_string) {
            if !why.contains(&reason) {
                why.push(reason);
            }
        }
        let is_covered = || approved(call, approvals).is_some();
        why.extend(watchdog.filter(|_| !is_covered()).map(Reason::to_string));
        why
    }

    /// Has a person say yes, if there is a reason, and tells who did. Nothing that they did not see runs: the answer is for
    /// these arguments, this plan and this program. What it returns may be carried out, and nothing else may.
    ///
    /// `understand` takes a command line apart.
    pub(crate) async fn approve<'a, F: Future<Output = Result<Line, CallError>>>(
        &self,
        judged: Judged<'a>,
        plan: Option<CallPlan>,
        understand: impl FnOnce(&'a str) -> F,
        about: (Place, &mut Recording),
    ) -> Result<Passage, CallError> {
        let by = self.approved_by(judged, plan.as_ref(), understand, about).await?;
        Ok(Passage::of_gate(plan, by))
    }

    async fn approved_by<'a, F: Future<Output = Result<Line, CallError>>>(
        &self,
        Judged { case, decided, watchdog, why }: Judged<'a>,
        plan: Option<&CallPlan>,
        understand: impl FnOnce(&'a str) -> F,
        (asking, recording): (Place, &mut Recording),
    ) -> Result<Option<String>, CallError> {
        let call = &case;
        if why.is_empty() {
            return Ok(approved_scope(call, &decided, watchdog.as_ref(), &self.people.approvals()));
        }
        let program = match (plan.map(|plan| &plan.work), call.effects.run()) {
            (Some(CallWork::Program { argv, .. }), _) | (None, Some(ProgramRun::Program { argv, .. })) => argv.first(),
            _ => None,
        };
        let tool = call.tool.rule_name();
        let digest = people::digest(&tool, &call.whole(), plan, program);
        // A person sees what a line is made of, though no rule looked at that.
        let line = match (call.line, call.effects.command_line()) {
            (None, Some(command)) => understand(command).await.ok(),
            (line, _) => line.cloned(),
        };
        let in_force = self.in_force_for(call, decided.sub_policy.as_ref());
        let shown = Case { line: line.as_ref(), ..*call };
        let question = self.question(&shown, &in_force, why.clone(), digest.clone());
        let keys = |effects: &[Effect]| effects.iter().map(key_of).collect();
        let about =
            Approvable { effects: keys(&call.effects.own), implied: keys(&call.effects.implied), wider: call.wider() };
        // Whichever line was understood first: people are asked in the order of the calls (C-17).
        let _asking = asking.turn().await;
        // A question that nobody has answered is there after a crash.
        recording.wait_for_approval().await?;
        let holds = || people::digest(&tool, &call.whole(), plan, program) == digest;
        let answered = |approvals: &Approvals| {
            let judgement = self.judgement(&self.judged_call(call, &tool), approvals);
            let of_program = decided.of_program.clone();
            let now = Decided { judgement, of_program, sub_policy: None, left_out: Vec::new() };
            let is_answered = self.asks(call, &now, watchdog.as_ref(), approvals).is_empty();
            let is_denied = now.decision().action == Action::Deny;
            approved(call, approvals).filter(|_| is_answered && !is_denied)
        };
        match self.people.ask(question, about, answered, holds).await {
            Ok(Yes::Kept(scope)) => Ok(Some(scope.name().to_owned())),
            Ok(Yes::Now { by, .. }) => Ok(Some(by)),
            Err(NoAnswer::Nobody) if self.headless == Headless::Halt => {
                self.halt.halt();
                Err(CallError::Halted { tool: call.tool.name.clone(), why: why.join("; ") })
            }
            Err(none) => {
                let remedy = match none {
                    NoAnswer::Nobody => Some(decided.decision().remedy(&tool)),
                    NoAnswer::Changed => Some("make the call again".to_owned()),
                    NoAnswer::TooLong => Some("make several calls of it".to_owned()),
                    NoAnswer::TooLate(_) | NoAnswer::Rejected => None,
                };
                Err(self.refused(call, &none.text(&why.join("; ")), remedy.as_deref()))
            }
        }
    }

    fn refused(&self, call: &Case<'_>, reason: &str, remedy: Option<&str>) -> CallError {
        let denial = Denial::new(Layer::Person, call.tool.name.clone(), reason);
        CallError::Denied(Box::new(match remedy {
            Some(remedy) => denial.remedy(remedy),
            None => denial,
        }))
    }

    /// Credentials that egress adds to requests of a call, or could add: a person answers for what is done in their name.
    fn credentials_for(&self, call: &Case<'_>, in_force: &EffectiveSet) -> Vec<String> {
        let granted = || in_force.rights().hosts().iter().map(|(host, _)| host);
        let names = |credential: &Credential| {
            let Credential { header, host, over, .. } = credential;
            format!("{header} for {host} over {}", over.name())
        };
        match &call.tool.executor {
            Executor::Worker(_) => call.credentials.iter().map(names).collect(),
            // A sandbox of its own has no credentials, and a server reaches no host.
            Executor::Program(ProgramTool::Declared(_) | ProgramTool::Server(_)) => Vec::new(),
            Executor::Program(_) => {
                let in_the_clear = self.credentials.iter().filter(|one| one.over == Over::Http);
                in_the_clear.filter(|one| one.has_use(granted())).map(names).collect()
            }
            Executor::Host(HostTool::Delegate(_)) => {
                let agent = call.args["subagent_type"].as_str().unwrap_or_default();
                let its = self.manifest.as_ref().and_then(|manifest| manifest.of_agent(agent));
                let its = its.map(|manifest| manifest.net.credentials).unwrap_or_default();
                its.iter().filter(|one| one.has_use(granted())).map(names).collect()
            }
            // What they do is not done by way of egress.
            Executor::Host(_) => Vec::new(),
        }
    }

    fn question(&self, call: &Case<'_>, in_force: &EffectiveSet, why: Vec<String>, digest: String) -> Question {
        let starts = call.effects.run().is_some() || call.tool.executor.delegation().is_some();
        Question {
            session: self.session.clone(),
            agent: self.agent.clone(),
            tool: call.tool.rule_name(),
            kind: call.tool.kind().to_owned(),
            arguments: call.whole(),
            why,
            effects: shown_effects(call),
            credentials: self.credentials_for(call, in_force),
            // A host's own loop is no program. What it may change is as much for a person to know.
            reach: if starts { in_force.reach() } else { Vec::new() },
            wider: call.wider().as_ref().map(ToString::to_string),
            kept_for: self.people.kept_for(),
            digest,
        }
    }
}

/// The effects of a call for a person: what it does, the most dangerous first, and then how.
fn shown_effects(call: &Case<'_>) -> Vec<ShownEffect> {
    let shown = |effect: &Effect| {
        let shown = ShownEffect::new(effect);
        let is_line = matches!(effect, Effect::Runs(ProgramRun::Line { .. }));
        if is_line { ShownEffect { parts: call.line.and_then(commands::shown), ..shown } } else { shown }
    };
    let mut own: Vec<&Effect> = call.effects.own.iter().collect();
    own.sort_by_key(|effect| std::cmp::Reverse(effect.danger()));
    let implied = call.effects.implied.iter().map(|effect| ShownEffect { is_implied: true, ..shown(effect) });
    own.into_iter().map(shown).chain(implied).collect()
}

/// The key of an effect.
pub(super) fn key_of(effect: &Effect) -> EffectKey {
    EffectKey::of(effect, people::digest_of)
}

/// Scope of the answers that cover everything that a call does.
fn approved(call: &Case<'_>, approvals: &Approvals) -> Option<ApprovalScope> {
    let tool = call.tool.rule_name();
    approvals.cover(call.effects.own.iter().map(|effect| (effect, key_of(effect))), (&tool, call.key))
}

/// Whose earlier answer lets a call pass that nobody is asked about.
fn approved_scope(
    call: &Case<'_>,
    decided: &Decided,
    watchdog: Option<&Reason>,
    approvals: &Approvals,
) -> Option<String> {
    let by_rule = decided
        .all()
        .find_map(|decision| if let DecidedBy::Approval { scope } = &decision.by { Some(*scope) } else { None });
    let by_watchdog = || watchdog.and_then(|_| approved(call, approvals));
    by_rule.or_else(by_watchdog).map(|scope| scope.name().to_owned())
}

/// Refuses what a decision denies. A tool has a name for whoever called it, and one for rules.
fn unless_denied(decision: &Decision, (called, tool): (&str, &str)) -> Result<(), CallError> {
    if decision.action != Action::Deny {
        return Ok(());
    }
    let asked = decision.about.clone().unwrap_or_else(|| called.to_owned());
    let denial = Denial::new(Layer::Rule, asked, decision.to_string()).remedy(decision.remedy(tool));
    Err(CallError::Denied(Box::new(denial)))
}

/// S1 X1-17: what a session that is halted ([`Session::is_halted`](crate::Session::is_halted)) says to whoever runs it, as one line of JSON.
#[must_use]
pub fn interaction_required(session: &str, tool: &str, why: &str) -> serde_json::Value {
    json!({
        "surface": "headless.interaction-required",
        "class": "Validation",
        "code": "HeadlessInteractionRequired",
        "type": "permission-required",
        "requestKind": "Approve",
        "correlationId": session,
        "tool": tool,
        "hint": why,
    })
}
