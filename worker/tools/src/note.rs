//! `note`: adds a fact to a file of notes in the workspace (S2-20, X2-18).
//!
//! The file is replaced as `edit` replaces one: whoever reads it sees a whole number of notes.

use serde_json::{Map, Value};

use super::arguments::required_text;
use super::write::{MissingPath, WriteTarget};
use super::{Contract, SyscallNeed, ToolContext, ToolError, ToolResult, edit, name_path};

/// Where notes are kept, below the workspace.
pub const FILE: &str = ".deepseek/notes.md";

/// Contract of `note`.
pub const CONTRACT: Contract = Contract {
    name: "note",
    requires: &["fs.read", "fs.write"],
    description: "Add a fact that is worth keeping to the notes of this workspace, in `.deepseek/notes.md`. Notes stay when the \
        session is over; read them with the tool that reads files.",
    schema: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "content": { "type": "string", "minLength": 1, "maxLength": 20000, "description": "The fact, in a sentence or a few." }
  },
  "required": ["content"],
  "additionalProperties": false
}"#,
    output: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "path": { "type": "string" },
    "path_b64": { "type": "string" },
    "bytes": { "type": "integer", "minimum": 0, "description": "How long the file is now." }
  },
  "required": ["path", "bytes"]
}"#,
    kind: SyscallNeed::Plain,
    run,
    files: None,
};

/// Adds `args["content"]` to `ctx.path`.
///
/// # Errors
/// The operation that failed; the file is as it was.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let note = required_text(args, "content")?;
    let target = WriteTarget::find(&ctx.path, MissingPath::Made, ctx.links)?;
    let (before, stat) = match target.replaces {
        Some(_) => edit::content(&target, &ctx.path).map(|(before, stat)| (before, Some(stat)))?,
        None => (Vec::new(), None),
    };
    let separator = if before.is_empty() || before.ends_with(b"\n") { "" } else { "\n" };
    let added = format!("{separator}- {}\n", note.trim_end().replace('\n', "\n  "));
    target.publish(&[&before, added.as_bytes()], stat.as_ref())?;
    let mut data = Map::new();
    name_path(&mut data, &ctx.path);
    data.insert("bytes".to_owned(), (before.len() + added.len()).into());
    Ok(ToolResult::of(Value::Object(data), false))
}
