//! The zygotes: each forks a worker per call. One thread, few descriptors, never handles what a model wrote.
//!
//! A session has two. The programs' zygote stands below the broker, which its workers' programs need. The readers' zygote
//! is for tools that only read: they need nobody, so its workers are confined to that and cost less.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::event::{EventfdFlags, eventfd};

use crate::family;
use crate::protocol::{Channel, FromZygote, Received, Register, Threads, ToZygote};
use crate::sys::process::{self, Fork, OneThread, Pid};

/// Trade of a zygote's workers.
pub(crate) trait Trade {
    /// Serves calls for the supervisor; the exit code for the worker's process. `asked` counts whether the broker was asked.
    fn work(&self, supervisor: &Channel, broker: &Channel, threads: Threads, asked: Option<OwnedFd>) -> i32;
    /// True if the broker serves its workers, and hears of each.
    const BROKERED: bool;
    /// True if a worker may leave processes behind when it ends.
    const LEAVES: bool;
}

/// A zygote's two connections.
pub(crate) struct ZygoteLinks {
    pub(crate) supervisor: Channel,
    pub(crate) broker: Channel,
}

/// A zygote that is ready to serve.
pub(crate) struct ReadyZygote<T> {
    links: ZygoteLinks,
    trade: T,
    one_thread: OneThread,
    signals: OwnedFd,
    workers: HashMap<Pid, Forked>,
}

struct Forked {
    /// As the supervisor numbers it.
    worker: u64,
    /// The supervisor wants to know when it is gone.
    killed: bool,
}

impl<T: Trade> ReadyZygote<T> {
    /// Does what its own confinement may not let it do any more.
    pub(crate) fn new(links: ZygoteLinks, trade: T) -> io::Result<Self> {
        family::become_subreaper()?;
        rustix::thread::set_name(c"cg-zygote")?;
        let (signals, one_thread) = (process::children_as_fd()?, OneThread::confirm()?);
        Ok(Self { links, trade, one_thread, signals, workers: HashMap::new() })
    }

    /// The descriptors that it needs.
    pub(crate) fn keep(&self) -> [BorrowedFd<'_>; 3] {
        [self.links.supervisor.as_fd(), self.links.broker.as_fd(), self.signals.as_fd()]
    }

    /// To the broker.
    pub(crate) fn broker(&self) -> &Channel {
        &self.links.broker
    }

    /// Serves until the supervisor or the broker is gone, then ends all workers.
    pub(crate) fn run(mut self) -> io::Result<()> {
        while self.serve_one()? {}
        if T::LEAVES {
            return family::end_all(&|_| false).map(drop);
        }
        // Each of them is one process. Ours and not yet reaped, so the numbers still mean them.
        self.workers.keys().try_for_each(|pid| process::kill(*pid, libc::SIGKILL))
    }

    /// Handles what has come in. False when it is time to end.
    fn serve_one(&mut self) -> io::Result<bool> {
        let mut fds = [
            PollFd::new(self.links.supervisor.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.links.broker.as_fd(), PollFlags::empty()),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
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
            self.reap()?;
        }
        if supervisor.intersects(PollFlags::POLLIN | PollFlags::POLLHUP) {
            return self.command();
        }
        Ok(true)
    }

    fn command(&mut self) -> io::Result<bool> {
        match self.links.supervisor.receive::<ToZygote>()? {
            Received::Message(ToZygote::Prepare { worker, threads }, _) => self.prepare(worker, threads)?,
            Received::Message(ToZygote::Kill { worker }, _) => {
                // Ours and not yet reaped, so the number still means it.
                match self.workers.iter_mut().find(|(_, forked)| forked.worker == worker) {
                    Some((pid, forked)) => {
                        forked.killed = true;
                        process::kill(*pid, libc::SIGKILL)?;
                    }
                    None => self.tell(&FromZygote::Gone { worker }, None)?,
                }
            }
            Received::Data(_) => {}
            Received::Closed => return Ok(false),
        }
        Ok(true)
    }

    fn prepare(&mut self, worker: u64, threads: Threads) -> io::Result<()> {
        let (ours, theirs) = Channel::pair()?;
        let asked = T::BROKERED.then(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)).transpose()?;
        match process::fork(self.one_thread, 0) {
            Ok(Fork::Child) => {
                drop(ours);
                // By the worker itself, and before all that it asks for: the zygote's word could come later.
                if let Some(asked) = &asked
                    && self
                        .links
                        .broker
                        .send(&Register::Worker { pid: process::id(), worker }, &[asked.as_fd()])
                        .is_err()
                {
                    process::exit_now(70);
                }
                process::exit_now(self.trade.work(&theirs, &self.links.broker, threads, asked))
            }
            Ok(Fork::Parent(pid)) => {
                self.workers.insert(pid, Forked { worker, killed: false });
                self.tell(&FromZygote::Prepared { worker }, Some(&ours))
            }
            Err(e) => {
                self.tell(&FromZygote::NotPrepared { worker, errno: e.raw_os_error().unwrap_or(libc::EAGAIN) }, None)
            }
        }
    }

    fn tell(&self, message: &FromZygote, fd: Option<&Channel>) -> io::Result<()> {
        let fds: Vec<_> = fd.iter().map(|c| c.as_fd()).collect();
        match self.links.supervisor.send(message, &fds) {
            // Noticed again, and acted on, by the next poll.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }

    /// Takes every worker that has ended, and what it left behind, before anybody is told.
    fn reap(&mut self) -> io::Result<()> {
        drain(&self.signals)?;
        let mut gone = Vec::new();
        let mut sweep = false;
        loop {
            match process::reap() {
                Ok(Some(end)) => {
                    if let Some(forked) = self.workers.remove(&end.pid) {
                        // One that ended by itself has left nothing.
                        sweep |= T::LEAVES && end.status != 0;
                        gone.push((end.pid, forked));
                    }
                }
                Ok(None) => break,
                Err(e) if e.raw_os_error() == Some(libc::ECHILD) => break,
                Err(e) => return Err(e),
            }
        }
        if sweep {
            // A worker that was killed could not end its own; they are ours now. Any child that is not a worker is one.
            let swept = family::end_all(&|pid| self.workers.contains_key(&pid))?;
            if !swept.left.is_empty() {
                // Nobody is told that they are gone: the session is given up, and whoever ends it reports them.
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            gone.extend(swept.reaped.iter().filter_map(|end| Some((end.pid, self.workers.remove(&end.pid)?))));
        }
        for (pid, forked) in gone {
            if T::BROKERED {
                self.links.broker.send(&Register::Gone { pid }, &[])?;
            }
            if forked.killed {
                self.tell(&FromZygote::Gone { worker: forked.worker }, None)?;
            }
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
