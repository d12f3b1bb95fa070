//! One confined session: its broker and zygotes, and the workers that stand ready for the next call.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callgate_policy::envelope::{Changes, StepReport};
use callgate_policy::plan::{CallPlan, Calls, FsAccess, Identity, SessionPlan, Starter, Watched, Work, Writer};
use callgate_worker::protocol::{
    Channel, FromWorker, FromZygote, Received, SessionReply, SessionSteps, StepFailure, Threads, ToBroker, ToWorker,
    ToZygote, ToolEnd, notice,
};
use callgate_worker::tools;
use serde_json::Value;

use super::cgroup::{Delegated, Group};
use super::channel::AsyncChannel;
use super::launcher::Launcher;
use super::measured;
use super::outputs::Outputs;
use super::program::{Program, Stdio};
use super::terminal::{Terminal, TerminalError, WindowSize};
use crate::turn::Turn;

/// Most bytes that a worker may send as a tool's result: room for the largest limit with every byte escaped.
const RESULT_MAX: usize = 4 * 1024 * 1024;
/// Most bytes that a result may take when it is parsed.
const PARSED_MAX: usize = 64 * 1024 * 1024;
/// Most bytes that it may send of what a result has no room for: what a tool keeps, and one more entry.
const REST_MAX: usize = 12 * 1024 * 1024;
/// Most reports that are kept for whoever may ask again.
const LATE: usize = 64;
/// How long a session may take to open, or a worker to be forked, before the host is given up on.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a killed worker may take to be gone with everything it started: longer than its zygote waits for that, a minute,
/// before it gives up its session.
const GONE: Duration = Duration::from_secs(90);

/// Why nothing ran, or why a call has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// A step of confinement failed: the host cannot enforce what was asked.
    #[error("the host cannot enforce this")]
    Refused(#[source] StepFailure),
    /// Talking to the session's processes failed.
    #[error("{what}")]
    Channel {
        /// The operation.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The session's processes are gone.
    #[error("the session has ended: its zygote or broker is gone; open another")]
    Ended,
    /// The worker was gone before it gave a result.
    #[error("the worker ended without a result")]
    WorkerLost,
    /// A worker broke the protocol, or sent more than it may.
    #[error("the worker sent {what}, and was killed")]
    Hostile {
        /// What.
        what: &'static str,
    },
    /// The call's time was up.
    #[error("the call took longer than {}s, and was killed", .0.as_secs_f32())]
    TimedOut(Duration),
}

fn channel(what: &'static str) -> impl FnOnce(io::Error) -> ConfineError {
    move |source| ConfineError::Channel { what, source }
}

/// What a worker says may be hostile: a frame that is none, or too long, tells so.
pub(super) fn heard(what: &'static str) -> impl FnOnce(io::Error) -> ConfineError {
    move |source| {
        if source.kind() == io::ErrorKind::InvalidData {
            ConfineError::Hostile { what: "a frame that is too long, or none" }
        } else {
            ConfineError::Channel { what, source }
        }
    }
}

/// An open session.
pub(crate) struct Opened {
    steps: SessionSteps,
    broker: Arc<Broker>,
    writer: Writer,
    starter: Starter,
    workers: Workers,
    groups: Option<Arc<Delegated>>,
    /// The session's own `/dev/pts`, if it has one.
    terminals: Option<OwnedFd>,
    /// The tracer's questions, if watchdogs are asked about programs.
    tracer: Option<AsyncChannel>,
}

/// The session's side of its broker.
pub(super) struct Broker {
    /// Closing its channel ends the session.
    asked: tokio::sync::Mutex<Asked>,
    /// Which calls have changed anything.
    notices: File,
}

/// What the broker was asked.
struct Asked {
    channel: AsyncChannel,
    questions: u64,
    /// Questions without an answer, and the workers that they are about: who asked may be gone.
    open: HashMap<u64, u64>,
    /// What came for those who were gone.
    late: HashMap<u64, Changes>,
}

impl Broker {
    fn new(channel: AsyncChannel, notices: File) -> Self {
        let asked = Asked { channel, questions: 0, open: HashMap::new(), late: HashMap::new() };
        Self { asked: tokio::sync::Mutex::new(asked), notices }
    }

    /// What the call of a worker has changed, once it has ended. `None` if the broker is gone.
    pub(super) async fn changes(&self, worker: u64) -> Option<Changes> {
        let mut asked = self.asked.lock().await;
        let asked = &mut *asked;
        let again = asked.open.values().any(|about| *about == worker) || asked.late.contains_key(&worker);
        if !again {
            if !notice::is_there(&self.notices, worker).ok()? {
                return Some(Changes::default());
            }
            asked.questions += 1;
            asked.open.insert(asked.questions, worker);
            let question = asked.questions;
            asked.channel.send(&ToBroker::Report { worker, question }, &[]).await.ok()?;
        }
        loop {
            if let Some(changes) = asked.late.remove(&worker) {
                return Some(changes);
            }
            match asked.channel.receive::<SessionReply>().await.ok()? {
                Received::Message(SessionReply::Report { question, changes }, _) => {
                    let about = asked.open.remove(&question)?;
                    if asked.late.len() >= LATE {
                        asked.late.clear();
                    }
                    asked.late.insert(about, changes);
                }
                Received::Message(..) | Received::Data(_) | Received::Closed => return None,
            }
        }
    }
}

/// Where a session's workers come from.
enum Workers {
    Zygotes {
        programs: Arc<Zygote>,
        readers: Arc<Zygote>,
    },
    /// There is one, for the one call of the session.
    Only(Mutex<Option<AsyncChannel>>),
}

/// A tool's result as it came.
pub(crate) struct ToolRun {
    /// What confined it, its session's part first.
    pub(crate) steps: Vec<StepReport>,
    pub(crate) end: Result<ToolOutput, ToolError>,
    /// What it has changed, where the broker writes.
    pub(crate) changes: Option<Changes>,
}

/// What a tool gave.
pub(crate) struct ToolOutput {
    pub(crate) data: Value,
    pub(crate) truncated: bool,
    /// What it had no room for, as a tool keeps it.
    pub(crate) rest: Vec<u8>,
    /// There was more than it keeps.
    pub(crate) lost: bool,
}

/// Why it gave nothing.
pub(crate) struct ToolError {
    pub(crate) text: String,
    pub(crate) errno: Option<i32>,
}

impl Opened {
    /// Opens a session and has its first worker made.
    pub(crate) async fn open(
        launcher: &Launcher,
        plan: SessionPlan,
        outputs: Option<&Outputs>,
        groups: Option<Arc<Delegated>>,
    ) -> Result<Self, ConfineError> {
        let (ours, theirs) = Channel::pair().map_err(channel("make the session's channel"))?;
        let (calls, writer, starter, watched) = (plan.calls, plan.writer(), plan.starter(), plan.watched);
        launcher.open(plan, &theirs, outputs)?;
        drop(theirs);
        let ours = AsyncChannel::new(ours).map_err(channel("wait on the session's channel"))?;
        let reply = tokio::time::timeout(PATIENCE, ours.receive::<SessionReply>())
            .await
            .map_err(|_elapsed| ConfineError::TimedOut(PATIENCE))?
            .map_err(channel("hear from the broker"))?;
        launcher.answered();
        let (steps, mut fds) = match reply {
            Received::Message(SessionReply::Ready(steps), fds) => (steps, fds.into_iter()),
            Received::Message(SessionReply::Failed(failed), _) => return Err(ConfineError::Refused(failed)),
            Received::Message(SessionReply::Report { .. }, _) => return Err(ConfineError::Ended),
            // Killed, or stopped by a step that comes before it can tell.
            Received::Data(_) | Received::Closed => {
                return Err(ConfineError::Refused(StepFailure {
                    step: "session".to_owned(),
                    what: "its processes ended before they were confined".to_owned(),
                    errno: None,
                }));
            }
        };
        let mut next = || {
            let fd = fds.next().ok_or(ConfineError::Ended)?;
            AsyncChannel::new(Channel::from(fd)).map_err(channel("wait on the zygote's channel"))
        };
        let workers = match calls {
            Calls::One => Workers::Only(Mutex::new(Some(next()?))),
            Calls::Many => {
                Workers::Zygotes { programs: Zygote::start(next()?).await?, readers: Zygote::start(next()?).await? }
            }
        };
        let notices = fds.next().ok_or(ConfineError::Ended)?;
        let notices = notice::accept(notices).map_err(channel("take the file of notices"))?;
        let tracer = match watched {
            Some(Watched::Watchdogs) => {
                let tracer = Channel::from(fds.next().ok_or(ConfineError::Ended)?);
                Some(AsyncChannel::new(tracer).map_err(channel("wait on the tracer's channel"))?)
            }
            Some(Watched::Rules) | None => None,
        };
        let broker = Arc::new(Broker::new(ours, notices));
        Ok(Self { steps, broker, writer, starter, workers, groups, terminals: fds.next(), tracer })
    }

    /// The tracer's channel, if watchdogs are asked about programs: whoever takes it must answer, or nothing is started.
    pub(crate) fn tracer(&mut self) -> Option<AsyncChannel> {
        self.tracer.take()
    }

    /// What confined the session's processes.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &StepReport> {
        self.steps.common.iter().chain(&self.steps.programs).chain(&self.steps.readers)
    }

    /// What confined a call's process: the session's part, and the call's own. `reader` for one that has only read.
    fn confined(&self, reader: bool, call: Vec<StepReport>) -> Vec<StepReport> {
        let side = if reader { &self.steps.readers } else { &self.steps.programs };
        self.steps.common.iter().chain(side).cloned().chain(call).collect()
    }

    /// Takes a worker and hands it a call, with descriptors. One that was killed while it stood ready is passed over.
    async fn start(
        &self,
        (reader, threads): (bool, Threads),
        plan: CallPlan,
        fds: &[BorrowedFd<'_>],
        turn: Option<Turn>,
    ) -> Result<Worker, ConfineError> {
        let call = ToWorker::Call(Box::new(plan));
        // All that stood ready may be gone; one that is made for this call and gone as well has a reason.
        let mut left = READY_MAX;
        loop {
            let mut worker = self.take(reader, threads).await?;
            match worker.channel()?.send(&call, fds).await {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe && left > 0 => left -= 1,
                sent => {
                    sent.map_err(channel("hand the worker its call"))?;
                    worker.turn = turn;
                    return Ok(worker);
                }
            }
        }
    }

    /// Takes a worker for a call.
    async fn take(&self, reader: bool, threads: Threads) -> Result<Worker, ConfineError> {
        match &self.workers {
            Workers::Zygotes { programs, readers } => (if reader { readers } else { programs }).take(threads).await,
            Workers::Only(worker) => {
                let channel = worker.lock().unwrap_or_else(PoisonError::into_inner).take();
                Ok(Worker::new(channel.ok_or(ConfineError::Ended)?, None))
            }
        }
    }

    /// Runs a tool in a worker. Its turn is over when nothing of it runs any more, also if this is dropped before.
    pub(crate) async fn tool(&self, plan: CallPlan, arguments: Value, turn: Turn) -> Result<ToolRun, ConfineError> {
        let timeout = plan.timeout;
        let reads = plan.rules.own().iter().all(|rule| rule.access == FsAccess::Read);
        let reader = reads && matches!(self.workers, Workers::Zygotes { .. });
        let threads = match &plan.work {
            Work::Tool { name, .. } if reader => tools::threads_of(name),
            Work::Tool { .. } | Work::Program { .. } => Threads::Never,
        };
        let mut worker = self.start((reader, threads), plan, &[], Some(turn)).await?;
        match tokio::time::timeout(timeout, worker.tool(arguments)).await {
            Ok(Ok((steps, end))) => {
                let changes = match self.writer {
                    Writer::Broker | Writer::BrokerReadsToo if !reader => self.broker.changes(worker.number()).await,
                    Writer::Broker | Writer::BrokerReadsToo | Writer::Kernel => None,
                };
                worker.turn = None;
                // What follows a call, the end of its worker and the making of another, is not for the caller to wait for.
                tokio::spawn(async { drop(worker) });
                Ok(ToolRun { steps: self.confined(reader, steps), end, changes })
            }
            Ok(Err(error)) => {
                worker.end().await?;
                Err(error)
            }
            Err(_elapsed) => {
                worker.end().await?;
                Err(ConfineError::TimedOut(timeout))
            }
        }
    }

    /// Whether there are workers for what only reads, besides those of programs.
    pub(crate) fn has_readers(&self) -> bool {
        matches!(self.workers, Workers::Zygotes { .. })
    }

    /// Makes a terminal where the session's programs find it by its name.
    pub(crate) fn terminal(&self, size: WindowSize, owner: Identity) -> Result<(Terminal, Stdio), TerminalError> {
        Terminal::make(self.terminals.as_ref(), size, owner)
    }

    /// Starts a program in a worker.
    pub(crate) async fn program(
        &self,
        plan: CallPlan,
        stdio: Stdio,
        turn: Option<Turn>,
    ) -> Result<Program, ConfineError> {
        debug_assert!(matches!(plan.work, Work::Program { .. }), "a program's plan");
        let group = self.groups.as_ref().map(|groups| groups.group(&plan.bounds)).transpose();
        let group = group.map_err(channel("make a cgroup for the program"))?;
        let watched = group.as_ref().map(Group::descriptors).transpose();
        let watched = watched.map_err(channel("open the program's cgroup"))?;
        let mut fds = stdio.descriptors();
        fds.extend(watched.iter().flatten().map(AsFd::as_fd));
        let worker = self.start((false, Threads::Never), plan, &fds, turn).await?;
        // Held on, the program's pipes would never end for who reads them.
        drop(stdio);
        let steps = self.confined(false, worker.confined().await?);
        let tells = self.writer.is_broker() || self.starter == Starter::Broker;
        let broker = tells.then(|| (Arc::clone(&self.broker), worker.number()));
        Ok(Program::new(worker, steps, group, broker))
    }
}

/// Most workers that stand ready while nothing runs.
const READY_MAX: usize = 4;

/// The supervisor's side of a zygote.
struct Zygote {
    channel: AsyncChannel,
    heard: tokio::sync::Mutex<Heard>,
    stock: Mutex<Stock>,
}

/// What a zygote has said, and nobody has asked for yet.
#[derive(Default)]
struct Heard {
    ready: HashMap<u64, Result<Channel, StepFailure>>,
    gone: HashSet<u64>,
}

/// Its workers, by what was asked for and taken.
#[derive(Default)]
struct Stock {
    /// Numbers given out.
    next: u64,
    /// Those with one thread.
    plain: Kind,
    /// Those that search: there are none before the first search.
    searchers: Kind,
    /// Given back: they have run a program, and wait for another.
    idle: Vec<(u64, AsyncChannel)>,
}

/// Workers that may make the same.
#[derive(Default)]
struct Kind {
    /// Asked for and not yet taken, the oldest first.
    ready: VecDeque<u64>,
    /// Taken, and at work.
    busy: usize,
    /// Most that were ever at work at once.
    peak: usize,
}

/// A call that runs.
pub(super) struct Busy {
    zygote: Arc<Zygote>,
    /// Its worker's number.
    worker: u64,
    threads: Threads,
    /// It waits for its worker still.
    waits: bool,
}

impl Busy {
    /// The worker's program has ended: it can be given another. If enough stand ready, it ends.
    pub(super) fn give_back(&self, channel: AsyncChannel) {
        let mut stock = self.zygote.stock();
        if stock.plain.ready.len() + stock.idle.len() < READY_MAX {
            stock.idle.push((self.worker, channel));
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut stock = self.zygote.stock();
        let idle = if self.threads == Threads::Never { stock.idle.len() } else { 0 };
        let kind = stock.kind(self.threads);
        kind.busy -= 1;
        if self.waits {
            // Whoever comes next is who waits for it.
            kind.ready.push_front(self.worker);
            return;
        }
        // Only now: while the call ran, the making of another worker would have slowed it down.
        if kind.ready.len() + idle < kind.peak.min(READY_MAX) {
            let worker = stock.ask(self.threads);
            // One that cannot be asked for now is asked for by the next call.
            if self.zygote.channel.try_send(&ToZygote::Prepare { worker, threads: self.threads }, &[]).is_err() {
                stock.kind(self.threads).ready.pop_back();
            }
        }
    }
}

impl Stock {
    fn kind(&mut self, threads: Threads) -> &mut Kind {
        match threads {
            Threads::Never => &mut self.plain,
            Threads::OfItsOwn => &mut self.searchers,
        }
    }

    fn ask(&mut self, threads: Threads) -> u64 {
        self.next += 1;
        let worker = self.next;
        self.kind(threads).ready.push_back(worker);
        worker
    }
}

impl Zygote {
    /// Has its first worker made.
    async fn start(channel: AsyncChannel) -> Result<Arc<Self>, ConfineError> {
        let zygote = Self { channel, heard: tokio::sync::Mutex::default(), stock: Mutex::default() };
        let worker = zygote.stock().ask(Threads::Never);
        zygote.prepare(worker, Threads::Never).await?;
        Ok(Arc::new(zygote))
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn prepare(&self, worker: u64, threads: Threads) -> Result<(), ConfineError> {
        self.channel.send(&ToZygote::Prepare { worker, threads }, &[]).await.map_err(|_gone| ConfineError::Ended)
    }

    /// Takes a worker that stands ready, or has one made.
    async fn take(self: &Arc<Self>, threads: Threads) -> Result<Worker, ConfineError> {
        let (idle, missing, worker) = {
            let mut stock = self.stock();
            let idle = if threads == Threads::Never { stock.idle.pop() } else { None };
            let missing = idle.is_none() && stock.kind(threads).ready.is_empty();
            if missing {
                stock.ask(threads);
            }
            let kind = stock.kind(threads);
            kind.busy += 1;
            kind.peak = kind.peak.max(kind.busy);
            let worker = if idle.is_none() { kind.ready.pop_front() } else { None };
            (idle, missing, worker.unwrap_or(0))
        };
        let mut busy = Busy { zygote: Arc::clone(self), worker, threads, waits: false };
        if let Some((worker, channel)) = idle {
            busy.worker = worker;
            return Ok(Worker::new(channel, Some(busy)));
        }
        if missing {
            self.prepare(worker, threads).await?;
        }
        busy.waits = true;
        let made = self.hear(PATIENCE, |heard| heard.ready.remove(&worker)).await?;
        busy.waits = false;
        let channel = AsyncChannel::new(made.map_err(ConfineError::Refused)?);
        Ok(Worker::new(channel.map_err(self::channel("wait on the worker's channel"))?, Some(busy)))
    }

    /// Kills a worker, and waits until it is gone with everything it started.
    async fn kill(&self, worker: u64) -> Result<(), ConfineError> {
        self.channel.send(&ToZygote::Kill { worker }, &[]).await.map_err(|_gone| ConfineError::Ended)?;
        self.gone(worker).await
    }

    /// Waits until a worker that was killed is gone.
    async fn gone(&self, worker: u64) -> Result<(), ConfineError> {
        match self.hear(GONE, |heard| heard.gone.remove(&worker).then_some(())).await {
            // Everything is gone with its session.
            Err(ConfineError::Ended) => Ok(()),
            heard => heard,
        }
    }

    /// Kills a worker if that can be asked for at once, and says whether it could.
    fn kill_now(&self, worker: u64) -> bool {
        self.channel.try_send(&ToZygote::Kill { worker }, &[]).is_ok()
    }

    /// Listens to it until it has said what is waited for. One listens at a time, and keeps what is for others.
    async fn hear<T>(&self, patience: Duration, waited: impl Fn(&mut Heard) -> Option<T>) -> Result<T, ConfineError> {
        let listen = async {
            let mut heard = self.heard.lock().await;
            loop {
                if let Some(found) = waited(&mut heard) {
                    return Ok(found);
                }
                match self.channel.receive::<FromZygote>().await.map_err(|_gone| ConfineError::Ended)? {
                    Received::Message(FromZygote::Prepared { worker }, fds) => {
                        heard.ready.extend(fds.into_iter().next().map(|fd| (worker, Ok(Channel::from(fd)))));
                    }
                    Received::Message(FromZygote::NotPrepared { worker, errno }, _) => {
                        let (step, what) = ("worker".to_owned(), "fork".to_owned());
                        drop(heard.ready.insert(worker, Err(StepFailure { step, what, errno: Some(errno) })));
                    }
                    Received::Message(FromZygote::Gone { worker }, _) => drop(heard.gone.insert(worker)),
                    Received::Data(_) | Received::Closed => return Err(ConfineError::Ended),
                }
            }
        };
        tokio::time::timeout(patience, listen).await.map_err(|_elapsed| ConfineError::TimedOut(patience))?
    }
}

/// A worker with a call. Dropped before its end, it is killed, and its turn is over when it is gone.
pub(super) struct Worker {
    /// `None` only while this is dropped, or taken apart.
    channel: Option<AsyncChannel>,
    /// `None` for the only worker of a session, which ends with it.
    busy: Option<Busy>,
    turn: Option<Turn>,
    /// Where its end is waited for. `None` if it was made without one.
    runtime: Option<tokio::runtime::Handle>,
}

impl Drop for Worker {
    /// The end of what runs does not depend on the runtime, which may be blocked, or never run again: an init ends its program
    /// when it finds its channel closed, and a zygote kills whichever worker it is asked to.
    fn drop(&mut self) {
        drop(self.channel.take());
        // Only who has a place has to see to its end before the next; a runtime that ends has no next.
        let (Some(turn), Some(busy)) = (self.turn.take(), self.busy.take()) else { return };
        let asked = busy.zygote.kill_now(busy.worker);
        let Some(runtime) = self.runtime.take() else { return };
        runtime.spawn(async move {
            let Busy { zygote, worker, .. } = &busy;
            // If it is not heard of any more, its session has ended with all that was in it.
            drop(if asked { zygote.gone(*worker).await } else { zygote.kill(*worker).await });
            drop((busy, turn));
        });
    }
}

impl Worker {
    /// By which the broker knows it; the only one of a session is 0.
    fn number(&self) -> u64 {
        self.busy.as_ref().map_or(0, |busy| busy.worker)
    }

    fn new(channel: AsyncChannel, busy: Option<Busy>) -> Self {
        let runtime = tokio::runtime::Handle::try_current().ok();
        Self { channel: Some(channel), busy, turn: None, runtime }
    }

    pub(super) fn channel(&self) -> Result<&AsyncChannel, ConfineError> {
        self.channel.as_ref().ok_or(ConfineError::WorkerLost)
    }

    /// Its program has ended with all that it started.
    pub(super) fn give_back(&mut self) {
        self.turn = None;
        if let (Some(busy), Some(channel)) = (&self.busy, self.channel.take()) {
            busy.give_back(channel);
        }
    }

    /// Kills it, and waits until it is gone with everything it started.
    pub(super) async fn end(&mut self) -> Result<(), ConfineError> {
        if let Some(Busy { zygote, worker, .. }) = &self.busy {
            zygote.kill(*worker).await?;
        }
        self.turn = None;
        Ok(())
    }

    /// The worker's first frame: what it confirmed before it read anything that a model wrote.
    async fn confined(&self) -> Result<Vec<StepReport>, ConfineError> {
        match self.channel()?.receive::<FromWorker>().await.map_err(heard("hear from the worker"))? {
            Received::Message(FromWorker::Confined { steps }, _) => Ok(steps),
            Received::Message(FromWorker::Failed(failed), _) => Err(ConfineError::Refused(failed)),
            Received::Message(..) | Received::Data(_) => {
                Err(ConfineError::Hostile { what: "a result before its confinement" })
            }
            Received::Closed => Err(ConfineError::WorkerLost),
        }
    }

    async fn tool(&self, arguments: Value) -> Result<(Vec<StepReport>, Result<ToolOutput, ToolError>), ConfineError> {
        let hand = channel("hand the worker its arguments");
        self.channel()?.send(&ToWorker::Arguments(arguments), &[]).await.map_err(hand)?;
        let steps = self.confined().await?;
        let (mut long, mut rest) = (Vec::new(), None::<Vec<u8>>);
        loop {
            match self.channel()?.receive::<FromWorker>().await.map_err(heard("hear from the worker"))? {
                Received::Data(chunk) => {
                    let (part, most) = match &mut rest {
                        None => (&mut long, RESULT_MAX),
                        Some(rest) => (rest, REST_MAX),
                    };
                    if part.len() + chunk.len() > most {
                        return Err(ConfineError::Hostile { what: "more than a result may hold" });
                    }
                    part.extend(chunk);
                }
                Received::Message(FromWorker::Rest, _) if rest.is_none() => rest = Some(Vec::new()),
                Received::Message(FromWorker::ToolEnded(ToolEnd::Output { truncated, lost, data }), _) => {
                    let not_json = |_e| ConfineError::Hostile { what: "a result that is not JSON, or too much of it" };
                    let data = data.map_or_else(|| measured::parse(&long, PARSED_MAX), Ok).map_err(not_json)?;
                    let rest = rest.unwrap_or_default();
                    return Ok((steps, Ok(ToolOutput { data, truncated, rest, lost })));
                }
                Received::Message(FromWorker::ToolEnded(ToolEnd::Error { text, errno }), _) => {
                    return Ok((steps, Err(ToolError { text, errno })));
                }
                Received::Message(..) => {
                    return Err(ConfineError::Hostile { what: "a frame that a tool does not send" });
                }
                Received::Closed => return Err(ConfineError::WorkerLost),
            }
        }
    }
}
