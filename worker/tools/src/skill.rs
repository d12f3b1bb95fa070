//! `front-matter`: what a skill says of itself, in YAML (X0-37). No tool of a model's, as `shell` is none: the supervisor has a
//! worker read what a stranger may have written.

use callgate_policy::skill::FrontMatter;
use serde_json::{Value, json};

use super::arguments::required_text;
use super::{ToolError, ToolResult};

/// The name by which the supervisor calls it.
pub const NAME: &str = "front-matter";

/// Reads `args["text"]`; `args["file"]` is for messages.
///
/// # Errors
/// An argument that is not text. A front matter that is none is a result.
pub fn run(args: &Value) -> Result<ToolResult, ToolError> {
    let (text, file) = (required_text(args, "text")?, required_text(args, "file")?);
    let data = match FrontMatter::parse(text, file) {
        Ok(front) => json!({ "front": front }),
        Err(error) => json!({ "why": format!("{} (line {} of its front matter)", error.message(), error.line()) }),
    };
    Ok(ToolResult::of(data, false))
}
