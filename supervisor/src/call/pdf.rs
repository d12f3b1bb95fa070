//! Programs that read a document for callgate, and what becomes of what they print.

use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;
use callgate_policy::plan::Work;
use callgate_policy::step::Step;
use serde_json::Value;

use super::envelope::Done;
use super::{Going, OnOutput};
use crate::confine::ConfineError;
use crate::error::CallError;
use crate::gate::ApprovedPlan;
use crate::gate::Known;
use crate::registry::{Executor, ReadBefore, Registry, Tool, Understood, read_pdf};
use crate::session::Session;
use crate::store::Recording;
use crate::turn::{Concurrency, Turn};

impl Session {
    /// Runs a program tool. What it prints is the result, or what the tool makes of it.
    pub(super) async fn run_program(
        &self,
        tool: &Tool,
        plan: ApprovedPlan,
        turn: Turn,
        on_output: OnOutput<'_>,
        known: &mut Known,
    ) -> Result<Done, CallError> {
        let Executor::Program(prepare) = &tool.executor else {
            return self.run_shell(tool, plan, turn, on_output, known).await;
        };
        let argv = words(&plan.work);
        match self.run_shell(tool, plan, turn, on_output, known).await {
            Ok(done) if done.ended_for.is_none() => match prepare.made_of(&argv, &done.data) {
                None => Ok(done),
                Some(Ok(data)) => Ok(Done { data, ..done }),
                Some(Err(text)) => Err(CallError::Told { text, code: ErrorCode::ToolExecutionFailed }),
            },
            Err(CallError::Confine(ConfineError::Refused(failed))) if failed.step == Step::Exec => {
                match prepare.without_program(&argv, &failed.what_failed()) {
                    Some(data) => Ok(Done::of(data)),
                    None => Err(CallError::Confine(ConfineError::Refused(failed))),
                }
            }
            other => other,
        }
    }

    /// A call of `read` that has come upon a PDF goes on as a call of `read_pdf`: through all layers, for it starts a program.
    pub(super) async fn go_on_with_pdf(
        &self,
        registry: &Registry,
        args: Value,
        on_output: OnOutput<'_>,
        (known, recording): (&mut Known, &mut Recording),
    ) -> Result<Done, CallError> {
        let tool = read_pdf().map_err(|error| CallError::Tool(error.to_string()))?;
        if !self.gate.profile.offers(tool.subject) {
            let text =
                format!("it is a PDF, and the profile `{}` starts no program to read it", self.gate.profile.name);
            return Err(CallError::Told { text, code: ErrorCode::Forbidden });
        }
        let checked =
            self.checked_on(&tool, registry, (Understood::of(args), &ReadBefore::default()), Going::default())?;
        let place = self.turns.queue(checked.tool.concurrency).await;
        let asking = self.gate.questions.queue(Concurrency::Alone).await;
        let approved = self.pass(checked, asking, (&mut *known, &mut *recording)).await?;
        let turn = place.turn().await;
        self.goes_on(&tool.name)?;
        self.execute(registry, approved, turn, on_output, (known, recording)).await
    }
}

fn words(work: &Work) -> Vec<HostPath> {
    match work {
        Work::Program { argv, .. } => argv.clone(),
        Work::Tool { .. } => Vec::new(),
    }
}
