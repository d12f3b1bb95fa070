//! Bodies of the fuzz targets, each a function of any bytes. Tests of the crates do it with the seeds: this file is a module of theirs.

pub mod arguments;
#[cfg(fuzzing)]
pub mod egress;
pub mod hostile_worker;
pub mod manifest;
pub mod patterns;
pub mod profile;

use std::os::fd::{AsFd as _, OwnedFd};

use callgate::{Launcher, Session, SessionSpec, StrengthChoice, Supervisor};
use callgate_policy::plan::SessionPlan;
use callgate_worker::protocol::{
    Channel, FromWorker, FromZygote, OpenSession, Received, SessionFds, SessionReply, SessionSteps, notice,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::net::{Shutdown, shutdown};

/// A supervisor, and the other end of what it takes for its launcher: everything behind that is played to it, so that what a worker
/// sends is the fuzzer's choice.
pub struct PlayedHost {
    supervisor: Supervisor,
    launcher: Channel,
    runtime: tokio::runtime::Runtime,
    workspace: tempfile::TempDir,
}

/// The ends of a session's channels that its processes would hold. Each says all that it has to say before the supervisor
/// listens, and then no more: a read finds the end of it, while a write still succeeds.
pub struct Processes {
    pub broker: Channel,
    pub programs: Channel,
    pub readers: Channel,
    /// Channels of the two workers that the zygotes offer: the programs', and the readers'.
    pub workers: [Channel; 2],
    offered: Vec<OwnedFd>,
    plan: SessionPlan,
}

impl PlayedHost {
    pub fn new() -> Self {
        let (ours, launcher) = Channel::pair().expect("a pair of sockets");
        let supervisor = Supervisor::builder().launcher(Launcher::over(ours)).build().expect("this host enforces");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { supervisor, launcher, runtime, workspace: tempfile::tempdir().expect("a directory") }
    }

    /// Opens a session whose processes `say` something, and has `use_it` use it.
    pub fn session(&self, say: impl FnOnce(&mut Processes), use_it: impl AsyncFnOnce(&Session, &Processes)) {
        self.runtime.block_on(async {
            let spec = SessionSpec::developer(self.workspace.path())
                .strength(StrengthChoice::Namespaces)
                .mode(callgate::policy::mode::Mode::Yolo);
            let open = self.supervisor.open(spec);
            let (session, processes) = tokio::join!(open, async {
                let mut processes = self.asked();
                say(&mut processes);
                processes.end();
                processes
            });
            if let Ok(session) = session {
                use_it(&session, &processes).await;
            }
            processes.clean_up();
        });
    }

    /// The supervisor's wish for a session, which has been sent by now.
    fn asked(&self) -> Processes {
        let mut fds = [PollFd::new(&self.launcher, PollFlags::IN)];
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        assert_eq!(poll(&mut fds, Some(&second)), Ok(1), "the supervisor asked for no session");
        let Ok(Received::Message(OpenSession { plan, .. }, fds)) = self.launcher.receive() else { panic!("no wish") };
        let broker = Channel::from(fds.into_iter().next().expect("the broker's end"));
        let pair = || {
            let (supervisors, ours) = Channel::pair().expect("a pair of sockets");
            rustix::fs::fcntl_setfl(&ours, OFlags::RDWR | OFlags::NONBLOCK).expect("it is a socket");
            (supervisors, ours)
        };
        let [(a, programs), (b, readers), (c, first), (d, second)] = [pair(), pair(), pair(), pair()];
        let offered = [a, b, c, d].map(OwnedFd::from).into();
        Processes { broker, programs, readers, workers: [first, second], offered, plan }
    }
}

impl Default for PlayedHost {
    fn default() -> Self {
        Self::new()
    }
}

impl Processes {
    /// The supervisor's ends: of the two zygotes, and of the two workers.
    pub fn offered(&self, index: usize) -> &OwnedFd {
        &self.offered[index % self.offered.len()]
    }

    pub fn ready(&self) {
        let notices = notice::make().expect("a file in memory");
        let fds = SessionFds {
            programs: self.offered[0].as_fd(),
            readers: Some(self.offered[1].as_fd()),
            notices: notices.as_fd(),
            tracer: None,
            terminals: None,
            questions: None,
        };
        let (fds, travel) = fds.send();
        self.broker.send(&SessionReply::Ready { steps: SessionSteps::default(), fds }, &travel).expect("there is room");
    }

    pub fn prepared(&self) {
        self.programs.send(&FromZygote::Prepared { worker: 1 }, &[self.offered[2].as_fd()]).expect("there is room");
        self.readers.send(&FromZygote::Prepared { worker: 1 }, &[self.offered[3].as_fd()]).expect("there is room");
    }

    pub fn confined(&self) {
        for worker in &self.workers {
            worker.send(&FromWorker::Confined { steps: Vec::new() }, &[]).expect("there is room");
        }
    }

    /// As the launcher does when a session has ended. A supervisor that got none has removed it itself.
    fn clean_up(&self) {
        if let Some(outputs) = &self.plan.outputs {
            let _gone = std::fs::remove_dir_all(outputs.as_path());
        }
    }

    fn end(&self) {
        for channel in [&self.broker, &self.programs, &self.readers].into_iter().chain(&self.workers) {
            // One that the supervisor has closed by now is ended as well.
            let _closed = shutdown(channel, Shutdown::Write);
        }
    }
}
