//! Costs of sessions: memory, opening, and calls per second.

use std::time::{Duration, Instant};

use callgate::{Session, SessionSpec, StrengthChoice, Supervisor};
use callgate_policy::envelope::Outcome;
use callgate_policy::mode::Mode;
use rustix::process::{Resource, Rlimit};
use serde_json::json;
use tokio::task::JoinSet;

use super::scratch::{FILE, Scratch};
use crate::exit::CommandFailure;
use crate::processes::{self, Descendants, ProcessId};

/// Broker, two zygotes and the worker that stands ready at each.
const PROCESSES: usize = 5;
/// Calls for calls per second, all callers together, for each run of a subject.
pub(super) const RATE_CALLS_PER_RUN: u32 = 10;

/// Opens sessions for the scratch directory, all alike.
pub(super) struct Opener<'a> {
    pub(super) supervisor: &'a Supervisor,
    pub(super) scratch: &'a Scratch,
    pub(super) strength: StrengthChoice,
}

/// A session and its processes.
pub(super) struct MeasuredSession {
    pub(super) session: Session,
    processes: Vec<ProcessId>,
}

impl Opener<'_> {
    /// Specification with what `callgate run` asks for.
    pub(super) fn spec(&self) -> SessionSpec {
        let mut spec = SessionSpec::developer(self.scratch.path());
        spec.strength = self.strength;
        spec.mode = Some(Mode::Yolo);
        spec
    }

    /// Opens one, and waits until its worker stands ready.
    pub(super) async fn open(&self) -> Result<MeasuredSession, CommandFailure> {
        let look = || processes::own_descendants().map_err(CommandFailure::io("look at the session's processes"));
        let before = look()?;
        let session = self.supervisor.open(self.spec()).await?;
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let processes: Vec<ProcessId> = look()?.into_iter().filter(|pid| !before.contains(pid)).collect();
            if processes.len() >= PROCESSES {
                // Forked is not yet waiting: it still touches pages of its own.
                tokio::time::sleep(Duration::from_millis(5)).await;
                return Ok(MeasuredSession { session, processes });
            }
            if Instant::now() > deadline {
                let reason = format!("{} of its {PROCESSES} processes are there", processes.len());
                return Err(CommandFailure::Subject { subject: "a session".to_owned(), reason });
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl MeasuredSession {
    pub(super) fn strength(&self) -> &'static str {
        match self.session.plan().strength {
            callgate_policy::plan::Strength::Landlock => "Landlock and seccomp",
            callgate_policy::plan::Strength::Namespaces => "Landlock, seccomp and namespaces",
        }
    }

    /// CPU time of broker and zygotes, of the programs' worker with all programs it has reaped, and of all readers that their
    /// zygote has reaped.
    pub(super) fn cpu(&self) -> Result<Duration, CommandFailure> {
        // The reader that stood ready at first is gone after the first call.
        let lasting = self.processes.iter().filter_map(|pid| processes::cpu(*pid).ok());
        Ok(lasting.sum())
    }

    fn private_kib(&self) -> Result<u64, CommandFailure> {
        let all = self.processes.iter().map(|pid| processes::private_kib(*pid));
        all.sum::<std::io::Result<u64>>().map_err(CommandFailure::io("read the memory of the session's processes"))
    }
}

/// Raises the limit of open files: each session costs this process three descriptors, and the usual soft limit is 1,024.
pub(super) fn open_many_files() -> Result<(), CommandFailure> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .map_err(|e| CommandFailure::runtime(e.into()))
}

/// Private memory of a session that was opened and has done nothing, in KiB.
pub(super) async fn idle_memory(opener: &Opener<'_>) -> Result<u64, CommandFailure> {
    opener.open().await?.private_kib()
}

/// Reads per second.
pub(super) struct Rates {
    pub(super) one_caller: f64,
    pub(super) two_callers: f64,
    pub(super) two_sessions: f64,
    /// By so many sessions at once, a caller each.
    pub(super) many_sessions: f64,
}

/// Sessions that make calls at once.
pub(super) const AT_ONCE: usize = 50;

/// How many calls are made per second one after the other, by two callers of one session, and by two of two.
pub(super) async fn rates(opener: &Opener<'_>, calls: u32) -> Result<Rates, CommandFailure> {
    let (first, second) = (opener.open().await?, opener.open().await?);
    reads(&first.session, calls / 10).await?;
    reads(&second.session, calls / 10).await?;
    let per_second = |started: Instant| f64::from(calls) / started.elapsed().as_secs_f64();
    let started = Instant::now();
    reads(&first.session, calls).await?;
    let one_caller = per_second(started);
    let started = Instant::now();
    tokio::try_join!(reads(&first.session, calls / 2), reads(&first.session, calls / 2))?;
    let two_callers = per_second(started);
    let started = Instant::now();
    tokio::try_join!(reads(&first.session, calls / 2), reads(&second.session, calls / 2))?;
    let two_sessions = per_second(started);
    drop((first, second));
    let many_sessions = at_once(opener, calls).await?;
    Ok(Rates { one_caller, two_callers, two_sessions, many_sessions })
}

/// Reads per second of many sessions at once, a caller each.
async fn at_once(opener: &Opener<'_>, calls: u32) -> Result<f64, CommandFailure> {
    let each = (calls / u32::try_from(AT_ONCE).unwrap_or(u32::MAX)).max(2);
    let mut sessions = Vec::new();
    for _ in 0..AT_ONCE {
        let session = opener.supervisor.open(opener.spec()).await?;
        reads(&session, 1).await?;
        sessions.push(session);
    }
    let started = Instant::now();
    let mut callers = JoinSet::new();
    for session in sessions {
        callers.spawn(async move { reads(&session, each).await.map(|()| session) });
    }
    let (mut made, mut open) = (0, Vec::new());
    while let Some(done) = callers.join_next().await {
        // What it takes to close a session is not what its calls take.
        open.push(done.map_err(|error| CommandFailure::runtime(std::io::Error::other(error)))??);
        made += each;
    }
    Ok(f64::from(made) / started.elapsed().as_secs_f64())
}

async fn reads(session: &Session, calls: u32) -> Result<(), CommandFailure> {
    for _ in 0..calls {
        let envelope = session.call("read", json!({ "path": FILE })).await;
        if envelope.kind == Outcome::Error {
            let reason = envelope.error_text.unwrap_or_default();
            return Err(CommandFailure::Subject { subject: "read".to_owned(), reason });
        }
    }
    Ok(())
}

/// Many sessions at once.
pub(super) struct Many {
    pub(super) asked: u32,
    pub(super) opened: u32,
    /// Reason why not all of them.
    pub(super) stopped: Option<String>,
    pub(super) per_session: Duration,
    pub(super) slowest: Duration,
    /// All their processes together, when all are open.
    pub(super) private_kib: u64,
    /// How many of them answered a call, one after the other, when all were open.
    pub(super) alive: u32,
}

/// Opens sessions without closing any, then makes a call in each: a session that is open and dead would not count.
pub(super) async fn many(opener: &Opener<'_>, asked: u32) -> Result<Many, CommandFailure> {
    let look = || processes::own_descendants().map_err(CommandFailure::io("look at the sessions' processes"));
    let before = look()?;
    let mut sessions = Vec::new();
    let (mut total, mut slowest, mut stopped) = (Duration::ZERO, Duration::ZERO, None);
    for _ in 0..asked {
        let started = Instant::now();
        match opener.supervisor.open(opener.spec()).await {
            Ok(session) => sessions.push(session),
            Err(error) => {
                stopped = Some(CommandFailure::from(error).text());
                break;
            }
        }
        let took = started.elapsed();
        total += took;
        slowest = slowest.max(took);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let family = Descendants::now().map_err(CommandFailure::io("look at the sessions' processes"))?;
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let private_kib = family
        .descendants(own)
        .into_iter()
        .filter(|pid| !before.contains(pid))
        .filter_map(|pid| processes::private_kib(pid).ok())
        .sum();
    let mut alive = 0;
    for session in &sessions {
        alive += u32::from(reads(session, 1).await.is_ok());
    }
    let opened = u32::try_from(sessions.len()).unwrap_or(u32::MAX);
    Ok(Many { asked, opened, stopped, per_session: total / opened.max(1), slowest, private_kib, alive })
}
