//! The descriptors that travel with a frame, by name. What is sent says which of them there are, so that neither side has to
//! know their order or guess by their number.

use std::os::fd::{BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

/// A program's descriptors.
#[derive(Debug)]
pub struct ProgramFds<T> {
    /// Standard input, output and error.
    pub stdio: [T; 3],
    /// Its controlling terminal, if it is to have one.
    pub terminal: Option<T>,
    /// Where the broker sends the connections that it makes to its session's endpoint, if it may make any.
    pub endpoint: Option<T>,
    /// Its cgroup, if it has one.
    pub cgroup: Option<CgroupFds<T>>,
}

/// Files of a cgroup (cgroups(7), version 2).
#[derive(Debug)]
pub struct CgroupFds<T> {
    /// `cgroup.procs`, to write.
    pub procs: T,
    /// `pids.events`.
    pub pids_events: T,
    /// `memory.events`.
    pub memory_events: T,
    /// `memory.peak`.
    pub memory_peak: T,
}

/// Which of a program's descriptors travel with its call, besides the three streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFdsSent {
    terminal: bool,
    endpoint: bool,
    cgroup: bool,
}

impl<'a> ProgramFds<BorrowedFd<'a>> {
    /// Description for the frame, and they themselves as they travel.
    #[must_use]
    pub fn send(&self) -> (ProgramFdsSent, Vec<BorrowedFd<'a>>) {
        let sent = ProgramFdsSent {
            terminal: self.terminal.is_some(),
            endpoint: self.endpoint.is_some(),
            cgroup: self.cgroup.is_some(),
        };
        let cgroup = self.cgroup.iter().flat_map(|c| [c.procs, c.pids_events, c.memory_events, c.memory_peak]);
        (sent, self.stdio.into_iter().chain(self.terminal).chain(self.endpoint).chain(cgroup).collect())
    }
}

impl ProgramFdsSent {
    /// Takes those that came. `None` if they are not those that the frame speaks of.
    #[must_use]
    pub fn receive(self, fds: Vec<OwnedFd>) -> Option<ProgramFds<OwnedFd>> {
        let mut fds = fds.into_iter();
        let stdio = [fds.next()?, fds.next()?, fds.next()?];
        let terminal = if self.terminal { Some(fds.next()?) } else { None };
        let endpoint = if self.endpoint { Some(fds.next()?) } else { None };
        let cgroup = if self.cgroup {
            let (procs, pids_events) = (fds.next()?, fds.next()?);
            Some(CgroupFds { procs, pids_events, memory_events: fds.next()?, memory_peak: fds.next()? })
        } else {
            None
        };
        fds.next().is_none().then_some(ProgramFds { stdio, terminal, endpoint, cgroup })
    }
}

/// The supervisor's ends of a session.
#[derive(Debug)]
pub struct SessionFds<T> {
    /// The channel of the programs' zygote; in a session for one call, of its worker.
    pub programs: T,
    /// The channel of the readers' zygote, if the session is for many calls.
    pub readers: Option<T>,
    /// The file of notices.
    pub notices: T,
    /// The tracer's channel, if watchdogs are asked about programs.
    pub tracer: Option<T>,
    /// With namespaces, the session's own `/dev/pts` (`O_PATH`).
    pub terminals: Option<T>,
    /// Channel of the [`SyscallQuestion`](super::SyscallQuestion)s, if the plan asks for them.
    pub questions: Option<T>,
}

/// Which of a session's descriptors travel with the report that it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFdsSent {
    readers: bool,
    tracer: bool,
    terminals: bool,
    questions: bool,
}

impl<'a> SessionFds<BorrowedFd<'a>> {
    /// Description for the frame, and they themselves as they travel.
    #[must_use]
    pub fn send(&self) -> (SessionFdsSent, Vec<BorrowedFd<'a>>) {
        let sent = SessionFdsSent {
            readers: self.readers.is_some(),
            tracer: self.tracer.is_some(),
            terminals: self.terminals.is_some(),
            questions: self.questions.is_some(),
        };
        let all = [Some(self.programs), self.readers, Some(self.notices), self.tracer, self.terminals, self.questions];
        (sent, all.into_iter().flatten().collect())
    }
}

impl SessionFdsSent {
    /// Takes those that came. `None` if they are not those that the frame speaks of.
    #[must_use]
    pub fn receive(self, fds: Vec<OwnedFd>) -> Option<SessionFds<OwnedFd>> {
        let mut fds = fds.into_iter();
        let programs = fds.next()?;
        let readers = if self.readers { Some(fds.next()?) } else { None };
        let notices = fds.next()?;
        let tracer = if self.tracer { Some(fds.next()?) } else { None };
        let terminals = if self.terminals { Some(fds.next()?) } else { None };
        let questions = if self.questions { Some(fds.next()?) } else { None };
        fds.next().is_none().then_some(SessionFds { programs, readers, notices, tracer, terminals, questions })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    fn nulls(count: usize) -> Vec<OwnedFd> {
        (0..count)
            .map(|_| std::fs::File::open("/dev/null").map(OwnedFd::from))
            .collect::<Result<_, _>>()
            .expect("/dev/null")
    }

    /// D1: more descriptors than the frame speaks of, or fewer, are none: a terminal is not taken for a cgroup's file.
    #[test]
    fn d1_only_what_the_frame_speaks_of_is_taken() {
        let held = nulls(9);
        let fd = |at: usize| held[at].as_fd();
        let kinds = [
            (false, false, false, 3),
            (true, false, false, 4),
            (false, true, false, 4),
            (false, false, true, 7),
            (true, true, true, 9),
        ];
        for (terminal, endpoint, cgroup, count) in kinds {
            let cgroup = cgroup.then(|| CgroupFds {
                procs: fd(4),
                pids_events: fd(5),
                memory_events: fd(6),
                memory_peak: fd(7),
            });
            let (terminal, endpoint) = (terminal.then(|| fd(3)), endpoint.then(|| fd(8)));
            let fds = ProgramFds { stdio: [fd(0), fd(1), fd(2)], terminal, endpoint, cgroup };
            let (sent, travel) = fds.send();
            assert_eq!(travel.len(), count);
            for came in 0..11 {
                assert_eq!(sent.receive(nulls(came)).is_some(), came == count, "{came} of {count}");
            }
        }
    }
}
