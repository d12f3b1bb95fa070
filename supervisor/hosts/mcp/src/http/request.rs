//! One request.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use rmcp::model::{ProtocolVersion, RequestId};
use serde::Deserialize;

use super::PATH;
use super::clients::{Client, Clients};
use super::door::Holder;
use crate::server::MESSAGE_MAX;

/// How long a message may take to come.
const MESSAGE_WITHIN: Duration = Duration::from_secs(30);
/// When a client that found no room may come again, seconds: sessions end with their clients, at any time.
const RETRY: &str = "5";
/// The header with the id of a client's session.
pub(super) const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";

pub(super) type Answer = Response<BoxBody<Bytes, Infallible>>;

/// What of a message decides where it goes. The SDK reads all of it afterwards.
#[derive(Debug, Default, Deserialize)]
struct Head {
    id: Option<RequestId>,
    method: Option<String>,
    params: Option<Params>,
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
    /// Whether it stands for itself, as the SDK sees it: by what it says of its version, or its header.
    fn is_stateless(&self, headers: &HeaderMap) -> bool {
        let said = self.params.as_ref().and_then(|params| params.meta.as_ref()?.version.as_deref());
        let said = said.or_else(|| headers.get(VERSION)?.to_str().ok());
        self.method.as_deref() == Some("server/discover")
            || said.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28.as_str())
    }
}

/// Why a request gets no answer of the SDK's.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    what: Cow<'static, str>,
    /// Whether the connection is of no more use.
    is_last: bool,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, what: impl Into<Cow<'static, str>>) -> Self {
        Self { status, what: what.into(), is_last: false }
    }

    pub(super) fn last(self) -> Self {
        Self { is_last: true, ..self }
    }

    /// Of who is not known.
    pub(super) fn unknown() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "`Authorization: Bearer TOKEN` is missing, or is of no use here").last()
    }

    fn no_session() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is no such session: begin with `initialize`")
    }

    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    fn answer(self) -> Answer {
        let mut answer = Response::new(Full::new(Bytes::from(format!("{}\n", self.what))).boxed());
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if self.is_last {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"callgate\""));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
        }
        answer
    }
}

pub(super) async fn answer(clients: &Arc<Clients>, request: Request<Incoming>) -> Answer {
    answered(clients, request).await.unwrap_or_else(Refusal::answer)
}

async fn answered(clients: &Arc<Clients>, request: Request<Incoming>) -> Result<Answer, Refusal> {
    let holder = clients.door().admit(request.uri(), request.headers())?;
    if request.uri().path() != PATH {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "the protocol is spoken at /mcp"));
    }
    let (parts, body) = request.into_parts();
    match parts.method {
        Method::POST => post(clients, holder, parts, whole(body).await?).await,
        Method::GET | Method::DELETE => {
            // Neither has a body; one that comes all the same is not read.
            let client = named(clients, holder, &parts.headers)?;
            let ends = parts.method == Method::DELETE;
            let mut answer = client.answer(parts, Bytes::new(), None).await;
            if ends && answer.status().is_success() {
                clients.end(&client);
                // Some clients take the SDK's 202 for a failure.
                *answer.status_mut() = StatusCode::NO_CONTENT;
            }
            Ok(answer)
        }
        _ => Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "POST, GET or DELETE")),
    }
}

/// The whole of a message, which has at most 8 MiB.
async fn whole(body: Incoming) -> Result<Bytes, Refusal> {
    let too_large = || Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "a message has at most 8 MiB").last();
    if body.size_hint().lower() > MESSAGE_MAX as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(MESSAGE_WITHIN, Limited::new(body, MESSAGE_MAX).collect()).await {
        Ok(Ok(message)) => Ok(message.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Refusal::new(StatusCode::BAD_REQUEST, "the message did not come").last()),
        Err(_) => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the message took too long to come").last()),
    }
}

async fn post(clients: &Arc<Clients>, holder: Holder, mut parts: Parts, message: Bytes) -> Result<Answer, Refusal> {
    let Ok(head) = serde_json::from_slice::<Head>(&message) else {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "the body is no message of JSON-RPC"));
    };
    if head.method.as_deref() == Some("initialize") {
        parts.headers.remove(SESSION);
        let client = clients.begin(holder).await?;
        let answer = client.answer(parts, message, None).await;
        // One that could not begin has no id, and ends here.
        match answer.headers().get(SESSION).and_then(|id| id.to_str().ok()) {
            Some(id) => clients.keep(id, &client),
            None => client.end(),
        }
        return Ok(answer);
    }
    if parts.headers.contains_key(SESSION) {
        let client = named(clients, holder, &parts.headers)?;
        let call = head.id.filter(|_| head.method.is_some());
        let answer = client.answer(parts, message, call).await;
        if answer.status() == StatusCode::NOT_FOUND {
            clients.end(&client);
        }
        return Ok(answer);
    }
    if !head.is_stateless(&parts.headers) {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "Mcp-Session-Id is missing: begin with `initialize`"));
    }
    // What nobody waits for in this era the SDK ends itself.
    Ok(clients.of_holder(holder).await?.answer(parts, message, None).await)
}

/// The client that a request names, if it is this holder's: who has another token learns nothing of it (F17).
fn named(clients: &Clients, holder: Holder, headers: &HeaderMap) -> Result<Arc<Client>, Refusal> {
    let mut ids = headers.get_all(SESSION).iter();
    let (Some(id), None) = (ids.next(), ids.next()) else { return Err(Refusal::no_session()) };
    id.to_str().ok().and_then(|id| clients.find(holder, id)).ok_or_else(Refusal::no_session)
}
