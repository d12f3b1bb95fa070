//! First stage: the directories that a session is about, found once and held, and what bounds it.
//!
//! Owes: a profile that cannot be used; a root or another directory that is none, is a part of the system, is reached by a stranger's
//! directory or, of a manifest, by a link; a workspace that was replaced since a child's parent was opened; a profile whose shells would
//! start outside; variables and ceilings that make no sense; a user database that cannot be read.

use std::path::{Path, PathBuf};

use callgate_policy::effective::{Bound, Source};
use callgate_policy::path::{HostPath, normalize};
use callgate_policy::plan::Identity;
use callgate_policy::profile::Profile;
use callgate_policy::variable::Variables;

use super::super::{Lineage, SessionSpec};
use crate::host_view::HostView;
use crate::open_error::OpenError;
use crate::place::{self, Place, Unusable};
use crate::profile::ProfileError;

/// Directories that a session is about, as they were found, and its bounds.
pub(super) struct HeldRoots {
    profile: Profile,
    roots: Vec<Place>,
    host: HostView,
    /// Directories that further variables of patterns stand for, and which.
    further: Vec<(&'static str, Place)>,
    variables: Variables,
    /// Directory in which shells start that do not say, if not the first root.
    shell_dir: Option<HostPath>,
}

impl HeldRoots {
    /// Finds them. The bound of a child's parent is in the specification from now on.
    pub(super) fn find(spec: &mut SessionSpec, lineage: Option<&Lineage>) -> Result<Self, OpenError> {
        spec.ceiling.extend(lineage.map(|lineage| lineage.bound.clone()));
        let profile = spec.chosen_profile()?;
        let roots = roots(spec)?;
        if let Some(lineage) = lineage.filter(|lineage| !roots.iter().map(Place::id).eq(lineage.roots.clone())) {
            let what =
                format!("the workspace of {} was replaced since it was opened; open a new session", lineage.parent);
            return Err(OpenError::Replaced { what });
        }
        let host = HostView::look().map_err(OpenError::Homes)?;
        let workspace: Vec<HostPath> = roots.iter().map(|root| root.path().clone()).collect();
        let shell_dir = profile.working_dir(&workspace).map_err(ProfileError::from)?;
        let further = further_directories(spec)?;
        let variables = variables(&roots, &further)?;
        Ok(Self { profile, roots, host, further, variables, shell_dir })
    }

    pub(super) fn profile(&self) -> &Profile {
        &self.profile
    }

    pub(super) fn roots(&self) -> &[Place] {
        &self.roots
    }

    pub(super) fn variables(&self) -> &Variables {
        &self.variables
    }

    /// Facts about the host that the session is opened with.
    pub(super) fn host(&self) -> &HostView {
        &self.host
    }

    /// Identity with which the session's processes run.
    pub(super) fn identity(&self) -> Identity {
        place::owner(self.roots.first())
    }

    /// All of them, roots and others.
    pub(super) fn held(&self) -> impl Iterator<Item = &Place> + Clone {
        self.roots.iter().chain(self.further.iter().map(|(_, place)| place))
    }

    /// Paths of the roots.
    pub(super) fn workspace(&self) -> Vec<HostPath> {
        self.roots.iter().map(|root| root.path().clone()).collect()
    }

    /// Bounds on the session, whatever is asked for.
    pub(super) fn bounds(&self, spec: &SessionSpec) -> Result<Vec<Bound>, OpenError> {
        bounds(spec, &self.profile, &self.variables)
    }

    /// Profile, roots, facts about the host, variables, and where shells start, for the session.
    pub(super) fn into_parts(self) -> (Profile, Vec<Place>, HostView, Variables, Option<HostPath>) {
        (self.profile, self.roots, self.host, self.variables, self.shell_dir)
    }
}

/// Finds the workspace's roots, once: what they are now is the workspace for the whole session (X0-55, A10).
fn roots(spec: &SessionSpec) -> Result<Vec<Place>, OpenError> {
    let mut roots = spec.workspace.iter().map(|path| directory(WORKSPACE, path)).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = roots.first().map(|root| root.path().clone()) else { return Ok(roots) };
    for further in spec.manifest.iter().flat_map(|manifest| &manifest.roots) {
        roots.push(further_root(&first, further)?);
    }
    Ok(roots)
}

/// A root that a manifest names. It is that directory and no other: a call of an earlier session could have put a link in its
/// place, and the manifest is trusted for what it says.
fn further_root(first: &HostPath, further: &HostPath) -> Result<Place, OpenError> {
    let refuse = |path: PathBuf, reason| OpenError::NotAWorkspace { role: WORKSPACE, path, reason };
    let path = normalize(first, further).map_err(|error| refuse(further.as_path().to_owned(), error.to_string()))?;
    let place = directory(WORKSPACE, path.as_path())?;
    if *place.path() != path {
        let reason = format!("`roots` leads there by a link; name the directory itself, {}", place.path());
        return Err(refuse(path.as_path().to_owned(), reason));
    }
    Ok(place)
}

const WORKSPACE: &str = "the workspace";

/// The directories that further variables of patterns stand for, and which.
fn further_directories(spec: &SessionSpec) -> Result<Vec<(&'static str, Place)>, OpenError> {
    let ad_hoc = spec.ad_hoc.iter().map(|path| (AD_HOC, path));
    let user_data = spec.user_data.iter().map(|path| (USER_DATA, path));
    ad_hoc.chain(user_data).map(|(role, path)| Ok((role, directory(role, path)?))).collect()
}

const AD_HOC: &str = "{ad-hoc}";
const USER_DATA: &str = "{user-data}";

/// Values of the variables of patterns (S0-39).
fn variables(roots: &[Place], further: &[(&'static str, Place)]) -> Result<Variables, OpenError> {
    let held =
        |role| further.iter().filter(move |(of, _)| *of == role).map(|(_, place)| place.path().clone()).collect();
    let workspace = roots.iter().map(|root| root.path().clone()).collect();
    Ok(Variables::new(workspace, held(AD_HOC), held(USER_DATA))?)
}

fn directory(role: &'static str, path: &Path) -> Result<Place, OpenError> {
    let refuse = |path: &Path, reason: &str| {
        Err(OpenError::NotAWorkspace { role, path: path.to_owned(), reason: reason.to_owned() })
    };
    let place = match Place::find(path) {
        Ok(place) => place,
        Err(Unusable::Io(source)) => return Err(OpenError::Workspace { role, path: path.to_owned(), source }),
        Err(Unusable::NotADirectory) => return refuse(path, "it is not a directory"),
        Err(Unusable::Replaced) => return refuse(path, "it was moved or removed while the session was opened"),
        Err(Unusable::Strangers(stranger)) => {
            return Err(OpenError::strangers(format!("use {} as {role}", path.display()), stranger));
        }
    };
    let too_much = ["/", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/proc", "/sys", "/dev", "/boot", "/run"];
    if too_much.iter().any(|system| place.path().as_path() == Path::new(system)) {
        return refuse(place.path().as_path(), "it is a part of the system; choose the directory that the work is in");
    }
    Ok(place)
}

/// Bounds on a session, whatever is asked for.
pub(in crate::session) fn bounds(
    spec: &SessionSpec,
    profile: &Profile,
    variables: &Variables,
) -> Result<Vec<Bound>, OpenError> {
    let mut bounds = spec.ceiling.clone();
    for (source, ceiling) in &spec.ceilings {
        bounds.extend(Bound::of_ceiling(ceiling, |_| source.clone(), variables, &[])?);
    }
    if let Some(manifest) = &spec.manifest {
        bounds.extend(manifest.ceiling_bounds(variables)?);
    }
    if !profile.may_write() {
        // Layer 3 holds it too, whatever a command line finds.
        bounds.push(Bound::without_writing(Source::Profile(profile.name.clone())));
    }
    Ok(bounds)
}
