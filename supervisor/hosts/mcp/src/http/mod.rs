//! The server over HTTP, on an address of this machine itself.
//!
//! The SDK speaks the protocol: sessions of the eras that begin with `initialize`, and requests that stand for themselves. What is
//! here decides who may speak it. A request is looked at in this order, and nothing of it is read before the first three are right:
//! which host it believes to talk to, which page sent it, whose token it brings, and which client it is of.

mod clients;
mod door;
mod request;
mod stream;

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use callgate::{OpenError, Session};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use clients::Clients;
use door::Door;
pub use door::{Token, TokenError};
use stream::Hurried;

use crate::servers::Servers;

/// Where the protocol is spoken.
const PATH: &str = "/mcp";
/// Connections for each session that there may be. A connection has one request at a time: a client listens on one (GET), waits for a
/// call on another, and answers what that call asks on a third. With fewer, as many clients as there are sessions could all wait.
const CONNECTIONS_PER_SESSION: usize = 4;
/// Least connections, however few the sessions: one client may make many calls at once.
const CONNECTIONS_MIN: usize = 128;
/// Descriptors of a session in this process, of calls under way too, and those of the process itself.
const DESCRIPTORS_PER_SESSION: usize = 16;
const DESCRIPTORS: usize = 64;
/// Most headers of a request, and most bytes of them.
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 64 << 10;
/// How long the headers of a request may take to come: also how long a connection may be without a request.
const HEADERS_WITHIN: Duration = Duration::from_secs(15);
/// How long a client may take nothing of what is sent to it.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);
/// How often clients that are idle are looked for, at most.
const LOOK: Duration = Duration::from_secs(30);
/// After a connection could not be taken, as when this process has no descriptors left.
const BREATH: Duration = Duration::from_millis(100);

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

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// Others than this machine could reach it.
    #[error("{0} is not an address of this machine alone (127.0.0.0/8, ::1)")]
    NotLoopback(SocketAddr),
    /// The address cannot be listened on.
    #[error("listen on {address}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

/// A server of the Model Context Protocol over HTTP.
///
/// Each client has a callgate session of its own. A client is what `initialize` begins; in protocol version 2026-07-28, which has no
/// sessions, it is whoever has a token: give each a token of its own to keep them apart.
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    idle: Duration,
    sessions: usize,
}

impl std::fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpServer({})", self.address)
    }
}

impl HttpServer {
    /// How many clients may have a session at once, if nothing else is set.
    pub const SESSIONS: usize = 64;

    /// Listens on an address of this machine itself. With port 0 the kernel chooses one.
    ///
    /// # Errors
    /// [`HttpError`]
    pub async fn listen(address: SocketAddr) -> Result<Self, HttpError> {
        if !address.ip().is_loopback() {
            return Err(HttpError::NotLoopback(address));
        }
        let failed = |source| HttpError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, idle: Duration::from_secs(30 * 60), sessions: Self::SESSIONS })
    }

    /// How long a client may make no request before its session is closed: half an hour, if nothing else is set.
    #[must_use]
    pub fn idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// How many clients may have a session at once. The next one is sent away for a while. There are four connections for each, so this
    /// process needs [`descriptors`](Self::descriptors).
    #[must_use]
    pub fn sessions(self, most: usize) -> Self {
        Self { sessions: most.max(1), ..self }
    }

    /// How many descriptors a process needs that serves so many sessions at once.
    #[must_use]
    pub fn descriptors(sessions: usize) -> usize {
        sessions
            .saturating_mul(DESCRIPTORS_PER_SESSION)
            .saturating_add(connections(sessions))
            .saturating_add(DESCRIPTORS)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a client is to be given.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Serves the holders of these tokens, each client in a session that `open` opens, until `until` is over. Every call then ends,
    /// and every session.
    pub async fn serve(
        self,
        tokens: Vec<Token>,
        open: impl Fn() -> Opening + Send + Sync + 'static,
        until: impl Future<Output = ()>,
    ) {
        let Self { listener, address, idle, sessions } = self;
        let clients = Arc::new(Clients::new(Door::new(address, tokens), Box::new(open), sessions));
        let seats = Arc::new(Semaphore::new(connections(sessions).min(Semaphore::MAX_PERMITS)));
        let mut connections = JoinSet::new();
        let mut look = tokio::time::interval(LOOK.min(idle / 2).max(BREATH));
        let mut until = pin!(until);
        loop {
            tokio::select! {
                biased;
                () = &mut until => break,
                _ = look.tick() => clients.end_idle(idle),
                Some(_ended) = connections.join_next() => {}
                (stream, seat) = accept(&listener, &seats) => {
                    connections.spawn(connection(stream, seat, Arc::clone(&clients)));
                }
            }
        }
        drop(listener);
        clients.end_all();
        connections.shutdown().await;
    }
}

/// Most connections at once, for so many sessions.
fn connections(sessions: usize) -> usize {
    sessions.saturating_mul(CONNECTIONS_PER_SESSION).max(CONNECTIONS_MIN)
}

/// One connection with a server at this address, for the fuzz targets.
#[cfg(fuzzing)]
pub async fn fuzzed(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    address: SocketAddr,
    tokens: Vec<Token>,
    open: impl Fn() -> Opening + Send + Sync + 'static,
) {
    let clients = Arc::new(Clients::new(Door::new(address, tokens), Box::new(open), HttpServer::SESSIONS));
    speak(stream, &clients).await;
    clients.end_all();
}

/// The next connection, once there is room for one.
async fn accept(listener: &TcpListener, seats: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    loop {
        // The semaphore is never closed.
        let Ok(seat) = Arc::clone(seats).acquire_owned().await else { std::future::pending().await };
        match listener.accept().await {
            Ok((stream, _)) => return (stream, seat),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a connection could not be taken");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, _seat: OwnedSemaphorePermit, clients: Arc<Clients>) {
    // Small messages, each of which is waited for.
    drop(stream.set_nodelay(true));
    speak(stream, &clients).await;
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin, clients: &Arc<Clients>) {
    let service = service_fn(|request| {
        let clients = Arc::clone(clients);
        async move { Ok::<_, std::convert::Infallible>(request::answer(&clients, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(Hurried::new(stream, TAKEN_WITHIN)), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(error = &error as &dyn std::error::Error, "a connection ended");
    }
}
