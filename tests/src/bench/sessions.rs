//! Sessions that are measured: one specification for all, in a scratch directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use callgate::{Launcher, Outcome, Session, SessionSpec, StrengthChoice, Supervisor};
use callgate_policy::effective::Source;
use callgate_policy::mode::Mode;
use callgate_policy::path::HostPath;
use callgate_policy::pattern::PathTemplate;
use callgate_policy::requirement::{FsRequirement, RequirementSet};
use callgate_worker::sys::process::be_ended_by_signals;
use rustix::process::{Resource, Rlimit};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::failure::BenchFailure;

/// How long threads may take that still read or write when all else is over.
const STUCK: Duration = Duration::from_secs(5);
/// How long a session's processes may take to stand ready: nothing is measured before.
const READY: Duration = Duration::from_millis(50);

/// Becomes a supervisor as `callgate` does: the process is closed to others of the same user, then the runtime starts, in this one
/// thread. Returns when nothing is left of the sessions.
pub(crate) fn supervise<T>(
    launcher: Launcher,
    work: impl AsyncFnOnce(Supervisor) -> Result<T, BenchFailure>,
) -> Result<T, BenchFailure> {
    callgate::close_process()?;
    let supervisor = Supervisor::builder().launcher(launcher.clone()).build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work(supervisor));
    runtime.shutdown_timeout(STUCK);
    be_ended_by_signals();
    launcher.wait_for_its_end().iter().for_each(|left| eprintln!("callgate-bench: {left}"));
    done
}

/// The directory that a benchmark works in. It is removed when this is dropped.
pub(crate) struct BenchScratch {
    directory: TempDir,
    program: PathBuf,
}

/// File that is read: 4 KiB of text.
pub(crate) const FILE: &str = "notes.txt";

impl BenchScratch {
    pub(crate) fn make() -> Result<Self, BenchFailure> {
        let directory = temporary("callgate-scratch-")?;
        let scratch = Self { directory, program: std::env::current_exe()? };
        let line = "sixty-three characters of text, so that sixty-four lines are 4K\n";
        std::fs::write(scratch.file(), line.repeat(64))
            .map_err(BenchFailure::io("write into the scratch directory"))?;
        Ok(scratch)
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.path().join(FILE)
    }

    /// This very binary.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }
}

/// A directory for temporary files.
pub(crate) fn temporary(prefix: &str) -> Result<TempDir, BenchFailure> {
    tempfile::Builder::new().prefix(prefix).tempdir().map_err(BenchFailure::io("make a directory for temporary files"))
}

/// Opens sessions for the scratch directory, all alike.
pub(crate) struct BenchOpener<'a> {
    pub(crate) supervisor: &'a Supervisor,
    pub(crate) scratch: &'a BenchScratch,
    pub(crate) strength: StrengthChoice,
}

impl BenchOpener<'_> {
    /// Specification with what `callgate run` asks for, and this binary to read: it is its own helper inside.
    pub(crate) fn spec(&self) -> SessionSpec {
        let mut spec = SessionSpec::developer(self.scratch.path()).strength(self.strength).mode(Mode::Yolo);
        let program = HostPath::from(self.scratch.program().to_owned());
        let fs = FsRequirement { read: vec![PathTemplate::of_file(&program)], ..FsRequirement::default() };
        spec.requires.push((Source::CommandLine, RequirementSet { fs, ..RequirementSet::default() }));
        spec
    }

    /// Opens one, and gives its processes the time to stand ready.
    pub(crate) async fn open(&self) -> Result<Session, BenchFailure> {
        let session = self.supervisor.open(self.spec()).await?;
        tokio::time::sleep(READY).await;
        Ok(session)
    }
}

/// The strength that a session came to have.
pub(crate) fn strength(session: &Session) -> &'static str {
    match session.plan().strength {
        callgate_policy::plan::Strength::Landlock => "Landlock and seccomp",
        callgate_policy::plan::Strength::Namespaces => "Landlock, seccomp and namespaces",
    }
}

/// Raises the limit of open files.
pub(crate) fn open_many_files() -> Result<(), BenchFailure> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    Ok(rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

pub(crate) async fn reads(session: &Session, calls: u32) -> Result<(), BenchFailure> {
    for _ in 0..calls {
        let envelope = session.call("read", json!({ "path": FILE })).await;
        if envelope.kind == Outcome::Error {
            return Err(BenchFailure::of("read", envelope.error_text.unwrap_or_default()));
        }
    }
    Ok(())
}

/// Sessions that make calls at once.
pub(crate) const AT_ONCE: u32 = 50;

/// Reads per second of many sessions at once, a caller each.
pub(crate) async fn at_once(
    supervisor: &Supervisor,
    opener: &BenchOpener<'_>,
    calls: u32,
) -> Result<f64, BenchFailure> {
    let each = (calls / AT_ONCE).max(2);
    let mut sessions = Vec::new();
    for _ in 0..AT_ONCE {
        let session = supervisor.open(opener.spec()).await?;
        reads(&session, 1).await?;
        sessions.push(session);
    }
    let started = Instant::now();
    let mut callers = JoinSet::new();
    for session in sessions {
        callers.spawn(async move { reads(&session, each).await.map(|()| session) });
    }
    // What it takes to close a session is not what its calls take.
    let (mut made, mut open) = (0, Vec::new());
    while let Some(done) = callers.join_next().await {
        open.push(done??);
        made += each;
    }
    Ok(f64::from(made) / started.elapsed().as_secs_f64())
}
