//! Reports of callgate on standard error while it works (`--log`): nothing twice, and no line that somebody else made.

use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

use callgate_tests::{Binaries, Host, ProgramOutcome, Target, TestEnv, User, matrix};
use serde_json::Value;

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };

fn callgate(env: &TestEnv, words: &[&str]) -> ProgramOutcome {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    env.weakened().run(&[&[binary.as_str()], words].concat())
}

const MISSING: &[&str] = &["call", "read", r#"{"path": "missing"}"#];

/// A call that fails is told by its envelope, and not a second time; who wants to see it asks for it.
#[test]
fn a_failed_call_is_not_told_twice() {
    let env = TestEnv::new(HERE);
    let ended = callgate(&env, MISSING);
    assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(1), ""), "{ended:?}");
    let ended = callgate(&env, &[&["--log", "info"], MISSING].concat());
    let lines: Vec<_> = ended.stderr.lines().filter(|line| line.contains("call failed")).collect();
    assert_eq!(lines.len(), 1, "{ended:?}");
    assert!(lines[0].starts_with("callgate: INFO call failed session=\"ses_"), "{ended:?}");
    let ended = callgate(&env, &[MISSING, &["--log", "callgate=warn,callgate::call=info"]].concat());
    assert!(ended.stderr.contains("call failed"), "{ended:?}");
    let ended = callgate(&env, &[&["--log", "off"], MISSING].concat());
    assert_eq!(ended.stderr, "");
}

/// With `--json` each line is an object.
#[test]
fn with_json_each_line_is_an_object() {
    let env = TestEnv::new(HERE);
    let ended = callgate(&env, &[&["--json", "--log", "info"], MISSING].concat());
    let lines: Vec<Value> = ended.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let failed: Vec<_> = lines.iter().filter(|line| line["fields"]["message"] == "call failed").collect();
    assert_eq!(failed.len(), 1, "{ended:?}");
    assert_eq!((&failed[0]["level"], &failed[0]["fields"]["tool"]), (&"INFO".into(), &"read".into()), "{ended:?}");
}

/// `debug` shows what a session was opened with and what rules decided; `trace` each rule of the plan, and each that was compared.
/// Values of variables are in neither.
#[test]
fn debug_and_trace_show_the_plan_and_the_rules() {
    let env = TestEnv::new(HERE);
    let rules = "[[rules]]\npermission = \"bash\"\npattern = \"ls *\"\naction = \"deny\"\n\n\
                 [[rules]]\npermission = \"bash\"\npattern = \"echo *\"\naction = \"allow\"\n";
    let manifest = env.file("m.toml", rules);
    let words = ["call", "--manifest", manifest.text(), "bash", r#"{"command": "echo x"}"#];
    let at = |level: &str, words: &[&str]| {
        let ended = callgate(&env, &[&["--log", level], words].concat());
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        ended.stderr
    };
    let has = |text: &str, parts: &[&str]| text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    let compared = ["a rule was compared", "allow bash", "echo x", "action=Some(Allow)"];
    let (debug, trace) = (at("debug", &words), at("trace", &words));
    for text in [&debug, &trace] {
        assert!(has(text, &["a session is opened", "strength=Namespaces"]), "{text}");
        assert!(
            has(text, &["a call is carried out", "program"]) && has(text, &["rules decided", "allow bash"]),
            "{text}"
        );
    }
    assert!(has(&trace, &compared) && has(&trace, &["a rule was compared", "deny bash", "action=None"]), "{trace}");
    assert!(has(&trace, &["a rule of the plan", "access=ReadExecute"]), "{trace}");
    assert!(!has(&debug, &["a rule was compared"]) && !has(&debug, &["a rule of the plan"]), "{debug}");
    let text = at("trace", &["run", "--env", "TOKEN=of-value", "--", "true"]);
    assert!(has(&text, &["a variable of the session", "TOKEN"]) && !text.contains("of-value"), "{text}");
}

/// `trace` shows each system call that the broker was asked about, with its answer, and the reason where it has one; `debug` shows
/// none. What a call asks is in the log, however short it is.
#[test]
fn trace_shows_what_the_broker_was_asked() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let at = |level: &str, line: &str| callgate(&env, &["--log", level, "run", "--", "sh", "-c", line]);
        let asked = |ended: &ProgramOutcome, parts: &[&str]| {
            let mut lines = ended.stderr.lines().filter(|line| line.contains("the broker was asked"));
            lines.any(|line| parts.iter().all(|part| line.contains(part)))
        };
        let made = at("trace", "mkdir made");
        assert!(asked(&made, &["call=\"mkdir\"", "about=[\"made\"]", "answer=\"done: 0\""]), "{made:?}");
        assert!(env.workspace().join("made").is_dir());
        let refused = at("trace", "chown 12345 made");
        assert!(
            asked(&refused, &["chown", "answer=\"refused: EPERM", "why=\"no call may do this (Owner)\""]),
            "{refused:?}"
        );
        let refused = at("trace", "ln made/x .envrc; mount -t tmpfs x made");
        assert!(asked(&refused, &["call=\"mount\"", "answer=\"refused: EPERM", "(Mount)"]), "{refused:?}");
        let quiet = at("debug", "mkdir again");
        assert!(env.workspace().join("again").is_dir() && !asked(&quiet, &[]), "{quiet:?}");
    });
}

/// Runs callgate with its log read slowly, 4 KiB in 50 ms at the most. Returns its exit code and the log.
fn read_slowly(env: &TestEnv, around: &[&str], script: &str) -> (Option<i32>, String) {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    let words = [binary.as_str(), "--log", "trace", "run", "--", "perl", "-e", script];
    let mut child = env.weakened().command(&[around, &words].concat()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut part, mut log) = ([0; 4 << 10], Vec::new());
        while let Ok(read) = stderr.read(&mut part)
            && read > 0
        {
            log.extend_from_slice(&part[..read]);
            std::thread::sleep(Duration::from_millis(50));
        }
        String::from_utf8_lossy(&log).into_owned()
    });
    let status = child.wait().unwrap();
    (status.code(), reader.join().unwrap())
}

/// Each question is in the log or is counted there as left out, the last ones too.
#[test]
fn what_trace_leaves_out_is_counted() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (code, log) = read_slowly(&env, &[], "rename q(a), q(b) for 1..10000; exit 7");
        assert_eq!(code, Some(7), "{log}");
        let lost = |line: &str| line.split_once("lost=")?.1.split_whitespace().next()?.parse::<usize>().ok();
        let lost: usize = log.lines().filter_map(lost).sum();
        let logged = log.lines().filter(|line| line.contains("call=\"rename\"")).count();
        assert!(logged > 0 && lost > 0 && logged + lost >= 10000, "{logged} logged, {lost} left out");
    });
}

/// Whoever reads the log slowly delays neither the end of a session nor a signal.
#[test]
fn a_flood_of_questions_delays_nothing_else() {
    let env = TestEnv::new(HERE);
    // `timeout` ends with 124 if the first signal was enough, with 137 if it had to kill.
    let (code, log) = read_slowly(&env, &["timeout", "-s", "TERM", "-k", "20", "2"], "rename q(a), q(b) while 1");
    assert!(log.contains("call=\"rename\""), "the control: there was a flood");
    assert_eq!(code, Some(124), "the first signal was enough");
}

/// Arguments of programs may hold secrets: those of one that was ended are in its result, and not in the log.
#[test]
fn arguments_of_programs_are_not_in_the_log() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("m.toml", "watch_execs = true\n[[requires.shell]]\ncmd = \"*\"\n");
        let line = "$(printf d)d if=/dev/null of=/dev/sda count=0 password=hunter2";
        let status = env.workspace().join("status.json").display().to_string();
        let words = ["--log", "trace", "run", "--manifest", "m.toml", "--status", &status, "--", "bash", "-c", line];
        let ended = callgate(&env, &words);
        let mut asked = ended.stderr.lines().filter(|line| line.contains("the broker was asked"));
        let ends = |line: &&str| line.contains("execve") && line.contains("/dd") && line.contains("write-to-device");
        assert!(asked.clone().any(|line| ends(&line)), "the control: {ended:?}");
        assert!(!asked.any(|line| line.contains("hunter2")), "{ended:?}");
        assert!(std::fs::read_to_string(&status).unwrap().contains("password=hunter2"), "the result has them");
    });
}

/// A word that is neither a level nor a filter is refused before anything runs.
#[test]
fn an_unknown_level_is_refused() {
    let env = TestEnv::new(HERE);
    for wrong in ["verbose", "callgate=loud", ""] {
        let ended = callgate(&env, &["--log", wrong, "run", "--", "touch", "ran"]);
        assert_eq!(ended.status.code(), Some(64), "{ended:?}");
        assert!(ended.stderr.contains("levels are off, error, warn, info, debug and trace"), "{ended:?}");
    }
    assert!(!env.workspace().join("ran").is_file());
}

/// E8: names that a model or a program makes up forge no line, and no control character of theirs reaches the terminal.
#[test]
fn e8_no_line_is_forged() {
    let env = TestEnv::new(HERE);
    let evil = "x\r\ncallgate: WARN all is well\u{1b}[2J\u{9b}1A\u{202e}\u{2028}callgate: forged";
    let arguments = serde_json::json!({ "pattern": format!("({evil}") }).to_string();
    for words in [&["call", evil, "{}"][..], &["call", "grep", &arguments]] {
        for flags in [&["--log", "trace"][..], &["--log", "trace", "--json"]] {
            let ended = callgate(&env, &[flags, words].concat());
            assert!(ended.stderr.contains("all is well"), "the control: {ended:?}");
            for line in ended.stderr.lines() {
                let own = line.starts_with("callgate: ") || serde_json::from_str::<Value>(line).is_ok();
                assert!(own && !line.starts_with("callgate: WARN all"), "{line:?}");
            }
            let odd = |c: char| (c.is_control() && c != '\n') || ['\u{202e}', '\u{2028}'].contains(&c);
            assert!(!ended.stderr.contains(odd), "{ended:?}");
        }
    }
}

/// E8: whatever a program or a model calls itself, its files and its errors, nothing that callgate prints of it has a control
/// character, or one that turns or hides text.
#[test]
fn e8_what_is_told_holds_no_control_characters() {
    let env = TestEnv::new(HERE);
    let odd = |c: &char| (c.is_control() && *c != '\n') || "\u{200b}\u{202e}\u{2066}\u{2028}\u{feff}".contains(*c);
    let evil = "x\u{1b}[2J\u{9b}1A\u{202e}\u{2066}\u{200b}\u{2028}\u{feff}\u{7f}y";
    assert_eq!(evil.chars().filter(odd).count(), 8, "the control");
    let (absent, text) = (format!("no{evil}"), |arguments: serde_json::Value| arguments.to_string());
    let bash =
        text(serde_json::json!({ "command": format!("echo '{evil}'; mkdir '{evil}'; echo x > '{evil}/.envrc'") }));
    let (read, write) =
        (text(serde_json::json!({ "path": evil })), text(serde_json::json!({ "path": evil, "content": evil })));
    let manifest =
        env.workspace_file("odd.toml", &format!("[requires.fs]\nread = [\"{{workspace}}/**\"]\n{evil} = 1\n"));
    let status = env.workspace().join("status.json").display().to_string();
    for words in [
        &["call", "read", &read][..],
        &["call", "write", &write],
        &["call", "bash", &bash],
        &["call", evil, "{}"],
        &["--json", "call", evil, "{}"],
        &["run", "--", evil],
        &["--json", "run", "--", evil],
        &["run", "--status", &status, "--exec", "sh", "--", "sh", "-c", &format!("exec '/usr/bin/{evil}'")],
        &["run", "--read", &absent, "--", "true"],
        &["run", "-C", &absent, "--", "true"],
        &["run", "--manifest", manifest.text(), "--", "true"],
        &["run", "--env", &format!("ODD={evil}"), "--explain-env", "--", "true"],
        &["--json", "run", "--env", &format!("ODD={evil}"), "--explain-env", "--", "true"],
        &["man", &format!("{}/{evil}", manifest.text())],
        &["trust", evil],
    ] {
        let ended = callgate(&env, words);
        // What a program prints itself is its own.
        let told = if words.contains(&"sh") { String::new() } else { format!("{}{}", ended.stdout, ended.stderr) };
        let told = told + &std::fs::read_to_string(&status).unwrap_or_default();
        let found: Vec<char> = told.chars().filter(odd).collect();
        assert!(found.is_empty(), "{words:?}: {found:?} in {told}");
        assert!(words.contains(&"sh") || told.contains("2028"), "the control: it is told of, {words:?}: {told}");
        if words[0] == "call" && !ended.stdout.is_empty() {
            assert!(serde_json::from_str::<Value>(&ended.stdout).is_ok(), "{ended:?}");
        }
    }
}

/// S2-27, S2-25: each call by a deprecated name is one line of the log, a warning; a call by the name that stays is none.
#[test]
fn s2_27_s2_25_a_deprecated_name_is_a_warning() {
    let env = TestEnv::new(HERE);
    env.workspace_file("m.toml", "mode = \"yolo\"\n[agents.general]\ndescription = \"x\"\nrunner = [\"cat\"]\n");
    let ended = |tool: &str| {
        let words = ["call", "--log", "warn", "--manifest", "m.toml", "--extra", "agent_cancel", tool];
        callgate(&env, &[&words[..], &[r#"{"agent_id": "agent_0"}"#]].concat())
    };
    let old = ended("close_agent");
    let lines: Vec<_> = old.stderr.lines().filter(|line| line.contains("a call by a deprecated name")).collect();
    assert_eq!(lines.len(), 1, "{old:?}");
    assert!(lines[0].starts_with("callgate: WARN ") && lines[0].contains("close_agent"), "{old:?}");
    assert!(lines[0].contains("agent_cancel") && lines[0].contains("0.8.0"), "{old:?}");
    let envelope: Value = serde_json::from_str(&old.stdout).unwrap();
    assert_eq!(envelope["metadata"]["_deprecation"]["use_instead"], "agent_cancel");
    assert!(envelope["error_text"].as_str().unwrap().contains("there is no agent `agent_0`"), "it was dispatched");
    let new = ended("agent_cancel");
    assert_eq!(new.stderr, "", "{new:?}");
    assert!(!new.stdout.contains("_deprecation"), "{new:?}");
}
