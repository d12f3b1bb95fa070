//! Programs that read a document for callgate, and what becomes of what they print.

use std::sync::Arc;

use callgate_policy::failure::ErrorCode;
use callgate_policy::step::Step;

use super::OnOutput;
use super::envelope::Done;
use crate::confine::ConfineError;
use crate::error::CallError;
use crate::gate::ApprovedPlan;
use crate::gate::Known;
use crate::registry::{ReadsDocument, Tool};
use crate::session::Session;
use crate::turn::Turn;

impl Session {
    /// Runs such a program. The result is made of what it prints.
    pub(super) async fn run_document(
        &self,
        (tool, document): (&Tool, &Arc<dyn ReadsDocument>),
        plan: ApprovedPlan,
        turn: Turn,
        on_output: OnOutput<'_>,
        known: &mut Known,
    ) -> Result<Done, CallError> {
        let argv = plan.work.argv().to_vec();
        match self.run_shell(tool, plan, turn, on_output, known).await {
            Ok(done) if done.ended_for.is_none() => match document.result_of(&argv, &done.data) {
                Ok(data) => Ok(Done { data, ..done }),
                Err(text) => Err(CallError::Told { text, code: ErrorCode::ToolExecutionFailed }),
            },
            Err(CallError::Confine(ConfineError::Refused(failed))) if failed.step == Step::Exec => {
                Ok(Done::of(document.without_program(&argv, &failed.what_failed())))
            }
            other => other,
        }
    }
}
