//! The server: lists the session's tools, and makes its calls.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use callgate::{ResultEnvelope, Session, Traceparent};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, DiscoverResult, ElicitRequest, ElicitResult, ElicitationCapability,
    Implementation, InputRequest, InputRequiredResult, JsonObject, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, ProtocolVersion, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer, RunningService, ServerInitializeError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ErrorData, ServerHandler, ServiceExt as _, model};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::asking::{Ask, CALLER, Caller, STEPS};
use crate::servers::Servers;
use crate::wire::{Bounded, Closed, MESSAGE_MAX, UntilClosed};
use crate::{listed, result};

/// Most calls at once.
const CALLS_MAX: usize = 256;
/// Most bytes that large arguments of calls under way take together, here and in all sessions of one process.
const ROOM: usize = 64 << 20;
/// Arguments that take no more than this are not large: their number is bounded, and no client's large ones keep them out.
const SMALL: usize = 64 << 10;
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

/// Reason why a client could not be served.
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

/// Serves some client, whose messages have at most `longest` bytes.
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
    let is_trusted = matches!(whose, Whose::Host { .. });
    let server = |closed| Server { whose, ..Server::new(session, closed, room()) };
    match serve_by(server, from, to, (longest, is_trusted)).await? {
        Some((running, closed)) => over_with(running, closed).await,
        None => Ok(()),
    }
}

/// A client that is served.
pub(crate) type Serving<S> = (RunningService<RoleServer, S>, Closed);

/// Begins to serve a client, whose messages have at most `longest` bytes, by what `server` makes. Of one that is not trusted, no more is
/// read than it is answered. `None` if the client has gone before it has said anything.
pub(crate) async fn serve_by<S, R, W>(
    server: impl FnOnce(Closed) -> S,
    from: R,
    to: W,
    (longest, is_trusted): (usize, bool),
) -> Result<Option<Serving<S>>, ServeError>
where
    S: ServerHandler,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (from, closed) = UntilClosed::new(from);
    let transport = AsyncRwTransport::new_server(from, to).with_max_line_length(longest);
    let transport = if is_trusted { Bounded::new(transport) } else { Bounded::wary(transport) };
    match server(closed.clone()).serve(transport).await {
        Ok(running) => Ok(Some((running, closed))),
        // A client that goes before it has said anything wants nothing.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(None),
        Err(ServerInitializeError::ExpectedInitializeRequest(_)) => {
            Err(ServeError::Begin("its first message is no request that begins one".to_owned()))
        }
        Err(ServerInitializeError::TransportError { error, .. }) => untaken(&*error.error).map(|()| None),
        Err(error) => Err(ServeError::Begin(error.to_string())),
    }
}

/// Returns when a client has closed its end, and has had its results or does not take them.
pub(crate) async fn over_with<S: ServerHandler>(
    running: RunningService<RoleServer, S>,
    closed: Closed,
) -> Result<(), ServeError> {
    tokio::select! {
        ended = running.waiting() => ended.map(drop).map_err(ServeError::Ended),
        // One that has closed its end, and does not take what is left, keeps nobody.
        () = gone(closed) => Ok(()),
    }
}

/// Result of an answer to a client's first message that could not be written.
fn untaken(error: &(dyn std::error::Error + 'static)) -> Result<(), ServeError> {
    match error.downcast_ref::<std::io::Error>() {
        // It went meanwhile.
        Some(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(ServeError::Begin(format!("it takes no answer: {error}"))),
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
    /// Bytes that large arguments may still take.
    room: Arc<Semaphore>,
    closed: Closed,
    /// Held as long as the session is.
    _seat: Option<OwnedSemaphorePermit>,
    /// Whose tools the session has.
    _servers: Option<Servers>,
}

struct Waiting {
    name: String,
    arguments: JsonObject,
    flight: Flight,
    answer: oneshot::Sender<ElicitResult>,
    since: Instant,
}

impl Waiting {
    /// True if an answer would still be taken.
    fn is_awaited(&self) -> bool {
        self.since.elapsed() < AWAY && !self.answer.is_closed()
    }
}

/// A call that is under way. It ends when this is dropped.
struct Flight {
    call: JoinSet<ResultEnvelope>,
    asks: mpsc::Receiver<Ask>,
    pieces: mpsc::Receiver<Vec<u8>>,
    /// Steps that a server that it is made to has told.
    steps: mpsc::Receiver<ProgressNotificationParam>,
    /// Room that its arguments take, if they are large.
    _room: Option<OwnedSemaphorePermit>,
}

/// Room for large arguments, of which all sessions of a process have one.
pub(crate) fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(ROOM))
}

/// About how many bytes it takes while its call runs. The parser has bounded how deep it is.
fn weight(value: &Value) -> usize {
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(all) => all.iter().map(weight).sum(),
        Value::Object(all) => of_fields(all),
    };
    size_of::<Value>() + inside
}

fn of_fields(fields: &JsonObject) -> usize {
    fields.iter().map(|(name, value)| size_of::<String>() + name.len() + weight(value)).sum()
}

impl Server {
    pub(crate) fn new(session: Arc<Session>, closed: Closed, room: Arc<Semaphore>) -> Self {
        Self { session, whose: Whose::default(), waiting: Mutex::default(), room, closed, _seat: None, _servers: None }
    }

    /// Whose calls it makes.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// One of several servers, of which there are no more than there are seats.
    pub(crate) fn with_seat(self, seat: OwnedSemaphorePermit) -> Self {
        Self { _seat: Some(seat), ..self }
    }

    /// With servers that end with it.
    pub(crate) fn with_servers(self, servers: Servers) -> Self {
        Self { _servers: Some(servers), ..self }
    }

    /// True if a call waits for the answer to a result.
    pub(crate) fn is_asking(&self) -> bool {
        self.waiting().values().any(Waiting::is_awaited)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for the arguments of a call, if they need any. A call may wait for others, and meanwhile holds its arguments.
    fn room_for(&self, arguments: &JsonObject) -> Result<Option<OwnedSemaphorePermit>, ErrorData> {
        let weight = of_fields(arguments);
        if weight <= SMALL {
            return Ok(None);
        }
        if weight > ROOM {
            return Err(ErrorData::invalid_params("the arguments are too large", None));
        }
        // A call whose question nobody answered in time takes nothing any more.
        self.waiting().retain(|_, waiting| waiting.is_awaited());
        let room =
            u32::try_from(weight).ok().and_then(|weight| Arc::clone(&self.room).try_acquire_many_owned(weight).ok());
        room.map(Some).ok_or_else(|| {
            let what =
                format!("arguments of {} MiB are under way; make this call when one of them has ended", ROOM >> 20);
            ErrorData::internal_error(what, None)
        })
    }

    fn start(
        &self,
        name: &str,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<Flight, ErrorData> {
        let room = self.room_for(&arguments)?;
        let ((ask, asks), (piece, pieces), (step, steps)) =
            (mpsc::channel(1), mpsc::channel(PIECES), mpsc::channel(PIECES));
        let caller = self.whose.asked(ask, context);
        let (session, name) = (Arc::clone(&self.session), name.to_owned());
        let trace = context.meta.get_traceparent().and_then(Traceparent::parse).or_else(|| self.whose.trace());
        let mut call = JoinSet::new();
        let carried_out = async move {
            let mut pass_on = |bytes: &[u8]| {
                // A client that does not read stops no call.
                drop(piece.try_send(bytes.to_vec()));
            };
            let made = session.call_streaming(&name, Value::Object(arguments), &mut pass_on);
            match trace {
                Some(trace) => trace.scope(made).await,
                None => made.await,
            }
        };
        call.spawn(CALLER.scope(caller, STEPS.scope(step, carried_out)));
        Ok(Flight { call, asks, pieces, steps, _room: room })
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

    /// Makes a call, and passes on what is asked and told meanwhile.
    pub(crate) async fn carry_out(
        &self,
        mut request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Came, ErrorData> {
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
            None => self.start(&name, arguments.clone(), context)?,
        };
        let mut progress =
            context.meta.get_progress_token().map(|token| Progress { token, bytes: 0, rest: Vec::new() });
        let mut asking = None;
        loop {
            tokio::select! {
                biased;
                // Dropped, the call ends.
                () = over(context, &mut closed) => return Err(cancelled()),
                Some(piece) = flight.pieces.recv() => {
                    let Some(progress) = &mut progress else { continue };
                    tokio::select! {
                        biased;
                        () = over(context, &mut closed) => return Err(cancelled()),
                        // A client that is gone is noticed where it is read from.
                        told = context.peer.notify_progress(progress.next(&piece)) => drop(told),
                    }
                }
                Some(step) = flight.steps.recv() => {
                    let Some(progress) = &progress else { continue };
                    tokio::select! {
                        biased;
                        () = over(context, &mut closed) => return Err(cancelled()),
                        told = context.peer.notify_progress(progress.as_told(step)) => drop(told),
                    }
                }
                Some(()) = poll(&mut asking) => asking = None,
                Some(ask) = flight.asks.recv(), if asking.is_none() => {
                    if !is_stateless(context) {
                        asking = Some(Box::pin(ask.by_request(context.peer.clone())));
                        continue;
                    }
                    match self.ask((&name, arguments.clone()), flight, ask) {
                        Some(asked) => return Ok(Came::Question(asked)),
                        None => return Err(ErrorData::internal_error("too many calls wait for an answer", None)),
                    }
                }
                Some(done) = flight.call.join_next() => {
                    let envelope = done.map_err(|_ended| ErrorData::internal_error("the call ended without a result", None))?;
                    if self.session.registry().find(&name).is_some_and(|tool| tool.own_name() == "tool_search")
                        && !is_stateless(context)
                    {
                        drop(context.peer.notify_tool_list_changed().await);
                    }
                    return Ok(Came::Result(Box::new(envelope)));
                }
            }
        }
    }
}

/// Outcome of a request for a call.
pub(crate) enum Came {
    /// The call's result.
    Result(Box<ResultEnvelope>),
    /// The client asks its person, and makes the request again with the answer.
    Question(InputRequiredResult),
}

/// True if a client shows forms: one that says nothing of how it asks does.
fn can_fill(elicitation: &ElicitationCapability) -> bool {
    elicitation.form.is_some() || elicitation.url.is_none()
}

/// True if each request stands for itself: no request goes from the server to the client.
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
    /// A step that a server has told, for the client that has asked.
    fn as_told(&self, step: ProgressNotificationParam) -> ProgressNotificationParam {
        let mut told = ProgressNotificationParam::new(self.token.clone(), step.progress);
        (told.total, told.message) = (step.total, step.message);
        told
    }

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

    /// Answers in the era in which each request stands for itself. There a list of tools does not change (C-33), so no
    /// change is announced.
    async fn discover(&self, _context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let mut info = self.get_info();
        info.capabilities = ServerCapabilities::builder().enable_tools().build();
        Ok(DiscoverResult::from_server_info(self.supported_protocol_versions().into_owned(), info))
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

    /// As it is listed where each request stands for itself. The SDK compares what a client repeats in headers with the arguments.
    fn get_tool(&self, name: &str) -> Option<model::Tool> {
        self.session.registry().find(name).map(|tool| listed::listed(tool, !tool.deferred))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(match self.carry_out(request, &context).await? {
            Came::Result(envelope) => result::result(&envelope).into(),
            Came::Question(question) => question.into(),
        })
    }
}
