//! Rights of every kind together, and a bound on them.

use crate::path::HostPath;
use crate::pattern::{Host, HostPattern};

use super::origin::Source;
use super::region::{PathRegion, Scope, ShellRegion};

/// Rights of every kind.
///
/// Invariant: what may be written may be read; `write` lies within `read`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights {
    pub(crate) read: Scope<PathRegion>,
    pub(crate) write: Scope<PathRegion>,
    pub(crate) hosts: Scope<HostPattern>,
    pub(crate) shell: Scope<ShellRegion>,
    pub(crate) capabilities: Scope<String>,
}

impl Rights {
    /// Paths to read.
    #[must_use]
    pub fn read(&self) -> &Scope<PathRegion> {
        &self.read
    }

    /// Paths to change.
    #[must_use]
    pub fn write(&self) -> &Scope<PathRegion> {
        &self.write
    }

    /// Hosts to connect to.
    #[must_use]
    pub fn hosts(&self) -> &Scope<HostPattern> {
        &self.hosts
    }

    /// Programs to start.
    #[must_use]
    pub fn shell(&self) -> &Scope<ShellRegion> {
        &self.shell
    }

    /// Named capabilities.
    #[must_use]
    pub fn capabilities(&self) -> &Scope<String> {
        &self.capabilities
    }

    /// Whether a path may be read.
    #[must_use]
    pub fn allows_read(&self, path: &HostPath) -> bool {
        self.read.iter().any(|(region, _)| region.matches(path))
    }

    /// Whether a path may be changed.
    #[must_use]
    pub fn allows_write(&self, path: &HostPath) -> bool {
        self.write.iter().any(|(region, _)| region.matches(path))
    }

    /// Whether a host may be connected to.
    #[must_use]
    pub fn allows_host(&self, host: &Host, port: u16) -> bool {
        self.hosts.iter().any(|(pattern, _)| pattern.covers(host, port))
    }

    /// Whether a program may be started with these arguments.
    #[must_use]
    pub fn allows_argv(&self, argv: &[HostPath]) -> bool {
        self.shell.iter().any(|(region, _)| region.matches(argv))
    }

    /// Whether a named capability is granted.
    #[must_use]
    pub fn allows_capability(&self, name: &str) -> bool {
        self.capabilities.iter().any(|(capability, _)| capability == name)
    }

    pub(super) fn reduced(&self) -> Self {
        Self {
            read: self.read.reduced(),
            write: self.write.reduced(),
            hosts: self.hosts.reduced(),
            shell: self.shell.reduced(),
            capabilities: self.capabilities.reduced(),
        }
    }

    pub(super) fn meet(&self, other: &Self) -> Self {
        Self {
            read: self.read.meet(&other.read),
            write: self.write.meet(&other.write),
            hosts: self.hosts.meet(&other.hosts),
            shell: self.shell.meet(&other.shell),
            capabilities: self.capabilities.meet(&other.capabilities),
        }
    }
}

/// The most that someone grants: an operator's or a person's ceiling, or what a parent session may delegate (X0-1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    source: Source,
    rights: Option<Rights>,
}

impl Bound {
    /// Whatever the environment offers: the ceiling by default, so that a tool's requirements take effect without a
    /// second edit (S0-8, C-1).
    #[must_use]
    pub fn unlimited(source: Source) -> Self {
        Self { source, rights: None }
    }

    /// No more than these rights.
    #[must_use]
    pub fn at_most(source: Source, rights: Rights) -> Self {
        Self { source, rights: Some(rights) }
    }

    /// Whose it is.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    pub(super) fn rights(&self) -> Option<&Rights> {
        self.rights.as_ref()
    }
}
