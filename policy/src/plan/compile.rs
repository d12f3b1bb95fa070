//! From rights to rules that the kernel can be told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::system::{self, Execute};
use super::{
    CallPlan, CallRules, Calls, Exactness, Extent, FsAccess, FsRule, Identity, Limit, PROTOCOL_VERSION, Presence,
    PrivateDir, Resource, SessionPlan, Strength, Work, env,
};
use crate::call_grant::CallGrant;
use crate::effective::{EffectiveSet, Origin, PathRegion, Region as _, Scope};
use crate::manifest::{Env, Limits};
use crate::path::HostPath;

/// What the supervisor found out about the host, as values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// Which mechanisms there are.
    pub strength: Strength,
    /// The Landlock ABI to use.
    pub landlock_abi: u8,
    /// How many calls it is for.
    pub calls: Calls,
    /// As whom the session runs.
    pub identity: Identity,
    /// The session's own directory.
    pub private: PrivateDir,
    /// The workspace's roots.
    pub workspace: Vec<HostPath>,
    /// Toolchains in the home directory: their programs, libraries and caches, never their credential files.
    pub toolchains: Vec<HostPath>,
    /// Further trees or files of the system whose names hold a version, such as `/etc/java-17-openjdk`.
    pub extra_read: Vec<HostPath>,
    /// The directories of `PATH`, each checked to hold nothing that the session can write.
    pub path: Vec<HostPath>,
    /// The supervisor's own environment; only names that are granted leave it.
    pub env: BTreeMap<String, HostPath>,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// `exact = true`, and the kernel cannot be told this pattern.
    #[error("{pattern} would be widened to all of {prefix}, and `exact = true` refuses that ({asked})")]
    Widened {
        /// The pattern, with variables expanded.
        pattern: String,
        /// What it would become.
        prefix: HostPath,
        /// Who asked for it.
        asked: String,
    },
    /// `[env]` names what callgate decides.
    #[error("the environment variable {0} is set by callgate and can be neither passed nor set")]
    FixedVariable(String),
    /// The supervisor gave a path that is not resolved.
    #[error("the path {0} is not absolute and resolved")]
    Path(HostPath),
}

/// A right that was narrowed by a manifest in a way that the plan's rules do not hold. The supervisor must close it by
/// other means or refuse; it is never dropped in silence.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotInPlan {
    /// The plan lets any program of the base system start; `shell` grants only these.
    Programs(Vec<String>),
    /// Hosts are not part of the plan.
    Hosts(Vec<String>),
}

/// What the rules of the session's plan do not hold by themselves.
#[must_use]
pub fn not_in_plan(effective: &EffectiveSet) -> Vec<NotInPlan> {
    let mut open = Vec::new();
    let shell = effective.rights().shell();
    let any = shell.iter().any(|(region, _)| region.program().is_none() && region.args().is_any());
    if !shell.is_empty() && !any {
        open.push(NotInPlan::Programs(shell.iter().map(|(region, _)| region.to_string()).collect()));
    }
    let hosts: Vec<String> = effective.rights().hosts().iter().map(|(host, _)| host.to_string()).collect();
    if !hosts.is_empty() {
        open.push(NotInPlan::Hosts(hosts));
    }
    open
}

/// Compiles the outer bound of a session: the base system, its own directory, the toolchains and what is in force.
///
/// # Errors
///
/// [`PlanError`].
pub fn session(effective: &EffectiveSet, facts: &HostFacts, manifest_env: &Env) -> Result<SessionPlan, PlanError> {
    let execute = if effective.rights().shell().is_empty() { Execute::Nothing } else { Execute::System };
    Ok(SessionPlan {
        version: PROTOCOL_VERSION,
        strength: facts.strength,
        calls: facts.calls,
        identity: facts.identity,
        landlock_abi: facts.landlock_abi,
        surroundings: surroundings(facts, execute)?,
        grants: granted(&effective.readable(), effective.rights().write(), execute, effective.is_exact(), facts)?,
        workspace: facts.workspace.clone(),
        private: facts.private.clone(),
        env: env::compile(facts, manifest_env)?,
    })
}

/// What a call is, besides its grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSpec {
    /// What runs.
    pub work: Work,
    /// The manifest's bounds.
    pub limits: Limits,
    /// What the caller allows; the manifest's `wall` can only shorten it.
    pub timeout: Duration,
}

/// Compiles one call: what its grant says. That of a program says all that is in force.
///
/// # Errors
///
/// [`PlanError`].
pub fn call(grant: &CallGrant, facts: &HostFacts, spec: CallSpec) -> Result<CallPlan, PlanError> {
    let rules = match grant.shell() {
        Some(_) => CallRules::OfSession,
        // One of our own tools runs in the worker, which has all it needs mapped before its rules hold.
        None => CallRules::Own(granted(grant.read(), grant.write(), Execute::Nothing, grant.is_exact(), facts)?),
    };
    let timeout = spec.limits.wall.map_or(spec.timeout, |wall| wall.min(spec.timeout));
    let limits = limits(&spec.limits);
    Ok(CallPlan { version: PROTOCOL_VERSION, rules, work: spec.work, limits, timeout })
}

/// The base system, toolchains and the session's own directory.
fn surroundings(facts: &HostFacts, execute: Execute) -> Result<Vec<FsRule>, PlanError> {
    let mut rules = system::rules(facts.strength, execute);
    let access = if execute == Execute::System { FsAccess::ReadExecute } else { FsAccess::Read };
    for (paths, access, source) in
        [(&facts.toolchains, access, "toolchain"), (&facts.extra_read, FsAccess::Read, "system: found on this host")]
    {
        for path in paths {
            rules.push(tree(path.clone(), access, Presence::Optional, source)?);
        }
    }
    for name in ["tmp", "home", "shm"] {
        let path = HostPath::from(facts.private.inside.as_path().join(name));
        rules.push(tree(path, FsAccess::Write, Presence::Required, "session: its own directory")?);
    }
    Ok(rules)
}

fn tree(path: HostPath, access: FsAccess, presence: Presence, source: &str) -> Result<FsRule, PlanError> {
    if !path.is_normal() {
        return Err(PlanError::Path(path));
    }
    let (extent, exactness) = (Extent::Subtree, Exactness::Exact);
    Ok(FsRule { path, access, extent, presence, exactness, source: source.to_owned() })
}

fn granted(
    read: &Scope<PathRegion>,
    write: &Scope<PathRegion>,
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
    let writes = write.iter().map(|(region, origins)| (region, origins, FsAccess::Write));
    reads.chain(writes).map(|(region, origins, access)| rule(region, origins, access, exact, facts)).collect()
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
        // To replace a name as a whole the kernel must be told its directory; `exact` keeps to changing it in place.
        (true, FsAccess::Write) if !exact => (Extent::Entry, Exactness::Widened),
        (true, _) => (Extent::File, Exactness::Exact),
        (false, _) => (Extent::Subtree, region.exactness()),
    };
    let source = if asked.is_empty() { "session: its own directory".to_owned() } else { asked };
    let presence = presence(&path, region, facts);
    Ok(FsRule { path, access, extent, presence, exactness, source })
}

/// What lies in the workspace is made and removed by the work itself (`target/`), and a single file need not exist yet;
/// anything else that is missing is a mistake that must not pass (attack A14).
fn presence(path: &HostPath, region: &PathRegion, facts: &HostFacts) -> Presence {
    let inside = |root: &HostPath| path != root && path.as_path().starts_with(root);
    if region.is_literal() || facts.workspace.iter().any(inside) { Presence::Optional } else { Presence::Required }
}

fn limits(limits: &Limits) -> Vec<Limit> {
    let size = |size: crate::manifest::ByteSize| size.0;
    // RLIMIT_CPU counts whole seconds, and zero would kill at once.
    let seconds = |time: Duration| time.as_secs().max(1);
    let bounds = [
        (Resource::Core, Some(0)),
        (Resource::OpenFiles, limits.open_files),
        (Resource::Processes, limits.processes),
        (Resource::AddressSpace, limits.memory.map(size)),
        (Resource::FileSize, limits.file_size.map(size)),
        (Resource::CpuSeconds, limits.cpu.map(seconds)),
    ];
    bounds.into_iter().filter_map(|(resource, max)| max.map(|max| Limit { resource, max })).collect()
}

#[cfg(test)]
mod tests;
