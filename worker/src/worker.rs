//! The worker: one call, once. It waits for its plan, confines itself, does the work or starts the program, reports,
//! and ends together with everything it started.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use callgate_policy::path::HostPath;
use callgate_policy::plan::{CallPlan, FsAccess, FsRule, PROTOCOL_VERSION, Work};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;

use crate::apply::{call, failure, kernel};
use crate::family;
use crate::protocol::{Channel, FromWorker, ProgramEnd, Received, Register, StepFailure, ToWorker, ToolEnd};
use crate::sys::process::{self, Ended, Exec, Pid};
use crate::tools;
use crate::zygote::{Inherited, drain};

/// How long a call's processes may resist being killed; after that the worker gives up and the zygote goes on.
const SWEEP: Duration = Duration::from_secs(5);

/// What a worker needs to know of its session.
pub(crate) struct SessionFacts {
    pub(crate) landlock_abi: u8,
    /// The rules of the session's plan: a call with the same ones uses the ruleset that is already built.
    pub(crate) rules: Vec<FsRule>,
    /// What that ruleset holds, for reports.
    pub(crate) call_domain: String,
    pub(crate) env: BTreeMap<String, HostPath>,
}

/// Runs one call. Returns the exit code for this process: 0 if the broker has nothing to forget.
pub(crate) fn run(channel: &Channel, inherited: &Inherited) -> i32 {
    match rustix::thread::set_name(c"cg-worker").map_err(io::Error::from).and_then(|()| serve(channel, inherited)) {
        Ok(Broker::KnowsNothing) => 0,
        Ok(Broker::MustForget) => 1,
        // The supervisor sees the end of the channel without a result.
        Err(_) => 70,
    }
}

/// What the broker knows of this worker when it ends.
enum Broker {
    KnowsNothing,
    /// The zygote tells it, since a confined tool cannot.
    MustForget,
}

fn serve(channel: &Channel, inherited: &Inherited) -> io::Result<Broker> {
    let (plan, fds) = match channel.receive::<ToWorker>()? {
        Received::Message(ToWorker::Call { mut plan, rules_of_session }, fds) => {
            if rules_of_session {
                plan.rules.clone_from(&inherited.session.rules);
            }
            (plan, fds)
        }
        Received::Message(..) | Received::Data(_) | Received::Closed => return Ok(Broker::KnowsNothing),
    };
    if plan.version != PROTOCOL_VERSION {
        let failed = StepFailure::new("protocol", format!("a plan of version {}", plan.version));
        channel.send(&FromWorker::Failed(failed), &[])?;
        return Ok(Broker::KnowsNothing);
    }
    let registered = register(&plan, inherited)?;
    match &plan.work {
        Work::Tool { name } => tool(channel, inherited, &plan, name)?,
        Work::Program { argv, working_dir } => {
            let Ok(stdio) = <[OwnedFd; 3]>::try_from(fds) else {
                let failed = StepFailure::new("stdio", "a program needs three descriptors");
                channel.send(&FromWorker::Failed(failed), &[])?;
                return Ok(Broker::MustForget);
            };
            program(channel, inherited, &plan, argv, working_dir, stdio)?;
            inherited.broker.send(&Register::Gone { pid: process::id() }, &[])?;
            return Ok(Broker::KnowsNothing);
        }
    }
    Ok(if registered { Broker::MustForget } else { Broker::KnowsNothing })
}

/// Tells the broker of the call, before anything that it starts can ask for something. A tool that only reads asks for
/// nothing; whatever asks in its name is nobody's, and refused.
fn register(plan: &CallPlan, inherited: &Inherited) -> io::Result<bool> {
    let write: Vec<HostPath> =
        plan.rules.iter().filter(|r| r.access == FsAccess::Write).map(|r| r.path.clone()).collect();
    if write.is_empty() && matches!(plan.work, Work::Tool { .. }) {
        return Ok(false);
    }
    let of_session = plan.rules == inherited.session.rules;
    let read = (!of_session).then(|| plan.rules.iter().map(|rule| rule.path.clone()).collect());
    inherited.broker.send(&Register::Call { pid: process::id(), call: plan.call, write, read }, &[])?;
    Ok(true)
}

/// Confines this process, then reads the arguments, then works: in that order, because the arguments are hostile.
fn tool(channel: &Channel, inherited: &Inherited, plan: &CallPlan, name: &str) -> io::Result<()> {
    match call::confine_tool(plan, &inherited.session, channel) {
        Ok(steps) => channel.send(&FromWorker::Confined { steps }, &[])?,
        Err(failed) => return channel.send(&FromWorker::Failed(failed), &[]),
    }
    let arguments = match channel.receive::<ToWorker>()? {
        Received::Message(ToWorker::Arguments(arguments), _) => arguments,
        Received::Message(..) | Received::Data(_) | Received::Closed => return Ok(()),
    };
    let end = work(channel, plan, name, &arguments)?;
    channel.send(&FromWorker::ToolEnded(end), &[])
}

fn work(channel: &Channel, plan: &CallPlan, name: &str, arguments: &Value) -> io::Result<ToolEnd> {
    let Some(rule) = plan.rules.first() else {
        return Ok(ToolEnd::Error { text: "the plan names no path".to_owned(), errno: None });
    };
    let context = tools::Context { path: rule.path.clone(), limit: tools::DEFAULT_LIMIT };
    match tools::run(name, arguments, &context) {
        Ok(output) => {
            channel.send_data(&serde_json::to_vec(&output.data)?)?;
            Ok(ToolEnd::Output { truncated: output.truncated })
        }
        Err(error) => Ok(ToolEnd::Error { text: error.text(), errno: error.errno() }),
    }
}

/// Starts the program and stays as its init: reaps what it orphans, passes signals on, ends all when it ends.
fn program(
    channel: &Channel,
    inherited: &Inherited,
    plan: &CallPlan,
    argv: &[HostPath],
    working_dir: &HostPath,
    stdio: [OwnedFd; 3],
) -> io::Result<()> {
    let init = family::become_subreaper()
        .map_err(failure("family", "become a subreaper"))
        .and_then(|()| process::children_as_fd().map_err(failure("family", "hear of children that end")));
    let started = init.and_then(|signals| Ok((signals, start(inherited, plan, argv, working_dir, &stdio)?)));
    let (signals, (pid, steps)) = match started {
        Ok(started) => started,
        Err(failed) => return channel.send(&FromWorker::Failed(failed), &[]),
    };
    drop(stdio);
    channel.send(&FromWorker::Confined { steps }, &[])?;
    let end = Init { channel, signals, main: pid, deadline: Instant::now().checked_add(plan.timeout) }.run()?;
    channel.send(&FromWorker::Ended(end), &[])
}

fn start(
    inherited: &Inherited,
    plan: &CallPlan,
    argv: &[HostPath],
    working_dir: &HostPath,
    stdio: &[OwnedFd; 3],
) -> Result<(Pid, Vec<callgate_policy::envelope::StepReport>), StepFailure> {
    let session = &inherited.session;
    let (ruleset, domain) = call::ruleset_for(plan, session, &inherited.ruleset)?;
    let path = session.env.get("PATH").map(|p| p.as_bytes().to_vec()).unwrap_or_default();
    let command = argv.first().ok_or_else(|| StepFailure::new("exec", "an empty argv"))?;
    let files = candidates(command, &path).map_err(|e| kernel("exec", "argv", e))?;
    let strings = |items: Vec<Vec<u8>>| -> Result<Vec<CString>, StepFailure> {
        items
            .into_iter()
            .map(|s| CString::new(s).map_err(|_nul| StepFailure::new("exec", "a NUL in an argument")))
            .collect()
    };
    let args = strings(argv.iter().map(|a| a.as_bytes().to_vec()).collect())?;
    let env = strings(session.env.iter().map(|(k, v)| [k.as_bytes(), b"=", v.as_bytes()].concat()).collect())?;
    let directory = strings(vec![working_dir.as_bytes().to_vec()])?;
    let limits = crate::apply::limit::raw(&plan.limits);
    let [input, output, error] = stdio;
    let exec = Exec {
        files: &files,
        argv: &args,
        env: &env,
        working_dir: directory.first().map_or(c"/", |d| d.as_c_str()),
        stdio: [input.as_fd(), output.as_fd(), error.as_fd()],
        landlock: ruleset.as_fd(),
        limits: &limits,
    };
    let spawned = process::spawn(&exec).map_err(|(step, e)| {
        let what = match step {
            process::SpawnStep::Exec => format!("start {command}"),
            process::SpawnStep::WorkingDir => format!("enter {working_dir}"),
            process::SpawnStep::Clone
            | process::SpawnStep::Session
            | process::SpawnStep::Stdio
            | process::SpawnStep::Limit
            | process::SpawnStep::CloseFds
            | process::SpawnStep::Landlock
            | process::SpawnStep::SignalMask => format!("{step:?}"),
        };
        kernel(step.name(), what, e)
    })?;
    Ok((spawned.pid, call::program_steps(plan, domain, spawned.landlocked)))
}

/// Where to look for a command: itself if it has a slash, else beneath each directory of PATH, as execvp(3).
fn candidates(command: &HostPath, path: &[u8]) -> io::Result<Vec<CString>> {
    let name = command.as_bytes();
    let joined = |dir: &[u8]| CString::new(Path::new(OsStr::from_bytes(dir)).join(command).as_os_str().as_bytes());
    if name.contains(&b'/') {
        return Ok(vec![CString::new(name)?]);
    }
    // An empty element would mean the working directory: a planted program (C12).
    path.split(|b| *b == b':').filter(|dir| dir.starts_with(b"/")).map(|dir| Ok(joined(dir)?)).collect()
}

/// The program's init.
struct Init<'a> {
    channel: &'a Channel,
    signals: OwnedFd,
    main: Pid,
    /// When its time is up; `None` for a time that no clock reaches.
    deadline: Option<Instant>,
}

impl Init<'_> {
    fn run(&self) -> io::Result<ProgramEnd> {
        let mut listening = true;
        let mut timed_out = false;
        loop {
            let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            if listening {
                fds.push(PollFd::new(self.channel.as_fd(), PollFlags::POLLIN));
            }
            match poll(&mut fds, if timed_out { PollTimeout::NONE } else { self.time_left() }) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            if !timed_out && self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                timed_out = true;
                process::kill(self.main, libc::SIGKILL)?;
            }
            if listening && fds.get(1).is_some_and(|fd| fd.any().unwrap_or(false)) {
                listening = self.command()?;
            }
            if let Some(end) = self.reap()? {
                return self.finish(end, timed_out);
            }
        }
    }

    /// Until the deadline, as poll(2) takes it: at most what fits, and looked at again then.
    fn time_left(&self) -> PollTimeout {
        let Some(deadline) = self.deadline else { return PollTimeout::NONE };
        let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    }

    /// Handles a frame from the supervisor. False once the program has been killed on its word, or because it is gone.
    fn command(&self) -> io::Result<bool> {
        match self.channel.receive::<ToWorker>() {
            Ok(Received::Message(ToWorker::Signal(signal), _)) => {
                // To the whole group, as a terminal does; a program that has left it is on its own.
                match process::kill(-self.main, signal) {
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(true),
                    other => other.map(|()| true),
                }
            }
            Ok(Received::Message(ToWorker::Call { .. } | ToWorker::Arguments(_), _) | Received::Data(_)) => Ok(true),
            Ok(Received::Message(ToWorker::Abort, _) | Received::Closed) | Err(_) => {
                process::kill(self.main, libc::SIGKILL)?;
                Ok(false)
            }
        }
    }

    /// Reaps all that has ended; the main program's end, if it is among them.
    fn reap(&self) -> io::Result<Option<Ended>> {
        drain(&self.signals)?;
        loop {
            match process::reap() {
                Ok(Some(end)) if end.pid == self.main => return Ok(Some(end)),
                Ok(Some(_orphan)) => {}
                Ok(None) => return Ok(None),
                Err(e) if e.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }

    /// The program has ended; now everything else that it started ends too.
    fn finish(&self, end: Ended, timed_out: bool) -> io::Result<ProgramEnd> {
        let killed = match process::reap() {
            Err(e) if e.raw_os_error() == Some(libc::ECHILD) => 0,
            _ => family::end_all(&|_| false, SWEEP)?.killed,
        };
        let (code, signal) = if libc::WIFSIGNALED(end.status) {
            (None, Some(libc::WTERMSIG(end.status)))
        } else {
            (Some(libc::WEXITSTATUS(end.status)), None)
        };
        Ok(ProgramEnd { code, signal, cpu_us: end.cpu_us, killed, timed_out })
    }
}
