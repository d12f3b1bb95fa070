//! The first message of a TLS connection: which server it is for.
//!
//! A reader of its own, and a strict one: what it passes is read again by a server, which must not find another name in it.
//! General parsers read on past what they do not understand, or stop there without a word.

use std::io;

use callgate_policy::pattern::Host;
use tokio::net::TcpStream;

use super::relay;

/// Most bytes of a hello, with the heads of its records.
pub(super) const HELLO_MAX: usize = 64 * 1024;
/// Most records that it may be split into.
const RECORDS_MAX: usize = 128;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
/// RFC 8446.
const EARLY_DATA: u16 = 42;
/// RFC 9849.
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
/// Its draft of 2018.
const ENCRYPTED_SERVER_NAME: u16 = 0xffce;

/// What the first bytes of a TLS connection are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hello {
    /// The rest of it has not come yet.
    Incomplete,
    /// It names this server.
    For(Host),
}

/// Why a hello is refused.
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
        Some(message) => server_name(&message).map(Hello::For),
    }
}

/// Whether a hello that was read offers to send data at once.
pub(super) fn has_early_data(bytes: &[u8]) -> bool {
    let Ok(Some(message)) = message(bytes) else { return true };
    let Some(extensions) = extensions(&message) else { return true };
    let mut extensions = Reader(extensions);
    std::iter::from_fn(|| extensions.number().zip(extensions.list_16())).any(|(kind, _)| kind == EARLY_DATA)
}

/// What a client says after its hello, until it is encrypted. A server may ask for a second hello (RFC 8446, 4.1.4), and some
/// take its name: it must be for the same server.
pub(super) struct Hellos<'a> {
    /// Which.
    pub(super) name: &'a Host,
    /// Whether data may come before it (0-RTT), which the server skips when it asks for a second one.
    pub(super) early: bool,
    /// Told why it is refused, if it is.
    pub(super) refuse: &'a (dyn Fn(String) + Send + Sync),
}

/// The head of a record.
const HEAD: usize = 5;
/// Most bytes of a record, encrypted ones included (RFC 5246).
const RECORD_MAX: usize = (1 << 14) + 2048;
const APPLICATION_DATA: u8 = 23;

impl Hellos<'_> {
    /// Passes records on until one is none of a hello, or encrypted.
    pub(super) async fn pass(&self, client: &TcpStream, server: &TcpStream) -> io::Result<()> {
        let mut heard = Vec::with_capacity(2048);
        loop {
            let whole = match next(&heard, self.early) {
                Next::Wait => None,
                Next::Pass(length) => Some(length),
                Next::Hello => match read(&heard) {
                    Ok(Hello::Incomplete) => None,
                    Ok(Hello::For(host)) if host == *self.name => Some(heard.len()),
                    Ok(Hello::For(host)) => return self.refused(format!("a second TLS hello is for {host}")),
                    Err(bad) => return self.refused(format!("a second time, {bad}")),
                },
                Next::Rest => return relay::write_all(server, &heard).await,
            };
            if let Some(length) = whole {
                let rest = heard.split_off(length.min(heard.len()));
                relay::write_all(server, &std::mem::replace(&mut heard, rest)).await?;
                continue;
            }
            client.readable().await?;
            match client.try_read_buf(&mut heard) {
                Ok(0) => {
                    relay::write_all(server, &heard).await?;
                    return Ok(());
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn refused(&self, reason: String) -> io::Result<()> {
        (self.refuse)(reason);
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// What is to be done about what has come.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// It cannot be told yet.
    Wait,
    /// So many bytes are of no matter.
    Pass(usize),
    /// It is a hello, or the beginning of one.
    Hello,
    /// Nothing that follows is a hello that could be read.
    Rest,
}

fn next(heard: &[u8], early: bool) -> Next {
    let [kind, _, _, high, low, body @ ..] = heard else { return Next::Wait };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    match *kind {
        HANDSHAKE => match body {
            // Whatever comes in pieces that small.
            _ if length == 0 => Next::Hello,
            [] => Next::Wait,
            [CLIENT_HELLO, ..] if length < 6 => Next::Hello,
            [CLIENT_HELLO, _, _, _, major, _, ..] => {
                // Encrypted it begins with anything: then hardly ever with a length and a version besides.
                if body[1] <= 2 && *major == 3 { Next::Hello } else { Next::Rest }
            }
            [CLIENT_HELLO, ..] => Next::Wait,
            _ => Next::Rest,
        },
        APPLICATION_DATA if !early => Next::Rest,
        // A change of ciphers that changes none, a warning: what servers skip before a second hello. One that is too long is
        // read as a hello, which it is not.
        _ if length > RECORD_MAX => Next::Hello,
        _ if body.len() < length => Next::Wait,
        _ => Next::Pass(HEAD + length),
    }
}

/// Puts the hello together, which may be split into several records. `None` while a part is missing.
fn message(bytes: &[u8]) -> Result<Option<Vec<u8>>, BadHello> {
    let mut input = Reader(bytes);
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
                std::cmp::Ordering::Equal if all_here => return Ok(Some(body.to_vec())),
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
    let mut extensions = Reader(extensions(message).ok_or(BadHello::Malformed)?);
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

/// What comes last in a hello. One without any is whole, and names no server.
fn extensions(message: &[u8]) -> Option<&[u8]> {
    let mut input = Reader(message);
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
    let mut input = Reader(body);
    let mut list = Reader(input.list_16()?);
    let [0] = *list.take(1)? else { return None };
    let name = list.list_16()?;
    (input.0.is_empty() && list.0.is_empty() && !name.is_empty()).then_some(name)
}

/// What is left to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
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
