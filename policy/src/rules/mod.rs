//! Rules: (permission, pattern, action), and what they make of a call (S0-49 to S0-55).
//!
//! A call is judged by its effects ([`crate::effect`]). Each part of an effect that the call itself has must be allowed; of what it
//! implies, and of what its programs could do, rules that deny or ask apply. What no rule decides, the mode and the profile do.

mod act;
mod agent;
mod allow;
mod builtins;
pub mod commands;
mod held;
mod mistake;
mod pattern;
mod permission;
mod rank;
mod request;
mod rule;
mod sub_policy;
mod values;
mod wildcard;

#[cfg(test)]
mod laws;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::{ApprovalScope, Approvals, EffectKey};
use crate::denied::ClosedPlace;
use crate::effect::{Effect, EffectKind, EffectKinds, WriteKind};
use crate::mode::Mode;
use crate::variable::Variables;

pub use crate::shell::starts::HOLE;
pub use act::{Act, AgentMatter, AgentPart, EffectStanding, JudgedEffect, LackingRule};
pub use allow::AllowEntry;
pub use commands::CommandPart;
pub use mistake::CommandMistake;
pub use pattern::RulePatternError;
pub use permission::{Capability, Permission, PermissionError};
pub use rule::{Action, Rule, RuleGrant, RuleScope, RuleSource};
pub use sub_policy::{SubPolicy, SubPolicyReport};
pub(crate) use wildcard::Specificity;
pub use wildcard::Wildcard;

use commands::{OpenedFile, OpenedPlace};
use pattern::Matcher;
use rank::Rank;
use sub_policy::Narrower;
use wildcard::Pairs;

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

impl Compiled {
    /// True if it is about an act.
    fn applies(&self, act: &Act<'_>) -> bool {
        self.matcher.applies(self.action, act)
    }
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
    /// A person has said "always" to exactly this, or to something that holds it (S1-14).
    Approval {
        /// For how long.
        scope: ApprovalScope,
    },
    /// The profile asks about nothing of this kind, because it changes nothing (C-8).
    Profile,
    /// A command that does nothing by itself: a loop's head, `true`, a variable of the line's own.
    Neutral,
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
    /// The rule that would have allowed just this, where no rule decided.
    #[serde(skip)]
    pub lacks: Option<LackingRule>,
}

/// Facts of a call that rules look at.
#[derive(Debug, Clone, Default)]
pub struct JudgedCall<'a> {
    /// The tool's name; `mcp:server:tool` for one of a server's.
    pub tool: &'a str,
    /// True if the tool says that it needs no approval (S1-12): then no rule's silence asks about it.
    pub ungated: bool,
    /// The key that the tool derives from the call's arguments (S1-13), if it has one.
    pub key: Option<&'a str>,
    /// Its effects.
    pub effects: Vec<JudgedEffect<'a>>,
    /// Capabilities that its programs could use.
    pub reach: Vec<Capability>,
}

/// RuleJudgement on a call: its decision, and the one on each of its effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleJudgement {
    /// The strictest of all.
    pub decision: Decision,
    /// The strictest on each effect, in their order; then one for each capability within reach that a rule tightens.
    pub each: Vec<Decision>,
}

/// One comparison of a rule with a part of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared<'a> {
    /// The rule, and where it was written.
    pub rule: &'a Told,
    /// The part of the call, as text; empty for a call that names nothing.
    pub act: String,
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
    /// Kinds of effects that nobody is asked about unless a rule says so.
    pub silent: EffectKinds,
    /// The tools besides the locked ones, and the kinds of their effects: what a rule's pattern means depends on it.
    pub tools: BTreeMap<String, EffectKinds>,
    /// Places that the session's sandbox closes for writing.
    held: Vec<ClosedPlace>,
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
        let kinds = self.kinds_of(&permission);
        let matchers = Matcher::compile((&rule.permission, kinds), (rule.pattern.as_deref(), rule.action), variables)
            .map_err(|error| RuleError::Pattern { place: place(), source: error })?;
        let is_about_programs = kinds.has(EffectKind::Runs);
        if rule.grant.is_some() && (!is_about_programs || rule.action == Action::Deny) {
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

    /// Kinds of the effects that a permission is about. A tool that is not known may have any.
    fn kinds_of(&self, permission: &Permission) -> EffectKinds {
        match permission {
            Permission::Effect { kinds, .. } => *kinds,
            Permission::Capability(capability) => capability.kinds(),
            Permission::Tool(tool) => match self.tools.get(tool) {
                Some(kinds) => *kinds,
                None if tool.starts_with("mcp:") => EffectKinds::of(&[EffectKind::Serves]),
                None => EffectKinds::ALL,
            },
            Permission::Mcp { .. } => EffectKinds::of(&[EffectKind::Serves]),
            Permission::Any => EffectKinds::ALL,
        }
    }

    /// Has a person asked about commands and statements that hold a text, in capitals or not (X4-3). It is told as a rule about `bash`.
    pub fn add_phrase(&mut self, text: &str, source: &RuleSource) {
        let kinds = EffectKinds::of(&[EffectKind::Runs, EffectKind::Queries]);
        let permission = Permission::Effect { name: "bash", kinds };
        let rule = Rule::new("bash", Action::Ask).pattern(format!("*{text}*"));
        let matcher = Matcher::phrase(text);
        self.has_phrases = true;
        self.added += 1;
        let rank = Rank::of(&permission, &matcher, rule.action, source.scope, self.added);
        let told = Box::new(Told { rule, source: source.clone() });
        self.insert(&permission, Compiled { rank, matcher, action: Action::Ask, told, narrower: None });
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

    /// The rules that are about something and may match an act.
    fn about(&self, is_about: impl Fn(&Permission) -> bool, act: &Act<'_>) -> impl Iterator<Item = &Compiled> {
        let about: Vec<bool> = self.permissions.iter().map(is_about).collect();
        let looked_at = if about.contains(&true) { self.rules.len() } else { 0 };
        let pairs = Pairs::of(act);
        let possible = move |key: &RuleKey| about[key.permission] && pairs.have(key.pairs);
        self.with_keys().take(looked_at).filter(move |(key, _)| possible(key)).map(|(_, rule)| rule)
    }

    /// The first of them that matches it.
    fn first(&self, is_about: impl Fn(&Permission) -> bool, act: &Act<'_>) -> Option<&Compiled> {
        self.about(is_about, act).find(|rule| rule.applies(act))
    }

    /// True if a line holds such a text that is in none of its parts, as a fork bomb is: it is then one more part.
    #[must_use]
    pub fn has_phrase_across(&self, line: &CommandPart, parts: &[CommandPart]) -> bool {
        if !self.has_phrases {
            return false;
        }
        let holds = |rule: &Compiled, part: &CommandPart| rule.applies(&Act::Command(part.clone()));
        let phrases = self.rules.iter().filter(|rule| matches!(rule.matcher, Matcher::Phrase(_)));
        phrases.into_iter().any(|rule| holds(rule, line) && !parts.iter().any(|part| holds(rule, part)))
    }

    /// Rules for a subagent (S0-56, X0-25): all that denies and asks; of what allows, only the author's. A denial that
    /// the parent was given by anybody cannot be lifted by the child's own rules.
    #[must_use]
    pub fn inherited(&self) -> Self {
        let kept = |rule: &Compiled| rule.action != Action::Allow || rule.told.source.scope == RuleScope::Manifest;
        // What this sandbox closes, a child's has to close anew.
        let mut left = Self { rules: Vec::new(), keys: Vec::new(), held: Vec::new(), ..self.clone() };
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
        let mut alone = Self { tools: self.tools.clone(), added: self.added, ..Self::default() };
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

    /// The servers that rules are about, for finding misspelt ones.
    pub fn servers(&self) -> impl Iterator<Item = (&str, &RuleSource)> {
        self.with_keys().filter_map(|(key, rule)| Some((self.permissions[key.permission].server()?, &rule.told.source)))
    }

    /// The subagents that rules are about and no others, for finding misspelt ones. A rule that denies or asks may be about a prompt.
    pub fn agents(&self) -> impl Iterator<Item = (&str, &RuleSource)> {
        let is_task = |permission: &Permission| matches!(permission, Permission::Effect { name: "task", .. });
        let tasks = self.with_keys().filter(move |(key, _)| is_task(&self.permissions[key.permission]));
        tasks.filter_map(|(_, rule)| {
            let Matcher::Agent(pattern) = &rule.matcher else { return None };
            let text = pattern.text();
            let name = match rule.action {
                Action::Allow => text.split_once(": ").map_or(text, |(name, _)| name),
                Action::Ask | Action::Deny => text,
            };
            let is_name = !name.contains('*') && (rule.action == Action::Allow || !name.contains([':', ' ', '=']));
            is_name.then_some((name, &rule.told.source))
        })
    }

    /// The capabilities without an object that rules are about, for finding those that nothing uses.
    pub fn capabilities(&self) -> impl Iterator<Item = (Capability, &RuleSource)> {
        self.with_keys().filter_map(|(key, rule)| {
            let Permission::Capability(capability) = self.permissions[key.permission] else { return None };
            let has_no_object = matches!(capability, Capability::SecretsHas | Capability::StreamSend);
            has_no_object.then_some((capability, &rule.told.source))
        })
    }

    /// True if commands of a call must be known to judge it: else nobody need parse them.
    #[must_use]
    pub fn looks_at_commands(&self, tool: &str) -> bool {
        let is_about = |permission: &Permission| permission.covers(tool, EffectKind::Runs, EffectStanding::Own);
        // A line opens files too.
        let is_about_files = |permission: &Permission| {
            [EffectKind::Shows, EffectKind::Writes]
                .iter()
                .any(|kind| permission.covers(tool, *kind, EffectStanding::Implied))
        };
        let tightens = |rule: &Compiled| rule.action != Action::Allow && matches!(rule.matcher, Matcher::Path(..));
        self.lists_keys_of(tool)
            || self.about(is_about, &Act::Anything).any(|rule| rule.matcher.looks_at_commands())
            || self.about(is_about_files, &Act::Anything).any(tightens)
    }

    /// True if paths of a call decide on it: then the file must be where its path says.
    #[must_use]
    pub fn looks_at_paths(&self, tool: &str) -> bool {
        let kinds = [EffectKind::Shows, EffectKind::Lists, EffectKind::Writes, EffectKind::Serves];
        let is_about =
            |permission: &Permission| kinds.iter().any(|kind| permission.covers(tool, *kind, EffectStanding::Own));
        self.lists_keys_of(tool)
            || self.about(is_about, &Act::Anything).any(|rule| matches!(rule.matcher, Matcher::Path(..)))
    }

    /// True if the mode lists calls of a tool by their keys.
    fn lists_keys_of(&self, tool: &str) -> bool {
        self.mode == Mode::Allowlist && self.allowlist.iter().any(|entry| entry.tool() == tool && entry.has_keys())
    }

    /// Judges a call: the strictest of what its effects get, deny over ask over allow. Of effects that are equally strict, the first is
    /// told.
    ///
    /// Laws (tested against a brute-force oracle): the order in which rules were added matters for ties alone; no rule
    /// that is added makes a call pass which a manifest denies.
    #[must_use]
    pub fn judge(
        &self,
        call: &JudgedCall<'_>,
        approvals: &Approvals,
        key: &dyn Fn(&Effect) -> EffectKey,
    ) -> RuleJudgement {
        let mut each: Vec<Decision> =
            call.effects.iter().filter_map(|effect| self.judge_effect(call, effect, (approvals, key))).collect();
        // What a person has said always to for this very program covers what it could do.
        let programs = call.effects.iter().filter(|one| one.effect.kind() == EffectKind::Runs);
        let programs = programs.map(|one| (one.effect, key(one.effect)));
        let is_approved = approvals.cover(programs, (call.tool, call.key)).is_some();
        let tightened = call.reach.iter().filter_map(|capability| self.tightened(*capability));
        let tightened = tightened.filter(|judged| judged.action == Action::Deny || !is_approved);
        each.extend(tightened.map(PartJudgement::decision));
        let first = || self.unruled(call, (EffectKind::Notes, None), &Act::Nothing).decision();
        let decision = each.iter().fold(None, |strictest: Option<&Decision>, one| match strictest {
            Some(strictest) if strictest.action >= one.action => Some(strictest),
            _ => Some(one),
        });
        RuleJudgement { decision: decision.cloned().unwrap_or_else(first), each }
    }

    /// The strictest judgement on the parts of an effect. `None` for one that is implied, if nothing tightens it.
    fn judge_effect(
        &self,
        call: &JudgedCall<'_>,
        JudgedEffect { effect, standing, acts }: &JudgedEffect<'_>,
        (approvals, key): (&Approvals, &dyn Fn(&Effect) -> EffectKey),
    ) -> Option<Decision> {
        let kind = effect.kind();
        let mut strictest: Option<PartJudgement<'_>> = None;
        for act in acts {
            let is_about = |permission: &Permission| permission.covers(call.tool, kind, *standing);
            let ruled = self.ruled(is_about, act);
            // What a program reads belongs to its command, which a rule has to allow.
            let is_fed = matches!(act, Act::Input { .. }) && acts.len() > 1;
            let of_files = self.ruled_by_files(call.tool, act);
            let (allowed, tightened) = match of_files {
                Some(judged) if judged.action == Action::Allow => (Some(judged), None),
                of_files => (None, of_files),
            };
            let judged = match standing {
                EffectStanding::Own if !is_fed => {
                    Some(ruled.or(allowed).unwrap_or_else(|| self.unruled(call, (kind, Some(effect)), act)))
                }
                EffectStanding::Own | EffectStanding::Implied | EffectStanding::Reach => {
                    ruled.filter(|judged| judged.action != Action::Allow)
                }
            };
            let judged = match (judged, tightened) {
                (Some(one), Some(other)) => Some(stricter(one, other)),
                (one, other) => one.or(other),
            };
            // What a person has said always to is a rule: a more specific one that asks comes before it.
            let judged = judged.map(|judged| match judged.action {
                Action::Ask => match approvals.find((effect, &key(effect), *standing), (call.tool, call.key)) {
                    Some((approval, says)) if judged.specificity.is_none_or(|asks| asks.is_below(says)) => {
                        let by = Decider::Other(DecidedBy::Approval { scope: approval.scope });
                        PartJudgement { action: Action::Allow, by, ..judged }
                    }
                    _ => judged,
                },
                Action::Allow | Action::Deny => judged,
            });
            strictest = match (strictest, judged) {
                (Some(one), Some(other)) => Some(stricter(one, other)),
                (one, other) => one.or(other),
            };
        }
        strictest.map(PartJudgement::decision)
    }

    /// Comparisons that [`RuleSet::judge`] makes for a call: for each of its parts the rules about it, best first, up to the one
    /// that matches. For logs; rules that could not match by the letters they have are left out.
    #[must_use]
    pub fn compared(&self, call: &JudgedCall<'_>) -> Vec<Compared<'_>> {
        let mut all = Vec::new();
        for JudgedEffect { effect, standing, acts } in &call.effects {
            for act in acts {
                self.compare(|permission| permission.covers(call.tool, effect.kind(), *standing), act, &mut all);
            }
        }
        let reached = call.reach.iter().filter_map(|capability| self.first_of_reach(*capability));
        let act = Act::Anything.told().unwrap_or_default();
        all.extend(reached.map(|rule| Compared { rule: &rule.told, act: act.clone(), action: Some(rule.action) }));
        all
    }

    fn compare<'a>(&'a self, is_about: impl Fn(&Permission) -> bool, act: &Act<'_>, all: &mut Vec<Compared<'a>>) {
        for rule in self.about(is_about, act) {
            let applies = rule.applies(act);
            let told = act.told().unwrap_or_default();
            all.push(Compared { rule: &rule.told, act: told, action: applies.then_some(rule.action) });
            if applies {
                return;
            }
        }
    }

    /// Decision of the rules about what is done by whoever a call starts: the strictest that asks or denies. What allows says nothing
    /// here, and neither does silence.
    #[must_use]
    pub fn tightens(&self, effects: &[JudgedEffect<'_>], reach: &[Capability]) -> Option<Decision> {
        let about =
            |kind: EffectKind| move |permission: &Permission| permission.covers("", kind, EffectStanding::Implied);
        let of_effect = effects.iter().flat_map(|one| one.acts.iter().map(move |act| (one.effect.kind(), act)));
        let of_effects = of_effect.filter_map(|(kind, act)| self.ruled(about(kind), act));
        let tightened = reach.iter().filter_map(|capability| self.tightened(*capability));
        let all = of_effects.filter(|judged| judged.action != Action::Allow).chain(tightened);
        all.reduce(stricter).map(PartJudgement::decision)
    }

    /// By the first of the rules about it that matches.
    fn ruled<'a>(&'a self, is_about: impl Fn(&Permission) -> bool, act: &'a Act<'a>) -> Option<PartJudgement<'a>> {
        let mut applying = self.about(&is_about, act).filter(|rule| self.speaks(rule) && rule.applies(act));
        // A rule that allows a command is about the file that it reads only as long as no rule names that file itself (`< *key`).
        let first = applying.next();
        let is_read = matches!(act, Act::Command(command) if command.read_by().is_some());
        let found = match first {
            Some(rule) if is_read && rule.action == Action::Allow => {
                applying.find(|rule| rule.action != Action::Allow && rule.matcher.names_read_files()).or(first)
            }
            first => first,
        };
        let hides = act.hides();
        let is_exact = found.is_some_and(|rule| rule.matcher.is_exact());
        if hides
            && !is_exact
            && let Some(asked) = self.hidden(&is_about, act)
        {
            let by_rule = found.is_some_and(|rule| rule.action == Action::Deny);
            if !by_rule {
                return Some(asked);
            }
        }
        let rule = found?;
        // A rule without a pattern is about the call, whatever it names.
        Some(PartJudgement::by(rule, rule.told.rule.pattern.is_some().then_some(act)))
    }

    /// S1-16: in `yolo` nobody is asked, so that rules which ask say nothing, and lift no denial that comes after them. Denials hold (C-7).
    fn speaks(&self, rule: &Compiled) -> bool {
        !(self.mode == Mode::Yolo && rule.action == Action::Ask)
    }

    /// By the rules about files, for those that an act has shells open: the strictest. Where the text does not say which file that is,
    /// it may be any. A pattern allows none: a link may lead from it elsewhere.
    fn ruled_by_files<'a>(&'a self, tool: &str, act: &'a Act<'a>) -> Option<PartJudgement<'a>> {
        act.opens().into_iter().filter_map(|file| self.ruled_by_file(tool, act, file)).reduce(stricter)
    }

    fn ruled_by_file<'a>(
        &'a self,
        tool: &str,
        act: &'a Act<'a>,
        OpenedFile { kind, place }: OpenedFile,
    ) -> Option<PartJudgement<'a>> {
        let file = match &place {
            OpenedPlace::At(path) => Act::File(path),
            OpenedPlace::Like(like) => Act::FileLike(like),
            OpenedPlace::Any => Act::Anything,
        };
        let is_shown = matches!(act, Act::Command(command) if command.is_shown() && !command.may_connect());
        // What the sandbox closes it refuses to the line as well, and the rest of the line runs.
        let is_held = |rule: &Compiled| kind == EffectKind::Writes && self.is_held(Capability::FsWrite, rule);
        // One without a pattern that asks or denies is about the tools: it names no file.
        let names_files = |rule: &Compiled| matches!(rule.matcher, Matcher::Path(..)) || rule.action == Action::Allow;
        let counts = |rule: &&Compiled| names_files(rule) && self.speaks(rule) && !is_held(rule);
        let is_about = |permission: &Permission| permission.covers(tool, kind, EffectStanding::Own);
        let rule = self.about(is_about, &file).filter(counts).find(|rule| rule.applies(&file))?;
        let is_wide = matches!(rule.matcher, Matcher::All);
        (rule.action != Action::Allow || (is_wide && is_shown)).then(|| PartJudgement::by(rule, Some(act)))
    }

    /// By the first rule that would tighten a command which the part may evaluate: nobody can tell whether it does, so that a
    /// person is asked.
    fn hidden<'a>(&'a self, is_about: impl Fn(&Permission) -> bool, act: &'a Act<'a>) -> Option<PartJudgement<'a>> {
        let tightens = |rule: &Compiled| rule.action != Action::Allow && rule.matcher.is_command();
        let (_, rule) =
            self.with_keys().find(|(key, rule)| tightens(rule) && is_about(&self.permissions[key.permission]))?;
        if self.mode == Mode::Yolo {
            return None;
        }
        Some(PartJudgement { action: Action::Ask, ..PartJudgement::by(rule, Some(act)) })
    }

    /// By what a rule about a capability says of what a call could do besides, if that tightens.
    fn tightened(&self, capability: Capability) -> Option<PartJudgement<'_>> {
        let rule = self.first_of_reach(capability)?;
        (rule.action != Action::Allow).then(|| PartJudgement::by(rule, Some(&Act::Anything)))
    }

    /// Sub-policy to which the rules that let its effects pass narrow a call: what all their grants have in common. So
    /// a command stays within its rule's grant, whatever else is in its line. `None` if none of them has a grant.
    #[must_use]
    pub fn sub_policy(&self, call: &JudgedCall<'_>) -> Option<SubPolicy> {
        if !self.has_grants {
            return None;
        }
        let acts = call.effects.iter().flat_map(|one| one.acts.iter().map(move |act| (one, act)));
        let grants = acts.filter_map(|(JudgedEffect { effect, standing, .. }, act)| {
            let rule = self.first(|permission| permission.covers(call.tool, effect.kind(), *standing), act)?;
            rule.narrower.as_deref()
        });
        grants.fold(None, |all: Option<SubPolicy>, one| {
            let one = SubPolicy::of_rule(one);
            Some(match all {
                Some(all) => all.within(one),
                None => one,
            })
        })
    }

    /// By mode, profile and tool, which are the rules of the lowest rank.
    fn unruled<'a>(
        &self,
        call: &JudgedCall<'_>,
        (kind, effect): (EffectKind, Option<&Effect>),
        act: &'a Act<'a>,
    ) -> PartJudgement<'a> {
        let edits = || matches!(effect, Some(Effect::Writes { how: WriteKind::Create | WriteKind::Write, .. }));
        // Of a command line each command must be listed: `git *` lists `git x`, and not `git x; rm y` (X1-7).
        let listed = || self.allowlist.iter().any(|entry| entry.covers(call.tool, act));
        let by_mode = DecidedBy::Mode { mode: self.mode };
        let is_neutral = matches!(act, Act::Command(command) if command.is_neutral());
        // What it is silent about when a tool does it.
        let is_shown = matches!(act, Act::Command(command) if command.is_shown() && !command.may_connect());
        let is_silent = self.silent.has(if is_shown { EffectKind::Shows } else { kind });
        let (action, by) = match self.mode {
            Mode::Yolo => (Action::Allow, by_mode),
            Mode::Ask | Mode::Allowlist | Mode::AutoEdit if is_neutral => (Action::Allow, DecidedBy::Neutral),
            Mode::Allowlist if listed() => (Action::Allow, by_mode),
            Mode::AutoEdit if edits() => (Action::Allow, by_mode),
            Mode::Ask | Mode::Allowlist | Mode::AutoEdit if is_silent => (Action::Allow, DecidedBy::Profile),
            Mode::Ask | Mode::Allowlist | Mode::AutoEdit if call.ungated => (Action::Allow, DecidedBy::Tool),
            Mode::Ask | Mode::Allowlist | Mode::AutoEdit => (Action::Ask, DecidedBy::Default),
        };
        PartJudgement {
            action,
            by: Decider::Other(by),
            about: Some(act),
            specificity: None,
            lacks: Some(act.rule(kind, call.tool)),
        }
    }
}

/// RuleJudgement on one part of a call. Of all but one nothing more is told.
struct PartJudgement<'a> {
    action: Action,
    by: Decider<'a>,
    about: Option<&'a Act<'a>>,
    /// How much the pattern says by which a rule decided.
    specificity: Option<Specificity>,
    /// The rule that would have allowed it, if none decided.
    lacks: Option<LackingRule>,
}

/// The stricter of two; of equals, the first.
fn stricter<'a>(one: PartJudgement<'a>, other: PartJudgement<'a>) -> PartJudgement<'a> {
    if other.action > one.action { other } else { one }
}

enum Decider<'a> {
    Rule(&'a Told),
    Other(DecidedBy),
}

impl<'a> PartJudgement<'a> {
    /// By a rule.
    fn by(rule: &'a Compiled, about: Option<&'a Act<'a>>) -> Self {
        let specificity = Some(rule.matcher.specificity());
        Self { action: rule.action, by: Decider::Rule(&rule.told), about, specificity, lacks: None }
    }
}

impl PartJudgement<'_> {
    fn decision(self) -> Decision {
        let by = match self.by {
            Decider::Rule(told) => DecidedBy::Rule(told.clone()),
            Decider::Other(by) => by,
        };
        Decision { action: self.action, by, about: self.about.and_then(Act::told), lacks: self.lacks }
    }
}

impl Decision {
    /// Remedy: what would have changed it, as something to do.
    #[doc(hidden)]
    #[must_use]
    pub fn remedy(&self, tool: &str) -> String {
        let is_of_programs = self.action == Action::Deny && self.about == Act::Anything.told();
        match &self.by {
            DecidedBy::Rule(told) if is_of_programs && told.is_about_writing() => format!(
                "{}; programs run, and only the place is closed to them, where the rule names a directory with all below it (`docs/**`) or \
                 one file, the session was opened with it, and no rule before it allows writing there",
                told.remedy(self.action)
            ),
            DecidedBy::Rule(told) if is_of_programs && told.rule.permission == "fs.read" => format!(
                "{}; for reading no place can be closed to programs alone: grant them less to read, or use tools that name files",
                told.remedy(self.action)
            ),
            DecidedBy::Rule(told) => told.remedy(self.action),
            DecidedBy::Mode { .. }
            | DecidedBy::Approval { .. }
            | DecidedBy::Profile
            | DecidedBy::Neutral
            | DecidedBy::Tool
            | DecidedBy::Default => match &self.lacks {
                Some(LackingRule { permission, pattern: Some(pattern) }) => format!(
                    "add [[rules]] with permission = {permission:?}, pattern = {pattern:?} and action = \"allow\", or a wider pattern"
                ),
                // Never all of it: a rule without a pattern would allow any command.
                Some(LackingRule { permission, pattern: None }) if permission == "bash" => {
                    "add [[rules]] with permission = \"bash\", a pattern for each of its commands (\"make *\") and action = \"allow\""
                        .to_owned()
                }
                Some(LackingRule { permission, pattern: None }) => {
                    format!("add [[rules]] with permission = {permission:?} and action = \"allow\"")
                }
                None => format!("add [[rules]] with permission = {tool:?} and action = \"allow\""),
            },
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            DecidedBy::Rule(told) => write!(f, "{told}")?,
            DecidedBy::Mode { mode } => write!(f, "the mode is `{mode}`")?,
            DecidedBy::Approval { scope } => write!(f, "a person allows it always, for this {}", scope.name())?,
            DecidedBy::Profile => f.write_str("the profile asks nothing about this tool")?,
            DecidedBy::Neutral => f.write_str("it does nothing by itself")?,
            DecidedBy::Tool => f.write_str("this tool needs no approval")?,
            DecidedBy::Default => f.write_str("no rule allows it")?,
        }
        match &self.about {
            Some(about) => write!(f, ", for {about}"),
            None => Ok(()),
        }
    }
}

impl Told {
    fn is_about_writing(&self) -> bool {
        self.rule.pattern.is_some() && self.rule.permission == "fs.write"
    }

    fn remedy(&self, decided: Action) -> String {
        let place = &self.source.place;
        match (self.source.scope, decided) {
            (RuleScope::Manifest, Action::Deny) => format!("only its author can lift it: change the rule at {place}"),
            _ => format!("change the rule at {place}"),
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
