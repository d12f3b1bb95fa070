//! A call against what surrounds it: the session's broker, zygote and worker, and another session's call (D1, D2, D8, A11).

use std::fs;
use std::process::{Child, Stdio};

use callgate_tests::{Binaries, Host, ProgramRunner, TestEnv, eventually, matrix};
use libc::{EACCES, ENOENT, EPERM, ESRCH};

/// A call that waits, in a session of its own in the same workspace.
struct Neighbour(Child);

impl Neighbour {
    fn start(env: &TestEnv, script: &str) -> Self {
        let ready = env.workspace().join("ready");
        drop(fs::remove_file(&ready));
        let script = format!("{script}\ntouch {}; exec sleep 60", ready.display());
        let mut command = env.sandbox().command(&["/bin/bash", "-c", &script]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("the neighbour is ready", || {
            assert!(child.try_wait().unwrap().is_none(), "the neighbour has ended");
            ready.exists()
        });
        let neighbour = Self(child);
        // The shell has become the sleep, and all that it started before has ended.
        let mut before = Vec::new();
        eventually("the neighbour has settled", || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            let now = neighbour.family();
            std::mem::replace(&mut before, now.clone()) == now
        });
        neighbour
    }

    /// callgate itself and all below it, as the host numbers them.
    fn family(&self) -> Vec<u32> {
        let mut all = vec![self.0.id()];
        let mut next = 0;
        while let Some(pid) = all.get(next) {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            all.extend(children.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()));
            next += 1;
        }
        all
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Runs acts in one call and returns each one's errno, or 0.
fn acts(env: &TestEnv, lines: &[String]) -> Vec<i64> {
    acts_in(&env.sandbox(), lines)
}

/// Results of acts with further flags.
fn acts_in(run: &ProgramRunner, lines: &[String]) -> Vec<i64> {
    let probe = Binaries::of_this_build().probe().display().to_string();
    let script: String = lines.iter().map(|line| format!("{probe} {line}\n")).collect();
    let ended = run.run(&["/bin/bash", "-c", &script]);
    let parsed = ended.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let errnos: Vec<i64> =
        parsed.map(|line| if line["ok"] == true { 0 } else { line["errno"].as_i64().unwrap() }).collect();
    assert_eq!(errnos.len(), lines.len(), "{ended:?}");
    errnos
}

/// D1, D2, D8: callgate's own processes, those of a neighbour's session and its command, by their numbers on the host.
#[test]
fn d1_d2_another_session_cannot_be_touched() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let neighbour = Neighbour::start(&env, "");
        let family = neighbour.family();
        // callgate, broker, worker, the command; without namespaces a launcher, too.
        assert!(family.len() >= target.by_strength(4, 5), "{family:?}");
        let (lookup, proc) = (target.by_strength(ESRCH, EPERM), target.by_strength(ENOENT, EACCES));
        let table = [
            ("kill", " 9", lookup),
            ("tgkill", " 9", lookup),
            ("prlimit", "", EPERM),
            ("setpriority", "", EPERM),
            ("sched-affinity", "", EPERM),
            ("ptrace-attach", "", EPERM),
            ("ptrace-seize", "", EPERM),
            ("process-vm-readv", "", EPERM),
            ("pidfd-getfd", " 0", lookup),
            ("proc-pid", " mem", proc),
            ("proc-pid", " environ", proc),
        ];
        for pid in &family {
            // A low number may be one of the session's own in its PID namespace; those have a test of their own.
            let lines: Vec<String> = table.iter().map(|(act, rest, _)| format!("{act} {pid}{rest}")).collect();
            let wanted: Vec<i64> = table.iter().map(|(_, _, errno)| i64::from(*errno)).collect();
            if *pid > 100 {
                assert_eq!(acts(&env, &lines), wanted, "{lines:?}");
                // What is traced there is in reach of the kernel's own answer: with namespaces, no process of that number.
                let traced = |line: &String| line.starts_with("ptrace") || line.starts_with("process-vm");
                let answer = |(line, errno): (&String, &i64)| if traced(line) { i64::from(lookup) } else { *errno };
                let wanted: Vec<i64> = lines.iter().zip(&wanted).map(answer).collect();
                assert_eq!(acts_in(&env.sandbox().flag(&["--debug"]), &lines), wanted, "{lines:?}");
            }
        }
        assert_eq!(neighbour.family(), family);
        // The control: bare, the same user can.
        let victim = family.last().unwrap().to_string();
        env.bare().probe(&["kill", &victim, "9"]).assert_ok();
    });
}

/// D1, D2: the session's own broker and worker, as its PID namespace numbers them; without one, the worker as the command's
/// parent. Also below ABI 6, where Landlock has no signal scope.
#[test]
fn d1_d2_a_session_s_own_processes_cannot_be_touched() {
    matrix(&[Host::Namespaces, Host::NoNamespaces, Host::Abi(5), Host::BareAbi(5)], |target| {
        let env = TestEnv::new(target);
        let pids: &[&str] = if target.has_namespaces() { &["1", "2", "$PPID"] } else { &["$PPID"] };
        for pid in pids {
            let lines: Vec<String> = [
                "kill PID 9",
                "kill PID 19",
                "tgkill PID 9",
                "sigqueue PID 9",
                "prlimit PID",
                "setpriority PID",
                "sched-affinity PID",
                "pidfd-open PID",
                "ptrace-seize PID",
                "process-vm-readv PID",
            ]
            .map(|line| line.replace("PID", pid))
            .to_vec();
            assert_eq!(acts(&env, &lines), vec![i64::from(EPERM); lines.len()], "{pid}");
            // What imitates an older Landlock traces all that runs there, so that nothing else can.
            if Host::STRENGTHS.contains(&target.host) {
                let traces = env.sandbox().flag(&["--debug"]);
                assert_eq!(acts_in(&traces, &lines), vec![i64::from(EPERM); lines.len()], "{pid}, with --debug");
            }
        }
        // The controls: one's own child, and oneself.
        let script = "sleep 60 & P=PROBE; for act in sched-affinity setpriority; do (exec $P $act $BASHPID); done; \
                      $P kill $! 9; wait $!; echo $?";
        let script = script.replace("PROBE", &Binaries::of_this_build().probe().display().to_string());
        let ended = env.sandbox().run(&["/bin/bash", "-c", &script]);
        assert_eq!(ended.stdout.matches("\"ok\":true").count(), 3, "{ended:?}");
        assert!(ended.stdout.ends_with("137\n"), "{ended:?}");
    });
}

/// D1, D2: the kernel never carries out what was allowed for another process by its number, which may be a stranger's by then
/// (a limit on processes leaves a PID namespace a few hundred, and a caller can be kept waiting for seconds). Limits, scheduling
/// and priorities are one's own alone; a signal to another process comes from the broker, which has it as a descriptor.
#[test]
fn d1_d2_no_number_of_another_process_is_acted_on_by_the_kernel() {
    let script = r#"
import ctypes, os, resource, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": (200, 129, 251), "aarch64": (130, 138, 30)}[os.uname().machine]
tkill, rt_sigqueueinfo, ioprio_set = number
def errno(act, *arguments):
    try: result = act(*arguments)
    except OSError as e: return e.errno
    return ctypes.get_errno() if result == -1 else 0
def child(run):
    pid = os.fork()
    if pid == 0:
        try: run()
        finally: os._exit(1)
    return pid
asked, answers = os.pipe(), os.pipe()
def tells_its_limit():
    os.read(asked[0], 1)
    os.write(answers[1], b"lowered" if resource.getrlimit(resource.RLIMIT_FSIZE)[0] == 8192 else b"as it was")
    time.sleep(60)
other = child(tells_its_limit)
condition = lambda: [os.sched_getaffinity(other), os.getpriority(0, other), os.sched_getscheduler(other)]
before = condition()
print("limits", errno(resource.prlimit, other, resource.RLIMIT_FSIZE, (8192, 8192)),
    errno(os.sched_setaffinity, other, {min(os.sched_getaffinity(0))}),
    errno(os.setpriority, os.PRIO_PROCESS, other, 19),
    errno(os.sched_setscheduler, other, os.SCHED_BATCH, os.sched_param(0)),
    errno(libc.syscall, ioprio_set, 1, other, 3 << 13))
os.write(asked[1], b"?")
print("same", condition() == before, os.read(answers[0], 20).decode())
print("oneself", errno(resource.prlimit, os.getpid(), resource.RLIMIT_FSIZE, resource.getrlimit(resource.RLIMIT_FSIZE)),
    errno(os.sched_setaffinity, os.getpid(), os.sched_getaffinity(0)), errno(os.setpriority, os.PRIO_PROCESS, os.getpid(), 19))
# Who sent it, and what it carries.
mine = os.getpid()
signal.pthread_sigmask(signal.SIG_BLOCK, {10, 12})
heard = lambda n: (lambda info: (info.si_signo, info.si_code, info.si_pid == sender))(signal.sigtimedwait({n}, 20))
sender = child(lambda: (os.kill(mine, 10), os._exit(0)))
print("kill", *heard(10)); os.waitpid(sender, 0)
def queue():
    info = (ctypes.c_int * 32)(0, 0, -1, 0, os.getpid(), os.getuid(), 7)
    assert libc.syscall(rt_sigqueueinfo, mine, 12, info) == 0
    info[2] = 0
    os._exit(0 if libc.syscall(rt_sigqueueinfo, mine, 12, info) == -1 and ctypes.get_errno() == 1 else 1)
sender = child(queue)
print("sigqueue", *heard(12), os.waitpid(sender, 0)[1])
# A group that is not one's own, and one that is: each is reached.
def group(ready):
    os.setpgid(0, 0)
    child(lambda: (os.write(ready, b"."), time.sleep(60)))
    time.sleep(60)
for how in (signal.SIGTERM, signal.SIGKILL):
    gone, held = os.pipe()
    leader = child(lambda: group(held))
    os.close(held); os.read(gone, 1)
    os.killpg(leader, how)
    # The second is the end of the last who holds the pipe.
    print("group", os.waitpid(leader, 0)[1] == how, os.read(gone, 1) == b"")
def own():
    os.setpgid(0, 0); os.killpg(os.getpgid(0), 9)
print("own", os.waitpid(child(own), 0)[1])
os.kill(other, 9); print("killed", os.waitpid(other, 0)[1])
"#;
    matrix(&[Host::Namespaces, Host::NoNamespaces, Host::Abi(5), Host::BareAbi(5)], |target| {
        let env = TestEnv::new(target);
        let words = ["/usr/bin/python3", "-c", script];
        let wanted = |limits: &str, same: &str, kill: bool| {
            let kill = if kill { "True" } else { "False" };
            format!(
                "limits {limits}\nsame {same}\noneself 0 0 0\nkill 10 0 {kill}\nsigqueue 12 -1 True 0\n\
                 group True True\ngroup True True\nown 9\nkilled 9\n"
            )
        };
        assert_eq!(env.bare().run(&words).stdout, wanted("0 0 0 0 0", "False lowered", true), "the control");
        let inside = env.sandbox().run(&words);
        let by_broker = matches!(target.host, Host::Abi(_) | Host::BareAbi(_));
        assert_eq!(inside.stdout, wanted("1 1 1 1 1", "True as it was", !by_broker), "{inside:?}");
    });
}

/// D1: what libraries do to the threads that they start.
#[test]
fn d1_threads_of_one_s_own_process_can_be_placed() {
    let script = r#"
import ctypes, os, threading
libc = ctypes.CDLL(None, use_errno=True)
tkill = {"x86_64": 200, "aarch64": 130}[os.uname().machine]
over = threading.Event()
thread = threading.Thread(target=over.wait); thread.start()
one = {min(os.sched_getaffinity(0))}
os.sched_setaffinity(thread.native_id, one)
os.setpriority(os.PRIO_PROCESS, thread.native_id, 19)
print(os.sched_getaffinity(thread.native_id) == one, os.getpriority(os.PRIO_PROCESS, thread.native_id), libc.syscall(tkill, thread.native_id, 0))
over.set()
"#;
    matrix(&[Host::Namespaces, Host::NoNamespaces, Host::Abi(5), Host::BareAbi(5)], |target| {
        let env = TestEnv::new(target);
        let words = ["/usr/bin/python3", "-c", script];
        assert_eq!(env.bare().run(&words).stdout, "True 19 0\n", "the control");
        let inside = env.sandbox().run(&words);
        assert_eq!(inside.stdout, "True 19 0\n", "{inside:?}");
    });
}

/// D2: a socket's peer, asked for as a pidfd, is the broker that connected it; it cannot be signalled by that either.
#[test]
fn d2_the_peer_of_a_socket_cannot_be_signalled() {
    let script = "import socket,signal,os,subprocess\ns=socket.socket(socket.AF_UNIX); s.bind('sock'); s.listen()\n\
        c=socket.socket(socket.AF_UNIX); c.connect('sock'); a,_=s.accept()\n\
        for x in (a,c):\n  try: signal.pidfd_send_signal(x.getsockopt(1,77),0); print('sent')\n  except OSError as e: print(e.errno)\n\
        p=subprocess.Popen(['sleep','60']); signal.pidfd_send_signal(os.pidfd_open(p.pid),15); print(p.wait()); os.unlink('sock')";
    matrix(&[Host::Namespaces, Host::NoNamespaces, Host::Abi(5), Host::BareAbi(5)], |target| {
        let env = TestEnv::new(target);
        let words = ["/usr/bin/python3", "-c", script];
        assert_eq!(env.bare().run(&words).stdout, "sent\nsent\n-15\n");
        let inside = env.sandbox().run(&words);
        assert_eq!(inside.stdout, "1\n1\n-15\n", "{inside:?}");
    });
}

/// A11, B7: names that two sessions could meet at: /dev/shm, abstract sockets, TMPDIR, System V keys, loopback.
#[test]
fn a11_two_sessions_share_no_names() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let probe = Binaries::of_this_build().probe().display().to_string();
        let name = format!("callgate-siblings-{}-{}", std::process::id(), target.user.uid());
        let key = std::process::id();
        let makes = format!(
            "{probe} shm-posix {name}; {probe} sem-sysv-create {key}; echo secret > $TMPDIR/{name}; echo $TMPDIR > where; \
             perl -MSocket -e 'socket(S,PF_UNIX,SOCK_STREAM,0); bind(S,pack_sockaddr_un(\"\\0{name}\")) or die $!; listen(S,9); \
             socket(T,PF_INET,SOCK_STREAM,0); bind(T,sockaddr_in(0,INADDR_LOOPBACK)); listen(T,9); \
             open(F,\">port\"); print F (unpack_sockaddr_in(getsockname(T)))[0]; close F; open(G,\">listening\"); close G; sleep 60' &\n\
             while [ ! -e listening ]; do sleep 0.02; done"
        );
        let _neighbour = Neighbour::start(&env, &makes);
        let read = |name: &str| fs::read_to_string(env.workspace().join(name)).unwrap().trim().to_owned();
        let (port, there) = (read("port"), read("where"));
        let lines = [
            format!("shm-posix-open {name}"),
            format!("sem-sysv-get {key}"),
            format!("unix-abstract {name}"),
            format!("tcp-connect 127.0.0.1 {port}"),
            format!("read $TMPDIR/{name}"),
        ];
        let refused = i64::from(libc::ECONNREFUSED);
        assert_eq!(acts(&env, &lines), [ENOENT.into(), ENOENT.into(), refused, refused, ENOENT.into()]);
        if !target.has_namespaces() {
            assert_eq!(
                acts(&env, &[format!("read {there}/{name}"), format!("readdir {there}")]),
                [i64::from(EACCES); 2]
            );
            // The control: the host's own user reaches it there.
            env.bare().probe(&["read", &format!("{there}/{name}")]).assert_ok();
        }
        // The control: a session does meet itself.
        let script = format!(
            "{probe} shm-posix {name}; {probe} shm-posix-open {name}; {probe} sem-sysv-create {key}; {probe} sem-sysv-get {key}"
        );
        let own = env.sandbox().run(&["/bin/bash", "-c", &script]);
        assert_eq!(own.stdout.matches("\"ok\":true").count(), 4, "{own:?}");
    });
}

/// D1: inotify asks for the right to read by file modes alone, and then tells every name that is made, opened or removed
/// there: by another session, or by the host.
#[test]
fn d1_nothing_outside_can_be_watched() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (mine, theirs) = (env.workspace(), env.outside());
        let (mine, theirs) = (mine.to_str().unwrap(), theirs.to_str().unwrap());
        env.bare().probe(&["inotify", theirs]).assert_ok();
        env.sandbox().probe(&["inotify", mine]).assert_ok();
        env.sandbox().probe(&["inotify", theirs]).assert_errno(target.by_strength(ENOENT, EACCES));
    });
}
