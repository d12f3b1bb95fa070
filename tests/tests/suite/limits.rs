//! Limits: each is met on purpose, with a control below it that succeeds; and bombs of every kind end bounded, with a
//! clear error, leaving nothing behind (D11).

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use callgate_tests::{Binaries, Host, ProgramOutcome, TestEnv, eventually, matrix, parent_of, skip};
use serde_json::{Value, json};

fn callgate() -> String {
    Binaries::of_this_build().callgate().display().to_string()
}

/// A word that no other process has among its arguments.
fn mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("mark-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The processes that have a word among their arguments.
fn marked(mark: &str) -> Vec<String> {
    let listing = fs::read_dir("/proc").unwrap().flatten();
    let has = |entry: &fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        // Not callgate's own, which ends by itself.
        String::from_utf8_lossy(&line).contains(mark) && !line.windows(9).any(|part| part == b"callgate\0")
    };
    listing.filter(has).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// `callgate run` of a script of bash's, and its envelope.
fn run(env: &TestEnv, limits: &[&str], script: &str) -> (ProgramOutcome, Value) {
    let status = env.outside().join("status.json");
    let mut run = env.sandbox().flag(&["--status", status.to_str().unwrap()]);
    for limit in limits {
        run = run.flag(&["--limit", limit]);
    }
    let ended = run.run(&["/bin/bash", "-c", script]);
    let text = fs::read_to_string(&status).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended, serde_json::from_str(&text).unwrap())
}

/// Report of an envelope on a limit.
fn report(envelope: &Value, limit: &str) -> Value {
    let all = envelope["metadata"]["limits"].as_array().unwrap_or_else(|| panic!("{envelope}"));
    all.iter().find(|each| each["limit"] == limit).unwrap_or_else(|| panic!("{limit}: {envelope}")).clone()
}

struct LimitCase {
    limit: &'static str,
    /// Value that the script meets.
    low: &'static str,
    /// Value that it does not meet.
    high: &'static str,
    by: &'static str,
    script: &'static str,
}

/// A command of 16 processes that nobody waits for: they work in turns of so many seconds, and each stays for `rest` more.
macro_rules! relay {
    ($rest:literal, $work:literal, $turn:literal) => {
        concat!(
            "python3 -c '
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
rest, turn = ",
            $rest,
            ", ",
            $turn,
            "
start = time.monotonic() + rest
def until(then): time.sleep(max(0, then - time.monotonic()))
for k in range(16):
    if os.fork() == 0:
        until(start + k * turn)
        ",
            $work,
            "
        time.sleep(rest)
        os._exit(0)
try: os.wait()
except ChildProcessError: pass'"
        )
    };
}

const WATCHED: &[LimitCase] = &[
    LimitCase {
        limit: "cpu",
        low: "1s",
        high: "1m",
        by: "watcher",
        // Each of them below the limit.
        script: "for i in 1 2 3; do perl -e 'do { $i++ for 1..100_000 } while (times)[0] < 0.7' & done; wait",
    },
    LimitCase {
        limit: "cpu",
        low: "1s",
        high: "1m",
        by: "watcher",
        // One after another, each waiting until others work, and then ending unheard: its account ends with it.
        script: relay!("0.4", "while time.process_time() < turn: pass", "0.2"),
    },
    LimitCase {
        limit: "disk",
        low: "96MiB",
        high: "2GiB",
        by: "watcher",
        // The same.
        script: concat!(relay!("0.5", r#"open(str(k), "wb").write(b"x" * 20_000_000)"#, "0.3"), "; rm -f [0-9]*"),
    },
    LimitCase {
        limit: "memory",
        low: "96MiB",
        high: "2GiB",
        by: "watcher",
        // In no process's table: a thread waits in a call that was made with it.
        script: "python3 -c '
import os, threading, time
end, pipe = os.pipe()
os.set_blocking(pipe, False)
try:
    while True: os.write(pipe, b\"x\" * 4096)
except BlockingIOError: os.set_blocking(pipe, True)
for _ in range(20):
    fd = os.memfd_create(\"x\")
    os.write(fd, b\"x\" * 10_000_000)
    threading.Thread(target=os.sendfile, args=(pipe, fd, 0, 1 << 20), daemon=True).start()
    time.sleep(0.02)
    os.close(fd)
time.sleep(0.8)
os._exit(0)'",
    },
    LimitCase {
        limit: "memory",
        low: "96MiB",
        high: "2GiB",
        by: "watcher",
        script: "perl -e '$x = q(x) x 200_000_000; select undef, undef, undef, 0.6'",
    },
    LimitCase {
        limit: "memory",
        low: "96MiB",
        high: "2GiB",
        by: "watcher",
        // Each of them below the limit.
        script: "for i in 1 2 3 4 5 6; do perl -e '$x = q(x) x 40_000_000; select undef, undef, undef, 0.8' & done; wait",
    },
    LimitCase {
        limit: "memory",
        low: "96MiB",
        high: "2GiB",
        by: "watcher",
        // Mapped by nobody.
        script: "python3 -c '
import os, time
held = [os.memfd_create(\"x\") for _ in range(20)]
for fd in held: os.write(fd, b\"x\" * 10_000_000)
time.sleep(0.8)'",
    },
    LimitCase {
        limit: "memory",
        low: "96MiB",
        high: "2GiB",
        by: "watcher",
        // On its way through a socket: no process has it.
        script: "python3 -c '
import os, socket, time
held = []
for _ in range(20):
    here, there = socket.socketpair()
    fd = os.memfd_create(\"x\")
    os.write(fd, b\"x\" * 10_000_000)
    socket.send_fds(here, [b\"x\"], [fd])
    os.close(fd)
    held.append((here, there))
time.sleep(0.8)'",
    },
    LimitCase {
        limit: "memory",
        low: "96MiB",
        high: "2GiB",
        by: "watcher",
        // Shared by fork, and counted once: the control's pages would be 12 times as many.
        script: "python3 -c '
import mmap, os, time
shared = mmap.mmap(-1, 150_000_000)
for at in range(0, 150_000_000, 4096): shared[at] = 1
for _ in range(12):
    if os.fork() == 0:
        sum(shared[at] for at in range(0, 150_000_000, 4096))
        time.sleep(0.8)
        os._exit(0)
while True:
    try: os.wait()
    except ChildProcessError: break'",
    },
    LimitCase {
        limit: "memory",
        low: "64MiB",
        high: "1GiB",
        by: "watcher",
        // In a process whose name is not UTF-8, as /proc gives it.
        script: "perl -e '$0 = qq(\\xff\\xfe); push @x, q(x) x 1_000_000 for 1..200; select(undef, undef, undef, 0.8)'",
    },
    LimitCase {
        limit: "cpu",
        low: "200ms",
        high: "30s",
        by: "watcher",
        script: "for i in 1 2; do perl -e '$0 = qq(\\xff\\xfe); 1 while (times)[0] < 0.8' & done; wait",
    },
    LimitCase {
        limit: "memory",
        low: "96MiB",
        high: "2GiB",
        by: "watcher",
        // Of a process whose first thread has ended.
        script: "python3 -c '
import ctypes, mmap, os, threading, time
def hold():
    time.sleep(0.2)
    held = mmap.mmap(-1, 200_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, 200_000_000, 4096): held[at] = 1
    time.sleep(0.8)
    os._exit(0)
threading.Thread(target=hold).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == \"x86_64\" else 93, 0)'",
    },
    LimitCase {
        limit: "memory",
        low: "96MiB",
        high: "2GiB",
        by: "watcher",
        // Shared, touched, and mapped by nobody any more.
        script: "python3 -c '
import mmap, time
held = mmap.mmap(-1, 200_000_000)
for part in range(0, 200_000_000, 1 << 20):
    for at in range(part, min(part + (1 << 20), 200_000_000), 4096): held[at] = 1
    held.madvise(mmap.MADV_DONTNEED)
time.sleep(0.8)'",
    },
    LimitCase {
        limit: "memory",
        low: "96MiB",
        high: "2GiB",
        by: "watcher",
        // The same of segments that were removed, so that there is room for more.
        script: "python3 -c '
import ctypes, time
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(4):
    segment = libc.shmget(0, 50_000_000, 0o600)
    at = libc.shmat(segment, None, 0)
    libc.shmctl(segment, 0, None)
    ctypes.memset(at, 1, 50_000_000)
    libc.madvise(ctypes.c_void_p(at), 50_000_000, 4)
time.sleep(0.8)'",
    },
    LimitCase {
        limit: "memory",
        low: "96MiB",
        high: "2GiB",
        by: "watcher",
        // Of a program that may be executed and not read.
        script: "cp $(command -v perl) p; chmod 111 p
./p -e '$x = q(x) x 200_000_000; select undef, undef, undef, 0.8'; s=$?; rm -f p; exit $s",
    },
    LimitCase {
        limit: "memory",
        low: "96MiB",
        high: "2GiB",
        by: "watcher",
        // Of one that such a program has started.
        script: "cp $(command -v bash) b; chmod 111 b
./b -c 'perl -e \"\\$x = q(x) x 200_000_000; select undef, undef, undef, 0.8\" & wait $!'; s=$?; rm -f b; exit $s",
    },
    LimitCase {
        limit: "cpu",
        low: "400ms",
        high: "1m",
        by: "watcher",
        // The same, while it lives.
        script: "cp $(command -v perl) p; chmod 111 p
read -n 1 < <(./p -e '$| = 1; 1 while (times)[0] < 0.8; print 1; sleep 60'); sleep 0.5; rm p",
    },
    LimitCase {
        limit: "cpu",
        low: "1300ms",
        high: "1m",
        by: "watcher",
        // Each of them below the limit, and waited for by nobody.
        script: "python3 -c '
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        while time.process_time() < 1.2: pass
        os._exit(0)
    try: os.wait()
    except ChildProcessError: pass'",
    },
    LimitCase {
        limit: "processes",
        low: "20",
        high: "4096",
        by: "watcher",
        script: "for i in $(seq 30); do sleep 0.6 & done; wait",
    },
    LimitCase {
        limit: "processes",
        low: "20",
        high: "4096",
        by: "watcher",
        script: "python3 -c '
import threading, time
for _ in range(30): threading.Thread(target=time.sleep, args=(0.6,)).start()'",
    },
    LimitCase {
        limit: "processes",
        low: "20",
        high: "4096",
        by: "watcher",
        // Each an orphan in a session of its own.
        script: "for i in $(seq 30); do (setsid sleep 0.6 >/dev/null 2>&1 &) ; done; sleep 0.6",
    },
    LimitCase {
        limit: "disk",
        low: "20MiB",
        high: "1GiB",
        by: "watcher",
        script: "for i in $(seq 60); do head -c 1000000 /dev/zero > f$i; done; sleep 0.5",
    },
    LimitCase {
        limit: "disk",
        low: "20MiB",
        high: "1GiB",
        by: "watcher",
        // By processes that nobody waits for.
        script: "python3 -c '
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(4):
    if os.fork() == 0:
        with open(\"f\", \"wb\") as file: file.write(b\"x\" * 8_000_000)
        time.sleep(1.2)
        os._exit(0)
    try: os.wait()
    except ChildProcessError: pass'",
    },
    LimitCase {
        limit: "disk",
        low: "20MiB",
        high: "1GiB",
        by: "watcher",
        // On a tmpfs with namespaces, on the host without.
        script: "cd $TMPDIR; for i in $(seq 60); do head -c 1000000 /dev/zero > f$i; done; sleep 0.5",
    },
];

/// D11: what all processes of a call use together is bounded, and a call that uses less does not notice.
fn bounded_together(what: &str) {
    let cases: Vec<&LimitCase> = WATCHED.iter().filter(|case| case.limit == what).collect();
    assert!(!cases.is_empty());
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for LimitCase { limit, low, high, by, script } in &cases {
            let (ended, envelope) = run(&env, &[&format!("{limit}={high}")], script);
            assert!(ended.status.success(), "the control: {limit}={high}: {script}: {ended:?}");
            assert_eq!(report(&envelope, limit)["hit"], false, "{script}: {envelope}");

            let (ended, envelope) = run(&env, &[&format!("{limit}={low}")], script);
            assert_eq!(ended.status.code(), Some(137), "{limit}={low}: {script}: {ended:?}");
            let report = report(&envelope, limit);
            let held = report["by"].as_array().unwrap();
            assert!(held.contains(&json!(by)) || held.contains(&json!("cgroup")), "{report}");
            assert_eq!(report["hit"], true, "{envelope}");
            let (value, used) = (report["value"].as_u64().unwrap(), report["used"].as_u64().unwrap());
            assert_eq!(report["overshoot"].as_u64(), Some(used.saturating_sub(value)), "{report}");
            assert!(ended.stderr.contains(&format!("`{limit}` limit")), "{ended:?}");
            assert!(ended.stderr.contains(low) && ended.stderr.contains("--limit"), "{ended:?}");
        }
    });
}

#[test]
fn d11_processor_time_is_bounded_together() {
    bounded_together("cpu");
}

#[test]
fn d11_memory_is_bounded_together() {
    bounded_together("memory");
}

#[test]
fn d11_processes_are_bounded_together() {
    bounded_together("processes");
}

#[test]
fn d11_disk_is_bounded_together() {
    bounded_together("disk");
}

/// D11: what others hold of shared memory is not charged to a call whose processes end while they are looked at.
#[test]
fn d11_what_others_hold_is_not_charged_to_who_ends() {
    let script = "python3 -c '
import os, time
end = time.monotonic() + 4
while time.monotonic() < end:
    for _ in range(2):
        if os.fork() == 0: held = bytearray(20_000_000); os._exit(0)
    for _ in range(2): os.wait()'";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let filler = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(1));
            let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
            file.as_file().write_all(&vec![1; 300_000_000]).unwrap();
            std::thread::sleep(Duration::from_secs(3));
        });
        let (ended, envelope) = run(&env, &["memory=128MiB"], script);
        filler.join().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(report(&envelope, "memory")["hit"], false, "{envelope}");
    });
}

/// D11: a process in vfork(2) and its child have one memory, and are not charged with it twice. The child waits here before
/// its exec; twice as much of their own, by one process or by two, is too much.
#[test]
fn d11_memory_that_two_processes_have_together_counts_once() {
    // Too much is held until it is found: a busy machine may need more than a second for a look.
    let script = |held: u32, start: &str, seconds: u32| {
        format!(
            "rm -f fifo ready; mkfifo fifo; (until [ -e ready ]; do sleep 0.05; done; sleep {seconds}; echo > fifo) & python3 -c '
import os
held = b\"x\" * {held}
open(\"ready\", \"w\")
{start}
os.wait()'"
        )
    };
    let spawn = "os.posix_spawn(\"/bin/cat\", [\"cat\"], os.environ, \
                 file_actions=[(os.POSIX_SPAWN_OPEN, 0, \"fifo\", os.O_RDONLY, 0)])";
    let fork = "if os.fork() == 0: held = b\"y\" * 60_000_000; os._exit(len(open(\"fifo\").read()) - 1)";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let limit = ["memory=96MiB"];
        let (once, envelope) = run(&env, &limit, &script(60_000_000, spawn, 1));
        assert!(once.status.success(), "{once:?}");
        assert_eq!(report(&envelope, "memory")["hit"], false, "{envelope}");
        for twice in [script(120_000_000, spawn, 40), script(60_000_000, fork, 40)] {
            let (ended, envelope) = run(&env, &limit, &twice);
            assert_eq!(ended.status.code(), Some(137), "{twice}: {ended:?}");
            assert_eq!(report(&envelope, "memory")["hit"], true, "{envelope}");
        }
    });
}

/// D11: what the kernel bounds for each process, and the clock.
#[test]
fn d11_what_a_process_uses_is_bounded() {
    let open = "perl -e 'for (1..60) { open($f[$_], q(<), q(/dev/null)) or exit 9 }'";
    let cases = [
        ("wall", "300ms", "1m", "timer", "sleep 1", 124, true),
        ("file_size", "1MiB", "1GiB", "rlimit", "head -c 2000000 /dev/zero > big", 153, true),
        // Told by an errno that only the program sees.
        ("open_files", "32", "128", "rlimit", open, 9, false),
    ];
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (limit, low, high, by, script, code, seen) in cases {
            let (ended, envelope) = run(&env, &[&format!("{limit}={high}")], script);
            assert!(ended.status.success(), "the control: {limit}: {ended:?}");
            assert_eq!(report(&envelope, limit)["hit"], false, "{envelope}");
            let (ended, envelope) = run(&env, &[&format!("{limit}={low}")], script);
            assert_eq!(ended.status.code(), Some(code), "{limit}: {ended:?}");
            let report = report(&envelope, limit);
            assert_eq!((&report["by"][0], &report["hit"]), (&json!(by), &json!(seen)), "{report}");
        }
        assert!(fs::metadata(env.workspace().join("big")).unwrap().len() <= 1 << 20);
    });
}

/// Endless, each of them. What bounds it, and how.
const BOMBS: &[(&str, &[&str], &str)] = &[
    ("processes", &["processes=64"], "bomb() { bomb | bomb & }; bomb; sleep 300"),
    ("processes", &["processes=64"], "perl -e 'fork while 1'"),
    // clone(2) without the C library.
    ("processes", &["processes=64"], "perl -e 'syscall(NR_CLONE, 17, 0, 0, 0, 0) while 1'"),
    // A session of its own for each, against whoever kills by groups.
    ("processes", &["processes=64"], "perl -e 'use POSIX; while (1) { fork; POSIX::setsid() }'"),
    ("memory", &["memory=128MiB"], "perl -e 'push @x, q(x) x 1_000_000 while 1'"),
    ("memory", &["memory=128MiB"], "for i in 1 2 3 4; do perl -e 'push @x, q(x) x 100_000 while 1' & done; wait"),
    (
        "memory",
        &["memory=128MiB"],
        "python3 -c '
import os
held = []
while True: held.append(os.memfd_create(\"x\")); os.write(held[-1], b\"x\" * 1_000_000)'",
    ),
    ("disk", &["disk=32MiB"], "while :; do i=$((i+1)); head -c 1000000 /dev/zero > f$i; done"),
    ("cpu", &["cpu=1s"], "while :; do :; done & while :; do :; done"),
    ("wall", &["wall=500ms"], "trap '' TERM INT HUP; sleep 300 & kill -STOP $!; setsid sleep 300 & sleep 300"),
];

/// D11: bombs end bounded, and leave nothing; the user's other processes and the next call do not feel it.
#[test]
fn d11_bombs_end_bounded() {
    let clone = if cfg!(target_arch = "aarch64") { "220" } else { "56" };
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let mut bystander = env.bystander();
        let before = bystander.condition();
        for (limit, limits, script) in BOMBS {
            let mark = mark();
            let script = format!(": {mark}; {}", script.replace("NR_CLONE", clone));
            let (ended, envelope) = run(&env, limits, &script);
            assert!(matches!(ended.status.code(), Some(137 | 124)), "{script}: {ended:?}");
            assert_eq!(report(&envelope, limit)["hit"], true, "{script}: {envelope}");
            eventually("nothing is left", || marked(&mark).is_empty());
            assert!(bystander.is_alive() && bystander.condition() == before, "{script}");
            // Room for the next.
            for entry in fs::read_dir(env.workspace()).unwrap().flatten() {
                fs::remove_file(entry.path()).unwrap();
            }
            let (after, _) = run(&env, &[], "echo fine");
            assert_eq!(after.stdout, "fine\n", "after {script}: {after:?}");
        }
    });
}

/// Memory that the kernel keeps and cannot give back, bytes: what a bomb of mappings takes.
fn kernel_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("SUnreclaim:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// A process with 60,000 mappings, and as many children with as many, a page each in turn with other rights: 15 MB of the kernel's
/// memory each, and next to none of its own. Some are the child of the one before.
const MAPPINGS: &str = "python3 -c '
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(None, ctypes.c_size_t(60_000 * 4096), 3, 0x22, -1, ctypes.c_long(0))
for page in range(0, 60_000, 2): libc.mprotect(ctypes.c_void_p(at + page * 4096), ctypes.c_size_t(4096), 1)
made = 0
for n in range(CHILDREN):
    if os.fork() == 0:
        if n % 2: time.sleep(60); os._exit(0)
    elif not n % 2: break
open(\"made\", \"w\")
time.sleep(LASTS)'";

/// D11: memory that the kernel keeps for mappings is a call's memory. Nobody waits for what it gives back longer than for that.
#[test]
fn d11_bombs_of_mappings_end_bounded() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let mut bystander = env.bystander();
        let script = |children: &str, lasts: &str| MAPPINGS.replace("CHILDREN", children).replace("LASTS", lasts);
        let few = script("2", "0.8");
        let (control, envelope) = run(&env, &["memory=256MiB"], &few);
        assert_eq!(report(&envelope, "memory")["hit"], false, "the control: {control:?} {envelope}");
        let before = kernel_memory();
        let most = std::thread::scope(|scope| {
            let run = scope.spawn(|| run(&env, &["memory=128MiB"], &script("1200", "60")));
            let mut most = 0;
            while !run.is_finished() {
                most = most.max(kernel_memory());
                std::thread::sleep(Duration::from_millis(10));
            }
            let (ended, envelope) = run.join().unwrap();
            assert_eq!(ended.status.code(), Some(137), "{ended:?}");
            assert_eq!(report(&envelope, "memory")["hit"], true, "{envelope}");
            most.saturating_sub(before)
        });
        // What is made between two looks comes to the limit, on a fast machine more than a gigabyte; all of it would be six.
        assert!(most < 5 << 29, "{most}");
        assert!(bystander.is_alive());
    });
}

/// How many processes and threads there are on this host: one look, for which there is time whatever they do.
fn tasks() -> usize {
    let text = fs::read_to_string("/proc/loadavg").unwrap();
    text.split_whitespace().nth(3).unwrap().split_once('/').unwrap().1.parse().unwrap()
}

/// D11: with namespaces a bomb is bounded even where its init, which would end it, has no time to look: here it is stopped,
/// from outside. The bound is the PID namespace's own (Linux 6.14), and the host's stays as it is.
#[test]
fn d11_a_bomb_is_bounded_while_nobody_watches() {
    const LIMIT: usize = 64;
    const PID_MAX: &str = "/proc/sys/kernel/pid_max";
    let host = fs::read_to_string(PID_MAX).unwrap();
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let mark = mark();
        let script = format!(": {mark}; until [ -e go ]; do sleep 0.02; done; exec perl -e 'fork while 1'");
        let before = tasks();
        let most = std::thread::scope(|scope| {
            let run = scope.spawn(|| run(&env, &[&format!("processes={LIMIT}")], &script));
            let mut init = None;
            eventually("the script waits", || {
                // Not one that the shell has forked to start `sleep`, which has its arguments as well.
                init = marked(&mark)
                    .iter()
                    .filter_map(|pid| parent_of(pid.parse().ok()?))
                    .map(|pid| pid.to_string())
                    .find(|parent| !marked(&mark).contains(parent));
                init.is_some()
            });
            // One shell for both signals, and no program in between: against a thousand processes that fork, which lock what
            // they have mapped, an execve(2) can take minutes.
            let script = "kill -STOP $0 && : > go && read line && kill -CONT $0";
            let mut shell = Command::new("sh");
            shell.args(["-c", script, &init.unwrap()]).current_dir(env.workspace()).stdin(Stdio::piped());
            let mut shell = shell.spawn().unwrap();
            // A second's looks, however few those are.
            let (began, mut most) = (Instant::now(), 0);
            while began.elapsed() < Duration::from_secs(1) {
                std::thread::sleep(Duration::from_millis(10));
                most = most.max(tasks());
            }
            shell.stdin.take().unwrap().write_all(b"\n").unwrap();
            assert!(shell.wait().unwrap().success());
            let (ended, envelope) = run.join().unwrap();
            assert_eq!(ended.status.code(), Some(137), "{ended:?}");
            assert_eq!(report(&envelope, "processes")["hit"], true, "{envelope}");
            most - before
        });
        // Four times the limit and 1,024; what else runs on this host meanwhile is not much.
        assert!((2 * LIMIT..=4 * LIMIT + 1024 + 200).contains(&most), "{most}");
    });
    assert_eq!(fs::read_to_string(PID_MAX).unwrap(), host);
}

/// D11: what the kernel keeps for a program in nobody's count is refused: sets of semaphores and queues beyond a bound, pages
/// in a pipe, a thread's own descriptors.
#[test]
fn d11_memory_that_nobody_counts_is_refused() {
    let objects = "python3 -c '
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for make in (lambda: libc.semget(0, 32_000, 0o600), lambda: libc.msgget(0, 0o600)):
    made = 0
    ctypes.set_errno(0)
    while made < 100 and make() >= 0: made += 1
    print(made, errno.errorcode.get(ctypes.get_errno(), \"\"))'";
    let pages = "
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
class Part(ctypes.Structure): _fields_ = [(\"at\", ctypes.c_void_p), (\"length\", ctypes.c_size_t)]
page = ctypes.create_string_buffer(4096)
_, pipe = os.pipe()
print(libc.vmsplice(pipe, ctypes.byref(Part(ctypes.addressof(page), 4096)), 1, 0), errno.errorcode.get(ctypes.get_errno(), \"\"))
ctypes.set_errno(0)
for flags in (0, 2): print(libc.close_range(500, 600, flags), errno.errorcode.get(ctypes.get_errno(), \"\"))";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (made, _) = run(&env, &["memory=2GiB"], objects);
        assert_eq!(made.stdout, "100 \n100 \n", "the control: {made:?}");
        // Half of the memory: 2 MB for each set, and 1 MiB for each queue.
        let (made, _) = run(&env, &["memory=100MiB"], objects);
        assert_eq!(made.stdout, "25 ENOSPC\n1 ENOSPC\n", "{made:?}");
        let bare = env.weakened().run(&["python3", "-c", pages]);
        assert_eq!(bare.stdout, "4096 \n0 \n0 \n", "the control: {bare:?}");
        let confined = env.sandbox().run(&["python3", "-c", pages]);
        assert_eq!(confined.stdout, "-1 ENOSYS\n0 \n-1 EPERM\n", "{confined:?}");
    });
}

/// D11: space is not to be had without writing, which is counted; nor is it lost by giving back.
#[test]
fn d11_space_that_is_reserved_is_written() {
    let reserve = "
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
file = os.open(\"direct\", os.O_RDWR | os.O_CREAT)
os.write(file, b\"x\" * 8192)
for mode in (0, 1, 0x10, 3):
    ctypes.set_errno(0)
    print(libc.fallocate(file, mode, 0, 8192), errno.errorcode.get(ctypes.get_errno(), \"\"))
print(os.fstat(file).st_blocks)";
    let written = "import os, time
os.posix_fallocate(os.open(\"big\", os.O_RDWR | os.O_CREAT), 0, 60_000_000)
print(os.stat(\"big\").st_blocks * 512 >= 60_000_000, flush=True)
time.sleep(0.8)
os.remove(\"big\")";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let bare = env.weakened().run(&["python3", "-c", reserve]);
        assert_eq!(bare.stdout, "0 \n0 \n0 \n0 \n0\n", "the control: {bare:?}");
        let confined = env.sandbox().run(&["python3", "-c", reserve]);
        let refused = "-1 ENOTSUP\n".repeat(3);
        assert_eq!(confined.stdout, format!("{refused}0 \n0\n"), "{confined:?}");
        let line = format!("exec python3 -c '{written}'");
        let (ended, _) = run(&env, &["disk=1GiB"], &line);
        assert_eq!(ended.stdout, "True\n", "the control: {ended:?}");
        let (ended, envelope) = run(&env, &["disk=20MiB"], &line);
        assert_eq!(ended.status.code(), Some(137), "{ended:?}");
        assert_eq!(report(&envelope, "disk")["hit"], true, "{envelope}");
    });
}

/// D11: what is refused to the program itself: descriptors, System V segments, and a tmpfs.
#[test]
fn d11_what_has_a_bound_of_its_own_is_refused() {
    let segments = "python3 -c '
import ctypes, errno
shmget = ctypes.CDLL(None, use_errno=True).shmget
shmget.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
made = 0
while made < 40 and shmget(0, 10_000_000, 0o600) >= 0: made += 1
print(made, errno.errorcode.get(ctypes.get_errno(), \"\"))'";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (made, _) = run(&env, &["memory=2GiB"], segments);
        assert_eq!(made.stdout, "40 \n", "the control: {made:?}");
        let (made, _) = run(&env, &["memory=128MiB"], segments);
        assert_eq!(made.stdout, "6 ENOSPC\n", "{made:?}");
        let fill = "head -c 100000000 /dev/zero > $TMPDIR/big; stat -c %s $TMPDIR/big";
        let (full, _) = run(&env, &["memory=128MiB"], fill);
        let size: u64 = full.stdout.trim().parse().unwrap();
        // Half of the memory, where it is memory: with what is in HOME from the start.
        let (least, most) = if target.has_namespaces() { (63 << 20, 64 << 20) } else { (100_000_000, 100_000_000) };
        assert!((least..=most).contains(&size), "{full:?}");
        let (control, _) = run(&env, &[], fill);
        assert_eq!(control.stdout, "100000000\n", "the control: {control:?}");
    });
}

/// D11: a flood of output ends, with what was written first kept, and the error says how to go on.
#[test]
fn d11_a_flood_of_output_ends() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let call = |limit: &str, command: &str| {
            let arguments = json!({ "command": command }).to_string();
            let ended = env.weakened().run(&[&callgate(), "call", "--limit", limit, "bash", &arguments]);
            let envelope = serde_json::from_str::<Value>(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
            (ended.status.code(), envelope)
        };
        let (code, envelope) = call("output=1MiB", "echo start; yes");
        assert_eq!((code, &envelope["type"]), (Some(1), &json!("error")), "{envelope}");
        assert_eq!(envelope["metadata"]["denial"]["layer"], "limit", "{envelope}");
        let text = envelope["error_text"].as_str().unwrap();
        for part in ["`output` limit", "1MiB", "--limit output=", "[limits]", "y\ny\n"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let held = report(&envelope, "output");
        assert!(held["hit"] == true && held["overshoot"].as_u64().unwrap() <= 1 << 16, "{held}");
        let (code, control) = call("output=1MiB", "echo start; yes | head -c 1000000");
        assert_eq!((code, &control["type"]), (Some(0), &json!("output")), "{control}");
        assert_eq!(report(&control, "output")["hit"], false);
        // The same of a limit that the init holds: the model is told in words.
        let (code, envelope) = call("processes=20", "echo start; for i in $(seq 40); do sleep 60 & done; wait");
        assert_eq!((code, &envelope["type"]), (Some(1), &json!("error")), "{envelope}");
        let text = envelope["error_text"].as_str().unwrap();
        assert!(
            text.contains("processes and threads, more than the limit of 20") && text.ends_with("start\n"),
            "{text}"
        );
    });
}

/// D11: our own tools are bounded as well, and their errors say by what.
#[test]
fn d11_a_tool_that_writes_too_much_is_told() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let write = |limit: &str| {
            let arguments = json!({ "path": "big", "content": "x".repeat(20_000) }).to_string();
            let ended = env.weakened().run(&[&callgate(), "call", "--limit", limit, "write", &arguments]);
            serde_json::from_str::<Value>(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"))
        };
        let envelope = write("file_size=10KiB");
        assert_eq!(envelope["type"], "error", "{envelope}");
        let text = envelope["error_text"].as_str().unwrap();
        assert!(text.contains("limit of 10KiB") && text.contains("--limit file_size="), "{text}");
        assert!(!env.workspace().join("big").exists());
        let control = write("file_size=1MiB");
        assert_eq!(control["type"], "output", "{control}");
        assert_eq!(report(&control, "file_size")["by"], json!(["rlimit"]));
    });
}

/// A mistake is named; the manifest's limits hold, and the command line's win over them.
#[test]
fn limits_are_typed_and_written() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        for (typed, part) in [("memory", "NAME=VALUE"), ("ram=1GiB", "no limit `ram`"), ("memory=2GB", "2GiB")] {
            let ended = env.sandbox().flag(&["--limit", typed]).run(&["true"]);
            assert_eq!(ended.status.code(), Some(64), "{ended:?}");
            assert!(ended.stderr.contains(part), "{ended:?}");
        }
        let manifest = env.outside().join("callgate.toml");
        let text =
            "[requires.fs]\nwrite = [\"{workspace}/**\"]\n[[requires.shell]]\ncmd = \"*\"\n[limits]\nprocesses = 9\n";
        fs::write(&manifest, text).unwrap();
        let status = env.outside().join("status.json");
        for (typed, value) in [(None, 9), (Some("processes=11"), 11)] {
            let mut run = env.sandbox();
            for words in [["--manifest", manifest.to_str().unwrap()], ["--status", status.to_str().unwrap()]] {
                run = run.flag(&words);
            }
            if let Some(typed) = typed {
                run = run.flag(&["--limit", typed]);
            }
            let ended = run.run(&["true"]);
            assert!(ended.status.success(), "{ended:?}");
            let envelope: Value = serde_json::from_str(&fs::read_to_string(&status).unwrap()).unwrap();
            assert_eq!(report(&envelope, "processes")["value"], value);
            // Every limit that there is, each with who holds it.
            let all = envelope["metadata"]["limits"].as_array().unwrap();
            assert!(all.iter().all(|each| !each["by"].as_array().unwrap().is_empty()), "{envelope}");
            assert_eq!(all.len(), 6, "all but wall, which was not asked for, and output: {envelope}");
        }
    });
}

/// Where the host has delegated a cgroup, it holds memory and processes. A machine without one skips this, by name.
#[test]
fn d11_a_delegated_cgroup_holds_memory_and_processes() {
    let doctor = std::process::Command::new(callgate()).args(["doctor", "--json"]).output().unwrap();
    let doctor: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let check = doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == "cgroup v2").unwrap();
    if check["state"] != "ok" {
        skip("delegated-cgroup", &check["found"]);
        assert!(check["remedy"][0].as_str().unwrap().contains("Delegate=yes"), "{check}");
        return;
    }
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let bomb = "perl -e 'push @x, q(x) x 1_000_000 while 1'";
        for (limit, value, script) in
            [("memory", "memory=128MiB", bomb), ("processes", "processes=64", "perl -e 'fork while 1'")]
        {
            let (ended, envelope) = run(&env, &[value], script);
            assert_eq!(ended.status.code(), Some(137), "{ended:?}");
            let report = report(&envelope, limit);
            assert_eq!(
                (&report["by"], &report["hit"], &report["overshoot"]),
                (&json!(["cgroup"]), &json!(true), &json!(0))
            );
        }
    });
}
