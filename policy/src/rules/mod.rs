//! Rules: (permission, pattern, action), and what they make of a call (S0-49 to S0-55).
//!
//! A call is judged by its *subjects*: what it names itself (a file, each command of a command line, a host), and what it
//! could reach besides (all that a program may read). The first decide; the second can only tighten. What no rule
//! decides, the mode does.

mod allow;
mod builtins;
pub mod commands;
mod pattern;
mod permission;
mod rank;
mod rule;
mod sub_policy;

#[cfg(test)]
mod laws;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::mode::Mode;
use crate::tool::Subject;
use crate::variable::Variables;

pub use crate::shell::starts::HOLE;
pub use allow::AllowEntry;
pub use commands::CommandPart;
pub use pattern::{RulePatternError, RuledPart, Wildcard};
pub use permission::{Capability, Permission, PermissionError};
pub use rule::{Action, Rule, RuleGrant, RuleScope, RuleSource};
pub use sub_policy::{SubPolicy, SubPolicyReport};

use pattern::{Matcher, Pairs};
use rank::Rank;
use sub_policy::Narrower;

/// A rule that cannot be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// Mistake in what it is about.
    #[error("{place}: this rule cannot be used")]
    Permission {
        /// Where it stands.
        place: String,
        /// Cause.
        source: PermissionError,
    },
    /// Its pattern.
    #[error("{place}: this rule cannot be used")]
    Pattern {
        /// Where it stands.
        place: String,
        /// Cause.
        source: RulePatternError,
    },
    /// A grant where it would have no effect.
    #[error(
        "{place}: `grant` is for rules that allow or ask about commands (permission = \"bash\", \"shell.run\" or \"*\")"
    )]
    Grant {
        /// Where it stands.
        place: String,
    },
}

/// A rule, ready to be compared and matched. One with a variable is one for each of its values.
#[derive(Debug, Clone)]
struct Compiled {
    rank: Rank,
    matcher: Matcher,
    action: Action,
    told: Box<Told>,
    /// Rights to which it narrows the calls that it lets pass.
    narrower: Option<Arc<Narrower>>,
}

/// By what most rules are passed over, without a look at them.
#[derive(Debug, Clone, Copy)]
struct RuleKey {
    /// Which of the set's permissions.
    permission: usize,
    /// Pairs that all it matches has.
    pairs: Pairs,
}

/// A rule in a decision. Its action is `rule_action` there, beside the decision's own `action`: a person may have decided otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Told {
    /// As it is written.
    #[serde(flatten, with = "in_a_decision")]
    pub rule: Rule,
    /// Whose it is.
    #[serde(flatten)]
    pub source: RuleSource,
}

/// A rule, beside something else's `action`.
mod in_a_decision {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Action, Rule, RuleGrant};

    #[derive(Serialize, Deserialize)]
    struct ToldForm<'a> {
        permission: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pattern: Option<Cow<'a, str>>,
        rule_action: Action,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        grant: Option<Cow<'a, RuleGrant>>,
    }

    pub(super) fn serialize<S: Serializer>(rule: &Rule, serializer: S) -> Result<S::Ok, S::Error> {
        let Rule { permission, pattern, action, grant } = rule;
        let shown = ToldForm {
            permission: permission.into(),
            pattern: pattern.as_deref().map(Cow::Borrowed),
            rule_action: *action,
            grant: grant.as_ref().map(Cow::Borrowed),
        };
        shown.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rule, D::Error> {
        let ToldForm { permission, pattern, rule_action, grant } = ToldForm::deserialize(deserializer)?;
        Ok(Rule {
            permission: permission.into_owned(),
            pattern: pattern.map(Cow::into_owned),
            action: rule_action,
            grant: grant.map(Cow::into_owned),
        })
    }
}

/// Who decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "by")]
#[non_exhaustive]
pub enum DecidedBy {
    /// A rule; the one that ranks first of those that match (C-3).
    Rule(Told),
    /// The mode allows what is listed, or all.
    Mode {
        /// Which.
        mode: Mode,
    },
    /// The profile asks for nothing when this tool is called, because it changes nothing (C-8).
    Profile,
    /// The tool says that its calls need no approval (S1-12).
    Tool,
    /// Nothing was said of it: S0-52.
    Default,
}

/// Decision of rules and mode on a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Decision {
    /// Action to take.
    pub action: Action,
    /// Rule or mode that decided.
    #[serde(flatten)]
    pub by: DecidedBy,
    /// Which part of the call decided: a path, a command, a host.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub about: Option<String>,
}

/// Facts of a call that rules look at.
#[derive(Debug, Clone, Default)]
pub struct RuledCall<'a> {
    /// The tool's name; `mcp:server:tool` for one of a server's.
    pub tool: &'a str,
    /// Subject of the tool.
    pub subject: Subject,
    /// The tool says that it needs no approval (S1-12): then no rule's silence asks about it.
    pub ungated: bool,
    /// The key under which a person's answer is kept (S1-13).
    pub key: &'a str,
    /// Values that it names itself: each of them must be allowed.
    pub named: Vec<(Capability, RuledPart<'a>)>,
    /// Values that it could reach besides. Only rules about the capability count, and only those that tighten.
    pub reach: Vec<(Capability, RuledPart<'a>)>,
    /// Acts that another tool does as well, with that tool's name: rules that tighten that one hold for it.
    pub kin: Vec<(&'a str, RuledPart<'a>)>,
}

/// One comparison of a rule with a part of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared<'a> {
    /// The rule, and where it was written.
    pub rule: &'a Told,
    /// The part of the call, as text; empty for a call that names nothing.
    pub subject: String,
    /// The action, if the rule matches.
    pub action: Option<Action>,
}

/// All rules of a session, with what holds where none matches.
///
/// Invariant: in the order of their rank, best first; so the first that matches is the one that decides.
#[derive(Debug, Clone, Default)]
pub struct RuleSet {
    rules: Vec<Compiled>,
    /// Keys of the rules, in the same order.
    keys: Vec<RuleKey>,
    /// Permissions that they are about, each once.
    permissions: Vec<Permission>,
    /// True if one of them is about a text, wherever it stands.
    has_phrases: bool,
    /// True if one of them narrows what a command may do.
    has_grants: bool,
    added: u64,
    /// Mode, which decides if no rule does.
    pub mode: Mode,
    /// Calls that [`Mode::Allowlist`] allows.
    pub allowlist: Vec<AllowEntry>,
    /// Subjects that nobody is asked about unless a rule says so.
    pub silent: Vec<Subject>,
    /// Tools besides the locked ones, and what they are about: what a rule's pattern means depends on it.
    pub subjects: BTreeMap<String, Subject>,
}

impl RuleSet {
    /// Adds a rule; the newest wins where nothing else tells two apart.
    ///
    /// # Errors
    /// [`RuleError`], naming the place.
    pub fn add(&mut self, rule: &Rule, source: &RuleSource, variables: &Variables) -> Result<(), RuleError> {
        let place = || source.place.clone();
        let permission = Permission::parse(&rule.permission)
            .map_err(|error| RuleError::Permission { place: place(), source: error })?;
        let about = permission.tool().and_then(|tool| self.subject_of(tool));
        let matchers = Matcher::compile(&permission, about, (rule.pattern.as_deref(), rule.action), variables)
            .map_err(|error| RuleError::Pattern { place: place(), source: error })?;
        let of_commands = about == Some(Subject::Execute)
            || matches!(permission, Permission::Any | Permission::Capability(Capability::ShellRun));
        if rule.grant.is_some() && (!of_commands || rule.action == Action::Deny) {
            return Err(RuleError::Grant { place: place() });
        }
        let narrower = rule.grant.as_ref().map(|grant| Arc::new(Narrower::new(grant, &source.place, variables)));
        self.has_grants |= narrower.is_some();
        self.added += 1;
        for matcher in matchers {
            let rank = Rank::of(&permission, &matcher, rule.action, source.scope, self.added);
            let told = Box::new(Told { rule: rule.clone(), source: source.clone() });
            let narrower = narrower.clone();
            self.insert(&permission, Compiled { rank, matcher, action: rule.action, told, narrower });
        }
        Ok(())
    }

    /// Subject of a tool, by its name.
    fn subject_of(&self, tool: &str) -> Option<Subject> {
        self.subjects.get(tool).copied().or_else(|| Subject::of_locked(tool))
    }

    /// Has a person asked about commands and statements that hold a text, in capitals or not (X4-3). It is told as a rule about each
    /// tool that starts programs, or queries databases.
    pub fn add_phrase(&mut self, text: &str, source: &RuleSource) {
        let further = self.subjects.iter().map(|(name, subject)| (name.as_str(), *subject));
        let takes_text = |subject: Subject| matches!(subject, Subject::Execute | Subject::Query | Subject::Mutate);
        let shells = Subject::LOCKED.into_iter().chain(further).filter(|(_, subject)| takes_text(*subject));
        let names: BTreeSet<String> = shells.map(|(name, _)| name.to_owned()).collect();
        self.has_phrases = true;
        for name in names {
            let rule = Rule::new(name.clone(), Action::Ask).pattern(format!("*{text}*"));
            let (permission, matcher) = (Permission::Tool(name), Matcher::phrase(text));
            self.added += 1;
            let rank = Rank::of(&permission, &matcher, rule.action, source.scope, self.added);
            let told = Box::new(Told { rule, source: source.clone() });
            self.insert(&permission, Compiled { rank, matcher, action: Action::Ask, told, narrower: None });
        }
    }

    fn insert(&mut self, permission: &Permission, compiled: Compiled) {
        let known = self.permissions.iter().position(|known| known == permission);
        let permission = known.unwrap_or_else(|| {
            self.permissions.push(permission.clone());
            self.permissions.len() - 1
        });
        let at = self.rules.partition_point(|other| other.rank <= compiled.rank);
        self.keys.insert(at, RuleKey { permission, pairs: compiled.matcher.pairs() });
        self.rules.insert(at, compiled);
    }

    fn with_keys(&self) -> impl Iterator<Item = (&RuleKey, &Compiled)> {
        self.keys.iter().zip(&self.rules)
    }

    /// The rules that are about something and may match a value.
    fn about(&self, is_about: impl Fn(&Permission) -> bool, value: &RuledPart<'_>) -> impl Iterator<Item = &Compiled> {
        let about: Vec<bool> = self.permissions.iter().map(is_about).collect();
        let looked_at = if about.contains(&true) { self.rules.len() } else { 0 };
        let pairs = Pairs::of(value);
        let possible = move |key: &RuleKey| about[key.permission] && pairs.have(key.pairs);
        self.with_keys().take(looked_at).filter(move |(key, _)| possible(key)).map(|(_, rule)| rule)
    }

    /// The first of them that does match it, and what it says of it.
    fn first(&self, is_about: impl Fn(&Permission) -> bool, value: &RuledPart<'_>) -> Option<(&Compiled, Action)> {
        self.about(is_about, value).find_map(|rule| Some((rule, rule.matcher.applies(rule.action, value)?)))
    }

    /// True if a line holds such a text that is in none of its parts, as a fork bomb is: it is then one more part.
    #[must_use]
    pub fn has_phrase_across(&self, line: &CommandPart, parts: &[CommandPart]) -> bool {
        if !self.has_phrases {
            return false;
        }
        let holds = |rule: &Compiled, part: &CommandPart| {
            rule.matcher.applies(rule.action, &RuledPart::Command(part)).is_some()
        };
        let phrases = self.rules.iter().filter(|rule| matches!(rule.matcher, Matcher::Phrase(_)));
        phrases.into_iter().any(|rule| holds(rule, line) && !parts.iter().any(|part| holds(rule, part)))
    }

    /// Rules for a subagent (S0-56, X0-25): all that denies and asks; of what allows, only the author's. A denial that
    /// the parent was given by anybody cannot be lifted by the child's own rules.
    #[must_use]
    pub fn inherited(&self) -> Self {
        let kept = |rule: &Compiled| rule.action != Action::Allow || rule.told.source.scope == RuleScope::Manifest;
        let mut left = Self { rules: Vec::new(), keys: Vec::new(), ..self.clone() };
        for (key, rule) in self.with_keys().filter(|(_, rule)| kept(rule)) {
            let rank = rule.rank.clone().pinned(rule.action);
            left.insert(&self.permissions[key.permission], Compiled { rank, ..rule.clone() });
        }
        left
    }

    /// Adds what is left for a subagent of a rule that its parent was given later.
    ///
    /// # Errors
    /// [`RuleError`], as of [`RuleSet::add`].
    pub fn inherit(&mut self, rule: &Rule, source: &RuleSource, variables: &Variables) -> Result<(), RuleError> {
        let mut alone = Self { subjects: self.subjects.clone(), added: self.added, ..Self::default() };
        alone.add(rule, source, variables)?;
        (self.added, self.has_grants) = (alone.added, self.has_grants || alone.has_grants);
        let left = alone.inherited();
        for (key, rule) in left.with_keys() {
            self.insert(&left.permissions[key.permission], rule.clone());
        }
        Ok(())
    }

    /// How many rules there are, one with a variable counted for each of its values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The names of tools that rules are about, for finding misspelt ones.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &RuleSource)> {
        self.with_keys().filter_map(|(key, rule)| Some((self.permissions[key.permission].tool()?, &rule.told.source)))
    }

    /// True if commands of a call must be known to judge it: else nobody need parse them.
    #[must_use]
    pub fn looks_at_commands(&self, tool: &str) -> bool {
        let is_about = |permission: &Permission| permission.covers(tool, Capability::ShellRun);
        let listed =
            self.mode == Mode::Allowlist && self.allowlist.iter().any(|entry| entry.tool() == tool && entry.has_keys());
        listed || self.about(is_about, &RuledPart::Anything).any(|rule| rule.matcher.looks_at_commands())
    }

    /// True if paths of a call decide on it: then the file must be where its path says.
    #[must_use]
    pub fn looks_at_paths(&self, tool: &str) -> bool {
        let is_about = |permission: &Permission| {
            permission.covers(tool, Capability::FsRead) || permission.covers(tool, Capability::FsWrite)
        };
        let listed =
            self.mode == Mode::Allowlist && self.allowlist.iter().any(|entry| entry.tool() == tool && entry.has_keys());
        listed || self.about(is_about, &RuledPart::Anything).any(|rule| matches!(rule.matcher, Matcher::Path(..)))
    }

    /// Judges a call: the strictest of what its parts get, deny over ask over allow. Of parts that are equally strict, the
    /// first is told.
    ///
    /// Laws (tested against a brute-force oracle): the order in which rules were added matters for ties alone; no rule
    /// that is added makes a call pass which a manifest denies.
    #[must_use]
    pub fn judge<'a>(&'a self, call: &'a RuledCall<'a>) -> Decision {
        const NOTHING: &[(Capability, RuledPart<'_>)] = &[(Capability::None, RuledPart::Nothing)];
        let named = if call.named.is_empty() { NOTHING } else { &call.named };
        let mut judged = named.iter().map(|(capability, value)| self.judge_part(call, *capability, value));
        let first = judged.next().unwrap_or_else(|| self.unruled(call, &RuledPart::Nothing));
        let reach = call.reach.iter().filter_map(|(capability, value)| self.tightened(*capability, value));
        let kin = call.kin.iter().filter_map(|(tool, value)| self.judge_kin(tool, value));
        judged.chain(kin).chain(reach).fold(first, stricter).decision()
    }

    /// Comparisons that [`RuleSet::judge`] makes for a call: for each of its parts the rules about it, best first, up to the one
    /// that matches. For logs; rules that could not match by the letters they have are left out.
    #[must_use]
    pub fn compared(&self, call: &RuledCall<'_>) -> Vec<Compared<'_>> {
        let mut all = Vec::new();
        for (capability, value) in &call.named {
            self.compare(|permission| permission.covers(call.tool, *capability), value, &mut all);
        }
        for (tool, value) in &call.kin {
            self.compare(|permission| permission.tool() == Some(*tool), value, &mut all);
        }
        for (capability, value) in &call.reach {
            self.compare(|permission| *permission == Permission::Capability(*capability), value, &mut all);
        }
        all
    }

    fn compare<'a>(
        &'a self,
        is_about: impl Fn(&Permission) -> bool,
        value: &RuledPart<'_>,
        all: &mut Vec<Compared<'a>>,
    ) {
        for rule in self.about(is_about, value) {
            let action = rule.matcher.applies(rule.action, value);
            let subject = value.told().unwrap_or_default();
            all.push(Compared { rule: &rule.told, subject, action });
            if action.is_some() {
                return;
            }
        }
    }

    /// Decision of the rules about capabilities on what is done by whoever a call starts: the strictest that asks or
    /// denies. What allows says nothing here, and neither does silence.
    #[must_use]
    pub fn tightens(&self, reach: &[(Capability, RuledPart<'_>)]) -> Option<Decision> {
        let tightened = reach.iter().filter_map(|(capability, value)| self.tightened(*capability, value));
        tightened.reduce(stricter).map(PartJudgement::decision)
    }

    /// By the first of the rules about it that matches.
    fn judge_part<'a>(
        &'a self,
        call: &RuledCall<'_>,
        capability: Capability,
        value: &'a RuledPart<'a>,
    ) -> PartJudgement<'a> {
        let is_about = |permission: &Permission| permission.covers(call.tool, capability);
        self.ruled(is_about, value).unwrap_or_else(|| self.unruled(call, value))
    }

    /// By what the rules about another tool say of it, if that tightens: what they allow is that tool's alone.
    fn judge_kin<'a>(&'a self, tool: &str, value: &'a RuledPart<'a>) -> Option<PartJudgement<'a>> {
        let judged = self.ruled(|permission| permission.tool() == Some(tool), value)?;
        (judged.action != Action::Allow).then_some(judged)
    }

    fn ruled<'a>(
        &'a self,
        is_about: impl Fn(&Permission) -> bool,
        value: &'a RuledPart<'a>,
    ) -> Option<PartJudgement<'a>> {
        let found = self.first(&is_about, value);
        let hides = matches!(value, RuledPart::Command(command) if command.hides());
        let is_exact = found.is_some_and(|(rule, _)| rule.matcher.is_exact());
        if hides
            && !is_exact
            && let Some(asked) = self.hidden(&is_about, value)
        {
            let by_rule = found.is_some_and(|(_, action)| action == Action::Deny);
            if !by_rule {
                return Some(asked);
            }
        }
        let (rule, action) = found?;
        // S1-16: nobody is asked. Denials hold (C-7).
        let by_mode = self.mode == Mode::Yolo && action == Action::Ask;
        let by = if by_mode { Decider::Other(DecidedBy::Mode { mode: self.mode }) } else { Decider::Rule(&rule.told) };
        // A rule without a pattern is about the call, whatever it names.
        let about = rule.told.rule.pattern.is_some().then_some(value);
        Some(PartJudgement { action: if by_mode { Action::Allow } else { action }, by, about })
    }

    /// By the first rule that would tighten a command which the part may evaluate: nobody can tell whether it does, so that a
    /// person is asked.
    fn hidden<'a>(
        &'a self,
        is_about: impl Fn(&Permission) -> bool,
        value: &'a RuledPart<'a>,
    ) -> Option<PartJudgement<'a>> {
        let tightens = |rule: &Compiled| rule.action != Action::Allow && rule.matcher.is_command();
        let (_, rule) =
            self.with_keys().find(|(key, rule)| tightens(rule) && is_about(&self.permissions[key.permission]))?;
        if self.mode == Mode::Yolo {
            return None;
        }
        Some(PartJudgement { action: Action::Ask, by: Decider::Rule(&rule.told), about: Some(value) })
    }

    /// By what a rule about a capability says of what a call could do besides, if that tightens.
    fn tightened<'a>(&'a self, capability: Capability, value: &'a RuledPart<'a>) -> Option<PartJudgement<'a>> {
        let (rule, action) = self.first(|permission| *permission == Permission::Capability(capability), value)?;
        let tightens = action == Action::Deny || (action == Action::Ask && self.mode != Mode::Yolo);
        tightens.then_some(PartJudgement { action, by: Decider::Rule(&rule.told), about: Some(value) })
    }

    /// Sub-policy to which the rules that let its commands pass narrow a call: what all their grants have in common. So
    /// a command stays within its rule's grant, whatever else is in its line. `None` if none of them has a grant.
    #[must_use]
    pub fn sub_policy(&self, call: &RuledCall<'_>) -> Option<SubPolicy> {
        if !self.has_grants {
            return None;
        }
        let grants = call.named.iter().filter_map(|(capability, value)| {
            let (rule, _) = self.first(|permission| permission.covers(call.tool, *capability), value)?;
            rule.narrower.as_deref()
        });
        let of_kin = call.kin.iter().filter_map(|(tool, value)| {
            let (rule, action) = self.first(|permission| permission.tool() == Some(tool), value)?;
            rule.narrower.as_deref().filter(|_| action != Action::Allow)
        });
        grants.chain(of_kin).fold(None, |all: Option<SubPolicy>, one| {
            let one = SubPolicy::of_rule(one);
            Some(match all {
                Some(all) => all.within(one),
                None => one,
            })
        })
    }

    fn unruled<'a>(&self, call: &RuledCall<'_>, value: &'a RuledPart<'a>) -> PartJudgement<'a> {
        // Of a command line each command must be listed: `git *` lists `git x`, and not `git x; rm y` (X1-7).
        let listed = || {
            self.allowlist.iter().any(|entry| match value {
                RuledPart::Command(command) => entry.covers(call.tool, command),
                RuledPart::UnknownCommand | RuledPart::WholeLine => entry.tool() == call.tool && !entry.has_keys(),
                RuledPart::Nothing
                | RuledPart::File(_)
                | RuledPart::Tree(_)
                | RuledPart::Input(_)
                | RuledPart::Host(..)
                | RuledPart::Anything => entry.matches(call.tool, call.key),
            })
        };
        let (action, by) = match self.mode {
            Mode::Yolo => (Action::Allow, DecidedBy::Mode { mode: self.mode }),
            Mode::Allowlist if listed() => (Action::Allow, DecidedBy::Mode { mode: self.mode }),
            Mode::AutoEdit if call.subject.edits() => (Action::Allow, DecidedBy::Mode { mode: self.mode }),
            Mode::Ask | Mode::Allowlist | Mode::AutoEdit if self.silent.contains(&call.subject) => {
                (Action::Allow, DecidedBy::Profile)
            }
            Mode::Ask | Mode::Allowlist | Mode::AutoEdit if call.ungated => (Action::Allow, DecidedBy::Tool),
            Mode::Ask | Mode::Allowlist | Mode::AutoEdit => (Action::Ask, DecidedBy::Default),
        };
        PartJudgement { action, by: Decider::Other(by), about: Some(value) }
    }
}

/// Judgement on one part of a call. Of all but one nothing more is told.
struct PartJudgement<'a> {
    action: Action,
    by: Decider<'a>,
    about: Option<&'a RuledPart<'a>>,
}

/// The stricter of two; of equals, the first.
fn stricter<'a>(one: PartJudgement<'a>, other: PartJudgement<'a>) -> PartJudgement<'a> {
    if other.action > one.action { other } else { one }
}

enum Decider<'a> {
    Rule(&'a Told),
    Other(DecidedBy),
}

impl PartJudgement<'_> {
    fn decision(self) -> Decision {
        let by = match self.by {
            Decider::Rule(told) => DecidedBy::Rule(told.clone()),
            Decider::Other(by) => by,
        };
        Decision { action: self.action, by, about: self.about.and_then(RuledPart::told) }
    }
}

impl Decision {
    /// Remedy: what would have changed it, as something to do.
    #[doc(hidden)]
    #[must_use]
    pub fn remedy(&self, call: &RuledCall<'_>) -> String {
        match &self.by {
            DecidedBy::Rule(Told { source, .. })
                if source.scope == RuleScope::Manifest && self.action == Action::Deny =>
            {
                format!("only its author can lift it: change the rule at {}", source.place)
            }
            DecidedBy::Rule(Told { source, .. }) => format!("change the rule at {}", source.place),
            DecidedBy::Mode { .. } | DecidedBy::Profile | DecidedBy::Tool | DecidedBy::Default => {
                format!("add [[rules]] with permission = {:?} and action = \"allow\"", call.tool)
            }
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            DecidedBy::Rule(told) => write!(f, "{told}")?,
            DecidedBy::Mode { mode } => write!(f, "the mode is `{mode}`")?,
            DecidedBy::Profile => f.write_str("the profile asks nothing about this tool")?,
            DecidedBy::Tool => f.write_str("this tool needs no approval")?,
            DecidedBy::Default => f.write_str("no rule allows it")?,
        }
        match &self.about {
            Some(about) => write!(f, ", for {about}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the rule {} ({})", self.rule, self.source.place)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action, self.permission)?;
        if let Some(pattern) = &self.pattern {
            write!(f, " {pattern:?}")?;
        }
        match &self.grant {
            Some(grant) => write!(f, " with grant = {grant}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        })
    }
}
