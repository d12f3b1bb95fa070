//! The broker answers whole and goes on answering, whatever happens to it or is tried on it.

use std::fs;
use std::process::Command;

use callgate_tests::{Host, TestEnv, eventually, matrix, parent_of};

/// The process that runs a script of this directory.
fn running(env: &TestEnv, script: &str) -> Option<u32> {
    let script = env.workspace().join(script);
    let listing = fs::read_dir("/proc").unwrap().flatten();
    listing.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"/usr/bin/python3\0")
            && line.split(|byte| *byte == 0).any(|word| word == script.to_str().unwrap().as_bytes())
    })
}

/// Stops a process and lets it go on for three seconds, with moments between for it to do something; how often.
const STOPS: &str = "
import os, signal, sys, time
stops, end = 0, time.monotonic() + 3
while time.monotonic() < end:
    os.kill(int(sys.argv[1]), signal.SIGSTOP)
    os.kill(int(sys.argv[1]), signal.SIGCONT)
    stops += 1
    time.sleep(0.0005)
print('many' if stops > 300 else stops)
";

/// Makes, renames and removes files, and starts programs, until told to stop.
const BUSY: &str = r#"
import os, subprocess
done = 0
print("begun", flush=True)
while not os.path.exists("enough"):
    fd = os.open("file", os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600)
    assert fd > 2, fd
    assert os.write(fd, b"whole") == 5 and os.pread(fd, 9, 0) == b"whole"
    os.close(fd)
    os.rename("file", "moved")
    os.remove("moved")
    if done % 50 == 0:
        assert subprocess.run(["/bin/echo", "started"], capture_output=True).stdout == b"started\n"
    done += 1
print("done" if done > 100 else done)
"#;

/// C16: who is stopped and goes on (Ctrl-Z, a frozen container, a machine that sleeps), or looked at by a debugger, has its waits
/// interrupted: an answer that is half given would tell the program of a descriptor that it does not have.
#[test]
fn c16_a_broker_that_is_stopped_and_goes_on_misleads_nobody() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let script = env.workspace_file("busy.py", BUSY);
        env.give(&env.workspace());
        for bounded in [false, true] {
            drop(fs::remove_file(env.workspace().join("enough")));
            let path = env.workspace().join("busy.py");
            let grants = ["--exec", "/usr/bin/python3", "--exec", "/bin/echo"];
            let sandbox = if bounded { env.sandbox().flag(&grants) } else { env.sandbox() };
            let (ended, stops) = std::thread::scope(|scope| {
                let run = scope.spawn(|| sandbox.run(&["/usr/bin/python3", path.to_str().unwrap()]));
                eventually("the script runs", || running(&env, "busy.py").is_some());
                let broker = parent_of(running(&env, "busy.py").unwrap()).and_then(parent_of).unwrap();
                assert_eq!(fs::read_to_string(format!("/proc/{broker}/comm")).unwrap(), "cg-broker\n");
                let stops = Command::new("python3").args(["-c", STOPS, &broker.to_string()]).output().unwrap();
                fs::write(env.workspace().join("enough"), "").unwrap();
                (run.join().unwrap(), stops)
            });
            assert_eq!(ended.stdout, "begun\ndone\n", "bounded {bounded}, {stops:?}: {ended:?}");
            assert_eq!(stops.stdout, b"many\n", "{stops:?}");
        }
        script.assert_contents(BUSY);
    });
}

/// A connect waits by a flag that its caller can change while the broker looks. The others go on.
#[test]
fn a_connect_that_waits_after_all_keeps_nobody_waiting() {
    let script = r#"
import errno, fcntl, os, socket, threading, time
server = socket.socket(socket.AF_UNIX); server.bind("full"); server.listen(0)
waiting = []
for _ in range(2):
    s = socket.socket(socket.AF_UNIX); s.setblocking(False); waiting.append(s)
    try: s.connect("full")
    except BlockingIOError: pass
s = socket.socket(socket.AF_UNIX)
on = fcntl.fcntl(s, fcntl.F_GETFL) | os.O_NONBLOCK
ended = False
def toggle():
    while not ended:
        fcntl.fcntl(s, fcntl.F_SETFL, on); fcntl.fcntl(s, fcntl.F_SETFL, on & ~os.O_NONBLOCK)
def ask():
    global tries
    while not ended:
        try: s.connect("full"); break
        except BlockingIOError: tries += 1
        except OSError as error: print(errno.errorcode[error.errno]); break
tries = 0
for what in (toggle, ask): threading.Thread(target=what, daemon=True).start()
made = 0
end = time.monotonic() + 2
while time.monotonic() < end:
    os.close(os.open("made", os.O_CREAT | os.O_WRONLY)); made += 1
print("made" if made > 20 else made, flush=True)
os._exit(0)
"#;
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for run in [env.bare(), env.sandbox()] {
            let ended = run.run(&["/usr/bin/python3", "-c", script]);
            assert_eq!(ended.stdout, "made\n", "{ended:?}");
            drop(fs::remove_file(env.workspace().join("full")));
        }
    });
}

/// A connect that failed may be tried again with the same socket, with and without waiting, as outside; and one that did not is
/// the caller's alone.
#[test]
fn a_failed_connect_can_be_tried_again() {
    let script = r#"
import errno, os, socket
for blocking, family, address in (
    (True, socket.AF_UNIX, "server"), (False, socket.AF_UNIX, "server"), (True, socket.AF_INET, ("127.0.0.1", 0))
):
    server = socket.socket(family)
    server.bind(address)
    address = server.getsockname()
    s = socket.socket(family)
    s.setblocking(blocking)
    print(errno.errorcode[s.connect_ex(address)], end=" ")
    server.listen(1)
    print(s.connect_ex(address), end=" ")
    server.accept()
    server.close()
    if family == socket.AF_UNIX: os.remove("server")
server = socket.socket(socket.AF_UNIX)
server.bind("server")
server.listen(1)
for _ in range(300):
    socket.socket(socket.AF_UNIX).connect("server")
    end = server.accept()[0]
    end.setblocking(False)
    assert end.recv(1) == b"", "nobody else holds what the caller has closed"
os.remove("server")
"#;
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let [bare, inside] = [env.bare(), env.sandbox()].map(|run| run.run(&["/usr/bin/python3", "-c", script]));
        assert_eq!(bare.stdout, "ECONNREFUSED 0 ".repeat(3), "the control: {bare:?}");
        assert_eq!(inside.stdout, bare.stdout, "{inside:?}");
    });
}

/// A caller is kept on the broker's processor while it is given a descriptor: until it goes on, and no longer.
#[test]
fn where_a_caller_may_run_is_as_it_was() {
    let script = r#"
import os, threading
everywhere = os.sched_getaffinity(0)
def opens(own):
    if own: os.sched_setaffinity(0, own)
    for n in range(1000):
        os.close(os.open(f"file-{len(own)}", os.O_CREAT | os.O_RDWR, 0o600))
        assert os.sched_getaffinity(0) == (own or everywhere), n
    done.append(own)
done = []
threads = [threading.Thread(target=opens, args=[own]) for own in (set(), {min(everywhere)})]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(done))
"#;
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let [bare, inside] = [env.bare(), env.sandbox()].map(|run| run.run(&["/usr/bin/python3", "-c", script]));
        assert_eq!(bare.stdout, "2\n", "the control: {bare:?}");
        assert_eq!(inside.stdout, bare.stdout, "{inside:?}");
    });
}

/// The broker opens files for its callers, and has let go of them by the time that they can: a file that somebody has open for
/// writing cannot be executed.
#[test]
fn what_was_just_written_can_be_started() {
    let script = r#"
import os
program = open("/bin/true", "rb").read()
for n in range(300):
    fd = os.open("own", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o700)
    os.write(fd, program)
    os.close(fd)
    pid = os.posix_spawn("./own", ["own"], {})
    assert os.waitpid(pid, 0)[1] == 0
    os.remove("own")
print("all")
"#;
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let [bare, inside] = [env.bare(), env.sandbox()].map(|run| run.run(&["/usr/bin/python3", "-c", script]));
        assert_eq!((bare.stdout.as_str(), inside.stdout.as_str()), ("all\n", "all\n"), "{bare:?} {inside:?}");
    });
}

/// The name of a thread is any bytes, and stands in the files of /proc that the broker reads.
#[test]
fn a_caller_may_have_any_name() {
    let script = r#"
import ctypes, os, threading
libc = ctypes.CDLL(None)
def work():
    libc.prctl(15, b"\xff\xfe", 0, 0, 0)
    os.umask(0o027)
    with open("own", "w") as own: print(oct(os.fstat(own.fileno()).st_mode), flush=True)
    os.remove("own")
    # By the thread itself, which Python's own functions for it do not do.
    print(libc.execv(b"/bin/echo", (ctypes.c_char_p * 3)(b"echo", b"started", None)), flush=True)
    os._exit(1)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"#;
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let judged = env.sandbox().flag(&["--exec", "/usr/bin/python3", "--exec", "/bin/echo"]);
        let [bare, inside] = [env.bare(), judged].map(|run| run.run(&["/usr/bin/python3", "-c", script]));
        assert_eq!(bare.stdout, "0o100640\nstarted\n", "the control: {bare:?}");
        assert_eq!(inside.stdout, bare.stdout, "{inside:?}");
    });
}

/// A lease makes whoever opens its file wait, the broker and people outside too.
#[test]
fn no_lease_can_be_taken() {
    let script = r#"
import errno, fcntl
file = open("own", "w")
try: print(fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK))
except OSError as error: print(errno.errorcode[error.errno])
"#;
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let [bare, inside] = [env.bare(), env.sandbox()].map(|run| run.run(&["/usr/bin/python3", "-c", script]));
        assert_eq!((bare.stdout.as_str(), inside.stdout.as_str()), ("0\n", "EPERM\n"), "{bare:?} {inside:?}");
    });
}

/// C14: a thread that executes takes its process's number, and may die then, before the new program is there. What comes by that
/// number later is another process, and is answered.
#[test]
fn c14_an_exec_that_dies_half_way_is_forgotten() {
    let script = r#"
import os, resource, threading
def dies():
    pid = os.fork()
    if pid == 0:
        def execute():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 16, 1 << 16))
            os.execv("/bin/true", ["true"])
        threading.Thread(target=execute).start()
        threading.Event().wait()
    return os.waitpid(pid, 0)
def starts():
    pid = os.posix_spawn("/bin/true", ["true"], {})
    assert os.waitpid(pid, 0)[1] == 0
    return pid
# Numbers up to 300 are not given again.
while starts() < 300: pass
died = [dies() for _ in range(40)]
assert all(os.WIFSIGNALED(status) for _, status in died), died
# In a PID namespace of few numbers: all of them come again.
left = {pid for pid, _ in died}
while left: left.discard(starts())
print("all")
"#;
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let flags =
            ["--limit", "processes=64", "--limit", "wall=120s", "--exec", "/usr/bin/python3", "--exec", "/bin/true"];
        let ended = env.sandbox().flag(&flags).run(&["/usr/bin/python3", "-c", script]);
        assert_eq!(ended.stdout, "all\n", "{ended:?}");
    });
}
