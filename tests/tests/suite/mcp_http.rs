//! `callgate mcp --http`: clients of one server, each with a session of its own, and nobody who has no token.

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, Target, TestEnv, User, eventually, matrix, skip};
use serde_json::{Value, json};

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };
/// Invalid params (JSON-RPC).
const INVALID: i64 = -32602;
/// The most bytes of a message.
const MESSAGE_MAX: usize = 8 << 20;
const ACCEPT: &str = "application/json, text/event-stream";

fn user(env: &TestEnv) -> ProgramRunner {
    let home = env.outside().display().to_string();
    env.weakened()
        .variable("HOME", &home)
        .variable("XDG_STATE_HOME", &env.outside().join("state").display().to_string())
}

fn callgate(env: &TestEnv, words: &[&str]) -> ProgramOutcome {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    user(env).run(&[&[binary.as_str()], words].concat())
}

fn sessions(env: &TestEnv) -> Vec<Value> {
    serde_json::from_str(&callgate(env, &["session", "list", "--json"]).stdout).unwrap()
}

/// A server, which ends with this.
pub(crate) struct ServerProcess {
    process: Child,
    errors: BufReader<ChildStderr>,
    address: String,
    token_file: PathBuf,
}

impl ServerProcess {
    pub(crate) fn start(env: &TestEnv, words: &[&str]) -> Self {
        Self::at(env, "127.0.0.1:0", words)
    }

    fn at(env: &TestEnv, address: &str, words: &[&str]) -> Self {
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let words = [&[binary.as_str(), "mcp", "--http", address], words].concat();
        let mut command = user(env).command(&words);
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(process.stderr.take().unwrap());
        let (mut said, mut found) = (String::new(), (None, None));
        while found.0.is_none() || found.1.is_none() {
            let mut line = String::new();
            assert_ne!(errors.read_line(&mut line).unwrap(), 0, "the server has ended: {said}");
            let after = |what: &str| line.split_once(what).map(|(_, rest)| rest.trim().to_owned());
            found.0 =
                found.0.or_else(|| after("serving http://").and_then(|url| Some(url.strip_suffix("/mcp")?.to_owned())));
            found.1 = found.1.or_else(|| after("the token is in ").map(PathBuf::from));
            said.push_str(&line);
        }
        Self { process, errors, address: found.0.unwrap(), token_file: found.1.unwrap() }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(crate) fn token_file(&self) -> &Path {
        &self.token_file
    }

    pub(crate) fn tokens(&self) -> Vec<String> {
        fs::read_to_string(&self.token_file).unwrap().lines().map(str::to_owned).collect()
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        // As whoever runs the tests, who may.
        assert!(std::process::Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Ends it as a service manager does.
    pub(crate) fn end(mut self) {
        self.signal("TERM");
        let status = self.process.wait().unwrap();
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        assert!(status.success(), "{status}: {said}");
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            drop(self.process.kill());
            drop(self.process.wait());
        }
    }
}

/// An answer, whose body may still be coming.
struct StreamedAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    stream: BufReader<TcpStream>,
    /// Bytes left of a chunk.
    chunk: usize,
    rest: Vec<u8>,
}

impl StreamedAnswer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    fn read(mut stream: BufReader<TcpStream>) -> Self {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let status =
            line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
        let mut headers = Vec::new();
        loop {
            line.clear();
            stream.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Self { status, headers, stream, chunk: 0, rest: Vec::new() }
    }

    /// More of the body; `None` at its end.
    fn more(&mut self) -> Option<Vec<u8>> {
        let is_chunked = self.header("transfer-encoding") == Some("chunked");
        if is_chunked && self.chunk == 0 {
            let mut size = String::new();
            self.stream.read_line(&mut size).unwrap();
            self.chunk = usize::from_str_radix(size.trim(), 16).unwrap_or_else(|error| panic!("{error}: {size:?}"));
            if self.chunk == 0 {
                return None;
            }
        }
        let most = if is_chunked { self.chunk } else { usize::MAX };
        let read = self.stream.fill_buf().unwrap();
        let part = read[..read.len().min(most)].to_vec();
        self.stream.consume(part.len());
        if is_chunked {
            self.chunk -= part.len();
            if self.chunk == 0 {
                self.stream.read_line(&mut String::new()).unwrap();
            }
        }
        (!part.is_empty()).then_some(part)
    }

    /// The next message of a stream of events; `None` at its end.
    fn message(&mut self) -> Option<Value> {
        loop {
            while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let data = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii).filter(|data| !data.is_empty());
                if let Some(data) = data {
                    return Some(serde_json::from_slice(data).unwrap());
                }
            }
            let more = self.more()?;
            self.rest.extend(more);
        }
    }

    fn text(mut self) -> String {
        let mut all = Vec::new();
        while let Some(more) = self.more() {
            all.extend(more);
        }
        String::from_utf8(all).unwrap()
    }
}

/// A request, with a connection of its own.
fn send(address: &str, method: &str, headers: &[(&str, &str)], body: &[u8]) -> StreamedAnswer {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut head = format!("{method} /mcp HTTP/1.1\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    // One that is refused early is not read to its end.
    drop(stream.write_all(body));
    StreamedAnswer::read(BufReader::new(stream))
}

/// A client with a token.
#[derive(Clone)]
struct TokenClient {
    address: String,
    bearer: String,
    session: Option<String>,
    /// Fields about the client in each request of the stateless era.
    meta: Option<Value>,
    last: u64,
    asked: Vec<String>,
    progress: Vec<String>,
}

impl TokenClient {
    fn new(server: &ServerProcess, token: &str) -> Self {
        Self {
            address: server.address.clone(),
            bearer: format!("Bearer {token}"),
            session: None,
            meta: None,
            last: 0,
            asked: Vec::new(),
            progress: Vec::new(),
        }
    }

    /// Client of the eras that begin with `initialize`.
    fn stateful(server: &ServerProcess, token: &str) -> Self {
        let mut client = Self::new(server, token);
        let about = json!({ "name": "test", "version": "1" });
        let can = json!({ "elicitation": {} });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": can, "clientInfo": about });
        let mut answer = client.start("initialize", params);
        let begun = answer.message().unwrap();
        assert_eq!(begun["result"]["serverInfo"]["name"], "callgate", "{begun}");
        client.session = Some(answer.header("mcp-session-id").unwrap().to_owned());
        client.tell(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    /// Client of the era in which each request stands for itself.
    fn stateless(server: &ServerProcess, token: &str) -> Self {
        let mut client = Self::new(server, token);
        let of = |name: &str| format!("io.modelcontextprotocol/{name}");
        client.meta = Some(json!({
            of("protocolVersion"): "2026-07-28",
            of("clientInfo"): { "name": "test", "version": "1" },
            of("clientCapabilities"): { "elicitation": {} },
        }));
        let found = client.request("server/discover", json!({}), "");
        assert!(found["result"]["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")), "{found}");
        client
    }

    fn send(&self, method: &str, more: &[(&str, &str)], body: &[u8]) -> StreamedAnswer {
        let mut headers = vec![("Host", self.address.as_str()), ("Authorization", &self.bearer), ("Accept", ACCEPT)];
        headers.push(("Content-Type", "application/json"));
        headers.extend(self.session.as_deref().map(|session| ("Mcp-Session-Id", session)));
        headers.extend(more);
        send(&self.address, method, &headers, body)
    }

    fn start(&mut self, method: &str, mut params: Value) -> StreamedAnswer {
        self.last += 1;
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let mut more = Vec::new();
        if let Some(meta) = &self.meta {
            params["_meta"] = meta.clone();
            more.extend([("Mcp-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)]);
            if !name.is_empty() {
                more.push(("Mcp-Name", &name));
            }
        }
        let message = json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params });
        self.send("POST", &more, message.to_string().as_bytes())
    }

    /// Sends what has no answer.
    fn tell(&self, message: &Value) {
        assert_eq!(self.send("POST", &[], message.to_string().as_bytes()).status, 202);
    }

    /// The answer to a request. Meanwhile the person says this to what the server asks on the same stream.
    fn request(&mut self, method: &str, params: Value, says: &str) -> Value {
        let mut answer = self.start(method, params);
        assert_eq!(answer.status, 200);
        loop {
            let message = answer.message().unwrap();
            match message["method"].as_str() {
                Some("elicitation/create") => {
                    self.asked.push(message["params"].to_string());
                    let result = json!({ "action": "accept", "content": { "answer": says } });
                    self.tell(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
                }
                Some("notifications/progress") => {
                    self.progress.push(message["params"]["message"].as_str().unwrap_or_default().to_owned());
                }
                Some(_) => {}
                None => {
                    assert_eq!(message["id"], self.last, "{message}");
                    return message;
                }
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: Value, says: &str) -> Value {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": tool } });
        self.request("tools/call", params, says)
    }

    fn bash(&mut self, command: &str, says: &str) -> Value {
        self.call("bash", json!({ "command": command }), says)
    }
}

/// The text of a result that is none of an error.
#[track_caller]
fn text(answer: &Value) -> &str {
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

/// How many `tail`s of this file run.
fn tails(file: &Path) -> usize {
    let file = file.display().to_string();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(b"tail\0") && String::from_utf8_lossy(line).contains(&file)).count()
}

/// A command that runs until it is ended.
fn endless(file: &Path) -> Value {
    let file = file.display();
    json!({ "name": "bash", "arguments": { "command": format!("touch {file}; exec tail -f {file}") } })
}

/// Two tokens, in a file of the user's alone.
fn two_tokens(env: &TestEnv) -> (PathBuf, [String; 2]) {
    let tokens = ["a".repeat(40), "b".repeat(40)];
    let file = env.file("tokens", &format!("# whose\n{}\n\n{}\n", tokens[0], tokens[1]));
    fs::set_permissions(file.text(), fs::Permissions::from_mode(0o600)).unwrap();
    (file.text().into(), tokens)
}

/// Both eras: what may be done is done, what may not is told, the person is asked, and each client's calls are recorded.
#[test]
fn clients_over_http_have_sessions_of_their_own() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("a", "hello\n");
        let secret = env.file("secret", "secret");
        let server = ServerProcess::start(&env, &["--title", "by http"]);
        let mode = fs::metadata(&server.token_file).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let [token] = &server.tokens()[..] else { panic!("one token") };
        assert_eq!(token.len(), 64);

        let mut client = TokenClient::stateful(&server, token);
        let listed = client.request("tools/list", json!({}), "");
        let tools = listed["result"]["tools"].as_array().unwrap();
        assert!(tools.iter().any(|tool| tool["name"] == "read"), "{listed}");
        assert!(text(&client.call("read", json!({ "path": "a" }), "")).starts_with("hello\n"));
        let refused = client.call("read", json!({ "path": secret.text() }), "");
        assert_eq!(refused["result"]["isError"], true, "{refused}");
        assert!(refused["result"]["content"][0]["text"].as_str().unwrap().contains("is denied"), "{refused}");
        let done = client.bash("echo one; echo x > b", "once");
        assert!(text(&done).starts_with("one\n"), "{done}");
        assert!(client.progress.concat().ends_with("one\n"), "{:?}", client.progress);
        assert!(client.asked[0].contains("echo one; echo x > b"), "{:?}", client.asked);
        assert_eq!(fs::read_to_string(env.workspace().join("b")).unwrap(), "x\n");
        let refused = client.bash("echo y > b", "no");
        assert_eq!(refused["result"]["content"][0]["text"], "bash is denied: a person said no");
        assert_eq!(fs::read_to_string(env.workspace().join("b")).unwrap(), "x\n");

        let mut other = TokenClient::stateless(&server, token);
        let listed = other.request("tools/list", json!({}), "");
        assert!(listed["result"]["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "bash"), "{listed}");
        assert!(text(&other.call("read", json!({ "path": "a" }), "")).starts_with("hello\n"));
        let asked = other.bash("echo z > c", "");
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        assert!(!env.workspace().join("c").exists());
        let says = json!({ "question": { "action": "accept", "content": { "answer": "once" } } });
        let again = json!({
            "name": "bash", "arguments": { "command": "echo z > c" },
            "requestState": asked["result"]["requestState"], "inputResponses": says,
        });
        let done = other.request("tools/call", again.clone(), "");
        assert_eq!(done["result"]["structuredContent"]["exit_code"], 0, "{done}");
        assert_eq!(fs::read_to_string(env.workspace().join("c")).unwrap(), "z\n");
        assert_eq!(other.request("tools/call", again, "")["error"]["code"], INVALID);

        // The server knows a session no more that its client has ended.
        assert_eq!(client.send("DELETE", &[], b"").status, 204);
        assert_eq!(client.start("tools/list", json!({})).status, 404);
        let token_file = server.token_file.clone();
        server.end();
        assert!(!token_file.exists());
        secret.assert_contents("secret");
        let all = sessions(&env);
        let mut calls: Vec<u64> = all.iter().map(|session| session["calls"].as_u64().unwrap()).collect();
        calls.sort_unstable();
        assert_eq!(calls, [2, 4], "{all:?}");
        assert!(all.iter().all(|session| session["title"] == "by http" && session["is_open"] == false), "{all:?}");
    });
}

/// F17: who has no token, or comes by another name or from another page, is not heard.
#[test]
fn f17_without_the_token_or_from_elsewhere_nothing_is_done() {
    let env = TestEnv::new(HERE);
    let server = ServerProcess::start(&env, &["--mode", "yolo"]);
    let (address, token) = (server.address.clone(), server.tokens().remove(0));
    let port = address.rsplit(':').next().unwrap().to_owned();
    let good = TokenClient::stateful(&server, &token);
    let params = json!({ "name": "bash", "arguments": { "command": "touch marker" } });
    let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }).to_string();
    let attempt = |host: &str, bearer: Option<&str>, origin: Option<&str>| {
        let mut headers = vec![("Host", host), ("Accept", ACCEPT), ("Content-Type", "application/json")];
        headers.push(("Mcp-Session-Id", good.session.as_deref().unwrap()));
        headers.extend(bearer.map(|bearer| ("Authorization", bearer)));
        headers.extend(origin.map(|origin| ("Origin", origin)));
        send(&address, "POST", &headers, message.as_bytes())
    };
    let bearer = format!("Bearer {token}");
    for wrong in [
        None,
        Some("Bearer "),
        Some(&*token),
        Some("Basic eDp5"),
        Some(&bearer[..bearer.len() - 1]),
        Some(&*format!("{bearer}0")),
    ] {
        let answer = attempt(&address, wrong, None);
        assert_eq!(answer.status, 401, "{wrong:?}");
        assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"));
        let told = answer.text();
        assert!(!told.contains(&token) && !told.contains("state"), "{told}");
    }
    // One of whose two addresses it holds is a name of this server's for some clients, and another's for others.
    let name = format!("localhost:{port}");
    for wrong in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1", "127.0.0.1:1", &name] {
        assert_eq!(attempt(wrong, Some(&bearer), None).status, 403, "{wrong}");
    }
    for wrong in ["http://evil.example", "null", "http://127.0.0.1:1", &format!("https://{address}")] {
        assert_eq!(attempt(&address, Some(&bearer), Some(wrong)).status, 403, "{wrong}");
    }
    assert!(!env.workspace().join("marker").exists());
    // The control.
    for (host, origin) in [(address.clone(), None), (address.clone(), Some(format!("http://{address}")))] {
        let mut answer = attempt(&host, Some(&bearer), origin.as_deref());
        assert_eq!(answer.status, 200);
        text(&answer.message().unwrap());
        fs::remove_file(env.workspace().join("marker")).unwrap();
    }
    // Nor is the token where others see it.
    let pid = server.process.id();
    for file in ["cmdline", "environ"] {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains(&token), "{file}");
    }
    server.end();
}

/// F17: a session, a question and an approval are of the client that they came from.
#[test]
fn f17_two_clients_are_kept_apart() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (file, [one, two]) = two_tokens(&env);
        let server = ServerProcess::start(&env, &["--token-file", &file.display().to_string()]);
        let mut first = TokenClient::stateful(&server, &one);
        let mut second = TokenClient::stateful(&server, &two);
        // By the other's id.
        let mut thief = TokenClient { session: first.session.clone(), ..second.clone() };
        assert_eq!(thief.start("tools/list", json!({})).status, 404);
        assert_eq!(thief.send("GET", &[], b"").status, 404);
        assert_eq!(thief.send("DELETE", &[], b"").status, 404);
        let mut guess =
            TokenClient { session: Some("00000000-0000-4000-8000-000000000000".to_owned()), ..first.clone() };
        assert_eq!(guess.start("tools/list", json!({})).status, 404);
        // What one approves for always, another client asks about, whatever its token.
        text(&first.bash("echo x >> always", "always"));
        text(&first.bash("echo x >> always", "no"));
        let mut third = TokenClient::stateful(&server, &one);
        for other in [&mut second, &mut third] {
            assert_eq!(other.bash("echo x >> always", "no")["result"]["isError"], true);
        }
        assert_eq!(fs::read_to_string(env.workspace().join("always")).unwrap(), "x\nx\n");
        // What one has in hand is nothing to another.
        text(&first.call("todo", json!({ "todos": [{ "content": "mine", "status": "pending" }] }), "once"));
        // A question of the era without sessions.
        let (mut first, mut second) = (TokenClient::stateless(&server, &one), TokenClient::stateless(&server, &two));
        let asked = first.bash("touch asked", "");
        let says = json!({ "question": { "action": "accept", "content": { "answer": "once" } } });
        let answer = json!({
            "name": "bash", "arguments": { "command": "touch asked" },
            "requestState": asked["result"]["requestState"], "inputResponses": says,
        });
        assert_eq!(second.request("tools/call", answer.clone(), "")["error"]["code"], INVALID);
        assert!(!env.workspace().join("asked").exists());
        text(&first.request("tools/call", answer, ""));
        assert!(env.workspace().join("asked").exists());
        server.end();
        let all = sessions(&env);
        assert_eq!(all.len(), 5, "{all:?}");
        let with_todos = all.iter().filter(|session| session["todos"].to_string().contains("mine")).count();
        assert_eq!(with_todos, 1, "{all:?}");
    });
}

/// A client that goes away ends its calls, and the session goes on; a signal to the server ends everything.
#[test]
fn who_goes_away_ends_what_runs() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let server = ServerProcess::start(&env, &["--mode", "yolo"]);
        let token = server.tokens().remove(0);
        let file = env.workspace().join("marker");
        let stays = env.workspace().join("stays");
        let mut steady = TokenClient::stateful(&server, &token);
        let _running = steady.start("tools/call", endless(&stays));
        eventually("the other's call runs", || tails(&stays) == 1);
        for mut client in [TokenClient::stateful(&server, &token), TokenClient::stateless(&server, &token)] {
            // In the era without sessions nothing comes before the answer.
            let stream = match client.session {
                Some(_) => client.start("tools/call", endless(&file)).stream.into_inner(),
                None => in_flight(&client, &endless(&file)),
            };
            eventually("the call runs", || tails(&file) == 1);
            stream.shutdown(Shutdown::Both).unwrap();
            eventually("the call has ended", || tails(&file) == 0);
            assert_eq!(tails(&stays), 1);
            assert!(text(&client.bash("echo on", "")).starts_with("on\n"));
        }
        // By its client, who ends the whole session.
        let mut client = TokenClient::stateful(&server, &token);
        let _stream = client.start("tools/call", endless(&file));
        eventually("the call runs", || tails(&file) == 1);
        assert_eq!(client.send("DELETE", &[], b"").status, 204);
        eventually("the call has ended", || tails(&file) == 0);
        assert_eq!(tails(&stays), 1);
        server.end();
        assert_eq!(tails(&stays), 0);
        assert!(sessions(&env).iter().all(|session| session["is_open"] == false));
    });
}

/// A call of the era without sessions that has been sent and not answered.
fn in_flight(client: &TokenClient, params: &Value) -> TcpStream {
    let mut params = params.clone();
    params["_meta"] = client.meta.clone().unwrap();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let mut stream = TcpStream::connect(&client.address).unwrap();
    let (host, bearer, length) = (&client.address, &client.bearer, body.len());
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: {bearer}\r\nAccept: {ACCEPT}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nMcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: bash\r\n\r\n{body}"
    )
    .unwrap();
    stream
}

/// Nobody elsewhere is served.
#[test]
fn only_this_machine_is_served() {
    let env = TestEnv::new(HERE);
    for other in ["0.0.0.0:0", "[::]:0", "10.0.0.1:8931", "[::ffff:127.0.0.1]:0", "8931", "localhost", "example.com:80"]
    {
        let ended = callgate(&env, &["mcp", "--http", other]);
        assert_eq!(ended.status.code(), Some(64), "{other}: {}", ended.stderr);
    }
    let told = callgate(&env, &["mcp", "--http", "0.0.0.0:8931"]).stderr;
    assert!(told.contains("ssh -L 8931:127.0.0.1:8931"), "{told}");
    for address in ["127.0.0.1:0", "127.0.0.2:0", "localhost:0"] {
        let server = ServerProcess::at(&env, address, &[]);
        TokenClient::stateful(&server, &server.tokens()[0]);
        server.end();
    }
}

/// A message that is too large is refused, and what follows is served.
#[test]
fn what_is_too_large_is_refused() {
    let env = TestEnv::new(HERE);
    env.workspace_file("a", "hello\n");
    let server = ServerProcess::start(&env, &[]);
    let token = server.tokens().remove(0);
    let mut client = TokenClient::stateful(&server, &token);
    let message = |bytes: usize| {
        let head = r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"x":""#;
        let mut message = head.as_bytes().to_vec();
        message.resize(bytes - 3, b'x');
        message.extend(br#""}}"#);
        message
    };
    assert_eq!(client.send("POST", &[], &message(MESSAGE_MAX)).status, 202);
    assert_eq!(client.send("POST", &[], &message(MESSAGE_MAX + 1)).status, 413);
    // It need not say so before.
    let mut stream = TcpStream::connect(&client.address).unwrap();
    let (host, bearer) = (&client.address, &client.bearer);
    let head =
        format!("POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: {bearer}\r\nTransfer-Encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let body = message(MESSAGE_MAX + 1);
    drop(stream.write_all(&[format!("{:x}\r\n", body.len()).as_bytes(), &body].concat()));
    assert_eq!(StreamedAnswer::read(BufReader::new(stream)).status, 413);
    let large = "x".repeat(1 << 20);
    assert_eq!(client.send("POST", &[("X-Large", &large)], b"{}").status, 431);
    let many = vec![("X-Many", "x"); 100];
    assert_eq!(client.send("POST", &many, b"{}").status, 431);
    for bad in ["", "nothing", "[]", "{}", "7", &format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))] {
        let status = client.send("POST", &[], bad.as_bytes()).status;
        assert!((400..500).contains(&status), "{status}: {bad:.20}");
    }
    assert_eq!(client.send("PUT", &[], b"{}").status, 405);
    assert!(text(&client.call("read", json!({ "path": "a" }), "")).starts_with("hello"));
    server.end();
}

/// There are no more sessions at once than 64; one that ends makes room.
#[test]
fn sessions_over_http_are_bounded() {
    let env = TestEnv::new(HERE);
    let server = ServerProcess::start(&env, &[]);
    let token = server.tokens().remove(0);
    let all: Vec<TokenClient> = (0..64).map(|_| TokenClient::stateful(&server, &token)).collect();
    let begin = || {
        let about = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about });
        TokenClient::new(&server, &token).start("initialize", params).status
    };
    assert_eq!(begin(), 503);
    all[0].send("DELETE", &[], b"");
    eventually("there is room for one", || begin() == 200);
    assert_eq!(begin(), 503);
    server.end();
}

/// A client that makes no request for a while loses its session; one whose call runs does not.
#[test]
fn an_idle_session_is_closed() {
    let env = TestEnv::new(HERE);
    let server = ServerProcess::start(&env, &["--mode", "yolo", "--idle-timeout", "100ms"]);
    let token = server.tokens().remove(0);
    let file = env.workspace().join("marker");
    let busy = TokenClient::stateless(&server, &token);
    let _stream = in_flight(&busy, &endless(&file));
    eventually("the call runs", || tails(&file) == 1);
    let params =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    assert_eq!(TokenClient::new(&server, &token).start("initialize", params).status, 200);
    let open = || sessions(&env).iter().filter(|session| session["is_open"] == true).count();
    eventually("the later one is closed", || open() == 1);
    assert_eq!(tails(&file), 1);
    server.end();
}

/// No session reaches the file with the tokens, and nobody else does.
#[test]
fn no_session_has_the_token() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let server = ServerProcess::start(&env, &["--mode", "yolo"]);
        let (token, file) = (server.tokens().remove(0), server.token_file.display().to_string());
        let mut client = TokenClient::stateful(&server, &token);
        let done = client.bash(&format!("cat {file} 2>&1"), "");
        // What a namespace hides, a rule refuses.
        let errno = target.by_strength("No such file or directory", "Permission denied");
        assert!(text(&done).starts_with(&format!("cat: {file}: {errno}\n")), "{done}");
        assert!(!done.to_string().contains(&token), "{done}");
        assert_eq!(client.call("read", json!({ "path": file }), "")["result"]["isError"], true);
        assert!(fs::read_to_string(&file).unwrap().contains(&token));
        server.end();

        // One that a session could read is refused, and not made.
        let inside = env.workspace().join("token").display().to_string();
        let ended = callgate(&env, &["mcp", "--http", "127.0.0.1:0", "--token-file", &inside]);
        assert_eq!(ended.status.code(), Some(64), "{}", ended.stderr);
        assert!(ended.stderr.contains("is granted to sessions"), "{}", ended.stderr);
        assert_eq!(fs::read_dir(env.workspace()).unwrap().count(), 0);
        // One that others can read, or that holds what can be guessed, is refused.
        let open = env.file("open", &format!("{}\n", "x".repeat(40)));
        let short = env.file("short", "secret\n");
        fs::set_permissions(short.text(), fs::Permissions::from_mode(0o600)).unwrap();
        for unfit in [open.text(), short.text()] {
            let ended = callgate(&env, &["mcp", "--http", "127.0.0.1:0", "--token-file", unfit]);
            assert_eq!(ended.status.code(), Some(65), "{unfit}: {}", ended.stderr);
        }
        // The control: one that is not there is made, and stays.
        let kept = env.outside().join("kept");
        let server = ServerProcess::start(&env, &["--token-file", &kept.display().to_string()]);
        let token = server.tokens().remove(0);
        server.end();
        let server = ServerProcess::start(&env, &["--token-file", &kept.display().to_string()]);
        TokenClient::stateful(&server, &token);
        server.end();
    });
}

/// Sessions whose calls may reach a host are opened by the running server as others are.
#[test]
fn sessions_with_a_network_are_served_over_http() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("a", "hello\n");
        let server = ServerProcess::start(&env, &["--net", "granted.example"]);
        let token = server.tokens().remove(0);
        for mut client in [
            TokenClient::stateful(&server, &token),
            TokenClient::stateful(&server, &token),
            TokenClient::stateless(&server, &token),
        ] {
            assert!(text(&client.call("read", json!({ "path": "a" }), "")).starts_with("hello\n"));
        }
        server.end();
    });
}

/// F17: `localhost` is two addresses, and a client may take either. The server has both, or does not start.
#[test]
fn f17_nobody_else_answers_at_localhost() {
    if TcpListener::bind("[::1]:0").is_err() {
        return skip("ipv6", "no loopback address");
    }
    let env = TestEnv::new(HERE);
    env.workspace_file("a", "hello\n");
    let server = ServerProcess::at(&env, "localhost:0", &[]);
    let (token, port) = (server.tokens().remove(0), server.address.rsplit(':').next().unwrap().to_owned());
    for address in ["127.0.0.1", "[::1]"].map(|ip| format!("{ip}:{port}")) {
        let taken = TcpListener::bind(&address).map(drop).map_err(|error| error.kind());
        assert_eq!(taken, Err(std::io::ErrorKind::AddrInUse), "{address}");
        let mut client = TokenClient { address: address.clone(), ..TokenClient::new(&server, &token) };
        client.meta = TokenClient::stateless(&server, &token).meta;
        assert!(text(&client.call("read", json!({ "path": "a" }), "")).starts_with("hello\n"), "{address}");
        let headers = [("Host", &*format!("localhost:{port}")), ("Authorization", &client.bearer)];
        // It is heard by that name, and then asked for more.
        assert_eq!(send(&address, "PUT", &headers, b"").status, 405, "{address}");
    }
    server.end();

    // Somebody has the other one.
    let (both, other) = loop {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        if let Ok(other) = TcpListener::bind(("::1", port)) {
            break (first, other);
        }
    };
    let port = other.local_addr().unwrap().port();
    drop(both);
    let ended = callgate(&env, &["mcp", "--http", &format!("localhost:{port}")]);
    assert_ne!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("listen on [::1]:{port}")), "{}", ended.stderr);
}

/// E1, S1-18: whether a project is trusted is looked up for each session, and not when the server is started alone.
#[test]
fn e1_a_session_over_http_is_opened_only_as_long_as_the_project_is_trusted() {
    let env = TestEnv::new(HERE);
    let manifest = |more: &str| {
        let text = format!(
            "{more}approvals = \"project\"\n[requires.fs]\nread = [\"{{workspace}}/**\"]\nwrite = [\"{{workspace}}/**\"]\n[[requires.shell]]\ncmd = \"*\"\n"
        );
        fs::write(env.workspace().join("callgate.toml"), text).unwrap();
        env.give(&env.workspace().join("callgate.toml"));
    };
    let trust = |words: &[&str]| {
        let dir = env.workspace().display().to_string();
        let ended = callgate(&env, &[&["trust"], words, &[&dir]].concat());
        assert!(ended.status.success(), "{}", ended.stderr);
    };
    let refused = |server: &ServerProcess, token: &str| {
        let about = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about });
        let answer = TokenClient::new(server, token).start("initialize", params);
        assert_eq!(answer.status, 500);
        let told = answer.text();
        assert!(told.contains("not trusted as it was") && told.contains("callgate trust"), "{told}");
    };
    manifest("");
    trust(&[]);
    let server = ServerProcess::start(&env, &[]);
    let token = server.tokens().remove(0);
    let mut first = TokenClient::stateful(&server, &token);
    text(&first.bash("echo x >> kept", "always"));
    // The control: what was approved of for the project counts in the next session.
    let mut second = TokenClient::stateful(&server, &token);
    text(&second.bash("echo x >> kept", "no"));
    assert_eq!(fs::read_to_string(env.workspace().join("kept")).unwrap(), "x\nx\n");
    trust(&["--revoke"]);
    refused(&server, &token);
    // Trusted again, without what was approved of before.
    trust(&[]);
    let mut third = TokenClient::stateful(&server, &token);
    assert_eq!(third.bash("echo x >> kept", "no")["result"]["isError"], true);
    assert_eq!(fs::read_to_string(env.workspace().join("kept")).unwrap(), "x\nx\n");
    // Another manifest, and then one that was trusted since.
    manifest("headless = \"deny\"\n");
    refused(&server, &token);
    trust(&[]);
    refused(&server, &token);
    server.end();

    trust(&["--once"]);
    let server = ServerProcess::start(&env, &[]);
    let token = server.tokens().remove(0);
    TokenClient::stateful(&server, &token);
    refused(&server, &token);
    server.end();
}

/// Connections that show no token keep out nobody who has one.
#[test]
fn who_has_no_token_keeps_nobody_out() {
    let env = TestEnv::new(HERE);
    let server = ServerProcess::start(&env, &[]);
    let token = server.tokens().remove(0);
    let silent: Vec<TcpStream> = (0..129).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    let mut client = TokenClient::stateful(&server, &token);
    assert_eq!(client.request("ping", json!({}), "")["result"], json!({}));
    // The oldest made room, and those that came last have not even been sent away.
    let is_open = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!(!is_open(&silent[0]));
    assert!(is_open(&silent[100]));
    server.end();
}

/// A holder of one token does not take all connections from the holder of another.
#[test]
fn one_token_does_not_take_all_connections() {
    let env = TestEnv::new(HERE);
    let (file, [one, two]) = two_tokens(&env);
    let server = ServerProcess::start(&env, &["--token-file", &file.display().to_string()]);
    let mut other = TokenClient::stateful(&server, &two);
    let all: Vec<TokenClient> = (0..4).map(|_| TokenClient::stateful(&server, &one)).collect();
    let mut open: Vec<StreamedAnswer> = Vec::new();
    // Half of those that there are for 64 sessions.
    let refused = (0..200).find(|number: &usize| {
        let answer = all[number % all.len()].send("GET", &[], b"");
        let status = answer.status;
        open.push(answer);
        assert!(matches!(status, 200 | 503), "{status}");
        status == 503
    });
    assert!(refused.is_some_and(|number| number <= 128), "{refused:?}");
    assert_eq!(other.request("ping", json!({}), "")["result"], json!({}));
    server.end();
}

/// A message that would take far more memory than its text is refused before it is parsed, and large messages have a room together.
#[test]
fn large_messages_are_bounded_together() {
    let env = TestEnv::new(HERE);
    env.workspace_file("a", "hello\n");
    let server = ServerProcess::start(&env, &[]);
    let token = server.tokens().remove(0);
    let mut client = TokenClient::stateful(&server, &token);
    let message = |values: usize| {
        let list = "[],".repeat(values);
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{"x":[{list}0]}}}}"#)
    };
    assert_eq!(client.send("POST", &[], message(49_000).as_bytes()).status, 202);
    assert_eq!(client.send("POST", &[], message(50_000).as_bytes()).status, 413);
    // Messages that do not come hold what they said that they would take.
    let waiting = || {
        let mut stream = TcpStream::connect(&client.address).unwrap();
        let (host, bearer) = (&client.address, &client.bearer);
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: {bearer}\r\nContent-Length: {MESSAGE_MAX}\r\n"
        );
        write!(stream, "{head}Expect: 100-continue\r\n\r\n").unwrap();
        // The server wants the rest, so there is room for it.
        let mut wanted = [0; 25];
        stream.read_exact(&mut wanted).unwrap();
        assert_eq!(wanted, *b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    };
    let mut all: Vec<TcpStream> = (0..8).map(|_| waiting()).collect();
    let large = format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{"x":"{}"}}}}"#, "x".repeat(1 << 20));
    assert_eq!(client.send("POST", &[], large.as_bytes()).status, 503);
    assert!(text(&client.call("read", json!({ "path": "a" }), "")).starts_with("hello"));
    all.pop();
    eventually("there is room", || client.send("POST", &[], large.as_bytes()).status == 202);
    server.end();
}

/// A message that begins no session opens none.
#[test]
fn what_is_no_initialize_opens_no_session() {
    let env = TestEnv::new(HERE);
    let server = ServerProcess::start(&env, &[]);
    let client = TokenClient::new(&server, &server.tokens()[0]);
    let before = sessions(&env).len();
    for bad in [
        r#"[1,"initialize",null]"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#,
        r#"{"jsonrpc":"2.0","method":"initialize","params":{}}"#,
    ] {
        // The first session is opened with the server.
        for _ in 0..2 {
            assert_eq!(client.send("POST", &[], bad.as_bytes()).status, 400, "{bad}");
        }
    }
    assert_eq!(sessions(&env).len(), before);
    TokenClient::stateful(&server, &server.tokens()[0]);
    TokenClient::stateful(&server, &server.tokens()[0]);
    assert_eq!(sessions(&env).len(), before + 1);
    server.end();
}

/// A client that goes away ends its call, whatever it has sent behind it or asked to go on with.
#[test]
fn who_leaves_something_behind_ends_what_runs() {
    let env = TestEnv::new(HERE);
    let server = ServerProcess::start(&env, &["--mode", "yolo"]);
    let token = server.tokens().remove(0);
    let file = env.workspace().join("marker");
    // A byte of another request, which is not read before the first one is answered.
    let client = TokenClient::stateless(&server, &token);
    let mut stream = in_flight(&client, &endless(&file));
    stream.write_all(b"G").unwrap();
    eventually("the call runs", || tails(&file) == 1);
    drop(stream);
    eventually("the call has ended", || tails(&file) == 0);
    // The stream of a call, which another request asks for.
    let mut client = TokenClient::stateful(&server, &token);
    let call = client.start("tools/call", endless(&file));
    eventually("the call runs", || tails(&file) == 1);
    let other = client.send("GET", &[("Last-Event-ID", "0/0")], b"");
    assert_eq!(other.status, 200);
    drop((call, other));
    eventually("the call has ended", || tails(&file) == 0);
    server.end();
}
