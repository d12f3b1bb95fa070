//! The steps that confine a session, in the order in which they must happen.

use std::os::fd::OwnedFd;

use callgate_policy::envelope::StepReport;
use callgate_policy::plan::{Calls, Exactness, Extent, FsAccess, FsRule, Presence, SessionPlan, Strength};

use super::landlock::Reach;
use super::{done, landlock, mount, namespace, privilege};
use crate::protocol::StepFailure;

/// A confined session: what its steps confirmed, and what its calls will use.
pub(crate) struct Session {
    pub(crate) steps: Vec<StepReport>,
    /// The ruleset of a call that may do all that the session may; built once, enforced by each such call.
    pub(crate) call_ruleset: OwnedFd,
    /// What it holds, for reports.
    pub(crate) call_domain: String,
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
    let (call_ruleset, call_domain) = if files_are_the_sessions(plan) {
        let ruleset = landlock::build(plan.landlock_abi, places.iter().chain(&own), Reach::Relations)?;
        (ruleset, format!("call domain, abi {}: tcp and scopes, files by the session's", plan.landlock_abi))
    } else {
        let ruleset = landlock::build(plan.landlock_abi, &places, Reach::Everything)?;
        (ruleset, format!("call domain, abi {}, {} rules", plan.landlock_abi, places.len()))
    };
    let outer = landlock::build(plan.landlock_abi, places.iter().chain(&own), Reach::Files)?;
    landlock::restrict(&outer)?; // last: the broker lives in it, and every worker below it
    let rules = places.len() + own.len();
    steps.push(done("landlock", format!("session domain, abi {}, {rules} rules", plan.landlock_abi)));
    Ok(Session { steps, call_ruleset, call_domain })
}

/// The one call of a session needs no second look at files: there is no sibling to keep from, and what the broker has
/// besides, its `/proc` and its directory, is the session's own in a mount namespace. Before ABI 4 nothing would be left
/// for a domain of its own to handle.
fn files_are_the_sessions(plan: &SessionPlan) -> bool {
    plan.calls == Calls::One && plan.strength == Strength::Namespaces && plan.landlock_abi >= 4
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
