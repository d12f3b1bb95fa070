//! Places that a session in namespaces has of its own, whatever the host has there.

use std::path::Path;

use callgate_policy::plan::SessionPlan;

/// True if a tree of the host's would hide what the session has of its own: `/` or `/tmp`. Of a single file that lies
/// there the file alone is bound: it can be changed and not replaced.
pub(super) fn would_cover(plan: &SessionPlan, tree: &Path) -> bool {
    let own = [plan.private.inside.as_path(), Path::new("/tmp"), Path::new("/dev/shm"), Path::new("/proc")];
    own.iter().any(|own| own.starts_with(tree))
}

/// True if a path is not the host's in the new tree: it lies in what the session has of its own, or holds that.
pub(super) fn is_own(plan: &SessionPlan, path: &Path) -> bool {
    path.starts_with(&plan.private.inside) || would_cover(plan, path)
}
