//! Servers on loopback that a host runs in a session beside its calls, such as a development server: the session's calls reach
//! them, and nobody else's do (B5).

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use callgate::{Launcher, Session, SessionSpec, Stdio, StrengthChoice, Supervisor};
use callgate_tests::{Binaries, Host, TestEnv, matrix, skip};
use serde_json::Value;

use super::output;

/// Serves by TCP, and by UDP where it may; says where when it is ready.
const SERVER: &str = "
import os, socket, threading
tcp = socket.create_server(('127.0.0.1', 0))
port = tcp.getsockname()[1]
def datagrams():
    try: udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    except PermissionError: return
    udp.bind(('127.0.0.1', port))
    while True: udp.sendto(b'served', udp.recvfrom(64)[1])
threading.Thread(target=datagrams, daemon=True).start()
open('port.new', 'w').write(str(port)); os.rename('port.new', 'port')
while True:
    peer, _ = tcp.accept()
    peer.sendall(b'served'); peer.close()
";

/// Client that prints what it is answered, or the name of its error.
const CLIENT: &str = "
import errno, socket, sys
def ask(kind):
    try:
        s = socket.socket(socket.AF_INET, kind); s.settimeout(60); s.connect(('127.0.0.1', int(sys.argv[1])))
        if kind == socket.SOCK_DGRAM: s.send(b'?')
        return s.recv(64).decode()
    except OSError as e: return errno.errorcode[e.errno]
print(ask(socket.SOCK_STREAM), ask(socket.SOCK_DGRAM), end='')
";

fn spec(env: &TestEnv) -> SessionSpec {
    let strength = env.target().by_strength(StrengthChoice::Namespaces, StrengthChoice::Landlock);
    SessionSpec::developer(env.workspace()).strength(strength).mode(callgate::policy::mode::Mode::Yolo)
}

fn supervisor() -> Supervisor {
    let launcher = Launcher::spawn(&Binaries::of_this_build().callgate()).unwrap();
    Supervisor::builder().launcher(launcher).build().unwrap()
}

/// Waits for a file with something in it; gives that.
async fn said(path: &Path) -> String {
    let start = Instant::now();
    loop {
        match fs::read_to_string(path) {
            Ok(text) if !text.is_empty() => return text,
            _ => assert!(start.elapsed() < Duration::from_secs(120), "{} does not come", path.display()),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn ask(session: &Session, port: &str) -> Value {
    output(session, &format!("/usr/bin/python3 client.py {port}")).await
}

fn prepare(env: &TestEnv) {
    env.workspace_file("server.py", SERVER);
    env.workspace_file("client.py", CLIENT);
}

/// B5: the calls of its session reach it, also once another server has come and gone; those of another session do not, nor does
/// anybody take its place when it has ended.
#[test]
fn b5_a_server_of_the_host_s_is_there_for_its_session_alone() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        prepare(&env);
        runtime.block_on(async {
            let supervisor = supervisor();
            let (session, other) =
                (supervisor.open(spec(&env)).await.unwrap(), supervisor.open(spec(&env)).await.unwrap());
            let words = ["/usr/bin/python3", "server.py"];
            let server = session.spawn(words, Stdio::null().unwrap()).await.unwrap();
            let port = said(&env.workspace().join("port")).await;
            // Datagrams are in the session's own network, or there are none.
            let udp = |here: &str| target.by_strength(here.to_owned(), "EACCES".to_owned());
            for _ in 0..2 {
                assert_eq!(ask(&session, &port).await, format!("served {}", udp("served")));
                assert_eq!(ask(&other, &port).await, format!("ECONNREFUSED {}", udp("ECONNREFUSED")));
            }
            // Another program of the host's in the session is a client like any other.
            let line = format!("/usr/bin/python3 client.py {port} > beside.new; mv beside.new beside");
            let beside = session.spawn(["/bin/bash", "-c", &line], Stdio::null().unwrap()).await.unwrap();
            assert_eq!(said(&env.workspace().join("beside")).await, format!("served {}", udp("served")));
            beside.wait().await.unwrap();
            server.abort().await.unwrap();
            server.wait().await.unwrap();
            assert_eq!(ask(&session, &port).await, format!("ECONNREFUSED {}", udp("ECONNREFUSED")));
            // What a stranger has there then is not the session's. Another may have taken the port.
            if let Ok(stranger) = TcpListener::bind(format!("127.0.0.1:{port}")) {
                stranger.set_nonblocking(true).unwrap();
                assert_eq!(ask(&session, &port).await, format!("ECONNREFUSED {}", udp("ECONNREFUSED")));
                assert!(stranger.accept().is_err(), "somebody came");
            }
        });
    });
}

/// B5: the server of a call is its own, also before the host's programs in the session.
#[test]
fn b5_a_server_of_a_call_is_not_there_for_others() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        prepare(&env);
        runtime.block_on(async {
            let session = supervisor().open(spec(&env)).await.unwrap();
            let line = "/usr/bin/python3 server.py & while [ ! -e answer ]; do sleep 0.1; done; \
                        /usr/bin/python3 client.py $(cat port); kill %1";
            let call = output(&session, line);
            let client = async {
                let port = said(&env.workspace().join("port")).await;
                let line = format!("/usr/bin/python3 client.py {port} > answer.new; mv answer.new answer");
                let client = session.spawn(["/bin/bash", "-c", &line], Stdio::null().unwrap()).await.unwrap();
                let answer = said(&env.workspace().join("answer")).await;
                client.wait().await.unwrap();
                answer
            };
            let (own, answer) = tokio::join!(call, client);
            assert_eq!(own.as_str().unwrap().split(' ').next(), Some("served"), "the control: {own}");
            assert_eq!(answer.split(' ').next(), Some("ECONNREFUSED"), "{answer}");
        });
    });
}

/// D11: the broker remembers so many servers of a session, and no more: the next is told so, and there is room again when a
/// program with servers has ended.
#[test]
fn d11_the_servers_of_a_session_are_bounded() {
    let listener = "
import errno, os, socket, sys, time
name, many = sys.argv[1], int(sys.argv[2])
if os.fork() == 0: name += 'b'
held, answer = [], 0
while len(held) < many:
    try: s = socket.socket(); s.listen(); held.append(s)
    except OSError as e: answer = errno.errorcode[e.errno]; break
open(name + '.new', 'w').write(f'{len(held)} {answer}'); os.rename(name + '.new', name)
while not os.path.exists('over-' + sys.argv[1]): time.sleep(0.1)
";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Without a network of its own they would take the host's ports.
    matrix(&[Host::Namespaces], |target| {
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
        if most < 16_384 {
            return skip("many-files", format_args!("{target:?}: a process may open no more than {most} files"));
        }
        let env = TestEnv::new(target);
        env.workspace_file("listener.py", listener);
        runtime.block_on(async {
            let session = supervisor().open(spec(&env)).await.unwrap();
            let mut programs = Vec::new();
            for name in ["p0", "p1", "p2", "p3"] {
                let words = ["/usr/bin/python3", "listener.py", name, "500"];
                programs.push(session.spawn(words, Stdio::null().unwrap()).await.unwrap());
                for name in [name.to_owned(), format!("{name}b")] {
                    assert_eq!(said(&env.workspace().join(name)).await, "500 0");
                }
            }
            let last = || session.spawn(["/usr/bin/python3", "listener.py", "p4", "500"], Stdio::null().unwrap());
            let ended = last().await.unwrap();
            let found = [said(&env.workspace().join("p4")).await, said(&env.workspace().join("p4b")).await];
            let count = |text: &String| text.split(' ').next().unwrap().parse::<u32>().unwrap();
            assert_eq!(found.iter().map(count).sum::<u32>(), 96, "4096 in all: {found:?}");
            assert!(found.iter().any(|text| text.ends_with("ENOBUFS")), "{found:?}");
            for name in ["p0", "p4"] {
                fs::write(env.workspace().join(format!("over-{name}")), "").unwrap();
            }
            ended.wait().await.unwrap();
            programs.remove(0).wait().await.unwrap();
            for name in ["over-p4", "p4", "p4b"] {
                fs::remove_file(env.workspace().join(name)).unwrap();
            }
            let again = last().await.unwrap();
            let found = [said(&env.workspace().join("p4")).await, said(&env.workspace().join("p4b")).await];
            assert_eq!(found.iter().map(count).sum::<u32>(), 1000, "there is room again: {found:?}");
            for name in ["p1", "p2", "p3", "p4"] {
                fs::write(env.workspace().join(format!("over-{name}")), "").unwrap();
            }
            again.wait().await.unwrap();
            for program in programs {
                program.wait().await.unwrap();
            }
        });
    });
}
