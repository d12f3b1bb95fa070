//! The first message of a TLS connection: which server it is for.
//!
//! A reader of its own, and a strict one: what it passes is read again by a server, which must not find another name in it.
//! General parsers read on past what they do not understand, or stop there without a word.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use callgate_policy::pattern::Host;
use tokio::net::TcpStream;

use super::meter::MeteredServer;
use super::stream;

/// Most bytes of a hello, with the heads of its records.
pub(super) const HELLO_MAX: usize = 64 * 1024;
/// Most records that it may be split into.
const RECORDS_MAX: usize = 128;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
/// RFC 9849.
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
/// Its draft of 2018.
const ENCRYPTED_SERVER_NAME: u16 = 0xffce;

/// Kinds of first bytes of a TLS connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hello {
    /// The rest of it has not come yet.
    Incomplete,
    /// It names this server, and is so many bytes long, with the heads of its records.
    For(Host, usize),
}

/// Reason why a hello is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadHello {
    #[error("the TLS hello is malformed")]
    Malformed,
    #[error("the TLS hello is longer than {HELLO_MAX} bytes or split too often")]
    TooLong,
    #[error("the TLS hello names no server (SNI), so nothing shows which one it is for")]
    NoName,
    #[error("the TLS hello is encrypted (ECH), so nothing shows which server it is for")]
    Encrypted,
    #[error("the TLS hello names a server in a form that programs read differently")]
    OddName,
}

/// Reads what has come so far.
pub(super) fn read(bytes: &[u8]) -> Result<Hello, BadHello> {
    match message(bytes)? {
        None if bytes.len() >= HELLO_MAX => Err(BadHello::TooLong),
        None => Ok(Hello::Incomplete),
        Some((message, length)) => server_name(&message).map(|host| Hello::For(host, length)),
    }
}

/// Messages of both sides after the client's hello, until nothing that follows can be another. A server may ask for a
/// second hello (RFC 8446, 4.1.4), and some take its name: it must be for the same server.
pub(super) struct Hellos<'a> {
    /// Which.
    name: &'a Host,
    /// Told why one is refused, if it is.
    refuse: &'a (dyn Fn(String) + Send + Sync),
    /// The server has answered, and asks for none.
    is_answered: AtomicBool,
}

/// The head of a record.
const HEAD: usize = 5;
/// Most bytes of a record, encrypted ones included (RFC 5246).
const RECORD_MAX: usize = (1 << 14) + 2048;
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
/// Most bytes before a server's answer. After more, a second hello is looked for as long as the client speaks.
const BEFORE_ANSWER_MAX: usize = 4096;
/// The random of a hello by which a server asks for a second one (RFC 8446, 4.1.3).
pub(super) const ASKS_AGAIN: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

impl<'a> Hellos<'a> {
    pub(super) fn new(name: &'a Host, refuse: &'a (dyn Fn(String) + Send + Sync)) -> Self {
        Self { name, refuse, is_answered: AtomicBool::new(false) }
    }

    /// Passes the client's hello on, of this length, and what follows it, until no second one can.
    pub(super) async fn pass(
        &self,
        (mut heard, hello): (Vec<u8>, usize),
        client: &TcpStream,
        server: &MeteredServer,
    ) -> io::Result<()> {
        let rest = heard.split_off(hello.min(heard.len()));
        stream::write_all(server, &std::mem::replace(&mut heard, rest)).await?;
        loop {
            // Before it is read what a client has said in answer, this is set.
            if self.is_answered.load(Ordering::Relaxed) {
                return stream::write_all(server, &heard).await;
            }
            match next(&heard) {
                NextAct::Wait => {}
                NextAct::Pass(length) => {
                    let rest = heard.split_off(length.min(heard.len()));
                    stream::write_all(server, &std::mem::replace(&mut heard, rest)).await?;
                    continue;
                }
                NextAct::Hello => match read(&heard) {
                    Ok(Hello::Incomplete) => {}
                    // A third is not asked for.
                    Ok(Hello::For(host, _)) if host == *self.name => return stream::write_all(server, &heard).await,
                    Ok(Hello::For(host, _)) => return self.refused(format!("a second TLS hello is for {host}")),
                    Err(bad) => return self.refused(format!("a second time, {bad}")),
                },
            }
            if stream::hear(client, &mut heard).await? == 0 {
                return stream::write_all(server, &heard).await;
            }
        }
    }

    /// Passes on what the server says, until it is known whether it asks for a second hello.
    pub(super) async fn listen(&self, server: &MeteredServer, client: &TcpStream) -> io::Result<()> {
        let mut heard = Vec::with_capacity(2048);
        loop {
            let before = heard.len();
            if stream::hear(server, &mut heard).await? == 0 {
                return Ok(());
            }
            let asks = asks_again(&heard);
            // Before the client can have heard it.
            self.is_answered.store(asks == Some(false), Ordering::Relaxed);
            stream::write_all(client, heard.get(before..).unwrap_or_default()).await?;
            if asks.is_some() || heard.len() > BEFORE_ANSWER_MAX {
                return Ok(());
            }
        }
    }

    fn refused(&self, reason: String) -> io::Result<()> {
        (self.refuse)(reason);
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Next act on what a client has said after its hello.
#[derive(Debug, PartialEq, Eq)]
enum NextAct {
    /// It cannot be told yet.
    Wait,
    /// So many bytes are of no matter.
    Pass(usize),
    /// It is a hello, or the beginning of one.
    Hello,
}

fn next(heard: &[u8]) -> NextAct {
    let [kind, _, _, high, low, body @ ..] = heard else { return NextAct::Wait };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    match (*kind, body) {
        // Nothing in a record comes in pieces that small, and none is that long: read as a hello, which they are not.
        (HANDSHAKE, _) if length == 0 => NextAct::Hello,
        _ if length > RECORD_MAX => NextAct::Hello,
        (HANDSHAKE, [CLIENT_HELLO, ..]) => NextAct::Hello,
        (HANDSHAKE, []) => NextAct::Wait,
        // A change of ciphers, a warning, early data, whatever else: what servers skip before a second hello, or end at.
        _ if body.len() < length => NextAct::Wait,
        _ => NextAct::Pass(HEAD + length),
    }
}

/// True if a server's first answer to a hello asks for another. `None` while that cannot be told.
fn asks_again(heard: &[u8]) -> Option<bool> {
    let mut input = HelloReader(heard);
    loop {
        let [kind, _, _, high, low] = *input.take(HEAD)? else { return None };
        let length = u16::from_be_bytes([high, low]).into();
        match kind {
            ALERT | CHANGE_CIPHER_SPEC => drop(input.take(length)?),
            // Type, length, version; what comes in pieces smaller than that may be anything.
            HANDSHAKE if length >= 1 + 3 + 2 + ASKS_AGAIN.len() => {
                input.take(1 + 3 + 2)?;
                return Some(input.take(ASKS_AGAIN.len())? == ASKS_AGAIN);
            }
            _ => return Some(true),
        }
    }
}

/// Puts the hello together, which may be split into several records, and tells how long they are. `None` while a part is missing.
fn message(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, BadHello> {
    let mut input = HelloReader(bytes);
    let mut message = Vec::new();
    for _ in 0..RECORDS_MAX {
        let Some(head) = input.take(5) else { return Ok(None) };
        let [kind, 3, _minor, high, low] = *head else { return Err(BadHello::Malformed) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind != HANDSHAKE || length == 0 || length > 1 << 14 {
            return Err(BadHello::Malformed);
        }
        let all_here = input.0.len() >= length;
        message.extend_from_slice(input.take(length.min(input.0.len())).unwrap_or_default());
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(BadHello::Malformed);
        }
        if let [_, a, b, c, body @ ..] = &*message {
            let wanted = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if wanted > HELLO_MAX {
                return Err(BadHello::TooLong);
            }
            // Nothing may follow it before the server has answered.
            match body.len().cmp(&wanted) {
                std::cmp::Ordering::Greater => return Err(BadHello::Malformed),
                std::cmp::Ordering::Equal if all_here => return Ok(Some((body.to_vec(), bytes.len() - input.0.len()))),
                std::cmp::Ordering::Equal | std::cmp::Ordering::Less => {}
            }
        }
        if !all_here {
            return Ok(None);
        }
    }
    Err(BadHello::TooLong)
}

/// The one name in it.
fn server_name(message: &[u8]) -> Result<Host, BadHello> {
    let mut extensions = HelloReader(extensions(message).ok_or(BadHello::Malformed)?);
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number().ok_or(BadHello::Malformed)?;
        let body = extensions.list_16().ok_or(BadHello::Malformed)?;
        match kind {
            ENCRYPTED_CLIENT_HELLO | ENCRYPTED_SERVER_NAME => return Err(BadHello::Encrypted),
            SERVER_NAME if name.is_some() => return Err(BadHello::Malformed),
            SERVER_NAME => name = Some(only_name(body).ok_or(BadHello::Malformed)?),
            _ => {}
        }
    }
    let name = std::str::from_utf8(name.ok_or(BadHello::NoName)?).map_err(|_not_utf8| BadHello::OddName)?;
    match Host::parse(name) {
        // An address is no name (RFC 6066), and a dot at the end is not part of one.
        Ok(host @ Host::Name(_)) if !name.ends_with('.') => Ok(host),
        Ok(_) | Err(_) => Err(BadHello::OddName),
    }
}

/// Extensions, which come last in a hello. One without any is whole, and names no server.
fn extensions(message: &[u8]) -> Option<&[u8]> {
    let mut input = HelloReader(message);
    input.take(2 + 32)?; // version, random
    input.list_8()?; // session
    input.list_16()?; // ciphers
    input.list_8()?; // compression
    if input.0.is_empty() {
        return Some(&[]);
    }
    let extensions = input.list_16()?;
    input.0.is_empty().then_some(extensions)
}

/// The list of server names, if it has exactly one, which is a host's.
fn only_name(body: &[u8]) -> Option<&[u8]> {
    let mut input = HelloReader(body);
    let mut list = HelloReader(input.list_16()?);
    let [0] = *list.take(1)? else { return None };
    let name = list.list_16()?;
    (input.0.is_empty() && list.0.is_empty() && !name.is_empty()).then_some(name)
}

/// Rest to be read.
struct HelloReader<'a>(&'a [u8]);

impl<'a> HelloReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_be_bytes)
    }

    /// Bytes after their length in one byte.
    fn list_8(&mut self) -> Option<&'a [u8]> {
        let [length] = *self.take(1)? else { return None };
        self.take(length.into())
    }

    /// Bytes after their length in two bytes.
    fn list_16(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(length.into())
    }
}
