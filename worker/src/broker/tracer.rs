//! The second look at an exec: at the kernel's own copy of what it is about to run.
//!
//! The thread that answers takes it too, because ptrace(2) is a thread's (whoever seized must be the one that waits and lets
//! go), and because waking another one costs more than all that is done here. For each exec it seizes the thread that asks
//! (which sleeps in its question), has it stop at its next chance, and lets it go on. If the exec succeeds, the thread stops
//! before the new program has run an instruction, and what it is and what its arguments are can no longer be changed by
//! anybody: its memory is new, and the filter keeps everybody else from it. If it fails, the thread stops all the same, and is
//! let go. Everything in between is the kernel's (C14).
//!
//! Invariant: one exec at a time for each process. Seizing a thread waits for an exec of its process to be over, and that exec
//! waits for all threads of its process to be gone, a traced one by its tracer's hand: seizing two would wait for ever.
//!
//! Where the watchdog's rules are to see every exec they are applied here. Where a host's own watchdogs are, the supervisor is
//! asked while the thread stands there, and the others go on meanwhile.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use callgate_policy::path::HostPath;
use callgate_policy::plan::exec::{StartJudgement, StartRequest};
use callgate_policy::watchdog::{self, Builtin};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::caller::{Thread, locate, process_of};
use super::gate::{ExecGate, Eyes, GrantedPrograms, Job, text};
use super::state::{Broker, locked};
use crate::protocol::{AboutToRun, Channel, MayRun, Received};
use crate::sys::notify::{self, CallReply};
use crate::sys::process::{self, Pid};
use crate::sys::ptrace;
use crate::zygote::drain;

/// Reason why a program ends whose file the kernel does not tell.
const NO_FILE: &str = "its file cannot be looked at";
/// Most bytes of an argument vector or an environment: more than the kernel takes for one at the usual limit of stack (execve(2)).
const ARGV: u64 = 8 * 1024 * 1024;
/// Room for most of them, bytes.
const USUAL: usize = 4096;

/// Answers for one session, and traces.
pub(super) struct Tracer {
    listener: Arc<OwnedFd>,
    granted: Arc<GrantedPrograms>,
    writable: Arc<[PathBuf]>,
    broker: Arc<Mutex<Broker>>,
    /// Layer 2 judges too.
    watched: bool,
    /// To the supervisor's watchdogs, if they are to be asked. Otherwise the built-in rules alone are.
    watchdogs: Option<Channel>,
    /// Tells that a traced thread has come to something.
    stops: OwnedFd,
    /// By process.
    flights: HashMap<Pid, ExecFlight>,
    /// Jobs that wait for the exec of their own process to be over.
    waiting: Vec<(Pid, Job)>,
    /// How many the watchdogs were asked.
    questions: u64,
}

/// An exec under way.
struct ExecFlight {
    tid: Pid,
    job: Job,
    /// It stands before its first instruction until the watchdogs have answered.
    asked: Option<WatchdogQuestion>,
}

/// Question to the watchdogs.
struct WatchdogQuestion {
    question: u64,
    argv: Vec<Vec<u8>>,
}

/// Fate of a program that is ready to run.
enum ProgramFate {
    /// It, with its arguments.
    Runs(Thread, Vec<Vec<u8>>),
    /// It ends for a reason, with its arguments.
    Ends(Cow<'static, str>, Vec<Vec<u8>>),
}

impl Tracer {
    /// For a session in which execs are looked at by tracing. Comes before threads are made, which are to block the signal of
    /// stops too.
    pub(super) fn of(shared: &Arc<Mutex<Broker>>, watchdogs: Option<Channel>) -> io::Result<Option<Self>> {
        let broker = locked(shared);
        let Some(gate) = broker.gate.as_ref().filter(|gate| gate.traces()) else { return Ok(None) };
        Ok(Some(Self {
            listener: Arc::clone(&broker.listener),
            granted: Arc::clone(&gate.granted),
            writable: Arc::clone(&gate.writable),
            broker: Arc::clone(shared),
            watched: gate.watched,
            watchdogs,
            stops: ptrace::stops_as_fd()?,
            flights: HashMap::new(),
            waiting: Vec::new(),
            questions: 0,
        }))
    }

    /// Until nobody can ask any more. Should this return, the kernel ends all that is being traced.
    pub(super) fn run(mut self) -> io::Result<()> {
        loop {
            let waited =
                [Some(self.listener.as_fd()), Some(self.stops.as_fd()), self.watchdogs.as_ref().map(Channel::as_fd)];
            let mut fds: Vec<_> = waited.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            let happened = |at: usize| fds.get(at).and_then(PollFd::revents).unwrap_or(PollFlags::empty());
            let (asked, stopped, answered) = (happened(0), happened(1), happened(2));
            if stopped.contains(PollFlags::POLLIN) {
                // Before looking: what comes meanwhile wakes it again. Signals coalesce, so all there is.
                drain(&self.stops)?;
                while let Some((pid, status)) = ptrace::next_event()? {
                    self.heard(pid, status)?;
                }
            }
            if let Some(watchdogs) = self.watchdogs.as_ref().filter(|_| !answered.is_empty()) {
                match watchdogs.receive::<MayRun>()? {
                    Received::Message(answer, _) => self.answered(answer)?,
                    // Nobody is left who could say yes.
                    Received::Data(_) | Received::Closed => return Ok(()),
                }
            }
            if asked.contains(PollFlags::POLLIN) {
                self.answer()?;
            } else if notify::says_over(asked) {
                return Ok(());
            }
        }
    }

    /// Answers one question. There is one, so that taking it does not wait.
    fn answer(&mut self) -> io::Result<()> {
        let Some(notification) = notify::receive(self.listener.as_fd())? else { return Ok(()) };
        let passed = {
            let mut broker = locked(&self.broker);
            broker.answer(&notification)?;
            broker.gate.as_mut().and_then(ExecGate::passed)
        };
        passed.map_or(Ok(()), |job| self.take(job))
    }

    fn take(&mut self, job: Job) -> io::Result<()> {
        let process = process_of(job.tid);
        // What was read by its number was this thread's.
        if !notify::is_valid(self.listener.as_fd(), job.id) {
            return Ok(());
        }
        match process {
            Some(process) if self.flights.contains_key(&process) => self.waiting.push((process, job)),
            Some(process) => self.start(process, job)?,
            None => self.refuse(&job)?,
        }
        Ok(())
    }

    fn start(&mut self, process: Pid, job: Job) -> io::Result<()> {
        let (tid, id) = (job.tid, job.id);
        if let Err(e) = ptrace::seize(tid) {
            // Another traces it (a debugger inside), or it is gone.
            return if e.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { self.refuse(&job) };
        }
        let there = notify::is_valid(self.listener.as_fd(), id);
        // From here on the kernel tells of whatever becomes of it.
        self.flights.insert(process, ExecFlight { tid, job, asked: None });
        // Before the answer: it stays pending while the thread sleeps in its question, and so stops it once, however the exec
        // goes. If it is gone its end is what will be heard.
        match ptrace::interrupt(tid) {
            Err(e) if e.raw_os_error() != Some(libc::ESRCH) => return Err(e),
            Ok(()) | Err(_) => {}
        }
        // If it was no longer the one that asked, it stops, and is let go.
        if there { notify::answer(self.listener.as_fd(), id, CallReply::Continue) } else { Ok(()) }
    }

    fn refuse(&self, job: &Job) -> io::Result<()> {
        notify::answer(self.listener.as_fd(), job.id, CallReply::Fail(libc::EACCES))
    }

    /// Handles what has become of a thread.
    fn heard(&mut self, pid: Pid, status: i32) -> io::Result<()> {
        if !libc::WIFSTOPPED(status) {
            // It ended; only now does its parent hear of it.
            return self.over(pid);
        }
        match status >> 16 {
            libc::PTRACE_EVENT_EXEC => self.executed(pid),
            // The exec did not happen, or nobody asked for one.
            libc::PTRACE_EVENT_STOP => {
                gone_is_fine(ptrace::detach(pid))?;
                self.over(pid)
            }
            0 => gone_is_fine(ptrace::go_on(pid, libc::WSTOPSIG(status))),
            _ => gone_is_fine(ptrace::go_on(pid, 0)),
        }
    }

    /// It stands before its first instruction. Its number is its process's by now, whichever thread it was.
    fn executed(&mut self, pid: Pid) -> io::Result<()> {
        let former = ptrace::former_number(pid).unwrap_or(pid);
        let flight = self.flights.get_mut(&pid).filter(|flight| flight.tid == former || flight.tid == pid);
        let Some(flight) = flight else {
            return process::kill(pid, libc::SIGKILL);
        };
        flight.tid = pid;
        let call = flight.job.call;
        if let Some(started) = &flight.job.own {
            started.store(true, Ordering::Release);
        }
        // Layer 1 has judged what callgate starts itself, and layer 2 the call.
        if flight.job.is_settled {
            return self.runs(pid);
        }
        let is_own = flight.job.own.is_some();
        let (thread, argv) = match judge(&self.granted, flight.job.reads, &self.writable, pid) {
            ProgramFate::Runs(thread, argv) => (thread, argv),
            ProgramFate::Ends(why, argv) => return self.ends(pid, call, &argv, why),
        };
        if !self.watched || is_own {
            return self.runs(pid);
        }
        let Ok(program) = thread.image_path() else { return self.ends(pid, call, &argv, NO_FILE.into()) };
        let Some(watchdogs) = &self.watchdogs else {
            return match Builtin.judge_start(&program, argv.iter().map(Vec::as_slice)) {
                watchdog::Verdict::Allow => self.runs(pid),
                // There is nobody here who could be asked.
                watchdog::Verdict::Ask(why) | watchdog::Verdict::Deny(why) => {
                    self.ends(pid, call, &argv, why.told().into())
                }
            };
        };
        self.questions += 1;
        let question = self.questions;
        let path = |bytes: &[u8]| HostPath::from(PathBuf::from(OsStr::from_bytes(bytes)));
        let words = argv.iter().map(|word| path(word)).collect();
        watchdogs.send(&AboutToRun { question, program: path(&program), argv: words }, &[])?;
        flight.asked = Some(WatchdogQuestion { question, argv });
        Ok(())
    }

    /// The watchdogs have said whether one may run. It may be gone by now.
    fn answered(&mut self, MayRun { question, refused }: MayRun) -> io::Result<()> {
        let about = |flight: &ExecFlight| flight.asked.as_ref().is_some_and(|asked| asked.question == question);
        let Some(flight) = self.flights.values_mut().find(|flight| about(flight)) else { return Ok(()) };
        let (pid, call) = (flight.tid, flight.job.call);
        match (refused, flight.asked.take()) {
            (Some(why), Some(asked)) => self.ends(pid, call, &asked.argv, why.into()),
            _ => self.runs(pid),
        }
    }

    fn runs(&mut self, pid: Pid) -> io::Result<()> {
        gone_is_fine(ptrace::detach(pid))?;
        self.over(pid)
    }

    fn ends(&self, pid: Pid, call: (Pid, u64), argv: &[Vec<u8>], why: Cow<'static, str>) -> io::Result<()> {
        // First, for with it its call may end.
        locked(&self.broker).not_started(pid, call, text(argv), why);
        gone_is_fine(process::kill(pid, libc::SIGKILL))
    }

    /// An exec is over, one way or another. Who waited in the same process is next, if there still is such a thread.
    fn over(&mut self, pid: Pid) -> io::Result<()> {
        // By its process's number first: a thread that executes takes it, and may die before that is heard.
        let by_thread = || self.flights.iter().find(|(_, flight)| flight.tid == pid).map(|(process, _)| *process);
        let Some(process) = Some(pid).filter(|pid| self.flights.contains_key(pid)).or_else(by_thread) else {
            return Ok(());
        };
        self.flights.remove(&process);
        while let Some(at) = self.waiting.iter().position(|(waits, _)| *waits == process) {
            let (_, job) = self.waiting.swap_remove(at);
            if notify::is_valid(self.listener.as_fd(), job.id) {
                self.start(process, job)?;
                if self.flights.contains_key(&process) {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Judges what the kernel is about to run, by what it is, and with which arguments, as it has them.
fn judge(granted: &GrantedPrograms, reads: bool, writable: &[PathBuf], pid: Pid) -> ProgramFate {
    let Ok(thread) = Thread::open(pid) else { return ProgramFate::Ends("it cannot be looked at".into(), Vec::new()) };
    let Ok(argv) = thread.open_arguments().and_then(strings) else {
        return ProgramFate::Ends("its arguments cannot be read".into(), Vec::new());
    };
    let Ok(image) = thread.image() else { return ProgramFate::Ends(NO_FILE.into(), argv) };
    if !image.has_name {
        // Nothing that was granted has no name; a file in memory has none (C7).
        return ProgramFate::Ends("its file has no name".into(), argv);
    }
    // Where it lies is asked only where that has a say.
    let trees = Some(&granted.trees).filter(|trees| !trees.is_empty());
    let located = trees.and_then(|trees| locate(trees, thread.pin_image().ok()?.as_fd()).ok());
    let located = located.map(|(_, located)| located).unwrap_or_default();
    let mut environment = Vec::new();
    if granted.looks_at_environment(reads, image.file, &located) {
        match thread.open_environment().and_then(strings) {
            Ok(read) => environment = read,
            Err(_) => return ProgramFate::Ends("its environment cannot be read".into(), argv),
        }
    }
    // An empty vector is one that older kernels let programs read past.
    let eyes = Eyes { thread: &thread, writable };
    let told = StartRequest { file: image.file, located: &located, argv: &argv, environment: &environment };
    let judged =
        if argv.is_empty() { StartJudgement::NotGranted } else { granted.judge(reads, |all| all.admits(told, &eyes)) };
    match judged {
        StartJudgement::Granted => ProgramFate::Runs(thread, argv),
        StartJudgement::NotGranted | StartJudgement::Interpreter(_) | StartJudgement::Library => {
            ProgramFate::Ends("it is not granted, and was changed after it had been looked at".into(), argv)
        }
        steered @ StartJudgement::Steered(_) => ProgramFate::Ends(steered.refusal().unwrap_or_default().into(), argv),
    }
}

/// All strings of an argument vector or an environment, or an error (proc_pid_cmdline(5), proc_pid_environ(5)).
fn strings(file: fs::File) -> io::Result<Vec<Vec<u8>>> {
    let mut bytes = Vec::with_capacity(USUAL);
    file.take(ARGV + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > ARGV {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    match bytes.strip_suffix(b"\0") {
        Some(words) => Ok(words.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()),
        None => Ok(Vec::new()),
    }
}

fn gone_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other,
    }
}
