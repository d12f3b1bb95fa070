//! The launcher: a small process with one thread that forks brokers.
//!
//! The supervisor never forks: its size and its threads would make that slow and unsafe. It starts the launcher first,
//! while it is small, and asks it for each session.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use callgate_policy::path::HostPath;
use callgate_policy::plan::{Identity, PROTOCOL_VERSION, PrivateDir, PrivateKind, SessionPlan, Strength};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::WaitOptions;

use crate::apply::{failure, kernel, namespace, privilege};
use crate::broker;
use crate::family;
use crate::procfs::Procfs;
use crate::protocol::{Channel, OpenSession, Received, SessionReply, StepFailure};
use crate::sys::process::{self, Fork, OneThread, Pid};
use crate::sys::{fd, memory};
use crate::zygote::drain;

/// How long what a killed broker has left may resist, and how long brokers may take to end.
const SWEEP: Duration = Duration::from_secs(10);

/// What a caller of [`start`] gets.
#[derive(Debug)]
pub struct Launcher {
    /// Where sessions are asked for. The launcher ends when it is closed.
    pub channel: Channel,
}

/// Forks the launcher.
///
/// # Errors
/// `EBUSY` if this process already has threads; fork's own.
pub fn start() -> io::Result<Launcher> {
    let (ours, theirs) = Channel::pair()?;
    match process::fork(OneThread::confirm()?, 0)? {
        Fork::Parent(_) => Ok(Launcher { channel: ours }),
        Fork::Child => {
            drop(ours);
            run(theirs)
        }
    }
}

/// Forks the broker of one session from this very process, which must have one thread: for commands that open one
/// session, whose own directory is in a namespace of its own, so that nobody must look after it when it has ended.
///
/// # Errors
/// `EBUSY` if this process has threads; the launcher's failures otherwise go to the session's channel.
pub fn open_here(plan: &SessionPlan, session: &Channel) -> io::Result<()> {
    debug_assert!(Left::of(plan).is_nothing(), "nothing that must be removed");
    match fork_broker(plan, session) {
        Ok(Side::Launcher(_)) => Ok(()),
        Ok(Side::Broker) => process::exit_now(match become_nobodys_child(session).and_then(|()| become_dumpable()) {
            Ok(()) => broker::run(plan, session),
            Err(failed) => broker::refuse(session, failed),
        }),
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
pub struct Asked {
    /// To a launcher, if namespaces could not be made: it refuses that session, and opens others. Else to nobody.
    pub channel: Channel,
    between: Pid,
}

impl Ahead {
    /// Starts to make them for the user that this process runs as. It must have one thread.
    ///
    /// # Errors
    /// `EBUSY` if it has more; fork's own. What fails later is told to the session.
    pub fn start() -> io::Result<Self> {
        let identity = Identity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        let one_thread = OneThread::confirm()?;
        let (channel, theirs) = Channel::pair()?;
        memory::have_forks_copy_page_tables();
        match process::fork(one_thread, 0)? {
            Fork::Parent(between) => Ok(Self { channel: Some(channel), between, identity }),
            Fork::Child => {
                drop(channel);
                let ready = become_nobodys_child(&theirs)
                    .and_then(|()| privilege::become_owner(identity))
                    .and_then(|_| become_dumpable());
                // Not this process's child, which ends, but the one's that waits for it.
                let made = ready.map(|()| fork_into(one_thread, namespace::ALL | libc::CLONE_PARENT));
                process::exit_now(match made {
                    Ok(Ok(Side::Launcher(_))) => 0,
                    Ok(Ok(Side::Broker)) => serve_one(theirs, namespace::settle(identity)),
                    Ok(Err(_refused)) => code_of(serve(theirs)),
                    Err(failed) => code_of(refuse_all(&theirs, &failed)),
                })
            }
        }
    }

    /// Whether they are for this user, as whom the session is to run.
    #[must_use]
    pub fn is_for(&self, identity: Identity) -> bool {
        self.identity == identity
    }

    /// Opens the session in them.
    ///
    /// # Errors
    /// `EPIPE` if the process in them was killed.
    pub fn open(mut self, plan: SessionPlan, session: &Channel) -> io::Result<Asked> {
        let channel = self.channel.take().ok_or(io::ErrorKind::BrokenPipe)?;
        channel.send(&OpenSession { plan }, &[session.as_fd()])?;
        Ok(Asked { channel, between: self.between })
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

impl Asked {
    /// Takes the one between from the table of processes if it has ended; its end tells nothing.
    pub fn reap(&self) {
        let _ended = rustix::process::waitpid(rustix::process::Pid::from_raw(self.between), WaitOptions::NOHANG);
    }
}

/// Waits for the plan, and becomes its broker, or says why not.
fn serve_one(channel: Channel, settled: Result<(), StepFailure>) -> i32 {
    let Ok(Received::Message(OpenSession { plan }, fds)) = channel.receive() else { return 0 };
    drop(channel);
    let Some(session) = fds.into_iter().next().map(Channel::from) else { return 70 };
    match settled {
        Ok(()) => broker::run_settled(&plan, &session),
        Err(failed) => broker::refuse(&session, failed),
    }
}

/// Lets go of all that a fork has of its parent: environment, descriptors, standard streams, terminal, handlers.
fn become_nobodys_child(keep: &Channel) -> Result<(), StepFailure> {
    let fail = |what| failure("launcher", what);
    // First: every process of every session is a copy of this one.
    process::erase_environment(OneThread::confirm().map_err(fail("erase the environment"))?);
    process::reset_signals();
    fd::close_all_but(&[keep.as_fd()]).map_err(failure("close_fds", "close_range"))?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| kernel("launcher", "open /dev/null", e.into()))?;
    // The supervisor's own standard streams: a pipe that we held would never end for its reader.
    rustix::stdio::dup2_stdin(&null)
        .and_then(|()| rustix::stdio::dup2_stdout(&null))
        .and_then(|()| rustix::stdio::dup2_stderr(&null))
        .map_err(|e| kernel("launcher", "let go of the standard streams", e.into()))?;
    // A session of its own: a terminal's Ctrl-C is for the program, not for those that watch it.
    rustix::process::setsid().map(drop).or_else(ignore_permission).map_err(|e| kernel("launcher", "setsid", e.into()))
}

/// Serves sessions until the other side is gone. Never returns: this process has no other purpose.
pub fn run(channel: Channel) -> ! {
    memory::have_forks_copy_page_tables();
    let served = match become_nobodys_child(&channel).and_then(|()| become_dumpable()) {
        Ok(()) => serve(channel),
        Err(failed) => refuse_all(&channel, &failed),
    };
    process::exit_now(code_of(served))
}

fn code_of(served: io::Result<()>) -> i32 {
    if served.is_ok() { 0 } else { 70 }
}

fn serve(channel: Channel) -> io::Result<()> {
    rustix::thread::set_name(c"cg-launcher")?;
    family::become_subreaper()?;
    let signals = process::children_as_fd()?;
    let mut launcher = Serving { channel, brokers: HashMap::new() };
    while launcher.serve_one(&signals)? {}
    launcher.end()
}

/// A launcher that could not do its own first steps says so to whoever asks it for a session.
fn refuse_all(channel: &Channel, failed: &StepFailure) -> io::Result<()> {
    while let Received::Message(OpenSession { .. }, fds) = channel.receive()? {
        for session in fds {
            Channel::from(session).send(&SessionReply::Failed(failed.clone()), &[])?;
        }
    }
    Ok(())
}

struct Serving {
    channel: Channel,
    /// Each with what its session has on the host.
    brokers: HashMap<Pid, Left>,
}

/// What a session has on the host, to be removed when all of its processes have ended.
struct Left {
    /// Its private directory: the broker empties it, but only this process may remove it, and it empties what a broker that
    /// was killed has left.
    private: Option<HostPath>,
    /// Where the supervisor puts what results have no room for.
    outputs: Option<HostPath>,
    owner: Identity,
}

impl Left {
    fn of(plan: &SessionPlan) -> Self {
        let private = (plan.private.kind == PrivateKind::OnHost).then(|| plan.private.inside.clone());
        Self { private, outputs: plan.outputs.clone(), owner: plan.identity }
    }

    fn is_nothing(&self) -> bool {
        self.private.is_none() && self.outputs.is_none()
    }

    fn remove(&self) {
        remove(self.private.as_ref());
        if let Some(outputs) = &self.outputs {
            // The supervisor may have done so already; another failure has nobody left to hear of it.
            drop(remove_outputs(outputs, self.owner));
        }
    }
}

impl Serving {
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
            Received::Message(OpenSession { plan }, fds) => {
                if let Some(session) = fds.into_iter().next() {
                    self.open(&plan, &Channel::from(session))?;
                }
                Ok(true)
            }
            Received::Data(_) => Ok(true),
            Received::Closed => Ok(false),
        }
    }

    fn open(&mut self, plan: &SessionPlan, session: &Channel) -> io::Result<()> {
        let mut left = Left::of(plan);
        if let Some(directory) = &left.private
            && let Err(failed) = make(directory.as_path(), plan.identity)
        {
            // It may not be ours: somebody was there first.
            left.private = None;
            left.remove();
            return session.send(&SessionReply::Failed(failed), &[]);
        }
        match open(plan, session) {
            Ok(Some(broker)) => {
                self.brokers.insert(broker, left);
                Ok(())
            }
            not_opened => {
                left.remove();
                not_opened.map(drop)
            }
        }
    }

    /// Takes brokers that have ended, ends what one that was killed has left, and removes their directories.
    fn reap(&mut self) -> io::Result<()> {
        let mut left = Vec::new();
        loop {
            match process::reap() {
                Ok(Some(ended)) => left.extend(self.brokers.remove(&ended.pid)),
                Ok(None) => break,
                Err(e) if e.raw_os_error() == Some(libc::ECHILD) => break,
                Err(e) => return Err(e),
            }
        }
        loop {
            let brokers = &self.brokers;
            let swept = family::end_all(&|pid| brokers.contains_key(&pid), SWEEP)?;
            // One that has ended meanwhile was taken there. What it has left is ended in its turn.
            let before = left.len();
            left.extend(swept.reaped.iter().filter_map(|ended| self.brokers.remove(&ended.pid)));
            if left.len() == before {
                break;
            }
        }
        left.iter().for_each(Left::remove);
        Ok(())
    }

    /// The supervisor is gone. Brokers see the same and end their sessions; this process stays until they have.
    fn end(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + SWEEP;
        while !self.brokers.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
            self.reap()?;
        }
        family::end_all(&|_| false, SWEEP)?;
        self.brokers.values().for_each(Left::remove);
        Ok(())
    }
}

/// Makes a session's directory, for its user alone. Its name cannot be guessed, and nothing may be there (A11).
fn make(directory: &Path, owner: Identity) -> Result<(), StepFailure> {
    let mut made = Vec::new();
    let all = std::iter::once(directory.to_owned()).chain(PrivateDir::PARTS.map(|name| directory.join(name)));
    for path in all {
        let step = |what: &str, e: io::Error| {
            remove_all(&made);
            StepFailure {
                step: "private_dir".to_owned(),
                what: format!("{what} {}", path.display()),
                errno: e.raw_os_error(),
            }
        };
        rustix::fs::mkdir(&path, Mode::RWXU).map_err(|e| step("make", e.into()))?;
        made.push(path.clone());
    }
    if rustix::process::geteuid().as_raw() != owner.uid {
        for path in &made {
            let step = |e: io::Error| {
                remove_all(&made);
                kernel("private_dir", "give it to the session's user", e)
            };
            std::os::unix::fs::chown(path, Some(owner.uid), Some(owner.gid)).map_err(step)?;
        }
    }
    Ok(())
}

/// Removes what was made, the last first.
fn remove_all(made: &[PathBuf]) {
    for path in made.iter().rev() {
        // Nothing is lost with a directory that stays: it is empty.
        let _stays = rustix::fs::rmdir(path);
    }
}

/// Removes a session's directory, whose processes have all ended: nobody is left to race with.
fn remove(directory: Option<&HostPath>) {
    let Some(directory) = directory.map(HostPath::as_path) else { return };
    if rustix::fs::rmdir(directory).is_ok() {
        return;
    }
    let emptied = PrivateDir::PARTS.iter().all(|name| broker::empty(&directory.join(name)).is_ok());
    let removed = rustix::fs::rmdir(directory).is_ok();
    debug_assert!(emptied && removed, "{} is left", directory.display());
}

/// Removes a directory of files, which is `owner`'s. This process may have more rights than the owner, who may have put a
/// link in the directory's place: only what lies in a directory of the owner's own is removed, by its descriptor.
///
/// # Errors
/// `ENOENT` if it is gone; `EPERM` if it is somebody else's; the kernel's own.
pub fn remove_outputs(directory: &HostPath, owner: Identity) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory.as_path(), flags, Mode::empty())?;
    if rustix::fs::fstat(&opened)?.st_uid != owner.uid {
        return Err(rustix::io::Errno::PERM.into());
    }
    for entry in rustix::fs::Dir::read_from(&opened)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            rustix::fs::unlinkat(&opened, entry.file_name(), rustix::fs::AtFlags::empty())?;
        }
    }
    Ok(rustix::fs::rmdir(directory.as_path())?)
}

fn ignore_permission(errno: rustix::io::Errno) -> rustix::io::Result<()> {
    // Already a session leader.
    if errno == rustix::io::Errno::PERM { Ok(()) } else { Err(errno) }
}

/// Which process came out of [`fork_broker`].
enum Side {
    /// This one, with the broker's process id.
    Launcher(Pid),
    Broker,
}

/// Forks the broker of one session, into its namespaces where the plan has them. A failure is the session's, told on
/// its channel; the launcher goes on.
fn open(plan: &SessionPlan, session: &Channel) -> io::Result<Option<Pid>> {
    match fork_broker(plan, session) {
        Ok(Side::Launcher(broker)) => Ok(Some(broker)),
        Ok(Side::Broker) => process::exit_now(broker::run(plan, session)),
        // A supervisor that is gone needs no answer.
        Err(failed) => session.send(&SessionReply::Failed(failed), &[]).or(Ok(())).map(|()| None),
    }
}

fn fork_broker(plan: &SessionPlan, session: &Channel) -> Result<Side, StepFailure> {
    if plan.version != PROTOCOL_VERSION {
        return Err(StepFailure::new(
            "protocol",
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
    let one_thread = OneThread::confirm().map_err(failure("fork", "count threads"))?;
    let before = Procfs::USUAL.children(process::id());
    match process::fork(one_thread, 0).map_err(failure("fork", "fork"))? {
        Fork::Parent(between) => orphan_of(between, &before).map(Side::Launcher),
        Fork::Child => match privilege::become_owner(plan.identity)
            .and_then(|_| become_dumpable())
            .and_then(|()| fork_into_namespaces(plan))
        {
            Ok(Side::Broker) => Ok(Side::Broker),
            // Its number is told by its being there when this process is not.
            Ok(Side::Launcher(_)) => process::exit_now(0),
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
        .map_err(|e| kernel("identity", "prctl(PR_SET_DUMPABLE)", e.into()))
}

/// Waits for the process between to end, and finds the broker that it left to this process, if it left one: a child that
/// was not there before.
fn orphan_of(between: Pid, before: &[Pid]) -> Result<Pid, StepFailure> {
    process::wait_for(between).map_err(failure("fork", "wait for the process between"))?;
    let new = Procfs::USUAL.children(process::id()).into_iter().find(|pid| !before.contains(pid));
    // None: it has told the supervisor why.
    Ok(new.unwrap_or(between))
}

fn fork_into_namespaces(plan: &SessionPlan) -> Result<Side, StepFailure> {
    let namespaces = match plan.strength {
        Strength::Namespaces => namespace::ALL,
        Strength::Landlock => 0,
    };
    let one_thread = OneThread::confirm().map_err(failure("namespaces", "count threads"))?;
    fork_into(one_thread, namespaces)
}

fn fork_into(one_thread: OneThread, namespaces: libc::c_int) -> Result<Side, StepFailure> {
    match process::fork(one_thread, namespaces).map_err(failure("namespaces", "clone"))? {
        Fork::Child => Ok(Side::Broker),
        Fork::Parent(broker) => Ok(Side::Launcher(broker)),
    }
}
