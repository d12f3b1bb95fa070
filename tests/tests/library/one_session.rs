//! Calls of one session are siblings: they cannot reach each other, nor what their session is run by, also while the next
//! call is being set up (D1, D2, D4, D8, A11, B5, B7). What they share is what decision 0005 says: the workspace, `TMPDIR`,
//! `HOME` and `/dev/shm`. Calls of programs run one after the other; who attacks or is attacked beside them is a program of the
//! host's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use callgate::policy::effective::Source;
use callgate::policy::pattern::PathTemplate;
use callgate::policy::requirement::{FsRequirement, RequirementSet};
use callgate::{ConfineError, Launcher, Outcome, ProgramEnd, Session, SessionSpec, Stdio, StrengthChoice, Supervisor};
use callgate_tests::{Binaries, Host, Target, TestEnv, condition_of, matrix, skip};
use serde_json::{Value, json};

use super::{output, until};

fn probe() -> String {
    Binaries::of_this_build().probe().display().to_string()
}

/// Runs `test` in a session of each strength, as root and as an ordinary user, with the probe to read besides.
fn in_sessions(test: impl AsyncFn(&Session, &TestEnv)) {
    in_sessions_with(&[], test);
}

/// Runs the test in sessions with these capabilities.
fn in_sessions_with(capabilities: &[&str], test: impl AsyncFn(&Session, &TestEnv)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let fs = FsRequirement { read: vec![PathTemplate::parse(&probe()).unwrap()], ..FsRequirement::default() };
        let capabilities = capabilities.iter().map(|&name| name.to_owned()).collect();
        let requires = RequirementSet { fs, capabilities, ..RequirementSet::default() };
        runtime.block_on(async {
            let mut spec = spec(&env);
            spec.requires.push((Source::CommandLine, requires));
            let session = supervisor().open(spec).await.unwrap();
            test(&session, &env).await;
        });
    });
}

/// Runs a command line as the host's own program, which waits for no call and lets none wait; gives its end and its output.
/// One that attacks may also have killed its own init.
async fn beside(session: &Session, line: &str) -> (Result<ProgramEnd, ConfineError>, String) {
    let file = tempfile::tempfile().unwrap();
    let null = || fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    let stdio = Stdio::new(null().into(), file.try_clone().unwrap().into(), null().into());
    let program = session.spawn(["/bin/bash", "-c", line], stdio).await.unwrap();
    let end = program.wait().await;
    let mut text = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut text, 0).unwrap();
    (end, String::from_utf8(text).unwrap())
}

fn supervisor() -> Supervisor {
    let launcher = Launcher::spawn(&Binaries::of_this_build().callgate()).unwrap();
    Supervisor::builder().launcher(launcher).build().unwrap()
}

fn spec(env: &TestEnv) -> SessionSpec {
    let strength = env.target().by_strength(StrengthChoice::Namespaces, StrengthChoice::Landlock);
    SessionSpec::developer(env.workspace()).strength(strength).mode(callgate::policy::mode::Mode::Yolo)
}

/// D11: as many openings of FIFOs as may wait are a program's own: the session's other programs open theirs.
#[test]
fn d11_fifos_that_wait_in_one_program_hinder_no_other() {
    let hog = "
import os, threading
refused = []
def write(n):
    try: os.open('h%d' % n, os.O_WRONLY)
    except OSError as e:
        refused.append(e.errno)
        if len(refused) == 6: open('full', 'w').close()
for n in range(70): os.mkfifo('h%d' % n)
for n in range(70): threading.Thread(target=write, args=(n,)).start()";
    in_sessions(async |session, env| {
        let hog = session.spawn(["/usr/bin/python3", "-c", hog], Stdio::null().unwrap()).await.unwrap();
        let full = env.workspace().join("full");
        until("as many wait as may", || fs::metadata(&full).is_ok()).await;
        let (_, heard) = beside(session, "mkfifo f; cat f & echo heard > f || kill $!; wait").await;
        assert_eq!(heard, "heard\n");
        hog.abort().await.unwrap();
        hog.wait().await.unwrap();
    });
}

/// Sessions of one launcher, one after the other, for the workspace of a user that it is not: the broker is then forked by a
/// process between, which leaves it to the launcher. If that was over before the launcher had looked at its children, it
/// took the broker for a leftover and killed it.
#[test]
fn a_session_for_another_user_opens_every_time() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        runtime.block_on(async {
            let supervisor = supervisor();
            for _ in 0..60 {
                let session = supervisor.open(spec(&env)).await.unwrap();
                assert_eq!(output(&session, "echo fine").await, "fine\n");
            }
        });
    });
}

/// The processes below this one, by their names.
#[derive(Debug)]
pub(super) struct OwnProcesses {
    /// The broker and its two zygotes.
    pub(super) lasting: [u32; 3],
    /// Those of calls, and those that wait for the next.
    pub(super) workers: BTreeSet<u32>,
}

pub(super) fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.flatten().map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists.flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect()
}

impl OwnProcesses {
    pub(super) fn look() -> Self {
        let called = |of: u32, name: &str| {
            let named =
                |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
            // The newest: those of the session before may not have ended yet.
            children(of).into_iter().rfind(named).unwrap_or_else(|| panic!("{of} has no child {name}"))
        };
        let launcher = called(std::process::id(), "cg-launcher");
        let broker = called(launcher, "cg-broker");
        let programs = called(broker, "cg-zygote");
        let zygote =
            |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "cg-zygote\n");
        let readers = children(broker).into_iter().find(zygote).unwrap();
        assert_ne!(programs, readers, "one for programs, one for readers");
        let workers = [programs, readers].into_iter().flat_map(children).collect();
        Self { lasting: [broker, programs, readers], workers }
    }
}

/// The number of a process in the innermost PID namespace that it is in, as processes beside it call it.
fn inside(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

/// Findings of `besiege`: for each process, each way in, the names of its answers.
type SiegeAnswers = BTreeMap<u32, BTreeMap<String, BTreeSet<String>>>;

/// With namespaces /proc shows a call its own processes only: others do not exist there, or, where the broker has looked at
/// them a moment ago and the kernel still has their names at hand, may not be looked at (proc(5), `hidepid`).
fn unreadable(target: Target) -> &'static [&'static str] {
    target.by_strength(&["ENOENT", "EPERM"], &["EACCES"])
}

/// Every way in, with the answers that are refusals.
fn refusals(target: Target, gone: bool, traces: bool) -> BTreeMap<String, BTreeSet<String>> {
    let ways = [
        ("kill", &["EPERM"][..]),
        ("tgkill", &["EPERM"]),
        ("ptrace-attach", &["EPERM"]),
        ("ptrace-seize", &["EPERM"]),
        ("process-vm-readv", &["EPERM"]),
        ("prlimit", &["EPERM"]),
        ("sched-affinity", &["EPERM"]),
        ("pidfd-signal", &["EPERM"]),
        ("mem", unreadable(target)),
    ];
    // One that ends between two tries is not there for the second.
    let late = |way: &str| match way {
        "kill" | "tgkill" | "pidfd-signal" if gone => &["ESRCH"][..],
        // If the kernel is asked at all: the filter answers at once otherwise.
        "ptrace-attach" | "ptrace-seize" | "process-vm-readv" if gone && traces => &["ESRCH"],
        // Its name was found before it ended, or it was not.
        "mem" if gone => &["ENOENT", "ESRCH"],
        _ => &[],
    };
    ways.iter()
        .map(|(way, answers)| {
            let answers = answers.iter().chain(late(way));
            ((*way).to_owned(), answers.map(|&name| name.to_owned()).collect())
        })
        .collect()
}

#[track_caller]
fn assert_refused(answers: &SiegeAnswers, pid: u32, refusals: &BTreeMap<String, BTreeSet<String>>) {
    let found = answers.get(&pid).unwrap_or_else(|| panic!("{pid} was not found: {answers:?}"));
    for (way, allowed) in refusals {
        let answers = found.get(way).unwrap_or_else(|| panic!("{pid}: {way} was not tried"));
        assert!(!answers.is_empty() && answers.is_subset(allowed), "{pid}, {way}: {answers:?}");
    }
}

/// D8: a program attacks broker, zygotes, and every worker that is made ready for a next call, from its being forked to its
/// end, while twelve other calls of the session go on.
#[test]
fn d8_what_is_being_set_up_cannot_be_touched() {
    besieged(&[]);
}

/// D1, D8: the same where the attacker may trace its own processes.
#[test]
fn d1_d8_what_is_being_set_up_cannot_be_traced() {
    besieged(&["debug"]);
}

fn besieged(capabilities: &[&str]) {
    let traces = !capabilities.is_empty();
    in_sessions_with(capabilities, async |session, env| {
        let workspace = env.workspace();
        let (over, rounds) = (workspace.join("over"), workspace.join("rounds"));
        let done = || fs::read(&rounds).map_or(0, |lines| lines.len());
        // The zygotes have told of their first workers before a call can be made.
        assert_eq!(output(session, "echo fine").await, "fine\n");
        let family = OwnProcesses::look();
        let named = family.lasting.map(|pid| inside(pid).unwrap());
        let before = family.lasting.map(condition_of);
        let [broker, programs, readers] = named;
        let line = format!("exec {} besiege . 100 {broker} {programs} {readers} > report", probe());
        let attack = beside(session, &line);
        let calls = async {
            until("the siege has begun", || done() > 0).await;
            let (mut workers, mut known) = (BTreeSet::new(), BTreeSet::new());
            for number in 0..12 {
                let mut there = BTreeSet::new();
                until("a worker stands ready", || {
                    there = OwnProcesses::look().workers;
                    !there.is_subset(&known)
                })
                .await;
                known.extend(there.iter().copied());
                let numbers: String =
                    known.iter().filter_map(|pid| inside(*pid)).map(|pid| format!("{pid}\n")).collect();
                fs::write(workspace.join("targets"), numbers).unwrap();
                let ready: Vec<(u32, String)> = there.into_iter().map(|pid| (pid, condition_of(pid))).collect();
                let (round, writes) = (done(), number % 2 == 0);
                until("every worker that stands ready was attacked", || done() > round + 1).await;
                for (pid, before) in ready {
                    // That of the call before may have ended meanwhile.
                    let (number, after) = (inside(pid), condition_of(pid));
                    assert!(after == before || after.is_empty(), "worker {pid}: {before}, then {after}");
                    workers.extend(number.filter(|_| !after.is_empty()));
                }
                // Each has its worker from another zygote, and for itself alone.
                let path = format!("file-{}", number / 2);
                if writes {
                    let made = session.call("write", json!({ "path": path, "content": "fine" })).await;
                    assert!(made.data.is_some(), "{made:?}");
                    assert_eq!(fs::read_to_string(workspace.join(path)).unwrap(), "fine");
                } else {
                    let read = session.call("read", json!({ "path": path })).await;
                    assert_eq!(read.data.as_ref().map(|data| &data["content"]), Some(&json!("fine")), "{read:?}");
                }
            }
            let round = done();
            until("the last workers were attacked", || done() > round + 1).await;
            fs::write(&over, "").unwrap();
            workers
        };
        let (attacked, workers) = tokio::join!(attack, calls);
        let report = fs::read_to_string(workspace.join("report")).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {attacked:?}"));
        let answers: SiegeAnswers = serde_json::from_value(report["answers"].clone()).unwrap();
        for pid in named {
            assert_refused(&answers, pid, &refusals(env.target(), false, traces));
        }
        // One waits for each of the twelve calls, and the siege's own stays.
        assert!(workers.len() >= 12, "{workers:?}");
        for pid in workers {
            assert_refused(&answers, pid, &refusals(env.target(), true, traces));
        }
        let nobody = |ways: &BTreeMap<String, BTreeSet<String>>| ways.values().all(|answers| !answers.contains("ok"));
        assert!(answers.values().all(nobody), "{report}");
        assert_eq!(before, family.lasting.map(condition_of));
        assert_eq!(output(session, "echo fine").await, "fine\n");

        // The control: bare, the same user gets in everywhere. Only there: a sweep would reach the whole host.
        let ready = OwnProcesses::look().workers.into_iter().max().unwrap();
        let pids: Vec<u32> = family.lasting.into_iter().chain([ready]).collect();
        let words: Vec<String> = pids.iter().map(u32::to_string).collect();
        let siege: Vec<&str> = ["besiege", ".", "0"].into_iter().chain(words.iter().map(String::as_str)).collect();
        let bare = env.bare().probe(&siege);
        let answers: SiegeAnswers = serde_json::from_value(bare.assert_ok().fact("answers")).unwrap();
        for pid in pids {
            let found = &answers[&pid];
            for way in refusals(env.target(), false, traces).keys() {
                // On the older hosts below it has a tracer already, and nobody gets a second.
                if way.starts_with("ptrace") && !condition_of(pid).contains("TracerPid:\t0") {
                    skip("second-tracer", format_args!("control of {way}: {pid} is traced"));
                    continue;
                }
                assert!(found[way].contains("ok"), "way in: {pid}, {found:?}");
            }
        }
    });
}

/// Someone else's call: it holds what a call can hold, and says afterwards what came of it.
const SIBLING: &str = r#"
import json, os, resource, signal, socket, sys, time
name = sys.argv[1]
came = []
for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: came.append(number))
listeners = []
for family, address in ((socket.AF_UNIX, '\0' + name), (socket.AF_UNIX, 'server'), (socket.AF_INET, ('127.0.0.1', 0))):
    listener = socket.socket(family)
    listener.bind(address)
    listener.listen()
    listener.setblocking(False)
    listeners.append(listener)
open(os.environ['TMPDIR'] + '/' + name, 'w').write('shared')
ids = {}
for kind in ('shm', 'sem', 'msg'):
    made = json.loads(os.popen(f'{sys.argv[2]} {kind}-sysv-create {sys.argv[3]}').read())
    ids[kind] = made['id']
os.popen(f'{sys.argv[2]} shm-posix {name}').read()
def condition():
    return [os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0)), resource.prlimit(0, 12)]
before = condition()
facts = {'pid': os.getpid(), 'group': os.getpgrp(), 'port': listeners[2].getsockname()[1], 'ids': ids}
open('facts.new', 'w').write(json.dumps(facts))
os.rename('facts.new', 'facts')
while not os.path.exists('over'):
    time.sleep(0.01)
visits = 0
for listener in listeners:
    try:
        while True:
            listener.accept()
            visits += 1
    except BlockingIOError:
        pass
found = [json.loads(os.popen(f'{sys.argv[2]} {kind}-sysv-get {sys.argv[3]}').read())['ok'] for kind in ids]
reached = json.loads(os.popen(f"{sys.argv[2]} tcp-connect 127.0.0.1 {facts['port']}").read())['ok']
print(json.dumps({'same': before == condition(), 'visits': visits, 'signals': came, 'found': found, 'reached': reached}))
"#;

/// D1, D2, D4, A7, A11, B5, B7: two calls at once in one session.
#[test]
fn d1_d2_a11_a_sibling_call_cannot_be_touched() {
    in_sessions(async |session, env| {
        let (workspace, target) = (env.workspace(), env.target());
        let probe = probe();
        let name = format!("callgate-sibling-{}-{}", std::process::id(), target.user.uid());
        let key = u64::from(std::process::id()) << 4;
        env.workspace_file("sibling.py", SIBLING);
        let line = format!("SECRET=hunter exec python3 sibling.py {name} {probe} {key}");
        let sibling = beside(session, &line);
        let attack = async {
            until("the sibling is ready", || workspace.join("facts").exists()).await;
            let facts: Value = serde_json::from_str(&fs::read_to_string(workspace.join("facts")).unwrap()).unwrap();
            let (pid, group, port) = (&facts["pid"], &facts["group"], &facts["port"]);
            let mut table: Vec<(String, &[&str])> = Vec::new();
            for signal in [0, 18, 15, 9] {
                for act in ["kill", "tkill", "tgkill", "sigqueue", "pidfd-signal"] {
                    table.push((format!("{act} {pid} {signal}"), &["EPERM"]));
                }
                table.push((format!("kill -{group} {signal}"), &["EPERM"]));
            }
            for act in [
                "pidfd-open",
                "ptrace-attach",
                "ptrace-seize",
                "process-vm-readv",
                "kcmp",
                "prlimit",
                "setpriority",
                "sched-affinity",
                "setns",
            ] {
                table.push((format!("{act} {pid}"), &["EPERM"]));
            }
            table.push((format!("pidfd-getfd {pid} 0"), &["EPERM"]));
            for what in ["mem", "environ", "cmdline", "maps", "fd", "root", "cwd", "exe"] {
                table.push((format!("proc-pid {pid} {what}"), unreadable(target)));
            }
            for kind in ["shm", "sem", "msg"] {
                table.push((format!("{kind}-sysv-get {key}"), &["ENOENT"]));
                table.push((format!("{kind}-sysv-remove {}", facts["ids"][kind]), &["EACCES"]));
            }
            table.push((format!("shm-sysv-attach {}", facts["ids"]["shm"]), &["EACCES"]));
            table.push((format!("sem-sysv-op {}", facts["ids"]["sem"]), &["EACCES"]));
            table.push((format!("msg-sysv-send {}", facts["ids"]["msg"]), &["EACCES"]));
            table.push((format!("unix-abstract {name}"), &["ECONNREFUSED"]));
            table.push((format!("unix-connect {}", workspace.join("server").display()), &["EACCES"]));
            // The sibling is the host's, so that its servers on loopback are there for the session's calls.
            for act in ["tcp-connect", "tcp6-connect"] {
                table.push((format!("{act} 127.0.0.1 {port}"), &["ok"]));
            }
            // The session's: what one call leaves there is for the next.
            table.push((format!("read $TMPDIR/{name}"), &["ok"]));
            table.push((format!("shm-posix-open {name}"), &["ok"]));
            let script: String = table.iter().map(|(act, _)| format!("{probe} {act}\n")).collect();
            let lines = output(session, &script).await;
            let lines: Vec<Value> =
                lines.as_str().unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(lines.len(), table.len(), "every act was tried: {lines:?}");
            for ((act, wanted), line) in table.iter().zip(&lines) {
                let answer = if line["ok"] == true { "ok" } else { line["name"].as_str().unwrap() };
                assert_eq!(line["act"], json!(act.split(' ').next()), "{lines:?}");
                assert!(wanted.contains(&answer), "{act} should have been {wanted:?}: {line}");
            }
            // The controls: one's own child, sockets and objects.
            let own = "sleep 60 & P=PROBE; for act in sched-affinity setpriority; do (exec $P $act $BASHPID); done; \
                       $P pidfd-signal $! 9; wait $!; $P sem-sysv-create KEY; $P sem-sysv-get KEY; $P unix-self-abstract NAME; $P loopback-self 127.0.0.1";
            let own = own.replace("PROBE", &probe).replace("KEY", &key.to_string()).replace("NAME", &name);
            let own = output(session, &own).await;
            assert_eq!(own.as_str().unwrap().matches("\"ok\":true").count(), 7, "{own}");
            fs::write(workspace.join("over"), "").unwrap();
        };
        let ((ended, said), ()) = tokio::join!(sibling, attack);
        let said: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{ended:?}"));
        let unharmed =
            json!({ "same": true, "visits": 2, "signals": [], "found": [true, true, true], "reached": true });
        assert_eq!(said, unharmed);
        // Nothing of either call is left in the host's tables.
        env.bare().probe(&["sem-sysv-get", &key.to_string()]).assert_errno(libc::ENOENT);
    });
}

/// Runs another test of this file on a host whose Landlock has this ABI.
#[track_caller]
fn again_at(abi: &str, test: &str) {
    let mut command = Command::new(Binaries::of_this_build().weaken());
    command.args(["abi", abi, "--"]).arg(std::env::current_exe().unwrap());
    let ended = command.args(["--exact", &format!("one_session::{test}"), "--nocapture"]).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && text.contains("1 passed"), "ABI {abi}: {text}");
}

/// D2: where Landlock has no signal scope, or nothing that came after the first ABI, the broker holds the same.
#[test]
fn d2_a_sibling_call_cannot_be_touched_at_older_abis() {
    again_at("1", "d1_d2_a11_a_sibling_call_cannot_be_touched");
    again_at("5", "d1_d2_a11_a_sibling_call_cannot_be_touched");
}

/// D8: the same, while calls are set up. The filter has two forms, from ABI 6 and below.
#[test]
fn d8_what_is_being_set_up_cannot_be_touched_at_an_older_abi() {
    again_at("5", "d8_what_is_being_set_up_cannot_be_touched");
}

/// D2, D8: programs of one session that run one after the other have the same init, to save its making. What the first leaves
/// behind, and what it has made of its own process, is not there for the second.
#[test]
fn d2_d8_a_program_finds_nothing_of_the_one_before_it() {
    in_sessions(async |session, env| {
        let (probe, key) = (probe(), (u64::from(std::process::id()) << 4) + 1);
        let look = format!(
            "echo $PPID; umask; ulimit -n; trap; {probe} shm-sysv-get {key}; {probe} list-fds | sed s/:.[0-9]*.//g"
        );
        let fresh = lines(session, &look).await;
        let leave = format!(
            "{probe} shm-sysv-create {key} >made; umask 077; ulimit -n 64; trap '' USR1; sleep 987654 & setsid sleep 987654 & \
             {probe} shm-sysv-get {key}; echo $PPID"
        );
        let left = lines(session, &leave).await;
        assert!(left[0].contains("\"ok\":true"), "the control: it is there for the first, {left:?}");
        assert_eq!(left[1], fresh[0], "the control: the init is the same");
        assert_eq!(running("987654"), 0, "nothing runs that the first has left");
        let after = lines(session, &look).await;
        assert_eq!(after, fresh);
        assert!(after.iter().any(|line| line.contains("ENOENT")), "{after:?}");
        assert!(env.workspace().join("made").exists());
    });
}

/// Workers that are killed while they stand ready, as by an administrator or for want of memory, cost no call.
#[test]
fn d12_a_worker_that_is_killed_before_its_call_is_passed_over() {
    in_sessions(async |session, _| {
        let fine = json!({ "path": "file", "content": "fine" });
        assert!(session.call("write", fine.clone()).await.data.is_some());
        for _ in 0..5 {
            assert_eq!(output(session, "echo fine").await, "fine\n");
            // Without those that are on their way out.
            let mut workers = OwnProcesses::look().workers;
            until("they have settled", || {
                std::thread::sleep(std::time::Duration::from_millis(100));
                let now = OwnProcesses::look().workers;
                std::mem::replace(&mut workers, now.clone()) == now
            })
            .await;
            assert!(workers.len() >= 2, "the control: one of each zygote stands ready, {workers:?}");
            let words = workers.iter().map(u32::to_string);
            assert!(Command::new("kill").arg("-9").args(words).status().unwrap().success());
            until("they are gone", || OwnProcesses::look().workers.is_disjoint(&workers)).await;
            assert_eq!(output(session, "echo fine").await, "fine\n");
            let read = session.call("read", json!({ "path": "file" })).await;
            assert_eq!(read.data.as_ref().map(|data| &data["content"]), Some(&json!("fine")), "{read:?}");
            assert!(session.call("write", fine.clone()).await.data.is_some());
        }
    });
}

async fn lines(session: &Session, command: &str) -> Vec<String> {
    output(session, command).await.as_str().unwrap().lines().map(str::to_owned).collect()
}

/// How many processes on the host have this word in their command line.
fn running(word: &str) -> usize {
    let lines = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("cmdline"));
    lines.filter(|path| fs::read_to_string(path).is_ok_and(|line| line.split('\0').any(|arg| arg == word))).count()
}

/// A4, A8: the first act of each tool's call is judged by that call's rights: its worker is known, and so are they, before the worker
/// asks for anything. Where a single file may be written, workers ask to open what they read of themselves, before there is a call.
#[test]
fn a8_the_first_act_of_a_call_is_judged_by_its_own_rights() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let single = env.file("single", "old");
        let write = vec![PathTemplate::parse(single.text()).unwrap()];
        let requires = RequirementSet { fs: FsRequirement { write, ..FsRequirement::default() }, ..Default::default() };
        runtime.block_on(async {
            let mut spec = spec(&env);
            spec.requires.push((Source::CommandLine, requires));
            let session = supervisor().open(spec).await.unwrap();
            for number in 0..40 {
                let content = number.to_string();
                for path in [single.text(), "file"] {
                    let result = session.call("write", json!({ "path": path, "content": content })).await;
                    assert_eq!(result.kind, Outcome::Output, "{number}: {path}: {result:?}");
                }
                single.assert_contents(&content);
                let arguments = json!({ "path": single.text(), "old_string": content, "new_string": "new" });
                let result = session.call("edit", arguments).await;
                assert_eq!(result.kind, Outcome::Output, "{number}: {result:?}");
                single.assert_contents("new");
            }
        });
    });
}
