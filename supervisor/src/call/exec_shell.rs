//! Running `exec_shell` in the foreground, and what its results say (X2-1, X2-2).

use std::time::{Duration, Instant};

use callgate_policy::pattern::HostPattern;
use callgate_policy::plan::Strength;
use callgate_policy::plan::compile;
use callgate_policy::remarks::{remark_offline, remarks_on};
use callgate_worker::protocol::ProgramEnd;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::Receiver;

use super::envelope::Done;
use super::error::not_started;
use super::rest::Rest;
use super::shell::{GRACE, Head, PIPE_MAX};
use super::{OnOutput, limits};
use crate::confine::{ConfineError, Program, Stdio};
use crate::error::CallError;
use crate::gate::ApprovedPlan;
use crate::gate::Known;
use crate::registry::{ShellCall, Tool};
use crate::session::{Session, Status};
use crate::turn::Turn;

/// Most bytes of a stream that a result shows (X2-2).
pub(super) const SHOWN: usize = 30_000;
/// The longest summary: lines, and characters (X2-2).
const SUMMARY: (usize, usize) = (3, 240);
/// Advice about a command that took longer than it may (X2-4).
const TOO_LONG: &str = "its time was up, so it was killed with all that it had started; if it is to run longer, start it with \
                        background: true, and read it with exec_shell_wait";

/// Facts of a session that its programs' ends are told with.
pub(super) struct Surroundings {
    granted: Vec<HostPattern>,
    is_offline: bool,
}

impl Session {
    /// Runs `exec_shell`: to its end, or as a task in the background.
    pub(super) async fn run_exec_shell(
        &self,
        tool: &Tool,
        (plan, args): (ApprovedPlan, &Value),
        turn: Turn,
        on_output: OnOutput<'_>,
        known: &mut Known,
    ) -> Result<Done, CallError> {
        let call = ShellCall::of(args);
        let command = args["command"].as_str().unwrap_or_default();
        if call.is_in_background {
            let done = self.start_in_background(tool, (plan, call, command), known).await;
            drop(turn);
            return done;
        }
        let failed = |source| CallError::Output { what: "make pipes for the command", source };
        let (stdio, pipes) = Stdio::piped().map_err(failed)?;
        let (mut stdin, stdout, stderr) = pipes.into_async().map_err(failed)?;
        let started = Instant::now();
        let (timeout, bounds) = (plan.timeout, plan.bounds);
        let mut program = self.sandbox.opened.program(plan, (stdio, None), Some(turn)).await.map_err(not_started)?;
        known.steps = program.steps().to_vec();
        let input = call.stdin.unwrap_or_default().as_bytes().to_vec();
        // One that does not read it is not waited for: when it has ended, nobody has the pipe's other end.
        let writes = tokio::spawn(async move { drop(stdin.write_all(&input).await) });
        let rest = || Rest { tool: &tool.name, outputs: self.sandbox.outputs.as_ref(), file: None, lost: false };
        let mut heads = Heads { out: Head::new(SHOWN, rest()), err: Head::new(SHOWN, rest()) };
        let followed = heads.follow(&program, (stdout, stderr), bounds.output, on_output);
        let followed = tokio::time::timeout(timeout.saturating_add(GRACE), followed).await;
        writes.abort();
        let Ok(end) = followed else {
            program.kill().await?;
            return Err(CallError::Confine(ConfineError::TimedOut(timeout)));
        };
        let end = end?;
        let seen = Some(heads.seen());
        let limits = limits::of_program(&bounds, &end, Some(limits::ms(timeout)), seen, program.changes());
        let changes = program.changes().filter(|changes| !changes.is_empty()).cloned();
        if let Some(hit) = limits::ended_for(&bounds, &end, seen) {
            let ended_for = Some(limits::denial(&bounds, hit, end.left));
            return Ok(Done { limits, ended_for, changes, ..Done::of(heads.last_words().into()) });
        }
        let surroundings = self.surroundings();
        let mut notes = surroundings.notes(command, &end, program.changes(), &[&heads.out.bytes, &heads.err.bytes]);
        let is_denied = !notes.is_empty();
        notes.extend(end.timed_out.then(|| TOO_LONG.to_owned()));
        let mut data = heads.data();
        data.extend(self.confinement(is_denied));
        data.extend(told_of_end(status_of(&end), &end, started.elapsed()));
        let mut data = Value::Object(data);
        limits::tell_left(&mut data, &end);
        super::shell::add_notes(&mut data, notes);
        let Heads { out, err } = heads;
        Ok(Done { limits, changes, ..done(data, out, err) })
    }

    /// Sandbox in a result (X2-2). It is true of a program that has started: each step was confirmed before.
    pub(super) fn confinement(&self, is_denied: bool) -> Map<String, Value> {
        let kind = match self.strength() {
            Strength::Landlock => "landlock",
            Strength::Namespaces => "namespaces",
        };
        let told = json!({
            "sandboxed": true, "sandbox_type": kind, "sandbox_denied": is_denied, "interactive": false,
        });
        object(told)
    }

    pub(super) fn surroundings(&self) -> Surroundings {
        Surroundings { granted: self.granted_hosts(), is_offline: compile::is_offline(&self.effective) }
    }
}

impl Surroundings {
    /// Notes on what the sandbox refused to a program that has ended, for whoever reads the result alone.
    pub(super) fn notes(
        &self,
        command: &str,
        end: &ProgramEnd,
        changes: Option<&callgate_policy::envelope::Changes>,
        output: &[&[u8]],
    ) -> Vec<String> {
        let failed = end.code != Some(0);
        let mut notes = changes.map(|changes| remarks_on(command, &self.granted, changes, failed)).unwrap_or_default();
        if self.is_offline && !notes.iter().any(|note| note.starts_with("the network")) {
            let signs = output.iter().find_map(|output| remark_offline(&String::from_utf8_lossy(output)));
            notes.extend(signs.map(str::to_owned));
        }
        notes
    }
}

/// X2-2: how far a program is that has ended by itself, or because its time was up.
pub(super) fn status_of(end: &ProgramEnd) -> Status {
    match (end.timed_out, end.code) {
        (true, _) => Status::TimedOut,
        (false, Some(0)) => Status::Completed,
        (false, _) => Status::Failed,
    }
}

fn told_of_end(status: Status, end: &ProgramEnd, took: Duration) -> Map<String, Value> {
    let told = json!({
        "status": status, "exit_code": end.code, "signal": end.signal, "duration_ms": limits::ms(took),
    });
    object(told)
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// The last lines of an output, for whoever wants no more than that.
pub(super) fn summary(stdout: &str, stderr: &str) -> String {
    let (lines, characters) = SUMMARY;
    let output = if stdout.trim().is_empty() { stderr } else { stdout };
    let mut last: Vec<&str> = output.lines().rev().filter(|line| !line.trim().is_empty()).take(lines).collect();
    last.reverse();
    last.join("\n").chars().take(characters).collect()
}

/// Beginnings of both streams.
struct Heads<'a> {
    out: Head<'a>,
    err: Head<'a>,
}

impl Heads<'_> {
    /// Takes the output until the program has ended, and all that it started with it; one that wrote more than `most` bytes is
    /// ended.
    async fn follow(
        &mut self,
        program: &Program,
        (mut stdout, mut stderr): (Receiver, Receiver),
        most: u64,
        on_output: OnOutput<'_>,
    ) -> Result<ProgramEnd, CallError> {
        let failed = |source| CallError::Output { what: "read the output", source };
        let (mut of_out, mut of_err) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        let (mut out_ends, mut err_ends) = (false, false);
        let mut ended = std::pin::pin!(program.wait());
        let end = loop {
            tokio::select! {
                got = stdout.read(&mut of_out), if !out_ends => match got.map_err(failed)? {
                    0 => out_ends = true,
                    got => self.out.take(&of_out[..got], on_output),
                },
                got = stderr.read(&mut of_err), if !err_ends => match got.map_err(failed)? {
                    0 => err_ends = true,
                    got => self.err.take(&of_err[..got], on_output),
                },
                end = &mut ended => break end?,
            }
            if self.seen() > most {
                program.abort().await?;
                break ended.await?;
            }
        };
        // What it wrote last is still in the pipes.
        for (pipe, head) in [(&stdout, &mut self.out), (&stderr, &mut self.err)] {
            for _ in 0..PIPE_MAX / of_out.len() {
                match rustix::io::read(pipe, &mut of_out[..]) {
                    Ok(0) | Err(_) => break,
                    Ok(got) => head.take(&of_out[..got], on_output),
                }
            }
        }
        Ok(end)
    }

    fn seen(&self) -> u64 {
        self.out.seen + self.err.seen
    }

    /// End of what it had written, of one that has no result.
    fn last_words(&self) -> String {
        format!("{}{}", self.out.text(), self.err.text())
    }

    fn data(&self) -> Map<String, Value> {
        let (out, err) = (shown(&self.out), shown(&self.err));
        let summary = summary(&out, &err);
        let omitted = |head: &Head<'_>| head.seen - head.bytes.len() as u64;
        let told = json!({
            "stdout": out,
            "stderr": err,
            "stdout_len": self.out.seen,
            "stderr_len": self.err.seen,
            "stdout_truncated": self.out.dropped,
            "stderr_truncated": self.err.dropped,
            "stdout_omitted": omitted(&self.out),
            "stderr_omitted": omitted(&self.err),
            "summary": summary,
        });
        object(told)
    }
}

/// A stream as text, which says itself what is missing of it.
fn shown(head: &Head<'_>) -> String {
    let mut text = head.text();
    if head.dropped {
        let (shown, omitted) = (head.bytes.len(), head.seen - head.bytes.len() as u64);
        text.push_str(&format!("\n[the first {shown} bytes; {omitted} more are not shown]"));
    }
    text
}

/// The result, and where the rest of each stream is.
fn done(mut data: Value, out: Head<'_>, err: Head<'_>) -> Done {
    let truncated = out.dropped || err.dropped;
    let of_err = err.rest.done(Value::Null, truncated);
    let of_out = out.rest.done(Value::Null, truncated);
    for (name, path) in [("stdout_path", &of_out.output_path), ("stderr_path", &of_err.output_path)] {
        if let Some(path) = path {
            data[name] = path.as_str().into();
        }
    }
    let rest_lost = of_out.rest_lost.or(of_err.rest_lost);
    if rest_lost.is_some() {
        data["rest_lost"] = true.into();
    }
    Done { truncated, output_path: of_out.output_path.or(of_err.output_path), rest_lost, ..Done::of(data) }
}

#[cfg(test)]
mod tests {
    use super::summary;

    /// X2-2: at most three lines and 240 characters, of what was written last.
    #[test]
    fn x2_2_a_summary_is_short() {
        assert_eq!(summary("1\n2\n\n3\n4\n", "err"), "2\n3\n4");
        assert_eq!(summary(" \n", "warning\n"), "warning");
        assert_eq!(summary("", ""), "");
        assert_eq!(summary(&"ä".repeat(1000), "").chars().count(), 240);
    }
}
