//! The files that a session's policy came from.
//!
//! What a manifest, a profile or a host's watchdog says holds for the next session too that is started with the same words. So no call of a session
//! changes the files that it was opened with, whatever else it may write: neither them nor a link on the way to them, by any name.

use std::path::{Path, PathBuf};

use callgate_policy::path::HostPath;
use callgate_policy::plan::PolicyFiles;
use callgate_policy::profile::Profile;
use callgate_worker::way::{FollowedPath, is_the_systems};
use rustix::fs::FileType;

use super::super::SessionSpec;
use crate::gate::WatchdogProgram;
use crate::place::Changeable;

/// Finds the files that the manifest and the profile were read from, those of the host's own watchdogs, and the links on the way to
/// them; each by all of its names. A manifest that a host made up has none.
pub(super) fn find(
    spec: &SessionSpec,
    profile: &Profile,
    watchdogs: &[WatchdogProgram],
    changeable: &Changeable,
) -> PolicyFiles {
    let manifest = spec.manifest.iter().map(|manifest| manifest.file.as_str());
    let files = manifest.chain(profile.file.iter().map(|file| file.path.as_str())).map(Path::new);
    // Where a distribution keeps programs no session writes, and many of them have several names.
    let of_watchdogs = watchdogs.iter().flat_map(WatchdogProgram::files).filter(|file| !is_the_systems(file));
    let ways: Vec<FollowedPath> = files.chain(of_watchdogs).filter_map(way).collect();
    let kept = ways.iter().flat_map(|way| way.links.iter().map(|link| link.path.clone()).chain(way.real_path()));
    let passed = ways.iter().flat_map(|way| way.passed.iter().cloned());
    PolicyFiles { kept: all_names(kept, changeable), passed: all_names(passed, changeable) }
}

/// The way to a file. What comes by a pipe is nowhere to be changed.
fn way(file: &Path) -> Option<FollowedPath> {
    FollowedPath::follow(file).ok().filter(|way| FileType::from_raw_mode(way.stat().st_mode) == FileType::RegularFile)
}

/// All names of each place.
pub(super) fn all_names(places: impl Iterator<Item = PathBuf>, changeable: &Changeable) -> Vec<HostPath> {
    // Where the mounts are not known, it is protected by the name that is.
    let names = |place: PathBuf| changeable.names(&place).unwrap_or_else(|| vec![place]);
    let mut all: Vec<HostPath> = places.flat_map(names).map(HostPath::from).collect();
    all.sort_unstable();
    all.dedup();
    all
}
