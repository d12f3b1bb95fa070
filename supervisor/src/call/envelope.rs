//! What a host gets of a call: one envelope, whatever came of it.

use callgate_policy::envelope::{Changes, Denial, Metadata, ResultEnvelope, StepReport};
use callgate_policy::limit::LimitReport;
use serde_json::Value;

use super::CallError;
use super::error::{denial_of, error_text, timed_out};
use crate::gate::Passed;
use crate::session::Session;

/// A result and what confined it.
pub(super) struct Done {
    pub(super) data: Value,
    pub(super) truncated: bool,
    /// Where the rest is.
    pub(super) output_path: Option<String>,
    /// Why some of it is nowhere.
    pub(super) rest_lost: Option<String>,
    pub(super) steps: Vec<StepReport>,
    pub(super) limits: Vec<LimitReport>,
    /// It was ended for a limit: then `data` is what there is of a result, for the error's text.
    pub(super) ended_for: Option<Denial>,
    pub(super) changes: Option<Changes>,
    /// Who let it pass.
    pub(super) passed: Passed,
}

impl Done {
    /// A whole result, of which nothing else is known.
    pub(super) fn of(data: Value) -> Self {
        Self {
            data,
            truncated: false,
            output_path: None,
            rest_lost: None,
            steps: Vec::new(),
            limits: Vec::new(),
            ended_for: None,
            changes: None,
            passed: Passed::default(),
        }
    }
}

impl Session {
    /// Builds the result, once.
    pub(super) fn envelope(&self, outcome: Result<Done, CallError>, duration_ms: u64) -> ResultEnvelope {
        let mut metadata = Metadata::new(duration_ms);
        match outcome {
            Ok(done) => {
                metadata.truncated = done.truncated.then_some(true);
                metadata.output_path = done.output_path;
                metadata.rest_lost = done.rest_lost;
                // Of what does not run in the sandbox nothing is claimed.
                metadata.enforced = if done.steps.is_empty() { Vec::new() } else { super::enforced(self, &done.steps) };
                metadata.limits = done.limits;
                metadata.changes = done.changes;
                metadata.decision = done.passed.decision;
                metadata.approved_by = done.passed.approved_by;
                metadata.sub_policy = done.passed.sub_policy;
                match done.ended_for {
                    None => ResultEnvelope::output(done.data, metadata),
                    Some(denial) => {
                        let error_text = ended_text(&denial, done.data.as_str().unwrap_or_default());
                        metadata.denial = Some(denial);
                        ResultEnvelope::error(error_text, metadata)
                    }
                }
            }
            Err(error) => {
                let error_text = error_text(&error);
                metadata.timed_out = timed_out(&error);
                metadata.denial = denial_of(error);
                ResultEnvelope::error(error_text, metadata)
            }
        }
    }
}

/// Most characters of a program's output in the error that has no place for a result.
const LAST_WORDS: usize = 2000;

/// What a call was ended for, the next step, and the end of what it had written.
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
