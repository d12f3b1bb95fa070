//! Running `exec_shell` in the foreground, and what its results say (X2-1, X2-2).

use std::time::Duration;

use callgate_worker::protocol::ProgramEnd;
use serde_json::{Map, Value, json};

use super::OnOutput;
use super::envelope::Done;
use super::error::not_started;
use super::rest::Rest;
use super::shell::Head;
use crate::background::kept::Status;
use crate::error::CallError;
use crate::gate::ApprovedPlan;
use crate::gate::Known;
use crate::registry::{ShellCall, Tool};
use crate::run::{Listener, Orders, ProgramEnded, ProgramStream, Running, Streams, limits};
use crate::session::Session;
use crate::turn::Turn;

/// Most bytes of a stream that a result shows (X2-2).
pub(crate) const SHOWN: usize = 30_000;
/// The longest summary: lines, and characters (X2-2).
const SUMMARY: (usize, usize) = (3, 240);
/// Advice about a command that took longer than it may (X2-4).
const TOO_LONG: &str = "its time was up, so it was killed with all that it had started; if it is to run longer, start it with \
                        background: true, and read it with exec_shell_wait";

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
        let (streams, input) = Streams::piped().map_err(failed)?;
        let started = Running::start(&self.sandbox.opened, plan, streams, turn).await;
        let program = started.map_err(not_started)?;
        known.steps = program.steps().to_vec();
        let rest = || Rest { tool: &tool.name, outputs: self.sandbox.outputs.as_ref(), file: None, lost: false };
        let mut heads = Heads { out: Head::new(SHOWN, rest()), err: Head::new(SHOWN, rest()), on_output };
        let feed = input.feed(call.stdin.unwrap_or_default().as_bytes());
        let ended = program.follow(&mut heads, feed, Orders::None).await?;
        let ProgramEnded { end, took, limits, ended_for, changes, .. } = ended;
        if ended_for.is_some() {
            return Ok(Done { limits, ended_for, changes, ..Done::of(heads.last_words().into()) });
        }
        let output = [&heads.out.bytes[..], &heads.err.bytes[..]];
        let mut notes = self.surroundings().notes(command, &end, changes.as_ref(), &output);
        let is_denied = !notes.is_empty();
        notes.extend(end.timed_out.then(|| TOO_LONG.to_owned()));
        let mut data = heads.data();
        data.extend(self.confinement(is_denied));
        data.extend(told_of_end(status_of(&end), &end, took));
        let mut data = Value::Object(data);
        limits::tell_left(&mut data, &end);
        super::shell::add_notes(&mut data, notes);
        let Heads { out, err, .. } = heads;
        Ok(Done { limits, changes, ..done(data, out, err) })
    }

    /// Sandbox in a result (X2-2). It is true of a program that has started: each step was confirmed before.
    pub(crate) fn confinement(&self, is_denied: bool) -> Map<String, Value> {
        let told = json!({
            "sandboxed": true, "sandbox_type": self.strength(), "sandbox_denied": is_denied, "interactive": false,
        });
        object(told)
    }
}

/// X2-2: how far a program is that has ended by itself, or because its time was up.
pub(crate) fn status_of(end: &ProgramEnd) -> Status {
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

pub(crate) fn object(value: Value) -> Map<String, Value> {
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
    on_output: OnOutput<'a>,
}

impl Listener for Heads<'_> {
    fn hear(&mut self, stream: ProgramStream, piece: &[u8]) {
        let head = match stream {
            ProgramStream::Out => &mut self.out,
            ProgramStream::Err => &mut self.err,
        };
        head.take(piece, self.on_output);
    }
}

impl Heads<'_> {
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
