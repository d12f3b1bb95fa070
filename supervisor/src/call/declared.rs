//! Running a declared tool: its arguments on standard input, its result on standard output, both JSON.
//!
//! What it prints is as hostile as a worker's frames. It is cut off at a fixed length before it is parsed, parsed within a bound
//! of memory, and compared with the schema that the tool publishes.

use std::sync::Arc;

use callgate_policy::effective::EffectiveSet;
use callgate_policy::envelope::{Denial, Layer};
use callgate_policy::failure::ErrorCode;
use callgate_policy::manifest::Env;
use callgate_policy::path::HostPath;
use callgate_policy::remarks::remarks;
use callgate_policy::step::Step;
use callgate_worker::protocol::ProgramEnd;
use serde_json::Value;

use super::OnOutput;
use super::envelope::Done;
use super::error::not_started;
use crate::confine::ConfineError;
use crate::error::CallError;
use crate::error::denied;
use crate::gate::ApprovedPlan;
use crate::gate::Known;
use crate::json;
use crate::registry::{Declared, STATE, Tool};
use crate::run::{ANSWER_MAX, Orders, PrintedAnswer, ProgramEnded, Running, Streams};
use crate::session::Session;
use crate::turn::Turn;

/// The most memory that a result may take when it is parsed, bytes.
const PARSED_MAX: usize = 64 * 1024 * 1024;
/// Most bytes of standard error that a failed call tells: the last ones.
const LAST_WORDS: usize = 2000;

impl Session {
    /// Runs it in a sandbox of its own, and takes its result.
    pub(super) async fn run_declared(
        &self,
        (tool, declared): (&Tool, &Arc<Declared>),
        (plan, own): (ApprovedPlan, &EffectiveSet),
        args: Value,
        turn: Turn,
        on_output: OnOutput<'_>,
        known: &mut Known,
    ) -> Result<Done, CallError> {
        declared.confirm().map_err(changed)?;
        let slot = self.slot_of(tool, declared)?;
        let mut env = Env { pass: declared.env.clone(), ..Env::default() };
        env.set.extend(slot.as_ref().map(|slot| (STATE.to_owned(), slot.to_string())));
        let (bounds, timeout) = (plan.bounds, plan.timeout);
        let part = self.open_part(own, (&env, slot.as_ref()), &bounds).await?;
        // Once more: what its sandbox shows was bound to its path meanwhile.
        declared.confirm().map_err(changed)?;
        // A program starts where it can list its directory.
        let plan = if own.allows_read(&self.root()) { plan } else { plan.starting_in(part.temporary.clone()) };
        let failed = |source| CallError::Output { what: "make pipes for the tool", source };
        let (streams, input) = Streams::piped().map_err(failed)?;
        let started = Running::start(&part.opened, plan, streams, turn).await;
        let program = started.map_err(|error| did_not_start(tool, declared, error))?;
        known.steps = program.steps().to_vec();
        let args = args.to_string();
        let mut heard = PrintedAnswer::new(LAST_WORDS, on_output);
        let ended = program.follow(&mut heard, input.feed(args.as_bytes()), Orders::None).await?;
        let ProgramEnded { end, limits, ended_for, changes, .. } = ended;
        known.changes.clone_from(&changes);
        if ended_for.is_some() {
            return Ok(Done { limits, ended_for, changes, ..Done::of(heard.last_words().into()) });
        }
        if end.timed_out {
            return Err(CallError::TimedOut(timeout));
        }
        let notes = changes.as_ref().map(|changes| remarks(changes, true)).unwrap_or_default();
        let told = |(code, why)| CallError::Told { text: with_notes(why, &notes), code };
        let data = result(&heard, tool, &end).map_err(told)?;
        Ok(Done { limits, changes, ..self.cut(tool, data)? })
    }

    /// The directory of a tool's state, if it declares one: its own, and no other's (S1-28).
    fn slot_of(&self, tool: &Tool, declared: &Arc<Declared>) -> Result<Option<HostPath>, CallError> {
        if !declared.has_state {
            return Ok(None);
        }
        if self.sandbox.facts.identity.uid != rustix::process::geteuid().as_raw() {
            let reason = "its state would be this user's, and its calls run as the workspace's owner";
            let denial = Denial::new(Layer::Host, format!("the state of {}", tool.name), reason);
            return Err(denied(denial.remedy("run callgate as the workspace's owner")));
        }
        let slot = crate::store::slot(&tool.name, &tool.origin, &self.root())?;
        Ok(Some(slot))
    }
}

/// A program that is not there, or is none, is the definition's mistake, not the host's.
fn did_not_start(tool: &Tool, declared: &Declared, error: ConfineError) -> CallError {
    if let ConfineError::Refused(failed) = &error
        && failed.step == Step::Exec
    {
        let (name, file, failed) = (&tool.name, declared.file.display(), failed.what_failed());
        return CallError::Tool(format!("`{name}` did not start: {failed}; its `command` is in {file}"));
    }
    not_started(error)
}

fn changed(file: std::path::PathBuf) -> CallError {
    let reason = "it has changed, or cannot be read, since the tool was loaded";
    denied(Denial::new(Layer::Host, file.display().to_string(), reason).remedy(
        "look at it; a project's is trusted anew with `callgate trust`; then open a new session, or reload its tools",
    ))
}

fn with_notes(mut text: String, notes: &[String]) -> String {
    if !notes.is_empty() {
        text.push_str("; ");
        text.push_str(&notes.join("; "));
    }
    text
}

/// Failure with the last words of the tool.
fn failed(heard: &PrintedAnswer<'_>, what: String) -> String {
    match heard.last_words() {
        words if words.is_empty() => what,
        words => format!("{what}. It had written on standard error:\n{words}"),
    }
}

/// The result, or what is wrong with what it printed.
fn result(heard: &PrintedAnswer<'_>, tool: &Tool, end: &ProgramEnd) -> Result<Value, (ErrorCode, String)> {
    let name = &tool.name;
    let failed = |what| (ErrorCode::ToolExecutionFailed, self::failed(heard, what));
    let malformed = |what| (ErrorCode::OutputMalformed, self::failed(heard, what));
    if heard.is_too_long() {
        return Err(malformed(format!("`{name}` printed more than {ANSWER_MAX} bytes, and was ended")));
    }
    match (end.code, end.signal) {
        (Some(0), _) => {}
        (Some(code), _) => return Err(failed(format!("`{name}` exited with status {code}"))),
        (None, Some(signal)) => return Err(failed(format!("`{name}` was ended by signal {signal}"))),
        (None, None) => return Err(failed(format!("`{name}` did not end by itself"))),
    }
    if heard.answer.iter().all(u8::is_ascii_whitespace) {
        return Err(malformed(format!("`{name}` printed no result: it is to be JSON on standard output")));
    }
    let data = json::parse(&heard.answer, PARSED_MAX).map_err(|error| {
        let begins: String = String::from_utf8_lossy(&heard.answer).chars().take(80).collect();
        malformed(format!("`{name}` printed what is no JSON ({error}); it begins with {begins:?}"))
    })?;
    tool.validate_result(&data).map_err(malformed)?;
    Ok(data)
}
