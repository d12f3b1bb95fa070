//! The worker. It waits for a call's plan, confines itself and does the work, or starts the confined program and stays as
//! its init; it reports, and ends together with everything it started. Whatever reads what a model wrote does so once.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use callgate_policy::envelope::StepReport;
use callgate_policy::failure::ErrorCode;
use callgate_policy::limit::{Bounds, LimitName, Limits};
use callgate_policy::path::HostPath;
use callgate_policy::plan::{
    Binding, CallPlan, CallRules, CallWork, Calls, ENDPOINT, ENDPOINT_VARIABLE, Exactness, Extent, FsAccess, FsRule,
    Limit, Mechanism, PROTOCOL_VERSION, Presence, Resource, SessionPlan,
};
use callgate_policy::step::Step;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;

use crate::apply::landlock::{self, SignalsStayBelow};
use crate::apply::{call, done, failure, kernel};
use crate::family;
use crate::meter::{Counters, Meter, MeterBase};
use crate::probe;
use crate::procfs::{OWN, Procfs, keep_own};
use crate::protocol::{
    CgroupFds, Channel, FromWorker, LimitHit, ProgramEnd, ProgramFds, ProgramFdsSent, Received, Register, StepFailure,
    Threads, ToWorker, ToolEnd, shortened,
};
use crate::sys::fd;
use crate::sys::process::{self, ExecArguments, Fork, OneThread, Pid, ProcessEnd};
use crate::toolset::{self, Given, Peer, StaticToolset, ToolResult};
use crate::zygote::{Trade, drain};

/// How often to look whether a program that was killed has ended, milliseconds, should nobody tell.
const A_WHILE: u8 = 250;
/// How long a program that was killed takes to end, at most. Whatever it started ends with it then.
const AT_ONCE: Duration = Duration::from_millis(500);
/// How long a worker that has spoken its last frame waits for the supervisor, milliseconds.
const LINGER: u8 = 50;

/// Possessions of the workers of programs, and of tools that change things, from their zygote: made once, by fork in each.
pub(crate) struct Programs {
    /// The ruleset of calls that may do all that the session may.
    pub(crate) ruleset: OwnedFd,
    /// The ruleset of tools: what was granted.
    pub(crate) grants: OwnedFd,
    /// The ruleset of calls that only read, and what it holds, in a session that has such.
    pub(crate) reading: Option<(OwnedFd, String)>,
    /// Description of what the first ruleset holds, for reports.
    pub(crate) call_domain: String,
    pub(crate) landlock_abi: u8,
    /// Number of calls that the rulesets are for: one, or all of the session.
    pub(crate) calls: Calls,
    /// The programs' environment, `NAME=value`.
    pub(crate) env: Vec<CString>,
    /// The directories of their `PATH`.
    pub(crate) path: Vec<PathBuf>,
    /// Places that they may write.
    pub(crate) writable: Vec<PathBuf>,
    /// A procfs that hides nobody from who watches programs, which theirs does; `None` where theirs is the host's.
    pub(crate) procfs: Option<OwnedFd>,
    /// Keeps a worker's signals to what it started; `None` before Landlock's ABI 6.
    pub(crate) signal_scope: Option<OwnedFd>,
    /// Attempts that run in their stead, in a session that is for that.
    pub(crate) attempts: Option<AblatedAttempts>,
    /// The tools that they carry out.
    pub(crate) tools: StaticToolset,
}

/// Attempts to break out in a session for these, made without some mechanism: neither program nor tool runs in it, only
/// acts of the probe that is part of this very program.
#[derive(Clone, Copy)]
pub(crate) struct AblatedAttempts {
    landlock: bool,
}

impl AblatedAttempts {
    /// `None` for every other session.
    pub(crate) fn of(plan: &SessionPlan) -> Option<Self> {
        plan.ablation.as_ref().map(|_| Self { landlock: plan.keeps(Mechanism::Landlock) })
    }
}

/// Possessions of the workers of tools that only read, from their zygote.
pub(crate) struct Readers {
    pub(crate) landlock_abi: u8,
    pub(crate) attempts: Option<AblatedAttempts>,
    /// The tools that they carry out.
    pub(crate) tools: StaticToolset,
}

impl Trade for Programs {
    const BROKERED: bool = true;
    const LEAVES: bool = true;

    fn work(&self, supervisor: &Channel, broker: &Channel, _: Threads, asked: Option<OwnedFd>) -> i32 {
        exit_code(self.serve(supervisor, broker, asked))
    }
}

impl Trade for Readers {
    const BROKERED: bool = false;
    const LEAVES: bool = false;

    fn work(&self, supervisor: &Channel, _: &Channel, threads: Threads, _: Option<OwnedFd>) -> i32 {
        exit_code(self.serve(supervisor, threads))
    }
}

/// For this process. Without a 0 the supervisor sees the end of the channel without a result.
fn exit_code(served: io::Result<()>) -> i32 {
    if served.is_err() { 70 } else { 0 }
}

/// A call, and the descriptors with it if they are those that it speaks of.
type ReceivedCall = (Box<CallPlan>, Option<ProgramFds<OwnedFd>>);

/// A call as it comes, and the descriptors with it. `None` if there is nothing to do.
fn receive_call(channel: &Channel) -> io::Result<Option<ReceivedCall>> {
    loop {
        match channel.receive::<ToWorker>()? {
            Received::Message(ToWorker::Call { plan, fds: sent }, fds) if plan.version == PROTOCOL_VERSION => {
                return Ok(Some((plan, sent.receive(fds))));
            }
            Received::Message(ToWorker::Call { plan, .. }, _) => {
                let failed = StepFailure::new(Step::Protocol, format!("a plan of version {}", plan.version));
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
        binding: Binding::Name,
        presence: Presence::Optional,
        exactness: Exactness::Exact,
        source: "rehearsal".to_owned(),
    };
    let plan = CallPlan {
        version: PROTOCOL_VERSION,
        rules: CallRules::Own(vec![rule]),
        within: Vec::new(),
        without: Vec::new(),
        network: None,
        as_spelt: false,
        serves_session: false,
        work: CallWork::program(vec!["true".into()], "/".into()),
        limits: vec![Limit { resource: Resource::OpenFiles, max: 1024 }],
        bounds: Bounds::of(&Limits::default(), 0),
        timeout: Duration::ZERO,
    };
    let call = ToWorker::Call { plan: Box::new(plan), fds: ProgramFdsSent::default() };
    drop(serde_json::from_slice::<ToWorker>(&serde_json::to_vec(&call)?)?);
    let steps = (0..4).map(|_| done(Step::Rehearsal, format!("{} steps", 4))).collect();
    serde_json::to_vec(&FromWorker::Confined { steps }).map(drop).map_err(io::Error::from)
}

/// Rehearses a reader's result.
fn rehearse_result() -> io::Result<()> {
    let data = Some(serde_json::json!({ "content": "x".repeat(4096), "size": 4096 }));
    let end = FromWorker::ToolEnded(ToolEnd::Output { truncated: false, lost: false, data });
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
    fn serve(&self, channel: &Channel, threads: Threads) -> io::Result<()> {
        get_ready()?;
        rehearse_result()?;
        // It takes nothing away that a worker needs from here on, and longer than the rest of a call's confinement.
        let forkless = call::confine_ready_reader(threads);
        let Some((plan, fds)) = receive_call(channel)? else { return Ok(()) };
        let CallWork::Tool { .. } = &plan.work else {
            return channel.send(&FromWorker::Failed(StepFailure::new(Step::Protocol, "a program for a reader")), &[]);
        };
        if self.attempts.is_some() {
            return channel.send(&FromWorker::Failed(no_tools()), &[]);
        }
        let peer = fds.map(peer);
        let keep: Vec<BorrowedFd<'_>> = peer.iter().flat_map(Peer::streams).chain([channel.as_fd()]).collect();
        let confined = forkless.and_then(|step| call::confine_reader(step, &plan, self.landlock_abi, &keep));
        let given = Given { threads: count(threads), certificates: Vec::new(), peer };
        tool(channel, &plan, (self.tools, given), confined)
    }
}

impl Programs {
    /// One tool, or one program after the other: a program runs in a process of its own, and when it has ended with all
    /// that it started, nothing of it is left here.
    fn serve(&self, channel: &Channel, broker: &Channel, asked: Option<OwnedFd>) -> io::Result<()> {
        // All that a program needs and that does not depend on it, while nobody waits.
        let init = family::become_subreaper()
            .map_err(failure(Step::Family, "become a subreaper"))
            .and_then(|()| process::children_as_fd().map_err(failure(Step::Family, "hear of children that end")));
        get_ready()?;
        let scope = match self.signal_scope.as_ref().map(landlock::keep_signals_below).transpose() {
            Ok(scope) => scope,
            Err(failed) => {
                return receive_call(channel)?.map_or(Ok(()), |_| channel.send(&FromWorker::Failed(failed), &[]));
            }
        };
        let procfs = self.procfs.as_ref().map_or(Procfs::USUAL, |root| Procfs::at(root.as_fd()));
        let counters = Counters::open(procfs);
        let mut base = MeterBase::now(&counters, &self.writable);
        while let Some((plan, fds)) = receive_call(channel)? {
            match &plan.rules {
                CallRules::OfSession => {}
                CallRules::Own(rules) => narrow(rules, broker)?,
                CallRules::Narrowed(rules) => {
                    let (trees, names) = to_change(rules);
                    broker.send(&Register::Narrowed { pid: process::id(), trees, names }, &[])?;
                }
                CallRules::Reading => broker.send(&Register::Reading { pid: process::id() }, &[])?,
            }
            if let Some(network) = plan.network.clone() {
                broker.send(&Register::Network { pid: process::id(), network }, &[])?;
            }
            if plan.serves_session {
                broker.send(&Register::Serves { pid: process::id() }, &[])?;
            }
            let (argv, working_dir, env) = match &plan.work {
                CallWork::Tool { .. } if self.attempts.is_some() => {
                    return channel.send(&FromWorker::Failed(no_tools()), &[]);
                }
                CallWork::Tool { name, .. } => {
                    drop((init, counters, asked));
                    let kind = self.tools.kind(name);
                    // Before it is confined to its call.
                    let certificates = if kind.connects() { toolset::certificates() } else { Vec::new() };
                    let confined = call::confine_tool(&plan, &self.grants, self.landlock_abi, kind, channel);
                    let given = Given { threads: count(kind.threads()), certificates, peer: None };
                    return tool(channel, &plan, (self.tools, given), confined);
                }
                CallWork::Program { argv, working_dir, env } => (argv, working_dir, env),
            };
            let Some((streams, endpoint, group)) = fds.map(descriptors) else {
                let what = "other descriptors came than the call speaks of";
                let failed = StepFailure::new(Step::Stdio, what);
                return channel.send(&FromWorker::Failed(failed), &[]);
            };
            let has_endpoint = endpoint.is_some();
            if let Some(endpoint) = endpoint {
                // Held on by this process as well, it would not end with the call.
                broker.send(&Register::Endpoint { pid: process::id() }, &[endpoint.as_fd()])?;
            }
            let signals = match &init {
                Ok(signals) => signals,
                Err(failed) => return channel.send(&FromWorker::Failed(failed.clone()), &[]),
            };
            if base.is_stale() {
                base = MeterBase::now(&counters, &self.writable);
            }
            let start = ProgramStart { inherited: self, plan: &plan, argv, working_dir, env, group, has_endpoint };
            let Some(end) = program(channel, &start, (signals, scope), streams, (&counters, &base))? else {
                return Ok(());
            };
            channel.send(&FromWorker::Ended(end), &[])?;
            if end.left > 0 {
                // They are its zygote's now, which tries again and gives the session up.
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            // Whoever waits for that was woken on this processor, most of the time, and goes first.
            std::thread::yield_now();
            // Before it takes another. A broker that knows nothing of this call is not woken.
            let narrowed = plan.rules != CallRules::OfSession || plan.network.is_some();
            let is_usual = !narrowed && !plan.serves_session && !has_endpoint;
            if !is_usual || asked.as_ref().is_none_or(was_asked) {
                broker.send(&Register::Again { pid: process::id() }, &[])?;
            }
            base = MeterBase::now(&counters, &self.writable);
        }
        Ok(())
    }
}

/// True if the broker was asked since this was last looked at. All who could have asked have ended.
fn was_asked(asked: &OwnedFd) -> bool {
    rustix::io::read(asked, &mut [0; 8]) != Err(rustix::io::Errno::AGAIN)
}

/// Tells the broker that this call may do less than the session, before anything that it starts can ask for something.
fn narrow(rules: &[FsRule], broker: &Channel) -> io::Result<()> {
    let (trees, names) = to_change(rules);
    let read = rules.iter().map(|rule| rule.path.clone()).collect();
    broker.send(&Register::Call { pid: process::id(), trees, names, read }, &[])
}

/// The trees and the single names that rules let be changed.
fn to_change(rules: &[FsRule]) -> (Vec<HostPath>, Vec<HostPath>) {
    let (names, trees): (Vec<&FsRule>, Vec<&FsRule>) =
        rules.iter().filter(|rule| rule.access.changes()).partition(|rule| rule.extent == Extent::Entry);
    let paths = |rules: Vec<&FsRule>| rules.into_iter().map(|rule| rule.path.clone()).collect();
    (paths(trees), paths(names))
}

/// The streams of the program that a tool talks to.
fn peer(fds: ProgramFds<OwnedFd>) -> Peer {
    let [input, output, errors] = fds.stdio;
    Peer { input, output, errors }
}

/// Confines this process, then reads the arguments, then works: in that order, because the arguments are hostile.
fn tool(
    channel: &Channel,
    plan: &CallPlan,
    with: (StaticToolset, Given),
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
    work(channel, plan, with, &arguments)?;
    step_aside(channel);
    Ok(())
}

fn work(
    channel: &Channel,
    plan: &CallPlan,
    (tools, given): (StaticToolset, Given),
    arguments: &Value,
) -> io::Result<()> {
    report_a_panic(channel);
    match tools.run(plan, arguments, given) {
        Ok(output) => send_result(channel, output),
        Err(failed) => {
            let end = ToolEnd::Error { text: shortened(failed.text), errno: failed.errno, code: failed.code };
            channel.send(&FromWorker::ToolEnded(end), &[])
        }
    }
}

/// Has a tool that breaks on what it reads say so, and end: its own words are for whoever mends it.
fn report_a_panic(channel: &Channel) {
    let Ok(channel) = channel.as_fd().try_clone_to_owned().map(Channel::from) else { return };
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(|at| format!(" ({}:{})", at.file(), at.line())).unwrap_or_default();
        let text = format!("what it read broke the tool{place}; it may be damaged, or made to do that");
        let end = ToolEnd::Error { text: shortened(text), errno: None, code: ErrorCode::ToolExecutionFailed };
        // Nobody is left to be told if nobody listens.
        let _told: io::Result<()> = channel.send(&FromWorker::ToolEnded(end), &[]);
        std::process::exit(1);
    }));
}

/// The number of threads that a tool may work with: one, or one for each processor that this process may run on, up to the twelve that
/// ripgrep uses too.
fn count(threads: Threads) -> usize {
    if threads == Threads::Never {
        return 1;
    }
    rustix::thread::sched_getaffinity(None).map_or(1, |set| usize::try_from(set.count()).unwrap_or(1)).clamp(1, 12)
}

/// In one frame if it fits, else in frames of its own before the last; what it had no room for comes after it.
fn send_result(channel: &Channel, output: ToolResult) -> io::Result<()> {
    let ToolResult { data, truncated, rest, lost } = output;
    let end = |data| FromWorker::ToolEnded(ToolEnd::Output { truncated, lost, data });
    if !rest.is_empty() {
        channel.send_data(&serde_json::to_vec(&data)?)?;
        channel.send(&FromWorker::Rest, &[])?;
        channel.send_data(&rest)?;
        return channel.send(&end(None), &[]);
    }
    let whole = end(Some(data));
    if channel.send_if_it_fits(&whole)? {
        return Ok(());
    }
    if let FromWorker::ToolEnded(ToolEnd::Output { data: Some(data), .. }) = whole {
        channel.send_data(&serde_json::to_vec(&data)?)?;
    }
    channel.send(&end(None), &[])
}

/// Streams that a program reads and writes.
struct ProgramStreams {
    stdio: [OwnedFd; 3],
    /// To be its controlling terminal.
    terminal: Option<OwnedFd>,
}

/// A program to be started.
struct ProgramStart<'a> {
    inherited: &'a Programs,
    plan: &'a CallPlan,
    argv: &'a [HostPath],
    working_dir: &'a HostPath,
    env: &'a [HostPath],
    group: Option<ProgramCgroup>,
    /// True if it may connect to its session's endpoint.
    has_endpoint: bool,
}

/// A program's cgroup, which holds its memory and processes.
struct ProgramCgroup {
    procs: OwnedFd,
    pids_events: File,
    memory_events: File,
    memory_peak: File,
}

impl ProgramCgroup {
    /// How often a limit was met (cgroups(7): lines of a name and a number).
    fn count(mut file: &File, name: &str) -> u64 {
        let mut text = String::new();
        let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
        let number = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
        if read.is_ok() { text.lines().find_map(number).unwrap_or(0) } else { 0 }
    }

    /// Limit that the kernel has held.
    fn hit(&self, bounds: &Bounds) -> Option<LimitHit> {
        if Self::count(&self.memory_events, "oom_kill ") > 0 {
            let used = self.peak().max(bounds.memory);
            return Some(LimitHit { limit: LimitName::Memory, used });
        }
        let refused = Self::count(&self.pids_events, "max ") > 0;
        refused.then_some(LimitHit { limit: LimitName::Processes, used: bounds.processes })
    }

    fn peak(&self) -> u64 {
        Self::count(&self.memory_peak, "")
    }
}

fn descriptors(fds: ProgramFds<OwnedFd>) -> (ProgramStreams, Option<OwnedFd>, Option<ProgramCgroup>) {
    let ProgramFds { stdio, terminal, endpoint, cgroup } = fds;
    let group = cgroup.map(|CgroupFds { procs, pids_events, memory_events, memory_peak }| ProgramCgroup {
        procs,
        pids_events: pids_events.into(),
        memory_events: memory_events.into(),
        memory_peak: memory_peak.into(),
    });
    (ProgramStreams { stdio, terminal }, endpoint, group)
}

/// Starts the program and stays as its init: reaps what it orphans, passes signals on, ends all when it ends. `None` if it
/// could not be started; the supervisor has been told why.
fn program(
    channel: &Channel,
    wanted: &ProgramStart<'_>,
    (signals, scope): (&OwnedFd, Option<SignalsStayBelow>),
    streams: ProgramStreams,
    measured: (&Counters, &MeterBase),
) -> io::Result<Option<ProgramEnd>> {
    let started = match wanted.inherited.attempts {
        None => start(wanted, &streams),
        Some(attempts) => attempt(attempts, wanted, &streams),
    };
    let StartedProgram { pid, steps, _kept } = match started {
        Ok(started) => started,
        Err(failed) => return channel.send(&FromWorker::Failed(failed), &[]).map(|()| None),
    };
    drop(streams);
    channel.send(&FromWorker::Confined { steps }, &[])?;
    let deadline = Instant::now().checked_add(wanted.plan.timeout);
    let group = wanted.group.as_ref();
    let meter = Meter::new(&wanted.plan.bounds, measured, scope, group.is_some());
    Init { channel, group, signals, main: pid, deadline, scope, bounds: &wanted.plan.bounds, meter, hit: None }
        .run()
        .map(Some)
}

/// A program that was started.
struct StartedProgram {
    pid: Pid,
    /// Steps that its start confirmed.
    steps: Vec<StepReport>,
    /// Files that it may read of itself in procfs.
    _kept: Vec<OwnedFd>,
}

fn start(wanted: &ProgramStart<'_>, streams: &ProgramStreams) -> Result<StartedProgram, StepFailure> {
    let ProgramStart { inherited, plan, argv, working_dir, env, group, has_endpoint } = wanted;
    let (built, changing);
    let (ruleset, domain) = match &plan.rules {
        CallRules::OfSession => (&inherited.ruleset, inherited.call_domain.clone()),
        CallRules::Reading => {
            let reading = inherited.reading.as_ref();
            let (ruleset, domain) =
                reading.ok_or_else(|| StepFailure::new(Step::Landlock, "this session has no calls that only read"))?;
            (ruleset, domain.clone())
        }
        CallRules::Own(rules) => {
            let (ruleset, domain) = call::ruleset_for(rules, inherited.landlock_abi)?;
            built = ruleset;
            (&built, domain)
        }
        CallRules::Narrowed(_) => (&inherited.ruleset, inherited.call_domain.clone()),
    };
    // Upon the first: what both let be changed, can be.
    let (second, domain) = match &plan.rules {
        CallRules::Narrowed(rules) => {
            let (ruleset, count) = call::changes_ruleset(rules, inherited.landlock_abi)?;
            changing = ruleset;
            (Some(&changing), format!("{domain}; changes within {count} places"))
        }
        CallRules::OfSession | CallRules::Reading | CallRules::Own(_) => (None, domain),
    };
    let command = argv.first().ok_or_else(|| StepFailure::new(Step::Exec, "an empty argv"))?;
    let files = candidates(command, &inherited.path).map_err(|e| kernel(Step::Exec, "argv", e))?;
    let strings = |items: Vec<Vec<u8>>| -> Result<Vec<CString>, StepFailure> {
        items
            .into_iter()
            .map(|s| CString::new(s).map_err(|_nul| StepFailure::new(Step::Exec, "a NUL in an argument")))
            .collect()
    };
    let args = strings(argv.iter().map(|a| a.as_bytes().to_vec()).collect())?;
    let directory = strings(vec![working_dir.as_bytes().to_vec()])?;
    let limits = crate::apply::limit::raw(&plan.limits);
    if let (Some(terminal), Some(second)) = (&streams.terminal, second) {
        landlock::add_terminal_to_change(second.as_fd(), terminal.as_fd())?;
    }
    // One that is shared would open this call's terminal, and its program's files, to the session's other calls.
    let is_its_own = inherited.calls == Calls::One || matches!(plan.rules, CallRules::Own(_));
    if let Some(terminal) = streams.terminal.as_ref().filter(|_| is_its_own) {
        landlock::add_terminal(ruleset.as_fd(), terminal.as_fd(), inherited.landlock_abi)?;
    }
    // With namespaces procfs shows no more than the session's own processes, and all of it is granted.
    let own = if is_its_own && inherited.procfs.is_none() { OWN } else { &[] };
    let mut variables: Vec<Vec<u8>> = env.iter().map(|variable| variable.as_bytes().to_vec()).collect();
    if *has_endpoint {
        // What a manifest says of this variable would lead the session's agent astray.
        variables.push([ENDPOINT_VARIABLE.as_bytes(), b"=", ENDPOINT.as_bytes()].concat());
    }
    let env = if variables.is_empty() { &inherited.env } else { &with(strings(variables)?, &inherited.env) };
    let [input, output, error] = &streams.stdio;
    let exec = ExecArguments {
        files: &files,
        argv: &args,
        env,
        working_dir: directory.first().map_or(c"/", |d| d.as_c_str()),
        stdio: [input.as_fd(), output.as_fd(), error.as_fd()],
        terminal: streams.terminal.as_ref().map(OwnedFd::as_fd),
        landlock: (ruleset.as_fd(), second.map(|second| second.as_fd())),
        own,
        cgroup: group.as_ref().map(|group| group.procs.as_fd()),
        limits: &limits,
    };
    let spawned = process::spawn(&exec).map_err(|(step, e)| {
        let what = match step {
            process::SpawnStep::Exec => format!("start {command}"),
            process::SpawnStep::WorkingDir => format!("enter {working_dir}"),
            process::SpawnStep::Clone
            | process::SpawnStep::Cgroup
            | process::SpawnStep::Session
            | process::SpawnStep::Terminal
            | process::SpawnStep::Stdio
            | process::SpawnStep::Limit
            | process::SpawnStep::CloseFds
            | process::SpawnStep::Landlock
            | process::SpawnStep::SignalMask => format!("{step:?}"),
        };
        kernel(step.step(), what, e)
    })?;
    let steps = call::program_steps(plan, domain, spawned.landlocked, group.is_some());
    Ok(StartedProgram { pid: spawned.pid, steps, _kept: keep_own(own, spawned.pid) })
}

/// An environment with variables of its own, each in place of the session's of that name.
fn with(own: Vec<CString>, env: &[CString]) -> Vec<CString> {
    fn name(variable: &CString) -> Option<&[u8]> {
        variable.as_bytes().split(|byte| *byte == b'=').next()
    }
    let others = env.iter().filter(|other| own.iter().all(|own| name(own) != name(other))).cloned();
    let others: Vec<CString> = others.collect();
    [others, own].concat()
}

/// A session without some mechanism has no tools.
fn no_tools() -> StepFailure {
    StepFailure::new(Step::Attempt, "this session is for attempts to break out, and runs nothing else")
}

/// Performs an act of the probe in a fork of this process, confined as a program would be but for what the session does
/// without. Nothing is executed: whatever argv names, its words after the first are the act's.
fn attempt(
    attempts: AblatedAttempts,
    wanted: &ProgramStart<'_>,
    streams: &ProgramStreams,
) -> Result<StartedProgram, StepFailure> {
    let one_thread = OneThread::confirm().map_err(failure(Step::Attempt, "count threads"))?;
    match process::fork(one_thread, 0).map_err(failure(Step::Attempt, "fork"))? {
        Fork::Parent(pid) => Ok(StartedProgram { pid, steps: Vec::new(), _kept: Vec::new() }),
        Fork::Child => process::exit_now(match confine_attempt(attempts, wanted, &streams.stdio) {
            Ok(()) => {
                let words: Vec<String> =
                    wanted.argv.iter().skip(1).map(|word| word.as_path().to_string_lossy().into_owned()).collect();
                i32::from(probe::main(&words))
            }
            Err(_) => i32::from(probe::NOT_TRIED),
        }),
    }
}

fn confine_attempt(attempts: AblatedAttempts, wanted: &ProgramStart<'_>, stdio: &[OwnedFd; 3]) -> io::Result<()> {
    let [input, output, error] = stdio;
    rustix::process::setsid()?;
    rustix::stdio::dup2_stdin(input)?;
    rustix::stdio::dup2_stdout(output)?;
    rustix::stdio::dup2_stderr(error)?;
    rustix::process::chdir(wanted.working_dir.as_path())?;
    if attempts.landlock {
        crate::sys::landlock::restrict_self(wanted.inherited.ruleset.as_fd())?;
    }
    fd::close_all_but(&[])?;
    process::reset_signals();
    Ok(())
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
    scope: Option<SignalsStayBelow>,
    group: Option<&'a ProgramCgroup>,
    bounds: &'a Bounds,
    meter: Meter<'a>,
    hit: Option<LimitHit>,
}

impl Init<'_> {
    fn run(mut self) -> io::Result<ProgramEnd> {
        let mut listening = true;
        let mut timed_out = false;
        // Since when the program itself is to be gone.
        let mut killed = None::<Instant>;
        loop {
            let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            if listening {
                fds.push(PollFd::new(self.channel.as_fd(), PollFlags::POLLIN));
            }
            fds.extend(self.group.map(|group| PollFd::new(group.pids_events.as_fd(), PollFlags::POLLPRI)));
            match poll(&mut fds, if killed.is_some() { A_WHILE.into() } else { self.pause() }) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            if !timed_out && self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                timed_out = true;
                killed.get_or_insert_with(Instant::now);
                process::kill(self.main, libc::SIGKILL)?;
            }
            // A number in the file has changed (cgroups(7)).
            if fds.last().is_some_and(|fd| fd.revents().is_some_and(|seen| seen.contains(PollFlags::POLLPRI)))
                && let Some(hit) = self.group.and_then(|group| group.hit(self.bounds))
                && hit.limit == LimitName::Processes
            {
                return self.end_for(hit);
            }
            if listening && fds.get(1).is_some_and(|fd| fd.any().unwrap_or(false)) {
                listening = self.command()?;
                if !listening {
                    killed.get_or_insert_with(Instant::now);
                }
            }
            if let Some(end) = self.reap()? {
                return self.finish(end, timed_out);
            }
            // Who traces it can hold its end back, and has no time of its own.
            if killed.is_some_and(|since| since.elapsed() > AT_ONCE) {
                let sweep = self.end_all()?;
                return Ok(self.report(self.end_of_main(&sweep), timed_out, &sweep));
            }
            if !timed_out
                && let Some(hit) = self.meter.look(self.deadline)
                // A look that was cut short by the end of the call's time errs towards too much.
                && self.deadline.is_none_or(|deadline| Instant::now() < deadline)
            {
                return self.end_for(hit);
            }
        }
    }

    /// Until the deadline or the next look at the limits, as poll(2) takes it.
    fn pause(&self) -> PollTimeout {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let pause = left.map_or(self.meter.pause(), |left| left.min(self.meter.pause())) + Duration::from_millis(1);
        PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX)
    }

    fn end_all(&self) -> io::Result<family::Sweep> {
        if let Some(scope) = self.scope {
            family::signal_all_at_once(scope, libc::SIGKILL)?;
        }
        family::end_all(&|_| false)
    }

    /// Ends the program, and everything that it started, for a limit: at once, for each moment makes it worse.
    fn end_for(mut self, mut hit: LimitHit) -> io::Result<ProgramEnd> {
        let sweep = self.end_all()?;
        if hit.limit == LimitName::Processes {
            // Counting stopped at the limit; all of them have been counted now.
            hit.used = hit.used.max(u64::from(sweep.killed));
        }
        self.hit = Some(hit);
        Ok(self.report(self.end_of_main(&sweep), false, &sweep))
    }

    /// How the program itself ended. It is a child of this process, which alone reaps it; not reaped, it does not end.
    fn end_of_main(&self, sweep: &family::Sweep) -> ProcessEnd {
        let main = sweep.reaped.iter().find(|end| end.pid == self.main).copied();
        main.unwrap_or(ProcessEnd { pid: self.main, status: libc::SIGKILL, cpu_us: 0, max_rss_kib: 0 })
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
    fn reap(&self) -> io::Result<Option<ProcessEnd>> {
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
    fn finish(&self, end: ProcessEnd, timed_out: bool) -> io::Result<ProgramEnd> {
        let sweep = match process::reap() {
            Err(e) if e.raw_os_error() == Some(libc::ECHILD) => family::Sweep::default(),
            _ => self.end_all()?,
        };
        Ok(self.report(end, timed_out, &sweep))
    }

    fn report(&self, end: ProcessEnd, timed_out: bool, sweep: &family::Sweep) -> ProgramEnd {
        let (killed, left) = (sweep.killed, u32::try_from(sweep.left.len()).unwrap_or(u32::MAX));
        let (code, signal) = if self.hit.is_some() {
            // Should it have ended by itself in this moment, it was over the limit then.
            (None, Some(libc::SIGKILL))
        } else if libc::WIFSIGNALED(end.status) {
            (None, Some(libc::WTERMSIG(end.status)))
        } else {
            (Some(libc::WEXITSTATUS(end.status)), None)
        };
        let mut used = self.meter.used();
        used.cpu_ms = used.cpu_ms.max(end.cpu_us / 1000);
        used.memory = used.memory.max(end.max_rss_kib * 1024);
        used.processes = used.processes.max(1).max(u64::from(killed));
        let too_many = used.processes > self.bounds.processes;
        if let Some(group) = self.group {
            used.memory = used.memory.max(group.peak());
        }
        let held = || self.group.and_then(|group| group.hit(self.bounds));
        let hit = self
            .hit
            .or_else(held)
            .or(too_many.then_some(LimitHit { limit: LimitName::Processes, used: used.processes }));
        let (cpu_us, grouped) = (end.cpu_us, self.group.is_some());
        ProgramEnd { code, signal, cpu_us, killed, left, timed_out, hit, used, grouped }
    }
}
