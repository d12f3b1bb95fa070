//! The clients, each with a session of its own.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use callgate::{OpenError, Session};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::http::request::Parts;
use hyper::{Request, StatusCode};
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification, RequestId,
};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{SessionManager as _, StreamableHttpServerConfig, StreamableHttpService};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::bounds::{Bounds, connections};
use super::door::{Door, Holder};
use super::message::Message;
use super::refusal::{Answer, Refusal};
use crate::server::{Server, room};
use crate::servers::Servers;
use crate::wire::{Closed, MESSAGE_MAX};

/// The header with the id of a client's session.
pub(super) const SESSION: &str = "mcp-session-id";

/// The session of a client, while it is opened.
pub type Opening = Pin<Box<dyn Future<Output = Result<Opened, OpenError>> + Send>>;

/// A session for a client.
#[derive(Debug)]
pub struct Opened {
    /// The session.
    pub session: Arc<Session>,
    /// The servers whose tools it has. They end with it.
    pub servers: Servers,
}

/// Where a client is, once one request has opened its session; others wait for that.
type Place = Arc<tokio::sync::Mutex<Option<Arc<Client>>>>;

pub(super) struct Clients {
    door: Door,
    bounds: Arc<Bounds>,
    open: Box<dyn Fn() -> Opening + Send + Sync>,
    /// Most sessions at once.
    most: usize,
    seats: Arc<Semaphore>,
    /// Room for large arguments of all clients together.
    room: Arc<Semaphore>,
    /// Those that `initialize` began, by the id that they were given: 122 random bits.
    begun: Mutex<HashMap<String, Arc<Client>>>,
    /// Those of the era without sessions.
    of_holders: Mutex<HashMap<Holder, Place>>,
}

impl Clients {
    pub(super) fn new(door: Door, open: Box<dyn Fn() -> Opening + Send + Sync>, most: usize) -> Self {
        let seats = Arc::new(Semaphore::new(most));
        let bounds = Arc::new(Bounds::new(connections(most), door.holders()));
        Self { door, bounds, open, most, seats, room: room(), begun: Mutex::default(), of_holders: Mutex::default() }
    }

    pub(super) fn door(&self) -> &Door {
        &self.door
    }

    pub(super) fn bounds(&self) -> &Arc<Bounds> {
        &self.bounds
    }

    /// A client of its own, in a session that is opened for it.
    pub(super) async fn begin(&self, holder: Holder) -> Result<Arc<Client>, Refusal> {
        let Ok(seat) = Arc::clone(&self.seats).try_acquire_owned() else {
            let what = format!(
                "{} sessions are open, and no more are allowed; end one of them (DELETE), come back later, or start the server \
                 with a larger --max-sessions",
                self.most
            );
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, what));
        };
        match (self.open)().await {
            Ok(Opened { session, servers }) => {
                let room = Arc::clone(&self.room);
                let server = |closed| Server::new(session, closed, room).with_seat(seat).with_servers(servers);
                Ok(Arc::new(Client::new(holder, server, &self.door)))
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a session could not be opened");
                let what = format!("the session could not be opened: {}", callgate::with_causes(&error));
                Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, what))
            }
        }
    }

    pub(super) fn keep(&self, id: &str, client: &Arc<Client>) {
        self.begun().insert(id.to_owned(), Arc::clone(client));
    }

    pub(super) fn find(&self, holder: Holder, id: &str) -> Option<Arc<Client>> {
        self.begun().get(id).filter(|client| client.holder == holder).cloned()
    }

    /// The one that a holder's requests of the era without sessions are of.
    pub(super) async fn of_holder(&self, holder: Holder) -> Result<Arc<Client>, Refusal> {
        let place = Arc::clone(self.of_holders().entry(holder).or_default());
        let mut place = place.lock().await;
        if let Some(client) = &*place
            && !client.is_over()
        {
            // From now on it is in use; whoever looks for idle ones waits for this place.
            client.touch();
            return Ok(Arc::clone(client));
        }
        let client = self.begin(holder).await?;
        *place = Some(Arc::clone(&client));
        Ok(client)
    }

    pub(super) fn end(&self, client: &Arc<Client>) {
        client.end();
        self.begun().retain(|_, other| !Arc::ptr_eq(other, client));
    }

    /// Ends those that nobody has used for so long.
    pub(super) fn end_idle(&self, idle: Duration) {
        self.end_those(|client| client.is_over() || client.is_idle(idle));
    }

    pub(super) fn end_all(&self) {
        self.end_those(|_| true);
    }

    fn end_those(&self, which: impl Fn(&Client) -> bool) {
        let goes = |client: &Client| {
            which(client) && {
                client.end();
                true
            }
        };
        self.begun().retain(|_, client| !goes(client));
        self.of_holders().retain(|_, place| match place.try_lock() {
            Ok(client) => !client.as_ref().is_none_or(|client| goes(client)),
            // It is being opened.
            Err(_) => true,
        });
    }

    fn begun(&self) -> MutexGuard<'_, HashMap<String, Arc<Client>>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of_holders(&self) -> MutexGuard<'_, HashMap<Holder, Place>> {
        self.of_holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One client.
pub(super) struct Client {
    holder: Holder,
    service: StreamableHttpService<Arc<Server>, LocalSessionManager>,
    manager: Arc<LocalSessionManager>,
    server: Arc<Server>,
    closed: watch::Sender<bool>,
    over: CancellationToken,
    used: Arc<Mutex<Used>>,
}

struct Used {
    /// Answers that are on their way.
    answers: usize,
    last: Instant,
}

impl Client {
    fn new(holder: Holder, server: impl FnOnce(Closed) -> Server, door: &Door) -> Self {
        let (closed, seen) = Closed::channel();
        let server = Arc::new(server(seen));
        let over = CancellationToken::new();
        // A call whose client is gone ends, so there is nothing that could be read again later.
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(door.hosts())
            .with_allowed_origins(door.origins())
            .with_max_request_body_bytes(MESSAGE_MAX)
            .with_sse_retry(None)
            .with_cancellation_token(over.clone());
        let mut manager = LocalSessionManager::default();
        let mut sessions = SessionConfig::default();
        // The SDK would take a long call for idleness: see `is_idle`.
        sessions.keep_alive = None;
        sessions.sse_retry = None;
        manager.session_config = sessions;
        let manager = Arc::new(manager);
        let made = Arc::clone(&server);
        let service = StreamableHttpService::new(move || Ok(Arc::clone(&made)), Arc::clone(&manager), config);
        let used = Arc::new(Mutex::new(Used { answers: 0, last: Instant::now() }));
        Self { holder, service, manager, server, closed, over, used }
    }

    /// The SDK's answer. `call` is a request of a session, which ends when nobody waits for its answer any more.
    pub(super) async fn answer(
        &self,
        parts: Parts,
        message: Message,
        call: Option<RequestId>,
    ) -> Result<Answer, Refusal> {
        let using = Using::new(Arc::clone(&self.used));
        let session = parts.headers.get(SESSION).and_then(|id| id.to_str().ok()).map(Arc::from);
        let call =
            call.zip(session).map(|(id, session)| Call { id: Some(id), session, manager: Arc::clone(&self.manager) });
        let (bytes, parsing) = message.into_parts();
        let service = self.service.clone();
        let handled = async move { service.handle(Request::from_parts(parts, Full::new(bytes))).await };
        let answer = Message::parsed_by(parsing, handled).await?;
        Ok(answer.map(|body| Awaited { body, call, _using: using }.boxed()))
    }

    /// Ends it, with every call.
    pub(super) fn end(&self) {
        self.closed.send_replace(true);
        self.over.cancel();
    }

    fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    fn is_idle(&self, idle: Duration) -> bool {
        let used = self.used();
        used.answers == 0 && used.last.elapsed() >= idle && !self.server.is_asking()
    }

    fn touch(&self) {
        self.used().last = Instant::now();
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        locked(&self.used)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.end();
    }
}

/// That a client is in use. It does not hold the client: an answer that nobody reads keeps no session open that has ended.
struct Using(Arc<Mutex<Used>>);

impl Using {
    fn new(used: Arc<Mutex<Used>>) -> Self {
        locked(&used).answers += 1;
        Self(used)
    }
}

fn locked(used: &Mutex<Used>) -> MutexGuard<'_, Used> {
    used.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Using {
    fn drop(&mut self) {
        let mut used = locked(&self.0);
        used.answers -= 1;
        used.last = Instant::now();
    }
}

/// A call of a session, until all of its answer is there. If it is dropped before, the call ends.
struct Call {
    id: Option<RequestId>,
    /// The SDK's.
    session: Arc<str>,
    manager: Arc<LocalSessionManager>,
}

impl Drop for Call {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) else { return };
        let why = CancelledNotificationParam::new(Some(id), Some("nobody waits for its result".to_owned()));
        let cancelled = ClientNotification::CancelledNotification(CancelledNotification::new(why));
        let (manager, session) = (Arc::clone(&self.manager), Arc::clone(&self.session));
        runtime.spawn(async move {
            // A session that has ended has no calls.
            drop(manager.accept_message(&session, ClientJsonRpcMessage::notification(cancelled)).await);
        });
    }
}

/// An answer, on its way to whoever waits for it.
struct Awaited {
    body: BoxBody<Bytes, Infallible>,
    call: Option<Call>,
    _using: Using,
}

impl Body for Awaited {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let is_all = matches!(frame, Poll::Ready(None)) || self.body.is_end_stream();
        if is_all && let Some(mut call) = self.call.take() {
            call.id = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
