//! Ending what is in flight.

use std::pin::pin;

use tokio::sync::watch;

use crate::error::CallError;

/// How often the calls of a session were aborted; [`ENDED`] if for good.
#[derive(Debug, Default)]
pub(crate) struct Aborts(watch::Sender<u64>);

/// Nothing runs any more.
const ENDED: u64 = u64::MAX;

/// Notices the next abort.
#[derive(Debug, Clone)]
pub(crate) struct Aborted(watch::Receiver<u64>);

impl Aborts {
    /// Listener of a call that begins now.
    pub(crate) fn listen(&self) -> Aborted {
        Aborted(self.0.subscribe())
    }

    pub(crate) fn tell(&self) {
        self.0.send_modify(|count| *count = count.saturating_add(1));
    }

    /// True if nothing may run any more.
    pub(crate) fn have_ended(&self) -> bool {
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
    pub(crate) async fn unless<T>(&mut self, work: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
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
