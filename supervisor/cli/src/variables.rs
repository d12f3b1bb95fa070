//! `callgate run --explain-env`: which variables a command would get.

use std::io::Write as _;
use std::process::ExitCode;

use callgate::policy::plan::Variable;
use callgate::{Launcher, SessionSpec};
use serde_json::json;

use super::exit::CommandFailure;
use super::supervisor::supervise;
use callgate::shown::{escaped, escaped_json};

/// Opens the session and lists its variables. Some of them are known only then, such as `TMPDIR`.
pub(super) fn explain(spec: SessionSpec, launcher: Launcher, json: bool) -> Result<ExitCode, CommandFailure> {
    let variables = supervise(launcher, async |supervisor| Ok(supervisor.open(spec).await?.environment()))?;
    let text = if json { as_json(&variables) } else { variables.iter().map(line).collect() };
    std::io::stdout().write_all(text.as_bytes()).map_err(CommandFailure::print("print the variables"))?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(variables: &[Variable]) -> String {
    let all = variables.iter().map(|variable| {
        json!({
            "name": variable.name,
            "fate": variable.fate.to_string(),
            "value": variable.value.as_ref().map(ToString::to_string),
            "why": variable.why,
        })
    });
    escaped_json(&format!("{}\n", all.collect::<serde_json::Value>()))
}

fn line(Variable { name, fate, value, why, .. }: &Variable) -> String {
    let value = value.as_ref().map(|value| format!("={}", value.to_string().escape_debug())).unwrap_or_default();
    format!("{fate:<8} {}{value}  # {}\n", name.escape_debug(), escaped(why))
}
