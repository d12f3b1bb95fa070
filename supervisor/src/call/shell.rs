//! Running `bash`, and following what it prints.

use std::time::{Duration, Instant};

use callgate_policy::envelope::Changes;
use callgate_policy::pattern::HostPattern;
use callgate_policy::plan::{Work, compile};
use callgate_policy::remarks::{remark_offline, remarks_on};
use callgate_tools::HEAD;
use callgate_worker::protocol::ProgramEnd;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use super::OnOutput;
use super::envelope::Done;
use super::error::not_started;
use super::rest::Rest;
use crate::confine::{ConfineError, Program, Stdio};
use crate::error::CallError;
use crate::gate::ApprovedPlan;
use crate::gate::Known;
use crate::registry::Tool;
use crate::session::Session;
use crate::turn::Turn;

/// How much longer a worker may take to end a program whose time is up, and all that it started: it gives up after a minute
/// for each, and reports what is left.
pub(super) const GRACE: Duration = Duration::from_secs(150);

/// The most that a program without privilege can make a pipe hold, bytes: `/proc/sys/fs/pipe-max-size`, pipe(7).
pub(super) const PIPE_MAX: usize = 1024 * 1024;

impl Session {
    /// Runs `bash`: its two output streams are one pipe, so that they come in the order in which they were written.
    pub(super) async fn run_shell(
        &self,
        tool: &Tool,
        plan: ApprovedPlan,
        turn: Turn,
        on_output: OnOutput<'_>,
        known: &mut Known,
    ) -> Result<Done, CallError> {
        let output = |what| move |source| CallError::Output { what, source };
        let (reader, writer) = std::io::pipe().map_err(output("make a pipe for the output"))?;
        let error = writer.try_clone().map_err(output("make a pipe for the output"))?;
        let null = std::fs::File::open("/dev/null").map_err(output("open /dev/null"))?;
        let started = Instant::now();
        // The worker ends the program when its time is up; one that does not is itself ended.
        let (timeout, bounds) = (plan.timeout, plan.bounds);
        let command = words(&plan.work);
        let stdio = Stdio::new(null.into(), writer.into(), error.into());
        let mut program = self.sandbox.opened.program(plan, (stdio, None), Some(turn)).await.map_err(not_started)?;
        known.steps = program.steps().to_vec();
        let mut pipe =
            tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into()).map_err(output("wait on the output"))?;
        let limit = usize::try_from(self.tools.lifecycle.now().output_limit(&tool.name)).unwrap_or(usize::MAX);
        let rest = Rest { tool: &tool.name, outputs: self.sandbox.outputs.as_ref(), file: None, lost: false };
        let mut head = Head::new(limit, rest);
        let patience = timeout.saturating_add(GRACE);
        let followed = head.follow(&program, &mut pipe, bounds.output, on_output);
        let Ok(end) = tokio::time::timeout(patience, followed).await else {
            program.kill().await?;
            return Err(CallError::Confine(ConfineError::TimedOut(timeout)));
        };
        let end = end?;
        let truncated = head.dropped;
        let timeout = Some(crate::call::limits::ms(timeout));
        let limits = crate::call::limits::of_program(&bounds, &end, timeout, Some(head.seen), program.changes());
        let hit = crate::call::limits::ended_for(&bounds, &end, Some(head.seen));
        let ended_for = hit.map(|hit| crate::call::limits::denial(&bounds, hit, end.left));
        let changes = program.changes().filter(|changes| !changes.is_empty()).cloned();
        let data = match ended_for {
            Some(_) => Value::String(head.text()),
            None => {
                let mut data = shell_data(&head, end, started.elapsed());
                add_notes(&mut data, self.notes(&command, &head, end, changes.as_ref()));
                data
            }
        };
        Ok(Done { limits, ended_for, changes, ..head.rest.done(data, truncated) })
    }
}

/// The first part of a program's output; the rest is kept elsewhere, or let go, so that the program is not stopped by a full
/// pipe.
pub(super) struct Head<'a> {
    pub(super) bytes: Vec<u8>,
    limit: usize,
    pub(super) dropped: bool,
    /// All bytes that came.
    pub(super) seen: u64,
    pub(super) rest: Rest<'a>,
}

impl<'a> Head<'a> {
    pub(super) fn new(limit: usize, rest: Rest<'a>) -> Self {
        Self { bytes: Vec::new(), limit, dropped: false, seen: 0, rest }
    }

    /// Takes the output until the program has ended, and all that it started with it; one that wrote more than `most` bytes is
    /// ended. Whoever holds the pipe after that is no part of the call, and is not waited for.
    async fn follow(
        &mut self,
        program: &Program,
        pipe: &mut tokio::net::unix::pipe::Receiver,
        most: u64,
        on_output: OnOutput<'_>,
    ) -> Result<ProgramEnd, CallError> {
        let failed = |source| CallError::Output { what: "read the output", source };
        let mut buffer = vec![0; 64 * 1024];
        let mut ended = std::pin::pin!(program.wait());
        let end = loop {
            tokio::select! {
                biased;
                got = pipe.read(&mut buffer) => match got.map_err(failed)? {
                    0 => return Ok(ended.await?),
                    got => {
                        self.take(&buffer[..got], on_output);
                        if self.seen > most {
                            // One that is blocked in a write ends all the same.
                            program.abort().await?;
                            return Ok(ended.await?);
                        }
                    }
                },
                end = &mut ended => break end?,
            }
        };
        // What it wrote last is still in the pipe. The kernel is asked, for tokio may not have heard of it yet.
        for _ in 0..PIPE_MAX / buffer.len() {
            match rustix::io::read(&*pipe, &mut buffer[..]) {
                Ok(0) | Err(_) => break,
                Ok(got) => self.take(&buffer[..got], on_output),
            }
        }
        Ok(end)
    }

    pub(super) fn take(&mut self, piece: &[u8], on_output: OnOutput<'_>) {
        on_output(piece);
        self.seen += piece.len() as u64;
        let room = if self.dropped { 0 } else { self.limit - self.bytes.len() };
        let (shown, rest) = piece.split_at(piece.len().min(room));
        self.bytes.extend(shown);
        if rest.is_empty() {
            return;
        }
        if !self.dropped {
            self.dropped = true;
            // A character that the limit would cut belongs to the rest.
            let whole = match self.bytes.utf8_chunks().last() {
                Some(last) if is_begun(last.invalid()) => self.bytes.len() - last.invalid().len(),
                _ => self.bytes.len(),
            };
            let cut = self.bytes.split_off(whole);
            self.rest.add(&cut);
        }
        self.rest.add(rest);
    }

    /// As text: bytes that are not UTF-8 become U+FFFD.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// True if these bytes are the beginning of a character.
fn is_begun(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}

/// C-27's shape, with C-13's unit.
fn shell_data(head: &Head, end: ProgramEnd, took: Duration) -> Value {
    let mut data = json!({
        (if head.dropped { HEAD } else { "output" }): head.text(),
        "exit_code": end.code,
        "duration_seconds": (took.as_secs_f64() * 1000.0).round() / 1000.0,
        "timed_out": end.timed_out,
        "signal": end.signal,
    });
    crate::call::limits::tell_left(&mut data, &end);
    data
}

/// Most bytes of output in which a sign is looked for: package managers end with it.
const LAST_OUTPUT: usize = 16 * 1024;

impl Session {
    /// The hosts that are granted, as what is refused is told beside them.
    pub(super) fn granted_hosts(&self) -> Vec<HostPattern> {
        self.effective.rights().hosts().iter().map(|(host, _)| host.clone()).collect()
    }

    /// Notes on what the sandbox refused, for whoever reads the result alone.
    fn notes(&self, command: &str, head: &Head, end: ProgramEnd, changes: Option<&Changes>) -> Vec<String> {
        let failed = end.code != Some(0);
        let granted = self.granted_hosts();
        let mut notes = changes.map(|changes| remarks_on(command, &granted, changes, failed)).unwrap_or_default();
        let last = &head.bytes[head.bytes.len().saturating_sub(LAST_OUTPUT)..];
        if compile::is_offline(&self.effective) && !notes.iter().any(|note| note.starts_with("the network")) {
            notes.extend(remark_offline(&String::from_utf8_lossy(last)).map(str::to_owned));
        }
        notes
    }
}

/// Words that a program was started with, in one line.
fn words(work: &Work) -> String {
    match work {
        Work::Program { argv, .. } => argv.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        Work::Tool { .. } => String::new(),
    }
}

pub(super) fn add_notes(data: &mut Value, notes: Vec<String>) {
    if let (Some(data), false) = (data.as_object_mut(), notes.is_empty()) {
        data.insert("notes".to_owned(), notes.into());
    }
}
