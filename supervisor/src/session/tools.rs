//! The tools of a session: found when it is opened, and found again between turns.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_policy::effective::{Bound, Contribution, Declared, EffectiveSet, PathRegion, Source, narrow};
use callgate_policy::path::HostPath;
use callgate_policy::plan::protect::{Found, names};
use callgate_policy::profile::Profile;
use callgate_policy::variable::Variables;
use callgate_worker::mountinfo;

use super::open::{
    bounds, effective, further_directories, refuse_homes, refuse_what_is_not_enforced, roots, variables,
};
use super::{OpenError, Session, SessionSpec, Warning};
use crate::causes::with_causes;
use crate::host;
use crate::registry::{Executor, Layer, LeftOut, Registry, RegistryError, Tool, ToolState};
use crate::store;
use crate::trust::{Found as FoundProject, Project, TrustError};

/// Where a session's tools come from.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The host's.
    further: Vec<Tool>,
    /// Where the user declares some.
    user: Option<PathBuf>,
    /// Whose trusted project declares some.
    project: Option<Project>,
    /// The names that the manifest offers.
    offered: Option<Vec<String>>,
    profile: Profile,
    bounds: Vec<Bound>,
}

/// Why tools could not be read again. Those that were there still are.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The project is not what it was.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// Its trust was for one session, or was taken back.
    #[error("the project's tools are not trusted any more")]
    NotTrusted,
    /// The manifest is another than the one that the session was opened with.
    #[error("the project's manifest is another than the one that this session was opened with; open a new session")]
    OtherManifest,
    /// A tool cannot be registered.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl Sources {
    pub(super) fn of(spec: &mut SessionSpec, profile: &Profile, bounds: Vec<Bound>) -> Self {
        Self {
            further: std::mem::take(&mut spec.further_tools),
            // What the host starts by itself is no tool's.
            user: spec.user_tools.clone().filter(|_| spec.tools),
            project: spec.project.clone().filter(|_| spec.tools),
            offered: spec.manifest.as_ref().and_then(|manifest| manifest.tools.clone()),
            profile: profile.clone(),
            bounds,
        }
    }

    /// Reads them, and leaves out what cannot be offered.
    pub(super) fn read(&self, variables: &Variables) -> Result<Registry, RegistryError> {
        let mut registry = Registry::locked()?;
        for tool in &self.further {
            registry.add(tool.clone())?;
        }
        let user = self.user.as_deref().map(Layer::of_user);
        let project = self.project.as_ref().map(Project::layer);
        let layers: Vec<Layer> = user.into_iter().chain(project.cloned()).collect();
        registry.declare(&layers);
        // Before it is asked whether anybody could reach what they keep.
        registry.leave_out(|tool| without_state(tool, variables));
        registry.leave_out(|tool| self.unfit(tool, variables));
        registry.offer(&self.profile)?;
        if let Some(offered) = &self.offered {
            registry.offer_only(offered)?;
        }
        Ok(registry)
    }

    /// The same, without those that calls of the session could rewrite; what is in force with them, and what is to be told of it.
    pub(super) fn believed(
        &self,
        spec: &SessionSpec,
        variables: &Variables,
    ) -> Result<(Registry, EffectiveSet, Vec<Warning>), OpenError> {
        let mut registry = self.read(variables)?;
        let (effective, warnings) = self::effective(spec, &self.bounds, &registry, variables)?;
        let all = registry.tools().count();
        registry.leave_out(|tool| rewritten(tool, &effective));
        if registry.tools().count() == all {
            return Ok((registry, effective, warnings));
        }
        let (effective, warnings) = self::effective(spec, &self.bounds, &registry, variables)?;
        Ok((registry, effective, warnings))
    }

    /// Why no session may have a tool: what it requires would be refused to the whole session.
    fn unfit(&self, tool: &Tool, variables: &Variables) -> Option<String> {
        let source = Source::Tool(tool.name.clone());
        let of_tool = [Contribution::from_source(&source, &tool.requires)];
        let declared = match Declared::union(&of_tool, variables, &[]) {
            Ok(declared) => declared,
            Err(error) => return Some(error.to_string()),
        };
        let part = narrow(&declared, &self.bounds);
        if let Executor::Declared(declared) = &tool.executor
            && let Some(file) = declared.files().find(|file| !part.allows_read(file))
        {
            return Some(format!(
                "a ceiling leaves {file} out, which belongs to it; grant that in `read` of [ceiling.fs]"
            ));
        }
        let refused = refuse_what_is_not_enforced(&part)
            .and_then(|()| refuse_homes(&[], &part))
            .and_then(|()| store::refuse_reach_of_user(&part).map_err(OpenError::from));
        refused.err().map(|error| with_causes(&error)).or_else(|| rewritten(tool, &part))
    }
}

/// Why a tool has no place for its state. The place is made when the tool is loaded (S1-20), and stays.
fn without_state(tool: &Tool, variables: &Variables) -> Option<String> {
    let Executor::Declared(declared) = &tool.executor else { return None };
    let root = variables.workspace().first().filter(|_| declared.has_state)?;
    store::slot(&tool.name, &tool.origin, root).err().map(|error| with_causes(&error))
}

/// What of a tool's files a session may write, with these rights: then it is not what its author wrote. A granted directory may lead
/// to them by another name, too: as the place of another mount, or by a link.
pub(super) fn rewritten(tool: &Tool, effective: &EffectiveSet) -> Option<String> {
    let Executor::Declared(declared) = &tool.executor else { return None };
    let Ok(mounts) = mountinfo::read() else {
        return Some("the mounts by which calls may reach its files cannot be read (/proc/self/mountinfo)".to_owned());
    };
    let by = |file: HostPath| {
        let above: Vec<(&Path, (u64, u64))> =
            file.as_path().ancestors().filter_map(|path| Some((path, host::identity_of(path)?))).collect();
        let may_write = |region: &&PathRegion| {
            let root = region.literal_prefix();
            let is_open = |below: &Path| !is_kept(&root, below);
            if file.as_path().strip_prefix(root.as_path()).is_ok_and(is_open) {
                return true;
            }
            let places = mounts.iter().map(|mount| mount.at.as_path()).filter(|at| at.starts_with(root.as_path()));
            std::iter::once(root.as_path()).chain(places).any(|place| {
                let Some(id) = host::identity_of(place) else { return false };
                let below = |(path, _): &(&Path, _)| file.as_path().strip_prefix(path).ok();
                let names = above.iter().filter(|(_, other)| *other == id).filter_map(below);
                let names = names.map(|below| place.join(below));
                names.into_iter().any(|name| name.strip_prefix(root.as_path()).is_ok_and(is_open))
            })
        };
        let region = effective.rights().write().iter().map(|(region, _)| region).find(may_write)?;
        Some(format!("calls may write {file} ({region} is granted), so it would not be what was declared"))
    };
    // The program may be a link. What it leads to must be there, or calls could put something there later.
    let program = declared.program().map(|path| (path, std::fs::canonicalize(path.as_path())));
    let led_to = match program {
        Some((path, Err(error))) => return Some(format!("its program {path} cannot be found: {error}")),
        Some((_, Ok(real))) => Some(HostPath::from(real)),
        None => None,
    };
    declared.paths().chain(led_to).find_map(by)
}

/// Whether a name below a granted directory is protected there.
fn is_kept(root: &HostPath, below: &Path) -> bool {
    let found = names().find(names().root(root.as_bytes()), below.as_os_str().as_encoded_bytes());
    matches!(found, Found::Kept { .. })
}

impl Registry {
    /// The tools that a session with this specification has, without opening it.
    ///
    /// # Errors
    /// [`OpenError`], where a session would not be opened for what is looked at here.
    pub fn offered(mut spec: SessionSpec) -> Result<Self, OpenError> {
        let profile = spec.chosen_profile()?;
        let roots = roots(&spec)?;
        let variables = variables(&roots, &further_directories(&spec)?)?;
        let bounds = bounds(&spec, &profile, &variables)?;
        Ok(Sources::of(&mut spec, &profile, bounds).believed(&spec, &variables)?.0)
    }
}

impl Session {
    /// What is declared and not there, and why.
    #[must_use]
    pub fn left_out_tools(&self) -> Vec<LeftOut> {
        self.registry().left_out().to_vec()
    }

    /// Whether calls of a tool are carried out; `None` if there is no such tool.
    #[must_use]
    pub fn tool_state(&self, name: &str) -> Option<ToolState> {
        self.registry().find(name).map(|tool| self.tools.state(&tool.name))
    }

    /// Takes no more calls of a tool, and returns when those in flight have ended (S1-20). A second time it changes nothing.
    /// Dropping the future takes nothing back.
    pub async fn deactivate_tool(&self, name: &str) {
        if let Some(tool) = self.registry().find(name) {
            self.tools.deactivate(&tool.name).await;
        }
    }

    /// Takes calls of a tool again.
    pub fn activate_tool(&self, name: &str) {
        if let Some(tool) = self.registry().find(name) {
            self.tools.activate(&tool.name);
        }
    }

    /// Removes a tool from this session, once its calls in flight have ended (S1-20). Whether it was there: a second time it
    /// changes nothing.
    pub async fn dispose_tool(&self, name: &str) -> bool {
        let registry = self.registry();
        let Some(tool) = registry.find(name).map(|tool| tool.name.clone()) else { return false };
        self.tools.deactivate(&tool).await;
        let without = |now: &Registry| -> Result<_, std::convert::Infallible> {
            let was_there = now.find(&tool).is_some();
            Ok((now.without(&tool), was_there))
        };
        match self.tools.replace(without).await {
            Ok(was_there) => was_there,
            Err(never) => match never {},
        }
    }

    /// Reads again what the user and the project declare. It waits until no call is in flight, and calls that come meanwhile
    /// wait for it (S1-26); so do not call it from a tool. The session's own rights stay what they are: a tool that requires more
    /// does not get it.
    ///
    /// A project's tools must be trusted as they are now.
    ///
    /// # Errors
    /// [`ReloadError`]; then nothing has changed.
    pub async fn reload_tools(&self) -> Result<(), ReloadError> {
        let load = |_now: &Registry| -> Result<_, ReloadError> {
            let mut sources = self.sources.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(project) = &sources.project {
                let found = match project.find_again()? {
                    FoundProject::Trusted(found) => *found,
                    FoundProject::Nothing | FoundProject::Untrusted { .. } => return Err(ReloadError::NotTrusted),
                };
                if found.manifest != project.manifest || found.profile != project.profile {
                    return Err(ReloadError::OtherManifest);
                }
                sources.project = Some(found);
            }
            let mut registry = sources.read(&self.variables)?;
            registry.leave_out(|tool| rewritten(tool, &self.effective));
            self.rules.write().unwrap_or_else(std::sync::PoisonError::into_inner).subjects = registry.subjects();
            Ok((registry, ()))
        };
        self.tools.replace(load).await
    }

    /// The session's tools, as they are now.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.tools.now()
    }
}
