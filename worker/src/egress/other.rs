//! Connections that are neither HTTP nor TLS by their beginning, where a grant lets it pass.
//!
//! A server that reads leniently may take it for a request all the same, of which nobody has read the host (B13). What all of those
//! have in common is not how they begin, but that they name another host in text, and that a server which has answered before a whole
//! request was there is none of HTTP. So it is passed on as it comes, but not the end of a line that names another host; until the
//! server has answered, or, where a request may have been among it, to the end.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use callgate_policy::pattern::Host;
use tokio::net::TcpStream;

use super::meter::MeteredServer;
use super::opening::{HTTP2, Spoken, contains_http, has_version_two, spoken};
use super::stream;

/// Most bytes of a line that are looked at. A server that names hosts takes no longer one.
const LINE_MAX: usize = 64 * 1024;
const PROXY: &str = "it begins with a PROXY header, after which a server may be asked for any host";
/// How an answer of HTTP begins.
const ANSWER: &[u8] = b"HTTP/";
/// How both sides of SSH begin (RFC 4253, 4.2). The client's line has several words, as a request has; what follows is encrypted, and
/// would sooner or later have the bytes of another host's name in it.
const SSH: &[u8] = b"SSH-";

/// A connection that is looked at until its server has answered.
pub(super) struct Other<'a> {
    name: &'a Host,
    /// Told why it is ended, if it is.
    refuse: &'a (dyn Fn(String) + Send + Sync),
    is_answered: AtomicBool,
    /// The answer is SSH's.
    is_ssh: AtomicBool,
}

impl<'a> Other<'a> {
    pub(super) fn new(name: &'a Host, refuse: &'a (dyn Fn(String) + Send + Sync)) -> Self {
        Self { name, refuse, is_answered: AtomicBool::new(false), is_ssh: AtomicBool::new(false) }
    }

    /// Passes on what the client says, what was heard already first.
    pub(super) async fn pass(&self, mut heard: Vec<u8>, client: &TcpStream, server: &MeteredServer) -> io::Result<()> {
        let mut look = ClientWords::new(self.name);
        loop {
            if !look.is_answered && self.is_answered.load(Ordering::Relaxed) {
                look.is_answered = true;
                // Without a request nobody answers one. Who speaks first may speak HTTP/2.
                let is_ssh = self.is_ssh.load(Ordering::Relaxed) && look.opening.starts_with(SSH);
                if is_ssh || (look.has_spoken() && !look.may_be_request) {
                    return stream::write_all(server, &heard).await;
                }
            }
            look.take(&heard).or_else(|reason| self.refused(reason))?;
            stream::write_all(server, &heard).await?;
            if look.is_answered && look.has_begun && !look.may_be_request {
                return Ok(());
            }
            heard.clear();
            if stream::hear(client, &mut heard).await? == 0 {
                // The end is the end of a line for some.
                return look.line_ends().or_else(|reason| self.refused(reason));
            }
        }
    }

    /// Passes on what the server says, until it is clear that it is no HTTP.
    pub(super) async fn listen(&self, server: &MeteredServer, client: &TcpStream) -> io::Result<()> {
        let mut heard = Vec::with_capacity(2048);
        loop {
            let is_over = stream::hear(server, &mut heard).await? == 0;
            if heard.starts_with(ANSWER) {
                let reason = "the server speaks HTTP, and it was asked for no host that could be read";
                return self.refused(reason.to_owned());
            }
            if is_over || !ANSWER.starts_with(&heard) {
                self.is_ssh.store(heard.starts_with(SSH), Ordering::Relaxed);
                // Some servers repeat the request's own word for what is spoken.
                self.is_answered.store(!is_status(&heard), Ordering::Relaxed);
                return stream::write_all(client, &heard).await;
            }
        }
    }

    fn refused(&self, reason: String) -> io::Result<()> {
        (self.refuse)(reason);
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// A word and a number of three digits, as an answer's first line has them.
fn is_status(answer: &[u8]) -> bool {
    let mut words = words(answer);
    let is_word = words.next().is_some_and(|word| word[0].is_ascii_alphabetic());
    is_word && words.next().is_some_and(|code| code.len() == 3 && code.iter().all(u8::is_ascii_digit))
}

/// Words between blanks, control characters and what is no ASCII: each of these parts words for some server.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| !byte.is_ascii_graphic()).filter(|word| !word.is_empty())
}

/// A client's words so far, in lines. Some servers end one at a line feed, some at a carriage return, some at both
/// together, and take the other for a blank.
struct ClientWords<'a> {
    name: &'a Host,
    /// The first bytes of all.
    opening: Vec<u8>,
    line: Vec<u8>,
    /// The last bytes of the line that are not in it any more, for it is too long.
    rest: Vec<u8>,
    is_http: bool,
    /// A line with something to be seen in it has ended.
    has_begun: bool,
    /// How many words there were since the last line feed, and since the last carriage return.
    words: [usize; 2],
    /// A line of several words has ended before the server has answered: it may be the first of a request.
    may_be_request: bool,
    /// The server has answered, with no HTTP: a request is to be expected no more, but one of HTTP/2, for which it may speak first.
    is_answered: bool,
}

/// Prefix that load balancers put before a connection, for a server that goes on with whatever follows: TLS for another
/// name, too.
const PROXY_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

impl<'a> ClientWords<'a> {
    fn new(name: &'a Host) -> Self {
        let (opening, line, rest) = (Vec::new(), Vec::new(), Vec::new());
        let (is_http, has_begun, may_be_request, is_answered) = (false, false, false, false);
        Self { name, opening, line, rest, is_http, has_begun, words: [0; 2], may_be_request, is_answered }
    }

    fn has_spoken(&self) -> bool {
        !self.opening.is_empty()
    }

    /// An error is the reason why no more of it, and none of these bytes, is to be passed on.
    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.opening.len() < PROXY_2.len() {
            self.opening.extend(bytes.iter().take(PROXY_2.len() - self.opening.len()));
            if spoken(&self.opening) == Spoken::Tls {
                return Err("it is TLS, and the server has spoken before it".to_owned());
            }
            if self.opening == PROXY_2 {
                return Err(PROXY.to_owned());
            }
        }
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            match part.split_last() {
                Some((end @ (b'\n' | b'\r'), part)) => {
                    self.keep(part);
                    self.count(usize::from(*end == b'\r'));
                    self.line_ends()?;
                }
                _ => self.keep(part),
            }
        }
        Ok(())
    }

    fn keep(&mut self, part: &[u8]) {
        let room = LINE_MAX - self.line.len();
        let (kept, over) = part.split_at(part.len().min(room));
        self.line.extend_from_slice(kept);
        if over.is_empty() || self.is_answered {
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

    fn count(&mut self, end: usize) {
        let words = words(&self.line).count();
        self.words.iter_mut().for_each(|before| *before += words);
        self.may_be_request |= !self.is_answered && self.words[end] > 1;
        self.words[end] = 0;
    }

    fn line_ends(&mut self) -> Result<(), String> {
        let mut line = std::mem::take(&mut self.line);
        let is_first = !self.has_begun && line.iter().any(u8::is_ascii_graphic);
        let is_http = std::mem::take(&mut self.is_http);
        self.rest.clear();
        if is_http || ((is_first || !self.is_answered) && contains_http(&line)) {
            let two = has_version_two(&line);
            return Err(
                if two { HTTP2 } else { "it is HTTP in an unusual form, or after the server has spoken" }.to_owned()
            );
        }
        self.has_begun |= is_first;
        if !self.is_answered || self.may_be_request {
            let mut words = words(&line);
            match (words.next(), words.next()) {
                (Some(b"PROXY"), Some(_)) if is_first => return Err(PROXY.to_owned()),
                (Some(b"CONNECT"), Some(host)) => self.is_own(host)?,
                // What is no ASCII may be a part of the first word.
                (first, second) => {
                    let mut targets = first.into_iter().chain(second).chain(words.next());
                    targets.try_for_each(|word| self.whole_address(word))?;
                }
            }
            self.host_line(&line)?;
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

    /// `Host: host`, as a line of a request's head. Some skip blanks and control characters before the name, or what follows it.
    fn host_line(&self, line: &[u8]) -> Result<(), String> {
        let blanks = line.iter().take_while(|byte| !byte.is_ascii_graphic()).count();
        let Some((name, rest)) = line.get(blanks..).unwrap_or_default().split_at_checked(4) else { return Ok(()) };
        let colon = rest.iter().position(|byte| *byte == b':');
        match (rest.first(), colon.and_then(|colon| rest.get(colon + 1..))) {
            (Some(after), Some(value))
                if name.eq_ignore_ascii_case(b"host") && (*after == b':' || !after.is_ascii_graphic()) =>
            {
                let value = value.trim_ascii();
                // No host: what STOMP calls one.
                if value == b"/" { Ok(()) } else { self.is_own(value) }
            }
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
        let mut look = ClientWords::new(&name);
        pieces.iter().try_for_each(|piece| look.take(piece)).and_then(|()| look.line_ends())
    }

    /// B13: only a server that answers before it was asked is none of HTTP for sure.
    #[test]
    fn b13_the_look_goes_on_where_a_request_may_have_been() {
        let name = Host::parse("good.example").unwrap();
        let after = |before: &[u8]| {
            let mut look = ClientWords::new(&name);
            look.take(before).unwrap();
            look.is_answered = true;
            (look.may_be_request, look.take(b"GET x\r\nHost: evil.example\r\n").is_err())
        };
        for before in [&b"GET x\r\n\r\n"[..], b"x\ny\r\n", b"x\ry\n", b"GET\x1cx\n", b"y FOO\r"] {
            assert_eq!(after(before), (true, true), "{}", before.escape_ascii());
        }
        for before in [&b""[..], b"*1\r\n$4\r\nPING\r\n", b"\0\0\0\x50\0\x03\0\0user\0me\0", b"GET x"] {
            assert_eq!(after(before), (false, false), "{}", before.escape_ascii());
        }
        for (answer, is_status) in [
            (&b"FOO 200 OK\r\n"[..], true),
            (b"RTSP/1.0 200 OK\r\n", true),
            (b"220 hello\r\n", false),
            (b"+PONG\r\n", false),
            (b"SSH-2.0-x 1\r\n", false),
        ] {
            assert_eq!(super::is_status(answer), is_status, "{}", answer.escape_ascii());
        }
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
            b"GET\n/x FOO\r\nHost: evil.example\r\n\r\n",
            b"x\ny z FOO\r\nHost: evil.example\r\n\r\n",
            b"GET y:/x FOO\r\nHost: evil.example\r\r",
            b"GET x FOO/1.1\r\n \x0bHost: evil.example\r\n",
            b"GET x FOO/1.1\r\n\x1cHost x: evil.example\r\n",
            b"OPTIONS * X\r\n\r\nGET x://evil.example/x X\r\n",
            b"PROXY TCP4 1.1.1.1 2.2.2.2 1 443\r\n",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c",
            b"CONNECT evil.example:443 X\r\n",
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
