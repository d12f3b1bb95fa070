//! `kill -9` of a server whose session has programs in the background: nothing of them survives, and what was reported is recorded
//! (X2-4, D12).

use std::fs;

use callgate_tests::mcp::{Piped, session, sessions};
use callgate_tests::{Host, TestEnv, User, eventually, matrix_as};
use serde_json::{Value, json};

const TOOLS: [&str; 8] =
    ["--mode", "yolo", "--extra", "exec_shell", "--extra", "exec_shell_wait", "--extra", "exec_shell_interact"];

/// How many processes have this in their command line.
fn with(text: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}

fn data(answer: &Value) -> &Value {
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    &answer["result"]["structuredContent"]
}

/// X2-4, D12: the server is killed while its tasks run, one of which hides and hears no signal.
#[test]
fn x2_4_d12_tasks_do_not_survive_their_server() {
    matrix_as(User::Ordinary, Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("marker", "");
        let marker = env.workspace().join("marker").display().to_string();
        let mut client = Piped::stateful(&env, &TOOLS);
        let mut start = |command: String| {
            let started = client.call("exec_shell", &json!({ "command": command, "background": true }));
            data(&started)["task_id"].as_str().unwrap().to_owned()
        };
        let talks = start(format!("while read -r line; do echo \"got $line\"; done; : {marker}"));
        start(format!(
            "trap '' TERM HUP INT; (setsid tail -f {marker} </dev/null >/dev/null 2>&1 &); exec tail -f {marker}"
        ));
        for n in 0..20 {
            let typed = json!({ "task_id": talks, "input": format!("{n}\n"), "timeout_ms": 600_000 });
            let answer = client.call("exec_shell_interact", &typed);
            assert_eq!(data(&answer)["stdout"], format!("got {n}\n"), "{answer}");
        }
        eventually("the tasks run", || with(&marker) >= 3);
        client.kill();
        eventually("nothing of them is left", || with(&marker) == 0);

        let about = sessions(&env);
        let shown = session(&env, about[0]["id"].as_str().unwrap());
        let calls = shown["calls"].as_array().unwrap();
        assert!(calls.iter().all(|call| call["ended"].is_string()), "every call has an end: {shown}");
        let text = shown.to_string();
        for n in 0..20 {
            assert!(text.contains(&format!("got {n}\\n")), "what was reported is recorded: {n}");
        }
        // Another session starts with none of them.
        let mut client = Piped::stateful(&env, &TOOLS);
        let gone = client.call("exec_shell_wait", &json!({ "task_id": talks }));
        assert_eq!(gone["result"]["isError"], true, "{gone}");
        assert!(client.close().success());
    });
}
