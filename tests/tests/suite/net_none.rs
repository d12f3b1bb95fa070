//! No network granted: nothing but one's own loopback (B1 to B5, B8, B9). What a network namespace of the session's own adds is in
//! `own_network`.

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};

use callgate_tests::{Host, TestEnv, matrix, skip};
use libc::{EACCES, EAFNOSUPPORT, ECONNREFUSED, ENOSYS, EOPNOTSUPP, EPERM};

/// Where nobody of the call listens, nobody is: ECONNREFUSED in both strengths. What the filter refuses says which.
fn refused(act: &str) -> i32 {
    match act {
        "mptcp-connect" | "sctp" | "ping-socket" | "raw" | "udp-sendto" | "udp-connect" => EACCES,
        "fastopen-sendto" | "fastopen-sendmsg" | "fastopen-sendmmsg" => EOPNOTSUPP,
        "fastopen-connect" => EPERM,
        "tcp-connect" | "v4mapped-connect" => ECONNREFUSED,
        _ => EAFNOSUPPORT,
    }
}

/// A listener on the host's loopback, and whether anybody came.
pub(super) struct LoopbackListener {
    tcp: TcpListener,
    udp: UdpSocket,
    pub(super) port: String,
}

impl LoopbackListener {
    pub(super) fn new() -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let udp = UdpSocket::bind(("127.0.0.1", port)).unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        Self { tcp, udp, port: port.to_string() }
    }

    /// How many connections and datagrams have arrived since the last look.
    pub(super) fn visits(&self) -> usize {
        let mut count = 0;
        loop {
            match self.tcp.accept() {
                Ok(_) => count += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let mut data = [0; 64];
        while self.udp.recv(&mut data).is_ok() {
            count += 1;
        }
        count
    }
}

/// B1, B2, B4, B5: every way of reaching a port of the host's loopback.
#[test]
fn b1_b2_b4_b5_a_listener_of_the_host_is_out_of_reach() {
    let acts = [
        "tcp-connect",
        "v4mapped-connect",
        "mptcp-connect",
        "udp-sendto",
        "udp-connect",
        "fastopen-sendto",
        "fastopen-sendmsg",
        "fastopen-sendmmsg",
        "fastopen-connect",
    ];
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let host = LoopbackListener::new();
        for act in acts {
            let words = [act, "127.0.0.1", &host.port];
            let control = env.bare().probe(&words);
            if control.at() == "socket" {
                skip("kind-of-socket", format_args!("{act}: {control}"));
                continue;
            }
            control.assert_ok();
            assert_eq!(host.visits(), 1, "{act} bare");
            let answer = env.sandbox().probe(&words);
            if act.starts_with("udp") && target.has_namespaces() {
                // Sent, to nobody: the address is one of the session's own network.
                answer.assert_ok();
            } else {
                answer.assert_errno(refused(act));
            }
            assert_eq!(host.visits(), 0, "{act}: {answer}");
        }
    });
}

/// B3, B4, B8: kinds of socket that no tool call needs; what this kernel lacks says so in the control.
#[test]
fn b3_b4_b8_other_kinds_of_socket_are_refused() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for act in ["sctp", "smc", "ping-socket", "raw", "packet", "vsock", "alg", "key"] {
            let control = env.bare().probe(&[act]);
            if !control.is_ok() {
                skip("kind-of-socket", format_args!("control of {act} as {:?}: {control}", target.user));
            }
            env.sandbox().probe(&[act]).assert_errno(refused(act));
        }
    });
}

/// B8: types carry flags in their upper bits, which a filter must mask off.
#[test]
fn b8_flags_in_the_type_hide_no_socket() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        for kind in [libc::SOCK_RAW, libc::SOCK_RAW | flags] {
            for family in [libc::AF_INET, libc::AF_INET6, libc::AF_PACKET] {
                let words = ["socket", &family.to_string(), &kind.to_string(), "1"];
                let errno = if family == libc::AF_PACKET { EAFNOSUPPORT } else { EACCES };
                env.sandbox().probe(&words).assert_errno(errno);
            }
        }
        let mptcp = libc::IPPROTO_MPTCP.to_string();
        for kind in [libc::SOCK_STREAM, libc::SOCK_STREAM | flags] {
            let words = ["socket", &libc::AF_INET.to_string(), &kind.to_string(), &mptcp];
            env.sandbox().probe(&words).assert_errno(EACCES);
        }
    });
}

/// B8: route netlink lists the host's links, where it is the host's network. In the session's own there is loopback.
#[test]
fn b8_netlink_shows_no_link_of_the_host() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let control = env.bare().probe(&["netlink"]);
        assert!(control.assert_ok().fact("links").as_array().unwrap().contains(&"lo".into()), "{control}");
        let answer = env.sandbox().probe(&["netlink"]);
        if target.has_namespaces() {
            assert_eq!(answer.assert_ok().fact("links"), serde_json::json!(["lo"]), "{answer}");
        } else {
            answer.assert_errno(EAFNOSUPPORT);
        }
        // Other protocols of netlink: audit, the kernel's events, generic, netfilter.
        for protocol in ["9", "15", "16", "12"] {
            let words = ["socket", "16", "3", protocol];
            let control = env.bare().probe(&words);
            if !control.is_ok() {
                skip("kind-of-socket", format_args!("control of netlink {protocol}: {control}"));
            }
            env.sandbox().probe(&words).assert_errno(EAFNOSUPPORT);
        }
    });
}

/// B9: io_uring would do sockets and files past the filter.
#[test]
fn b9_no_io_uring() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.bare().probe(&["io-uring-setup"]).assert_ok();
        env.sandbox().probe(&["io-uring-setup"]).assert_errno(ENOSYS);
    });
}

/// B5: a listener on every address would be an open door; one's own loopback is what test suites need.
#[test]
fn b5_one_s_own_loopback_works() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for form in ["127.0.0.1", "::1", "localhost"] {
            env.bare().probe(&["loopback-self", form]).assert_ok();
            env.sandbox().probe(&["loopback-self", form]).assert_ok();
        }
    });
}

/// B5: a server whose first thread has ended is there still, for who connects.
#[test]
fn b5_a_server_is_its_call_s_own_without_its_first_thread() {
    let script = "
import ctypes, os, socket, threading, time
server = socket.create_server((\"127.0.0.1\", 0))
address = server.getsockname()
if os.fork() == 0:
    def serve():
        time.sleep(0.3)
        server.accept()[0].sendall(b\"served\")
        os._exit(0)
    threading.Thread(target=serve).start()
    ctypes.CDLL(None).syscall(60 if os.uname().machine == \"x86_64\" else 93, 0)
server.close()
time.sleep(0.1)
print(socket.create_connection(address).recv(10).decode())";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for run in [env.weakened(), env.sandbox()] {
            let ended = run.run(&["python3", "-c", script]);
            assert_eq!(ended.stdout, "served\n", "{ended:?}");
        }
    });
}

/// B5: a call that listens on every address listens on loopback. With a network namespace that is the session's own. Without
/// one, the host's own processes reach it there, which Linux has no means to prevent (`docs/threat-model.md`); nobody from
/// another machine does.
#[test]
fn b5_nobody_outside_reaches_a_listener_of_the_call() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.bare().probe(&["listen-without-bind"]).assert_ok();
        for (run, reachable) in [(env.bare(), true), (env.sandbox(), false)] {
            let out = env.outside().join("out");
            let mut command = run.probe_command(&["tcp-listen", "0.0.0.0", "60"]);
            command.stdout(std::fs::File::create(&out).unwrap());
            let mut child = command.spawn().unwrap();
            let mut answer = String::new();
            callgate_tests::eventually("the probe says where it listens, or why not", || {
                answer = std::fs::read_to_string(&out).unwrap();
                answer.ends_with('\n') || child.try_wait().unwrap().is_some()
            });
            let line: serde_json::Value = serde_json::from_str(answer.lines().next().unwrap_or("null")).unwrap();
            assert!(line["ok"].is_boolean(), "the act was not tried");
            let port = line["address"].as_str().and_then(|address| address.rsplit(':').next().map(str::to_owned));
            let reached = port.is_some_and(|port| std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
            child.kill().unwrap();
            child.wait().unwrap();
            let address = line["address"].as_str().unwrap();
            assert_eq!(address.starts_with("0.0.0.0:"), reachable, "{line}");
            assert_eq!(reached, reachable || !target.has_namespaces(), "{line}");
        }
    });
}

/// B5: an address says loopback, and an option of the socket sends the packets elsewhere: by another device to the router next
/// door, or along a route to an address of the call's choice. Both worked without namespaces. What tunes a connection works.
#[test]
fn b5_no_option_leads_a_connection_out_of_loopback() {
    let script = "
import errno, socket, struct
def tried(family, level, option, value):
    try:
        socket.socket(family).setsockopt(level, option, value)
        return 'set'
    except OSError as e: return errno.errorcode[e.errno]
device = b'lo\\0'; index = struct.pack('i', 1)
route = bytes([0, 2, 4, 0, 0, 0, 0, 0]) + socket.inet_pton(socket.AF_INET6, 'fd00::1')
out = [tried(socket.AF_INET, 1, 25, device), tried(socket.AF_INET6, 1, 62, index), tried(socket.AF_INET6, 41, 57, route),
       tried(socket.AF_INET6, 41, 50, bytes(16) + index)]
print(*out)
fine = [(socket.AF_INET, 1, 2), (socket.AF_INET, 1, 9), (socket.AF_INET, 6, 1), (socket.AF_INET, 6, 4), (socket.AF_INET, 0, 1),
        (socket.AF_INET6, 41, 26), (socket.AF_UNIX, 1, 16), (socket.AF_INET, 1, 7)]
print(*[tried(*option, 1) for option in fine])
server = socket.create_server(('127.0.0.1', 0))
client = socket.socket()
client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 1)); client.settimeout(5)
client.connect(server.getsockname()); server.accept()[0].sendall(b'heard'); print(client.recv(9))";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let run = |run: callgate_tests::ProgramRunner| run.run(&["/usr/bin/python3", "-c", script]);
        let (control, ended) = (run(env.bare()), run(env.sandbox()));
        let rest = "set set set set set set set set\nb'heard'\n";
        assert_eq!(control.stdout, format!("set set set set\n{rest}"), "{control:?}");
        assert_eq!(ended.stdout, format!("EPERM ENOPROTOOPT ENOPROTOOPT ENOPROTOOPT\n{rest}"), "{ended:?}");
    });
}
