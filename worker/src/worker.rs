//! The worker. It waits for a call's plan, confines itself and does the work, or starts the confined program and stays as
//! its init; it reports, and ends together with everything it started. Whatever reads what a model wrote does so once.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use callgate_policy::envelope::StepReport;
use callgate_policy::path::HostPath;
use callgate_policy::plan::{
    CallPlan, CallRules, Exactness, Extent, FsAccess, FsRule, Limit, PROTOCOL_VERSION, Presence, Resource, Work,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;

use crate::apply::{call, done, failure, kernel};
use crate::family;
use crate::protocol::{Channel, FromWorker, ProgramEnd, Received, Register, StepFailure, ToWorker, ToolEnd};
use crate::sys::process::{self, Ended, Exec, Pid};
use crate::tools;
use crate::zygote::{Trade, drain};

/// How long a worker that has spoken its last frame waits for the supervisor, milliseconds.
const LINGER: u8 = 50;
/// How long a call's processes may resist being killed; after that the worker gives up and the zygote goes on.
const SWEEP: Duration = Duration::from_secs(5);

/// What the workers of programs, and of tools that change things, have from their zygote: made once, by fork in each.
pub(crate) struct Programs {
    /// The ruleset of calls that may do all that the session may.
    pub(crate) ruleset: OwnedFd,
    /// The ruleset of tools: what was granted.
    pub(crate) grants: OwnedFd,
    /// What that ruleset holds, for reports.
    pub(crate) call_domain: String,
    pub(crate) landlock_abi: u8,
    /// The programs' environment, `NAME=value`.
    pub(crate) env: Vec<CString>,
    /// The directories of their `PATH`.
    pub(crate) path: Vec<PathBuf>,
}

/// What the workers of tools that only read have from theirs.
pub(crate) struct Readers {
    pub(crate) landlock_abi: u8,
}

impl Trade for Programs {
    const BROKERED: bool = true;
    const LEAVES: bool = true;

    fn work(&self, supervisor: &Channel, broker: &Channel) -> i32 {
        exit_code(self.serve(supervisor, broker))
    }
}

impl Trade for Readers {
    const BROKERED: bool = false;
    const LEAVES: bool = false;

    fn work(&self, supervisor: &Channel, _: &Channel) -> i32 {
        exit_code(self.serve(supervisor))
    }
}

/// For this process. Without a 0 the supervisor sees the end of the channel without a result.
fn exit_code(served: io::Result<()>) -> i32 {
    if served.is_err() { 70 } else { 0 }
}

/// A call as it comes, and the descriptors with it. `None` if there is nothing to do.
fn receive_call(channel: &Channel) -> io::Result<Option<(Box<CallPlan>, Vec<OwnedFd>)>> {
    loop {
        match channel.receive::<ToWorker>()? {
            Received::Message(ToWorker::Call(plan), fds) if plan.version == PROTOCOL_VERSION => {
                return Ok(Some((plan, fds)));
            }
            Received::Message(ToWorker::Call(plan), _) => {
                let failed = StepFailure::new("protocol", format!("a plan of version {}", plan.version));
                return channel.send(&FromWorker::Failed(failed), &[]).map(|()| None);
            }
            // For a program that had ended when this was sent.
            Received::Message(ToWorker::Signal(_) | ToWorker::Abort, _) => {}
            Received::Message(ToWorker::Arguments(_), _) | Received::Data(_) | Received::Closed => return Ok(None),
        }
    }
}

/// Takes its name, and reads and writes frames of no meaning, while nobody waits: every page that a fresh fork touches for
/// the first time is a fault, and most of those that a call needs are then behind it.
fn get_ready() -> io::Result<()> {
    rustix::thread::set_name(c"cg-worker")?;
    let rule = FsRule {
        path: "/".into(),
        access: FsAccess::Read,
        extent: Extent::File,
        presence: Presence::Optional,
        exactness: Exactness::Exact,
        source: "rehearsal".to_owned(),
    };
    let plan = CallPlan {
        version: PROTOCOL_VERSION,
        rules: CallRules::Own(vec![rule]),
        work: Work::Program { argv: vec!["true".into()], working_dir: "/".into() },
        limits: vec![Limit { resource: Resource::Core, max: 0 }],
        timeout: Duration::ZERO,
    };
    let call = ToWorker::Call(Box::new(plan));
    drop(serde_json::from_slice::<ToWorker>(&serde_json::to_vec(&call)?)?);
    let steps = (0..4).map(|_| done("rehearsal", format!("{} steps", 4))).collect();
    serde_json::to_vec(&FromWorker::Confined { steps }).map(drop).map_err(io::Error::from)
}

/// The same for a reader's result.
fn rehearse_result() -> io::Result<()> {
    let data = Some(serde_json::json!({ "content": "x".repeat(4096), "size": 4096 }));
    let end = FromWorker::ToolEnded(ToolEnd::Output { truncated: false, data });
    serde_json::to_vec(&end).map(drop).map_err(io::Error::from)
}

/// Waits until the supervisor has let go of the channel. It has just been woken with the end of a call, and this process
/// has only to end, which takes as long as a small call: that may well be later.
fn step_aside(channel: &Channel) {
    let mut fds = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
    // However this goes, the end is what follows.
    let _ended: Result<_, _> = poll(&mut fds, LINGER);
}

impl Readers {
    fn serve(&self, channel: &Channel) -> io::Result<()> {
        get_ready()?;
        rehearse_result()?;
        // It takes nothing away that a worker needs from here on, and longer than the rest of a call's confinement.
        let forkless = call::confine_ready_reader();
        let Some((plan, _)) = receive_call(channel)? else { return Ok(()) };
        let Work::Tool { name } = &plan.work else {
            return channel.send(&FromWorker::Failed(StepFailure::new("protocol", "a program for a reader")), &[]);
        };
        let confined = forkless.and_then(|step| call::confine_reader(step, &plan, self.landlock_abi, channel));
        tool(channel, &plan, name, confined)
    }
}

impl Programs {
    /// One tool, or one program after the other: a program runs in a process of its own, and when it has ended with all
    /// that it started, nothing of it is left here.
    fn serve(&self, channel: &Channel, broker: &Channel) -> io::Result<()> {
        // All that a program needs and that does not depend on it, while nobody waits.
        let init = family::become_subreaper()
            .map_err(failure("family", "become a subreaper"))
            .and_then(|()| process::children_as_fd().map_err(failure("family", "hear of children that end")));
        get_ready()?;
        while let Some((plan, fds)) = receive_call(channel)? {
            if let CallRules::Own(rules) = &plan.rules {
                narrow(rules, broker)?;
            }
            let (argv, working_dir) = match &plan.work {
                Work::Tool { name } => {
                    drop(init);
                    let confined = call::confine_tool(&plan, &self.grants, self.landlock_abi, channel);
                    return tool(channel, &plan, name, confined);
                }
                Work::Program { argv, working_dir } => (argv, working_dir),
            };
            let Ok(stdio) = <[OwnedFd; 3]>::try_from(fds) else {
                let failed = StepFailure::new("stdio", "a program needs three descriptors");
                return channel.send(&FromWorker::Failed(failed), &[]);
            };
            let signals = match &init {
                Ok(signals) => signals,
                Err(failed) => return channel.send(&FromWorker::Failed(failed.clone()), &[]),
            };
            let start = Start { inherited: self, plan: &plan, argv, working_dir };
            let Some(end) = program(channel, &start, signals, stdio)? else { return Ok(()) };
            channel.send(&FromWorker::Ended(end), &[])?;
            // Before it takes another.
            broker.send(&Register::Again { pid: process::id() }, &[])?;
        }
        Ok(())
    }
}

/// Tells the broker that this call may do less than the session, before anything that it starts can ask for something.
fn narrow(rules: &[FsRule], broker: &Channel) -> io::Result<()> {
    let write = rules.iter().filter(|rule| rule.access == FsAccess::Write).map(|rule| rule.path.clone()).collect();
    let read = rules.iter().map(|rule| rule.path.clone()).collect();
    broker.send(&Register::Call { pid: process::id(), write, read }, &[])
}

/// Confines this process, then reads the arguments, then works: in that order, because the arguments are hostile.
fn tool(
    channel: &Channel,
    plan: &CallPlan,
    name: &str,
    confined: Result<Vec<StepReport>, StepFailure>,
) -> io::Result<()> {
    match confined {
        Ok(steps) => channel.send(&FromWorker::Confined { steps }, &[])?,
        Err(failed) => return channel.send(&FromWorker::Failed(failed), &[]),
    }
    let arguments = match channel.receive::<ToWorker>()? {
        Received::Message(ToWorker::Arguments(arguments), _) => arguments,
        Received::Message(..) | Received::Data(_) | Received::Closed => return Ok(()),
    };
    work(channel, plan, name, &arguments)?;
    step_aside(channel);
    Ok(())
}

fn work(channel: &Channel, plan: &CallPlan, name: &str, arguments: &Value) -> io::Result<()> {
    let error = |text, errno| channel.send(&FromWorker::ToolEnded(ToolEnd::Error { text, errno }), &[]);
    let Some(rule) = plan.rules.own().first() else { return error("the plan names no path".to_owned(), None) };
    let context = tools::Context { path: rule.path.clone(), limit: tools::DEFAULT_LIMIT };
    match tools::run(name, arguments, &context) {
        Ok(output) => send_result(channel, output),
        Err(failed) => error(failed.text(), failed.errno()),
    }
}

/// In one frame if it fits, else in frames of its own before the last.
fn send_result(channel: &Channel, tools::Output { data, truncated }: tools::Output) -> io::Result<()> {
    let end = |data| FromWorker::ToolEnded(ToolEnd::Output { truncated, data });
    let whole = end(Some(data));
    if channel.send_if_it_fits(&whole)? {
        return Ok(());
    }
    if let FromWorker::ToolEnded(ToolEnd::Output { data: Some(data), .. }) = whole {
        channel.send_data(&serde_json::to_vec(&data)?)?;
    }
    channel.send(&end(None), &[])
}

/// A program to be started.
struct Start<'a> {
    inherited: &'a Programs,
    plan: &'a CallPlan,
    argv: &'a [HostPath],
    working_dir: &'a HostPath,
}

/// Starts the program and stays as its init: reaps what it orphans, passes signals on, ends all when it ends. `None` if it
/// could not be started; the supervisor has been told why.
fn program(
    channel: &Channel,
    wanted: &Start<'_>,
    signals: &OwnedFd,
    stdio: [OwnedFd; 3],
) -> io::Result<Option<ProgramEnd>> {
    let (pid, steps) = match start(wanted, &stdio) {
        Ok(started) => started,
        Err(failed) => return channel.send(&FromWorker::Failed(failed), &[]).map(|()| None),
    };
    drop(stdio);
    channel.send(&FromWorker::Confined { steps }, &[])?;
    let deadline = Instant::now().checked_add(wanted.plan.timeout);
    Init { channel, signals, main: pid, deadline }.run().map(Some)
}

fn start(wanted: &Start<'_>, stdio: &[OwnedFd; 3]) -> Result<(Pid, Vec<StepReport>), StepFailure> {
    let Start { inherited, plan, argv, working_dir } = *wanted;
    let own;
    let (ruleset, domain) = match &plan.rules {
        CallRules::OfSession => (&inherited.ruleset, inherited.call_domain.clone()),
        CallRules::Own(rules) => {
            let (ruleset, domain) = call::ruleset_for(rules, inherited.landlock_abi)?;
            own = ruleset;
            (&own, domain)
        }
    };
    let command = argv.first().ok_or_else(|| StepFailure::new("exec", "an empty argv"))?;
    let files = candidates(command, &inherited.path).map_err(|e| kernel("exec", "argv", e))?;
    let strings = |items: Vec<Vec<u8>>| -> Result<Vec<CString>, StepFailure> {
        items
            .into_iter()
            .map(|s| CString::new(s).map_err(|_nul| StepFailure::new("exec", "a NUL in an argument")))
            .collect()
    };
    let args = strings(argv.iter().map(|a| a.as_bytes().to_vec()).collect())?;
    let directory = strings(vec![working_dir.as_bytes().to_vec()])?;
    let limits = crate::apply::limit::raw(&plan.limits);
    let [input, output, error] = stdio;
    let exec = Exec {
        files: &files,
        argv: &args,
        env: &inherited.env,
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
fn candidates(command: &HostPath, path: &[PathBuf]) -> io::Result<Vec<CString>> {
    if command.as_bytes().contains(&b'/') {
        return Ok(vec![CString::new(command.as_bytes())?]);
    }
    path.iter().map(|dir| Ok(CString::new(dir.join(command).as_os_str().as_bytes())?)).collect()
}

/// The program's init.
struct Init<'a> {
    channel: &'a Channel,
    signals: &'a OwnedFd,
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
            Ok(Received::Message(ToWorker::Call(_) | ToWorker::Arguments(_), _) | Received::Data(_)) => Ok(true),
            Ok(Received::Message(ToWorker::Abort, _) | Received::Closed) | Err(_) => {
                process::kill(self.main, libc::SIGKILL)?;
                Ok(false)
            }
        }
    }

    /// Reaps all that has ended; the main program's end, if it is among them.
    fn reap(&self) -> io::Result<Option<Ended>> {
        drain(self.signals)?;
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
