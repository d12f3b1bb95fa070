//! The tool contract as an agent host sees it (S0-1 to S0-6, S0-9, S0-65 to S0-68): what is published, and that a call can
//! do no more than what it asked for.

use std::fs;

use callgate_tests::{Binaries, Host, TestEnv, matrix};
use serde_json::{Value, json};

/// The names that no implementation may change (S0-9), of which this build has some.
const LOCKED: [&str; 13] = [
    "read",
    "write",
    "edit",
    "glob",
    "grep",
    "bash",
    "todo",
    "task",
    "question",
    "web_search",
    "web_fetch",
    "skill",
    "tool_search",
];

fn tools(env: &TestEnv) -> Value {
    let callgate = Binaries::of_this_build().callgate().display().to_string();
    let ended = env.weakened().run(&[&callgate, "tools", "--json"]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

/// `callgate call`: its exit status and envelope.
#[track_caller]
fn call(env: &TestEnv, tool: &str, arguments: &Value) -> (i32, Value) {
    let callgate = Binaries::of_this_build().callgate().display().to_string();
    let ended = env.weakened().run(&[&callgate, "call", tool, &arguments.to_string()]);
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.status.code().unwrap(), envelope)
}

/// S0-1, S0-2, S0-3, S0-5, S0-65: every tool publishes the same four fields, and the same again next time. S0-9: the tools
/// that there are bear locked names. (The rest of the thirteen come with later issues.)
#[test]
fn s0_1_s0_2_s0_3_s0_5_s0_9_s0_65_every_tool_publishes_the_same_fields() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let published = tools(&env);
        assert_eq!(published, tools(&env), "the same in every session");
        let ids: Vec<&str> = published.as_array().unwrap().iter().map(|tool| tool["id"].as_str().unwrap()).collect();
        for needed in
            ["read", "write", "edit", "glob", "grep", "bash", "web_fetch", "todo", "question", "skill", "tool_search"]
        {
            assert!(ids.contains(&needed), "{ids:?}");
        }
        for tool in published.as_array().unwrap() {
            let id = tool["id"].as_str().unwrap();
            assert!(tool["origin"] != "bundled" || LOCKED.contains(&id), "{id} is not a locked name");
            assert!(tool["description"].as_str().unwrap().split(' ').count() > 10, "{id}: prose to decide on");
            assert_eq!(tool["parameters"]["type"], "object", "{id}");
            for (name, schema) in tool["parameters"]["properties"].as_object().unwrap() {
                assert!(schema["description"].is_string(), "{id}: {name} does not describe itself");
            }
            let same = |other: &&Value| other["description"] == tool["description"];
            assert_eq!(published.as_array().unwrap().iter().filter(same).count(), 1, "{id}: what sets it apart");
            for kind in ["fs", "net", "shell", "capabilities"] {
                assert!(!tool["requires"][kind].is_null(), "{id} does not say whether it requires {kind}");
            }
        }
    });
}

/// S0-5, S0-10 to S0-14: each file tool publishes what it may do to the workspace, and no more.
#[test]
fn s0_5_s0_10_s0_11_s0_12_s0_13_s0_14_tools_publish_what_they_require() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let published = tools(&env);
        let tree = json!(["{workspace}/**"]);
        for (id, reads, writes) in [
            ("read", true, false),
            ("write", false, true),
            ("edit", true, true),
            ("glob", true, false),
            ("grep", true, false),
        ] {
            let tool = published.as_array().unwrap().iter().find(|tool| tool["id"] == id).unwrap();
            let requires = &tool["requires"];
            for (access, wanted) in [("read", reads), ("write", writes)] {
                let granted = if wanted { &tree } else { &json!([]) };
                assert_eq!(&requires["fs"][access], granted, "{id}: fs.{access}");
            }
            for none in [&requires["net"]["hosts"], &requires["shell"], &requires["capabilities"]] {
                assert_eq!(none, &json!([]), "{id}: {requires}");
            }
        }
    });
}

/// S0-15, S0-23: the locked shapes and no richer ones; `bash` is one command, without a session to name.
#[test]
fn s0_15_s0_23_the_locked_shapes_have_no_more_parameters() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let published = tools(&env);
        for (id, wanted) in [
            ("read", &["byte_length", "byte_offset", "end_line", "path", "start_line"][..]),
            ("write", &["content", "path"]),
            ("edit", &["new_string", "old_string", "path"]),
            ("glob", &["path", "pattern"]),
            ("grep", &["context_lines", "glob", "ignore_case", "path", "pattern"]),
            ("bash", &["command", "timeout_ms", "working_dir"]),
        ] {
            let tool = published.as_array().unwrap().iter().find(|tool| tool["id"] == id).unwrap();
            let properties = tool["parameters"]["properties"].as_object().unwrap();
            let mut names: Vec<&str> = properties.keys().map(String::as_str).collect();
            names.sort_unstable();
            assert_eq!(names, wanted, "{id}");
            assert_eq!(tool["parameters"]["additionalProperties"], false, "{id}");
        }
    });
}

/// S0-6, S0-67: what a tool does, it does within what its call was granted: a write outside leaves nothing there, whether the
/// path says so or a link in the workspace leads there.
#[test]
fn s0_6_s0_67_a_denied_write_leaves_nothing() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let theirs = env.file("theirs", "old");
        std::os::unix::fs::symlink(&*theirs, env.workspace().join("file-link")).unwrap();
        std::os::unix::fs::symlink(env.outside(), env.workspace().join("dir-link")).unwrap();
        let new = env.outside().join("new");
        let control = call(&env, "write", &json!({ "path": "made", "content": "new" }));
        assert_eq!((control.0, &control.1["type"]), (0, &json!("output")));
        assert_eq!(fs::read_to_string(env.workspace().join("made")).unwrap(), "new");
        for (path, status) in [
            (theirs.text(), 77),
            (new.to_str().unwrap(), 77),
            ("../outside/new", 77),
            ("file-link", 1),
            ("dir-link/new", 1),
        ] {
            let (ended, envelope) = call(&env, "write", &json!({ "path": path, "content": "new" }));
            assert_eq!((ended, &envelope["type"]), (status, &json!("error")), "{path}: {envelope}");
            theirs.assert_contents("old");
            let left: Vec<_> = fs::read_dir(env.outside()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left, ["theirs"], "{path}");
        }
    });
}

/// S0-68, C-13: one envelope for an output, a command that fails, a tool's error, a denial and a call of nothing; the same
/// keys, and never both a result and an error.
#[test]
fn s0_68_c_13_every_outcome_has_the_same_envelope() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("mine", "mine");
        for (tool, arguments, status, kind) in [
            ("read", json!({ "path": "mine" }), 0, "output"),
            ("bash", json!({ "command": "exit 3" }), 0, "output"),
            ("bash", json!({ "command": "kill -9 $$" }), 0, "output"),
            ("read", json!({ "path": "missing" }), 1, "error"),
            ("read", json!({ "path": "/etc/shadow" }), 77, "error"),
            ("read", json!({ "path": 7 }), 65, "error"),
            ("no-such-tool", json!({}), 64, "error"),
        ] {
            let (ended, envelope) = call(&env, tool, &arguments);
            assert_eq!((ended, &envelope["type"]), (status, &json!(kind)), "{tool} {arguments}: {envelope}");
            assert!(envelope["metadata"]["duration_ms"].is_u64(), "{envelope}");
            let known = ["type", "data", "error_text", "metadata"];
            assert!(envelope.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{envelope}");
            assert_eq!(envelope["data"].is_null(), kind == "error", "{envelope}");
            assert_eq!(envelope["error_text"].as_str().is_some_and(|text| !text.is_empty()), kind == "error");
        }
    });
}

/// Names by which a model might try to switch the sandbox off.
const NAMES: &[&str] = &[
    "dangerously_disable_sandbox",
    "dangerouslyDisableSandbox",
    "disable_sandbox",
    "sandbox",
    "sandbox_mode",
    "sandbox_permissions",
    "with_escalated_permissions",
    "require_escalated",
    "unsafe",
    "privileged",
    "bypass",
    "approved",
    "mode",
    "profile",
    "requires",
    "grants",
    "write",
    "hosts",
    "exec",
    "env",
    "shell",
    "user",
    "limits",
];

/// A schema has no such name in it, at any depth, and takes nothing that it does not list.
#[track_caller]
fn no_room_for_more(id: &str, schema: &Value) {
    assert_eq!(schema["additionalProperties"], false, "{id}: {schema}");
    for (name, schema) in schema["properties"].as_object().unwrap() {
        assert!(!NAMES.contains(&name.as_str()), "{id}: {name}");
        let is_path = ["path", "working_dir"].contains(&name.as_str());
        match (is_path, &schema["type"]) {
            // Text, or its bytes and nothing else.
            (true, kind) => {
                assert_eq!(kind, &json!(["string", "object"]), "{id}: {name}");
                assert_eq!(schema["additionalProperties"], false, "{id}: {name}");
                let inside: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
                assert_eq!(inside, ["b64"], "{id}: {name}");
            }
            (false, kind) if kind == "array" => no_room_for_more(id, &schema["items"]),
            (false, Value::Null) => assert!(schema["enum"].is_array(), "{id}: {name}: {schema}"),
            (false, kind) => {
                assert!(["string", "integer", "boolean"].map(Value::from).contains(kind), "{id}: {name}: {kind}");
            }
        }
        let text = format!("{name} {}", schema["description"]).to_lowercase();
        for word in ["sandbox", "escalat", "privileg", "permission", "bypass", "unsafe", "dangerous"] {
            assert!(!text.contains(word), "{id}: {name}: {text}");
        }
    }
}

/// E2: no tool has a parameter that a model could switch the sandbox off with, and one that is made up refuses the call, whatever
/// its value: nothing has run, and nothing has changed.
#[test]
fn e2_no_argument_disables_the_sandbox() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let mine = env.workspace_file("mine", "old");
        let fresh = || {
            env.workspace_file("mine", "old");
            drop(fs::remove_file(env.workspace().join("made")));
        };
        let look = || {
            let mut names: Vec<_> =
                fs::read_dir(env.workspace()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            (names, fs::read_to_string(&mine).unwrap())
        };
        for tool in tools(&env).as_array().unwrap() {
            let id = tool["id"].as_str().unwrap();
            no_room_for_more(id, &tool["parameters"]);
            // Those that need a person, a skill, a deferred tool or a host find none, and say so.
            let (arguments, control) = match id {
                "todo" => (json!({ "todos": [] }), 0),
                "question" => (json!({ "questions": [{ "question": "Why?" }] }), 1),
                "skill" => (json!({ "name": "none" }), 1),
                "tool_search" => (json!({ "query": "none" }), 1),
                "read" => (json!({ "path": "mine" }), 0),
                "write" => (json!({ "path": "made", "content": "new" }), 0),
                "edit" => (json!({ "path": "mine", "old_string": "old", "new_string": "new" }), 0),
                "glob" => (json!({ "pattern": "*" }), 0),
                "grep" => (json!({ "pattern": "old" }), 0),
                "bash" => (json!({ "command": "echo new > made" }), 0),
                "web_fetch" => (json!({ "url": "http://127.0.0.1:1/" }), 77),
                other => panic!("what are the arguments of {other}?"),
            };
            fresh();
            let (ended, envelope) = call(&env, id, &arguments);
            let kind = if control == 0 { "output" } else { "error" };
            assert_eq!((ended, &envelope["type"]), (control, &json!(kind)), "the control: {id}: {envelope}");
            fresh();
            let before = look();
            for (number, name) in NAMES.iter().enumerate() {
                let mut more = arguments.clone();
                more[*name] = [json!(true), json!("off"), json!({ "write": ["/**"] })][number % 3].clone();
                let (ended, envelope) = call(&env, id, &more);
                assert_eq!((ended, &envelope["type"]), (65, &json!("error")), "{id} {more}: {envelope}");
                let said = envelope["error_text"].as_str().unwrap();
                assert!(said.contains(name), "{id} {more}: {said}");
                assert_eq!(look(), before, "{id} {more}");
            }
        }
    });
}
