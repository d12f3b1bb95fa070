//! The worker's part of `diagnostics`: what the workspace's repository is at (S2-16). The sandbox and the toolchain are the session's
//! part, which adds them.

#[cfg(not(feature = "git"))]
use super::contract::left_out as run;
use super::{Contract, SyscallNeed};

/// The name.
pub const NAME: &str = "diagnostics";

/// Contract of `diagnostics`.
pub const CONTRACT: Contract = Contract {
    name: NAME,
    requires: &["fs.read"],
    description: "Tell in one call what you work in: `workspace`, the state of its `git` repository, the `sandbox` with what the \
        kernel confirmed of it for this call, and the `toolchain`: the versions of compilers, interpreters and build tools. Each \
        of those says its version itself, in the sandbox; one that the session may not start without a question is listed with \
        the reason instead.",
    schema: SCHEMA,
    output: OUTPUT,
    kind: SyscallNeed::Plain,
    run,
    files: None,
};

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {},
  "required": [],
  "additionalProperties": false
}"#;

const OUTPUT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "workspace": { "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] },
    "git": { "type": ["object", "null"], "description": "null if the workspace is in no repository." },
    "sandbox": {
      "type": "object",
      "properties": {
        "strength": { "type": "string" },
        "profile": { "type": "string" },
        "network": { "type": "array", "items": { "type": "string" }, "description": "The hosts that are granted." },
        "enforced": { "type": "array", "description": "For each kind of right, the steps that the kernel confirmed." }
      },
      "required": ["strength", "profile", "network", "enforced"]
    },
    "toolchain": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {
          "program": { "type": "string" },
          "version": { "type": "string", "description": "The first line that it prints." },
          "unknown": { "type": "string", "description": "Why it was not started, or did not answer." }
        },
        "required": ["program"]
      }
    }
  },
  "required": ["workspace", "git"]
}"#;

/// Looks at `ctx.path`, the workspace.
///
/// # Errors
/// None: what cannot be read is told in its place.
#[cfg(feature = "git")]
pub fn run(_: &serde_json::Value, ctx: &super::ToolContext) -> Result<super::ToolResult, super::ToolError> {
    use serde_json::{Map, Value, json};

    let mut workspace = Map::new();
    super::name_path(&mut workspace, &ctx.path);
    let git = match super::git::status::summary(ctx) {
        Ok(git) => git.unwrap_or(Value::Null),
        Err(error) => json!({ "error": error.text() }),
    };
    Ok(super::ToolResult::of(json!({ "workspace": workspace, "git": git }), false))
}
