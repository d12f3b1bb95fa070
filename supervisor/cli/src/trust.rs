//! `callgate trust`.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use callgate::trust::{Decision, TrustList, Trusted, TrustedTools};
use callgate_policy::manifest::Manifest;
use callgate_policy::plan::Network;
use serde_json::json;

use super::arguments::TrustArguments;
use super::exit::CommandFailure;
use callgate::shown::{escaped, escaped_json};

pub(super) fn trust(arguments: &TrustArguments, json: bool) -> Result<ExitCode, CommandFailure> {
    let list = TrustList::of_user()?;
    let mut text = Vec::new();
    let written = match &arguments.dir {
        None => all(&mut text, &list.all()?, json),
        Some(dir) if arguments.revoke => revoked(&mut text, dir, list.revoke(dir)?, json),
        Some(dir) => {
            let decision = if arguments.once { Decision::Once } else { Decision::Trusted };
            let (trusted, manifest, tools) = list.trust_all(dir, decision)?;
            given(&mut text, &trusted, &manifest, json).and_then(|()| declared(&mut text, &tools, json))
        }
    };
    written
        .and_then(|()| std::io::stdout().write_all(&text))
        .map_err(CommandFailure::print("print what is trusted"))?;
    Ok(ExitCode::SUCCESS)
}

fn all(out: &mut Vec<u8>, all: &[Trusted], json: bool) -> std::io::Result<()> {
    if json {
        return writeln!(out, "{}", escaped_json(&json!(all).to_string()));
    }
    for trusted in all {
        let lasts = match trusted.decision {
            Decision::Trusted => "until it changes",
            Decision::Once => "for the next session",
        };
        let path = trusted.canonical_path.to_string();
        writeln!(out, "{}  since {}, {lasts}", path.escape_debug(), trusted.granted_at)?;
        for approval in trusted.approvals.iter() {
            writeln!(out, "  always: {} {}", escaped(&approval.tool), approval.to_string().escape_debug())?;
        }
    }
    Ok(())
}

fn revoked(out: &mut Vec<u8>, dir: &Path, was_there: bool, json: bool) -> std::io::Result<()> {
    let dir = dir.display().to_string();
    match was_there {
        _ if json => writeln!(out, "{}", json!({ "revoked": was_there })),
        true => writeln!(out, "{} is no longer trusted", dir.escape_debug()),
        false => writeln!(out, "{} was not trusted", dir.escape_debug()),
    }
}

/// Prints what was trusted, all of it: whoever reads it need not have read the file.
fn given(out: &mut Vec<u8>, trusted: &Trusted, manifest: &Manifest, json: bool) -> std::io::Result<()> {
    if json {
        return writeln!(out, "{}", escaped_json(&json!(trusted).to_string()));
    }
    let lasts = match trusted.decision {
        Decision::Trusted => "until it changes",
        Decision::Once => "for the next session there",
    };
    writeln!(out, "{} is trusted {lasts}. It asks for:", manifest.file.escape_debug())?;
    let entries = manifest.entries();
    let width = entries.iter().map(|(key, _)| key.len()).max().unwrap_or_default();
    entries.iter().try_for_each(|(key, says)| writeln!(out, "  {key:<width$} {}", says.escape_debug()))?;
    for caution in Network::cautions(&manifest.requires.net.hosts) {
        writeln!(out, "Hosts: {}.", escaped(&caution))?;
    }
    if trusted.skills.is_empty() {
        return Ok(());
    }
    writeln!(out, "Its skills are trusted as they are now:")?;
    trusted.skills.keys().try_for_each(|file| writeln!(out, "  {}", file.escape_debug()))
}

/// The tools that are trusted with it.
fn declared(out: &mut Vec<u8>, TrustedTools { tools, left_out, .. }: &TrustedTools, json: bool) -> std::io::Result<()> {
    if json {
        return Ok(());
    }
    if !tools.is_empty() {
        writeln!(out, "It declares tools. A model can call them; each runs its command with what it requires:")?;
    }
    for tool in tools {
        writeln!(out, "  {}: {}", escaped(&tool.name), escaped(&tool.command()))?;
        let requires = escaped_json(&serde_json::to_string(&tool.requires)?).to_string();
        writeln!(out, "    requires {requires}")?;
        crate::tools::further(out, tool, "    ")?;
    }
    for one in left_out {
        if let Some(name) = one.name.as_ref().filter(|_| one.disabled) {
            writeln!(out, "  takes away: {}", escaped(name))?;
            continue;
        }
        writeln!(out, "  left out: {}: {}", escaped(&one.file.display().to_string()), escaped(&one.why))?;
    }
    Ok(())
}
