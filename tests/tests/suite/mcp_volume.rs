//! `callgate mcp --http` with many clients at once: no call is lost or made twice, and nobody sees what is another's (F17).
//!
//! `CALLGATE_MCP_SESSIONS` says how many clients; 40 if it is not set.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use callgate_tests::mcp::{Http, HttpProcess, session, sessions};
use callgate_tests::{Host, Target, TestEnv, User, parent_of};
use serde_json::{Value, json};

/// The host's strength makes no difference to who is who.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };
/// Calls of each client.
const CALLS: usize = 20;
/// Clients that share no token with their neighbours.
const TOKENS: usize = 8;

fn clients() -> usize {
    #[allow(clippy::disallowed_methods, reason = "how many is for who runs the tests")]
    let said = std::env::var("CALLGATE_MCP_SESSIONS").ok();
    said.map_or(40, |said| said.parse().expect("CALLGATE_MCP_SESSIONS is a number of clients"))
}

fn tokens(env: &TestEnv) -> (PathBuf, Vec<String>) {
    let tokens: Vec<String> = (0..TOKENS).map(|number| format!("{number}").repeat(40)).collect();
    let file = env.file("tokens", &tokens.join("\n"));
    fs::set_permissions(file.text(), fs::Permissions::from_mode(0o600)).unwrap();
    (file.text().into(), tokens)
}

/// Text that nobody but this client says.
fn mark(client: usize) -> String {
    format!("mark-{client}-")
}

/// One of a client's calls: what it is, and what must be in its result.
fn call(client: usize, number: usize) -> (&'static str, Value, String) {
    let (mark, file) = (format!("{}{number}-", mark(client)), format!("{client}-{}", number / 4));
    match number % 4 {
        0 => ("write", json!({ "path": file, "content": mark }), String::new()),
        1 => ("read", json!({ "path": file }), format!("{}{}-", self::mark(client), number - 1)),
        2 => ("bash", json!({ "command": format!("echo {mark}") }), mark),
        _ => ("todo", json!({ "todos": [{ "content": mark, "status": "pending" }] }), mark),
    }
}

/// Descendants of a process and itself.
fn family(pid: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: BTreeMap<u32, u32> = all.filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let is_of = |mut one: u32| loop {
        match parents.get(&one) {
            _ if one == pid => return true,
            Some(&parent) => one = parent,
            None => return false,
        }
    };
    parents.keys().copied().filter(|one| is_of(*one)).collect()
}

/// Private memory of a process, KiB (proc_pid_smaps(5)).
fn private(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let lines = rollup.lines().filter(|line| line.starts_with("Private_"));
    lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Every client makes its calls while the others make theirs. Each answer is to the call that it is given for; each session's record
/// has that client's calls, each once; the id of another's session is of no use; one client more is told when to come again.
#[test]
fn f17_many_clients_at_once_lose_nothing_and_see_nothing_of_each_other() {
    let count = clients();
    let env = TestEnv::new(HERE);
    let (file, tokens) = tokens(&env);
    let most = count.to_string();
    let server = HttpProcess::start(
        &env,
        &["--mode", "yolo", "--token-file", &file.display().to_string(), "--max-sessions", &most],
    );
    let token = |client: usize| &tokens[client % TOKENS];
    let before = descriptors(server.pid());
    let started = Instant::now();
    let mut all: Vec<Http> = std::thread::scope(|scope| {
        let (server, token) = (&server, &token);
        let begin = |client| scope.spawn(move || Http::stateful(server, token(client)));
        let begun: Vec<_> = (0..count).map(begin).collect();
        begun.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let opened = started.elapsed();
    let memory: u64 = family(server.pid()).into_iter().map(private).sum();
    eprintln!(
        "{count} sessions opened in {opened:?}; {memory} KiB private in all, {} of the server; {} descriptors",
        private(server.pid()),
        descriptors(server.pid()) - before
    );

    let ids: BTreeSet<&str> = all.iter().map(|client| client.session.as_deref().unwrap()).collect();
    assert_eq!(ids.len(), count, "each has a session of its own");
    let mut more = Http::new(&server, token(0));
    let about = json!({ "name": "test", "version": "1" });
    let about = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about });
    let refused = more.request("initialize", about);
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{refused:?}");

    let (barrier, started) = (Barrier::new(count), Instant::now());
    std::thread::scope(|scope| {
        for (number, client) in all.iter_mut().enumerate() {
            let barrier = &barrier;
            scope.spawn(move || {
                // The server ends connections on which nothing is said for a while, as others are opened.
                *client = client.again();
                barrier.wait();
                for (tool, arguments, wanted) in (0..CALLS).map(|of| call(number, of)) {
                    let answer = client.call(tool, &arguments);
                    assert_eq!(answer["result"]["isError"], false, "{tool} {arguments}: {answer}");
                    let text = answer["result"].to_string();
                    assert!(text.contains(&wanted), "{tool} {arguments}: {answer}");
                    // `mark-1-` is no part of `mark-11-`.
                    let own = text.matches(&mark(number)).count();
                    assert_eq!(own, text.matches("mark-").count(), "another's mark: {answer}");
                }
            });
        }
    });
    let took: Duration = started.elapsed();
    eprintln!("{} calls in {took:?}; {} descriptors", count * CALLS, descriptors(server.pid()) - before);

    // By another's id, with a token of one's own; the control is that the id is good with its own.
    for (number, client) in all.iter().enumerate() {
        let mut thief = Http::new(&server, token(number + 1));
        thief.session.clone_from(&client.session);
        assert_eq!(thief.request("tools/list", json!({})).status, 404);
        assert_eq!(client.again().request("tools/list", json!({})).status, 200);
    }
    drop(all);
    server.end();

    let recorded = sessions(&env);
    // Nobody's is the one that was refused.
    assert_eq!(recorded.len(), count);
    let mut seen = BTreeSet::new();
    for about in recorded {
        assert_eq!(about["is_open"], false, "{about}");
        let shown = session(&env, about["id"].as_str().unwrap());
        let calls = shown["calls"].as_array().unwrap();
        let text = calls[0]["arguments"].to_string();
        let whose: usize = text.split("mark-").nth(1).unwrap().split('-').next().unwrap().parse().unwrap();
        assert!(seen.insert(whose), "two sessions have the calls of client {whose}");
        let made: Vec<(&str, &Value)> =
            calls.iter().map(|call| (call["tool"].as_str().unwrap(), &call["arguments"])).collect();
        let wanted: Vec<(&str, Value, String)> = (0..CALLS).map(|of| call(whose, of)).collect();
        let wanted: Vec<(&str, &Value)> = wanted.iter().map(|(tool, arguments, _)| (*tool, arguments)).collect();
        assert_eq!(made, wanted, "each of its calls, once and in its order");
        assert!(calls.iter().all(|call| call["outcome"] == "succeeded"), "{shown}");
        assert!(shown["todos"].to_string().contains(&mark(whose)), "{shown}");
    }
    assert_eq!(seen.len(), count);
}
