//! `tool_search` (S0-22): finds deferred tools, and has what it returns called from then on (S3-8, C-33).

use super::super::{RegistryError, Tool};
use crate::registry::acts::Hosted;
use crate::registry::executor::{Executor, HostTool};

/// Most tools of one answer (C-11).
pub(crate) const MOST: usize = 10;

const DESCRIPTION: &str = "Finds tools that are deferred: their names are listed without their parameters, and they cannot be called \
before this tool has returned them. Returns those whose name or description contains `query`, whatever the case, the best first, \
each with its description and the schema of its parameters. They can be called from then on. `omitted` is how many more there are: \
ask for something more exact then.";

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "query": {
      "type": "string",
      "minLength": 1,
      "maxLength": 200,
      "description": "Text that the tool's name or description contains, such as `issue`."
    }
  },
  "required": ["query"],
  "additionalProperties": false
}"#;

const OUTPUT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "matches": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {
          "id": { "type": "string" },
          "description": { "type": "string" },
          "parameters": { "type": "object" },
          "output_schema": { "type": "object" }
        },
        "required": ["id", "description", "parameters"]
      }
    },
    "omitted": { "type": "integer", "description": "How many more there are." },
    "head": { "description": "The first part of a result that was too long." }
  },
  "anyOf": [{ "required": ["head"] }, { "required": ["matches", "omitted"] }]
}"#;

pub(crate) const NAME: &str = "tool_search";

/// Word of a surface where all that match are returned (S3-9, C-11).
pub(crate) const UNLIMITED: &str = "unlimited";

pub(super) fn tool_search() -> Result<Tool, RegistryError> {
    Ok(Tool::bundled(NAME, (DESCRIPTION, SCHEMA, OUTPUT), Executor::Host(HostTool::Session(Hosted::ToolSearch)))
        .side_by_side())
}
