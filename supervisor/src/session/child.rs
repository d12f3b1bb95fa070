//! Subagents: sessions that a session starts (X0-20 to X0-30).
//!
//! A child is opened as any other session is, with its parent's rights as one more bound, its parent's rules and watchdogs, and
//! tools that its parent has. What its ancestors may write counts where links are looked for that a call may have planted. Its
//! workspace is that directory which its parent holds, and not what has its name by now.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use callgate_policy::effective::{EffectiveSet, Source};
use callgate_policy::manifest::Env;
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile;
use callgate_policy::rules::{Rule, RuleScope, RuleSet, RuleSource};

use super::family::Reared;
use super::lineage::Lineage;
use super::opening::{OpenedBy, bounds, effective};
use super::rules::rules;
use super::sources::{Inherited, has_skills};
use super::written::{chosen_by_calls, replaced_by_calls};
use super::{Session, SessionSpec};
use crate::agents::kept::KeptAgent;
use crate::agents::tools::INBOX;
use crate::mounts::MountTable;
use crate::open_error::OpenError;
use crate::place::Place;
use crate::registry::hosted::skill;
use crate::registry::{Registry, Tool, ToolState};

/// A child that is to be opened.
#[derive(Clone)]
pub(crate) struct Opening {
    spec: SessionSpec,
    lineage: Lineage,
    /// How many rules its parent had been given when its own were taken from it.
    rules: usize,
}

impl Session {
    /// Specification of a session for one of the manifest's agents, and the tools that there are for it. `None` if
    /// there is no such agent.
    fn spec_for_agent(&self, agent: &str) -> Option<(SessionSpec, Registry)> {
        let manifest = self.manifest.as_ref()?;
        let declared = manifest.agents.get(agent)?;
        let mut manifest = manifest.of_agent(agent)?;
        let mut tools = Registry::clone(&self.registry());
        if let Err(error) = tools.add_inbox() {
            tracing::warn!(error = &error as &dyn std::error::Error, "a subagent takes no input");
        }
        let tools =
            tools.only(|tool| self.tools.lifecycle.state(&tool.name) == ToolState::Active && !tool.is_single_level());
        if let Some(wanted) = &mut manifest.tools {
            wanted.retain(|name| tools.tools().any(|tool| tool.is_called(name)));
        }
        // A variable may hold a credential, whatever it is called (X0-27).
        let mut env = self.family.rearing.env.clone();
        env.pass.retain(|name| declared.env.contains(name));
        env.set.retain(|name, _| declared.env.contains(name));
        manifest.env = Env::default();
        let spec = SessionSpec {
            workspace: self.sandbox.roots.iter().map(|root| root.path().as_path().to_owned()).collect(),
            ad_hoc: self.family.rearing.ad_hoc.clone(),
            user_data: self.family.rearing.user_data.clone(),
            manifest: Some(manifest),
            profile: Some(self.gate.profile.clone()),
            strength: self.strength().into(),
            limits: self.family.rearing.limits,
            env,
            watch_execs: self.family.rearing.watch_execs,
            approvers: self.family.rearing.approvers.clone(),
            patience: self.family.rearing.patience,
            coercion: self.tools.coercion,
            title: Some(agent.to_owned()),
            allow_home: self.family.rearing.allow_home,
            agent_runner: self.family.rearing.runner.clone(),
            agent_endpoint: self.family.rearing.endpoint.clone(),
            ..SessionSpec::new(PathBuf::new())
        };
        Some((spec, tools))
    }

    /// The most that one of the manifest's agents gets: what it asks for with its tools, and its ceiling and this session leave.
    pub(crate) fn part_of_agent(&self, agent: &str) -> Option<Result<EffectiveSet, OpenError>> {
        let (mut spec, tools) = self.spec_for_agent(agent)?;
        let offered = spec.manifest.as_ref().and_then(|manifest| manifest.tools.as_ref());
        let tools = tools.only(|tool| offered.is_none_or(|offered| offered.iter().any(|name| tool.is_called(name))));
        if has_skills(&tools)
            && let Some(requires) = skill::requires(&self.sandbox.unlinked)
        {
            spec.requires.push((Source::Tool("skill".to_owned()), requires));
        }
        let own = bounds(&spec, &self.gate.profile, &self.variables).and_then(|mut bounds| {
            bounds.push(self.effective.as_parent());
            Ok(effective(&spec, &bounds, &tools, &self.variables)?.0)
        });
        Some(own)
    }

    /// The rules that hold in a session for one of the manifest's agents.
    pub(crate) fn rules_of_agent(&self, agent: &str) -> Option<Result<RuleSet, OpenError>> {
        let (spec, tools) = self.spec_for_agent(agent)?;
        let inherited = self.gate.rules().inherited();
        Some(rules(&spec, Some(inherited), &self.gate.profile, &tools, &self.variables))
    }

    /// A session for one of the manifest's agents, with `most` at most in force. `None` if there is no such agent.
    /// `only` are the tools that it has of those that it would have.
    pub(crate) fn opening(
        &self,
        agent: &str,
        most: &EffectiveSet,
        (call, only): (&str, Option<&[String]>),
    ) -> Option<Opening> {
        let (mut spec, tools) = self.spec_for_agent(agent)?;
        if let (Some(manifest), Some(only)) = (&mut spec.manifest, only) {
            manifest.tools = Some(narrowed(manifest.tools.take(), only, &tools));
        }
        let is_listed = self.manifest.as_ref()?.agents.get(agent)?.inspectable;
        let reared = self.family.children.reared();
        let rules = self.gate.rules().inherited();
        let lineage = Lineage {
            supervisor: self.family.rearing.supervisor.clone(),
            parent: self.id.clone(),
            call: call.to_owned(),
            agent: agent.to_owned(),
            is_listed,
            depth: self.family.rearing.depth + 1,
            bound: most.as_parent(),
            rules,
            watchdogs: Arc::clone(&self.gate.watchdogs),
            inherited: Some(Inherited {
                tools,
                skills: self.notebook.skills.found(),
                most: (self.effective.as_parent(), self.sandbox.looked.clone()),
            }),
            roots: self.sandbox.roots.iter().map(Place::id).collect(),
            ancestry: self.family.rearing.ancestry.clone(),
            halt: Arc::clone(&self.gate.halt),
            asking: self.gate.people.turn(),
            kept: None,
        };
        Some(Opening { spec, lineage, rules: reared.rules.len() })
    }

    /// A rule that denies or asks was added to its parent: it holds here too, whatever its own rules say (X0-25).
    pub(super) fn inherit(&self, rule: &Rule) -> Result<(), OpenError> {
        let source = RuleSource { scope: RuleScope::Session, place: "its parent's session".to_owned() };
        let mut reared = self.family.children.reared();
        let mut rules = self.gate.rules_to_change();
        rules.inherit(rule, &source, &self.variables).map_err(OpenError::Rule)?;
        drop(rules);
        reared.pass_on(rule)
    }

    /// Reason why calls of its ancestors, or its own, would choose what this program is.
    pub(crate) fn chosen_by_calls(&self, program: &HostPath) -> Option<String> {
        chosen_by_calls(program, self.most(), &self.sandbox.facts.path, &MountTable::read())
    }

    /// Reason why calls of this session would choose what a command is that another session starts: its program, or a
    /// place that its arguments or its own variables name where they may write, whatever is there now. Not what is
    /// `data`: places as those have them, on which the command works and from which it loads nothing.
    ///
    /// It finds what somebody has overlooked who wrote the command. What a command loads by itself, or by a name that leads
    /// elsewhere, is not seen.
    #[must_use]
    pub fn would_choose(
        &self,
        argv: &[OsString],
        variables: &[OsString],
        data: &[OsString],
        other: &Self,
    ) -> Option<String> {
        let (program, arguments) = argv.split_first()?;
        let mounts = MountTable::read();
        let path = |word: &OsStr| HostPath::from(PathBuf::from(word));
        if let Some(why) = chosen_by_calls(&path(program), self.most(), &other.sandbox.facts.path, &mounts) {
            return Some(why);
        }
        arguments.iter().chain(variables).find_map(|word| {
            // `--repository=/x` names a place as well.
            let bytes = word.as_bytes();
            let value = bytes.iter().position(|byte| *byte == b'=').map_or(bytes, |at| &bytes[at + 1..]);
            let value = OsStr::from_bytes(value);
            if data.iter().any(|place| place == value || place == word) {
                return None;
            }
            let written = compile::written(self.most());
            // Anywhere in a word: `sh -c "cd /x && …"`.
            let named = written.iter().find(|place| {
                let place = place.as_bytes();
                place.len() > 1 && bytes.windows(place.len()).any(|part| part == place)
            });
            named.map(|place| format!("{} names {place}, where calls may write", word.display())).or_else(|| {
                let is_there = Path::new(value).is_absolute() && std::fs::symlink_metadata(value).is_ok();
                is_there.then(|| replaced_by_calls(&path(value), self.most(), &mounts))?
            })
        })
    }

    /// The most that its family may.
    fn most(&self) -> &EffectiveSet {
        self.family.rearing.ancestry.most.as_deref().unwrap_or(&self.effective)
    }

    /// Ends a child: what is in flight is aborted, and nothing runs in it from now on, whoever has kept it.
    pub(crate) async fn end_child(&self) {
        self.aborts.end();
        self.abort().await;
        self.background.end().await;
        self.sandbox.opened.end_programs().await;
        if let Err(error) = self.recorder.close() {
            tracing::warn!(error = &error as &dyn std::error::Error, "the end of a subagent's session is not recorded");
        }
    }
}

/// Tools that are named among those that an agent would have. What its parent sends it comes by none of them.
fn narrowed(offered: Option<Vec<String>>, only: &[String], tools: &Registry) -> Vec<String> {
    let is_wanted = |tool: &Tool| tool.own_name() == INBOX || only.iter().any(|name| tool.is_called(name));
    let is_offered = |tool: &Tool| match &offered {
        Some(offered) => offered.iter().any(|name| tool.is_called(name)),
        // As without a list: a server's tools come by name alone.
        None => !tool.is_a_servers(),
    };
    tools.tools().filter(|tool| is_offered(tool) && is_wanted(tool)).map(|tool| tool.name.clone()).collect()
}

impl Opening {
    /// This opening for an agent that its parent keeps.
    pub(crate) fn kept_as(mut self, kept: &Arc<KeptAgent>) -> Self {
        self.lineage.kept = Some(Arc::clone(kept));
        self
    }

    /// True if the child will have a tool, by its own name.
    pub(crate) fn has(&self, tool: &str) -> bool {
        self.tools().iter().any(|has| has.own_name() == tool)
    }

    /// The names of the tools that it will have.
    pub(crate) fn names(&self) -> Vec<String> {
        self.tools().iter().map(|tool| tool.name.clone()).collect()
    }

    fn tools(&self) -> Vec<&Tool> {
        let offered = self.spec.manifest.as_ref().and_then(|manifest| manifest.tools.as_ref());
        let is_offered = |tool: &&Tool| match offered {
            Some(offered) => offered.iter().any(|name| tool.is_called(name)),
            None => !tool.is_a_servers(),
        };
        let inherited = self.lineage.inherited.iter();
        inherited.flat_map(|inherited| inherited.tools.tools()).filter(is_offered).collect()
    }

    /// Opens it. From now on it hears of what its parent is given.
    pub(crate) async fn open(self, reared: &Mutex<Reared>) -> Result<Arc<Session>, OpenError> {
        let Self { spec, lineage, rules } = self;
        let supervisor = lineage.supervisor.clone();
        let child = Arc::new(Box::pin(supervisor.open_for(spec, OpenedBy::Parent(Box::new(lineage)))).await?);
        let missed = {
            let mut reared = reared.lock().unwrap_or_else(PoisonError::into_inner);
            reared.live.retain(|child| child.strong_count() > 0);
            reared.live.push(Arc::downgrade(&child));
            reared.rules.iter().skip(rules).try_for_each(|rule| child.inherit(rule))
        };
        if let Err(error) = missed {
            child.end_child().await;
            return Err(error);
        }
        Ok(child)
    }
}
