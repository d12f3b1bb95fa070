//! The steps that confine a session, in the order in which they must happen.

use std::os::fd::OwnedFd;

use callgate_policy::envelope::StepReport;
use callgate_policy::plan::{SessionPlan, Strength};

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
    // Both before the first is enforced: rules bind what stands at a path now, and the paths must not move in between.
    let (call_ruleset, call_rules) = landlock::build(plan.landlock_abi, &plan.rules, Reach::Everything)?;
    let (outer, outer_rules) = landlock::build(plan.landlock_abi, &with_proc(plan), Reach::Files)?;
    landlock::restrict(&outer)?; // last: the broker lives in it, and every worker below it
    steps.push(done("landlock", format!("session domain, abi {}, {outer_rules} rules", plan.landlock_abi)));
    Ok(Session { steps, call_ruleset, call_rules })
}

/// The session's own domain also reads `/proc`: the broker asks there who a notification is from. Calls do not inherit
/// it: their own domains do not have the rule.
fn with_proc(plan: &SessionPlan) -> Vec<callgate_policy::plan::FsRule> {
    use callgate_policy::plan::{Exactness, Extent, FsAccess, FsRule, Presence};
    let mut rules = plan.rules.clone();
    rules.push(FsRule {
        path: "/proc".into(),
        access: FsAccess::Read,
        extent: Extent::Subtree,
        presence: Presence::Required,
        exactness: Exactness::Exact,
        source: "broker".to_owned(),
    });
    // Abstract names stand for files in it, and it is emptied when the session ends.
    rules.push(FsRule {
        path: plan.private.inside.clone(),
        access: FsAccess::Write,
        extent: Extent::Subtree,
        presence: Presence::Required,
        exactness: Exactness::Exact,
        source: "broker".to_owned(),
    });
    rules
}
