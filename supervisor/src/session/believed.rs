//! Tools that a session is opened with, of those that its specification names.

use std::sync::Arc;

use callgate_policy::effective::{Bound, EffectiveSet, Source};
use callgate_policy::manifest::{Credential, CredentialSource, Manifest};
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile;
use callgate_policy::profile::Profile;
use callgate_policy::variable::Variables;

use super::open::{bounds, effective, further_directories, roots, variables};
use super::sources::{Inherited, Sources, has_skills, keep_what_is_their_own, keep_what_leads_nowhere};
use super::{SessionSpec, Warning};
use crate::open_error::OpenError;
use crate::place::{self, Changeable, Place};
use crate::registry::hosted::skill;
use crate::registry::{Azure, Registry, Rlm, Searches, TOKEN};

/// Tools that a session is opened with.
pub(super) struct Believed {
    pub(super) registry: Registry,
    pub(super) skills: Arc<skill::Found>,
    /// The directories that are granted for them.
    pub(super) beside: Vec<HostPath>,
    /// Rights in force with them.
    pub(super) effective: EffectiveSet,
    pub(super) warnings: Vec<Warning>,
}

impl Sources {
    pub(super) fn of(
        spec: &mut SessionSpec,
        profile: &Profile,
        bounds: Vec<Bound>,
        inherited: Option<Inherited>,
    ) -> Self {
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

    /// Tools without those that calls of the session could rewrite; what is in force with them, and what is to be told
    /// of it.
    pub(super) fn believed<'a>(
        &self,
        spec: &mut SessionSpec,
        variables: &Variables,
        roots: &'a [Place],
        held: impl Iterator<Item = &'a Place> + Clone,
    ) -> Result<Believed, OpenError> {
        let mut registry = self.read(variables)?;
        let skills = match &self.inherited {
            _ if !has_skills(&registry) => Arc::default(),
            Some(inherited) => Arc::clone(&inherited.skills),
            None => Arc::new(skills(spec, roots)),
        };
        // Files beside a skill are for whoever reads it.
        let beside = skills.directories(place::owner(roots.first()).uid);
        if let Some(requires) = skill::requires(&beside) {
            spec.requires.push((Source::Tool("skill".to_owned()), requires));
        }
        loop {
            let (effective, warnings) = self::effective(spec, &self.bounds, &registry, variables)?;
            let all = registry.tools().count();
            if self.inherited.is_some() {
                // Whether calls could rewrite them, and where their programs are, was found with the rights of the first session,
                // which has the most.
                keep_what_leads_nowhere(&mut registry, &effective, variables);
            } else {
                let (written, asked) = (compile::written(&effective), effective.asked_for());
                let changeable = Changeable::of(held.clone(), &written, &asked);
                keep_what_is_their_own(&mut registry, &effective, (variables, &changeable));
            }
            // Without a tool less is in force, and something else may be found for another one.
            if registry.tools().count() == all {
                return Ok(Believed { registry, skills, beside, effective, warnings });
            }
        }
    }
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
        let profile = spec.chosen_profile()?;
        let roots = roots(&spec)?;
        let further = further_directories(&spec)?;
        let variables = variables(&roots, &further)?;
        let bounds = bounds(&spec, &profile, &variables)?;
        let held = roots.iter().chain(further.iter().map(|(_, place)| place));
        let sources = Sources::of(&mut spec, &profile, bounds, None);
        Ok(sources.believed(&mut spec, &variables, &roots, held)?.registry)
    }
}
