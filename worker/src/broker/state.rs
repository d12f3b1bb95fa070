//! State of the broker, which one handler after the other is given, and what they have in common.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use callgate_policy::path::HostPath;
use callgate_policy::plan::{PrivateKind, SessionPlan, Strength};
use callgate_policy::step::Step;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::caller::{Caller, Thread};
use super::calls::{RunningCall, RunningCalls};
use super::changes::ChangeNotices;
use super::gate::ExecGate;
use super::keeper::Keeper;
use super::log::{self, Log};
use super::network::EgressEnd;
use super::together::{HandOver, Together};
use crate::apply::kernel;
use crate::directory::{self, OwnDirectory};
use crate::protocol::{
    Channel, FromEgress, Received, Register, SessionReply, StepFailure, SyscallAnswer, SyscallQuestion, ToBroker,
};
use crate::sys::notify::{self, CallReply, Notification};
use crate::sys::process::Pid;

/// Most of what egress says that is heard before anybody else is.
const AT_ONCE: usize = 1024;

/// A handler: one kind of notification, performed or refused. An error is the caller's errno.
pub(super) type NotificationHandler = fn(&mut Broker, &Caller<'_>, &Notification) -> Result<CallReply, i32>;

/// The session's broker.
pub(super) struct Broker {
    pub(super) handlers: HashMap<i64, NotificationHandler>,
    /// Shared with threads that wait for a blocking connect.
    pub(super) listener: Arc<OwnedFd>,
    /// Until all who could register have let go of it.
    pub(super) registrations: Option<Arc<Channel>>,
    pub(super) calls: RunningCalls,
    pub(super) notices: ChangeNotices,
    /// Places that the session may read, as the plan names them.
    pub(super) readable: Vec<HostPath>,
    pub(super) private: Private,
    /// Most bytes of System V segments that a call may have.
    pub(super) shared_memory: u64,
    /// The number of the session's own network namespace, if it has one.
    pub(super) network: Option<u64>,
    /// The way to what was granted outside, if anything was.
    pub(super) egress: Option<EgressEnd>,
    pub(super) keeper: Keeper,
    /// True if it is asked about openings to read.
    pub(super) reads_too: bool,
    pub(super) strength: Strength,
    /// True if a call's processes may trace one another.
    pub(super) debug: bool,
    /// Where only some programs may be started.
    pub(super) gate: Option<ExecGate>,
    pub(super) masks: Masks,
    pub(super) hand_over: HandOver,
    /// True if the session is over: whoever still asks is refused.
    pub(super) over: Arc<AtomicBool>,
    /// Where the supervisor logs what it is asked.
    pub(super) log: Option<Log>,
}

/// The session's private directory.
pub(super) struct Private {
    pub(super) directory: Arc<OwnedFd>,
    /// How it is named inside.
    pub(super) path: PathBuf,
    pub(super) kind: PrivateKind,
}

impl Private {
    pub(super) fn open(plan: &SessionPlan, directories: &[OwnDirectory]) -> Result<Self, StepFailure> {
        let directory = Arc::new(open_own(plan, directories)?);
        Ok(Self { directory, path: plan.private.inside.as_path().to_owned(), kind: plan.private.kind })
    }
}

/// The callers' file mode creation masks, and the broker's own, which is set to theirs when it makes something for them.
pub(super) struct Masks {
    /// Mask that calls start with.
    pub(super) first: u32,
    /// True if umask(2) is told.
    pub(super) told: bool,
    /// Who has set one last, and when.
    pub(super) changed: Option<(Pid, Instant)>,
    /// The broker's own.
    pub(super) own: u32,
}

/// After this time a thread that was told to go on with its umask(2) has done so.
const SET: Duration = Duration::from_millis(100);

/// The session's private directory: on the host the one that was made for it, in a mount namespace the one that was made
/// there, before anything else is in it.
#[expect(clippy::disallowed_methods, reason = "in a mount tree of the session's own, in which nothing has run yet")]
pub(super) fn open_own(plan: &SessionPlan, directories: &[OwnDirectory]) -> Result<OwnedFd, StepFailure> {
    let path = plan.private.inside.as_path();
    let fail = |e| kernel(Step::PrivateDir, format!("open {}", path.display()), e);
    match plan.private.kind {
        PrivateKind::OnHost => {
            let own = directories.iter().find(|directory| directory.path() == path);
            let own = own.ok_or_else(|| StepFailure::new(Step::PrivateDir, "it was not made"))?;
            own.as_fd().try_clone_to_owned().map_err(fail)
        }
        PrivateKind::InNamespace => {
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
            rustix::fs::open(path, flags, rustix::fs::Mode::empty()).map_err(|e| fail(e.into()))
        }
    }
}

/// A thread that fell over has broken nothing that the end of the session needs.
pub(super) fn locked(broker: &Mutex<Broker>) -> MutexGuard<'_, Broker> {
    broker.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Broker {
    /// Says what a call has changed. False if the supervisor is gone.
    pub(super) fn report(&mut self, supervisor: &Channel) -> io::Result<bool> {
        match supervisor.receive::<ToBroker>()? {
            Received::Message(ToBroker::Report { worker, question, is_over }, _) => {
                self.hear_egress();
                self.count(|_, number| number == worker);
                let unseen = self.keeper.unseen();
                let changes = match is_over {
                    true => self.calls.take_changes(worker, &self.notices)?.report(unseen),
                    false => self.calls.changes(worker).map(|changes| changes.report(unseen)).unwrap_or_default(),
                };
                // One that has gone meanwhile is noticed by the next poll.
                let changes = Box::new(changes);
                let lost = self.log.as_mut().map_or(0, Log::take_lost);
                let _told: io::Result<()> = supervisor.send(&SessionReply::Report { question, changes, lost }, &[]);
                Ok(true)
            }
            Received::Data(_) => Ok(true),
            Received::Closed => Ok(false),
        }
    }

    /// Takes every registration that has come. The only worker of a session lets go of the channel once it is confined.
    pub(super) fn register_all(&mut self) -> io::Result<()> {
        while let Some(channel) = &self.registrations {
            let mut fds = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::ZERO) {
                Ok(0) | Err(nix::Error::EINTR) => return Ok(()),
                Ok(_) => {}
                Err(e) => return Err(e.into()),
            }
            match channel.receive::<Register>()? {
                Received::Message(Register::Worker { pid, worker }, fds) => {
                    self.calls.add(pid, worker, fds.into_iter().next());
                }
                Received::Message(Register::Call { pid, trees, names, read }, _) => {
                    self.calls.narrow(pid, (&trees, &names), read);
                }
                Received::Message(Register::Narrowed { pid, trees, names }, _) => {
                    self.calls.narrow_changes(pid, &trees, &names);
                }
                Received::Message(Register::Reading { pid }, _) => self.calls.only_read(pid),
                Received::Message(Register::Network { pid, network }, _) => {
                    let worker = self.calls.narrow_network(pid, network);
                    if let (Some(egress), Some(worker)) = (&self.egress, worker) {
                        egress.narrowed(worker);
                    }
                }
                Received::Message(Register::Serves { pid }, _) => self.calls.serve_session(pid),
                Received::Message(Register::Endpoint { pid }, fds) => {
                    self.calls.give_endpoint(pid, fds.into_iter().next());
                }
                Received::Message(Register::Again { pid }, _) => {
                    // What egress has said of the call that is over, it said before.
                    self.hear_egress();
                    self.count(|other, _| other == pid);
                    let over = self.calls.renew(pid);
                    self.its_connections_end(over);
                }
                Received::Message(Register::Gone { pid }, _) => {
                    self.hear_egress();
                    self.count(|other, _| other == pid);
                    let over = self.calls.remove(pid).map(|(worker, _)| worker);
                    self.its_connections_end(over);
                }
                Received::Data(_) => {}
                Received::Closed => self.registrations = None,
            }
        }
        Ok(())
    }

    fn its_connections_end(&self, worker: Option<u64>) {
        if let (Some(egress), Some(worker)) = (&self.egress, worker) {
            egress.gone(worker);
        }
    }

    pub(super) fn answer(&mut self, notification: &Notification) -> io::Result<()> {
        let listener = Arc::clone(&self.listener);
        if self.over.load(Ordering::Acquire) {
            return notify::answer(listener.as_fd(), notification.id, CallReply::Fail(libc::EPERM));
        }
        // A program that starts is another process each time, and its starter waits for it.
        let traces = self.gate.as_ref().is_some_and(ExecGate::traces);
        let together = traces || self.hand_over.heard(listener.as_fd(), notification.tid);
        let known = self.calls.known(notification.tid);
        // What a worker says of itself and of its call it says before it asks for anything of that call, and before it starts
        // anything. A worker may have asked before: its registration is behind that. A program that asks again is behind both.
        if known.as_ref().is_none_or(Thread::may_be_worker) {
            self.register_all()?;
        }
        let caller = match known {
            Some(thread) => Caller::again(&listener, notification, thread),
            None => {
                let thread = match Thread::open(notification.tid) {
                    Ok(thread) => thread,
                    Err(_gone) => {
                        return notify::answer(listener.as_fd(), notification.id, CallReply::Fail(libc::EPERM));
                    }
                };
                let Some(caller) = Caller::new(&listener, notification, thread) else { return Ok(()) };
                caller
            }
        };
        let caller = self.logged(caller);
        let answer = match self.handlers.get(&i64::from(notification.nr)) {
            Some(handler) => handler(self, &caller, notification).unwrap_or_else(CallReply::Fail),
            // The filter asks only about calls in the table; a gap between the two fails closed.
            None => CallReply::Fail(libc::EPERM),
        };
        // Before the caller can go on, and its call come to its end.
        self.calls.notice(&caller, &self.notices)?;
        let answer = match answer {
            CallReply::Fd { fd, cloexec } => {
                // The caller is woken to take it, and only then to go on.
                let _together = together.then(|| Together::with(&caller));
                let given = notify::give(listener.as_fd(), notification.id, fd, cloexec);
                given.map_or_else(CallReply::Fail, CallReply::Return)
            }
            answered @ (CallReply::Return(_) | CallReply::Fail(_) | CallReply::Continue | CallReply::Later) => answered,
        };
        // Before the answer: the supervisor has it by the time that the call is over.
        self.log_question(&caller, notification.nr, &answer);
        self.calls.keep(caller.thread);
        notify::answer(listener.as_fd(), notification.id, answer)
    }

    /// The caller, whose paths and reasons are kept where questions are logged. A reason that came before is no answer to it.
    fn logged<'a>(&mut self, caller: Caller<'a>) -> Caller<'a> {
        if self.log.is_none() {
            return caller;
        }
        let _of_another = self.calls.of(&caller).and_then(|call| call.changes.take_last_refusal());
        caller.logged()
    }

    /// Reports a question and its answer, where they are logged.
    fn log_question(&mut self, caller: &Caller<'_>, number: i32, answer: &CallReply) {
        let (Some(log), Some(answer)) = (&mut self.log, log::answered(answer)) else { return };
        let call = self.calls.of(caller);
        let (worker, why) = call.map(|call| (call.asks().0, call.changes.take_last_refusal())).unzip();
        log.send(SyscallQuestion {
            worker,
            thread: caller.tid(),
            call: number,
            about: caller.about(),
            answer,
            why: why.flatten().map(Cow::into_owned),
            lost: 0,
        });
    }

    /// The mask of a caller, which is looked up once unless it may be about to change.
    pub(super) fn mask(&mut self, caller: &Caller<'_>) -> Result<u32, i32> {
        let masks = &self.masks;
        if masks.told && masks.changed.is_none() {
            return Ok(masks.first);
        }
        if let Some(known) = caller.thread.umask.get() {
            return Ok(known);
        }
        let mask = caller.umask()?;
        // Another thread, with which it shares its mask, may have been answered and not have set it yet.
        if masks.told && masks.changed.is_some_and(|(by, when)| by == caller.tid() || when.elapsed() > SET) {
            caller.thread.umask.set(Some(mask));
        }
        Ok(mask)
    }

    /// Makes something as the caller would.
    pub(super) fn masked<T>(
        &mut self,
        caller: &Caller<'_>,
        make: impl FnOnce() -> rustix::io::Result<T>,
    ) -> Result<T, i32> {
        let mask = self.mask(caller)?;
        self.set_mask(mask);
        make().map_err(rustix::io::Errno::raw_os_error)
    }

    /// A program of this thread was not let run: its call's result tells of it. Its arguments are for that, and not for the log.
    pub(super) fn not_started(&mut self, tid: Pid, call: (Pid, u64), argv: String, why: Cow<'static, str>) {
        if let Some(log) = &mut self.log {
            let program = Thread::open(tid).and_then(|thread| thread.image_path());
            log.send(SyscallQuestion {
                worker: self.calls.by_worker(call.0).map(|call| call.asks().0),
                thread: tid,
                call: libc::SYS_execve as i32,
                about: program.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect(),
                answer: SyscallAnswer::Ended,
                why: Some(why.clone().into_owned()),
                lost: 0,
            });
        }
        // Without the notice the supervisor does not ask; the program ends all the same.
        let _noticed: rustix::io::Result<()> = self.calls.not_started(call, argv, why, &self.notices);
    }

    pub(super) fn set_mask(&mut self, mask: u32) {
        if self.masks.own != mask {
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
            self.masks.own = mask;
        }
    }

    /// The call that the caller belongs to. Whoever belongs to none (a leftover on its way out) is refused.
    pub(super) fn call(&mut self, caller: &Caller<'_>) -> Result<&mut RunningCall, i32> {
        self.calls.of(caller).ok_or(libc::EPERM)
    }

    /// Opens a part of the private directory.
    pub(super) fn part(&self, name: &str) -> Result<OwnedFd, i32> {
        directory::open_part(self.private.directory.as_fd(), name).map_err(rustix::io::Errno::raw_os_error)
    }

    /// Takes what a call's connections have carried into its result, before it is told or over.
    pub(super) fn count(&mut self, of: impl Fn(Pid, u64) -> bool) {
        let Some(egress) = &self.egress else { return };
        if let Some(call) = self.calls.find(of).filter(|call| call.changes.went_out) {
            call.changes.carried = egress.carried(call.asks().0);
        }
    }

    /// Takes all that egress has said by itself, for the results of the calls that it is about.
    pub(super) fn hear_egress(&mut self) {
        // Others wait meanwhile; what is not heard yet will be.
        for _ in 0..AT_ONCE {
            let Some(said) = self.egress.as_ref().and_then(EgressEnd::heard) else { return };
            match said {
                FromEgress::Refused { call, host, reason } => self.calls.not_reached(Some(call), host, reason),
                FromEgress::Ended { call, host, reason } => self.calls.not_reached(Some(call), host, Some(reason)),
                FromEgress::NameRefused { call, name } => self.calls.not_reached(call, name, None),
                FromEgress::Serving(_) | FromEgress::Failed(_) => {}
            }
        }
    }
}
