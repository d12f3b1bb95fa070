//! Ending what is in flight.

use std::pin::pin;

use tokio::sync::watch;

use super::CallError;
use crate::session::Session;
use crate::store::StoreError;
use crate::turn::Concurrency;

/// How often the calls of a session were aborted.
#[derive(Debug, Default)]
pub(crate) struct Aborts(watch::Sender<u64>);

/// Notices the next abort.
#[derive(Debug, Clone)]
pub(super) struct Aborted(watch::Receiver<u64>);

impl Aborts {
    /// Of a call that begins now.
    pub(super) fn listen(&self) -> Aborted {
        Aborted(self.0.subscribe())
    }

    fn tell(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl Aborted {
    /// What `work` returns, unless there is an abort first: then it is dropped, by which all that it started ends. After an
    /// abort it is not begun.
    pub(super) async fn unless<T>(&mut self, work: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        let work = pin!(work);
        if self.0.has_changed().unwrap_or(true) {
            return Err(CallError::Aborted);
        }
        tokio::select! {
            biased;
            done = work => done,
            _ = self.0.changed() => Err(CallError::Aborted),
        }
    }
}

impl Session {
    /// Aborts every call that is in flight, also one that waits for its turn or for a person. Each returns an error and is
    /// recorded as cancelled. The session goes on.
    ///
    /// This returns when nothing runs any more that those calls started. Until then, poll them: a call that is neither polled
    /// nor dropped never notices.
    pub async fn abort(&self) {
        self.aborts.tell();
        // A call keeps its turn for as long as anything of it runs.
        drop(self.turns.take(Concurrency::Alone).await);
    }

    /// Aborts what is in flight and ends the session. In a store it is closed: nobody continues it, and the files of its outputs
    /// are removed. What was recorded stays.
    ///
    /// # Errors
    /// [`StoreError`] if that cannot be recorded. The session has ended all the same.
    pub async fn close(self) -> Result<(), StoreError> {
        self.abort().await;
        let recorder = std::sync::Arc::clone(&self.recorder);
        drop(self);
        recorder.close()
    }
}
