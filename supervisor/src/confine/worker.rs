//! One worker: its call, and its end.

use callgate_policy::envelope::{Changes, StepReport};
use callgate_policy::failure::ErrorCode;
use callgate_worker::protocol::{FromWorker, Received, ToWorker, ToolEnd};
use serde_json::Value;

use super::channel::AsyncChannel;
use super::error::{ConfineError, channel, heard};
use super::workers::Busy;
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

/// A worker with a call. Dropped before its end, it is killed, and its turn is over when it is gone.
pub(super) struct Worker {
    /// `None` only while this is dropped, or taken apart.
    pub(super) channel: Option<AsyncChannel>,
    /// `None` for the only worker of a session, which ends with it.
    pub(super) busy: Option<Busy>,
    pub(super) turn: Option<Turn>,
    /// Where its end is waited for. `None` if it was made without one.
    pub(super) runtime: Option<tokio::runtime::Handle>,
}

impl Drop for Worker {
    /// The end of what runs does not depend on the runtime, which may be blocked, or never run again: an init ends its program
    /// when it finds its channel closed, and a zygote kills whichever worker it is asked to.
    fn drop(&mut self) {
        drop(self.channel.take());
        // Only who has a place has to see to its end before the next; a runtime that ends has no next.
        let (Some(turn), Some(busy)) = (self.turn.take(), self.busy.take()) else { return };
        let asked = busy.zygote.kill_now(busy.worker);
        let Some(runtime) = self.runtime.take() else { return };
        runtime.spawn(async move {
            let Busy { zygote, worker, .. } = &busy;
            // If it is not heard of any more, its session has ended with all that was in it.
            drop(if asked { zygote.gone(*worker).await } else { zygote.kill(*worker).await });
            drop((busy, turn));
        });
    }
}

impl Worker {
    /// By which the broker knows it; the only one of a session is 0.
    pub(super) fn number(&self) -> u64 {
        self.busy.as_ref().map_or(0, |busy| busy.worker)
    }

    pub(super) fn new(channel: AsyncChannel, busy: Option<Busy>) -> Self {
        let runtime = tokio::runtime::Handle::try_current().ok();
        Self { channel: Some(channel), busy, turn: None, runtime }
    }

    pub(super) fn channel(&self) -> Result<&AsyncChannel, ConfineError> {
        self.channel.as_ref().ok_or(ConfineError::WorkerLost)
    }

    /// Its program has ended with all that it started.
    pub(super) fn give_back(&mut self) {
        self.turn = None;
        if let (Some(busy), Some(channel)) = (&self.busy, self.channel.take()) {
            busy.give_back(channel);
        }
    }

    /// Kills it, and waits until it is gone with everything it started.
    pub(super) async fn end(&mut self) -> Result<(), ConfineError> {
        if let Some(Busy { zygote, worker, .. }) = &self.busy {
            zygote.kill(*worker).await?;
        }
        self.turn = None;
        Ok(())
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
