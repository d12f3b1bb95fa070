//! Acts on other processes, and the processes that an act leaves behind (attacks A7, D1, D2 and kill-tree).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::probe::errno;
use serde_json::json;

use crate::probe::act::{ProbeAct, act};
use crate::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use crate::probe::{files, network};
use crate::sys::probe::{self as sys, ForkSide, call, call_fd, fd, int, into, null};

pub(crate) const ACTS: &[ProbeAct] = &[
    act("kill", "D2", "PID SIGNAL", "kill(2); signal 0 asks only", kill),
    act("tkill", "D2", "TID SIGNAL", "tkill(2)", tkill),
    act("tgkill", "D2", "PID SIGNAL", "tgkill(2) of the main thread", tgkill),
    act("sigqueue", "D2", "PID SIGNAL", "rt_sigqueueinfo(2)", sigqueue),
    act("pidfd-open", "D1", "PID", "pidfd_open(2)", pidfd_open),
    act("pidfd-signal", "D2", "PID SIGNAL", "pidfd_send_signal(2)", pidfd_signal),
    act("pidfd-getfd", "D1", "PID FD", "take a descriptor of another process", pidfd_getfd),
    act("ptrace-attach", "D1", "PID", "PTRACE_ATTACH, then detach", ptrace_attach),
    act("ptrace-seize", "D1", "PID", "PTRACE_SEIZE", ptrace_seize),
    act("process-vm-readv", "D1", "PID", "read memory of another process", process_vm_readv),
    act("proc-pid", "A7", "PID environ|cmdline|maps|mem|root|cwd|fd|exe", "look through /proc/PID", proc_pid),
    act("prlimit", "D1", "PID [RESOURCE LIMIT]", "set another process's limit: core to 4096", prlimit),
    act("setpriority", "D1", "PID", "renice another process to 19", setpriority),
    act("sched-affinity", "D1", "PID", "bind another process to CPU 0", sched_affinity),
    act("setns", "D3", "PID", "join the network namespace of PID", setns),
    act("kcmp", "D1", "PID", "compare file tables with another process", kcmp),
    act("ps", "A7", "", "every process in /proc with a readable command line", ps),
    act("besiege", "D8", "DIR N PID…", "attack these, DIR/targets and the N newest until DIR/over exists", besiege),
    act("own-pid", "D2", "", "pid, parent, group and session", own_pid),
    act("double-fork-daemon", "D2", "FILE SECONDS", "leave a daemon behind that writes its pid to FILE", daemon),
    act("fork-children", "D2", "N SECONDS [FILE]", "leave N sleeping children behind", fork_children),
    act("sigterm-ignorer", "D2", "SECONDS [FILE]", "ignore every signal that can be, and sleep", sigterm_ignorer),
    act("wait", "D2", "SECONDS", "sleep", wait),
];

fn done() -> ActOutcome {
    Ok(json!({}))
}

fn signal<'a>(args: &ActArgs<'_>) -> Result<sys::Arg<'a>, ActFailure> {
    args.number_or(1, 0).map(int)
}

fn kill(args: &ActArgs<'_>) -> ActOutcome {
    call("kill", libc::SYS_kill, &[int(args.pid(0)?), signal(args)?])?;
    done()
}

fn tkill(args: &ActArgs<'_>) -> ActOutcome {
    call("tkill", libc::SYS_tkill, &[int(args.pid(0)?), signal(args)?])?;
    done()
}

fn tgkill(args: &ActArgs<'_>) -> ActOutcome {
    let pid = args.pid(0)?;
    call("tgkill", libc::SYS_tgkill, &[int(pid), int(pid), signal(args)?])?;
    done()
}

fn sigqueue(args: &ActArgs<'_>) -> ActOutcome {
    // siginfo_t of 128 bytes; si_code SI_QUEUE (-1) in the third word.
    let mut info = [0_i32; 32];
    info[2] = -1;
    call("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, &[int(args.pid(0)?), signal(args)?, into(&mut info)])?;
    done()
}

fn pidfd(args: &ActArgs<'_>) -> Result<std::os::fd::OwnedFd, ActFailure> {
    call_fd("pidfd_open", libc::SYS_pidfd_open, &[int(args.pid(0)?), int(0)])
}

fn pidfd_open(args: &ActArgs<'_>) -> ActOutcome {
    pidfd(args)?;
    done()
}

fn pidfd_signal(args: &ActArgs<'_>) -> ActOutcome {
    call("pidfd_send_signal", libc::SYS_pidfd_send_signal, &[fd(&pidfd(args)?), signal(args)?, null(), int(0)])?;
    done()
}

fn pidfd_getfd(args: &ActArgs<'_>) -> ActOutcome {
    let process = pidfd(args)?;
    call_fd("pidfd_getfd", libc::SYS_pidfd_getfd, &[fd(&process), int(args.number_or(1, 0)?), int(0)])?;
    done()
}

fn ptrace(at: &str, request: u32, pid: i32) -> Result<i64, ActFailure> {
    call(at, libc::SYS_ptrace, &[int(request), int(pid), null(), null()])
}

fn ptrace_attach(args: &ActArgs<'_>) -> ActOutcome {
    let pid = args.pid(0)?;
    ptrace("ptrace", libc::PTRACE_ATTACH, pid)?;
    // The target stops; it goes on when the tracer detaches, or dies.
    call("wait4", libc::SYS_wait4, &[int(pid), null(), int(libc::__WALL), null()])?;
    ptrace("detach", libc::PTRACE_DETACH, pid)?;
    done()
}

fn ptrace_seize(args: &ActArgs<'_>) -> ActOutcome {
    ptrace("ptrace", libc::PTRACE_SEIZE, args.pid(0)?)?;
    done()
}

/// Where the target has something mapped; 0x400000, which is refused just the same, where its maps are closed.
fn mapped(pid: i32) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok()).unwrap_or(0x40_0000)
}

fn process_vm_readv(args: &ActArgs<'_>) -> ActOutcome {
    let pid = args.pid(0)?;
    let mut bytes = [0_u8; 4];
    let local = [network::word_of_mut(&mut bytes), 4];
    let remote = [mapped(pid), 4];
    let (local, remote) = (sys::from(&local), sys::from(&remote));
    call("process_vm_readv", libc::SYS_process_vm_readv, &[int(pid), local, int(1), remote, int(1), int(0)])?;
    Ok(json!({ "magic": bytes }))
}

fn proc_pid(args: &ActArgs<'_>) -> ActOutcome {
    let (pid, what) = (args.word(0)?, args.word(1)?);
    let path = format!("/proc/{pid}/{what}");
    match what {
        "root" | "cwd" | "exe" => {
            let target = std::fs::read_link(&path).map_err(|error| ActFailure::io("readlink", &error))?;
            Ok(json!({ "target": target }))
        }
        "fd" => {
            let listing = std::fs::read_dir(&path).map_err(|error| ActFailure::io("open", &error))?;
            Ok(json!({ "count": listing.count() }))
        }
        "mem" => {
            let memory = sys::open("open", &sys::c(&path), libc::O_RDONLY)?;
            let mut bytes = [0_u8; 4];
            let at = mapped(pid.parse().unwrap_or(0)).cast_signed();
            call("pread64", libc::SYS_pread64, &[fd(&memory), into(&mut bytes), int(4), int(at)])?;
            Ok(json!({ "magic": bytes }))
        }
        _ => files::read_path(&path),
    }
}

fn prlimit(args: &ActArgs<'_>) -> ActOutcome {
    let resource = args.number_or(1, i64::from(libc::RLIMIT_MSGQUEUE))?;
    let limit = [args.number_or(2, 4096)?; 2];
    call("prlimit64", libc::SYS_prlimit64, &[int(args.pid(0)?), int(resource), sys::from(&limit), null()])?;
    done()
}

/// The lowest priority: anybody may go there, also where the tests themselves run at a low one.
const LEAST: i32 = 19;

fn setpriority(args: &ActArgs<'_>) -> ActOutcome {
    call("setpriority", libc::SYS_setpriority, &[int(libc::PRIO_PROCESS), int(args.pid(0)?), int(LEAST)])?;
    done()
}

fn sched_affinity(args: &ActArgs<'_>) -> ActOutcome {
    let first = [1_u64; 1];
    call("sched_setaffinity", libc::SYS_sched_setaffinity, &[int(args.pid(0)?), int(8), sys::from(&first)])?;
    done()
}

/// A way into another process, by its name.
type ProcessWay = (&'static str, fn(&ActArgs<'_>) -> ActOutcome);

/// Ways into another process that leave it as it was, if they are refused, and alive, if they are not.
const SIEGE: &[ProcessWay] = &[
    ("kill", kill),
    ("tgkill", tgkill),
    ("ptrace-attach", ptrace_attach),
    ("ptrace-seize", ptrace_seize),
    ("process-vm-readv", process_vm_readv),
    ("prlimit", |args| prlimit(&ActArgs(&[args.word(0)?.to_owned()]))),
    ("sched-affinity", sched_affinity),
    ("pidfd-signal", pidfd_signal),
    ("mem", |args| proc_pid(&ActArgs(&[args.word(0)?.to_owned(), "mem".to_owned()]))),
];

const APPEND: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;

/// Goes on while other calls are set up. For every process that was there, the answers to each way in; and a line in
/// DIR/rounds when a round is over.
fn besiege(args: &ActArgs<'_>) -> ActOutcome {
    let directory = std::path::Path::new(args.word(0)?);
    let named: Vec<i64> = (2..args.0.len()).map(|index| args.number(index)).collect::<Result<_, _>>()?;
    let newest_few = args.number(1)?;
    let rounds = sys::open("rounds", &sys::c(&directory.join("rounds").display().to_string()), APPEND)?;
    let me = i64::from(std::process::id());
    let mut answers: BTreeMap<i64, BTreeMap<&str, BTreeSet<String>>> = BTreeMap::new();
    loop {
        let newest = match sys::fork_with("fork", 0)? {
            ForkSide::Child => sys::exit(0),
            ForkSide::Parent(child) => sys::wait(child).map(|_| i64::from(child))?,
        };
        // And those that come while this goes on.
        let new = (newest - newest_few).max(1)..newest + newest_few / 4;
        // Others may take more numbers than N while one round goes on.
        let told = std::fs::read_to_string(directory.join("targets")).unwrap_or_default();
        let told = told.lines().filter_map(|line| line.parse().ok());
        for pid in named.iter().copied().chain(told).chain(new).filter(|&pid| pid != me) {
            // 18 is SIGCONT: it does nothing to a process that runs.
            let words = [pid.to_string(), "18".to_owned()];
            if matches!(kill(&ActArgs(&words)), Err(failure) if failure.is_errno(libc::ESRCH)) {
                continue;
            }
            for (way, act) in SIEGE {
                let answer = match act(&ActArgs(&words)) {
                    Ok(_) => "ok".to_owned(),
                    Err(ActFailure::Errno { number, .. }) => errno::name(number).to_owned(),
                    Err(other) => return Err(other),
                };
                answers.entry(pid).or_default().entry(way).or_default().insert(answer);
            }
        }
        call("write", libc::SYS_write, &[fd(&rounds), sys::from(b"\n"), int(1)])?;
        if matches!(directory.join("over").try_exists(), Ok(true)) {
            return Ok(json!({ "answers": answers }));
        }
    }
}

fn setns(args: &ActArgs<'_>) -> ActOutcome {
    let process = pidfd(args)?;
    call("setns", libc::SYS_setns, &[fd(&process), int(libc::CLONE_NEWNET)])?;
    done()
}

fn kcmp(args: &ActArgs<'_>) -> ActOutcome {
    const KCMP_FILES: i32 = 2;
    let me = i64::from(std::process::id());
    call("kcmp", libc::SYS_kcmp, &[int(me), int(args.pid(0)?), int(KCMP_FILES), int(0), int(0)])?;
    done()
}

fn ps(_args: &ActArgs<'_>) -> ActOutcome {
    let mut seen = serde_json::Map::new();
    let listing = std::fs::read_dir("/proc").map_err(|error| ActFailure::io("open", &error))?;
    for entry in listing.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        if let Ok(line) = std::fs::read(entry.path().join("cmdline")) {
            seen.insert(name, json!(String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    Ok(json!({ "processes": seen }))
}

fn own_pid(_args: &ActArgs<'_>) -> ActOutcome {
    let parent = call("getppid", libc::SYS_getppid, &[])?;
    let group = call("getpgid", libc::SYS_getpgid, &[int(0)])?;
    let session = call("getsid", libc::SYS_getsid, &[int(0)])?;
    Ok(json!({ "pid": std::process::id(), "parent": parent, "group": group, "session": session }))
}

fn sleep(seconds: i64) {
    std::thread::sleep(Duration::from_secs(seconds.unsigned_abs()));
}

/// Writes this process's own number, so that the test can look for it afterwards.
fn leave_pid(file: &str) -> bool {
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .and_then(|mut file| std::io::Write::write_all(&mut file, format!("{}\n", std::process::id()).as_bytes()))
        .is_ok()
}

/// The classic escape from a killer that counts children or groups: fork, setsid, fork, close everything, sleep.
fn daemon(args: &ActArgs<'_>) -> ActOutcome {
    let (file, seconds) = (args.word(0)?.to_owned(), args.number(1)?);
    let ForkSide::Parent(child) = sys::fork_with("fork", 0)? else {
        let session = call("setsid", libc::SYS_setsid, &[]);
        match sys::fork_with("fork", 0) {
            Ok(ForkSide::Child) => {
                let closed = call("close_range", libc::SYS_close_range, &[int(0), int(u32::MAX), int(0)]);
                let told = leave_pid(&file);
                sleep(seconds);
                sys::exit(i32::from(!told || closed.is_err()));
            }
            Ok(ForkSide::Parent(_)) => sys::exit(i32::from(session.is_err())),
            Err(_) => sys::exit(2),
        }
    };
    match sys::wait(child)? {
        sys::ChildEnd::Exit(0) => done(),
        sys::ChildEnd::Exit(status) => Err(ActFailure::unready(format!("the daemon's parent exited with {status}"))),
        sys::ChildEnd::Signal(number) => Err(ActFailure::signal("fork", number)),
    }
}

fn fork_children(args: &ActArgs<'_>) -> ActOutcome {
    let (count, seconds) = (args.number(0)?, args.number(1)?);
    let file = args.0.get(2).cloned();
    let mut children = Vec::new();
    for _ in 0..count {
        match sys::fork_with("fork", 0)? {
            ForkSide::Parent(child) => children.push(child),
            ForkSide::Child => {
                let told = file.as_deref().is_none_or(leave_pid);
                sleep(seconds);
                sys::exit(i32::from(!told));
            }
        }
    }
    Ok(json!({ "children": children }))
}

fn sigterm_ignorer(args: &ActArgs<'_>) -> ActOutcome {
    let seconds = args.number(0)?;
    let ignored = (1..=31).filter(|&signal| sys::ignore(signal)).count();
    if let Some(file) = args.0.get(1) {
        leave_pid(file);
    }
    sleep(seconds);
    Ok(json!({ "ignored": ignored }))
}

fn wait(args: &ActArgs<'_>) -> ActOutcome {
    sleep(args.number(0)?);
    done()
}
