//! `todo` (S0-16): the session's list of what is to be done, replaced as a whole, of which at most one is being done.

use super::super::{RegistryError, Tool};
use crate::registry::acts::Hosted;
use crate::registry::executor::{Executor, HostTool};

const DESCRIPTION: &str = "Keeps this session's list of what is to be done. The list that is given replaces the one before as a \
whole, and at most one item may be `in_progress`. Without `todos` nothing changes. Returns the list as it is then; it stays with \
the session. Use it for work of several steps, and keep it up to date.";

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "todos": {
      "type": "array",
      "maxItems": 200,
      "items": {
        "type": "object",
        "properties": {
          "content": { "type": "string", "minLength": 1, "maxLength": 1000 },
          "status": { "enum": ["pending", "in_progress", "completed"] }
        },
        "required": ["content", "status"],
        "additionalProperties": false
      },
      "description": "The whole list, in order: each with its `content` and its `status`, which is pending, in_progress or completed. Default: the list as it is."
    }
  },
  "additionalProperties": false
}"#;

const OUTPUT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "todos": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": { "content": { "type": "string" }, "status": { "enum": ["pending", "in_progress", "completed"] } },
        "required": ["content", "status"]
      }
    },
    "head": { "description": "The first part of a result that was too long." }
  },
  "anyOf": [{ "required": ["head"] }, { "required": ["todos"] }]
}"#;

pub(super) fn todo() -> Result<Tool, RegistryError> {
    Ok(Tool::bundled("todo", (DESCRIPTION, SCHEMA, OUTPUT), Executor::Host(HostTool::Session(Hosted::Todo))))
}
