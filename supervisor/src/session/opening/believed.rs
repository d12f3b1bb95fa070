//! Second stage: the tools that a session is opened with, of those that its specification names, and the rights in force with them.
//!
//! Owes: definitions and skills that cannot be read; a tool that calls could rewrite, or whose part leads out, is left out and told of;
//! requirements that make no sense.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_policy::effective::{Bound, Contribution, Declared, EffectiveSet, Kind, Source, beyond, narrow};
use callgate_policy::manifest::{Credential, CredentialSource, Manifest};
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile;
use callgate_policy::profile::Profile;
use callgate_policy::requirement::RequirementSet;
use callgate_policy::variable::Variables;

use super::super::sources::{Inherited, Sources, has_skills, keep_what_is_their_own, keep_what_leads_nowhere};
use super::super::{SessionSpec, Warning};
use super::roots::HeldRoots;
use crate::open_error::OpenError;
use crate::place::{Changeable, Place};
use crate::registry::hosted::skill;
use crate::registry::{Azure, Databases, Registry, Rlm, Searches, TOKEN, Tool};

/// Tools that a session is opened with.
pub(super) struct BelievedTools {
    sources: Sources,
    registry: Registry,
    skills: Arc<skill::Found>,
    /// The directories that are granted for them.
    beside: Vec<HostPath>,
    /// Rights in force with them.
    effective: EffectiveSet,
    /// Databases that they query. A subagent's are found with what its family may write.
    databases: Option<Databases>,
    warnings: Vec<Warning>,
}

impl BelievedTools {
    /// Tools without those that calls of the session could rewrite; what is in force with them, and what is to be told of it.
    pub(super) fn of(
        held: &HeldRoots,
        spec: &mut SessionSpec,
        inherited: Option<Inherited>,
    ) -> Result<Self, OpenError> {
        let bounds = held.bounds(spec)?;
        let sources = Sources::of(spec, held.profile(), bounds, inherited);
        let variables = held.variables();
        let mut registry = sources.read(variables, held.host())?;
        let skills = match &sources.inherited {
            _ if !has_skills(&registry) => Arc::default(),
            Some(inherited) => Arc::clone(&inherited.skills),
            None => Arc::new(skills(spec, held.roots())),
        };
        // Files beside a skill are for whoever reads it.
        let beside = skills.directories(held.identity().uid, held.host().homes());
        if let Some(requires) = skill::requires(&beside) {
            spec.requires.push((Source::Tool("skill".to_owned()), requires));
        }
        let mut databases = None;
        loop {
            let (effective, warnings) = self::effective(spec, &sources.bounds, &registry, variables)?;
            let all = registry.tools().count();
            if sources.inherited.is_some() {
                // Whether calls could rewrite them, and where their programs are, was found with the rights of the first session,
                // which has the most.
                keep_what_leads_nowhere(&mut registry, &sources, (&effective, variables));
            } else {
                let (written, asked) = (compile::written(&effective), effective.asked_for());
                let changeable = || Changeable::of(held.host(), held.held(), &written, &asked);
                keep_what_is_their_own(&mut registry, &effective, (variables, held.host()), changeable);
            }
            // Without a tool less is in force, and something else may be found for another one.
            if registry.tools().count() < all {
                continue;
            }
            // Where databases are is read from files that calls cannot write, so it is found with what they may.
            if databases.is_none() && sources.inherited.is_none() {
                let found = find_databases(held, &effective, &registry);
                registry.require_databases(&found, held.profile(), variables);
                databases = Some(found);
                continue;
            }
            return Ok(Self { sources, registry, skills, beside, effective, databases, warnings });
        }
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn effective(&self) -> &EffectiveSet {
        &self.effective
    }

    /// Databases that they query, if they were found with them.
    pub(super) fn databases(&self) -> Option<&Databases> {
        self.databases.as_ref()
    }

    /// Where these rights lead out of what bounds the session.
    pub(super) fn leads_out(
        &self,
        effective: &EffectiveSet,
        seen: impl Fn(&Path) -> Option<PathBuf>,
    ) -> Option<OpenError> {
        self.sources.leads_out(effective, seen)
    }

    /// Places that are granted because they were looked at, which was by no link.
    pub(super) fn beside(&self) -> &[HostPath] {
        &self.beside
    }

    /// Tools and where they are from, skills, the places beside them, and what is to be told.
    pub(super) fn into_parts(self) -> (Registry, Sources, Arc<skill::Found>, Vec<HostPath>, Vec<Warning>) {
        (self.registry, self.sources, self.skills, self.beside, self.warnings)
    }
}

impl Sources {
    fn of(spec: &mut SessionSpec, profile: &Profile, bounds: Vec<Bound>, inherited: Option<Inherited>) -> Self {
        let of_manifest = spec.manifest.as_ref();
        let azure = spec.tools.then(Azure::of_caller).and_then(Result::ok).map(Arc::new);
        let mut secret = spec.manifest.as_ref().map(secret_variables).unwrap_or_default();
        secret.extend(azure.as_ref().map(|_| TOKEN.to_owned()));
        let surface = spec.surface.or(of_manifest.and_then(|manifest| manifest.surface)).unwrap_or_default();
        let search = spec.manifest.as_ref().and_then(|manifest| manifest.net.search.clone()).filter(|_| spec.tools);
        Self {
            inherited,
            searches: search.map(|search| Arc::new(Searches::new(search))),
            azure,
            rlm: of_manifest.and_then(|manifest| manifest.net.rlm.clone()).map(|rlm| Arc::new(Rlm::new(rlm))),
            agents: spec.manifest.as_ref().map(|manifest| manifest.agents.clone()).unwrap_or_default(),
            further: std::mem::take(&mut spec.further_tools),
            surface,
            extra: spec
                .extra_tools
                .iter()
                .chain(spec.manifest.iter().flat_map(|manifest| &manifest.extra))
                .cloned()
                .collect(),
            // What the host starts by itself is no tool's.
            user: spec.user_tools.clone().filter(|_| spec.tools),
            project: spec.project.clone().filter(|_| spec.tools),
            offered: spec.manifest.as_ref().and_then(|manifest| manifest.tools.clone()),
            secret,
            profile: profile.clone(),
            bounds,
        }
    }
}

/// Databases of tools that query some, where calls with these rights cannot say which there are.
fn find_databases(held: &HeldRoots, effective: &EffectiveSet, registry: &Registry) -> Databases {
    if registry.dialects().next().is_none() {
        return Databases::default();
    }
    let (written, asked) = (compile::written(effective), effective.asked_for());
    Databases::of_session(registry.dialects(), &Changeable::of(held.host(), held.held(), &written, &asked))
}

/// The variables that a manifest's credentials are read from.
fn secret_variables(manifest: &Manifest) -> Vec<String> {
    let variable = |credential: &Credential| match &credential.from {
        CredentialSource::Variable(name) => Some(name.clone()),
        CredentialSource::File(_) => None,
    };
    manifest.net.credentials.iter().filter_map(variable).collect()
}

/// Where they lie: those of a project only if it is trusted.
fn skills(spec: &SessionSpec, roots: &[Place]) -> skill::Found {
    if !spec.tools {
        return skill::Found::default();
    }
    let trusted = |root| spec.project.as_ref().filter(|project| project.is_at(root));
    skill::Found::look(roots.first().and_then(|root| Some((root, trusted(root)?.skills()))))
}

impl Registry {
    /// The tools that a session with this specification has, without opening it.
    ///
    /// # Errors
    /// [`OpenError`], where a session would not be opened for what is looked at here.
    pub fn offered(mut spec: SessionSpec) -> Result<Self, OpenError> {
        let held = HeldRoots::find(&mut spec, None)?;
        Ok(BelievedTools::of(&held, &mut spec, None)?.registry)
    }
}

/// Rights in force: ceiling ∩ parent ∩ (manifest ∪ tools ∪ what was asked for), literally (S0-7, S0-8, C-1); and where
/// a tool's part of it is more than a manifest that names paths or programs itself may have meant.
pub(in crate::session) fn effective(
    spec: &SessionSpec,
    bounds: &[Bound],
    registry: &Registry,
    variables: &Variables,
) -> Result<(EffectiveSet, Vec<Warning>), OpenError> {
    let asked: Vec<(&Tool, Source, RequirementSet)> = registry
        .tools()
        .filter_map(|tool| Some((tool, Source::Tool(tool.name.clone()), what_counts(spec, tool)?)))
        .collect();
    let mut contributions: Vec<Contribution<'_>> = Vec::new();
    contributions.extend(spec.manifest.as_ref().map(Contribution::manifest));
    contributions.extend(spec.requires.iter().map(|(source, set)| Contribution::from_source(source, set)));
    let named = contributions.len();
    contributions.extend(asked.iter().map(|(tool, source, set)| tool.asks(source, set)));
    let declared = Declared::union(&contributions, variables, &[])?;
    let effective = narrow(&declared, bounds);
    let mut warnings: Vec<Warning> = Warning::flags_bounded(&effective).collect();
    if let Some(manifest) = spec.manifest.as_ref().filter(|manifest| spec.tools && !manifest.requires.is_empty()) {
        let named = Declared::union(&contributions[..named], variables, &[])?;
        warnings.extend(self::warnings(spec, manifest, &effective, &named));
    }
    Ok((effective, warnings))
}

/// Part of a tool's requirements that counts. Without tools a manifest that names no path still means the place that
/// its tools would work in, for a program that the host starts there is no other; and one that names no program, those that a
/// shell of it could start. What is typed is added, but for programs, which bound as well.
fn what_counts(spec: &SessionSpec, tool: &Tool) -> Option<RequirementSet> {
    let requires = &tool.requires;
    if spec.tools {
        return Some(requires.clone());
    }
    let named = &spec.manifest.as_ref()?.requires;
    let mut counts = RequirementSet::default();
    if named.fs.read.is_empty() && named.fs.write.is_empty() {
        counts.fs.clone_from(&requires.fs);
    }
    let names_programs = !named.shell.is_empty() || spec.requires.iter().any(|(_, set)| !set.shell.is_empty());
    if tool.own_name() == SHELL && !names_programs {
        counts.shell.clone_from(&requires.shell);
    }
    (!tool.is_alone()).then_some(counts)
}

/// The tool whose programs a host starts as well.
const SHELL: &str = "bash";

/// A manifest that names paths or programs may have been written when that left the tools' own requirements out.
fn warnings(spec: &SessionSpec, manifest: &Manifest, effective: &EffectiveSet, named: &Declared) -> Vec<Warning> {
    let is_said = |kind| manifest.ceiling.bounds(kind) || spec.ceilings.iter().any(|(_, ceiling)| ceiling.bounds(kind));
    beyond(effective, named)
        .into_iter()
        .filter(|beyond| !is_said(beyond.kind))
        .map(|beyond| Warning::ToolsRequireMore {
            file: manifest.file.clone(),
            names_any: names_any(&manifest.requires, beyond.kind),
            beyond,
        })
        .collect()
}

fn names_any(requires: &RequirementSet, kind: Kind) -> bool {
    !match kind {
        Kind::Read => requires.fs.read.is_empty() && requires.fs.write.is_empty(),
        Kind::Write => requires.fs.write.is_empty(),
        Kind::Hosts => requires.net.hosts.is_empty(),
        Kind::Shell => requires.shell.is_empty(),
        Kind::Capabilities => requires.capabilities.is_empty(),
    }
}
