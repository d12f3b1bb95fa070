//! No host granted: whatever names one is refused or reaches nothing, and nothing says otherwise (B6, B11 to B13, B15, B16,
//! B18, B19); and what a manifest bounds is bounded (D11). Where a host is granted, the same attacks are in
//! `granted_host` and `network`.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::net::TcpListener;

use callgate_tests::{Binaries, Host, ProgramOutcome, TestEnv, matrix};
use serde_json::{Value, json};

fn callgate(env: &TestEnv, words: &[&str]) -> ProgramOutcome {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    env.weakened().run(&[&[binary.as_str()], words].concat())
}

/// A manifest with these further lines.
fn manifest(env: &TestEnv, lines: &str) {
    env.workspace_file("m.toml", &text(lines));
}

fn text(lines: &str) -> String {
    format!("id = \"x\"\n[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nwrite = [\"{{workspace}}/**\"]\n{lines}")
}

/// A listener of the host, and what came.
struct HostListener(TcpListener);

impl HostListener {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    /// The bytes of whoever came; `None` if nobody did.
    fn heard(&self) -> Option<Vec<u8>> {
        match self.0.accept() {
            Ok((mut stream, _)) => {
                let mut bytes = Vec::new();
                stream.set_nonblocking(false).unwrap();
                stream.read_to_end(&mut bytes).unwrap();
                Some(bytes)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// B6: proxy variables, set to anything or to nothing, change nothing. B12: nor does another name for loopback. B13: nor
/// which host the first bytes claim, in clear text or as the start of TLS.
#[test]
fn b6_b12_b13_no_variable_name_or_header_reaches_a_listener_of_the_host() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let listener = HostListener::new();
        let hello = "\\x16\\x03\\x01\\x00\\x05\\x01\\x00\\x00\\x01\\x00";
        let http = "GET / HTTP/1.1\\r\\nHost: granted.example\\r\\n\\r\\n";
        for address in ["127.0.0.1", "localhost", "127.1", "2130706433", "0177.0.0.1", "0.0.0.0"] {
            for bytes in [http, hello] {
                let script = format!("exec 3<>/dev/tcp/{address}/{} && printf '{bytes}' >&3", listener.port());
                let words = ["/bin/bash", "-c", &script];
                let bare = env.bare().run(&words);
                assert!(bare.status.success(), "{bare:?}");
                assert!(listener.heard().is_some_and(|heard| !heard.is_empty()), "the control is heard: {address}");
                for proxy in ["", "http://127.0.0.1:9", "*"] {
                    let run = env.sandbox().variable("http_proxy", proxy).variable("NO_PROXY", "*");
                    let tried = run.variable("ALL_PROXY", proxy).run(&words);
                    assert_eq!(tried.status.code(), Some(1), "{tried:?}");
                    assert!(tried.stderr.contains("Connection refused"), "{tried:?}");
                    assert_eq!(listener.heard(), None, "{address}");
                }
            }
        }
    });
}

/// B11: an empty list is a list of nobody.
#[test]
fn b11_an_empty_list_of_hosts_is_nobody() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let listener = HostListener::new();
        manifest(&env, "[requires.net]\nhosts = []\n");
        let script = format!("echo ran > ran; exec 3<>/dev/tcp/127.0.0.1/{}", listener.port());
        assert!(env.bare().run(&["/bin/bash", "-c", &script]).status.success());
        assert!(listener.heard().is_some(), "the control is heard");
        fs::remove_file(env.workspace().join("ran")).unwrap();
        let tried = callgate(&env, &["run", "--manifest", "m.toml", "--", "/bin/bash", "-c", &script]);
        assert_eq!(tried.status.code(), Some(1), "{tried:?}");
        assert!(tried.stderr.contains("Connection refused"), "{tried:?}");
        assert!(env.workspace().join("ran").exists(), "it ran");
        assert_eq!(listener.heard(), None);
    });
}

/// B15, B19: a host that is granted, by flag or by manifest, for `run` or for `call`, grants no other, and none by its ceiling. B16: no
/// tool claims to reach one.
#[test]
fn b15_b16_b19_a_host_that_is_granted_is_no_other() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let listener = HostListener::new();
        let port = listener.port();
        manifest(&env, "[requires.net]\nhosts = [\"example.com:*\", \"127.0.0.2:*\"]\n");
        let bounded =
            format!("[requires.net]\nhosts = [\"127.0.0.1:{port}\"]\n[ceiling.net]\nhosts = [\"example.com:*\"]\n");
        env.workspace_file("bounded.toml", &text(&bounded));
        let connect = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 60)");
        let script = format!("echo ran > ran; python3 -c \"{connect}\"");
        let bash = serde_json::json!({ "command": script }).to_string();
        assert!(env.bare().run(&["/bin/bash", "-c", &script]).status.success());
        assert!(listener.heard().is_some(), "the control is heard");
        for words in [
            &["run", "--net", "example.com:*", "--", "/bin/bash", "-c", &script][..],
            &["run", "--net", "127.0.0.1:1", "--", "/bin/bash", "-c", &script],
            &["run", "--manifest", "m.toml", "--", "/bin/bash", "-c", &script],
            &["run", "--manifest", "bounded.toml", "--", "/bin/bash", "-c", &script],
            &["call", "--net", "example.com:*", "bash", &bash],
            &["call", "--manifest", "m.toml", "bash", &bash],
        ] {
            fs::remove_file(env.workspace().join("ran")).unwrap();
            let ended = callgate(&env, words);
            assert!(env.workspace().join("ran").exists(), "it ran: {words:?}: {ended:?}");
            assert_eq!(listener.heard(), None, "{words:?}: {ended:?}");
        }
        let tools: Value = serde_json::from_str(&callgate(&env, &["tools", "--json"]).stdout).unwrap();
        for tool in tools.as_array().unwrap() {
            assert_eq!(tool["requires"]["net"]["hosts"], json!([]), "{tool}");
        }
    });
}

/// B18: a message header or address that is not mapped is EFAULT, and nobody is reached: the copy failed, and nothing goes on
/// to the kernel unseen.
#[test]
fn b18_an_unmapped_address_reaches_nobody() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        // A socket of the script's own is its descriptor 3; the address lies where nothing is mapped, or at the very end of
        // what can be.
        let line = |call: &str, pointer: &str| {
            format!(
                "use Socket; socket(S, PF_INET, SOCK_STREAM, 0) or exit 2; my $r = syscall({call}, fileno(S), {pointer}, 16); exit($!{{EFAULT}} ? 14 : $r)"
            )
        };
        let numbers = [libc::SYS_connect, libc::SYS_sendmsg, libc::SYS_bind];
        for number in numbers {
            for pointer in ["8", "0x7fffffffefff", "-1"] {
                let script = line(&number.to_string(), pointer);
                for run in [env.bare(), env.sandbox()] {
                    let ended = run.run(&["perl", "-MErrno", "-e", &script]);
                    assert_eq!(ended.status.code(), Some(14), "{number} {pointer}: {ended:?}");
                }
            }
        }
        // The session has lived through it.
        env.sandbox().probe(&["loopback-self", "127.0.0.1"]).assert_ok();
    });
}

/// D11: each limit of a manifest ends or stops what runs into it; the same act passes without.
#[test]
fn d11_what_a_manifest_bounds_is_bounded() {
    let cases = [
        ("wall = \"300ms\"", "sleep 1", 124),
        ("cpu = \"1s\"", "perl -e 'do { $i++ for 1..100_000 } while (times)[0] < 1.5'", -1),
        ("file_size = \"1MiB\"", "head -c 2000000 /dev/zero > big", -1),
        ("memory = \"64MiB\"", "perl -e '$x = q(x) x 200_000_000; sleep 1; exit 0'", 137),
        ("open_files = 16", "perl -e 'for (1..40) { open($f[$_], q(<), q(/dev/null)) or exit 9 }'", 9),
        (
            "processes = 8",
            "perl -e 'for (1..12) { defined($p = fork) or exit 9; $p or do { sleep 1; exit } } 1 while wait > 0'",
            137,
        ),
    ];
    matrix(Host::STRENGTHS, |target| {
        for (limit, line, status) in cases {
            let env = TestEnv::new(target);
            for (bounded, limits) in [(false, String::new()), (true, format!("[limits]\n{limit}\n"))] {
                manifest(&env, &limits);
                let ended = callgate(&env, &["run", "--manifest", "m.toml", "--", "/bin/bash", "-c", line]);
                assert_eq!(!ended.status.success(), bounded, "{limit}: {ended:?}");
                if bounded && status >= 0 {
                    assert_eq!(ended.status.code(), Some(status), "{limit}: {ended:?}");
                }
                let big = fs::metadata(env.workspace().join("big")).map_or(0, |about| about.len());
                assert!(!bounded || big <= 1024 * 1024, "{limit}");
            }
        }
    });
}
