//! One confined session: its broker and zygotes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use callgate_policy::envelope::StepReport;
use callgate_policy::path::HostPath;
use callgate_policy::plan::{
    CallPlan, CallWork, Calls, FsAccess, FsRule, Identity, SessionPlan, Starter, Watched, Writer,
};
use callgate_policy::step::Step;
use callgate_tools as tools;
use callgate_worker::protocol::{
    CgroupFds, Channel, ProgramFds, ProgramFdsSent, Received, SessionFds, SessionReply, SessionSteps, StepFailure,
    Threads, ToWorker, notice,
};
use serde_json::Value;

use super::broker::Broker;
use super::cgroup::{Delegated, Group};
use super::channel::AsyncChannel;
use super::endpoint::EndpointOfBroker;
use super::error::{ConfineError, channel};
use super::launcher::Launcher;
use super::logged;
use super::outputs::Outputs;
use super::program::Program;
use super::stdio::Stdio;
use super::terminal::{Terminal, TerminalError, WindowSize};
use super::worker::{ToolRun, Worker};
use super::workers::{PATIENCE, READY_MAX, Workers, Zygote};
use crate::gate::ApprovedPlan;
use crate::turn::Turn;

/// An open session.
pub(crate) struct Opened {
    steps: SessionSteps,
    broker: Arc<Broker>,
    writer: Writer,
    /// True if it has a network, of which its broker always has something to tell.
    network: bool,
    /// Single names that the broker alone may open, because the kernel knows no name.
    names: Vec<HostPath>,
    starter: Starter,
    workers: Workers,
    groups: Option<Arc<Delegated>>,
    /// The session's own `/dev/pts`, if it has one.
    terminals: Option<OwnedFd>,
    /// The tracer's questions, if watchdogs are asked about programs.
    tracer: Option<AsyncChannel>,
}

impl Opened {
    /// Opens a session and has its first worker made.
    pub(crate) async fn open(
        launcher: &Launcher,
        plan: SessionPlan,
        (outputs, credentials): (Option<&Outputs>, Option<OwnedFd>),
        groups: Option<Arc<Delegated>>,
    ) -> Result<Self, ConfineError> {
        let plan = logged::session(plan);
        let (ours, theirs) = Channel::pair().map_err(channel("make the session's channel"))?;
        let (calls, writer, starter, watched) = (plan.calls, plan.writer(), plan.starter(), plan.watched);
        let network = plan.network.is_some();
        let names = plan.names().map(|rule| rule.path.clone()).collect();
        launcher.open(plan, &theirs, (outputs, credentials.as_ref()))?;
        drop((theirs, credentials));
        let ours = AsyncChannel::new(ours).map_err(channel("wait on the session's channel"))?;
        let reply = tokio::time::timeout(PATIENCE, ours.receive::<SessionReply>())
            .await
            .map_err(|_elapsed| ConfineError::TimedOut(PATIENCE))?
            .map_err(channel("hear from the broker"))?;
        launcher.answered();
        let (steps, fds) = match reply {
            Received::Message(SessionReply::Ready { steps, fds: sent }, fds) => {
                (steps, sent.receive(fds).ok_or(ConfineError::Ended)?)
            }
            Received::Message(SessionReply::Failed(failed), _) => return Err(ConfineError::Refused(failed)),
            Received::Message(SessionReply::Report { .. }, _) => return Err(ConfineError::Ended),
            // Killed, or stopped by a step that comes before it can tell.
            Received::Data(_) | Received::Closed => {
                return Err(ConfineError::Refused(StepFailure::new(
                    Step::Session,
                    "its processes ended before they were confined",
                )));
            }
        };
        let SessionFds { programs, readers, notices, tracer, terminals, questions } = fds;
        let wait_on = |fd: OwnedFd, what| AsyncChannel::new(Channel::from(fd)).map_err(channel(what));
        let programs = wait_on(programs, "wait on the zygote's channel")?;
        let workers = match calls {
            Calls::One => Workers::Only(Mutex::new(Some(programs))),
            Calls::Many => {
                let readers = wait_on(readers.ok_or(ConfineError::Ended)?, "wait on the readers' channel")?;
                Workers::Zygotes { programs: Zygote::start(programs).await?, readers: Zygote::start(readers).await? }
            }
        };
        let notices = notice::accept(notices).map_err(channel("take the file of notices"))?;
        let tracer = match watched {
            Some(Watched::Watchdogs) => {
                Some(wait_on(tracer.ok_or(ConfineError::Ended)?, "wait on the tracer's channel")?)
            }
            Some(Watched::Rules) | None => None,
        };
        let questions =
            questions.map(|fd| wait_on(fd, "wait on the log's channel")).transpose()?.map(logged::questions);
        let broker = Arc::new(Broker::new(ours, notices, questions, network));
        Ok(Self { steps, broker, writer, network, names, starter, workers, groups, terminals, tracer })
    }

    /// Where its programs' cgroups are made, if they have any.
    pub(crate) fn groups(&self) -> Option<Arc<Delegated>> {
        self.groups.clone()
    }

    /// The tracer's channel, if watchdogs are asked about programs: whoever takes it must answer, or nothing is started.
    pub(crate) fn tracer(&mut self) -> Option<AsyncChannel> {
        self.tracer.take()
    }

    /// Ends the programs that run, with all that they have started, whoever holds them.
    pub(crate) async fn end_programs(&self) {
        match &self.workers {
            Workers::Zygotes { programs, .. } => programs.kill_all().await,
            // It ends with the session.
            Workers::Only(_) => {}
        }
    }

    /// Steps that confined the session's processes.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &StepReport> {
        self.steps.common.iter().chain(&self.steps.programs).chain(&self.steps.readers)
    }

    /// Steps that confined a call's process: the session's part, and the call's own. `reader` for one that has only read.
    fn confined(&self, reader: bool, call: Vec<StepReport>) -> Vec<StepReport> {
        let side = if reader { &self.steps.readers } else { &self.steps.programs };
        self.steps.common.iter().chain(side).cloned().chain(call).collect()
    }

    /// Takes a worker and hands it a call, with descriptors. One that was killed while it stood ready is passed over.
    async fn start(
        &self,
        (reader, threads): (bool, Threads),
        plan: CallPlan,
        (sent, fds): (ProgramFdsSent, &[BorrowedFd<'_>]),
        turn: Turn,
    ) -> Result<Worker, ConfineError> {
        logged::call(&plan);
        let call = ToWorker::Call { plan: Box::new(plan), fds: sent };
        // All that stood ready may be gone; one that is made for this call and gone as well has a reason.
        let mut left = READY_MAX;
        loop {
            let mut worker = self.take(reader, threads).await?;
            match worker.channel()?.send(&call, fds).await {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe && left > 0 => left -= 1,
                sent => {
                    sent.map_err(channel("hand the worker its call"))?;
                    worker.begins(turn);
                    return Ok(worker);
                }
            }
        }
    }

    /// Takes a worker for a call.
    async fn take(&self, reader: bool, threads: Threads) -> Result<Worker, ConfineError> {
        match &self.workers {
            Workers::Zygotes { programs, readers } => (if reader { readers } else { programs }).take(threads).await,
            Workers::Only(worker) => {
                let channel = worker.lock().unwrap_or_else(PoisonError::into_inner).take();
                Ok(Worker::new(channel.ok_or(ConfineError::Ended)?, None))
            }
        }
    }

    /// Runs a tool in a worker. Its turn is over when nothing of it runs any more, also if this is dropped before.
    pub(crate) async fn tool(&self, plan: ApprovedPlan, arguments: Value, turn: Turn) -> Result<ToolRun, ConfineError> {
        self.tool_with(plan, arguments, None, turn).await
    }

    /// Runs a tool that talks to a program by these streams. Its plan must be one of a reader ([`Opened::reads`]).
    pub(crate) async fn tool_beside(
        &self,
        plan: ApprovedPlan,
        arguments: Value,
        streams: [OwnedFd; 3],
        turn: Turn,
    ) -> Result<ToolRun, ConfineError> {
        self.tool_with(plan, arguments, Some(streams), turn).await
    }

    /// True if a call is one that a reader carries out. Readers have no broker to ask, and so no name but what stood
    /// for it when the session began.
    pub(crate) fn reads(&self, plan: &CallPlan) -> bool {
        let reads = |rule: &FsRule| rule.access == FsAccess::Read && !self.names.contains(&rule.path);
        self.has_readers() && plan.network.is_none() && plan.rules.own().iter().all(reads)
    }

    async fn tool_with(
        &self,
        plan: ApprovedPlan,
        arguments: Value,
        streams: Option<[OwnedFd; 3]>,
        turn: Turn,
    ) -> Result<ToolRun, ConfineError> {
        let timeout = plan.timeout;
        let reader = self.reads(&plan);
        let threads = match &plan.work {
            CallWork::Tool { name, .. } if reader => tools::kind_of(name).threads(),
            CallWork::Tool { .. } | CallWork::Program { .. } => Threads::Never,
        };
        let fds: Vec<BorrowedFd<'_>> = streams.iter().flatten().map(AsFd::as_fd).collect();
        let worker = self.start((reader, threads), plan.into_plan(), (ProgramFdsSent::default(), &fds), turn);
        let mut worker = worker.await?;
        // Held on, they would not end with the program.
        drop(fds);
        drop(streams);
        match tokio::time::timeout(timeout, worker.tool(arguments)).await {
            Ok(Ok((steps, end))) => {
                let tells = !reader && (self.writer.is_broker() || self.network);
                let changes = if tells { self.broker.changes(worker.number()).await } else { None };
                worker.has_answered();
                Ok(ToolRun { steps: self.confined(reader, steps), end, changes })
            }
            Ok(Err(error)) => {
                worker.end().await?;
                Err(error)
            }
            Err(_elapsed) => {
                worker.end().await?;
                Err(ConfineError::TimedOut(timeout))
            }
        }
    }

    /// True if there are workers for what only reads, besides those of programs.
    pub(crate) fn has_readers(&self) -> bool {
        matches!(self.workers, Workers::Zygotes { .. })
    }

    /// Makes a terminal where the session's programs find it by its name.
    pub(crate) fn terminal(&self, size: WindowSize, owner: Identity) -> Result<(Terminal, Stdio), TerminalError> {
        Terminal::make(self.terminals.as_ref(), size, owner)
    }

    /// Starts a program in a worker. With an endpoint, it is the session's agent.
    pub(crate) async fn program(
        &self,
        plan: ApprovedPlan,
        (stdio, endpoint): (Stdio, Option<EndpointOfBroker>),
        turn: Turn,
    ) -> Result<Program, ConfineError> {
        debug_assert!(matches!(plan.work, CallWork::Program { .. }), "a program's plan");
        let group = self.groups.as_ref().map(|groups| groups.group(&plan.bounds)).transpose();
        let group = group.map_err(channel("make a cgroup for the program"))?;
        let watched = group.as_ref().map(Group::descriptors).transpose();
        let watched = watched.map_err(channel("open the program's cgroup"))?;
        let cgroup = watched.as_ref().map(|files| CgroupFds {
            procs: files.procs.as_fd(),
            pids_events: files.pids_events.as_fd(),
            memory_events: files.memory_events.as_fd(),
            memory_peak: files.memory_peak.as_fd(),
        });
        let at_endpoint = endpoint.as_ref().map(EndpointOfBroker::as_fd);
        let (sent, fds) = ProgramFds { cgroup, endpoint: at_endpoint, ..stdio.descriptors() }.send();
        let worker = self.start((false, Threads::Never), plan.into_plan(), (sent, &fds), turn).await?;
        // Held on, the program's pipes would never end for who reads them.
        drop((stdio, endpoint));
        let steps = self.confined(false, worker.confined().await?);
        let tells = self.writer.is_broker() || self.starter == Starter::Broker || self.network;
        let broker = tells.then(|| (Arc::clone(&self.broker), worker.number()));
        Ok(Program::new(worker, steps, group, broker))
    }
}
