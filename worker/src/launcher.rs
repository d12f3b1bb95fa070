//! The launcher: a small process with one thread that forks brokers.
//!
//! The supervisor never forks: its size and its threads would make that slow and unsafe. It starts the launcher first,
//! while it is small, and asks it for each session.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use callgate_policy::plan::{Identity, PROTOCOL_VERSION, PrivateDir, PrivateKind, SessionPlan, Strength};
use callgate_policy::step::Step;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::WaitOptions;

use crate::apply::landlock::{ConfinedSide, Executing, RulesetReach};
use crate::apply::{failure, kernel, landlock, namespace, privilege};
use crate::broker;
use crate::directory::{self, OwnDirectory};
use crate::egress;
use crate::family;
use crate::procfs::Procfs;
use crate::protocol::{Channel, Leftover, OpenSession, Received, SessionReply, StepFailure};
use crate::sys::process::{self, Fork, OneThread, Pid, ProcessEnd};
use crate::sys::{fd, memory};
use crate::toolset::StaticToolset;
use crate::zygote::drain;

/// How long brokers may take to end by themselves, once the supervisor is gone: each waits as long for what its session has left.
const PATIENCE: Duration = Duration::from_secs(150);
/// Most reports of what is left that wait for the supervisor to hear them.
const UNTOLD_MAX: usize = 100;

/// Launcher that a caller of [`start`] gets.
#[derive(Debug)]
pub struct StartedLauncher {
    /// Where sessions are asked for. The launcher ends when it is closed.
    pub channel: Channel,
}

/// Forks the launcher, whose sessions have these tools.
///
/// # Errors
/// `EBUSY` if this process already has threads; fork's own.
pub fn start(tools: StaticToolset) -> io::Result<StartedLauncher> {
    let (ours, theirs) = Channel::pair()?;
    match process::fork(OneThread::confirm()?, 0)? {
        Fork::Parent(_) => Ok(StartedLauncher { channel: ours }),
        Fork::Child => {
            drop(ours);
            run(theirs, tools)
        }
    }
}

/// Forks the broker of one session from this very process, which must have one thread: for commands that open one
/// session, whose own directory is in a namespace of its own, so that nobody must look after it when it has ended.
///
/// # Errors
/// `EBUSY` if this process has threads; the launcher's failures otherwise go to the session's channel.
pub fn open_here(plan: &SessionPlan, session: &Channel, tools: StaticToolset) -> io::Result<()> {
    debug_assert!(plan.private.kind == PrivateKind::InNamespace && plan.outputs.is_none(), "nothing to be removed");
    debug_assert!(plan.network.is_none(), "nobody would look after its egress");
    match fork_broker(plan, session) {
        Ok(BrokerFork::Launcher(_) | BrokerFork::Refused) => Ok(()),
        Ok(BrokerFork::Broker) => {
            process::exit_now(match become_nobodys_child(&[session.as_fd()]).and_then(|()| become_dumpable()) {
                Ok(()) => broker::run(plan, session, &[], None, tools),
                Err(failed) => broker::refuse(session, failed),
            })
        }
        Err(failed) => session.send(&SessionReply::Failed(failed), &[]),
    }
}

/// Namespaces that were made before anybody knew what for: the kernel takes as long to make them as a command takes to
/// read its arguments and to work out its plan.
#[derive(Debug)]
pub struct Ahead {
    /// To the process in them, which will be a broker, or to the one between. `None` while this is dropped.
    channel: Option<Channel>,
    /// The one between, which makes them and ends. If it cannot, it becomes a launcher.
    between: Pid,
    identity: Identity,
}

/// Who was asked for a session by [`Ahead::open`].
#[derive(Debug)]
pub struct AskedLauncher {
    /// To a launcher, if namespaces could not be made: it refuses that session, and opens others. Else to nobody.
    pub channel: Channel,
    between: Pid,
}

impl Ahead {
    /// Starts to make them for the user that this process runs as, and for a session with these tools. It must have one thread.
    ///
    /// # Errors
    /// `EBUSY` if it has more; fork's own. What fails later is told to the session.
    #[doc(hidden)]
    pub fn start(tools: StaticToolset) -> io::Result<Self> {
        let identity = Identity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        let one_thread = OneThread::confirm()?;
        let (channel, theirs) = Channel::pair()?;
        memory::have_forks_copy_page_tables();
        match process::fork(one_thread, 0)? {
            Fork::Parent(between) => Ok(Self { channel: Some(channel), between, identity }),
            Fork::Child => {
                drop(channel);
                let ready = become_nobodys_child(&[theirs.as_fd()])
                    .and_then(|()| privilege::become_owner(identity))
                    .and_then(|_| become_dumpable());
                // Not this process's child, which ends, but the one's that waits for it.
                let made = ready.map(|()| fork_into(one_thread, namespace::ALL | libc::CLONE_PARENT));
                process::exit_now(match made {
                    Ok(Ok(BrokerFork::Launcher(_) | BrokerFork::Refused)) => 0,
                    Ok(Ok(BrokerFork::Broker)) => serve_one(theirs, namespace::settle(identity), tools),
                    Ok(Err(_refused)) => code_of(serve(theirs, tools)),
                    Err(failed) => code_of(refuse_all(&theirs, &failed)),
                })
            }
        }
    }

    /// True if they are for this user, as whom the session is to run.
    #[doc(hidden)]
    #[must_use]
    pub fn is_for(&self, identity: Identity) -> bool {
        self.identity == identity
    }

    /// Opens the session in them.
    ///
    /// # Errors
    /// `EPIPE` if the process in them was killed.
    #[doc(hidden)]
    pub fn open(mut self, plan: SessionPlan, session: &Channel) -> io::Result<AskedLauncher> {
        let channel = self.channel.take().ok_or(io::ErrorKind::BrokenPipe)?;
        channel.send(&OpenSession { plan, credentials: false }, &[session.as_fd()])?;
        Ok(AskedLauncher { channel, between: self.between })
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Nothing more will come: whoever waits for a plan ends. Unless it was asked: then whoever asked reaps it.
        if self.channel.take().is_some() {
            drop(process::wait_for(self.between));
        }
    }
}

impl AskedLauncher {
    /// Takes the one between from the table of processes if it has ended; its end tells nothing.
    pub fn reap(&self) {
        let _ended = rustix::process::waitpid(rustix::process::Pid::from_raw(self.between), WaitOptions::NOHANG);
    }
}

/// Waits for the plan, and becomes its broker, or says why not.
fn serve_one(channel: Channel, settled: Result<(), StepFailure>, tools: StaticToolset) -> i32 {
    let Ok(Received::Message(OpenSession { plan, .. }, fds)) = channel.receive() else { return 0 };
    drop(channel);
    let Some(session) = fds.into_iter().next().map(Channel::from) else { return 70 };
    match settled {
        Ok(()) => broker::run_settled(&plan, &session, &[], None, tools),
        Err(failed) => broker::refuse(&session, failed),
    }
}

/// Lets go of all that a fork has of its parent: environment, descriptors, standard streams, terminal, handlers.
#[expect(clippy::disallowed_methods, reason = "a device in /dev, which is root's")]
fn become_nobodys_child(keep: &[BorrowedFd<'_>]) -> Result<(), StepFailure> {
    let fail = |what| failure(Step::Launcher, what);
    // First: every process of every session is a copy of this one.
    process::erase_environment(OneThread::confirm().map_err(fail("erase the environment"))?);
    process::reset_signals();
    fd::close_all_but(keep).map_err(failure(Step::CloseFds, "close_range"))?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| kernel(Step::Launcher, "open /dev/null", e.into()))?;
    // The supervisor's own standard streams: a pipe that we held would never end for its reader.
    rustix::stdio::dup2_stdin(&null)
        .and_then(|()| rustix::stdio::dup2_stdout(&null))
        .and_then(|()| rustix::stdio::dup2_stderr(&null))
        .map_err(|e| kernel(Step::Launcher, "let go of the standard streams", e.into()))?;
    // A session of its own: a terminal's Ctrl-C is for the program, not for those that watch it.
    rustix::process::setsid()
        .map(drop)
        .or_else(ignore_permission)
        .map_err(|e| kernel(Step::Launcher, "setsid", e.into()))
}

/// Serves sessions with these tools until the other side is gone. Never returns: this process has no other purpose.
pub fn run(channel: Channel, tools: StaticToolset) -> ! {
    memory::have_forks_copy_page_tables();
    let served = match become_nobodys_child(&[channel.as_fd()]).and_then(|()| become_dumpable()) {
        Ok(()) => serve(channel, tools),
        Err(failed) => refuse_all(&channel, &failed),
    };
    process::exit_now(code_of(served))
}

fn code_of(served: io::Result<()>) -> i32 {
    if served.is_ok() { 0 } else { 70 }
}

fn serve(channel: Channel, tools: StaticToolset) -> io::Result<()> {
    rustix::thread::set_name(c"cg-launcher")?;
    family::become_subreaper()?;
    let signals = process::children_as_fd()?;
    let mut launcher = LauncherServing {
        channel,
        tools,
        brokers: HashMap::new(),
        cleaners: HashMap::new(),
        given_up: HashSet::new(),
        untold: Vec::new(),
    };
    while launcher.serve_one(&signals)? {}
    launcher.end(&signals)
}

/// A launcher that could not do its own first steps says so to whoever asks it for a session.
fn refuse_all(channel: &Channel, failed: &StepFailure) -> io::Result<()> {
    while let Received::Message(OpenSession { .. }, fds) = channel.receive()? {
        if let Some(session) = fds.into_iter().next() {
            Channel::from(session).send(&SessionReply::Failed(failed.clone()), &[])?;
        }
    }
    Ok(())
}

struct LauncherServing {
    channel: Channel,
    /// The tools of each session.
    tools: StaticToolset,
    /// Each with what its session has on the host.
    brokers: HashMap<Pid, LeftBehind>,
    /// Processes that empty what sessions have left.
    cleaners: HashMap<Pid, LeftBehind>,
    /// Processes that were killed and do not end.
    given_up: HashSet<Pid>,
    /// Leftovers that stay on the host, and that the supervisor has not heard of.
    untold: Vec<Leftover>,
}

/// Things of a session on the host, to be removed when all of its processes have ended: its private directory, and
/// where the supervisor puts what results have no room for.
struct LeftBehind {
    directories: Vec<OwnDirectory>,
    owner: Identity,
    /// The process that holds the session's network, until it has ended.
    egress: Option<Pid>,
    /// `None` where no session can be, for there is no Landlock.
    landlock_abi: Option<u8>,
}

impl LeftBehind {
    /// Makes the private directory, if it is to be on the host. `outputs` are the descriptors of the other: the supervisor
    /// has made it.
    fn make(plan: &SessionPlan, mut outputs: impl Iterator<Item = OwnedFd>) -> Result<Self, StepFailure> {
        let mut directories = Vec::new();
        if let Some(path) = &plan.outputs {
            let mut next = || outputs.next().ok_or_else(|| StepFailure::new(Step::Outputs, "no descriptor came"));
            directories.push(OwnDirectory::held(path.as_path().to_owned(), next()?, next()?));
        }
        if plan.private.kind == PrivateKind::OnHost {
            let path = plan.private.inside.as_path();
            let made = OwnDirectory::make(path, &PrivateDir::PARTS, plan.identity);
            directories.push(made.map_err(|e| kernel(Step::PrivateDir, format!("make {}", path.display()), e))?);
        }
        Ok(Self { directories, owner: plan.identity, egress: None, landlock_abi: Some(plan.landlock_abi) })
    }

    /// Removes what is empty: with whatever rights this process has, for it removes nothing that a call has made. True if
    /// nothing is left.
    fn remove_if_empty(&mut self) -> bool {
        self.directories.retain(|directory| {
            let removed = directory.remove_if_empty(&PrivateDir::PARTS);
            // The supervisor may have removed its own.
            removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        });
        self.directories.is_empty()
    }

    /// The life of a cleaner. Whatever is in these directories is removed with the rights of the calls that made it, by a
    /// process that can reach nothing else: as their owner, without capabilities, in a Landlock domain of the directories
    /// alone. Returns the exit code: the errno of what failed first.
    fn clean(&self) -> i32 {
        let other = |failed: StepFailure| failed.errno.unwrap_or(libc::EPERM);
        let emptied = self.confine_cleaner().map_err(other).and_then(|()| {
            let all = self.directories.iter().map(|directory| directory::empty(directory.as_fd()));
            // Each, also after a failure.
            let failed: Vec<io::Error> = all.filter_map(Result::err).collect();
            failed.first().map_or(Ok(()), |error| Err(error.raw_os_error().unwrap_or(libc::EIO)))
        });
        emptied.err().unwrap_or(0)
    }

    fn confine_cleaner(&self) -> Result<(), StepFailure> {
        let keep: Vec<_> = self.directories.iter().map(OwnDirectory::as_fd).collect();
        fd::close_all_but(&keep).map_err(failure(Step::CloseFds, "close_range"))?;
        rustix::thread::set_name(c"cg-cleaner").map_err(|e| kernel(Step::Clean, "name the cleaner", e.into()))?;
        privilege::become_owner(self.owner)?;
        become_dumpable()?;
        privilege::drop_capabilities()?;
        privilege::set_no_new_privs()?;
        let Some(abi) = self.landlock_abi else { return Ok(()) };
        let places = keep.iter().map(|fd| landlock::tree(*fd)).collect::<Result<Vec<_>, _>>()?;
        landlock::restrict(&landlock::build(
            abi,
            &places,
            RulesetReach::Files,
            (ConfinedSide::Brokers, Executing::Trees),
        )?)
    }

    fn fork_cleaner(&self) -> io::Result<Pid> {
        match process::fork(OneThread::confirm()?, 0)? {
            Fork::Child => process::exit_now(self.clean()),
            Fork::Parent(cleaner) => Ok(cleaner),
        }
    }

    /// For a report, with the errno of what was in the way.
    fn leftovers(&self, errno: Option<i32>) -> impl Iterator<Item = Leftover> {
        let paths = self.directories.iter().map(|directory| directory.path().display().to_string());
        paths.map(move |path| Leftover::Directory { path, errno })
    }
}

/// The errno that a cleaner ended with. `None` if it was killed: then nobody knows what is in the way.
fn errno_of(ended: &ProcessEnd) -> Option<i32> {
    let code = libc::WIFEXITED(ended.status).then(|| libc::WEXITSTATUS(ended.status));
    code.filter(|errno| *errno != 0)
}

/// Has a process of its own remove a directory, with all that is in it, when this process has ended, however that came, or
/// has said no more on the channel. It is heard there until it has: what it could not remove, and that it has ended.
///
/// # Errors
/// `EBUSY` if this process has threads; fork's own.
pub fn remove_at_the_end(directory: OwnDirectory) -> io::Result<Channel> {
    let one_thread = OneThread::confirm()?;
    let (ours, theirs) = Channel::pair()?;
    // Nobody's child, so that whoever waits for all of its own does not wait for it.
    match process::fork(one_thread, 0)? {
        Fork::Parent(between) => process::wait_for(between).map(|()| ours),
        Fork::Child => {
            drop(ours);
            process::exit_now(match process::fork(one_thread, 0) {
                Ok(Fork::Child) => code_of(wait_and_remove(&theirs, directory)),
                Ok(Fork::Parent(_)) => 0,
                Err(_) => 70,
            })
        }
    }
}

/// Asks for no more, and waits until a launcher, or a process that removes a directory ([`remove_at_the_end`]), has ended:
/// with it all of its sessions, and what they had on the host. Returns what had to stay.
#[must_use]
pub fn wait_for_the_end(channel: &Channel) -> Vec<Leftover> {
    let mut left = Vec::new();
    if channel.say_no_more().is_err() {
        return left;
    }
    loop {
        match channel.receive::<Leftover>() {
            Ok(Received::Message(leftover, _)) => left.push(leftover),
            Ok(Received::Data(_)) => {}
            // It was killed, or has ended.
            Ok(Received::Closed) | Err(_) => return left,
        }
    }
}

fn wait_and_remove(channel: &Channel, directory: OwnDirectory) -> io::Result<()> {
    let owner = Identity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    let mut left = LeftBehind { directories: vec![directory], owner, egress: None, landlock_abi: landlock::host_abi() };
    let keep = left.directories.iter().flat_map(OwnDirectory::descriptors).chain([channel.as_fd()]).collect::<Vec<_>>();
    become_nobodys_child(&keep)
        .map_err(|failed| failed.errno.map_or(io::ErrorKind::Other.into(), io::Error::from_raw_os_error))?;
    rustix::thread::set_name(c"cg-scratch")?;
    while !matches!(channel.receive::<()>()?, Received::Closed) {}
    if left.remove_if_empty() {
        return Ok(());
    }
    process::wait_for(left.fork_cleaner()?)?;
    if !left.remove_if_empty() {
        for leftover in left.leftovers(None) {
            channel.send(&leftover, &[])?;
        }
    }
    Ok(())
}

impl LauncherServing {
    fn serve_one(&mut self, signals: &OwnedFd) -> io::Result<bool> {
        let mut fds =
            [PollFd::new(self.channel.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let [request, signal] = fds.map(|fd| fd.any().unwrap_or(false));
        if signal {
            drain(signals)?;
            self.reap()?;
        }
        if !request {
            return Ok(true);
        }
        match self.channel.receive::<OpenSession>()? {
            Received::Message(OpenSession { plan, credentials }, mut fds) => {
                let credentials = if credentials { fds.pop() } else { None };
                let mut fds = fds.into_iter();
                if let Some(session) = fds.next() {
                    self.open(&plan, &Channel::from(session), (fds, credentials))?;
                }
                Ok(true)
            }
            Received::Data(_) => Ok(true),
            Received::Closed => Ok(false),
        }
    }

    fn open(
        &mut self,
        plan: &SessionPlan,
        session: &Channel,
        (outputs, credentials): (impl Iterator<Item = OwnedFd>, Option<OwnedFd>),
    ) -> io::Result<()> {
        let mut left = match LeftBehind::make(plan, outputs) {
            Ok(left) => left,
            Err(failed) => return session.send(&SessionReply::Failed(failed), &[]),
        };
        // Before its broker, which leaves this network.
        let network = match fork_egress(plan, credentials) {
            Ok(forked) => forked.map(|(egress, network)| {
                left.egress = Some(egress);
                network
            }),
            Err(failed) => {
                self.retire(left);
                return session.send(&SessionReply::Failed(failed), &[]);
            }
        };
        match open(plan, session, &left.directories, network, self.tools) {
            Ok(Some(broker)) => {
                self.brokers.insert(broker, left);
                Ok(())
            }
            not_opened => {
                self.retire(left);
                not_opened.map(drop)
            }
        }
    }

    /// Takes brokers and cleaners that have ended, ends what a broker that was killed has left, and removes their directories.
    fn reap(&mut self) -> io::Result<()> {
        let mut over = Vec::new();
        loop {
            match process::reap() {
                Ok(Some(ended)) => self.take(&ended, &mut over),
                Ok(None) => break,
                Err(e) if e.raw_os_error() == Some(libc::ECHILD) => break,
                Err(e) => return Err(e),
            }
        }
        loop {
            let kept = |pid| {
                let egress = self.brokers.values().any(|left| left.egress == Some(pid));
                let ours = self.brokers.contains_key(&pid) || self.cleaners.contains_key(&pid);
                egress || ours || self.given_up.contains(&pid)
            };
            let swept = family::end_all(&kept)?;
            // One that has ended meanwhile was taken there. What it has left is ended in its turn.
            let before = over.len();
            swept.reaped.iter().for_each(|ended| self.take(ended, &mut over));
            self.give_up(swept.left);
            if over.len() == before {
                break;
            }
        }
        over.into_iter().for_each(|left| self.retire(left));
        Ok(())
    }

    /// Reports processes that do not end, once.
    fn give_up(&mut self, left: Vec<Pid>) {
        for pid in left {
            if self.given_up.insert(pid) {
                let name = Procfs::USUAL.text(pid, "comm").unwrap_or_default().trim_end().to_owned();
                self.untold.push(Leftover::Process { pid, name });
            }
        }
        self.tell_untold();
    }

    /// Takes what an ended process had. What was a broker's is to be removed; what was a cleaner's has been, or stays.
    fn take(&mut self, ended: &ProcessEnd, over: &mut Vec<LeftBehind>) {
        self.given_up.remove(&ended.pid);
        over.extend(self.brokers.remove(&ended.pid));
        // Its number may be another's from now on.
        let egress = self.brokers.values_mut().find(|left| left.egress == Some(ended.pid));
        egress.into_iter().for_each(|left| left.egress = None);
        if let Some(mut left) = self.cleaners.remove(&ended.pid)
            && !left.remove_if_empty()
        {
            self.tell(&left, errno_of(ended));
        }
    }

    /// Removes what a session has left. Its broker has emptied it; if not, a process does so that may do no more than a call.
    fn retire(&mut self, mut left: LeftBehind) {
        if left.remove_if_empty() {
            return;
        }
        match left.fork_cleaner() {
            Ok(cleaner) => drop(self.cleaners.insert(cleaner, left)),
            Err(error) => self.tell(&left, error.raw_os_error()),
        }
    }

    /// Reports what stays on the host.
    fn tell(&mut self, left: &LeftBehind, errno: Option<i32>) {
        self.untold.extend(left.leftovers(errno));
        self.tell_untold();
    }

    fn tell_untold(&mut self) {
        self.untold.truncate(UNTOLD_MAX);
        while let Some(leftover) = self.untold.first() {
            // A supervisor that does not listen must not hold this process; it may listen later.
            let mut fds = [PollFd::new(self.channel.as_fd(), PollFlags::POLLOUT)];
            let has_room = matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..));
            if !has_room || self.channel.send(leftover, &[]).is_err() {
                return;
            }
            self.untold.remove(0);
        }
    }

    /// The supervisor is gone. Brokers see the same and end their sessions; this process stays until nothing is left of them.
    fn end(&mut self, signals: &OwnedFd) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.brokers.is_empty() && Instant::now() < deadline {
            self.wait_for_an_end(signals)?;
        }
        if !self.brokers.is_empty() {
            let ended = family::end_all(&|pid| self.cleaners.contains_key(&pid) || self.given_up.contains(&pid))?;
            let mut over = Vec::new();
            ended.reaped.iter().for_each(|ended| self.take(ended, &mut over));
            self.give_up(ended.left);
            over.into_iter().for_each(|left| self.retire(left));
        }
        while !self.cleaners.is_empty() {
            self.wait_for_an_end(signals)?;
        }
        Ok(())
    }

    fn wait_for_an_end(&mut self, signals: &OwnedFd) -> io::Result<()> {
        const A_WHILE: u16 = 100;
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(A_WHILE)) {
            Ok(0) | Err(nix::Error::EINTR) => {}
            Ok(_) => drain(signals)?,
            Err(e) => return Err(e.into()),
        }
        self.reap()
    }
}

fn ignore_permission(errno: rustix::io::Errno) -> rustix::io::Result<()> {
    // Already a session leader.
    if errno == rustix::io::Errno::PERM { Ok(()) } else { Err(errno) }
}

/// Which process came out of [`fork_broker`].
enum BrokerFork {
    /// This one, with the broker's process id.
    Launcher(Pid),
    /// This one, without a broker: who should have become one has told the session why not.
    Refused,
    Broker,
}

/// Forks the broker of one session, into its namespaces where the plan has them. A failure is the session's, told on
/// its channel; the launcher goes on.
fn open(
    plan: &SessionPlan,
    session: &Channel,
    directories: &[OwnDirectory],
    network: Option<Channel>,
    tools: StaticToolset,
) -> io::Result<Option<Pid>> {
    match fork_broker(plan, session) {
        Ok(BrokerFork::Launcher(broker)) => Ok(Some(broker)),
        Ok(BrokerFork::Refused) => Ok(None),
        Ok(BrokerFork::Broker) => process::exit_now(broker::run(plan, session, directories, network, tools)),
        // A supervisor that is gone needs no answer.
        Err(failed) => session.send(&SessionReply::Failed(failed), &[]).or(Ok(())).map(|()| None),
    }
}

/// Forks the process that holds a session's network, if its plan has one. Returns the broker's end of its channel: with the
/// last copy of that it ends. The broker's process does not have its credentials.
fn fork_egress(plan: &SessionPlan, credentials: Option<OwnedFd>) -> Result<Option<(Pid, Channel)>, StepFailure> {
    if plan.network.is_none() {
        return Ok(None);
    }
    let one_thread = OneThread::confirm().map_err(failure(Step::Egress, "count threads"))?;
    let (ours, theirs) = Channel::pair().map_err(failure(Step::Egress, "make a channel"))?;
    match process::fork(one_thread, 0).map_err(failure(Step::Egress, "fork"))? {
        Fork::Parent(pid) => Ok(Some((pid, ours))),
        Fork::Child => {
            drop(ours);
            let keep: Vec<_> = credentials.iter().map(OwnedFd::as_fd).chain([theirs.as_fd()]).collect();
            process::exit_now(match fd::close_all_but(&keep) {
                Ok(()) => egress::run(theirs, credentials, plan.identity, plan.landlock_abi),
                Err(_) => 70,
            })
        }
    }
}

fn fork_broker(plan: &SessionPlan, session: &Channel) -> Result<BrokerFork, StepFailure> {
    if plan.version != PROTOCOL_VERSION {
        return Err(StepFailure::new(
            Step::Protocol,
            format!("the supervisor speaks version {}, this launcher {PROTOCOL_VERSION}: restart both", plan.version),
        ));
    }
    let same_user = rustix::process::geteuid().as_raw() == plan.identity.uid
        && rustix::process::getegid().as_raw() == plan.identity.gid;
    if same_user {
        // Here already, because groups cannot be dropped in the user namespace (D7); they are no use to a launcher.
        privilege::become_owner(plan.identity)?;
        return fork_into_namespaces(plan);
    }
    // Become the other user in a process between, so that the user namespace is that user's. Looked at before it is there:
    // it may have ended, and left its child to this process, before this one does anything else.
    let one_thread = OneThread::confirm().map_err(failure(Step::Fork, "count threads"))?;
    let before = Procfs::USUAL.children(process::id());
    match process::fork(one_thread, 0).map_err(failure(Step::Fork, "fork"))? {
        Fork::Parent(between) => Ok(orphan_of(between, &before)?.map_or(BrokerFork::Refused, BrokerFork::Launcher)),
        Fork::Child => match privilege::become_owner(plan.identity)
            .and_then(|_| become_dumpable())
            .and_then(|()| fork_into_namespaces(plan))
        {
            Ok(BrokerFork::Broker) => Ok(BrokerFork::Broker),
            // Its number is told by its being there when this process is not.
            Ok(BrokerFork::Launcher(_) | BrokerFork::Refused) => process::exit_now(0),
            Err(failed) => {
                let told = session.send(&SessionReply::Failed(failed), &[]);
                process::exit_now(if told.is_ok() { 0 } else { 70 })
            }
        },
    }
}

/// A process that is not dumpable cannot write its own uid_map, and the broker could not look into what is forked from it.
/// A supervisor is not, and a change of user takes it away too. There is no secret left to dump here.
fn become_dumpable() -> Result<(), StepFailure> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)
        .map_err(|e| kernel(Step::Identity, "prctl(PR_SET_DUMPABLE)", e.into()))
}

/// Waits for the process between to end, and finds the broker that it left to this process: a child that was not there before.
/// `None` if it left none: then it has told the supervisor why.
fn orphan_of(between: Pid, before: &[Pid]) -> Result<Option<Pid>, StepFailure> {
    process::wait_for(between).map_err(failure(Step::Fork, "wait for the process between"))?;
    Ok(Procfs::USUAL.children(process::id()).into_iter().find(|pid| !before.contains(pid)))
}

fn fork_into_namespaces(plan: &SessionPlan) -> Result<BrokerFork, StepFailure> {
    let namespaces = match plan.strength {
        Strength::Namespaces => namespace::ALL,
        Strength::Landlock => 0,
    };
    let one_thread = OneThread::confirm().map_err(failure(Step::Namespaces, "count threads"))?;
    fork_into(one_thread, namespaces)
}

fn fork_into(one_thread: OneThread, namespaces: libc::c_int) -> Result<BrokerFork, StepFailure> {
    match process::fork(one_thread, namespaces).map_err(failure(Step::Namespaces, "clone"))? {
        Fork::Child => Ok(BrokerFork::Broker),
        Fork::Parent(broker) => Ok(BrokerFork::Launcher(broker)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::disallowed_methods,
        reason = "a failed unwrap fails the test; it starts no sandbox"
    )]
    use super::*;

    /// A launcher waits for its brokers when it closes. A process between that could not make one is none, and has ended.
    #[test]
    fn who_left_no_broker_is_not_one() {
        let before = Procfs::USUAL.children(process::id());
        let mut child = std::process::Command::new("false").spawn().unwrap();
        let between = Pid::try_from(child.id()).unwrap();
        assert_eq!(orphan_of(between, &before).unwrap(), None);
        assert!(child.wait().is_err(), "the control: it was waited for");
    }
}
