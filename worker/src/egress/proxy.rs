//! A proxy for programs that ask for one: SOCKS 5 and HTTP, to granted hosts alone. What is said on a connection that was asked
//! for here is compared as on any other.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use callgate_policy::pattern::Host;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connection::farewell;
use super::http::{self, ConnectionReuse, MadeFor};
use super::meter::MeteredServer;
use super::opening::Spoken;
use super::serving::{Asker, Egress, NoRoute, Route};
use super::stream;
use super::upstream;
use crate::protocol::FromEgress;

/// How long a client may take to say what it wants.
const ASKING: Duration = Duration::from_secs(60);
/// Most bytes of a head of HTTP, and most of its lines.
const HEAD_MAX: usize = 16 * 1024;
const LINES_MAX: usize = 128;

/// Wish of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedHost {
    host: Host,
    port: u16,
    how: ProxyProtocol,
}

/// How it has asked for that.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ProxyProtocol {
    Socks,
    Connect,
    /// A request to be passed on; the head was read.
    Request(Vec<u8>),
}

/// Reason why it is not understood.
#[derive(Debug)]
enum Unclear {
    /// With an answer for the client.
    Said(Vec<u8>),
    Gone,
}

impl From<io::Error> for Unclear {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl Egress {
    /// Does what a client of the proxy asks for, until its connection ends.
    pub(super) async fn stand_in(self: Arc<Self>, mut client: TcpStream, asker: Asker) {
        let call = asker.call;
        let wanted = match timeout(ASKING, ask(&mut client)).await {
            Ok(Ok(wanted)) => wanted,
            Ok(Err(Unclear::Said(answer))) => return farewell(client, &answer).await,
            Ok(Err(Unclear::Gone)) | Err(_) => return stream::reset(client),
        };
        let route = match &wanted.host {
            Host::Name(_) => self.route_to(&wanted.host, wanted.port, &asker).await,
            Host::Address(ip) => self.route(upstream::meant(SocketAddr::new(*ip, wanted.port)), &asker).await,
        };
        let route = match route {
            Ok(route) => route,
            Err(NoRoute::Failed { host, errno }) => return farewell(client, &wanted.how.failed(&host, errno)).await,
            Err(NoRoute::Refused { host, reason }) => {
                let answer = wanted.how.refused(&host, reason.as_deref());
                self.say(FromEgress::Refused { call, host, reason });
                return farewell(client, &answer).await;
            }
        };
        if let (ProxyProtocol::Request(_), Some(reason)) = (&wanted.how, route.other_than(Spoken::Http)) {
            let answer = wanted.how.refused(&route.host, Some(reason));
            self.say(FromEgress::Refused { call, host: route.host, reason: Some(reason.to_owned()) });
            return farewell(client, &answer).await;
        }
        let server = match self.connect(call, &route).await {
            Ok(server) => server,
            Err(errno) => return farewell(client, &wanted.how.failed(&route.host, errno)).await,
        };
        match wanted.how {
            ProxyProtocol::Request(head) => {
                self.pass_on((client, head), server, call, (wanted.host, wanted.port, route)).await
            }
            ProxyProtocol::Socks | ProxyProtocol::Connect => {
                if client.write_all(wanted.how.done()).await.is_ok() {
                    self.converse(client, Some(server), call, route).await;
                }
            }
        }
    }

    async fn pass_on(
        self: Arc<Self>,
        (client, head): (TcpStream, Vec<u8>),
        server: MeteredServer,
        call: u64,
        (name, port, route): (Host, u16, Route),
    ) {
        let made_for = route.made_for.clone().unwrap_or(MadeFor::new(name, port));
        let refused = self.refused(call, route);
        // The next request of a client may be for another host.
        http::serve(client, head, server, (made_for, ConnectionReuse::Once), refused).await;
    }
}

impl ProxyProtocol {
    fn done(&self) -> &'static [u8] {
        match self {
            Self::Socks => &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0],
            Self::Connect | Self::Request(_) => b"HTTP/1.1 200 Connection established\r\n\r\n",
        }
    }

    fn refused(&self, host: &str, reason: Option<&str>) -> Vec<u8> {
        match self {
            Self::Socks => socks_error(2),
            Self::Connect | Self::Request(_) => match reason {
                None => http_error("403 Forbidden", &format!("{host} was not granted")),
                Some(reason) => http_error("403 Forbidden", &format!("{host} was refused: {reason}")),
            },
        }
    }

    fn failed(&self, host: &str, errno: i32) -> Vec<u8> {
        let error = io::Error::from_raw_os_error(errno);
        match (self, errno) {
            (Self::Socks, libc::ENETUNREACH) => socks_error(3),
            (Self::Socks, libc::EHOSTUNREACH | libc::ETIMEDOUT) => socks_error(4),
            (Self::Socks, libc::ECONNREFUSED) => socks_error(5),
            (Self::Socks, _) => socks_error(1),
            (Self::Connect | Self::Request(_), _) => {
                http_error("502 Bad Gateway", &format!("{host} cannot be reached: {error}"))
            }
        }
    }
}

/// RFC 1928.
fn socks_error(code: u8) -> Vec<u8> {
    vec![5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

fn http_error(status: &str, sentence: &str) -> Vec<u8> {
    let body = format!("callgate: {sentence}\n");
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
        .into_bytes()
}

/// Hears what a client wants, and not a byte more: what follows is for the server.
async fn ask(client: &mut TcpStream) -> Result<WantedHost, Unclear> {
    match client.read_u8().await? {
        5 => ask_by_socks(client).await,
        first => {
            let mut head = vec![first];
            while !head.ends_with(b"\r\n\r\n") {
                // A program that does not speak HTTP need not wait for the end.
                if head.len() >= HEAD_MAX || !is_text(first) {
                    return Err(Unclear::Said(http_error("400 Bad Request", "this is a proxy for HTTP and SOCKS 5")));
                }
                head.push(client.read_u8().await?);
            }
            by_http(head).map_err(|sentence| Unclear::Said(http_error("400 Bad Request", sentence)))
        }
    }
}

fn is_text(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'\r' | b'\n')
}

async fn ask_by_socks(client: &mut TcpStream) -> Result<WantedHost, Unclear> {
    let mut methods = vec![0; client.read_u8().await?.into()];
    client.read_exact(&mut methods).await?;
    if !methods.contains(&0) {
        return Err(Unclear::Said(vec![5, 0xff])); // none without a password
    }
    client.write_all(&[5, 0]).await?;
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let host = match head {
        [5, 1, 0, 1] => Host::Address(IpAddr::from(client.read_u32().await?.to_be_bytes())),
        [5, 1, 0, 4] => Host::Address(IpAddr::from(client.read_u128().await?.to_be_bytes())),
        [5, 1, 0, 3] => {
            let mut name = vec![0; client.read_u8().await?.into()];
            client.read_exact(&mut name).await?;
            let name = std::str::from_utf8(&name).ok().and_then(|name| Host::parse(name).ok());
            // What programs read differently was not granted (B10).
            name.ok_or_else(|| Unclear::Said(socks_error(2)))?
        }
        [5, 1, 0, _] => return Err(Unclear::Said(socks_error(8))),
        [5, ..] => return Err(Unclear::Said(socks_error(7))),
        _ => return Err(Unclear::Said(socks_error(1))),
    };
    Ok(WantedHost { host, port: client.read_u16().await?, how: ProxyProtocol::Socks })
}

/// Reads a head of HTTP that is for a proxy.
pub(super) fn by_http(head: Vec<u8>) -> Result<WantedHost, &'static str> {
    let mut lines = [httparse::EMPTY_HEADER; LINES_MAX];
    let mut request = httparse::Request::new(&mut lines);
    let whole = request.parse(&head).is_ok_and(|parsed| parsed.is_complete());
    let (Some(method), Some(target), true) = (request.method, request.path, whole) else {
        return Err("the request is malformed");
    };
    if method == "CONNECT" {
        let (host, port) = target.rsplit_once(':').ok_or("CONNECT takes a host and a port")?;
        return Ok(WantedHost { host: parsed(host)?, port: number(port)?, how: ProxyProtocol::Connect });
    }
    let rest =
        target.strip_prefix("http://").ok_or("this is a proxy: it takes CONNECT, and requests for http://… alone")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, number(port)?),
        _ => (authority, 80),
    };
    Ok(WantedHost { host: parsed(host)?, port, how: ProxyProtocol::Request(head) })
}

fn parsed(host: &str) -> Result<Host, &'static str> {
    Host::parse(host).map_err(|_odd| "the request names a host in a form that programs read differently")
}

fn number(port: &str) -> Result<u16, &'static str> {
    let plain = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|_| plain).ok_or("the request names a port that is none")
}
