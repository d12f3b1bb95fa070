//! Running `bash`, and following what it prints.

use callgate_policy::effective::Source;
use callgate_policy::plan::compile;
use callgate_policy::remarks::GrantedHosts;
use callgate_tools::HEAD;
use serde_json::{Value, json};

use super::OnOutput;
use super::envelope::Done;
use super::error::not_started;
use super::rest::Rest;
use crate::error::CallError;
use crate::gate::ApprovedPlan;
use crate::gate::Known;
use crate::registry::Tool;
use crate::run::{Listener, Orders, ProgramEnded, ProgramStream, Running, Streams, Surroundings, limits, line_of};
use crate::session::Session;
use crate::turn::Turn;

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
        let failed = |source| CallError::Output { what: "make a pipe for the output", source };
        let streams = Streams::merged().map_err(failed)?;
        let command = line_of(plan.work.argv());
        let started = Running::start(&self.sandbox.opened, plan, streams, turn).await;
        let program = started.map_err(not_started)?;
        known.steps = program.steps().to_vec();
        let limit = usize::try_from(self.tools.lifecycle.now().output_limit(&tool.name)).unwrap_or(usize::MAX);
        let rest = Rest { tool: &tool.name, outputs: self.sandbox.outputs.as_ref(), file: None, lost: false };
        let mut heard = Merged { head: Head::new(limit, rest), on_output };
        let ended = program.follow(&mut heard, std::future::ready(()), Orders::None).await?;
        let head = heard.head;
        let truncated = head.dropped;
        let data = match ended.ended_for {
            Some(_) => Value::String(head.text()),
            None => {
                let mut data = shell_data(&head, &ended);
                let last = &head.bytes[head.bytes.len().saturating_sub(LAST_OUTPUT)..];
                let notes = self.surroundings().notes(&command, &ended.end, ended.changes.as_ref(), &[last]);
                add_notes(&mut data, notes);
                data
            }
        };
        let ProgramEnded { limits, ended_for, changes, .. } = ended;
        Ok(Done { limits, ended_for, changes, ..head.rest.done(data, truncated) })
    }

    /// Facts that the ends of this session's programs are told with.
    pub(crate) fn surroundings(&self) -> Surroundings {
        Surroundings { granted: self.granted_hosts(), is_offline: compile::is_offline(&self.effective) }
    }

    /// The hosts that are granted, as what is refused is told beside them.
    pub(super) fn granted_hosts(&self) -> GrantedHosts {
        let hosts = self.effective.rights().hosts().iter().map(|(host, _)| host.clone()).collect();
        GrantedHosts { hosts, bound: self.effective.bound_on_hosts().map(Source::in_a_sentence) }
    }
}

/// Most bytes of output in which a sign is looked for: package managers end with it.
const LAST_OUTPUT: usize = 16 * 1024;

/// Both streams as one.
struct Merged<'a> {
    head: Head<'a>,
    on_output: OnOutput<'a>,
}

impl Listener for Merged<'_> {
    fn hear(&mut self, _: ProgramStream, piece: &[u8]) {
        self.head.take(piece, self.on_output);
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
fn shell_data(head: &Head, ProgramEnded { end, took, .. }: &ProgramEnded) -> Value {
    let mut data = json!({
        (if head.dropped { HEAD } else { "output" }): head.text(),
        "exit_code": end.code,
        "duration_seconds": (took.as_secs_f64() * 1000.0).round() / 1000.0,
        "timed_out": end.timed_out,
        "signal": end.signal,
    });
    limits::tell_left(&mut data, end);
    data
}

pub(crate) fn add_notes(data: &mut Value, notes: Vec<String>) {
    if let (Some(data), false) = (data.as_object_mut(), notes.is_empty()) {
        data.insert("notes".to_owned(), notes.into());
    }
}
