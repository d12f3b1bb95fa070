//! A call of `bash` may do less than its session: what a rule's `grant` leaves its command, and nothing to change for a line whose
//! commands only read (S0-15). The kernel and the broker hold it, and the envelope says which it was.

use std::fs;
use std::net::TcpListener;

use callgate_tests::{Binaries, Host, ProgramOutcome, Target, TestEnv, User, matrix};
use serde_json::{Value, json};

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };

const SESSION: &str = "[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n";

fn rule(pattern: Option<&str>, grant: &str) -> String {
    let pattern = pattern.map(|pattern| format!("pattern = \"{pattern}\"\n")).unwrap_or_default();
    format!("[[rules]]\npermission = \"bash\"\n{pattern}action = \"allow\"\n{grant}\n")
}

fn called(env: &TestEnv, rules: &str, command: &str) -> (ProgramOutcome, Value) {
    env.workspace_file("m.toml", &format!("{SESSION}{rules}"));
    let (binary, arguments) =
        (Binaries::of_this_build().callgate().display().to_string(), json!({ "command": command }).to_string());
    let ended = env.weakened().run(&[&binary, "call", "--manifest", "m.toml", "bash", &arguments]);
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended, envelope)
}

/// Output of the call.
fn output(env: &TestEnv, rules: &str, command: &str) -> (String, Value) {
    let (ended, envelope) = called(env, rules, command);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    (envelope["data"]["output"].as_str().unwrap().to_owned(), envelope["metadata"]["sub_policy"].clone())
}

fn is_refused(said: &str) -> bool {
    ["Permission denied", "Read-only file system"].iter().any(|errno| said.contains(errno))
}

fn workspace(env: &TestEnv) {
    for directory in ["src", "target", ".vscode"] {
        let path = env.workspace().join(directory);
        fs::create_dir_all(&path).unwrap();
        env.give(&path);
    }
    for file in ["src/kept", "src/other", "target/old"] {
        env.workspace_file(file, "old");
    }
}

/// Whatever a command does elsewhere in the workspace is refused and changes nothing; in what the rule grants, and in the session's
/// own directories, it works. Without the grant the very same works everywhere.
#[test]
fn s0_15_a_rules_grant_bounds_its_command() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let narrow = rule(None, "grant = { write = [\"target/**\"], net = [] }");
        for change in [
            "echo new > PLACE/kept",
            "echo new >> PLACE/kept",
            "truncate -s 0 PLACE/kept",
            "rm PLACE/kept",
            "mv PLACE/kept PLACE/moved",
            "ln PLACE/kept PLACE/linked",
            "ln -s kept PLACE/symlink",
            "mkdir PLACE/dir",
            "chmod 777 PLACE/kept",
            "touch -d 2001-01-01 PLACE/kept",
            "mkfifo PLACE/fifo",
            "bash -c 'echo new > PLACE/made'",
        ] {
            workspace(&env);
            env.workspace_file("target/kept", "old");
            let before = listing(&env, "src");
            let (said, sub_policy) = output(&env, &narrow, &change.replace("PLACE", "src"));
            assert!(is_refused(&said) || said.contains("not permitted"), "{change}: {said}");
            assert_eq!(listing(&env, "src"), before, "{change}: the world did not change");
            assert!(sub_policy["by"].as_str().unwrap().starts_with("rule m.toml:"), "{sub_policy}");
            assert_eq!(sub_policy["net"], json!([]));
            let target_dir = format!("{}/target/**", env.workspace().canonicalize().unwrap().display());
            assert_eq!(sub_policy["write"], json!([target_dir]));
            for (rules, place) in [(narrow.as_str(), "target"), ("", "src")] {
                let before = listing(&env, place);
                let (said, _) = output(&env, rules, &change.replace("PLACE", place));
                assert_eq!(said, "", "{change}: the control in {place}");
                assert_ne!(listing(&env, place), before, "{change}: the control in {place}");
            }
            for place in ["src", "target"] {
                fs::remove_dir_all(env.workspace().join(place)).unwrap();
            }
        }
        workspace(&env);
        let own = "echo x > $TMPDIR/x && cat $TMPDIR/x src/kept";
        assert_eq!(output(&env, &narrow, own).0, "x\nold", "its own directory, and what may be read");
    });
}

/// The content of `HOME` decides what a program does in later calls, which may have more: a call that a rule narrows writes
/// nothing there. Caches are elsewhere.
#[test]
fn s0_15_a_narrowed_call_leaves_home_as_it_is() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        workspace(&env);
        env.workspace_file("target/theirs", "[core]\n\tpager = ./planted\n");
        let narrow = rule(None, "grant = { write = [\"target/**\"] }");
        for change in [
            "echo x > $HOME/x",
            "mkdir -p $HOME/.config/git",
            "cp target/theirs $HOME/y",
            "mv target/theirs $HOME/z",
            "git config --global user.name x",
            "touch $HOME",
        ] {
            let look = format!(
                "ls -la --time-style=+%s.%N $HOME > $TMPDIR/before; {change}; a=$?; \
                                ls -la --time-style=+%s.%N $HOME | cmp - $TMPDIR/before && echo same $a"
            );
            let (said, _) = output(&env, &narrow, &look);
            assert!(said.contains("\nsame ") && !said.contains("same 0"), "{change}: {said}");
            assert!(
                output(&env, "", &format!("{change} && echo changed")).0.contains("changed"),
                "the control: {change}"
            );
            env.workspace_file("target/theirs", "[core]\n\tpager = ./planted\n");
        }
        let caches = "for d in $XDG_CACHE_HOME $GOCACHE $npm_config_cache; do mkdir -p $d && echo x > $d/x; done; \
                      cat $XDG_CACHE_HOME/x $GOCACHE/x $npm_config_cache/x";
        for rules in [narrow.as_str(), ""] {
            assert_eq!(output(&env, rules, caches).0, "x\nx\nx\n", "caches");
        }
    });
}

/// Names, kinds, lengths, modes and times below a directory.
fn listing(env: &TestEnv, place: &str) -> Vec<String> {
    use std::os::unix::fs::MetadataExt as _;
    let entries = fs::read_dir(env.workspace().join(place)).unwrap();
    let mut all: Vec<String> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            let about = fs::symlink_metadata(entry.path()).unwrap();
            format!("{:?} {:o} {} {} {}", entry.file_name(), about.mode(), about.len(), about.mtime(), about.nlink())
        })
        .collect();
    all.sort();
    all
}

/// A command stays within its rule's grant, whatever else is in its line: another command widens nothing, whether its rule grants
/// something else, or has no grant.
#[test]
fn s0_15_no_command_of_a_line_widens_another() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        workspace(&env);
        let rules = rule(Some("touch *"), "grant = { write = [\"target/**\"] }")
            + &rule(Some("tee *"), "grant = { write = [\"src/kept\"] }")
            + &rule(Some("mkdir *"), "");
        let (said, _) = output(&env, &rules, "touch target/a src/a");
        assert!(is_refused(&said) && !env.workspace().join("src/a").exists(), "{said}");
        assert!(env.workspace().join("target/a").exists());
        let (said, sub_policy) = output(&env, &rules, "touch target/b src/kept | tee src/kept src/other target/b");
        assert!(is_refused(&said), "{said}");
        assert_eq!(sub_policy["write"], json!([]), "they have nothing in common");
        assert_eq!(sub_policy["by"], "rule m.toml:10, m.toml:5", "both are named");
        for file in ["src/kept", "src/other"] {
            assert_eq!(fs::read_to_string(env.workspace().join(file)).unwrap(), "old", "{file}");
        }
        assert!(!env.workspace().join("target/b").exists());
        assert_eq!(output(&env, &rules, "echo new | tee src/kept").0, "new\n", "the control: one command of the two");
        assert_eq!(fs::read_to_string(env.workspace().join("src/kept")).unwrap(), "new\n");
        for line in
            ["X=1 touch src/c", "mkdir target/dir; touch src/c", "true; touch src/c", "touch src/c; mkdir target/e"]
        {
            let (said, sub_policy) = output(&env, &rules, line);
            assert!(is_refused(&said) && !env.workspace().join("src/c").exists(), "{line}: {said}");
            assert_eq!(sub_policy["write"].as_array().unwrap().len(), 1, "{line}: {sub_policy}");
        }
        assert!(env.workspace().join("target/dir").exists() && env.workspace().join("target/e").exists());
        let (said, sub_policy) = output(&env, &rules, "mkdir src/dir");
        assert_eq!((said.as_str(), &sub_policy), ("", &Value::Null), "the control: its rule has no grant");
    });
}

/// A rule's grant by name is no more than the session has: kept names stay, and so does what a link leads to.
#[test]
fn s0_15_a_rules_grant_is_within_the_session() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        workspace(&env);
        env.workspace_file(".vscode/settings.json", "old");
        let outside = env.file("theirs", "old");
        let theirs = env.outside().join("theirs");
        let grant = format!(
            "grant = {{ write = [\"**\", \".vscode/**\", \".vscode/settings.json\", \"{}\"] }}",
            theirs.display()
        );
        let rules = rule(None, &grant);
        for path in [".vscode/settings.json", ".vscode/tasks.json", &theirs.display().to_string()[..]] {
            let (said, sub_policy) = output(&env, &rules, &format!("echo new > {path}"));
            assert_eq!(
                sub_policy["write"].as_array().unwrap().len(),
                1,
                "the envelope names no kept name: {sub_policy}"
            );
            // With namespaces what lies outside is not there.
            assert!(is_refused(&said) || said.contains("No such file"), "{path}: {said}");
        }
        assert_eq!(fs::read_to_string(env.workspace().join(".vscode/settings.json")).unwrap(), "old");
        outside.assert_contents("old");
        assert_eq!(output(&env, &rules, "echo new > src/made").0, "", "the control");
        std::os::unix::fs::symlink("src", env.workspace().join("out")).unwrap();
        let (ended, envelope) = called(&env, &rule(None, "grant = { write = [\"out/**\"] }"), "echo new > src/kept");
        assert_eq!(ended.status.code(), Some(77), "{envelope}");
        assert!(envelope["error_text"].as_str().unwrap().contains("a symbolic link leads it elsewhere"), "{envelope}");
        assert_eq!(fs::read_to_string(env.workspace().join("src/kept")).unwrap(), "old");
    });
}

/// S0-15, C-1: a rule grants nothing beyond the ceiling, and what it leaves of that is the call's. A line that no rule narrows has the
/// ceiling alone.
#[test]
fn s0_15_c_1_a_rules_grant_is_within_the_ceiling() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        workspace(&env);
        let ceiling = "[ceiling.fs]\nwrite = [\"target/**\", \"src/other\"]\n";
        let place = |below: &str| json!(format!("{}/{below}", env.workspace().canonicalize().unwrap().display()));
        let wide = rule(Some("tee *"), "grant = { write = [\"**\"] }") + ceiling;
        let (said, sub_policy) = output(&env, &wide, "echo new | tee src/kept target/a");
        assert!(is_refused(&said) && said.contains("src/kept"), "{said}");
        assert_eq!(sub_policy["write"], json!([place("src/other"), place("target/**")]));
        let narrow = rule(Some("tee *"), "grant = { write = [\"src/**\"] }") + ceiling;
        let (said, sub_policy) = output(&env, &narrow, "echo new | tee src/kept target/b");
        assert!(said.contains("src/kept") && said.contains("target/b"), "both are refused: {said}");
        assert_eq!(sub_policy["write"], json!([place("src/other")]));
        assert_eq!(output(&env, &narrow, "echo new | tee src/other").0, "new\n", "the control: what both grant");
        assert!(is_refused(&output(&env, &narrow, "mkdir src/dir").0), "no rule narrows it");
        assert_eq!(output(&env, &narrow, "mkdir target/dir").0, "", "the control");
        let left =
            ["src/kept", "src/other", "target/a"].map(|file| fs::read_to_string(env.workspace().join(file)).unwrap());
        assert_eq!(left, ["old", "new\n", "new\n"]);
        assert!(!env.workspace().join("target/b").exists() && !env.workspace().join("src/dir").exists());
    });
}

/// With `net = []`, as without it today, a call reaches nobody but itself.
#[test]
fn s0_15_a_call_without_hosts_reaches_nobody() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connect =
            format!("import socket; socket.create_connection((\"127.0.0.1\", {port}), 5); print(\"reach\" \"ed\")");
        let line = format!("python3 -c '{connect}'");
        let (said, sub_policy) = output(&env, &rule(None, "grant = { net = [] }"), &line);
        assert!(said.contains("Error") && !said.contains("reached"), "{said}");
        assert_eq!(sub_policy["net"], json!([]));
        assert_eq!(sub_policy["write"].as_array().unwrap().len(), 1, "a kind that is left out stays: {sub_policy}");
        let bare = env.bare().run(&["python3", "-c", &connect]);
        assert_eq!(bare.stdout.trim(), "reached", "the control");
    });
}

/// A line whose commands only read, where something looks at lines, has nothing to change, also by what its commands start in turn;
/// its own directories stay, and so does a rule's own grant.
#[test]
fn s0_15_a_line_that_reads_has_nothing_to_change() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        workspace(&env);
        env.workspace_file("differs", "#!/bin/sh\necho x > $TMPDIR/own && echo x > made && echo wrote\n");
        let git = "git init -q . && git add src && git -c user.name=n -c user.email=e commit -qm m && chmod +x differs && \
                   git config diff.external ./differs && echo new > src/kept";
        let made = env.bare().run(&["sh", "-c", git]);
        assert!(made.status.success(), "{made:?}");
        let rules = rule(Some("true *"), "");
        let there = || fs::remove_file(env.workspace().join("made")).is_ok();
        let (said, sub_policy) = output(&env, &rules, "git diff | cat");
        assert!(is_refused(&said) && !said.contains("own"), "{said}");
        assert!(!there(), "the world did not change");
        assert_eq!(sub_policy, json!({ "by": "reading", "write": [], "net": [] }));
        let (said, sub_policy) = output(&env, &rules, "git diff | cat; touch src/other");
        assert!(said.contains("wrote") && there(), "the control: {said}");
        assert_eq!(sub_policy, Value::Null);
        let granted = rule(Some("git diff *"), "grant = { write = [\"**\"] }") + &rule(Some("cat *"), "");
        let (said, _) = output(&env, &granted, "git diff | cat");
        assert!(said.contains("wrote") && there(), "a rule's grant comes first: {said}");
    });
}

/// A grant that would have no effect is a mistake, shown at its line.
#[test]
fn s0_15_a_grant_without_effect_is_a_mistake() {
    let env = TestEnv::new(HERE);
    for (rules, said) in [
        ("[[rules]]\npermission = \"bash\"\naction = \"deny\"\ngrant = { write = [] }\n", "rules that allow or ask"),
        ("[[rules]]\npermission = \"write\"\naction = \"allow\"\ngrant = { write = [] }\n", "about commands"),
        ("[[rules]]\npermission = \"bash\"\naction = \"allow\"\ngrant = {}\n", "narrows nothing"),
        ("[[rules]]\npermission = \"bash\"\naction = \"allow\"\ngrant = { read = [] }\n", "read"),
    ] {
        env.workspace_file("m.toml", &format!("{SESSION}{rules}"));
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let ended = env.weakened().run(&[&binary, "call", "--manifest", "m.toml", "bash", "{\"command\": \"true\"}"]);
        assert_eq!(ended.status.code(), Some(65), "{ended:?}");
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
}

/// C-18: an error says what held as far as it is known, a denial which rule decided, and a limit what was asked for beyond it.
#[test]
fn c_18_an_error_says_what_is_known() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        workspace(&env);
        let with = |lines: &str, tool: &str, arguments: Value| -> Value {
            env.workspace_file("m.toml", &format!("{SESSION}{lines}"));
            let binary = Binaries::of_this_build().callgate().display().to_string();
            let words = [&binary, "call", "--manifest", "m.toml", tool, &arguments.to_string()];
            serde_json::from_str(&env.weakened().run(&words).stdout).unwrap()
        };
        let kinds = |envelope: &Value| -> usize {
            let all = envelope["metadata"]["enforced"].as_array();
            all.into_iter().flatten().filter(|held| !held["by"].as_array().unwrap().is_empty()).count()
        };
        let done = with("", "write", json!({ "path": "src/made", "content": "x" }));
        assert_eq!((&done["type"], kinds(&done)), (&json!("output"), 7), "the control: {done}");
        for (lines, tool, arguments) in [
            ("", "read", json!({ "path": "src/absent" })),
            ("[limits]\nfile_size = \"4KiB\"\n", "write", json!({ "path": "src/big", "content": "x".repeat(9000) })),
            ("[limits]\noutput = \"4KiB\"\n", "bash", json!({ "command": "yes" })),
        ] {
            let failed = with(lines, tool, arguments);
            assert_eq!((&failed["type"], kinds(&failed)), (&json!("error"), 7), "{failed}");
            assert!(failed["metadata"]["decision"]["action"].is_string(), "{failed}");
        }
        let denied = with(&rule(Some("touch *"), "").replace("allow", "deny"), "bash", json!({ "command": "touch x" }));
        assert_eq!(denied["metadata"]["decision"]["by"], "rule", "{denied}");
        assert_eq!(denied["metadata"]["decision"]["action"], "deny");
        assert_eq!(denied["metadata"]["decision"]["rule_action"], "deny", "strict readers refuse a name twice");
        assert_eq!(denied["metadata"]["decision"]["place"], "m.toml:5", "{denied}");
        assert_eq!(kinds(&denied), 0, "nothing ran");
        let wall = |arguments| {
            let envelope = with("[limits]\nwall = \"9s\"\n", "bash", arguments);
            let limits = envelope["metadata"]["limits"].as_array().unwrap().clone();
            limits.into_iter().find(|limit| limit["limit"] == "wall").unwrap()
        };
        let long = wall(json!({ "command": "true", "timeout_ms": 60_000 }));
        assert_eq!((&long["value"], &long["requested"]), (&json!(9_000), &json!(60_000)));
        let short = wall(json!({ "command": "true", "timeout_ms": 3_000 }));
        assert_eq!((&short["value"], &short["requested"]), (&json!(3_000), &Value::Null), "the control");
    });
}
