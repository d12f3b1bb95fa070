//! The interface between a worker and the tools that it carries out.
//!
//! A tool reads what a model and strangers wrote, with large libraries. None of that is part of this crate, which holds the
//! processes that confine: a host hands its [`Toolset`] to the launcher, and workers call it when they are confined.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use callgate_policy::failure::ErrorCode;
use callgate_policy::plan::CallPlan;
use serde_json::Value;

use crate::protocol::Threads;

/// How the name of a temporary file of a tool starts. The broker lets a tool make one wherever it lets the tool write a file, since the
/// file takes the other's place. A worker that is killed in the middle of a write leaves one behind.
pub const TEMPORARY_PREFIX: &str = ".callgate-";

/// The tools that workers carry out.
pub trait Toolset: Sync + std::fmt::Debug {
    /// The system calls that this tool needs besides those of every tool.
    fn kind(&self, name: &str) -> SyscallNeed;

    /// Carries out the tool that `plan` names. The process is confined to the plan by now.
    ///
    /// # Errors
    /// The operation that failed.
    fn run(&self, plan: &CallPlan, arguments: &Value, given: Given) -> Result<ToolResult, ToolFailure>;
}

/// The tools of a launcher and of all the processes that it forks.
pub type StaticToolset = &'static dyn Toolset;

/// A tool's need of system calls, which chooses the worker's filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyscallNeed {
    /// Nothing besides.
    Plain,
    /// It makes threads.
    Searches,
    /// It connects to hosts.
    Fetches,
    /// It connects to hosts, and makes threads, so as to wait for several answers.
    Asks,
}

impl SyscallNeed {
    /// True if it connects to hosts.
    #[must_use]
    pub fn connects(self) -> bool {
        matches!(self, Self::Fetches | Self::Asks)
    }

    /// The threads that its worker may make.
    #[must_use]
    pub fn threads(self) -> Threads {
        match self {
            Self::Searches | Self::Asks => Threads::OfItsOwn,
            Self::Plain | Self::Fetches => Threads::Never,
        }
    }
}

/// The resources of a tool's worker besides the plan and the arguments.
#[derive(Debug)]
pub struct Given {
    /// The number of threads that it may work with.
    pub threads: usize,
    /// The certificates of the host's authorities (PEM), for a tool that connects.
    pub certificates: Vec<u8>,
    /// The program that it talks to, if it does.
    pub peer: Option<Peer>,
}

/// The program that a tool talks to, by its streams.
#[derive(Debug)]
pub struct Peer {
    /// The program's standard input, to write to.
    pub input: OwnedFd,
    /// The program's standard output, to read from.
    pub output: OwnedFd,
    /// The program's standard error, to read from.
    pub errors: OwnedFd,
}

impl Peer {
    pub(crate) fn streams(&self) -> [BorrowedFd<'_>; 3] {
        [self.input.as_fd(), self.output.as_fd(), self.errors.as_fd()]
    }
}

/// A result, in the shape that C-27 gives the tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// The result.
    pub data: Value,
    /// True if the result was cut to the limit (S0-44).
    pub truncated: bool,
    /// The part that there was no room for, where it is not to be had otherwise: one entry to a line, as JSON.
    pub rest: Vec<u8>,
    /// True if there was more than is kept, also of the rest.
    pub lost: bool,
}

impl ToolResult {
    /// A result with all of its data, or with the rest left where it is: in the file that was read.
    #[must_use]
    pub fn of(data: Value, truncated: bool) -> Self {
        Self { data, truncated, rest: Vec::new(), lost: false }
    }
}

/// The reason why a tool gave no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFailure {
    /// The operation, its object, the cause and the next step, in one line.
    pub text: String,
    /// The kernel's error number, if the kernel refused or failed.
    pub errno: Option<i32>,
    /// The class of the error.
    pub code: ErrorCode,
}

/// The files in which distributions keep the certificates of authorities.
const CERTIFICATES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Bytes that are read of such a file, at most.
const CERTIFICATES_MAX: u64 = 8 << 20;

/// Reads the certificates of this host's authorities, before the worker is confined to its call: no tool reads `/etc`.
#[expect(clippy::disallowed_methods, reason = "files in /etc, which are root's")]
pub(crate) fn certificates() -> Vec<u8> {
    let read = |path: &&str| -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(CERTIFICATES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    CERTIFICATES.iter().filter_map(|path| read(path).ok()).find(|bytes| !bytes.is_empty()).unwrap_or_default()
}
