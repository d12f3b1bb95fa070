//! `bash` (S0-15): one command line, not a session (S0-23).

use std::sync::Arc;
use std::time::Duration;

use callgate_policy::effect::{Effect, Effects, ProgramRun};
use callgate_policy::path::HostPath;
use callgate_policy::plan::CallWork;
use callgate_policy::profile::Profile;
use callgate_policy::requirement::{Program, RequirementSet, ShellRunRequirement};
use serde_json::Value;

use super::executor::{Executor, ProgramTool};
use super::prepare::{Context, InvalidArgument, Prepare, Prepared};
use super::{RegistryError, Tool};

const DESCRIPTION: &str = "Runs one command line with bash, in the sandbox, and returns what it wrote to standard output and standard \
error, in the order in which it was written, with its exit status. A command that fails is a result, not an error. Each call is a \
new shell: directory and variables do not carry over; use working_dir. Nothing that the command starts outlives it. Of more than \
200 KB of output the first part is `head` instead of `output`, and the rest is in the file `output_path` of the metadata. \
`notes` say what the sandbox refused, such as the network, and what to do about it.";

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "command": {
      "type": "string",
      "minLength": 1,
      "maxLength": 131072,
      "description": "The command line, as bash reads it."
    },
    "working_dir": {
      "type": ["string", "object"],
      "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } },
      "required": ["b64"],
      "additionalProperties": false,
      "description": "Where it starts: absolute, or relative to the workspace. A path that is not UTF-8 is `{\"b64\": \"…\"}`, with the `path_b64` of a result. Default: the workspace."
    },
    "timeout_ms": {
      "type": "integer",
      "minimum": 1,
      "maximum": 600000,
      "description": "The command is killed after this many milliseconds; the result then holds what it had written. Default 120000."
    }
  },
  "required": ["command"],
  "additionalProperties": false
}"#;

pub(super) const OUTPUT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "output": { "type": "string", "description": "What it wrote to standard output and standard error, in order." },
    "exit_code": { "type": ["integer", "null"] },
    "duration_seconds": { "type": "number" },
    "timed_out": { "type": "boolean" },
    "signal": { "type": ["integer", "null"] },
    "notes": {
      "type": "array",
      "items": { "type": "string" },
      "description": "What the sandbox refused while it ran, and what to do about it."
    },
    "head": { "description": "The first part of a result that was too long." }
  },
  "anyOf": [{ "required": ["head"] }, { "required": ["output", "exit_code", "duration_seconds", "timed_out", "signal"] }]
}"#;

/// A command line may name any program, so that is what it requires; a ceiling says which of them a session may start.
pub(super) fn bash() -> Result<Tool, RegistryError> {
    let shell = vec![ShellRunRequirement { cmd: Program::Any, args: None }];
    let requires = RequirementSet { shell, ..RequirementSet::default() };
    let tool =
        Tool::bundled("bash", (DESCRIPTION, SCHEMA, OUTPUT), Executor::Program(ProgramTool::Plain(Arc::new(Bash))));
    Ok(tool.requires(requires))
}

/// Has the parameters tell the defaults that a profile sets.
pub(super) fn tell_defaults(parameters: &mut Value, profile: &Profile) {
    let mut tell = |parameter: &str, default: &str| {
        if let Some(Value::String(text)) = parameters.pointer_mut(&format!("/properties/{parameter}/description"))
            && let Some((before, _)) = text.split_once("Default")
        {
            *text = format!("{before}Default{default}.");
        }
    };
    if let Some(timeout) = profile.shell_timeout {
        tell("timeout_ms", &format!(" {}", timeout.as_millis()));
    }
    if let Some(dir) = &profile.shell_working_dir {
        tell("working_dir", &format!(": {}", dir.value));
    }
}

/// The shell with a command line. No start-up file is read: whoever wrote one would decide what every call does (C4).
pub(super) fn shell_argv(command: &str) -> Result<Vec<HostPath>, InvalidArgument> {
    if command.contains('\0') {
        return Err(InvalidArgument {
            name: "command".to_owned(),
            reason: "it contains a NUL, which no command line can".to_owned(),
        });
    }
    Ok(["/bin/bash", "--noprofile", "--norc", "-c", command].map(HostPath::from).to_vec())
}

struct Bash;

impl Prepare for Bash {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let command = args["command"].as_str().unwrap_or_default();
        let argv = shell_argv(command)?;
        let working_dir = match args.get("working_dir") {
            None => context.shell_dir.clone(),
            Some(_) => context.path_argument(args, "working_dir")?,
        };
        let effects = Effects::of(Effect::Runs(ProgramRun::shell(command, working_dir.clone())));
        let timeout = args["timeout_ms"].as_u64().map(Duration::from_millis);
        Ok(Prepared::new(effects, Some(CallWork::program(argv, working_dir)), timeout))
    }
}
