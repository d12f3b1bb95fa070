//! Who descends from whom, and the end of all that a call has started.
//!
//! Every process that must clean up is a subreaper (prctl(2), `PR_SET_CHILD_SUBREAPER`): what a call double-forks or
//! puts into a session of its own comes back to it as a child, and has nowhere else to go.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use crate::sys::process::{self, Ended, Pid};

/// Becomes the one to whom orphans below this process return.
pub(crate) fn become_subreaper() -> io::Result<()> {
    // The argument is only "not zero": the setting is the caller's.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(io::Error::from)
}

/// The children of a process, of all its threads.
pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(|p| p.parse::<Pid>().ok())),
            // A kernel without CONFIG_PROC_CHILDREN: ask every process for its parent.
            Err(e) if e.kind() == io::ErrorKind::NotFound && rustix::fs::stat(task.path()).is_ok() => {
                return by_parent(pid);
            }
            Err(_gone) => {}
        }
    }
    found
}

fn by_parent(parent: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok())
        .filter(|pid| parent_of(*pid) == Some(parent))
        .collect()
}

/// The parent of a process or thread.
pub(crate) fn parent_of(pid: Pid) -> Option<Pid> {
    stat_field(pid, 4)
}

/// When a thread started, in clock ticks since boot: with its number, a name that is never used again.
pub(crate) fn start_time(tid: Pid) -> Option<u64> {
    stat_field(tid, 22)
}

/// A field of `/proc/PID/stat`, numbered as in proc_pid_stat(5), from 3. The name before may hold anything, `)` too.
fn stat_field<T: std::str::FromStr>(pid: Pid, number: usize) -> Option<T> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let close = stat.iter().rposition(|b| *b == b')')?;
    std::str::from_utf8(&stat[close + 1..]).ok()?.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

/// All descendants of a process that are to be found now, children first.
fn descendants(of: Pid, keep: &dyn Fn(Pid) -> bool) -> Vec<Pid> {
    let mut all: Vec<Pid> = children(of).into_iter().filter(|pid| !keep(*pid)).collect();
    let mut next = 0;
    while let Some(pid) = all.get(next).copied() {
        next += 1;
        all.extend(children(pid));
    }
    all
}

/// What [`end_all`] did.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Distinct processes that were killed.
    pub(crate) killed: u32,
    /// Those of them that were this process's children, reaped.
    pub(crate) reaped: Vec<Ended>,
}

/// Kills every descendant of this process except the children that `keep` names (and theirs), until none is left.
///
/// # Errors
/// `TimedOut` if there are still some at the deadline: a fork bomb that outruns the killing.
pub(crate) fn end_all(keep: &dyn Fn(Pid) -> bool, within: Duration) -> io::Result<Sweep> {
    let me = process::id();
    let deadline = Instant::now() + within;
    let mut sweep = Sweep::default();
    loop {
        let left = descendants(me, keep);
        if left.is_empty() {
            return Ok(sweep);
        }
        for pid in &left {
            // A process between its death and its reaping answers as if alive; so only what is not a zombie counts.
            match process::kill(*pid, libc::SIGKILL) {
                Ok(()) => {}
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                Err(e) => return Err(e),
            }
        }
        loop {
            match process::reap() {
                Ok(Some(ended)) => {
                    if left.contains(&ended.pid) {
                        sweep.killed += 1;
                    }
                    sweep.reaped.push(ended);
                }
                Ok(None) => break,
                Err(e) if e.raw_os_error() == Some(libc::ECHILD) => break,
                Err(e) => return Err(e),
            }
        }
        if Instant::now() > deadline {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        std::thread::yield_now();
    }
}
