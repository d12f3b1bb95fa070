//! Arguments that are not plain text of the schema's type: paths that are not UTF-8 (C-27), and other types than the schema's
//! (C-21).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callgate_tests::{Binaries, Host, TestEnv, matrix};
use serde_json::{Value, json};

/// The exit status and the envelope of `callgate call`.
#[track_caller]
fn call(env: &TestEnv, flags: &[&str], tool: &str, arguments: &Value) -> (i32, Value) {
    let callgate = Binaries::of_this_build().callgate().display().to_string();
    let arguments = arguments.to_string();
    let words = [&[callgate.as_str(), "call"], flags, &[tool, &arguments]].concat();
    let ended = env.weakened().run(&words);
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.status.code().unwrap(), envelope)
}

#[track_caller]
fn data(env: &TestEnv, tool: &str, arguments: &Value) -> Value {
    let (status, mut envelope) = call(env, &[], tool, arguments);
    assert_eq!(status, 0, "{tool} {arguments}: {envelope}");
    envelope["data"].take()
}

fn b64(bytes: impl AsRef<[u8]>) -> Value {
    json!({ "b64": STANDARD.encode(bytes) })
}

/// C-27: each tool takes a path that is not UTF-8 as `{"b64": …}`, and what results call `path_b64` is what they take.
#[test]
fn c_27_paths_that_are_not_utf_8_go_in_as_they_come_out() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let workspace = env.workspace().canonicalize().unwrap();
        let real = |name: &[u8]| workspace.join(OsStr::from_bytes(name));
        let encoded = |path: &Path| json!(STANDARD.encode(path.as_os_str().as_bytes()));
        let file = real(b"d\xe9r/caf\xe9.txt");

        let arguments = json!({ "path": b64(b"d\xe9r/caf\xe9.txt"), "content": "needle\n" });
        let written = data(&env, "write", &arguments);
        assert_eq!(fs::read_to_string(&file).unwrap(), "needle\n", "{written}");
        assert_eq!(written["path_b64"], encoded(&file));
        // From here on with what a result gave.
        let path = json!({ "b64": written["path_b64"] });

        let read = data(&env, "read", &json!({ "path": path }));
        assert_eq!((&read["content"], &read["path_b64"]), (&json!("needle\n"), &encoded(&file)));
        let edit = json!({ "path": path, "old_string": "needle", "new_string": "needle two" });
        assert_eq!(data(&env, "edit", &edit)["path_b64"], encoded(&file));
        assert_eq!(fs::read_to_string(&file).unwrap(), "needle two\n");
        let found = data(&env, "grep", &json!({ "pattern": "two", "path": path }));
        assert_eq!(found["matches"][0]["path_b64"], encoded(&file), "{found}");
        let found = data(&env, "grep", &json!({ "pattern": "two", "path": b64(b"d\xe9r") }));
        assert_eq!(found["matches"][0]["path_b64"], encoded(&file), "{found}");
        let listed = data(&env, "glob", &json!({ "pattern": "*", "path": b64(b"d\xe9r") }));
        assert_eq!(listed["path_b64"], json!([encoded(&file)]), "{listed}");
        let in_dir = json!({ "command": "cat *.txt", "working_dir": b64(b"d\xe9r") });
        assert_eq!(data(&env, "bash", &in_dir)["output"], "needle two\n");

        // Text that is spelt by its bytes is the same path.
        env.workspace_file("plain", "plain");
        let plain = data(&env, "read", &json!({ "path": b64("plain") }));
        assert_eq!((&plain["content"], plain.get("path_b64")), (&json!("plain"), None));
    });
}

/// C-27: a path by its bytes is checked as one that is text is: by the schema, the grants and the watchdog.
#[test]
fn c_27_a_path_by_its_bytes_is_checked_like_text() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        env.workspace_file("plain", "plain");
        for (path, said) in [
            (json!({ "b64": "not base64" }), "argument `path`"),
            (json!({ "b64": "" }), "b64"),
            (json!({ "b64": "cGxhaW4=", "more": 1 }), "more"),
            (json!({}), "b64"),
            (b64(b"a\0b"), "NUL"),
        ] {
            let (status, envelope) = call(&env, &[], "read", &json!({ "path": path }));
            assert_eq!(status, 65, "{path}: {envelope}");
            let text = envelope["error_text"].as_str().unwrap();
            assert!(text.contains(said), "{path}: {text}");
        }
        let (status, envelope) = call(&env, &[], "bash", &json!({ "command": "pwd", "working_dir": { "b64": "?" } }));
        assert_eq!(status, 65, "{envelope}");
        for (path, layer) in [("/etc/shadow", "capability"), ("~/.ssh/id_rsa", "watchdog")] {
            for spelt in [json!(path), b64(path)] {
                let (status, envelope) = call(&env, &[], "read", &json!({ "path": spelt }));
                assert_eq!((status, &envelope["metadata"]["denial"]["layer"]), (77, &json!(layer)), "{envelope}");
            }
        }
        data(&env, "read", &json!({ "path": b64("plain") }));
    });
}

/// C-21: with `--coerce` an argument of another type is taken as the schema's where that loses nothing, and the result says so.
/// Without it, or where something would be lost, the call is refused.
#[test]
fn c_21_arguments_are_coerced_only_on_demand_and_without_loss() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        env.workspace_file("404", "one\ntwo\nthree\n");
        let odd = json!({ "path": 404, "start_line": "2", "end_line": null });
        let (status, envelope) = call(&env, &["--coerce"], "read", &odd);
        assert_eq!((status, &envelope["data"]["content"]), (0, &json!("two\nthree\n")), "{envelope}");
        let taken = json!([
            { "argument": "/end_line", "from": "null", "to": "absent" },
            { "argument": "/path", "from": "integer", "to": "string" },
            { "argument": "/start_line", "from": "string", "to": "integer" },
        ]);
        assert_eq!(envelope["metadata"]["coerced"], taken);
        let (status, envelope) = call(&env, &[], "read", &odd);
        assert_eq!((status, envelope["metadata"].get("coerced")), (65, None), "off by default: {envelope}");
        let plain = json!({ "path": "404", "start_line": 2 });
        let (status, envelope) = call(&env, &["--coerce"], "read", &plain);
        assert_eq!((status, envelope["metadata"].get("coerced")), (0, None), "nothing to coerce: {envelope}");

        let grep = json!({ "pattern": "TWO", "ignore_case": "true" });
        let (status, envelope) = call(&env, &["--coerce"], "grep", &grep);
        assert_eq!((status, &envelope["data"]["matches"][0]["line"]), (0, &json!(2)), "{envelope}");

        for lossy in [
            json!({ "path": "404", "start_line": "02" }),
            json!({ "path": "404", "start_line": "2.5" }),
            json!({ "path": "404", "start_line": "two" }),
            json!({ "path": null }),
            json!({ "path": ["404"] }),
            json!({ "path": "404", "line": "2" }),
            json!("{\"path\": \"404\"}"),
        ] {
            let (status, envelope) = call(&env, &["--coerce"], "read", &lossy);
            assert_eq!(
                (status, &envelope["metadata"]["denial"]["layer"]),
                (65, &json!("schema")),
                "{lossy}: {envelope}"
            );
        }
        // Its own checks come after: what is coerced is still to be valid, and granted.
        let (status, _) = call(&env, &["--coerce"], "read", &json!({ "path": "404", "start_line": "0" }));
        assert_eq!(status, 65);
        let (status, envelope) =
            call(&env, &["--coerce"], "read", &json!({ "path": "/etc/shadow", "start_line": "1" }));
        assert_eq!(
            (status, &envelope["metadata"]["coerced"][0]["argument"]),
            (77, &json!("/start_line")),
            "{envelope}"
        );
    });
}
