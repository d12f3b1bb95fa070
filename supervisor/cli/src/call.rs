//! `callgate call`.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use callgate::{Coercion, Launcher, Overflow, interaction_required, json};
use callgate_mcp::Servers;
use callgate_policy::envelope::{Layer, Outcome, ResultEnvelope};
use callgate_policy::plan::Calls;
use callgate_policy::unit::parse_duration;
use callgate_tools::database::CONTRACTS as DATABASES;
use serde_json::Value;

use super::arguments::CallArguments;
use super::exit::{self, CommandFailure};
use super::prompt::AtTerminal;
use super::session::Recorded;
use super::show;
use super::supervisor::supervise_with;
use callgate::shown::escaped_json;

/// Most bytes of arguments from standard input: room for the largest file that fits into a call.
const ARGUMENTS_MAX: u64 = 64 * 1024 * 1024;
/// Most calls of a batch.
const BATCH_MAX: usize = 1000;
/// Most bytes that they may take when they are parsed.
const PARSED_MAX: usize = 256 * 1024 * 1024;

pub(super) fn call(call: CallArguments, launcher: Launcher) -> Result<ExitCode, CommandFailure> {
    let recorded = call.session.as_deref().map(|id| Recorded::find(id, &call.grants)).transpose()?;
    let mut spec = show::spec(recorded.as_ref().map_or(&call.grants, Recorded::grants))?;
    spec.ceilings.extend(show::only_programs(&spec));
    let calls = match &call.tool {
        Some(tool) => vec![(tool.clone(), arguments(&call.arguments)?)],
        None => batch()?,
    };
    recorded.as_ref().map_or(&call.offer, Recorded::offer).apply(&mut spec);
    let profile = recorded.as_ref().map_or(call.profile.as_deref(), Recorded::profile);
    spec.profile = show::profile(profile, &spec)?;
    // What a skill says of itself is read by a worker of its own, as are the names in a patch and a statement in SQL; each host to which a
    // fetch or a search goes on has one, and each program that says its version. So has whoever talks to a language server.
    let several = ["skill", "apply_patch", "web_fetch", "web_search", "diagnostics", "lsp"];
    let takes_sql = |tool: &str| DATABASES.iter().any(|contract| contract.name == tool);
    let has_workers = call.tool.as_deref().is_some_and(|tool| several.contains(&tool) || takes_sql(tool));
    let has_servers = |tool: &str| {
        spec.manifest.iter().flat_map(|manifest| manifest.mcp.keys()).any(|server| Servers::may_have(server, tool))
    };
    // What a tool is called by another surface is not known before the session is there.
    let has_surface = spec.surface.or(spec.manifest.as_ref().and_then(|manifest| manifest.surface)).is_some();
    let has_several = has_surface
        || calls.iter().any(|(tool, _)| has_servers(tool))
        || call.batch
        || spec.looks_at_commands()
        || has_workers;
    spec.calls = if has_several { Calls::Many } else { Calls::One };
    spec.asked_by = call.asked_by.into();
    spec.approvers = vec![Arc::new(AtTerminal)];
    spec.mode = recorded.as_ref().map_or(call.mode, Recorded::mode).map(Into::into);
    spec.overflow = match (&recorded, call.output_dir.clone()) {
        (_, Some(directory)) => Overflow::Directory(directory),
        (Some(_), None) => Overflow::Session,
        // The session is over before anybody can read a file of its own.
        (None, None) => Overflow::Nowhere,
    };
    spec.resume = recorded.as_ref().map(Recorded::id);
    spec.coercion = if call.coerce { Coercion::Lossless } else { Coercion::Off };
    if let Some(patience) = &call.approval_timeout {
        spec.patience = parse_duration(patience)
            .map_err(|e| CommandFailure::Usage(format!("--approval-timeout {patience}: {e}")))?;
    }
    let (envelopes, status) = supervise_with(recorded.map(Recorded::into_store), launcher, async |supervisor| {
        let session = Arc::new(supervisor.open(spec.clone()).await?);
        show::tell_warnings(&session, show::ManifestFrom::of(&spec));
        let names: Vec<String> = calls.iter().map(|(tool, _)| tool.clone()).collect();
        let _servers = Servers::start_for(&supervisor, &spec, &session, &names).await;
        let stream = call.stream;
        let mut pass_on = |piece: &[u8]| {
            if stream {
                // A reader that is gone does not stop the call.
                drop(std::io::stderr().write_all(piece));
            }
        };
        let names_git = calls.iter().any(|(_, args)| args["command"].as_str().is_some_and(show::names_git));
        let mut envelopes = Vec::new();
        if call.batch {
            envelopes = session.batch(calls).await;
        } else {
            for (tool, arguments) in calls {
                envelopes.push(session.call_streaming(&tool, arguments, &mut pass_on).await);
            }
        }
        let mut exit_codes = envelopes.iter().filter_map(|envelope| envelope.data.as_ref()?["exit_code"].as_i64());
        show::tell_repository(&session, names_git, exit_codes.next_back());
        let mut all = 0;
        for (tool, envelope) in names.iter().zip(&envelopes) {
            let is_halt = session.is_halted() && envelope.kind == Outcome::Error;
            if is_halt && all == 0 {
                let why = envelope.error_text.as_deref().unwrap_or_default();
                // The exit status tells it too.
                let told = interaction_required(session.id(), tool, why).to_string();
                drop(writeln!(std::io::stderr(), "{}", escaped_json(&told)));
            }
            let one = match envelope {
                _ if is_halt => exit::TOOL,
                _ if session.registry().find(tool).is_none() => exit::USAGE,
                envelope => status(envelope),
            };
            all = if all == 0 { one } else { all };
        }
        Ok((envelopes, all))
    })?;
    for mut envelope in envelopes {
        name_flags(&mut envelope);
        let text = if call.batch { serde_json::to_string(&envelope) } else { serde_json::to_string_pretty(&envelope) };
        let text = text.map_err(|e| CommandFailure::runtime(e.into()))?;
        writeln!(std::io::stdout(), "{}", escaped_json(&text)).map_err(CommandFailure::print("print the envelope"))?;
    }
    Ok(ExitCode::from(status))
}

/// Has a denial name the flag that would lift it, as the library's own words do not.
fn name_flags(envelope: &mut ResultEnvelope) {
    let Some(denial) = &mut envelope.metadata.denial else { return };
    let (Some(remedy), Some(typed)) = (&denial.remedy, denial.typed.take()) else { return };
    if let Some(text) = &mut envelope.error_text {
        *text = text.replacen(&format!("; {remedy}"), &format!("; {typed}"), 1);
    }
    denial.remedy = Some(typed);
}

/// A call in a batch, as a line of standard input has it.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct OfBatch {
    tool: String,
    #[serde(default)]
    arguments: Option<Value>,
}

/// The calls of a batch.
fn batch() -> Result<Vec<(String, Value)>, CommandFailure> {
    let text = standard_input("the calls")?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let calls = lines.map(|(number, line)| {
        let wrong = |why: String| {
            let expected = r#"{"tool": NAME, "arguments": {…}}"#;
            CommandFailure::Data(format!("line {} of the calls: {why}; each line is {expected}", number + 1))
        };
        let call = json::parse(line.as_bytes(), PARSED_MAX).map_err(|e| wrong(e.to_string()))?;
        let OfBatch { tool, arguments } = serde_json::from_value(call).map_err(|e| wrong(e.to_string()))?;
        Ok((tool, arguments.unwrap_or_else(|| serde_json::json!({}))))
    });
    let calls = calls.take(BATCH_MAX + 1).collect::<Result<Vec<_>, CommandFailure>>()?;
    match calls.len() {
        0 => Err(CommandFailure::Data("there is no call on standard input".to_owned())),
        count if count > BATCH_MAX => Err(CommandFailure::Data(format!("a batch has at most {BATCH_MAX} calls"))),
        _ => Ok(calls),
    }
}

fn standard_input(what: &str) -> Result<String, CommandFailure> {
    let mut text = String::new();
    std::io::stdin()
        .take(ARGUMENTS_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|e| CommandFailure::Data(format!("{what} on standard input: {e}")))?;
    if text.len() as u64 > ARGUMENTS_MAX {
        return Err(CommandFailure::Data(format!(
            "{what} on standard input are longer than {} MiB; write large files in parts, or with bash",
            ARGUMENTS_MAX / (1024 * 1024)
        )));
    }
    Ok(text)
}

fn arguments(given: &str) -> Result<Value, CommandFailure> {
    let text = if given == "-" { standard_input("the arguments")? } else { given.to_owned() };
    json::parse(text.as_bytes(), PARSED_MAX)
        .map_err(|e| CommandFailure::Data(format!("the arguments are not JSON: {e}")))
}

fn status(envelope: &ResultEnvelope) -> u8 {
    match (&envelope.kind, &envelope.metadata.denial) {
        (Outcome::Output, _) => 0,
        (Outcome::Error, None) if envelope.metadata.timed_out == Some(true) => exit::TIMEOUT,
        (Outcome::Error, None) => exit::TOOL,
        (Outcome::Error, Some(denial)) => match denial.layer {
            Layer::Schema => exit::DATA,
            Layer::Capability | Layer::Watchdog | Layer::Rule | Layer::Person => exit::DENIED,
            Layer::Sandbox | Layer::Limit => exit::TOOL,
            Layer::Host => exit::UNAVAILABLE,
            _ => 1,
        },
    }
}
