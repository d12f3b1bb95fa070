//! `callgate mcp`: a client of the Model Context Protocol does its work by the tools of a session, in both eras of the protocol, and
//! its person is asked.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, Target, TestEnv, User, eventually, matrix};
use serde_json::{Value, json};

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };
/// Invalid params (JSON-RPC).
const INVALID: i64 = -32602;

/// Answer of a person at the client.
#[derive(Clone, Copy)]
pub(crate) enum PersonAnswer {
    /// The client has no way to ask.
    Nobody,
    Says(&'static str),
    Dismisses,
}

/// A client, and the server that it has started.
pub(crate) struct StdioClient {
    pub(crate) server: Child,
    pub(crate) to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    last: u64,
    /// Fields about the client in each request of the stateless era.
    meta: Option<Value>,
    pub(crate) asked: Vec<String>,
    progress: Vec<String>,
}

fn state(env: &TestEnv) -> PathBuf {
    env.outside().join("state")
}

pub(crate) fn user(env: &TestEnv) -> ProgramRunner {
    env.weakened().variable("XDG_STATE_HOME", &state(env).display().to_string())
}

pub(crate) fn callgate(env: &TestEnv, words: &[&str]) -> ProgramOutcome {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    user(env).run(&[&[binary.as_str()], words].concat())
}

impl StdioClient {
    fn start(env: &TestEnv, words: &[&str]) -> Self {
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let words = [&[binary.as_str(), "mcp"], words].concat();
        Self::of(user(env).command(&words))
    }

    /// Client of a server that this starts.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (server.stdin.take(), BufReader::new(server.stdout.take().unwrap()));
        Self { server, to, from, last: 0, meta: None, asked: Vec::new(), progress: Vec::new() }
    }

    /// Client of the eras that begin with `initialize`.
    pub(crate) fn stateful(env: &TestEnv, words: &[&str], person: PersonAnswer) -> Self {
        let mut client = Self::start(env, words);
        let begun = client.initialize(person);
        assert_eq!(begun["result"]["serverInfo"]["name"], "callgate", "{begun}");
        assert_eq!(begun["result"]["capabilities"], json!({ "tools": { "listChanged": true } }), "{begun}");
        client
    }

    /// Begins the protocol. Returns what the server says of itself.
    pub(crate) fn initialize(&mut self, person: PersonAnswer) -> Value {
        let can = match person {
            PersonAnswer::Nobody => json!({}),
            PersonAnswer::Says(_) | PersonAnswer::Dismisses => json!({ "elicitation": {} }),
        };
        let about = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": can, "clientInfo": about });
        let begun = self.request("initialize", params, person);
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        begun
    }

    /// Client of the era in which each request stands for itself.
    fn stateless(env: &TestEnv, words: &[&str]) -> Self {
        let mut client = Self::start(env, words);
        let of = |name: &str| format!("io.modelcontextprotocol/{name}");
        client.meta = Some(json!({
            of("protocolVersion"): "2026-07-28",
            of("clientInfo"): { "name": "test", "version": "1" },
            of("clientCapabilities"): { "elicitation": {} },
        }));
        let found = client.request("server/discover", json!({}), PersonAnswer::Nobody);
        let versions = found["result"]["supportedVersions"].as_array().unwrap();
        assert!(versions.contains(&json!("2026-07-28")), "{found}");
        // There nothing announces that the tools have changed.
        assert_eq!(found["result"]["capabilities"], json!({ "tools": {} }), "{found}");
        client
    }

    pub(crate) fn say(&mut self, message: &Value) {
        self.write(&message.to_string());
    }

    fn write(&mut self, line: &str) {
        let to = self.to.as_mut().unwrap();
        writeln!(to, "{line}").and_then(|()| to.flush()).unwrap();
    }

    pub(crate) fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    pub(crate) fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.last += 1;
        if let Some(meta) = &self.meta {
            params["_meta"] = meta.clone();
        }
        let id = self.last;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// The answer to a request. Meanwhile the person is asked what the server asks.
    pub(crate) fn answer(&mut self, id: u64, person: PersonAnswer) -> Value {
        loop {
            let message = self.hear();
            match message["method"].as_str() {
                Some("elicitation/create") => {
                    let params = &message["params"];
                    let fields: Vec<String> =
                        params["requestedSchema"]["properties"].as_object().unwrap().keys().cloned().collect();
                    self.asked.push(params.to_string());
                    let result = match person {
                        PersonAnswer::Says(text) => {
                            let content: Value = fields.iter().map(|field| (field.clone(), json!(text))).collect();
                            json!({ "action": "accept", "content": content })
                        }
                        PersonAnswer::Dismisses => json!({ "action": "decline" }),
                        PersonAnswer::Nobody => panic!("nobody can be asked: {message}"),
                    };
                    self.say(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
                }
                Some("notifications/progress") => {
                    self.progress.push(message["params"]["message"].as_str().unwrap_or_default().to_owned());
                }
                Some(_) => {}
                None if message["id"] == id => return message,
                None => panic!("an answer to nothing: {message}"),
            }
        }
    }

    pub(crate) fn request(&mut self, method: &str, params: Value, person: PersonAnswer) -> Value {
        let id = self.send(method, params);
        self.answer(id, person)
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value, person: PersonAnswer) -> Value {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": tool } });
        self.request("tools/call", params, person)
    }

    pub(crate) fn close(mut self) {
        drop(self.to.take());
        assert!(self.server.wait().unwrap().success());
    }
}

/// The text of a result that is none of an error.
#[track_caller]
pub(crate) fn text(answer: &Value) -> &str {
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

/// The text of a result that tells what is wrong.
#[track_caller]
pub(crate) fn wrong(answer: &Value) -> &str {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

/// A whole session in the eras that begin with `initialize`: what may be done is done, what may not is told, the person is asked, and
/// all of it is recorded.
#[test]
fn a_client_that_initializes_does_a_session() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let a = env.workspace_file("a", "hello\n");
        let secret = env.file("secret", "secret");
        let mut client = StdioClient::stateful(&env, &["--title", "by mcp"], PersonAnswer::Says("once"));
        let listed = client.request("tools/list", json!({}), PersonAnswer::Nobody);
        let tools = listed["result"]["tools"].as_array().unwrap();
        let read = tools.iter().find(|tool| tool["name"] == "read").unwrap();
        assert_eq!(read["annotations"]["readOnlyHint"], true, "{read}");
        assert!(read["inputSchema"]["properties"]["path"].is_object(), "{read}");
        assert!(tools.iter().any(|tool| tool["name"] == "bash" && tool["annotations"]["destructiveHint"] == true));

        let answer = client.call("read", json!({ "path": "a" }), PersonAnswer::Nobody);
        assert!(text(&answer).starts_with("hello\n"), "{answer}");
        assert_eq!(answer["result"]["structuredContent"]["content"], "hello\n");
        assert!(answer["result"]["_meta"]["callgate/envelope"]["metadata"]["enforced"].is_array(), "{answer}");
        let answer = client.call("read", json!({ "path": secret.text() }), PersonAnswer::Nobody);
        assert!(wrong(&answer).contains("is denied"), "{answer}");
        let shell = json!({ "command": format!("cat {}", secret.text()) });
        let answer = client.call("bash", shell, PersonAnswer::Says("once"));
        assert_ne!(answer["result"]["structuredContent"]["exit_code"], 0, "{answer}");
        assert!(!text(&answer).starts_with("secret"), "{answer}");

        // Output comes while it runs.
        let answer =
            client.call("bash", json!({ "command": "echo one; cat a; echo x > b" }), PersonAnswer::Says("once"));
        assert!(text(&answer).starts_with("one\nhello\n"), "{answer}");
        assert!(client.progress.concat().ends_with("one\nhello\n"), "{:?}", client.progress);
        assert_eq!(fs::read_to_string(env.workspace().join("b")).unwrap(), "x\n");
        let asked = client.asked.last().unwrap().clone();
        assert!(asked.contains("echo one; cat a; echo x > b") && asked.contains("no rule allows it"), "{asked}");

        for person in [PersonAnswer::Says("no"), PersonAnswer::Says("whatever"), PersonAnswer::Dismisses] {
            let answer = client.call("bash", json!({ "command": "echo y > b" }), person);
            assert_eq!(wrong(&answer), "bash is denied: a person said no");
        }
        assert_eq!(fs::read_to_string(env.workspace().join("b")).unwrap(), "x\n");
        // What was approved for always is asked once.
        let count = client.asked.len();
        for _ in 0..2 {
            text(&client.call("bash", json!({ "command": "echo always" }), PersonAnswer::Says("always")));
        }
        assert_eq!(client.asked.len(), count + 1);

        let question =
            json!({ "questions": [{ "question": "Which?", "options": [{ "label": "A" }, { "label": "B" }] }] });
        let answer = client.call("question", question, PersonAnswer::Says("2. B"));
        assert_eq!(answer["result"]["structuredContent"], json!({ "answers": [["B"]] }), "{answer}");
        let answer = client.call("no-such", json!({}), PersonAnswer::Nobody);
        assert_eq!(answer["error"]["code"], INVALID, "{answer}");
        client.close();
        a.assert_contents("hello\n");
        secret.assert_contents("secret");

        let sessions: Value = serde_json::from_str(&callgate(&env, &["session", "list", "--json"]).stdout).unwrap();
        assert_eq!(sessions[0]["title"], "by mcp", "{sessions}");
        let id = sessions[0]["id"].as_str().unwrap();
        let shown: Value = serde_json::from_str(&callgate(&env, &["session", "show", id, "--json"]).stdout).unwrap();
        let calls = shown["calls"].as_array().unwrap_or_else(|| panic!("{shown}"));
        assert!(calls.len() >= 9, "{shown}");
        // And it goes on.
        let mut client = StdioClient::stateful(&env, &["--session", id], PersonAnswer::Says("no"));
        text(&client.call("bash", json!({ "command": "echo always" }), PersonAnswer::Nobody));
        client.close();
    });
}

/// Where each request stands for itself, a result says what is to be asked. The answer is for the call that asked, and for once.
#[test]
fn f17_an_answer_is_for_the_call_that_asked_and_for_once() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let mut client = StdioClient::stateless(&env, &[]);
        let call = |client: &mut StdioClient, command: &str, more: Value| {
            let mut params = json!({ "name": "bash", "arguments": { "command": command } });
            params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            client.request("tools/call", params, PersonAnswer::Nobody)
        };
        let says = |word: &str| json!({ "question": { "action": "accept", "content": { "answer": word } } });
        let asked = call(&mut client, "echo x > b", json!({}));
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        let form = &asked["result"]["inputRequests"]["question"];
        assert!(form["params"]["message"].as_str().unwrap().contains("echo x > b"), "{asked}");
        let state = asked["result"]["requestState"].clone();
        for (command, answer) in [
            ("echo y > c", json!({ "requestState": state, "inputResponses": says("once") })),
            ("echo x > b", json!({ "requestState": "0".repeat(32), "inputResponses": says("once") })),
            ("echo x > b", json!({ "requestState": state, "inputResponses": {} })),
            ("echo x > b", json!({ "requestState": state })),
        ] {
            let refused = call(&mut client, command, answer.clone());
            assert_eq!(refused["error"]["code"], INVALID, "{answer}: {refused}");
        }
        assert_eq!(fs::read_dir(env.workspace()).unwrap().count(), 0);
        let done = call(&mut client, "echo x > b", json!({ "requestState": state, "inputResponses": says("once") }));
        assert_eq!(done["result"]["structuredContent"]["exit_code"], 0, "{done}");
        assert_eq!(fs::read_to_string(env.workspace().join("b")).unwrap(), "x\n");
        let again = call(&mut client, "echo x > b", json!({ "requestState": state, "inputResponses": says("once") }));
        assert_eq!(again["error"]["code"], INVALID, "{again}");
        // A person has one question before them at a time.
        let other = call(&mut client, "echo x > b", json!({}))["result"]["requestState"].clone();
        assert_ne!(state, other);
        let no = call(&mut client, "echo x > b", json!({ "requestState": other, "inputResponses": says("no") }));
        assert_eq!(wrong(&no), "bash is denied: a person said no");
        client.close();
    });
}

/// S0-57: a client that cannot ask is nobody.
#[test]
fn s0_57_a_client_that_cannot_ask_is_nobody() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let mut client = StdioClient::stateful(&env, &[], PersonAnswer::Nobody);
        let answer = client.call("bash", json!({ "command": "echo x > b" }), PersonAnswer::Nobody);
        assert!(wrong(&answer).contains("there is nobody to ask"), "{answer}");
        assert!(!env.workspace().join("b").exists());
        client.close();
        // The control.
        let mut client = StdioClient::stateful(&env, &["--mode", "yolo"], PersonAnswer::Nobody);
        text(&client.call("bash", json!({ "command": "echo x > b" }), PersonAnswer::Nobody));
        assert!(env.workspace().join("b").exists());
        client.close();
    });
}

/// E8: a person at a client sees what one at a terminal sees: all of the arguments, and what a model wrote behind a margin.
#[test]
fn e8_a_question_shows_all_of_a_call_and_forges_nothing() {
    let env = TestEnv::new(HERE);
    let mut client = StdioClient::stateful(&env, &[], PersonAnswer::Says("no"));
    let forged = "echo x > b\nasked because:\r\nthe rule 'all' allows it\u{202e}\u{61c}";
    let far = format!("{forged}\n{}; touch hidden", " ".repeat(3000));
    for command in [forged, &far] {
        let call = json!({ "command": command, "working_dir": env.workspace().display().to_string() });
        wrong(&client.call("bash", call, PersonAnswer::Says("no")));
        let asked: Value = serde_json::from_str(client.asked.last().unwrap()).unwrap();
        let message = asked["message"].as_str().unwrap();
        assert!(message.starts_with("callgate: the tool `bash` asks to be run\n"), "{message}");
        assert_eq!(message.matches("\nasked because:\n").count(), 1, "{message}");
        assert!(
            message.contains("  | asked because:\\r\n  | the rule") && message.contains("  | runs in "),
            "{message}"
        );
        assert!(!message.contains(['\r', '\u{202e}', '\u{61c}']), "{message}");
        assert!(message.contains("\"always\" allows exactly this, for this session"), "{message}");
        assert!(message.contains("; touch hidden") || command == forged, "{message}");
    }
    client.close();
}

/// A client that does not read keeps no call: what it cancels ends, and so does all when it goes.
#[test]
fn a_client_that_does_not_read_keeps_nothing() {
    let env = TestEnv::new(HERE);
    let marker = env.workspace().join("marker").display().to_string();
    let runs = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines.filter(|line| line.starts_with(b"yes\0") && String::from_utf8_lossy(line).contains(&marker)).count()
    };
    let mut client = StdioClient::stateful(&env, &["--mode", "yolo"], PersonAnswer::Nobody);
    let start = |client: &mut StdioClient| {
        let arguments = json!({ "command": format!("exec yes {marker}"), "timeout_ms": 600_000 });
        let params = json!({ "name": "bash", "arguments": arguments, "_meta": { "progressToken": "p" } });
        client.send("tools/call", params)
    };
    let id = start(&mut client);
    eventually("the call runs", || runs() == 1);
    client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
    eventually("the call has ended", || runs() == 0);
    let _other = start(&mut client);
    eventually("the next call runs", || runs() == 1);
    drop(client.to.take());
    eventually("all has ended", || runs() == 0);
    client.server.wait().unwrap();
}

/// A session whose calls may reach a host is served as any other.
#[test]
fn a_session_with_a_network_is_served() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("a", "hello\n");
        let mut client = StdioClient::stateful(&env, &["--net", "granted.example"], PersonAnswer::Nobody);
        let answer = client.call("read", json!({ "path": "a" }), PersonAnswer::Nobody);
        assert!(text(&answer).starts_with("hello\n"), "{answer}");
        client.close();
    });
}

/// A call that a client cancels ends, and so does all when it goes.
#[test]
fn what_is_cancelled_ends_and_so_does_all_when_the_client_goes() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let marker = env.workspace().join("marker").display().to_string();
        let runs = || {
            let all = fs::read_dir("/proc").unwrap().flatten();
            let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
            lines.filter(|line| line.starts_with(b"tail\0") && String::from_utf8_lossy(line).contains(&marker)).count()
        };
        let line = json!({ "command": format!("touch {marker}; exec tail -f {marker}") });
        let mut client = StdioClient::stateful(&env, &["--mode", "yolo"], PersonAnswer::Nobody);
        let id = client.send("tools/call", json!({ "name": "bash", "arguments": line }));
        eventually("the call runs", || runs() == 1);
        client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
        eventually("the call has ended", || runs() == 0);
        let _other = client.send("tools/call", json!({ "name": "bash", "arguments": line }));
        eventually("the next call runs", || runs() == 1);
        drop(client.to.take());
        client.server.wait().unwrap();
        assert_eq!(runs(), 0);
    });
}

/// Bad messages get an error or are passed over, and what follows is served.
#[test]
fn bad_messages_end_nothing() {
    let env = TestEnv::new(HERE);
    env.workspace_file("a", "hello\n");
    let mut client = StdioClient::stateful(&env, &[], PersonAnswer::Nobody);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let bad = [
        "nothing".to_owned(),
        "{}".to_owned(),
        "[]".to_owned(),
        "\u{0}\u{1}".to_owned(),
        r#"{"jsonrpc": "2.0", "id": null, "method": 7}"#.to_owned(),
        r#"{"jsonrpc": "1.0", "id": 1, "id": 1, "method": "tools/list", "method": "x"}"#.to_owned(),
        format!(r#"{{"jsonrpc": "2.0", "id": 900, "method": "tools/call", "params": {deep}}}"#),
        format!(
            r#"{{"jsonrpc": "2.0", "id": 901, "method": "tools/call", "params": {{"name": "read", "arguments": {{"path": {deep}}}}}}}"#
        ),
        format!("\"{}\"", "x".repeat(65 << 20)),
        r#"{"jsonrpc": "2.0", "id": "unasked", "result": {}}"#.to_owned(),
        r#"{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77777}}"#.to_owned(),
    ];
    for line in &bad {
        client.write(line);
    }
    let id = client.send("tools/call", json!({ "name": "read", "arguments": { "path": "a" } }));
    loop {
        let message = client.hear();
        if message["id"] == id {
            assert!(text(&message).starts_with("hello"), "{message}");
            break;
        }
        assert!(message["error"]["code"].is_i64(), "{message}");
    }
    for (tool, arguments) in
        [("read", json!({})), ("read", json!({ "path": 7 })), ("read", json!({ "path": "a\u{0}b" }))]
    {
        let answer = client.call(tool, arguments, PersonAnswer::Nobody);
        assert!(answer["error"].is_object() || answer["result"]["isError"] == true, "{answer}");
    }
    client.close();
}

/// The lines that are printed for a host start the server that was typed, from anywhere.
#[test]
fn a_host_is_told_how_to_start_the_server() {
    let env = TestEnv::new(HERE);
    env.workspace_file("a", "hello\n");
    let shared = env.file("shared", "shared\n");
    let (binary, workspace) = (Binaries::of_this_build().callgate(), env.workspace().display().to_string());
    let typed = ["mcp", "--read", "../outside/shared", "--mode", "yolo", "--net", "granted.example", "--print-config"];
    let absolute = format!("{workspace}/../outside/shared");
    let words = ["mcp", "-C", &workspace, "--read", &absolute, "--net", "granted.example", "--mode", "yolo"];
    let printed = |host: &str| {
        let ended = callgate(&env, &[&typed[..], &[host]].concat());
        assert!(ended.status.success(), "{}", ended.stderr);
        assert!(ended.stderr.starts_with("callgate: for "), "{}", ended.stderr);
        ended.stdout
    };
    let started = json!({ "command": binary, "args": words });
    for (host, key) in [
        ("claude-code", "mcpServers"),
        ("cursor", "mcpServers"),
        ("vscode", "servers"),
        ("zed", "context_servers"),
        ("gemini", "mcpServers"),
    ] {
        let text = printed(host);
        let mut config: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let server = config[key]["callgate"].as_object_mut().unwrap();
        assert!(server.remove("type").is_none_or(|kind| kind == "stdio"));
        assert_eq!(config[key]["callgate"], started, "{host}");
    }
    let codex: toml::Table = printed("codex").parse().unwrap();
    let codex = serde_json::to_value(&codex["mcp_servers"]["callgate"]).unwrap();
    assert_eq!((&codex["command"], &codex["args"]), (&started["command"], &started["args"]));
    let goose = printed("goose");
    for line in [format!("    cmd: {}\n", started["command"]), format!("    args: {}\n", started["args"])] {
        assert!(goose.contains(&line), "{goose}");
    }
    // And it is so.
    let mut client = StdioClient::stateful(&env, &words[1..], PersonAnswer::Nobody);
    assert!(text(&client.call("read", json!({ "path": shared.text() }), PersonAnswer::Nobody)).starts_with("shared\n"));
    client.close();
    for bad in [&["--print-config", "emacs"][..], &["--http", "127.0.0.1:0", "--print-config", "zed"]] {
        assert_eq!(callgate(&env, &[&["mcp"], bad].concat()).status.code(), Some(64));
    }
}
