//! One request.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, StatusCode};

use super::bounds::Seat;
use super::clients::{Client, Clients, SESSION};
use super::door::Holder;
use super::message::{Head, Message};
use super::refusal::{Answer, Refusal};

/// Where the protocol is spoken.
pub(super) const PATH: &str = "/mcp";
/// Where a client would go on reading an answer.
const LAST_EVENT: &str = "last-event-id";

pub(super) async fn answer(clients: &Arc<Clients>, seat: &Seat, request: Request<Incoming>) -> Answer {
    answered(clients, seat, request).await.unwrap_or_else(Refusal::answer)
}

async fn answered(clients: &Arc<Clients>, seat: &Seat, request: Request<Incoming>) -> Result<Answer, Refusal> {
    let holder = clients.door().admit(request.uri(), request.headers())?;
    if !seat.admit(holder) {
        let what = "too many connections are open: close one of them, or come back later";
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, what).last());
    }
    if request.uri().path() != PATH {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "the protocol is spoken at /mcp"));
    }
    let (mut parts, body) = request.into_parts();
    match parts.method {
        Method::POST => {
            let (message, head) = Message::read(clients.bounds(), holder, body).await?;
            post(clients, seat, (holder, parts), (message, head)).await
        }
        Method::GET | Method::DELETE => {
            // Neither has a body; one that comes all the same is not read.
            let client = named(clients, holder, &parts.headers)?;
            // There is nothing to resume: whoever took over the stream of a call would keep it from ending with its request.
            parts.headers.remove(LAST_EVENT);
            let ends = parts.method == Method::DELETE;
            let mut answer = client.answer(parts, Message::empty(), None).await?;
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

async fn post(
    clients: &Arc<Clients>,
    seat: &Seat,
    (holder, mut parts): (Holder, Parts),
    (message, head): (Message, Head),
) -> Result<Answer, Refusal> {
    if head.begins_session {
        parts.headers.remove(SESSION);
        let client = clients.begin(holder).await?;
        let answer = client.answer(parts, message, None).await?;
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
        let answer = client.answer(parts, message, call).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            clients.end(&client);
        }
        return Ok(answer);
    }
    if !head.is_stateless(&parts.headers) {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "Mcp-Session-Id is missing: begin with `initialize`"));
    }
    let client = clients.of_holder(holder).await?;
    tokio::select! {
        // What nobody waits for in this era the SDK ends itself.
        answer = client.answer(parts, message, None) => answer,
        () = seat.left() => Err(Refusal::new(StatusCode::BAD_REQUEST, "nobody waits for the answer").last()),
    }
}

/// The client that a request names, if it is this holder's: who has another token learns nothing of it (F17).
fn named(clients: &Clients, holder: Holder, headers: &HeaderMap) -> Result<Arc<Client>, Refusal> {
    let mut ids = headers.get_all(SESSION).iter();
    let (Some(id), None) = (ids.next(), ids.next()) else { return Err(Refusal::no_session()) };
    id.to_str().ok().and_then(|id| clients.find(holder, id)).ok_or_else(Refusal::no_session)
}
