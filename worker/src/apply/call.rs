//! The steps that confine one call, in the order in which they must happen.

use std::os::fd::{AsFd as _, OwnedFd};

use callgate_policy::envelope::StepReport;
use callgate_policy::plan::CallPlan;

use super::landlock::{self, Reach};
use super::{done, failure, limit};
use crate::filters;
use crate::protocol::{Channel, StepFailure};
use crate::sys::fd;
use crate::worker::SessionFacts;

/// Confines this process for a tool that runs in it.
pub(crate) fn confine_tool(
    plan: &CallPlan,
    session: &SessionFacts,
    channel: &Channel,
) -> Result<Vec<StepReport>, StepFailure> {
    let places = landlock::locate(&plan.rules)?; // first: it opens paths
    let ruleset = landlock::build(session.landlock_abi, &places, Reach::Everything)?;
    let mut steps = inherited_steps();
    limit::set(&plan.limits).map_err(failure("limits", "setrlimit"))?;
    steps.push(done("limits", format!("{} set", plan.limits.len())));
    landlock::restrict(&ruleset)?; // before descriptors go: the ruleset is one of them
    steps.push(done("landlock", format!("call domain, abi {}, {} rules", session.landlock_abi, places.len())));
    drop((ruleset, places));
    fd::close_all_but(&[channel.as_fd()]).map_err(failure("close_fds", "close_range"))?; // the broker's and the zygote's go here
    steps.push(done("close_fds", "only the channel"));
    filters::install_tool().map_err(failure("seccomp", "install the tool's filter"))?; // last: it forbids most of the above
    steps.push(done("seccomp", "tool filter"));
    Ok(steps)
}

/// What every worker has from the zygote it was forked from; read back, not assumed.
fn inherited_steps() -> Vec<StepReport> {
    let mut steps = Vec::new();
    if rustix::thread::no_new_privs().unwrap_or(false) {
        steps.push(done("no_new_privs", "set"));
    }
    if matches!(rustix::thread::secure_computing_mode(), Ok(rustix::thread::SecureComputingMode::Filter)) {
        steps.push(done("seccomp", "base filter"));
    }
    steps
}

/// The ruleset that a call gets, and what it holds: the session's if the call may do all that the session may, one of
/// its own otherwise.
pub(crate) fn ruleset_for(
    plan: &CallPlan,
    session: &SessionFacts,
    cached: &OwnedFd,
) -> Result<(OwnedFd, String), StepFailure> {
    if plan.rules == session.rules {
        let copy = cached.try_clone().map_err(failure("landlock", "copy the session's ruleset"))?;
        return Ok((copy, session.call_domain.clone()));
    }
    let places = landlock::locate(&plan.rules)?;
    let ruleset = landlock::build(session.landlock_abi, &places, Reach::Everything)?;
    Ok((ruleset, format!("call domain, abi {}, {} rules", session.landlock_abi, places.len())))
}

/// What the start of a program confirmed.
pub(crate) fn program_steps(plan: &CallPlan, domain: String, landlocked: bool) -> Vec<StepReport> {
    let mut steps = inherited_steps();
    steps.push(done("limits", format!("{} set", plan.limits.len())));
    if landlocked {
        steps.push(done("landlock", domain));
    }
    steps.push(done("close_fds", "0, 1 and 2 only"));
    steps
}
