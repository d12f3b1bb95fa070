//! Entries for the configuration of an agent host, so that it starts the server that was typed.

use std::path::Path;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::arguments::{AgentHost, Grants, Offer, SessionArguments};
use crate::exit::CommandFailure;

/// How long a host should wait for a result, seconds: a person may be asked for five minutes, and then the call runs.
const WAIT: u64 = 600;

/// Where it belongs, and what it is: a server of this name.
pub(super) fn config(host: AgentHost, name: &str, words: &[String]) -> Result<(&'static str, String), CommandFailure> {
    let command = std::env::current_exe().map_err(CommandFailure::named("find this program"))?;
    let command = text(&command)?;
    let started = json!({ "command": command, "args": words });
    let with_kind = json!({ "type": "stdio", "command": command, "args": words });
    let by_name = |key: &str, server: Value| json!({ key: { name: server } });
    Ok(match host {
        AgentHost::ClaudeCode => (".mcp.json in the project", pretty(&by_name("mcpServers", with_kind))),
        AgentHost::Codex => ("~/.codex/config.toml", toml(name, &command, words)),
        AgentHost::Cursor => ("~/.cursor/mcp.json", pretty(&by_name("mcpServers", started))),
        AgentHost::Vscode => (".vscode/mcp.json in the project", pretty(&by_name("servers", with_kind))),
        AgentHost::Zed => ("~/.config/zed/settings.json", pretty(&by_name("context_servers", started))),
        AgentHost::Gemini => ("~/.gemini/settings.json", pretty(&by_name("mcpServers", started))),
        AgentHost::Goose => ("~/.config/goose/config.yaml", yaml(name, &command, words)),
    })
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Strings and lists of JSON are strings and lists of TOML too, if no character is one that TOML wants escaped.
fn toml(name: &str, command: &str, words: &[String]) -> String {
    format!("[mcp_servers.{name}]\ncommand = {}\nargs = {}\ntool_timeout_sec = {WAIT}\n", json!(command), json!(words))
}

/// And of YAML.
fn yaml(name: &str, command: &str, words: &[String]) -> String {
    let (command, words) = (json!(command), json!(words));
    format!(
        "extensions:\n  {name}:\n    name: {name}\n    type: stdio\n    enabled: true\n    cmd: {command}\n    args: {words}\n    \
         envs: {{}}\n    timeout: {WAIT}\n"
    )
}

/// The words after `callgate`, as they are typed from any directory.
pub(super) fn words(
    new: SessionArguments,
    session: Option<String>,
    approval_timeout: Option<String>,
) -> Result<Vec<String>, CommandFailure> {
    let SessionArguments { grants, offer, title, profile, mode } = new;
    let Grants { read, write, net, exec, manifest, limit, debug, env, workspace, root, ad_hoc, user_data, allow_home } =
        grants;
    let mut words = vec!["mcp".to_owned()];
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    if let Some(session) = &session {
        add("--session", session.clone());
    } else if let Some(workspace) = &workspace {
        add("-C", text(workspace)?);
    }
    for (option, paths) in
        [("--root", root), ("--read", read), ("--write", write), ("--ad-hoc", ad_hoc), ("--manifest", vec_of(manifest))]
    {
        paths.iter().try_for_each(|path| text(path).map(|path| add(option, path)))?;
    }
    vec_of(user_data).iter().try_for_each(|path| text(path).map(|path| add("--user-data", path)))?;
    for (option, values) in [("--net", net), ("--exec", exec), ("--limit", limit), ("--env", env)] {
        values.into_iter().for_each(|value| add(option, value));
    }
    let Offer { surface, extra } = offer;
    extra.into_iter().for_each(|tool| add("--extra", tool));
    let surface = surface.map(|surface| surface.name().to_owned());
    let mode = mode.and_then(|mode| Some(mode.to_possible_value()?.get_name().to_owned()));
    for (option, value) in [
        ("--title", title),
        ("--profile", profile),
        ("--mode", mode),
        ("--surface", surface),
        ("--approval-timeout", approval_timeout),
    ] {
        value.into_iter().for_each(|value| add(option, value));
    }
    words.extend(
        [("--debug", debug), ("--allow-home", allow_home)]
            .iter()
            .filter(|(_, on)| *on)
            .map(|(word, _)| (*word).to_owned()),
    );
    match words.iter().find(|word| word.chars().any(char::is_control)) {
        None => Ok(words),
        Some(word) => Err(CommandFailure::Usage(format!(
            "{word:?} has a control character, which not every host's file can hold"
        ))),
    }
}

fn vec_of<T>(one: Option<T>) -> Vec<T> {
    one.into_iter().collect()
}

fn text(path: &Path) -> Result<String, CommandFailure> {
    path.to_str().map(str::to_owned).ok_or_else(|| CommandFailure::Usage(format!("{} is not text", path.display())))
}
