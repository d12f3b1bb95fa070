//! Places that rules close for writing, by all the names that the host has for them.

use std::path::PathBuf;

use callgate_policy::denied::ClosedPlace;
use callgate_policy::path::HostPath;
use callgate_policy::plan::ClosedByRule;
use callgate_worker::way::{FollowedPath, trace};

use super::policy_files::all_names;
use crate::place::Changeable;

/// Finds where each place is: the links on the way to it, and where they lead, whether or not something is there.
pub(super) fn find(places: Vec<ClosedPlace>, changeable: &Changeable) -> Vec<ClosedByRule> {
    let closed = |place: ClosedPlace| {
        let (mut names, end) = trace(place.path.as_path());
        names.push(end);
        let passed = FollowedPath::follow(place.path.as_path()).map(|way| way.passed).unwrap_or_default();
        ClosedByRule { place, names: named(names, changeable), passed: named(passed, changeable) }
    };
    places.into_iter().map(closed).collect()
}

fn named(places: Vec<PathBuf>, changeable: &Changeable) -> Vec<HostPath> {
    all_names(places.into_iter(), changeable)
}
