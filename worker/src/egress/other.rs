//! What is neither HTTP nor TLS by its beginning, where a grant lets it pass.
//!
//! A server that reads leniently may take it for a request all the same, of which nobody has read the host (B13). What all of those
//! have in common is not how they begin, but that they name another host in text, and that the server's answer is one of HTTP. So
//! it is passed on as it comes, but not the end of a line that names another host; until the server has answered, which tells what
//! it speaks.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use callgate_policy::pattern::Host;
use tokio::net::TcpStream;

use super::opening::{HTTP2, Spoken, contains_http, has_version_two, spoken};
use super::relay;

/// Most bytes of a line that are looked at. A server that names hosts takes no longer one.
const LINE_MAX: usize = 64 * 1024;
/// How an answer of HTTP begins.
const ANSWER: &[u8] = b"HTTP/";

/// A connection that is looked at until its server has answered.
pub(super) struct Other<'a> {
    name: &'a Host,
    /// Told why it is ended, if it is.
    refuse: &'a (dyn Fn(String) + Send + Sync),
    is_answered: AtomicBool,
}

impl<'a> Other<'a> {
    pub(super) fn new(name: &'a Host, refuse: &'a (dyn Fn(String) + Send + Sync)) -> Self {
        Self { name, refuse, is_answered: AtomicBool::new(false) }
    }

    /// Passes on what the client says, what was heard already first.
    pub(super) async fn pass(&self, mut heard: Vec<u8>, client: &TcpStream, server: &TcpStream) -> io::Result<()> {
        let mut look = Look::new(self.name);
        loop {
            look.is_answered = self.is_answered.load(Ordering::Relaxed);
            look.take(&heard).or_else(|reason| self.refused(reason))?;
            relay::write_all(server, &heard).await?;
            if look.has_begun && look.is_answered {
                return Ok(());
            }
            heard.clear();
            client.readable().await?;
            match client.try_read_buf(&mut heard) {
                // The end is the end of a line for some.
                Ok(0) => return look.line_ends().or_else(|reason| self.refused(reason)),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Passes on what the server says, until it is clear that it is no HTTP.
    pub(super) async fn listen(&self, server: &TcpStream, client: &TcpStream) -> io::Result<()> {
        let mut heard = Vec::with_capacity(2048);
        loop {
            server.readable().await?;
            let is_over = match server.try_read_buf(&mut heard) {
                Ok(read) => read == 0,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(e) => return Err(e),
            };
            if heard.starts_with(ANSWER) {
                return self
                    .refused("the server speaks HTTP, and it was asked for no host that could be read".to_owned());
            }
            if is_over || !ANSWER.starts_with(&heard) {
                self.is_answered.store(true, Ordering::Relaxed);
                return relay::write_all(client, &heard).await;
            }
        }
    }

    fn refused(&self, reason: String) -> io::Result<()> {
        (self.refuse)(reason);
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// What a client has said so far, in lines.
struct Look<'a> {
    name: &'a Host,
    /// The first bytes of all.
    opening: Vec<u8>,
    line: Vec<u8>,
    /// The last bytes of the line that are not in it any more, for it is too long.
    rest: Vec<u8>,
    is_http: bool,
    /// A line with something to be seen in it has ended.
    has_begun: bool,
    /// It was one of several words, as the first line of a request is.
    may_be_request: bool,
    /// The server has answered, with no HTTP: no request is to be expected but one of HTTP/2, for which it may speak first.
    is_answered: bool,
}

impl<'a> Look<'a> {
    fn new(name: &'a Host) -> Self {
        let (opening, line, rest) = (Vec::new(), Vec::new(), Vec::new());
        Self { name, opening, line, rest, is_http: false, has_begun: false, may_be_request: false, is_answered: false }
    }

    /// An error is the reason why no more of it, and none of these bytes, is to be passed on.
    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.opening.len() < 8 {
            self.opening.extend(bytes.iter().take(8));
            if spoken(&self.opening) == Spoken::Tls {
                return Err("it is TLS, and the server has spoken before it".to_owned());
            }
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (end, part) = match part.split_last() {
                Some((b'\n', part)) => (true, part),
                _ => (false, part),
            };
            self.keep(part);
            if end {
                self.line_ends()?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, part: &[u8]) {
        let room = LINE_MAX - self.line.len();
        let (kept, over) = part.split_at(part.len().min(room));
        self.line.extend_from_slice(kept);
        if over.is_empty() || self.has_begun {
            return;
        }
        if self.rest.is_empty() {
            self.rest.extend_from_slice(self.line.get(LINE_MAX - ANSWER.len()..).unwrap_or_default());
        }
        self.rest.extend_from_slice(over);
        self.is_http |= contains_http(&self.rest);
        let last = self.rest.len() - ANSWER.len();
        self.rest.drain(..last);
    }

    fn line_ends(&mut self) -> Result<(), String> {
        let mut line = std::mem::take(&mut self.line);
        let is_http = std::mem::take(&mut self.is_http) || (!self.has_begun && contains_http(&line));
        self.rest.clear();
        if is_http {
            let two = has_version_two(&line);
            return Err(
                if two { HTTP2 } else { "it is HTTP in an unusual form, or after the server has spoken" }.to_owned()
            );
        }
        // Some readers of headers take this for the end of a line as well.
        let mut parts = line.split(|byte| *byte == b'\r');
        if !self.has_begun && line.iter().any(u8::is_ascii_graphic) {
            self.has_begun = true;
            let mut words =
                line.split(|byte| !byte.is_ascii_graphic()).filter(|word| !word.is_empty()).skip(1).peekable();
            self.may_be_request = words.peek().is_some();
            if !self.is_answered {
                words.try_for_each(|word| self.whole_address(word))?;
            }
            parts.next();
        }
        if self.may_be_request && !self.is_answered {
            parts.try_for_each(|part| self.host_line(part))?;
        }
        line.clear();
        self.line = line;
        Ok(())
    }

    /// `scheme://host`, as the target of a request.
    fn whole_address(&self, word: &[u8]) -> Result<(), String> {
        let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+.-".contains(byte);
        let rest = word.get(word.iter().take_while(|byte| is_scheme(byte)).count()..).unwrap_or_default();
        match rest.strip_prefix(b"://") {
            Some(rest) => self.is_own(rest.split(|byte| b"/?#".contains(byte)).next().unwrap_or_default()),
            None => Ok(()),
        }
    }

    /// `Host: host`, as a line of a request's head.
    fn host_line(&self, line: &[u8]) -> Result<(), String> {
        let Some((name, value)) = line.split_at_checked(4) else { return Ok(()) };
        match value.trim_ascii_start().strip_prefix(b":") {
            Some(value) if name.eq_ignore_ascii_case(b"host") => self.is_own(value.trim_ascii()),
            _ => Ok(()),
        }
    }

    fn is_own(&self, authority: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(authority);
        let host = match text.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &text,
        };
        if Host::parse(host).is_ok_and(|host| host == *self.name) {
            return Ok(());
        }
        Err(format!("it names {}, on a connection that was made for {}", text.escape_debug(), self.name))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;

    fn judged(pieces: &[&[u8]]) -> Result<(), String> {
        let name = Host::parse("good.example").unwrap();
        let mut look = Look::new(&name);
        pieces.iter().try_for_each(|piece| look.take(piece)).and_then(|()| look.line_ends())
    }

    /// B13: what servers take for a request names another host in one of few ways, however it begins, in whatever pieces.
    #[test]
    fn b13_no_other_host_is_named_before_the_server_answers() {
        let long = [&b"GET x:"[..], &b"a".repeat(70_000), b" HTTP/1.1\r\n"].concat();
        let twice = [&b"\0\r\n\x01\n"[..], b"GET /x HTTP/1.1\r\n"].concat();
        for bytes in [
            &b"GET x://evil.example/x\r\n"[..],
            b"GET x://good.example@evil.example/x\r\n",
            b"GET_PARAMETER /x RTSP/1.0\r\nCSeq: 1\r\nHost: evil.example\r\n\r\n",
            b"GET_ /x FOO\r\nhOsT \t: evil.example:80\r\n",
            b"GET * FOO\n\nGET * FOO\nHost: evil.example\n",
            b"GET %2Fx\r\nX: y\rHost: evil.example\r\n",
            b"GET * FOO\r\nHost: good.example, evil.example\r\n",
            b"GET * FOO\r\nHost:\r\n",
            b"G\xc9T\x85x://evil.example/x\n",
            b"GET http://good.example/x HTTP/1.1",
            &long,
            &twice,
        ] {
            for size in [1, 7, 100_000] {
                let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
                assert!(judged(&pieces).is_err(), "{}", bytes[..bytes.len().min(80)].escape_ascii());
            }
        }
        for bytes in [
            &b"OPTIONS rtsp://good.example:554/x RTSP/1.0\r\nCSeq: 1\r\n\r\n"[..],
            b"GET * FOO\r\nHost: GOOD.example.:8080\r\n",
            b"CONNECT\naccept-version:1.2\nhost:/\n\n\0",
            b"{\"id\": 1, \"params\": [\"http://other.example\"]}\n",
            b"EHLO me\r\nMAIL FROM:<a@b>\r\n",
            b"*1\r\n$4\r\nPING\r\n",
            b"\0\0\0\x08\x04\xd2\x16\x2f",
            &[0xff; 200_000],
            b"hostile: x\nhost\n",
        ] {
            for size in [1, 7, 100_000] {
                let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
                assert_eq!(judged(&pieces), Ok(()), "{}", bytes[..bytes.len().min(80)].escape_ascii());
            }
        }
    }
}
