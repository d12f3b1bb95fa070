//! One confined session: its broker and zygote, and the worker that stands ready for the next call.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use callgate_policy::envelope::StepReport;
use callgate_policy::plan::{CallPlan, Calls, FsRule, SessionPlan, Work};
use callgate_worker::protocol::{
    Channel, FromWorker, FromZygote, Received, SessionReply, StepFailure, ToWorker, ToZygote, ToolEnd,
};
use serde_json::Value;
use tokio::sync::mpsc;

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

/// A worker that waits for its call.
struct Ready {
    worker: u64,
    channel: Channel,
}

type Waiting = Arc<Mutex<HashMap<u64, tokio::sync::oneshot::Sender<()>>>>;

/// An open session.
pub(crate) struct Opened {
    pub(crate) steps: Vec<StepReport>,
    /// The rules of the session's plan: most calls that run programs have the same.
    rules: Vec<FsRule>,
    /// Closing it ends the session.
    _broker: AsyncChannel,
    workers: Workers,
}

/// Where a session's workers come from.
enum Workers {
    Zygote(Zygote),
    /// There is one, for the one call of the session.
    Only(Mutex<Option<AsyncChannel>>),
}

/// The zygote's side of a session.
struct Zygote {
    channel: Arc<AsyncChannel>,
    ready: tokio::sync::Mutex<mpsc::UnboundedReceiver<Result<Ready, i32>>>,
    /// Who wants to know that a worker is gone.
    gone: Waiting,
    next: AtomicU64,
    reader: tokio::task::JoinHandle<()>,
}

impl Drop for Zygote {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// A tool's result as it came: bytes not yet looked at, and how it ended.
pub(crate) struct ToolRun {
    pub(crate) steps: Vec<StepReport>,
    pub(crate) data: Vec<u8>,
    pub(crate) end: ToolEnd,
}

impl Opened {
    /// Opens a session and has its first worker made.
    pub(crate) async fn open(launcher: &Launcher, plan: SessionPlan) -> Result<Self, ConfineError> {
        let (ours, theirs) = Channel::pair().map_err(channel("make the session's channel"))?;
        let (calls, rules) = (plan.calls, plan.rules.clone());
        launcher.open(plan, &theirs)?;
        drop(theirs);
        let ours = AsyncChannel::new(ours).map_err(channel("wait on the session's channel"))?;
        let reply = tokio::time::timeout(PATIENCE, ours.receive::<SessionReply>())
            .await
            .map_err(|_elapsed| ConfineError::TimedOut(PATIENCE))?
            .map_err(channel("hear from the broker"))?;
        let (steps, fd) = match reply {
            Received::Message(SessionReply::Ready { steps }, fds) => {
                (steps, fds.into_iter().next().ok_or(ConfineError::Ended)?)
            }
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
        let other = AsyncChannel::new(Channel::from(fd)).map_err(channel("wait on the zygote's channel"))?;
        let workers = match calls {
            Calls::One => Workers::Only(Mutex::new(Some(other))),
            Calls::Many => Workers::Zygote(Zygote::start(other).await?),
        };
        Ok(Self { steps, rules, _broker: ours, workers })
    }

    /// Takes the worker that stands ready, and has the next one made meanwhile.
    async fn take(&self) -> Result<Worker<'_>, ConfineError> {
        match &self.workers {
            Workers::Zygote(zygote) => zygote.take().await,
            Workers::Only(worker) => {
                let channel = worker.lock().unwrap_or_else(PoisonError::into_inner).take();
                Ok(Worker { channel: channel.ok_or(ConfineError::Ended)?, killer: None })
            }
        }
    }

    /// Runs a tool in a worker.
    pub(crate) async fn tool(&self, plan: CallPlan, arguments: Value) -> Result<ToolRun, ConfineError> {
        let timeout = plan.timeout;
        let worker = self.take().await?;
        let run = tokio::time::timeout(timeout, worker.tool(self.hand_over(plan), arguments)).await;
        match run {
            Ok(Ok(run)) => Ok(run),
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

    /// The frame that hands a worker its call.
    fn hand_over(&self, mut plan: CallPlan) -> ToWorker {
        let rules_of_session = plan.rules == self.rules;
        if rules_of_session {
            plan.rules.clear();
        }
        ToWorker::Call { plan: Box::new(plan), rules_of_session }
    }

    /// Starts a program in a worker.
    pub(crate) async fn program(&self, plan: CallPlan, stdio: Stdio) -> Result<Program, ConfineError> {
        debug_assert!(matches!(plan.work, Work::Program { .. }), "a program's plan");
        let worker = self.take().await?;
        let [input, output, error] = stdio.0;
        worker
            .channel
            .send(&self.hand_over(plan), &[input.as_fd(), output.as_fd(), error.as_fd()])
            .await
            .map_err(channel("hand the worker its call"))?;
        drop((input, output, error));
        let steps = worker.confined().await?;
        Ok(Program::new(worker.channel, steps))
    }
}

impl Zygote {
    /// Listens to it, and has its first worker made.
    async fn start(channel: AsyncChannel) -> Result<Self, ConfineError> {
        let channel = Arc::new(channel);
        let gone = Waiting::default();
        let (sender, ready) = mpsc::unbounded_channel();
        let reader = tokio::spawn(read_zygote(Arc::clone(&channel), sender, Arc::clone(&gone)));
        let zygote = Self { channel, ready: tokio::sync::Mutex::new(ready), gone, next: AtomicU64::new(0), reader };
        zygote.prepare().await?;
        Ok(zygote)
    }

    async fn prepare(&self) -> Result<(), ConfineError> {
        let worker = self.next.fetch_add(1, Ordering::Relaxed);
        self.channel.send(&ToZygote::Prepare { worker }, &[]).await.map_err(|_gone| ConfineError::Ended)
    }

    async fn take(&self) -> Result<Worker<'_>, ConfineError> {
        let ready = {
            let mut queue = self.ready.lock().await;
            tokio::time::timeout(PATIENCE, queue.recv())
                .await
                .map_err(|_elapsed| ConfineError::TimedOut(PATIENCE))?
                .ok_or(ConfineError::Ended)?
        };
        self.prepare().await?;
        let ready = ready.map_err(|errno| {
            ConfineError::Refused(StepFailure {
                step: "worker".to_owned(),
                what: "fork".to_owned(),
                errno: Some(errno),
            })
        })?;
        let channel_ = AsyncChannel::new(ready.channel).map_err(channel("wait on the worker's channel"))?;
        Ok(Worker { channel: channel_, killer: Some((self, ready.worker)) })
    }

    /// Kills a worker, and waits until it is gone with everything it started.
    async fn kill(&self, worker: u64) -> Result<(), ConfineError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).insert(worker, sender);
        self.channel.send(&ToZygote::Kill { worker }, &[]).await.map_err(|_gone| ConfineError::Ended)?;
        match tokio::time::timeout(PATIENCE, receiver).await {
            // Also when the sender was dropped with the session: then everything is gone.
            Ok(_) => Ok(()),
            Err(_elapsed) => Err(ConfineError::TimedOut(PATIENCE)),
        }
    }
}

/// Hears what the zygote says until it is gone.
async fn read_zygote(zygote: Arc<AsyncChannel>, ready: mpsc::UnboundedSender<Result<Ready, i32>>, gone: Waiting) {
    while let Ok(Received::Message(message, fds)) = zygote.receive::<FromZygote>().await {
        let delivered = match message {
            FromZygote::Prepared { worker } => match fds.into_iter().next().map(Channel::from) {
                Some(channel) => ready.send(Ok(Ready { worker, channel })).is_ok(),
                None => false,
            },
            FromZygote::NotPrepared { errno, .. } => ready.send(Err(errno)).is_ok(),
            FromZygote::Gone { worker, .. } => {
                let waiting = gone.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
                // Who asked may have given up waiting.
                if let Some(Err(())) = waiting.map(|waiting| waiting.send(())) {
                    tracing::debug!("a worker is gone that nobody waits for any more");
                }
                true
            }
        };
        if !delivered {
            return;
        }
    }
    gone.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// A worker with a call.
struct Worker<'a> {
    channel: AsyncChannel,
    /// Who can kill it; the only worker of a session ends with the session.
    killer: Option<(&'a Zygote, u64)>,
}

impl Worker<'_> {
    async fn kill(&self) -> Result<(), ConfineError> {
        match self.killer {
            Some((zygote, worker)) => zygote.kill(worker).await,
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

    async fn tool(&self, call: ToWorker, arguments: Value) -> Result<ToolRun, ConfineError> {
        let hand = channel("hand the worker its call");
        self.channel.send(&call, &[]).await.map_err(hand)?;
        let hand = channel("hand the worker its arguments");
        self.channel.send(&ToWorker::Arguments(arguments), &[]).await.map_err(hand)?;
        let steps = self.confined().await?;
        let mut data = Vec::new();
        loop {
            match self.channel.receive::<FromWorker>().await.map_err(channel("hear from the worker"))? {
                Received::Data(chunk) if data.len() + chunk.len() <= RESULT_MAX => data.extend(chunk),
                Received::Data(_) => return Err(ConfineError::Hostile { what: "more than a result may hold" }),
                Received::Message(FromWorker::ToolEnded(end), _) => return Ok(ToolRun { steps, data, end }),
                Received::Message(..) => {
                    return Err(ConfineError::Hostile { what: "a frame that a tool does not send" });
                }
                Received::Closed => return Err(ConfineError::WorkerLost),
            }
        }
    }
}
