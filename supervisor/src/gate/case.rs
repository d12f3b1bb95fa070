//! A call as it comes before the gate.

use std::time::Duration;

use callgate_policy::approval::Wider;
use callgate_policy::effect::{Effect, Effects, FileAct, FileScope, ProgramRun};
use callgate_policy::effective::EffectiveSet;
use callgate_policy::envelope::{Changes, StepReport};
use callgate_policy::manifest::Credential;
use callgate_policy::path::HostPath;
use callgate_policy::rules::commands::{self, Begin};
use callgate_policy::rules::{Act, CommandPart, Decision, EffectStanding, JudgedEffect, RuleSet, SubPolicyReport};
use callgate_policy::shell::Line;
use callgate_policy::shell::input::InputUse;
use callgate_tools::database::CONNECTION;
use serde_json::Map;

use crate::open_error::OpenError;
use crate::registry::Tool;

/// A call as rules and people see it.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) tool: &'a Tool,
    pub(crate) args: &'a serde_json::Value,
    pub(crate) effects: &'a Effects,
    /// The key that its tool derives from the arguments (S1-13), if it has one.
    pub(crate) key: Option<&'a str>,
    pub(crate) root: &'a HostPath,
    /// Directory in which shells start that do not say.
    pub(crate) shell_dir: &'a HostPath,
    /// Its command line, if it has one that somebody looks at.
    pub(crate) line: Option<&'a Line>,
    /// Rights in force in its session.
    pub(crate) effective: &'a EffectiveSet,
    /// Rights in force for it alone, if they are less than the session's.
    pub(crate) own: Option<&'a EffectiveSet>,
    /// Credentials that egress adds to its requests, if it fetches.
    pub(crate) credentials: &'a [Credential],
    /// Facts that its worker is told besides the arguments.
    pub(crate) told: &'a Map<String, serde_json::Value>,
    /// Rules in the session of the agent that it starts, if it starts one.
    pub(crate) of_agent: Option<&'a Result<RuleSet, OpenError>>,
}

impl<'a> Case<'a> {
    /// Its arguments with all else that decides what it does: a person says yes to that. A connection to a database has its password
    /// and is shown to nobody; the effects name the database.
    pub(crate) fn whole(&self) -> serde_json::Value {
        let mut args = self.args.clone();
        if let serde_json::Value::Object(args) = &mut args {
            let shown = self.told.iter().filter(|(name, _)| *name != CONNECTION);
            args.extend(shown.map(|(name, value)| (name.clone(), value.clone())));
        }
        args
    }

    /// Its effects with their parts, as rules compare them. A text that a rule looks for and that is in none of the commands of a line
    /// is one more part, if `has_phrase` says so.
    pub(super) fn judged(&self, has_phrase: impl Fn(&CommandPart, &[CommandPart]) -> bool) -> Vec<JudgedEffect<'a>> {
        let own = self.effects.own.iter().map(|effect| (effect, EffectStanding::Own));
        let implied = self.effects.implied.iter().map(|effect| (effect, EffectStanding::Implied));
        let judged = |(effect, standing): (&'a Effect, EffectStanding)| {
            let judged = JudgedEffect::new(effect, standing);
            let judged = if self.tool.leaves_out() { judged.leaving_out() } else { judged };
            if let Effect::Runs(run @ (ProgramRun::Program { .. } | ProgramRun::Line { .. })) = effect {
                return judged.with(self.acts_of(run, &has_phrase));
            }
            judged
        };
        own.chain(implied).map(judged).collect()
    }

    /// Parts of a program that starts: its commands, and what it reads.
    fn acts_of(&self, run: &'a ProgramRun, has_phrase: &dyn Fn(&CommandPart, &[CommandPart]) -> bool) -> Vec<Act<'a>> {
        let commands = match run {
            ProgramRun::Program { argv, .. } => CommandPart::of_argv(&words(argv)),
            ProgramRun::Line { line, .. } => self.line.and_then(commands::parts).map(|mut parts| {
                let line = CommandPart::of_text(line);
                if has_phrase(&line, &parts) {
                    parts.push(line);
                }
                parts
            }),
            ProgramRun::Started { .. } | ProgramRun::Typed { .. } => None,
        };
        // A line that nobody looks at is for those rules alone that are about all of them.
        let unseen = if run.line().is_some() && self.line.is_none() { Act::WholeLine } else { Act::UnknownCommand };
        let directory = run.directory().unwrap_or(self.root);
        // Its tool has chosen the directory of a program, and not the call.
        let usual = if run.line().is_some() { self.shell_dir } else { directory };
        let begin = Begin { directory, usual, root: self.root };
        let uses = |use_of: InputUse| commands.iter().flatten().any(|part| part.uses_input() == use_of);
        let used = match &commands {
            Some(_) => [InputUse::Line, InputUse::Code].into_iter().find(|used| uses(*used)),
            None => Some(InputUse::Line),
        };
        let mut acts: Vec<Act<'a>> = match commands.map(|parts| commands::beginning_in(parts, begin)) {
            Some(parts) if !parts.is_empty() => {
                let fed = |part: CommandPart| if run.input().is_some() { part.fed() } else { part };
                parts.into_iter().map(fed).map(Act::Command).collect()
            }
            Some(_) | None => vec![unseen],
        };
        // What is but data is no command.
        acts.extend(run.input().zip(used).map(|(text, used)| Act::input(text, used)));
        acts
    }

    /// More than exactly this call that a person may choose to allow.
    pub(super) fn wider(&self) -> Option<Wider> {
        if let Some(key) = self.key.filter(|_| self.tool.has_wider_key()) {
            return Some(Wider::Key { text: key.to_owned() });
        }
        match &self.effects.own[..] {
            [Effect::Queries(query)] if !query.changes() => {
                Some(Wider::Reads { database: format!("{} {}", query.dialect.tool(), query.database) })
            }
            [Effect::Connects(to)] => Some(Wider::Host { host: to.host.clone(), port: to.port }),
            own => self.directory_of(own),
        }
    }

    /// The directory that holds all files of a call which only reads and writes files.
    fn directory_of(&self, own: &[Effect]) -> Option<Wider> {
        let parent = |path: &HostPath| path.as_path().parent().map(|parent| HostPath::from(parent.to_owned()));
        let directory = |effect: &Effect| {
            if let Effect::Shows(FileScope::Tree(path)) | Effect::Lists(FileScope::Tree(path)) = effect {
                return Some(path.clone());
            }
            effect.on_file().and_then(|(_, path)| parent(path))
        };
        let first = directory(own.first()?)?;
        let is_one = own.iter().all(|effect| directory(effect).as_ref() == Some(&first));
        let mut acts: Vec<FileAct> = own.iter().filter_map(Effect::on_file).map(|(act, _)| act).collect();
        acts.sort_unstable();
        acts.dedup();
        is_one.then_some(Wider::Directory { path: first, acts })
    }
}

/// Words of an argument vector, as rules compare them.
pub(super) fn words(argv: &[HostPath]) -> Vec<String> {
    argv.iter().map(ToString::to_string).collect()
}

/// Facts known of a call, however it ends: an error says it too (C-18).
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Who let it pass, or did not, and with what.
    pub(crate) passed: Passed,
    /// The steps that confined it, once it was.
    pub(crate) steps: Vec<StepReport>,
    /// Changes by its program, though there is no result.
    pub(crate) changes: Option<Changes>,
    /// How long it was to have, where it got less.
    pub(crate) asked_for: Option<Duration>,
}

/// Checks that a call passed on its way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passed {
    pub(crate) decision: Option<Decision>,
    pub(crate) approved_by: Option<String>,
    /// Sub-policy to which it was narrowed, if it has less than its session.
    pub(crate) sub_policy: Option<SubPolicyReport>,
}
