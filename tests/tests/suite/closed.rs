//! Places that a rule closes for writing: programs run, and nothing in such a place changes (S0-51, A1 to A5, A8, A12, A15).

use std::fs;

use callgate_tests::{Host, ProgramRunner, Target, TestEnv, User, matrix, matrix_as};
use libc::{EACCES, ELOOP, ENOTDIR, EXDEV};
use serde_json::{Value, json};

use super::protect::picture;
use super::rules::{call, rule};

const GRANTS: &str = "[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n";

/// A workspace with a closed directory and one that is not, in which lies the same.
fn furnished(target: Target, place: &str) -> TestEnv {
    let env = TestEnv::new(target);
    for directory in [place, "src"] {
        let sub = env.workspace().join(directory).join("sub");
        fs::create_dir_all(&sub).unwrap();
        let file = sub.join("a");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        for made in sub.ancestors().take_while(|made| *made != env.workspace()).chain([file.as_path()]) {
            env.give(made);
        }
    }
    env.workspace_file("file", "new");
    env
}

fn text(env: &TestEnv, name: &str) -> String {
    env.workspace().join(name).display().to_string()
}

/// A sandbox with these rules.
fn sandbox(env: &TestEnv, rules: &str) -> ProgramRunner {
    with_grants(env, rules, GRANTS)
}

fn with_grants(env: &TestEnv, rules: &str, grants: &str) -> ProgramRunner {
    let manifest = env.file("m.toml", &format!("mode = \"yolo\"\n{rules}\n{grants}"));
    env.sandbox().flag(&["--manifest", manifest.text()])
}

/// `K` at the beginning of a word is the closed place, `O` the workspace.
fn words(env: &TestEnv, place: &str, act: &[&str]) -> Vec<String> {
    let word = |word: &&str| match word.split_at(word.len().min(2)) {
        ("K/", rest) => text(env, &format!("{place}/{rest}")),
        ("O/", rest) => text(env, rest),
        _ if *word == "K" => text(env, place),
        _ => (*word).to_owned(),
    };
    act.iter().map(word).collect()
}

fn probe(run: &ProgramRunner, words: &[String]) -> callgate_tests::Probe {
    run.probe(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Acts by which a place could be changed.
const ACTS: &[&[&str]] = &[
    &["write", "K/sub/a", "x"],
    &["open-trunc", "K/sub/a"],
    &["open-legacy", "K/sub/a", "read-trunc"],
    &["truncate", "K/sub/a"],
    &["create", "K/sub/b"],
    &["creat", "K/b"],
    &["mkdir", "K/d"],
    &["mkfifo", "K/f"],
    &["unix-bind", "K/s"],
    &["unlink", "K/sub/a"],
    &["chmod", "K/sub/a", "666"],
    &["fchmod", "K/sub/a", "666"],
    &["utimens", "K/sub/a"],
    &["rename", "O/file", "K/sub/b"],
    &["rename", "O/file", "K/sub/a"],
    &["rename", "K/sub/a", "O/a"],
    &["rename", "K/sub", "O/moved"],
    &["rename", "K", "O/moved"],
    &["rename-exchange", "O/file", "K/sub/a"],
    &["link", "O/file", "K/sub/b"],
    &["link", "K/sub/a", "O/alias"],
    &["symlink", "../file", "K/l"],
    &["open-o-path-reopen", "K/sub/a", "write"],
];

/// S0-51, A1, A3, A4, A5, A12, A15: every way of changing something in a closed directory is refused with EACCES and changes nothing, whoever
/// the rule says it to: `fs.write`, `write` or `edit`. Without the rule each works.
#[test]
fn s0_51_nothing_in_a_closed_place_changes() {
    matrix(Host::STRENGTHS, |target| {
        for (at, (act, permission)) in ACTS.iter().zip(["fs.write", "write", "edit"].iter().cycle()).enumerate() {
            let env = furnished(target, "docs");
            // A rule about a path is about all that lies below it.
            let pattern = if at % 2 == 0 { "docs/**" } else { "docs" };
            let closed = sandbox(&env, &rule(permission, pattern, "deny"));
            let act = words(&env, "docs", act);
            let before = picture(&env.workspace());
            probe(&closed, &act).assert_errno(EACCES);
            assert_eq!(picture(&env.workspace()), before, "{act:?}");
            probe(&sandbox(&env, ""), &act).assert_ok();
            let opens = act[0] == "open-o-path-reopen";
            assert_eq!(picture(&env.workspace()) == before, opens, "the control changed nothing: {act:?}");
        }
    });
}

/// S0-51: where no name is protected (`target`, `node_modules`), where the directory is not there yet, and deep in a tree; a single file
/// as well. What lies beside it can be changed.
#[test]
fn s0_51_a_closed_place_is_closed_wherever_it_lies() {
    matrix(Host::STRENGTHS, |target| {
        for place in ["target/keep", "node_modules/x", "a/b/c", ".git/refs"] {
            let env = furnished(target, place);
            let closed = sandbox(&env, &rule("fs.write", &format!("{place}/**"), "deny"));
            let before = picture(&env.workspace());
            let above = place.split('/').next().unwrap();
            for act in [
                &["write", "K/sub/a", "x"][..],
                &["create", "K/b"],
                &["unlink", "K/sub/a"],
                &["rename", &format!("O/{above}"), "O/gone"],
            ] {
                probe(&closed, &words(&env, place, act)).assert_errno(EACCES);
            }
            assert_eq!(picture(&env.workspace()), before, "{place}");
            probe(&closed, &words(&env, place, &["create", "O/src/sub/b"])).assert_ok();
        }
        let env = furnished(target, "docs");
        let absent = sandbox(&env, &rule("fs.write", "new/deep/**", "deny"));
        probe(&absent, &words(&env, "new", &["mkdir", "K"])).assert_ok();
        probe(&absent, &words(&env, "new", &["mkdir", "K/deep"])).assert_errno(EACCES);
        probe(&absent, &words(&env, "new", &["rename", "O/docs", "K/deep"])).assert_errno(EACCES);
        probe(&absent, &words(&env, "new", &["symlink", "../docs", "K/deep"])).assert_errno(EACCES);
        fs::remove_dir(text(&env, "new")).unwrap();
        fs::create_dir(text(&env, "docs/deep")).unwrap();
        env.give(&env.workspace().join("docs/deep"));
        probe(&absent, &words(&env, "new", &["symlink", "docs", "K"])).assert_errno(EACCES);
        probe(&absent, &words(&env, "new", &["rename", "O/docs", "K"])).assert_errno_any(&[EACCES, EXDEV]);
        let file = sandbox(&env, &rule("write", "src/sub/a", "deny"));
        for act in [
            &["write", "O/src/sub/a", "x"][..],
            &["unlink", "O/src/sub/a"],
            &["rename", "O/file", "O/src/sub/a"],
            &["rename", "O/src", "O/elsewhere"],
        ] {
            probe(&file, &words(&env, "docs", act)).assert_errno(EACCES);
        }
        probe(&file, &words(&env, "docs", &["create", "O/src/sub/b"])).assert_ok();
    });
}

/// S0-51, A2, A3, A7: other names of what lies in a closed place lead to it: links that were there or are made, hard links, `..`, and
/// what `/proc` has.
#[test]
fn s0_51_a3_a_closed_place_is_closed_by_every_name() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target, "docs");
        fs::hard_link(text(&env, "docs/sub/a"), text(&env, "src/hard")).unwrap();
        std::os::unix::fs::symlink("../docs", text(&env, "src/soft")).unwrap();
        let closed = sandbox(&env, &rule("fs.write", "docs/**", "deny"));
        probe(&closed, &words(&env, "docs", &["symlink", "../docs/sub", "O/src/made"])).assert_ok();
        let before = picture(&env.workspace());
        for path in [
            "O/src/hard".to_owned(),
            "O/src/soft/sub/a".to_owned(),
            "O/src/made/a".to_owned(),
            "O/src/../docs/sub/a".to_owned(),
            format!("/proc/self/root{}", text(&env, "docs/sub/a")),
            "/proc/self/cwd/docs/sub/a".to_owned(),
        ] {
            for act in ["truncate", "write", "chmod", "open-trunc"] {
                let last: &[&str] = match act {
                    "write" => &["x"],
                    "chmod" => &["666"],
                    _ => &[],
                };
                let act: Vec<&str> = [&[act, path.as_str()], last].concat();
                probe(&closed, &words(&env, "docs", &act)).assert_errno_any(&[EACCES, ELOOP]);
            }
        }
        assert_eq!(picture(&env.workspace()), before);
        fs::hard_link(text(&env, "src/sub/a"), text(&env, "src/mine")).unwrap();
        probe(&closed, &words(&env, "docs", &["write", "O/src/mine", "x"])).assert_ok();
    });
}

/// S0-51, A3: trees in which nothing is protected are written by the broker too where a rule closes something: a closed place may lie in one, or
/// a file of it have a second name there.
#[test]
fn s0_51_a3_a_closed_place_is_closed_where_nothing_is_protected() {
    matrix(Host::STRENGTHS, |target| {
        let grants = GRANTS.replace("[\"{workspace}/**\"]", "[\"target/**\", \"src/**\"]\nread = [\"{workspace}/**\"]");
        for place in ["target/keep", "src/keep"] {
            let env = furnished(target, place);
            fs::create_dir_all(text(&env, "target")).unwrap();
            env.give(&env.workspace().join("target"));
            fs::hard_link(text(&env, &format!("{place}/sub/a")), text(&env, "target/hard")).unwrap();
            let closed = with_grants(&env, &rule("fs.write", &format!("{place}/**"), "deny"), &grants);
            let before = picture(&env.workspace());
            for path in ["K/sub/a", "O/target/hard"] {
                probe(&closed, &words(&env, place, &["write", path, "x"])).assert_errno(EACCES);
            }
            assert_eq!(picture(&env.workspace()), before);
            probe(&closed, &words(&env, place, &["create", "O/target/b"])).assert_ok();
            probe(&with_grants(&env, "", &grants), &words(&env, place, &["write", "O/target/hard", "x"])).assert_ok();
        }
    });
}

/// S0-51: where the place that the rule names is a link, both it and what it leads to are closed.
#[test]
fn s0_51_a2_a_rule_by_a_link_closes_what_that_leads_to() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target, "real");
        std::os::unix::fs::symlink("real", text(&env, "docs")).unwrap();
        std::os::unix::fs::symlink("absent", text(&env, "dangling")).unwrap();
        let rules = [rule("fs.write", "docs/**", "deny"), rule("fs.write", "dangling/**", "deny")].concat();
        let closed = sandbox(&env, &rules);
        let before = picture(&env.workspace());
        for act in [
            &["write", "O/docs/sub/a", "x"][..],
            &["write", "O/real/sub/a", "x"],
            &["unlink", "O/docs"],
            &["rename", "O/src", "O/docs"],
            &["rename", "O/real", "O/gone"],
            &["mkdir", "O/absent"],
        ] {
            probe(&closed, &words(&env, "docs", act)).assert_errno_any(&[EACCES, ENOTDIR]);
        }
        assert_eq!(picture(&env.workspace()), before);
        probe(&closed, &words(&env, "docs", &["write", "O/src/sub/a", "x"])).assert_ok();
    });
}

/// S0-51, A8: a directory that is mounted twice is closed by both names, whichever the rule has.
#[test]
fn s0_51_a8_a_closed_place_is_closed_where_it_is_mounted() {
    matrix_as(User::Root, Host::STRENGTHS, |target| {
        for (closed, name) in [("docs", "alias"), ("alias", "docs")] {
            let env = furnished(target, "docs");
            fs::create_dir(text(&env, "alias")).unwrap();
            let (docs, alias) = (env.workspace().join("docs"), env.workspace().join("alias"));
            let closed = sandbox(&env, &rule("fs.write", &format!("{closed}/**"), "deny")).mounted(&docs, &alias);
            for act in [&["write", &format!("O/{name}/sub/a"), "x"][..], &["create", &format!("O/{name}/b")]] {
                probe(&closed, &words(&env, "docs", act)).assert_errno(EACCES);
            }
            assert_eq!(fs::read_to_string(docs.join("sub/a")).unwrap(), "old");
            assert!(!docs.join("b").exists());
            let free = sandbox(&env, "").mounted(&docs, &alias);
            probe(&free, &words(&env, "docs", &["write", &format!("O/{name}/sub/a"), "x"])).assert_ok();
        }
    });
}

fn bash(env: &TestEnv, rules: &str, command: &str) -> (Value, String) {
    let called = call(env, rules, &["--mode", "yolo"], "bash", &json!({ "command": command }));
    let output = called.envelope["data"]["output"].as_str().unwrap_or_default().to_owned();
    (called.envelope, output)
}

/// S0-51: the result says which rule it was; and what asks about programs goes on asking.
#[test]
fn s0_51_a_result_names_the_rule_that_closes() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target, "docs");
        let closes = rule("fs.write", "docs/**", "deny");
        let (envelope, output) = bash(&env, &closes, "(echo x > docs/sub/a) 2> /dev/null; echo x > src/b && echo ran");
        assert_eq!(output, "ran\n", "{envelope}");
        let refused = &envelope["metadata"]["changes"]["refused"];
        assert_eq!(refused[0]["path"], text(&env, "docs/sub/a"));
        let why = refused[0]["why"].as_str().unwrap();
        assert!(why.starts_with("the rule deny fs.write \"docs/**\" (") && why.ends_with("m.toml:1)"), "{why}");
        assert_eq!(fs::read_to_string(text(&env, "docs/sub/a")).unwrap(), "old");
        let asks = [closes, rule("fs.write", "src/**", "ask")].concat();
        let called = call(&env, &asks, &["--mode", "ask"], "bash", &json!({ "command": "true" }));
        called.assert_denied("person", "the rule ask fs.write");
    });
}

/// S0-51: a pattern that is neither a file nor a directory with all below it, or one that holds the session's own directories, closes
/// programs as a whole, and the denial says what would not.
#[test]
fn s0_51_what_cannot_be_closed_is_denied_as_a_whole() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target, "docs");
        for pattern in ["docs/*.md", "**/a", "/**"] {
            let called = call(
                &env,
                &rule("fs.write", pattern, "deny"),
                &["--mode", "yolo"],
                "bash",
                &json!({ "command": "true" }),
            );
            called.assert_denied("rule", "for what a program could do");
            let remedy = called.denial()["remedy"].as_str().unwrap();
            assert!(remedy.contains("a directory with all below it (`docs/**`) or one file"), "{remedy}");
        }
        for pattern in ["docs/sub/**", "docs/sub"] {
            let (envelope, _) = bash(&env, &rule("fs.write", pattern, "deny"), "true");
            assert_eq!(envelope["data"]["exit_code"], 0, "the control: {envelope}");
        }
    });
}

/// Names of the files that a result is about.
fn found(envelope: &Value) -> Vec<String> {
    let data = &envelope["data"];
    let of = |key: &str| data[key].as_array().cloned().unwrap_or_default();
    let mut names: Vec<String> = [of("matches"), of("paths"), of("entries")]
        .concat()
        .iter()
        .map(|one| one["path"].as_str().or(one["name"].as_str()).or(one.as_str()).unwrap().to_owned())
        .map(|path| path.rsplit("/workspace/").next().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// S0-51: tools that go through a tree leave out what rules deny there, and say how much; what is named alone is denied. A rule about
/// what files hold leaves their names.
#[test]
fn s0_51_searches_leave_out_what_is_denied() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for file in ["secret/key", "secret/deep/key", "src/.env", "src/a.pem", "src/a.txt"] {
            let file = env.workspace().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            env.give(file.parent().unwrap());
            env.file_at(file, "classified");
        }
        env.give(&env.workspace().join("secret"));
        std::os::unix::fs::symlink("../secret", text(&env, "src/link")).unwrap();
        let extra = "mode = \"yolo\"\nextra = [\"file_search\", \"list\"]\n";
        let denies = |permission: &str| {
            let rules = ["secret/**", "**/.env", "src/*.pem"].map(|pattern| rule(permission, pattern, "deny"));
            format!("{extra}{}", rules.concat())
        };
        let grep = json!({ "pattern": "classified", "glob": "*" });
        let env_file = json!({ "pattern": "classified", "glob": ".env" });
        let all = ["secret/deep/key", "secret/key", "src/a.pem", "src/a.txt"];
        for (tool, args, left, count, without) in [
            ("grep", &grep, &["src/a.txt"][..], 2, &all[..]),
            ("grep", &env_file, &[], 2, &["src/.env"]),
            ("glob", &json!({ "pattern": "*.txt" }), &["src/a.txt"], 1, &["src/a.txt"]),
            ("glob", &json!({ "pattern": "secret/**" }), &[], 2, &all[..2]),
            ("file_search", &json!({ "query": "key" }), &[], 2, &all[..2]),
            ("list", &json!({ "path": "src" }), &["a.txt", "link"], 1, &["a.pem", "a.txt", "link"]),
        ] {
            let called = call(&env, &denies("fs.read"), &[], tool, args);
            let mut seen = found(&called.envelope);
            seen.retain(|name| name != "m.toml");
            assert_eq!(seen, left, "{tool} {args}: {}", called.envelope);
            let left_out = &called.envelope["data"]["left_out"];
            assert_eq!(left_out["count"], count, "{tool} {args}: {}", called.envelope);
            assert!(left_out["by"][0].as_str().unwrap().contains("the rule deny fs.read"), "{left_out}");
            let control = call(&env, extra, &[], tool, args);
            let mut seen = found(&control.envelope);
            seen.retain(|name| name != "m.toml");
            assert_eq!(seen, without, "the control: {tool} {args}");
            assert!(control.envelope["data"]["left_out"].is_null());
        }
        for (tool, path) in [("grep", "secret"), ("grep", "secret/key"), ("grep", "src/a.pem"), ("glob", "secret/deep")]
        {
            let args = json!({ "pattern": "classified", "path": path });
            call(&env, &denies("fs.read"), &[], tool, &args).assert_denied("rule", "the rule deny fs.read");
        }
        let by_link =
            call(&env, &denies("fs.read"), &[], "grep", &json!({ "pattern": "classified", "path": "src/link" }));
        assert!(by_link.envelope["error_text"].as_str().unwrap().contains("symbolic link"), "{}", by_link.envelope);
        // What they hold is denied, and not what they are called.
        let names = call(&env, &denies("read"), &[], "glob", &json!({ "pattern": "secret/**" }));
        assert_eq!(found(&names.envelope), all[..2], "{}", names.envelope);
        let lines = call(&env, &denies("read"), &[], "grep", &grep);
        assert_eq!(lines.envelope["data"]["left_out"]["count"], 2, "{}", lines.envelope);
    });
}
