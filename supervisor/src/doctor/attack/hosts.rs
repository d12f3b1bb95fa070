//! Servers for the attacks where a host is granted: that host, another beside it, and what leads from one to the other outside
//! every sandbox. All are on loopback, so that the attempts need no Internet.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use callgate_policy::pattern::HostPattern;
use callgate_policy::plan;

use super::field::ReachedTargets;

/// The granted host, by its address and by a name. Names below `localhost` lead to loopback without anybody being asked (RFC 6761).
const GRANTED: Ipv4Addr = Ipv4Addr::LOCALHOST;
const NAME: &str = "granted.localhost";
/// A name that leads nowhere, here or anywhere (RFC 6761): it is granted so that there is one below which nothing is.
const NOWHERE: &str = "granted.invalid";
/// Another host with a server at the same port.
const ANOTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 77);
/// How long a server may take to see who has come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a client may take to say what it wants.
const CLIENT: Duration = Duration::from_secs(10);
/// Most bytes of what a client asks.
const ASKED_MAX: usize = 16 * 1024;

/// The servers.
pub(super) struct Hosts {
    granted: ProbeServer,
    another: ProbeServer,
    /// A proxy that leads anywhere, as outside a sandbox, and as one that was not granted.
    proxy: ProbeServer,
    /// A server that answers for any name.
    names: ProbeServer,
    /// At the port that was granted, for a protocol that was not.
    datagrams: UdpSocket,
}

impl Hosts {
    pub(super) fn listen(token: &str) -> io::Result<Self> {
        let mut last = io::Error::from(ErrorKind::AddrInUse);
        // A port that is free at one address may be taken at another.
        for _ in 0..32 {
            let granted = TcpListener::bind((GRANTED, 0))?;
            let port = granted.local_addr()?.port();
            match (TcpListener::bind((ANOTHER, port)), UdpSocket::bind((GRANTED, port))) {
                (Ok(another), Ok(datagrams)) => {
                    datagrams.set_nonblocking(true)?;
                    return Ok(Self {
                        granted: ProbeServer::new(granted, ServerKind::Web(token.into()))?,
                        another: ProbeServer::new(another, ServerKind::Web(token.into()))?,
                        proxy: ProbeServer::new(TcpListener::bind((GRANTED, 0))?, ServerKind::Proxy)?,
                        names: ProbeServer::new(TcpListener::bind((GRANTED, 0))?, ServerKind::Names)?,
                        datagrams,
                    });
                }
                (Err(error), _) | (_, Err(error)) => last = error,
            }
        }
        Err(last)
    }

    /// Begins to serve, with threads: this process forks a launcher before that, which takes one without.
    pub(super) fn start(&mut self) -> io::Result<()> {
        [&mut self.granted, &mut self.another, &mut self.proxy, &mut self.names]
            .into_iter()
            .try_for_each(ProbeServer::start)
    }

    /// The granted host's address and port.
    pub(super) fn at(&self) -> SocketAddr {
        self.granted.at
    }

    /// Hosts that are granted: the host by its address and by its name, and a name that leads nowhere.
    pub(super) fn granted(&self) -> Vec<HostPattern> {
        let port = self.granted.at.port();
        let texts = [format!("{GRANTED}:{port}"), format!("{NAME}:{port}"), format!("{NOWHERE}:{port}")];
        texts.iter().filter_map(|text| HostPattern::parse(text).ok()).collect()
    }

    /// Meaning of a word of an act. `inside` a session of callgate's, which has a proxy and a name server of its own.
    pub(super) fn fill_in(&self, word: &str, inside: bool) -> Option<String> {
        Some(match word {
            "port" => self.granted.at.port().to_string(),
            "another" => ANOTHER.to_string(),
            "host" => NAME.to_owned(),
            "below" => format!("message.{NOWHERE}"),
            "own-proxy" => self.proxy.at.to_string(),
            "own-names" => self.names.at.to_string(),
            "proxy" if inside => SocketAddr::from(plan::PROXY).to_string(),
            "proxy" => self.proxy.at.to_string(),
            "names" if inside => SocketAddr::from(plan::NAMES).to_string(),
            "names" => self.names.at.to_string(),
            _ => return None,
        })
    }

    pub(super) fn changes(&self) -> ReachedTargets {
        let mut changes = ReachedTargets::new();
        for (server, name) in [
            (&self.another, "another host was connected to"),
            (&self.proxy, "a proxy that is not granted was connected to"),
            (&self.names, "a name server that is not granted was connected to"),
        ] {
            changes.extend((0..server.visits()).map(|_| name.to_owned()));
        }
        while self.datagrams.recv(&mut [0; 64]).is_ok() {
            changes.push("a UDP datagram came to the granted host".to_owned());
        }
        changes
    }
}

/// Behaviour of a server to whoever comes.
#[derive(Debug, Clone)]
enum ServerKind {
    /// Answers every request, and everything that is none, with the token.
    Web(Arc<str>),
    Proxy,
    Names,
}

/// A server with threads of its own, from its start until it is dropped.
struct ProbeServer {
    at: SocketAddr,
    /// Until it starts.
    waiting: Option<(TcpListener, ServerKind)>,
    /// The ports from which somebody has come since the last look.
    visitors: Arc<Mutex<Vec<u16>>>,
    is_over: Arc<AtomicBool>,
}

impl ProbeServer {
    fn new(listener: TcpListener, kind: ServerKind) -> io::Result<Self> {
        let at = listener.local_addr()?;
        Ok(Self { at, waiting: Some((listener, kind)), visitors: Arc::default(), is_over: Arc::default() })
    }

    fn start(&mut self) -> io::Result<()> {
        let Some((listener, kind)) = self.waiting.take() else { return Ok(()) };
        let (visitors, is_over) = (Arc::clone(&self.visitors), Arc::clone(&self.is_over));
        std::thread::Builder::new().name("attack-host".to_owned()).spawn(move || {
            while let Ok((client, from)) = listener.accept() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                visitors.lock().unwrap_or_else(PoisonError::into_inner).push(from.port());
                let kind = kind.clone();
                // Without a thread it is served by nobody, and the act says so.
                drop(std::thread::Builder::new().spawn(move || drop(kind.serve(client))));
            }
        })?;
        Ok(())
    }

    /// How many have come since the last look. They are taken in their order, so that after one of our own no other is left.
    fn visits(&self) -> usize {
        if self.waiting.is_some() {
            return 0;
        }
        let Ok((_own, port)) = self.visit() else { return 0 };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut visitors = self.visitors.lock().unwrap_or_else(PoisonError::into_inner);
            if visitors.contains(&port) || Instant::now() > deadline {
                return std::mem::take(&mut *visitors).into_iter().filter(|visitor| *visitor != port).count();
            }
            drop(visitors);
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Comes itself, and leaves no port in use behind: there are many looks.
    fn visit(&self) -> io::Result<(TcpStream, u16)> {
        let own = TcpStream::connect(self.at)?;
        rustix::net::sockopt::set_socket_linger(&own, Some(Duration::ZERO))?;
        let port = own.local_addr()?.port();
        Ok((own, port))
    }
}

impl Drop for ProbeServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes it, if it has started; if that fails, it ends with this process.
        drop(TcpStream::connect(self.at));
    }
}

impl ServerKind {
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(CLIENT))?;
        match self {
            Self::Web(token) => serve_pages(&mut client, token),
            Self::Proxy => stand_in(client),
            Self::Names => answer_names(&mut client),
        }
    }
}

/// Reads until the blank line that ends a head, or until what has come is no HTTP. `None` if nothing comes.
fn head(client: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < ASKED_MAX {
        let mut byte = [0];
        match client.read(&mut byte)? {
            0 => return Ok(None),
            _ => head.push(byte[0]),
        }
        if !head[0].is_ascii_uppercase() {
            break;
        }
    }
    Ok(Some(head))
}

fn serve_pages(client: &mut TcpStream, token: &str) -> io::Result<()> {
    while let Some(head) = head(client)? {
        let body = format!("{token}\n");
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        client.write_all(answer.as_bytes())?;
        let is_last = head.windows(7).any(|part| part == b": close") || head.first() == Some(&22);
        if is_last {
            break;
        }
    }
    end(client)
}

/// Ends a connection so that the last words arrive: with bytes unread they would not.
fn end(client: &mut TcpStream) -> io::Result<()> {
    client.shutdown(Shutdown::Write)?;
    let mut rest = [0; 4096];
    while client.read(&mut rest)? > 0 {}
    Ok(())
}

/// A proxy that reads names as careless ones do: up to the first byte of zero.
fn stand_in(mut client: TcpStream) -> io::Result<()> {
    let mut first = [0];
    client.peek(&mut first)?;
    let (server, answer, said) = if first[0] == 5 {
        let server = asked_by_socks(&mut client)?;
        (server, [5, 0, 0, 1, 0, 0, 0, 0, 0, 0].to_vec(), Vec::new())
    } else {
        let head = head(&mut client)?.ok_or(ErrorKind::UnexpectedEof)?;
        let text = String::from_utf8_lossy(&head).into_owned();
        let target = text.split(' ').nth(1).ok_or(ErrorKind::InvalidData)?;
        match target.strip_prefix("http://") {
            Some(rest) => (to(rest.split('/').next().unwrap_or(rest))?, Vec::new(), head),
            None => (to(target)?, b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec(), Vec::new()),
        }
    };
    client.write_all(&answer)?;
    let mut server = server;
    server.write_all(&said)?;
    let (mut from, mut into) = (client.try_clone()?, server.try_clone()?);
    let forth = std::thread::spawn(move || {
        let copied = io::copy(&mut from, &mut into);
        drop(into.shutdown(Shutdown::Write));
        copied
    });
    let back = io::copy(&mut server, &mut client);
    drop(client.shutdown(Shutdown::Write));
    drop(forth.join());
    back.map(|_| ())
}

fn asked_by_socks(client: &mut TcpStream) -> io::Result<TcpStream> {
    let mut some = [0; 2];
    client.read_exact(&mut some)?;
    client.read_exact(&mut vec![0; some[1].into()])?;
    client.write_all(&[5, 0])?;
    let mut head = [0; 4];
    client.read_exact(&mut head)?;
    let mut bytes = |length: usize| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        client.read_exact(&mut bytes).map(|()| bytes)
    };
    let host = match head[3] {
        1 => IpAddr::from(<[u8; 4]>::try_from(bytes(4)?).unwrap_or_default()).to_string(),
        4 => format!("[{}]", IpAddr::from(<[u8; 16]>::try_from(bytes(16)?).unwrap_or_default())),
        _ => {
            let length = bytes(1)?[0];
            String::from_utf8_lossy(&bytes(length.into())?).into_owned()
        }
    };
    let port = bytes(2)?;
    to(&format!("{host}:{}", u16::from_be_bytes([port[0], port[1]])))
}

/// A connection to a host in any spelling that this machine's resolver takes, and to names that it may not know.
fn to(authority: &str) -> io::Result<TcpStream> {
    let (host, port) = authority.rsplit_once(':').ok_or(ErrorKind::InvalidData)?;
    let host = host.split('\0').next().unwrap_or(host);
    let port: u16 = port.parse().map_err(|_none| ErrorKind::InvalidData)?;
    if host.trim_end_matches('.').ends_with(".localhost") {
        return TcpStream::connect((GRANTED, port));
    }
    let places = (host.trim_matches(['[', ']']), port).to_socket_addrs()?;
    TcpStream::connect(&*places.collect::<Vec<_>>())
}

/// Answers any question with an address.
fn answer_names(client: &mut TcpStream) -> io::Result<()> {
    let mut length = [0; 2];
    client.read_exact(&mut length)?;
    let mut question = vec![0; u16::from_be_bytes(length).into()];
    client.read_exact(&mut question)?;
    let Some(answer) = answered(question) else { return Ok(()) };
    let length = u16::try_from(answer.len()).unwrap_or(u16::MAX);
    client.write_all(&[&length.to_be_bytes()[..], &answer].concat())
}

/// A question with one record added (RFC 1035): its name again, as a pointer, type A, class IN, an hour, four bytes.
fn answered(mut question: Vec<u8>) -> Option<Vec<u8>> {
    *question.get_mut(2)? |= 0x80;
    *question.get_mut(7)? = 1;
    question.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 14, 16, 0, 4]);
    question.extend(ANOTHER.octets());
    Some(question)
}
