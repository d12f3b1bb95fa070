//! Needs of one call: checked by layer 1, and part of the key under which a person's answer is kept.

use crate::path::HostPath;
use crate::sql::SqlNeed;

/// Acts of one call, worked out from its validated arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallNeeds {
    /// Files it reads, normalized ([`crate::path::normalize`]).
    pub read: Vec<HostPath>,
    /// Directories it reads all of that it may, as `grep` does.
    pub read_below: Vec<HostPath>,
    /// Files that it reads if it may and can do without, such as the ignore files above a directory that is searched.
    pub read_if_granted: Vec<HostPath>,
    /// Files it creates or changes, normalized.
    pub write: Vec<HostPath>,
    /// Programs it starts.
    pub shell: Option<ShellNeed>,
    /// Hosts it connects to.
    pub hosts: Vec<HostNeed>,
    /// Request to such a host, in words: rules are compared with it, and no watchdog has to ask what it may be.
    pub asks: Option<String>,
    /// Work for a database.
    pub sql: Option<SqlNeed>,
    /// Named capabilities.
    pub capabilities: Vec<String>,
}

impl CallNeeds {
    /// True if nothing is changed, started or reached: files are read, or nothing is.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        let changes = self.asks.is_some() || self.sql.as_ref().is_some_and(SqlNeed::changes);
        let acts = self.shell.is_some() || !self.hosts.is_empty() || !self.capabilities.is_empty();
        self.write.is_empty() && !acts && !changes
    }

    /// The command line, if that is what the call runs.
    #[must_use]
    pub fn command_line(&self) -> Option<&str> {
        match &self.shell {
            Some(ShellNeed::CommandLine { line }) => Some(line),
            Some(ShellNeed::Program { .. }) | None => None,
        }
    }
}

/// A host and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNeed {
    /// As the call names it.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Program or command line that a call starts. A program names no files, so the call keeps all paths and hosts that are
/// in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellNeed {
    /// This program. `argv[0]` is a bare name or an absolute path.
    Program {
        /// The argument vector.
        argv: Vec<HostPath>,
    },
    /// A command line; each program in it is judged where it starts.
    CommandLine {
        /// As the shell reads it.
        line: String,
    },
}
