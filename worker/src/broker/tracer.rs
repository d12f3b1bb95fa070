//! The second look at an exec: at the kernel's own copy of what it is about to run.
//!
//! A thread of its own, because ptrace(2) is a thread's: whoever seized must be the one that waits and lets go. For each exec
//! it seizes the thread that asks (which sleeps in its question), has it stop at its next chance, and lets it go on. If the
//! exec succeeds, the thread stops before the new program has run an instruction, and what it is and what its arguments are
//! can no longer be changed by anybody: its memory is new, and the filter keeps everybody else from it. If it fails, the
//! thread stops all the same, and is let go. Everything in between is the kernel's (C14).
//!
//! Invariant: one exec at a time for each process. Seizing a thread waits for an exec of its process to be over, and that exec
//! waits for all threads of its process to be gone, a traced one by its tracer's hand: seizing two would wait for ever.
//!
//! Where watchdogs see every exec, the supervisor is asked while the thread stands there; the others go on meanwhile.
//!
//! Invariant: no lock is waited for here. Whoever holds the broker's may hold it to the end of the session.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use callgate_policy::path::HostPath;
use callgate_policy::plan::exec::Starts;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Broker;
use super::caller::Thread;
use super::exec::{Job, Queue, text};
use crate::protocol::{AboutToRun, Channel, MayRun, Received};
use crate::sys::notify::{self, Answer};
use crate::sys::process::{self, Pid};
use crate::sys::ptrace;
use crate::zygote::drain;

/// Why a program ends whose file the kernel does not tell.
const NO_FILE: &str = "its file cannot be looked at";
/// Most bytes of an argument vector: more than the kernel takes for one at the usual limit of stack (execve(2)).
const ARGV: u64 = 8 * 1024 * 1024;
/// How often, and after how long, telling of a refusal is tried again while the broker is busy.
const TELLING: (u32, Duration) = (100, Duration::from_millis(1));

/// Traces for one session.
pub(super) struct Tracer {
    pub(super) listener: Arc<OwnedFd>,
    pub(super) starts: Arc<Starts>,
    pub(super) writable: Arc<[PathBuf]>,
    pub(super) broker: Arc<Mutex<Broker>>,
    /// By process.
    pub(super) flights: HashMap<Pid, Flight>,
    /// What waits for the exec of its own process to be over.
    pub(super) waiting: Vec<(Pid, Job)>,
    /// How many the watchdogs were asked.
    pub(super) questions: u64,
}

/// An exec under way.
pub(super) struct Flight {
    tid: Pid,
    job: Job,
    /// It stands before its first instruction until the watchdogs have answered.
    asked: Option<Asked>,
}

/// What the watchdogs were asked about.
struct Asked {
    question: u64,
    argv: Vec<Vec<u8>>,
}

/// What is to become of a program that is ready to run.
enum Verdict {
    /// It, with its arguments.
    Runs(Thread, Vec<Vec<u8>>),
    /// Why not, with its arguments.
    Ends(&'static str, Vec<Vec<u8>>),
}

impl Tracer {
    /// Until nobody hands anything on any more. Should this return, the kernel ends all that is being traced.
    pub(super) fn run(mut self, queue: Queue, stops: &OwnedFd) -> io::Result<()> {
        let watchdogs = queue.watchdogs.as_ref();
        loop {
            let waited = [Some(queue.wake.as_fd()), Some(stops.as_fd()), watchdogs.map(Channel::as_fd)];
            let mut fds: Vec<_> = waited.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            let answered = fds.get(2).is_some_and(|fd| fd.any() == Some(true));
            // Before looking: what comes meanwhile wakes it again.
            drain(&queue.wake)?;
            drain(stops)?;
            // Signals coalesce, so all there is, whatever woke it.
            while let Some((pid, status)) = ptrace::next_event()? {
                self.heard(pid, status, watchdogs)?;
            }
            if let Some(watchdogs) = watchdogs.filter(|_| answered) {
                match watchdogs.receive::<MayRun>()? {
                    Received::Message(answer, _) => self.answered(answer)?,
                    // Nobody is left who could say yes. With this thread the kernel ends all that it traces, and the gate
                    // passes nothing on any more.
                    Received::Data(_) | Received::Closed => return Ok(()),
                }
            }
            loop {
                match queue.jobs.try_recv() {
                    Ok(job) => self.take(job)?,
                    Err(std::sync::mpsc::TryRecvError::Empty) => break,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(()),
                }
            }
        }
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
        self.flights.insert(process, Flight { tid, job, asked: None });
        // Before the answer: it stays pending while the thread sleeps in its question, and so stops it once, however the exec
        // goes. If it is gone its end is what will be heard.
        match ptrace::interrupt(tid) {
            Err(e) if e.raw_os_error() != Some(libc::ESRCH) => return Err(e),
            Ok(()) | Err(_) => {}
        }
        // If it was no longer the one that asked, it stops, and is let go.
        if there { notify::answer(self.listener.as_fd(), id, &Answer::Continue) } else { Ok(()) }
    }

    fn refuse(&self, job: &Job) -> io::Result<()> {
        notify::answer(self.listener.as_fd(), job.id, &Answer::Fail(libc::EACCES))
    }

    /// Handles what has become of a thread.
    fn heard(&mut self, pid: Pid, status: i32, watchdogs: Option<&Channel>) -> io::Result<()> {
        if !libc::WIFSTOPPED(status) {
            // It ended; only now does its parent hear of it.
            return self.over(pid);
        }
        match status >> 16 {
            libc::PTRACE_EVENT_EXEC => self.executed(pid, watchdogs),
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
    fn executed(&mut self, pid: Pid, watchdogs: Option<&Channel>) -> io::Result<()> {
        let former = ptrace::former_number(pid).unwrap_or(pid);
        let flight = self.flights.get_mut(&pid).filter(|flight| flight.tid == former || flight.tid == pid);
        let Some(flight) = flight else {
            return process::kill(pid, libc::SIGKILL);
        };
        flight.tid = pid;
        let call = flight.job.call;
        // Layer 1 has judged what callgate starts itself, and layer 2 the call.
        if let Some(started) = &flight.job.own {
            started.store(true, Ordering::Release);
            return self.runs(pid);
        }
        let (thread, argv) = match judge(&self.starts, &self.writable, pid) {
            Verdict::Runs(thread, argv) => (thread, argv),
            Verdict::Ends(why, argv) => return self.ends(pid, call, &argv, why.into()),
        };
        let Some(watchdogs) = watchdogs else { return self.runs(pid) };
        let Ok(program) = thread.image_path() else { return self.ends(pid, call, &argv, NO_FILE.into()) };
        self.questions += 1;
        let question = self.questions;
        let path = |bytes: &[u8]| HostPath::from(PathBuf::from(OsStr::from_bytes(bytes)));
        let words = argv.iter().map(|word| path(word)).collect();
        watchdogs.send(&AboutToRun { question, program: path(&program), argv: words }, &[])?;
        flight.asked = Some(Asked { question, argv });
        Ok(())
    }

    /// The watchdogs have said whether one may run. It may be gone by now.
    fn answered(&mut self, MayRun { question, refused }: MayRun) -> io::Result<()> {
        let about = |flight: &Flight| flight.asked.as_ref().is_some_and(|asked| asked.question == question);
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
        self.tell(call, text(argv), why);
        gone_is_fine(process::kill(pid, libc::SIGKILL))
    }

    /// An exec is over, one way or another. Who waited in the same process is next, if there still is such a thread.
    fn over(&mut self, pid: Pid) -> io::Result<()> {
        let Some(process) = self.flights.iter().find(|(_, flight)| flight.tid == pid).map(|(process, _)| *process)
        else {
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

    /// Has the result name it.
    fn tell(&self, call: (Pid, u64), argv: String, why: Cow<'static, str>) {
        for _ in 0..TELLING.0 {
            match self.broker.try_lock() {
                Ok(mut broker) => return broker.not_started(call, argv, why),
                Err(TryLockError::Poisoned(broken)) => return broken.into_inner().not_started(call, argv, why),
                Err(TryLockError::WouldBlock) => std::thread::sleep(TELLING.1),
            }
        }
    }
}

/// What the kernel is about to run, by what it is, and with which arguments, as it has them.
fn judge(starts: &Starts, writable: &[PathBuf], pid: Pid) -> Verdict {
    let Ok(thread) = Thread::open(pid) else { return Verdict::Ends("it cannot be looked at", Vec::new()) };
    let Ok(argv) = command_line(&thread) else { return Verdict::Ends("its arguments cannot be read", Vec::new()) };
    let Ok(image) = thread.image() else { return Verdict::Ends(NO_FILE, argv) };
    if !image.has_name {
        // Nothing that was granted has no name; a file in memory has none (C7).
        return Verdict::Ends("its file has no name", argv);
    }
    // An empty vector is one that older kernels let programs read past.
    if !argv.is_empty() && starts.admits(image.file, &argv, |word, file| thread.names(word, file, writable)) {
        Verdict::Runs(thread, argv)
    } else {
        Verdict::Ends("it is not granted, and was changed after it had been looked at", argv)
    }
}

/// All of it, or an error (proc_pid_cmdline(5)).
fn command_line(thread: &Thread) -> io::Result<Vec<Vec<u8>>> {
    let mut bytes = Vec::new();
    thread.open_arguments()?.take(ARGV + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > ARGV {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    match bytes.strip_suffix(b"\0") {
        Some(words) => Ok(words.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()),
        None => Ok(Vec::new()),
    }
}

/// The process that a thread belongs to. Of one with a single thread, and so of most that execute, it is that: a pidfd is given
/// for no other (pidfd_open(2)), and costs a tenth of what its status does.
fn process_of(tid: Pid) -> Option<Pid> {
    let number = rustix::process::Pid::from_raw(tid)?;
    if rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty()).is_ok() {
        return Some(tid);
    }
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:")).and_then(|number| number.trim().parse().ok())
}

fn gone_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other,
    }
}
