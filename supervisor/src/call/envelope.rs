//! Envelope of a call: a host gets one, whatever came of it.

use std::time::Duration;

use callgate_policy::envelope::{Changes, Denial, Metadata, ResultEnvelope};
use callgate_policy::limit::{LimitName, LimitReport};
use serde_json::Value;

use super::error::{denial_of, error_text, failure, timed_out};
use crate::error::CallError;
use crate::gate::Known;
use crate::registry::Tool;
use crate::session::Session;

/// A result and what confined it.
pub(crate) struct Done {
    pub(crate) data: Value,
    pub(crate) truncated: bool,
    /// Where the rest is.
    pub(crate) output_path: Option<String>,
    /// Reason why some of it is nowhere.
    pub(crate) rest_lost: Option<String>,
    pub(crate) limits: Vec<LimitReport>,
    /// It was ended for a limit: then `data` is what there is of a result, for the error's text.
    pub(crate) ended_for: Option<Denial>,
    pub(crate) changes: Option<Changes>,
}

impl Done {
    /// A whole result, of which nothing else is known.
    pub(crate) fn of(data: Value) -> Self {
        Self {
            data,
            truncated: false,
            output_path: None,
            rest_lost: None,
            limits: Vec::new(),
            ended_for: None,
            changes: None,
        }
    }
}

impl Done {
    /// The result as the surface of its tool shows it. What was ended for a limit is text.
    pub(super) fn seen_by(mut self, tool: &Tool) -> Self {
        if self.ended_for.is_none() {
            (self.data, self.truncated) = tool.shape(self.data, self.truncated);
        }
        self
    }
}

impl Session {
    /// Builds the result, once.
    pub(super) fn envelope(
        &self,
        outcome: Result<Done, CallError>,
        runs: bool,
        Known { passed, steps, changes, asked_for }: Known,
        duration_ms: u64,
    ) -> ResultEnvelope {
        let mut metadata = Metadata::new(duration_ms);
        // Of what does not run in the sandbox nothing is claimed.
        metadata.enforced = if steps.is_empty() { Vec::new() } else { super::enforced(self, &steps) };
        metadata.decision = passed.decision;
        metadata.approved_by = passed.approved_by;
        metadata.sub_policy = passed.sub_policy;
        match outcome {
            Ok(done) => {
                metadata.truncated = done.truncated.then_some(true);
                metadata.output_path = done.output_path;
                metadata.rest_lost = done.rest_lost;
                metadata.limits = done.limits.into_iter().map(|limit| requested(limit, asked_for)).collect();
                metadata.changes = done.changes;
                match done.ended_for {
                    None => ResultEnvelope::output(done.data, metadata),
                    Some(denial) => {
                        let error_text = ended_text(&denial, done.data.as_str().unwrap_or_default());
                        metadata.error = Some(failure(denial.layer.code(), runs));
                        metadata.denial = Some(denial);
                        ResultEnvelope::error(error_text, metadata)
                    }
                }
            }
            Err(error) => {
                let error_text = error_text(&error);
                metadata.error = Some(failure(error.code(), runs));
                metadata.timed_out = timed_out(&error);
                metadata.changes = changes;
                metadata.denial = denial_of(error);
                ResultEnvelope::error(error_text, metadata)
            }
        }
    }
}

/// A limit with what was asked for, where that was more.
fn requested(mut limit: LimitReport, time: Option<Duration>) -> LimitReport {
    if limit.limit == LimitName::Wall {
        limit.requested = time.map(crate::run::limits::ms);
    }
    limit
}

/// Most characters of a program's output in the error that has no place for a result.
const LAST_WORDS: usize = 2000;

/// Text of a call that was ended: the reason, the next step, and the end of what it had written.
fn ended_text(denial: &Denial, output: &str) -> String {
    let mut text = format!("the call met its `{}` limit: {}", denial.asked, denial.reason);
    if let Some(remedy) = &denial.remedy {
        text.push_str("; ");
        text.push_str(remedy);
    }
    if !output.is_empty() {
        let from = output.char_indices().rev().nth(LAST_WORDS - 1).map_or(0, |(at, _)| at);
        text.push_str("\nIt had written:\n");
        text.push_str(&output[from..]);
    }
    text
}
