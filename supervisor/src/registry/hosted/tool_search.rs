//! `tool_search` (S0-22): finds deferred tools, and has what it returns called from then on (S3-8, C-33).

use super::super::{Registry, RegistryError, Tool};
use super::{Hosted, tool};

/// Most tools of one answer (C-11).
pub(crate) const MOST: usize = 10;
/// Most names that an error lists.
const NAMES: usize = 100;

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
    Ok(tool(Hosted::ToolSearch, NAME, (DESCRIPTION, SCHEMA, OUTPUT))?.side_by_side())
}

/// All deferred tools whose name or description contains the query (S3-9): by how well they fit, then by name (C-11).
pub(crate) fn ranked<'a>(registry: &'a Registry, query: &str) -> Vec<&'a Tool> {
    let query = query.to_lowercase();
    let rank = |tool: &Tool| {
        let name = tool.name.to_lowercase();
        match name.find(&query) {
            Some(_) if name == query => Some(0),
            Some(0) => Some(1),
            Some(_) => Some(2),
            None => tool.description.to_lowercase().contains(&query).then_some(3),
        }
    };
    let mut found: Vec<(u8, &Tool)> = deferred(registry).filter_map(|tool| Some((rank(tool)?, tool))).collect();
    found.sort_by_key(|(rank, tool)| (*rank, tool.name.as_str()));
    found.into_iter().map(|(_, tool)| tool).collect()
}

fn deferred(registry: &Registry) -> impl Iterator<Item = &Tool> {
    registry.tools().filter(|tool| tool.deferred)
}

/// A miss says what there is (C-11).
pub(crate) fn nothing(registry: &Registry, query: &str) -> String {
    let mut names: Vec<&str> = deferred(registry).map(|tool| tool.name.as_str()).collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(NAMES);
    names.truncate(NAMES);
    let there = match (names.is_empty(), more) {
        (true, _) => "no tool is deferred: those that are listed can be called as they are".to_owned(),
        (false, 0) => format!("there are: {}", names.join(", ")),
        (false, more) => format!("there are: {}, and {more} more", names.join(", ")),
    };
    format!("no deferred tool has {query:?} in its name or description; {there}")
}
