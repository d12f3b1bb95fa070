//! The zygote: forks a worker per call. One thread, few descriptors, never handles what a model wrote.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::family;
use crate::protocol::{Channel, FromZygote, Received, Register, ToZygote};
use crate::sys::process::{self, Fork, Pid};
use crate::worker;

/// How long a worker's leftovers may resist being killed before the whole session is given up.
const SWEEP: Duration = Duration::from_secs(10);

/// What the zygote holds, and every worker inherits.
pub(crate) struct Inherited {
    /// To the supervisor.
    pub(crate) supervisor: Channel,
    /// To the broker.
    pub(crate) broker: Channel,
    /// The ruleset of calls that may do all that the session may.
    pub(crate) ruleset: OwnedFd,
    /// What workers need to know of the session.
    pub(crate) session: worker::SessionFacts,
}

/// Serves until the supervisor or the broker is gone, then ends all workers.
pub(crate) fn run(inherited: Inherited) -> io::Result<()> {
    family::become_subreaper()?;
    rustix::thread::set_name(c"cg-zygote")?;
    let signals = process::children_as_fd()?;
    let mut zygote = Zygote { inherited, workers: HashMap::new() };
    while zygote.serve_one(&signals)? {}
    family::end_all(&|_| false, SWEEP).map(drop)
}

/// The session is for one call: this process is its worker. Returns the exit code.
pub(crate) fn serve_only_call(inherited: Inherited) -> i32 {
    worker::run(&inherited.supervisor, &inherited)
}

struct Zygote {
    inherited: Inherited,
    workers: HashMap<Pid, u64>,
}

impl Zygote {
    /// Handles what has come in. False when it is time to end.
    fn serve_one(&mut self, signals: &OwnedFd) -> io::Result<bool> {
        let mut fds = [
            PollFd::new(self.inherited.supervisor.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.inherited.broker.as_fd(), PollFlags::empty()),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let [supervisor, broker, signal] = fds.map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        if broker.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
            return Ok(false);
        }
        if signal.contains(PollFlags::POLLIN) {
            self.reap(signals)?;
        }
        if supervisor.intersects(PollFlags::POLLIN | PollFlags::POLLHUP) {
            return self.command();
        }
        Ok(true)
    }

    fn command(&mut self) -> io::Result<bool> {
        match self.inherited.supervisor.receive::<ToZygote>()? {
            Received::Message(ToZygote::Prepare { worker }, _) => self.prepare(worker)?,
            Received::Message(ToZygote::Kill { worker }, _) => {
                // Ours and not yet reaped, so the number still means it.
                if let Some((pid, _)) = self.workers.iter().find(|(_, id)| **id == worker) {
                    process::kill(*pid, libc::SIGKILL)?;
                }
            }
            Received::Data(_) => {}
            Received::Closed => return Ok(false),
        }
        Ok(true)
    }

    fn prepare(&mut self, worker: u64) -> io::Result<()> {
        let (ours, theirs) = Channel::pair()?;
        match process::fork() {
            Ok(Fork::Child) => {
                drop(ours);
                process::exit_now(worker::run(&theirs, &self.inherited))
            }
            Ok(Fork::Parent(pid)) => {
                self.workers.insert(pid, worker);
                self.tell(&FromZygote::Prepared { worker }, Some(&ours))
            }
            Err(e) => {
                self.tell(&FromZygote::NotPrepared { worker, errno: e.raw_os_error().unwrap_or(libc::EAGAIN) }, None)
            }
        }
    }

    fn tell(&self, message: &FromZygote, fd: Option<&Channel>) -> io::Result<()> {
        let fds: Vec<_> = fd.iter().map(|c| c.as_fd()).collect();
        match self.inherited.supervisor.send(message, &fds) {
            // Noticed again, and acted on, by the next poll.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }

    /// Takes every worker that has ended, and what it left behind, before anybody is told.
    fn reap(&mut self, signals: &OwnedFd) -> io::Result<()> {
        drain(signals)?;
        let mut ended = Vec::new();
        loop {
            match process::reap() {
                Ok(Some(end)) => ended.push(end),
                Ok(None) => break,
                Err(e) if e.raw_os_error() == Some(libc::ECHILD) => break,
                Err(e) => return Err(e),
            }
        }
        let mut gone: Vec<_> = Vec::new();
        for end in ended {
            if let Some(worker) = self.workers.remove(&end.pid) {
                gone.push((worker, end));
            }
        }
        if gone.is_empty() {
            return Ok(());
        }
        // A worker that was killed could not end its own; they are ours now. Any child that is not a worker is one.
        let swept = family::end_all(&|pid| self.workers.contains_key(&pid), SWEEP)?;
        for end in swept.reaped {
            if let Some(worker) = self.workers.remove(&end.pid) {
                gone.push((worker, end));
            }
        }
        for (worker, end) in gone {
            // One that ended by itself has said so.
            if end.status != 0 {
                self.inherited.broker.send(&Register::Gone { pid: end.pid }, &[])?;
            }
            self.tell(&FromZygote::Gone { worker, status: end.status, cpu_us: end.cpu_us }, None)?;
        }
        Ok(())
    }
}

/// Empties a signalfd: one reading may stand for several deaths, and several readings for one.
pub(crate) fn drain(signals: &OwnedFd) -> io::Result<()> {
    let mut buffer = [0; 1024];
    match rustix::io::read(signals, &mut buffer) {
        Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
