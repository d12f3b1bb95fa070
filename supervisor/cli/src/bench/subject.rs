//! Subjects of the measurements.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use callgate::Stdio;
use callgate_policy::envelope::Outcome;
use callgate_policy::path::HostPath;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions};
use nix::sys::wait::{WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::scratch::FILE;
use super::sessions::{MeasuredSession, Opener};
use crate::exit::CommandFailure;

/// Which programs `true` and `bash` are here.
const TRUE: [&str; 2] = ["/bin/true", "/usr/bin/true"];
const BASH: [&str; 2] = ["/bin/bash", "/usr/bin/bash"];

/// One thing that runs once per round.
pub(super) enum BenchSubject {
    /// A program started by posix_spawn(3), unconfined, and waited for.
    Bare { key: &'static str, name: String, command: SpawnArguments },
    /// `callgate run`: the same, and what it leaves to end by itself is waited for after the measurement.
    Run { command: SpawnArguments },
    /// A call of a tool in a session of its own.
    Tool { key: &'static str, name: &'static str, tool: &'static str, arguments: Value, session: MeasuredSession },
    /// `session.spawn` in a session of its own.
    Spawn { program: &'static str, session: MeasuredSession },
}

/// Arguments of posix_spawn(3). All have the environment of the sessions' programs: what a program does depends on it
/// (with another `LANG`, bash loads another dozen files).
pub(super) struct SpawnArguments {
    argv: Vec<CString>,
    env: Arc<[CString]>,
}

/// All subjects, and what is not here.
pub(super) struct Benchmarked {
    pub(super) subjects: Vec<BenchSubject>,
    pub(super) absent: Vec<String>,
}

impl Benchmarked {
    pub(super) async fn all(opener: &Opener<'_>) -> Result<Self, CommandFailure> {
        let true_ = find(&TRUE).ok_or_else(|| absent("true"))?;
        let session = opener.open().await?;
        let env = environment(&session)?;
        let command = |argv| SpawnArguments { argv, env: Arc::clone(&env) };
        let mut subjects = vec![
            BenchSubject::Bare {
                key: "posix_spawn",
                name: format!("posix_spawn {true_}"),
                command: command(strings(&[true_])?),
            },
            BenchSubject::Tool {
                key: "read",
                name: "read tool, 4 KiB, through the library",
                tool: "read",
                arguments: json!({ "path": FILE }),
                session,
            },
            BenchSubject::Spawn { program: true_, session: opener.open().await? },
        ];
        let mut missing = Vec::new();
        match find(&BASH) {
            Some(bash) => {
                subjects.push(BenchSubject::Bare {
                    key: "bash_bare",
                    name: format!("{bash} -c true, unconfined"),
                    command: command(strings(&[bash, "--noprofile", "--norc", "-c", "true"])?),
                });
                subjects.push(BenchSubject::Tool {
                    key: "bash",
                    name: "bash tool, true",
                    tool: "bash",
                    arguments: json!({ "command": "true" }),
                    session: opener.open().await?,
                });
            }
            None => missing.push("bash: there is no /bin/bash".to_owned()),
        }
        let (program, scratch) = (opener.scratch.program(), opener.scratch.path());
        let mut run = vec![string(program)?];
        run.extend(strings(&["run", "-C"])?);
        run.push(string(scratch)?);
        run.extend(strings(&["--", true_])?);
        subjects.push(BenchSubject::Run { command: command(run) });
        match on_path("bwrap") {
            None => missing.push("bwrap: not installed".to_owned()),
            Some(bwrap) => match bubblewrap(&bwrap, scratch, true_, &env)? {
                Ok(subject) => subjects.push(subject),
                Err(reason) => missing.push(format!("bwrap: installed, but does not run here ({reason})")),
            },
        }
        Ok(Self { subjects, absent: missing })
    }

    /// Programs per second, started by two threads that each wait for their own: what calls per second compare with.
    pub(super) fn spawned_per_second(&self, programs: u32) -> Result<f64, CommandFailure> {
        let plain = self.subjects.iter().find_map(|subject| match subject {
            BenchSubject::Bare { key: "posix_spawn", command, .. } => Some(command),
            BenchSubject::Bare { .. }
            | BenchSubject::Run { .. }
            | BenchSubject::Tool { .. }
            | BenchSubject::Spawn { .. } => None,
        });
        let command = plain.ok_or_else(|| absent("true"))?;
        let half = || (0..programs / 2).try_for_each(|_| command.spawn_and_wait());
        let started = Instant::now();
        std::thread::scope(|scope| {
            let other = scope.spawn(half);
            half().and(other.join().unwrap_or_else(|_panic| Err(absent("a second caller"))))
        })?;
        Ok(f64::from(programs) / started.elapsed().as_secs_f64())
    }

    pub(super) fn strength(&self) -> &'static str {
        let session = self.subjects.iter().find_map(|subject| match subject {
            BenchSubject::Tool { session, .. } | BenchSubject::Spawn { session, .. } => Some(session),
            BenchSubject::Bare { .. } | BenchSubject::Run { .. } => None,
        });
        session.map_or("none", MeasuredSession::strength)
    }
}

fn absent(program: &str) -> CommandFailure {
    CommandFailure::Subject { subject: program.to_owned(), reason: "it is not on this host".to_owned() }
}

fn find(candidates: &[&'static str]) -> Option<&'static str> {
    candidates.iter().copied().find(|path| rustix::fs::stat(*path).is_ok())
}

#[allow(clippy::disallowed_methods, reason = "looks for another sandbox where the person's shell would")]
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok())
}

/// bubblewrap with all its namespaces; or how it ended, where it does not run.
fn bubblewrap(
    bwrap: &Path,
    scratch: &Path,
    true_: &str,
    env: &Arc<[CString]>,
) -> Result<Result<BenchSubject, String>, CommandFailure> {
    let mut argv = vec![string(bwrap)?];
    argv.extend(strings(&["--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/"])?);
    argv.extend(strings(&["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind"])?);
    argv.extend([string(scratch)?, string(scratch)?]);
    argv.extend(strings(&[true_])?);
    let command = SpawnArguments { argv, env: Arc::clone(env) };
    Ok(match command.spawn_and_wait() {
        Ok(()) => Ok(BenchSubject::Bare { key: "bwrap", name: "bwrap, all namespaces, true".to_owned(), command }),
        Err(CommandFailure::Subject { reason, .. }) => Err(reason),
        Err(other) => return Err(other),
    })
}

fn strings(words: &[&str]) -> Result<Vec<CString>, CommandFailure> {
    words.iter().map(|word| string(Path::new(word))).collect()
}

fn string(path: &Path) -> Result<CString, CommandFailure> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_nul| CommandFailure::Usage(format!("{} holds a NUL", path.display())))
}

impl BenchSubject {
    pub(super) fn key(&self) -> &'static str {
        match self {
            Self::Bare { key, .. } | Self::Tool { key, .. } => key,
            Self::Run { .. } => "run",
            Self::Spawn { .. } => "spawn",
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Bare { name, .. } => name.clone(),
            Self::Tool { name, .. } => (*name).to_owned(),
            Self::Run { .. } => "callgate run -- true".to_owned(),
            Self::Spawn { program, .. } => format!("session.spawn {program}"),
        }
    }

    /// `callgate run` leaves its processes to its launcher, below which the kernel reaps them itself (their parent
    /// ignores SIGCHLD), and then nobody is told what they used.
    pub(super) fn cpu_is_measurable(&self) -> bool {
        !matches!(self, Self::Run { .. })
    }

    /// Processor time that the processes of the subject's session have used so far.
    pub(super) fn session_cpu(&self) -> Result<Option<Duration>, CommandFailure> {
        match self {
            Self::Tool { session, .. } | Self::Spawn { session, .. } => session.cpu().map(Some),
            Self::Bare { .. } | Self::Run { .. } => Ok(None),
        }
    }

    pub(super) async fn run(&self) -> Result<(), CommandFailure> {
        match self {
            Self::Bare { command, .. } | Self::Run { command } => command.spawn_and_wait(),
            Self::Tool { tool, arguments, session, .. } => {
                let envelope = session.session.call(tool, arguments.clone()).await;
                match envelope.kind {
                    Outcome::Output => Ok(()),
                    Outcome::Error => Err(self.failed(envelope.error_text.unwrap_or_default())),
                }
            }
            Self::Spawn { program, session } => {
                // As the others have it.
                let stdio =
                    Stdio::inherit().map_err(CommandFailure::io("take over standard input, output and error"))?;
                let program = session.session.spawn([program], stdio).await?;
                let end = program.wait().await.map_err(callgate::CallError::from)?;
                if end.code == Some(0) { Ok(()) } else { Err(self.failed(format!("it ended with {end:?}"))) }
            }
        }
    }

    fn failed(&self, reason: String) -> CommandFailure {
        CommandFailure::Subject { subject: self.name(), reason }
    }

    /// Waits for what a `callgate run` has left: its launcher, which becomes our child when `run` has exited. Not part
    /// of the sample, and the next one must not run beside it.
    pub(super) async fn tidy(&self) -> Result<(), CommandFailure> {
        let Self::Run { .. } = self else { return Ok(()) };
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            match nix::sys::wait::waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => tokio::time::sleep(Duration::from_micros(200)).await,
                Ok(_ended) => return Ok(()),
                Err(errno) => return Err(CommandFailure::runtime(errno.into())),
            }
        }
        Ok(())
    }
}

impl SpawnArguments {
    /// posix_spawn(3) itself, with no file actions and no attributes: the cheapest way there is to run a program.
    fn spawn_and_wait(&self) -> Result<(), CommandFailure> {
        let failed = |reason: String| CommandFailure::Subject {
            subject: self.argv.first().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default(),
            reason,
        };
        let file = self.argv.first().ok_or_else(|| failed("no program".to_owned()))?;
        let actions = PosixSpawnFileActions::init().map_err(|e| CommandFailure::runtime(e.into()))?;
        let attributes = PosixSpawnAttr::init().map_err(|e| CommandFailure::runtime(e.into()))?;
        let pid = nix::spawn::posix_spawn(file.as_c_str(), &actions, &attributes, &self.argv, &self.env)
            .map_err(|e| failed(e.to_string()))?;
        let ended = nix::sys::wait::waitpid(pid, None).map_err(|e| failed(e.to_string()))?;
        if matches!(ended, WaitStatus::Exited(_, 0)) { Ok(()) } else { Err(failed(format!("it ended with {ended:?}"))) }
    }
}

/// Environment that programs of this session are given.
fn environment(opened: &MeasuredSession) -> Result<Arc<[CString]>, CommandFailure> {
    let pair = |(name, value): (&String, &HostPath)| {
        string(Path::new(OsStr::from_bytes(&[name.as_bytes(), b"=", value.as_bytes()].concat())))
    };
    opened.session.plan().env.iter().map(pair).collect()
}
