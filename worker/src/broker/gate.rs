//! The gate before every exec: the programs that a session may start, and the first look at a start.

use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use callgate_policy::envelope::StepReport;
use callgate_policy::pattern::ProgramPattern;
use callgate_policy::plan::exec::{self, FileId, Header, Located, StartJudgement, Starts, WordMeaning};
use callgate_policy::plan::{SessionPlan, Watched};
use callgate_policy::step::Step;

use super::caller::{Caller, LastLink, Thread, header_of, locate};
use crate::apply::{done, failure};
use crate::procfs::Procfs;
use crate::programs::{DEPTH, FoundPrograms, ProgramTree};
use crate::protocol::{Channel, StepFailure};
use crate::sys::notify::CallReply;
use crate::sys::process::{self, Fork, OneThread, Pid};
use crate::sys::ptrace;

/// Most bytes of one argument, its NUL included (`MAX_ARG_STRLEN`, execve(2)).
const ARGUMENT: usize = 128 * 1024;
/// Most variables that the first look reads. Of an environment with more, what lies behind counts as gone.
const VARIABLES: usize = 1024;
/// How many arguments of a refused start are shown, and how many characters of it all.
pub(super) const SHOWN: (usize, usize) = (12, 200);

/// Start that is asked about.
pub(super) struct ExecRequest {
    pub(super) directory: i32,
    /// Empty for the descriptor itself.
    pub(super) path: CString,
    pub(super) argv: u64,
    pub(super) environment: u64,
    pub(super) links: LastLink,
}

/// An exec that has passed the first look.
pub(super) struct Job {
    /// Number of the question.
    pub(super) id: u64,
    pub(super) tid: Pid,
    /// The worker of its call, and the call's number.
    pub(super) call: (Pid, u64),
    /// It is what callgate starts itself for the call; to be set once it has started.
    pub(super) own: Option<Arc<AtomicBool>>,
    /// Layer 1 has judged it, and needs no file for that.
    pub(super) is_settled: bool,
    /// True in a call that only reads.
    pub(super) reads: bool,
}

/// Programs that may be started.
pub(super) struct GrantedPrograms {
    session: Starts,
    /// By calls that only read, and by the session's grants as well. In a session without such calls: nothing.
    reading: Starts,
    /// The directories of which the session's grants say that all below them may be started.
    pub(super) trees: Vec<ProgramTree>,
}

impl GrantedPrograms {
    /// By all of which a start of a call is to be granted.
    fn of(&self, reads: bool) -> impl Iterator<Item = &Starts> {
        std::iter::once(&self.session).chain(reads.then_some(&self.reading))
    }

    /// True if the environment of a file has a say.
    pub(super) fn looks_at_environment(&self, reads: bool, file: FileId, located: &Located) -> bool {
        self.of(reads).any(|starts| starts.looks_at_environment(file, located))
    }

    /// How many arguments the first look reads; `None` if a file is not granted at all.
    fn looks_at(&self, reads: bool, file: FileId, located: &Located) -> Option<usize> {
        let counts: Option<Vec<usize>> = self.of(reads).map(|starts| starts.looks_at(file, located)).collect();
        Some(counts?.into_iter().max().unwrap_or(0))
    }

    /// Judged by each; the first that does not grant it says why.
    pub(super) fn judge(&self, reads: bool, judge: impl Fn(&Starts) -> StartJudgement) -> StartJudgement {
        self.of(reads).map(judge).find(|judged| *judged != StartJudgement::Granted).unwrap_or(StartJudgement::Granted)
    }
}

/// Meaning of words to whoever starts something.
pub(super) struct Eyes<'a> {
    pub(super) thread: &'a Thread,
    /// Where the session writes.
    pub(super) writable: &'a [PathBuf],
}

impl WordMeaning for Eyes<'_> {
    fn names(&self, word: &[u8], file: FileId) -> bool {
        self.thread.names(word, file, self.writable)
    }

    fn is_fixed(&self, directory: &[u8]) -> bool {
        self.thread.is_fixed(directory, self.writable)
    }
}

/// How the second look is taken.
enum Second {
    /// By the tracer. This is what it is to look at next.
    Tracer(Option<Job>),
    /// By Landlock alone. This file is callgate's own, from which it starts programs.
    Landlock { own: Option<FileId> },
}

/// Gate before every exec of a session.
pub(super) struct ExecGate {
    pub(super) granted: Arc<GrantedPrograms>,
    /// Where the session writes.
    pub(super) writable: Arc<[PathBuf]>,
    /// Layer 2 judges too, at the second look.
    pub(super) watched: bool,
    second: Second,
}

/// A gate as it was made.
pub(super) struct MadeGate {
    pub(super) gate: ExecGate,
    /// The tracer's end of its channel and the supervisor's, if watchdogs are asked.
    pub(super) watchdogs: Option<(Channel, Channel)>,
    pub(super) step: StepReport,
}

impl ExecGate {
    /// Finds out whether this host lets the broker trace. Where it does not, arguments cannot be held to anything.
    pub(super) fn make(
        plan: &SessionPlan,
        (found, reading): (FoundPrograms, Option<Starts>),
        writable: Arc<[PathBuf]>,
        one_thread: OneThread,
    ) -> Result<MadeGate, StepFailure> {
        let reads = reading.as_ref().map_or("", |_| ", fewer to calls that only read");
        let listed = |what: &str, programs: &[ProgramPattern]| {
            let programs: Vec<String> = programs.iter().map(ToString::to_string).collect();
            if programs.is_empty() { String::new() } else { format!(", {what}: {}", programs.join(" ")) }
        };
        let missing = listed("not found", &found.missing) + &listed("not readable", &found.unreadable);
        let (session, reading) = (found.starts, reading.unwrap_or_default());
        let granted = Arc::new(GrantedPrograms { session, reading, trees: found.trees });
        let programs = plan.exec.rules().len();
        match can_trace(one_thread) {
            Ok(()) => {
                let (watchdogs, watched) = match plan.watched {
                    Some(Watched::Watchdogs) => {
                        let pair = Channel::pair().map_err(failure(Step::Channels, "socketpair"))?;
                        (Some(pair), ", each shown to the watchdogs")
                    }
                    Some(Watched::Rules) => (None, ", each shown to the watchdog's rules"),
                    None => (None, ""),
                };
                let step = done(Step::Programs, format!("argv verified, {programs} granted{reads}{missing}{watched}"));
                let gate = Self { granted, writable, watched: plan.watched.is_some(), second: Second::Tracer(None) };
                Ok(MadeGate { gate, watchdogs, step })
            }
            Err(_barred) if plan.watched.is_some() || plan.exec.judges_arguments() => {
                Err(StepFailure::new(Step::Programs, BARRED))
            }
            Err(barred) => {
                let own = Thread::open(process::id()).and_then(|this| this.image()).ok().map(|image| image.file);
                let held = format!("program only (ptrace: {barred}), {programs} granted{reads}{missing}");
                let step = done(Step::Programs, held);
                let gate = Self { granted, writable, watched: false, second: Second::Landlock { own } };
                Ok(MadeGate { gate, watchdogs: None, step })
            }
        }
    }

    /// True if a caller is callgate's own child that has not started its program yet.
    pub(super) fn is_own(&self, caller: &Caller<'_>, worker: Pid, started: &AtomicBool) -> bool {
        match &self.second {
            // Nothing else of the call runs before that, and the tracer sees it started before it runs.
            Second::Tracer(_) => !started.load(Ordering::Acquire),
            Second::Landlock { own } => {
                let image = caller.thread.image().ok();
                image.is_some_and(|image| Some(image.file) == *own)
                    && Procfs::USUAL.parent_of(caller.tid()) == Some(worker)
            }
        }
    }

    /// The first look. `Err` if it cannot be taken.
    pub(super) fn look(&self, caller: &Caller<'_>, asked: &ExecRequest, reads: bool) -> Result<StartJudgement, i32> {
        // What a program runs to start itself again; the link is followed for the caller.
        let is_itself = asked.path.as_bytes() == b"/proc/self/exe";
        if self.granted.trees.is_empty() {
            let file = match is_itself {
                true => caller.thread.image()?.file,
                false => caller.identity(asked.directory, &asked.path, asked.links)?,
            };
            return self.could_start(caller, asked, (file, &Located::default()), &[], reads);
        }
        let held = match is_itself {
            true => caller.thread.pin_image()?,
            false => caller.pin(asked.directory, &asked.path, asked.links)?,
        };
        let (file, located) = locate(&self.granted.trees, held.as_fd())?;
        let judged = self.could_start(caller, asked, (file, &located), &[], reads)?;
        if judged == StartJudgement::Granted && !located.below.is_empty() {
            return self.look_at_interpreters(caller, asked, held, reads);
        }
        Ok(judged)
    }

    /// Judges whether what interprets a script of a tree could be started with it. Nothing depends on that: the kernel
    /// starts the interpreter, and the second look is at that. But an honest program gets an errno here, and the result
    /// says why.
    fn look_at_interpreters(
        &self,
        caller: &Caller<'_>,
        asked: &ExecRequest,
        mut held: OwnedFd,
        reads: bool,
    ) -> Result<StartJudgement, i32> {
        // What the kernel calls a script that is named from a directory (execveat(2)).
        let mut name = match (asked.path.as_bytes(), asked.directory) {
            (path, libc::AT_FDCWD) => path.to_vec(),
            (path, _) if path.starts_with(b"/") => path.to_vec(),
            (b"", directory) => format!("/dev/fd/{directory}").into_bytes(),
            (path, directory) => [format!("/dev/fd/{directory}/").as_bytes(), path].concat(),
        };
        let mut head: Vec<Vec<u8>> = Vec::new();
        for _ in 0..DEPTH {
            let Some(Header::Script { interpreter, argument }) = header_of(held.as_fd()) else { break };
            head = [Some(interpreter.clone()), argument, Some(name)]
                .into_iter()
                .flatten()
                .chain(head.into_iter().skip(1))
                .collect();
            let path = CString::new(interpreter.clone()).map_err(|_nul| libc::ENOENT)?;
            // One that is not there is the kernel's to tell.
            let Ok(found) = caller.pin(libc::AT_FDCWD, &path, LastLink::Follow) else { break };
            let (file, located) = locate(&self.granted.trees, found.as_fd())?;
            match self.could_start(caller, asked, (file, &located), &head, reads)? {
                StartJudgement::NotGranted => return Ok(StartJudgement::Interpreter(interpreter)),
                StartJudgement::Granted => {}
                other @ (StartJudgement::Interpreter(_) | StartJudgement::Library | StartJudgement::Steered(_)) => {
                    return Ok(other);
                }
            }
            (held, name) = (found, interpreter);
        }
        Ok(StartJudgement::Granted)
    }

    /// Judges whether a file could be started, with these words in the place of the caller's first if there are any.
    fn could_start(
        &self,
        caller: &Caller<'_>,
        asked: &ExecRequest,
        (file, located): (FileId, &Located),
        head: &[Vec<u8>],
        reads: bool,
    ) -> Result<StartJudgement, i32> {
        let Some(count) = self.granted.looks_at(reads, file, located) else { return Ok(StartJudgement::NotGranted) };
        let mut argv = arguments(caller, asked.argv, count + 1)?;
        if !head.is_empty() {
            argv = head.iter().cloned().chain(argv.into_iter().skip(1)).collect();
        }
        let environment = match self.granted.looks_at_environment(reads, file, located) {
            true => arguments(caller, asked.environment, VARIABLES)?,
            false => Vec::new(),
        };
        let told = exec::StartRequest { file, located, argv: &argv, environment: &environment };
        let eyes = Eyes { thread: &caller.thread, writable: &self.writable };
        Ok(self.granted.judge(reads, |starts| starts.could_start(told, &eyes)))
    }

    /// Hands it on to the second.
    pub(super) fn pass(&mut self, job: Job) -> CallReply {
        match &mut self.second {
            Second::Tracer(passed) => {
                *passed = Some(job);
                CallReply::Later
            }
            Second::Landlock { .. } => CallReply::Continue,
        }
    }

    /// Job that was handed on to the tracer.
    pub(super) fn passed(&mut self) -> Option<Job> {
        match &mut self.second {
            Second::Tracer(passed) => passed.take(),
            Second::Landlock { .. } => None,
        }
    }

    pub(super) fn traces(&self) -> bool {
        matches!(self.second, Second::Tracer(_))
    }
}

/// Advice where tracing is barred.
const BARRED: &str = "this host lets nobody trace, so that arguments cannot be verified as the kernel has them; set \
                      kernel.yama.ptrace_scope to 0 or 1 and let a container's seccomp profile allow ptrace, or grant \
                      programs without `args` and have no watchdog see every exec";

/// Traces a child of this process for a moment: an ancestor is what the broker will be to all that it traces.
pub(super) fn can_trace(one_thread: OneThread) -> std::io::Result<()> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match process::fork(one_thread, 0)? {
        Fork::Child => {
            drop(writer);
            // Until the other end is closed.
            let ended = rustix::io::read(&reader, &mut [0_u8; 1]);
            process::exit_now(i32::from(ended.is_err()))
        }
        Fork::Parent(child) => {
            let seized = ptrace::seize(child);
            process::kill(child, libc::SIGKILL)?;
            drop(writer);
            match process::wait_for(child) {
                // Reaped by the kernel, since this process ignores its children.
                Err(e) if e.raw_os_error() != Some(libc::ECHILD) => Err(e),
                Ok(()) | Err(_) => seized,
            }
        }
    }
}

/// The first words of an argument vector.
pub(super) fn arguments(caller: &Caller<'_>, argv: u64, most: usize) -> Result<Vec<Vec<u8>>, i32> {
    // Linux takes a null pointer for an empty vector.
    let pointers = if argv == 0 { Vec::new() } else { caller.pointers(argv, most)? };
    let word = |pointer| caller.string(pointer, ARGUMENT).map(CString::into_bytes).map_err(too_long);
    pointers.into_iter().map(word).collect()
}

/// Errno of the kernel for an argument that is too long.
fn too_long(errno: i32) -> i32 {
    if errno == libc::ENAMETOOLONG { libc::E2BIG } else { errno }
}

/// Words in one line, cut to a length.
pub(super) fn text(words: &[Vec<u8>]) -> String {
    let line = words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
    let mut text: String = line.chars().take(SHOWN.1).collect();
    if text.len() < line.len() {
        text.push('…');
    }
    text
}
