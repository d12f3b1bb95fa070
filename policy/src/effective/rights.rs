//! Rights of every kind together.

use crate::path::HostPath;
use crate::pattern::{Host, HostPattern};

use super::region::{PathRegion, Region, Scope, ShellRegion};

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

    /// True if a path may be read.
    #[must_use]
    pub fn allows_read(&self, path: &HostPath) -> bool {
        self.read.iter().any(|(region, _)| region.matches(path))
    }

    /// True if a path may be changed.
    #[must_use]
    pub fn allows_write(&self, path: &HostPath) -> bool {
        self.write.iter().any(|(region, _)| region.matches(path))
    }

    /// True if a host may be connected to.
    #[must_use]
    pub fn allows_host(&self, host: &Host, port: u16) -> bool {
        self.hosts.iter().any(|(pattern, _)| pattern.covers(host, port))
    }

    /// True if a program may be started with these arguments.
    #[must_use]
    pub fn allows_argv(&self, argv: &[HostPath]) -> bool {
        self.shell.iter().any(|(region, _)| region.matches(argv))
    }

    /// True if a named capability is granted.
    #[must_use]
    pub fn allows_capability(&self, name: &str) -> bool {
        self.capabilities.iter().any(|(capability, _)| capability == name)
    }

    /// These rights and others.
    pub(super) fn and(mut self, more: &Self) -> Self {
        fn add<T: Region>(all: &mut Scope<T>, more: &Scope<T>) {
            more.iter().for_each(|(region, origins)| all.add(region.clone(), origins.iter().cloned()));
        }
        add(&mut self.read, &more.read);
        add(&mut self.write, &more.write);
        add(&mut self.hosts, &more.hosts);
        add(&mut self.shell, &more.shell);
        add(&mut self.capabilities, &more.capabilities);
        self
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
}
