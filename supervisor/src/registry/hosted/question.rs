//! `question` (S0-18, S0-26): the one locked tool that waits for a person.

use super::super::{RegistryError, Tool};
use crate::registry::acts::Hosted;
use crate::registry::executor::{Executor, HostTool};

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
    Ok(Tool::bundled("question", (DESCRIPTION, SCHEMA, OUTPUT), Executor::Host(HostTool::Session(Hosted::Question))))
}
