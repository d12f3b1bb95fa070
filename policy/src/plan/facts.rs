//! Facts that a plan is made from besides rights, and reasons why there may be none.

use std::collections::BTreeMap;
use std::fmt;

use super::etc::Readable;
use super::{AskedFor, Calls, ClosedByRule, Identity, PrivateDir, Strength};
use crate::path::HostPath;

/// Facts about the host that the supervisor found out, as values.
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
    /// Part of `/etc` that everyone may read and that is no secret, beyond what [`super::system`] names.
    pub etc: Vec<Readable>,
    /// Parts of `/usr` and `/opt` that root owns and everybody may read ([`super::shared`]).
    pub shared: Vec<Readable>,
    /// Places to write in that were left of larger trees ([`EffectiveSet::left_of`](crate::effective::EffectiveSet::left_of)).
    pub left_of: BTreeMap<HostPath, HostPath>,
    /// Names without links of places that were asked for to write in, where they differ: inside, the links may not be
    /// there.
    pub asked_without_links: Vec<AskedFor>,
    /// All that was asked for to write in ([`EffectiveSet::asked_for`](crate::effective::EffectiveSet::asked_for)), of what this is a
    /// part of as well; also by its path without links.
    pub asked: Vec<AskedFor>,
    /// Places that rules close for writing, as far as a plan can close them.
    pub closed: Vec<ClosedByRule>,
    /// Home directories: what `~` may be in the settings of repositories.
    pub homes: Vec<HostPath>,
    /// The directories of `PATH`, each checked to hold nothing that the session, or an earlier one of the same workspace, can write.
    pub path: Vec<HostPath>,
    /// Those that are not in `path`, and why: for people.
    pub path_left_out: Vec<(HostPath, LeftOut)>,
    /// The supervisor's own environment; only names that are granted leave it.
    pub env: BTreeMap<String, HostPath>,
    /// Content of `~/.gitconfig` for programs: text that [`for_sessions`](super::protect::personal::for_sessions) has made.
    pub gitconfig: String,
}

/// Reason why a directory of the caller's `PATH` is not in the session's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftOut {
    /// No program could be read from it.
    NotReadable,
    /// A call could plant a program in it.
    Writable,
    /// A call of an earlier session could have planted one.
    Workspace,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReadable => "it is not granted for reading",
            Self::Writable => "calls can write there",
            Self::Workspace => "it lies in the workspace, where calls of an earlier session may have written",
        })
    }
}

/// Reason why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// `exact = true`, and the kernel cannot be told this pattern.
    #[error("{pattern} would be widened to all of {prefix}, and `exact = true` refuses that ({asked})")]
    Widened {
        /// The pattern, with variables expanded.
        pattern: String,
        /// Tree that it would become.
        prefix: HostPath,
        /// Who asked for it.
        asked: String,
    },
    /// `[env]` names what callgate decides.
    #[error("the environment variable {0} is set by callgate and can be neither passed nor set")]
    FixedVariable(String),
    /// `[env]` or `--env` has a value by which shells read command lines in another way than rules do.
    #[error(
        "the environment variable {name}={value}: a shell would read command lines in another way than rules do; leave it out, or \
         name a locale with UTF-8, such as C.UTF-8"
    )]
    Reading {
        /// The variable.
        name: String,
        /// Its value.
        value: HostPath,
    },
    /// `--env` names what decides which code programs run, where single programs are granted.
    #[error(
        "--env {0}: the variable decides what programs load or run, and this session grants single programs; if you mean it, \
         name it in the manifest's [env]"
    )]
    Steering(String),
    /// The supervisor gave a path that is not resolved.
    #[error("the path {0} is not absolute and resolved")]
    Path(HostPath),
}
