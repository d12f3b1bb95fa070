//! Servers of `callgate mcp`, and clients that say to them what they like.

use std::fs;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::binaries::Binaries;
use crate::environment::TestEnv;
use crate::run::{ProgramOutcome, ProgramRunner};

/// Longer than any answer takes on a machine that is busy with other tests.
const TOO_LONG: Duration = Duration::from_secs(120);
/// The version of the protocol in which each request stands for itself.
const STATELESS: &str = "2026-07-28";

/// The target's user on the target's host, with a store and a directory for temporary files of this test's own.
pub fn user(env: &TestEnv) -> ProgramRunner {
    let temporary = temporary(env);
    let state = env.outside().join("state").display().to_string();
    env.weakened().variable("XDG_STATE_HOME", &state).variable("TMPDIR", &temporary.display().to_string())
}

/// Where servers make the directories of their sessions.
pub fn temporary(env: &TestEnv) -> PathBuf {
    let place = env.outside().join("tmp");
    if !place.is_dir() {
        fs::create_dir(&place).expect("the parent is ours");
        env.give(&place);
    }
    place
}

/// Runs callgate there.
#[track_caller]
pub fn callgate(env: &TestEnv, words: &[&str]) -> ProgramOutcome {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    user(env).run(&[&[binary.as_str()], words].concat())
}

/// The recorded sessions.
#[track_caller]
pub fn sessions(env: &TestEnv) -> Vec<Value> {
    let listed = callgate(env, &["session", "list", "--json"]);
    serde_json::from_str(&listed.stdout).unwrap_or_else(|error| panic!("{error}: {listed:?}"))
}

/// A recorded session with its calls.
#[track_caller]
pub fn session(env: &TestEnv, id: &str) -> Value {
    let shown = callgate(env, &["session", "show", id, "--json"]);
    serde_json::from_str(&shown.stdout).unwrap_or_else(|error| panic!("{error}: {shown:?}"))
}

/// A server over HTTP, which ends with this.
#[derive(Debug)]
pub struct HttpProcess {
    process: Child,
    errors: BufReader<ChildStderr>,
    /// Where it listens.
    pub address: String,
    /// Where its tokens are.
    pub token_file: PathBuf,
}

impl HttpProcess {
    /// On a port that the kernel chooses, with these options.
    pub fn start(env: &TestEnv, words: &[&str]) -> Self {
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let words = [&[binary.as_str(), "mcp", "--http", "127.0.0.1:0"], words].concat();
        let mut command = user(env).command(&words);
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it can be started");
        let mut errors = BufReader::new(process.stderr.take().expect("it is piped"));
        let (mut said, mut address, mut token_file) = (String::new(), None, None);
        while address.is_none() || token_file.is_none() {
            let mut line = String::new();
            assert_ne!(errors.read_line(&mut line).expect("it can be read"), 0, "the server has ended: {said}");
            let after = |what: &str| line.split_once(what).map(|(_, rest)| rest.trim());
            address = address.or(after("serving http://").and_then(|url| url.strip_suffix("/mcp")).map(str::to_owned));
            token_file = token_file.or(after("the token is in ").map(PathBuf::from));
            said.push_str(&line);
        }
        let (address, token_file) = (address.unwrap_or_default(), token_file.unwrap_or_default());
        Self { process, errors, address, token_file }
    }

    /// Its tokens.
    pub fn tokens(&self) -> Vec<String> {
        let file = fs::read_to_string(&self.token_file).expect("the file of tokens can be read");
        file.lines().map(str::to_owned).collect()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills it, by the signal that it cannot catch.
    pub fn kill(mut self) {
        self.process.kill().expect("our own child can be killed");
        self.process.wait().expect("our own child can be waited for");
    }

    /// Ends it as a service manager does.
    #[track_caller]
    pub fn end(mut self) {
        let pid = self.pid().to_string();
        let told = std::process::Command::new("kill").args(["-s", "TERM", &pid]).status();
        assert!(told.is_ok_and(|told| told.success()));
        let status = self.process.wait().expect("our own child can be waited for");
        let mut said = String::new();
        self.errors.read_to_string(&mut said).expect("it can be read");
        assert!(status.success(), "{status}: {said}");
    }
}

impl Drop for HttpProcess {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            drop(self.process.kill());
            drop(self.process.wait());
        }
    }
}

/// An answer, with its whole body.
#[derive(Debug)]
pub struct McpAnswer {
    /// Its status.
    pub status: u16,
    headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl McpAnswer {
    /// A header, by its name in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The messages in the body: one, or a stream of events.
    pub fn messages(&self) -> Vec<Value> {
        if self.header("content-type").is_some_and(|kind| kind.starts_with("application/json")) {
            return vec![serde_json::from_slice(&self.body).expect("it is JSON")];
        }
        let text = String::from_utf8_lossy(&self.body);
        let data = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
        data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).expect("it is JSON")).collect()
    }

    fn read(from: &mut BufReader<TcpStream>) -> io::Result<Self> {
        let broken = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut line = String::new();
        from.read_line(&mut line)?;
        let status =
            line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(|| broken(line.clone()))?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            from.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut answer = Self { status, headers, body: Vec::new() };
        let size = |text: &str, radix| usize::from_str_radix(text.trim(), radix).map_err(|_no| broken(text.to_owned()));
        if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                line.clear();
                from.read_line(&mut line)?;
                let length = size(&line, 16)?;
                answer.take(from, length)?;
                from.read_line(&mut line)?;
                if length == 0 {
                    return Ok(answer);
                }
            }
        }
        if let Some(length) = answer.header("content-length") {
            let length = size(length, 10)?;
            answer.take(from, length)?;
        }
        Ok(answer)
    }

    fn take(&mut self, from: &mut BufReader<TcpStream>, length: usize) -> io::Result<()> {
        let start = self.body.len();
        self.body.resize(start + length, 0);
        from.read_exact(&mut self.body[start..])
    }
}

/// A client over HTTP that keeps one connection for all that it says.
#[derive(Debug)]
pub struct Http {
    address: String,
    bearer: String,
    /// The connection.
    pub stream: BufReader<TcpStream>,
    /// Session that `initialize` gave it.
    pub session: Option<String>,
    /// True if each of its requests stands for itself.
    is_stateless: bool,
    last: u64,
}

impl Http {
    /// Has said nothing yet.
    pub fn new(server: &HttpProcess, token: &str) -> Self {
        let (address, bearer) = (server.address.clone(), format!("Bearer {token}"));
        let stream = connect(&address);
        Self { address, bearer, stream, session: None, is_stateless: false, last: 0 }
    }

    /// Client of the eras that begin with `initialize`.
    #[track_caller]
    pub fn stateful(server: &HttpProcess, token: &str) -> Self {
        let mut client = Self::new(server, token);
        let answer = client.request("initialize", beginning());
        assert_eq!(answer.status, 200, "{answer:?}");
        client.session = answer.header("mcp-session-id").map(str::to_owned);
        let told = client.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        assert_eq!(told.status, 202, "{told:?}");
        client
    }

    /// Client of the era in which each request stands for itself.
    pub fn stateless(server: &HttpProcess, token: &str) -> Self {
        Self { is_stateless: true, ..Self::new(server, token) }
    }

    /// This client on another connection.
    #[must_use]
    pub fn again(&self) -> Self {
        let (address, bearer) = (self.address.clone(), self.bearer.clone());
        let (session, stream) = (self.session.clone(), connect(&self.address));
        Self { address, bearer, stream, session, is_stateless: self.is_stateless, last: self.last }
    }

    /// A request as it is written.
    pub fn bytes(&self, method: &str, more: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        let mut head = format!(
            "{method} /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: {}\r\nContent-Length: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n",
            self.address,
            self.bearer,
            body.len()
        );
        let session = self.session.as_deref().map(|session| ("Mcp-Session-Id", session));
        for (name, value) in session.iter().chain(more) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        [head.as_bytes(), b"\r\n", body].concat()
    }

    /// Writes a request, and does not read its answer.
    pub fn write(&mut self, method: &str, more: &[(&str, &str)], body: &[u8]) -> io::Result<()> {
        let bytes = self.bytes(method, more, body);
        self.stream.get_mut().write_all(&bytes)
    }

    /// The next answer.
    pub fn hear(&mut self) -> io::Result<McpAnswer> {
        McpAnswer::read(&mut self.stream)
    }

    /// One request with a body that is no message, perhaps; on a connection of its own, if the server has ended this one.
    pub fn send(&mut self, method: &str, more: &[(&str, &str)], body: &[u8]) -> io::Result<McpAnswer> {
        // One that is refused early is not read to its end.
        let _refused = self.write(method, more, body);
        let answer = self.hear();
        if answer.as_ref().map_or(true, |answer| answer.header("connection") == Some("close")) {
            self.stream = connect(&self.address);
        }
        answer
    }

    /// One message.
    #[track_caller]
    pub fn post(&mut self, message: &Value) -> McpAnswer {
        self.send("POST", &[], message.to_string().as_bytes()).expect("there is an answer")
    }

    /// A request, whose answers are those to this alone.
    #[track_caller]
    pub fn request(&mut self, method: &str, mut params: Value) -> McpAnswer {
        self.last += 1;
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let mut more = Vec::new();
        if self.is_stateless {
            params["_meta"] = stateless();
            more.extend([("Mcp-Protocol-Version", STATELESS), ("Mcp-Method", method)]);
            more.extend((!name.is_empty()).then_some(("Mcp-Name", &*name)));
        }
        let message = json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params });
        self.send("POST", &more, message.to_string().as_bytes()).expect("there is an answer")
    }

    /// A call, and the one message that answers it.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.request("tools/call", json!({ "name": tool, "arguments": arguments }));
        let mut messages = answer.messages();
        let about = |message: &Value| message["method"].is_string();
        messages.retain(|message| !about(message));
        assert_eq!(
            (messages.len(), &messages[0]["id"]),
            (1, &json!(self.last)),
            "one answer, to this call: {answer:?}"
        );
        messages.swap_remove(0)
    }
}

fn connect(address: &str) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(TOO_LONG)).expect("it is a socket");
    BufReader::new(stream)
}

fn beginning() -> Value {
    let about = json!({ "name": "test", "version": "1" });
    json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about })
}

fn stateless() -> Value {
    let of = |name: &str| format!("io.modelcontextprotocol/{name}");
    json!({
        of("protocolVersion"): STATELESS,
        of("clientInfo"): { "name": "test", "version": "1" },
        of("clientCapabilities"): {},
    })
}

/// A server on standard input and output, and its client.
#[derive(Debug)]
pub struct Piped {
    process: Child,
    /// Input that it reads.
    pub to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    last: u64,
}

impl Piped {
    /// Has said nothing yet.
    pub fn start(env: &TestEnv, words: &[&str]) -> Self {
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let mut command = user(env).command(&[&[binary.as_str(), "mcp"], words].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it can be started");
        let (to, from) = (process.stdin.take(), process.stdout.take().expect("it is piped"));
        Self { process, to, from: BufReader::new(from), last: 0 }
    }

    /// Client of the eras that begin with `initialize`.
    #[track_caller]
    pub fn stateful(env: &TestEnv, words: &[&str]) -> Self {
        let mut client = Self::start(env, words);
        let begun = client.request("initialize", &beginning());
        assert_eq!(begun["result"]["serverInfo"]["name"], "callgate", "{begun}");
        client.write(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string().as_bytes());
        client
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// One line.
    #[track_caller]
    pub fn write(&mut self, line: &[u8]) {
        let to = self.to.as_mut().expect("it is open");
        to.write_all(&[line, b"\n"].concat()).and_then(|()| to.flush()).expect("the server reads");
    }

    /// The next message; `None` if there are no more.
    pub fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = self.from.read_line(&mut line).expect("it can be read");
        (read > 0).then(|| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}")))
    }

    /// Sends a request, whose number this is.
    #[track_caller]
    pub fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.last += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params });
        self.write(message.to_string().as_bytes());
        self.last
    }

    /// The answer to a request. Others meanwhile are passed over.
    #[track_caller]
    pub fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        loop {
            let message = self.hear().expect("the server has not ended");
            if message["id"] == id && message["method"].is_null() {
                return message;
            }
        }
    }

    /// A call.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Kills it, by the signal that it cannot catch.
    pub fn kill(mut self) {
        self.process.kill().expect("our own child can be killed");
        self.process.wait().expect("our own child can be waited for");
    }

    /// Closes its input, and waits for its end.
    pub fn close(mut self) -> ExitStatus {
        drop(self.to.take());
        self.process.wait().expect("our own child can be waited for")
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            drop(self.process.kill());
            drop(self.process.wait());
        }
    }
}
