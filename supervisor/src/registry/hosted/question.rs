//! `question` (S0-18, S0-26): the one locked tool that waits for a person.

use serde_json::{Value, json};

use super::super::{RegistryError, Tool};
use super::{Hosted, tool};
use crate::call::CallError;
use crate::gate::{Inquiry, Query, Unanswered};
use crate::session::{Session, new_id};
use crate::store::Recording;
use crate::turn::Concurrency;

const DESCRIPTION: &str = "Asks the person for whom you work one or more questions, and waits for the answers. Ask what only they \
can know or decide, and offer `options` where you can; they may answer in other words. Returns `answers`: for each question, in \
order, a list of what was chosen or said. Where nobody can be asked, it is an error that says so.";

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "questions": {
      "type": "array",
      "minItems": 1,
      "maxItems": 16,
      "items": {
        "type": "object",
        "properties": {
          "question": { "type": "string", "minLength": 1, "maxLength": 4000 },
          "header": { "type": "string", "minLength": 1, "maxLength": 100 },
          "options": {
            "type": "array",
            "maxItems": 32,
            "items": {
              "type": "object",
              "properties": {
                "label": { "type": "string", "minLength": 1, "maxLength": 200 },
                "description": { "type": "string", "maxLength": 1000 }
              },
              "required": ["label"],
              "additionalProperties": false
            }
          },
          "multi_select": { "type": "boolean" }
        },
        "required": ["question"],
        "additionalProperties": false
      },
      "description": "The questions, each with its text in `question`. Optional: a `header` of a word or two, the `options` to choose from, each with a `label` and perhaps a `description`, and `multi_select` if several may be chosen."
    }
  },
  "required": ["questions"],
  "additionalProperties": false
}"#;

const OUTPUT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "answers": { "type": "array", "items": { "type": "array", "items": { "type": "string" } } },
    "head": { "description": "The first part of a result that was too long." }
  },
  "anyOf": [{ "required": ["head"] }, { "required": ["answers"] }]
}"#;

pub(super) fn question() -> Result<Tool, RegistryError> {
    tool(Hosted::Question, "question", (DESCRIPTION, SCHEMA, OUTPUT))
}

/// The session's other calls wait meanwhile: it is alone when its turn has come (S0-26).
pub(super) async fn answer(session: &Session, args: Value, recording: &mut Recording) -> Result<Value, CallError> {
    let questions: Vec<Query> =
        serde_json::from_value(args["questions"].clone()).map_err(|e| CallError::Arguments(e.to_string()))?;
    let blank = |query: &Query| {
        query.question.trim().is_empty() || query.options.iter().any(|option| option.label.trim().is_empty())
    };
    if questions.iter().any(blank) {
        return Err(CallError::Arguments("argument `questions`: a question and a label say something".to_owned()));
    }
    if !session.people.is_anybody_there() {
        return Err(Unanswered::Nobody.into());
    }
    // Behind the approvals that people are asked for, and before those that come later.
    let _asking = session.questions.take(Concurrency::Alone).await;
    // A question that nobody has answered is there after a crash.
    recording.wait_for_answer().await?;
    Ok(json!({ "answers": session.inquire_now(questions).await? }))
}

impl Session {
    /// Asks the session's people something on the host's own account, in the same queue in which the agent's questions and
    /// approvals are (X1-20). It is not recorded.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn inquire(&self, questions: Vec<Query>) -> Result<Vec<Vec<String>>, Unanswered> {
        let _asking = self.questions.take(Concurrency::Alone).await;
        self.inquire_now(questions).await
    }

    async fn inquire_now(&self, questions: Vec<Query>) -> Result<Vec<Vec<String>>, Unanswered> {
        // Without random bytes there is no session either.
        let id = new_id("ask_").unwrap_or_default();
        let inquiry = Inquiry { id, session: self.id.clone(), questions };
        let (by, answers) = self.people.inquire(inquiry).await?;
        tracing::info!(session = self.id, by, "questions were answered");
        Ok(answers)
    }
}
