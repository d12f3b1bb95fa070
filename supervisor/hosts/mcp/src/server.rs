//! The server: lists the session's tools, and makes its calls.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use callgate::{ResultEnvelope, Session, Traceparent};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ElicitRequest, ElicitResult, ElicitationCapability, Implementation,
    InputRequest, InputRequiredResult, JsonObject, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ProgressToken, ProtocolVersion, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer, ServerInitializeError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ErrorData, ServerHandler, ServiceExt as _};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::asking::{Ask, CALLER, Caller};
use crate::wire::{Bounded, Closed, UntilClosed};
use crate::{listed, result};

/// Most bytes of one message. A larger one is read to its end and thrown away; nobody knows whose answer it would want.
pub(crate) const MESSAGE_MAX: usize = 8 << 20;
/// Most calls at once.
const CALLS_MAX: usize = 256;
/// How long results may take to be taken by a client that has closed its end.
const FAREWELL: Duration = Duration::from_secs(2);
/// Most calls that wait for an answer at once. Whoever would be asked by one more is not there.
const WAITING_MAX: usize = 64;
/// How long the answer to a result may be away. The session's own patience is shorter, unless somebody has set it.
const AWAY: Duration = Duration::from_secs(60 * 60);
/// Pieces of output that may be on their way to a client which does not read; those beyond are in the result alone.
const PIECES: usize = 64;
/// The name of the one question that a result asks.
const QUESTION: &str = "question";

/// Why a client could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// It did not begin as the protocol says. Here is why, without what it has said.
    #[error("the client did not begin the protocol: {0}")]
    Begin(String),
    /// Something failed that is not the client's doing.
    #[error("the server ended")]
    Ended(#[source] tokio::task::JoinError),
}

/// Serves a client until it closes its end. Calls that are under way then end with it.
///
/// # Errors
/// [`ServeError`]
pub async fn serve<R, W>(session: Arc<Session>, from: R, to: W) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    serve_whose(session, from, to, (Whose::default(), MESSAGE_MAX)).await
}

/// The same for some client, whose messages have at most `longest` bytes.
pub(crate) async fn serve_whose<R, W>(
    session: Arc<Session>,
    from: R,
    to: W,
    (whose, longest): (Whose, usize),
) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (from, closed) = UntilClosed::new(from);
    let transport = Bounded::new(AsyncRwTransport::new_server(from, to).with_max_line_length(longest));
    let server = Server { whose, ..Server::new(session, closed.clone()) };
    let running = match server.serve(transport).await {
        Ok(running) => running,
        // A client that goes before it has said anything wants nothing.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(ServerInitializeError::ExpectedInitializeRequest(_)) => {
            return Err(ServeError::Begin("its first message is no request that begins one".to_owned()));
        }
        Err(error) => return Err(ServeError::Begin(error.to_string())),
    };
    tokio::select! {
        ended = running.waiting() => ended.map(drop).map_err(ServeError::Ended),
        // One that has closed its end, and does not take what is left, keeps nobody.
        () = gone(closed) => Ok(()),
    }
}

async fn gone(mut closed: Closed) {
    closed.wait().await;
    tokio::time::sleep(FAREWELL).await;
}

/// Who the client is: that is, who is asked about its calls, and how many it may make.
pub(crate) enum Whose {
    /// Whoever started the server. The person at it is asked through it.
    Host { calls: Arc<Semaphore> },
    /// The agent itself. Whoever had it started is asked.
    Agent { caller: Caller, calls: Arc<Semaphore>, trace: Option<Traceparent> },
}

impl Default for Whose {
    fn default() -> Self {
        Self::Host { calls: Arc::new(Semaphore::new(CALLS_MAX)) }
    }
}

impl Whose {
    fn calls(&self) -> &Semaphore {
        match self {
            Self::Host { calls } | Self::Agent { calls, .. } => calls,
        }
    }

    /// The trace of calls that say nothing of it.
    fn trace(&self) -> Option<Traceparent> {
        match self {
            Self::Host { .. } => None,
            Self::Agent { trace, .. } => trace.clone(),
        }
    }

    /// Whom a call asks that a request is of.
    fn asked(&self, ask: mpsc::Sender<Ask>, context: &RequestContext<RoleServer>) -> Caller {
        let can_ask =
            || context.client_capabilities().is_some_and(|client| client.elicitation.as_ref().is_some_and(can_fill));
        match self {
            Self::Agent { caller, .. } => caller.clone(),
            Self::Host { .. } if can_ask() => Caller::Handler(ask),
            Self::Host { .. } => Caller::Nobody,
        }
    }
}

/// One client's.
pub(crate) struct Server {
    session: Arc<Session>,
    whose: Whose,
    /// Calls that have asked something by their result, by a name that nobody guesses.
    waiting: Mutex<HashMap<String, Waiting>>,
    closed: Closed,
    /// Held as long as the session is.
    _seat: Option<OwnedSemaphorePermit>,
}

struct Waiting {
    name: String,
    arguments: JsonObject,
    flight: Flight,
    answer: oneshot::Sender<ElicitResult>,
    since: Instant,
}

impl Waiting {
    /// Whether an answer would still be taken.
    fn is_awaited(&self) -> bool {
        self.since.elapsed() < AWAY && !self.answer.is_closed()
    }
}

/// A call that is under way. It ends when this is dropped.
struct Flight {
    call: JoinSet<ResultEnvelope>,
    asks: mpsc::Receiver<Ask>,
    pieces: mpsc::Receiver<Vec<u8>>,
}

impl Server {
    pub(crate) fn new(session: Arc<Session>, closed: Closed) -> Self {
        Self { session, whose: Whose::default(), waiting: Mutex::default(), closed, _seat: None }
    }

    /// One of several servers, of which there are no more than there are seats.
    pub(crate) fn with_seat(self, seat: OwnedSemaphorePermit) -> Self {
        Self { _seat: Some(seat), ..self }
    }

    /// Whether a call waits for the answer to a result.
    pub(crate) fn is_asking(&self) -> bool {
        self.waiting().values().any(Waiting::is_awaited)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, name: &str, arguments: JsonObject, context: &RequestContext<RoleServer>) -> Flight {
        let ((ask, asks), (piece, pieces)) = (mpsc::channel(1), mpsc::channel(PIECES));
        let caller = self.whose.asked(ask, context);
        let (session, name) = (Arc::clone(&self.session), name.to_owned());
        let trace = context.meta.get_traceparent().and_then(Traceparent::parse).or_else(|| self.whose.trace());
        let mut call = JoinSet::new();
        call.spawn(CALLER.scope(caller, async move {
            let mut pass_on = |bytes: &[u8]| {
                // A client that does not read stops no call.
                drop(piece.try_send(bytes.to_vec()));
            };
            let made = session.call_streaming(&name, Value::Object(arguments), &mut pass_on);
            match trace {
                Some(trace) => trace.scope(made).await,
                None => made.await,
            }
        }));
        Flight { call, asks, pieces }
    }

    /// The call that a client goes on with, once it has asked its person. Each answer is for the call that asked, and once.
    fn resume(
        &self,
        request: &CallToolRequestParams,
        arguments: &JsonObject,
        state: &str,
    ) -> Result<Flight, ErrorData> {
        let invalid = |what: &str| Err(ErrorData::invalid_params(what.to_owned(), None));
        let response = request.input_responses.as_ref().and_then(|responses| responses.get(QUESTION));
        let Some(response) =
            response.and_then(|response| serde_json::from_value::<ElicitResult>(response.clone()).ok())
        else {
            return invalid("inputResponses has no answer to `question`");
        };
        let mut all = self.waiting();
        let is_it = |waiting: &Waiting| waiting.name == request.name && waiting.arguments == *arguments;
        match all.get(state) {
            None => return invalid("requestState is unknown, was used, or is too old: make the call again"),
            Some(waiting) if !is_it(waiting) => return invalid("requestState is of another call"),
            Some(_) => {}
        }
        let Some(Waiting { flight, answer, .. }) = all.remove(state) else {
            return invalid("requestState is unknown");
        };
        // If nobody waits for it by now, the call says so itself.
        drop(answer.send(response));
        Ok(flight)
    }

    /// Has the client ask, and come back. `None` if too many are away.
    fn ask(&self, (name, arguments): (&str, JsonObject), flight: Flight, ask: Ask) -> Option<InputRequiredResult> {
        let mut all = self.waiting();
        all.retain(|_, waiting| waiting.is_awaited());
        if all.len() >= WAITING_MAX {
            return None;
        }
        let state = handle()?;
        let (name, since, answer) = (name.to_owned(), Instant::now(), ask.answer);
        all.insert(state.clone(), Waiting { name, arguments, flight, answer, since });
        let question = InputRequest::Elicitation(ElicitRequest::new(ask.what));
        Some(InputRequiredResult::new(Some([(QUESTION.to_owned(), question)].into()), Some(state)))
    }
}

/// Whether a client shows forms: one that says nothing of how it asks does.
fn can_fill(elicitation: &ElicitationCapability) -> bool {
    elicitation.form.is_some() || elicitation.url.is_none()
}

/// Whether each request stands for itself: no request goes from the server to the client.
fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// 128 random bits, in hexadecimal.
fn handle() -> Option<String> {
    let mut bytes = [0_u8; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    (filled == bytes.len()).then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Output that goes to the client while a call runs.
struct Progress {
    token: ProgressToken,
    bytes: u64,
    /// The begin of a character whose rest is still to come.
    rest: Vec<u8>,
}

impl Progress {
    fn next(&mut self, piece: &[u8]) -> ProgressNotificationParam {
        self.bytes += piece.len() as u64;
        self.rest.extend_from_slice(piece);
        let whole = match std::str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.rest.len(),
        };
        let rest = self.rest.split_off(whole);
        let text = String::from_utf8_lossy(&std::mem::replace(&mut self.rest, rest)).into_owned();
        #[expect(clippy::cast_precision_loss, reason = "the protocol counts in doubles")]
        ProgressNotificationParam::new(self.token.clone(), self.bytes as f64).with_message(text)
    }
}

/// `None` if there is nothing to wait for.
async fn poll(asking: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>) -> Option<()> {
    match asking {
        Some(asking) => {
            asking.as_mut().await;
            Some(())
        }
        None => None,
    }
}

/// Returns when nobody wants the result of a request any more.
async fn over(context: &RequestContext<RoleServer>, closed: &mut Closed) {
    tokio::select! {
        () = context.ct.cancelled() => {}
        () = closed.wait() => {}
    }
}

fn cancelled() -> ErrorData {
    ErrorData::internal_error("the call was cancelled", None)
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        let mut info = ServerConfig::new(capabilities).with_instructions(
            "Every call runs in a sandbox with the rights of this session. A refusal says what was refused and what would allow it; \
             trying the same again changes nothing.",
        );
        info.server_info = Implementation::new("callgate", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let registry = self.session.registry();
        // What was found changes no list in which each request stands for itself (C-33).
        let is_fixed = is_stateless(&context);
        let listed = registry.tools().filter_map(|tool| {
            let is_found = !tool.deferred || (!is_fixed && self.session.is_loaded(tool));
            (is_found || is_fixed).then(|| listed::listed(tool, is_found))
        });
        Ok(ListToolsResult::with_all_items(listed.collect()))
    }

    async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.clone().into_owned();
        if self.session.registry().find(&name).is_none() {
            return Err(ErrorData::invalid_params(format!("there is no tool `{name}`"), None));
        }
        let Ok(_seat) = self.whose.calls().try_acquire() else {
            let what = "too many calls are under way; make this one when one of them has ended";
            return Err(ErrorData::internal_error(what, None));
        };
        let mut closed = self.closed.clone();
        if closed.is() {
            return Err(cancelled());
        }
        let arguments = request.arguments.take().unwrap_or_default();
        let mut flight = match request.request_state.take() {
            Some(state) => self.resume(&request, &arguments, &state)?,
            None => self.start(&name, arguments.clone(), &context),
        };
        let mut progress =
            context.meta.get_progress_token().map(|token| Progress { token, bytes: 0, rest: Vec::new() });
        let mut asking = None;
        loop {
            tokio::select! {
                biased;
                // Dropped, the call ends.
                () = over(&context, &mut closed) => return Err(cancelled()),
                Some(piece) = flight.pieces.recv() => {
                    let Some(progress) = &mut progress else { continue };
                    tokio::select! {
                        biased;
                        () = over(&context, &mut closed) => return Err(cancelled()),
                        // A client that is gone is noticed where it is read from.
                        told = context.peer.notify_progress(progress.next(&piece)) => drop(told),
                    }
                }
                Some(()) = poll(&mut asking) => asking = None,
                Some(ask) = flight.asks.recv(), if asking.is_none() => {
                    if !is_stateless(&context) {
                        asking = Some(Box::pin(ask.by_request(context.peer.clone())));
                        continue;
                    }
                    match self.ask((&name, arguments.clone()), flight, ask) {
                        Some(asked) => return Ok(asked.into()),
                        None => return Err(ErrorData::internal_error("too many calls wait for an answer", None)),
                    }
                }
                Some(done) = flight.call.join_next() => {
                    let envelope = done.map_err(|_ended| ErrorData::internal_error("the call ended without a result", None))?;
                    if name == "tool_search" && !is_stateless(&context) {
                        drop(context.peer.notify_tool_list_changed().await);
                    }
                    return Ok(result::result(&envelope).into());
                }
            }
        }
    }
}
