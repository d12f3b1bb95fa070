//! The steps that confine a session, in the order in which they must happen.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use callgate_policy::envelope::StepReport;
use callgate_policy::plan::exec::Starts;
use callgate_policy::plan::{Binding, Exactness, Extent, FsAccess, FsRule, Mechanism, Presence, SessionPlan, Strength};
use callgate_policy::step::Step;
use rustix::fs::{Mode, OFlags};

use super::landlock::{ConfinedSide, Executing, RulePath, RulesetReach};
use super::{call, done, failure, kernel, landlock, limit, mount, namespace, privilege};
use crate::directory::OwnDirectory;
use crate::filters;
use crate::mountinfo;
use crate::programs::{self, FoundPrograms};
use crate::protocol::StepFailure;

/// Rulesets by which the broker's and the programs' side of a session is confined, and what their calls will use.
pub(crate) struct ProgramRulesets {
    pub(crate) steps: Vec<StepReport>,
    /// The ruleset of a call that may do all that the session may; built once, enforced by each such call.
    pub(crate) call_ruleset: OwnedFd,
    /// Description of what it holds, for reports.
    pub(crate) call_domain: String,
    /// The ruleset of tools, whatever their call: what was granted, without what programs need besides.
    pub(crate) grants: OwnedFd,
    /// Programs that may be started, if that is bounded.
    pub(crate) found: Option<FoundPrograms>,
    /// For calls that only read, if there are such.
    pub(crate) reading: Option<ReadingRuleset>,
}

/// Ruleset that confines a call that only reads.
pub(crate) struct ReadingRuleset {
    /// Nothing to write, and no file to execute but what it may start, and their interpreters and loaders.
    pub(crate) ruleset: OwnedFd,
    /// Description of what it holds, for reports.
    pub(crate) domain: String,
    pub(crate) starts: Starts,
}

/// Makes what every process of the session has in common. Namespaces were entered, as the owner, and settled before.
///
/// What is returned besides is a procfs that is mounted nowhere, for the inits of programs: see [`mount::procfs`].
pub(crate) fn enter(plan: &SessionPlan) -> Result<(Vec<StepReport>, Option<OwnedFd>), StepFailure> {
    let (mut steps, mut procfs) = (vec![done(Step::CoreDumps, limit::no_core_dumps()?)], None); // before the filter, under which it cannot be set
    if plan.strength == Strength::Namespaces {
        steps.push(done(Step::Namespaces, "user, mount, pid, network, ipc, uts"));
        // Before the capabilities are gone. An older kernel has one number for all of the host, which stays as it is.
        steps.extend(namespace::bound_processes(plan.processes).map(|most| done(Step::Processes, most)));
        procfs = Some(mount::procfs()?); // before the host's is gone, without which there may be no other
        steps.push(done(Step::Mounts, mount::build_root(plan)?)); // before landlock: its domains deny mount(2)
    }
    if plan.keeps(Mechanism::Capabilities) {
        steps.push(done(Step::Capabilities, privilege::drop_capabilities()?)); // after mounts, the last step that needs one
    }
    privilege::set_no_new_privs()?; // before landlock and seccomp: both demand it
    steps.push(done(Step::NoNewPrivs, "set"));
    Ok((steps, procfs))
}

/// Confines the broker, and with it the programs' zygote and every worker below it.
pub(crate) fn confine(
    plan: &SessionPlan,
    directories: &[OwnDirectory],
    path: &[PathBuf],
    procfs: Option<&OwnedFd>,
) -> Result<ProgramRulesets, StepFailure> {
    // Once for all three: what stands at a path must not change in between.
    let surroundings = landlock::locate(&plan.surroundings, directories, plan)?;
    let granted = landlock::locate(&plan.grants, directories, plan)?;
    // The kernel is asked for the path of each: only where programs are looked for one by one.
    let readable = || -> Vec<PathBuf> {
        surroundings.iter().chain(&granted).filter_map(RulePath::read_at).map(Path::to_owned).collect()
    };
    let mut found = plan.exec.is_judged().then(|| programs::find(plan, path, &readable())).transpose()?;
    let mut files: Vec<RulePath> =
        found.iter_mut().flat_map(|found| found.files.drain(..)).map(landlock::program).collect();
    for tree in found.iter().flat_map(|found| &found.trees) {
        files.push(landlock::programs_below(tree.as_fd())?);
    }
    let executing = if plan.exec.names_all() { Executing::Files } else { Executing::Trees };
    let (calls, brokers) = ((ConfinedSide::Calls, executing), (ConfinedSide::Brokers, executing));
    let places = || surroundings.iter().chain(&granted).chain(&files);
    let mut own = landlock::locate(&brokers_own(plan), directories, plan)?;
    let (call_ruleset, call_domain) = match plan.strength {
        Strength::Namespaces => {
            let brokers_places = BrokersPlaces::of(plan, surroundings.iter().chain(&granted), &own)?;
            let (trees, by_rule) = all_but_the_brokers((&surroundings, &granted), &brokers_places)?;
            let all = trees.iter().chain(by_rule).chain(&files);
            let ruleset = landlock::build(plan.landlock_abi, all, RulesetReach::Everything, calls)?;
            (ruleset, format!("call domain, abi {}, {} trees, files by the session's", plan.landlock_abi, trees.len()))
        }
        Strength::Landlock => {
            let ruleset = landlock::build(plan.landlock_abi, places(), RulesetReach::Everything, calls)?;
            (ruleset, call::domain(plan.landlock_abi, places().count()))
        }
    };
    own.extend(procfs.map(landlock::readable).transpose()?); // after the above: it is mounted nowhere, and no path leads there
    let reading = match &plan.reading {
        None => None,
        Some(programs) => {
            let mut found = programs::find_for_reading(plan, programs, path, &readable());
            let files: Vec<RulePath> = found.files.drain(..).map(landlock::program).collect();
            let places = || surroundings.iter().chain(&granted).chain(&files);
            let held = (ConfinedSide::ReadingCalls, Executing::Files);
            let ruleset = landlock::build(plan.landlock_abi, places(), RulesetReach::Everything, held)?;
            let domain = format!("{}, nothing to write", call::domain(plan.landlock_abi, places().count()));
            Some(ReadingRuleset { ruleset, domain, starts: found.starts })
        }
    };
    let grants = landlock::build(plan.landlock_abi, &granted, RulesetReach::Files, calls)?;
    let outer = landlock::build(plan.landlock_abi, places().chain(&own), RulesetReach::Files, brokers)?;
    let mut steps = Vec::new();
    if plan.keeps(Mechanism::Landlock) {
        landlock::restrict(&outer)?;
        let rules = places().chain(&own).count();
        steps.push(done(Step::Landlock, format!("session domain, abi {}, {rules} rules", plan.landlock_abi)));
    }
    Ok(ProgramRulesets { steps, call_ruleset, call_domain, grants, found, reading })
}

/// Confines the readers' zygote and every worker below it: to read what was granted, and to reach nobody. What programs
/// need besides is not theirs.
pub(crate) fn confine_readers(
    plan: &SessionPlan,
    directories: &[OwnDirectory],
    let_go_of_them: impl FnOnce() -> Result<(), StepFailure>,
) -> Result<Vec<StepReport>, StepFailure> {
    let reading: Vec<FsRule> = plan.grants.iter().map(FsRule::for_reading).collect();
    let places = landlock::locate(&reading, directories, plan)?;
    let whose = (ConfinedSide::Calls, Executing::Trees);
    let ruleset = landlock::build(plan.landlock_abi, &places, RulesetReach::Everything, whose)?;
    landlock::restrict(&ruleset)?;
    let count = places.len();
    drop((places, ruleset));
    let_go_of_them()?;
    let detail = format!("readers' domain, abi {}, {} rules", plan.landlock_abi, count);
    let length = filters::install_readers().map_err(failure(Step::Seccomp, "install the readers' filter"))?; // last: it forbids most of the above
    Ok(vec![done(Step::Landlock, detail), done(Step::Seccomp, format!("readers' filter, {length} instructions"))])
}

/// The session's own `/dev/pts`, for the supervisor to make terminals in. Without a mount namespace it is the host's, which
/// the supervisor has.
#[expect(clippy::disallowed_methods, reason = "in a mount tree of the session's own, in which nothing has run yet")]
pub(crate) fn terminals(plan: &SessionPlan) -> Result<Option<OwnedFd>, StepFailure> {
    match plan.strength {
        Strength::Landlock => Ok(None),
        Strength::Namespaces => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::fs::open(TERMINALS, flags, Mode::empty());
            opened.map(Some).map_err(|e| kernel(Step::Mounts, format!("open {TERMINALS}"), e.into()))
        }
    }
}

/// Places where the broker may do more than calls: trees in which names are kept, directories of single names, and its own. Each by all
/// of its names.
struct BrokersPlaces(Vec<PathBuf>);

impl BrokersPlaces {
    fn of<'a>(
        plan: &SessionPlan,
        rules: impl Iterator<Item = &'a RulePath>,
        own: &'a [RulePath],
    ) -> Result<Self, StepFailure> {
        let mounts = mountinfo::read().map_err(failure(Step::Landlock, "read the mounts of the session"))?;
        let mut places = Vec::new();
        for place in own.iter().chain(rules.filter(|place| place.is_more_for_the_broker(plan.landlock_abi))) {
            let path = place.path()?;
            places.extend(mountinfo::other_names(&mounts, path));
            places.push(path.to_owned());
        }
        Ok(Self(places))
    }

    /// True if none of them lies in this tree, or holds it.
    fn are_apart_from(&self, tree: &Path) -> bool {
        !self.0.iter().any(|place| place.starts_with(tree) || tree.starts_with(place))
    }
}

/// Domain of a call with all the rights of its session, below the broker's, which holds them rule by rule: whole trees, but for what is
/// the broker's.
///
/// All that such a domain must add is that a call keeps off what is the broker's; each rule named once more would be copied and freed
/// with every call. (Without a mount namespace the broker's `/proc` is the host's, and calls get their rules again.)
///
/// A tree is what the kernel says that a rule was bound to: the path of a rule may lead by a link into another one.
fn all_but_the_brokers<'a>(
    (surroundings, granted): (&'a [RulePath], &'a [RulePath]),
    brokers: &BrokersPlaces,
) -> Result<(Vec<RulePath>, Vec<&'a RulePath>), StepFailure> {
    let mut tops = BTreeSet::new();
    let (mut trees, mut by_rule) = (Vec::new(), Vec::new());
    for place in surroundings.iter().chain(granted) {
        let top: PathBuf = place.path()?.components().take(2).collect();
        if brokers.are_apart_from(&top) {
            tops.insert(top);
        } else {
            by_rule.push(place);
        }
    }
    for top in tops {
        trees.extend(landlock::whole(&top)?);
    }
    // What was granted is named itself as well: the kernel climbs from a file until every domain has let it pass. A single file is
    // not: it may have another name, where the broker may do more.
    for place in granted {
        if brokers.are_apart_from(place.path()?) {
            trees.extend(place.whole_directory()?);
        }
    }
    Ok((trees, by_rule))
}

/// Rules that the broker needs besides: `/proc`, where it asks who a notification is from; the session's own directory,
/// where files stand for abstract names, and which it empties in the end; and terminals, which it opens for who has
/// made them. Calls' domains do not have these.
fn brokers_own(plan: &SessionPlan) -> Vec<FsRule> {
    let rule = |path, access, presence| FsRule {
        path,
        access,
        extent: Extent::Subtree,
        binding: Binding::Name,
        presence,
        exactness: Exactness::Exact,
        source: "broker".to_owned(),
    };
    vec![
        rule("/proc".into(), FsAccess::Read, Presence::Required),
        rule(plan.private.inside.clone(), FsAccess::Write, Presence::Required),
        rule(TERMINALS.into(), FsAccess::Device, Presence::Optional),
    ]
}

/// Where the kernel shows pseudo-terminals (pts(4)).
const TERMINALS: &str = "/dev/pts";
