//! A server that was started in a session's sandbox, and its tools as tools of a session.
//!
//! The server is a stranger's program: the kernel holds it to what its session was granted, and what it says is bounded here, in
//! size, in number and in time, before a model or a person sees it.

mod definition;
mod hints;
mod passing;
pub(crate) mod requests;
pub(crate) mod told;

use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use callgate::{Answering, CallError, Handler, HandlerCall, Program, Registry, Session, Stdio, shown, with_causes};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ClientRequest,
    Implementation, PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ServerPeerInfo, ServerResult,
    Tool,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, NotificationContext, Peer, PeerRequestOptions,
    RoleClient, RunningService, ServiceError,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, model};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::sync::{mpsc, watch};

use crate::asking::STEPS;
use crate::result::{CONTENT, STRUCTURED};
use crate::taken_back::TakenBack;
use crate::wire::{Bounded, MESSAGE_MAX};
use definition::{Definition, TOOLS_MAX, clean};

/// Most pages of a list.
const PAGES_MAX: usize = 64;
/// How long a server may take to answer what is no call.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a server may take that was asked to end, by closing its standard input.
const FAREWELL: Duration = Duration::from_secs(2);
/// Most lines of its standard error in a time.
const LINES_MAX: u32 = 200;
/// That time.
const LINES_IN: Duration = Duration::from_secs(10);
/// Most bytes of a line of its standard error.
const LINE_MAX: usize = 8 * 1024;
/// Most bytes of a list of tools.
const LIST_MAX: usize = 1024 * 1024;
/// Most characters of what a server says of a call.
const MESSAGE: usize = 4096;
/// Most characters of what a server is called.
const TITLE_MAX: usize = 128;
/// Most characters of what a server says of itself.
const INSTRUCTIONS_MAX: usize = 8 * 1024;

/// How a server is started, and what is believed of it.
#[derive(Debug, Clone)]
pub struct RemoteSpec {
    /// Name in rules: `mcp:NAME:TOOL`.
    pub name: String,
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// How long it may take until it speaks the protocol.
    pub start: Duration,
    /// Most characters of a tool's description.
    pub description_max: usize,
    /// True if it starts in the session's private directory, and not in the workspace.
    pub apart: bool,
}

impl RemoteSpec {
    /// A server of this name.
    #[must_use]
    pub fn new(name: impl Into<String>, argv: impl IntoIterator<Item = OsString>) -> Self {
        let (name, argv) = (name.into(), argv.into_iter().collect());
        Self { name, argv, start: Duration::from_secs(60), description_max: 8 * 1024, apart: false }
    }
}

/// Reason why a server could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// It was not started.
    #[error("the server `{name}` was not started")]
    Start {
        /// Which.
        name: String,
        /// Cause.
        source: CallError,
    },
    /// Its pipes could not be made.
    #[error("the pipes of the server `{name}` could not be made")]
    Pipes {
        /// Which.
        name: String,
        /// Cause.
        source: std::io::Error,
    },
    /// It does not speak the protocol.
    #[error("the server `{name}` did not begin the protocol: {why}")]
    Begin {
        /// Which.
        name: String,
        /// Act of the server, in our words.
        why: String,
    },
    /// It did not list its tools.
    #[error("the server `{name}` did not list its tools: {why}")]
    List {
        /// Which.
        name: String,
        /// Act of the server, in our words.
        why: String,
    },
}

/// A server that runs, confined. Dropping it ends it.
pub struct Remote {
    spec: RemoteSpec,
    session: Arc<Session>,
    program: Arc<Program>,
    service: RunningService<RoleClient, Notices>,
    started: Instant,
    definitions: Mutex<Vec<Definition>>,
    /// Hints that were told of what is refused to it.
    told: hints::Told,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// Messages that a server sends unasked.
#[derive(Debug)]
struct Notices {
    /// How often it has said that its tools are others.
    changed: watch::Sender<u64>,
    /// Who wants to know how far a call has come.
    steps: Mutex<Vec<(ProgressToken, Steps)>>,
}

type Steps = mpsc::Sender<ProgressNotificationParam>;

impl Notices {
    fn steps(&self) -> MutexGuard<'_, Vec<(ProgressToken, Steps)>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientHandler for Notices {
    fn get_info(&self) -> ClientConfig {
        // It has nothing to ask of a client: whom it may ask is not for it to say.
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("callgate", env!("CARGO_PKG_VERSION")))
    }

    async fn on_progress(&self, mut step: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        step.message = step.message.map(|message| clean(&message, MESSAGE));
        let steps = self.steps();
        if let Some((_, wants)) = steps.iter().find(|(token, _)| *token == step.progress_token) {
            // Who does not take them in time does without.
            drop(wants.try_send(step));
        }
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.send_modify(|times| *times += 1);
    }
}

impl Remote {
    /// Starts a server in the sandbox of a session, with its grants, and lists its tools.
    ///
    /// # Errors
    /// [`RemoteError`]. Nothing of the server runs then.
    pub async fn start(session: Arc<Session>, spec: RemoteSpec) -> Result<Self, RemoteError> {
        let modern = ClientLifecycleMode::Discover { preferred_versions: vec![model::ProtocolVersion::V_2026_07_28] };
        let (program, service, started) = match Self::begin(&session, &spec, ClientLifecycleMode::Initialize).await {
            // One that knows the later protocol alone.
            Err(Begun::Refused(_)) => Self::begin(&session, &spec, modern).await,
            begun => begun,
        }
        .map_err(|begun| begun.into_error(&spec.name))?;
        let definitions = Mutex::default();
        let remote = Self { told: hints::Told::default(), spec, session, program, service, started, definitions };
        let left = remote.spec.start.saturating_sub(started.elapsed());
        let listed = tokio::time::timeout(left, remote.list()).await;
        let late = || remote.not_listed(format!("it took longer than {:?} to start", remote.spec.start));
        match listed.unwrap_or_else(|_elapsed| Err(late())) {
            Ok(definitions) => *remote.definitions() = definitions,
            Err(error) => {
                remote.end().await;
                return Err(error);
            }
        }
        Ok(remote)
    }

    async fn begin(
        session: &Session,
        spec: &RemoteSpec,
        lifecycle: ClientLifecycleMode,
    ) -> Result<(Arc<Program>, RunningService<RoleClient, Notices>, Instant), Begun> {
        let started = Instant::now();
        let (stdio, pipes) = Stdio::piped().map_err(Begun::Pipes)?;
        let program = match spec.apart {
            true => session.spawn_apart(&spec.argv, stdio).await,
            false => session.spawn(&spec.argv, stdio).await,
        }
        .map_err(Begun::Start)?;
        let (to, from, complaints) = pipes.into_async().map_err(Begun::Pipes)?;
        tokio::spawn(pass_on(spec.name.clone(), complaints));
        let transport = Bounded::wary(AsyncRwTransport::new_client(from, to).with_max_line_length(MESSAGE_MAX));
        let notices = Notices { changed: watch::Sender::new(0), steps: Mutex::default() };
        let begun = tokio::time::timeout(spec.start, notices.serve_with_lifecycle(transport, lifecycle)).await;
        let why = match begun {
            Ok(Ok(service)) => return Ok((Arc::new(program), service, started)),
            Ok(Err(ClientInitializeError::JsonRpcError(_))) => {
                report(session, &program, started).await;
                return Err(Begun::Refused("it answered with an error".to_owned()));
            }
            Ok(Err(ClientInitializeError::ConnectionClosed(_))) => "it ended, or closed its standard output".to_owned(),
            Ok(Err(error)) => one_line(&with_causes(&error)),
            Err(_elapsed) => format!("it took longer than {:?}", spec.start),
        };
        hints::Told::default().tell(&spec.name, session.refused_to(&program).await);
        let ended = report(session, &program, started).await;
        Err(Begun::Silent(format!("{why}{ended}")))
    }

    /// Name in rules.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Information that it gives of itself.
    pub(crate) fn info(&self) -> Option<Arc<ServerPeerInfo>> {
        self.service.peer_info()
    }

    /// Name and version of it.
    pub(crate) fn implementation(&self) -> Option<Implementation> {
        let info = self.info()?;
        let theirs = info.server_info.as_ref()?;
        let mut ours = Implementation::new(clean(&theirs.name, TITLE_MAX), clean(&theirs.version, TITLE_MAX));
        ours.title = theirs.title.as_deref().map(|title| clean(title, TITLE_MAX));
        Some(ours)
    }

    /// Instructions for its use, if it gives some.
    pub(crate) fn instructions(&self) -> Option<String> {
        Some(clean(self.info()?.instructions.as_deref()?, INSTRUCTIONS_MAX))
    }

    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// How often it has said that its tools are others.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.service.service().changed.subscribe()
    }

    fn definitions(&self) -> MutexGuard<'_, Vec<Definition>> {
        self.definitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its tools as it defines them, by the names that they are shown by: those that a registry has.
    pub(crate) fn listed(&self, registry: &Registry) -> Vec<Tool> {
        let shown = |definition: &Definition| {
            let rules = format!("mcp:{}:{}", self.spec.name, definition.tool.name);
            let tool = registry.tools().find(|tool| tool.is_of(&self.spec.name) && tool.rule_name() == rules)?;
            let mut listed = definition.tool.clone();
            listed.name = tool.name.clone().into();
            Some(listed)
        };
        self.definitions().iter().filter_map(shown).collect()
    }

    /// Says something about it on standard error.
    pub(crate) fn tell(&self, text: &str) {
        told::tell(&format!("callgate: {}: {text}", self.spec.name));
    }

    /// Lists its tools again. Whether they are others; which of them have changed is told.
    ///
    /// # Errors
    /// [`RemoteError::List`]; those that it had stay.
    pub async fn refresh(&self) -> Result<bool, RemoteError> {
        let now = self.list().await?;
        let mut before = self.definitions();
        for one in &now {
            let was = before.iter().find(|other| other.tool.name == one.tool.name);
            if was.is_some_and(|was| was.digest != one.digest) {
                let tool = format!("mcp:{}:{}", self.spec.name, one.tool.name);
                told::tell(&format!(
                    "callgate: {tool} is defined differently now; what was approved of it is asked again"
                ));
            }
        }
        let is_other = *before != now;
        *before = now;
        Ok(is_other)
    }

    async fn list(&self) -> Result<Vec<Definition>, RemoteError> {
        let mut list = List::default();
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let listed = tokio::time::timeout(PATIENCE, self.peer().list_tools(Some(page))).await;
            let page = match listed {
                Ok(Ok(page)) => page,
                Ok(Err(error)) => return Err(self.not_listed(one_line(&with_causes(&error)))),
                Err(_elapsed) => return Err(self.not_listed(format!("it took longer than {PATIENCE:?}"))),
            };
            for tool in page.tools {
                list.add(tool, &self.spec);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                if let Some(first) = list.first_left_out {
                    self.tell(&format!("{} of its tools are left out; the first, {first}", list.left_out));
                }
                return Ok(list.all);
            }
        }
        Err(self.not_listed(format!("the list has more than {PAGES_MAX} pages")))
    }

    fn not_listed(&self, why: String) -> RemoteError {
        RemoteError::List { name: self.spec.name.clone(), why }
    }

    /// Its tools for a session, each shown as `shown_as` says.
    pub fn tools(self: &Arc<Self>, shown_as: impl Fn(&str) -> String) -> Vec<callgate::Tool> {
        let definitions = self.definitions().clone();
        definitions.into_iter().map(|definition| self.tool(definition, &shown_as)).collect()
    }

    fn tool(self: &Arc<Self>, definition: Definition, shown_as: impl Fn(&str) -> String) -> callgate::Tool {
        let Definition { tool, outline, digest, .. } = definition;
        let name = tool.name.clone().into_owned();
        let call = Call { remote: Arc::downgrade(self), server: self.spec.name.clone(), name: name.clone() };
        callgate::Tool::remote(&self.spec.name, &name, call)
            .shown_as(shown_as(&name))
            .description(tool.description.unwrap_or_default())
            .parameters(Value::Object((*tool.input_schema).clone()))
            .compared_with(outline)
            // An approval is of this definition.
            .approval_key(move |arguments| format!("{arguments} (as defined by {digest})"))
            .side_by_side()
    }

    /// Makes a call. Dropped, it is taken back.
    async fn call(&self, name: String, arguments: Value) -> Result<Value, String> {
        let result = self.request(name, arguments.clone()).await;
        let outcome = match result {
            Ok(result) if result.is_error != Some(true) => Ok(data(&result)),
            Ok(result) => Err(texts(&result)),
            Err(why) => Err(why),
        };
        self.told.tell(&self.spec.name, self.session.refused_to(&self.program).await);
        if outcome.is_err() {
            self.told.tell(&self.spec.name, hints::paths(&self.session, &arguments));
        }
        outcome
    }

    async fn request(&self, name: String, arguments: Value) -> Result<CallToolResult, String> {
        let gone = || gone(&self.spec.name);
        let mut params = CallToolRequestParams::new(name);
        params.arguments = arguments.as_object().cloned();
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let peer = self.peer();
        let sent = peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let handle = sent.map_err(|_closed| gone())?;
        let flight = TakenBack::new(peer.clone(), handle.id.clone(), "the call was cancelled");
        let _told = STEPS.try_with(Clone::clone).ok().map(|steps| self.tell_steps(&handle.progress_token, steps));
        let answer = handle.await_response().await;
        flight.answered();
        match answer {
            Ok(ServerResult::CallToolResult(result)) => Ok(result),
            Ok(_) | Err(ServiceError::UnexpectedResponse) => {
                Err(format!("the server `{}` answered with something else than a result", self.spec.name))
            }
            Err(ServiceError::McpError(error)) => Err(clean(&error.message, MESSAGE)),
            Err(_gone) => Err(gone()),
        }
    }

    fn tell_steps(&self, token: &ProgressToken, steps: Steps) -> Telling<'_> {
        let notices = self.service.service();
        notices.steps().push((token.clone(), steps));
        Telling { notices, token: token.clone() }
    }

    /// Returns when its program has ended, or has closed its end.
    pub(crate) async fn over(&self) {
        tokio::select! {
            // Whoever waits for its end later is told the same.
            ended = self.program.wait() => drop(ended),
            () = closed(self.peer()) => {}
        }
    }

    /// Asks it to end, ends it if it does not, and records how it did. What was refused to it since the last call is told. Returns
    /// how it ended, as the end of a sentence.
    pub async fn end(&self) -> String {
        // Its standard input ends.
        self.service.cancellation_token().cancel();
        drop(tokio::time::timeout(FAREWELL, self.program.wait()).await);
        self.told.tell(&self.spec.name, self.session.refused_to(&self.program).await);
        report(&self.session, &self.program, self.started).await
    }
}

/// A list of tools, as it is read.
#[derive(Default)]
struct List {
    all: Vec<Definition>,
    bytes: usize,
    left_out: u64,
    /// And why.
    first_left_out: Option<String>,
}

impl List {
    fn add(&mut self, tool: Tool, spec: &RemoteSpec) {
        let name = one_line(&clean(&tool.name, 64));
        let why = match Definition::of(tool, &spec.argv, spec.description_max) {
            Ok(one) if self.all.iter().any(|other| other.tool.name == one.tool.name) => {
                "there is one of this name".to_owned()
            }
            Ok(_) if self.all.len() >= TOOLS_MAX => format!("there are more than {TOOLS_MAX}"),
            Ok(one) if self.bytes + one.size > LIST_MAX => format!("together they have more than {LIST_MAX} bytes"),
            Ok(one) => {
                self.bytes += one.size;
                self.all.push(one);
                return;
            }
            Err(why) => why.to_string(),
        };
        self.left_out += 1;
        self.first_left_out.get_or_insert_with(|| format!("`{name}`: {why}"));
    }
}

/// A stranger's words as a part of a sentence.
fn one_line(text: &str) -> String {
    shown::escaped(&clean(text, 300))
}

/// Ends what is left of a program, and its record. Returns how it ended, as the end of a sentence.
async fn report(session: &Session, program: &Program, started: Instant) -> String {
    // One that has ended needs no end.
    drop(program.abort().await);
    let Ok(end) = program.wait().await else { return String::new() };
    // In a recorded session this is the end of its record.
    drop(session.report(program, &end, started.elapsed()));
    match (end.code, end.signal) {
        (Some(code), _) => format!(" (exit status {code})"),
        (None, Some(signal)) => format!(" (signal {signal})"),
        (None, None) => String::new(),
    }
}

fn gone(server: &str) -> String {
    format!("the server `{server}` is not available: it has ended")
}

async fn closed(peer: &Peer<RoleClient>) {
    while !peer.is_transport_closed() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// How a begin failed.
enum Begun {
    Start(CallError),
    Pipes(std::io::Error),
    /// It answered, with an error.
    Refused(String),
    /// It said nothing that could be understood.
    Silent(String),
}

impl Begun {
    fn into_error(self, name: &str) -> RemoteError {
        let name = name.to_owned();
        match self {
            Self::Start(source) => RemoteError::Start { name, source },
            Self::Pipes(source) => RemoteError::Pipes { name, source },
            Self::Refused(why) | Self::Silent(why) => RemoteError::Begin { name, why },
        }
    }
}

/// That somebody is told how far a call has come.
struct Telling<'a> {
    notices: &'a Notices,
    token: ProgressToken,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.notices.steps().retain(|(token, _)| *token != self.token);
    }
}

/// One of its tools. It keeps no server running.
struct Call {
    remote: Weak<Remote>,
    server: String,
    name: String,
}

impl Handler for Call {
    fn answer(&self, call: HandlerCall) -> Answering {
        let (remote, name, server) = (self.remote.upgrade(), self.name.clone(), self.server.clone());
        Box::pin(async move {
            match remote {
                Some(remote) => remote.call(name, call.args).await,
                None => Err(gone(&server)),
            }
        })
    }
}

/// A result as data of a session's result.
fn data(result: &CallToolResult) -> Value {
    let mut data = json!({ (CONTENT): result.content });
    if let (Some(structured), Some(data)) = (&result.structured_content, data.as_object_mut()) {
        data.insert(STRUCTURED.to_owned(), structured.clone());
    }
    data
}

fn texts(result: &CallToolResult) -> String {
    let texts: Vec<&str> = result.content.iter().filter_map(|block| Some(block.as_text()?.text.as_str())).collect();
    if texts.is_empty() { "the server reported an error, and did not say which".to_owned() } else { texts.join("\n") }
}

/// Passes a server's standard error on, a line at a time and no more than so many.
async fn pass_on(name: String, from: impl AsyncRead + Unpin) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    let (mut begun, mut lines) = (Instant::now(), 0_u32);
    loop {
        line.clear();
        match (&mut from).take(LINE_MAX as u64).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if begun.elapsed() >= LINES_IN {
            (begun, lines) = (Instant::now(), 0);
        }
        lines += 1;
        // One that says more has been read, so that it goes on.
        if lines <= LINES_MAX {
            told::tell(&format!("{name}: {}", String::from_utf8_lossy(&line).trim_end_matches('\n')));
        } else if lines == LINES_MAX + 1 {
            told::tell(&format!("callgate: {name}: more lines of its standard error are left out for {LINES_IN:?}"));
        }
    }
}
