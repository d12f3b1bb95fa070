//! `update_plan` (S2-19, X2-18): the steps that the session means to take, beside its list of what is to be done.

use super::super::{RegistryError, Tool};
use crate::registry::acts::Hosted;
use crate::registry::executor::{Executor, HostTool};

const DESCRIPTION: &str = "Keeps this session's plan: its steps, in order, and how far each of them is. The plan that is given \
replaces the one before as a whole, and at most one step may be `in_progress`. Returns the plan as it is then.";

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "explanation": { "type": "string", "maxLength": 4000, "description": "Why the plan is as it is now." },
    "plan": {
      "type": "array",
      "maxItems": 200,
      "items": {
        "type": "object",
        "properties": {
          "step": { "type": "string", "minLength": 1, "maxLength": 1000 },
          "status": { "enum": ["pending", "in_progress", "completed"] }
        },
        "required": ["step", "status"],
        "additionalProperties": false
      },
      "description": "The whole plan, in order: each `step` with its `status`, which is pending, in_progress or completed."
    }
  },
  "required": ["plan"],
  "additionalProperties": false
}"#;

const OUTPUT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "explanation": { "type": ["string", "null"] },
    "plan": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": { "step": { "type": "string" }, "status": { "enum": ["pending", "in_progress", "completed"] } },
        "required": ["step", "status"]
      }
    },
    "head": { "description": "The first part of a result that was too long." }
  },
  "anyOf": [{ "required": ["head"] }, { "required": ["plan"] }]
}"#;

pub(in crate::registry) fn update_plan() -> Result<Tool, RegistryError> {
    Ok(Tool::bundled("update_plan", (DESCRIPTION, SCHEMA, OUTPUT), Executor::Host(HostTool::Session(Hosted::Plan))))
}
