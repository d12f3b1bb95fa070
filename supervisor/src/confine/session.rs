//! One confined session: its broker and zygotes, and the workers that stand ready for the next call.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callgate_policy::envelope::StepReport;
use callgate_policy::plan::{CallPlan, Calls, FsAccess, SessionPlan, Work};
use callgate_worker::protocol::{
    Channel, FromWorker, FromZygote, Received, SessionReply, SessionSteps, StepFailure, ToWorker, ToZygote, ToolEnd,
};
use serde_json::Value;

use super::channel::AsyncChannel;
use super::launcher::Launcher;
use super::program::{Program, Stdio};

/// Most bytes that a worker may send as a tool's result: room for the largest limit with every byte escaped.
const RESULT_MAX: usize = 4 * 1024 * 1024;
/// How long a session may take to open, or a worker to be forked, before the host is given up on.
const PATIENCE: Duration = Duration::from_secs(30);

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

/// An open session.
pub(crate) struct Opened {
    steps: SessionSteps,
    /// Closing it ends the session.
    _broker: AsyncChannel,
    workers: Workers,
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
}

/// What a tool gave.
pub(crate) struct ToolOutput {
    pub(crate) data: Value,
    pub(crate) truncated: bool,
}

/// Why it gave nothing.
pub(crate) struct ToolError {
    pub(crate) text: String,
    pub(crate) errno: Option<i32>,
}

impl Opened {
    /// Opens a session and has its first worker made.
    pub(crate) async fn open(launcher: &Launcher, plan: SessionPlan) -> Result<Self, ConfineError> {
        let (ours, theirs) = Channel::pair().map_err(channel("make the session's channel"))?;
        let calls = plan.calls;
        launcher.open(plan, &theirs)?;
        drop(theirs);
        let ours = AsyncChannel::new(ours).map_err(channel("wait on the session's channel"))?;
        let reply = tokio::time::timeout(PATIENCE, ours.receive::<SessionReply>())
            .await
            .map_err(|_elapsed| ConfineError::TimedOut(PATIENCE))?
            .map_err(channel("hear from the broker"))?;
        let (steps, mut fds) = match reply {
            Received::Message(SessionReply::Ready(steps), fds) => (steps, fds.into_iter()),
            Received::Message(SessionReply::Failed(failed), _) => return Err(ConfineError::Refused(failed)),
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
        Ok(Self { steps, _broker: ours, workers })
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
    async fn start(&self, reader: bool, plan: CallPlan, fds: &[BorrowedFd<'_>]) -> Result<Worker, ConfineError> {
        let call = ToWorker::Call(Box::new(plan));
        // All that stood ready may be gone; one that is made for this call and gone as well has a reason.
        let mut left = READY_MAX;
        loop {
            let worker = self.take(reader).await?;
            match worker.channel.send(&call, fds).await {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe && left > 0 => left -= 1,
                sent => return sent.map(|()| worker).map_err(channel("hand the worker its call")),
            }
        }
    }

    /// Takes a worker for a call.
    async fn take(&self, reader: bool) -> Result<Worker, ConfineError> {
        match &self.workers {
            Workers::Zygotes { programs, readers } => (if reader { readers } else { programs }).take().await,
            Workers::Only(worker) => {
                let channel = worker.lock().unwrap_or_else(PoisonError::into_inner).take();
                Ok(Worker { channel: channel.ok_or(ConfineError::Ended)?, busy: None })
            }
        }
    }

    /// Runs a tool in a worker.
    pub(crate) async fn tool(&self, plan: CallPlan, arguments: Value) -> Result<ToolRun, ConfineError> {
        let timeout = plan.timeout;
        let reads = plan.rules.own().iter().all(|rule| rule.access == FsAccess::Read);
        let reader = reads && matches!(self.workers, Workers::Zygotes { .. });
        let worker = self.start(reader, plan, &[]).await?;
        match tokio::time::timeout(timeout, worker.tool(arguments)).await {
            Ok(Ok((steps, end))) => {
                // What follows a call, the end of its worker and the making of another, is not for the caller to wait for.
                tokio::spawn(async { drop(worker) });
                Ok(ToolRun { steps: self.confined(reader, steps), end })
            }
            Ok(Err(error)) => {
                worker.kill().await?;
                Err(error)
            }
            Err(_elapsed) => {
                worker.kill().await?;
                Err(ConfineError::TimedOut(timeout))
            }
        }
    }

    /// Starts a program in a worker.
    pub(crate) async fn program(&self, plan: CallPlan, stdio: Stdio) -> Result<Program, ConfineError> {
        debug_assert!(matches!(plan.work, Work::Program { .. }), "a program's plan");
        let worker = self.start(false, plan, &stdio.0.each_ref().map(AsFd::as_fd)).await?;
        // Held on, the program's pipes would never end for who reads them.
        drop(stdio);
        let steps = self.confined(false, worker.confined().await?);
        Ok(Program::new(worker.channel, steps, worker.busy))
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
    ready: VecDeque<Result<(u64, Channel), StepFailure>>,
    gone: HashSet<u64>,
}

/// How many workers there are, by what was asked for and taken.
#[derive(Default)]
struct Stock {
    /// Numbers given out.
    next: u64,
    /// Asked for and not yet taken.
    ready: usize,
    /// Given back.
    idle: Vec<(u64, AsyncChannel)>,
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
}

impl Busy {
    /// The worker's program has ended: it can be given another. If enough stand ready, it ends.
    pub(super) fn give_back(&self, channel: AsyncChannel) {
        let mut stock = self.zygote.stock();
        if stock.ready + stock.idle.len() < READY_MAX {
            stock.idle.push((self.worker, channel));
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut stock = self.zygote.stock();
        stock.busy -= 1;
        // Only now: while the call ran, the making of another worker would have slowed it down.
        if stock.ready + stock.idle.len() < stock.peak.min(READY_MAX) {
            let worker = stock.ask();
            // One that cannot be asked for now is asked for by the next call.
            if self.zygote.channel.try_send(&ToZygote::Prepare { worker }).is_err() {
                stock.ready -= 1;
            }
        }
    }
}

impl Stock {
    fn ask(&mut self) -> u64 {
        self.ready += 1;
        self.next += 1;
        self.next
    }
}

impl Zygote {
    /// Has its first worker made.
    async fn start(channel: AsyncChannel) -> Result<Arc<Self>, ConfineError> {
        let zygote = Self { channel, heard: tokio::sync::Mutex::default(), stock: Mutex::default() };
        let worker = zygote.stock().ask();
        zygote.prepare(worker).await?;
        Ok(Arc::new(zygote))
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn prepare(&self, worker: u64) -> Result<(), ConfineError> {
        self.channel.send(&ToZygote::Prepare { worker }, &[]).await.map_err(|_gone| ConfineError::Ended)
    }

    /// Takes a worker that stands ready, or has one made.
    async fn take(self: &Arc<Self>) -> Result<Worker, ConfineError> {
        let (idle, missing) = {
            let mut stock = self.stock();
            stock.busy += 1;
            stock.peak = stock.peak.max(stock.busy);
            let idle = stock.idle.pop();
            let missing = (idle.is_none() && stock.ready == 0).then(|| stock.ask());
            stock.ready -= usize::from(idle.is_none());
            (idle, missing)
        };
        let mut busy = Busy { zygote: Arc::clone(self), worker: 0 };
        if let Some((worker, channel)) = idle {
            busy.worker = worker;
            return Ok(Worker { channel, busy: Some(busy) });
        }
        if let Some(worker) = missing {
            self.prepare(worker).await?;
        }
        let (worker, channel_) = self.hear(|heard| heard.ready.pop_front()).await?.map_err(ConfineError::Refused)?;
        busy.worker = worker;
        let channel = AsyncChannel::new(channel_).map_err(channel("wait on the worker's channel"))?;
        Ok(Worker { channel, busy: Some(busy) })
    }

    /// Kills a worker, and waits until it is gone with everything it started.
    async fn kill(&self, worker: u64) -> Result<(), ConfineError> {
        self.channel.send(&ToZygote::Kill { worker }, &[]).await.map_err(|_gone| ConfineError::Ended)?;
        match self.hear(|heard| heard.gone.remove(&worker).then_some(())).await {
            // Everything is gone with its session.
            Err(ConfineError::Ended) => Ok(()),
            heard => heard,
        }
    }

    /// Listens to it until it has said what is waited for. One listens at a time, and keeps what is for others.
    async fn hear<T>(&self, waited: impl Fn(&mut Heard) -> Option<T>) -> Result<T, ConfineError> {
        let listen = async {
            let mut heard = self.heard.lock().await;
            loop {
                if let Some(found) = waited(&mut heard) {
                    return Ok(found);
                }
                match self.channel.receive::<FromZygote>().await.map_err(|_gone| ConfineError::Ended)? {
                    Received::Message(FromZygote::Prepared { worker }, fds) => {
                        heard.ready.extend(fds.into_iter().next().map(|fd| Ok((worker, Channel::from(fd)))));
                    }
                    Received::Message(FromZygote::NotPrepared { errno, .. }, _) => {
                        heard.ready.push_back(Err(StepFailure {
                            step: "worker".to_owned(),
                            what: "fork".to_owned(),
                            errno: Some(errno),
                        }));
                    }
                    Received::Message(FromZygote::Gone { worker }, _) => drop(heard.gone.insert(worker)),
                    Received::Data(_) | Received::Closed => return Err(ConfineError::Ended),
                }
            }
        };
        tokio::time::timeout(PATIENCE, listen).await.map_err(|_elapsed| ConfineError::TimedOut(PATIENCE))?
    }
}

/// A worker with a call.
struct Worker {
    channel: AsyncChannel,
    /// `None` for the only worker of a session, which ends with it.
    busy: Option<Busy>,
}

impl Worker {
    async fn kill(&self) -> Result<(), ConfineError> {
        match &self.busy {
            Some(Busy { zygote, worker }) => zygote.kill(*worker).await,
            None => Ok(()),
        }
    }

    /// The worker's first frame: what it confirmed before it read anything that a model wrote.
    async fn confined(&self) -> Result<Vec<StepReport>, ConfineError> {
        match self.channel.receive::<FromWorker>().await.map_err(channel("hear from the worker"))? {
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
        self.channel.send(&ToWorker::Arguments(arguments), &[]).await.map_err(hand)?;
        let steps = self.confined().await?;
        let mut long = Vec::new();
        loop {
            match self.channel.receive::<FromWorker>().await.map_err(channel("hear from the worker"))? {
                Received::Data(chunk) if long.len() + chunk.len() <= RESULT_MAX => long.extend(chunk),
                Received::Data(_) => return Err(ConfineError::Hostile { what: "more than a result may hold" }),
                Received::Message(FromWorker::ToolEnded(ToolEnd::Output { truncated, data }), _) => {
                    let not_json = |_e| ConfineError::Hostile { what: "a result that is not JSON" };
                    let data = data.map_or_else(|| serde_json::from_slice(&long), Ok).map_err(not_json)?;
                    return Ok((steps, Ok(ToolOutput { data, truncated })));
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
