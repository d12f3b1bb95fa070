//! The result envelope: its shapes (C-13, C-27), and what it says held (C-18).

use std::fs;

use callgate_tests::{Binaries, Host, Target, TestEnv, matrix};
use serde_json::{Value, json};

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// `callgate call TOOL ARGUMENTS`: its exit status and envelope.
fn call(env: &TestEnv, tool: &str, arguments: &Value) -> (i32, Value) {
    let callgate = Binaries::of_this_build().callgate().display().to_string();
    let ended = env.weakened().run(&[&callgate, "call", tool, &arguments.to_string()]);
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.status.code().unwrap(), envelope)
}

/// X1-25: what kind of error it is, is told apart from the text: a class, and a code in its context. A result has none.
#[test]
fn x1_25_every_error_has_a_class_and_a_code() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("twice", "a\na\n");
        env.file("secret", "s");
        let secret = env.outside().join("secret");
        let edit = |old: &str| json!({ "path": "twice", "old_string": old, "new_string": "b" });
        for (tool, arguments, class, code) in [
            ("no-such-tool", json!({}), "ToolTerminal", "NotFound"),
            ("read", json!({}), "ToolTerminal", "InputInvalid"),
            ("read", json!({ "path": "missing" }), "ToolTerminal", "NotFound"),
            ("read", json!({ "path": secret }), "ToolTerminal", "Forbidden"),
            ("read", json!({ "path": "twice", "start_line": 9 }), "ToolTerminal", "InputInvalid"),
            ("edit", edit("c"), "ToolTerminal", "NotFound"),
            ("edit", edit("a"), "ToolTerminal", "AmbiguousMatch"),
            ("bash", json!({ "command": "rm -rf /" }), "ToolTerminal", "CommandRejected"),
            ("bash", json!({ "command": "true", "working_dir": "missing" }), "ToolTerminal", "ToolExecutionFailed"),
            ("question", json!({ "questions": [{ "question": "Why?" }] }), "Validation", "NoInteractorAttached"),
            ("skill", json!({ "name": "none" }), "ToolTerminal", "NotFound"),
        ] {
            let (_, failed) = call(&env, tool, &arguments);
            assert_eq!(failed["type"], "error", "{tool} {arguments}: {failed}");
            let wanted = json!({ "class": class, "context": { "code": code } });
            assert_eq!(failed["metadata"]["error"], wanted, "{tool} {arguments}: {failed}");
            assert!(!failed["error_text"].as_str().unwrap().contains(code), "it is not in the text: {failed}");
        }
        let (_, control) = call(&env, "read", &json!({ "path": "twice" }));
        assert_eq!((&control["type"], &control["metadata"]["error"]), (&json!("output"), &Value::Null), "{control}");
    });
}

/// C-18: which mechanisms are named for each kind of right, and no other.
fn assert_enforced(target: Target, envelope: &Value, tool: bool) {
    let expected = [
        ("fs", &["kept_names", "landlock", "mounts", "seccomp"][..]),
        ("net", &["landlock", "namespaces", "seccomp"]),
        ("ipc", &["landlock", "namespaces", "seccomp"]),
        ("processes", &["landlock", "namespaces", "seccomp"]),
        ("privilege", &["capabilities", "no_new_privs", "seccomp"]),
        ("descriptors", &["close_fds"]),
        ("limits", &["core_dumps", "limits"]),
    ];
    let enforced = envelope["metadata"]["enforced"].as_array().unwrap();
    assert_eq!(enforced.len(), expected.len(), "{enforced:?}");
    for (held, (what, by)) in enforced.iter().zip(expected) {
        assert_eq!(held["what"], what);
        let lines = held["by"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
        let mut steps: Vec<&str> = lines.clone().map(|line| line.split(':').next().unwrap()).collect();
        steps.sort_unstable();
        steps.dedup();
        let wanted = by.iter().filter(|step| target.has_namespaces() || !["mounts", "namespaces"].contains(step));
        assert_eq!(steps, wanted.copied().collect::<Vec<_>>(), "{what}");
        if what == "fs" {
            let abi = lines.clone().filter(|line| line.starts_with("landlock: call domain, abi ")).count();
            assert_eq!(abi, 1, "{held}");
            assert_eq!(lines.clone().any(|line| line == "seccomp: tool filter"), tool, "{held}");
        }
    }
}

/// C-27: `write` and `read` have one shape each, whatever the file holds.
#[test]
fn c_27_read_and_write() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (status, made) = call(&env, "write", &json!({ "path": "a/b.txt", "content": "one\ntwo\n" }));
        assert_eq!((status, &made["type"]), (0, &json!("output")), "{made}");
        assert_eq!(keys(&made["data"]), ["bytes", "created", "path"], "{made}");
        assert_eq!((&made["data"]["bytes"], &made["data"]["created"]), (&json!(8), &json!(true)));
        assert_enforced(target, &made, true);
        assert_eq!(fs::read_to_string(env.workspace().join("a/b.txt")).unwrap(), "one\ntwo\n");
        let (_, again) = call(&env, "write", &json!({ "path": "a/b.txt", "content": "one\ntwo\nthree\n" }));
        assert_eq!(again["data"]["created"], false, "{again}");
        // The mode is kept, also where the umask would take from it.
        let odd = env.workspace_file("odd", "old");
        fs::set_permissions(&odd, std::os::unix::fs::PermissionsExt::from_mode(0o767)).unwrap();
        let (_, replaced) = call(&env, "write", &json!({ "path": "odd", "content": "new" }));
        assert_eq!(replaced["type"], "output", "{replaced}");
        assert!(odd.metadata().starts_with("mode 100767 "), "{}", odd.metadata());
        odd.assert_contents("new");

        let (status, read) = call(&env, "read", &json!({ "path": "a/b.txt", "start_line": 2, "end_line": 2 }));
        assert_eq!((status, &read["data"]["content"]), (0, &json!("two\n")), "{read}");
        let shape = ["content", "encoding", "end_line", "size", "start_line"];
        let found = keys(&read["data"]);
        assert!(shape.iter().all(|key| found.contains(key)), "{read}");
        assert!(found.iter().all(|key| shape.contains(key) || ["path", "total_lines"].contains(key)), "{read}");
        assert_eq!(
            (&read["data"]["encoding"], &read["data"]["start_line"], &read["data"]["end_line"], &read["data"]["size"]),
            (&json!("utf-8"), &json!(2), &json!(2), &json!(14))
        );
        assert_enforced(target, &read, true);
        fs::write(env.workspace().join("binary"), [0xff, 0x00, 0xfe]).unwrap();
        let (_, binary) = call(&env, "read", &json!({ "path": "binary" }));
        assert_eq!(
            (&binary["data"]["encoding"], &binary["data"]["content"]),
            (&json!("base64"), &json!("/wD+")),
            "{binary}"
        );
    });
}

/// C-13: a command that fails is a result; its streams come as one, in order.
#[test]
fn c_13_bash() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (status, failed) = call(&env, "bash", &json!({ "command": "echo out; echo err >&2; echo out; exit 7" }));
        assert_eq!((status, &failed["type"]), (0, &json!("output")), "{failed}");
        assert_eq!(keys(&failed["data"]), ["duration_seconds", "exit_code", "output", "signal", "timed_out"]);
        assert_eq!(failed["data"]["output"], "out\nerr\nout\n");
        assert_eq!((&failed["data"]["exit_code"], &failed["data"]["timed_out"]), (&json!(7), &json!(false)));
        assert!(failed["data"]["duration_seconds"].is_f64() && failed["metadata"]["duration_ms"].is_u64(), "{failed}");
        assert_enforced(target, &failed, false);
        let (_, slow) = call(&env, "bash", &json!({ "command": "echo first; sleep 100", "timeout_ms": 3000 }));
        assert_eq!((&slow["data"]["timed_out"], &slow["data"]["output"]), (&json!(true), &json!("first\n")), "{slow}");
        let (_, killed) = call(&env, "bash", &json!({ "command": "kill -9 $$" }));
        assert_eq!((&killed["data"]["signal"], &killed["data"]["exit_code"]), (&json!(9), &Value::Null), "{killed}");
    });
}

/// C-13: an error has its text and, where a layer refused, which; and no data.
#[test]
fn c_13_errors() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let theirs = env.file("theirs", "old");
        std::os::unix::fs::symlink(&theirs, env.workspace().join("link")).unwrap();
        for (tool, arguments, status, layer) in [
            ("read", json!({ "path": theirs.text() }), 77, json!("capability")),
            ("write", json!({ "path": theirs.text(), "content": "new" }), 77, json!("capability")),
            ("read", json!({ "file": "x" }), 65, json!("schema")),
            ("bash", json!({ "command": "" }), 65, json!("schema")),
            ("read", json!({ "path": "missing" }), 1, Value::Null),
        ] {
            let (code, envelope) = call(&env, tool, &arguments);
            assert_eq!((code, &envelope["type"]), (status, &json!("error")), "{tool} {arguments}: {envelope}");
            assert_eq!(envelope["metadata"]["denial"]["layer"], layer, "{envelope}");
            assert!(envelope["error_text"].is_string() && envelope["data"].is_null(), "{envelope}");
            // C-18: only of what ran is anything claimed.
            if layer.is_null() {
                assert_enforced(target, &envelope, true);
            } else {
                assert!(envelope["metadata"]["enforced"].is_null(), "{envelope}");
            }
        }
        // A2: the link is inside, what it leads to is not.
        for (tool, arguments) in
            [("read", json!({ "path": "link" })), ("write", json!({ "path": "link", "content": "new" }))]
        {
            let (code, envelope) = call(&env, tool, &arguments);
            let kept = tool == "write" && code == 0;
            assert!(kept || envelope["type"] == "error", "{tool}: {envelope}");
            assert!(!envelope.to_string().contains("old"), "{envelope}");
        }
        theirs.assert_contents("old");
    });
}

/// C-18: what `run --status` says, and that an exit status is passed through.
#[test]
fn c_18_run_says_what_held() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let file = env.outside().join("status.json");
        let run = |script: &str| {
            let run = env.sandbox().flag(&["--status", file.to_str().unwrap()]);
            let ended = run.run(&["/bin/sh", "-c", script]);
            (ended.status.code(), serde_json::from_str::<Value>(&fs::read_to_string(&file).unwrap()).unwrap())
        };
        let (code, envelope) = run("exit 7");
        assert_eq!((code, &envelope["data"]["exit_code"]), (Some(7), &json!(7)));
        assert_eq!(keys(&envelope["data"]), ["cpu_us", "exit_code", "killed", "signal", "timed_out"]);
        assert_enforced(target, &envelope, false);
        let (code, envelope) = run("sleep 60 & sleep 60 & kill -TERM $$");
        assert_eq!((code, &envelope["data"]["signal"]), (Some(143), &json!(15)));
        assert_eq!(envelope["data"]["killed"], 2, "{envelope}");
    });
}

/// S0-12, S0-13, S0-14, C-27: `edit`, `glob` and `grep` have one shape each.
#[test]
fn s0_12_s0_13_s0_14_c_27_edit_glob_and_grep() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (one, _two) = (env.workspace_file("one.rs", "a\nold\n"), env.workspace_file("two.txt", "old\n"));
        fs::set_permissions(&one, std::os::unix::fs::PermissionsExt::from_mode(0o751)).unwrap();
        let (status, found) = call(&env, "grep", &json!({ "pattern": "^old$", "context_lines": 1 }));
        assert_eq!((status, keys(&found["data"])), (0, vec!["files_searched", "matches"]), "{found}");
        assert_eq!(found["data"]["files_searched"], 2);
        let matches = found["data"]["matches"].as_array().unwrap();
        assert_eq!(keys(&matches[0]), ["after", "before", "line", "path", "text"]);
        assert_eq!(
            (&matches[0]["line"], &matches[0]["text"], &matches[0]["before"]),
            (&json!(2), &json!("old"), &json!(["a"]))
        );
        assert_eq!(matches.len(), 2);
        assert_enforced(target, &found, true);

        let (status, listed) = call(&env, "glob", &json!({ "pattern": "*.rs" }));
        assert_eq!((status, &listed["data"]), (0, &json!({ "paths": [one.text()] })), "{listed}");
        assert_enforced(target, &listed, true);

        let (status, edited) =
            call(&env, "edit", &json!({ "path": "one.rs", "old_string": "old", "new_string": "new" }));
        assert_eq!((status, &edited["data"]), (0, &json!({ "path": one.text(), "line": 2 })), "{edited}");
        assert_enforced(target, &edited, true);
        one.assert_contents("a\nnew\n");
        assert!(one.metadata().starts_with("mode 100751 "), "{}", one.metadata());
        for arguments in [
            json!({ "path": "one.rs", "old_string": "old", "new_string": "new" }),
            json!({ "path": "one.rs", "old_string": "\n", "new_string": "new" }),
            json!({ "path": "missing", "old_string": "a", "new_string": "b" }),
        ] {
            let (status, failed) = call(&env, "edit", &arguments);
            assert_eq!((status, &failed["type"]), (1, &json!("error")), "{failed}");
            one.assert_contents("a\nnew\n");
        }
    });
}

/// S0-61, A2: neither a search nor an edit leaves what was granted, on no host and for no user.
#[test]
fn s0_61_a2_a_search_and_an_edit_stay_inside() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let theirs = env.file("theirs", "needle\n");
        env.workspace_file("mine", "needle\n");
        std::os::unix::fs::symlink(&*theirs, env.workspace().join("link")).unwrap();
        std::os::unix::fs::symlink(env.outside(), env.workspace().join("dir")).unwrap();
        let (_, found) = call(&env, "grep", &json!({ "pattern": "needle" }));
        assert_eq!(found["data"]["matches"].as_array().unwrap().len(), 1, "the control, and nothing else: {found}");
        for path in ["link", "dir", "dir/theirs", theirs.text(), "../outside"] {
            let (_, found) = call(&env, "grep", &json!({ "pattern": "needle", "path": path }));
            assert!(found["data"]["matches"].as_array().is_none_or(Vec::is_empty), "{path}: {found}");
            let (_, listed) = call(&env, "glob", &json!({ "pattern": "*", "path": path }));
            assert!(!listed["data"].to_string().contains("theirs"), "{path}: {listed}");
            let change = json!({ "path": path, "old_string": "needle", "new_string": "mine" });
            let (status, _) = call(&env, "edit", &change);
            assert_ne!(status, 0, "{path}");
            theirs.assert_contents("needle\n");
        }
        let names: Vec<_> = fs::read_dir(env.outside()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["theirs"]);
    });
}
