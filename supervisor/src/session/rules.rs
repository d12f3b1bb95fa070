//! The rules of all scopes, and what holds where none matches.

use callgate_policy::mode::Mode;
use callgate_policy::profile::{Clause, NOT_YET, Placed, Profile};
use callgate_policy::rules::{Action, AllowEntry, Capability, Rule, RuleScope, RuleSet, RuleSource};
use callgate_policy::variable::Variables;

use super::{Session, SessionSpec};
use crate::open_error::OpenError;
use crate::origin::Origin;
use crate::registry::{Registry, Tool};

/// The rules of all scopes, and what holds where none matches.
pub(super) fn rules(
    spec: &SessionSpec,
    inherited: Option<RuleSet>,
    profile: &Profile,
    registry: &Registry,
    variables: &Variables,
) -> Result<RuleSet, OpenError> {
    let manifest = spec.manifest.as_ref();
    let is_child = inherited.is_some();
    let mut rules = inherited.unwrap_or_default();
    let mode = spec.mode.or(manifest.and_then(|manifest| manifest.mode));
    if !is_child {
        rules.mode = mode.unwrap_or(profile.mode);
        let listed = manifest.into_iter().flat_map(|manifest| manifest.allowlist.iter().cloned());
        let root = variables.workspace().first();
        let within = |entry: AllowEntry| root.map_or_else(|| entry.clone(), |root| entry.clone().within(root.clone()));
        rules.allowlist = listed.map(within).collect();
        rules.silent = profile.silent();
    }
    rules.tools = Registry::kinds_of_further()?;
    rules.tools.extend(registry.kinds());
    for (place, rule) in manifest.into_iter().flat_map(|manifest| manifest.rules.iter().enumerate()) {
        let place =
            manifest.map_or(String::new(), |manifest| format!("{}:{}", manifest.file, manifest.rule_line(place)));
        rules.add(rule, &RuleSource { scope: RuleScope::Manifest, place }, variables).map_err(OpenError::Rule)?;
    }
    // Who names a mode says by that what holds where no rule is written.
    let counts = |(scope, _): &&(RuleScope, Rule)| *scope != RuleScope::Default || mode.is_none();
    for (scope, rule) in spec.rules.iter().filter(counts) {
        let place = match scope {
            RuleScope::Session => "this session",
            RuleScope::Project => "this project",
            RuleScope::Manifest => "the host",
            RuleScope::Default => "a default of the host",
        };
        let source = RuleSource { scope: *scope, place: place.to_owned() };
        rules.add(rule, &source, variables).map_err(OpenError::Rule)?;
    }
    // Of the locked tools also those that the profile does not offer: a rule about one is no mistake.
    let mut known = Registry::locked()?;
    known.add_task(&manifest.map(|manifest| manifest.agents.clone()).unwrap_or_default())?;
    let is_of_others = |tool: &&Tool| tool.origin != Origin::Bundled || Registry::has_to_be_configured(tool.own_name());
    for tool in registry.tools().filter(is_of_others) {
        if !known.has(&tool.name) {
            known.add(tool.clone())?;
        }
    }
    // A name of theirs that a tool of the host's has is the host's.
    known.add_further(Registry::further()?.iter().map(String::as_str))?;
    // A child has them from its parent.
    for clause in profile.approval.iter().filter(|_| !is_child) {
        add_clause(&mut rules, clause, mode, &known, variables)?;
    }
    refuse_unknown_tools(&rules, &known, registry)?;
    // Rules that a child has from its parent are about its parent's servers and agents, and those of a server's session, which has no
    // tools, are its manifest's: they were checked where that was opened.
    if !is_child && spec.tools {
        refuse_what_never_matches(&rules, spec, registry)?;
    }
    Ok(rules)
}

/// Refuses a rule about a tool that there is not: a misspelt name would be a rule that is never asked.
fn refuse_unknown_tools(rules: &RuleSet, known: &Registry, registry: &Registry) -> Result<(), OpenError> {
    let unknown = rules
        .tools()
        .find(|(tool, _)| !known.has(tool) && !registry.is_left_out(tool) && !Registry::has_to_be_configured(tool));
    match unknown {
        None => Ok(()),
        Some((tool, source)) => {
            let (place, tool, known) = (source.place.clone(), tool.to_owned(), known.names().join(", "));
            Err(OpenError::UnknownTool { place, tool, known })
        }
    }
}

/// Refuses a rule about a server, an agent or a capability that no call of the session can have.
fn refuse_what_never_matches(rules: &RuleSet, spec: &SessionSpec, registry: &Registry) -> Result<(), OpenError> {
    let never = |what: String, source: &RuleSource| OpenError::NeverMatches { place: source.place.clone(), what };
    let manifest = spec.manifest.as_ref();
    let is_authors = |source: &RuleSource| source.scope == RuleScope::Manifest;
    let servers: Vec<&str> =
        manifest.into_iter().flat_map(|manifest| manifest.mcp.keys()).map(String::as_str).collect();
    // A host that connects a server while the session runs names it in a rule of its own.
    let is_hosts = |name: &str| rules.servers().any(|(server, source)| server == name && !is_authors(source));
    let has_server =
        |name: &str| servers.contains(&name) || is_hosts(name) || registry.tools().any(|tool| tool.is_of(name));
    if let Some((server, source)) = rules.servers().find(|(name, source)| is_authors(source) && !has_server(name)) {
        let what = format!("there is no server `{server}`; {}", there_are("server", "mcp", &servers));
        return Err(never(what, source));
    }
    let agents = manifest.into_iter().flat_map(|manifest| &manifest.agents);
    let agents: Vec<&str> =
        agents.filter(|(_, agent)| agent.mode.is_subagent()).map(|(name, _)| name.as_str()).collect();
    if let Some((agent, source)) = rules.agents().find(|(name, source)| is_authors(source) && !agents.contains(name)) {
        let what = format!(
            "there is no agent `{agent}` that `task` starts; a pattern of `task` is an agent's name, `NAME: PROMPT`, or, to deny or ask \
             about a prompt or a setting of any agent, a text with `*`, a blank or `=`; {}",
            there_are("subagent", "agents", &agents)
        );
        return Err(never(what, source));
    }
    let is_used = |capability: Capability| registry.tools().any(|tool| tool.kinds().meets(capability.kinds()));
    match rules.capabilities().find(|(capability, _)| !is_used(*capability)) {
        Some((_, source)) => Err(never("no tool of this session uses that capability".to_owned(), source)),
        None => Ok(()),
    }
}

/// The names that there are, for whoever has written another.
fn there_are(what: &str, table: &str, names: &[&str]) -> String {
    match names {
        [] => format!("the manifest has no [{table}.NAME]"),
        names => format!("the {what}s of the manifest are {}", names.join(", ")),
    }
}

/// Name in S4 of the tool that starts subagents.
const DELEGATE: &str = "delegate";
const TASK: &str = "task";

/// Adds a profile's clause on approval. It is its author's, as a manifest is.
fn add_clause(
    rules: &mut RuleSet,
    Placed { value, place }: &Placed<Clause>,
    mode: Option<Mode>,
    known: &Registry,
    variables: &Variables,
) -> Result<(), OpenError> {
    let source = RuleSource { scope: RuleScope::Manifest, place: place.clone() };
    let rest = || Rule::new("*", Action::Allow);
    match value {
        Clause::Phrase(text) => rules.add_phrase(text, &source),
        Clause::Rest if mode.is_none() => rules.add(&rest(), &source, variables).map_err(OpenError::Rule)?,
        // Who names a mode says by that what the rest is.
        Clause::Rest => {}
        // S4's name for it.
        Clause::Rule(rule) if rule.permission == DELEGATE => {
            if known.find(TASK).is_some() {
                let mut rule = rule.clone();
                TASK.clone_into(&mut rule.permission);
                rules.add(&rule, &source, variables).map_err(OpenError::Rule)?;
            }
        }
        Clause::Rule(rule) => {
            let is_to_come = NOT_YET.contains(&rule.permission.as_str()) && known.find(&rule.permission).is_none();
            if !is_to_come {
                rules.add(rule, &source, variables).map_err(OpenError::Rule)?;
            }
        }
    }
    Ok(())
}

impl Session {
    /// Adds a rule for the rest of this session: what a host does with a person's "always" (X0-11).
    ///
    /// # Errors
    /// [`OpenError::Rule`] if it makes no sense; [`OpenError::Store`] if it cannot be recorded with the session.
    pub fn add_rule(&self, rule: &Rule) -> Result<(), OpenError> {
        let source = RuleSource { scope: RuleScope::Session, place: "this session".to_owned() };
        let mut reared = self.family.children.reared();
        let mut rules = self.gate.rules_to_change();
        // What makes no sense is not kept, and what cannot be kept is not in force.
        let mut with = rules.clone();
        with.add(rule, &source, &self.variables).map_err(OpenError::Rule)?;
        self.recorder.keep_rule(rule)?;
        *rules = with;
        drop(rules);
        reared.pass_on(rule)
    }
}
