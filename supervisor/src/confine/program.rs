//! A program that runs in a session.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::OnceLock;

use callgate_policy::envelope::StepReport;
use callgate_worker::protocol::{FromWorker, ProgramEnd, Received, ToWorker};

use super::channel::AsyncChannel;
use super::session::{Busy, ConfineError};

/// A program's standard input, output and error.
#[derive(Debug)]
pub struct Stdio(pub(super) [OwnedFd; 3]);

impl Stdio {
    /// These three. Pipes, files and terminals are handed over as they are; the program can do with them what their
    /// open flags allow.
    #[must_use]
    pub fn new(input: OwnedFd, output: OwnedFd, error: OwnedFd) -> Self {
        Self([input, output, error])
    }

    /// `/dev/null` for all three.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn null() -> io::Result<Self> {
        let null = || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
        Ok(Self([null()?, null()?, null()?]))
    }

    /// Copies of this process's own.
    ///
    /// # Errors
    /// dup(2)'s own, for a stream that is closed.
    pub fn inherit() -> io::Result<Self> {
        Ok(Self([
            io::stdin().as_fd().try_clone_to_owned()?,
            io::stdout().as_fd().try_clone_to_owned()?,
            io::stderr().as_fd().try_clone_to_owned()?,
        ]))
    }
}

/// A started program. Dropping it ends the program and everything that it started.
pub struct Program {
    /// `None` only while this is dropped.
    channel: Option<AsyncChannel>,
    steps: Vec<StepReport>,
    ended: OnceLock<ProgramEnd>,
    busy: Option<Busy>,
}

impl Drop for Program {
    fn drop(&mut self) {
        if let (Some(channel), Some(busy), Some(_)) = (self.channel.take(), &self.busy, self.ended.get()) {
            busy.give_back(channel);
        }
    }
}

impl Program {
    pub(super) fn new(channel: AsyncChannel, steps: Vec<StepReport>, busy: Option<Busy>) -> Self {
        Self { channel: Some(channel), steps, ended: OnceLock::new(), busy }
    }

    /// What confined it, each confirmed before its first instruction.
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
        let failed = |source| ConfineError::Channel { what: "hear from the program's worker", source };
        match self.channel()?.receive::<FromWorker>().await.map_err(failed)? {
            Received::Message(FromWorker::Ended(end), _) => Ok(*self.ended.get_or_init(|| end)),
            Received::Message(..) | Received::Data(_) => {
                Err(ConfineError::Hostile { what: "something else than an end" })
            }
            Received::Closed => Err(ConfineError::WorkerLost),
        }
    }

    fn channel(&self) -> Result<&AsyncChannel, ConfineError> {
        self.channel.as_ref().ok_or(ConfineError::WorkerLost)
    }
}
