//! A call as it comes before the gate.

use std::time::Duration;

use callgate_policy::approval::ApprovalKey;
use callgate_policy::effective::EffectiveSet;
use callgate_policy::envelope::{Changes, StepReport};
use callgate_policy::manifest::Credential;
use callgate_policy::need::{CallNeeds, ShellNeed};
use callgate_policy::path::HostPath;
use callgate_policy::plan::CallWork;
use callgate_policy::rules::{Decision, RuleSet, SubPolicyReport};
use callgate_policy::shell::Line;
use callgate_policy::tool::Subject;
use callgate_tools::database::CONNECTION;
use serde_json::{Map, json};

use super::people;
use crate::open_error::OpenError;
use crate::registry::Tool;

/// A call as rules and people see it.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) tool: &'a Tool,
    pub(crate) args: &'a serde_json::Value,
    pub(crate) needs: &'a CallNeeds,
    pub(crate) root: &'a HostPath,
    pub(crate) work: Option<&'a CallWork>,
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
    /// Subject of the call.
    pub(crate) subject: Subject,
}

impl Case<'_> {
    /// Subject of the call: what its tool is, but of a database that it changes.
    pub(super) fn subject(&self) -> Subject {
        match &self.needs.sql {
            Some(sql) if sql.changes() => Subject::Mutate,
            Some(_) | None => self.subject,
        }
    }

    /// Its arguments with all else that decides what it does: a person says yes to that. A connection to a database has its password
    /// and is shown to nobody; the alias stands for it.
    pub(crate) fn whole(&self) -> serde_json::Value {
        let mut args = self.args.clone();
        if let serde_json::Value::Object(args) = &mut args {
            let shown = self.told.iter().filter(|(name, _)| *name != CONNECTION);
            args.extend(shown.map(|(name, value)| (name.clone(), value.clone())));
            if let Some(sql) = &self.needs.sql {
                args.insert("database".to_owned(), sql.database.clone().into());
            }
        }
        args
    }

    /// The key under which an answer is kept (S1-13): what makes a call another one for a person, and nothing else. How long it
    /// may take does not.
    pub(super) fn key(&self) -> ApprovalKey {
        let of_digest = |shown: &str| ApprovalKey::of_digest(shown, &people::digest_of(shown));
        if let Some(sql) = &self.needs.sql {
            let (tool, database) = (sql.dialect.tool(), &sql.database);
            // Who lets a database be read says so of each statement that reads, and of no other.
            let reads = !sql.changes() && self.needs.write.is_empty();
            let all = || ApprovalKey::of_text(&format!("{tool} {database}: whatever reads"));
            let this = || of_digest(&format!("{tool} {database}: {} {}", sql.statement.text, self.args));
            return reads.then(all).flatten().unwrap_or_else(this);
        }
        if let Some(key_of) = &self.tool.key_of {
            let text = key_of(self.args);
            return ApprovalKey::of_text(&text).unwrap_or_else(|| of_digest(&text));
        }
        let working_dir = match self.work {
            Some(CallWork::Program { working_dir, .. }) => working_dir,
            Some(CallWork::Tool { .. }) | None => self.root,
        };
        if let (Some(line), Some(input)) = (self.needs.command_line(), self.tool.input_of(self.args)) {
            // What a program reads may be what it does: a yes to `python3` with one script is none to another.
            return of_digest(&json!([line, input]).to_string()).in_directory(working_dir, self.root);
        }
        match &self.needs.shell {
            Some(ShellNeed::CommandLine { line }) => ApprovalKey::of_command(line, working_dir, self.root)
                .unwrap_or_else(|| of_digest(line).in_directory(working_dir, self.root)),
            Some(ShellNeed::Program { argv }) => {
                // A server of a language is the same program for each file.
                let read = &self.needs.read;
                let shown = if read.is_empty() { json!(argv) } else { json!([argv, read]) };
                of_digest(&shown.to_string()).in_directory(working_dir, self.root)
            }
            None if self.subject == Subject::Change => of_digest(&self.args.to_string()),
            None => ApprovalKey::of_files(self.needs, self.root).unwrap_or_else(|| of_digest(&self.args.to_string())),
        }
    }
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
