//! The steps that confine one call, in the order in which they must happen.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use callgate_policy::envelope::StepReport;
use callgate_policy::plan::{CallPlan, FsRule};
use callgate_policy::step::Step;

use super::landlock::{self, ConfinedSide, Executing, RulesetReach};
use super::{done, failure, limit};
use crate::filters;
use crate::protocol::{Channel, StepFailure, Threads};
use crate::sys::{fd, process};
use crate::toolset::SyscallNeed;

/// A call's own domain lies within its session's, which says what may be executed.
const BOUNDED: (ConfinedSide, Executing) = (ConfinedSide::Calls, Executing::Trees);

/// Confines this process for a tool that runs in it, below the broker.
pub(crate) fn confine_tool(
    plan: &CallPlan,
    grants: &OwnedFd,
    landlock_abi: u8,
    kind: SyscallNeed,
    channel: &Channel,
) -> Result<Vec<StepReport>, StepFailure> {
    let mut steps = inherited_steps();
    landlock::restrict(grants)?; // a link may lead a tool to what programs need besides, which is not its business
    steps.push(done(Step::Landlock, "tools' domain, the grants"));
    steps.extend(narrow(plan, landlock_abi, RulesetReach::Everything, &[channel.as_fd()])?);
    filters::install_tool(kind).map_err(failure(Step::Seccomp, "install the tool's filter"))?; // last: it forbids most of the above
    steps.push(done(Step::Seccomp, "tool filter"));
    Ok(steps)
}

/// The first step of a reader, before it knows its call: its own filter upon its zygote's.
pub(crate) fn confine_ready_reader(threads: Threads) -> Result<StepReport, StepFailure> {
    filters::install_reader(threads).map_err(failure(Step::Seccomp, "install the worker's filter"))?;
    Ok(done(
        Step::Seccomp,
        match threads {
            Threads::Never => "no more processes",
            Threads::OfItsOwn => "no more processes, only threads",
        },
    ))
}

/// Confines this process for a tool that only reads: what it may reach besides files, its zygote's domain has settled. Of descriptors it
/// keeps its channel, and the streams of the program that it talks to.
pub(crate) fn confine_reader(
    filter: StepReport,
    plan: &CallPlan,
    landlock_abi: u8,
    keep: &[BorrowedFd<'_>],
) -> Result<Vec<StepReport>, StepFailure> {
    let mut steps = vec![filter];
    steps.extend(narrow(plan, landlock_abi, RulesetReach::Files, keep)?);
    Ok(steps)
}

/// Limits, the call's own domain, and no descriptor but these.
fn narrow(
    plan: &CallPlan,
    landlock_abi: u8,
    reach: RulesetReach,
    keep: &[BorrowedFd<'_>],
) -> Result<Vec<StepReport>, StepFailure> {
    let places = landlock::locate_for_call(plan.rules.own())?; // first: it opens paths
    let ruleset = landlock::build(landlock_abi, &places, reach, BOUNDED)?;
    let mut steps = Vec::with_capacity(4);
    process::ignore_file_size_signal().map_err(failure(Step::Limits, "ignore SIGXFSZ"))?;
    limit::set(&plan.limits).map_err(failure(Step::Limits, "setrlimit"))?;
    steps.push(done(Step::Limits, format!("{} set", plan.limits.len())));
    landlock::restrict(&ruleset)?; // before descriptors go: the ruleset is one of them
    steps.push(done(Step::Landlock, domain(landlock_abi, places.len())));
    drop((ruleset, places));
    fd::close_all_but(keep).map_err(failure(Step::CloseFds, "close_range"))?; // the broker's and the zygote's go here
    let kept = if keep.len() > 1 { "only the channel, and its program's streams" } else { "only the channel" };
    steps.push(done(Step::CloseFds, kept));
    Ok(steps)
}

/// Name of a call's own domain in reports.
pub(super) fn domain(landlock_abi: u8, rules: usize) -> String {
    format!("call domain, abi {landlock_abi}, {rules} rules")
}

/// Steps that every worker has from the zygote it was forked from; read back, not assumed.
fn inherited_steps() -> Vec<StepReport> {
    let mut steps = Vec::new();
    if rustix::thread::no_new_privs().unwrap_or(false) {
        steps.push(done(Step::NoNewPrivs, "set"));
    }
    if matches!(rustix::thread::secure_computing_mode(), Ok(rustix::thread::SecureComputingMode::Filter)) {
        steps.push(done(Step::Seccomp, "base filter"));
    }
    steps
}

/// The ruleset of a call that may do less than its session, and what it holds.
pub(crate) fn ruleset_for(rules: &[FsRule], landlock_abi: u8) -> Result<(OwnedFd, String), StepFailure> {
    let places = landlock::locate_for_call(rules)?;
    let ruleset = landlock::build(landlock_abi, &places, RulesetReach::Everything, BOUNDED)?;
    Ok((ruleset, domain(landlock_abi, places.len())))
}

/// The ruleset that bounds what a narrowed call changes, and how many places it names. It says nothing of reading.
pub(crate) fn changes_ruleset(rules: &[FsRule], landlock_abi: u8) -> Result<(OwnedFd, usize), StepFailure> {
    let places = landlock::locate_to_change(rules)?;
    Ok((landlock::changes_within(landlock_abi, &places)?, places.len()))
}

/// Steps that the start of a program confirmed.
pub(crate) fn program_steps(plan: &CallPlan, domain: String, landlocked: bool, grouped: bool) -> Vec<StepReport> {
    let mut steps = inherited_steps();
    if grouped {
        steps.push(done(Step::Cgroup, "memory and processes"));
    }
    if landlocked {
        steps.push(done(Step::Landlock, domain));
    }
    steps.push(done(Step::CloseFds, "0, 1 and 2 only"));
    steps.push(done(Step::Limits, format!("{} set", plan.limits.len())));
    steps
}
