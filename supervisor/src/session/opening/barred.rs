//! Places that no session reaches: home directories, what sessions keep, and what is believed of a user without being asked about.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use callgate_policy::effective::EffectiveSet;
use callgate_policy::path::HostPath;

use super::super::written::Writes;
use crate::host;
use crate::host_view::HostView;
use crate::open_error::OpenError;
use crate::registry::counts;
use crate::store::{self, Store, StoreError};

/// Places that no session reaches, by whatever name.
#[derive(Clone, Copy)]
pub(in crate::session) struct Barred<'a> {
    /// Somebody insists on a home directory.
    pub(in crate::session) allow_home: bool,
    /// Mounts, and home directories of this host's people.
    pub(in crate::session) host: &'a HostView,
    /// Where the user declares tools.
    pub(in crate::session) user_tools: Option<&'a Path>,
    /// The supervisor's own.
    pub(in crate::session) store: Option<&'a Store>,
}

impl Barred<'_> {
    /// Refuses grants that reach a home directory, whose keys are not granted by the way; what sessions keep; and what is believed of
    /// the user without being asked about.
    pub(in crate::session) fn refuse(&self, effective: &EffectiveSet) -> Result<(), OpenError> {
        if let Some((tree, why)) = self.host.homes().granted(effective).filter(|_| !self.allow_home) {
            return Err(OpenError::Home { act: format!("grant all of {tree}"), why: why.to_string() });
        }
        store::refuse_reach_of_user(effective, self.host.mounts())?;
        self.store.iter().try_for_each(|store| store.refuse_reach(effective, self.host.mounts()))?;
        refuse_to_declare((self.user_tools, self.host), effective)
    }
}

/// Refuses a session that may write where somebody declares tools, or says whom they trust: that counts without being asked about.
/// In that directory or, where it is not protected by the name that the session has for it, in one above.
fn refuse_to_declare((user, host_view): (Option<&Path>, &HostView), effective: &EffectiveSet) -> Result<(), OpenError> {
    let written = effective.rights().write().iter().map(|(region, _)| region.literal_prefix());
    // Whoever runs this may work in somebody else's home.
    for granted in written {
        if let Some(path) = host::named_in(granted.as_path(), &[".config", "callgate"]) {
            return Err(StoreError::Declares { granted: granted.as_path().to_owned(), path }.into());
        }
    }
    let usual = host_view.homes().iter().flat_map(|home| [home.join(".config/callgate"), home.join(".callgate")]);
    let own = host::home().map(|home| home.join(".callgate"));
    let places = [host::user_settings(), own, user.map(ToOwned::to_owned)].into_iter().flatten().chain(usual);
    let places: BTreeSet<PathBuf> = places.collect();
    for place in &places {
        if let Some(granted) = store::granted_within(place, effective) {
            return Err(StoreError::Declares { granted, path: place.clone() }.into());
        }
        // What is found there counts only where its path without links is a protected name.
        let Some(real) = std::fs::canonicalize(place).ok().filter(|real| counts(real)) else { continue };
        let failed = |why: String| StoreError::Place { path: real.clone(), source: io::Error::other(why) };
        let writes = Writes::of(effective, host_view.mounts()).map_err(failed)?;
        if let Some(region) = writes.region(&HostPath::from(real.clone())) {
            let granted = region.literal_prefix().as_path().to_owned();
            return Err(StoreError::Declares { granted, path: real }.into());
        }
    }
    Ok(())
}
