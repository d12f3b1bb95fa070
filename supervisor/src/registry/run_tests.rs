//! `run_tests` (S2-17, X2-18): the project's tests, by the program that projects of its kind use.
//!
//! What kind it is, a worker of the readers finds out before the call is judged: rules, people and approvals see the command.

use std::sync::Arc;
use std::time::Duration;

use callgate_policy::effect::{Effect, Effects, FileScope};
use callgate_policy::path::HostPath;
use callgate_policy::plan::CallWork;
use callgate_policy::requirement::{Program, RequirementSet, ShellRunRequirement};
use callgate_policy::tool::Subject;
use serde_json::Value;

use super::bash::OUTPUT;
use super::executor::{Executor, ProgramTool};
use super::prepare::{Context, InvalidArgument, Prepare, Prepared, started};
use super::{RegistryError, Tool};

/// The argument that says what runs the tests.
pub(crate) const RUNNER: &str = "runner";
/// How long tests may take, if a call does not say.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Commands that run the tests of a workspace in which one of these files is. The first that is there counts.
pub(crate) const MARKERS: &[(&str, &str)] = &[
    ("Cargo.toml", "cargo"),
    ("go.mod", "go"),
    ("package.json", "npm"),
    ("pyproject.toml", "pytest"),
    ("pytest.ini", "pytest"),
    ("setup.py", "pytest"),
    ("Makefile", "make"),
];

const DESCRIPTION: &str = "Runs the project's tests in the sandbox: `cargo test`, `go test`, `npm test`, `pytest` or `make test`, \
whichever the files in the workspace's root speak of. Returns what it printed, with its exit status; tests that fail are a result, \
not an error.";

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "args": {
      "type": ["string", "array"],
      "maxLength": 4096,
      "maxItems": 256,
      "items": { "type": "string", "maxLength": 4096 },
      "description": "Further arguments, such as the name of a test: a text that is split at blanks, or a list."
    },
    "all_features": { "type": "boolean", "default": false, "description": "With cargo: `--all-features`. Default false." },
    "runner": {
      "enum": ["cargo", "go", "npm", "pytest", "make"],
      "description": "What runs the tests. Default: what the workspace's files speak of."
    },
    "timeout_ms": {
      "type": "integer",
      "minimum": 1,
      "maximum": 600000,
      "description": "The tests are killed after this many milliseconds. Default 600000."
    }
  },
  "additionalProperties": false
}"#;

pub(super) fn run_tests() -> Result<Tool, RegistryError> {
    let shell = vec![ShellRunRequirement { cmd: Program::Any, args: None }];
    let requires = RequirementSet { shell, ..RequirementSet::default() };
    let tool = Tool::bundled(
        "run_tests",
        (DESCRIPTION, SCHEMA, OUTPUT),
        Executor::Program(ProgramTool::Tests(Arc::new(RunTests))),
    );
    Ok(tool.subject(Subject::Execute).requires(requires).timeout(TIMEOUT))
}

struct RunTests;

impl Prepare for RunTests {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let argv: Vec<HostPath> = command(args)?.iter().map(|word| HostPath::from(word.as_str())).collect();
        let working_dir = context.root.clone();
        let starts_in = Effect::Lists(FileScope::File(working_dir.clone()));
        let effects = Effects::of(Effect::Runs(started(&argv, &working_dir))).by(starts_in);
        let timeout = args["timeout_ms"].as_u64().map(Duration::from_millis);
        Ok(Prepared::new(effects, Some(CallWork::program(argv, working_dir)), timeout))
    }
}

/// The program and its arguments.
fn command(args: &Value) -> Result<Vec<String>, InvalidArgument> {
    let bad = |name: &str, reason: &str| InvalidArgument { name: name.to_owned(), reason: reason.to_owned() };
    let further = further(&args["args"]).map_err(|reason| bad("args", reason))?;
    let runner = args[RUNNER].as_str().ok_or_else(|| {
        let reason = "no file in the workspace's root says what runs the tests (Cargo.toml, go.mod, package.json, pyproject.toml, \
                      pytest.ini, setup.py, Makefile); name it";
        bad(RUNNER, reason)
    })?;
    let is_all = args["all_features"].as_bool() == Some(true);
    if is_all && runner != "cargo" {
        return Err(bad("all_features", "it is for cargo alone"));
    }
    let mut words: Vec<&str> = match runner {
        "pytest" => vec!["pytest"],
        runner => vec![runner, "test"],
    };
    words.extend(is_all.then_some("--all-features"));
    // npm passes on what comes after this.
    words.extend((runner == "npm" && !further.is_empty()).then_some("--"));
    words.extend((runner == "go" && further.is_empty()).then_some("./..."));
    Ok(words.into_iter().map(str::to_owned).chain(further).collect())
}

fn further(args: &Value) -> Result<Vec<String>, &'static str> {
    let words: Vec<String> = match args {
        Value::String(text) if text.contains(['\'', '"', '\\']) => {
            return Err("no shell reads it, so quotes would be a part of it; give a list");
        }
        Value::String(text) => text.split_whitespace().map(str::to_owned).collect(),
        Value::Array(words) => words.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    if words.iter().any(|word| word.contains('\0')) {
        return Err("it contains a NUL, which no argument can");
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use super::*;
    use serde_json::json;

    /// S2-17, X2-18: which command a call is.
    #[test]
    fn s2_17_x2_18_the_command_of_a_runner() {
        for (args, wanted) in [
            (json!({ "runner": "cargo" }), "cargo test"),
            (
                json!({ "runner": "cargo", "all_features": true, "args": "--lib  name" }),
                "cargo test --all-features --lib name",
            ),
            (json!({ "runner": "cargo", "args": ["--", "a b"] }), "cargo test -- a b"),
            (json!({ "runner": "npm" }), "npm test"),
            (json!({ "runner": "npm", "args": "-u" }), "npm test -- -u"),
            (json!({ "runner": "go" }), "go test ./..."),
            (json!({ "runner": "go", "args": "./a" }), "go test ./a"),
            (json!({ "runner": "pytest", "args": "-k name" }), "pytest -k name"),
            (json!({ "runner": "make" }), "make test"),
        ] {
            assert_eq!(command(&args).unwrap().join(" "), wanted, "{args}");
        }
        let a_b = json!({ "runner": "cargo", "args": ["a b"] });
        assert_eq!(command(&a_b).unwrap(), ["cargo", "test", "a b"], "one word");
        for args in [
            json!({}),
            json!({ "runner": "npm", "all_features": true }),
            json!({ "runner": "cargo", "args": "'a b'" }),
            json!({ "runner": "cargo", "args": ["a\0b"] }),
        ] {
            assert!(command(&args).is_err(), "{args}");
        }
    }
}
