//! From the tree to the manifest: which keys there are, and what their values must be.

use std::collections::BTreeMap;
use std::ops::Range;

use super::net::{check_provider_url, header_name};
use super::{
    Agent, AgentMode, Credential, CredentialSource, Env, Form, LanguageServer, MCP_DESCRIPTION, MCP_START, Manifest,
    McpServer, Net, Over, Provider, ProviderKind, Rlm, Search,
};
use crate::approval::ApprovalScope;
use crate::ceiling::{Ceiling, FsCeiling, NetCeiling};
use crate::document::error::Fault;
use crate::document::table::{Table, boolean, choice, count, list, name, parsed, text, wrong};
use crate::document::tree::{DocumentValue, Node};
use crate::effective::Kind;
use crate::limit::Limits;
use crate::mode::{Headless, Mode};
use crate::path::HostPath;
use crate::pattern::{ArgPattern, ArgPatterns, HostPattern, PathTemplate};
use crate::profile::{Profile, ProfileName};
use crate::requirement::{FsRequirement, NetRequirement, Program, RequirementSet, ShellRunRequirement};
use crate::rules::{Action, AllowEntry, Permission, Rule, RuleGrant};
use crate::tool::Surface;
use crate::unit::{ByteSize, parse_duration};

/// Where the items of `requires` stand.
type ItemPlaces = BTreeMap<Kind, Vec<usize>>;

/// Where the tables of `ceiling` stand.
type CeilingPlaces = BTreeMap<&'static str, usize>;

pub(super) fn manifest(root: Node, file: &str) -> Result<(Manifest, ItemPlaces), Fault> {
    let known = [
        "id",
        "mode",
        "allowlist",
        "headless",
        "approvals",
        "watch_execs",
        "profile",
        "tools",
        "extra",
        "surface",
        "roots",
        "requires",
        "ceiling",
        "rules",
        "limits",
        "env",
        "net",
        "agents",
        "mcp",
        "lsp",
    ];
    let mut top = Table::of(root, "the manifest", &known)?;
    let mut places = ItemPlaces::new();
    let mut rule_places = Vec::new();
    let mut ceiling_places = CeilingPlaces::new();
    let (mut agents_credentials, mut servers_credentials) = (Vec::new(), Vec::new());
    let env_at = top.place("env").map_or(0..0, |at| at..at + 3);
    let mcp_at = top.place("mcp").map_or(0..0, |at| at..at + 3);
    let mode = top.optional("mode", |node| choice(node, Mode::parse, &Mode::NAMES))?;
    let manifest = Manifest {
        file: file.to_owned(),
        id: top.optional("id", name)?,
        mode,
        allowlist: top.optional("allowlist", |node| allowlist(node, mode))?.unwrap_or_default(),
        headless: top.optional("headless", |node| choice(node, Headless::parse, &Headless::NAMES))?.unwrap_or_default(),
        approvals: top
            .optional("approvals", |node| choice(node, ApprovalScope::parse, &ApprovalScope::NAMES))?
            .unwrap_or_default(),
        watch_execs: top.optional("watch_execs", boolean)?.unwrap_or_default(),
        profile: top.optional("profile", profile)?.unwrap_or_default(),
        tools: top.optional("tools", |node| list(node, name))?,
        surface: top.optional("surface", |node| choice(node, Surface::parse, &Surface::NAMES))?,
        extra: top.optional("extra", |node| list(node, name))?.unwrap_or_default(),
        roots: top.optional("roots", |node| list(node, workspace_root))?.unwrap_or_default(),
        requires: top.optional("requires", |node| requires(node, &mut places))?.unwrap_or_default(),
        ceiling: top.optional("ceiling", |node| ceiling(node, &mut ceiling_places))?.unwrap_or_default(),
        rules: top.optional("rules", |node| placed_rules(node, &mut rule_places))?.unwrap_or_default(),
        limits: top.optional("limits", limits)?.unwrap_or_default(),
        env: top.optional("env", env)?.unwrap_or_default(),
        net: top.optional("net", of_the_net)?.unwrap_or_default(),
        agents: top.optional("agents", |node| agents(node, &mut agents_credentials))?.unwrap_or_default(),
        mcp: top.optional("mcp", |node| servers(node, &mut servers_credentials))?.unwrap_or_default(),
        lsp: top.optional("lsp", |node| by_name(node, "a server", language_server))?.unwrap_or_default(),
        lines: BTreeMap::new(),
        rule_lines: rule_places,
        ceiling_lines: ceiling_places,
    };
    // A variable that programs get as well is no secret from them.
    if let Some(name) = kept_from_programs(&manifest, &manifest.env) {
        let problem = format!("[env] gives programs the variable {name}, which [[net.credentials]] keeps from them");
        return Err(Fault::new(env_at, problem).with_help("take it out of one of them"));
    }
    for (name, server) in &manifest.mcp {
        if let Some(kept) = kept_from_programs(&manifest, &server.env) {
            let problem =
                format!("[mcp.{name}.env] gives a server the variable {kept}, which [[net.credentials]] keeps from it");
            let help = "take it out of one of them; with `credentials` a server's requests get what it need not know";
            return Err(Fault::new(mcp_at, problem).with_help(help));
        }
    }
    let named = |places: Vec<_>, whose| places.into_iter().map(move |(host, place)| (host, place, whose));
    for (host, place, whose) in named(agents_credentials, "an agent").chain(named(servers_credentials, "a server")) {
        if !manifest.net.credentials.iter().any(|credential| credential.host == host) {
            let problem = format!("there is no credential for {host} that {whose} could get");
            let help = "name a `host` of [[net.credentials]] as it is written there";
            return Err(Fault::new(place, problem).with_help(help));
        }
    }
    Ok((manifest, places))
}

/// A variable that an environment has, and that credentials are read from.
fn kept_from_programs<'a>(manifest: &'a Manifest, env: &Env) -> Option<&'a str> {
    manifest.net.credentials.iter().find_map(|credential| match &credential.from {
        CredentialSource::Variable(name) if env.pass.contains(name) || env.set.contains_key(name) => {
            Some(name.as_str())
        }
        CredentialSource::Variable(_) | CredentialSource::File(_) => None,
    })
}

/// `credentials` gets the hosts that they name there, each with its place.
fn agents(node: Node, credentials: &mut Vec<(HostPattern, Range<usize>)>) -> Result<BTreeMap<String, Agent>, Fault> {
    by_name(node, "an agent", |node| agent(node, credentials))
}

/// A table whose keys are names.
fn by_name<T>(
    node: Node,
    what: &str,
    mut read: impl FnMut(Node) -> Result<T, Fault>,
) -> Result<BTreeMap<String, T>, Fault> {
    let DocumentValue::Table(entries) = node.value else { return Err(wrong(&node, "a table")) };
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut all = BTreeMap::new();
    for entry in entries {
        if entry.key.is_empty() || entry.key.len() > 64 || !entry.key.chars().all(plain) {
            let problem =
                format!("{:?} is no name for {what}: it has 1 to 64 of a-z, A-Z, 0-9, `_` and `-`", entry.key);
            return Err(Fault::new(entry.key_span, problem));
        }
        all.insert(entry.key, read(entry.node)?);
    }
    Ok(all)
}

fn servers(
    node: Node,
    credentials: &mut Vec<(HostPattern, Range<usize>)>,
) -> Result<BTreeMap<String, McpServer>, Fault> {
    let DocumentValue::Table(entries) = &node.value else { return Err(wrong(&node, "a table")) };
    // Its tools are `mcp__NAME__TOOL`: no two servers may have the same.
    let unclear = |key: &str| key.contains("__") || key.starts_with('_') || key.ends_with('_') || key == "callgate";
    if let Some(entry) = entries.iter().find(|entry| unclear(&entry.key)) {
        let problem = format!(
            "{:?} is no name for a server: `_` stands between others, and alone; `callgate` is taken",
            entry.key
        );
        return Err(Fault::new(entry.key_span.clone(), problem));
    }
    by_name(node, "a server", |node| server(node, credentials))
}

fn server(node: Node, credentials: &mut Vec<(HostPattern, Range<usize>)>) -> Result<McpServer, Fault> {
    let known = [
        "command",
        "data",
        "enabled",
        "trusted",
        "tools",
        "requires",
        "env",
        "credentials",
        "start_timeout",
        "timeout",
        "max_description_length",
    ];
    let mut table = Table::of(node, "a server", &known)?;
    let mut lines = ItemPlaces::new();
    let of_a_credential = |node: Node| {
        let place = node.span.clone();
        let host = host(node)?;
        credentials.push((host.clone(), place));
        Ok(host)
    };
    let server = McpServer {
        command: table.required("command", runner)?,
        data: table.optional("data", |node| list(node, name))?.unwrap_or_default(),
        enabled: table.optional("enabled", boolean)?.unwrap_or(true),
        trusted: table.optional("trusted", boolean)?.unwrap_or_default(),
        tools: table.optional("tools", |node| list(node, name))?,
        requires: table.optional("requires", |node| requires(node, &mut lines))?.unwrap_or_default(),
        env: table.optional("env", env)?.unwrap_or_default(),
        credentials: table.optional("credentials", |node| list(node, of_a_credential))?.unwrap_or_default(),
        start_timeout: table.optional("start_timeout", |node| parsed(node, parse_duration))?.unwrap_or(MCP_START),
        timeout: table.optional("timeout", |node| parsed(node, parse_duration))?,
        max_description_length: table.optional("max_description_length", count)?.unwrap_or(MCP_DESCRIPTION),
        lines: BTreeMap::new(),
    };
    Ok(McpServer { lines, ..server })
}

fn language_server(node: Node) -> Result<LanguageServer, Fault> {
    let mut table = Table::of(node, "a language server", &["command", "files", "language"])?;
    let pattern = |node: Node| {
        let span = node.span.clone();
        let pattern = text(node)?;
        LanguageServer::check(&pattern).map_err(|problem| Fault::new(span, problem))?;
        Ok(pattern)
    };
    Ok(LanguageServer {
        command: table.required("command", runner)?,
        files: table.required("files", |node| list(node, pattern))?,
        language: table.optional("language", name)?,
    })
}

fn agent(node: Node, credentials: &mut Vec<(HostPattern, Range<usize>)>) -> Result<Agent, Fault> {
    let known = [
        "description",
        "mode",
        "tools",
        "requires",
        "ceiling",
        "rules",
        "runner",
        "env",
        "credentials",
        "inspectable",
        "knows_caller",
    ];
    let mut table = Table::of(node, "an agent", &known)?;
    let (mut lines, mut rule_lines, mut ceiling_lines) = (ItemPlaces::new(), Vec::new(), CeilingPlaces::new());
    let runner_line = table.place("runner");
    let of_a_credential = |node: Node| {
        let place = node.span.clone();
        let host = host(node)?;
        credentials.push((host.clone(), place));
        Ok(host)
    };
    let agent = Agent {
        description: table.required("description", name)?,
        mode: table.optional("mode", |node| choice(node, AgentMode::parse, &AgentMode::NAMES))?.unwrap_or_default(),
        tools: table.optional("tools", |node| list(node, name))?,
        requires: table.optional("requires", |node| requires(node, &mut lines))?.unwrap_or_default(),
        ceiling: table.optional("ceiling", |node| ceiling(node, &mut ceiling_lines))?.unwrap_or_default(),
        rules: table.optional("rules", |node| placed_rules(node, &mut rule_lines))?.unwrap_or_default(),
        runner: table.optional("runner", runner)?.unwrap_or_default(),
        env: table.optional("env", |node| list(node, variable_name))?.unwrap_or_default(),
        credentials: table.optional("credentials", |node| list(node, of_a_credential))?.unwrap_or_default(),
        inspectable: table.optional("inspectable", boolean)?.unwrap_or_default(),
        knows_caller: table.optional("knows_caller", boolean)?.unwrap_or_default(),
        lines: BTreeMap::new(),
        rule_lines: Vec::new(),
        ceiling_lines: BTreeMap::new(),
    };
    // It comes to the programs that are asked for.
    lines.entry(Kind::Shell).or_default().extend(runner_line);
    Ok(Agent { lines, rule_lines, ceiling_lines, ..agent })
}

/// A program and its arguments.
fn runner(node: Node) -> Result<Vec<String>, Fault> {
    let span = node.span.clone();
    let mut is_first = true;
    let argv = list(node, |item| {
        let span = item.span.clone();
        let word = text(item)?;
        if word.contains('\0') {
            return Err(Fault::new(span, "an argument cannot hold a NUL"));
        }
        match Program::parse(&word).map_err(|error| error.to_string()) {
            _ if !std::mem::take(&mut is_first) => {}
            // It is started as it is written.
            Ok(Program::Name(_)) => {}
            Ok(Program::Path(_)) if !word.contains(['{', '}', '*']) => {}
            Ok(Program::Path(_) | Program::Tree(_) | Program::Any) => {
                return Err(Fault::new(span, "a runner is one program: its name, or its whole path without variables"));
            }
            Err(problem) => return Err(Fault::new(span, problem)),
        }
        Ok(word)
    })?;
    if argv.is_empty() {
        return Err(Fault::new(span, "a runner has at least the name of a program"));
    }
    Ok(argv)
}

fn placed_rules(node: Node, places: &mut Vec<usize>) -> Result<Vec<Rule>, Fault> {
    list(node, |item| {
        places.push(item.span.start);
        rule(item)
    })
}

fn workspace_root(node: Node) -> Result<HostPath, Fault> {
    let span = node.span.clone();
    let path = text(node)?;
    if path.is_empty() || path.contains('\0') {
        return Err(Fault::new(span, "a root is a directory, such as \"../shared\""));
    }
    if path.contains(['*', '?', '[', '{']) {
        return Err(Fault::new(span, "a root is one directory: it has no wildcards and no variables"));
    }
    Ok(path.as_str().into())
}

fn profile(node: Node) -> Result<ProfileName, Fault> {
    let help = "for a profile of your own, name its file: profile = \"./mine.yaml\"";
    choice(node, ProfileName::parse, &Profile::NAMES).map_err(|fault| fault.with_help(help))
}

fn requires(node: Node, places: &mut ItemPlaces) -> Result<RequirementSet, Fault> {
    let mut table = Table::of(node, "requires", &["fs", "net", "shell", "capabilities"])?;
    Ok(RequirementSet {
        fs: table.optional("fs", |node| fs(node, places))?.unwrap_or_default(),
        net: table.optional("net", |node| net(node, places))?.unwrap_or_default(),
        shell: table
            .optional("shell", |node| placed(node, Kind::Shell, places, |item| shell_run(item, "requires.shell")))?
            .unwrap_or_default(),
        capabilities: table
            .optional("capabilities", |node| placed(node, Kind::Capabilities, places, name))?
            .unwrap_or_default(),
    })
}

fn fs(node: Node, places: &mut ItemPlaces) -> Result<FsRequirement, Fault> {
    let mut table = Table::of(node, "requires.fs", &["read", "write", "exact"])?;
    Ok(FsRequirement {
        read: table.optional("read", |node| placed(node, Kind::Read, places, path))?.unwrap_or_default(),
        write: table.optional("write", |node| placed(node, Kind::Write, places, path))?.unwrap_or_default(),
        exact: table.optional("exact", boolean)?.unwrap_or_default(),
    })
}

fn net(node: Node, places: &mut ItemPlaces) -> Result<NetRequirement, Fault> {
    let mut table = Table::of(node, "requires.net", &["hosts"])?;
    Ok(NetRequirement {
        hosts: table.optional("hosts", |node| placed(node, Kind::Hosts, places, host))?.unwrap_or_default(),
    })
}

/// A table that bounds nothing would look like one that bounds everything, so it is a mistake.
fn ceiling(node: Node, places: &mut CeilingPlaces) -> Result<Ceiling, Fault> {
    let mut table = bounding(node, "ceiling", &["fs", "net", "shell", "capabilities"])?;
    for (key, kind) in
        [("fs", Kind::Write), ("net", Kind::Hosts), ("shell", Kind::Shell), ("capabilities", Kind::Capabilities)]
    {
        places.extend(table.place(key).map(|place| (kind.ceiling_table(), place)));
    }
    Ok(Ceiling {
        fs: table.optional("fs", fs_ceiling)?.unwrap_or_default(),
        net: table.optional("net", net_ceiling)?.unwrap_or_default(),
        shell: table.optional("shell", |node| list(node, |item| shell_run(item, "ceiling.shell")))?,
        capabilities: table.optional("capabilities", |node| list(node, name))?,
    })
}

fn fs_ceiling(node: Node) -> Result<FsCeiling, Fault> {
    let mut table = bounding(node, "ceiling.fs", &["read", "write"])?;
    Ok(FsCeiling {
        read: table.optional("read", |node| list(node, path))?,
        write: table.optional("write", |node| list(node, path))?,
    })
}

fn net_ceiling(node: Node) -> Result<NetCeiling, Fault> {
    let mut table = bounding(node, "ceiling.net", &["hosts"])?;
    Ok(NetCeiling { hosts: table.optional("hosts", |node| list(node, host))? })
}

fn bounding(node: Node, what: &'static str, known: &[&str]) -> Result<Table, Fault> {
    let span = node.span.clone();
    let table = Table::of(node, what, known)?;
    if table.is_empty() {
        let fault = Fault::new(span, format!("{what} bounds nothing"));
        return Err(fault.with_help(format!("name what it bounds ({}), or leave it out", known.join(", "))));
    }
    Ok(table)
}

fn path(node: Node) -> Result<PathTemplate, Fault> {
    parsed(node, PathTemplate::parse)
}

fn host(node: Node) -> Result<HostPattern, Fault> {
    parsed(node, HostPattern::parse)
}

fn shell_run(node: Node, what: &'static str) -> Result<ShellRunRequirement, Fault> {
    let mut table = Table::of(node, what, &["cmd", "args"])?;
    Ok(ShellRunRequirement {
        cmd: table.required("cmd", |node| parsed(node, Program::parse))?,
        args: table.optional("args", arguments)?,
    })
}

fn arguments(node: Node) -> Result<ArgPatterns, Fault> {
    let span = node.span.clone();
    ArgPatterns::new(list(node, argument)?).map_err(|error| Fault::new(span, error.to_string()))
}

fn argument(node: Node) -> Result<ArgPattern, Fault> {
    let span = node.span.clone();
    if let DocumentValue::Text(text) = node.value {
        return Ok(ArgPattern::Exact(text));
    }
    let mut table = Table::of(node, "an argument pattern", &["wildcard", "dash", "prefix", "rest"])?;
    let truth = |node: Node| match (&node.value, node.span.clone()) {
        (DocumentValue::Bool(false), span) => Err(Fault::new(span, "it can only be true; leave it out instead")),
        (_, _) => boolean(node),
    };
    let dash = table.optional("dash", truth)?.is_some();
    let any = if dash { ArgPattern::AnyOne } else { ArgPattern::Wildcard };
    let wildcard = table.optional("wildcard", truth)?.map(|_true| any);
    if dash && wildcard.is_none() {
        return Err(Fault::new(span, "`dash` goes with `wildcard`"));
    }
    let rest = table.optional("rest", truth)?.map(|_true| ArgPattern::Rest);
    let prefix = table.optional("prefix", name)?.map(ArgPattern::Prefix);
    let mut given = [wildcard, prefix, rest].into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(one), None) => Ok(one),
        (None | Some(_), _) => {
            Err(Fault::new(span, "an argument pattern has exactly one of `wildcard`, `prefix` and `rest`"))
        }
    }
}

fn rule(node: Node) -> Result<Rule, Fault> {
    let mut table = Table::of(node, "a rule", &["permission", "pattern", "action", "grant"])?;
    Ok(Rule {
        permission: table.required("permission", permission)?,
        pattern: table.optional("pattern", name)?,
        action: table.optional("action", |node| choice(node, Action::parse, &Action::NAMES))?.unwrap_or_default(),
        grant: table.optional("grant", rule_grant)?,
    })
}

fn rule_grant(node: Node) -> Result<RuleGrant, Fault> {
    let span = node.span.clone();
    let mut table = Table::of(node, "a rule's grant", &["write", "net"])?;
    let grant = RuleGrant {
        write: table.optional("write", |node| list(node, path))?,
        net: table.optional("net", |node| list(node, host))?,
    };
    if grant == RuleGrant::default() {
        return Err(Fault::new(span, "a grant without `write` and `net` narrows nothing"));
    }
    Ok(grant)
}

fn permission(node: Node) -> Result<String, Fault> {
    parsed(node, |text| Permission::parse(text).map(|_| text.to_owned()))
}

/// X1-11: entries that nothing looks at are a mistake.
fn allowlist(node: Node, mode: Option<Mode>) -> Result<Vec<AllowEntry>, Fault> {
    let span = node.span.clone();
    let entries = list(node, |item| {
        let place = item.span.clone();
        let entry = name(item)?;
        let blank = entry.split_once(' ').filter(|(tool, _)| !tool.contains(':'));
        let Some((tool, keys)) = blank else { return Ok(entry) };
        let right = serde_json::Value::from(format!("{tool}:{}", keys.trim_start()));
        Err(Fault::new(place, format!("{entry:?} needs a colon between the tool and what it may do"))
            .with_help(format!("write {right}")))
    })?;
    if mode != Some(Mode::Allowlist) && !entries.is_empty() {
        return Err(Fault::new(span, "there is a list of what is allowed, and the mode is not `allowlist`")
            .with_help("add mode = \"allowlist\", or leave the list out"));
    }
    Ok(entries.iter().map(|entry| AllowEntry::parse(entry)).collect())
}

fn limits(node: Node) -> Result<Limits, Fault> {
    let known = [
        "wall",
        "cpu",
        "memory",
        "file_size",
        "processes",
        "open_files",
        "disk",
        "output",
        "network",
        "session_network",
        "network_rate",
    ];
    let mut table = Table::of(node, "limits", &known)?;
    let duration = |node| parsed(node, parse_duration);
    let size = |node| parsed(node, ByteSize::parse);
    Ok(Limits {
        wall: table.optional("wall", duration)?,
        cpu: table.optional("cpu", duration)?,
        memory: table.optional("memory", size)?,
        file_size: table.optional("file_size", size)?,
        processes: table.optional("processes", count)?,
        open_files: table.optional("open_files", count)?,
        disk: table.optional("disk", size)?,
        output: table.optional("output", size)?,
        network: table.optional("network", size)?,
        session_network: table.optional("session_network", size)?,
        network_rate: table.optional("network_rate", size)?,
    })
}

fn env(node: Node) -> Result<Env, Fault> {
    let mut table = Table::of(node, "env", &["pass", "set"])?;
    Ok(Env {
        pass: table.optional("pass", |node| list(node, variable_name))?.unwrap_or_default(),
        set: table.optional("set", assignments)?.unwrap_or_default(),
    })
}

fn of_the_net(node: Node) -> Result<Net, Fault> {
    let mut table = Table::of(node, "net", &["search", "rlm", "credentials"])?;
    Ok(Net {
        search: table.optional("search", search)?,
        rlm: table.optional("rlm", rlm)?,
        credentials: table.optional("credentials", credentials)?.unwrap_or_default(),
    })
}

fn search(node: Node) -> Result<Search, Fault> {
    let span = node.span.clone();
    let mut table = Table::of(node, "net.search", &["providers", "calls", "timeout"])?;
    let providers = table.required("providers", |node| list(node, provider))?;
    let timeout = table.optional("timeout", |node| {
        let span = node.span.clone();
        let timeout = parsed(node, parse_duration)?;
        let most = Search::LONGEST.as_secs();
        let is_long = timeout > Search::LONGEST;
        if is_long { Err(Fault::new(span, format!("a search takes at most {most}s"))) } else { Ok(timeout) }
    })?;
    if providers.is_empty() || providers.len() > Search::PROVIDERS_MAX {
        return Err(Fault::new(span, format!("net.search has 1 to {} providers", Search::PROVIDERS_MAX)));
    }
    let calls = table.optional("calls", count)?.unwrap_or(Search::CALLS);
    Ok(Search { providers, calls, timeout: timeout.unwrap_or(Search::TIMEOUT) })
}

fn rlm(node: Node) -> Result<Rlm, Fault> {
    let mut table = Table::of(node, "net.rlm", &["url", "model"])?;
    let url = |url: &str| check_provider_url(url).map(|()| url.trim_end_matches('/').to_owned());
    Ok(Rlm {
        url: table.required("url", |node| parsed(node, url))?,
        model: table.optional("model", name)?.unwrap_or_else(|| Rlm::MODEL.to_owned()),
    })
}

/// By its name, where there is one for all; else with its place.
fn provider(node: Node) -> Result<Provider, Fault> {
    let span = node.span.clone();
    let kind = |node| choice(node, ProviderKind::parse, &ProviderKind::NAMES);
    let (kind, url) = if matches!(node.value, DocumentValue::Table(_)) {
        let mut table = Table::of(node, "a provider", &["kind", "url"])?;
        let url = table.optional("url", |node| {
            parsed(node, |url| check_provider_url(url).map(|()| url.trim_end_matches('/').to_owned()))
        })?;
        (table.required("kind", kind)?, url)
    } else {
        (kind(node)?, None)
    };
    let url = url.or_else(|| kind.url().map(str::to_owned)).ok_or_else(|| {
        let problem = format!("there are many {}: say where yours is", kind.name());
        let help = format!("{{ kind = \"{}\", url = \"https://search.example.org\" }}", kind.name());
        Fault::new(span, problem).with_help(help)
    })?;
    Ok(Provider { kind, url })
}

fn credentials(node: Node) -> Result<Vec<Credential>, Fault> {
    let span = node.span.clone();
    let mut read: Vec<Credential> = Vec::new();
    let mut beside = None;
    let all = list(node, |item| {
        let place = item.span.clone();
        let one = credential(item)?;
        if read.iter().any(|other| one.is_beside(other)) {
            beside.get_or_insert(place);
        }
        read.push(one.clone());
        Ok(one)
    })?;
    if let Some(place) = beside {
        return Err(Fault::new(place, "an earlier credential has the same header for some of the same requests"));
    }
    if all.len() > Credential::MOST {
        return Err(Fault::new(span, format!("there are at most {} credentials", Credential::MOST)));
    }
    Ok(all)
}

fn credential(node: Node) -> Result<Credential, Fault> {
    let span = node.span.clone();
    let mut table = Table::of(node, "a credential", &["host", "over", "header", "prefix", "env", "file"])?;
    let variable = table.optional("env", variable_name)?.map(CredentialSource::Variable);
    let file = table.optional("file", secret_file)?.map(CredentialSource::File);
    let from = match (variable, file) {
        (Some(from), None) | (None, Some(from)) => from,
        (None, None) | (Some(_), Some(_)) => {
            let help = "the value itself does not stand in a manifest";
            return Err(Fault::new(span, "a credential has its value from one of `env` and `file`").with_help(help));
        }
    };
    Ok(Credential {
        host: table.required("host", host)?,
        over: table.optional("over", |node| choice(node, Over::parse, &Over::NAMES))?.unwrap_or_default(),
        header: table.required("header", |node| parsed(node, header_name))?,
        prefix: table.optional("prefix", header_prefix)?.unwrap_or_default(),
        from,
        form: Form::Plain,
        only_for: None,
    })
}

fn header_prefix(node: Node) -> Result<String, Fault> {
    let span = node.span.clone();
    let prefix = text(node)?;
    let plain = prefix.len() <= 64 && prefix.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
    if plain {
        Ok(prefix)
    } else {
        Err(Fault::new(span, "a prefix is at most 64 characters of ASCII, such as \"Bearer \""))
    }
}

fn secret_file(node: Node) -> Result<HostPath, Fault> {
    let span = node.span.clone();
    let path = name(node)?;
    if path.starts_with('/') || path.starts_with("~/") {
        return Ok(path.as_str().into());
    }
    Err(Fault::new(span, "a credential's file is a whole path, or one that begins with `~/`"))
}

fn assignments(node: Node) -> Result<BTreeMap<String, String>, Fault> {
    let DocumentValue::Table(entries) = node.value else { return Err(wrong(&node, "a table")) };
    let mut set = BTreeMap::new();
    for entry in entries {
        check_variable_name(&entry.key, entry.key_span)?;
        let span = entry.node.span.clone();
        let value = text(entry.node)?;
        if value.contains('\0') {
            return Err(Fault::new(span, "a value cannot hold a NUL"));
        }
        set.insert(entry.key, value);
    }
    Ok(set)
}

fn variable_name(node: Node) -> Result<String, Fault> {
    let span = node.span.clone();
    let name = text(node)?;
    check_variable_name(&name, span)?;
    Ok(name)
}

fn check_variable_name(name: &str, span: Range<usize>) -> Result<(), Fault> {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if name.is_empty() || !plain || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(Fault::new(span, format!("{name:?} is not the name of an environment variable")));
    }
    Ok(())
}

/// A list whose items' places are kept, for provenance.
fn placed<T>(
    node: Node,
    kind: Kind,
    places: &mut ItemPlaces,
    mut read: impl FnMut(Node) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let kept = places.entry(kind).or_default();
    list(node, |item| {
        kept.push(item.span.start);
        read(item)
    })
}
