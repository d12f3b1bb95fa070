//! Between the capability check and the sandbox: rules and mode, the watchdog's question, and the person (C-7).

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use callgate_policy::approval::ApprovalKey;
use callgate_policy::call_grant::{CallNeeds, ShellNeed};
use callgate_policy::effective::EffectiveSet;
use callgate_policy::envelope::{Denial, Layer};
use callgate_policy::mode::Headless;
use callgate_policy::path::HostPath;
use callgate_policy::plan::{CallPlan, Work};
use callgate_policy::rules::commands;
use callgate_policy::rules::{
    Action, Capability, DecidedBy, Decision, Part, Rule, RuleScope, RuleSource, RuledCall, Value,
};
use callgate_policy::shell::{Line, restricted};
use callgate_policy::watchdog::Reason;
use serde_json::json;

use crate::call::CallError;
use crate::gate::people::{self, NoAnswer, Question, Yes};
use crate::registry::Tool;
use crate::session::{AskedBy, OpenError, Session};
use crate::turn::Place;

/// What a call passed on its way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passed {
    pub(crate) decision: Option<Decision>,
    pub(crate) approved_by: Option<String>,
}

/// A call as rules and people see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Presented<'a> {
    pub(crate) tool: &'a Tool,
    pub(crate) args: &'a serde_json::Value,
    pub(crate) needs: &'a CallNeeds,
    pub(crate) root: &'a HostPath,
    /// Its command line, if it has one that somebody looks at.
    pub(crate) line: Option<&'a Line>,
}

impl Presented<'_> {
    /// The key under which an answer is kept.
    fn key(&self, work: &Work) -> ApprovalKey {
        let of_digest = || ApprovalKey::of_digest(&people::digest_of(self.args));
        match (&self.needs.shell, work) {
            (Some(_), Work::Program { working_dir, .. }) => {
                let line = self.args.get("command").and_then(serde_json::Value::as_str);
                let key = line.and_then(|line| ApprovalKey::of_command(line, working_dir, self.root));
                key.unwrap_or_else(|| of_digest().in_directory(working_dir, self.root))
            }
            (Some(_), _) => of_digest(),
            (None, _) => ApprovalKey::of_files(self.needs, self.root).unwrap_or_else(of_digest),
        }
    }
}

impl Session {
    /// Adds a rule for the rest of this session: what a host does with a person's "always" (X0-11).
    ///
    /// # Errors
    /// [`OpenError::Rule`] if it makes no sense.
    pub fn add_rule(&self, rule: &Rule) -> Result<(), OpenError> {
        let source = RuleSource { scope: RuleScope::Session, place: "this session".to_owned() };
        let mut rules = self.rules.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        rules.add(rule, &source, &self.variables).map_err(OpenError::Rule)
    }

    /// The command line of a shell, taken apart, if rules or watchdogs look at its commands or the profile restricts it.
    pub(crate) async fn line_of(&self, tool: &str, args: &serde_json::Value) -> Result<Option<Line>, CallError> {
        let Some(command) = args.get("command").and_then(serde_json::Value::as_str).filter(|_| tool == "bash") else {
            return Ok(None);
        };
        let looked_at = self.rules.read().unwrap_or_else(std::sync::PoisonError::into_inner).looks_at_commands(tool);
        if !looked_at && !self.profile.restricts_the_shell() && !self.gate.wants().lines {
            return Ok(None);
        }
        self.understand(command).await.map(Some)
    }

    /// S4-9, C-23: a shell that only reads, whatever the mode.
    fn refuse_what_does_more_than_read(&self, line: Option<&Line>) -> Result<(), CallError> {
        #[cfg(feature = "ablation")]
        if self.lacks(Layer::Rule) {
            return Ok(());
        }
        let Some(line) = line.filter(|_| self.profile.restricts_the_shell()) else { return Ok(()) };
        restricted::judge(line).map_err(|refusal| {
            CallError::Denied(Box::new(Denial {
                layer: Layer::Rule,
                asked: refusal.command,
                reason: format!("the profile `{}` has a shell that only reads, and {}", self.profile.name, refusal.why),
                remedy: Some(refusal.remedy),
            }))
        })
    }

    /// X4-4: what the profile's tools may write, besides that only some of them are there.
    fn refuse_writing_past_the_profile(&self, call: &Presented<'_>) -> Result<(), CallError> {
        let Some(reason) = self.profile.refuses(call.tool.id, &call.needs.write) else { return Ok(()) };
        let asked = call.needs.write.first().map_or(call.tool.id.to_owned(), ToString::to_string);
        let remedy = Some("choose another place, or have its author change the profile".to_owned());
        Err(CallError::Denied(Box::new(Denial { layer: Layer::Rule, asked, reason, remedy })))
    }

    /// Rules and mode.
    pub(crate) fn decide(&self, call: &Presented<'_>, work: &Work) -> Result<(Decision, ApprovalKey), CallError> {
        if call.needs.shell.is_some() {
            self.refuse_what_does_more_than_read(call.line)?;
        }
        self.refuse_writing_past_the_profile(call)?;
        let key = call.key(work);
        // A line that nothing looks at is for those rules alone that are about all of them.
        let commands = call.line.and_then(commands::parts).map(|parts| self.with_phrases(parts, call.args));
        let (named, reach) = parts(call.needs, commands.as_deref(), &self.in_force_for(call));
        let decision = self.judge(&RuledCall { tool: call.tool.id, key: &key.text, named, reach })?;
        Ok((decision, key))
    }

    /// What a program of this call could use: a restricted shell has nothing to write (S4-9).
    fn in_force_for(&self, call: &Presented<'_>) -> Cow<'_, EffectiveSet> {
        match call.needs.shell.is_some() && self.profile.restricts_the_shell() {
            true => Cow::Owned(self.effective.for_reading()),
            false => Cow::Borrowed(&self.effective),
        }
    }

    /// A text that a rule looks for and that is in none of the commands, but in the line that they make.
    fn with_phrases(&self, mut parts: Vec<Part>, args: &serde_json::Value) -> Vec<Part> {
        let rules = self.rules.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let line = args.get("command").and_then(serde_json::Value::as_str).map(Part::of_text);
        parts.extend(line.filter(|line| rules.has_phrase_across(line, &parts)));
        parts
    }

    /// Rules about a program that is started past the tools. Nobody is asked about it.
    pub(crate) fn refuse_by_rule(&self, needs: &CallNeeds) -> Result<(), CallError> {
        let Some(ShellNeed::Program { argv }) = &needs.shell else { return Ok(()) };
        let words: Vec<String> = argv.iter().map(ToString::to_string).collect();
        let commands = Part::of_argv(&words);
        let (named, reach) = parts(needs, Some(&commands), &self.effective);
        self.judge(&RuledCall { tool: "run", key: &words.join(" "), named, reach }).map(drop)
    }

    fn judge(&self, call: &RuledCall<'_>) -> Result<Decision, CallError> {
        let decision = self.rules.read().unwrap_or_else(std::sync::PoisonError::into_inner).judge(call);
        if decision.action != Action::Deny {
            return Ok(decision);
        }
        Err(CallError::Denied(Box::new(Denial {
            layer: Layer::Rule,
            asked: decision.about.clone().unwrap_or_else(|| call.tool.to_owned()),
            reason: decision.to_string(),
            remedy: Some(decision.remedy(call)),
        })))
    }

    /// Whether what lets a call pass looked at its path, a rule or a person: then no symbolic link may lead it elsewhere.
    pub(crate) fn passes_by_path(&self, tool: &str, why: &[String]) -> bool {
        let rules = self.rules.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        rules.looks_at_paths(tool) || !why.is_empty()
    }

    /// Why a person has to say yes; nothing if nobody has to.
    pub(crate) fn asks(&self, decision: &Decision, watchdog: Option<&Reason>) -> Vec<String> {
        // Who types a call has approved of it; of what a rule or a watchdog wants asked they are asked.
        let typed = self.asked_by == AskedBy::Person && decision.by == DecidedBy::Default;
        let ruled = (decision.action == Action::Ask && !typed).then(|| decision.to_string());
        ruled.into_iter().chain(watchdog.map(Reason::to_string)).collect()
    }

    /// Whether a person would have had to be asked, and there was none (`headless = "halt"`): nothing else will run.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Relaxed)
    }

    /// Has a person say yes, if there is a reason. Nothing that they did not see runs: the answer is for these
    /// arguments, this plan and this program.
    pub(crate) async fn approve(
        &self,
        call: &Presented<'_>,
        plan: &CallPlan,
        (decision, key): (Decision, ApprovalKey),
        why: Vec<String>,
        asking: Place,
    ) -> Result<Passed, CallError> {
        let passed = |approved_by| Passed { decision: Some(decision.clone()), approved_by };
        if why.is_empty() {
            return Ok(passed(None));
        }
        if let Some(scope) = self.people.has_said_yes(call.tool.id, &key) {
            return Ok(passed(Some(scope.name().to_owned())));
        }
        let digest = people::digest(call.tool.id, call.args, plan);
        // A person sees what a line is made of, though no rule looked at that.
        let line = match (call.line, call.args.get("command").and_then(serde_json::Value::as_str)) {
            (None, Some(command)) if call.needs.shell.is_some() => self.understand(command).await.ok(),
            (line, _) => line.cloned(),
        };
        let question =
            self.question(&Presented { line: line.as_ref(), ..*call }, plan, key, why.clone(), digest.clone());
        // Whichever line was understood first: people are asked in the order of the calls (C-17).
        let _asking = asking.turn().await;
        match self.people.ask(question).await {
            Ok(yes) => {
                if people::digest(call.tool.id, call.args, plan) != digest {
                    return Err(self.refused(call, "what was approved has changed since", Some("make the call again")));
                }
                Ok(passed(Some(match yes {
                    Yes::Kept(scope) => scope.name().to_owned(),
                    Yes::Now { by, .. } => by,
                })))
            }
            Err(NoAnswer::Nobody) if self.headless == Headless::Halt => {
                self.halted.store(true, Ordering::Relaxed);
                Err(CallError::Halted { tool: call.tool.id.to_owned(), why: why.join("; ") })
            }
            Err(none) => {
                let ruled = RuledCall { tool: call.tool.id, ..RuledCall::default() };
                let remedy = (none == NoAnswer::Nobody).then(|| decision.remedy(&ruled));
                Err(self.refused(call, &none.text(&why.join("; ")), remedy.as_deref()))
            }
        }
    }

    fn refused(&self, call: &Presented<'_>, reason: &str, remedy: Option<&str>) -> CallError {
        CallError::Denied(Box::new(Denial {
            layer: Layer::Person,
            asked: call.tool.id.to_owned(),
            reason: reason.to_owned(),
            remedy: remedy.map(str::to_owned),
        }))
    }

    fn question(
        &self,
        call: &Presented<'_>,
        plan: &CallPlan,
        key: ApprovalKey,
        why: Vec<String>,
        digest: String,
    ) -> Question {
        let needs = call.needs;
        let texts = |paths: &[HostPath]| paths.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut reads = texts(&needs.read);
        reads.extend(needs.read_below.iter().map(|dir| format!("{dir} and all beneath it")));
        let (argv, reach) = match &plan.work {
            Work::Program { argv, .. } => (texts(argv), self.in_force_for(call).reach()),
            Work::Tool { .. } => (Vec::new(), Vec::new()),
        };
        Question {
            session: self.id.clone(),
            tool: call.tool.id.to_owned(),
            kind: call.tool.kind.to_owned(),
            arguments: call.args.clone(),
            why,
            reads,
            writes: texts(&needs.write),
            hosts: needs.hosts.iter().map(|need| format!("{}:{}", need.host, need.port)).collect(),
            argv,
            commands: call.line.and_then(commands::shown),
            reach,
            key,
            kept_for: self.people.kept_for(),
            digest,
        }
    }
}

/// The parts of a call: what it names, and what it could do besides.
#[allow(clippy::type_complexity, reason = "two lists of the same")]
fn parts<'a>(
    needs: &'a CallNeeds,
    commands: Option<&'a [Part]>,
    effective: &EffectiveSet,
) -> (Vec<(Capability, Value<'a>)>, Vec<(Capability, Value<'a>)>) {
    let files = |paths: &'a [HostPath], capability| paths.iter().map(move |path| (capability, Value::File(path)));
    let read = files(&needs.read, Capability::FsRead)
        .chain(needs.read_below.iter().map(|path| (Capability::FsRead, Value::Tree(path))));
    let hosts = needs.hosts.iter().map(|need| (Capability::NetFetch, Value::Host(&need.host, need.port)));
    if needs.shell.is_some() {
        let named = match commands {
            None | Some([]) => vec![(Capability::ShellRun, Value::UnknownCommand)],
            Some(commands) => commands.iter().map(|command| (Capability::ShellRun, Value::Command(command))).collect(),
        };
        let mut reach: Vec<_> = read.chain(files(&needs.write, Capability::FsWrite)).collect();
        reach.extend(effective.capabilities_of_programs().map(|capability| (capability, Value::Anything)));
        return (named, reach);
    }
    if needs.write.is_empty() {
        return (read.chain(hosts).collect(), Vec::new());
    }
    // What is read on the way to a change is not what the call is about.
    (files(&needs.write, Capability::FsWrite).chain(hosts).collect(), read.collect())
}

/// S1 X1-17: what a halted session says to whoever runs it, as one line of JSON.
pub(crate) fn interaction_required(session: &str, tool: &str, why: &str) -> serde_json::Value {
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
