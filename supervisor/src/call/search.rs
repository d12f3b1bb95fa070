//! A search: if a provider fails, the next one is asked, which is judged as the first was (S0-34, C-19).

use std::time::Instant;

use callgate_policy::envelope::Layer;
use callgate_policy::failure::ErrorCode;
use serde_json::Value;

use super::envelope::Done;
use super::error::error_text;
use super::{Going, OnOutput, Proposed, Ready};
use crate::error::CallError;
use crate::gate::Approved;
use crate::registry::{ReadBefore, Registry, Searches, Understood, with_failed};
use crate::session::Session;
use crate::turn::{Concurrency, Turn};

impl Session {
    /// Lets a search pass, to the first provider whose host may be asked. If there is none, it is denied for the first.
    pub(super) async fn let_search_pass<'a>(
        &self,
        registry: &'a Registry,
        searches: &Searches,
        call: &mut Proposed<'_>,
        args: Value,
        from: Going,
    ) -> Result<Ready<'a>, CallError> {
        let mut first = None;
        for hop in from.hop..searches.providers() {
            let going = Going { hop, ..from };
            match self.let_hop_pass(registry, call, args.clone(), going).await {
                Ok(ready) => return Ok(ready),
                Err(error) if is_of_this_host(&error) => drop(first.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        Err(first.unwrap_or_else(|| too_late("nobody is left to be asked")))
    }

    async fn let_hop_pass<'a>(
        &self,
        registry: &'a Registry,
        call: &mut Proposed<'_>,
        args: Value,
        going: Going,
    ) -> Result<Ready<'a>, CallError> {
        let tool = self.offered(registry, &call.tool)?;
        let checked = self.checked_on(tool, registry, (Understood::of(args), &ReadBefore::default()), going)?;
        let place = self.turns.queue(checked.tool.concurrency).await;
        let asking = self.gate.questions.queue(Concurrency::Alone).await;
        let approved = self.pass(checked, asking, (&mut call.known, &mut call.recording)).await?;
        Ok(Ready { approved, place, going })
    }

    /// Asks one after the other until somebody answers, within the time that a call has.
    pub(super) async fn run_search(
        &self,
        (registry, searches): (&Registry, &Searches),
        (mut approved, mut turn, mut going): (Approved<'_>, Turn, Going),
        on_output: OnOutput<'_>,
        call: &mut Proposed<'_>,
    ) -> Result<Done, CallError> {
        let args = approved.may_go_on().unwrap_or_default();
        let mut failed = Vec::new();
        loop {
            // What a person takes to answer is no part of it.
            let began = Instant::now();
            let about = (&mut call.known, &mut call.recording);
            let error = match self.execute(registry, approved, turn, &mut *on_output, about).await {
                Ok(mut done) => {
                    done.data = with_failed(done.data, &failed);
                    return Ok(done);
                }
                Err(error) if is_of_this_host(&error) => error,
                Err(error) => return Err(error),
            };
            let provider = searches.provider(&self.id, going.hop);
            failed.push((
                provider.map(|provider| provider.kind.name().to_owned()).unwrap_or_default(),
                error_text(&error),
            ));
            let left = going.left.unwrap_or_else(|| searches.timeout()).saturating_sub(began.elapsed());
            let next = Going { hop: going.hop + 1, left: Some(left) };
            if left.is_zero() || next.hop >= searches.providers() {
                return Err(all_failed(error, &failed));
            }
            match self.let_search_pass(registry, searches, call, args.clone(), next).await {
                Ok(ready) => {
                    (approved, turn, going) = (ready.approved, ready.place.turn().await, ready.going);
                    self.goes_on(&call.tool)?;
                }
                Err(denied) if is_of_this_host(&denied) => return Err(all_failed(error, &failed)),
                Err(other) => return Err(other),
            }
        }
    }
}

/// True if another provider may do better.
fn is_of_this_host(error: &CallError) -> bool {
    match error {
        CallError::Denied(denial) => matches!(denial.layer, Layer::Capability | Layer::Rule | Layer::Sandbox),
        CallError::Told { .. } | CallError::Tool(_) => true,
        CallError::Confine(error) => matches!(error, crate::confine::ConfineError::TimedOut(_)),
        CallError::UnknownTool { .. }
        | CallError::LeftOut { .. }
        | CallError::Inactive(_)
        | CallError::Deferred { .. }
        | CallError::Arguments(_)
        | CallError::Halted { .. }
        | CallError::NotRecorded(_)
        | CallError::Plan(_)
        | CallError::TimedOut(_)
        | CallError::Aborted
        | CallError::Ended
        | CallError::Unanswered(_)
        | CallError::Output { .. } => false,
    }
}

/// One error for all; of a single provider its own.
fn all_failed(last: CallError, failed: &[(String, String)]) -> CallError {
    if let [_] = failed {
        return last;
    }
    let all: Vec<&str> = failed.iter().map(|(_, error)| error.as_str()).collect();
    CallError::Told { text: format!("nobody who was asked has answered: {}", all.join("; ")), code: last.code() }
}

fn too_late(why: &str) -> CallError {
    CallError::Told { text: why.to_owned(), code: ErrorCode::ToolExecutionFailed }
}
