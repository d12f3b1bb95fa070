//! The broker: one per session. It answers what the kernel asks about (seccomp_unotify(2)), inside the session's mount
//! namespace and Landlock domain, so that a mistake here stays inside too. It holds no secret and opens nothing a call
//! could not be granted.
//!
//! Invariant: nothing is judged in the caller's memory. What a pointer names is copied once; the copy is judged, and
//! the copy is acted on (A6, B18). "Continue" is answered only where the decision hangs on numbers, or where Landlock
//! judges the real call as well.

mod caller;
mod calls;
mod changes;
mod debug;
mod ends;
mod exec;
mod fifos;
mod files;
mod gate;
mod ipc;
mod keeper;
mod log;
mod made;
mod metadata;
mod mounts;
mod network;
mod objects;
mod paths;
mod planted;
mod processes;
mod refused;
mod settings;
mod shm;
mod sockets;
mod state;
mod survey;
mod terminals;
mod together;
mod tracer;
mod watched;
mod watches;
mod writable;

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use callgate_policy::envelope::StepReport;
use callgate_policy::plan::seccomp::Variant;
use callgate_policy::plan::{Calls as CallCount, Mechanism, PrivateKind, SessionPlan, Strength, Writer};
use callgate_policy::step::Step;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::calls::RunningCalls;
use self::changes::ChangeNotices;
use self::gate::ExecGate;
use self::keeper::Keeper;
use self::log::Log;
use self::mounts::Mounts;
use self::network::EgressEnd;
use self::objects::AllObjects;
use self::state::{Broker, Masks, NotificationHandler, Private, locked, open_own};
use self::together::HandOver;
use self::tracer::Tracer;
use crate::apply::{done, failure, kernel, landlock, limit, namespace, session};
use crate::directory::{self, OwnDirectory};
use crate::family;
use crate::filters;
use crate::protocol::{
    Channel, ChannelMessage, FRAME_MAX, Received, SessionFds, SessionReply, SessionSteps, StepFailure, Threads,
};
use crate::sys::fd;
use crate::sys::notify;
use crate::sys::process::{self, Fork, OneThread, Pid};
use crate::toolset::StaticToolset;
use crate::worker::{AblatedAttempts, Programs, Readers};
use crate::zygote::{ReadyZygote, Trade as _, ZygoteLinks};

/// Settles in its namespaces, if it has any of its own, and does what [`run_settled`] does.
pub(crate) fn run(
    plan: &SessionPlan,
    supervisor: &Channel,
    directories: &[OwnDirectory],
    egress: Option<Channel>,
    tools: StaticToolset,
) -> i32 {
    let settled = match plan.strength {
        Strength::Namespaces => namespace::settle(plan.identity),
        Strength::Landlock => Ok(()),
    };
    match settled {
        Ok(()) => run_settled(plan, supervisor, directories, egress, tools),
        Err(failed) => refuse(supervisor, failed),
    }
}

/// Confines itself, starts the zygotes, serves until the supervisor is gone. `directories` are the session's own on the
/// host, and `egress` the channel to the process that holds its network. Returns the exit code for this process.
pub(crate) fn run_settled(
    plan: &SessionPlan,
    supervisor: &Channel,
    directories: &[OwnDirectory],
    egress: Option<Channel>,
    tools: StaticToolset,
) -> i32 {
    match start(plan, supervisor, directories, egress, tools) {
        Ok(session) => i32::from(session.serve(supervisor).is_err()) * 70,
        Err(failed) => refuse(supervisor, failed),
    }
}

/// Says why there is no session. Returns the exit code: nobody else hears of it if the supervisor does not.
pub(crate) fn refuse(supervisor: &Channel, failed: StepFailure) -> i32 {
    i32::from(supervisor.send(&SessionReply::Failed(failed), &[]).is_err()) * 70
}

/// First message of a zygote to the broker; the programs' listener comes with it.
#[derive(serde::Serialize, serde::Deserialize)]
enum ZygoteReply {
    Confined(Vec<StepReport>),
    Failed(StepFailure),
}

impl ChannelMessage for ZygoteReply {
    const LONGEST: usize = FRAME_MAX;
}

fn start(
    plan: &SessionPlan,
    supervisor: &Channel,
    directories: &[OwnDirectory],
    egress: Option<Channel>,
    tools: StaticToolset,
) -> Result<ServedSession, StepFailure> {
    let kept = egress.iter().map(Channel::as_fd).chain([supervisor.as_fd()]);
    let keep: Vec<_> = directories.iter().map(OwnDirectory::as_fd).chain(kept).collect();
    fd::close_all_but(&keep).map_err(failure(Step::CloseFds, "close_range"))?;
    process::ignore_children().map_err(failure(Step::Family, "ignore SIGCHLD"))?;
    family::become_subreaper().map_err(failure(Step::Family, "become a subreaper"))?;
    rustix::thread::set_name(c"cg-broker").map_err(|e| kernel(Step::Family, "name the broker", e.into()))?;
    let one_thread = OneThread::confirm().map_err(failure(Step::Family, "count the broker's threads"))?;
    // Modes are worked out from each caller's own mask.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    // While the host's mounts are there to be seen.
    let mounts = Mounts::read()?;
    let above = Keeper::look_above(plan, &mounts)?;
    // While this process has the privileges that tell.
    let network = match plan.strength {
        Strength::Namespaces => namespace::own_network(),
        Strength::Landlock => None,
    };
    let egress = EgressEnd::begin(plan, egress)?;
    let (mut common, procfs) = session::enter(plan)?;
    fill_home(plan, directories)?;
    // Before the broker is confined: it stands beside the broker, and needs less.
    let readers = match plan.calls {
        CallCount::Many => {
            Some(Child::fork(one_thread, umask, |links| start_readers((plan, tools), directories, links))?)
        }
        CallCount::One => None,
    };
    let path = search_path(plan);
    let confined = session::confine(plan, directories, &path, procfs.as_ref())?;
    let (reading, may_read) =
        confined.reading.map_or((None, None), |it| (Some((it.ruleset, it.domain)), Some(it.starts)));
    let trade = Programs {
        ruleset: confined.call_ruleset,
        grants: confined.grants,
        reading,
        call_domain: confined.call_domain,
        landlock_abi: plan.landlock_abi,
        calls: plan.calls,
        env: environment(plan)?,
        path,
        writable: writable(plan),
        procfs,
        signal_scope: match plan.keeps(Mechanism::Landlock) {
            true => landlock::signal_scope(plan.landlock_abi)?,
            false => None,
        },
        attempts: AblatedAttempts::of(plan),
        tools,
    };
    let terminals = session::terminals(plan)?;
    let programs = Child::fork(one_thread, umask, |links| start_programs(plan, links, trade))?;
    // What takes time, while the zygotes confine themselves.
    let mut judged = Vec::new();
    if plan.writer().is_broker() {
        can_read_callers()?;
        judged.push(done(Step::KeptNames, "the broker is the one writer of trees with kept names"));
    }
    let mut calls = RunningCalls::new(plan);
    let mut gate = None;
    let mut watchdogs = None;
    if plan.debug {
        judged.push(debug::confirm(plan, one_thread)?);
    }
    if let Some(found) = confined.found {
        let made = ExecGate::make(plan, (found, may_read), calls.writable(), one_thread)?;
        judged.push(made.step);
        (gate, watchdogs) = (Some(made.gate), made.watchdogs);
    }
    if plan.calls == CallCount::One {
        // It is the worker itself.
        calls.add_only(programs.pid);
    }
    // It holds some for each call, and what it forked before keeps the limit that it was given.
    limit::open_files_as_many();
    let notices = ChangeNotices::new().map_err(failure(Step::Channels, "make a file for notices"))?;
    let keeper = Keeper::new(plan, &mounts, above)?;
    if let Some(egress) = &egress {
        common.push(egress.confirm()?);
    }
    let mut steps = SessionSteps { common, programs: confined.steps, readers: Vec::new() };
    let (more, listener) = programs.hear()?;
    let listener = listener.ok_or_else(|| StepFailure::new(Step::Seccomp, "no listener came"))?;
    steps.programs.extend(more.into_iter().chain(judged));
    let mut zygotes = vec![programs.pidfd()?];
    let mut channels = vec![programs.supervisors];
    let mut readers_link = None;
    if let Some(readers) = readers {
        steps.readers = readers.hear()?.0;
        zygotes.push(readers.pidfd()?);
        channels.push(readers.supervisors);
        readers_link = Some(readers.link);
    }
    let (log, questions) = Log::of(plan).map_err(failure(Step::Channels, "make the log's channel"))?.unzip();
    let broker = Broker {
        handlers: handlers(),
        hand_over: HandOver::of(listener.as_fd()),
        listener: Arc::new(listener),
        registrations: Some(Arc::new(programs.link)),
        calls,
        notices,
        readable: plan.rules().filter(|rule| rule.access.reads_files()).map(|rule| rule.path.clone()).collect(),
        private: Private::open(plan, directories)?,
        shared_memory: plan.shared_memory,
        network,
        egress,
        keeper,
        reads_too: plan.writer() == Writer::BrokerReadsToo,
        strength: plan.strength,
        debug: plan.debug,
        gate,
        masks: Masks { first: umask.bits(), told: plan.writer().is_broker(), changed: None, own: 0 },
        over: Arc::default(),
        log,
    };
    let mut zygotes_ends = channels.iter().map(Channel::as_fd);
    let ends = SessionFds {
        programs: zygotes_ends.next().ok_or_else(|| StepFailure::new(Step::Channels, "no zygote"))?,
        readers: zygotes_ends.next(),
        notices: broker.notices.file(),
        tracer: watchdogs.as_ref().map(|(_, supervisors)| supervisors.as_fd()),
        terminals: terminals.as_ref().map(OwnedFd::as_fd),
        questions: questions.as_ref().map(OwnedFd::as_fd),
    };
    let (fds, ends) = ends.send();
    supervisor
        .send(&SessionReply::Ready { steps, fds }, &ends)
        .map_err(failure(Step::Channels, "report to the supervisor"))?;
    let watchdogs = watchdogs.map(|(tracers, _)| tracers);
    Ok(ServedSession { broker, zygotes, watchdogs, _readers: readers_link })
}

/// Puts into the session's `HOME` what it begins with, as the session's user and before any program has started.
fn fill_home(plan: &SessionPlan, directories: &[OwnDirectory]) -> Result<(), StepFailure> {
    if plan.gitconfig.is_empty() {
        return Ok(());
    }
    let own = open_own(plan, directories)?;
    let written = directory::write_new(own.as_fd(), "home", ".gitconfig", plan.gitconfig.as_bytes());
    written.map_err(|e| kernel(Step::PrivateDir, "write .gitconfig in the session's home", e))
}

/// The one writer must read what its callers name. Yama may bar even an ancestor from that (`ptrace_scope` 2 and 3).
#[expect(clippy::disallowed_methods, reason = "procfs is the kernel's: nobody puts a link in its files' place")]
fn can_read_callers() -> Result<(), StepFailure> {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "2" | "3" => Err(StepFailure::new(
            Step::KeptNames,
            "kernel.yama.ptrace_scope is 2 or 3, so that nothing could be written in a tree with kept names; set it to 1, \
             or grant only trees without (such as target/)",
        )),
        _ => Ok(()),
    }
}

/// A zygote from the broker's side.
struct Child {
    pid: Pid,
    /// To it.
    link: Channel,
    /// The supervisor's end of its other channel.
    supervisors: Channel,
}

impl Child {
    /// Forks a zygote. `run` is its life; an error is reported as the process's exit code.
    fn fork(
        one_thread: OneThread,
        umask: rustix::fs::Mode,
        run: impl FnOnce(ZygoteLinks) -> io::Result<()>,
    ) -> Result<Self, StepFailure> {
        let pair = || Channel::pair().map_err(failure(Step::Channels, "socketpair"));
        let ((supervisors, supervisor), (link, broker)) = (pair()?, pair()?);
        match process::fork(one_thread, 0).map_err(failure(Step::Zygote, "fork"))? {
            Fork::Child => {
                drop((supervisors, link));
                rustix::process::umask(umask);
                process::exit_now(i32::from(run(ZygoteLinks { supervisor, broker }).is_err()) * 70)
            }
            Fork::Parent(pid) => Ok(Self { pid, link, supervisors }),
        }
    }

    /// Tells of its end: workers hold the same channels as their zygote. It has just spoken; were it gone since, this would
    /// fail, for its number is not given out again so soon.
    fn pidfd(&self) -> Result<OwnedFd, StepFailure> {
        let pid = rustix::process::Pid::from_raw(self.pid)
            .ok_or_else(|| StepFailure::new(Step::Zygote, "it has no number"))?;
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
            .map_err(|e| kernel(Step::Zygote, "pidfd_open", e.into()))
    }

    /// Waits until it is confined.
    fn hear(&self) -> Result<(Vec<StepReport>, Option<OwnedFd>), StepFailure> {
        match self.link.receive::<ZygoteReply>().map_err(failure(Step::Zygote, "hear from it"))? {
            Received::Message(ZygoteReply::Confined(steps), fds) => Ok((steps, fds.into_iter().next())),
            Received::Message(ZygoteReply::Failed(failed), _) => Err(failed),
            Received::Data(_) | Received::Closed => Err(StepFailure::new(Step::Zygote, "it ended while it started")),
        }
    }
}

/// The life of the readers' zygote.
fn start_readers(
    (plan, tools): (&SessionPlan, StaticToolset),
    directories: &[OwnDirectory],
    links: ZygoteLinks,
) -> io::Result<()> {
    let zygote = ReadyZygote::new(
        links,
        Readers { landlock_abi: plan.landlock_abi, attempts: AblatedAttempts::of(plan), tools },
    )?;
    // Closed again once the rules are bound to what they name.
    let close_all_but =
        |keep: &[BorrowedFd<'_>]| fd::close_all_but(keep).map_err(failure(Step::CloseFds, "close_range"));
    let needed: Vec<_> = directories.iter().map(OwnDirectory::as_fd).chain(zygote.keep()).collect();
    let confined = close_all_but(&needed)
        .and_then(|()| session::confine_readers(plan, directories, || close_all_but(&zygote.keep())));
    match confined {
        Ok(steps) => zygote.broker().send(&ZygoteReply::Confined(steps), &[])?,
        Err(failed) => return zygote.broker().send(&ZygoteReply::Failed(failed), &[]),
    }
    zygote.run()
}

/// `NAME=value` for each variable of the plan.
fn environment(plan: &SessionPlan) -> Result<Vec<CString>, StepFailure> {
    let pairs = plan.env.iter().map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()));
    pairs.collect::<Result<_, _>>().map_err(|_nul| StepFailure::new(Step::Exec, "a NUL in the environment"))
}

/// The directories of the plan's `PATH`. An empty element would mean the working directory: a planted program (C12).
fn search_path(plan: &SessionPlan) -> Vec<PathBuf> {
    let path = plan.env.get("PATH").map(|path| std::env::split_paths(path.as_path()).collect::<Vec<_>>());
    path.unwrap_or_default().into_iter().filter(|dir| dir.is_absolute()).collect()
}

/// Places that programs may write, and that are there.
fn writable(plan: &SessionPlan) -> Vec<PathBuf> {
    let rules = plan.rules().filter(|rule| rule.access.changes());
    rules.map(|rule| rule.path.as_path().to_owned()).collect()
}

/// The life of the programs' zygote, or of the session's only worker.
fn start_programs(plan: &SessionPlan, links: ZygoteLinks, trade: Programs) -> io::Result<()> {
    let mut keep = vec![links.supervisor.as_fd(), links.broker.as_fd(), trade.ruleset.as_fd(), trade.grants.as_fd()];
    keep.extend(trade.procfs.iter().chain(&trade.signal_scope).map(OwnedFd::as_fd));
    keep.extend(trade.reading.iter().map(|(ruleset, _)| ruleset.as_fd()));
    let variant = Variant {
        strength: plan.strength,
        landlock_abi: plan.landlock_abi,
        writer: plan.writer(),
        starter: plan.starter(),
        debug: plan.debug,
    };
    let installed = fd::close_all_but(&keep).map_err(failure(Step::CloseFds, "close_range")).and_then(|()| {
        let base = plan.keeps(Mechanism::Seccomp);
        let installed = if base { filters::install_base(variant) } else { filters::install_nothing() };
        installed.map_err(failure(Step::Seccomp, "install the base filter"))
    });
    match installed {
        Ok((listener, length)) => {
            let detail = format!("base filter, {length} instructions, with a listener");
            let kept = plan.keeps(Mechanism::Seccomp).then(|| done(Step::Seccomp, detail));
            let reply = ZygoteReply::Confined(kept.into_iter().collect());
            links.broker.send(&reply, &[listener.as_fd()])?;
            // Held on, it would be in every worker: a call could then answer its own notifications.
            drop(listener);
        }
        Err(failed) => return links.broker.send(&ZygoteReply::Failed(failed), &[]),
    }
    match plan.calls {
        CallCount::Many => ReadyZygote::new(links, trade)?.run(),
        CallCount::One => process::exit_now(trade.work(&links.supervisor, &links.broker, Threads::Never, None)),
    }
}

/// Who handles what. The base filter's `Notify` entries and this table name the same calls; a test compares them.
fn handlers() -> HashMap<i64, NotificationHandler> {
    let groups: [&[(libc::c_long, NotificationHandler)]; 10] = [
        debug::HANDLERS,
        exec::HANDLERS,
        files::HANDLERS,
        metadata::HANDLERS,
        sockets::HANDLERS,
        ipc::HANDLERS,
        processes::HANDLERS,
        refused::HANDLERS,
        watches::HANDLERS,
        terminals::HANDLERS,
    ];
    groups.into_iter().flatten().map(|(nr, handler)| (*nr, *handler)).collect()
}

/// A session that is served.
struct ServedSession {
    broker: Broker,
    /// Each zygote's pidfd.
    zygotes: Vec<OwnedFd>,
    /// To the supervisor's, if they are asked about every exec.
    watchdogs: Option<Channel>,
    /// Kept: the readers' zygote ends when it closes.
    _readers: Option<Channel>,
}

impl ServedSession {
    /// Until the supervisor is gone, or nobody is left to be served; then ends what still runs.
    ///
    /// Questions have a thread of their own, which waits in the kernel on the listener itself: only so is it handed the asker's
    /// own processor, and no other is woken (`SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`). Another hears what supervisor, workers and
    /// egress say. One lock is around the whole: one act after the other. This thread never takes it, so that the
    /// session ends whatever the others wait for: a file system, a peer, a close(2).
    fn serve(self, supervisor: &Channel) -> io::Result<()> {
        let Self { broker, zygotes, watchdogs, .. } = self;
        let ending = Ending::of(&broker);
        let listener = Arc::clone(&broker.listener);
        let hearing = Hearing {
            supervisor: Channel::from(supervisor.as_fd().try_clone_to_owned()?),
            registrations: broker.registrations.clone(),
            egress: broker.egress.as_ref().map(EgressEnd::channel),
        };
        let broker = Arc::new(Mutex::new(broker));
        let tracer = Tracer::of(&broker, watchdogs)?;
        let shared = Arc::clone(&broker);
        let answers = start_thread("cg-broker", move || match tracer {
            Some(tracer) => tracer.run(),
            None => answer_all(&shared),
        })?;
        let shared = Arc::clone(&broker);
        let hears = start_thread("cg-hears", move || hearing.run(&shared))?;
        // What is open is closed by the kernel, when this process ends: then nothing lingers.
        let broker = ManuallyDrop::new(broker);
        let served = wait_for_the_end(supervisor, &listener, zygotes.iter().chain([&answers, &hears]));
        served.and(ending.end(&broker))
    }
}

/// Waits until the supervisor is gone, nobody is left who could ask, or one of the others has ended.
fn wait_for_the_end<'a>(
    supervisor: &Channel,
    listener: &OwnedFd,
    others: impl Iterator<Item = &'a OwnedFd>,
) -> io::Result<()> {
    let mut fds = vec![PollFd::new(supervisor.as_fd(), PollFlags::empty())];
    // Its end alone: what it is asked wakes nobody here.
    fds.push(PollFd::new(listener.as_fd(), PollFlags::empty()));
    fds.extend(others.map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
    loop {
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let mut happened = fds.iter().map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        let supervisors = happened.next().is_some_and(is_gone);
        let asked = happened.next().is_some_and(notify::says_over);
        if supervisors || asked || happened.any(|other| !other.is_empty()) {
            return Ok(());
        }
    }
}

/// True if a poll of a channel says that its other end is closed.
fn is_gone(happened: PollFlags) -> bool {
    happened.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)
}

/// Starts a thread of the broker. Returns what its end closes.
fn start_thread(name: &str, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<OwnedFd> {
    let (ours, its) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    std::thread::Builder::new().name(name.to_owned()).stack_size(THREADS_STACK).spawn(move || {
        let _its = its;
        // The session ends with it, whatever it met.
        let _met: io::Result<()> = work();
    })?;
    Ok(ours)
}

/// The thread that hears what supervisor, workers and egress say.
struct Hearing {
    supervisor: Channel,
    /// Until all who could register have let go of it.
    registrations: Option<Arc<Channel>>,
    /// Until it is gone.
    egress: Option<Arc<Channel>>,
}

impl Hearing {
    fn run(mut self, broker: &Mutex<Broker>) -> io::Result<()> {
        loop {
            let mut fds = vec![PollFd::new(self.supervisor.as_fd(), PollFlags::POLLIN)];
            let channels = self.registrations.iter().chain(&self.egress);
            fds.extend(channels.map(|channel| PollFd::new(channel.as_fd(), PollFlags::POLLIN)));
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            let happened: Vec<PollFlags> = fds.iter().map(|fd| fd.revents().unwrap_or(PollFlags::empty())).collect();
            let [supervisors, rest @ ..] = happened.as_slice() else { return Ok(()) };
            let (registration, said) = rest.split_at(usize::from(self.registrations.is_some()));
            let mut broker = locked(broker);
            if registration.iter().any(|happened| !happened.is_empty()) {
                broker.register_all()?;
                self.registrations = broker.registrations.clone();
            }
            if said.iter().any(|happened| !happened.is_empty()) {
                broker.hear_egress();
                // Connections are refused from then on; the session is not the worse for it.
                self.egress = self.egress.filter(|_| !said.iter().any(|happened| is_gone(*happened)));
            }
            if supervisors.contains(PollFlags::POLLIN) && !broker.report(&self.supervisor)? {
                return Ok(());
            }
            if is_gone(*supervisors) {
                return Ok(());
            }
        }
    }
}

/// Wait for the end of a session, without the broker's lock.
struct Ending {
    over: Arc<AtomicBool>,
    objects: AllObjects,
    /// The private directory, if it is to be emptied. Otherwise this process is the init of the session's PID namespace: the
    /// kernel ends all in it, and then its mounts.
    own: Option<Arc<OwnedFd>>,
}

/// How long the session's end waits for what is done with the broker's lock.
const LAST_ACT: u16 = 1000; // milliseconds

impl Ending {
    fn of(broker: &Broker) -> Self {
        let own = match broker.private.kind {
            PrivateKind::InNamespace => None,
            PrivateKind::OnHost => Some(Arc::clone(&broker.private.directory)),
        };
        Self { over: Arc::clone(&broker.over), objects: broker.calls.objects(), own }
    }

    /// Ends the session: nothing is done for anybody any more, what still runs ends, and its private directory is emptied.
    fn end(self, broker: &Arc<Mutex<Broker>>) -> io::Result<()> {
        self.over.store(true, Ordering::Release);
        // What is not cleared in time stays, as after a broker that was killed: what calls may not leave beside a granted name.
        let shared = Arc::clone(broker);
        let clears = start_thread("cg-clears", move || {
            locked(&shared).calls.clear();
            Ok(())
        });
        if let Ok(cleared) = clears {
            let mut fds = [PollFd::new(cleared.as_fd(), PollFlags::POLLIN)];
            let _in_time: nix::Result<i32> = poll(&mut fds, PollTimeout::from(LAST_ACT));
        }
        // By now, without the lock.
        self.objects.close();
        let Some(own) = self.own else { return Ok(()) };
        // Without the broker's lock: who is traced is not gone until the tracer has seen it. What does not end becomes the
        // launcher's, which reports it.
        family::end_all(&|_| false)?;
        directory::empty(own.as_fd())
    }
}

/// Stack that a thread that serves needs at most, a listing of a deep tree included.
const THREADS_STACK: usize = 512 * 1024;

/// Answers until nobody can ask any more.
fn answer_all(broker: &Mutex<Broker>) -> io::Result<()> {
    let listener = Arc::clone(&locked(broker).listener);
    loop {
        match notify::receive(listener.as_fd())? {
            Some(notification) => locked(broker).answer(&notification)?,
            // It was killed before it could be heard; or nobody is left.
            None if notify::is_over(listener.as_fd())? => return Ok(()),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use std::collections::BTreeSet;
    use std::str::FromStr as _;

    use callgate_policy::plan::Starter;
    use callgate_policy::plan::seccomp::{CallAction, CallVerdict, base};

    use super::*;

    fn asks(action: &CallAction) -> bool {
        match action {
            CallAction::Always(verdict) => *verdict == CallVerdict::Notify,
            CallAction::Args { rules, otherwise } => {
                *otherwise == CallVerdict::Notify || rules.iter().any(|rule| rule.then == CallVerdict::Notify)
            }
        }
    }

    /// The filter and the table are written apart. A call that is asked about and has no handler would always be refused;
    /// a handler that is never asked would be dead.
    #[test]
    fn every_notified_call_has_a_handler_and_every_handler_is_asked() {
        let mut asked = BTreeSet::new();
        for strength in [Strength::Landlock, Strength::Namespaces] {
            let kinds = [
                (Writer::Kernel, Starter::Kernel, false),
                (Writer::Broker, Starter::Broker, false),
                (Writer::Kernel, Starter::Kernel, true),
            ];
            for (landlock_abi, (writer, starter, debug)) in (1..=7).flat_map(|abi| kinds.map(|kind| (abi, kind))) {
                let filter = base(Variant { strength, landlock_abi, writer, starter, debug });
                let names = filter.calls().filter(|(_, action)| asks(action)).map(|(name, _)| name);
                asked.extend(names.filter_map(|name| syscalls::Sysno::from_str(name).ok()).map(|nr| nr.id() as i64));
            }
        }
        assert_eq!(handlers().into_keys().collect::<BTreeSet<_>>(), asked);
    }
}
