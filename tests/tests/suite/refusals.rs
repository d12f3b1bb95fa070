//! A refusal is reported: by `run` on standard error, in the notes of `bash`, and in results (C-13, D11).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use callgate_tests::{Binaries, Host, ProgramRunner, TestEnv, matrix};
use libc::{EACCES, EBUSY, ECONNREFUSED, ENOENT, EPERM};
use serde_json::{Value, json};

use super::net_none::LoopbackListener;

/// Nobody's address (RFC 5737).
const NOBODY: &str = "192.0.2.1";
const NETWORK: &str = "the network is not granted";

fn told(env: &TestEnv) -> ProgramRunner {
    env.sandbox().flag(&["--status", "status.json"])
}

/// The result of the last run.
fn status(env: &TestEnv) -> Value {
    serde_json::from_slice(&fs::read(env.workspace().join("status.json")).unwrap()).unwrap()
}

/// Changes and refusals in what it says.
fn changes(env: &TestEnv) -> Value {
    status(env)["metadata"]["changes"].clone()
}

/// An address outside is not reached, and the result counts it. The control reaches a server of its own, and nothing is said.
#[test]
fn an_address_that_is_not_granted_is_said() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let refused = told(&env).probe(&["tcp-connect", NOBODY, "443"]);
        refused.assert_errno(EACCES);
        let wanted = json!([{ "address": format!("{NOBODY}:443"), "count": 1 }]);
        assert_eq!(changes(&env)["not_reached"], wanted, "{refused}");
        let stderr = &refused.ended().stderr;
        assert_eq!(stderr.matches(NETWORK).count(), 1, "{stderr}");
        assert!(stderr.contains(&format!("{NOBODY}:443")) && stderr.contains(&format!("--net {NOBODY} ")), "{stderr}");
        // The mapped spelling is the same address.
        told(&env).probe(&["v4mapped-connect", NOBODY, "443"]).assert_errno(EACCES);
        assert_eq!(changes(&env)["not_reached"], wanted);
        let own = told(&env).probe(&["loopback-self", "127.0.0.1"]);
        own.assert_ok();
        assert_eq!(changes(&env), Value::Null, "{own}");
        assert!(!own.ended().stderr.contains("callgate:"), "{own}");
    });
}

/// A server of the host on loopback is another matter than the network: what is said is that nobody of the call listens there.
/// It is said only where the program failed.
#[test]
fn a_port_on_loopback_is_not_the_network() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let host = LoopbackListener::new();
        env.bare().probe(&["tcp-connect", "127.0.0.1", &host.port]).assert_ok();
        assert_eq!(host.visits(), 1);
        let script = r#""$0" tcp-connect 127.0.0.1 "$1"; exit "$2""#;
        let probe = Binaries::of_this_build().probe().display().to_string();
        for (status, is_said) in [("0", false), ("1", true)] {
            let ended = told(&env).run(&["sh", "-c", script, &probe, &host.port, status]);
            assert!(ended.stdout.contains(&format!("\"errno\":{ECONNREFUSED}")), "{ended:?}");
            let address = format!("127.0.0.1:{}", host.port);
            assert_eq!(changes(&env)["not_reached"], json!([{ "address": address, "count": 1 }]));
            assert_eq!(ended.stderr.contains("nothing that this call started listens on"), is_said, "{ended:?}");
            assert!(!ended.stderr.contains(NETWORK), "{ended:?}");
            assert_eq!(host.visits(), 0);
        }
    });
}

/// A server that was not there at first and then was, is no refusal.
#[test]
fn a_server_that_came_later_is_not_said() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let script = "import socket, sys\na = socket.socket(); a.bind(('127.0.0.1', 0)); to = a.getsockname()\n\
                      try: socket.create_connection(to)\nexcept OSError: pass\n\
                      if sys.argv[1] == 'later': a.listen(); socket.create_connection(to)\nsys.exit(1)";
        for (when, is_told) in [("never", true), ("later", false)] {
            let ended = told(&env).run(&["python3", "-c", script, when]);
            assert_eq!(changes(&env)["not_reached"].is_array(), is_told, "{ended:?}");
            assert_eq!(ended.stderr.contains("callgate:"), is_told, "{ended:?}");
        }
    });
}

/// Looking up a name fails at once, and what was wanted is said once, by `run` and to the model. A name that the host knows is
/// the control.
#[test]
fn a_name_fails_at_once_and_is_said() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let lookup = |name| ["getent", "ahosts", name];
        assert!(env.sandbox().run(&lookup("localhost")).status.success(), "the control");
        let started = Instant::now();
        let ended = told(&env).run(&lookup("host.example"));
        assert!(!ended.status.success(), "{ended:?}");
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
        assert_eq!(ended.stderr.matches(NETWORK).count(), 1, "{ended:?}");
        assert!(changes(&env)["blocked"]["name-lookup"].as_u64().unwrap() > 0, "{}", changes(&env));
        let callgate = Binaries::of_this_build().callgate().display().to_string();
        let bash = |command: &str| -> Value {
            let arguments = json!({ "command": command }).to_string();
            let ended = env.weakened().run(&[&callgate, "call", "bash", &arguments]);
            serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
        };
        // Also where the end of a pipe hides that it failed.
        let notes = bash("getent ahosts host.example | tail")["data"]["notes"].clone();
        assert_eq!(notes.as_array().unwrap().len(), 1, "{notes}");
        assert!(notes[0].as_str().unwrap().starts_with(NETWORK), "{notes}");
        assert_eq!(bash("getent ahosts localhost")["data"]["notes"], Value::Null);
        // A package manager that was told to be offline tries nothing: its own words are all there is.
        let notes =
            bash("echo \"As a reminder, you're using offline mode (--offline)\"; exit 1")["data"]["notes"].clone();
        assert!(notes[0].as_str().unwrap().starts_with(NETWORK), "{notes}");
    });
}

/// Issue 22: whoever forgets `--net` is told what to type, once, at the end of what the command prints: the host that the command
/// names, or where its package manager looks by itself.
#[test]
fn whoever_forgets_a_grant_is_told_what_to_type() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for program in ["npm", "pip"] {
            let tries = if program == "pip" { "getent ahosts pypi.org" } else { "exit 1" };
            let path = env.workspace_file(program, &format!("#!/bin/sh\n{tries}\n"));
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let grants = |line: &str, is_last: &str| {
            assert!(line.starts_with("callgate: the network is not granted"), "{line}");
            assert!(line.ends_with(&format!(": {is_last} (or `hosts` in [requires.net])")), "{line}");
        };
        let callgate = Binaries::of_this_build().callgate().display().to_string();
        for (command, typed) in [
            (&["curl", "-sS", "-m", "60", "https://example.com/a"][..], "--net example.com"),
            (&["git", "clone", "https://host.example:8443/a/b"], "--net host.example:8443"),
            (
                &["sh", "-c", "curl -sS -m 60 http://a.example; curl -sS http://b.example"],
                "--net a.example --net b.example",
            ),
            (&["./npm", "install", "left-pad"], "--net registry.npmjs.org"),
            (&["./pip", "install", "six"], "--net pypi.org --net files.pythonhosted.org"),
            (&["getent", "ahosts", "host.example"], "--net HOST"),
        ] {
            let ended = told(&env).run(command);
            assert!(!ended.status.success(), "{ended:?}");
            assert_eq!(ended.stderr.matches(NETWORK).count(), 1, "{command:?}: {ended:?}");
            grants(ended.stderr.lines().last().unwrap(), typed);
            // A program that reads the result finds the sentences that a person reads.
            let notes = status(&env)["data"]["notes"].clone();
            let notes: Vec<&str> = notes.as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
            let said = ended.stderr.lines().filter_map(|line| line.strip_prefix("callgate: "));
            assert_eq!(notes, said.collect::<Vec<_>>(), "{command:?}: {ended:?}");
            if command[0] == "curl" {
                let arguments = json!({ "command": command.join(" ") }).to_string();
                let ended = env.weakened().run(&[&callgate, "call", "bash", &arguments]);
                let envelope: Value = serde_json::from_str(&ended.stdout).unwrap();
                let notes = envelope["data"]["notes"].as_array().unwrap();
                assert_eq!(notes.len(), 1, "{envelope}");
                grants(&format!("callgate: {}", notes[0].as_str().unwrap()), typed);
            }
        }
        // The controls: what does not want the network, or does without it.
        for command in
            [&["sh", "-c", "echo https://example.com; exit 1"][..], &["./npm", "test"], &["sh", "-c", "exit 1"]]
        {
            let ended = told(&env).run(command);
            assert!(!ended.status.success() && !ended.stderr.contains("callgate:"), "{command:?}: {ended:?}");
            assert_eq!(status(&env)["data"]["notes"], Value::Null, "{command:?}");
        }
    });
}

/// The socket of a service outside: the message says what is not granted, where the program asks whether the service runs.
#[test]
fn b7_a_service_that_is_not_granted_is_said() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let path = env.outside().join("docker.sock");
        let server = UnixListener::bind(&path).unwrap();
        server.set_nonblocking(true).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let words = ["unix-connect", path.to_str().unwrap()];
        env.bare().probe(&words).assert_ok();
        server.accept().expect("the control arrived");
        let refused = told(&env).probe(&words);
        // With namespaces the name is not there either.
        refused.assert_errno(target.by_strength(ENOENT, EACCES));
        assert!(server.accept().is_err(), "somebody came");
        assert_eq!(changes(&env)["not_reached"], json!([{ "address": path, "count": 1 }]));
        assert!(refused.ended().stderr.contains("docker.sock (the Docker daemon)"), "{refused}");
        // One that is not there is no refusal.
        let none = told(&env).probe(&["unix-connect", env.workspace().join("none").to_str().unwrap()]);
        none.assert_errno(ENOENT);
        assert_eq!(changes(&env), Value::Null, "{none}");
    });
}

/// D7: no process takes another user or group, no file gets another owner, and who tried hears what to do instead. The ids that a
/// process has it may ask for.
#[test]
fn d7_nobody_becomes_another_user_and_is_told_what_to_do() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let own = env.workspace_file("own", "");
        let uid = target.user.uid();
        let probe = Binaries::of_this_build().probe().display().to_string();
        let ended = |script: &str| told(&env).run(&["sh", "-c", script, &probe, own.text()]);
        for (script, kind, remedy) in [
            (r#""$0" setuid 4321; exit 3"#, "identity", "APT::Sandbox::User"),
            (r#"chown 4321 "$1" || exit 3"#, "owner", "--no-same-owner"),
            (r#"chgrp 4321 "$1" || exit 3"#, "owner", "--no-same-owner"),
        ] {
            let before = own.metadata();
            let ended = ended(script);
            assert_eq!(ended.status.code(), Some(3), "{ended:?}");
            assert!(ended.stderr.contains(remedy), "{ended:?}");
            assert_eq!(changes(&env)["blocked"], json!({ kind: 1 }), "{ended:?}");
            assert_eq!(own.metadata(), before, "{script}");
        }
        if uid == 0 {
            // The control: outside root may.
            env.bare().probe(&["setuid", "4321"]).assert_ok();
        }
        let same = ended(&format!(r#""$0" setuid {uid} && chown {uid} "$1""#));
        assert_eq!((same.status.code(), changes(&env)["blocked"].clone()), (Some(0), Value::Null), "{same:?}");
    });
}

/// D1, D3, B4, B8: what no call may do is refused with the errno that it always had, and counted by kind.
#[test]
fn d1_d3_b4_b8_what_no_call_may_do_is_counted() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let bystander = env.bystander();
        let (pid, workspace) = (bystander.text(), env.workspace().display().to_string());
        let namespaces = format!("{}", libc::CLONE_NEWNET);
        let dgram = libc::SOCK_DGRAM.to_string();
        let resolver = (libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC).to_string();
        let (inet, inet6, raw) = (libc::AF_INET.to_string(), libc::AF_INET6.to_string(), libc::SOCK_RAW.to_string());
        let (stream, mptcp) = (libc::SOCK_STREAM.to_string(), libc::IPPROTO_MPTCP.to_string());
        for (act, errno, kind) in [
            (&["ptrace-seize", &pid][..], EPERM, "ptrace"),
            // Where the host itself refuses these, nobody is asked.
            (&["unshare", &namespaces], EPERM, target.by_strength("namespace", "")),
            (&["clone-newuser"], EPERM, target.by_strength("namespace", "")),
            (&["mount-tmpfs", &workspace], EPERM, "mount"),
            (&["umount", "/"], EPERM, "mount"),
            (&["syscall", "seccomp", "1", "8", "0"], EBUSY, "seccomp-listener"),
            (&["socket", &inet, &dgram, "1"], EACCES, "other-socket"),
            (&["socket", &inet, &raw, "1"], EACCES, "other-socket"),
            (&["socket", &inet, &stream, &mptcp], EACCES, "other-socket"),
        ] {
            let answer = told(&env).probe(act);
            answer.assert_errno(errno);
            let wanted = if kind.is_empty() { Value::Null } else { json!({ kind: 1 }) };
            assert_eq!(changes(&env)["blocked"], wanted, "{answer}");
        }
        for (kind, name) in [(&dgram, "datagram-socket"), (&resolver, "name-lookup")] {
            let answer = told(&env).probe(&["socket", &inet6, kind, "0"]);
            if target.has_namespaces() {
                // It reaches the session's own network, and a look-up of a name is counted when it is tried.
                answer.assert_ok();
                assert_eq!(changes(&env), Value::Null, "{answer}");
            } else {
                answer.assert_errno(EACCES);
                assert_eq!(changes(&env)["blocked"], json!({ name: 1 }), "{answer}");
            }
        }
        // Controls: the kinds that may be made, which nobody counts; and a failing command says what was refused.
        told(&env).probe(&["socket", &inet, &stream, "0"]).assert_ok();
        assert_eq!(changes(&env), Value::Null);
        let probe = Binaries::of_this_build().probe().display().to_string();
        for (status, is_said) in [("0", false), ("3", true)] {
            let script = r#""$0" mount-tmpfs "$1"; exit "$2""#;
            let ended = told(&env).run(&["sh", "-c", script, &probe, &workspace, status]);
            assert_eq!(
                ended.stderr.contains("callgate: mounting and changing the root are refused"),
                is_said,
                "{ended:?}"
            );
            assert_eq!(changes(&env)["blocked"], json!({ "mount": 1 }), "{ended:?}");
        }
    });
}

/// However often a call tries, and however many addresses, the result stays small.
#[test]
fn d11_what_is_counted_is_bounded() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let script = "import socket\nfor n in range(1, 200):\n  for _ in range(2):\n    s = socket.socket()\n    \
                      try: s.connect((f'192.0.2.{n}', 443))\n    except PermissionError: pass\n    s.close()\n";
        let ended = told(&env).run(&["python3", "-c", script]);
        assert!(ended.status.success(), "{ended:?}");
        let changes = changes(&env);
        let reached = changes["not_reached"].as_array().unwrap();
        assert_eq!(reached.len(), 32, "{changes}");
        assert!(reached.iter().all(|one| one["count"] == 2), "{changes}");
        assert_eq!(changes["more"], 2 * (199 - 32), "{changes}");
        assert!(ended.stderr.len() < 1000 && ended.stderr.contains("and 27 more"), "{}", ended.stderr);
    });
}

/// A protected name is named by `run`, where git says that it could not write. A name that is not protected is the control.
#[test]
fn a_protected_name_is_said() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let control = env.sandbox().run(&["sh", "-c", "echo x > notes"]);
        assert!(control.status.success() && !control.stderr.contains("callgate:"), "{control:?}");
        let refused = env.sandbox().run(&["sh", "-c", "echo x > .bashrc"]);
        let path = env.workspace().join(".bashrc");
        assert!(refused.stderr.contains(&format!("protected, and not changed: {}", path.display())), "{refused:?}");
        assert!(refused.stderr.contains("--write PATH"), "{refused:?}");
        assert!(!path.exists());
        // What the message says.
        let granted = env.sandbox().write(".").write(".bashrc").run(&["sh", "-c", "echo x > .bashrc"]);
        assert!(granted.status.success() && path.exists(), "{granted:?}");
    });
}

/// With namespaces `/tmp` is the session's own: what is left there beside the workspace is gone, and that is said.
#[test]
fn what_goes_with_the_session_is_said() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let name = env.workspace().parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        let left = Path::new("/tmp").join(format!("{name}-left"));
        let script = r#"echo x > "$0" && echo y > "$0-removed" && rm "$0-removed" && echo z > inside && mktemp"#;
        let ended = told(&env).run(&["sh", "-c", script, left.to_str().unwrap()]);
        assert!(ended.status.success(), "{ended:?}");
        assert!(!left.exists() && env.workspace().join("inside").exists());
        assert_eq!(changes(&env)["vanished"], json!([left]), "{ended:?}");
        let said = format!("gone with the session, whose /tmp is its own: {}; to keep", left.display());
        assert!(ended.stderr.contains(&said), "{ended:?}");
    });
    // What lies below TMPDIR is known to be temporary, wherever that is.
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let script = "import os, socket, tempfile\ntempfile.mkstemp()\nserver = socket.socket(socket.AF_UNIX)\n\
                      server.bind(os.environ['TMPDIR'] + '/s')\n";
        let ended = told(&env).run(&["python3", "-c", script]);
        assert!(ended.status.success() && !ended.stderr.contains("callgate:"), "{ended:?}");
        assert_eq!(changes(&env), Value::Null, "{ended:?}");
    });
}
