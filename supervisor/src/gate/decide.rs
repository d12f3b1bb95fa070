//! Between the capability check and the sandbox: rules and mode, the watchdog's question, and the person (C-7).

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use callgate_policy::approval::ApprovalKey;
use callgate_policy::effective::EffectiveSet;
use callgate_policy::envelope::{Denial, Layer};
use callgate_policy::manifest::{Credential, Manifest, Over};
use callgate_policy::mode::Headless;
use callgate_policy::need::{CallNeeds, HostNeed, ShellNeed};
use callgate_policy::path::HostPath;
use callgate_policy::pattern::Host;
use callgate_policy::plan::{CallPlan, CallWork};
use callgate_policy::profile::{Database, Profile};
use callgate_policy::rules::commands::{self, Begin};
use callgate_policy::rules::{
    Action, Capability, CommandPart, Compared, DecidedBy, Decision, RuleSet, RuledCall, RuledPart, SubPolicy,
};
use callgate_policy::shell::{Line, restricted};
use callgate_policy::sql::{SqlKind, SqlNeed};
use callgate_policy::tool::Subject;
use callgate_policy::watchdog::Reason;
use callgate_policy::watchdog::{CallFacts, Verdict};
use serde_json::json;

use super::approved::{ApprovedPlan, Passage};
use super::case::{Case, Known};
use super::execs::{Watch, Watching};
use super::people::{self, NoAnswer, People, Question, Yes};
use super::{AskedBy, Halt, Watchdogs};
use crate::causes::with_causes;
use crate::confine::AsyncChannel;
use crate::error::CallError;
use crate::registry::{Executor, HostTool, Kin, ProgramTool, Tool};
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

/// Decision of rules and mode on a call.
pub(super) struct Decided {
    decision: Decision,
    /// Decision of an agent's rules on the program that runs it, if they ask.
    of_program: Option<Decision>,
    /// The key under which an answer is kept.
    key: ApprovalKey,
    /// Sub-policy to which it is narrowed.
    sub_policy: Option<SubPolicy>,
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
}

/// Judgement of rules, mode and watchdogs on a call. Nobody has been asked yet.
pub(crate) struct Judged<'a> {
    case: Case<'a>,
    decided: Decided,
    /// Reasons why a person has to say yes; none if nobody has to.
    why: Vec<String>,
}

impl Judged<'_> {
    /// Sub-policy to which the call is narrowed.
    pub(crate) fn sub_policy(&self) -> Option<&SubPolicy> {
        self.decided.sub_policy.as_ref()
    }

    /// True if a person would be asked.
    pub(crate) fn asks(&self) -> bool {
        !self.why.is_empty()
    }

    /// Answer to a host that only wants to know.
    pub(crate) fn preview(self) -> Preview {
        let Decided { decision, of_program, .. } = self.decided;
        // The stricter of the two: what denies has denied already.
        let decision = of_program.filter(|_| decision.action == Action::Allow).unwrap_or(decision);
        Preview { decision, asks: self.why }
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
        let looked_at = {
            let rules = self.rules();
            ruled_as(tool).any(|tool| rules.looks_at_commands(&tool))
        };
        looked_at || self.profile.restricts_the_shell() || self.watchdogs.wants().lines
    }

    /// Sub-policy that rules give its commands; else, for a line whose commands all only read, one with nothing to
    /// change. Only a line that something looks at is taken apart, so nothing is known of others.
    fn sub_policy(&self, ruled: &RuledCall<'_>, line: Option<&Line>) -> Option<SubPolicy> {
        let of_rules = self.rules().sub_policy(ruled);
        let reads = || line.is_some_and(|line| restricted::judge(line).is_ok());
        of_rules.or_else(|| reads().then(SubPolicy::reading))
    }

    /// Judges a call by rules, mode and watchdogs: all but the person, whom these may want asked.
    pub(crate) async fn judge<'a>(&self, case: Case<'a>, known: &mut Known) -> Result<Judged<'a>, CallError> {
        let decided = self.decide(&case, known)?;
        let watchdog = self.ask_watchdogs(&case).await?;
        let why = self.asks(&decided, watchdog.as_ref());
        Ok(Judged { case, decided, why })
    }

    /// Asks the watchdogs. Returns what a person must be asked.
    async fn ask_watchdogs(&self, call: &Case<'_>) -> Result<Option<Reason>, CallError> {
        #[cfg(feature = "ablation")]
        if self.lacks(Layer::Watchdog) {
            return Ok(None);
        }
        let name = call.tool.rule_name();
        let mut facts = CallFacts::new(&name, call.args, call.needs, call.root);
        (facts.subject, facts.line) = (call.subject(), call.line);
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
        // The files of a database are for its own mode.
        let changes = call.needs.sql.as_ref().is_some_and(SqlNeed::changes);
        let reason = self.profile.refuses(call.subject(), &call.needs.write).filter(|_| !changes);
        let Some(reason) = reason else { return Ok(()) };
        let asked = call.needs.write.first().map_or(call.tool.name.clone(), ToString::to_string);
        let remedy = "choose another place, or have its author change the profile";
        Err(CallError::Denied(Box::new(Denial::new(Layer::Rule, asked, reason).remedy(remedy))))
    }

    /// S4-16: what a statement may do.
    fn refuse_statement_past_the_profile(&self, call: &Case<'_>) -> Result<(), CallError> {
        let Some(sql) = &call.needs.sql else { return Ok(()) };
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
    fn refuse_hosts_past_the_rule(&self, call: &Case<'_>, ruled: &RuledCall<'_>) -> Result<(), CallError> {
        #[cfg(feature = "ablation")]
        if self.lacks(Layer::Rule) {
            return Ok(());
        }
        // The plan of such a call has these hosts and no others.
        let mut hosts = call.needs.hosts.iter().filter(|_| call.needs.shell.is_none()).peekable();
        let Some(sub_policy) = hosts.peek().and_then(|_| self.sub_policy(ruled, None)) else { return Ok(()) };
        let is_left =
            |need: &&HostNeed| Host::parse(&need.host).is_ok_and(|host| sub_policy.leaves_host(&host, need.port));
        let Some(need) = hosts.find(|need| !is_left(need)) else { return Ok(()) };
        let asked = format!("net.hosts {}:{}", need.host.escape_default(), need.port);
        let reason = format!("the `grant` of the {} leaves its calls other hosts, or none", sub_policy.by());
        let remedy = "have the rule's `grant` name the host, or a rule without a `grant` decide";
        Err(CallError::Denied(Box::new(Denial::new(Layer::Rule, asked, reason).remedy(remedy))))
    }

    /// Rules and mode.
    fn decide(&self, call: &Case<'_>, known: &mut Known) -> Result<Decided, CallError> {
        if call.needs.shell.is_some() {
            self.refuse_what_does_more_than_read(call.line)?;
        }
        self.refuse_writing_past_the_profile(call)?;
        self.refuse_statement_past_the_profile(call)?;
        let key = call.key();
        // A line that nothing looks at is for those rules alone that are about all of them.
        let commands = match &call.needs.shell {
            Some(ShellNeed::Program { argv }) => CommandPart::of_argv(&words(argv)),
            Some(ShellNeed::CommandLine { .. }) | None => {
                call.line.and_then(commands::parts).map(|parts| self.with_phrases(parts, call.needs))
            }
        };
        let is_looked_at = call.line.is_some() || matches!(call.needs.shell, Some(ShellNeed::Program { .. }));
        let unseen = if is_looked_at { RuledPart::UnknownCommand } else { RuledPart::WholeLine };
        let asks = || call.needs.asks.as_deref().map(CommandPart::of_text);
        let statement = call.needs.sql.as_ref().map(|sql| CommandPart::of_statement(&sql.statement.text)).or_else(asks);
        let input = call.tool.input_of(call.args);
        let shell_dir = call.shell_dir;
        let directory = match call.work {
            Some(CallWork::Program { working_dir, .. }) => working_dir,
            Some(CallWork::Tool { .. }) | None => shell_dir,
        };
        let usual = match &call.needs.shell {
            Some(ShellNeed::CommandLine { .. }) => shell_dir,
            // Its tool has chosen the directory, and not the call.
            Some(ShellNeed::Program { .. }) | None => directory,
        };
        let begin = Begin { directory, usual, root: call.root };
        let commands = commands.map(|parts| commands::beginning_in(parts, begin));
        let commands = commands.map(|parts| match input {
            Some(_) => parts.into_iter().map(CommandPart::fed).collect(),
            None => parts,
        });
        let (named, reach) = parts(call.needs, (commands.as_deref(), unseen), &self.in_force_for(call, None));
        let (named, reach) = match &statement {
            // What a rule about the tool is about. Where the database is, rules about files and hosts can still tighten.
            Some(statement) => {
                let at = named.into_iter().chain(reach);
                (vec![(Capability::None, RuledPart::Command(statement))], at.collect())
            }
            None => (named, reach),
        };
        let (tool, ungated) = (call.tool.rule_name(), !call.tool.gated);
        let of_kin = |kin: &Kin| kin.parts(call.needs, (commands.as_deref(), unseen), input);
        let kin = call.tool.kin.iter().flat_map(|kin| of_kin(kin).into_iter().map(|part| (kin.name(), part))).collect();
        let ruled = RuledCall { tool: &tool, subject: call.subject(), ungated, key: &key.text, named, reach, kin };
        let decision = self.rule(&ruled, known)?;
        let made = call.needs.sql.as_ref().and_then(|sql| sql.output.as_ref());
        let made = made.map(|output| ("write", Subject::Create, (Capability::FsWrite, RuledPart::File(output))));
        let of_file = made.map(|made| self.decide_file(made, &ruled, known)).transpose()?;
        let sub_policy = call.needs.shell.as_ref().and_then(|_| self.sub_policy(&ruled, call.line));
        self.refuse_hosts_past_the_rule(call, &ruled)?;
        let (of_program, sub_policy) = if call.tool.executor.delegation().is_some() {
            // That agents are started for.
            let read = call.needs.read.first();
            let read = read.map(|path| ("read", Subject::Read, (Capability::FsRead, RuledPart::File(path))));
            let of_read = read.map(|read| self.decide_file(read, &ruled, known)).transpose()?;
            let (of_program, sub_policy) = self.decide_program_of_agent(call, &ruled, sub_policy, known)?;
            (stricter(of_read, of_program), sub_policy)
        } else {
            (of_file, sub_policy)
        };
        drop(ruled);
        Ok(Decided { decision, of_program, key, sub_policy })
    }

    /// Decision on a call of a locked tool about this file, where a call does as much with it: both have to pass.
    fn decide_file(
        &self,
        (tool, subject, named): (&str, Subject, (Capability, RuledPart<'_>)),
        ruled: &RuledCall<'_>,
        known: &mut Known,
    ) -> Result<Decision, CallError> {
        let file = RuledCall { tool, subject, named: vec![named], reach: Vec::new(), ..ruled.clone() };
        let of_call = known.passed.decision.take();
        let decision = self.rule(&file, known)?;
        if let Some(of_call) = of_call.filter(|of_call| of_call.action >= decision.action) {
            known.passed.decision = Some(of_call);
        }
        Ok(decision)
    }

    /// Decision of the rules in an agent's session on the program that runs it: they ask or deny as they do about a
    /// program that a call starts there, though a rule lets `task` pass; and a grant of theirs narrows it.
    fn decide_program_of_agent(
        &self,
        call: &Case<'_>,
        ruled: &RuledCall<'_>,
        sub_policy: Option<SubPolicy>,
        known: &mut Known,
    ) -> Result<(Option<Decision>, Option<SubPolicy>), CallError> {
        let Some(rules) = call.of_agent.filter(|_| call.needs.shell.is_some()) else {
            return Ok((None, sub_policy));
        };
        let rules = rules.as_ref().map_err(|error| CallError::Tool(with_causes(error)))?;
        let ruled = RuledCall { tool: PROGRAM, subject: Subject::Execute, ..ruled.clone() };
        let sub_policy = match (sub_policy, rules.sub_policy(&ruled)) {
            (Some(one), Some(other)) => Some(one.within(other)),
            (one, other) => one.or(other),
        };
        let parts: Vec<_> = ruled.named.iter().chain(&ruled.reach).copied().collect();
        let Some(decision) = rules.tightens(&parts) else { return Ok((None, sub_policy)) };
        let passed = &mut known.passed.decision;
        if passed.as_ref().is_none_or(|passed| passed.action < decision.action) {
            *passed = Some(decision.clone());
        }
        unless_denied(decision, &ruled).map(|decision| (Some(decision), sub_policy))
    }

    /// Rights that a program of this call could use: a restricted shell has nothing to write (S4-9), and a sub-policy
    /// leaves less.
    fn in_force_for<'a>(&'a self, call: &Case<'a>, sub_policy: Option<&SubPolicy>) -> Cow<'a, EffectiveSet> {
        let in_force = call.own.unwrap_or(call.effective);
        match (call.needs.shell.is_some() && self.profile.restricts_the_shell(), sub_policy) {
            (true, _) => Cow::Owned(in_force.for_reading()),
            (false, Some(sub_policy)) => Cow::Owned(in_force.narrowed_to(sub_policy)),
            (false, None) => Cow::Borrowed(in_force),
        }
    }

    /// A text that a rule looks for and that is in none of the commands, but in the line that they make.
    fn with_phrases(&self, mut parts: Vec<CommandPart>, needs: &CallNeeds) -> Vec<CommandPart> {
        let rules = self.rules();
        let line = needs.command_line().map(CommandPart::of_text);
        parts.extend(line.filter(|line| rules.has_phrase_across(line, &parts)));
        parts
    }

    /// The gate of a program that the host starts past the tools: what a rule denies to programs is denied to it, and nobody is
    /// asked.
    pub(crate) fn pass_of_host(
        &self,
        (needs, directory): (&CallNeeds, &HostPath),
        effective: &EffectiveSet,
        plan: CallPlan,
    ) -> Result<ApprovedPlan, CallError> {
        self.refuse_by_rule((needs, directory), effective)?;
        Ok(ApprovedPlan::of_gate(plan))
    }

    fn refuse_by_rule(
        &self,
        (needs, directory): (&CallNeeds, &HostPath),
        effective: &EffectiveSet,
    ) -> Result<(), CallError> {
        let Some(ShellNeed::Program { argv }) = &needs.shell else { return Ok(()) };
        let words = words(argv);
        // The host has chosen the directory.
        let begin = Begin { directory, usual: directory, root: directory };
        let commands = CommandPart::of_argv(&words).map(|parts| commands::beginning_in(parts, begin));
        let (named, reach) = parts(needs, (commands.as_deref(), RuledPart::UnknownCommand), effective);
        let (subject, key) = (Subject::Execute, words.join(" "));
        let ruled = RuledCall { tool: PROGRAM, subject, key: &key, named, reach, ..RuledCall::default() };
        self.rule(&ruled, &mut Known::default()).map(drop)
    }

    fn rule(&self, call: &RuledCall<'_>, known: &mut Known) -> Result<Decision, CallError> {
        let rules = self.rules();
        if tracing::enabled!(tracing::Level::TRACE) {
            for compared in rules.compared(call) {
                let Compared { rule, subject, action } = compared;
                tracing::trace!(session = self.session, tool = call.tool, %rule, subject, ?action, "a rule was compared");
            }
        }
        let decision = rules.judge(call);
        drop(rules);
        tracing::debug!(session = self.session, tool = call.tool, %decision, "rules decided");
        known.passed.decision = Some(decision.clone());
        unless_denied(decision, call)
    }

    /// True if what lets a call pass looked at its path, a rule or a person: then no symbolic link may lead it elsewhere.
    pub(crate) fn passes_by_path(&self, judged: &Judged<'_>) -> bool {
        let rules = self.rules();
        ruled_as(judged.case.tool).any(|tool| rules.looks_at_paths(&tool)) || judged.asks()
    }

    /// Reasons why a person has to say yes; none if nobody has to.
    fn asks(&self, decided: &Decided, watchdog: Option<&Reason>) -> Vec<String> {
        // Who types a call has approved of it; of what a rule or a watchdog wants asked they are asked.
        let typed = |decision: &Decision| self.asked_by == AskedBy::Person && decision.by == DecidedBy::Default;
        let decisions = [Some(&decided.decision), decided.of_program.as_ref()].into_iter().flatten();
        let asking = decisions.filter(|decision| decision.action == Action::Ask && !typed(decision));
        let mut why: Vec<String> = asking.map(Decision::to_string).collect();
        why.dedup();
        why.extend(watchdog.map(Reason::to_string));
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
        Judged { case, decided: Decided { decision, of_program, key, sub_policy }, why }: Judged<'a>,
        plan: Option<&CallPlan>,
        understand: impl FnOnce(&'a str) -> F,
        (asking, recording): (Place, &mut Recording),
    ) -> Result<Option<String>, CallError> {
        let call = &case;
        if why.is_empty() {
            return Ok(None);
        }
        if let Some(scope) = self.people.has_said_yes(&call.tool.rule_name(), &key) {
            return Ok(Some(scope.name().to_owned()));
        }
        let program = match (plan.map(|plan| &plan.work), &call.needs.shell) {
            (Some(CallWork::Program { argv, .. }), _) | (None, Some(ShellNeed::Program { argv })) => argv.first(),
            _ => None,
        };
        let whole = call.whole();
        let digest = people::digest(&call.tool.rule_name(), &whole, plan, program);
        // A person sees what a line is made of, though no rule looked at that.
        let line = match (call.line, call.needs.command_line()) {
            (None, Some(command)) => understand(command).await.ok(),
            (line, _) => line.cloned(),
        };
        let in_force = self.in_force_for(call, sub_policy.as_ref());
        let shown = Case { line: line.as_ref(), ..*call };
        let credentials = self.credentials_for(call, &in_force);
        let question = self.question(&shown, plan, (key, in_force.reach()), why.clone(), digest.clone());
        let question = Question { credentials, ..question };
        // Whichever line was understood first: people are asked in the order of the calls (C-17).
        let _asking = asking.turn().await;
        // A question that nobody has answered is there after a crash.
        recording.wait_for_approval().await?;
        let holds = || people::digest(&call.tool.rule_name(), &call.whole(), plan, program) == digest;
        match self.people.ask(question, holds).await {
            Ok(Yes::Kept(scope)) => Ok(Some(scope.name().to_owned())),
            Ok(Yes::Now { by, .. }) => Ok(Some(by)),
            Err(NoAnswer::Nobody) if self.headless == Headless::Halt => {
                self.halt.halt();
                Err(CallError::Halted { tool: call.tool.name.clone(), why: why.join("; ") })
            }
            Err(none) => {
                let tool = call.tool.rule_name();
                let ruled = RuledCall { tool: &tool, ..RuledCall::default() };
                let remedy = match none {
                    NoAnswer::Nobody => Some(of_program.as_ref().unwrap_or(&decision).remedy(&ruled)),
                    NoAnswer::Changed => Some("make the call again".to_owned()),
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

    fn question(
        &self,
        call: &Case<'_>,
        plan: Option<&CallPlan>,
        (key, reach): (ApprovalKey, Vec<String>),
        why: Vec<String>,
        digest: String,
    ) -> Question {
        let needs = call.needs;
        let texts = |paths: &[HostPath]| paths.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut reads = texts(&needs.read);
        reads.extend(needs.read_below.iter().map(|dir| format!("{dir} and all beneath it")));
        let is_agents = call.tool.executor.delegation().is_some();
        let (argv, reach) = match (plan.map(|plan| &plan.work), &needs.shell) {
            (Some(CallWork::Program { argv, .. }), _) | (None, Some(ShellNeed::Program { argv })) => {
                (texts(argv), reach)
            }
            // A host's own loop is no program. What it may change is as much for a person to know.
            (None, None) if is_agents => (Vec::new(), reach),
            // What it does may stand where a long statement is cut.
            _ => (Vec::new(), needs.sql.iter().map(does).collect()),
        };
        Question {
            session: self.session.clone(),
            agent: self.agent.clone(),
            tool: call.tool.rule_name(),
            kind: call.tool.kind().to_owned(),
            arguments: call.whole(),
            why,
            reads,
            writes: texts(&needs.write),
            hosts: needs.hosts.iter().map(|need| format!("{}:{}", need.host, need.port)).collect(),
            credentials: Vec::new(),
            argv,
            commands: call.line.and_then(commands::shown),
            reach,
            key,
            kept_for: self.people.kept_for(),
            digest,
        }
    }
}

/// The one that asks or denies, of two.
fn stricter(one: Option<Decision>, other: Option<Decision>) -> Option<Decision> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if one.action > other.action { one } else { other }),
        (one, other) => one.or(other),
    }
}

fn unless_denied(decision: Decision, call: &RuledCall<'_>) -> Result<Decision, CallError> {
    if decision.action != Action::Deny {
        return Ok(decision);
    }
    let asked = decision.about.clone().unwrap_or_else(|| call.tool.to_owned());
    let denial = Denial::new(Layer::Rule, asked, decision.to_string()).remedy(decision.remedy(call));
    Err(CallError::Denied(Box::new(denial)))
}

fn does(sql: &SqlNeed) -> String {
    format!("{} in the database {}", sql.statement.verb, sql.database)
}

/// The names under which rules are about a tool's calls: its own, and those of its kin.
fn ruled_as(tool: &Tool) -> impl Iterator<Item = Cow<'static, str>> {
    std::iter::once(Cow::Owned(tool.rule_name())).chain(tool.kin.iter().map(|kin| Cow::Borrowed(kin.name())))
}

fn words(argv: &[HostPath]) -> Vec<String> {
    argv.iter().map(ToString::to_string).collect()
}

/// The parts of a call: what it names, and what it could do besides. `unseen` stands for a command line whose commands are not
/// known.
#[allow(clippy::type_complexity, reason = "two lists of the same")]
fn parts<'a>(
    needs: &'a CallNeeds,
    (commands, unseen): (Option<&'a [CommandPart]>, RuledPart<'a>),
    effective: &EffectiveSet,
) -> (Vec<(Capability, RuledPart<'a>)>, Vec<(Capability, RuledPart<'a>)>) {
    let files = |paths: &'a [HostPath], capability| paths.iter().map(move |path| (capability, RuledPart::File(path)));
    let read = files(&needs.read, Capability::FsRead)
        .chain(needs.read_below.iter().map(|path| (Capability::FsRead, RuledPart::Tree(path))));
    let hosts = needs.hosts.iter().map(|need| (Capability::NetFetch, RuledPart::Host(&need.host, need.port)));
    if needs.shell.is_some() {
        let named = match commands {
            None | Some([]) => vec![(Capability::ShellRun, unseen)],
            Some(commands) => {
                commands.iter().map(|command| (Capability::ShellRun, RuledPart::Command(command))).collect()
            }
        };
        let mut reach: Vec<_> = read.chain(files(&needs.write, Capability::FsWrite)).collect();
        reach.extend(effective.capabilities_of_programs().map(|capability| (capability, RuledPart::Anything)));
        return (named, reach);
    }
    if needs.write.is_empty() {
        return (read.chain(hosts).collect(), Vec::new());
    }
    // What is read on the way to a change is not what the call is about.
    (files(&needs.write, Capability::FsWrite).chain(hosts).collect(), read.collect())
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
