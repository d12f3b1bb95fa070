//! `callgate tools`.

use std::io::Write as _;
use std::process::ExitCode;

use callgate::{OpenError, Registry, Tool};
use serde_json::json;

use super::arguments::Tools;
use super::exit::Failure;

pub(super) fn tools(arguments: &Tools, json: bool) -> Result<ExitCode, Failure> {
    let registry = Registry::locked().map_err(OpenError::from)?;
    let mut out = std::io::stdout().lock();
    let written = match &arguments.name {
        Some(name) => {
            let known = || registry.names().join(", ");
            let tool = registry
                .find(name)
                .ok_or_else(|| Failure::Usage(format!("there is no tool `{name}`; there are: {}", known())))?;
            if json { writeln!(out, "{}", whole(tool)) } else { people(&mut out, tool) }
        }
        None if json => {
            let all: Vec<_> = registry.tools().map(whole).collect();
            writeln!(out, "{}", json!(all))
        }
        None => registry.tools().try_for_each(|tool| {
            writeln!(out, "{:<8} {:<8} {}", tool.name, tool.kind(), first_sentence(&tool.description))
        }),
    };
    written.map_err(Failure::print("print the tools"))?;
    Ok(ExitCode::SUCCESS)
}

fn whole(tool: &Tool) -> serde_json::Value {
    json!({
        "id": tool.name,
        "kind": tool.kind(),
        "subject": tool.subject,
        "origin": tool.origin,
        "concurrency": tool.concurrency,
        "description": tool.description,
        "requires": tool.requires,
        "parameters": tool.parameters,
        "output_schema": tool.output_schema,
    })
}

fn people(out: &mut impl std::io::Write, tool: &Tool) -> std::io::Result<()> {
    let requires = serde_json::to_string(&tool.requires)?;
    let parameters = serde_json::to_string_pretty(&tool.parameters)?;
    writeln!(
        out,
        "{} ({}, {})\n\n{}\n\nrequires: {requires}\nparameters: {parameters}",
        tool.name,
        tool.kind(),
        tool.origin,
        tool.description
    )
}

fn first_sentence(text: &str) -> &str {
    text.split_once(". ").map_or(text, |(first, _)| first)
}
