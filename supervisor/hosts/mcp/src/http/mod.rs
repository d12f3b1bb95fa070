//! The server over HTTP, on an address of this machine itself.
//!
//! The SDK speaks the protocol: sessions of the eras that begin with `initialize`, and requests that stand for themselves. What is
//! here decides who may speak it. A request is looked at in this order, and nothing of it is read before the first three are right:
//! which host it believes to talk to, which page sent it, whose token it brings, and which client it is of.

mod bounds;
mod clients;
mod door;
mod message;
mod refusal;
mod request;
mod stream;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use bounds::{STRANGERS_MAX, Seat, connections};
use clients::Clients;
pub use clients::{Opened, Opening};
use door::Door;
pub use door::{Token, TokenError};
use request::PATH;
use stream::{Hurried, Shared};

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
/// How many ports are tried until one is free on two addresses.
const CHOICES: u32 = 64;
/// After a connection could not be taken, as when this process has no descriptors left.
const BREATH: Duration = Duration::from_millis(100);

/// Reason why there is no server.
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
        /// Cause.
        source: std::io::Error,
    },
}

/// A server of the Model Context Protocol over HTTP.
///
/// Each client has a callgate session of its own. A client is what `initialize` begins; in protocol version 2026-07-28, which has no
/// sessions, it is whoever has a token: give each a token of its own to keep them apart.
pub struct HttpServer {
    listener: TcpListener,
    /// The other address that `localhost` stands for.
    second: Option<TcpListener>,
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
        let (listener, address) = bind(address).await?;
        Ok(Self { listener, second: None, address, idle: Duration::from_secs(30 * 60), sessions: Self::SESSIONS })
    }

    /// Listens on both addresses that clients may take `localhost` for, 127.0.0.1 and ::1. Where there is no IPv6, it is the first
    /// alone, and then `localhost` is no name of this server's. With port 0 the kernel chooses one that is free on both.
    ///
    /// # Errors
    /// [`HttpError`]: also if somebody else has one of the two.
    pub async fn listen_on_localhost(port: u16) -> Result<Self, HttpError> {
        let mut attempts = if port == 0 { CHOICES } else { 1 };
        loop {
            let server = Self::listen((Ipv4Addr::LOCALHOST, port).into()).await?;
            attempts -= 1;
            match bind((Ipv6Addr::LOCALHOST, server.address.port()).into()).await {
                Ok((second, _)) => return Ok(Self { second: Some(second), ..server }),
                Err(HttpError::Listen { source, .. }) if has_no_ipv6(&source) => return Ok(server),
                Err(error) if attempts == 0 => return Err(error),
                Err(_taken) => {}
            }
        }
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
            .saturating_add(STRANGERS_MAX)
            .saturating_add(DESCRIPTORS)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// URLs for a client: it is given one of these. No name stands in them, since a name may lead elsewhere.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.addresses().iter().map(|address| format!("http://{address}{PATH}")).collect()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        let second = self.second.is_some().then(|| (Ipv6Addr::LOCALHOST, self.address.port()).into());
        [self.address].into_iter().chain(second).collect()
    }

    /// Serves the holders of these tokens, each client in a session that `open` opens, until `until` is over. Every call then ends,
    /// and every session.
    pub async fn serve(
        self,
        tokens: Vec<Token>,
        open: impl Fn() -> Opening + Send + Sync + 'static,
        until: impl Future<Output = ()>,
    ) {
        let door = Door::new(&self.addresses(), tokens);
        let Self { listener, second, address: _, idle, sessions } = self;
        let clients = Arc::new(Clients::new(door, Box::new(open), sessions));
        let mut connections = JoinSet::new();
        let mut look = tokio::time::interval(LOOK.min(idle / 2).max(BREATH));
        let mut until = pin!(until);
        loop {
            tokio::select! {
                biased;
                () = &mut until => break,
                _ = look.tick() => clients.end_idle(idle),
                Some(_ended) = connections.join_next() => {}
                stream = accept(&listener, second.as_ref()) => {
                    let seat = clients.bounds().connections.arrive();
                    connections.spawn(connection(stream, seat, Arc::clone(&clients)));
                    // What it has sent is read before so many others have come that it would have to make room.
                    tokio::task::yield_now().await;
                }
            }
        }
        drop((listener, second));
        clients.end_all();
        connections.shutdown().await;
    }
}

/// An address, and who listens there.
async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), HttpError> {
    let failed = |source| HttpError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// True if there is no such address on this machine, which nobody else can listen on either.
fn has_no_ipv6(error: &std::io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    matches!(errno, Some(rustix::io::Errno::ADDRNOTAVAIL | rustix::io::Errno::AFNOSUPPORT))
}

/// The next connection.
async fn accept(first: &TcpListener, second: Option<&TcpListener>) -> TcpStream {
    loop {
        let accepted = tokio::select! {
            accepted = first.accept() => accepted,
            accepted = async {
                match second {
                    Some(second) => second.accept().await,
                    None => std::future::pending().await,
                }
            } => accepted,
        };
        match accepted {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a connection could not be taken");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, seat: Seat, clients: Arc<Clients>) {
    // Small messages, each of which is waited for.
    drop(stream.set_nodelay(true));
    let stream = Arc::new(stream);
    let seat = Arc::new(seat.of_connection(Arc::clone(&stream)));
    let service = service_fn(|request| {
        let (clients, seat) = (Arc::clone(&clients), Arc::clone(&seat));
        async move { Ok::<_, std::convert::Infallible>(request::answer(&clients, &seat, request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(Hurried::new(Shared(stream), TAKEN_WITHIN)), service);
    let served = tokio::select! {
        biased;
        () = seat.lost() => return,
        served = serving => served,
    };
    if let Err(error) = served {
        tracing::debug!(error = &error as &dyn std::error::Error, "a connection ended");
    }
}
