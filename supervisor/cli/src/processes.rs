//! Looking at processes from outside, in `/proc`: who descends from whom, what they hold, what they used.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::Duration;

/// A process id.
pub(super) type ProcessId = i32;

/// Who descended from whom at one moment.
pub(super) struct Descendants(HashMap<ProcessId, Vec<ProcessId>>);

impl Descendants {
    /// Looks at every process. Those that end meanwhile are left out.
    pub(super) fn now() -> io::Result<Self> {
        let mut children: HashMap<ProcessId, Vec<ProcessId>> = HashMap::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if let Some(parent) = fields(pid).ok().and_then(|fields| number(&fields, PPID)) {
                children.entry(parent).or_default().push(pid);
            }
        }
        Ok(Self(children))
    }

    /// Children, their children, and so on.
    pub(super) fn descendants(&self, of: ProcessId) -> Vec<ProcessId> {
        let mut all: Vec<ProcessId> = self.0.get(&of).cloned().unwrap_or_default();
        let mut next = 0;
        while let Some(pid) = all.get(next) {
            all.extend(self.0.get(pid).into_iter().flatten().copied().collect::<Vec<_>>());
            next += 1;
        }
        all
    }
}

/// All descendants of this process.
pub(super) fn own_descendants() -> io::Result<Vec<ProcessId>> {
    Ok(Descendants::now()?.descendants(rustix::process::getpid().as_raw_nonzero().get()))
}

/// Fields of `/proc/PID/stat`, counted from the one after the name (proc_pid_stat(5): field 3 is 0 here).
const PPID: usize = 1;
const CHILDREN_USER: usize = 13;
const CHILDREN_SYSTEM: usize = 14;
const OWN_USER: usize = 11;
const OWN_SYSTEM: usize = 12;

/// USER_HZ, in which `/proc/PID/stat` counts, on every architecture that callgate runs on.
const TICKS_PER_SECOND: u64 = 100;

/// The fields after the name, which may hold anything, `)` too.
fn fields(pid: ProcessId) -> io::Result<Vec<String>> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    let after = stat.iter().rposition(|byte| *byte == b')').map_or(&[][..], |at| &stat[at + 1..]);
    Ok(String::from_utf8_lossy(after).split_ascii_whitespace().map(str::to_owned).collect())
}

fn number<T: std::str::FromStr>(fields: &[String], at: usize) -> Option<T> {
    fields.get(at)?.parse().ok()
}

/// CPU time of a process and of the children that it has waited for. Its own is exact where the kernel has
/// `/proc/PID/schedstat`; its children's comes in hundredths of a second, so only a sum over many of them means something.
pub(super) fn cpu(pid: ProcessId) -> io::Result<Duration> {
    let fields = fields(pid)?;
    let ticks = |at| number::<u64>(&fields, at).unwrap_or(0);
    let as_time = |ticks: u64| Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND);
    let exact = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok();
    let own = exact.as_deref().and_then(|text| text.split(' ').next()?.parse().ok()).map(Duration::from_nanos);
    let own = own.unwrap_or_else(|| as_time(ticks(OWN_USER) + ticks(OWN_SYSTEM)));
    Ok(own + as_time(ticks(CHILDREN_USER) + ticks(CHILDREN_SYSTEM)))
}

/// The memory that a process shares with nobody, in KiB: what would be free if it ended (proc_pid_smaps(5)).
pub(super) fn private_kib(pid: ProcessId) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(text
        .lines()
        .filter(|line| line.starts_with("Private_Clean:") || line.starts_with("Private_Dirty:"))
        .filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
        .sum())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;

    #[test]
    fn this_process_is_among_its_parents_descendants_and_holds_memory() {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let parent: ProcessId = number(&fields(me).unwrap(), PPID).unwrap();
        assert!(Descendants::now().unwrap().descendants(parent).contains(&me));
        assert!(private_kib(me).unwrap() > 0);
        assert!(cpu(me).is_ok());
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error_not_a_nought() {
        assert!(private_kib(ProcessId::MAX).is_err());
        assert!(cpu(ProcessId::MAX).is_err());
    }
}
