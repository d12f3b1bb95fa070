//! A program that runs in a session.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use callgate_policy::envelope::{Changes, StepReport};
use callgate_worker::protocol::{FromWorker, ProgramEnd, Received, ToWorker};

use super::broker::Broker;
use super::cgroup::Group;
use super::channel::AsyncChannel;
use super::error::{ConfineError, heard};
use super::worker::Worker;
use super::workers::Aborter;
use crate::store::Recording;

/// A started program. Dropping it ends the program and everything that it started.
pub struct Program {
    worker: Worker,
    steps: Vec<StepReport>,
    /// End as the worker told it.
    told: OnceLock<ProgramEnd>,
    /// End, when all is known.
    ended: OnceLock<ProgramEnd>,
    /// Ends with the program.
    _group: Option<Group>,
    /// Where the broker writes: whom to ask what was changed, and as whom.
    broker: Option<(Arc<Broker>, u64)>,
    changes: OnceLock<Changes>,
    /// Recording of one that the host started.
    recording: Mutex<Option<Recording>>,
    /// Words that it was started with, as one line.
    command: String,
}

impl Drop for Program {
    fn drop(&mut self) {
        // One with something left in it ends.
        if self.ended.get().is_some_and(|end| end.left == 0) {
            self.worker.give_back();
        }
    }
}

impl Program {
    pub(super) fn new(
        worker: Worker,
        steps: Vec<StepReport>,
        group: Option<Group>,
        broker: Option<(Arc<Broker>, u64)>,
    ) -> Self {
        Self {
            worker,
            steps,
            told: OnceLock::new(),
            ended: OnceLock::new(),
            _group: group,
            broker,
            changes: OnceLock::new(),
            recording: Mutex::new(None),
            command: String::new(),
        }
    }

    /// The record of it ends with its report, or with this value.
    pub(crate) fn record(mut self, recording: Recording) -> Self {
        self.recording = Mutex::new(Some(recording));
        self
    }

    /// It was started with this line.
    pub(crate) fn of_command(mut self, command: String) -> Self {
        self.command = command;
        self
    }

    /// Words that it was started with, as one line.
    pub(crate) fn command(&self) -> &str {
        &self.command
    }

    /// Its record, if that has not ended.
    pub(crate) fn take_recording(&self) -> Option<Recording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Changes by it in trees with kept names, once [`Program::wait`] has returned. `None` if there are none, or if
    /// nobody could say.
    #[must_use]
    pub fn changes(&self) -> Option<&Changes> {
        self.changes.get()
    }

    /// Changes by it until now, and what was refused to it. `None` if nobody can say.
    pub(crate) async fn changes_so_far(&self) -> Option<Changes> {
        match (self.changes.get(), &self.broker) {
            (Some(changes), _) => Some(changes.clone()),
            (None, Some((broker, worker))) => broker.changes_so_far(*worker).await,
            (None, None) => None,
        }
    }

    /// Steps that confined it, each confirmed before its first instruction.
    #[must_use]
    pub fn steps(&self) -> &[StepReport] {
        &self.steps
    }

    /// Passes a signal to the program and its process group.
    ///
    /// # Errors
    /// If the program's worker is gone.
    pub async fn signal(&self, signal: i32) -> Result<(), ConfineError> {
        self.send(&ToWorker::Signal(signal)).await
    }

    /// Ends the program and everything that it started; [`Program::wait`] then says how it ended.
    ///
    /// # Errors
    /// If the program's worker is gone.
    pub async fn abort(&self) -> Result<(), ConfineError> {
        self.send(&ToWorker::Abort).await
    }

    /// An aborter of it. `None` if it is the only one of its session, and ends with that.
    pub(crate) fn aborter(&self) -> Option<Aborter> {
        self.worker.aborter()
    }

    /// Kills its worker, which did not end the program, and all that it started.
    pub(crate) async fn kill(mut self) -> Result<(), ConfineError> {
        self.worker.end().await
    }

    async fn send(&self, message: &ToWorker) -> Result<(), ConfineError> {
        if self.ended.get().is_some() {
            // Its worker may have another program by the time that it would hear of this.
            return Ok(());
        }
        let failed = |source| ConfineError::Channel { what: "talk to the program's worker", source };
        self.channel()?.send(message, &[]).await.map_err(failed)
    }

    /// Waits until the program has ended and nothing that it started is left.
    ///
    /// # Errors
    /// [`ConfineError::WorkerLost`] if the worker was killed from outside; what it ran has been killed by then, too.
    pub async fn wait(&self) -> Result<ProgramEnd, ConfineError> {
        if let Some(end) = self.ended.get() {
            return Ok(*end);
        }
        let end = match self.told.get() {
            Some(end) => *end,
            None => self.hear().await?,
        };
        if let Some((broker, worker)) = &self.broker
            && let Some(changes) = broker.changes(*worker).await
        {
            self.changes.get_or_init(|| changes);
        }
        Ok(*self.ended.get_or_init(|| end))
    }

    /// Waits for the worker's last frame, and keeps what it said: whoever waits may be dropped before the rest is known.
    async fn hear(&self) -> Result<ProgramEnd, ConfineError> {
        let failed = heard("hear from the program's worker");
        match self.channel()?.receive::<FromWorker>().await.map_err(failed)? {
            Received::Message(FromWorker::Ended(end), _) => Ok(*self.told.get_or_init(|| end)),
            Received::Message(..) | Received::Data(_) => {
                Err(ConfineError::Hostile { what: "something else than an end" })
            }
            Received::Closed => Err(ConfineError::WorkerLost),
        }
    }

    fn channel(&self) -> Result<&AsyncChannel, ConfineError> {
        self.worker.channel()
    }
}
