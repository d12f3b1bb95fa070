//! `todo` (S0-16): the session's list of what is to be done, replaced as a whole, of which at most one is being done.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::{RegistryError, Tool};
use super::{Hosted, tool};
use crate::call::CallError;
use crate::session::Session;

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

/// Something that is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Todo {
    /// Text of the item.
    pub content: String,
    /// How far it is.
    pub status: TodoStatus,
}

/// How far something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// It is being done.
    InProgress,
    /// Done.
    Completed,
}

pub(super) fn todo() -> Result<Tool, RegistryError> {
    tool(Hosted::Todo, "todo", (DESCRIPTION, SCHEMA, OUTPUT))
}

pub(super) fn answer(session: &Session, mut args: Value) -> Result<Value, CallError> {
    if let Some(given) = args.get_mut("todos").map(Value::take) {
        let todos: Vec<Todo> = serde_json::from_value(given).map_err(|e| CallError::Arguments(e.to_string()))?;
        let begun = todos.iter().filter(|todo| todo.status == TodoStatus::InProgress).count();
        if begun > 1 {
            return Err(CallError::Arguments(format!(
                "argument `todos`: {begun} items are in_progress, and at most one may be; the list is as it was"
            )));
        }
        session.change_notes(|notes| notes.todo = todos)?;
    }
    Ok(json!({ "todos": session.todos() }))
}

impl Session {
    /// The session's list of what is to be done, as its agent keeps it with `todo`.
    #[must_use]
    pub fn todos(&self) -> Vec<Todo> {
        self.hosted.notes().todo
    }
}
