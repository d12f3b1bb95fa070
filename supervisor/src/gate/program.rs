//! A host's own watchdog as a program (S0-58, S0-59).
//!
//! It is started for each call, gets the call as JSON on its standard input and answers on its standard output. **Whatever is
//! not an answer is a no** (C15): none, a late one, one that is too long or is not what was asked for, an exit status but 0.
//! It is the host's program and runs as the host, not in the sandbox; when it has answered or its time is up, its whole
//! process group is ended.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use callgate_policy::manifest::Manifest;
use callgate_policy::rules::commands;
use callgate_policy::watchdog::{CallFacts, ExecFacts, Reason, Verdict, Wants};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdout, Command};

/// The longest answer, bytes.
const ANSWER_MAX: usize = 64 * 1024;
/// The longest reason that is passed on, characters.
const REASON_MAX: usize = 1000;

/// A program that is asked of every call.
///
/// On its standard input: `{"tool": …, "subject": …, "args": {…}, "manifest": {…}, "session": …}`; with [`WatchdogProgram::sees_lines`] also
/// `"commands"`, each command of a command line, a variable that it sets and a file that the shell writes, with `…` for what
/// is only known when it runs, or `null` where it could not be taken apart. With [`WatchdogProgram::sees_execs`] it is asked of every
/// program that is about to run as well: `{"exec": {"program": …, "argv": […]}, "manifest": …, "session": …}`, where words that
/// are not UTF-8 are `{"b64": …}`.
///
/// `"subject"` is what the tool is about ([`Subject`](callgate_policy::tool::Subject)), `"manifest"` the whole manifest by the
/// keys of its file, or `null`.
///
/// On its standard output: `{"verdict": "allow" | "deny" | "ask", "reason": …}`, and nothing else. Its standard error goes
/// nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchdogProgram {
    program: PathBuf,
    args: Vec<OsString>,
    timeout: Duration,
    wants: Wants,
}

/// A program that cannot be a watchdog.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchdogProgramError {
    /// No program.
    #[error("a watchdog of no words")]
    Empty,
    /// It would be looked for, and another one could be found (C12).
    #[error("name the watchdog {0} by its absolute path")]
    Relative(PathBuf),
    /// It could never answer.
    #[error("a watchdog with no time to answer")]
    NoTime,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    verdict: Said,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Allow,
    Deny,
    Ask,
}

/// The program's process group. The group is ended when this goes, also if nobody waits for the answer any more.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // Its leader has not been reaped, so the number still means it. An empty group is what is wanted.
        let _gone: Result<(), _> = kill_process_group(self.0, Signal::KILL);
    }
}

impl WatchdogProgram {
    /// A program by its absolute path, with its arguments, and how long it may take to answer.
    ///
    /// # Errors
    /// [`WatchdogProgramError`].
    pub fn new<S: Into<OsString>>(
        argv: impl IntoIterator<Item = S>,
        timeout: Duration,
    ) -> Result<Self, WatchdogProgramError> {
        let mut argv = argv.into_iter().map(Into::into);
        let program = PathBuf::from(argv.next().ok_or(WatchdogProgramError::Empty)?);
        if !program.is_absolute() {
            return Err(WatchdogProgramError::Relative(program));
        }
        if timeout.is_zero() {
            return Err(WatchdogProgramError::NoTime);
        }
        Ok(Self { program, args: argv.collect(), timeout, wants: Wants::default() })
    }

    /// The files that its words name: it, and a script that it is to run.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let words = std::iter::once(self.program.as_path()).chain(self.args.iter().map(Path::new));
        words.filter(|word| word.is_absolute())
    }

    /// This watchdog, shown command lines taken apart.
    #[must_use]
    pub fn sees_lines(mut self) -> Self {
        self.wants.lines = true;
        self
    }

    /// This watchdog, asked about every program that is about to run. Each waits until it has answered.
    #[must_use]
    pub fn sees_execs(mut self) -> Self {
        self.wants.execs = true;
        self
    }

    pub(super) fn wants(&self) -> Wants {
        self.wants
    }

    /// Asks it about a call.
    pub(super) async fn judge(&self, call: &CallFacts<'_>) -> Verdict {
        let CallFacts { tool, subject, args, manifest, session, line, effects, root: _, .. } = *call;
        let manifest = manifest.map(Manifest::to_json);
        let mut question =
            json!({ "tool": tool, "subject": subject, "args": args, "manifest": manifest, "session": session });
        question["effects"] = effects.all().map(|effect| json!(effect)).collect();
        if let Some(line) = line.filter(|_| self.wants.lines) {
            question["commands"] = json!(commands::shown(line));
        }
        self.verdict(&question).await
    }

    /// Asks it about a program.
    pub(super) async fn judge_exec(&self, exec: &ExecFacts<'_>) -> Verdict {
        let ExecFacts { program, argv, manifest, session, .. } = *exec;
        let manifest = manifest.map(Manifest::to_json);
        let exec = json!({ "program": program, "argv": argv });
        self.verdict(&json!({ "exec": exec, "manifest": manifest, "session": session })).await
    }

    /// Without an answer it is a no, and the reason says why (C15).
    async fn verdict(&self, question: &Value) -> Verdict {
        let rule = self.program.file_name().unwrap_or(self.program.as_os_str()).to_string_lossy().into_owned();
        let no = |why: String| {
            Verdict::Deny(Reason { rule: rule.clone(), text: format!("the host's watchdog {why}, which counts as no") })
        };
        let (status, answer) = match tokio::time::timeout(self.timeout, self.ask(question)).await {
            Err(_elapsed) => return no(format!("gave no answer within {}s", self.timeout.as_secs_f32())),
            Ok(Err(error)) => return no(format!("could not be asked ({error})")),
            Ok(Ok(got)) => got,
        };
        if answer.len() > ANSWER_MAX {
            return no(format!("answered with more than {ANSWER_MAX} bytes"));
        }
        if !status.success() {
            return no(format!("failed ({status})"));
        }
        match serde_json::from_slice::<Answer>(&answer) {
            Err(error) => no(format!("gave an answer that is not understood ({error})")),
            Ok(Answer { verdict, reason }) => {
                let text = reason.map(|reason| reason.chars().take(REASON_MAX).collect());
                let reason =
                    Reason { rule, text: text.unwrap_or_else(|| "the host's watchdog gave no reason".to_owned()) };
                match verdict {
                    Said::Allow => Verdict::Allow,
                    Said::Deny => Verdict::Deny(reason),
                    Said::Ask => Verdict::Ask(reason),
                }
            }
        }
    }

    /// Its exit status, and what it has written until then.
    async fn ask(&self, question: &Value) -> io::Result<(std::process::ExitStatus, Vec<u8>)> {
        let question = serde_json::to_vec(question)?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).current_dir(Path::new("/")).process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        #[allow(clippy::disallowed_methods, reason = "the host's own program, which judges what the sandbox runs")]
        let mut child = command.spawn()?;
        let lost = || io::Error::other("it has no process");
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).ok_or_else(lost)?;
        // Declared after the child, so that it goes first: before anybody can reap the leader.
        let group = Group(pid);
        let (mut stdin, mut stdout) = (child.stdin.take().ok_or_else(lost)?, child.stdout.take().ok_or_else(lost)?);
        #[allow(
            deprecated,
            reason = "its replacement is unsafe; an OwnedFd owns its descriptor and never gives another"
        )]
        let ended: AsyncFd<OwnedFd> = AsyncFd::new(pidfd_open(pid, PidfdFlags::empty())?)?;
        let mut answer = Vec::new();
        // One that answers without reading the question is not wrong.
        let mut asking = std::pin::pin!(async move { stdin.write_all(&question).await });
        let (mut asked, mut open) = (false, true);
        let mut buffer = [0; 4096];
        loop {
            tokio::select! {
                biased;
                got = stdout.read(&mut buffer), if open => {
                    let got = got?;
                    open = got > 0;
                    answer.extend_from_slice(&buffer[..got]);
                    if answer.len() > ANSWER_MAX {
                        break;
                    }
                }
                _ = &mut asking, if !asked => asked = true,
                ready = ended.readable() => {
                    drop(ready?);
                    break;
                }
            }
        }
        // What it started and left behind may hold the pipe open for ever: only what is there by now counts.
        drop(group);
        drain(&stdout, &mut answer);
        Ok((child.wait().await?, answer))
    }
}

fn drain(stdout: &ChildStdout, answer: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    while answer.len() <= ANSWER_MAX {
        match rustix::io::read(stdout.as_fd(), &mut buffer[..]) {
            Ok(0) | Err(_) => break,
            Ok(got) => answer.extend_from_slice(&buffer[..got]),
        }
    }
}

#[cfg(test)]
mod tests;
