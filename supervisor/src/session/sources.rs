//! Sources of a session's tools: callgate, the host, the user and the project, and what is left out of theirs.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use callgate_policy::effective::{Bound, Contribution, DeclareError, Declared, EffectiveSet, LeadsOut, Source, narrow};
use callgate_policy::manifest::Agent;
use callgate_policy::profile::Profile;
use callgate_policy::tool::Surface;
use callgate_policy::variable::Variables;

use super::opening::Barred;
use super::written::{real_path, rewritten, settle};
use crate::causes::with_causes;
use crate::facts::Search;
use crate::host_view::HostView;
use crate::open_error::OpenError;
use crate::place::{Changeable, Looked};
use crate::registry::Hosted;
use crate::registry::hosted::skill;
use crate::registry::{
    Azure, Databases, Executor, HostTool, Layer, Lifecycle, Registry, RegistryError, Rlm, Searches, Tool, of_surface,
};
use crate::store;
use crate::trust::Project;

/// Treatment of arguments of another type than a tool's schema asks for (C-21).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Coercion {
    /// The call is refused.
    #[default]
    Off,
    /// An argument that loses nothing is taken as that type: `"5"` as 5, `"true"` as true, 5 as `"5"`, one value as a
    /// list of one, and null as an optional argument that is absent. The result lists it
    /// ([`callgate_policy::envelope::Metadata::coerced`]).
    Lossless,
}

/// Tools of a session, and where they come from.
pub(crate) struct Tools {
    pub(crate) lifecycle: Lifecycle,
    pub(super) sources: Mutex<Sources>,
    /// Databases that are configured for the tools that query them.
    pub(crate) databases: Databases,
    pub(crate) coercion: Coercion,
}

impl Tools {
    pub(super) fn new(registry: Registry, sources: Sources, databases: Databases, coercion: Coercion) -> Self {
        Self { lifecycle: Lifecycle::new(registry), sources: Mutex::new(sources), databases, coercion }
    }
}

/// Where a session's tools come from.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(super) inherited: Option<Inherited>,
    /// Whom `web_search` asks. What it has asked counts for as long as there is the session.
    pub(super) searches: Option<Arc<Searches>>,
    /// The organization that `azure_devops` is about.
    pub(super) azure: Option<Arc<Azure>>,
    /// Whom `rlm_query` asks.
    pub(super) rlm: Option<Arc<Rlm>>,
    /// The subagents that a tool starts.
    pub(super) agents: BTreeMap<String, Agent>,
    /// The host's.
    pub(super) further: Vec<Tool>,
    /// The names of those outside the lock.
    pub(super) extra: Vec<String>,
    /// How they are seen.
    pub(super) surface: Surface,
    /// Where the user declares some.
    pub(super) user: Option<PathBuf>,
    /// Whose trusted project declares some.
    pub(super) project: Option<Project>,
    /// The names that the manifest offers.
    pub(super) offered: Option<Vec<String>>,
    /// The variables that credentials of the manifest are read from: no tool gets them.
    pub(super) secret: Vec<String>,
    pub(super) profile: Profile,
    pub(super) bounds: Vec<Bound>,
}

/// Tools of a subagent: what its parent had when it was started. It has nothing else, whatever is declared by now.
#[derive(Debug, Clone)]
pub(crate) struct Inherited {
    pub(super) tools: Registry,
    pub(super) skills: Arc<skill::Found>,
    /// Its parent's rights, and the places that the parent is bound to, whatever has their paths by now.
    pub(super) most: (Bound, Looked),
}

impl Sources {
    /// Where rights lead out of what bounds the session, by a link; and for a subagent, out of what its parent is bound to.
    pub(super) fn leads_out(
        &self,
        effective: &EffectiveSet,
        seen: impl Fn(&Path) -> Option<PathBuf>,
    ) -> Option<OpenError> {
        leads_out(effective, &seen, real_path).or_else(|| {
            let (parents, looked) = &self.inherited.as_ref()?.most;
            effective.leads_out_of(parents, seen, |path| looked.real(path)).map(out_of)
        })
    }

    /// Reads them, and leaves out what cannot be offered.
    pub(super) fn read(&self, variables: &Variables, host: &HostView) -> Result<Registry, RegistryError> {
        let mut registry = match &self.inherited {
            // A server does what it was granted, and not its caller: a subagent gets its tools by name alone.
            Some(inherited) => inherited.tools.only(|tool| !tool.is_a_servers() || self.offered.is_some()),
            None => self.declared(variables)?,
        };
        registry.leave_out(|tool| self.unfit(tool, (variables, host)));
        if self.inherited.is_none() {
            registry.know_tools_of(&self.agents)?;
            registry.add_task(&self.agents)?;
            registry.add_agents(&self.agents, |name| self.is_asked_for(name))?;
            registry.offer(&self.profile)?;
            registry = registry.seen_through(self.surface, &self.agents)?;
        }
        if let Some(offered) = &self.offered {
            registry.offer_only(offered)?;
        }
        Ok(registry)
    }

    /// True if a list of tools or the surface names it.
    fn is_named(&self, name: &str) -> bool {
        let is_offered = self.offered.iter().flatten().any(|offered| offered == name);
        is_offered || of_surface(self.surface).any(|tool| tool == name)
    }

    /// True if it is named so, or as one outside the lock.
    fn is_asked_for(&self, name: &str) -> bool {
        self.extra.iter().any(|extra| extra == name) || self.is_named(name)
    }

    /// Those that callgate, the host, the user and the project have.
    fn declared(&self, variables: &Variables) -> Result<Registry, RegistryError> {
        let mut registry = Registry::locked()?;
        if let Some(searches) = &self.searches {
            registry.add_search(Arc::clone(searches))?;
        }
        registry.add_further(self.extra.iter().map(String::as_str))?;
        // What a list of tools or a surface names is there as well, if it is.
        let is_asked_for = |name: &str| self.is_asked_for(name);
        if let Some(azure) = self.azure.as_ref().filter(|_| is_asked_for("azure_devops")) {
            registry.add_azure(Arc::clone(azure))?;
        }
        if let Some(rlm) = self.rlm.as_ref().filter(|_| is_asked_for("rlm_query")) {
            registry.add_rlm(Arc::clone(rlm))?;
        }
        for tool in &self.further {
            registry.add(tool.clone())?;
        }
        let user = self.user.as_deref().map(Layer::of_user);
        let project = self.project.as_ref().map(Project::layer);
        let layers: Vec<Layer> = user.into_iter().chain(project.cloned()).collect();
        registry.declare(&layers);
        // A name that others have is theirs.
        registry.add_further(Registry::further()?.iter().filter(|name| self.is_named(name)).map(String::as_str))?;
        // Before it is asked whether anybody could reach what they keep.
        registry.leave_out(|tool| without_state(tool, variables));
        Ok(registry)
    }

    /// Reason why no session may have a tool: what it requires would be refused to the whole session.
    fn unfit(&self, tool: &Tool, (variables, host): (&Variables, &HostView)) -> Option<String> {
        let source = Source::Tool(tool.name.clone());
        let of_tool = [Contribution::from_source(&source, &tool.requires)];
        let declared = match Declared::union(&of_tool, variables, &[]) {
            Ok(declared) => declared,
            Err(error) => return Some(error.to_string()),
        };
        let part = narrow(&declared, &self.bounds);
        if let Some(declared) = tool.executor.declared()
            && let Some(file) = declared.files().find(|file| !part.allows_read(file))
        {
            return Some(format!(
                "a ceiling leaves {file} out, which belongs to it; grant that in `read` of [ceiling.fs]"
            ));
        }
        if let Some(declared) = tool.executor.declared()
            && let Some(variable) = declared.env.iter().find(|name| self.secret.contains(name))
        {
            return Some(format!(
                "its `env` has {variable}, which [[net.credentials]] of the manifest keeps from programs; take it out of one of them"
            ));
        }
        let barred = Barred { allow_home: false, host, user_tools: self.user.as_deref(), store: None };
        let refused = barred.refuse(&part);
        refused.err().map(|error| with_causes(&error)).or_else(|| rewritten(tool, &part, host.mounts()))
    }
}

/// True if the session itself answers for skills.
pub(super) fn has_skills(registry: &Registry) -> bool {
    registry.tools().any(|tool| matches!(tool.executor, Executor::Host(HostTool::Session(Hosted::Skill))))
}

/// Reason why a tool has no place for its state. The place is made when the tool is loaded (S1-20), and stays.
fn without_state(tool: &Tool, variables: &Variables) -> Option<String> {
    let declared = tool.executor.declared()?;
    let root = variables.workspace().first().filter(|_| declared.has_state)?;
    store::slot(&tool.name, &tool.origin, root).err().map(|error| with_causes(&error))
}

/// Leaves out the tools that calls of a session could rewrite, and finds the programs of the others.
pub(super) fn keep_what_is_their_own<C: Borrow<Changeable>>(
    registry: &mut Registry,
    effective: &EffectiveSet,
    (variables, host): (&Variables, &HostView),
    changeable: impl FnOnce() -> C,
) {
    if !registry.tools().any(|tool| tool.executor.declared().is_some()) {
        return;
    }
    // It looks at the way to each place, which is for those alone who have such tools.
    let search = Search::of_tools(effective, changeable().borrow(), host);
    registry.leave_out(|tool| {
        rewritten(tool, effective, host.mounts()).or_else(|| {
            let own = match part(tool, effective, variables) {
                Ok(own) => own,
                Err(error) => return Some(error.to_string()),
            };
            let settled = settle(tool, (effective, &own), &search.path(&own, None).0, host.mounts());
            settled.err().or_else(|| leads_out(&own, real_path, real_path).map(|error| with_causes(&error)))
        })
    });
}

/// Leaves out the tools of a subagent whose part leads out of what bounds its session, by a link.
pub(super) fn keep_what_leads_nowhere(
    registry: &mut Registry,
    sources: &Sources,
    (effective, variables): (&EffectiveSet, &Variables),
) {
    registry.leave_out(|tool| match part(tool, effective, variables) {
        Ok(own) => sources.leads_out(&own, real_path).map(|error| with_causes(&error)),
        Err(error) => Some(error.to_string()),
    });
}

/// Rights in force for a tool: what it requires, as far as the session has it.
pub(super) fn part(tool: &Tool, effective: &EffectiveSet, variables: &Variables) -> Result<EffectiveSet, DeclareError> {
    let source = Source::Tool(tool.name.clone());
    let of_tool = [Contribution::from_source(&source, &tool.requires)];
    Ok(effective.part(&Declared::union(&of_tool, variables, &[])?))
}

/// Where a tool's part leads out of what bounds it, by a link.
pub(super) fn leads_out(
    effective: &EffectiveSet,
    seen: impl Fn(&Path) -> Option<PathBuf>,
    real: impl Fn(&Path) -> Option<PathBuf>,
) -> Option<OpenError> {
    effective.leads_out(seen, real).map(out_of)
}

fn out_of(out: LeadsOut) -> OpenError {
    let (granted, bound) = (out.granted.as_path().to_owned(), out.bound.in_a_sentence());
    OpenError::LeadsOut { granted, to: out.to, bound }
}
