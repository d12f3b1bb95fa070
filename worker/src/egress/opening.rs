//! What a client says first tells what is spoken: TLS, HTTP, or something else that names no host.

use std::io;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// Most bytes before it must be clear what is spoken.
const OPENING_MAX: usize = 64 * 1024;
/// Most blanks before a request: servers skip some.
const BLANKS_MAX: usize = 1024;
/// How long a client may say nothing where it has to speak first. One that keeps a connection in reserve does, for a while.
const SILENCE: Duration = Duration::from_secs(300);

/// What is spoken, by the client's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoken {
    /// It cannot be told yet.
    Undecided,
    /// TLS.
    Tls,
    /// HTTP/1.
    Http,
    /// HTTP/2 without TLS.
    Http2,
    /// Neither.
    Other,
}

/// Tells what begins like this. What some server could take for HTTP or TLS is HTTP or TLS here: their own readers, which are
/// strict, refuse it then.
pub(super) fn spoken(bytes: &[u8]) -> Spoken {
    match bytes {
        [] | [0x16] => return Spoken::Undecided,
        [0x16, 3, ..] => return Spoken::Tls,
        // A hello in the form of SSL 2, which names no server, for any later version.
        [0x80..=0xff, rest @ ..] if rest.len() < 4 => return Spoken::Undecided,
        [0x80..=0xff, _, 1, 2 | 3, _, ..] => return Spoken::Tls,
        _ => {}
    }
    let blanks = bytes.iter().take_while(|byte| is_blank(**byte)).count();
    if blanks > BLANKS_MAX {
        return Spoken::Other;
    }
    let rest = bytes.get(blanks..).unwrap_or_default();
    let end = memchr::memchr(b'\n', rest);
    let line = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
    let method = line.iter().take_while(|byte| is_token(**byte)).count();
    match line.get(method) {
        // No request begins with anything but a word and a blank.
        Some(after) if method == 0 || !is_blank(*after) => return Spoken::Other,
        _ => {}
    }
    if line.iter().any(|byte| byte.is_ascii_control() && !is_blank(*byte)) {
        return Spoken::Other;
    }
    if end.is_none() {
        return Spoken::Undecided;
    }
    let mut versions =
        line.windows(6).filter(|window| window[..5].eq_ignore_ascii_case(b"HTTP/")).map(|window| window[5]);
    match versions.next_back() {
        None => Spoken::Other,
        Some(b'2') => Spoken::Http2,
        Some(_) => Spoken::Http,
    }
}

/// Tab, line feed, vertical tab, form feed, carriage return, space.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ')
}

/// What methods consist of (RFC 9110).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Who spoke.
#[derive(Debug)]
pub(super) enum Opening {
    /// The client, this, in these bytes.
    Client(Spoken, Vec<u8>),
    /// The server, and the client at most these bytes. They may be part of a word that would tell.
    Server(Vec<u8>),
}

/// Waits until it is clear what is spoken. A `server` may speak first.
pub(super) async fn hear(client: &mut TcpStream, server: Option<&TcpStream>) -> io::Result<Opening> {
    let mut heard = Vec::with_capacity(2048);
    let mut looked_at = 0;
    let silence = tokio::time::sleep(SILENCE);
    tokio::pin!(silence);
    loop {
        let read = tokio::select! {
            read = client.read_buf(&mut heard) => read?,
            () = speaks(server) => return Ok(Opening::Server(heard)),
            () = &mut silence, if server.is_none() => return Err(io::ErrorKind::TimedOut.into()),
        };
        // What comes in single bytes is not read from its start for each of them.
        let new = heard.get(looked_at..).unwrap_or_default();
        if looked_at > 256 && read > 0 && !new.iter().any(u8::is_ascii_control) {
            looked_at = heard.len();
            if looked_at < OPENING_MAX {
                continue;
            }
        }
        looked_at = heard.len();
        match spoken(&heard) {
            // The client will say no more, or too much.
            Spoken::Undecided if read == 0 || heard.len() >= OPENING_MAX => {
                return Ok(Opening::Client(Spoken::Other, heard));
            }
            Spoken::Undecided => {}
            spoken => return Ok(Opening::Client(spoken, heard)),
        }
    }
}

/// Ends when the server has said something, or will say nothing.
async fn speaks(server: Option<&TcpStream>) {
    match server {
        // An error is one that the relay will find as well.
        Some(server) => drop(server.peek(&mut [0]).await),
        None => std::future::pending().await,
    }
}
