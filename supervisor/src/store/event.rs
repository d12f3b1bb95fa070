//! Events of a session's calls, as a host sees them: while they happen, and when they are replayed.

use serde::Serialize;
use serde_json::Value;
use tokio::sync::broadcast;

use callgate_policy::envelope::ResultEnvelope;

/// Event of a call (S1's tool invocations).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub enum EventKind {
    /// It was asked for. Nobody has judged it yet.
    #[serde(rename = "ToolInvocationProposed")]
    Proposed,
    /// It has passed all that decides about it, and is about to run.
    #[serde(rename = "ToolInvocationStarted")]
    Started,
    /// It gave a result.
    #[serde(rename = "ToolInvocationSucceeded")]
    Succeeded,
    /// It gave none: it was denied, or failed.
    #[serde(rename = "ToolInvocationFailed")]
    Failed,
    /// Whoever had asked for it no longer waited.
    #[serde(rename = "ToolInvocationCancelled")]
    Cancelled,
}

impl EventKind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Proposed => "ToolInvocationProposed",
            Self::Started => "ToolInvocationStarted",
            Self::Succeeded => "ToolInvocationSucceeded",
            Self::Failed => "ToolInvocationFailed",
            Self::Cancelled => "ToolInvocationCancelled",
        }
    }
}

/// One event of a session. What it says of arguments and results has no secrets in it (X1-31).
///
/// [`Display`](std::fmt::Display) gives one line of JSON: the same when the event happens and whenever it is replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Kind of event.
    pub kind: EventKind,
    /// Its place in the session, from 1. A place is empty if its event could not be recorded.
    pub place: u64,
    /// When, ISO 8601.
    pub at: String,
    /// The session.
    pub session: String,
    /// The call: `prt_`, and 26 characters that sort by the time at which it was asked for.
    pub call: String,
    /// The tool; `run` for a program that the host started.
    pub tool: String,
    /// Where the tool comes from (S1-6).
    pub origin: String,
    /// The arguments or the envelope, as JSON.
    body: Option<String>,
}

impl Event {
    #[allow(clippy::too_many_arguments, reason = "an event is made in one place, from all that there is of it")]
    pub(super) fn new(
        kind: EventKind,
        (place, at): (u64, i64),
        session: &str,
        call: &str,
        tool: &str,
        origin: &str,
        body: Option<String>,
    ) -> Self {
        let at = jiff::Timestamp::from_millisecond(at).unwrap_or_default();
        Self {
            kind,
            place,
            // With as many digits always.
            at: format!("{at:.3}"),
            session: session.to_owned(),
            call: call.to_owned(),
            tool: tool.to_owned(),
            origin: origin.to_owned(),
            body,
        }
    }

    /// The arguments, of a [`EventKind::Proposed`].
    #[must_use]
    pub fn arguments(&self) -> Option<Value> {
        let body = self.body.as_deref().filter(|_| self.kind == EventKind::Proposed)?;
        serde_json::from_str(body).ok()
    }

    /// The result, of a [`EventKind::Succeeded`] or [`EventKind::Failed`].
    #[must_use]
    pub fn envelope(&self) -> Option<ResultEnvelope> {
        let body = self.body.as_deref().filter(|_| self.kind != EventKind::Proposed)?;
        serde_json::from_str(body).ok()
    }
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |text: &str| Value::from(text).to_string();
        write!(
            f,
            r#"{{"event":"{}","place":{},"at":"{}","session":{},"call":{},"tool":{},"origin":{}"#,
            self.kind.name(),
            self.place,
            self.at,
            text(&self.session),
            text(&self.call),
            text(&self.tool),
            text(&self.origin)
        )?;
        match &self.body {
            Some(body) if self.kind == EventKind::Proposed => write!(f, r#","arguments":{body}"#)?,
            Some(body) => write!(f, r#","result":{body}"#)?,
            None => {}
        }
        f.write_str("}")
    }
}

/// The events of a session from now on: [`Session::events`](crate::Session::events).
#[derive(Debug)]
pub struct Events(broadcast::Receiver<Event>);

impl Events {
    pub(super) fn new(receiver: broadcast::Receiver<Event>) -> Self {
        Self(receiver)
    }

    /// The next event, in the order in which they happen; `None` when the session has ended.
    ///
    /// # Errors
    /// [`MissedEvents`] for a reader that is more than a thousand events behind. It goes on with the oldest that is left. Those
    /// that were missed are in the store, if there is one.
    pub async fn next(&mut self) -> Option<Result<Event, MissedEvents>> {
        match self.0.recv().await {
            Ok(event) => Some(Ok(event)),
            Err(broadcast::error::RecvError::Lagged(count)) => Some(Err(MissedEvents { count })),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// A reader of events was too slow for some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{count} events were missed")]
#[non_exhaustive]
pub struct MissedEvents {
    /// How many.
    pub count: u64,
}
