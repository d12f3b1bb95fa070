//! Who descends from whom, and the end of all that a call has started.
//!
//! Every process that must clean up is a subreaper (prctl(2), `PR_SET_CHILD_SUBREAPER`): what a call double-forks or
//! puts into a session of its own comes back to it as a child, and has nowhere else to go.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use crate::apply::landlock::SignalsStayBelow;
use crate::procfs::Procfs;
use crate::sys::process::{self, Pid, ProcessEnd};

/// Becomes the one to whom orphans below this process return.
pub(crate) fn become_subreaper() -> io::Result<()> {
    // The argument is only "not zero": the setting is the caller's.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(io::Error::from)
}

/// Kills all descendants of this process that are to be found now, each before its children are looked for: who has been
/// sent SIGKILL makes no more (fork(2) of a process with a signal pending is undone). What is orphaned by that comes to
/// this process, to be found by the next round.
///
/// A process that makes others faster than they can be found one by one is ended with its whole group: the kernel signals
/// a group as one, against which no fork helps. Groups below this process began with it, but for its own.
fn kill_descendants(keep: &dyn Fn(Pid) -> bool) -> io::Result<Vec<Pid>> {
    let own = process::group_of(process::id());
    let mut all: Vec<Pid> = Procfs::USUAL.children(process::id()).into_iter().filter(|pid| !keep(*pid)).collect();
    let mut groups = HashSet::new();
    let mut next = 0;
    while let Some(pid) = all.get(next).copied() {
        next += 1;
        if let Some(group) = process::group_of(pid).filter(|group| Some(*group) != own && *group > 1)
            && groups.insert(group)
        {
            // Refused to who may not name groups, before Landlock's scopes: then it is done one by one.
            drop(process::kill(-group, libc::SIGKILL));
        }
        // A process between its death and its reaping answers as if alive; so only what is not a zombie counts.
        match process::kill(pid, libc::SIGKILL) {
            Ok(()) => {}
            // EPERM: the broker (before ABI 6) could not tell whose it is, since its parent is dying. The next round asks again.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ESRCH | libc::EPERM)) => {}
            Err(e) => return Err(e),
        }
        all.extend(Procfs::USUAL.children(pid));
    }
    Ok(all)
}

/// Signals every descendant of this process in one call of the kernel's, which no fork gets in between: kill(2) to everybody
/// reaches what Landlock's scope leaves in reach, and that is what this process started, whatever sessions and groups it
/// has made for itself (D11). False if that could not be told to be so; then nobody was signalled.
pub(crate) fn signal_all_at_once(_: SignalsStayBelow, signal: i32) -> io::Result<bool> {
    // Looked at each time, because the mistake would be a terrible one: the parent, who may always be signalled
    // otherwise, is out of reach.
    let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    let out_of_reach =
        parent > 0 && matches!(process::kill(parent, 0), Err(e) if e.raw_os_error() == Some(libc::EPERM));
    if !out_of_reach {
        return Ok(false);
    }
    match process::kill(-1, signal) {
        Err(e) if e.raw_os_error() != Some(libc::ESRCH) && e.raw_os_error() != Some(libc::EPERM) => Err(e),
        Ok(()) | Err(_) => Ok(true),
    }
}

/// No round of killing takes longer, whatever is to be killed.
const ROUND: Duration = Duration::from_secs(1);
/// How long what was killed may take to be gone, until it is given up: memory is given back page by page, and a process that waits
/// for a device or a host ends when that answers. Nothing is reported to be gone before it is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long to wait for those that have been killed, between two looks at what is left of them.
const NAP: Duration = Duration::from_millis(1);

/// Result of [`end_all`].
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Distinct processes that were killed.
    pub(crate) killed: u32,
    /// Those of them that were this process's children, reaped.
    pub(crate) reaped: Vec<ProcessEnd>,
    /// Those that are still there: they were killed, and do not end.
    pub(crate) left: Vec<Pid>,
}

/// Kills every descendant of this process except the children that `keep` names (and theirs), until none is left, or until
/// those that are have been waited for in vain. Time in which this process was stopped or frozen with all the others does not
/// count.
///
/// # Errors
/// From kill(2) and wait4(2).
pub(crate) fn end_all(keep: &dyn Fn(Pid) -> bool) -> io::Result<Sweep> {
    let (mut spent, mut round) = (Duration::ZERO, Instant::now());
    let (mut sweep, mut known) = (Sweep::default(), HashSet::new());
    loop {
        let left = kill_descendants(keep)?;
        if left.is_empty() || spent > PATIENCE {
            return Ok(Sweep { left, ..sweep });
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
        spent += round.elapsed().min(ROUND);
        round = Instant::now();
        // To those that make others no time is given; those that only end need the processor.
        let before = known.len();
        known.extend(left);
        if known.len() > before { std::thread::yield_now() } else { std::thread::sleep(NAP) }
    }
}
