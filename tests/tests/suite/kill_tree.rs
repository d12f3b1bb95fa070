//! A call dies with everything it started, however that tried to hide (D2, D12).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use callgate_tests::{Binaries, Host, ProgramRunner, Target, TestEnv, eventually, matrix, parent_of};

/// The processes whose pids a probe left in `file` and that still run it: seen from the host, where a PID namespace's
/// numbers mean nothing, so they are found by the file's name in their command line.
fn survivors(file: &Path) -> Vec<String> {
    let file = file.to_str().unwrap();
    let listing = std::fs::read_dir("/proc").unwrap().flatten();
    listing
        .filter_map(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let words: Vec<&str> = line.split('\0').collect();
            let is_probe = words.first().is_some_and(|program| program.ends_with("/probe"));
            (is_probe && words.contains(&file)).then(|| entry.file_name().to_string_lossy().into_owned())
        })
        .collect()
}

fn kill(pids: &[String]) {
    for pid in pids {
        let killed = std::process::Command::new("kill").args(["-9", pid]).status();
        assert!(killed.is_ok());
    }
}

/// D2: a daemon that forked twice, left the session and closed every descriptor is gone when the call has ended.
#[test]
fn d2_a_double_forked_daemon_does_not_outlive_the_call() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (run, survives) in [(env.bare(), true), (env.sandbox(), false)] {
            let file = env.workspace().join(format!("pid-{survives}"));
            run.probe(&["double-fork-daemon", file.to_str().unwrap(), "60"]).assert_ok();
            let left = survivors(&file);
            kill(&left);
            assert_eq!(!left.is_empty(), survives, "{left:?}");
        }
    });
}

/// D2: many children, none of which the parent waits for.
#[test]
fn d2_unwaited_children_do_not_outlive_the_call() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (run, survives) in [(env.bare(), true), (env.sandbox(), false)] {
            let file = env.workspace().join(format!("pids-{survives}"));
            let words = ["fork-children", "20", "60", file.to_str().unwrap()];
            run.probe(&words).assert_ok();
            let left = survivors(&file);
            kill(&left);
            assert_eq!(!left.is_empty(), survives, "{left:?}");
        }
    });
}

/// D12: killing the supervisor, by the signal that it cannot catch, kills a tool that ignores all the others.
#[test]
fn d12_killing_the_supervisor_kills_the_call() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let file = env.workspace().join("pid");
        let mut command = env.sandbox().probe_command(&["sigterm-ignorer", "60", file.to_str().unwrap()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut supervisor = command.spawn().unwrap();
        eventually("the tool runs", || {
            let ended = supervisor.try_wait().unwrap();
            assert!(ended.is_none(), "callgate ended: {ended:?}");
            std::fs::read_to_string(&file).is_ok_and(|pid| !pid.is_empty())
        });
        assert!(!survivors(&file).is_empty(), "the control: it runs");
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
        eventually("the tool is gone", || survivors(&file).is_empty());
    });
}

/// D2: a polite request to callgate is passed on, as `run` passes every signal on: it ends a tool that listens, and one that
/// does not goes on as it would bare.
#[test]
fn d2_a_polite_request_is_passed_on() {
    matrix(Host::STRENGTHS, |target| {
        for (ignores, run) in [(false, "bare"), (true, "bare"), (false, "sandbox"), (true, "sandbox")] {
            let env = TestEnv::new(target);
            let file = env.workspace().join("pid");
            let run = if run == "bare" { env.bare() } else { env.sandbox() };
            let script = format!(
                "trap '{}' TERM; echo > {}; sleep 60 & wait; sleep 60",
                if ignores { "" } else { "exit 9" },
                file.display()
            );
            let mut child =
                run.command(&["/bin/bash", "-c", &script]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            eventually("the tool runs", || file.exists());
            assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
            if ignores {
                // Long enough that the other case has ended many times over.
                std::thread::sleep(Duration::from_millis(150));
                assert!(child.try_wait().unwrap().is_none());
                child.kill().unwrap();
                child.wait().unwrap();
            } else {
                eventually("it ends as the tool did", || {
                    child.try_wait().unwrap().is_some_and(|end| end.code() == Some(9))
                });
            }
        }
    });
}

/// Processes that a tool leaves running: a daemon, hundreds of children, one that ignores signals, one that is stopped;
/// and what the tool leaves in the kernel: System V objects. It says when all of that is there, and then waits or ends.
const TREE: &str = r#"
P=$1 D=$2
$P double-fork-daemon $D/daemon 60
$P fork-children 200 60 $D/children
$P sigterm-ignorer 60 $D/ignorer &
$P sigterm-ignorer 60 $D/stopped &
perl -e 'for (oct $ARGV[0]) { defined shmget(77, 315392, 01000|$_) && defined semget(77, 77, 01000|$_) && defined msgget(77, 01000|$_) or die $! }' $3
kill -STOP $!
touch $D/ready
[ $4 = wait ] && sleep 60
exit 0
"#;

/// A tool with all that, under callgate, in a temporary directory of its own.
struct ProcessTree {
    env: TestEnv,
    temporary: PathBuf,
    /// The mode of the System V objects: no other test uses it, so it tells whose they are.
    mode: String,
}

impl ProcessTree {
    fn new(target: Target, salt: u32) -> Self {
        let env = TestEnv::new(target);
        let temporary = env.outside().join("tmp");
        fs::create_dir(&temporary).unwrap();
        env.give(&temporary);
        let script = env.workspace().join("tree.sh");
        fs::write(script, TREE).unwrap();
        // Owner's reading and writing, and a number in the other bits.
        Self { env, temporary, mode: format!("{:o}", 0o600 | salt) }
    }

    fn words(&self, then: &str) -> Vec<String> {
        let probe = Binaries::of_this_build().probe();
        let (probe, here) = (probe.display().to_string(), self.env.workspace().display().to_string());
        ["/bin/bash", "tree.sh", &probe, &here, &format!("0{}", self.mode), then].map(str::to_owned).to_vec()
    }

    fn start(&self, run: ProgramRunner, then: &str) -> Child {
        let words = self.words(then);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.spawn(run.variable("TMPDIR", self.temporary.to_str().unwrap()).command(&words))
    }

    fn spawn(&self, mut command: Command) -> Child {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("everything runs", || {
            let ended = child.try_wait().unwrap();
            self.env.workspace().join("ready").exists() || ended.is_some_and(|end| panic!("{end}"))
        });
        child
    }

    /// Processes that belong to it: their command lines name its directory.
    fn processes(&self) -> Vec<(u32, String)> {
        let here = self.env.workspace().display().to_string();
        let listing = fs::read_dir("/proc").unwrap().flatten();
        let found = listing.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let line = String::from_utf8_lossy(&fs::read(entry.path().join("cmdline")).ok()?).into_owned();
            let comm = fs::read_to_string(entry.path().join("comm")).ok()?;
            line.contains(&here).then(|| (pid, comm.trim().to_owned()))
        });
        found.collect()
    }

    /// System V objects that belong to it.
    fn objects(&self) -> Vec<String> {
        let kinds = ["shm", "sem", "msg"].iter();
        let lines = kinds.flat_map(|kind| {
            let text = fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap();
            text.lines().skip(1).map(|line| format!("{kind}: {line}")).collect::<Vec<_>>()
        });
        lines.filter(|line| line.split_whitespace().nth(3) == Some(&self.mode)).collect()
    }

    /// Nothing is left: no process, no object, no directory.
    fn assert_gone(&self) {
        self.assert_gone_but(&[]);
    }

    /// Asserts that all is gone but for what `docs/threat-model.md` says that nobody is left to remove.
    fn assert_gone_but(&self, known: &[&str]) {
        let mut left = Vec::new();
        let gone = eventually_or_not(|| {
            left = self.processes();
            left.is_empty()
        });
        let objects = self.objects();
        remove(&objects);
        let directories: Vec<_> = fs::read_dir(&self.temporary).unwrap().flatten().map(|e| e.file_name()).collect();
        for (pid, _) in &left {
            kill(&[pid.to_string()]);
        }
        assert!(gone, "{} processes are left: {:?}", left.len(), left.iter().take(5).collect::<Vec<_>>());
        assert!(objects.is_empty() || known.contains(&"objects"), "System V objects are left: {objects:?}");
        assert!(
            directories.is_empty() || known.contains(&"directory"),
            "left in the temporary directory: {directories:?}"
        );
    }
}

/// Removes System V objects that were left, so that one failure is not the next one's too.
fn remove(objects: &[String]) {
    for line in objects {
        let (kind, rest) = line.split_once(':').unwrap();
        let id = rest.split_whitespace().nth(1).unwrap();
        let flag = match kind {
            "shm" => "-m",
            "sem" => "-s",
            _ => "-q",
        };
        assert!(Command::new("ipcrm").args([flag, id]).status().unwrap().success());
    }
}

fn eventually_or_not(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > Duration::from_secs(60) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// D2: the control: bare, all of it stays.
#[test]
fn d2_bare_everything_outlives_the_command() {
    let target = Target { host: Host::NoNamespaces, user: callgate_tests::User::Ordinary };
    let tree = ProcessTree::new(target, 0o12);
    let mut child = tree.start(tree.env.bare(), "end");
    child.wait().unwrap();
    let (left, objects) = (tree.processes(), tree.objects());
    remove(&objects);
    kill(&left.iter().map(|(pid, _)| pid.to_string()).collect::<Vec<_>>());
    assert!(left.len() >= 203, "{left:?}");
    assert_eq!(objects.len(), 3, "{objects:?}");
}

/// D2: the command ends; what it left ends with it, before callgate does.
#[test]
fn d2_nothing_outlives_a_command_that_ends() {
    matrix(Host::STRENGTHS, |target| {
        let tree = ProcessTree::new(target, 0o13);
        let end = tree.start(tree.env.sandbox(), "end").wait().unwrap();
        assert!(end.success(), "{end}");
        tree.assert_gone();
    });
}

/// D2: a call's time is up.
#[test]
fn d2_nothing_outlives_a_call_that_times_out() {
    matrix(Host::STRENGTHS, |target| {
        let tree = ProcessTree::new(target, 0o14);
        let command = tree.words("wait").join(" ");
        // More than it takes to get everything running, on a machine that is busy.
        let arguments = serde_json::json!({ "command": command, "timeout_ms": 8000 }).to_string();
        let manifest = tree.env.outside().join("callgate.toml");
        fs::write(&manifest, "[[requires.shell]]\ncmd = \"*\"\n").unwrap();
        let run = tree.env.weakened().variable("TMPDIR", tree.temporary.to_str().unwrap());
        let callgate = Binaries::of_this_build().callgate().display().to_string();
        let probe = Binaries::of_this_build().probe().display().to_string();
        let mut child = tree.spawn(run.command(&[&callgate, "call", "--read", &probe, "bash", &arguments]));
        child.wait().unwrap();
        tree.assert_gone();
    });
}

/// D12: whichever of callgate's own processes is killed, by the signal that none can catch, nothing is left.
fn killed(name: &str, salt: u32) {
    // A command's session has a launcher only where a directory must be removed.
    let hosts = if name == "cg-launcher" { &[Host::NoNamespaces][..] } else { Host::STRENGTHS };
    matrix(hosts, |target| {
        let tree = ProcessTree::new(target, salt);
        let mut child = tree.start(tree.env.sandbox(), "wait");
        let all = tree.processes();
        let victim = match name {
            "callgate" => child.id(),
            // The zygote's child that is the parent of the command.
            "worker" => {
                let bash = all.iter().find(|(_, comm)| comm == "bash").unwrap().0;
                parent_of(bash).unwrap()
            }
            comm => all.iter().filter(|(_, each)| each == comm).map(|(pid, _)| *pid).min().unwrap(),
        };
        kill(&[victim.to_string()]);
        if name == "cg-launcher" {
            // It only opens sessions: this one goes on, as confined as before, and still ends with its supervisor.
            assert!(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
        }
        eventually("callgate has ended", || child.try_wait().unwrap().is_some_and(|end| !end.success()));
        match name {
            // Without namespaces the broker alone knows the objects, and the launcher alone may remove the directory.
            "cg-broker" if !target.has_namespaces() => tree.assert_gone_but(&["objects"]),
            "cg-launcher" => tree.assert_gone_but(&["directory"]),
            _ => tree.assert_gone(),
        }
    });
}

#[test]
fn d12_killing_the_supervisor_leaves_nothing() {
    killed("callgate", 0o15);
}

#[test]
fn d12_killing_the_launcher_leaves_nothing() {
    killed("cg-launcher", 0o16);
}

#[test]
fn d12_killing_the_broker_leaves_nothing() {
    killed("cg-broker", 0o17);
}

#[test]
fn d12_killing_the_worker_leaves_nothing() {
    killed("worker", 0o22);
}

/// D2: a result is reported when everything is gone, however long that takes, and is not lost by that. Here somebody outside
/// traces a process of the call's, so that the kernel keeps it from being reaped until they let go.
#[test]
fn d2_a_result_waits_until_all_is_gone() {
    const HOLD: &str = "
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
if libc.ptrace(0x4206, int(sys.argv[1]), None, None): sys.exit(os.strerror(ctypes.get_errno()))
open('held', 'w').close()
time.sleep(7)
open('letting-go', 'w').close()";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let file = env.workspace().join("pids");
        let probe = Binaries::of_this_build().probe().display().to_string();
        let script =
            format!("{probe} fork-children 1 60 {}; until [ -e held ]; do sleep 0.05; done; exit 3", file.display());
        let (ended, waited) = std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let ended = env.sandbox().flag(&["--read", &probe]).run(&["/bin/sh", "-c", &script]);
                // It may be back before it is seen here that they have let go.
                (ended, env.workspace().join("letting-go").exists())
            });
            let mut held = Vec::new();
            eventually("it has left a process, and ended itself", || {
                let made = file.exists();
                held = survivors(&file);
                made && held.len() == 1
            });
            let holds = env.bare().run(&["/usr/bin/python3", "-c", HOLD, &held[0]]);
            assert!(holds.status.success(), "{holds:?}");
            run.join().unwrap()
        });
        assert_eq!(ended.status.code(), Some(3), "{ended:?}");
        assert!(waited, "it returned while a process was there");
        assert_eq!(survivors(&file), Vec::<String>::new());
    });
}

/// Stops the thread of a broker that answers, in the middle of an answer: at a system call that it makes for a caller, and makes at no
/// other time. It goes on when this thread ends.
#[allow(unsafe_code, reason = "no safe wrapper traces a thread")]
fn stop_in_an_answer(broker: u32) -> i32 {
    let tasks = fs::read_dir(format!("/proc/{broker}/task")).unwrap().flatten();
    let tasks = tasks.filter(|task| fs::read_to_string(task.path().join("comm")).unwrap() == "cg-broker\n");
    let mut threads = tasks.map(|task| task.file_name().to_str().unwrap().parse::<i32>().unwrap());
    // Their first is the one that watches for the end.
    let thread = threads.find(|thread| thread.cast_unsigned() != broker).unwrap();
    let trace = |request: libc::c_uint, value: usize| {
        // SAFETY: no request among those below takes an address.
        let done = unsafe { libc::ptrace(request, thread, 0_usize, value) };
        assert_eq!(done, 0, "ptrace {request}: {}", std::io::Error::last_os_error());
    };
    trace(libc::PTRACE_SEIZE, usize::try_from(libc::PTRACE_O_TRACESYSGOOD).unwrap());
    trace(libc::PTRACE_INTERRUPT, 0);
    loop {
        // SAFETY: the status is not wanted.
        assert_eq!(unsafe { libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL) }, thread);
        let call = fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap();
        if call.split(' ').next() == Some(&libc::SYS_readlinkat.to_string()) {
            return thread;
        }
        trace(libc::PTRACE_SYSCALL, 0);
    }
}

/// D12: the thread of a broker that serves the call sleeps in the kernel, as it did for as long as a call said when it was the last
/// to close a lingering socket. The session ends all the same, and nothing of it is left.
#[test]
fn d12_a_thread_that_serves_and_sleeps_holds_up_no_end() {
    matrix(Host::STRENGTHS, |target| {
        let tree = ProcessTree::new(target, 0o23);
        let asks = "while :; do ( : 3<>/dev/tcp/127.0.0.1/9 ) 2>/dev/null; done & exec /bin/bash \"$@\"";
        let words = tree.words("wait");
        let words: Vec<&str> = ["/bin/bash", "-c", asks].into_iter().chain(words.iter().map(String::as_str)).collect();
        let run = tree.env.sandbox().variable("TMPDIR", tree.temporary.to_str().unwrap());
        let mut child = tree.spawn(run.command(&words));
        let broker = tree.processes().into_iter().filter(|(_, comm)| comm == "cg-broker").map(|(pid, _)| pid).min();
        let broker = broker.unwrap();
        let thread = stop_in_an_answer(broker);
        child.kill().unwrap();
        child.wait().unwrap();
        let ended = eventually_or_not(|| {
            reap(thread);
            !fs::exists(format!("/proc/{broker}")).unwrap()
        });
        if !ended {
            kill(&[broker.to_string()]);
            reap(thread);
        }
        assert!(ended, "the broker has not ended");
        tree.assert_gone();
    });
}

/// Takes note of the end of a thread that this one traces, or the kernel keeps its process.
#[allow(unsafe_code, reason = "no safe wrapper waits for a thread")]
fn reap(thread: i32) {
    // SAFETY: the status is not wanted.
    unsafe { libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) };
}

/// D11, D12: who closes a connection that lingers waits until all of it has been taken, for as long as the socket says. The last to close it may be
/// a process of callgate's, or the kernel's own for all of the host. So it is said to be set, and is not, also for what a server
/// accepts.
#[test]
fn d11_d12_no_socket_of_a_call_lingers() {
    let script = "
import socket, struct, time
def set_to(s, seconds): s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, seconds)); return s
def waits(s):
    s.setblocking(False)
    try:
        while True: s.send(bytes(1 << 20))
    except BlockingIOError: pass
    begun = time.monotonic(); s.close()
    return time.monotonic() - begun > 1.5
server = set_to(socket.create_server(('127.0.0.1', 0)), 2)
def pair():
    client = socket.create_connection(server.getsockname())
    return client, server.accept()[0]
a, b = pair()
c, d = pair()
print(waits(set_to(a, 2)), waits(d), struct.unpack('ii', b.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))[0])";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (run, printed) in [(env.bare(), "True True 1\n"), (env.sandbox(), "False False 0\n")] {
            let ended = run.run(&["/usr/bin/python3", "-c", script]);
            assert_eq!(ended.stdout, printed, "{ended:?}");
        }
    });
}
