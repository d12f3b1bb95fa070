//! `callgate tools`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callgate::trust::{Found, TrustList};
use callgate::{LeftOut, OpenError, Origin, Registry, SessionSpec, Tool, user_settings};
use serde_json::{Value, json};

use super::arguments::ToolsArguments;
use super::exit::CommandFailure;
use callgate::shown::{escaped, escaped_json, escaped_lines};

pub(super) fn tools(arguments: &ToolsArguments, json: bool) -> Result<ExitCode, CommandFailure> {
    let (registry, untrusted) = registry(arguments)?;
    let mut text = Vec::new();
    let left_out: Vec<&LeftOut> = registry.left_out().iter().collect();
    let written = match &arguments.name {
        Some(name) => match registry.find(name) {
            Some(tool) if json => writeln!(text, "{}", escaped_json(&whole(tool).to_string())),
            Some(tool) => people(&mut text, tool),
            None => return Err(unknown(name, &registry)),
        },
        None if json => {
            let all = registry.tools().map(whole);
            let all: Vec<Value> = all
                .chain(left_out.iter().map(|left_out| without(left_out)))
                .chain(untrusted.as_ref().map(not_trusted))
                .collect();
            writeln!(text, "{}", escaped_json(&json!(all).to_string()))
        }
        None => list(&mut text, &registry, &left_out, untrusted.as_ref()),
    };
    written.and_then(|()| std::io::stdout().write_all(&text)).map_err(CommandFailure::print("print the tools"))?;
    Ok(ExitCode::SUCCESS)
}

/// Where a project declares tools that nobody trusts, and what to do.
struct Untrusted {
    directory: PathBuf,
    why: &'static str,
}

/// The tools that a session in this directory has, and those of its project that nobody trusts.
fn registry(arguments: &ToolsArguments) -> Result<(Registry, Option<Untrusted>), CommandFailure> {
    let workspace = arguments.workspace.as_deref();
    let directory = workspace.unwrap_or(Path::new("."));
    // Only looked at: trust for once is for a session. Without a home directory nothing is trusted.
    let mut why = NOT_TRUSTED;
    let found = match TrustList::of_user().and_then(|list| list.look(directory)) {
        Ok(Found::Trusted(project)) => Some(project),
        Ok(Found::Nothing) => {
            why = NO_MANIFEST;
            None
        }
        Ok(Found::Untrusted { .. }) | Err(callgate::trust::TrustError::NoHome) => None,
        Err(callgate::trust::TrustError::Project { .. }) if workspace.is_none() => None,
        Err(error) => return Err(error.into()),
    };
    let real = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let declared = real.join(".callgate/tools");
    let is_there = found.is_none() && declared.symlink_metadata().is_ok();
    let untrusted = is_there.then_some(Untrusted { directory: declared, why });
    let mut spec = match found {
        Some(project) => SessionSpec::of_project(directory, *project),
        None => SessionSpec::developer(directory),
    };
    spec.user_tools = user_settings();
    arguments.offer.apply(&mut spec);
    if arguments.all {
        spec.extra_tools.extend(Registry::further().map_err(OpenError::from)?);
    }
    match Registry::offered(spec) {
        // A directory that is no workspace has the tools that all have.
        Err(OpenError::NotAWorkspace { .. } | OpenError::Workspace { .. }) if workspace.is_none() => {
            Ok((Registry::locked().map_err(OpenError::from)?, untrusted))
        }
        offered => Ok((offered?, untrusted)),
    }
}

const NOT_TRUSTED: &str = "its project is not trusted; read what it declares, then: callgate trust";
const NO_MANIFEST: &str =
    "its project has no manifest to trust; write a callgate.toml with at least an `id`, then: callgate trust";

fn unknown(name: &str, registry: &Registry) -> CommandFailure {
    match registry.left_out().iter().rev().find(|left_out| left_out.name.as_deref() == Some(name)) {
        Some(LeftOut { file, why, .. }) => {
            CommandFailure::Usage(format!("there is no tool `{name}`: {} was left out: {why}", file.display()))
        }
        None => CommandFailure::Usage(format!("there is no tool `{name}`; there are: {}", registry.names().join(", "))),
    }
}

fn whole(tool: &Tool) -> Value {
    let mut told = json!({
        "id": tool.name,
        "kind": tool.kind(),
        "subject": tool.subject,
        "origin": tool.origin,
        "state": "active",
        "concurrency": tool.concurrency,
        "gated": tool.gated,
        "deferred": tool.deferred,
        "description": tool.description,
        "requires": tool.requires,
        "parameters": tool.parameters,
        "output_schema": tool.output_schema,
    });
    if let (Some(told), Some(file)) = (told.as_object_mut(), tool.file()) {
        told.insert("file".to_owned(), file.display().to_string().into());
        told.insert("command".to_owned(), tool.command().into());
        told.insert("env".to_owned(), tool.variables().into());
        told.insert("has_state".to_owned(), tool.has_state().into());
    }
    told
}

fn state(left_out: &LeftOut) -> &'static str {
    if left_out.disabled { "disabled" } else { "left-out" }
}

fn without(left_out: &LeftOut) -> Value {
    json!({
        "id": left_out.name,
        "origin": left_out.origin,
        "state": state(left_out),
        "file": left_out.file.display().to_string(),
        "why": left_out.why,
    })
}

fn not_trusted(Untrusted { directory, why }: &Untrusted) -> Value {
    json!({
        "id": null,
        "origin": Origin::Project,
        "state": "left-out",
        "file": directory.display().to_string(),
        "why": why,
    })
}

fn list(
    out: &mut Vec<u8>,
    registry: &Registry,
    left_out: &[&LeftOut],
    untrusted: Option<&Untrusted>,
) -> std::io::Result<()> {
    let width = registry.names().iter().map(|name| name.len()).max().unwrap_or_default().max(8);
    for tool in registry.tools() {
        let (kind, origin) = (tool.kind(), tool.origin.to_string());
        let first = escaped(first_sentence(&tool.description)).to_string();
        writeln!(out, "{:<width$} {kind:<8} {:<8} {first}", tool.name, escaped(&origin))?;
    }
    let untrusted = untrusted.map(|one| (None, "left-out", &Origin::Project, &*one.directory, one.why));
    let left_out = left_out.iter().map(|one| (one.name.as_deref(), state(one), &one.origin, &*one.file, &*one.why));
    for (number, (name, state, origin, file, why)) in left_out.chain(untrusted).enumerate() {
        if number == 0 {
            writeln!(out, "\nNot there:")?;
        }
        let (file, name) = (file.display().to_string(), name.unwrap_or("?"));
        writeln!(out, "{:<width$} {state:<8} {origin:<8} {}: {}", escaped(name), escaped(&file), escaped(why))?;
    }
    Ok(())
}

fn people(out: &mut Vec<u8>, tool: &Tool) -> std::io::Result<()> {
    let requires = escaped_json(&serde_json::to_string(&tool.requires)?).to_string();
    let parameters = escaped_json(&serde_json::to_string_pretty(&tool.parameters)?).to_string();
    writeln!(out, "{} ({}, {})\n", tool.name, tool.kind(), tool.origin)?;
    writeln!(out, "{}\n", escaped_lines(&tool.description))?;
    if let Some(file) = tool.file() {
        writeln!(out, "declared in: {}\ncommand: {}", escaped(&file.display().to_string()), escaped(&tool.command()))?;
        further(out, tool, "")?;
    }
    writeln!(out, "requires: {requires}\nparameters: {parameters}")
}

/// Further facts of a declared tool, a line each.
pub(crate) fn further(out: &mut Vec<u8>, tool: &Tool, indent: &str) -> std::io::Result<()> {
    if !tool.variables().is_empty() {
        writeln!(out, "{indent}gets your variables: {}", escaped(&tool.variables().join(", ")))?;
    }
    if tool.has_state() {
        writeln!(out, "{indent}keeps state between calls")?;
    }
    if !tool.gated {
        writeln!(out, "{indent}runs without asking (gated = false)")?;
    }
    if let Some(template) = tool.approval_template() {
        writeln!(out, "{indent}an \"always\" is kept for: {}", escaped(template))?;
    }
    Ok(())
}

fn first_sentence(text: &str) -> &str {
    text.split_once(". ").map_or(text, |(first, _)| first)
}
