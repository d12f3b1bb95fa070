//! FIFOs in trees that the broker writes: an opening waits there for its reader, and costs nothing meanwhile (D11).

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::Duration;

use callgate_tests::{Host, TestEnv, eventually, matrix};

/// The processes and threads below a process.
fn below(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next).copied() {
        next += 1;
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()));
        }
    }
    all
}

fn threads(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok()).collect()
}

/// How often a process has gone to sleep.
fn sleeps(pid: u32) -> u64 {
    let count = |status: &String| -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
    };
    threads(pid).iter().filter_map(count).sum()
}

/// D11: the broker looked at each FIFO a thousand times in a second, which took a whole processor for 64 of them.
#[test]
fn d11_openings_of_fifos_that_wait_cost_nothing() {
    let script = "
import os, threading
for n in range(64): os.mkfifo('f%d' % n)
done = []
def write(n):
    fd = os.open('f%d' % n, os.O_WRONLY); os.write(fd, b'x'); os.close(fd); done.append(n)
threads = [threading.Thread(target=write, args=(n,), daemon=True) for n in range(64)]
for thread in threads: thread.start()
print('started'); input()
heard = set(os.read(os.open('f%d' % n, os.O_RDONLY), 9) for n in range(64))
for thread in threads: thread.join()
print(len(done), heard)";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let mut command = env.sandbox().command(&["/usr/bin/python3", "-u", "-c", script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "started");
        let named = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c == "cg-broker\n");
        let broker = below(child.id()).into_iter().find(named).unwrap();
        eventually("all of them wait", || threads(broker).len() > 64);
        let before = sleeps(broker);
        std::thread::sleep(Duration::from_secs(1));
        let after = sleeps(broker);
        assert!(after - before < 500, "it woke {} times", after - before);
        writeln!(child.stdin.take().unwrap(), "go on").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "64 {b'x'}");
        assert!(child.wait().unwrap().success());
    });
}

/// Its caller ends while it waits: the broker's thread goes as well, and the reader that comes then waits for another writer.
#[test]
fn d11_an_opening_ends_with_its_caller() {
    let script = "
import os, signal, sys, time
os.mkfifo('f')
for _ in range(200):
    pids = []
    for _ in range(8):
        pid = os.fork()
        if pid == 0: os.open('f', os.O_WRONLY); os._exit(1)
        pids.append(pid)
    for pid in pids: os.kill(pid, signal.SIGKILL)
    for pid in pids: os.waitpid(pid, 0)
# More than may wait at once: they do not any more.
pid = os.fork()
if pid == 0:
    for _ in range(500):
        try: fd = os.open('f', os.O_WRONLY); break
        except OSError as e: time.sleep(0.02)
    os.write(fd, b'heard'); os._exit(0)
data = b''
while not data:
    fd = os.open('f', os.O_RDONLY); data = os.read(fd, 9); os.close(fd)
print(data.decode())";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let ended = env.sandbox().run(&["/usr/bin/python3", "-c", script]);
        assert_eq!(ended.stdout, "heard\n", "{ended:?}");
    });
}
