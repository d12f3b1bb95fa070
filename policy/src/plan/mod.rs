//! The sandbox plan: what the worker performs, as plain data.
//!
//! A plan can be printed, compared and pinned by a snapshot; no privilege is needed to make or test one. The worker
//! decides nothing: it performs the plan's steps in order, or stops and says which step failed.

mod below;
mod closed;
pub mod compile;
pub mod env;
pub mod etc;
pub mod exec;
mod facts;
mod network;
pub mod protect;
mod rule;
pub mod seccomp;
pub mod shared;
pub mod system;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::denied::{ClosedPlace, DeniedFiles};
use crate::effective::PathRegion;
use crate::limit::Bounds;
use crate::path::HostPath;
use crate::pattern::{ArgPatterns, ProgramPattern};

pub use self::exec::{Exec, ProgramRule};
pub use self::network::{Carries, NAMES, NAMES_NETWORK, Network, PROXY, Secured};
pub use self::rule::{Binding, Exactness, Extent, FileId, FsAccess, FsRule, Presence};

/// The version of the plan and of the frames between supervisor, broker, zygote and worker. All of them are one file,
/// so a mismatch means that two builds met; it is refused.
pub const PROTOCOL_VERSION: u32 = 1;

/// The variable that tells the program of an agent where its session's endpoint is.
pub const ENDPOINT_VARIABLE: &str = "CALLGATE_MCP";
/// The name by which that program, and nobody else, connects to it. There is no such file: the broker knows the name.
pub const ENDPOINT: &str = "/run/callgate/mcp.sock";

/// Thing that the supervisor found at a path when it looked, so that the session is bound to that and to nothing that
/// has taken its place since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Where: the path of a grant, or one above it.
    pub path: HostPath,
    /// The device of what it leads to (`st_dev`).
    pub device: u64,
    /// Its number there (`st_ino`).
    pub inode: u64,
    /// True if it is a directory.
    pub directory: bool,
    /// Its path without links, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads_to: Option<HostPath>,
}

impl Seen {
    /// Its path without links.
    #[must_use]
    pub fn real(&self) -> &HostPath {
        self.leads_to.as_ref().unwrap_or(&self.path)
    }
}

/// As whom the broker, zygote and workers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The session's own directory, which ends with it. It holds `tmp` (`TMPDIR`), `home` (`HOME`), `shm` (stands for
/// `/dev/shm`) and `ipc`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateDir {
    /// Where the session sees it.
    pub inside: HostPath,
    /// Where it lives.
    pub kind: PrivateKind,
}

impl PrivateDir {
    /// Its parts, in the order of its description.
    pub const PARTS: [&'static str; 4] = ["tmp", "home", "shm", "ipc"];
}

/// Where a session's own directory lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrivateKind {
    /// On the host, at the same path: made by the supervisor (mode 0700, the worker's user, a name that cannot be
    /// guessed), emptied by the broker, removed by the launcher.
    OnHost,
    /// A tmpfs in the session's mount namespace, gone with it.
    InNamespace,
}

/// Which strength of `docs/architecture.md` the session runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strength {
    /// Landlock and seccomp alone (no user namespaces on this host).
    Landlock,
    /// Landlock and seccomp, and user, mount, PID, network, IPC and UTS namespaces on top.
    Namespaces,
}

/// Who carries out what changes files for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writer {
    /// The kernel, which Landlock bounds.
    Kernel,
    /// The broker where names are kept, else the kernel.
    Broker,
    /// The broker, which opens single files for reading as well, because the kernel is told of a file and not of its
    /// name: it would not know the file that has taken the name since.
    BrokerReadsToo,
}

impl Writer {
    /// True if the broker is asked about what changes names.
    #[must_use]
    pub fn is_broker(self) -> bool {
        match self {
            Self::Kernel => false,
            Self::Broker | Self::BrokerReadsToo => true,
        }
    }
}

/// Who says which programs are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Starter {
    /// The kernel, which Landlock bounds.
    Kernel,
    /// The broker as well, which is asked about each.
    Broker,
}

/// One resource limit, as setrlimit(2) takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// `RLIMIT_NOFILE`, count. A soft limit that is lower stays: programs that walk all descriptors, or keep them in a
    /// `select(2)` set, rely on it.
    OpenFiles,
    /// `RLIMIT_NPROC`, count for the user in the session's user namespace (Linux 5.14), not for the call.
    Processes,
    /// `RLIMIT_AS`, bytes.
    AddressSpace,
    /// `RLIMIT_FSIZE`, bytes.
    FileSize,
    /// `RLIMIT_CPU`, seconds.
    CpuSeconds,
}

/// A resource and its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Which.
    pub resource: Resource,
    /// In the resource's own unit.
    pub max: u64,
}

/// How many calls a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Calls {
    /// Any number, in workers that a zygote forks.
    Many,
    /// One: what would be the zygote is its worker, and the session ends with it.
    One,
}

/// A mechanism of the kernel's that a session can be tried without, to see what the others hold. (Namespaces are one more:
/// [`Strength`] says whether a session has them.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// Landlock's domains, the session's and the call's.
    Landlock,
    /// The filter, and with it the broker, which the filter asks.
    Seccomp,
    /// Empty capability sets.
    Capabilities,
}

/// Mechanisms that a session of `callgate doctor --attack` does without.
///
/// Invariant: a session that has one runs nothing but acts of callgate's own probe, which the worker has in itself: it
/// executes no file, and takes a program's argv for the words of an act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ablation(BTreeSet<Mechanism>);

impl Ablation {
    /// Without these. For `doctor --attack` alone; `clippy.toml` refuses any other use.
    #[must_use]
    pub fn without(mechanisms: impl IntoIterator<Item = Mechanism>) -> Self {
        Self(mechanisms.into_iter().collect())
    }
}

/// Who judges every program that is about to run (layer 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Watched {
    /// The built-in rules and nobody else: the tracer knows them, and asks nobody.
    Rules,
    /// The supervisor's watchdogs, the built-in rules among them. It is asked each time.
    Watchdogs,
}

/// Where a session's policy came from, by all names that this has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFiles {
    /// The files, and the links on the way to them: no call changes one.
    pub kept: Vec<HostPath>,
    /// Directories out of which the way to them leads by `..`: no call moves one.
    pub passed: Vec<HostPath>,
}

/// Facts by which the broker protects names: from where a name is judged, and which files are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// Places among the grants that were left of larger trees, each with its tree: protection is judged from there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_of: BTreeMap<HostPath, HostPath>,
    /// Further trees from which that is judged ([`EffectiveSet::judged_from`](crate::effective::EffectiveSet::judged_from)).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judged_from: Vec<HostPath>,
    /// All that was asked for to write in, whatever bounds left of it; also by its path without links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<AskedFor>,
    /// Home directories: what `~` may be in the settings of repositories, which whoever runs git outside has as one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub homes: Vec<HostPath>,
    /// Where the session's policy came from.
    #[serde(default)]
    pub policy: PolicyFiles,
    /// Places that rules close for writing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<ClosedByRule>,
}

/// A place that a rule closes for writing, with the names that the host has for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClosedByRule {
    /// The place, as the rule spells it.
    pub place: ClosedPlace,
    /// Paths of what is there, of the links on the way, and where these are mounted besides, as the kernel spells them. What lies
    /// below one is closed too.
    pub names: Vec<HostPath>,
    /// Directories that stay where they are, because the way leads out of them by `..`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<HostPath>,
}

/// Plan of a whole session: the outer bound that the broker, the zygote and every worker live in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPlan {
    /// [`PROTOCOL_VERSION`].
    pub version: u32,
    /// Which mechanisms this host offers.
    pub strength: Strength,
    /// Number of calls that it is for.
    pub calls: Calls,
    /// As whom.
    pub identity: Identity,
    /// The Landlock ABI to use: the highest that both the kernel and this build know, 1 to 7 (landlock(7)).
    pub landlock_abi: u8,
    /// Surroundings that every program needs: the base system, toolchains, the session's own directory.
    pub surroundings: Vec<FsRule>,
    /// The file system rules of the EffectiveSet.
    pub grants: Vec<FsRule>,
    /// Things that stood at the grants' paths when the supervisor looked. Nothing else is granted: if another thing
    /// stands there when the session is confined, there is no session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<Seen>,
    /// Facts by which names are protected.
    #[serde(flatten)]
    pub protection: Protection,
    /// Programs that may be started.
    pub exec: Exec,
    /// Programs that a call that only reads may start ([`CallRules::Reading`]): names and paths as in
    /// [`ProgramPattern::One`]. `None` in a session that has no such calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Vec<HostPath>>,
    /// Who judges every program that is about to run, if anybody does.
    pub watched: Option<Watched>,
    /// The workspace's roots. Fixed for the session (X0-55): if one is replaced, calls are refused.
    pub workspace: Vec<HostPath>,
    /// The session's private directory.
    pub private: PrivateDir,
    /// Most bytes that the session's own tmpfs may hold, and the System V segments of one call together: half of the limit
    /// for memory, since both are memory that belongs to no process.
    pub shared_memory: u64,
    /// Most processes and threads of all calls together, where the kernel can hold that (`pid_max` of a PID namespace,
    /// Linux 6.14): far above what one call may have, which its init watches.
    pub processes: u64,
    /// Where the supervisor puts what results have no room for (S0-44): a directory on the host, one of the grants for
    /// reading. The launcher removes it when the session has ended, however that came.
    pub outputs: Option<HostPath>,
    /// The complete environment of programs; nothing else is inherited. Values need not be UTF-8.
    pub env: BTreeMap<String, HostPath>,
    /// First content of `.gitconfig` in the session's `HOME`; empty for no such file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub gitconfig: String,
    /// True if a call's processes may trace one another (`debug`). Never where every start is judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
    /// True if the broker reports each system call that it is asked about to the supervisor's log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log_questions: bool,
    /// Network that may be connected to; `None` for nothing but what the session's own calls serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// `None`, but for sessions that nothing runs in but callgate's own attempts to break out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ablation: Option<Ablation>,
}

/// The directory for everybody's temporary files (hier(7)).
const TMP: &str = "/tmp";
/// The directory for shared memory (shm_overview(7)).
const SHM: &str = "/dev/shm";

/// A place that was asked for to write in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedFor {
    /// Where it is.
    pub path: HostPath,
    /// With all below it; or that name alone.
    pub is_tree: bool,
}

impl AskedFor {
    /// The directory in which names can be made: a single one is replaced where it lies.
    #[must_use]
    pub fn directory(&self) -> HostPath {
        let above = self.path.as_path().parent().filter(|_| !self.is_tree);
        above.map_or_else(|| self.path.clone(), HostPath::from)
    }
}

impl SessionPlan {
    /// True if a mechanism holds: always, but in attempts to break out that are made without it.
    #[must_use]
    pub fn keeps(&self, mechanism: Mechanism) -> bool {
        self.ablation.as_ref().is_none_or(|ablation| !ablation.0.contains(&mechanism))
    }

    /// This plan, bound to what stood at its paths. A toolchain that was not there cannot be told from what has its
    /// name later, so it is left out.
    ///
    /// With namespaces `/tmp` is a directory of the session's own, and Landlock takes what is mounted in it for a part of it.
    /// Where the tree of a grant there holds more than the grant lets be read, the session has no `/tmp` of its own: programs
    /// have `TMPDIR`, as they do without namespaces. The same holds for `/dev/shm`, in whose place they have nothing.
    #[must_use]
    pub fn bound_to(mut self, seen: Vec<Seen>, toolchains: &[HostPath]) -> Self {
        self.seen = seen;
        let was_seen = |path: &HostPath| self.seen.iter().any(|seen| seen.path == *path);
        self.surroundings.retain(|rule| !toolchains.contains(&rule.path) || was_seen(&rule.path));
        self.keep_below_where_they_lead();
        for own in [TMP, SHM] {
            if self.grants.iter().any(|rule| self.would_show_more(rule, Path::new(own))) {
                self.surroundings.retain(|rule| rule.path.as_path() != Path::new(own));
            }
        }
        self
    }

    /// True if `/tmp` is the session's own, and the same directory as its `TMPDIR`.
    #[must_use]
    pub fn has_tmp(&self) -> bool {
        self.has(TMP)
    }

    /// True if `/dev/shm` is the session's own.
    #[must_use]
    pub fn has_shm(&self) -> bool {
        self.has(SHM)
    }

    fn has(&self, own: &str) -> bool {
        self.surroundings.iter().any(|rule| rule.path.as_path() == Path::new(own))
    }

    /// A path without links, as far as it was looked at.
    fn real(&self, path: &Path) -> PathBuf {
        let seen = |above: &Path| self.seen.iter().find(|seen| seen.path.as_path() == above);
        let (above, seen) = match path.ancestors().find_map(|above| Some((above, seen(above)?))) {
            Some(found) => found,
            None => return path.to_owned(),
        };
        match path.strip_prefix(above) {
            Ok(rest) if !rest.as_os_str().is_empty() => seen.real().as_path().join(rest),
            _ => seen.real().as_path().to_owned(),
        }
    }

    /// Rule for the path that a rule's leads to.
    fn where_it_leads(&self, rule: &FsRule) -> FsRule {
        FsRule { path: self.real(rule.path.as_path()).into(), ..rule.clone() }
    }

    /// Has the broker write wherever a tree with kept names lies in the tree of another rule, or holds it: by what their paths lead to.
    fn keep_below_where_they_lead(&mut self) {
        let real = |rule: &FsRule| self.where_it_leads(rule);
        let mut surroundings: Vec<FsRule> = self.surroundings.iter().map(real).collect();
        let mut grants: Vec<FsRule> = self.grants.iter().map(real).collect();
        below::keep_below((&mut surroundings, &mut grants), std::iter::empty(), &self.private.inside);
        let rules = self.surroundings.iter_mut().chain(&mut self.grants);
        rules.zip(surroundings.iter().chain(&grants)).for_each(|(rule, real)| rule.access = real.access);
    }

    /// True if the tree that is mounted in this directory of the session's own for a grant holds what no grant lets be read.
    fn would_show_more(&self, rule: &FsRule, own: &Path) -> bool {
        let path = rule.path.as_path();
        let seen = |path: &Path| self.seen.iter().find(|seen| seen.path.as_path() == path);
        let real = |path: &Path| self.real(path);
        let directory = match rule.extent {
            // It is replaced in its directory. Of a file in the session's own itself the file alone is mounted.
            Extent::Entry => {
                path.ancestors().skip(1).find(|above| seen(above).is_some_and(|seen| seen.directory)).map(real)
            }
            Extent::File => seen(path).filter(|seen| seen.directory).map(|seen| seen.real().as_path().to_owned()),
            Extent::Subtree => Some(real(path)),
        };
        let Some(mounted) = directory.filter(|at| at != own && at.starts_with(own)) else { return false };
        let shows_all = |tree: &FsRule| {
            let reads = tree.extent == Extent::Subtree && tree.access.reads_files();
            reads && mounted.starts_with(real(tree.path.as_path())) && seen(tree.path.as_path()).is_some()
        };
        !self.grants.iter().any(shows_all)
    }

    /// This plan, with these files kept, which the session's policy came from.
    #[must_use]
    pub fn keeping(mut self, policy: &PolicyFiles) -> Self {
        self.protection.policy = policy.clone();
        self
    }

    /// This plan, with these places closed for writing.
    #[must_use]
    pub fn closing(mut self, places: &[ClosedByRule]) -> Self {
        self.protection.closed = places.to_vec();
        self
    }

    /// This plan, with every program judged that is about to run.
    #[must_use]
    pub fn watched(mut self, by: Watched) -> Self {
        self.watched = Some(by);
        self.judging_each("a watchdog that sees every exec")
    }

    /// This plan, with calls that only read, which may start these programs and no others, whoever starts them.
    #[must_use]
    pub fn with_reading_calls(mut self, programs: Vec<HostPath>) -> Self {
        self.reading = Some(programs);
        self.judging_each("calls that may start anything, beside those that only read")
    }

    /// Has every start asked about, also where any program may be started.
    fn judging_each(mut self, source: &str) -> Self {
        if self.exec == Exec::Any {
            let source = source.to_owned();
            self.exec =
                Exec::Only(vec![ProgramRule { programs: ProgramPattern::Any, args: ArgPatterns::any(), source }]);
        }
        self
    }

    /// All its rules: the most that a program of the session may be given.
    pub fn rules(&self) -> impl Iterator<Item = &FsRule> {
        self.surroundings.iter().chain(&self.grants)
    }

    /// The directories below which programs may be started. They need not be there, and nothing in them may be read for it.
    #[must_use]
    pub fn program_trees(&self) -> Vec<FsRule> {
        let tree = |rule: &ProgramRule| {
            let (extent, presence, exactness) = (Extent::Subtree, Presence::Optional, Exactness::Exact);
            let (path, source) = (rule.programs.directory()?.clone(), rule.source.clone());
            let (access, binding) = (FsAccess::List, Binding::Seen);
            Some(FsRule { path, access, extent, binding, presence, exactness, source })
        };
        self.exec.rules().iter().filter_map(tree).collect()
    }

    /// True if something at or below a directory may be changed.
    pub(crate) fn changes_in(&self, directory: &HostPath) -> bool {
        let overlaps = |path: &Path| path.starts_with(directory) || directory.as_path().starts_with(path);
        self.rules().any(|rule| rule.access.changes() && overlaps(rule.path.as_path()))
    }

    /// Who says what is started: the broker too, unless that may be anything.
    #[must_use]
    pub fn starter(&self) -> Starter {
        if self.exec.is_judged() { Starter::Broker } else { Starter::Kernel }
    }

    /// Who writes: the broker, if any name is to be kept.
    #[must_use]
    pub fn writer(&self) -> Writer {
        if self.rules().all(|rule| rule.access != FsAccess::Kept) {
            Writer::Kernel
        } else if self.names().next().is_some() {
            Writer::BrokerReadsToo
        } else {
            Writer::Broker
        }
    }

    /// The single names that the broker has to open for reading as well ([`Writer::BrokerReadsToo`]).
    pub fn names(&self) -> impl Iterator<Item = &FsRule> {
        let is_name = |rule: &&FsRule| rule.access == FsAccess::Kept && rule.extent == Extent::Entry;
        self.rules().filter(is_name).filter(|rule| !self.is_in_a_tree(rule))
    }

    /// True if a tree that may be read holds it, by where both lead, so that the kernel knows whatever has its name.
    fn is_in_a_tree(&self, entry: &FsRule) -> bool {
        let at = self.real(entry.path.as_path());
        let mut trees = self.grants.iter().filter(|rule| rule.extent == Extent::Subtree);
        trees.any(|tree| at.starts_with(self.real(tree.path.as_path())))
    }
}

/// Work of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum CallWork {
    /// One of callgate's own tools, in the worker itself; its arguments follow in a frame of their own.
    Tool {
        /// The implementation's name, such as `read`.
        name: String,
        /// Paths that it works on, in the order of its arguments: files, or where a search starts. They, never what its
        /// arguments say, are what a tool opens: each argument was resolved and checked to become one of these.
        paths: Vec<HostPath>,
        /// The most of its result that is shown, in the tool's own unit: bytes, paths or matches (S0-48).
        limit: u64,
    },
    /// A program: argv, never empty. Looked up on the session's `PATH` when argv\[0\] has no slash.
    Program {
        /// The argument vector.
        argv: Vec<HostPath>,
        /// Where it starts; an absolute path.
        working_dir: HostPath,
        /// `NAME=value`, each in place of what the session's programs have by that name. A tool says this, never its arguments.
        env: Vec<HostPath>,
    },
}

impl CallWork {
    /// A program that starts with the session's variables.
    #[must_use]
    pub fn program(argv: Vec<HostPath>, working_dir: HostPath) -> Self {
        Self::Program { argv, working_dir, env: Vec::new() }
    }

    /// The program and its arguments; none for a tool.
    #[must_use]
    pub fn argv(&self) -> &[HostPath] {
        match self {
            Self::Program { argv, .. } => argv,
            Self::Tool { .. } => &[],
        }
    }
}

/// The file system rules of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallRules {
    /// All of its session's: a program does not say beforehand what it will open.
    OfSession,
    /// The session's rules for reading alone: nothing may be changed, and nothing started but what
    /// [`SessionPlan::reading`] lists.
    Reading,
    /// All of its session's to read and to execute, and of what that may change only what lies in these as well. A path among
    /// them is what it spells: one that a symbolic link leads elsewhere grants nothing.
    Narrowed(Vec<FsRule>),
    /// These.
    Own(Vec<FsRule>),
}

impl CallRules {
    /// The call's own, if it has less than its session.
    #[must_use]
    pub fn own(&self) -> &[FsRule] {
        match self {
            Self::OfSession | Self::Reading | Self::Narrowed(_) => &[],
            Self::Own(rules) => rules,
        }
    }
}

/// Plan of one call: always within the session's plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPlan {
    /// [`PROTOCOL_VERSION`].
    pub version: u32,
    /// The file system rules of the CallGrant.
    pub rules: CallRules,
    /// Regions that a search may tell of, where the kernel had to be told more than was granted (a pattern such as
    /// `src/**/*.py`). Empty if the rules say it all.
    pub within: Vec<PathRegion>,
    /// Files that a search leaves out, because rules deny them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<DeniedFiles>,
    /// Hosts that it may connect to of what the session may; `None` for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// A tool's file is where its path says, by no symbolic link: what let the call pass looked at that path.
    #[serde(default)]
    pub as_spelt: bool,
    /// It is a program of the host's beside the calls, whose servers on loopback the session's calls may reach.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub serves_session: bool,
    /// Work to run.
    pub work: CallWork,
    /// Resource limits, applied before anything else runs.
    pub limits: Vec<Limit>,
    /// Bounds that the call's init holds a program to, with all that it starts.
    pub bounds: Bounds,
    /// After this the call is killed, whole.
    pub timeout: Duration,
}
