//! `callgate trust`.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;

use callgate::shown::{escaped, escaped_json};
use callgate::trust::{Decision, Proposal, TrustList, Trusted, TrustedTools};
use callgate::{Examined, OpenError, SessionSpec, with_causes};
use callgate_policy::effective::{EffectiveSet, Kind, Origin, Rights, Source};
use callgate_policy::manifest::Manifest;
use callgate_policy::plan::Network;
use rustix::termios::{QueueSelector, tcflush};
use serde_json::json;

use super::arguments::TrustArguments;
use super::exit::CommandFailure;
use super::show;

/// Exit status where a person did not trust it.
const NOT_TRUSTED: u8 = 1;

pub(super) fn trust(arguments: &TrustArguments, json: bool) -> Result<ExitCode, CommandFailure> {
    let list = TrustList::of_user()?;
    let mut text = Vec::new();
    let written = match &arguments.dir {
        None => all(&mut text, &list.all()?, json),
        Some(dir) if arguments.revoke => revoked(&mut text, dir, list.revoke(dir)?, json),
        Some(dir) => return give(&list, dir, arguments, json),
    };
    written.and_then(|()| print(&text)).map_err(CommandFailure::print("print what is trusted"))?;
    Ok(ExitCode::SUCCESS)
}

fn print(text: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text).and_then(|()| out.flush())
}

/// Shows what there is to trust, asks a person who sees it, and trusts it as it was shown.
fn give(list: &TrustList, dir: &Path, arguments: &TrustArguments, json: bool) -> Result<ExitCode, CommandFailure> {
    let decision = if arguments.once { Decision::Once } else { Decision::Trusted };
    let proposal = list.propose(dir, decision)?;
    let manifest = proposal.project().manifest.clone();
    let examined = examined(&proposal)?;
    let lines = ProposalLines::of(&manifest, examined.as_ref().map(|examined| &examined.effective));
    let failed = || CommandFailure::print("print what is trusted");
    let mut text = Vec::new();
    let file = escaped(&manifest.file);
    let lasts = if arguments.once { "for the next session there" } else { "until it changes" };
    // Whoever cannot see what it asks for, or cannot answer, has said so by typing the command.
    let asks = !arguments.yes && !json && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !json {
        lines.write(&mut text, &proposal, &manifest).map_err(failed())?;
    }
    if asks {
        print(format!("{file} asks for:\n").as_bytes()).and_then(|()| print(&text)).map_err(failed())?;
        remark(examined.as_ref(), &proposal);
        if !is_confirmed(&format!("Trust it {lasts}? [y/N] ")).map_err(failed())? {
            print(format!("{file} is not trusted by this.\n").as_bytes()).map_err(failed())?;
            return Ok(ExitCode::from(NOT_TRUSTED));
        }
        proposal.trust(lines.all())?;
        print(format!("{file} is trusted {lasts}.\n").as_bytes()).map_err(failed())?;
        return Ok(ExitCode::SUCCESS);
    }
    remark(examined.as_ref(), &proposal);
    let trusted = proposal.trust(lines.all())?;
    let head = match json {
        true => format!("{}\n", escaped_json(&json!(trusted).to_string())),
        false => format!("{file} is trusted {lasts}. It asks for:\n"),
    };
    print(head.as_bytes()).and_then(|()| print(&text)).map_err(failed())?;
    Ok(ExitCode::SUCCESS)
}

/// Asks at the terminal. Enter alone is a no, and so is an end of the file.
fn is_confirmed(question: &str) -> std::io::Result<bool> {
    print(question.as_bytes())?;
    let input = std::io::stdin();
    // What was typed before it was asked is no answer to it.
    tcflush(input.as_fd(), QueueSelector::IFlush)?;
    let mut line = String::new();
    input.lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Rights that a session of the project would have. `None`, with a word about it, where that cannot be known now for another reason than a
/// mistake of the manifest's.
fn examined(proposal: &Proposal) -> Result<Option<Examined>, CommandFailure> {
    let project = proposal.project();
    let mut spec = SessionSpec::of_project(project.root().as_path(), project.clone());
    spec.user_tools = callgate::user_settings();
    match Examined::of(spec) {
        Ok(examined) => Ok(Some(examined)),
        Err(error @ OpenError::Rule(_)) => Err(error.into()),
        // A rule's place is in the error.
        Err(error @ OpenError::UnknownTool { .. }) => Err(error.into()),
        Err(error) => match error.unknown().map(|name| place_of(proposal, name)) {
            Some(place) => {
                let meant = error.meant().map(|meant| format!("\n  try: did you mean `{meant}`?")).unwrap_or_default();
                Err(CommandFailure::Data(format!("{place}: {}{meant}", with_causes(&error))))
            }
            None => {
                say(&format!("what is in force in a session is not known now: {}", with_causes(&error)));
                Ok(None)
            }
        },
    }
}

/// Where a manifest names something, as far as that is found.
fn place_of(proposal: &Proposal, name: &str) -> String {
    let file = &proposal.project().manifest.file;
    proposal.line_with(name).map_or_else(|| file.clone(), |line| format!("{file}:{line}"))
}

/// Says on standard error what its author may not have meant.
fn remark(examined: Option<&Examined>, proposal: &Proposal) {
    let Some(examined) = examined else { return };
    for warning in examined.warnings.iter().filter(|warning| show::is_told(warning)) {
        say(&warning.to_string());
    }
    for missing in &examined.missing {
        let similar = missing.similar.as_ref().map(|similar| format!("; did you mean {similar}?")).unwrap_or_default();
        let file = &proposal.project().manifest.file;
        say(&format!("{file}:{}: `{}`: there is no {}{similar}", missing.line, missing.named, missing.path));
    }
    for (tool, why) in &examined.databases {
        say(&format!("{}: `{tool}`: {why}", place_of(proposal, tool)));
    }
}

/// A notice: what is trusted does not depend on somebody reading it.
fn say(text: &str) {
    drop(writeln!(std::io::stderr(), "callgate: {}", escaped(text)));
}

/// Lines that a person is shown of a proposal, and that are compared with it the next time.
struct ProposalLines {
    asks: Vec<String>,
    in_force: Option<Vec<String>>,
}

impl ProposalLines {
    fn of(manifest: &Manifest, effective: Option<&EffectiveSet>) -> Self {
        let entries = manifest.entries();
        let width = entries.iter().map(|(key, _)| key.len()).max().unwrap_or_default();
        let asks = entries.iter().map(|(key, says)| escaped(&format!("{key:<width$} {says}"))).collect();
        let in_force = effective.map(|effective| in_force(effective).iter().map(|line| escaped(line)).collect());
        Self { asks, in_force }
    }

    /// All of them, by which a later proposal is compared. The width of a column is no change.
    fn all(&self) -> Vec<String> {
        let one = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let in_force = self.in_force.iter().flatten().map(|line| format!("in force: {line}"));
        self.asks.iter().map(one).chain(in_force).collect()
    }

    /// Writes all of it: whoever reads it need not have read the file.
    fn write(&self, out: &mut Vec<u8>, proposal: &Proposal, manifest: &Manifest) -> std::io::Result<()> {
        self.asks.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        for caution in Network::cautions(&manifest.requires.net.hosts) {
            writeln!(out, "Hosts: {}.", escaped(&caution))?;
        }
        let skills = proposal.project().skill_files();
        if skills.len() > 0 {
            writeln!(out, "Its skills are trusted as they are now:")?;
        }
        skills.into_iter().try_for_each(|file| writeln!(out, "  {}", escaped(file)))?;
        declared(out, &proposal.tools())?;
        if let Some(in_force) = &self.in_force {
            writeln!(out, "In force in a session, with what its tools require:")?;
            in_force.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        }
        self.changes(out, proposal.before())
    }

    /// Lines that are not as they were when it was trusted.
    fn changes(&self, out: &mut Vec<u8>, before: Option<&Trusted>) -> std::io::Result<()> {
        let Some(before) = before.filter(|before| !before.shown.is_empty()) else { return Ok(()) };
        let now = self.all();
        let gone = before.shown.iter().filter(|line| !now.contains(line)).map(|line| ('-', line));
        let new = now.iter().filter(|line| !before.shown.contains(line)).map(|line| ('+', line));
        let changes: Vec<(char, &String)> = gone.chain(new).collect();
        let since = escaped(&before.granted_at);
        if changes.is_empty() {
            return writeln!(out, "Nothing of that is another than when it was trusted ({since}).");
        }
        writeln!(out, "Changed since it was trusted ({since}):")?;
        // What was kept is shown as it was, and escaped again: the list is a file.
        changes.into_iter().try_for_each(|(sign, line)| writeln!(out, "  {sign} {}", escaped(line)))
    }
}

/// Rights in force, a line each, with the tools that require them.
fn in_force(effective: &EffectiveSet) -> Vec<String> {
    let mut lines = of_rights(effective.rights(), None);
    for (tool, rights) in effective.of_tools() {
        lines.extend(of_rights(rights, Some(tool)));
    }
    lines.extend(effective.narrowings().iter().map(|narrowing| format!("not granted: {narrowing}")));
    lines
}

fn of_rights(rights: &Rights, alone: Option<&str>) -> Vec<String> {
    let line = |what: &str, region: String, kind: Kind, origins: &std::collections::BTreeSet<Origin>| {
        let tool = |origin: &Origin| if let Source::Tool(tool) = &origin.source { Some(tool.clone()) } else { None };
        let tools: Vec<String> = origins.iter().filter(|origin| origin.kind == kind).filter_map(tool).collect();
        match (alone, tools.as_slice()) {
            (Some(tool), _) => format!("{what} {region} (`{tool}` alone)"),
            (None, []) => format!("{what} {region}"),
            (None, tools) => format!("{what} {region} ({})", tools.join(", ")),
        }
    };
    let is_written = |region: &String| rights.write().iter().any(|(written, _)| written.to_string() == *region);
    let read = rights.read().iter().map(|(region, origins)| (region.to_string(), origins));
    let read = read.filter(|(region, _)| !is_written(region));
    let write = rights.write().iter().map(|(region, origins)| line("write", region.to_string(), Kind::Write, origins));
    let hosts = rights.hosts().iter().map(|(host, origins)| line("connect to", host.to_string(), Kind::Hosts, origins));
    let shell = rights.shell().iter().map(|(region, origins)| line("start", region.to_string(), Kind::Shell, origins));
    let capabilities = rights.capabilities().iter().map(|(name, _)| format!("capability {name}"));
    let read = read.map(|(region, origins)| line("read", region, Kind::Read, origins));
    read.chain(write).chain(hosts).chain(shell).chain(capabilities).collect()
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
        writeln!(out, "{}  since {}, {lasts}", escaped(&path), escaped(&trusted.granted_at))?;
        for approval in trusted.approvals.iter() {
            writeln!(out, "  always: {} {}", escaped(&approval.tool), escaped(&approval.to_string()))?;
        }
    }
    Ok(())
}

fn revoked(out: &mut Vec<u8>, dir: &Path, was_there: bool, json: bool) -> std::io::Result<()> {
    let dir = dir.display().to_string();
    match was_there {
        _ if json => writeln!(out, "{}", json!({ "revoked": was_there })),
        true => writeln!(out, "{} is no longer trusted", escaped(&dir)),
        false => writeln!(out, "{} was not trusted", escaped(&dir)),
    }
}

/// The tools that are trusted with it.
fn declared(out: &mut Vec<u8>, TrustedTools { tools, left_out, .. }: &TrustedTools) -> std::io::Result<()> {
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
