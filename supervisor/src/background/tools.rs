//! The tools about programs that `exec_shell` has started in the background (S2-12, S2-13, X2-3, X2-4).
//!
//! None of them starts anything. What is typed to a program is as its arguments were: the sandbox holds whatever it makes of it.

use callgate_policy::tool::Subject;

use crate::registry::acts::BackgroundAct;
use crate::registry::executor::{Executor, HostTool};
use crate::registry::{RegistryError, Tool};

const WAIT: &str = "Reads what a task of exec_shell has printed since it was last read. With `wait` it returns when the task has \
ended, when there is as much output as a result shows, or after `timeout_ms`. What it returns is not returned again.";

const WAIT_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "task_id": { "type": "string", "minLength": 1, "maxLength": 64, "description": "As exec_shell returned it." },
    "wait": { "type": "boolean", "default": true, "description": "Whether to wait for the task's end. Default true." },
    "timeout_ms": { "type": "integer", "default": 5000, "description": "How long to wait at most, milliseconds, up to 600000. Default 5000." }
  },
  "required": ["task_id"],
  "additionalProperties": false
}"#;

const INTERACT: &str = "Types to a task of exec_shell, and returns what it prints: at its first output after that, at its end, or \
after `timeout_ms`. A line ends with \\n, which you give yourself. Without `input` it only waits for output.";

const INTERACT_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "task_id": { "type": "string", "minLength": 1, "maxLength": 64, "description": "As exec_shell returned it." },
    "input": {
      "type": "string",
      "maxLength": 262144,
      "description": "What to write to the task's standard input, as it is. Also called stdin or data."
    },
    "stdin": { "type": "string", "maxLength": 262144, "description": "The same as input." },
    "data": { "type": "string", "maxLength": 262144, "description": "The same as input." },
    "close_stdin": {
      "type": "boolean", "default": false,
      "description": "End the task's standard input after that; to a terminal it is Ctrl-D. Default false."
    },
    "timeout_ms": { "type": "integer", "default": 1000, "description": "How long to wait at most, milliseconds, up to 600000. Default 1000." }
  },
  "required": ["task_id"],
  "additionalProperties": false
}"#;

const DELTA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "task_id": { "type": "string" },
    "status": { "enum": ["Running", "Completed", "Failed", "Killed", "TimedOut"] },
    "exit_code": { "type": ["integer", "null"] },
    "signal": { "type": ["integer", "null"] },
    "stream_delta": { "type": "boolean", "description": "True: `stdout` and `stderr` begin where the last result ended." },
    "stdout": { "type": "string" },
    "stderr": { "type": "string" },
    "stdout_len": { "type": "integer", "description": "Bytes of standard output in this result." },
    "stderr_len": { "type": "integer" },
    "stdout_total_len": { "type": "integer", "description": "All bytes of standard output until now." },
    "stderr_total_len": { "type": "integer" },
    "stdout_omitted": { "type": "integer", "description": "Bytes before this result that were dropped, because too many were unread." },
    "stderr_omitted": { "type": "integer" },
    "stdout_truncated": { "type": "boolean", "description": "There is more to read at once." },
    "stderr_truncated": { "type": "boolean" },
    "input_written": { "type": "integer", "description": "Bytes of the input that were passed on." },
    "duration_ms": { "type": "integer" },
    "notes": { "type": "array", "items": { "type": "string" } }
  },
  "required": ["task_id", "status", "stdout", "stderr", "stream_delta", "stdout_total_len", "stderr_total_len"]
}"#;

const CANCEL: &str = "Ends a task of exec_shell, or all of them: they get SIGTERM, and five seconds later what is left of them is \
killed. Returns how each has ended; what it printed can still be read with exec_shell_wait.";

const CANCEL_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "task_id": { "type": "string", "minLength": 1, "maxLength": 64, "description": "As exec_shell returned it." },
    "all": { "type": "boolean", "default": false, "description": "All tasks that run, in place of a task_id." }
  },
  "additionalProperties": false
}"#;

const LIST: &str = "Lists the tasks that exec_shell has started in this session: their commands, how far they are, and how much of \
their output is unread. Of those that have ended the last 64 are kept.";

const LIST_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false
}"#;

const TASKS: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "tasks": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {
          "task_id": { "type": "string" },
          "command": { "type": "string" },
          "status": { "enum": ["Running", "Completed", "Failed", "Killed", "TimedOut"] },
          "exit_code": { "type": ["integer", "null"] },
          "signal": { "type": ["integer", "null"] },
          "duration_ms": { "type": "integer" },
          "tty": { "type": "boolean" },
          "stdout_unread": { "type": "integer" },
          "stderr_unread": { "type": "integer" }
        },
        "required": ["task_id", "command", "status"]
      }
    }
  },
  "required": ["tasks"]
}"#;

/// All of them. What reads, or ends what the session itself has started, changes nothing outside it. Typing has a program do
/// something that nobody may have seen when it was started: an editor on a terminal runs any command. So it is asked about.
pub(crate) fn tools() -> Result<Vec<Tool>, RegistryError> {
    let background = |act, name, contract| Tool::bundled(name, contract, Executor::Host(HostTool::Background(act)));
    Ok(vec![
        background(BackgroundAct::Wait, "exec_shell_wait", (WAIT, WAIT_SCHEMA, DELTA))
            .subject(Subject::Think)
            .side_by_side()
            .ungated(),
        background(BackgroundAct::Interact, "exec_shell_interact", (INTERACT, INTERACT_SCHEMA, DELTA))
            .subject(Subject::Execute),
        background(BackgroundAct::Cancel, "exec_shell_cancel", (CANCEL, CANCEL_SCHEMA, TASKS))
            .subject(Subject::Note)
            .ungated(),
        background(BackgroundAct::List, "exec_shell_list", (LIST, LIST_SCHEMA, TASKS))
            .subject(Subject::Think)
            .side_by_side()
            .ungated(),
    ])
}
