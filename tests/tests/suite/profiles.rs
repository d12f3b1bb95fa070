//! Profiles that people write in YAML, as the command line has them (S4-11 to S4-14, X4-2 to X4-4): what a profile does not
//! offer is not there, what it asks about is not done without a person, and what is wrong with it is told at its line.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use callgate_tests::{Binaries, Host, ProgramOutcome, Target, TestEnv, User, matrix};
use serde_json::{Value, json};

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };

/// The workspace to write, any program.
const GRANTS: &str = "[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n";

/// No shell, no asking: for tests of the other keys.
const FREE: &str = "shell: unrestricted\napproval: none\n";

struct ProfiledCall {
    ended: ProgramOutcome,
    envelope: Value,
}

impl ProfiledCall {
    #[track_caller]
    fn assert_denied(&self, layer: &str, reason: &str) {
        assert_eq!(self.ended.status.code(), Some(77), "{:?}", self.ended);
        let denial = &self.envelope["metadata"]["denial"];
        assert_eq!(denial["layer"], layer, "{}", self.envelope);
        let said = denial["reason"].as_str().unwrap();
        assert!(said.contains(reason), "{said:?} does not say {reason:?}");
    }

    #[track_caller]
    fn assert_done(&self) {
        assert_eq!(self.ended.status.code(), Some(0), "{:?}", self.ended);
    }

    /// The tool was there and failed, or was not there.
    #[track_caller]
    fn assert_failed(&self, said: &str) {
        self.assert_error(1, said);
    }

    /// The tool is not there: the caller's mistake.
    #[track_caller]
    fn assert_absent(&self, said: &str) {
        self.assert_error(64, said);
    }

    #[track_caller]
    fn assert_error(&self, status: i32, said: &str) {
        assert_eq!(self.ended.status.code(), Some(status), "{:?}", self.ended);
        let text = self.envelope["error_text"].as_str().unwrap();
        assert!(text.contains(said), "{text:?} does not say {said:?}");
    }

    fn place(&self) -> &Value {
        &self.envelope["metadata"]["decision"]["place"]
    }
}

fn callgate() -> String {
    Binaries::of_this_build().callgate().display().to_string()
}

/// `callgate call` with a manifest that names the profile `p.yaml`, which says this, and has these lines itself.
fn call_under(env: &TestEnv, profile: &str, manifest: &str, tool: &str, arguments: &Value) -> ProfiledCall {
    env.workspace_file("p.yaml", profile);
    env.workspace_file("m.toml", &format!("profile = \"p.yaml\"\n{manifest}{GRANTS}"));
    let ended = env.weakened().run(&[&callgate(), "call", "--manifest", "m.toml", tool, &arguments.to_string()]);
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    ProfiledCall { ended, envelope }
}

fn call(env: &TestEnv, profile: &str, tool: &str, arguments: &Value) -> ProfiledCall {
    call_under(env, profile, "", tool, arguments)
}

fn bash(env: &TestEnv, profile: &str, command: &str) -> ProfiledCall {
    call(env, profile, "bash", &json!({ "command": command }))
}

fn write(path: &str) -> Value {
    json!({ "path": path, "content": "new" })
}

fn edit(path: &str) -> Value {
    json!({ "path": path, "old_string": "old", "new_string": "new" })
}

/// Names in the workspace besides the two files that say what may be done.
fn names(env: &TestEnv) -> Vec<String> {
    let entries = fs::read_dir(env.workspace()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name != "p.yaml" && name != "m.toml");
    names.sort();
    names
}

/// S4-9, S4-11: an unrestricted shell runs any command; the same lines are refused by a restricted one, and nothing happens.
#[test]
fn s4_11_an_unrestricted_shell_runs_any_command() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("kept", "old");
        let line = "echo x > made && rm kept";
        for restricted in ["shell:\n  mode: restricted\napproval: none\n", "approval: none\n"] {
            bash(&env, restricted, line).assert_denied("rule", "the profile `custom` has a shell that only reads");
            assert_eq!(names(&env), ["kept"]);
            bash(&env, restricted, "cat kept").assert_done();
        }
        // Layer 3 holds it too: with nothing to write by, nothing is written, however it is started.
        let run = env.weakened().run(&[&callgate(), "run", "--manifest", "m.toml", "--", "/bin/bash", "-c", line]);
        assert!(!run.status.success(), "{run:?}");
        assert_eq!(names(&env), ["kept"]);
        bash(&env, "shell:\n  mode: unrestricted\napproval: none\n", line).assert_done();
        assert_eq!(names(&env), ["made"]);
    });
}

/// S4-12, C-13: what a command wrote, how it ended and how long it took, at the top of the result.
#[test]
fn s4_12_a_result_has_output_exit_code_and_duration() {
    let env = TestEnv::new(HERE);
    let done = bash(&env, FREE, "echo out; echo err >&2; exit 3");
    done.assert_done();
    let data = &done.envelope["data"];
    assert_eq!((&data["output"], &data["exit_code"]), (&json!("out\nerr\n"), &json!(3)));
    assert!(data["duration_seconds"].as_f64().is_some_and(|seconds| (0.0..60.0).contains(&seconds)), "{data}");
}

/// S4-13, X4-4, C-14: tools that change files are there as far as `file_write` goes, and no rule brings one back.
#[test]
fn s4_13_x4_4_tools_that_change_files_are_there_as_far_as_they_may() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let allows = "mode = \"yolo\"\n[[rules]]\npermission = \"*\"\naction = \"allow\"\n";
        // `off` is a boolean to YAML, with quotes it is text, and it is what holds if nothing is said.
        for off in ["file_write:\n  mode: off\n", "file_write:\n  mode: \"off\"\n", ""] {
            env.workspace_file("kept", "old");
            let profile = format!("{FREE}{off}");
            for (tool, arguments) in [("write", write("made")), ("write", write("kept")), ("edit", edit("kept"))] {
                let absent = call_under(&env, &profile, allows, tool, &arguments);
                absent.assert_absent(&format!("there is no tool `{tool}`; there are: read, glob, grep, bash"));
            }
            assert_eq!(
                (names(&env), fs::read_to_string(env.workspace().join("kept")).unwrap()),
                (vec!["kept".to_owned()], "old".to_owned())
            );
        }
        let create_only = format!("{FREE}file_write:\n  mode: create-only\n");
        call_under(&env, &create_only, allows, "edit", &edit("kept")).assert_absent("there is no tool `edit`");
        assert_eq!(fs::read_to_string(env.workspace().join("kept")).unwrap(), "old");
        let full = format!("{FREE}file_write:\n  mode: full\n");
        call(&env, &full, "edit", &edit("kept")).assert_done();
        assert_eq!(fs::read_to_string(env.workspace().join("kept")).unwrap(), "new");
        call(&env, &full, "write", &write("made")).assert_done();
        assert_eq!(names(&env), ["kept", "made"]);
    });
}

/// S4-14: with `create-only` what is there stays as it is, whatever it is and however it is reached, and nothing is left of the
/// attempt.
#[test]
fn s4_14_create_only_makes_new_files_alone() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let profile = format!("{FREE}file_write:\n  mode: create-only\n");
        let outside = env.file("theirs", "theirs");
        env.workspace_file("kept", "old");
        env.workspace_file("locked", "old");
        fs::create_dir(env.workspace().join("dir")).unwrap();
        env.give(&env.workspace().join("dir"));
        let link = |target: &str, name: &str| symlink(target, env.workspace().join(name)).unwrap();
        link("kept", "to_file");
        link("nowhere", "to_nothing");
        link(outside.text(), "to_outside");
        link("dir", "to_dir");
        let before = names(&env);
        for taken in ["kept", "./dir/../kept", "to_file", "to_nothing", "to_outside", "dir"] {
            call(&env, &profile, "write", &write(taken))
                .assert_failed("is there already, and only new files may be made");
        }
        call(&env, &profile, "write", &write("to_dir/new")).assert_failed("make the directories above");
        call(&env, &profile, "write", &write("kept/new")).assert_failed("make the directories above");
        assert_eq!(names(&env), before, "nothing was made, and no temporary file is left");
        assert_eq!(fs::read_to_string(env.workspace().join("kept")).unwrap(), "old");
        assert_eq!(fs::read_dir(env.workspace().join("dir")).unwrap().count(), 0);
        outside.assert_contents("theirs");
        let made = call(&env, &profile, "write", &write("dir/sub/new"));
        made.assert_done();
        assert_eq!(made.envelope["data"]["created"], true);
        assert_eq!(fs::read_to_string(env.workspace().join("dir/sub/new")).unwrap(), "new");
        call(&env, &profile, "write", &write("dir/sub/new")).assert_failed("is there already");
        // The control: the same calls under `full`.
        call(&env, &format!("{FREE}file_write: full\n"), "write", &write("to_file")).assert_done();
        assert_eq!(fs::read_to_string(env.workspace().join("kept")).unwrap(), "new");
        call(&env, &format!("{FREE}file_write: full\n"), "write", &write("to_dir/new")).assert_done();
    });
}

/// S4-14: of many that make the same file at once one does, and its content is what is there.
#[test]
fn s4_14_of_many_at_once_one_makes_the_file() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("p.yaml", &format!("{FREE}file_write: create-only\n"));
        env.workspace_file("m.toml", &format!("profile = \"p.yaml\"\n{GRANTS}"));
        for round in 0..3 {
            let path = format!("made{round}");
            let start = |number: usize| {
                let arguments = json!({ "path": path, "content": format!("by {number}") }).to_string();
                let words = [&callgate(), "call", "--manifest", "m.toml", "write", &arguments];
                let mut command = env.weakened().command(&words);
                command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
            };
            let mut started: Vec<_> = (0..6).map(start).collect();
            let codes: Vec<_> = started.iter_mut().map(|child| child.wait().unwrap().code()).collect();
            let winners: Vec<usize> = (0..6).filter(|number| codes[*number] == Some(0)).collect();
            assert_eq!((winners.len(), codes.iter().filter(|code| **code == Some(1)).count()), (1, 5), "{codes:?}");
            let held = fs::read_to_string(env.workspace().join(&path)).unwrap();
            assert_eq!(held, format!("by {}", winners[0]));
        }
        assert_eq!(names(&env), ["made0", "made1", "made2"]);
    });
}

/// S4-14, X4-13: with `create-only` no file is made in a sensitive place, though it is granted by its name.
#[test]
fn s4_14_create_only_makes_nothing_in_sensitive_places() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let granted = "[requires.fs]\nwrite = [\"{workspace}/**\", \"{workspace}/.ssh/**\", \"{workspace}/.bashrc\"]\n";
        for name in [".ssh", ".aws"] {
            fs::create_dir(env.workspace().join(name)).unwrap();
            env.give(&env.workspace().join(name));
        }
        let calls = |mode: &str, path: &str| {
            env.workspace_file("p.yaml", &format!("{FREE}file_write: {mode}\n"));
            env.workspace_file("m.toml", &format!("profile = \"p.yaml\"\n{granted}"));
            let arguments = write(path).to_string();
            // Without the flag it would not even be a workspace.
            let words = ["call", "--allow-home", "--manifest", "m.toml", "write"];
            let ended = env.weakened().run(&[&[callgate().as_str()], &words[..], &[&arguments]].concat());
            let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
            ProfiledCall { ended, envelope }
        };
        for path in [".ssh/config", ".bashrc", ".config/x", "sub/.CONFIG/x", "x/../.ssh/y"] {
            calls("create-only", path).assert_denied("rule", "lets no file be made in a sensitive place, such as /");
            assert!(!env.workspace().join(path).is_file());
        }
        assert_eq!(names(&env), [".aws", ".ssh"]);
        calls("create-only", ".aws/credentials").assert_denied("rule", "in a sensitive place");
        calls("create-only", "/etc/callgate-test").assert_denied("capability", "");
        // The control: with `full`, what is granted is made.
        for path in [".ssh/config", ".bashrc", ".config/x"] {
            calls("full", path).assert_done();
            assert_eq!(fs::read_to_string(env.workspace().join(path)).unwrap(), "new");
        }
    });
}

/// X4-1, C-24, C-30: the built-in profiles by what a model's calls come to under them: which tools there are, what their shell does,
/// and what a person is asked about.
#[test]
fn x4_1_c_24_c_30_what_the_built_in_profiles_come_to() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Gets {
        Done,
        Asked,
        /// A rule says no: the shell only reads.
        Refused,
        /// There is no such tool.
        Absent,
    }
    use Gets::{Absent, Asked, Done, Refused};
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("m.toml", GRANTS);
        let gets = |profile: &str, tool: &str, arguments: &Value| {
            env.workspace_file("kept", "old");
            let flags = ["call", "--manifest", "m.toml", "--profile", profile, "--asked-by", "agent"];
            let (callgate, arguments) = (callgate(), arguments.to_string());
            let ended = env.weakened().run(&[&[callgate.as_str()], &flags[..], &[tool, &arguments]].concat());
            let envelope: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
            let changed = fs::read_to_string(env.workspace().join("kept")).unwrap() != "old"
                || fs::remove_file(env.workspace().join("made")).is_ok();
            let gets = match (ended.status.code(), envelope["metadata"]["denial"]["layer"].as_str()) {
                (Some(0), None) => Done,
                (Some(64), _) => Absent,
                (Some(77), Some("person")) => Asked,
                (Some(77), Some("rule")) => Refused,
                other => panic!("{profile} {tool}: {other:?}: {envelope}"),
            };
            assert!(!changed || gets == Done, "{profile} {tool}: {gets:?}, and done");
            (gets, changed)
        };
        // A tool that reads; a shell that reads, and that changes something; a tool that does.
        for (profile, reads, shell_reads, shell_changes, writes) in [
            ("readonly", Done, Done, Refused, Absent),
            ("developer", Done, Asked, Asked, Asked),
            ("eval", Done, Done, Done, Done),
            ("unrestricted", Done, Done, Done, Done),
            ("developer-bash-only", Absent, Asked, Asked, Absent),
            ("plan", Done, Absent, Absent, Absent),
        ] {
            for (tool, arguments, wanted, changes) in [
                ("read", json!({ "path": "kept" }), reads, false),
                ("bash", json!({ "command": "cat kept" }), shell_reads, false),
                ("bash", json!({ "command": "touch made" }), shell_changes, true),
                ("write", write("made"), writes, true),
                ("edit", edit("kept"), writes, true),
            ] {
                let got = gets(profile, tool, &arguments);
                assert_eq!(got, (wanted, changes && wanted == Done), "{profile}: {tool} {arguments}");
            }
        }
    });
}

/// X4-2: a profile is named by a manifest, whose directory its path starts from, or is typed, and then wins.
#[test]
fn x4_2_a_profile_is_named_or_typed() {
    let env = TestEnv::new(HERE);
    fs::create_dir(env.workspace().join("conf")).unwrap();
    env.workspace_file("conf/mine.yml", "profile: mine\nbash_only: true\nshell: unrestricted\napproval: none\n");
    env.workspace_file("conf/m.toml", &format!("profile = \"mine.yml\"\n{GRANTS}"));
    env.workspace_file("there", "there");
    let callgate = callgate();
    let call = |flags: &[&str], tool: &str, arguments: &str| {
        env.weakened().run(&[&[callgate.as_str(), "call"], flags, &[tool, arguments]].concat())
    };
    let (read, ls) = ("{\"path\": \"there\"}", "{\"command\": \"ls\"}");
    let named = ["--manifest", "conf/m.toml"];
    let absent = call(&named, "read", read);
    assert_eq!(absent.status.code(), Some(64), "{absent:?}");
    assert!(absent.stdout.contains("there is no tool `read`; there are: bash"), "{absent:?}");
    assert_eq!(call(&named, "bash", ls).status.code(), Some(0), "the only tool");
    for typed in ["readonly", "developer", "eval", "unrestricted", "plan"] {
        let done = call(&[&named[..], &["--profile", typed]].concat(), "read", read);
        assert_eq!(done.status.code(), Some(0), "{typed}: {done:?}");
    }
    for (typed, code) in [("plan", 64), ("developer-bash-only", 0), ("./conf/mine.yml", 0)] {
        assert_eq!(call(&["--profile", typed], "bash", ls).status.code(), Some(code), "{typed}");
    }
    for (typed, said) in
        [("redonly", "there is no profile \"redonly\""), ("./none.yaml", "read the profile ./none.yaml")]
    {
        let refused = call(&["--profile", typed], "read", read);
        assert_eq!(refused.status.code(), Some(64), "{refused:?}");
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
}

/// X4-2: a profile that is none is told at its line, and nothing runs under what is left of it: exit status 65.
#[test]
fn x4_2_a_profile_that_is_none_runs_nothing() {
    let env = TestEnv::new(HERE);
    let refused = |what: &str, said: &str| {
        env.workspace_file("m.toml", &format!("profile = \"p.yaml\"\n{GRANTS}"));
        for words in [
            &["call", "--manifest", "m.toml", "bash", "{\"command\": \"echo x > made\"}"][..],
            &["call", "--profile", "./p.yaml", "bash", "{\"command\": \"echo x > made\"}"],
            &["run", "--manifest", "m.toml", "--", "/bin/bash", "-c", "echo x > made"],
        ] {
            let ended = env.weakened().run(&[&[callgate().as_str()], words].concat());
            assert_eq!(ended.status.code(), Some(65), "{what}: {ended:?}");
            assert!(ended.stderr.contains(said), "{what}: {ended:?}");
            assert_eq!(names(&env), Vec::<String>::new(), "{what}");
        }
    };
    for (text, said) in [
        ("", "the profile is empty"),
        ("profile: x\nshel: {}\n", "p.yaml:2"),
        ("profile: x\nshell:\n  mode: open\n", "p.yaml:3"),
        ("profile: x\nprofile: y\n", "p.yaml:2"),
        ("profile: x\nshell_timeout: soon\n", "p.yaml:2"),
        ("profile: x\nshell_working_dir: /app\n", "p.yaml:2: shell_working_dir /app is not in the workspace"),
        ("profile: x\nshell_working_dir: ../x\n", "p.yaml:2: shell_working_dir ../x is not in the workspace"),
        ("profile: x\napproval:\n  mode: granular\n  required_tools: [bsah]\n", "p.yaml:4: there is no tool `bsah`"),
    ] {
        env.workspace_file("p.yaml", text);
        refused(text, said);
    }
    let path = env.workspace().join("p.yaml");
    env.workspace_file("p.yaml", &format!("profile: {}{}", "[".repeat(10_000), "]".repeat(10_000)));
    refused("deep", "p.yaml:1");
    env.workspace_file("p.yaml", &"x".repeat(1 << 20));
    refused("long", "the profile is larger than 64 KiB");
    fs::write(&path, b"profile: \xff\n").unwrap();
    refused("not UTF-8", "p.yaml: it is not UTF-8 from byte");
    fs::remove_file(&path).unwrap();
    assert!(env.bare().run(&["mkfifo", "p.yaml"]).status.success());
    refused("a FIFO that nobody writes", "p.yaml: it is not a regular file");
    fs::remove_file(&path).unwrap();
    env.workspace_file("m.toml", &format!("profile = \"p.yaml\"\n{GRANTS}"));
    let missing = env.weakened().run(&[&callgate(), "call", "--manifest", "m.toml", "bash", "{\"command\": \"ls\"}"]);
    assert_eq!(missing.status.code(), Some(65), "{missing:?}");
    assert!(missing.stderr.contains("read the profile p.yaml: No such file"), "{missing:?}");
}

/// X4-2: how long a shell has and where it starts, if the call does not say.
#[test]
fn x4_2_a_shell_has_the_profile_s_time_and_place() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        fs::create_dir(env.workspace().join("sub")).unwrap();
        env.give(&env.workspace().join("sub"));
        let profile = format!("{FREE}shell_timeout: 3\nshell_working_dir: sub\n");
        let late = bash(&env, &profile, "echo begun; sleep 100; echo done");
        late.assert_done();
        assert_eq!(
            (&late.envelope["data"]["timed_out"], &late.envelope["data"]["output"]),
            (&json!(true), &json!("begun\n"))
        );
        let said = json!({ "command": "pwd; sleep 3.5; echo done", "timeout_ms": 60_000 });
        let done = call(&env, &profile, "bash", &said);
        let sub = env.workspace().canonicalize().unwrap().join("sub");
        assert_eq!(done.envelope["data"]["output"], format!("{}\ndone\n", sub.display()));
        let elsewhere = json!({ "command": "pwd", "working_dir": "." });
        let root = call(&env, &profile, "bash", &elsewhere);
        assert_eq!(root.envelope["data"]["output"], format!("{}\n", sub.parent().unwrap().display()));
    });
}

/// X4-3, C-7: an approval mode is rules: the decision says which, and where it stands. With nobody to ask, what is asked about
/// is not done.
#[test]
fn x4_3_an_approval_mode_is_rules() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("there", "there");
        let profile = |approval: &str| format!("shell: unrestricted\nfile_write: full\napproval:\n{approval}");
        let read = json!({ "path": "there" });
        let none = profile("  mode: none\n");
        let done = bash(&env, &none, "echo x > made; rm -rf made");
        done.assert_done();
        assert_eq!(done.place(), "p.yaml:4");
        let all = profile("  mode: all\n");
        call(&env, &all, "read", &read).assert_denied("person", "the rule ask * (p.yaml:4); there is nobody to ask");
        let dangerous = profile("  mode: dangerous\n");
        call(&env, &dangerous, "read", &read).assert_done();
        call(&env, &dangerous, "write", &write("made")).assert_denied("person", "(p.yaml:4)");
        bash(&env, &dangerous, "touch made").assert_denied("person", "the rule ask bash (p.yaml:4)");
        bash(&env, &dangerous, "dd if=there of=made")
            .assert_denied("person", "the rule ask bash \"*dd if=*\" (p.yaml:4)");
        let granular = profile(
            "  mode: granular\n  required_tools:\n    - oracle\n    - edit\n  dangerous_patterns: [touch, '; echo']\n",
        );
        call(&env, &granular, "edit", &edit("there")).assert_denied("person", "the rule ask edit (p.yaml:7)");
        for line in ["touch made", "true && TOUCH made", "x=touch; $x made", "echo x > made; echo y"] {
            bash(&env, &granular, line).assert_denied("person", "(p.yaml:8)");
        }
        assert_eq!(names(&env), ["there"], "nothing of all that was done");
        call(&env, &granular, "write", &write("made")).assert_denied("person", "the rule ask edit (p.yaml:7)");
        bash(&env, &granular, "echo x > other").assert_done();
    });
}

/// C-2, C-7: what a manifest or the watchdog denies stays denied under a profile that asks nothing; a mode that somebody names
/// says what the rest is.
#[test]
fn x4_3_denials_hold_under_a_profile_that_asks_nothing() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let profile = format!("{FREE}file_write: full\n");
        let denies = "[[rules]]\npermission = \"fs.write\"\npattern = \"docs/**\"\naction = \"deny\"\n";
        call_under(&env, &profile, denies, "write", &write("docs/a")).assert_denied("rule", "(m.toml:2)");
        call_under(&env, &profile, denies, "write", &write("src/a")).assert_done();
        bash(&env, &profile, "rm -rf /").assert_denied("watchdog", "");
        assert_eq!(names(&env), ["src"]);
        let list = "mode = \"allowlist\"\nallowlist = [\"write:src\"]\n";
        let listed = call_under(&env, &profile, list, "write", &write("src/b"));
        assert_eq!(listed.envelope["metadata"]["decision"]["mode"], "allowlist");
        let unlisted = call_under(&env, &profile, list, "write", &write("other"));
        assert_eq!(unlisted.envelope["metadata"]["decision"]["by"], "default", "{}", unlisted.envelope);
    });
}
