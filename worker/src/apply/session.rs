//! The steps that confine a session, in the order in which they must happen.

use std::os::fd::OwnedFd;

use callgate_policy::envelope::StepReport;
use callgate_policy::plan::{Exactness, Extent, FsAccess, FsRule, Presence, SessionPlan, Strength};

use super::landlock::Reach;
use super::{done, landlock, mount, namespace, privilege};
use crate::protocol::StepFailure;

/// A confined session: what its steps confirmed, and what its calls will use.
pub(crate) struct Session {
    pub(crate) steps: Vec<StepReport>,
    /// The ruleset of a call that may do all that the session may; built once, enforced by each such call.
    pub(crate) call_ruleset: OwnedFd,
    /// Rules in it.
    pub(crate) call_rules: usize,
}

/// Confines this process and all that it will fork. Namespaces were entered by the fork that made it, as the owner.
pub(crate) fn confine(plan: &SessionPlan) -> Result<Session, StepFailure> {
    let mut steps = Vec::new();
    if plan.strength == Strength::Namespaces {
        namespace::map_identity(plan.identity)?; // first: until then this process has no user id in its namespace
        namespace::raise_loopback()?; // before privileges go: it takes CAP_NET_ADMIN
        steps.push(done("namespaces", "user, mount, pid, network, ipc, uts"));
        steps.push(done("mounts", mount::build_root(plan)?)); // before landlock: its domains deny mount(2)
    }
    steps.push(done("capabilities", privilege::drop_capabilities()?)); // after mounts, the last step that needs one
    privilege::set_no_new_privs()?; // before landlock and seccomp: both demand it
    steps.push(done("no_new_privs", "set"));
    let places = landlock::locate(&plan.rules)?; // once for both: what stands at a path must not change in between
    let own = landlock::locate(&brokers_own(plan))?;
    let call_ruleset = landlock::build(plan.landlock_abi, &places, Reach::Everything)?;
    let outer = landlock::build(plan.landlock_abi, places.iter().chain(&own), Reach::Files)?;
    landlock::restrict(&outer)?; // last: the broker lives in it, and every worker below it
    let rules = places.len() + own.len();
    steps.push(done("landlock", format!("session domain, abi {}, {rules} rules", plan.landlock_abi)));
    Ok(Session { steps, call_ruleset, call_rules: places.len() })
}

/// What the broker needs besides: `/proc`, where it asks who a notification is from; and the session's own directory,
/// where files stand for abstract names, and which it empties in the end. Calls' domains do not have these.
fn brokers_own(plan: &SessionPlan) -> Vec<FsRule> {
    let rule = |path, access| FsRule {
        path,
        access,
        extent: Extent::Subtree,
        presence: Presence::Required,
        exactness: Exactness::Exact,
        source: "broker".to_owned(),
    };
    vec![rule("/proc".into(), FsAccess::Read), rule(plan.private.inside.clone(), FsAccess::Write)]
}
