//! Many calls, and many deaths, leave nothing behind: no process, descriptor, mount, temporary file, IPC object or memory
//! (S0-69, D12).
//!
//! `CALLGATE_SOAK_CALLS` (of each strength: 1,000, in a full run 6,000) and `CALLGATE_SOAK_KILLS` (12, in a full run 60) say how many.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use callgate::{Launcher, Outcome, Session, SessionSpec, Supervisor};
use callgate_tests::repetitions;
use serde_json::json;

use super::one_session::{OwnProcesses, children};
use super::{STRENGTHS, callgate, until};

fn setting(name: &str, default: u64) -> u64 {
    #[allow(clippy::disallowed_methods, reason = "how long to try is for who runs the tests")]
    let said = std::env::var(name).ok();
    said.map_or(default, |said| said.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// This process and all below it, by their numbers.
fn below(pid: u32) -> BTreeSet<u32> {
    let mut all = BTreeSet::from([pid]);
    let mut next = vec![pid];
    while let Some(pid) = next.pop() {
        next.extend(children(pid).into_iter().filter(|child| all.insert(*child)));
    }
    all
}

fn entries(directory: impl AsRef<Path>) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(directory) else { return BTreeSet::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// True if this is a process of the test's own, with a temporary directory that nobody else uses. If it is not, runs
/// `test` in one.
fn alone(test: &str) -> bool {
    const PREFIX: &str = "callgate-test-soak-";
    if std::env::temp_dir().file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX)) {
        return true;
    }
    let directory = tempfile::Builder::new().prefix(PREFIX).tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("soak::{test}"), "--nocapture"]).env("TMPDIR", directory.path());
    assert!(command.status().unwrap().success(), "{test} failed");
    false
}

/// Inventory of what is there now, of everything that could be left.
#[derive(Debug, PartialEq, Eq)]
struct Inventory {
    /// How many processes there are of each name.
    processes: BTreeMap<String, usize>,
    /// How many descriptors each lasting process holds.
    descriptors: BTreeMap<String, usize>,
    mounts: usize,
    files: BTreeSet<String>,
    objects: Vec<String>,
}

const LASTING: [&str; 3] = ["cg-launcher", "cg-broker", "cg-zygote"];

impl Inventory {
    fn take() -> Self {
        let (mut processes, mut descriptors) = (BTreeMap::new(), BTreeMap::new());
        let me = std::process::id();
        for pid in below(me) {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
            if LASTING.contains(&comm.as_str()) || pid == me {
                *descriptors.entry(comm.clone()).or_default() += entries(format!("/proc/{pid}/fd")).len();
            }
            *processes.entry(comm).or_default() += 1;
        }
        let files = entries(std::env::temp_dir());
        let table = |name: &str| fs::read_to_string(format!("/proc/sysvipc/{name}")).unwrap_or_default();
        // Of other tests' objects, none belongs to a process of ours.
        let mine: BTreeSet<String> = below(me).iter().map(u32::to_string).collect();
        let objects = table("shm")
            .lines()
            .filter(|line| line.split_whitespace().any(|word| mine.contains(word)))
            .map(str::to_owned)
            .collect();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap().lines().count();
        Self { processes, descriptors, mounts, files, objects }
    }
}

/// Memory of this process's own and of those below it, KiB. Pages of a file are not counted: whether they are private depends
/// on who else has it open.
fn memory() -> BTreeMap<String, u64> {
    let of = |pid: u32| {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let lines = rollup.lines().filter(|line| line.starts_with("Private_Dirty"));
        lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>()
    };
    let mut memory = BTreeMap::new();
    for pid in below(std::process::id()) {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
        *memory.entry(comm).or_default() += of(pid);
    }
    memory
}

async fn calls(session: &Session, count: u64) {
    for index in 0..count {
        let (tool, args) = match index % 20 {
            0 => ("bash", json!({ "command": "echo x >made; (sleep 100 &) ; true" })),
            1 => ("write", json!({ "path": "written", "content": index.to_string() })),
            2 => ("read", json!({ "path": "not there" })),
            _ => ("read", json!({ "path": "file" })),
        };
        let envelope = session.call(tool, args).await;
        assert_eq!(envelope.kind == Outcome::Output, index % 20 != 2, "call {index}: {envelope:?}");
    }
}

/// Waits until what is there is what was there.
async fn as_before(before: &Inventory, what: &str) {
    let start = Instant::now();
    loop {
        let now = Inventory::take();
        if now == *before {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "not within a minute: {what}\n{before:?}\n{now:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Inventory while a new launcher stands ready: the one before may not be gone, and this one not have its name yet.
async fn with_the_launcher_alone() -> Inventory {
    let mut empty = Inventory::take();
    until("the launcher runs alone", || {
        empty = Inventory::take();
        empty.processes.get("cg-launcher") == Some(&1) && empty.processes.values().sum::<usize>() == 2
    })
    .await;
    empty
}

#[test]
fn many_calls_leave_nothing_behind() {
    if !alone("many_calls_leave_nothing_behind") {
        return;
    }
    let count = setting("CALLGATE_SOAK_CALLS", repetitions(1_000, 6_000));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::Builder::new().prefix("callgate-test-").tempdir().unwrap();
        fs::write(workspace.path().join("file"), "some lines\n".repeat(300)).unwrap();
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let empty = with_the_launcher_alone().await;
            let spec =
                SessionSpec::developer(workspace.path()).strength(strength).mode(callgate::policy::mode::Mode::Yolo);
            let session = supervisor.open(spec).await.unwrap();
            calls(&session, count / 10).await;
            // As many workers stand ready as before.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let (before, memory_before) = (Inventory::take(), memory());
            calls(&session, count - count / 10).await;
            as_before(&before, "what the calls made is gone").await;
            until("no memory is held but a little", || {
                let (before, now) = (memory_before.values().sum::<u64>(), memory());
                let grown = now.values().sum::<u64>().saturating_sub(before);
                if grown >= 512 {
                    eprintln!("{strength:?}: {count} calls made it grow by {grown} KiB: {memory_before:?}, {now:?}");
                }
                grown < 512
            })
            .await;
            drop(session);
            as_before(&empty, "what the session made is gone").await;
        });
    }
}

/// The next of a row of numbers that nobody can tell from random ones, the same each time.
fn dice(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn kill(pid: u32) {
    // It may have ended by itself.
    Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status().unwrap();
}

/// A worker, a zygote or the broker is killed while calls run: every call has an answer, a session that lost more than a
/// worker says so, and nothing is left once it is closed.
#[test]
fn a_process_killed_at_any_moment_leaves_nothing_behind() {
    if !alone("a_process_killed_at_any_moment_leaves_nothing_behind") {
        return;
    }
    let kills = setting("CALLGATE_SOAK_KILLS", repetitions(12, 60));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::Builder::new().prefix("callgate-test-").tempdir().unwrap();
        fs::write(workspace.path().join("file"), "x").unwrap();
        let mut state = 0x9E37_79B9_7F4A_7C15;
        let (mut killed, mut lost) = (BTreeMap::<&str, u32>::new(), 0);
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let empty = with_the_launcher_alone().await;
            for _ in 0..kills {
                let spec = SessionSpec::developer(workspace.path())
                    .strength(strength)
                    .mode(callgate::policy::mode::Mode::Yolo);
                let session = supervisor.open(spec).await.unwrap();
                assert_eq!(super::output(&session, "echo fine").await, "fine\n");
                let family = OwnProcesses::look();
                let workers: Vec<u32> = family.workers.iter().copied().collect();
                let (name, victim) = match dice(&mut state) % 4 {
                    0 => ("broker", family.lasting[0]),
                    1 => ("programs' zygote", family.lasting[1]),
                    2 => ("readers' zygote", family.lasting[2]),
                    _ => ("worker", workers[usize::try_from(dice(&mut state)).unwrap() % workers.len()]),
                };
                *killed.entry(name).or_default() += 1;
                let after = Duration::from_micros(dice(&mut state) % 12_000);
                let death = async {
                    tokio::time::sleep(after).await;
                    kill(victim);
                };
                let work = async {
                    let mut failed = 0;
                    for command in ["(setsid sleep 100 &) ; sleep 0.005", "echo x >made", "true"] {
                        let bash = session.call("bash", json!({ "command": command }));
                        let read = session.call("read", json!({ "path": "file" }));
                        let (bash, read) = tokio::join!(bash, read);
                        failed += u32::from(bash.kind == Outcome::Error) + u32::from(read.kind == Outcome::Error);
                    }
                    failed
                };
                lost += tokio::join!(death, work).1;
                drop(session);
                as_before(&empty, name).await;
            }
        });
        assert!(killed.len() == 4, "all four were killed: {killed:?}");
        assert!(lost > 0, "{strength:?}: {killed:?} were killed, and no call was lost by it");
    }
}

/// The supervisor itself is killed, with a daemon below it that has left its session: all of it is gone.
#[test]
fn a_supervisor_killed_at_any_moment_leaves_nothing_behind() {
    if !alone("a_supervisor_killed_at_any_moment_leaves_nothing_behind") {
        return;
    }
    let kills = setting("CALLGATE_SOAK_KILLS", repetitions(12, 60));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workspace = tempfile::Builder::new().prefix("callgate-test-").tempdir().unwrap();
    let mut state = 0xD1B5_4A32_D192_ED03;
    // A duration that no other process sleeps for.
    let mark = format!("62.{}", std::process::id());
    let line = format!("(setsid sleep {mark} &) ; (sleep {mark} &) ; sleep {mark}");
    let before = Inventory::take();
    let (mut ran, mut longest) = (0, Duration::ZERO);
    runtime.block_on(async {
        for index in 0..kills {
            let mut command = match index % 2 {
                0 => Command::new(callgate()),
                // Without namespaces, nothing but callgate itself ends what it started.
                _ => {
                    let mut command = Command::new(callgate_tests::Binaries::of_this_build().weaken());
                    command.args(["no-userns", "--"]).arg(callgate());
                    command
                }
            };
            command.args(["run", "--", "sh", "-c", &line]).current_dir(workspace.path()).stdin(Stdio::null());
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            if index < 2 {
                // How long this machine takes now, either way.
                let start = Instant::now();
                until("the program runs", || super::runs(&mark)).await;
                longest = longest.max(start.elapsed());
            } else {
                // From before it has made anything to after the program runs.
                let most = u64::try_from(longest.as_micros()).unwrap() * 2;
                tokio::time::sleep(Duration::from_micros(dice(&mut state) % most)).await;
                ran += u32::from(super::runs(&mark));
            }
            child.kill().unwrap();
            child.wait().unwrap();
            until("the program is gone", || !super::runs(&mark)).await;
            as_before(&before, "the supervisor's end").await;
        }
    });
    assert!(ran > 0, "in none of {kills} did the program run when its supervisor was killed");
}
