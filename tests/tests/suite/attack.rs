//! `callgate doctor --attack`: the yardstick itself. It must find nothing open in callgate, much open where there is no
//! sandbox, and must not call held what it could not try.

use std::os::unix::net::UnixListener;
use std::process::{Command, Output};

use callgate_tests::{Binaries, Host, Target, TestEnv, User, eventually, matrix};
use serde_json::Value;

/// Words that bubblewrap is often run with.
const BWRAP: &str = "bwrap --unshare-all --ro-bind / / --dev /dev --proc /proc --bind {dir} {dir} --";

fn attack_command(env: &TestEnv, words: &[&str]) -> Command {
    let callgate = Binaries::of_this_build().callgate().display().to_string();
    let words: Vec<&str> = [callgate.as_str(), "doctor", "--attack"].into_iter().chain(words.iter().copied()).collect();
    let mut command = env.weakened().command(&words);
    command.env("TMPDIR", env.workspace());
    command
}

/// Its report, its exit status, and nothing left behind.
#[track_caller]
fn attack(env: &TestEnv, words: &[&str]) -> (Value, i32) {
    let output = attack_command(env, &[&["--json"], words].concat()).output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_nothing_left(env);
    (report, code(&output))
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

#[track_caller]
fn assert_nothing_left(env: &TestEnv) {
    let left: Vec<_> = std::fs::read_dir(env.workspace()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    // The private directory of a session is its launcher's to remove, when all in it has ended.
    let scratch = left.iter().find(|name| name.to_string_lossy().starts_with("callgate-attack"));
    assert_eq!(scratch, None);
    let here = env.workspace().display().to_string();
    eventually("no process of it is left", || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
        !lines.into_iter().any(|line| line.contains(&here) && line.contains("attempt"))
    });
}

fn lines(report: &Value) -> &[Value] {
    report["attacks"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The line that has this in its words.
#[track_caller]
fn line<'a>(report: &'a Value, words: &str) -> &'a Value {
    let mut found =
        lines(report).iter().filter(|line| line["attempt"].as_str().is_some_and(|text| text.contains(words)));
    let line = found.next().unwrap_or_else(|| panic!("no line says {words:?}"));
    assert!(found.next().is_none(), "two lines say {words:?}");
    line
}

/// Attacks with a host granted that can be tried on every host.
const HELD_WITH_A_HOST: &[&str] = &[
    "another host, and another port",
    "MPTCP, to it and to another",
    "TCP fast open, to it and to another",
    "a message in a name below its own",
    "a proxy that is not granted",
    "connect by a ring of operations",
    "another host, by SOCKS and CONNECT",
    "another host by what is said",
];

/// The lines about what a granted host may be used for.
fn of_host(report: &Value) -> impl Iterator<Item = &Value> {
    lines(report).iter().filter(|line| line["part"] == "host")
}

/// The mechanisms of which each set holds a line alone.
fn held_by(report: &Value, words: &str) -> Vec<String> {
    let sets = line(report, words)["held_by"].as_array().cloned().unwrap_or_default();
    let set =
        |set: &Value| set.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(" + ");
    sets.iter().map(set).collect()
}

fn nothing_is_open(target: Target) {
    let env = TestEnv::new(target);
    let (report, status) = attack(&env, &[]);
    assert_eq!((status, &report["open"]), (0, &Value::from(0)), "{report:#}");
    assert_eq!(report["strengths"]["landlock"], true);
    assert_eq!(report["strengths"]["namespaces"] == true, target.has_namespaces(), "{}", report["strengths"]);
    let places: &[&str] = if target.has_namespaces() { &["landlock", "namespaces"] } else { &["landlock"] };
    for line in lines(&report).iter().filter(|line| line["counts"] == true) {
        for place in places {
            let verdict = &line["verdicts"][place];
            assert!(verdict == "held" || verdict == "not tested", "{line:#}");
            // Not tested is only what has a reason.
            let reasons = line["acts"].as_array().unwrap().iter().filter(|act| act["not_tested"].is_string()).count();
            assert!(verdict == "held" || reasons > 0, "{line:#}");
        }
    }
    let held = lines(&report).iter().filter(|line| line["verdicts"]["landlock"] == "held").count();
    assert!(held >= 50, "only {held} lines were tried");
    // With a host granted, which answers there, and others are out of reach.
    assert_eq!(report["without_a_host"], serde_json::json!({}), "{report:#}");
    assert!(of_host(&report).count() >= 12, "{report:#}");
    for words in HELD_WITH_A_HOST {
        for act in line(&report, words)["acts"].as_array().unwrap() {
            assert_eq!(act["not_tested"], Value::Null, "{act:#}");
            for place in places {
                assert_eq!(act["seen"][place]["verdict"], "held", "{act:#}");
            }
        }
    }
    // With every mechanism off the same acts get through: what is held, is held by them.
    let without_a_host = ["read a file", "change mode and owner", "connect by MPTCP", "read command lines", "io_uring"];
    for words in without_a_host.iter().chain(HELD_WITH_A_HOST) {
        for act in line(&report, words)["acts"].as_array().unwrap() {
            assert_eq!(act["seen"]["nothing"]["verdict"], "open", "{act:#}");
        }
    }
    let namespaces = |others: &[&str]| {
        let there = target.has_namespaces().then_some("namespaces");
        there.into_iter().chain(others.iter().copied()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(held_by(&report, "read through a symbolic link"), namespaces(&["landlock"]));
    assert_eq!(held_by(&report, "change mode and owner"), namespaces(&["seccomp"]));
    assert_eq!(held_by(&report, "io_uring"), ["seccomp"]);
    assert_eq!(held_by(&report, "inherited connection"), ["session start"]);
    for call in report["calls"].as_array().unwrap() {
        assert_eq!((&call["open"], &call["not_tested"]), (&Value::from(false), &Value::Null), "{call:#}");
        for place in places {
            assert_eq!(call["results"][place]["by"], call["layer"], "{call:#}");
            assert_eq!(call["results"][place]["by_the_sandbox_alone"], true, "{call:#}");
        }
    }
}

/// A2, A5, A7, A12, A13, A20, B1 to B10, B17, D1 to D7, E4 and E5, as one table; B1 to B6, B8 to B10, B12 and B13 also where a
/// host is granted.
#[test]
fn nothing_is_open_with_namespaces() {
    matrix(&[Host::Namespaces], nothing_is_open);
}

/// Nothing is open where no namespace can be made.
#[test]
fn nothing_is_open_without_namespaces() {
    matrix(&[Host::NoNamespaces], nothing_is_open);
}

/// The machinery can say that something is open: where nothing confines, everything is that was tried.
#[test]
fn under_no_sandbox_everything_is_open() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let (report, status) = attack(&env, &["--under", "env"]);
        assert_eq!(status, 1, "{report:#}");
        assert!(report["open"].as_u64().unwrap() > 120, "{}", report["open"]);
        assert!(of_host(&report).count() >= 12 && report["without_a_host"] == serde_json::json!({}), "{report:#}");
        for act in lines(&report).iter().flat_map(|line| line["acts"].as_array().unwrap()) {
            let verdict = &act["seen"]["under"]["verdict"];
            assert!(verdict == "open" || act["not_tested"].is_string(), "{act:#}");
        }
    });
}

/// A hole that bubblewrap leaves is named, and one that it closes is not: the same as when each is tried without
/// callgate.
#[test]
fn under_bubblewrap_it_names_what_is_open() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let (report, status) = attack(&env, &["--under", BWRAP]);
        assert_eq!(status, 1, "{report:#}");
        let verdict = |words: &str| line(&report, words)["verdicts"]["under"].as_str().unwrap().to_owned();
        // It grants no host, so nothing follows from others being out of reach, and the report says why they are not tried.
        let why = report["without_a_host"]["under"].as_str().unwrap();
        assert!(why.contains("with the granted host fails: connect"), "{why}");
        assert_eq!(of_host(&report).count(), 0, "{report:#}");
        // By hand: bubblewrap by itself, around the probe.
        let workspace = env.workspace().display().to_string();
        let by_hand = |act: &[&str]| {
            let probe = Binaries::of_this_build().probe().display().to_string();
            let bwrap = BWRAP.replace("{dir}", &workspace);
            let words: Vec<&str> = bwrap.split(' ').chain([probe.as_str()]).chain(act.iter().copied()).collect();
            env.bare().run(&words).stdout.contains("\"ok\":true")
        };
        let socket = env.outside().join("server.sock");
        let server = UnixListener::bind(&socket).unwrap();
        env.give(&socket);
        server.set_nonblocking(true).unwrap();
        assert!(by_hand(&["unix-connect", socket.to_str().unwrap()]) && server.accept().is_ok());
        assert_eq!(verdict("unix sockets by path"), "open");
        for (act, words) in [
            (&["unshare-user"][..], "make a user namespace"),
            (&["io-uring-setup"], "io_uring"),
            (&["add-key"], "keyrings"),
            (&["userfaultfd"], "userfaultfd"),
            (&["ldt"], "16-bit"),
        ] {
            assert!(!env.bare().probe(act).is_ok() || by_hand(act), "{act:?}");
            assert!(matches!(verdict(words).as_str(), "open" | "not tested"), "{words}");
        }
        assert_eq!(verdict("make a user namespace"), "open");
        assert_eq!(verdict("io_uring"), "open");
        for words in ["an inherited descriptor of a file", "inherited connection", "secret of the environment"] {
            assert_eq!(verdict(words), "open", "{words}");
        }
        let outside = env.file("theirs", "old");
        assert!(!by_hand(&["write", outside.text(), "new"]));
        outside.assert_contents("old");
        for words in ["write, directly", "connect by TCP", "send UDP", "send a signal", "abstract unix sockets"] {
            assert_eq!(verdict(words), "held", "{words}");
        }
    });
}

/// An act that does not succeed without a sandbox is not called held by one.
#[test]
fn what_fails_outside_is_not_tested() {
    matrix(&[Host::NoNamespaces], |target| {
        let env = TestEnv::new(target);
        let (report, _) = attack(&env, &["--under", "env"]);
        // Refused to everything on this host, callgate or not.
        let namespaces = line(&report, "make a user namespace");
        assert_eq!(namespaces["verdicts"]["under"], "not tested", "{namespaces:#}");
        for act in namespaces["acts"].as_array().unwrap() {
            assert!(act["not_tested"].as_str().unwrap().starts_with("outside too: "), "{act:#}");
            assert_eq!(act["seen"], serde_json::json!({}));
        }
        let devices = line(&report, "device node");
        let expected = if target.user == User::Root { "open" } else { "not tested" };
        assert_eq!(devices["verdicts"]["under"], expected, "{devices:#}");
    });
}

/// A sandbox that lets nothing run holds nothing: there is no report, but a reason.
#[test]
fn a_sandbox_in_which_nothing_can_be_tried_is_refused() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        for (under, status, words) in [
            ("false", 69, "nothing can be tried under false"),
            ("bwrap --unshare-all --ro-bind / / --tmpfs {dir} --", 69, "nothing can be tried under bwrap"),
            ("no-such-sandbox --", 64, "start no-such-sandbox"),
            ("env 'unclosed", 64, "quotes closed"),
        ] {
            let output = attack_command(&env, &["--under", under]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(code(&output) == status && said.contains(words), "{under}: {output:?}");
            assert_nothing_left(&env);
        }
        let alone = env.weakened().command(&[
            Binaries::of_this_build().callgate().to_str().unwrap(),
            "doctor",
            "--under",
            "env",
        ]);
        let mut alone = alone;
        assert_eq!(code(&alone.output().unwrap()), 64);
    });
}

/// Ctrl-C ends it, and everything that it made.
#[test]
fn interrupted_it_leaves_nothing_behind() {
    matrix(&[Host::NoNamespaces], |target| {
        let env = TestEnv::new(target);
        let mut command = attack_command(&env, &[]);
        let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        let here = env.workspace();
        let names = || {
            let entries = std::fs::read_dir(&here).unwrap().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        // In the middle of it: the controls are behind, and a session stands, whose directory is on the host.
        let stands = || names().iter().any(|name| !name.starts_with("callgate-attack"));
        while !stands() {
            assert_eq!(child.try_wait().unwrap(), None, "it ended before a session stood");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        env.bare().probe(&["kill", &child.id().to_string(), "2"]).assert_ok();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_nothing_left(&env);
        eventually("its sessions' directories are gone", || names().is_empty());
    });
}

/// D9, E5: an ablated plan is made in one place of the source; nothing that a user can type names it.
#[test]
fn an_ablated_plan_is_made_in_one_place() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut makers = Vec::new();
    let mut pending: Vec<_> = ["policy/src", "worker/src", "supervisor/src", "supervisor/cli/src", "supervisor/hosts"]
        .map(|name| root.join(name))
        .into();
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains("Ablation::without(") {
            makers.push(path.strip_prefix(root).unwrap().display().to_string());
        }
    }
    assert_eq!(makers, ["supervisor/src/doctor/attack/subject.rs"]);
    // Anywhere else the lint refuses it.
    let lints = std::fs::read_to_string(root.join("clippy.toml")).unwrap();
    assert!(lints.contains("callgate_policy::plan::Ablation::without"));
}
