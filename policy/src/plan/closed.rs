//! Which places that rules close for writing a session can close: those that the broker alone writes.

use std::path::Path;

use super::ClosedByRule;
use super::facts::HostFacts;
use super::rule::{Extent, FsAccess, FsRule};

/// The places of a session that it can close. Its own directories are its programs' to write, so one that touches them is none, unless a
/// tree that was granted lies between.
pub(super) fn closed(facts: &HostFacts, surroundings: &[FsRule], grants: &[FsRule]) -> Vec<ClosedByRule> {
    let writes = |rule: &&FsRule| rule.access.changes() || rule.access == FsAccess::Device;
    let own = surroundings.iter().filter(writes).map(|rule| rule.path.as_path());
    let own: Vec<&Path> = own.chain([facts.private.inside.as_path()]).collect();
    let can_close = |name: &Path| {
        let between = |own: &Path| {
            let lies_between = |rule: &FsRule| match rule.extent {
                Extent::Subtree => rule.path.as_path() != own && name.starts_with(&rule.path),
                Extent::Entry | Extent::File => rule.path.as_path() == name,
            };
            grants.iter().filter(|rule| rule.access.changes() && rule.path.as_path().starts_with(own)).any(lies_between)
        };
        own.iter().all(|own| !own.starts_with(name) && (!name.starts_with(own) || between(own)))
    };
    let is_whole = |closed: &&ClosedByRule| closed.names.iter().all(|name| can_close(name.as_path()));
    facts.closed.iter().filter(is_whole).cloned().collect()
}
