//! Ending what is in flight.

use std::pin::pin;

use tokio::sync::watch;

use super::CallError;
use crate::session::Session;
use crate::store::StoreError;
use crate::turn::Concurrency;

/// How often the calls of a session were aborted; [`ENDED`] if for good.
#[derive(Debug, Default)]
pub(crate) struct Aborts(watch::Sender<u64>);

/// Nothing runs any more.
const ENDED: u64 = u64::MAX;

/// Notices the next abort.
#[derive(Debug, Clone)]
pub(super) struct Aborted(watch::Receiver<u64>);

impl Aborts {
    /// Listener of a call that begins now.
    pub(super) fn listen(&self) -> Aborted {
        Aborted(self.0.subscribe())
    }

    fn tell(&self) {
        self.0.send_modify(|count| *count = count.saturating_add(1));
    }

    /// True if nothing may run any more.
    pub(super) fn have_ended(&self) -> bool {
        *self.0.borrow() == ENDED
    }

    /// Aborts all that is in flight and all that comes.
    pub(crate) fn end(&self) {
        self.0.send_modify(|count| *count = ENDED);
    }
}

impl Aborted {
    /// Result of `work`, unless there is an abort first: then it is dropped, by which all that it started ends. After
    /// an abort it is not begun.
    pub(super) async fn unless<T>(&mut self, work: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        let work = pin!(work);
        if *self.0.borrow() == ENDED || self.0.has_changed().unwrap_or(true) {
            return Err(self.why());
        }
        tokio::select! {
            biased;
            done = work => done,
            _ = self.0.changed() => Err(self.why()),
        }
    }

    fn why(&self) -> CallError {
        if *self.0.borrow() == ENDED { CallError::Ended } else { CallError::Aborted }
    }
}

impl Session {
    /// Aborts every call that is in flight, also one that waits for its turn or for a person, and every subagent with all that it
    /// has started (X0-23). Each call returns an error and is recorded as cancelled. The session goes on.
    ///
    /// A background task (`exec_shell`) goes on: the call that has started it is over, and one that waits for it stops waiting (X2-4).
    ///
    /// This returns when nothing runs any more that those calls started. Until then, poll them: a call that is neither polled
    /// nor dropped never notices.
    pub async fn abort(&self) {
        self.aborts.tell();
        let in_turn = self.turns.queue(Concurrency::Alone).await;
        self.children.stop().await;
        // A call keeps its turn for as long as anything of it runs.
        drop(in_turn.turn().await);
        drop(self.agents_program.take(Concurrency::Alone).await);
    }

    /// Aborts what is in flight and ends the session. In a store it is closed: nobody continues it, and the files of its outputs
    /// are removed. What was recorded stays.
    ///
    /// # Errors
    /// [`StoreError`] if that cannot be recorded. The session has ended all the same.
    pub async fn close(self) -> Result<(), StoreError> {
        self.abort().await;
        self.background.end().await;
        let recorder = std::sync::Arc::clone(&self.recorder);
        drop(self);
        recorder.close()
    }
}
