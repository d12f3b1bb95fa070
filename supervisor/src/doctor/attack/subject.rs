//! Where attempts are made: nowhere confined, in a session of callgate's, or under any other sandbox.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio as ChildStdio;
use std::time::Duration;

use callgate_policy::effective::Source;
use callgate_policy::mode::Mode;
use callgate_policy::pattern::PathTemplate;
use callgate_policy::plan::{Ablation, Mechanism, Strength};
use callgate_policy::requirement::{FsRequirement, NetRequirement, RequirementSet};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use super::super::DoctorError;
use super::field::Field;
use super::table::{NetworkGrants, TableAct};
use crate::confine::Stdio;
use crate::open_error::OpenError;
use crate::session::{OpenedBy, Session, SessionSpec};
use crate::supervisor::Supervisor;

/// How long one attempt may take: a sandbox that starts a virtual machine for it fits in, and one that hangs is told.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most that an attempt may print: the command lines of all processes fit in.
const OUTPUT_MAX: u64 = 4 * 1024 * 1024;

/// Where attempts are made.
pub(super) enum AttackSubject {
    /// Outside, unconfined: every attempt's control.
    Bare,
    /// A session as everybody has it; attempts are programs.
    Session(Session),
    /// A session that lacks something; attempts are the worker's own.
    Ablated(Session),
    /// A command that confines what follows it.
    Under(Vec<String>),
}

/// Result of one act.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ActAnswer {
    /// It was not refused, and saw this.
    Done(Value),
    Errno {
        name: String,
        at: String,
    },
    Signal(i32),
    /// It was never made.
    NotTried(String),
}

impl AttackSubject {
    pub(super) async fn session(
        supervisor: &Supervisor,
        field: &Field,
        (strength, grants): (Strength, NetworkGrants),
    ) -> Result<Self, OpenError> {
        Ok(Self::Session(supervisor.open(spec(field, strength, grants)).await?))
    }

    pub(super) async fn ablated(
        supervisor: &Supervisor,
        field: &Field,
        (strength, grants): (Strength, NetworkGrants),
        lacking: &[Mechanism],
    ) -> Result<Self, OpenError> {
        #[allow(clippy::disallowed_methods, reason = "this is `doctor --attack`")]
        let ablation = Ablation::without(lacking.iter().copied());
        let session = supervisor.open_for(spec(field, strength, grants), OpenedBy::Probe(ablation)).await?;
        Ok(Self::Ablated(session))
    }

    /// Makes one attempt.
    pub(super) async fn attempt(&self, field: &Field, act: &TableAct) -> Result<ActAnswer, DoctorError> {
        let mut words = Vec::new();
        let inside = matches!(self, Self::Session(_));
        for word in act.words {
            match field.fill_in(word, inside) {
                Some(word) => words.push(word),
                None => return Ok(ActAnswer::NotTried(format!("this host has no {word}"))),
            }
        }
        let probe = field.probe().display().to_string();
        let started = [vec![probe.clone(), "attempt".to_owned()], words.clone()].concat();
        let under_terminal = [probe.clone(), "attempt".to_owned(), "under-terminal".to_owned()];
        let made = match self {
            Self::Bare if act.terminal => child(field, &[&under_terminal[..], &started].concat()).await?,
            Self::Bare => child(field, &started).await?,
            Self::Under(command) if act.terminal => {
                child(field, &[&under_terminal[..], command, &started].concat()).await?
            }
            Self::Under(command) => child(field, &[command.as_slice(), &started].concat()).await?,
            Self::Session(session) => program(session, field, &started, act.terminal).await?,
            // The worker takes the words after the first.
            Self::Ablated(session) => program(session, field, &[vec![probe], words].concat(), act.terminal).await?,
        };
        Ok(made.answer())
    }
}

/// The workspace to write, a directory to read, any program, no host or one; and nobody is asked, for it is the layers that are
/// attacked.
fn spec(field: &Field, strength: Strength, grants: NetworkGrants) -> SessionSpec {
    let mut spec = SessionSpec::developer(field.workspace()).strength(strength.into()).mode(Mode::Yolo);
    let pattern = PathTemplate::parse(&format!("{}/**", field.readable().display()));
    let fs = FsRequirement { read: pattern.into_iter().collect(), ..FsRequirement::default() };
    let hosts = match grants {
        NetworkGrants::NoHost => Vec::new(),
        NetworkGrants::Host => field.granted_hosts(),
    };
    let net = NetRequirement { hosts };
    spec.requires.push((Source::Default, RequirementSet { fs, net, ..RequirementSet::default() }));
    spec
}

/// Output of a process, and its end.
pub(super) struct ProcessOutput {
    output: String,
    end: Result<(Option<i32>, Option<i32>), String>,
}

impl ProcessOutput {
    /// Output as text.
    pub(super) fn text(self) -> String {
        self.output
    }

    fn answer(&self) -> ActAnswer {
        let line = self.output.lines().rev().find(|line| line.starts_with("{\"act\""));
        if let Some(seen) = line.and_then(|line| serde_json::from_str::<Value>(line).ok()) {
            return match (seen["ok"].as_bool(), seen["signal"].as_i64()) {
                (Some(true), _) => ActAnswer::Done(seen),
                (_, Some(signal)) => ActAnswer::Signal(i32::try_from(signal).unwrap_or(0)),
                _ => ActAnswer::Errno { name: text(&seen["name"]), at: text(&seen["at"]) },
            };
        }
        match &self.end {
            Err(why) => ActAnswer::NotTried(why.clone()),
            // A sandbox between tells of a signal as a shell does.
            Ok((_, Some(signal))) => ActAnswer::Signal(*signal),
            Ok((Some(code), _)) if *code > 128 && self.output.trim().is_empty() => ActAnswer::Signal(code - 128),
            Ok((code, _)) => {
                let said = self.output.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("nothing");
                let ended = code.map_or_else(String::new, |code| format!(", and it ended with {code}"));
                ActAnswer::NotTried(format!("it said: {said}{ended}"))
            }
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A program in a session.
pub(super) async fn program(
    session: &Session,
    field: &Field,
    argv: &[String],
    terminal: bool,
) -> Result<ProcessOutput, DoctorError> {
    let (reader, writer) = std::io::pipe().map_err(DoctorError::io("make a pipe for an attempt"))?;
    let input = if terminal {
        field.terminal().map_err(DoctorError::io("open a terminal"))?
    } else {
        std::fs::File::open("/dev/null").map_err(DoctorError::io("open /dev/null"))?.into()
    };
    let error = writer.try_clone().map_err(DoctorError::io("make a pipe for an attempt"))?;
    let stdio = Stdio::new(input, writer.into(), error.into());
    let program = match session.spawn(argv.iter().map(OsString::from), stdio).await {
        Ok(program) => program,
        Err(error) => return Ok(ProcessOutput { output: String::new(), end: Err(DoctorError::from(error).text()) }),
    };
    let mut pipe =
        tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into()).map_err(DoctorError::io("read a pipe"))?;
    let mut output = Vec::new();
    let ended = async {
        (&mut pipe).take(OUTPUT_MAX).read_to_end(&mut output).await.map_err(|e| e.to_string())?;
        program.wait().await.map(|end| (end.code, end.signal)).map_err(|e| e.to_string())
    };
    let end = match tokio::time::timeout(PATIENCE, ended).await {
        Ok(end) => end,
        Err(_elapsed) => {
            // Dropped below, which ends it as well.
            drop(program.abort().await);
            Err(no_answer())
        }
    };
    Ok(ProcessOutput { output: String::from_utf8_lossy(&output).into_owned(), end })
}

fn no_answer() -> String {
    format!("no answer within {} s", PATIENCE.as_secs())
}

/// A program that callgate does not confine, with all that it started.
pub(super) async fn child(field: &Field, argv: &[String]) -> Result<ProcessOutput, DoctorError> {
    let [program, arguments @ ..] = argv else { return Err(DoctorError::Attempt("an empty command".to_owned())) };
    #[allow(clippy::disallowed_methods, reason = "another sandbox, or none, is what is tried here")]
    let spawned = tokio::process::Command::new(program)
        .args(arguments)
        .current_dir(field.workspace())
        .stdin(ChildStdio::null())
        .stdout(ChildStdio::piped())
        .stderr(ChildStdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = spawned.map_err(|source| DoctorError::Start { program: program.clone(), source })?;
    let _group = ChildGroup(child.id());
    let (Some(mut out), Some(mut error)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(DoctorError::Attempt("a command without output".to_owned()));
    };
    let (mut output, mut said) = (Vec::new(), Vec::new());
    let ended = async {
        let read = tokio::try_join!(async { (&mut out).take(OUTPUT_MAX).read_to_end(&mut output).await }, async {
            (&mut error).take(OUTPUT_MAX).read_to_end(&mut said).await
        });
        read.map_err(|e| e.to_string())?;
        child.wait().await.map(|status| (status.code(), status.signal())).map_err(|e| e.to_string())
    };
    let end = tokio::time::timeout(PATIENCE, ended).await.unwrap_or_else(|_elapsed| Err(no_answer()));
    // Words that are no line of the probe's are the reason that there is none.
    output.push(b'\n');
    let output = [said, b"\n".to_vec(), output].concat();
    Ok(ProcessOutput { output: String::from_utf8_lossy(&output).into_owned(), end })
}

/// Everything that a child of ours started and did not take out of its group.
struct ChildGroup(Option<u32>);

impl Drop for ChildGroup {
    fn drop(&mut self) {
        if let Some(pid) = self.0.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw) {
            // As a rule nothing is left of it, which is what the error says then.
            rustix::process::kill_process_group(pid, rustix::process::Signal::KILL).unwrap_or(());
        }
    }
}
