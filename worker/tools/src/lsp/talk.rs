//! The talk with a language server: requests and their answers, what it asks and tells meanwhile, and its end.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use callgate_policy::path::HostPath;
use callgate_worker::toolset::Peer;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use serde_json::{Value, json};

use super::error::LspError;
use super::frames::{Frames, framed};
use super::place::{path_of, uri};

/// Most bytes that wait for a server which does not read.
const PENDING_MAX: usize = 16 << 20;
/// Most bytes of standard error that an error tells: the last ones.
const LAST_WORDS: usize = 1000;
/// How long what a server publishes is waited for to be replaced.
const SETTLES: Duration = Duration::from_millis(500);
/// How long after it said that something had changed it is asked again.
const AGAIN: Duration = Duration::from_millis(100);
/// Errors of the protocol that say: ask again.
const CHANGED_MEANWHILE: [i64; 3] = [-32800, -32801, -32802];
const METHOD_NOT_FOUND: i64 = -32601;

/// A server that answers.
pub(super) struct Talk<'a> {
    peer: &'a Peer,
    frames: Frames,
    /// Bytes that it has not read yet.
    pending: Vec<u8>,
    /// The end of what it wrote on standard error; `None` once that is closed.
    words: Vec<u8>,
    is_silent: bool,
    deadline: Instant,
    next: i64,
    root: &'a HostPath,
    file: &'a HostPath,
    /// Diagnostics of the file that it published last.
    published: Option<Vec<Value>>,
    /// True if it says that it has read the project.
    is_quiescent: bool,
}

impl<'a> Talk<'a> {
    pub(super) fn new(peer: &'a Peer, (root, file): (&'a HostPath, &'a HostPath), deadline: Instant) -> Self {
        Self {
            peer,
            frames: Frames::default(),
            pending: Vec::new(),
            words: Vec::new(),
            is_silent: false,
            deadline,
            next: 0,
            root,
            file,
            published: None,
            is_quiescent: false,
        }
    }

    /// The handshake; what the server can do.
    pub(super) fn begin(&mut self, options: &Value) -> Result<Value, LspError> {
        let said = self.ask(
            "initialize",
            &json!({
                "processId": null,
                "clientInfo": { "name": "callgate" },
                "rootUri": uri(self.root),
                "workspaceFolders": self.folders(),
                "initializationOptions": options,
                "capabilities": {
                    "general": { "positionEncodings": ["utf-16"] },
                    "window": { "workDoneProgress": false },
                    "workspace": { "configuration": true, "workspaceFolders": true },
                    "textDocument": {
                        "definition": { "linkSupport": false },
                        "references": {},
                        "hover": { "contentFormat": ["plaintext", "markdown"] },
                        "documentSymbol": { "hierarchicalDocumentSymbolSupport": true },
                        "publishDiagnostics": {},
                        "diagnostic": {},
                    },
                    "experimental": { "serverStatusNotification": true },
                },
            }),
        )?;
        let capabilities = &said["capabilities"];
        match capabilities.get("positionEncoding").and_then(Value::as_str) {
            None | Some("utf-16") => {}
            Some(_) => return Err(LspError::Broken("it counts otherwise than in UTF-16")),
        }
        self.tell("initialized", &json!({}))?;
        Ok(capabilities.clone())
    }

    /// Waits until the server has read the project.
    pub(super) fn wait_until_quiescent(&mut self) -> Result<(), LspError> {
        while !self.is_quiescent {
            self.listen(self.deadline)?;
        }
        Ok(())
    }

    /// Diagnostics of the file that the server publishes by itself.
    pub(super) fn published(&mut self) -> Result<Vec<Value>, LspError> {
        while self.published.is_none() {
            self.listen(self.deadline)?;
        }
        let mut all = Vec::new();
        while let Some(published) = self.published.take() {
            all = published;
            self.settle(SETTLES)?;
        }
        Ok(all)
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask(&mut self, method: &str, params: &Value) -> Result<Value, LspError> {
        loop {
            self.next += 1;
            let id = self.next;
            self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
            let mut answer = loop {
                if let Some(answer) = self.listen(self.deadline)?
                    && answer["id"].as_i64() == Some(id)
                {
                    break answer;
                }
            };
            let Some(error) = answer.get("error").filter(|error| !error.is_null()) else {
                return Ok(answer["result"].take());
            };
            let code = error["code"].as_i64().unwrap_or_default();
            if !CHANGED_MEANWHILE.contains(&code) {
                let message = error["message"].as_str().unwrap_or_default().chars().take(LAST_WORDS).collect();
                return Err(LspError::Refused { code, message });
            }
            self.settle(AGAIN)?;
        }
    }

    pub(super) fn tell(&mut self, method: &str, params: &Value) -> Result<(), LspError> {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
    }

    /// The end of what it wrote on standard error.
    pub(super) fn last_words(&self) -> String {
        String::from_utf8_lossy(&self.words).trim().to_owned()
    }

    fn folders(&self) -> Value {
        json!([{ "uri": uri(self.root), "name": "workspace" }])
    }

    fn send(&mut self, message: &Value) -> Result<(), LspError> {
        self.pending.extend(framed(message));
        if self.pending.len() > PENDING_MAX { Err(LspError::DoesNotRead) } else { Ok(()) }
    }

    /// Hears what comes meanwhile.
    fn settle(&mut self, time: Duration) -> Result<(), LspError> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.listen(until)?;
        }
        Ok(())
    }

    /// Takes the next message, if one comes until then. What the server asks is answered, what it tells is kept as far as it is of use;
    /// an answer is returned.
    fn listen(&mut self, until: Instant) -> Result<Option<Value>, LspError> {
        let Some(message) = self.message(until)? else { return Ok(None) };
        let Some(method) = message.get("method").and_then(Value::as_str) else { return Ok(Some(message)) };
        let params = &message["params"];
        match (message.get("id"), method) {
            (None, "textDocument/publishDiagnostics") => {
                if params["uri"].as_str().and_then(path_of).as_ref() == Some(self.file) {
                    self.published = Some(params["diagnostics"].as_array().cloned().unwrap_or_default());
                }
            }
            (None, "experimental/serverStatus") => self.is_quiescent = params["quiescent"] == true,
            (None, _) => {}
            (Some(id), method) => {
                let answer = self.answer(method, params);
                let mut answer =
                    answer.unwrap_or_else(|| json!({ "error": { "code": METHOD_NOT_FOUND, "message": "no" } }));
                answer["jsonrpc"] = "2.0".into();
                answer["id"] = id.clone();
                self.send(&answer)?;
            }
        }
        Ok(None)
    }

    /// Answer to a server that asks.
    fn answer(&self, method: &str, params: &Value) -> Option<Value> {
        match method {
            "workspace/configuration" => {
                let items = params["items"].as_array().map_or(0, Vec::len);
                Some(json!({ "result": vec![Value::Null; items] }))
            }
            "workspace/workspaceFolders" => Some(json!({ "result": self.folders() })),
            "workspace/applyEdit" => Some(json!({ "result": { "applied": false } })),
            "client/registerCapability"
            | "client/unregisterCapability"
            | "window/workDoneProgress/create"
            | "window/showMessageRequest"
            | "workspace/diagnostic/refresh" => Some(json!({ "result": null })),
            _ => None,
        }
    }

    /// The next message, if one comes until then.
    fn message(&mut self, until: Instant) -> Result<Option<Value>, LspError> {
        let until = until.min(self.deadline);
        loop {
            if let Some(message) = self.frames.next()? {
                return Ok(Some(message));
            }
            let now = Instant::now();
            if now >= self.deadline {
                return Err(LspError::TimedOut);
            }
            if now >= until {
                return Ok(None);
            }
            self.wait(until - now)?;
        }
    }

    /// Waits until something can be read or written, and does that.
    fn wait(&mut self, most: Duration) -> Result<(), LspError> {
        let [from, errors] = [self.peer.output.as_fd(), self.peer.errors.as_fd()];
        let mut fds = vec![PollFd::new(from, PollFlags::POLLIN)];
        if !self.is_silent {
            fds.push(PollFd::new(errors, PollFlags::POLLIN));
        }
        if !self.pending.is_empty() {
            fds.push(PollFd::new(self.peer.input.as_fd(), PollFlags::POLLOUT));
        }
        let pause = PollTimeout::try_from(most + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, pause) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(LspError::Stream(error.into())),
        }
        let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
        let says = is_ready(&fds[0]);
        let complains = !self.is_silent && is_ready(&fds[1]);
        let reads = !self.pending.is_empty() && fds.last().is_some_and(is_ready);
        if complains {
            self.hear(errors)?;
        }
        if reads {
            self.write()?;
        }
        let mut buffer = vec![0; 64 * 1024];
        match if says { read(from, &mut buffer) } else { return Ok(()) } {
            Ok(0) => Err(LspError::Ended),
            Ok(got) => self.frames.add(&buffer[..got]),
            Err(error) => Err(LspError::Stream(error)),
        }
    }

    /// Hears what it writes on standard error.
    fn hear(&mut self, errors: BorrowedFd<'_>) -> Result<(), LspError> {
        let mut buffer = vec![0; 16 * 1024];
        let got = read(errors, &mut buffer).map_err(LspError::Stream)?;
        self.is_silent = got == 0;
        self.words.extend(&buffer[..got]);
        let too_much = self.words.len().saturating_sub(LAST_WORDS);
        self.words.drain(..too_much);
        self.frames.count(got)
    }

    /// Writes what it takes without waiting.
    fn write(&mut self) -> Result<(), LspError> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut control = SendAncillaryBuffer::default();
        match rustix::net::sendmsg(&self.peer.input, &[IoSlice::new(&self.pending)], &mut control, flags) {
            Ok(sent) => drop(self.pending.drain(..sent)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            // It reads no more; what it has to say may still come, and if it has ended, that is seen there.
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => self.pending.clear(),
            Err(error) => return Err(LspError::Stream(error.into())),
        }
        Ok(())
    }
}

fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::read(fd, &mut *buffer)).map_err(io::Error::from)
}
