//! A manifest in words, for a person who has not read the file.

use std::fmt;
use std::time::Duration;

use super::{
    Agent, AgentMode, Credential, Env, LanguageServer, MCP_DESCRIPTION, MCP_START, Manifest, McpServer, Net, Rlm,
    Search,
};
use crate::approval::ApprovalScope;
use crate::ceiling::{Ceiling, FsCeiling, NetCeiling};
use crate::limit::{LimitName, Limits};
use crate::mode::Headless;
use crate::profile::ProfileName;
use crate::requirement::{FsRequirement, NetRequirement, RequirementSet};
use crate::tool::Surface;

/// Keys with what they say, in the order in which they are shown.
type Entries = Vec<(&'static str, String)>;

fn each<T: fmt::Display>(key: &'static str, items: &[T]) -> Entries {
    items.iter().map(|item| (key, item.to_string())).collect()
}

fn only_if(shown: bool, key: &'static str, text: &str) -> Entries {
    if shown { vec![(key, text.to_owned())] } else { Vec::new() }
}

impl Manifest {
    /// All that it says, by key. What it leaves out, or says as if it had left it out, is not there.
    ///
    /// The structures are taken apart without `..`: a key that is new does not compile before it is shown.
    #[must_use]
    pub fn entries(&self) -> Vec<(&'static str, String)> {
        let Self {
            file: _,
            id,
            mode,
            allowlist,
            headless,
            approvals,
            profile,
            tools,
            surface,
            extra,
            roots,
            requires,
            ceiling,
            watch_execs,
            rules,
            limits,
            env,
            net,
            agents,
            mcp,
            lsp,
            lines: _,
            rule_lines: _,
            ceiling_lines: _,
        } = self;
        let parts = [
            each("id", id.as_slice()),
            each("root", roots),
            asked_for(requires),
            bounded(ceiling),
            only_if(*profile != ProfileName::default(), "profile", profile.as_str()),
            tools.as_ref().map(|tools| vec![("tools", tools.join(", "))]).unwrap_or_default(),
            only_if(
                surface.is_some_and(|surface| surface != Surface::Locked),
                "surface",
                surface.unwrap_or_default().name(),
            ),
            only_if(!extra.is_empty(), "extra", &extra.join(", ")),
            each("mode", mode.as_slice()),
            each("allowlist", allowlist),
            only_if(*headless != Headless::default(), "headless", headless.name()),
            only_if(*approvals != ApprovalScope::default(), "approvals", approvals.name()),
            only_if(*watch_execs, "watch_execs", "true"),
            each("rule", rules),
            bounds(limits),
            variables(env),
            of_the_net(net),
            agents.iter().flat_map(|(name, agent)| declared(name, agent)).collect(),
            mcp.iter().flat_map(|(name, server)| started(name, server)).collect(),
            lsp.iter().flat_map(|(name, server)| asked_about(name, server)).collect(),
        ];
        parts.into_iter().flatten().collect()
    }
}

impl Manifest {
    /// All of it as JSON, by the keys of the file, as a host's watchdog program is shown it (S0-58). Keys that say nothing are
    /// left out.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let Self {
            file,
            id,
            mode,
            allowlist,
            headless,
            approvals,
            profile,
            tools,
            surface,
            extra,
            roots,
            requires,
            ceiling,
            watch_execs,
            rules,
            limits,
            env,
            net,
            agents,
            mcp,
            lsp,
            lines: _,
            rule_lines: _,
            ceiling_lines: _,
        } = self;
        let all = serde_json::json!({
            "file": file,
            "id": id,
            "mode": mode,
            "allowlist": allowlist.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "headless": headless.name(),
            "approvals": approvals.name(),
            "profile": profile.as_str(),
            "tools": tools,
            "surface": surface.map(Surface::name),
            "extra": extra,
            "roots": roots,
            "requires": requires,
            "ceiling": ceiling,
            "watch_execs": watch_execs,
            "rules": rules,
            "limits": bounds(limits).into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect::<serde_json::Map<_, _>>(),
            "env": { "pass": env.pass, "set": env.set },
            "net": net_in_json(net),
            "agents": agents.iter().map(|(name, agent)| (name.clone(), agent.to_json())).collect::<serde_json::Map<_, _>>(),
            "mcp": mcp.iter().map(|(name, server)| (name.clone(), server.to_json())).collect::<serde_json::Map<_, _>>(),
            "lsp": lsp.iter().map(|(name, server)| (name.clone(), server.to_json())).collect::<serde_json::Map<_, _>>(),
        });
        without_empty(all)
    }
}

impl Agent {
    fn to_json(&self) -> serde_json::Value {
        let Self {
            description,
            mode,
            tools,
            requires,
            ceiling,
            rules,
            runner,
            env,
            credentials,
            inspectable,
            knows_caller,
            lines: _,
            rule_lines: _,
            ceiling_lines: _,
        } = self;
        without_empty(serde_json::json!({
            "description": description,
            "mode": mode.name(),
            "tools": tools,
            "requires": requires,
            "ceiling": ceiling,
            "rules": rules,
            "runner": runner,
            "env": env,
            "credentials": credentials,
            "inspectable": inspectable,
            "knows_caller": knows_caller,
        }))
    }
}

impl McpServer {
    fn to_json(&self) -> serde_json::Value {
        let Self {
            command,
            data,
            enabled,
            trusted,
            tools,
            requires,
            env,
            credentials,
            start_timeout,
            timeout,
            max_description_length,
            lines: _,
        } = self;
        without_empty(serde_json::json!({
            "command": command,
            "data": data,
            "enabled": enabled,
            "trusted": trusted,
            "tools": tools,
            "requires": requires,
            "env": { "pass": env.pass, "set": env.set },
            "credentials": credentials,
            "start_timeout": format!("{start_timeout:?}"),
            "timeout": timeout.map(|timeout| format!("{timeout:?}")),
            "max_description_length": max_description_length,
        }))
    }
}

impl LanguageServer {
    fn to_json(&self) -> serde_json::Value {
        let Self { command, files, language } = self;
        without_empty(serde_json::json!({ "command": command, "files": files, "language": language }))
    }
}

/// A language server, each line with its name.
fn asked_about(name: &str, server: &LanguageServer) -> Entries {
    let LanguageServer { command, files, language } = server;
    let command = vec![("command", serde_json::json!(command).to_string())];
    let parts = [command, each("file", files), each("language", language.as_slice())];
    parts.into_iter().flatten().map(|(key, value)| ("lsp", format!("{name}: {key} {value}"))).collect()
}

/// A server, each line with its name.
fn started(name: &str, server: &McpServer) -> Entries {
    let McpServer {
        command,
        data,
        enabled,
        trusted,
        tools,
        requires,
        env,
        credentials,
        start_timeout,
        timeout,
        max_description_length,
        lines: _,
    } = server;
    let parts = [
        vec![("command", serde_json::json!(command).to_string())],
        each("data", data),
        only_if(!*enabled, "enabled", "false"),
        only_if(*trusted, "trusted", "true"),
        tools.as_ref().map(|tools| vec![("tools", tools.join(", "))]).unwrap_or_default(),
        asked_for(requires),
        variables(env),
        each("credential", credentials),
        only_if(*start_timeout != MCP_START, "start_timeout", &format!("{start_timeout:?}")),
        timeout.map(|timeout| vec![("timeout", format!("{timeout:?}"))]).unwrap_or_default(),
        only_if(
            *max_description_length != MCP_DESCRIPTION,
            "max_description_length",
            &max_description_length.to_string(),
        ),
    ];
    parts.into_iter().flatten().map(|(key, value)| ("mcp", format!("{name}: {key} {value}"))).collect()
}

/// Without the keys that say nothing.
fn without_empty(all: serde_json::Value) -> serde_json::Value {
    let serde_json::Value::Object(all) = all else { return all };
    let says_nothing = |value: &serde_json::Value| {
        value.is_null()
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(serde_json::Map::is_empty)
    };
    all.into_iter().filter(|(_, value)| !says_nothing(value)).collect::<serde_json::Map<_, _>>().into()
}

/// An agent, each line with its name.
fn declared(name: &str, agent: &Agent) -> Entries {
    let Agent {
        description,
        mode,
        tools,
        requires,
        ceiling,
        rules,
        runner,
        env,
        credentials,
        inspectable,
        knows_caller,
        lines: _,
        rule_lines: _,
        ceiling_lines: _,
    } = agent;
    let parts = [
        vec![("is", description.clone())],
        only_if(*mode != AgentMode::default(), "mode", mode.name()),
        only_if(!runner.is_empty(), "runner", &serde_json::json!(runner).to_string()),
        tools.as_ref().map(|tools| vec![("tools", tools.join(", "))]).unwrap_or_default(),
        asked_for(requires),
        bounded(ceiling),
        each("rule", rules),
        each("env", env),
        each("credential", credentials),
        only_if(*inspectable, "inspectable", "true"),
        only_if(*knows_caller, "knows_caller", "true"),
    ];
    parts.into_iter().flatten().map(|(key, value)| ("agent", format!("{name}: {key} {value}"))).collect()
}

fn asked_for(requires: &RequirementSet) -> Entries {
    let RequirementSet { fs, net, shell, capabilities } = requires;
    let FsRequirement { read, write, exact } = fs;
    let NetRequirement { hosts } = net;
    let parts = [
        each("read", read),
        each("write", write),
        only_if(*exact, "exact", "true"),
        each("net", hosts),
        each("shell", shell),
        each("capability", capabilities),
    ];
    parts.into_iter().flatten().collect()
}

fn bounded(ceiling: &Ceiling) -> Entries {
    fn most<T: fmt::Display>(key: &'static str, items: Option<&Vec<T>>) -> Entries {
        match items.map(Vec::as_slice) {
            None => Vec::new(),
            Some([]) => vec![(key, "nothing".to_owned())],
            Some(items) => each(key, items),
        }
    }
    let Ceiling { fs: FsCeiling { read, write }, net: NetCeiling { hosts }, shell, capabilities } = ceiling;
    let parts = [
        most("at most read", read.as_ref()),
        most("at most write", write.as_ref()),
        most("at most net", hosts.as_ref()),
        most("at most shell", shell.as_ref()),
        most("at most capability", capabilities.as_ref()),
    ];
    parts.into_iter().flatten().collect()
}

fn bounds(limits: &Limits) -> Entries {
    let Limits {
        wall,
        cpu,
        memory,
        processes,
        open_files,
        file_size,
        disk,
        output,
        network,
        session_network,
        network_rate,
    } = limits;
    let ms = |time: &Option<Duration>| time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let all = [
        (LimitName::Wall, ms(wall)),
        (LimitName::Cpu, ms(cpu)),
        (LimitName::Memory, memory.map(|size| size.0)),
        (LimitName::Processes, *processes),
        (LimitName::OpenFiles, *open_files),
        (LimitName::FileSize, file_size.map(|size| size.0)),
        (LimitName::Disk, disk.map(|size| size.0)),
        (LimitName::Output, output.map(|size| size.0)),
        (LimitName::Network, network.map(|size| size.0)),
        (LimitName::SessionNetwork, session_network.map(|size| size.0)),
        (LimitName::NetworkRate, network_rate.map(|size| size.0)),
    ];
    let given = all.into_iter().filter_map(|(name, value)| Some((name, value?)));
    given.map(|(name, value)| ("limit", format!("{name}={}", name.text(value)))).collect()
}

fn of_the_net(net: &Net) -> Entries {
    let Net { search, rlm, credentials } = net;
    let search = search.iter().flat_map(|Search { providers, calls, timeout }| {
        let bounds = format!("{calls} calls, {}ms each", timeout.as_millis());
        providers.iter().map(ToString::to_string).chain([bounds])
    });
    let search = search.map(|text| ("search", text));
    search.chain(each("rlm", rlm.as_slice())).chain(each("credential", credentials)).collect()
}

fn net_in_json(net: &Net) -> serde_json::Value {
    let Net { search, rlm, credentials } = net;
    let search = search.as_ref().map(|Search { providers, calls, timeout }| {
        let providers: Vec<_> = providers
            .iter()
            .map(|provider| serde_json::json!({ "kind": provider.kind.name(), "url": provider.url }))
            .collect();
        serde_json::json!({ "providers": providers, "calls": calls, "timeout_ms": timeout.as_millis() })
    });
    let rlm = rlm.as_ref().map(|Rlm { url, model }| serde_json::json!({ "url": url, "model": model }));
    without_empty(serde_json::json!({ "search": search, "rlm": rlm, "credentials": credentials as &[Credential] }))
}

fn variables(env: &Env) -> Entries {
    let Env { pass, set } = env;
    let set = set.iter().map(|(name, value)| ("env", format!("{name}={value}")));
    each("env", pass).into_iter().chain(set).collect()
}
