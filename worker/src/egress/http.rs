//! HTTP/1 in the clear: each request of a connection is compared with the name that the connection was made for.
//!
//! Requests are read whole and written anew, never passed on as bytes: what one reader takes for the end of a request is its
//! end for the other as well, so that none can hide in another (B13).

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use callgate_policy::pattern::Host;
use http_body_util::{Either, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri, client, server};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::credentials::{Outfit, UpstreamConnection};
use super::lock::lock;
use super::meter::MeteredServer;
use super::other::Other;
use super::relay::{FirstBytes, relay};
use super::stream;

/// Most bytes of a head, and of what is read ahead of a body.
const HEAD_MAX: usize = 64 * 1024;
/// Most lines of a head.
const LINES_MAX: usize = 256;
/// How long a head may take, and a connection be kept without a request.
const HEAD_TIME: Duration = Duration::from_secs(300);
/// Text from which the proof is made that a server has understood a request for WebSocket (RFC 6455, 1.3).
const WEBSOCKET: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The answers: the server's, or a sentence of callgate's own.
type HttpAnswer = Response<Either<Incoming, Full<Bytes>>>;

/// The name that a connection was made for.
#[derive(Debug, Clone)]
pub(super) struct MadeFor {
    pub(super) name: Host,
    pub(super) port: u16,
    /// Additions to its requests.
    pub(super) outfit: Outfit,
}

impl MadeFor {
    pub(super) fn new(name: Host, port: u16) -> Self {
        Self { name, port, outfit: Outfit::default() }
    }
}

/// For how many requests a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionReuse {
    /// As many as both sides like.
    Open,
    Once,
}

/// Reason why a request is answered by egress itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadRequest {
    #[error("the request is for {asked}, on a connection that was made for {made_for}")]
    OtherHost { asked: String, made_for: Host },
    #[error("the request names port {asked}, on a connection to port {made_for}")]
    OtherPort { asked: u16, made_for: u16 },
    #[error("the request names no host, or more than one")]
    Hosts,
    #[error("the request names a host in a form that programs read differently")]
    OddHost,
    #[error("the request is for a proxy (CONNECT)")]
    Connect,
    #[error("a credential is added to requests of this connection, and not to one with this method")]
    Method,
    #[error("the request's target has an unusual form")]
    Target,
    #[error("the request's body is encoded in a way that servers read differently")]
    Body,
    #[error("it switched protocols without being asked, or without showing that it has understood what for")]
    Switched,
    #[error("{0}")]
    Afterwards(String),
    #[error("egress could not make the TLS for it: {0}")]
    NoTls(String),
    #[error("it closed the connection, or answered no HTTP: {0}")]
    NoAnswer(String),
}

/// Tells the broker why egress answers a request itself, before it does, and says what the client is told: a server could say that too,
/// so whoever has to know asks the broker.
pub(super) type Refused = Arc<dyn Fn(&BadRequest) -> String + Send + Sync>;

/// Serves a client, of which `heard` was read already, until either side ends the connection.
pub(super) async fn serve(
    client: TcpStream,
    heard: Vec<u8>,
    server: MeteredServer,
    (made_for, kept): (MadeFor, ConnectionReuse),
    refused: Refused,
) {
    let server = match made_for.outfit.secure(server, &made_for.name).await {
        Ok(server) => server,
        Err(why) => {
            let why = refused(&BadRequest::NoTls(why));
            return apologize(client, heard, format!("{}: {why}", made_for.name)).await;
        }
    };
    let connected = client::conn::http1::Builder::new()
        .preserve_header_case(true)
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .max_headers(LINES_MAX)
        .max_buf_size(HEAD_MAX)
        .handshake(TokioIo::new(server))
        .await;
    let Ok((sender, connection)) = connected else { return };
    let upstream = Arc::new(UpstreamServer {
        sender: Mutex::new(sender),
        switched: std::sync::Mutex::default(),
        made_for,
        refused,
    });
    // It ends with this.
    let mut connected = JoinSet::new();
    connected.spawn(connection.with_upgrades());
    let service = service_fn({
        let upstream = Arc::clone(&upstream);
        move |request| {
            let upstream = Arc::clone(&upstream);
            async move { Ok::<_, Infallible>(upstream.answer(request).await) }
        }
    });
    let client = HeardClient { bytes: heard, read: 0, socket: client };
    let mut serving = std::pin::pin!(builder(kept).serve_connection(TokioIo::new(client), service).with_upgrades());
    let mut is_connected = true;
    loop {
        tokio::select! {
            // An error is the client's, who was told or is gone.
            _ended = &mut serving => break,
            _ended = connected.join_next(), if is_connected => {
                is_connected = false;
                if lock(&upstream.switched).is_none() {
                    serving.as_mut().graceful_shutdown();
                }
            }
        }
    }
    let switched = lock(&upstream.switched).take();
    let Some((client, server, upgrade)) = switched else { return };
    let Ok((client, server)) = tokio::try_join!(client, server) else { return };
    // They are what was begun with.
    if let (Ok(client), Ok(server)) =
        (client.downcast::<TokioIo<HeardClient>>(), server.downcast::<TokioIo<UpstreamConnection>>())
    {
        let HeardClient { bytes, read, socket } = client.io.into_inner();
        // Egress' own TLS is for tools, which switch to nothing else.
        let tokio_util::either::Either::Left(server_socket) = server.io.into_inner() else { return };
        let heard = [&client.read_buf[..], bytes.get(read..).unwrap_or_default()].concat();
        match stream::write_all(&socket, &server.read_buf).await {
            Ok(()) => match upgrade {
                Upgrade::WebSocket { .. } => relay(socket, server_socket, heard, FirstBytes::Nothing).await,
                // Nothing proves that the server takes no other request.
                Upgrade::Tcp => {
                    let refuse = |reason| drop((upstream.refused)(&BadRequest::Afterwards(reason)));
                    let other = Other::new(&upstream.made_for.name, &refuse);
                    relay(socket, server_socket, heard, FirstBytes::Other(&other)).await;
                }
            },
            Err(_gone) => stream::reset(server_socket.socket),
        }
    }
}

/// Answers each request with a sentence: nothing can be reached.
pub(super) async fn apologize(client: TcpStream, heard: Vec<u8>, sentence: String) {
    let service = service_fn(move |_request: Request<Incoming>| {
        let answer = own(StatusCode::BAD_GATEWAY, &sentence);
        async move { Ok::<_, Infallible>(answer) }
    });
    let client = HeardClient { bytes: heard, read: 0, socket: client };
    // An error is the client's, who is gone.
    let _ended: hyper::Result<()> =
        builder(ConnectionReuse::Open).serve_connection(TokioIo::new(client), service).await;
}

fn builder(kept: ConnectionReuse) -> server::conn::http1::Builder {
    let mut builder = server::conn::http1::Builder::new();
    builder
        .preserve_header_case(true)
        .half_close(true)
        .keep_alive(kept == ConnectionReuse::Open)
        .auto_date_header(false)
        .max_headers(LINES_MAX)
        .max_buf_size(HEAD_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME);
    builder
}

struct UpstreamServer {
    sender: Mutex<client::conn::http1::SendRequest<Incoming>>,
    /// Both connections carry something else by now.
    switched: std::sync::Mutex<Option<(OnUpgrade, OnUpgrade, Upgrade)>>,
    made_for: MadeFor,
    refused: Refused,
}

impl UpstreamServer {
    async fn answer(self: &Arc<Self>, mut request: Request<Incoming>) -> HttpAnswer {
        if let Err(bad) = check(request.method(), request.uri(), request.headers(), &self.made_for) {
            return own(StatusCode::FORBIDDEN, &(self.refused)(&bad));
        }
        // What a server does not read of a body is its next request, in which nobody has read the host (B13): none follows it.
        let is_last = !request.body().is_end_stream();
        let upgrade = tidy(request.headers_mut(), is_last);
        self.made_for.outfit.add_to(request.headers_mut());
        to_origin_form(request.uri_mut());
        let client = upgrade.map(|upgrade| (hyper::upgrade::on(&mut request), upgrade));
        let mut sender = self.sender.lock().await;
        let sent = match sender.ready().await {
            Ok(()) => sender.send_request(request).await,
            Err(gone) => Err(gone),
        };
        drop(sender);
        match (sent, client) {
            (Ok(answer), Some((client, upgrade)))
                if answer.status() == StatusCode::SWITCHING_PROTOCOLS && upgrade.is_agreed(answer.headers()) =>
            {
                self.switch(client, answer, upgrade)
            }
            // Nobody asked for it, or a server says so that goes on with HTTP: some answer with the status that a request names.
            (Ok(answer), _) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => self.failed(&BadRequest::Switched),
            (Ok(mut answer), _) => {
                answer.headers_mut().remove(header::UPGRADE);
                if is_last {
                    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                answer.map(Either::Left)
            }
            (Err(error), _) => self.failed(&BadRequest::NoAnswer(error.to_string())),
        }
    }

    fn failed(&self, why: &BadRequest) -> HttpAnswer {
        own(StatusCode::BAD_GATEWAY, &format!("{}: {}", self.made_for.name, (self.refused)(why)))
    }

    /// Both sides have agreed to speak something else.
    fn switch(&self, client: OnUpgrade, mut answer: Response<Incoming>, upgrade: Upgrade) -> HttpAnswer {
        let server = hyper::upgrade::on(&mut answer);
        *lock(&self.switched) = Some((client, server, upgrade));
        answer.map(Either::Left)
    }
}

/// Compares what a request says of its host with the name that the connection was made for.
pub(super) fn check(method: &Method, uri: &Uri, headers: &HeaderMap, made_for: &MadeFor) -> Result<(), BadRequest> {
    if *method == Method::CONNECT {
        return Err(BadRequest::Connect);
    }
    if !made_for.outfit.is_for(method) {
        return Err(BadRequest::Method);
    }
    if let Some(authority) = uri.authority() {
        if uri.scheme_str() != Some("http") {
            return Err(BadRequest::Target);
        }
        compare(authority.as_str(), made_for)?;
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => compare(host.to_str().map_err(|_not_ascii| BadRequest::OddHost)?, made_for)?,
        _ => return Err(BadRequest::Hosts),
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(BadRequest::Body),
    }
}

fn compare(authority: &str, made_for: &MadeFor) -> Result<(), BadRequest> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let asked = Host::parse(host).map_err(|_odd| BadRequest::OddHost)?;
    if asked != made_for.name {
        return Err(BadRequest::OtherHost { asked: asked.to_string(), made_for: made_for.name.clone() });
    }
    match port {
        // Without digits it is the default one (RFC 3986).
        None | Some("") => Ok(()),
        Some(port) => {
            let plain = port.bytes().all(|byte| byte.is_ascii_digit());
            let asked = port.parse().ok().filter(|_| plain).ok_or(BadRequest::OddHost)?;
            if asked == made_for.port { Ok(()) } else { Err(BadRequest::OtherPort { asked, made_for: made_for.port }) }
        }
    }
}

/// Upgrades of a connection: protocols that name no host once they have begun.
#[derive(Debug)]
enum Upgrade {
    WebSocket {
        /// Answer of a server that has understood the request.
        accept: String,
    },
    /// Docker's, for bytes as they come.
    Tcp,
}

impl Upgrade {
    /// Upgrade that a request asks for.
    fn of(headers: &HeaderMap) -> Option<Self> {
        match only(headers, header::UPGRADE)?.to_ascii_lowercase().as_str() {
            "websocket" if only(headers, header::SEC_WEBSOCKET_VERSION)? == "13" => {
                let key = only(headers, header::SEC_WEBSOCKET_KEY)?;
                let digest = ring::digest::digest(
                    &ring::digest::SHA1_FOR_LEGACY_USE_ONLY,
                    format!("{}{WEBSOCKET}", key.trim()).as_bytes(),
                );
                Some(Self::WebSocket { accept: BASE64_STANDARD.encode(digest) })
            }
            "tcp" => Some(Self::Tcp),
            _ => None,
        }
    }

    /// True if an answer shows that the server has understood it.
    fn is_agreed(&self, answer: &HeaderMap) -> bool {
        let is = |name, wanted: &str| only(answer, name).is_some_and(|value| value.eq_ignore_ascii_case(wanted));
        is(header::CONNECTION, "upgrade")
            && match self {
                Self::WebSocket { accept } => {
                    is(header::UPGRADE, "websocket") && only(answer, header::SEC_WEBSOCKET_ACCEPT) == Some(accept)
                }
                Self::Tcp => is(header::UPGRADE, "tcp"),
            }
    }
}

/// The value of a header that is there once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Takes off what is between a client and egress alone, and tells what other protocol the rest asks for, if one may be. No other
/// request follows one that is the last.
fn tidy(headers: &mut HeaderMap, is_last: bool) -> Option<Upgrade> {
    // Egress asks for the body when the server is there to take it.
    headers.remove(header::EXPECT);
    for name in ["http2-settings", "proxy-authorization", "proxy-connection"] {
        headers.remove(name);
    }
    // For CGI, and servers made after it, `Content_Length` is the length of a body, which nobody has read as one.
    let odd: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().contains('_')).cloned().collect();
    odd.iter().for_each(|name| drop(headers.remove(name)));
    let upgrade = Upgrade::of(headers).filter(|_| !is_last);
    if upgrade.is_none() {
        headers.remove(header::UPGRADE);
    }
    bound_connection(headers, upgrade.is_some());
    if is_last {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    upgrade
}

/// Bounds what `Connection` names to what is about the connection. Another name is that of a header for one reader
/// alone: a server that has others behind it would take `Host` off if that were named, and ask them for any host.
fn bound_connection(headers: &mut HeaderMap, upgrades: bool) {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let names: Vec<String> =
        values.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let has = |name: &str| names.iter().any(|other| other == name);
    let kept = match (upgrades && has("upgrade"), has("close"), has("keep-alive")) {
        (true, ..) => Some("Upgrade"),
        (false, true, _) => Some("close"),
        (false, false, true) => Some("keep-alive"),
        (false, false, false) => None,
    };
    headers.remove(header::CONNECTION);
    headers.remove(header::TE);
    headers.extend(kept.map(|kept| (header::CONNECTION, HeaderValue::from_static(kept))));
}

/// As servers expect it: without the host, which its own line names.
fn to_origin_form(uri: &mut Uri) {
    if uri.authority().is_some() {
        let path = uri.path_and_query().cloned();
        *uri = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    }
}

fn own(status: StatusCode, sentence: &str) -> HttpAnswer {
    let mut answer = Response::new(Either::Right(Full::from(format!("callgate: {sentence}\n"))));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// A client of which the first bytes were read already.
struct HeardClient {
    bytes: Vec<u8>,
    read: usize,
    socket: TcpStream,
}

impl AsyncRead for HeardClient {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.bytes.get(this.read..) {
            None | Some([]) => Pin::new(&mut this.socket).poll_read(cx, buf),
            Some(left) => {
                let count = left.len().min(buf.remaining());
                buf.put_slice(left.get(..count).unwrap_or_default());
                this.read += count;
                if this.read == this.bytes.len() {
                    (this.bytes, this.read) = (Vec::new(), 0);
                }
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for HeardClient {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}
