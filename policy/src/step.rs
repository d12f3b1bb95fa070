//! The steps of confinement, by name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A step of confinement, or of what has to be done before one can start. The names are what results show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// Make an attempt to break out (`doctor --attack`).
    Attempt,
    /// Give up all capabilities (capabilities(7)).
    Capabilities,
    /// Enter a cgroup of the call's own (cgroups(7)).
    Cgroup,
    /// Make the channels between the session's processes.
    Channels,
    /// Remove what an earlier session has left.
    Clean,
    /// Close every descriptor that is not needed (close_range(2)).
    CloseFds,
    /// Switch core dumps off (core(5)).
    CoreDumps,
    /// Let a call's processes trace one another (ptrace(2)).
    Debug,
    /// Start the process that holds the network.
    Egress,
    /// Start the program (execve(2)).
    Exec,
    /// Know the processes that a call starts.
    Family,
    /// Fork a process (fork(2)).
    Fork,
    /// Become the session's user and group.
    Identity,
    /// Keep names that are protected.
    KeptNames,
    /// Enter a Landlock domain (landlock(7)).
    Landlock,
    /// Reach the launcher.
    Launcher,
    /// Set resource limits (setrlimit(2)).
    Limits,
    /// Build the private mount tree.
    Mounts,
    /// Enter namespaces (namespaces(7)).
    Namespaces,
    /// Set `no_new_privs` (prctl(2)).
    NoNewPrivs,
    /// Make a directory for what results have no room for.
    Outputs,
    /// Make the session's private directory.
    PrivateDir,
    /// Keep the files that the policy came from. That it fails says nothing of the host.
    Policy,
    /// Bound the processes of a session.
    Processes,
    /// Find and bound the programs that may be started.
    Programs,
    /// Understand a message.
    Protocol,
    /// Rehearse a call before the first.
    Rehearsal,
    /// Install a system call filter (seccomp(2)).
    Seccomp,
    /// Block and unblock signals around an exec (sigprocmask(2)).
    SignalMask,
    /// Take over the controlling terminal.
    Terminal,
    /// Take over the standard streams.
    Stdio,
    /// Start a zygote.
    Zygote,
    /// Open the session.
    Session,
    /// Make a worker.
    Worker,
    /// Close the supervisor's own process to others.
    Supervisor,
    /// Enter the directory in which the program starts.
    WorkingDir,
    /// Compare what is granted with what the supervisor saw. That it fails says nothing of the host.
    Replaced,
}

impl Step {
    /// The name that results show.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Attempt => "attempt",
            Self::Capabilities => "capabilities",
            Self::Cgroup => "cgroup",
            Self::Channels => "channels",
            Self::Clean => "clean",
            Self::CloseFds => "close_fds",
            Self::CoreDumps => "core_dumps",
            Self::Debug => "debug",
            Self::Egress => "egress",
            Self::Exec => "exec",
            Self::Family => "family",
            Self::Fork => "fork",
            Self::Identity => "identity",
            Self::KeptNames => "kept_names",
            Self::Landlock => "landlock",
            Self::Launcher => "launcher",
            Self::Limits => "limits",
            Self::Mounts => "mounts",
            Self::Namespaces => "namespaces",
            Self::NoNewPrivs => "no_new_privs",
            Self::Outputs => "outputs",
            Self::PrivateDir => "private_dir",
            Self::Policy => "policy",
            Self::Processes => "processes",
            Self::Programs => "programs",
            Self::Protocol => "protocol",
            Self::Rehearsal => "rehearsal",
            Self::Seccomp => "seccomp",
            Self::SignalMask => "signal_mask",
            Self::Terminal => "terminal",
            Self::Stdio => "stdio",
            Self::Zygote => "zygote",
            Self::Session => "session",
            Self::Worker => "worker",
            Self::Supervisor => "supervisor",
            Self::WorkingDir => "working_dir",
            Self::Replaced => "replaced",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
