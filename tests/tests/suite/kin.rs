//! Tools outside the lock do what locked ones do. What a rule denies or asks about a locked tool is denied or asked about them too,
//! and nothing has happened when they are refused (C-22).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use callgate_tests::{Binaries, Host, Target, TestEnv, User};
use serde_json::{Value, json};

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };

const GRANTS: &str = "[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n";

/// `callgate call` of a tool, with a manifest of these lines and with these flags.
fn call(env: &TestEnv, lines: &str, flags: &[&str], tool: &str, arguments: &Value) -> (i32, Value) {
    env.workspace_file("m.toml", &format!("{lines}\n{GRANTS}"));
    let (binary, arguments) = (Binaries::of_this_build().callgate().display().to_string(), arguments.to_string());
    let words = [&[binary.as_str(), "call", "--manifest", "m.toml"], flags, &[tool, &arguments]].concat();
    let ended = env.weakened().run(&words);
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.status.code().unwrap(), envelope)
}

fn rule(permission: &str, pattern: &str, action: &str) -> String {
    format!("[[rules]]\npermission = \"{permission}\"\npattern = \"{pattern}\"\naction = \"{action}\"\n")
}

#[track_caller]
fn assert_refused((status, envelope): &(i32, Value), layer: &str, reason: &str) {
    let denial = &envelope["metadata"]["denial"];
    assert_eq!((*status, &denial["layer"]), (77, &json!(layer)), "{envelope}");
    assert!(denial["reason"].as_str().is_some_and(|said| said.contains(reason)), "{reason}: {envelope}");
}

#[track_caller]
fn assert_done((status, envelope): &(i32, Value)) -> Value {
    assert_eq!(*status, 0, "{envelope}");
    envelope["data"].clone()
}

fn directory(env: &TestEnv, name: &str) {
    let path = env.workspace().join(name);
    fs::create_dir(&path).unwrap();
    env.give(&path);
}

fn document(env: &TestEnv, name: &str) {
    let path = env.workspace().join(name);
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("data/documents/one.pdf"), &path).unwrap();
    env.give(&path);
}

/// C-22: a rule about files that `read` may not read holds for PDFs, for what a patch copies or repeats, and for differences.
#[test]
fn c_22_what_read_may_not_tell_no_other_tool_tells() {
    let env = TestEnv::new(HERE);
    ["open", "secret"].iter().for_each(|name| directory(&env, name));
    for name in ["open", "secret"] {
        env.workspace_file(&format!("{name}/t"), "TOPSECRET\n");
        document(&env, &format!("{name}/one.pdf"));
    }
    let git = "git init -q -b main . && git -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m a && git add -N open/t secret/t";
    let made = env.bare().run(&["/bin/sh", "-c", git]);
    assert!(made.status.success(), "{made:?}");
    let rules = rule("read", "secret/**", "deny");
    let reason = "the rule deny read \"secret/**\" (m.toml:1)";
    let yolo = |extra| ["--mode", "yolo", "--extra", extra];
    for place in ["open", "secret"] {
        let copy = format!("diff --git a/{place}/t b/out\nsimilarity index 100%\ncopy from {place}/t\ncopy to out\n");
        let misfit = format!("--- a/{place}/t\n+++ b/{place}/t\n@@ -1 +1 @@\n-foo\n+bar\n");
        for (tool, arguments) in [
            ("read_pdf", json!({ "path": format!("{place}/one.pdf") })),
            ("read_csv", json!({ "path": format!("{place}/t") })),
            ("apply_patch", json!({ "patch": copy })),
            ("apply_patch", json!({ "patch": misfit, "fuzz": 0 })),
        ] {
            let called = call(&env, &rules, &yolo(tool), tool, &arguments);
            if place == "secret" {
                assert_refused(&called, "rule", reason);
                assert!(!called.1.to_string().contains("TOPSECRET"), "{}", called.1);
                assert!(!env.workspace().join("out").exists());
            } else {
                assert_ne!(called.0, 77, "the control: {}", called.1);
            }
        }
        let out = fs::read_to_string(env.workspace().join("out")).ok();
        assert_eq!(out.as_deref(), (place == "open").then_some("TOPSECRET\n"), "the control");
        fs::remove_file(env.workspace().join("out")).unwrap_or_default();
    }
    let difference = |rules: &str| call(&env, rules, &yolo("git_diff"), "git_diff", &json!({ "path": "secret" }));
    assert!(assert_done(&difference(""))["content"].to_string().contains("+TOPSECRET"), "the control");
    assert_refused(&difference(&rules), "rule", reason);
}

/// C-22: names that `glob` may not tell are told by no other tool.
#[test]
fn c_22_what_glob_may_not_tell_no_other_tool_tells() {
    let env = TestEnv::new(HERE);
    ["open", "secret"].iter().for_each(|name| directory(&env, name));
    env.workspace_file("open/name", "");
    env.workspace_file("secret/name", "");
    let rules = rule("glob", "secret/**", "deny");
    for (tool, more) in [("list", json!({})), ("file_search", json!({ "query": "name" }))] {
        let called = |place: &str| {
            let mut arguments = more.clone();
            arguments["path"] = place.into();
            call(&env, &rules, &["--extra", tool], tool, &arguments)
        };
        assert!(assert_done(&called("open")).to_string().contains("name"), "the control");
        assert_refused(&called("secret"), "rule", "the rule deny glob \"secret/**\" (m.toml:1)");
    }
}

/// C-22: a rule about `bash` holds for programs that other tools start, under whatever name and whatever else is called.
#[test]
fn c_22_what_bash_may_not_start_no_other_tool_starts() {
    let env = TestEnv::new(HERE);
    document(&env, "one.pdf");
    let denied = "[[rules]]\npermission = \"bash\"\naction = \"deny\"\n";
    let read = |rules: &str| {
        call(&env, rules, &["--mode", "yolo", "--surface", "deepseek"], "read_file", &json!({ "path": "one.pdf" }))
    };
    assert!(assert_done(&read(""))["content"].is_string(), "the control");
    assert_refused(&read(denied), "rule", "the rule deny bash (m.toml:1)");
    let clone = |pattern: &str| {
        let flags = ["--mode", "yolo", "--extra", "repo_clone", "--net", "127.0.0.1:9"];
        let arguments = json!({ "url": "https://127.0.0.1:9/x/y", "depth": 1 });
        call(&env, &rule("bash", pattern, "deny"), &flags, "repo_clone", &arguments)
    };
    for pattern in ["git clone *", "git clone https://127.0.0.1:9/*"] {
        assert_refused(&clone(pattern), "rule", &format!("the rule deny bash {pattern:?}"));
    }
    assert_ne!(assert_done(&clone("git push *"))["exit_code"], 0, "the control, which found nobody");
    let git = |rules: &str| {
        let told = call(&env, rules, &["--mode", "yolo", "--extra", "diagnostics"], "diagnostics", &json!({}));
        assert_done(&told)["toolchain"][0].clone()
    };
    assert!(git("")["version"].is_string(), "the control");
    let told = git(denied)["unknown"].as_str().unwrap_or_default().to_owned();
    assert!(told.contains("the rule deny bash (m.toml:1)"), "{told}");
}

/// C-22, S0-15: what a rule about `bash` is narrowed to holds for another shell.
#[test]
fn c_22_a_rules_grant_bounds_its_kin() {
    let env = TestEnv::new(HERE);
    directory(&env, "target");
    let rules = "[[rules]]\npermission = \"bash\"\npattern = \"touch *\"\naction = \"ask\"\n\
        grant = { write = [\"target/**\"], net = [] }\n";
    for (tool, output) in [("bash", "output"), ("exec_shell", "stderr")] {
        let flags: &[&str] = &["--mode", "yolo", "--extra", "exec_shell"];
        let touch =
            |path: &str| assert_done(&call(&env, rules, flags, tool, &json!({ "command": format!("touch {path}") })));
        assert_eq!(touch("target/made")["exit_code"], 0, "the control");
        let refused = touch("made");
        let said = refused[output].as_str().unwrap();
        let is_refused = ["Permission denied", "Read-only file system"].iter().any(|errno| said.contains(errno));
        assert!(is_refused && refused["exit_code"] != 0, "{refused}");
        assert!(!env.workspace().join("made").exists() && env.workspace().join("target/made").exists());
        fs::remove_file(env.workspace().join("target/made")).unwrap();
    }
}

/// X3-2: editing makes no programs: a copy may be one, unless the patch says that it is none.
#[test]
fn x3_2_a_copy_of_a_program_is_asked_about() {
    let env = TestEnv::new(HERE);
    env.workspace_file("tool", "echo old\n");
    fs::set_permissions(env.workspace().join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    let patch = |mode: &str| {
        let text = format!(
            "diff --git a/tool b/copy\n{mode}copy from tool\ncopy to copy\n--- a/tool\n+++ b/copy\n@@ -1 +1 @@\n-echo old\n+echo new\n"
        );
        let flags = ["--mode", "auto-edit", "--asked-by", "agent", "--extra", "apply_patch"];
        call(&env, "", &flags, "apply_patch", &json!({ "patch": text }))
    };
    assert_refused(&patch(""), "person", "no rule allows it");
    assert!(!env.workspace().join("copy").exists());
    assert_done(&patch("old mode 100755\nnew mode 100644\n"));
    let made = fs::metadata(env.workspace().join("copy")).unwrap();
    assert_eq!(made.permissions().mode() & 0o111, 0);
}

/// C-1: a rule with a `*` that allows a command does not allow it with something to read, which may be what it does.
#[test]
fn c_1_a_pattern_does_not_allow_an_input() {
    let env = TestEnv::new(HERE);
    let shell = |pattern: &str, input: Option<&str>| {
        let mut arguments = json!({ "command": "python3 -" });
        if let Some(input) = input {
            arguments["stdin"] = input.into();
        }
        let flags = ["--asked-by", "agent", "--extra", "exec_shell"];
        call(&env, &rule("exec_shell", pattern, "allow"), &flags, "exec_shell", &arguments)
    };
    let made = || fs::remove_file(env.workspace().join("made")).is_ok();
    let input = "open('made', 'w')";
    assert_done(&shell("python3 *", None));
    assert_refused(&shell("python3 *", Some(input)), "person", "no rule allows it");
    assert!(!made());
    assert_done(&shell("python3 -", Some(input)));
    assert!(made(), "the control: the rule names the very command");
}

/// X4-3: a dangerous text is found in what a program is given to read as in its command.
#[test]
fn x4_3_a_dangerous_text_is_found_in_an_input() {
    let env = TestEnv::new(HERE);
    let profile = "shell: unrestricted\nfile_write: full\napproval:\n  mode: granular\n  required_tools: []\n  \
        dangerous_patterns: [\"rm -rf\"]\n";
    env.workspace_file("p.yaml", profile);
    let shell = |input: &str| {
        let arguments = json!({ "command": "bash", "stdin": input });
        call(&env, "profile = \"p.yaml\"\n", &["--extra", "exec_shell"], "exec_shell", &arguments)
    };
    assert_refused(&shell("RM -rf nothing; rm -rf nothing; touch made"), "person", "\"*rm -rf*\" (p.yaml:6)");
    assert!(!env.workspace().join("made").exists());
    assert_done(&shell("rm -f nothing; touch made"));
    assert!(env.workspace().join("made").exists(), "the control");
}

/// S4-16: names in a statement are denied in capitals or not.
#[test]
fn s4_16_a_rule_about_a_table_holds_in_capitals() {
    let env = TestEnv::new(HERE);
    let path = env.workspace().join("shop.db");
    let made =
        env.bare().run(&["sqlite3", path.to_str().unwrap(), "CREATE TABLE secrets (a); CREATE TABLE items (a);"]);
    assert!(made.status.success(), "{made:?}");
    env.give(&path);
    env.workspace_file("m.toml", &format!("{}{GRANTS}", rule("sqlite", "*secrets*", "deny")));
    let run = env.weakened().variable("SQLITE_DB", path.to_str().unwrap());
    let binary = Binaries::of_this_build().callgate().display().to_string();
    let query = |sql: &str| {
        let arguments = json!({ "operation": "query", "sql": sql }).to_string();
        let words = ["call", "--manifest", "m.toml", "--mode", "yolo", "--extra", "sqlite", "sqlite", &arguments];
        let ended = run.run(&[&[binary.as_str()], &words[..]].concat());
        let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        (ended.status.code().unwrap(), envelope)
    };
    assert_done(&query("SELECT * FROM ITEMS"));
    for sql in ["SELECT * FROM secrets", "SELECT * FROM SECRETS"] {
        assert_refused(&query(sql), "rule", "the rule deny sqlite \"*secrets*\" (m.toml:1)");
    }
}
