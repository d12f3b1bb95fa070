//! One worker: its call, and its end.

use callgate_policy::envelope::{Changes, StepReport};
use callgate_policy::failure::ErrorCode;
use callgate_worker::protocol::{FromWorker, Received, ToWorker, ToolEnd};
use serde_json::Value;

use super::channel::AsyncChannel;
use super::error::{ConfineError, channel, heard};
use super::workers::{Aborter, Busy};
use crate::json;
use crate::turn::Turn;

/// Most bytes that a worker may send as a tool's result: room for the largest limit with every byte escaped.
const RESULT_MAX: usize = 4 * 1024 * 1024;

/// Most bytes that a result may take when it is parsed.
const PARSED_MAX: usize = 64 * 1024 * 1024;

/// Most bytes that it may send of what a result has no room for: what a tool keeps, and one more entry.
const REST_MAX: usize = 12 * 1024 * 1024;

/// A tool's result as it came.
pub(crate) struct ToolRun {
    /// Steps that confined it, its session's part first.
    pub(crate) steps: Vec<StepReport>,
    pub(crate) end: Result<ToolOutput, ToolError>,
    /// Changes by it, where the broker writes.
    pub(crate) changes: Option<Changes>,
}

/// Output of a tool.
pub(crate) struct ToolOutput {
    pub(crate) data: Value,
    pub(crate) truncated: bool,
    /// Rest that it had no room for, as a tool keeps it.
    pub(crate) rest: Vec<u8>,
    /// There was more than it keeps.
    pub(crate) lost: bool,
}

/// Reason why it gave nothing.
pub(crate) struct ToolError {
    pub(crate) text: String,
    pub(crate) errno: Option<i32>,
    pub(crate) code: ErrorCode,
}

/// A worker with a call. A tool's ends when it has answered. A program's is given back, once all that it ran has ended, or it is
/// killed, and its turn is over when it is gone. Dropped before, either is killed, whatever its turn.
pub(super) struct Worker {
    /// `None` once it has ended.
    held: Option<HeldWorker>,
    /// Where its end is waited for. `None` if it was made without one.
    runtime: Option<tokio::runtime::Handle>,
}

/// A worker that has not ended.
struct HeldWorker {
    channel: AsyncChannel,
    /// `None` for the only worker of a session, which ends with it.
    busy: Option<Busy>,
    /// `None` until it has its call.
    turn: Option<Turn>,
}

impl Drop for Worker {
    /// The end of what runs does not depend on the runtime, which may be blocked, or never run again: an init ends its program
    /// when it finds its channel closed, and a zygote kills whichever worker it is asked to.
    fn drop(&mut self) {
        let Some(end) = self.kill() else { return };
        // Only who has a place has to see to its end before the next; a runtime that ends has no next.
        let Some(runtime) = self.runtime.take() else { return };
        runtime.spawn(async move {
            if let Err(error) = end.await {
                tracing::warn!(error = &error as &dyn std::error::Error, "a worker could not be ended");
            }
        });
    }
}

impl Worker {
    /// By which the broker knows it; the only one of a session is 0.
    pub(super) fn number(&self) -> u64 {
        self.busy().map_or(0, Busy::worker)
    }

    pub(super) fn new(channel: AsyncChannel, busy: Option<Busy>) -> Self {
        let runtime = tokio::runtime::Handle::try_current().ok();
        Self { held: Some(HeldWorker { channel, busy, turn: None }), runtime }
    }

    pub(super) fn channel(&self) -> Result<&AsyncChannel, ConfineError> {
        self.held.as_ref().map(|held| &held.channel).ok_or(ConfineError::WorkerLost)
    }

    fn busy(&self) -> Option<&Busy> {
        self.held.as_ref().and_then(|held| held.busy.as_ref())
    }

    /// An aborter of what it runs. Without one it ends with its session.
    pub(super) fn aborter(&self) -> Option<Aborter> {
        self.busy().map(Busy::aborter)
    }

    /// It has a call, whose turn it holds.
    pub(super) fn begins(&mut self, turn: Turn) {
        if let Some(held) = &mut self.held {
            held.turn = Some(turn);
        }
    }

    /// Its tool has answered: its turn is over, and it ends.
    pub(super) fn has_answered(mut self) {
        let Some(HeldWorker { channel, busy, turn }) = self.held.take() else { return };
        drop(turn);
        // What follows a call, the end of its worker and the making of another, is not for the caller to wait for.
        tokio::spawn(async move {
            if let Some(busy) = busy {
                busy.has_answered(channel);
            }
        });
    }

    /// Gives it back: its program has ended with all that it started.
    pub(super) fn give_back(&mut self) {
        let Some(HeldWorker { channel, busy, turn }) = self.held.take() else { return };
        drop(turn);
        if let Some(busy) = busy {
            busy.give_back(channel);
        }
    }

    /// Kills it, and waits until it is gone with everything it started. Who stops waiting changes nothing of that.
    pub(super) async fn end(&mut self) -> Result<(), ConfineError> {
        let Some(end) = self.kill() else { return Ok(()) };
        // Its runtime has ended, and nobody waits.
        tokio::spawn(end).await.unwrap_or(Err(ConfineError::Ended))
    }

    /// Has it killed, and returns what waits until it is gone. `None` if it has ended, or ends with its session.
    fn kill(&mut self) -> Option<impl Future<Output = Result<(), ConfineError>> + Send + use<>> {
        let HeldWorker { channel, busy, turn } = self.held.take()?;
        drop(channel);
        let dying = busy?.kill();
        Some(async move {
            let gone = dying.gone().await;
            drop(turn);
            gone
        })
    }

    /// The worker's first frame: what it confirmed before it read anything that a model wrote.
    pub(super) async fn confined(&self) -> Result<Vec<StepReport>, ConfineError> {
        match self.channel()?.receive::<FromWorker>().await.map_err(heard("hear from the worker"))? {
            Received::Message(FromWorker::Confined { steps }, _) => Ok(steps),
            Received::Message(FromWorker::Failed(failed), _) => Err(ConfineError::Refused(failed)),
            Received::Message(..) | Received::Data(_) => {
                Err(ConfineError::Hostile { what: "a result before its confinement" })
            }
            Received::Closed => Err(ConfineError::WorkerLost),
        }
    }

    pub(super) async fn tool(
        &self,
        arguments: Value,
    ) -> Result<(Vec<StepReport>, Result<ToolOutput, ToolError>), ConfineError> {
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
                    let data = data.map_or_else(|| json::parse(&long, PARSED_MAX), Ok).map_err(not_json)?;
                    let rest = rest.unwrap_or_default();
                    return Ok((steps, Ok(ToolOutput { data, truncated, rest, lost })));
                }
                Received::Message(FromWorker::ToolEnded(ToolEnd::Error { text, errno, code }), _) => {
                    return Ok((steps, Err(ToolError { text, errno, code })));
                }
                Received::Message(..) => {
                    return Err(ConfineError::Hostile { what: "a frame that a tool does not send" });
                }
                Received::Closed => return Err(ConfineError::WorkerLost),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use std::os::fd::AsFd as _;
    use std::sync::Arc;

    use callgate_worker::protocol::{Channel, FromZygote, Threads, ToZygote};
    use tokio::sync::Semaphore;

    use super::super::workers::Zygote;
    use super::*;

    /// A zygote that the test plays, with the other end of its channel.
    async fn zygote() -> (Arc<Zygote>, Channel) {
        let (ours, theirs) = Channel::pair().unwrap();
        (Zygote::start(AsyncChannel::new(ours).unwrap()).await.unwrap(), theirs)
    }

    /// A worker that the zygote has made, and the worker's end of its channel.
    async fn made(zygote: &Arc<Zygote>, theirs: &Channel) -> (Worker, Channel) {
        let Some(ToZygote::Prepare { worker, .. }) = asked(theirs) else { unreachable!("a worker is wanted") };
        let (ours, workers) = Channel::pair().unwrap();
        theirs.send(&FromZygote::Prepared { worker }, &[ours.as_fd()]).unwrap();
        (zygote.take(Threads::Never).await.unwrap(), workers)
    }

    fn asked(theirs: &Channel) -> Option<ToZygote> {
        theirs.receive_if_there().unwrap()
    }

    #[track_caller]
    fn is_asked_to_kill(theirs: &Channel, worker: u64) {
        let asked = asked(theirs);
        assert!(matches!(&asked, Some(ToZygote::Kill { worker: killed }) if *killed == worker), "{asked:?}");
    }

    fn runs(test: impl AsyncFn()) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
    }

    /// X2-4: whoever has no turn of a call is killed as well, and its place is taken until it is gone, which all hear who wait for it.
    #[test]
    fn x2_4_a_worker_that_is_dropped_is_killed_whatever_its_turn() {
        runs(async || {
            let (zygote, theirs) = zygote().await;
            let places = Arc::new(Semaphore::new(1));
            let place = Arc::clone(&places).try_acquire_owned().unwrap();
            let (mut worker, _its_end) = made(&zygote, &theirs).await;
            worker.begins(Turn::Background { _place: place });
            drop(worker);
            is_asked_to_kill(&theirs, 1);
            let ends = tokio::spawn({
                let zygote = Arc::clone(&zygote);
                async move { zygote.kill_all().await }
            });
            tokio::task::yield_now().await;
            assert_eq!(places.available_permits(), 0, "it is not gone yet");
            theirs.send(&FromZygote::Gone { worker: 1 }, &[]).unwrap();
            ends.await.unwrap();
            // The permit comes back when nothing of the worker runs.
            drop(places.acquire().await.unwrap());
        });
    }

    /// One that is given back lives, for the next call. An aborter of what it ran before does nothing to that.
    #[test]
    fn a_worker_that_is_given_back_has_another_call() {
        runs(async || {
            let (zygote, theirs) = zygote().await;
            let (mut worker, _its_end) = made(&zygote, &theirs).await;
            worker.begins(Turn::Host);
            let before = worker.aborter().unwrap();
            worker.give_back();
            drop(worker);
            assert!(asked(&theirs).is_none(), "nobody is killed, and none is made");
            let mut again = zygote.take(Threads::Never).await.unwrap();
            assert_eq!(again.number(), 1);
            before.abort_now();
            assert!(asked(&theirs).is_none(), "it runs another's call");
            again.aborter().unwrap().abort_now();
            is_asked_to_kill(&theirs, 1);
            again.give_back();
        });
    }

    /// Who waits for a worker does not wait for another's end.
    #[test]
    fn a_worker_that_does_not_end_keeps_nobody_from_another() {
        runs(async || {
            let (zygote, theirs) = zygote().await;
            let (worker, _its_end) = made(&zygote, &theirs).await;
            drop(worker);
            is_asked_to_kill(&theirs, 1);
            // It is waited for.
            tokio::task::yield_now().await;
            let takes = tokio::spawn({
                let zygote = Arc::clone(&zygote);
                async move { zygote.take(Threads::Never).await.map(|worker| worker.number()) }
            });
            tokio::task::yield_now().await;
            let (ours, _its_end) = Channel::pair().unwrap();
            let Some(ToZygote::Prepare { worker: 2, .. }) = asked(&theirs) else { unreachable!("another is wanted") };
            theirs.send(&FromZygote::Prepared { worker: 2 }, &[ours.as_fd()]).unwrap();
            let taken = tokio::time::timeout(std::time::Duration::from_secs(5), takes).await;
            assert_eq!(taken.expect("the first is not gone").unwrap().unwrap(), 2);
        });
    }
}
