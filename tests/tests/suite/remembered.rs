//! The broker's memory of sockets ends with them: a port that nobody listens on any more, the number of a file that was
//! removed, a name that leads elsewhere since (B5, B7, A6, A12). Beside the call stands a stranger of the same user,
//! who takes what has become free.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use callgate_tests::{Host, ProgramRunner, TestEnv, matrix};
use libc::{EACCES, EADDRINUSE, ECONNREFUSED};

/// A Python script with which a test speaks line by line.
struct Script {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Script {
    fn start(run: &ProgramRunner, script: &str) -> Self {
        let mut command = run.command(&["/usr/bin/python3", "-u", "-c", script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn go_on(&mut self) {
        writeln!(self.to, "go on").unwrap();
    }

    fn end(mut self) {
        drop(self.to);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Somebody who listens on a port of loopback, if it is free for who says SO_REUSEADDR, as servers do.
fn stranger(port: u16) -> Option<TcpListener> {
    match TcpListener::bind(("127.0.0.1", port)) {
        Ok(stranger) => {
            stranger.set_nonblocking(true).unwrap();
            Some(stranger)
        }
        Err(e) if e.raw_os_error() == Some(EADDRINUSE) => None,
        Err(e) => panic!("{e}"),
    }
}

fn nobody_came(stranger: Option<&TcpListener>) -> bool {
    stranger.is_none_or(|stranger| stranger.accept().is_err_and(|e| e.kind() == ErrorKind::WouldBlock))
}

/// B5: shutdown(2) ends listening, and leaves the broker's copy of the socket open. A stranger who listens on the port then
/// was taken for the call's own server.
#[test]
fn b5_a_server_that_was_shut_down_is_not_there_any_more() {
    let script = "
import os, socket
for reuse in 0, 1:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    server.bind(('127.0.0.1', 0)); server.listen()
    address = server.getsockname()
    socket.create_connection(address).close()
    server.accept()[0].close()
    server.shutdown(socket.SHUT_RDWR)
    print(address[1]); input()
    client = socket.socket()
    try:
        client.connect(address); client.sendall(b'secret')
        print('connected')
    except OSError as e: print(e.errno)
    server.close()";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for confined in [false, true] {
            let mut call = Script::start(&if confined { env.sandbox() } else { env.bare() }, script);
            for reuse in [false, true] {
                let port = call.line().parse().unwrap();
                let stranger = stranger(port);
                assert!(confined || stranger.is_some(), "the control: the port is free (reuse {reuse})");
                call.go_on();
                let answer = call.line();
                assert_eq!(answer, if confined { ECONNREFUSED.to_string() } else { "connected".to_owned() });
                assert_eq!(nobody_came(stranger.as_ref()), confined, "reuse {reuse}: {answer}");
            }
            call.end();
        }
    });
}

/// B5: the same between two threads, one of which listens, shuts down and closes without end, while the other connects.
#[test]
fn b5_no_moment_at_which_a_stranger_is_taken_for_the_call_s_server() {
    let script = "
import os, socket, sys, threading, time
port = int(sys.stdin.readline()); end = time.monotonic() + 4
def serve():
    while time.monotonic() < end:
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(('127.0.0.1', port)); server.listen()
            time.sleep(0.0002)
            server.shutdown(socket.SHUT_RDWR)
            time.sleep(0.0002)
        except OSError: pass
        server.close()
def ask(count):
    while time.monotonic() < end:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1,0,0,0,0,0,0,0]))
        client.settimeout(0.01)
        try: client.connect(('127.0.0.1', port)); client.sendall(b'secret'); count[0] += 1
        except OSError: pass
        client.close()
count = [0]
threads = [threading.Thread(target=serve)] + [threading.Thread(target=ask, args=(count,)) for _ in range(2)]
for t in threads: t.start()
for t in threads: t.join()
print('over', count[0])";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut call = Script::start(&env.sandbox(), script);
        writeln!(call.to, "{port}").unwrap();
        let (over, mut visits, mut times) = (AtomicBool::new(false), 0, 0);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let line = call.line();
                over.store(true, Ordering::Relaxed);
                line
            });
            while !over.load(Ordering::Relaxed) {
                let Some(stranger) = stranger(port) else { continue };
                times += 1;
                std::thread::sleep(std::time::Duration::from_micros(300));
                visits += usize::from(!nobody_came(Some(&stranger)));
            }
            assert!(watch.join().unwrap().starts_with("over"));
        });
        assert_eq!(visits, 0, "of {times} times that a stranger listened");
        call.end();
    });
}

/// B5: a connection that is on its way (its server's backlog is full) goes on knocking after its server has closed.
#[test]
fn b5_a_connection_on_its_way_reaches_no_later_server() {
    let script = "
import select, socket
server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen(0)
address = server.getsockname()
clients = []
for _ in range(8):
    client = socket.socket(); client.setblocking(False)
    client.connect_ex(address); clients.append(client)
waits = [c for c in clients if not select.select([], [c], [], 0.05)[1]]
print('waits' if waits else 'full', flush=True)
server.close()
# The broker looks again at what the call listens on.
other = socket.socket(); other.bind(('127.0.0.1', 0))
try: socket.socket().connect(address)
except OSError as e: pass
print(address[1]); input()
for c in waits:
    select.select([], [c], [])
    print(c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
print('end')";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let mut call = Script::start(&env.sandbox(), script);
        assert_eq!(call.line(), "waits");
        let port = call.line().parse().unwrap();
        let stranger = stranger(port);
        call.go_on();
        loop {
            let line = call.line();
            if line == "end" {
                break;
            }
            assert_ne!(line, "0", "it was connected");
        }
        assert!(nobody_came(stranger.as_ref()));
        call.end();
    });
}

/// B7: the number of a removed socket file is given out again (ext4), and whoever got it was taken for the call's own.
#[test]
fn b7_a_socket_file_s_number_is_no_name() {
    let script = "
import os, socket
mine = socket.socket(socket.AF_UNIX); mine.bind('mine'); mine.listen()
client = socket.socket(socket.AF_UNIX); client.connect('mine')
print(os.stat('mine').st_ino)
os.unlink('mine'); mine.close(); client.close(); input()
for name in sorted(n for n in os.listdir('.') if n.startswith('server')):
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(name); client.send(b'secret')
        print('connected')
    except OSError as e: print(e.errno)
print('end')";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let servers = |count: usize| -> Vec<UnixListener> {
            let bind = |n: usize| {
                let path = env.workspace().join(format!("server{n}"));
                let server = UnixListener::bind(&path).unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
                server.set_nonblocking(true).unwrap();
                server
            };
            (0..count).map(bind).collect()
        };
        for confined in [false, true] {
            let mut call = Script::start(&if confined { env.sandbox() } else { env.bare() }, script);
            call.line();
            let servers = servers(if confined { 64 } else { 1 });
            call.go_on();
            let wanted = if confined { EACCES.to_string() } else { "connected".to_owned() };
            for server in &servers {
                assert_eq!(call.line(), wanted);
                assert_eq!(server.accept().is_err(), confined);
            }
            assert_eq!(call.line(), "end");
            call.end();
            (0..servers.len()).for_each(|n| std::fs::remove_file(env.workspace().join(format!("server{n}"))).unwrap());
        }
    });
}

/// A6, A12: the mode of a socket's file was set by its name, which can be a link by then: to a file outside, or to a kept one.
/// Whoever else may write there makes the link at once: another session, or a call where the kernel lets it.
#[test]
fn a6_a12_binding_changes_no_other_file() {
    let script = "
import os, socket, time
end = time.monotonic() + 2; os.umask(0); bound = 0
while time.monotonic() < end:
    s = socket.socket(socket.AF_UNIX)
    try: s.bind('name'); bound += 1
    except OSError: pass
    try: os.unlink('name')
    except OSError: pass
    s.close()
print('over' if bound else 'never bound')";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let victim = env.file("secret", "secret");
        std::fs::set_permissions(&victim, std::fs::Permissions::from_mode(0o600)).unwrap();
        let before = victim.metadata();
        let (name, link) = (env.workspace().join("name"), env.workspace().join("link"));
        let mut call = Script::start(&env.sandbox(), script);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _there_already = std::os::unix::fs::symlink(&victim, &link);
                    while std::fs::symlink_metadata(&name).is_err() && !over.load(Ordering::Relaxed) {}
                    let _gone = std::fs::rename(&link, &name);
                }
            });
            let line = call.line();
            over.store(true, Ordering::Relaxed);
            assert_eq!(line, "over");
        });
        call.end();
        assert_eq!(victim.metadata(), before);
    });
}

/// Nothing of how sockets' files are made shows: modes are the kernel's own, and so are names.
#[test]
fn sockets_files_are_as_the_kernel_makes_them() {
    let script = "
import os, socket
for mask in 0, 0o22, 0o77, 0o177, 0o777:
    os.umask(mask)
    s = socket.socket(socket.AF_UNIX); s.bind('s'); print(oct(os.stat('s').st_mode), oct(os.fstat(s.fileno()).st_mode))
    if mask < 0o177:
        s.listen(); c = socket.socket(socket.AF_UNIX); c.connect('s')
        print(os.path.basename(s.getsockname()), os.path.basename(c.getpeername()))
        c = socket.socket(socket.AF_UNIX); c.connect(s.getsockname())
    os.rename('s', 'moved')
    if mask < 0o177: c = socket.socket(socket.AF_UNIX); c.connect('moved')
    os.unlink('moved')";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let control = env.bare().run(&["/usr/bin/python3", "-c", script]);
        assert!(control.status.success(), "{control:?}");
        for run in [env.sandbox(), env.sandbox().write(Path::new("."))] {
            let ended = run.run(&["/usr/bin/python3", "-c", script]);
            assert_eq!(ended.stdout, control.stdout, "{ended:?}");
        }
        assert_eq!(std::fs::metadata(env.workspace()).unwrap().nlink(), 2);
    });
}
