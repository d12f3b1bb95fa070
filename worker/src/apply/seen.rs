//! That a session is bound to what its supervisor saw: a path is looked up anew here, and whoever may change a part of it
//! could have had it lead elsewhere meanwhile (A10).

use std::os::fd::OwnedFd;
use std::path::Path;

use callgate_policy::plan::{SessionPlan, Strength};
use callgate_policy::step::Step;

use super::kernel;
use super::own::is_own;
use crate::protocol::StepFailure;
use crate::way::is_the_kernels;

/// Confirms that what was opened at a path of the host's is what stood there when the supervisor looked.
pub(super) fn confirm(plan: &SessionPlan, path: &Path, opened: &OwnedFd) -> Result<(), StepFailure> {
    if is_the_kernels(path) {
        return Ok(());
    }
    let stat = rustix::fs::fstat(opened)
        .map_err(|e| kernel(Step::Replaced, format!("look at {}", path.display()), e.into()))?;
    let same = plan.seen.iter().find(|seen| seen.path.as_path() == path);
    if same.is_some_and(|seen| (seen.device, seen.inode) == (stat.st_dev, stat.st_ino)) {
        return Ok(());
    }
    Err(replaced(path))
}

/// Failure of a path at which something else stands now.
pub(super) fn replaced(path: &Path) -> StepFailure {
    let what = format!("{} was replaced while the session was opened; try again", path.display());
    StepFailure::new(Step::Replaced, what)
}

/// Confirms what programs need, if the supervisor has looked at it.
pub(super) fn confirm_if_seen(plan: &SessionPlan, path: &Path, opened: &OwnedFd) -> Result<(), StepFailure> {
    let was_seen = plan.seen.iter().any(|seen| seen.path.as_path() == path);
    if was_seen { confirm(plan, path, opened) } else { Ok(()) }
}

/// Confirms a path in the session's own mount tree, if there is one: what is the session's own there, the supervisor
/// has not seen.
pub(crate) fn confirm_inside(plan: &SessionPlan, path: &Path, opened: &OwnedFd) -> Result<(), StepFailure> {
    let own = plan.strength == Strength::Namespaces && is_own(plan, path);
    if own { Ok(()) } else { confirm(plan, path, opened) }
}
