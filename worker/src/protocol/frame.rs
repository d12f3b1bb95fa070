//! The messages themselves.

use std::fmt;

use callgate_policy::envelope::{Carried, Changes, StepReport};
use callgate_policy::failure::ErrorCode;
use callgate_policy::limit::LimitName;
use callgate_policy::path::HostPath;
use callgate_policy::plan::{CallPlan, Network, SessionPlan};
use callgate_policy::step::Step;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::channel::{ChannelMessage, FRAME_MAX, LARGE};
use super::egress::{ConnectionMade, FromEgress, Reached, Serve, ToEgress};
use super::fds::{ProgramFdsSent, SessionFdsSent};

/// Most bytes of an error's text: escaped, it fits into a frame still.
const TEXT_MAX: usize = 4096;

/// A text that is no longer than an error's may be. It may be about what somebody wrote, and that is as long as they like.
pub(crate) fn shortened(text: String) -> String {
    shortened_to(TEXT_MAX, text)
}

/// A text of at most so many bytes, without the mark that there was more.
pub(crate) fn shortened_to(most: usize, mut text: String) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
    text
}

/// Most bytes of what a broker reports: what it remembers of a call, and of a session's confinement.
const REPORT_MAX: usize = 1024 * 1024;

macro_rules! longest {
    ($($message:ty: $longest:expr;)*) => { $(impl ChannelMessage for $message { const LONGEST: usize = $longest; })* };
}

longest! {
    // Of a worker, a program's or a tool's, which may have been taken over.
    FromWorker: FRAME_MAX;
    SessionReply: REPORT_MAX;
    FromZygote: FRAME_MAX;
    Leftover: FRAME_MAX;
    // With an argument vector, whole.
    AboutToRun: LARGE;
    // With the paths of a plan.
    OpenSession: LARGE;
    Register: LARGE;
    // With arguments, whole.
    ToWorker: LARGE;
    ToZygote: FRAME_MAX;
    ToBroker: FRAME_MAX;
    MayRun: REPORT_MAX;
    // With what was granted.
    Serve: LARGE;
    ToEgress: LARGE;
    ConnectionMade: FRAME_MAX;
    // It parses what strangers wrote.
    Reached: FRAME_MAX;
    FromEgress: FRAME_MAX;
    Carried: FRAME_MAX;
    AtEndpoint: FRAME_MAX;
}

/// From the launcher: what a session has left on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leftover {
    /// Nobody could remove it.
    Directory {
        /// Where.
        path: String,
        /// Reason why it stays, if that is known.
        errno: Option<i32>,
    },
    /// It was killed, and does not end.
    Process {
        /// Its number on the host.
        pid: i32,
        /// Name that it calls itself.
        name: String,
    },
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { path, errno } => {
                write!(f, "{path} is left, for it could not be removed{}", errno_text(errno))
            }
            Self::Process { pid, name } => {
                write!(f, "process {pid} ({}) is left: it was killed, and does not end", name.escape_debug())
            }
        }
    }
}

/// Supervisor to launcher: make a broker for this session. Carries the broker's end of the session, and, where the plan has a
/// directory for what results have no room for, that of its parent and its own; last, what its egress adds to requests.
#[derive(Debug, Serialize, Deserialize)]
pub struct OpenSession {
    /// Plan of what the session may do.
    pub plan: SessionPlan,
    /// True if the last descriptor is a file with [`SealedCredential`](super::SealedCredential)s, for its egress and
    /// nobody else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub credentials: bool,
}

/// Broker to supervisor: once, and then when it is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionReply {
    /// The session stands. Carries its [`SessionFds`](super::SessionFds).
    Ready {
        /// Steps that confined it.
        steps: SessionSteps,
        /// Which descriptors come with it.
        fds: SessionFdsSent,
    },
    /// A step failed; nothing runs.
    Failed(StepFailure),
    /// Later, asked for.
    Report {
        /// The number of the question.
        question: u64,
        /// Changes by the call.
        changes: Box<Changes>,
        /// Questions that were not sent to the log since the last that was, if questions are logged.
        #[serde(default, skip_serializing_if = "is_none")]
        lost: u64,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_none(lost: &u64) -> bool {
    *lost == 0
}

/// Steps that confined a session, each confirmed, in order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SessionSteps {
    /// All of its processes.
    pub common: Vec<StepReport>,
    /// The programs' side.
    pub programs: Vec<StepReport>,
    /// The readers' side.
    pub readers: Vec<StepReport>,
}

/// Supervisor to broker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToBroker {
    /// Say what a worker's call has changed.
    Report {
        /// Which.
        worker: u64,
        /// To tell its answer from that to another, which nobody waited for.
        question: u64,
        /// True if it has ended; then the broker keeps nothing of it.
        is_over: bool,
    },
}

/// Tracer to supervisor: a program stands before its first instruction.
#[derive(Debug, Serialize, Deserialize)]
pub struct AboutToRun {
    /// To tell the answers apart.
    pub question: u64,
    /// Program that it runs, by the name that the session has for it.
    pub program: HostPath,
    /// The kernel's own copy of its arguments.
    pub argv: Vec<HostPath>,
}

/// Supervisor to tracer.
#[derive(Debug, Serialize, Deserialize)]
pub struct MayRun {
    /// Which question it answers.
    pub question: u64,
    /// Reason why it may not.
    pub refused: Option<String>,
}

/// A step of confinement that failed. The errno stays a number: it is looked at, not read aloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step}: {what}{}", errno_text(.errno))]
#[non_exhaustive]
pub struct StepFailure {
    /// Which.
    pub step: Step,
    /// The operation and its object.
    pub what: String,
    /// The kernel's answer, if it was the kernel's.
    pub errno: Option<i32>,
}

impl StepFailure {
    /// The operation and the kernel's answer, without the step.
    #[must_use]
    pub fn what_failed(&self) -> String {
        format!("{}{}", self.what, errno_text(&self.errno))
    }

    /// True if a path that a rule names is not there (ENOENT, ENOTDIR): not the host's fault.
    #[must_use]
    pub fn is_missing_path(&self) -> bool {
        matches!((self.step, self.errno), (Step::Landlock | Step::Mounts, Some(libc::ENOENT | libc::ENOTDIR)))
    }

    /// Limit that has to be raised, if a step failed for a limit: the host does not refuse it, and would do it another
    /// time.
    #[must_use]
    pub fn limit(&self) -> Option<&'static str> {
        match self.errno? {
            libc::EMFILE => Some("open files of a process (ulimit -n)"),
            libc::ENFILE => Some("open files of the host (sysctl fs.file-max)"),
            libc::EAGAIN => Some("processes (ulimit -u, or pids.max of the cgroup)"),
            libc::ENOMEM => Some("memory (of the host, or memory.max of the cgroup)"),
            libc::ENOSPC => {
                Some("namespaces or mounts (sysctl user.max_*_namespaces, fs.mount-max), or space on a disk")
            }
            _ => None,
        }
    }
}

fn errno_text(errno: &Option<i32>) -> String {
    errno.map(|e| format!(": {}", std::io::Error::from_raw_os_error(e))).unwrap_or_default()
}

/// Permission of a worker to make threads (`callgate_policy::plan::seccomp`). Settled when it is made ready, before its
/// call is known: a search gets a worker that may, every other call one that may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Threads {
    /// It has one.
    Never,
    /// Threads of its own process.
    OfItsOwn,
}

/// Supervisor to zygote.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToZygote {
    /// Fork a worker that waits for its call.
    Prepare {
        /// Chosen by the supervisor, unique in the session.
        worker: u64,
        /// Permission to make threads.
        threads: Threads,
    },
    /// Kill a worker that was asked to end and did not.
    Kill {
        /// Which.
        worker: u64,
    },
}

/// Zygote to supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromZygote {
    /// A worker waits. Carries one descriptor: the supervisor's end of its channel.
    Prepared {
        /// Which.
        worker: u64,
    },
    /// It could not be forked.
    NotPrepared {
        /// Which.
        worker: u64,
        /// fork(2)'s errno.
        errno: i32,
    },
    /// A worker that was to be killed is gone, and so is everything it started.
    Gone {
        /// Which.
        worker: u64,
    },
}

/// Supervisor to worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToWorker {
    /// The call. A program's carries its [`ProgramFds`](super::ProgramFds).
    Call {
        /// Plan of the work.
        plan: Box<CallPlan>,
        /// Which descriptors come with it, if it is a program's.
        fds: ProgramFdsSent,
    },
    /// A tool's arguments: what the model wrote. The worker reads this frame only when it is confined.
    Arguments(Value),
    /// Pass a signal to the program.
    Signal(i32),
    /// End the call, and everything it started.
    Abort,
}

/// Worker to supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromWorker {
    /// The call's own steps were done, each confirmed; for a program, it has been started.
    Confined {
        /// In order.
        steps: Vec<StepReport>,
    },
    /// A step failed; nothing ran.
    Failed(StepFailure),
    /// The program ended, and nothing that it started is left, or the report says otherwise. The worker may be given another call
    /// unless something is.
    Ended(ProgramEnd),
    /// The data that follows is what the result had no room for (S0-44), not the result.
    Rest,
    /// The tool's result is complete: its data came in frames of their own.
    ToolEnded(ToolEnd),
}

/// How a program ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProgramEnd {
    /// Its exit status, if it exited.
    pub code: Option<i32>,
    /// The signal that killed it, if one did.
    pub signal: Option<i32>,
    /// CPU time of the program and of the children that were waited for, microseconds.
    pub cpu_us: u64,
    /// Processes that it had left behind and that were killed.
    pub killed: u32,
    /// Processes that are still there though they were killed and waited for, a minute long. The session ends with that.
    pub left: u32,
    /// Its time was up, and it was killed.
    pub timed_out: bool,
    /// It passed another limit, and was killed with all that it had started.
    pub hit: Option<LimitHit>,
    /// The most that it used, with all that it had started.
    pub used: Used,
    /// A cgroup of its own held its memory and processes.
    pub grouped: bool,
}

/// A limit that a program passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LimitHit {
    /// Which.
    pub limit: LimitName,
    /// Amount that was used when that was seen, in the limit's own unit.
    pub used: u64,
}

impl LimitHit {
    /// This limit was passed with `used` in use, in the limit's own unit; 0 if that is not known.
    #[must_use]
    pub fn new(limit: LimitName, used: u64) -> Self {
        Self { limit, used }
    }
}

/// The most that was seen in use at once, or over all its life. Who ends sooner than the first look is hardly seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Used {
    /// Processor time, milliseconds.
    pub cpu_ms: u64,
    /// Memory, bytes; an estimate that is never too small.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Bytes written to storage; `None` if nobody looked.
    pub disk: Option<u64>,
}

/// How a tool ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolEnd {
    /// With a result.
    Output {
        /// It was cut to the tool's limit.
        truncated: bool,
        /// There was more than the tool keeps, also of what the result had no room for.
        lost: bool,
        /// The result; `None` if it came in frames of its own, since it is too long for this one.
        data: Option<Value>,
    },
    /// With an error.
    Error {
        /// Message: what went wrong, and the next step.
        text: String,
        /// The kernel's answer, where that was the cause.
        errno: Option<i32>,
        /// Kind of error.
        code: ErrorCode,
    },
}

/// Zygote and worker to broker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Register {
    /// This worker and all that it will start belong together, and may do what the session may. With an eventfd, which tells
    /// the worker that the broker was asked by one of its call.
    Worker {
        /// In the session's PID namespace.
        pid: i32,
        /// As the supervisor numbers it.
        worker: u64,
    },
    /// They may do less: from the worker, before anything untrusted runs.
    Call {
        /// In the session's PID namespace.
        pid: i32,
        /// Trees that may be changed.
        trees: Vec<HostPath>,
        /// Single names that may be.
        names: Vec<HostPath>,
        /// Trees and files that may be read.
        read: Vec<HostPath>,
    },
    /// They may read what the session may, and change less: as above, from the worker, before anything untrusted runs.
    Narrowed {
        /// In the session's PID namespace.
        pid: i32,
        /// Trees that may be changed. One to which its own path does not lead without links counts as none.
        trees: Vec<HostPath>,
        /// Single names that may be, likewise.
        names: Vec<HostPath>,
    },
    /// They may change nothing and start only what reads: as above, from the worker, before anything untrusted runs.
    Reading {
        /// In the session's PID namespace.
        pid: i32,
    },
    /// They are a program of the host's beside the calls, whose servers on loopback these may reach: as above, from the worker,
    /// before anything of it runs.
    Serves {
        /// In the session's PID namespace.
        pid: i32,
    },
    /// They are the program that is the session's agent, and may connect to its endpoint: as above, from the worker, before anything
    /// of it runs. Carries the channel on which the broker hands over each connection, as [`AtEndpoint`].
    Endpoint {
        /// In the session's PID namespace.
        pid: i32,
    },
    /// They may connect to less: as above, from the worker, before anything untrusted runs.
    Network {
        /// In the session's PID namespace.
        pid: i32,
        /// Part of the session's network that they may connect to.
        network: Network,
    },
    /// The worker's program is gone with all that it started: from the worker, which may be given another. Only of a call
    /// that had asked, might do less than the session, or served it.
    Again {
        /// In the session's PID namespace.
        pid: i32,
    },
    /// They are gone.
    Gone {
        /// In the session's PID namespace.
        pid: i32,
    },
}

/// Broker to supervisor, on the channel that came with the program of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtEndpoint {
    /// The program has connected. Carries the other end: a stream.
    Connected,
}
