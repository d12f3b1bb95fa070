//! Ending what is in flight, and the session.

use super::Session;
use crate::store::StoreError;
use crate::turn::Concurrency;

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
        self.family.children.stop().await;
        // A call keeps its turn for as long as anything of it runs.
        drop(in_turn.turn().await);
        drop(self.family.agents_program.take(Concurrency::Alone).await);
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
