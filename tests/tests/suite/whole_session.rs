//! `docs/whole-session.sh` does what it says: a whole session from the shell, with a person at a terminal (S0-16 to S0-18, S0-21,
//! S0-26, S0-43, S0-46, S0-47, X0-20, S1-24).

use std::fs;
use std::path::Path;

use callgate_tests::{Binaries, Host, Target, TestEnv, UserShell, matrix};
use serde_json::{Value, json};

const SCRIPT: &str = include_str!("../../../docs/whole-session.sh");

fn values(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn s0_43_the_script_of_a_whole_session() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let script = env.file("whole-session.sh", SCRIPT);
        let scratch = env.workspace().join("scratch");
        let bin = Binaries::of_this_build().callgate().parent().unwrap().display().to_string();
        let person = UserShell::new(&env);
        let line = format!("PATH={bin}:$PATH sh {} {}", script.text(), scratch.display());
        person.starts(&format!("{line} > {} 2>&1; echo ended $?", env.outside().join("log").display()));
        // What it prints is elsewhere; the questions are on the terminal.
        let asks = |what: &str| person.waits_for(what, |screen| screen.trim_end().ends_with(what));
        asks("allow? once, always, reject [reject]:");
        let screen = person.screen();
        assert!(screen.lines().any(|each| each.trim_end() == "  | rm old.txt"), "{screen}");
        assert!(scratch.join("project/old.txt").is_file(), "nothing runs before the answer");
        person.enters("once");
        asks("answer? a number, or your own words [none]:");
        person.enters("2");
        person.waits_for("the end", |screen| screen.lines().any(|each| each.starts_with("ended ")));
        let log = fs::read_to_string(env.outside().join("log")).unwrap();
        assert!(person.screen().lines().any(|each| each.trim_end() == "ended 0"), "{target:?}: {log}");
        look(target, &scratch, &log);
    });
}

/// Looks at what came of it.
fn look(target: Target, scratch: &Path, log: &str) {
    let project = scratch.join("project");
    let text = |name: &str| fs::read_to_string(project.join(name)).unwrap();
    let json = |name: &str| -> Value { serde_json::from_str(&text(name)).unwrap() };
    assert_eq!(text("notes/next.txt"), "Version 2\nIt is fast.\n", "edited by a call, and by a subagent");
    assert!(!project.join("old.txt").exists());

    assert_eq!(json("read.json")["data"]["content"], "Version 1\nIt is slow.\n");
    let by = json("long.json")["metadata"]["enforced"].to_string();
    assert_eq!(by.contains("namespaces: "), target.has_namespaces(), "{by}");
    let (head, rest) = (json("long.json")["data"]["head"].clone(), json("rest.json")["data"]["content"].clone());
    let numbers: String = (1..=40_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(format!("{}{}", head.as_str().unwrap(), rest.as_str().unwrap()), numbers, "nothing is lost");
    let denial = &json("denied.json")["metadata"]["denial"];
    assert_eq!((&denial["layer"], &denial["asked"]), (&json!("capability"), &json!("fs.read /etc/shadow")));
    assert!(log.contains("fs.read /etc/shadow is denied"), "the script shows it: {log}");
    assert_eq!(json("approved.json")["metadata"]["approved_by"], "terminal");
    assert_eq!(json("todo-again.json")["data"], json("todo.json")["data"]);
    assert_eq!(json("fork.json")["data"], json("todo.json")["data"]);
    assert_eq!(json("question.json")["data"], json!({ "answers": [["2.0"]] }));
    let skill = json("skill.json")["data"]["content"].as_str().unwrap().to_owned();
    assert!(skill.contains("One line for each change"), "{skill}");
    assert!(log.contains("\nrelease-notes: Writes release notes."), "{log}");
    assert_eq!(json("words.json")["data"], json!({ "words": 5 }));
    assert_eq!(json("edited.json")["data"]["output"], "Version 2\n");

    let (shown, events) = (json("shown.json"), text("events.jsonl"));
    let calls: Vec<(&str, &str)> = shown["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| (call["tool"].as_str().unwrap(), call["outcome"].as_str().unwrap()))
        .collect();
    let tools =
        ["read", "edit", "bash", "read", "read", "bash", "todo", "todo", "question", "skill", "wordcount", "task"];
    assert_eq!(calls.iter().map(|call| call.0).collect::<Vec<_>>(), tools, "{shown}");
    let failed: Vec<usize> = (0..calls.len()).filter(|at| calls[*at].1 != "succeeded").collect();
    assert_eq!(failed, [4], "the one that was denied: {shown}");
    assert_eq!(shown["subagents"][0]["agent"], "editor");
    assert_eq!(events, text("events-again.jsonl"), "each replay is the same, byte for byte");
    let kinds: Vec<Value> = values(&events).into_iter().map(|event| event["event"].clone()).collect();
    let of = |kind: &str| kinds.iter().filter(|each| **each == kind).count();
    let counts = ["Proposed", "Started", "Succeeded", "Failed"].map(|kind| of(&format!("ToolInvocation{kind}")));
    assert_eq!(counts, [12, 11, 11, 1], "{kinds:?}");
    assert!(log.contains("is closed\n"), "{log}");
    let outputs = fs::read_dir(scratch.join("home/state/callgate")).unwrap().map(|entry| entry.unwrap().file_name());
    let outputs: Vec<_> = outputs.filter(|name| !name.to_string_lossy().starts_with("sessions.")).collect();
    assert!(outputs.is_empty(), "closed: {outputs:?}");
}
