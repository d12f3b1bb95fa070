//! Where workers come from: the zygotes, and the workers that stand ready for the next call.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use callgate_policy::step::Step;
use callgate_worker::protocol::{Channel, FromZygote, Received, StepFailure, Threads, ToZygote};

use super::channel::AsyncChannel;
use super::error::{ConfineError, channel};
use super::worker::Worker;
use tokio::sync::Notify;

/// How long a session may take to open, or a worker to be forked, before the host is given up on.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How long a killed worker may take to be gone with everything it started: longer than its zygote waits for that, a minute,
/// before it gives up its session.
const GONE: Duration = Duration::from_secs(90);

/// Most workers that stand ready while nothing runs.
pub(super) const READY_MAX: usize = 4;

/// Where a session's workers come from.
pub(super) enum Workers {
    Zygotes {
        programs: Arc<Zygote>,
        readers: Arc<Zygote>,
    },
    /// There is one, for the one call of the session.
    Only(Mutex<Option<AsyncChannel>>),
}

/// The supervisor's side of a zygote.
pub(super) struct Zygote {
    channel: AsyncChannel,
    /// Held by the one task that listens to it.
    listening: tokio::sync::Mutex<()>,
    /// Tells the others that something was heard.
    news: Notify,
    stock: Mutex<Stock>,
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
    /// Made, or not, as the zygote has said, and not taken yet.
    made: HashMap<u64, Result<Channel, StepFailure>>,
    /// Given back: they have run a program, and wait for another.
    idle: Vec<(u64, AsyncChannel)>,
    /// Those that may run something, each with the number of its taking: from then until they are given back or gone, whoever
    /// holds them.
    taken: HashMap<u64, u64>,
    /// Takings until now.
    takings: u64,
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

/// A worker that is to be gone.
pub(super) struct Dying {
    zygote: Arc<Zygote>,
    worker: u64,
    /// True if its zygote has been asked to kill it.
    is_asked: bool,
}

/// Has a worker killed that was taken, from any thread and without a runtime. It keeps nothing of it, and does nothing once the
/// worker was given back, whoever has taken it then.
#[derive(Debug)]
pub(crate) struct Aborter {
    zygote: Weak<Zygote>,
    worker: u64,
    taking: u64,
}

impl Aborter {
    /// Has it killed, as far as that can be asked for at once.
    pub(crate) fn abort_now(&self) {
        let Some(zygote) = self.zygote.upgrade() else { return };
        // Locked until it is asked: it cannot be given back in between.
        let stock = zygote.stock();
        if stock.taken.get(&self.worker) == Some(&self.taking) {
            // One that cannot be asked now is killed when its worker is dropped.
            drop(zygote.channel.try_send(&ToZygote::Kill { worker: self.worker }, &[]));
        }
    }
}

impl Busy {
    pub(super) fn worker(&self) -> u64 {
        self.worker
    }

    /// An aborter of what its worker runs.
    pub(super) fn aborter(&self) -> Aborter {
        let taking = self.zygote.stock().taken.get(&self.worker).copied().unwrap_or_default();
        Aborter { zygote: Arc::downgrade(&self.zygote), worker: self.worker, taking }
    }

    /// The worker's program has ended: it can be given another. If enough stand ready, it ends.
    pub(super) fn give_back(self, channel: AsyncChannel) {
        let mut stock = self.zygote.stock();
        // Not one that was killed meanwhile.
        if stock.taken.remove(&self.worker).is_some() && stock.plain.ready.len() + stock.idle.len() < READY_MAX {
            stock.idle.push((self.worker, channel));
        }
    }

    /// The worker's tool has answered. It has nothing of its own left, and ends by itself when it finds its channel closed.
    pub(super) fn has_answered(self, channel: AsyncChannel) {
        drop(channel);
        self.zygote.stock().taken.remove(&self.worker);
    }

    /// Has the worker killed, as far as that can be asked for at once.
    pub(super) fn kill(self) -> Dying {
        Dying { is_asked: self.zygote.kill_now(self.worker), zygote: Arc::clone(&self.zygote), worker: self.worker }
    }
}

impl Dying {
    /// Waits until it is gone with everything it started.
    pub(super) async fn gone(self) -> Result<(), ConfineError> {
        let Self { zygote, worker, is_asked } = self;
        if is_asked { zygote.gone(worker).await } else { zygote.kill(worker).await }
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

    fn take(&mut self, worker: u64) {
        self.takings += 1;
        self.taken.insert(worker, self.takings);
    }
}

impl Zygote {
    /// Has its first worker made.
    pub(super) async fn start(channel: AsyncChannel) -> Result<Arc<Self>, ConfineError> {
        let (listening, news, stock) = (tokio::sync::Mutex::default(), Notify::new(), Mutex::default());
        let zygote = Self { channel, listening, news, stock };
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
    pub(super) async fn take(self: &Arc<Self>, threads: Threads) -> Result<Worker, ConfineError> {
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
            self.stock().take(worker);
            return Ok(Worker::new(channel, Some(busy)));
        }
        if missing {
            self.prepare(worker, threads).await?;
        }
        busy.waits = true;
        let made = self.hear(PATIENCE, |stock| stock.made.remove(&worker)).await?;
        busy.waits = false;
        self.stock().take(worker);
        let made = AsyncChannel::new(made.map_err(ConfineError::Refused)?);
        Ok(Worker::new(made.map_err(channel("wait on the worker's channel"))?, Some(busy)))
    }

    /// Kills a worker, and waits until it is gone with everything it started.
    async fn kill(&self, worker: u64) -> Result<(), ConfineError> {
        self.channel.send(&ToZygote::Kill { worker }, &[]).await.map_err(|_gone| ConfineError::Ended)?;
        self.gone(worker).await
    }

    /// Kills those that are at work, and waits until they are gone with everything they started.
    pub(super) async fn kill_all(&self) {
        let taken: Vec<u64> = self.stock().taken.keys().copied().collect();
        for worker in taken {
            if let Err(error) = self.kill(worker).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "a program could not be ended");
            }
        }
    }

    /// Waits until a worker that was killed is gone.
    async fn gone(&self, worker: u64) -> Result<(), ConfineError> {
        match self.hear(GONE, |stock| (!stock.taken.contains_key(&worker)).then_some(())).await {
            // Everything is gone with its session.
            Err(ConfineError::Ended) => Ok(()),
            heard => heard,
        }
    }

    /// Kills a worker if that can be asked for at once, and says whether it could.
    fn kill_now(&self, worker: u64) -> bool {
        self.channel.try_send(&ToZygote::Kill { worker }, &[]).is_ok()
    }

    /// Listens to it until it has said what is waited for. One listens at a time, to one frame, and those who wait for something else
    /// hear of it: a worker that takes long to end keeps nobody from another.
    async fn hear<T>(&self, patience: Duration, waited: impl Fn(&mut Stock) -> Option<T>) -> Result<T, ConfineError> {
        let listen = async {
            loop {
                let mut news = pin!(self.news.notified());
                // Before it is looked at: what is heard from now on wakes this.
                news.as_mut().enable();
                if let Some(found) = waited(&mut self.stock()) {
                    return Ok(found);
                }
                tokio::select! {
                    biased;
                    () = news => {}
                    listening = self.listen() => listening?,
                }
            }
        };
        tokio::time::timeout(patience, listen).await.map_err(|_elapsed| ConfineError::TimedOut(patience))?
    }

    /// Takes in its next frame, once nobody else listens.
    async fn listen(&self) -> Result<(), ConfineError> {
        let _listening = self.listening.lock().await;
        match self.channel.receive::<FromZygote>().await.map_err(|_gone| ConfineError::Ended)? {
            Received::Message(FromZygote::Prepared { worker }, fds) => {
                let made = fds.into_iter().next().map(|fd| (worker, Ok(Channel::from(fd))));
                self.stock().made.extend(made);
            }
            Received::Message(FromZygote::NotPrepared { worker, errno }, _) => {
                let failed = StepFailure::new(Step::Worker, "fork").errno(Some(errno));
                self.stock().made.insert(worker, Err(failed));
            }
            Received::Message(FromZygote::Gone { worker }, _) => drop(self.stock().taken.remove(&worker)),
            Received::Data(_) | Received::Closed => return Err(ConfineError::Ended),
        }
        self.news.notify_waiters();
        Ok(())
    }
}
