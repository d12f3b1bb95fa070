//! Acts on other processes, and the processes that an act leaves behind (attacks D1, D2, D8 and kill-tree).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use callgate_worker::probe::act::{ProbeAct, act};
use callgate_worker::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use callgate_worker::probe::{FAMILIES, errno, find};
use callgate_worker::sys::probe::{self as sys, ForkSide, call, call_fd, fd, int};
use serde_json::json;

use crate::sys::ignore;

pub(crate) const ACTS: &[ProbeAct] = &[
    act("pidfd-open", "D1", "PID", "pidfd_open(2)", pidfd_open),
    act("besiege", "D8", "DIR N PID…", "attack these, DIR/targets and the N newest until DIR/over exists", besiege),
    act("own-pid", "D2", "", "pid, parent, group and session", own_pid),
    act("double-fork-daemon", "D2", "FILE SECONDS", "leave a daemon behind that writes its pid to FILE", daemon),
    act("fork-children", "D2", "N SECONDS [FILE]", "leave N sleeping children behind", fork_children),
    act("sigterm-ignorer", "D2", "SECONDS [FILE]", "ignore every signal that can be, and sleep", sigterm_ignorer),
];

fn pidfd_open(args: &ActArgs<'_>) -> ActOutcome {
    call_fd("pidfd_open", libc::SYS_pidfd_open, &[int(args.pid(0)?), int(0)])?;
    Ok(json!({}))
}

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
            let there = call("kill", libc::SYS_kill, &[int(pid), int(libc::SIGCONT)]);
            if matches!(there, Err(failure) if failure.is_errno(libc::ESRCH)) {
                continue;
            }
            for (act, way, more) in SIEGE {
                let act = find(FAMILIES, act).ok_or_else(|| ActFailure::unready(format!("no act is called {act}")))?;
                let words: Vec<String> =
                    std::iter::once(pid.to_string()).chain(more.iter().map(|&word| word.to_owned())).collect();
                let answer = match (act.run)(&ActArgs(&words)) {
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

fn sleep(seconds: i64) {
    std::thread::sleep(Duration::from_secs(seconds.unsigned_abs()));
}

fn own_pid(_args: &ActArgs<'_>) -> ActOutcome {
    let parent = call("getppid", libc::SYS_getppid, &[])?;
    let group = call("getpgid", libc::SYS_getpgid, &[int(0)])?;
    let session = call("getsid", libc::SYS_getsid, &[int(0)])?;
    Ok(json!({ "pid": std::process::id(), "parent": parent, "group": group, "session": session }))
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
        sys::ChildEnd::Exit(0) => Ok(json!({})),
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
    let ignored = (1..=31).filter(|&signal| ignore(signal)).count();
    if let Some(file) = args.0.get(1) {
        leave_pid(file);
    }
    sleep(seconds);
    Ok(json!({ "ignored": ignored }))
}

/// Ways into another process that leave it as it was, if they are refused, and alive, if they are not: the act, what it is
/// called in the answer, and its words after the process.
const SIEGE: &[(&str, &str, &[&str])] = &[
    // 18 is SIGCONT: it does nothing to a process that runs.
    ("kill", "kill", &["18"]),
    ("tgkill", "tgkill", &["18"]),
    ("ptrace-attach", "ptrace-attach", &[]),
    ("ptrace-seize", "ptrace-seize", &[]),
    ("process-vm-readv", "process-vm-readv", &[]),
    ("prlimit", "prlimit", &[]),
    ("sched-affinity", "sched-affinity", &[]),
    ("pidfd-signal", "pidfd-signal", &["18"]),
    ("proc-pid", "mem", &["mem"]),
];

const APPEND: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;

/// Writes this process's own number, so that the test can look for it afterwards.
fn leave_pid(file: &str) -> bool {
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .and_then(|mut file| std::io::Write::write_all(&mut file, format!("{}\n", std::process::id()).as_bytes()))
        .is_ok()
}
