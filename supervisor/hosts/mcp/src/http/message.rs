//! A message: how it comes, and how it is parsed. A large one is parsed in a thread of its own, so that other clients go on.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::{HeaderMap, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ProtocolVersion, RequestId};
use serde::Deserialize;

use super::bounds::{Bounds, Share};
use super::door::Holder;
use super::refusal::Refusal;
use crate::values;
use crate::wire::MESSAGE_MAX;

/// How long a message may take to come.
const MESSAGE_WITHIN: Duration = Duration::from_secs(30);
/// A message with more bytes than this is large. The others need no bound of their own: there is one for each connection.
const SMALL: usize = 64 << 10;
const VERSION: &str = "mcp-protocol-version";

/// Part of a message that decides where it goes. The SDK reads all of it afterwards.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Head {
    pub(super) id: Option<RequestId>,
    pub(super) method: Option<String>,
    params: Option<Params>,
    /// True if the SDK takes it for a request that begins a session. If it did not, there would be one for nothing.
    #[serde(skip)]
    pub(super) begins_session: bool,
}

#[derive(Debug, Deserialize)]
struct Params {
    #[serde(rename = "_meta")]
    meta: Option<Meta>,
}

#[derive(Debug, Deserialize)]
struct Meta {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<String>,
}

impl Head {
    /// True if it stands for itself, as the SDK sees it: by what it says of its version, or its header.
    pub(super) fn is_stateless(&self, headers: &HeaderMap) -> bool {
        let said = self.params.as_ref().and_then(|params| params.meta.as_ref()?.version.as_deref());
        let said = said.or_else(|| headers.get(VERSION)?.to_str().ok());
        self.method.as_deref() == Some("server/discover")
            || said.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28.as_str())
    }

    fn of(message: &[u8]) -> Result<Self, Refusal> {
        if values::too_many(message) {
            let what = format!("a message has at most {} values", values::VALUES_MAX);
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, what));
        }
        let unfit = |what: &'static str| Err(Refusal::new(StatusCode::BAD_REQUEST, what));
        // What is read here would be read from a list, too.
        let is_object = message.trim_ascii_start().first() == Some(&b'{');
        match serde_json::from_slice::<Self>(message) {
            Ok(head) if is_object => {
                let begins_session = head.method.as_deref() == Some("initialize") && is_initialize(message);
                Ok(Self { begins_session, ..head })
            }
            Ok(_) | Err(_) => unfit("the body is no message of JSON-RPC"),
        }
    }
}

fn is_initialize(message: &[u8]) -> bool {
    match serde_json::from_slice::<ClientJsonRpcMessage>(message) {
        Ok(ClientJsonRpcMessage::Request(request)) => matches!(request.request, ClientRequest::InitializeRequest(_)),
        Ok(_) | Err(_) => false,
    }
}

/// All of a message.
pub(super) struct Message {
    pub(super) bytes: Bytes,
    large: Option<Large>,
}

/// Room of a large message, until it is parsed.
struct Large {
    bounds: Arc<Bounds>,
    _share: Share,
}

impl Message {
    pub(super) fn empty() -> Self {
        Self { bytes: Bytes::new(), large: None }
    }

    /// Reads one that has at most 8 MiB, if there is room for it, and its head.
    pub(super) async fn read(bounds: &Arc<Bounds>, holder: Holder, body: Incoming) -> Result<(Self, Head), Refusal> {
        // One that does not say how large it is may be as large as any.
        let most = body.size_hint().upper().map_or(Some(MESSAGE_MAX), |most| usize::try_from(most).ok());
        let Some(most) = most.filter(|most| *most <= MESSAGE_MAX) else { return Err(too_large()) };
        let mut large = None;
        if most > SMALL {
            let Some(share) = bounds.bytes.take(holder, most) else {
                let what = "large messages of other requests take all the room that there is for them: come back later";
                return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, what).last());
            };
            large = Some(Large { bounds: Arc::clone(bounds), _share: share });
        }
        let bytes = whole(body).await?;
        let large = large.filter(|_| bytes.len() > SMALL);
        let head = match &large {
            None => Head::of(&bytes)?,
            Some(large) => {
                let bytes = bytes.clone();
                large.apart(move || Head::of(&bytes)).await??
            }
        };
        Ok((Self { bytes, large }, head))
    }

    /// Result of the future that parses this message in its first step. Afterwards nothing is held for the message any
    /// more.
    pub(super) async fn parsed_by<F>(large: Option<Parsing>, future: F) -> Result<F::Output, Refusal>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let Some(Parsing(large)) = large else { return Ok(future.await) };
        let mut future = Box::pin(future);
        let step = move || {
            let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            (future, polled)
        };
        let stepped = large.apart(step).await?;
        drop(large);
        match stepped {
            (_, Poll::Ready(done)) => Ok(done),
            // It is polled again at once, so it learns whom to wake.
            (future, Poll::Pending) => Ok(future.await),
        }
    }

    /// For whoever parses it.
    pub(super) fn into_parts(self) -> (Bytes, Option<Parsing>) {
        (self.bytes, self.large.map(Parsing))
    }
}

/// That a large message is still to be parsed.
pub(super) struct Parsing(Large);

impl Large {
    /// Does something that takes time where it holds nobody up, when nobody else does.
    async fn apart<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
        let failed = || Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the message could not be parsed");
        // The semaphore is never closed.
        let Ok(_turn) = self.bounds.parsing.acquire().await else { return Err(failed()) };
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => Ok(done),
            Err(ended) => {
                tracing::error!(error = &ended as &dyn std::error::Error, "a message could not be parsed");
                Err(failed())
            }
        }
    }
}

fn too_large() -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "a message has at most 8 MiB").last()
}

async fn whole(body: Incoming) -> Result<Bytes, Refusal> {
    match tokio::time::timeout(MESSAGE_WITHIN, Limited::new(body, MESSAGE_MAX).collect()).await {
        Ok(Ok(message)) => Ok(message.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Refusal::new(StatusCode::BAD_REQUEST, "the message did not come").last()),
        Err(_) => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the message took too long to come").last()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_begins_a_session_opens_one() {
        let begins = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},
            "clientInfo":{"name":"x","version":"1"}}}"#;
        assert!(Head::of(begins.as_bytes()).is_ok_and(|head| head.begins_session));
        for other in [
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#,
            r#"{"jsonrpc":"2.0","method":"initialize","params":{}}"#,
            &begins.replace(r#""id":1,"#, ""),
            &begins.replace("2.0", "1.0"),
        ] {
            assert!(Head::of(other.as_bytes()).is_ok_and(|head| !head.begins_session), "{other}");
        }
        for list in [r#"[1,"initialize",{"_meta":null}]"#, r#" [1,"initialize",null]"#] {
            let refused = Head::of(list.as_bytes()).map(|_| ()).map_err(|refusal| refusal.status());
            assert_eq!(refused, Err(StatusCode::BAD_REQUEST), "{list}");
        }
    }
}
