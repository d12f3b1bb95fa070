//! From rights to rules that the kernel can be told.

use std::collections::BTreeSet;
use std::time::Duration;

use super::below::{keep_below, lies_below};
use super::closed::closed;
use super::etc::{EtcReading, Readable};
use super::protect::{Match, State, names};
use super::system::{self, Execute};
use super::{
    Binding, CallPlan, CallRules, CallWork, Calls, Carries, Exactness, Exec, Extent, FsAccess, FsRule, Limit, Network,
    PROTOCOL_VERSION, PolicyFiles, Presence, ProgramRule, Protection, Resource, SessionPlan, Strength, env,
};
use crate::call_grant::CallGrant;
use crate::denied::DeniedFiles;
use crate::effective::{DEBUG, EffectiveSet, Origin, PathRegion, Region as _, Scope, ShellRegion};
use crate::limit::Bounds;
use crate::manifest::Env;
use crate::path::HostPath;
use crate::pattern::{HostPattern, PathPattern, ProgramPattern};
use crate::rules::SubPolicy;

pub use super::facts::{HostFacts, LeftOut, PlanError};

/// Compiles the outer bound of a session: the base system, its own directory, the toolchains and what is in force.
///
/// # Errors
///
/// [`PlanError`].
pub fn session(
    effective: &EffectiveSet,
    facts: &HostFacts,
    manifest_env: &Env,
    bounds: &Bounds,
) -> Result<SessionPlan, PlanError> {
    let exec = exec(effective);
    let offline = is_offline(effective);
    let environment = env::compile(env::EnvSources { facts, env: manifest_env, offline })?;
    let execute = match &exec {
        Exec::Any if effective.rights().shell().is_empty() => Execute::Nothing,
        // The worker adds the programs themselves, once it has found them.
        Exec::Only(_) if exec.names_all() => Execute::Nothing,
        Exec::Any | Exec::Only(_) => Execute::System,
    };
    let write = effective.rights().write();
    let mut grants = granted((effective.readable(), write), write, execute, effective.is_exact(), facts)?;
    let mut surroundings = surroundings(facts, execute, home_access(&exec))?;
    let judged_from = judged_from(effective, facts);
    // Where nothing may be written, nobody need judge.
    let further = facts.left_of.values().chain(&judged_from).filter(|_| !write.is_empty());
    keep_below((&mut surroundings, &mut grants), further, &facts.private.inside);
    let closed = closed(facts, &surroundings, &grants);
    Ok(SessionPlan {
        version: PROTOCOL_VERSION,
        strength: facts.strength,
        calls: facts.calls,
        identity: facts.identity,
        landlock_abi: facts.landlock_abi,
        surroundings,
        grants,
        seen: Vec::new(),
        protection: Protection {
            left_of: facts.left_of.clone(),
            judged_from,
            asked: facts.asked.clone(),
            homes: facts.homes.clone(),
            policy: PolicyFiles::default(),
            closed,
        },
        exec,
        reading: None,
        watched: None,
        workspace: facts.workspace.clone(),
        private: facts.private.clone(),
        shared_memory: bounds.memory / 2,
        processes: bounds.processes.saturating_mul(4).saturating_add(1024),
        outputs: effective.session_dir().cloned(),
        env: environment,
        gitconfig: facts.gitconfig.clone(),
        debug: effective.rights().allows_capability(DEBUG),
        log_questions: false,
        network: network(effective, bounds),
        ablation: None,
    })
}

/// True if no host is granted to programs.
#[must_use]
pub fn is_offline(effective: &EffectiveSet) -> bool {
    effective.rights().hosts().is_empty()
}

/// Network of a plan, if any call may connect to anything. A host that one tool alone may reach is in it as well: a call of a program
/// has a network of its own then, without it.
fn network(effective: &EffectiveSet, bounds: &Bounds) -> Option<Network> {
    let mut hosts: Vec<HostPattern> = effective.hosts_of_calls().cloned().collect();
    hosts.sort_unstable();
    hosts.dedup();
    (!hosts.is_empty()).then_some(Network { hosts, secured: None, past_session: false, carries: Carries::of(bounds) })
}

/// Programs that `shell` grants. Where it grants any program with any arguments, or nothing at all, nobody need be
/// asked: in the latter case no call that starts a program passes layer 1.
#[must_use]
pub fn exec(effective: &EffectiveSet) -> Exec {
    let shell = effective.rights().shell();
    if shell.is_empty()
        || shell.iter().any(|(region, _)| *region.programs() == ProgramPattern::Any && region.args().is_any())
    {
        return Exec::Any;
    }
    let rule = |(region, origins): (&ShellRegion, &BTreeSet<Origin>)| ProgramRule {
        programs: region.programs().clone(),
        args: region.args().clone(),
        source: origins.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    };
    Exec::Only(shell.iter().map(rule).collect())
}

/// Description of a call, besides its grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSpec {
    /// Work to run.
    pub work: CallWork,
    /// Bounds in force for each call.
    pub bounds: Bounds,
    /// Time that the caller allows; the manifest's `wall` can only shorten it.
    pub timeout: Duration,
}

/// Compiles one call: what its grant says. That of a program says all that is in force.
///
/// # Errors
///
/// [`PlanError`].
pub fn call(grant: &CallGrant, facts: &HostFacts, spec: CallSpec) -> Result<CallPlan, PlanError> {
    let rules = match grant.shell() {
        Some(_) if grant.only_reads() => CallRules::Reading,
        Some(_) => CallRules::OfSession,
        // One of our own tools runs in the worker, which has all it needs mapped before its rules hold.
        None => {
            let (own, all) = ((grant.read(), grant.write()), grant.session_write());
            let rules = granted(own, all, Execute::Nothing, grant.is_exact(), facts)?;
            // What is not there is the tool's to tell: that it was granted, the session has made sure of.
            let optional = |rule| FsRule { presence: Presence::Optional, ..rule };
            CallRules::Own(rules.into_iter().map(optional).collect())
        }
    };
    let bounds = spec.bounds;
    let timeout = bounds.wall.map_or(spec.timeout, |wall| wall.min(spec.timeout));
    let limits = limits(&bounds, &spec.work, facts.strength);
    let within = if grant.shell().is_some() { Vec::new() } else { within(grant.read()) };
    // A program may reach what its session may, but for what is a single tool's; a tool, the hosts that the call names, and without any
    // it makes no socket.
    let hosts = match grant.shell() {
        Some(_) => grant.programs_reach().map(<[HostPattern]>::to_vec),
        None if grant.hosts().is_empty() => None,
        None => Some(grant.hosts().iter().map(|(host, port)| HostPattern::of_host(host, *port)).collect()),
    };
    let carries = Carries::of(&bounds);
    let network = hosts.map(|hosts| Network { hosts, secured: None, past_session: false, carries });
    Ok(CallPlan {
        version: PROTOCOL_VERSION,
        rules,
        within,
        without: Vec::new(),
        network,
        as_spelt: false,
        serves_session: false,
        work: spec.work,
        limits,
        bounds,
        timeout,
    })
}

/// The call of a shell with no more to write and to reach than its sub-policy leaves it (S0-15). The base system and the session's `TMPDIR`
/// stay, and `HOME` does not: what is written there (`.gitconfig`, `.npmrc`) decides what programs of later calls do, which may
/// have more. A call that has less than its session already stays as it is.
///
/// Laws (tested): a rule of the result that changes something lies within a rule of the session that does, and a host of the result
/// within a host of the session.
///
/// # Errors
///
/// [`PlanError`].
pub fn narrowed(
    plan: CallPlan,
    grant: &CallGrant,
    sub_policy: &SubPolicy,
    session: &SessionPlan,
    facts: &HostFacts,
) -> Result<CallPlan, PlanError> {
    // A call that reaches less than its session is narrowed from there, and one that makes no socket makes none.
    let reaches = match plan.rules {
        CallRules::Own(_) => plan.network.as_ref(),
        CallRules::OfSession | CallRules::Narrowed(_) | CallRules::Reading => {
            plan.network.as_ref().or(session.network.as_ref())
        }
    };
    let network = reaches.and_then(|network| sub_policy.network_within(network).or_else(|| plan.network.clone()));
    let plan = CallPlan { network, ..plan };
    if plan.rules != CallRules::OfSession {
        return Ok(plan);
    }
    let write = sub_policy.write_within(grant.write());
    let mut rules = Vec::new();
    for (region, origins) in write.iter() {
        let Some(access) = writer_in_session(&region.literal_prefix(), session) else { continue };
        let mut rule = rule(region, origins, access, grant.is_exact(), facts)?;
        if (rule.extent, access) == (Extent::Entry, FsAccess::Write) {
            // Without a broker that holds names, the kernel is told of the file that is there, and not of its whole directory.
            rule.extent = Extent::File;
        }
        rules.push(rule);
    }
    let mut all = kept(session, facts);
    all.extend(rules);
    Ok(CallPlan { rules: CallRules::Narrowed(all), ..plan })
}

/// The call of a search that leaves out what rules deny. A grant all of which is denied is none; what is denied within one is the tool's
/// to leave out, since the kernel is told of whole trees.
#[must_use]
pub fn leaving_out(mut plan: CallPlan, denied: Vec<DeniedFiles>) -> CallPlan {
    if let CallRules::Own(rules) = &mut plan.rules {
        let is_denied = |rule: &FsRule| {
            let all = match rule.extent {
                Extent::Subtree => PathPattern::subtree(&rule.path),
                Extent::File | Extent::Entry => PathPattern::literal(&rule.path),
            };
            all.is_some_and(|all| denied.iter().any(|denied| all.within(&denied.pattern)))
        };
        rules.retain(|rule| !is_denied(rule));
    }
    CallPlan { without: denied, ..plan }
}

/// Places for a program that may change nothing which was granted: the base system's devices and the session's `TMPDIR`.
fn kept(session: &SessionPlan, facts: &HostFacts) -> Vec<FsRule> {
    let changes = |rule: &&FsRule| rule.access.changes() || rule.access == FsAccess::Device;
    let home = facts.private.inside.as_path().join(HOME);
    let stays = |rule: &&FsRule| changes(rule) && rule.path.as_path() != home;
    let mut all: Vec<FsRule> = session.surroundings.iter().filter(stays).cloned().collect();
    // Landlock would find what was granted in a private `/tmp` to lie in that. (Where names are kept the broker tells them apart.)
    let freely = |rule: &FsRule| rule.access == FsAccess::Write;
    let holds_a_grant = |outer: &FsRule| {
        let inside = &facts.private.inside;
        let lies_in = |inner: &FsRule| lies_below(&session.where_it_leads(inner), outer, inside);
        freely(outer) && session.grants.iter().any(|inner| freely(inner) && lies_in(inner))
    };
    all.retain(|rule| !holds_a_grant(rule));
    all
}

/// The call of a program that only reads, and parses what a stranger wrote: of what was granted it changes nothing, and it
/// reaches no host.
#[must_use]
pub fn reading_alone(plan: CallPlan, session: &SessionPlan, facts: &HostFacts) -> CallPlan {
    let network = session.network.as_ref().map(|network| Network { hosts: Vec::new(), ..network.clone() });
    let rules = match plan.rules {
        CallRules::OfSession | CallRules::Narrowed(_) => CallRules::Narrowed(kept(session, facts)),
        CallRules::Reading | CallRules::Own(_) => plan.rules,
    };
    CallPlan { rules, network, ..plan }
}

/// Who writes at a path in a session: the broker, if one of the trees that hold it has names that are kept.
fn writer_in_session(path: &HostPath, session: &SessionPlan) -> Option<FsAccess> {
    let holds = |rule: &&FsRule| match rule.extent {
        Extent::Subtree => path.as_path().starts_with(&rule.path),
        Extent::File | Extent::Entry => rule.path == *path,
    };
    let writers = session.grants.iter().filter(|rule| rule.access.changes()).filter(holds);
    writers.map(|rule| rule.access).reduce(|one, other| if other == FsAccess::Kept { other } else { one })
}

/// Paths at or below which the session can change files, as the kernel is told it.
#[must_use]
pub fn written(effective: &EffectiveSet) -> Vec<HostPath> {
    let write = effective.rights().write().iter();
    let place = |region: &PathRegion| {
        let path = region.literal_prefix();
        // A single name is replaced in its directory.
        let entry = region.is_literal().then(|| path.as_path().parent().map(HostPath::from)).flatten();
        entry.unwrap_or(path)
    };
    write.map(|(region, _)| place(region)).collect()
}

/// The trees from which it is judged as well what is protected ([`EffectiveSet::judged_from`]). A workspace in one of them is a tree
/// of its own: the look into `/` has a bound, and begins in both.
fn judged_from(effective: &EffectiveSet, facts: &HostFacts) -> Vec<HostPath> {
    let mut trees = effective.judged_from();
    trees.extend(facts.asked_without_links.iter().filter(|asked| asked.is_tree).map(|asked| asked.path.clone()));
    let wider = |root: &&HostPath| {
        let holds = |tree: &HostPath| *tree != **root && root.as_path().starts_with(tree);
        trees.iter().chain(facts.left_of.values()).any(holds) && !trees.contains(root)
    };
    let roots: Vec<HostPath> = facts.workspace.iter().filter(wider).cloned().collect();
    trees.extend(roots);
    trees
}

/// A plan with one grant more, which is no right of the session's.
#[must_use]
pub fn with_grant(mut plan: SessionPlan, rule: FsRule) -> SessionPlan {
    plan.grants.push(rule);
    let further: Vec<HostPath> =
        plan.protection.left_of.values().chain(&plan.protection.judged_from).cloned().collect();
    keep_below((&mut plan.surroundings, &mut plan.grants), further.iter(), &plan.private.inside);
    plan
}

/// Regions that were granted, if the rules say more.
fn within(read: &Scope<PathRegion>) -> Vec<PathRegion> {
    let widened = read.iter().any(|(region, _)| region.exactness() == Exactness::Widened);
    if widened { read.iter().map(|(region, _)| region.clone()).collect() } else { Vec::new() }
}

/// The session's `HOME`, in its own directory.
const HOME: &str = "home";

/// Who may write in `HOME`. Programs find start-up files there (`.local/lib/python3.11/site-packages/usercustomize.py`,
/// `.npmrc`, `.gitconfig`) that have them do anything, whatever their arguments and variables say. So where single programs are
/// granted nobody writes there. Whether one of them is a script whose interpreter is not granted is not known here, so this does
/// not wait for a grant with `args`.
fn home_access(exec: &Exec) -> FsAccess {
    if exec.is_judged() { FsAccess::Read } else { FsAccess::Write }
}

/// The base system, toolchains and the session's own directory.
fn surroundings(facts: &HostFacts, execute: Execute, home: FsAccess) -> Result<Vec<FsRule>, PlanError> {
    let access = if execute == Execute::System { FsAccess::ReadExecute } else { FsAccess::Read };
    let programs = format!("system: {}", system::PROGRAMS);
    let shared = facts.shared.iter().map(|readable| part(readable, access, &programs));
    let mut rules: Vec<FsRule> = shared.collect::<Result<_, _>>()?;
    rules.extend(system::rules(facts.strength, execute));
    for path in &facts.toolchains {
        let rule = tree(path.clone(), access, Presence::Optional, "toolchain")?;
        rules.push(FsRule { binding: Binding::Seen, ..rule });
    }
    for readable in &facts.etc {
        rules.push(part(readable, FsAccess::Read, "system: everyone may read it")?);
    }
    for (name, access) in [("tmp", FsAccess::Write), (HOME, home), ("shm", FsAccess::Write)] {
        let path = HostPath::from(facts.private.inside.as_path().join(name));
        rules.push(tree(path, access, Presence::Required, "session: its own directory")?);
    }
    if (facts.strength, facts.calls) == (Strength::Namespaces, Calls::One) {
        // All in it are the one program's. Where there are several, each gets its own from the broker, and no other's.
        let source = "session: the terminals that its program makes";
        rules.push(tree("/dev/pts".into(), FsAccess::Device, Presence::Optional, source)?);
    }
    Ok(rules)
}

fn part(Readable { path, reading, id }: &Readable, access: FsAccess, source: &str) -> Result<FsRule, PlanError> {
    let (access, extent) = match reading {
        EtcReading::Tree => (access, Extent::Subtree),
        EtcReading::File => (access, Extent::File),
        EtcReading::Names => (FsAccess::List, Extent::Subtree),
    };
    let rule = tree(path.clone(), access, Presence::Optional, source)?;
    Ok(FsRule { extent, binding: Binding::Walked(*id), ..rule })
}

fn tree(path: HostPath, access: FsAccess, presence: Presence, source: &str) -> Result<FsRule, PlanError> {
    if !path.is_normal() {
        return Err(PlanError::Path(path));
    }
    let (extent, exactness) = (Extent::Subtree, Exactness::Exact);
    Ok(FsRule { path, access, extent, binding: Binding::Name, presence, exactness, source: source.to_owned() })
}

/// `all` is what may be written in the session: a name may be released by a grant that this call does not use.
fn granted(
    (read, write): (&Scope<PathRegion>, &Scope<PathRegion>),
    all: &Scope<PathRegion>,
    execute: Execute,
    exact: bool,
    facts: &HostFacts,
) -> Result<Vec<FsRule>, PlanError> {
    let read_access = if execute == Execute::System { FsAccess::ReadExecute } else { FsAccess::Read };
    // A write rule lets read as well.
    let only_read = read.iter().filter(|(region, _)| !write.iter().any(|(written, _)| region.within(written)));
    // What nobody asked for is the session's own directory: sidecars, which are data.
    let access = |origins: &BTreeSet<Origin>| if origins.is_empty() { FsAccess::Read } else { read_access };
    let reads = only_read.map(|(region, origins)| (region, origins, access(origins)));
    let writes = write.iter().map(|(region, origins)| (region, origins, write_access(region, all, facts)));
    reads.chain(writes).map(|(region, origins, access)| rule(region, origins, access, exact, facts)).collect()
}

/// Who writes in a region. Names are looked for from the nearest tree that holds it: a workspace, or another grant. A
/// protected name below that was granted by name, and a free directory holds none: Landlock alone bounds both. Where rules close places
/// the broker writes everything: a file in one may have a hard link anywhere.
fn write_access(region: &PathRegion, all: &Scope<PathRegion>, facts: &HostFacts) -> FsAccess {
    if !facts.closed.is_empty() {
        return FsAccess::Kept;
    }
    let path = region.literal_prefix();
    if facts.left_of.contains_key(&path) {
        return FsAccess::Kept; // whatever it is called, something in the larger tree may lead there
    }
    if region.is_literal() {
        // One file of a tree has its tree's writer.
        let mut trees = all.iter().filter(|(tree, _)| !tree.is_literal() && tree.matches(&path)).peekable();
        let kernel = trees.peek().is_some() && trees.all(|(tree, _)| write_access(tree, all, facts) == FsAccess::Write);
        return if kernel { FsAccess::Write } else { FsAccess::Kept };
    }
    let granted = all.iter().filter(|(region, _)| !region.is_literal()).map(|(region, _)| region.literal_prefix());
    let holds = |root: &HostPath| *root != path && path.as_path().starts_with(root);
    let outer = granted.chain(facts.workspace.iter().cloned()).filter(holds).min_by_key(|root| root.as_bytes().len());
    let Some(below) = outer.as_ref().and_then(|root| path.as_path().strip_prefix(root).ok()) else {
        return FsAccess::Kept;
    };
    let start = outer.as_ref().map_or_else(State::default, |root| names().root(root.as_bytes()));
    match names().find(start, below.as_os_str().as_encoded_bytes()) {
        Match::Open(state) if !state.is_free() => FsAccess::Kept,
        Match::Open(_) | Match::Kept { .. } => FsAccess::Write,
    }
}

fn rule(
    region: &PathRegion,
    origins: &BTreeSet<Origin>,
    access: FsAccess,
    exact: bool,
    facts: &HostFacts,
) -> Result<FsRule, PlanError> {
    let path = region.literal_prefix();
    let asked = origins.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    if exact && region.exactness() == Exactness::Widened {
        return Err(PlanError::Widened { pattern: region.to_string(), prefix: path, asked });
    }
    let (extent, exactness) = match (region.is_literal(), access) {
        // A file is replaced by its name.
        (true, FsAccess::Write | FsAccess::Kept) => (Extent::Entry, Exactness::Exact),
        (true, _) => (Extent::File, Exactness::Exact),
        (false, _) => (Extent::Subtree, region.exactness()),
    };
    let source = if asked.is_empty() { "session: its own directory".to_owned() } else { asked };
    let presence = presence(&path, region, facts);
    Ok(FsRule { path, access, extent, binding: Binding::Seen, presence, exactness, source })
}

/// Presence that a rule demands. What lies in the workspace is made and removed by the work itself (`target/`), and a
/// single file need not exist yet; anything else that is missing is a mistake that must not pass (attack A14).
fn presence(path: &HostPath, region: &PathRegion, facts: &HostFacts) -> Presence {
    let inside = |root: &HostPath| path != root && path.as_path().starts_with(root);
    if region.is_literal() || facts.workspace.iter().any(inside) { Presence::Optional } else { Presence::Required }
}

/// Limits that the kernel holds for each process. What it cannot hold for a call as a whole is watched by the call's init.
fn limits(bounds: &Bounds, work: &CallWork, strength: Strength) -> Vec<Limit> {
    // RLIMIT_CPU counts whole seconds, and comes second: the init has told by then what the call did.
    let seconds = bounds.cpu.as_secs() + 2;
    let mut limits = vec![
        Limit { resource: Resource::OpenFiles, max: bounds.open_files },
        Limit { resource: Resource::FileSize, max: bounds.file_size },
        Limit { resource: Resource::CpuSeconds, max: seconds },
    ];
    match work {
        // Our own tools take what they need and no more address space, and are one process.
        CallWork::Tool { .. } => limits.push(Limit { resource: Resource::AddressSpace, max: bounds.memory }),
        // Not so programs: node and whatever is built with a sanitizer reserve terabytes that they never touch.
        //
        // A user namespace of the session's own counts the session's processes alone (Linux 5.14), though never those of
        // uid 0. It is far above what its calls may have, and there for what is faster than the init.
        CallWork::Program { .. } if strength == Strength::Namespaces => {
            let max = bounds.processes.saturating_mul(16).saturating_add(1024);
            limits.push(Limit { resource: Resource::Processes, max });
        }
        CallWork::Program { .. } => {}
    }
    limits
}

#[cfg(test)]
mod tests;
