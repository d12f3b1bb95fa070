//! `callgate skills`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use callgate::{AskedBy, Skills, user_settings};
use callgate_policy::plan::Calls;
use serde_json::json;

use super::arguments;
use super::exit::CommandFailure;
use super::show;
use super::supervisor::{forked, supervise};
use callgate::shown::{escaped, escaped_json};

pub(super) fn skills(arguments: &arguments::SkillsArguments, json: bool) -> Result<ExitCode, CommandFailure> {
    let workspace = arguments.workspace.clone().unwrap_or_else(|| PathBuf::from("."));
    let mut spec = show::of_directory(workspace, show::Trust::LookedAt)?;
    (spec.calls, spec.asked_by) = (Calls::Many, AskedBy::Person);
    spec.user_tools = user_settings();
    let skills = supervise(forked()?, async |supervisor| Ok(supervisor.open(spec).await?.skills().await?.clone()))?;
    let text = if json { escaped_json(&format!("{}\n", json!(skills))) } else { people(&skills) };
    std::io::stdout().write_all(text.as_bytes()).map_err(CommandFailure::print("print the skills"))?;
    if !json {
        for left_out in &skills.left_out {
            let (path, why) = (escaped(&left_out.path.to_string()), escaped(&left_out.why));
            // A notice: what is printed does not depend on somebody reading it.
            drop(writeln!(std::io::stderr(), "callgate: left out: {path}: {why}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A line each, as a host puts them before a model.
fn people(skills: &Skills) -> String {
    let line = |skill: &callgate::Skill| format!("{}: {}\n", skill.front.name, escaped(&skill.front.description));
    skills.skills.iter().map(line).collect()
}
