//! `exec_shell` (S2-11, X2-1): one command line, with streams of its own, which may go on in the background.

use std::sync::Arc;
use std::time::Duration;

use callgate_policy::effect::{Effect, Effects, ProgramRun};
use callgate_policy::plan::CallWork;
use callgate_policy::requirement::{Program, RequirementSet, ShellRunRequirement};
use callgate_policy::tool::Subject;
use serde_json::Value;

use super::bash::shell_argv;
use super::executor::{Executor, ProgramTool};
use super::prepare::{Context, INPUT, InvalidArgument, Prepare, Prepared, input};
use super::{RegistryError, Tool};
use crate::bounds::FOREVER;

/// Bounds on what a call may ask for, milliseconds; what is less or more becomes this (X2-1).
const TIMES: (u64, u64) = (1_000, 600_000);

const DESCRIPTION: &str = "Runs one command line with bash, in the sandbox. In the foreground it returns `stdout`, `stderr` and \
`exit_code` when the command has ended; a command that fails is a result, not an error. With `background` it returns a `task_id` \
at once: read the output with exec_shell_wait, type with exec_shell_interact, end it with exec_shell_cancel, and see all with \
exec_shell_list. Use that for servers, watchers, and what takes longer than 10 minutes. A task ends with the session at the \
latest, and at most 64 run at once. Each call is a new shell: directory and variables do not carry over. Of each stream 30000 \
bytes are shown; `stdout_path` and `stderr_path` are files with the rest. `notes` say what the sandbox refused, and what to do \
about it.";

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "command": {
      "type": "string",
      "minLength": 1,
      "maxLength": 131072,
      "description": "The command line, as bash reads it. It starts in the workspace."
    },
    "timeout_ms": {
      "type": "integer", "default": 120000,
      "description": "The command is killed after this many milliseconds, 1000 to 600000. Default 120000; in the background there is none unless you give one."
    },
    "background": {
      "type": "boolean", "default": false,
      "description": "Return a task_id at once, and let the command go on. Default false."
    },
    "interactive": {
      "type": "boolean", "default": false,
      "description": "The person's own terminal, which no command gets here: only false is accepted. For a terminal of the command's own, use tty."
    },
    "stdin": {
      "type": "string",
      "maxLength": 262144,
      "description": "What the command reads on its standard input. In the background the input stays open after it, for exec_shell_interact; else it ends. Also called input or data."
    },
    "input": { "type": "string", "maxLength": 262144, "description": "The same as stdin." },
    "data": { "type": "string", "maxLength": 262144, "description": "The same as stdin." },
    "tty": {
      "type": "boolean", "default": false,
      "description": "Give the command a terminal of its own, for programs that want one; implies background. All output is then in stdout. Default false."
    }
  },
  "required": ["command"],
  "additionalProperties": false
}"#;

const OUTPUT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "status": { "enum": ["Running", "Completed", "Failed", "Killed", "TimedOut"] },
    "task_id": { "type": "string", "description": "Of a task in the background." },
    "exit_code": { "type": ["integer", "null"] },
    "signal": { "type": ["integer", "null"] },
    "stdout": { "type": "string" },
    "stderr": { "type": "string" },
    "stdout_len": { "type": "integer", "description": "All bytes of standard output." },
    "stderr_len": { "type": "integer" },
    "stdout_truncated": { "type": "boolean" },
    "stderr_truncated": { "type": "boolean" },
    "stdout_omitted": { "type": "integer", "description": "How many bytes are not shown." },
    "stderr_omitted": { "type": "integer" },
    "stdout_path": { "type": "string", "description": "A file with what is not shown of standard output." },
    "stderr_path": { "type": "string" },
    "rest_lost": { "type": "boolean", "description": "Some of what is not shown was not kept either." },
    "duration_ms": { "type": "integer" },
    "summary": { "type": "string", "description": "The last lines." },
    "interactive": { "type": "boolean" },
    "sandboxed": { "type": "boolean" },
    "sandbox_type": { "type": "string" },
    "sandbox_denied": { "type": "boolean" },
    "processes_left": { "type": "integer" },
    "notes": { "type": "array", "items": { "type": "string" } }
  },
  "required": ["status", "stdout", "stderr", "duration_ms"]
}"#;

/// How a call wants its command run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShellCall<'a> {
    /// Input that it reads first.
    pub(crate) stdin: Option<&'a str>,
    pub(crate) is_in_background: bool,
    pub(crate) has_terminal: bool,
}

/// A command line may name any program, as of `bash`.
pub(super) fn exec_shell() -> Result<Tool, RegistryError> {
    let shell = vec![ShellRunRequirement { cmd: Program::Any, args: None }];
    let requires = RequirementSet { shell, ..RequirementSet::default() };
    let tool = Tool::bundled(
        "exec_shell",
        (DESCRIPTION, SCHEMA, OUTPUT),
        Executor::Program(ProgramTool::Interactive(Arc::new(ExecShell))),
    );
    Ok(tool.subject(Subject::Execute).requires(requires))
}

/// A time that a call asks for, within bounds.
pub(crate) fn time(args: &Value, (least, most): (u64, u64)) -> Option<Duration> {
    let given = &args["timeout_ms"];
    // Of an integer that is neither, it is either below or far above.
    let ms = given.as_u64().or_else(|| given.as_i64().map(|_negative| 0));
    let ms = ms.or_else(|| given.as_f64().map(|given| if given > 0.0 { u64::MAX } else { 0 }))?;
    Some(Duration::from_millis(ms.clamp(least, most)))
}

/// One input, by one name.
pub(crate) fn refuse_two_inputs(args: &Value) -> Result<(), InvalidArgument> {
    let given: Vec<&str> = INPUT.into_iter().filter(|name| args.get(name).is_some()).collect();
    match given.as_slice() {
        [] | [_] => Ok(()),
        [_, second, ..] => Err(bad(second, format!("{} are one argument; give one of them", given.join(" and ")))),
    }
}

fn bad(name: &str, reason: impl Into<String>) -> InvalidArgument {
    InvalidArgument { name: name.to_owned(), reason: reason.into() }
}

impl<'a> ShellCall<'a> {
    /// Command of arguments that were prepared.
    pub(crate) fn of(args: &'a Value) -> Self {
        let is = |name: &str| args[name].as_bool() == Some(true);
        Self { stdin: input(args), is_in_background: is("background") || is("tty"), has_terminal: is("tty") }
    }
}

struct ExecShell;

impl Prepare for ExecShell {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        refuse_two_inputs(args)?;
        let call = ShellCall::of(args);
        if args["interactive"].as_bool() == Some(true) {
            let others = [
                ("background", args["background"] == true),
                ("tty", call.has_terminal),
                ("stdin", call.stdin.is_some()),
            ];
            let other = others.iter().find(|(_, is)| *is).map(|(name, _)| *name);
            return Err(bad(
                "interactive",
                match other {
                    Some(other) => format!("it cannot be combined with `{other}`"),
                    None => "no command gets the person's own terminal here; for one of its own, use tty".to_owned(),
                },
            ));
        }
        let command = args["command"].as_str().unwrap_or_default();
        let argv = shell_argv(command)?;
        let directory = context.shell_dir.clone();
        let input = call.stdin.filter(|input| !input.is_empty()).map(str::to_owned);
        let effects = Effects::of(Effect::Runs(ProgramRun::Line {
            line: command.to_owned(),
            directory: directory.clone(),
            input,
        }));
        let timeout = time(args, TIMES).or(call.is_in_background.then_some(FOREVER));
        Ok(Prepared::new(effects, Some(CallWork::program(argv, directory)), timeout))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use super::*;
    use callgate_policy::effective::{Declared, narrow};
    use callgate_policy::path::HostPath;
    use callgate_policy::profile::Profile;
    use callgate_policy::variable::Variables;
    use serde_json::json;

    use crate::bounds::FOREVER;
    use crate::registry::{Attempt, Databases};

    fn prepared(args: &Value) -> Result<Prepared, String> {
        let (root, tool) = (HostPath::from("/work"), exec_shell().unwrap());
        tool.validate(args)?;
        let context = Context {
            root: &root,
            shell_dir: &root,
            limit: 0,
            session: "ses_",
            credentials: &[],
            attempt: Attempt::default(),
            read: &Value::Null,
            databases: &Databases::default(),
            profile: &Profile::default(),
            servers: &std::collections::BTreeMap::new(),
            effective: &narrow(&Declared::union(&[], &Variables::default(), &[]).unwrap(), &[]),
        };
        tool.executor.prepare(args, &context).map_err(|error| error.to_string())
    }

    /// X2-1: what is asked for is brought within bounds, and nothing of it is refused.
    #[test]
    fn x2_1_times_are_clamped() {
        let given = |args: Value| prepared(&args).unwrap().timeout;
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(given(json!({ "command": "true" })), None, "the default is that of all calls");
        for (asked, got) in [(-5, 1_000), (0, 1_000), (999, 1_000), (1_500, 1_500), (600_001, 600_000)] {
            assert_eq!(given(json!({ "command": "true", "timeout_ms": asked })), ms(got), "{asked}");
        }
        assert_eq!(given(json!({ "command": "true", "timeout_ms": u64::MAX })), ms(600_000));
        assert_eq!(given(json!({ "command": "true", "timeout_ms": 1e300 })), ms(600_000));
        assert_eq!(given(json!({ "command": "true", "background": true })), Some(FOREVER));
        assert_eq!(given(json!({ "command": "true", "tty": true, "timeout_ms": 5_000 })), ms(5_000));
    }

    /// X2-1: `stdin` has two other names, `tty` implies `background`, and `interactive` goes with none of them.
    #[test]
    fn x2_1_the_arguments_and_their_other_names() {
        for name in INPUT {
            let args = json!({ "command": "cat", name: "text" });
            assert_eq!(ShellCall::of(&args).stdin, Some("text"), "{name}");
            prepared(&args).unwrap();
        }
        assert!(
            prepared(&json!({ "command": "cat", "stdin": "1", "data": "2" })).unwrap_err().contains("stdin and data")
        );
        assert!(ShellCall::of(&json!({ "command": "top", "tty": true })).is_in_background);
        assert!(!ShellCall::of(&json!({ "command": "top" })).is_in_background, "the control");
        prepared(&json!({ "command": "cat", "interactive": false, "background": true })).unwrap();
        for (other, value) in [("background", json!(true)), ("tty", json!(true)), ("stdin", json!("x"))] {
            let error = prepared(&json!({ "command": "cat", "interactive": true, other: value })).unwrap_err();
            assert!(error.contains(&format!("cannot be combined with `{other}`")), "{error}");
        }
        assert!(prepared(&json!({ "command": "cat", "interactive": true })).unwrap_err().contains("use tty"));
        assert!(prepared(&json!({ "command": "a\0b" })).unwrap_err().contains("NUL"));
    }
}
