//! A client's first bytes tell what is spoken: TLS, HTTP, or something else that names no host.

use std::io;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// Most bytes before it must be clear what is spoken.
const OPENING_MAX: usize = 64 * 1024;
/// Most blanks before a request: servers skip some, and some as many as come.
const BLANKS_MAX: usize = 1024;
/// How long a client may say nothing where it has to speak first. One that keeps a connection in reserve does, for a while.
const SILENCE: Duration = Duration::from_secs(300);

/// Reason why it is refused in the clear.
pub(super) const HTTP2: &str = "it is HTTP/2 without TLS, in which no host can be read";

/// Protocol, by the client's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoken {
    /// It cannot be told yet.
    Undecided,
    /// A word, and perhaps more: a request begins like that, and so does much else. It is told when the line has ended.
    Text,
    /// No client of HTTP begins like that. It is not waited for the line's end.
    Odd,
    /// TLS.
    Tls,
    /// HTTP/1.
    Http,
    /// HTTP/2 without TLS.
    Http2,
    /// Neither, as far as a line tells.
    Other,
}

/// Tells what begins like this. What some server could take for HTTP or TLS is HTTP or TLS here: their own readers, which are
/// strict, refuse it then.
pub(super) fn spoken(bytes: &[u8]) -> Spoken {
    match bytes {
        [] | [0x14..=0x18] => return Spoken::Undecided,
        // Whatever record, of whatever version: some servers take a warning first, or a version of their own.
        [0x14..=0x18, 0..=0x0f, ..] => return Spoken::Tls,
        // A hello in the form of SSL 2, which names no server, for any later version.
        [0x80..=0xff] | [0x80..=0xff, _] | [0x80..=0xff, _, 1] => return Spoken::Undecided,
        [0x80..=0xff, _, 1, 2 | 3, ..] => return Spoken::Tls,
        _ => {}
    }
    let blanks = bytes.iter().take_while(|byte| is_blank(**byte)).count();
    if blanks > BLANKS_MAX {
        return Spoken::Http;
    }
    let rest = bytes.get(blanks..).unwrap_or_default();
    let end = memchr::memchr(b'\n', rest);
    let line = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
    // A request without a version is answered by some: by its path, or the whole address that it names.
    let method = line.iter().take_while(|byte| byte.is_ascii_alphabetic() || **byte == b'-').count();
    let after = line.get(method..).unwrap_or_default();
    let gap = after.iter().take_while(|byte| !byte.is_ascii_graphic()).count();
    let target = after.get(gap..).unwrap_or_default();
    let is_request = method > 0 && gap > 0 && [&b"/"[..], b"http:", b"https:"].iter().any(|it| starts_with(target, it));
    let is_http = is_request || contains_http(line);
    let word = line.iter().take_while(|byte| is_token(**byte)).count();
    let is_word = line.get(word).is_none_or(|after| word > 0 && is_blank(*after));
    let is_text = is_word && line.iter().all(|byte| byte.is_ascii_graphic() || is_blank(*byte));
    match end {
        // What is spoken is HTTP whatever its first word is: some servers take any.
        Some(_) if is_http && has_version_two(line) => Spoken::Http2,
        Some(_) if is_http => Spoken::Http,
        Some(_) => Spoken::Other,
        None if is_http => Spoken::Undecided,
        None if is_text => Spoken::Text,
        None => Spoken::Odd,
    }
}

fn starts_with(bytes: &[u8], start: &[u8]) -> bool {
    bytes.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start))
}

pub(super) fn contains_http(line: &[u8]) -> bool {
    line.windows(5).any(|window| window.eq_ignore_ascii_case(b"HTTP/"))
}

pub(super) fn has_version_two(line: &[u8]) -> bool {
    let mut versions = line.windows(6).filter(|window| window[..5].eq_ignore_ascii_case(b"HTTP/"));
    versions.next_back().is_some_and(|window| window[5] == b'2')
}

/// Tab, line feed, vertical tab, form feed, carriage return, space.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ')
}

/// True if a byte may be in a method's name (RFC 9110).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Who spoke.
#[derive(Debug)]
pub(super) enum FirstSpeaker {
    /// The client, this, in these bytes.
    Client(Spoken, Vec<u8>),
    /// The server, and the client at most these bytes. They may be part of a word that would tell.
    Server(Vec<u8>),
}

/// Waits until it is clear what is spoken. A `server` may speak first.
pub(super) async fn hear(client: &mut TcpStream, server: Option<&TcpStream>) -> io::Result<FirstSpeaker> {
    let mut heard = Vec::with_capacity(2048);
    let mut looked_at = 0;
    let silence = tokio::time::sleep(SILENCE);
    tokio::pin!(silence);
    loop {
        let read = tokio::select! {
            read = client.read_buf(&mut heard) => read?,
            () = speaks(server) => return Ok(FirstSpeaker::Server(heard)),
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
            // The client will say no more.
            Spoken::Undecided | Spoken::Text if read == 0 => return Ok(FirstSpeaker::Client(Spoken::Other, heard)),
            // A first line that some servers take however long it is.
            Spoken::Undecided | Spoken::Text if heard.len() >= OPENING_MAX => {
                return Ok(FirstSpeaker::Client(Spoken::Http, heard));
            }
            Spoken::Undecided | Spoken::Text => {}
            spoken @ (Spoken::Odd | Spoken::Tls | Spoken::Http | Spoken::Http2 | Spoken::Other) => {
                return Ok(FirstSpeaker::Client(spoken, heard));
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// B13: whatever some server takes for a request or a hello is one here, so that its own reader judges it.
    #[test]
    fn b13_what_a_server_may_take_for_http_or_tls_is_that() {
        let long = |first: &[u8], times: usize, rest: &[u8]| [first.repeat(times), rest.to_vec()].concat();
        let cases: [(Vec<u8>, Spoken); 24] = [
            (b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec(), Spoken::Http),
            (long(b"\r\n", 2000, b"GET / HTTP/1.1\r\n"), Spoken::Http),
            (b"GET http://other.example/x\r\n".to_vec(), Spoken::Http),
            (b"GET /x\r\n".to_vec(), Spoken::Http),
            (b"GET /\x01 HTTP/1.1\r\n".to_vec(), Spoken::Http),
            (b"GET@ /x HTTP/1.1\r\n".to_vec(), Spoken::Http),
            (b"\x1cG\xc9T\x1c/x\x85HTTP/1.1\r\n".to_vec(), Spoken::Http),
            (b"GET\x1chttp://other.example/x\r\n".to_vec(), Spoken::Http),
            (b"PRI * HTTP/2.0\r\n".to_vec(), Spoken::Http2),
            (b"\x16\x03\x01\x00\x05".to_vec(), Spoken::Tls),
            (b"\x16\x01\x01\x00\x05".to_vec(), Spoken::Tls),
            (b"\x15\x03\x01\x00\x02\x01\x00".to_vec(), Spoken::Tls),
            // Nobody takes these for one.
            (b"SSH-2.0-OpenSSH_9.2 Debian\r\n".to_vec(), Spoken::Other),
            (b"EHLO example.org\r\n".to_vec(), Spoken::Other),
            (b"*1\r\n$4\r\nPING\r\n".to_vec(), Spoken::Other),
            (b"GET key\r\n".to_vec(), Spoken::Other),
            // It may become one.
            (b"GET /".to_vec(), Spoken::Undecided),
            (long(b"x", 5000, b" /"), Spoken::Undecided),
            (b"GET".to_vec(), Spoken::Text),
            (b"\x00\x00\x00\x08\x04\xd2\x16\x2f".to_vec(), Spoken::Odd),
            (b"0033git-upload-pack /x.git\0host=a\0".to_vec(), Spoken::Odd),
            (b"GET \x1c".to_vec(), Spoken::Odd),
            (b"\xac\xed\x00\x05".to_vec(), Spoken::Odd),
            (b"{\"a\"".to_vec(), Spoken::Odd),
        ];
        for (bytes, expected) in cases {
            assert_eq!(spoken(&bytes), expected, "{}", String::from_utf8_lossy(&bytes[..bytes.len().min(60)]));
        }
    }
}
