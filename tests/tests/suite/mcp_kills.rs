//! `kill -9` of a server, or of its client, at any moment of any call: nothing of the calls survives, files are whole, and so is the
//! record (D12, X0-56).
//!
//! `CALLGATE_TEST_ROUNDS` says how many rounds for each strength of host; 8 if it is not set.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use callgate_tests::mcp::{Http, HttpProcess, Piped, session, sessions, temporary, user};
use callgate_tests::{Binaries, Dice, Host, TestEnv, User, eventually, matrix_as, repetitions};
use serde_json::{Value, json};

/// Which process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KilledSide {
    Server,
    Client,
}

/// How they speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillTransport {
    Pipes,
    Http,
}

/// A client over pipes that is a process, and the parent of its server: it passes on what it reads.
const PASSES_ON: &str =
    r#"coproc S { exec "$@"; }; while IFS= read -r line; do printf '%s\n' "$line" >&"${S[1]}"; done; wait"#;
/// One over HTTP that is a process, with one connection.
const CONNECTED: &str = r#"exec 3<>"/dev/tcp/$1/$2"; exec cat >&3"#;

/// Files of each round, and what is in them before and after.
const OLD: &str = "old\n";
const NEW: &str = "new\n";

/// The calls that a round makes, some of them.
fn calls(round: u32, dice: &mut Dice, marker: &Path) -> Vec<Value> {
    let marker = marker.display();
    let children = format!(
        "echo {round} >> ran; touch {marker}; (setsid tail -f {marker} </dev/null >/dev/null 2>&1 &); tail -f {marker} & exec tail -f {marker}"
    );
    let large = "x".repeat(1 << 20);
    let mut all = vec![
        json!({ "name": "bash", "arguments": { "command": children } }),
        json!({ "name": "write", "arguments": { "path": format!("written-{round}"), "content": large } }),
        json!({ "name": "edit", "arguments": { "path": format!("edited-{round}"), "old_string": "old", "new_string": "new" } }),
    ];
    for at in (1..all.len()).rev() {
        all.swap(at, dice.below(at + 1));
    }
    all.truncate(1 + dice.below(3));
    all
}

fn message(id: usize, call: &Value) -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "id": 100 + id, "method": "tools/call", "params": call }).to_string().into_bytes()
}

/// Processes that have this in their command line or their environment.
fn with(text: &Path) -> Vec<String> {
    let text = text.display().to_string();
    let has = |file: &Path| fs::read(file).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&text));
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let found = all.filter(|process| has(&process.join("cmdline")) || has(&process.join("environ")));
    found.map(|process| process.display().to_string()).collect()
}

#[allow(clippy::disallowed_methods, reason = "a client is a process outside")]
fn connected(address: &str, bytes: &[u8]) -> Child {
    let (host, port) = address.split_once(':').unwrap();
    let mut command = Command::new("bash");
    command.args(["-c", CONNECTED, "client", host, port]).stdin(Stdio::piped());
    let mut client = command.spawn().unwrap();
    client.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    client
}

fn kill(mut process: Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

/// Act of a round before the kill: it returns how to kill, and what must be true after it.
struct KillRound<'a> {
    env: &'a TestEnv,
    calls: Vec<Value>,
    marker: &'a Path,
    /// How long to wait with the kill; `None` until the calls' processes run, if there are any.
    moment: Option<Duration>,
}

impl KillRound<'_> {
    fn wait(&self) {
        let starts = self.calls.iter().any(|call| call["name"] == "bash");
        match self.moment {
            Some(moment) => std::thread::sleep(moment),
            None if starts => eventually("the calls' processes run", || tails(self.marker) >= 3),
            None => {}
        }
    }

    fn over_pipes(&self, victim: KilledSide) {
        let words = ["--mode", "yolo"];
        match victim {
            KilledSide::Server => {
                let mut client = Piped::stateful(self.env, &words);
                self.calls.iter().enumerate().for_each(|(id, call)| client.write(&message(id, call)));
                self.wait();
                client.kill();
            }
            KilledSide::Client => {
                let binary = Binaries::of_this_build().callgate().display().to_string();
                let line = [&["bash", "-c", PASSES_ON, "client", binary.as_str(), "mcp"], &words[..]].concat();
                let mut command = user(self.env).command(&line);
                let mut client = command.stdin(Stdio::piped()).spawn().unwrap();
                let about = json!({ "name": "test", "version": "1" });
                let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about });
                let begins = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
                let has_begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
                let mut lines = vec![begins.to_string().into_bytes(), has_begun.to_string().into_bytes()];
                lines.extend(self.calls.iter().enumerate().map(|(id, call)| message(id, call)));
                let to = client.stdin.as_mut().unwrap();
                lines.iter().for_each(|line| to.write_all(&[line, &b"\n"[..]].concat()).unwrap());
                self.wait();
                kill(client);
            }
        }
    }

    fn over_http(&self, victim: KilledSide) {
        let server = HttpProcess::start(self.env, &["--mode", "yolo"]);
        let steady = Http::stateful(&server, &server.tokens()[0]);
        let say = |(id, call)| connected(&server.address, &steady.bytes("POST", &[], &message(id, call)));
        let doomed: Vec<Child> = self.calls.iter().enumerate().map(say).collect();
        self.wait();
        match victim {
            KilledSide::Server => {
                server.kill();
                doomed.into_iter().for_each(kill);
            }
            KilledSide::Client => {
                doomed.into_iter().for_each(kill);
                eventually("the client's calls have ended", || tails(self.marker) == 0);
                // The session is another matter: whoever holds its id goes on.
                let answer = steady.again().call("bash", &json!({ "command": "echo on" }));
                assert_eq!(answer["result"]["isError"], false, "{answer}");
                drop(steady);
                server.end();
            }
        }
    }
}

/// How many `tail`s of this file run.
fn tails(file: &Path) -> usize {
    let file = file.display().to_string();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(b"tail\0") && String::from_utf8_lossy(line).contains(&file)).count()
}

fn look_at_what_is_left(env: &TestEnv, round: u32, what: &str) {
    let root = env.workspace().parent().unwrap().to_owned();
    eventually(&format!("{what}: no process is left"), || with(&root).is_empty());
    eventually(&format!("{what}: nor a directory"), || fs::read_dir(temporary(env)).unwrap().count() == 0);
    let written = fs::read(env.workspace().join(format!("written-{round}"))).unwrap_or_default();
    assert!(written.is_empty() || written == "x".repeat(1 << 20).as_bytes(), "{what}: {} bytes", written.len());
    let edited = fs::read_to_string(env.workspace().join(format!("edited-{round}"))).unwrap();
    assert!([OLD, NEW].contains(&&*edited), "{what}: {edited:?}");

    for about in sessions(env).iter().take(2) {
        assert_eq!(about["is_open"], false, "{what}: {about}");
        let shown = session(env, about["id"].as_str().unwrap());
        let calls = shown["calls"].as_array().unwrap();
        assert!(calls.iter().all(|call| call["ended"].is_string()), "{what}: every call has an end: {shown}");
    }
    let database = env.outside().join("state/callgate/sessions.db");
    let check = env.bare().run(&["sqlite3", database.to_str().unwrap(), "PRAGMA integrity_check"]);
    assert_eq!(check.stdout, "ok\n", "{what}: {check:?}");
}

#[test]
fn d12_rounds_of_kill_9_leave_nothing_and_a_whole_record() {
    let said = std::env::var("CALLGATE_TEST_ROUNDS");
    let count: u32 =
        said.map_or(repetitions(4, 8), |count| count.parse().expect("CALLGATE_TEST_ROUNDS is a number of rounds"));
    matrix_as(User::Ordinary, Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let mut dice = Dice::new(0x6d63_7001 + u64::from(count));
        for round in 0..count {
            env.workspace_file(&format!("edited-{round}"), OLD);
            let marker = env.workspace().join(format!("marker-{round}-"));
            // Each pair comes as often as any other, whatever the dice say.
            let victim = [KilledSide::Server, KilledSide::Client][round as usize % 2];
            let way = [KillTransport::Pipes, KillTransport::Http][round as usize / 2 % 2];
            let calls = calls(round, &mut dice, &marker);
            let moment = (dice.below(3) > 0).then(|| Duration::from_millis(dice.below(250) as u64));
            let what = format!("round {round}, {victim:?} over {way:?} after {moment:?}, {} calls", calls.len());
            let round_ = KillRound { env: &env, calls, marker: &marker, moment };
            match way {
                KillTransport::Pipes => round_.over_pipes(victim),
                KillTransport::Http => round_.over_http(victim),
            }
            look_at_what_is_left(&env, round, &what);
        }
        // And another session is opened as ever.
        let mut client = Piped::stateful(&env, &["--mode", "yolo"]);
        let answer = client.call("bash", &json!({ "command": "cat ran" }));
        let ran = answer["result"]["structuredContent"]["output"].as_str().unwrap_or_else(|| panic!("{answer}"));
        let mut lines: Vec<&str> = ran.lines().collect();
        lines.sort_unstable();
        assert!(lines.windows(2).all(|two| two[0] != two[1]), "nothing runs twice: {ran}");
        assert!(client.close().success());
    });
}
