//! Messages that no client should send to `callgate mcp`: malformed, huge, nested, doubled and out of order, over pipes
//! and over HTTP. After each a call works; a server that could not begin has ended by itself, with a message. Nothing
//! of it is kept (S0-68).

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use callgate_tests::mcp::{Http, HttpProcess, Piped, callgate};
use callgate_tests::{Host, Target, TestEnv, User, eventually};
use serde_json::{Value, json};

/// Parsing is the same in both strengths.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };
/// The most bytes of a message.
const MESSAGE_MAX: usize = 8 << 20;
/// Messages after which nothing may have been kept.
const MANY: usize = 1000;
/// How much more memory a server may have then than before, KiB: the allocator keeps some of what a message of 8 MiB took.
const KEPT_MAX: u64 = 96 << 10;

/// Small messages that are wrong.
fn bad() -> Vec<Vec<u8>> {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let objects = format!("{}1{}", "{\"a\":".repeat(500), "}".repeat(500));
    let call = |rest: &str| format!(r#"{{"jsonrpc":"2.0","id":7000,"method":"tools/call","params":{rest}}}"#);
    let text = [
        "nothing".to_owned(),
        "{}".to_owned(),
        "[]".to_owned(),
        "7".to_owned(),
        "null".to_owned(),
        "\"text\"".to_owned(),
        "{".to_owned(),
        "}{".to_owned(),
        " ".to_owned(),
        "\u{feff}{}".to_owned(),
        "\u{0}\u{1}".to_owned(),
        // Versions and identifiers.
        r#"{"id":7001,"method":"tools/list"}"#.to_owned(),
        r#"{"jsonrpc":"1.0","id":7002,"method":"tools/list"}"#.to_owned(),
        r#"{"jsonrpc":2.0,"id":7003,"method":"tools/list"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":true,"method":"tools/list"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":{"a":1},"method":"tools/list"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":99999999999999999999999,"method":"tools/list"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":-1,"method":"ping"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":"","method":"ping"}"#.to_owned(),
        // Methods and their parameters.
        r#"{"jsonrpc":"2.0","id":7004,"method":""}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":7005,"method":7}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":7006,"method":"no/such"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":7007,"method":"tools/call"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":7008,"method":"tools/list","params":[]}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":7009,"method":"tools/list","params":{"cursor":7}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":7010,"method":"logging/setLevel","params":{"level":"loud"}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":7011,"method":"completion/complete","params":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":7012,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":7013,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#
            .to_owned(),
        call("[]"),
        call("null"),
        call(r#"{"name":7,"arguments":{}}"#),
        call(r#"{"name":"","arguments":{}}"#),
        call(r#"{"name":"../read","arguments":{}}"#),
        call(r#"{"name":"read","arguments":[]}"#),
        call(r#"{"name":"read","arguments":"a"}"#),
        call(r#"{"name":"read","arguments":{"path":{}}}"#),
        call(r#"{"name":"read","arguments":{"path":"a\u0000b"}}"#),
        call(r#"{"name":"read","arguments":{"path":"\ud800"}}"#),
        call(r#"{"name":"read","name":"bash","arguments":{"path":"a"},"arguments":{"command":"touch doubled"}}"#),
        call(r#"{"name":"read","arguments":{"path":"a"},"_meta":7}"#),
        call(r#"{"name":"read","arguments":{"path":"a"},"_meta":{"progressToken":{}}}"#),
        call(r#"{"name":"read","arguments":{"path":"a"},"requestState":7}"#),
        call(r#"{"name":"read","arguments":{"path":"a"},"requestState":""}"#),
        call(r#"{"name":"read","arguments":{"path":"a"},"requestState":"x","inputResponses":{"question":7}}"#),
        call(r#"{"name":"read","arguments":{"path":"a"},"inputResponses":[]}"#),
        call(r#"{"name":"read","arguments":{"path":"a"},"_meta":{"io.modelcontextprotocol/protocolVersion":7}}"#),
        call(&format!(r#"{{"name":"read","arguments":{{"path":{}}}}}"#, deep(100))),
        call(&format!(r#"{{"name":"read","arguments":{{"path":{}}}}}"#, deep(10_000))),
        call(&format!(r#"{{"name":"read","arguments":{objects}}}"#)),
        // Answers to nothing, and out of order.
        r#"{"jsonrpc":"2.0","id":0,"result":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"x"}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":7014,"result":{},"error":{"code":1,"message":"x"}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":70000}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"no/such"}"#.to_owned(),
    ];
    let mut all: Vec<Vec<u8>> = text.into_iter().map(String::into_bytes).collect();
    all.extend([b"\xff\xfe{}".to_vec(), b"{\"jsonrpc\":\"2.0\",\"id\":7015,\"method\":\"\xc3\x28\"}".to_vec()]);
    // The end of a line of another system, and several messages in one line, which is none.
    all.push(b"{\"jsonrpc\":\"2.0\",\"id\":7016,\"method\":\"ping\"}\r".to_vec());
    all.push(br#"{"jsonrpc":"2.0","id":7017,"method":"ping"}{"jsonrpc":"2.0","id":7018,"method":"ping"}"#.to_vec());
    all.push(br#"[{"jsonrpc":"2.0","id":7019,"method":"ping"},{"jsonrpc":"2.0","id":7020,"method":"ping"}]"#.to_vec());
    all
}

/// Messages that are large, each in its own way.
fn huge() -> Vec<Vec<u8>> {
    let message = |bytes: usize| {
        let head = br#"{"jsonrpc":"2.0","method":"notifications/x","params":{"x":""#;
        let mut message = head.to_vec();
        message.resize(bytes - 3, b'x');
        message.extend(br#""}}"#);
        message
    };
    let call = |arguments: String| {
        format!(
            r#"{{"jsonrpc":"2.0","id":7100,"method":"tools/call","params":{{"name":"read","arguments":{arguments}}}}}"#
        )
        .into_bytes()
    };
    let keys: Vec<String> = (0..200_000).map(|key| format!(r#""{key}":{key}"#)).collect();
    vec![
        // With the end of its line it is one too many.
        message(MESSAGE_MAX - 1),
        message(MESSAGE_MAX + 1),
        call(format!(r#"{{"path":"{}"}}"#, "x".repeat(7 << 20))),
        call(format!(r#"{{"path":[{}]}}"#, "0,".repeat(3 << 20) + "0")),
        call(format!("{{{}}}", keys.join(","))),
        format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(1 << 20)).into_bytes(),
        format!(r#"{{"jsonrpc":"2.0","id":7101,"method":"{}"}}"#, "x".repeat(7 << 20)).into_bytes(),
        "[".repeat(MESSAGE_MAX - 1).into_bytes(),
    ]
}

fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[track_caller]
fn works(answer: &Value, after: &[u8]) {
    let shown = after[..after.len().min(200)].escape_ascii();
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("after {shown}: {answer}"));
    assert!(text.starts_with("hello"), "after {shown}: {answer}");
}

#[track_caller]
fn nothing_is_kept(pid: u32, (descriptors_, memory_): (usize, u64)) {
    eventually("no descriptor more is open", || descriptors(pid) <= descriptors_);
    let now = memory(pid);
    assert!(now <= memory_ + KEPT_MAX, "{memory_} KiB before, {now} KiB now");
}

/// Over pipes: after each a call works, and after a thousand nothing is kept of them.
#[test]
fn s0_68_what_is_malformed_over_pipes_ends_nothing() {
    let env = TestEnv::new(HERE);
    env.workspace_file("a", "hello\n");
    let mut client = Piped::stateful(&env, &["--mode", "yolo"]);
    let read = json!({ "path": "a" });
    works(&client.call("read", &read), b"");
    let before = (descriptors(client.pid()), memory(client.pid()));
    let all = [bad(), huge()].concat();
    for message in &all {
        client.write(message);
        works(&client.call("read", &read), message);
    }
    // A message that comes byte by byte is a message.
    let whole = json!({ "jsonrpc": "2.0", "id": "slow", "method": "ping" }).to_string();
    whole.bytes().for_each(|byte| client.to.as_mut().unwrap().write_all(&[byte]).unwrap());
    client.write(b"");
    while client.hear().unwrap()["id"] != "slow" {}
    // Two at once with one number: one is answered, and what follows is.
    let doubled = json!({ "jsonrpc": "2.0", "id": 7200, "method": "tools/call", "params": { "name": "read", "arguments": read } });
    (0..2).for_each(|_| client.write(doubled.to_string().as_bytes()));
    works(&client.call("read", &read), b"two calls with one number");
    let small = bad();
    for (number, message) in small.iter().cycle().take(MANY).enumerate() {
        client.write(message);
        // Nothing more is read from a client that does not read itself.
        if number % 50 == 49 {
            works(&client.call("read", &read), message);
        }
    }
    nothing_is_kept(client.pid(), before);
    assert!(!env.workspace().join("doubled").exists());
    // What is cut off in the middle is nothing.
    client.to.as_mut().unwrap().write_all(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call""#).unwrap();
    assert!(client.close().success());
}

/// Whatever a client begins with, the server begins, waits, or ends by itself and says why.
#[test]
fn s0_68_what_does_not_begin_the_protocol_ends_with_a_message() {
    let env = TestEnv::new(HERE);
    let call =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "read", "arguments": {} } });
    let has_begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let version = |version: Value| {
        let params =
            json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
    };
    let mut all: Vec<Vec<u8>> = [call, has_begun, version(json!("")), version(json!("2099-01-01")), version(json!(7))]
        .iter()
        .map(|message| message.to_string().into_bytes())
        .collect();
    all.push(br#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#.to_vec());
    all.extend(bad().into_iter().step_by(4));
    let binary = callgate_tests::Binaries::of_this_build().callgate().display().to_string();
    for message in all {
        let file = env.outside().join("said");
        fs::write(&file, &message).unwrap();
        let said = file.display().to_string();
        let script = r#"(cat "$1"; echo) | "$0" mcp"#;
        let ended = callgate_tests::mcp::user(&env).run(&["sh", "-c", script, &binary, &said]);
        let shown = message.escape_ascii();
        let code = ended.status.code();
        assert!(code.is_some_and(|code| code < 128), "{shown}: {ended:?}");
        let is_told =
            ended.stderr.contains("the client did not begin the protocol: ") && ended.stderr.lines().count() == 1;
        assert!(code == Some(0) || is_told, "{shown}: {ended:?}");
        // It is for people: it has no type of the code's in it.
        assert!(!ended.stderr.contains("::"), "{shown}: {ended:?}");
    }
    // The control, and one that goes before it has heard an answer.
    for (script, wanted) in [(r#"cat "$1" - < /dev/null | "$0" mcp"#, true), (r#"cat "$1" | "$0" mcp | true"#, false)] {
        let file = env.outside().join("said");
        fs::write(&file, format!("{}\n", version(json!("2025-06-18")))).unwrap();
        let ended = callgate_tests::mcp::user(&env).run(&["sh", "-c", script, &binary, &file.display().to_string()]);
        assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
        assert_eq!(ended.stdout.contains("serverInfo"), wanted, "{ended:?}");
    }
    assert!(callgate(&env, &["session", "list"]).status.success());
}

/// Requests that are wrong before their bodies are looked at. HOST and TOKEN are those of the server.
fn bad_requests() -> Vec<Vec<u8>> {
    let good = "Host: HOST\r\nAuthorization: Bearer TOKEN\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n";
    let post = |more: &str, body: &str| format!("POST /mcp HTTP/1.1\r\n{good}{more}\r\n{body}");
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let text = [
        String::new(),
        "\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        "GET /mcp\r\n\r\n".to_owned(),
        format!("GET /mcp HTTP/9.9\r\n{good}\r\n"),
        format!("get /mcp HTTP/1.1\r\n{good}\r\n"),
        format!("POST /mcp HTTP/1.0\r\n{good}\r\n"),
        format!("POST /../mcp HTTP/1.1\r\n{good}Content-Length: 0\r\n\r\n"),
        format!("POST http://evil.example/mcp HTTP/1.1\r\n{good}Content-Length: 0\r\n\r\n"),
        format!("CONNECT HOST HTTP/1.1\r\n{good}\r\n"),
        format!("OPTIONS * HTTP/1.1\r\n{good}\r\n"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}".to_owned(),
        post("Host: HOST\r\nContent-Length: 0\r\n", ""),
        post("Authorization: Bearer TOKEN\r\nContent-Length: 0\r\n", ""),
        post("Content-Length: -1\r\n", ping),
        post("Content-Length: 99999999999999999999999\r\n", ping),
        post("Content-Length: 9000000\r\n", ping),
        post("Content-Length: 1\r\nContent-Length: 40\r\n", ping),
        post("Content-Length: 40\r\nTransfer-Encoding: chunked\r\n", &format!("28\r\n{ping}\r\n0\r\n\r\n")),
        post("Transfer-Encoding: chunked, gzip\r\n", ping),
        post("Transfer-Encoding: chunked\r\n", "zz\r\n"),
        post("Transfer-Encoding: chunked\r\n", "ffffffffffffffffff\r\n"),
        post("Transfer-Encoding: chunked\r\n", &format!("28\r\n{ping}")),
        post("Content-Encoding: gzip\r\nContent-Length: 2\r\n", "{}"),
        post("Mcp-Session-Id: x\r\nMcp-Session-Id: y\r\nContent-Length: 40\r\n", ping),
        post("Mcp-Session-Id: \u{e9}\r\nContent-Length: 40\r\n", ping),
        post("Mcp-Protocol-Version: 2026-07-28\r\nContent-Length: 40\r\n", ping),
        post("Mcp-Protocol-Version: 2099-01-01\r\nMcp-Method: x\r\nContent-Length: 40\r\n", ping),
        post("Last-Event-ID: 1\r\nContent-Length: 40\r\n", ping),
        post("Expect: 100-continue\r\nContent-Length: 40\r\n", ""),
        post("Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 0\r\n", ""),
        post(&format!("X: {}\r\nContent-Length: 0\r\n", "x".repeat(70_000)), ""),
        post(&format!("{}Content-Length: 0\r\n", "X: x\r\n".repeat(100)), ""),
        post("X: a\r\n b\r\nContent-Length: 0\r\n", ""),
        post("X\u{0}: a\r\nContent-Length: 0\r\n", ""),
        // Several in one go, of which the second is none.
        format!("{}GARBAGE\r\n\r\n", post("Content-Length: 40\r\n", ping)),
    ];
    text.into_iter().map(String::into_bytes).collect()
}

/// Over HTTP: after each a call works, and after a thousand nothing is kept of them.
#[test]
fn s0_68_what_is_malformed_over_http_ends_nothing() {
    let env = TestEnv::new(HERE);
    env.workspace_file("a", "hello\n");
    let server = HttpProcess::start(&env, &["--mode", "yolo"]);
    let token = server.tokens().remove(0);
    let steady = Http::stateful(&server, &token);
    let loose = Http::stateless(&server, &token);
    let read = json!({ "path": "a" });
    // Each time on a connection of its own: the server ends those on which nothing is said for a while.
    works(&steady.again().call("read", &read), b"");
    works(&loose.again().call("read", &read), b"");
    let before = (descriptors(server.pid()), memory(server.pid()));

    // Of a session, of none, and of the era without sessions.
    for message in [bad(), huge()].concat() {
        for client in [&mut steady.again(), &mut Http::new(&server, &token), &mut loose.again()] {
            let answer = client.send("POST", &[], &message);
            let status = answer.as_ref().map_or(0, |answer| answer.status);
            let shown = message[..message.len().min(200)].escape_ascii();
            assert!((200..500).contains(&status), "{shown}: {answer:?}");
        }
        works(&steady.again().call("read", &read), &message);
    }
    works(&loose.again().call("read", &read), b"all");

    let fill = |bytes: &[u8]| {
        let text = bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
        let text = text.replace("HOST", &server.address).replace("TOKEN", &token);
        text.chars().map(|char| char as u8).collect::<Vec<u8>>()
    };
    for request in bad_requests() {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // One that is refused early is not read to its end.
        drop(stream.write_all(&fill(&request)));
        drop(stream.shutdown(Shutdown::Write));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        let shown = request[..request.len().min(200)].escape_ascii();
        assert!(!answer.starts_with(b"HTTP/1.1 5"), "{shown}: {}", answer.escape_ascii());
        works(&steady.again().call("read", &read), &request);
    }
    // One in three goes in the middle of its message.
    let small = bad();
    for (number, message) in small.iter().cycle().take(MANY).enumerate() {
        let mut client = steady.again();
        if number % 3 == 0 {
            let bytes = client.bytes("POST", &[], message);
            client.stream.get_mut().write_all(&bytes[..bytes.len() - message.len() / 2 - 1]).unwrap();
        } else {
            assert!(client.send("POST", &[], message).is_ok());
        }
    }
    works(&steady.again().call("read", &read), b"a thousand");
    drop((steady, loose));
    nothing_is_kept(server.pid(), before);
    assert!(!env.workspace().join("doubled").exists());
    server.end();
}

/// Calls that wait hold their arguments: large ones are let in up to a bound, small ones always, and those that were let in are made.
#[test]
fn s0_68_large_arguments_under_way_are_bounded() {
    let env = TestEnv::new(HERE);
    env.workspace_file("a", "hello\n");
    let mut client = Piped::stateful(&env, &["--mode", "yolo"]);
    let call = |tool: &str, arguments: Value| json!({ "name": tool, "arguments": arguments });
    let waits = json!({ "command": "until test -e go; do sleep 0.05; done" });
    let first = client.send("tools/call", &call("bash", waits));
    let large = "x".repeat(7 << 20);
    let before = memory(client.pid());
    let asked: Vec<u64> = (0..12)
        .map(|at| client.send("tools/call", &call("write", json!({ "path": format!("large{at}"), "content": large }))))
        .collect();
    // Nine of them are 63 MiB, and the others get their answer at once.
    for _ in 9..12 {
        let refused = client.hear().unwrap();
        let what = refused["error"]["message"].as_str().unwrap_or_else(|| panic!("{refused}"));
        assert!(what.starts_with("arguments of 64 MiB are under way"), "{refused}");
        assert!(asked.contains(&refused["id"].as_u64().unwrap()), "{refused}");
    }
    let now = memory(client.pid());
    assert!(now <= before + (256 << 10), "{before} KiB before, {now} KiB now");
    let small = client.send("tools/call", &call("read", json!({ "path": "a" })));
    fs::write(env.workspace().join("go"), "").unwrap();
    let mut answered: Vec<u64> = Vec::new();
    for _ in 0..11 {
        let answer = client.hear().unwrap();
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        answered.push(answer["id"].as_u64().unwrap());
    }
    assert!(answered.contains(&first) && answered.contains(&small), "{answered:?}");
    // There is room again.
    let again = client.call("write", &json!({ "path": "again", "content": large }));
    assert_eq!(again["result"]["isError"], false, "{again}");
    let written = fs::read_dir(env.workspace()).unwrap().flatten();
    assert_eq!(written.filter(|file| file.metadata().unwrap().len() == large.len() as u64).count(), 10);
    assert!(client.close().success());
}
