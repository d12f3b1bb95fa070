//! Trees that lie in one another: the kernel takes the inner one for a part of the outer.

use std::path::Path;

use super::rule::{Extent, FsAccess, FsRule};
use crate::path::HostPath;

/// Landlock grants all that lies below a directory, also where another tree is mounted there. A tree of the system that may
/// be written, such as a private `/tmp`, and holds one whose names are kept, is written by the broker too.
///
/// The other way round, what lies in such a tree is the broker's to write as well: it can then tell where a path leads
/// while it acts on it.
///
/// With namespaces `/tmp` is the same directory as one of the session's own, and Landlock's rules are bound to directories,
/// not to their names.
///
/// `further` are trees of which a part is granted and that is judged from there: the broker writes all that lies in them.
pub(super) fn keep_below<'a>(
    (surroundings, grants): (&mut [FsRule], &mut [FsRule]),
    further: impl Iterator<Item = &'a HostPath>,
    private: &HostPath,
) {
    for outer in surroundings.iter_mut().filter(|rule| rule.access == FsAccess::Write) {
        if grants.iter().any(|kept| kept.access == FsAccess::Kept && lies_below(kept, outer, private)) {
            outer.access = FsAccess::Kept;
        }
    }
    let kept = |rule: &&FsRule| rule.access == FsAccess::Kept && rule.extent == Extent::Subtree;
    let trees: Vec<HostPath> = surroundings
        .iter()
        .chain(grants.iter())
        .filter(kept)
        .map(|rule| rule.path.clone())
        .chain(further.cloned())
        .collect();
    for inner in surroundings.iter_mut().chain(grants).filter(|rule| rule.access == FsAccess::Write) {
        if trees.iter().any(|tree| inner.path.as_path().starts_with(tree)) {
            inner.access = FsAccess::Kept;
        }
    }
}

/// True if Landlock takes a rule's tree for a part of another's, one of the system or of the session's own.
pub(super) fn lies_below(inner: &FsRule, outer: &FsRule, private: &HostPath) -> bool {
    let shared = [("/tmp", "tmp"), ("/dev/shm", "shm")];
    let own = |name: &str| private.as_path().join(name);
    let seen_as = shared.iter().find(|(_, name)| outer.path.as_path() == own(name)).map(|(seen, _)| Path::new(seen));
    inner.path.as_path().starts_with(&outer.path) || seen_as.is_some_and(|tree| inner.path.as_path().starts_with(tree))
}
