//! A server that does what none should (`tests/data/mcp/hostile.py`), behind `callgate mcp --wrap` and as `[mcp.NAME]`. It breaks
//! no session, costs no memory and deceives nobody, and nothing of it is left.

use std::fs;
use std::process::Command;

use callgate_tests::{Binaries, Host, Target, TestEnv, User, eventually, repetitions};
use serde_json::{Value, json};

use crate::mcp::{PersonAnswer, StdioClient, callgate, text, user, wrong};
use crate::mcp_clients::data;
use crate::mcp_servers::{client_of, errors, pids, running};

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };
const PYTHON: &str = "/usr/bin/python3";
/// Most that callgate itself may hold meanwhile, KiB.
const HELD_MAX: u64 = 128 * 1024;

/// A session with the hostile server.
struct Hostile {
    env: TestEnv,
    client: StdioClient,
    is_wrapped: bool,
}

impl Hostile {
    fn words(env: &TestEnv, mode: &str) -> Vec<String> {
        let log = env.workspace().join("seen").display().to_string();
        [PYTHON, &data("hostile.py").display().to_string(), mode, &log].map(str::to_owned).to_vec()
    }

    fn binary() -> String {
        Binaries::of_this_build().callgate().display().to_string()
    }

    fn wrapped(mode: &str) -> Self {
        let env = TestEnv::new(HERE);
        let read = data("hostile.py").display().to_string();
        let mut words =
            [&Self::binary(), "mcp", "--name", "bad", "--read", &read, "--wrap", "--"].map(str::to_owned).to_vec();
        words.extend(Self::words(&env, mode));
        let client = client_of(&user(&env), &env, &words);
        Self { env, client, is_wrapped: true }
    }

    /// Beside a good server. `more` is of the table of the hostile one.
    fn named(mode: &str, more: &str) -> Self {
        let env = TestEnv::new(HERE);
        env.workspace_file("a", "hello\n");
        let read = data("hostile.py").display().to_string();
        let table = |name: &str, mode: &str, more: &str| {
            let words = Self::words(&env, mode);
            format!(
                "[mcp.{name}]\ncommand = {words:?}\ndata = [{:?}]\ntrusted = true\n{more}\n[mcp.{name}.requires.fs]\nread = [{read:?}]\n\
                 write = [\"{{workspace}}/**\"]\n",
                words[3]
            )
        };
        let session = format!(
            "id = \"hostile\"\ntools = [\"read\"]\n[requires.fs]\nread = [{read:?}]\nwrite = [\"{{workspace}}/**\"]\n\
             [[requires.shell]]\ncmd = \"*\"\n"
        );
        env.workspace_file("m.toml", &[session, table("bad", mode, more), table("good", "plain", "")].concat());
        let client = client_of(&user(&env), &env, &[&Self::binary(), "mcp", "--manifest", "m.toml"]);
        Self { env, client, is_wrapped: false }
    }

    fn begin(&mut self) {
        self.client.initialize(PersonAnswer::Says("always"));
    }

    fn tool(&self, tool: &str) -> String {
        if self.is_wrapped { tool.to_owned() } else { format!("mcp__bad__{tool}") }
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let tool = self.tool(tool);
        self.client.call(&tool, arguments, PersonAnswer::Nobody)
    }

    fn tools(&mut self) -> Vec<Value> {
        let listed = self.client.request("tools/list", json!({}), PersonAnswer::Nobody);
        listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}")).clone()
    }

    /// Asserts that all goes on that is not the hostile server's.
    #[track_caller]
    fn assert_others_answer(&mut self) {
        if !self.is_wrapped {
            assert_eq!(
                text(&self.client.call("mcp__good__echo", json!({ "b": 2 }), PersonAnswer::Nobody)),
                "{\"b\": 2}"
            );
            assert!(
                text(&self.client.call("read", json!({ "path": "a" }), PersonAnswer::Nobody)).starts_with("hello\n")
            );
        }
    }

    #[track_caller]
    fn assert_answers(&mut self) {
        assert_eq!(text(&self.call("echo", json!({ "a": 1 }))), "{\"a\": 1}");
        self.assert_others_answer();
    }

    /// Ends, and looks at what was held and what is left. Returns what was written to standard error.
    #[track_caller]
    fn end(self) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.client.server.id())).unwrap();
        let held = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        let held: u64 = held.unwrap().trim().parse().unwrap();
        assert!(held < HELD_MAX, "{held} KiB");
        self.client.close();
        assert_nothing_left(&self.env);
        let said = errors(&self.env);
        assert!(!said.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{2066}']), "{said:?}");
        said
    }
}

#[track_caller]
fn assert_nothing_left(env: &TestEnv) {
    let marker = env.workspace().join("seen").display().to_string();
    eventually("nothing is left", || running(&marker) == 0);
}

/// In both ways. `check` gets the answer to the call in which the server does it.
fn in_both_ways(mode: &str, check: impl Fn(&Value)) {
    for mut hostile in [Hostile::wrapped(mode), Hostile::named(mode, "")] {
        hostile.begin();
        check(&hostile.call("act", json!({})));
        hostile.assert_answers();
        hostile.end();
    }
}

fn acted(answer: &Value) {
    assert_eq!(text(answer), "acted");
}

#[test]
fn lines_without_an_end_and_long_lines_cost_no_memory() {
    in_both_ways("endless-line", acted);
    in_both_ways("long-line", acted);
}

#[test]
fn what_is_nested_too_deep_is_passed_over() {
    in_both_ways("deep", acted);
}

#[test]
fn floods_of_notices_stop_no_call() {
    in_both_ways("notices", acted);
}

/// A server that asks and asks, and reads no answer, is not read either: it waits for itself.
#[test]
fn floods_of_requests_cost_no_memory() {
    let mut hostile = Hostile::named("requests", "timeout = \"3s\"");
    hostile.begin();
    assert_eq!(wrong(&hostile.call("act", json!({}))), "there was no answer within 3s");
    hostile.assert_others_answer();
    // What fills the pipe, and the 256 that are taken before it is read on.
    let asked = fs::read_to_string(hostile.env.workspace().join("seen")).unwrap().matches("asked").count();
    assert!(asked < 10, "{asked}");
    hostile.end();
    let mut hostile = Hostile::wrapped("requests");
    hostile.begin();
    hostile.client.send("tools/call", json!({ "name": "act", "arguments": {} }));
    hostile.client.request("ping", json!({}), PersonAnswer::Nobody);
    hostile.end();
}

#[test]
fn answers_to_what_was_not_asked_are_passed_over() {
    in_both_ways("answers-twice", acted);
}

/// A question that imitates callgate's own does not reach the client, which would answer "always" to it.
#[test]
fn a_question_that_imitates_callgates_reaches_nobody() {
    for mut hostile in [Hostile::wrapped("asks"), Hostile::named("asks", "")] {
        hostile.begin();
        let answer = hostile.call("act", json!({}));
        assert!(text(&answer).contains("error") && !text(&answer).contains("accept"), "{answer}");
        assert!(hostile.client.asked.is_empty());
        hostile.assert_answers();
        hostile.end();
    }
}

#[test]
fn complaints_are_escaped() {
    for mut hostile in [Hostile::wrapped("complains"), Hostile::named("complains", "")] {
        hostile.begin();
        acted(&hostile.call("act", json!({})));
        hostile.assert_answers();
        let said = hostile.end();
        assert!(said.contains("bad: \\u{1b}[2J\\u{1b}]0;owned\\u{7}\\u{202e}evil"), "{}", &said[..200]);
    }
}

/// A lie that is no result is an error of the call; a text of an error is clean and short.
#[test]
fn lies_are_errors_of_the_call() {
    for mut hostile in [Hostile::wrapped("lies"), Hostile::named("lies", "")] {
        hostile.begin();
        for lie in 0..7 {
            let answer = hostile.call("act", json!({ "lie": lie }));
            assert_eq!(wrong(&answer), "the server `bad` answered with something else than a result", "{lie}");
        }
        hostile.assert_answers();
        hostile.end();
    }
    in_both_ways("error", |answer| {
        let said = wrong(answer);
        assert!(said.starts_with("[2J]0;ownedevileee") && said.chars().count() < 4200, "{}", said.len());
    });
}

/// Tools that take others' names, or have none, are left out, and so is what is too large, too deep or too much.
#[test]
fn definitions_are_bounded() {
    for (mode, left_out, has) in [
        ("names", "of its tools are left out; the first", 5),
        ("many", "there are more than 256", 256),
        ("descriptions", "", 3),
        ("schemas", "its schema is nested deeper", 6),
        ("instructions", "", 2),
    ] {
        for mut hostile in [Hostile::wrapped(mode), Hostile::named(mode, "")] {
            hostile.begin();
            let tools = hostile.tools();
            let mut names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{mode}: {names:?}");
            let own = names.iter().filter(|name| hostile.is_wrapped || name.starts_with("mcp__bad__")).count();
            // Behind `--wrap` two of the names are those of callgate's own tools.
            let has: usize = match (mode, hostile.is_wrapped) {
                ("names", true) => has - 2,
                // They are searched for.
                ("many", false) => 0,
                _ => has,
            };
            assert_eq!(own, has, "{mode}: {names:?}");
            assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')), "{names:?}");
            let plain = serde_json::to_string(&tools).unwrap();
            assert!(!plain.contains("u001b") && !plain.contains('\u{202e}'), "{mode}");
            if mode == "schemas" {
                let slow = json!({ "a": format!("{}!", "a".repeat(40)) });
                // What could cost too much is left to the server to compare.
                for name in ["circle", "exponential", "elsewhere", "slow"] {
                    assert_eq!(text(&hostile.call(name, slow.clone())), slow.to_string().replace(':', ": "));
                }
            }
            if has == 0 {
                hostile.assert_others_answer();
            } else {
                hostile.assert_answers();
            }
            let said = hostile.end();
            assert!(said.contains(left_out), "{mode}: {said}");
        }
    }
}

/// A server that does not begin keeps no session: its tools are missing, and why is said.
#[test]
fn a_server_that_does_not_begin_breaks_no_session() {
    for (mode, why) in [
        ("hangs", "it took longer than 1s"),
        ("endless-start", "it took longer than 1s"),
        ("dies-at-once", "it ended, or closed its standard output"),
        ("early", "did not begin the protocol"),
        ("pages", "the list has more than 64 pages"),
    ] {
        let mut hostile = Hostile::named(mode, "start_timeout = \"1s\"");
        hostile.begin();
        assert!(hostile.tools().iter().all(|tool| !tool["name"].as_str().unwrap().starts_with("mcp__bad__")));
        hostile.assert_others_answer();
        let said = hostile.end();
        assert!(said.contains("the server `bad`") && said.contains(why), "{mode}: {said}");
        // Behind `--wrap` there is nothing else to serve. What would take a minute there is left out.
        if mode.starts_with("dies") || mode == "early" || mode == "pages" {
            let mut hostile = Hostile::wrapped(mode);
            assert!(!hostile.client.server.wait().unwrap().success());
            assert!(errors(&hostile.env).contains(why), "{mode}: {}", errors(&hostile.env));
            assert_nothing_left(&hostile.env);
        }
    }
}

/// X0-44: a call of a server that dies fails and says which; the others go on. The server is started again.
#[test]
fn x0_44_a_server_that_dies_is_started_again() {
    let mut hostile = Hostile::named("dies", "");
    hostile.begin();
    let gone = "the server `bad` is not available: it has ended";
    assert_eq!(wrong(&hostile.call("act", json!({}))), gone);
    hostile.assert_others_answer();
    eventually("it serves again", || {
        let answer = hostile.call("echo", json!({ "a": 1 }));
        let is_back = answer["result"]["isError"] == false;
        assert!(is_back || wrong(&answer) == gone, "{answer}");
        is_back
    });
    hostile.assert_answers();
    let said = hostile.end();
    assert!(said.contains("callgate: the server `bad` has ended (exit status 3)"), "{said}");

    let mut hostile = Hostile::wrapped("dies");
    hostile.begin();
    // Whether the call is answered first is for the two to race.
    hostile.client.send("tools/call", json!({ "name": "act", "arguments": {} }));
    assert!(!hostile.client.server.wait().unwrap().success());
    assert!(errors(&hostile.env).contains("the server `bad` has ended"), "{}", errors(&hostile.env));
    assert_nothing_left(&hostile.env);
}

/// A person's "always" is for the tool as it was defined then.
#[test]
fn a_tool_that_is_defined_anew_is_asked_about_again() {
    let mut hostile = Hostile::named("changes", "# no");
    let manifest = fs::read_to_string(hostile.env.workspace().join("m.toml")).unwrap();
    drop(hostile.client.to.take());
    hostile.client.server.wait().unwrap();
    hostile.env.workspace_file("m.toml", &manifest.replace("trusted = true\n# no", ""));
    hostile.client = client_of(&user(&hostile.env), &hostile.env, &[&Hostile::binary(), "mcp", "--manifest", "m.toml"]);
    hostile.begin();
    let echo = |hostile: &mut Hostile| {
        text(&hostile.client.call("mcp__bad__echo", json!({}), PersonAnswer::Says("always"))).to_owned()
    };
    echo(&mut hostile);
    echo(&mut hostile);
    assert_eq!(hostile.client.asked.len(), 1, "{:?}", hostile.client.asked);
    text(&hostile.client.call("mcp__bad__act", json!({}), PersonAnswer::Says("once")));
    eventually("the change is noticed", || errors(&hostile.env).contains("mcp:bad:echo is defined differently now"));
    echo(&mut hostile);
    assert_eq!(hostile.client.asked.len(), 3, "{:?}", hostile.client.asked);
    echo(&mut hostile);
    assert_eq!(hostile.client.asked.len(), 3);
    hostile.end();
}

/// How many times something is killed.
fn rounds() -> u64 {
    #[allow(clippy::disallowed_methods, reason = "how often is for who runs the tests")]
    let said = std::env::var("CALLGATE_MCP_KILLS").ok();
    said.map_or(repetitions(6, 15), |said| said.parse().expect("CALLGATE_MCP_KILLS is a number"))
}

/// Whoever is killed, in the middle of a call or between two: nothing is left, and what was recorded can be read.
#[test]
fn whoever_is_killed_leaves_nothing_and_a_whole_record() {
    for seed in 0..rounds() {
        // splitmix64: the same rounds each time.
        let mut mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^= mixed >> 27;
        let mut hostile = Hostile::wrapped("stalls");
        hostile.begin();
        let calls = 1 + mixed % 4;
        for _ in 0..calls {
            assert_eq!(text(&hostile.call("echo", json!({ "a": 1 }))), "{\"a\": 1}");
        }
        if mixed & 16 != 0 {
            hostile.client.send("tools/call", json!({ "name": "act", "arguments": {} }));
        }
        let marker = hostile.env.workspace().join("seen").display().to_string();
        let kill = |pid: u32| drop(Command::new("kill").args(["-9", &pid.to_string()]).status());
        let callgate_itself = hostile.client.server.id();
        match seed % 3 {
            0 => {
                let comm = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                pids(&marker).into_iter().filter(|pid| comm(pid).starts_with("python")).for_each(kill);
            }
            1 => kill(callgate_itself),
            // A client that is killed says nothing more.
            _ => {}
        }
        let Hostile { env, mut client, .. } = hostile;
        drop(client.to.take());
        client.server.wait().unwrap();
        assert_nothing_left(&env);
        let listed = callgate(&env, &["session", "list", "--json"]);
        let sessions: Value = serde_json::from_str(&listed.stdout).unwrap_or_else(|_| panic!("{seed}: {listed:?}"));
        let id = sessions[0]["id"].as_str().unwrap_or_else(|| panic!("{seed}: {sessions}"));
        let shown = callgate(&env, &["session", "show", id, "--json"]);
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap_or_else(|_| panic!("{seed}: {shown:?}"));
        let recorded = shown["calls"].as_array().unwrap().iter().filter(|call| call.to_string().contains("echo"));
        assert_eq!(recorded.count() as u64, calls, "{seed}: {shown}");
    }
}
