//! The command line's own mistakes and other people's: each is told clearly, with the exit status of whose move it is.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use callgate_tests::{Binaries, Host, TestEnv, matrix};
use serde_json::Value;

/// The output of `callgate` in the workspace, as the target's user on its host.
#[track_caller]
fn callgate(env: &TestEnv, words: &[&str]) -> Output {
    with_input(command(env, words), b"")
}

fn command(env: &TestEnv, words: &[&str]) -> Command {
    let binary = Binaries::of_this_build().callgate();
    let mut line = vec![binary.to_str().unwrap()];
    line.extend(words);
    env.weakened().command(&line)
}

#[track_caller]
fn with_input(mut command: Command, input: &[u8]) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // It may have seen enough before all of it is written.
        drop(stdin.write_all(&input));
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// This exit status, and these words on standard error; no panic in any case.
#[track_caller]
fn assert_told(output: &Output, status: i32, words: &[&str]) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{told}");
    for word in words {
        assert!(told.contains(word), "`{word}` is not in: {told}");
    }
    assert!(!told.contains("panicked"), "{told}");
}

#[track_caller]
fn envelope(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// A program that cannot be started: 127 and 126, as a shell has it.
#[test]
fn a_command_that_cannot_be_started_is_told_as_a_shell_tells_it() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let file = env.workspace_file("tool", "#!/bin/sh\nexit 7\n");
        assert_told(&callgate(&env, &["run", "--", "./tool"]), 126, &["./tool", "Permission denied"]);
        assert_told(&callgate(&env, &["run", "--", "no-such-tool"]), 127, &["no-such-tool", "PATH"]);
        assert_told(&callgate(&env, &["run", "--", "/no/such/tool"]), 127, &["/no/such/tool"]);
        std::fs::set_permissions(&*file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_told(&callgate(&env, &["run", "--", "./tool"]), 7, &[]);
    });
}

/// A mistake in what was typed is the person's: 64, and nothing ran.
#[test]
fn what_is_typed_wrong_exits_64_and_runs_nothing() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let touch = ["--", "touch", "ran"];
        let wrong: &[(&[&str], &[&str])] = &[
            (&["--read", "/no/such/path"], &["--read /no/such/path", "No such file"]),
            (&["--write", "/no/such/path"], &["--write /no/such/path"]),
            (&["--manifest", "/no/such/manifest.toml"], &["/no/such/manifest.toml", "No such file"]),
            (&["-C", "/"], &["part of the system"]),
            (&["-C", "/no/such/directory"], &["/no/such/directory"]),
            (&["--status", "/no/such/directory/status"], &["/no/such/directory/status"]),
            (&["--status", "."], &["directory"]),
            (&["--status-fd", "99"], &["--status-fd 99"]),
        ];
        for (flags, words) in wrong {
            let line: Vec<&str> = ["run"].iter().chain(*flags).chain(&touch).copied().collect();
            assert_told(&callgate(&env, &line), 64, words);
        }
        assert_told(&callgate(&env, &["run"]), 64, &["<CMD>"]);
        assert!(!env.workspace().join("ran").is_file());
        let line: Vec<&str> = ["run", "--status", "status.json"].iter().chain(&touch).copied().collect();
        assert_told(&callgate(&env, &line), 0, &[]);
        assert!(env.workspace().join("ran").is_file());
        let status: Value =
            serde_json::from_slice(&std::fs::read(env.workspace().join("status.json")).unwrap()).unwrap();
        assert_eq!(status["data"]["exit_code"], 0);
    });
}

/// A manifest that is wrong is shown where it is wrong: 65.
#[test]
fn a_manifest_that_is_wrong_is_shown_at_its_line() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        env.workspace_file("bad.toml", "id = \"mine\"\nmode = \"sometimes\"\n");
        let bad = callgate(&env, &["run", "--manifest", "bad.toml", "--", "true"]);
        assert_told(&bad, 65, &["bad.toml:2", "sometimes"]);
        assert_told(&callgate(&env, &["run", "--manifest", ".", "--", "true"]), 65, &["not a regular file"]);
        env.workspace_file("good.toml", "id = \"mine\"\n[[requires.shell]]\ncmd = \"*\"\n");
        assert_told(&callgate(&env, &["run", "--manifest", "good.toml", "--", "true"]), 0, &[]);
    });
}

/// A directory as a stream would be a way past the grants; a closed one is /dev/null, and no descriptor of ours.
#[test]
fn streams_that_are_directories_are_refused_and_closed_ones_are_empty() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let mut input = command(&env, &["run", "--", "true"]);
        let output = input.stdin(File::open(env.workspace()).unwrap()).output().unwrap();
        assert_told(&output, 64, &["standard input is a directory"]);
        let mut error = command(&env, &["run", "--", "true"]);
        let status = error.stderr(File::open(env.workspace()).unwrap()).status().unwrap();
        assert_eq!(status.code(), Some(64));
        let binary = Binaries::of_this_build().callgate();
        let closed = |streams: &str| {
            let line = format!("exec {} run -- sh -c 'cat; echo seen' {streams}", binary.display());
            env.weakened().run(&["sh", "-c", &line])
        };
        // Input ends at once.
        let ended = closed("<&-");
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "seen\n"), "{}", ended.stderr);
        // Output goes nowhere.
        let ended = closed("<&- >&-");
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), ""), "{}", ended.stderr);
        assert_eq!(closed("<&- >&- 2>&-").status.code(), Some(0));
    });
}

/// S0-4, S0-66: what does not match the schema is a tool error in an envelope, with the validator's message.
#[test]
fn s0_4_s0_66_arguments_that_do_not_match_are_an_envelope_that_says_why() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        env.workspace_file("notes.txt", "hello\n");
        for (arguments, word) in [
            (r#"{"path": 7}"#, "path"),
            ("{}", "path"),
            (r#"{"path": "notes.txt", "colour": "red"}"#, "colour"),
            ("[]", "object"),
        ] {
            let output = callgate(&env, &["call", "read", arguments]);
            assert_eq!(output.status.code(), Some(65), "{arguments}");
            let envelope = envelope(&output);
            assert_eq!(envelope["type"], "error");
            assert_eq!(envelope["metadata"]["denial"]["layer"], "schema");
            let text = envelope["error_text"].as_str().unwrap();
            assert!(text.contains(word), "{text}");
        }
        let output = callgate(&env, &["call", "read", r#"{"path": "notes.txt"}"#]);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(envelope(&output)["type"], "output");
    });
}

/// A tool that does not exist is the caller's mistake, 64, also where a profile does not offer it; one that fails is 1. Both
/// print an envelope, and the help lists both.
#[test]
fn an_unknown_tool_and_a_tool_that_fails_have_different_exit_statuses() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        env.workspace_file("notes.txt", "hello\n");
        for (words, status, said) in [
            (&["call", "nothing", "{}"][..], 64, "there is no tool `nothing`; there are: read"),
            (&["call", "--profile", "readonly", "write", "{}"], 64, "there is no tool `write`"),
            (&["call", "read", r#"{"path": "missing.txt"}"#], 1, "missing.txt: No such file"),
        ] {
            let output = callgate(&env, words);
            assert_eq!(output.status.code(), Some(status), "{words:?}: {output:?}");
            let text = envelope(&output)["error_text"].as_str().unwrap().to_owned();
            assert!(text.contains(said), "{text}");
        }
        let found = callgate(&env, &["call", "read", r#"{"path": "notes.txt"}"#]);
        assert_eq!(found.status.code(), Some(0), "the control");
        let help = String::from_utf8(callgate(&env, &["call", "--help"]).stdout).unwrap();
        for line in ["    1  the tool failed", "   64  usage error, or a tool that does not exist"] {
            assert!(help.contains(line), "{help}");
        }
    });
}

/// C-13: a command that fails is an output; the call's exit status is 0 and the command's is in the envelope.
#[test]
fn c_13_a_failing_command_is_an_output() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        for code in [0, 3] {
            let arguments = format!(r#"{{"command": "echo out; exit {code}"}}"#);
            let output = callgate(&env, &["call", "bash", &arguments]);
            assert_eq!(output.status.code(), Some(0));
            let envelope = envelope(&output);
            assert_eq!(envelope["type"], "output");
            assert_eq!(envelope["data"]["exit_code"], code);
            assert_eq!(envelope["data"]["output"], "out\n");
        }
    });
}

/// Input that is hostile by its shape: errors, never a crash, and bounded.
#[test]
fn arguments_that_are_not_json_or_too_deep_or_too_long_are_errors() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        env.workspace_file("notes.txt", "hello\n");
        let from_input = |input: &[u8]| with_input(command(&env, &["call", "read", "-"]), input);
        assert_told(&from_input(b"{"), 65, &["not JSON"]);
        assert_told(&from_input(b""), 65, &["not JSON"]);
        assert_told(&from_input(b"{\"path\": \"\xff\"}"), 65, &["standard input"]);
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        assert_told(&from_input(deep.as_bytes()), 65, &["not JSON", "recursion"]);
        let deep = "{\"path\":".repeat(10_000) + "1" + &"}".repeat(10_000);
        assert_told(&from_input(deep.as_bytes()), 65, &["not JSON", "recursion"]);
        let mut long = b"{\"path\": \"".to_vec();
        long.resize(80 * 1024 * 1024, b'a');
        assert_told(&from_input(&long), 65, &["longer than 64 MiB"]);
        let good = from_input(b"{\"path\": \"notes.txt\"}");
        assert_told(&good, 0, &[]);
        assert_eq!(envelope(&good)["type"], "output");
    });
}

/// A reader that is gone is nothing to complain about; a full disk is.
#[test]
fn output_that_nobody_reads_ends_quietly_and_a_full_disk_is_told() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let gone = command(&env, &["tools", "--json"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_told(&gone, 141, &[]);
        assert!(gone.stderr.is_empty(), "{}", String::from_utf8_lossy(&gone.stderr));
        let full = File::options().write(true).open("/dev/full").unwrap();
        let full = command(&env, &["tools"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_told(&full, 70, &["No space left"]);
        assert_told(&callgate(&env, &["tools"]), 0, &[]);
    });
}

/// An error asked for as JSON is one record, with the status and what to do.
#[test]
fn errors_are_records_where_json_is_asked_for() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let output = callgate(&env, &["--json", "run", "--", "no-such-tool"]);
        let record: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(record["exit_status"], 127);
        assert!(record["error"].as_str().unwrap().contains("no-such-tool"));
        assert_eq!(output.status.code(), Some(127));
    });
}

/// Every command shows help with examples, and has a manual page; nothing that is hidden has one.
#[test]
fn every_command_has_examples_a_page_and_completions() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        for name in ["run", "call", "tools", "doctor", "bench", "completions", "man"] {
            let help = callgate(&env, &[name, "--help"]);
            assert_told(&help, 0, &[]);
            let text = String::from_utf8(help.stdout).unwrap();
            assert!(text.contains(&format!("Examples:\n  callgate {name}")) || name == "run", "{text}");
            assert!(text.contains("Examples:"), "{text}");
        }
        assert_told(&callgate(&env, &["man", "pages"]), 0, &[]);
        let mut pages: Vec<_> = std::fs::read_dir(env.workspace().join("pages"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        pages.sort();
        for name in ["callgate.1", "callgate-run.1", "callgate-doctor.1"] {
            assert!(pages.iter().any(|page| page == name), "{name} is not among {pages:?}");
        }
        assert!(!pages.iter().any(|page| page.contains("bench-")), "{pages:?}");
        for shell in ["bash", "zsh", "fish"] {
            let script = callgate(&env, &["completions", shell]);
            assert_told(&script, 0, &[]);
            assert!(String::from_utf8_lossy(&script.stdout).contains("doctor"));
        }
        assert_told(&callgate(&env, &["completions", "no-such-shell"]), 64, &["no-such-shell"]);
    });
}

/// A21: manual pages are written through no link that a call may have put in their place, or in that of their directory.
#[test]
fn a21_manual_pages_follow_no_link() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let elsewhere = env.outside().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        env.give(&elsewhere);
        let precious = env.file("precious", "old");
        let link = |to: &std::path::Path, name: &str| {
            let made = env.sandbox().run(&["ln", "-s", to.to_str().unwrap(), name]);
            assert!(made.status.success(), "{made:?}");
        };
        link(&elsewhere, "pages");
        for directory in ["pages", "pages/man1", "./pages/"] {
            assert_told(&callgate(&env, &["man", directory]), 64, &["symbolic link"]);
        }
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert_told(&callgate(&env, &["man", "share/man/../man1"]), 0, &[]);
        std::fs::remove_file(env.workspace().join("share/man1/callgate.1")).unwrap();
        link(&precious, "share/man1/callgate.1");
        assert_told(&callgate(&env, &["man", "share/man1"]), 64, &["symbolic link"]);
        precious.assert_contents("old");
        std::fs::remove_file(env.workspace().join("share/man1/callgate.1")).unwrap();
        assert_told(&callgate(&env, &["man", "share/man1"]), 0, &[]);
        let page = std::fs::read_to_string(env.workspace().join("share/man1/callgate.1")).unwrap();
        assert!(page.contains(".TH"), "{page}");
    });
}

/// `doctor` says what the host is, whichever it is: 0 where a session runs, 69 with the reason where none can.
#[test]
fn doctor_finds_what_the_host_lacks_and_says_what_to_do() {
    matrix(&[Host::Namespaces, Host::NoNamespaces, Host::Docker, Host::Yama, Host::Abi(2)], |target| {
        let env = TestEnv::new(target);
        let output = callgate(&env, &["doctor", "--json"]);
        assert_told(&output, 0, &[]);
        let report = envelope(&output);
        assert_eq!(report["can_run"], true);
        let state = |name: &str| {
            let checks = report["checks"].as_array().unwrap();
            let check = checks.iter().find(|check| check["name"] == name);
            check.map_or(Value::Null, |check| check["state"].clone())
        };
        let word = |ok: bool| if ok { "ok" } else { "missing" };
        assert_eq!(state("without namespaces"), "ok");
        assert_eq!(state("seccomp"), "ok");
        assert_eq!(state("namespaces"), word(target.has_namespaces()), "{report:#}");
        // The imitation of Yama leaves proc_pid_mem(5) open, by which the broker reads where the call is refused.
        assert_eq!(state("broker"), "ok", "{report:#}");
        assert_eq!(state("landlock: scopes").is_null(), !matches!(target.host, Host::Abi(_)));
        for check in report["checks"].as_array().unwrap() {
            let remedied = check["remedy"].as_array().is_some_and(|remedy| !remedy.is_empty());
            assert!(check["state"] != "missing" || remedied, "{check}");
        }
        // On paper no colours, whoever reads it.
        let people = callgate(&env, &["doctor"]);
        assert!(!String::from_utf8_lossy(&people.stdout).contains('\u{1b}'));
    });
}

/// Without Landlock nothing runs: 69, the reason and the remedy, from `doctor` and from `run` alike.
#[test]
fn without_landlock_doctor_and_run_refuse_with_a_remedy() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let binaries = Binaries::of_this_build();
        let without = |words: &[&str]| {
            let mut weak = vec![binaries.weaken().display().to_string(), "no-landlock".to_owned(), "--".to_owned()];
            weak.push(binaries.callgate().display().to_string());
            weak.extend(words.iter().map(|&word| word.to_owned()));
            let line: Vec<&str> = weak.iter().map(String::as_str).collect();
            env.bare().command(&line).output().unwrap()
        };
        for words in [&["doctor"][..], &["run", "--", "touch", "ran"]] {
            assert_told(&without(words), 69, &["Landlock", "CONFIG_SECURITY_LANDLOCK"]);
        }
        assert!(!env.workspace().join("ran").is_file());
        assert_told(&callgate(&env, &["doctor"]), 0, &[]);
    });
}

/// `bench` measures, compares and cleans up. What it measures is nobody's to assert.
#[test]
fn bench_reports_every_subject_and_leaves_nothing() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let temporary = env.workspace();
        let mut bench = command(&env, &["bench", "--runs", "10", "--sessions", "3", "--json"]);
        let output = bench.env("TMPDIR", &temporary).output().unwrap();
        assert_told(&output, 0, &[]);
        let report = envelope(&output);
        let subjects: Vec<&str> =
            report["subjects"].as_array().unwrap().iter().map(|row| row["subject"].as_str().unwrap()).collect();
        for wanted in ["posix_spawn", "read", "spawn", "bash", "bash_bare", "run"] {
            assert!(subjects.contains(&wanted), "{wanted} is not among {subjects:?}");
        }
        for row in report["subjects"].as_array().unwrap() {
            assert!(row["median_us"].as_f64().unwrap() <= row["p99_us"].as_f64().unwrap(), "{row}");
            assert_eq!(row["cpu_us"].is_null(), row["subject"] == "run", "{row}");
        }
        let bwrap_is_named = report["absent"].as_array().unwrap().iter().any(|a| a.as_str().unwrap().contains("bwrap"));
        assert!(subjects.contains(&"bwrap") != bwrap_is_named);
        assert_eq!(report["sessions"]["answered"], 3);
        assert!(report["idle_session_private_kib"].as_u64().unwrap() > 0);
        assert_eq!(report["targets"].as_array().unwrap().len(), 7);
        // The launcher removes the directories of sessions after the program has ended.
        callgate_tests::eventually("nothing is left behind", || std::fs::read_dir(&temporary).unwrap().count() == 0);
    });
}
