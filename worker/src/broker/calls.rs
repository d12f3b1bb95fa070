//! The calls of a session, what each may write and what each has made; and which call a thread belongs to.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use callgate_policy::path::HostPath;
use callgate_policy::plan::{Network, SessionPlan};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::Stat;

use super::caller::{Caller, Thread, process_of};
use super::changes::{ChangeNotices, Collected, Own};
use super::fifos::WaitingOpens;
use super::objects::{AllObjects, Objects};
use super::paths::{lies_in, real};
use super::sockets::CallSockets;
use super::watched::Watches;
use super::writable::{Writable, WritablePlaces, name};
use crate::procfs::Procfs;
use crate::protocol::Channel;
use crate::sys::process::Pid;

/// Most ended calls whose changes wait for being asked about. Those that are killed are not.
const OVER: usize = 64;
/// Most threads that are remembered.
const THREADS: usize = 32;

/// One call.
pub(super) struct RunningCall {
    /// Never given again in a session.
    pub(super) number: u64,
    /// As the supervisor numbers its worker.
    worker: u64,
    pub(super) written: WritablePlaces,
    /// It starts only what calls may start that only read.
    pub(super) only_reads: bool,
    read: ReadablePlaces,
    pub(super) watches: Watches,
    pub(super) sockets: CallSockets,
    /// Network that it may connect to, if that is less than what its session may.
    network: Option<Network>,
    /// Its servers on loopback are there for the session's other calls as well.
    serves_session: bool,
    /// Where its connections to the session's endpoint go, if it may make any.
    pub(super) endpoint: Option<CallEndpoint>,
    pub(super) fifos: WaitingOpens,
    pub(super) objects: Objects,
    pub(super) changes: Collected,
    /// Whose tracees may stop at their end.
    pub(super) exit_tracer: Option<ExitTracer>,
    /// True once what callgate starts for it has been started. Until then nothing of the call runs.
    pub(super) started: Arc<AtomicBool>,
    /// The supervisor can see that there are some.
    noticed: bool,
    /// Tells the worker that the broker was asked.
    asked: Option<OwnedFd>,
    /// It was told.
    told: bool,
}

impl RunningCall {
    /// True if a path, as the kernel gives it, lies where this call may read. `session` is what its session may.
    pub(super) fn may_read(&mut self, path: &Path, session: &[HostPath]) -> bool {
        let named = self.read.named.as_deref().unwrap_or(session);
        let real = self.read.real.get_or_insert_with(|| named.iter().map(|path| real(path.as_path())).collect());
        real.iter().any(|granted| lies_in(path, granted))
    }

    /// True if this is a single name of its session that it was granted for reading, and so a file that the kernel need
    /// not know.
    pub(super) fn may_read_name(&self, path: &Path, stat: &Stat) -> bool {
        let is_granted = |named: &Vec<HostPath>| named.iter().any(|granted| name(granted.as_path()) == path);
        self.written.is_name(path, stat) && self.read.named.as_ref().is_none_or(is_granted)
    }

    /// The number that the supervisor gave its worker, and what it may connect to if that is less than what its session may.
    pub(super) fn asks(&self) -> (u64, Option<Network>) {
        (self.worker, self.network.clone())
    }

    /// It is over: what it may not leave is removed.
    fn end(&mut self) {
        for (path, why) in self.written.end() {
            self.changes.refused(&path, why);
        }
    }
}

/// The endpoint of a call that is an agent's program.
pub(super) struct CallEndpoint {
    /// To the supervisor.
    pub(super) channel: Channel,
    /// Counts the threads that carry its connections, by its copies.
    pub(super) carried: Arc<()>,
}

/// The one process of a call whose tracees may stop at their end.
pub(super) struct ExitTracer {
    pub(super) process: Pid,
    pub(super) fd: OwnedFd,
}

impl ExitTracer {
    /// True if it may still trace: until all its threads have ended, and with each of them what that traced.
    pub(super) fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        !matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
    }
}

/// Places that a call may read. Looked up only by calls that watch files, for there are many.
#[derive(Default)]
struct ReadablePlaces {
    /// `None` for all that the session may.
    named: Option<Vec<HostPath>>,
    real: Option<Vec<PathBuf>>,
}

/// All calls that run now or stand ready, by their workers' process ids.
pub(super) struct RunningCalls {
    calls: HashMap<Pid, RunningCall>,
    /// Threads that have asked of late, the latest last.
    threads: Vec<Thread>,
    /// Places that a call may write that may do what the session may.
    write: Arc<Writable>,
    /// Those of them that go with the session.
    own: Arc<Own>,
    next: u64,
    /// The worker of a session for one call.
    only: Option<Pid>,
    /// Changes of calls that are over, until somebody asks.
    over: HashMap<u64, Collected>,
    objects: AllObjects,
}

impl RunningCalls {
    pub(super) fn new(plan: &SessionPlan) -> Self {
        Self {
            calls: HashMap::new(),
            threads: Vec::new(),
            write: Arc::new(Writable::of(plan)),
            own: Arc::new(Own::of(plan)),
            next: 0,
            only: None,
            over: HashMap::new(),
            objects: AllObjects::default(),
        }
    }

    /// Places that the session may write.
    pub(super) fn writable(&self) -> Arc<[PathBuf]> {
        self.write.paths().cloned().collect()
    }

    /// The System V objects of all calls.
    pub(super) fn objects(&self) -> AllObjects {
        self.objects.clone()
    }

    /// True if two paths lie in trees that count as file systems of their own.
    pub(super) fn are_apart(&self, one: &Path, other: &Path) -> bool {
        self.write.are_apart(one, other)
    }

    /// A worker stands ready.
    pub(super) fn add(&mut self, pid: Pid, worker: u64, asked: Option<OwnedFd>) {
        self.next += 1;
        let call = RunningCall {
            number: self.next,
            worker,
            written: WritablePlaces::new(Arc::clone(&self.write)),
            only_reads: false,
            read: ReadablePlaces::default(),
            watches: Watches::default(),
            sockets: CallSockets::default(),
            network: None,
            serves_session: false,
            endpoint: None,
            fifos: WaitingOpens::default(),
            objects: Objects::new(&self.objects),
            changes: Collected::new(&self.own),
            exit_tracer: None,
            started: Arc::default(),
            noticed: false,
            asked,
            told: false,
        };
        self.calls.insert(pid, call);
    }

    /// A worker stands ready, and there will be no other.
    pub(super) fn add_only(&mut self, pid: Pid) {
        self.add(pid, 0, None);
        self.only = Some(pid);
    }

    /// Its call may do less than the session.
    pub(super) fn narrow(&mut self, worker: Pid, (trees, names): (&[HostPath], &[HostPath]), read: Vec<HostPath>) {
        if let Some(call) = self.calls.get_mut(&worker) {
            call.written.narrow(trees, names);
            call.read = ReadablePlaces { named: Some(read), real: None };
        }
    }

    /// Its call may change less than the session, and read as much.
    pub(super) fn narrow_changes(&mut self, worker: Pid, trees: &[HostPath], names: &[HostPath]) {
        if let Some(call) = self.calls.get_mut(&worker) {
            call.written.narrow_as_spelt(trees, names);
        }
    }

    /// Its call changes nothing, and may read what the session may.
    pub(super) fn only_read(&mut self, worker: Pid) {
        if let Some(call) = self.calls.get_mut(&worker) {
            call.written.narrow(&[], &[]);
            call.only_reads = true;
        }
    }

    /// Its call may connect to less than the session. Returns the number that the supervisor gave its worker.
    pub(super) fn narrow_network(&mut self, worker: Pid, network: Network) -> Option<u64> {
        let call = self.calls.get_mut(&worker)?;
        call.network = Some(network);
        Some(call.worker)
    }

    /// Its call is a program of the host's, whose servers the session's calls may reach.
    pub(super) fn serve_session(&mut self, worker: Pid) {
        if let Some(call) = self.calls.get_mut(&worker) {
            call.serves_session = true;
        }
    }

    /// Its call is the program that is the session's agent, whose connections to the endpoint go there.
    pub(super) fn give_endpoint(&mut self, worker: Pid, endpoint: Option<OwnedFd>) {
        if let Some(call) = self.calls.get_mut(&worker) {
            call.endpoint = endpoint.map(|fd| CallEndpoint { channel: Channel::from(fd), carried: Arc::default() });
        }
    }

    /// The workers of calls that have servers for this one, which is among them if it has some.
    pub(super) fn serving(&mut self, caller: &Caller<'_>) -> Vec<Pid> {
        let own = self.worker_of_caller(caller);
        // One that only reads would change things by way of a server that may, and one with a secret would tell it to a task.
        let keeps_away =
            |call: &RunningCall| call.only_reads || call.network.as_ref().is_some_and(|net| net.past_session);
        let alone = own.and_then(|own| self.calls.get(&own)).is_none_or(keeps_away);
        let serves = |(worker, call): (&Pid, &RunningCall)| {
            (call.serves_session && !alone && Some(*worker) != own).then_some(*worker)
        };
        own.into_iter().chain(self.calls.iter().filter_map(serves)).collect()
    }

    /// The call of a worker.
    pub(super) fn by_worker(&mut self, worker: Pid) -> Option<&mut RunningCall> {
        self.calls.get_mut(&worker)
    }

    /// Some call.
    pub(super) fn find(&mut self, is_it: impl Fn(Pid, u64) -> bool) -> Option<&mut RunningCall> {
        self.calls.iter_mut().find(|(pid, call)| is_it(**pid, call.worker)).map(|(_, call)| call)
    }

    /// Its call is over, and it stands ready again. Returns the worker's number.
    pub(super) fn renew(&mut self, pid: Pid) -> Option<u64> {
        let (worker, asked) = self.remove(pid)?;
        self.add(pid, worker, asked);
        Some(worker)
    }

    /// Its call is over. Returns the worker's number, and what tells it that the broker was asked.
    pub(super) fn remove(&mut self, pid: Pid) -> Option<(u64, Option<OwnedFd>)> {
        self.threads.retain(|thread| thread.worker.get() != Some(pid));
        let mut call = self.calls.remove(&pid)?;
        call.end();
        if !call.changes.is_empty() {
            if self.over.len() >= OVER {
                self.over.clear();
            }
            self.over.insert(call.worker, call.changes);
        }
        Some((call.worker, call.asked))
    }

    /// Changes of a call until now.
    pub(super) fn changes(&self, worker: u64) -> Option<&Collected> {
        self.calls.values().find(|call| call.worker == worker).map(|call| &call.changes)
    }

    /// Changes of a call that has ended, whether or not its worker has said so here.
    pub(super) fn take_changes(&mut self, worker: u64, notices: &ChangeNotices) -> rustix::io::Result<Collected> {
        let call = self.calls.values_mut().find(|call| call.worker == worker);
        // Of the worker's call before this one, if this is its next.
        if let Some(over) = self.over.remove(&worker) {
            if !call.is_some_and(|call| call.noticed) {
                notices.take_back(worker)?;
            }
            return Ok(over);
        }
        notices.take_back(worker)?;
        let taken = call.map(|call| {
            call.noticed = false;
            call.end();
            std::mem::replace(&mut call.changes, Collected::new(&self.own))
        });
        Ok(taken.unwrap_or_default())
    }

    /// Lets the supervisor see that a caller's call has changed something.
    pub(super) fn notice(&mut self, caller: &Caller<'_>, notices: &ChangeNotices) -> rustix::io::Result<()> {
        caller.thread.worker.get().map_or(Ok(()), |worker| self.notice_of(worker, notices))
    }

    /// Notice of a worker's call.
    fn notice_of(&mut self, worker: Pid, notices: &ChangeNotices) -> rustix::io::Result<()> {
        let Some(call) = self.calls.get_mut(&worker).filter(|call| !call.noticed && !call.changes.is_empty()) else {
            return Ok(());
        };
        call.noticed = true;
        let worker = call.worker;
        notices
            .put(worker, |other| self.over.contains_key(&other) || self.calls.values().any(|call| call.worker == other))
    }

    /// A program of a call was not let run, if that call is still the worker's.
    pub(super) fn not_started(
        &mut self,
        (worker, number): (Pid, u64),
        argv: String,
        why: Cow<'static, str>,
        notices: &ChangeNotices,
    ) -> rustix::io::Result<()> {
        match self.calls.get_mut(&worker).filter(|call| call.number == number) {
            Some(call) => call.changes.not_started(argv, why),
            None => return Ok(()),
        }
        self.notice_of(worker, notices)
    }

    /// Egress let something not be reached: by the call of a worker, or by one that nobody knows, which has made a socket for it.
    pub(super) fn not_reached(&mut self, worker: Option<u64>, host: String, why: Option<String>) {
        for call in self.calls.values_mut() {
            let meant = worker.map_or(call.told, |worker| call.worker == worker);
            if meant {
                call.changes.not_reached_because(host.clone(), why.clone());
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.calls.values_mut().for_each(RunningCall::end);
        self.calls.clear();
        self.threads.clear();
    }

    /// How many servers all calls have together.
    pub(super) fn servers(&self) -> usize {
        self.calls.values().map(|call| call.sockets.servers()).sum()
    }

    /// The call of a caller.
    pub(super) fn of(&mut self, caller: &Caller<'_>) -> Option<&mut RunningCall> {
        let worker = self.worker_of_caller(caller)?;
        self.calls.get_mut(&worker)
    }

    /// A thread that has asked before and is still there.
    pub(super) fn known(&mut self, tid: Pid) -> Option<Thread> {
        let at = self.threads.iter().position(|thread| thread.tid == tid)?;
        Some(self.threads.remove(at)).filter(Thread::is_there)
    }

    /// It may ask again.
    pub(super) fn keep(&mut self, thread: Thread) {
        if self.threads.len() >= THREADS {
            self.threads.remove(0);
        }
        self.threads.push(thread);
    }

    /// Nothing is known of any thread's mask any more.
    pub(super) fn forget_masks(&mut self) {
        self.threads.iter().for_each(|thread| thread.umask.set(None));
    }

    /// The worker that the caller descends from, looked up once.
    pub(super) fn worker_of_caller(&mut self, caller: &Caller<'_>) -> Option<Pid> {
        let thread = &caller.thread;
        if thread.worker.get().is_none() {
            // In a session for one call nobody else can have its filter.
            let worker = self.only.or_else(|| self.worker_of_child(thread)).or_else(|| self.worker_of(thread));
            thread.worker.set(worker.filter(|worker| self.tell(*worker, thread)));
        }
        thread.worker.get()
    }

    /// Tells a worker that one of its call has asked, before anything is kept of that call: the worker looks when all of them
    /// have ended, and says so if it is told. False if the one who asked has ended by then.
    fn tell(&mut self, worker: Pid, thread: &Thread) -> bool {
        let Some(call) = self.calls.get_mut(&worker).filter(|call| !call.told) else { return true };
        let told = call.asked.as_ref().map(|asked| rustix::io::write(asked, &1_u64.to_ne_bytes()));
        call.told = told.is_none_or(|told| told.is_ok());
        call.told && thread.is_there()
    }

    /// Worker of a thread, from its parent, if that is known. It is the one that is known if that one is there still.
    fn worker_of_child(&mut self, thread: &Thread) -> Option<Pid> {
        let parent = Procfs::USUAL.parent_of(thread.tid)?;
        let parent = self.known(parent)?;
        let worker = parent.worker.get();
        self.keep(parent);
        worker.filter(|_| thread.is_there())
    }

    /// The worker that a thread is of or descends from. What was climbed from is the thread that was meant, not one that got its
    /// number.
    fn worker_of(&self, thread: &Thread) -> Option<Pid> {
        let worker = (0..5).find_map(|_| self.trace(process_of(thread.tid)?))?;
        thread.is_there().then_some(worker)
    }

    /// Climbs from a process to the worker. A parent that dies on the way could have its number taken by a stranger, so
    /// each link is read again from below once the climb is done: a child keeps its parent's number only while that
    /// parent lives.
    fn trace(&self, pid: Pid) -> Option<Pid> {
        let mut chain = vec![pid];
        let mut seen = HashSet::new();
        loop {
            let last = *chain.last()?;
            if self.calls.contains_key(&last) {
                break;
            }
            if last <= 1 || !seen.insert(last) {
                return None;
            }
            chain.push(Procfs::USUAL.parent_of(last)?);
        }
        let confirmed = chain.windows(2).all(|pair| Procfs::USUAL.parent_of(pair[0]) == Some(pair[1]));
        if confirmed { chain.last().copied() } else { None }
    }

    /// True if a process or thread belongs to the caller's call. The worker does not, except to itself: it is the init
    /// that ends the call's processes, and a program that could stop, starve or kill it would outlive it for a moment.
    pub(super) fn are_siblings(&mut self, caller: &Caller<'_>, other: Pid) -> bool {
        if other != caller.tid() && self.calls.contains_key(&other) {
            return false;
        }
        let mine = self.worker_of_caller(caller);
        mine.is_some() && Thread::open(other).is_ok_and(|other| self.worker_of(&other) == mine)
    }

    /// All processes of the caller's call, without its worker, whose process group is not the call's.
    pub(super) fn family_of(&mut self, caller: &Caller<'_>) -> Vec<Pid> {
        self.worker_of_caller(caller).map(Self::family).unwrap_or_default()
    }

    /// All processes below a worker.
    pub(super) fn family(worker: Pid) -> Vec<Pid> {
        let mut all = Procfs::USUAL.children(worker);
        let mut next = 0;
        while let Some(pid) = all.get(next).copied() {
            next += 1;
            all.extend(Procfs::USUAL.children(pid));
        }
        all
    }
}
