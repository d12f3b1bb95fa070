//! Plans in the log (`--log debug` and `--log trace`), for whoever asks why something is refused.

use callgate_policy::plan::{CallPlan, CallRules, FsRule, SessionPlan, Work};

/// Logs the plan of a session: its outline at `debug`; each of its rules, and the names of its variables, at `trace`. The values of
/// variables may be secrets and stay out.
pub(super) fn session(plan: &SessionPlan) {
    tracing::debug!(
        strength = ?plan.strength,
        landlock_abi = plan.landlock_abi,
        uid = plan.identity.uid,
        gid = plan.identity.gid,
        calls = ?plan.calls,
        grants = plan.grants.len(),
        writer = ?plan.writer(),
        starter = ?plan.starter(),
        network = plan.network.is_some(),
        "a session is opened"
    );
    if !tracing::enabled!(tracing::Level::TRACE) {
        return;
    }
    plan.surroundings.iter().chain(&plan.grants).for_each(rule);
    for name in plan.env.keys() {
        tracing::trace!(name, "a variable of the session");
    }
}

/// Logs the plan of a call: its outline at `debug`, its rules at `trace`. Its arguments stay out.
pub(super) fn call(plan: &CallPlan) {
    let work = match &plan.work {
        Work::Tool { name, .. } => format!("tool {name}"),
        Work::Program { argv, .. } => argv.first().map(|program| format!("program {program}")).unwrap_or_default(),
    };
    let rules = match &plan.rules {
        CallRules::OfSession => "all of the session's",
        CallRules::Own(_) => "its own",
        CallRules::Narrowed(_) => "narrowed",
        CallRules::Reading => "reading alone",
    };
    tracing::debug!(work, rules, timeout = ?plan.timeout, network = plan.network.is_some(), "a call is carried out");
    if tracing::enabled!(tracing::Level::TRACE) {
        plan.rules.own().iter().for_each(rule);
    }
}

fn rule(rule: &FsRule) {
    let FsRule { path, access, extent, source, .. } = rule;
    tracing::trace!(%path, ?access, ?extent, source, "a rule of the plan");
}
