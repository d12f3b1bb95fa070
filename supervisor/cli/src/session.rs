//! `callgate session`, and what `call` and `run` need for `--session`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use callgate::policy::plan::Calls;
use callgate::{AskedBy, CallRecord, Retention, SessionRecord, SessionSpec, SessionState, Store, TodoStatus};
use callgate_policy::plan::env::is_secret_name;
use callgate_policy::unit::{ByteSize, parse_duration};
use serde::{Deserialize, Serialize};
use serde_json::json;
use unicode_width::UnicodeWidthStr as _;

use super::arguments::{DefaultAction, Grants, Offer, Prune, SessionAct, SessionArguments};
use super::exit::CommandFailure;
use super::paint::{self, PaintedWord};
use super::show;
use super::supervisor::{forked, supervise_with};

/// Settings that a session was made with, as the store keeps them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    grants: Grants,
    profile: Option<String>,
    mode: Option<DefaultAction>,
    offer: Offer,
}

impl Settings {
    fn spec(&self) -> Result<SessionSpec, CommandFailure> {
        let mut spec = show::spec(&self.grants)?;
        spec.ceilings.extend(show::only_programs(&spec));
        spec.profile = show::profile(self.profile.as_deref(), &spec)?;
        spec.mode = self.mode.map(Into::into);
        self.offer.apply(&mut spec);
        Ok(spec)
    }
}

/// A session that a command is to continue.
pub(super) struct Recorded {
    store: Store,
    record: SessionRecord,
    settings: Settings,
}

impl Recorded {
    /// `typed` are the grants that were given beside its id.
    pub(super) fn find(id: &str, typed: &Grants) -> Result<Self, CommandFailure> {
        if *typed != Grants::default() {
            return Err(CommandFailure::Usage(
                "--session takes its grants from `callgate session new`, so none can be given with it".to_owned(),
            ));
        }
        let store = Store::of_user()?;
        let record = store.session(id)?;
        let settings = serde_json::from_value(record.settings.clone()).map_err(|error| {
            CommandFailure::Data(format!("session {} was not made by `callgate session new`: {error}", record.id))
        })?;
        Ok(Self { store, record, settings })
    }

    pub(super) fn id(&self) -> String {
        self.record.id.clone()
    }

    pub(super) fn grants(&self) -> &Grants {
        &self.settings.grants
    }

    pub(super) fn profile(&self) -> Option<&str> {
        self.settings.profile.as_deref()
    }

    pub(super) fn mode(&self) -> Option<DefaultAction> {
        self.settings.mode
    }

    pub(super) fn offer(&self) -> &Offer {
        &self.settings.offer
    }

    /// For the session again.
    pub(super) fn spec(&self) -> Result<SessionSpec, CommandFailure> {
        self.settings.spec()
    }

    pub(super) fn into_store(self) -> Store {
        self.store
    }
}

pub(super) fn session(act: SessionAct, json: bool) -> Result<ExitCode, CommandFailure> {
    let text = match act {
        SessionAct::New(new) => {
            let record = make(*new)?;
            if json { format!("{}\n", json!(record)) } else { format!("{}\n", record.id) }
        }
        SessionAct::List => {
            let sessions = Store::of_user()?.sessions()?;
            if json { format!("{}\n", json!(sessions)) } else { return list(&sessions) }
        }
        SessionAct::Show(of) => {
            let store = Store::of_user()?;
            let record = store.session(&of.id)?;
            let (calls, children) = (store.calls(&record)?, store.children(&record)?);
            if json {
                format!("{}\n", whole(&record, &children, &calls))
            } else {
                return people(&record, &children, &calls);
            }
        }
        SessionAct::Replay(replay) => return self::replay(&replay.id, replay.results),
        SessionAct::Fork(of) => {
            let store = Store::of_user()?;
            let fork = store.fork(&store.session(&of.id)?)?;
            if json { format!("{}\n", json!(fork)) } else { format!("{}\n", fork.id) }
        }
        SessionAct::Close(of) => {
            let store = Store::of_user()?;
            let closed = store.close(&store.session(&of.id)?)?;
            if json { format!("{}\n", json!(closed)) } else { format!("{} is closed\n", closed.id) }
        }
        SessionAct::Export(of) => return export(&of.id),
        SessionAct::Prune(prune) => {
            let gone = Store::of_user()?.prune(retention(&prune)?)?;
            let lines = gone.iter().map(|record| format!("{} {}\n", record.id, title(record)));
            if json { format!("{}\n", json!(gone)) } else { lines.collect() }
        }
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(CommandFailure::print("print the session"))?;
    Ok(ExitCode::SUCCESS)
}

/// Settings that a session is to be made with.
pub(super) struct KeptSettings {
    settings: Settings,
    title: Option<String>,
}

impl KeptSettings {
    pub(super) fn of(new: SessionArguments) -> Result<Self, CommandFailure> {
        let settings = Settings {
            grants: lasting(new.grants)?,
            profile: new.profile.map(absolute_profile).transpose()?,
            mode: new.mode,
            offer: new.offer,
        };
        Ok(Self { settings, title: new.title })
    }

    /// For a session that keeps how it was made.
    pub(super) fn spec(self) -> Result<SessionSpec, CommandFailure> {
        let mut spec = self.settings.spec()?;
        spec.title = self.title;
        spec.settings = serde_json::to_value(&self.settings)
            .map_err(|error| CommandFailure::Usage(format!("the grants cannot be kept: {error}")))?;
        Ok(spec)
    }
}

/// Makes a session. It is opened once: what is wrong with its grants is reported now.
pub(super) fn make(new: SessionArguments) -> Result<SessionRecord, CommandFailure> {
    let mut spec = KeptSettings::of(new)?.spec()?;
    spec.calls = if spec.looks_at_commands() { Calls::Many } else { Calls::One };
    spec.asked_by = AskedBy::Person;
    let store = Store::of_user()?;
    let from = show::ManifestFrom::of(&spec);
    let id = supervise_with(Some(store.clone()), forked()?, async |supervisor| {
        let session = supervisor.open(spec).await?;
        show::tell_warnings(&session, from);
        Ok(session.id().to_owned())
    })?;
    Ok(store.session(&id)?)
}

/// These grants from wherever the next command is started, without secrets.
pub(super) fn lasting(mut grants: Grants) -> Result<Grants, CommandFailure> {
    let absolute = |path: &mut PathBuf| -> Result<(), CommandFailure> {
        *path = std::path::absolute(&path).map_err(CommandFailure::named(format!("find {}", path.display())))?;
        Ok(())
    };
    // By what it is now: a link that is put in its way later leads nowhere else.
    let workspace = grants.workspace.take().unwrap_or_else(|| PathBuf::from("."));
    let named = CommandFailure::named(format!("use {} as the workspace", workspace.display()));
    grants.workspace = Some(std::fs::canonicalize(&workspace).map_err(named)?);
    let paths = [&mut grants.read, &mut grants.write, &mut grants.root, &mut grants.ad_hoc];
    paths.into_iter().flatten().chain(&mut grants.manifest).chain(&mut grants.user_data).try_for_each(absolute)?;
    for program in grants.exec.iter_mut().filter(|program| program.contains('/') && !program.starts_with('{')) {
        let path = std::path::absolute(&*program).map_err(CommandFailure::named(format!("find {program}")))?;
        *program = path
            .into_os_string()
            .into_string()
            .map_err(|_bytes| CommandFailure::Usage(format!("--exec {program}: it is not text")))?;
    }
    let secret =
        grants.env.iter().filter_map(|variable| variable.split_once('=')).find(|(name, _)| is_secret_name(name));
    if let Some((name, _)) = secret {
        return Err(CommandFailure::Usage(format!(
            "--env {name}=…: the name looks like a secret's, and grants are kept on disk; give --env {name} alone, which takes \
             the value from your environment each time"
        )));
    }
    Ok(grants)
}

pub(super) fn absolute_profile(profile: String) -> Result<String, CommandFailure> {
    if !profile.contains('/') && !profile.ends_with(".yaml") && !profile.ends_with(".yml") {
        return Ok(profile);
    }
    let path = std::path::absolute(&profile).map_err(CommandFailure::named(format!("find {profile}")))?;
    path.into_os_string()
        .into_string()
        .map_err(|_bytes| CommandFailure::Usage(format!("--profile {profile}: it is not text")))
}

fn retention(prune: &Prune) -> Result<Retention, CommandFailure> {
    let mut keep = Retention::default();
    if let Some(age) = &prune.older_than {
        keep = keep.age(parse_age(age).map_err(|error| CommandFailure::Usage(format!("--older-than {age}: {error}")))?);
    }
    if let Some(size) = &prune.keep_size {
        keep = keep.bytes(
            ByteSize::parse(size).map_err(|error| CommandFailure::Usage(format!("--keep-size {size}: {error}")))?.0,
        );
    }
    Ok(keep)
}

/// A time, which may be in days.
fn parse_age(text: &str) -> Result<std::time::Duration, String> {
    match text.strip_suffix('d').map(str::parse::<u64>) {
        Some(Ok(days)) => Ok(std::time::Duration::from_secs(days.saturating_mul(24 * 3600))),
        Some(Err(error)) => Err(error.to_string()),
        None => parse_duration(text).map_err(|error| error.to_string()),
    }
}

fn whole(record: &SessionRecord, children: &[SessionRecord], calls: &[CallRecord]) -> serde_json::Value {
    let mut all = json!(record);
    if let Some(all) = all.as_object_mut() {
        if !children.is_empty() {
            all.insert("subagents".to_owned(), json!(children));
        }
        all.insert("calls".to_owned(), json!(calls));
    }
    all
}

/// Everything: the session, its calls, and its events as they are replayed.
fn export(id: &str) -> Result<ExitCode, CommandFailure> {
    let store = Store::of_user()?;
    let record = store.session(id)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let printed = || CommandFailure::print("print the session");
    let head = json!({ "format": 1, "session": whole(&record, &store.children(&record)?, &store.calls(&record)?) })
        .to_string();
    write!(out, "{},\"events\":[", &head[..head.len() - 1]).map_err(printed())?;
    let mut separator = "\n";
    store.replay(&record, |event| {
        let written = write!(out, "{separator}{event}").map_err(printed());
        separator = ",\n";
        written
    })?;
    out.write_all(b"\n]}\n").and_then(|()| out.flush()).map_err(printed())?;
    Ok(ExitCode::SUCCESS)
}

fn replay(id: &str, results: bool) -> Result<ExitCode, CommandFailure> {
    let store = Store::of_user()?;
    let record = store.session(id)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let printed = || CommandFailure::print("print the events");
    store.replay(&record, |event| match (results, event.envelope()) {
        (false, _) => writeln!(out, "{event}").map_err(printed()),
        (true, None) => Ok(()),
        (true, Some(envelope)) => {
            let text =
                serde_json::to_string_pretty(&envelope).map_err(|error| CommandFailure::runtime(error.into()))?;
            writeln!(out, "{text}").map_err(printed())
        }
    })?;
    out.flush().map_err(printed())?;
    Ok(ExitCode::SUCCESS)
}

fn list(sessions: &[SessionRecord]) -> Result<ExitCode, CommandFailure> {
    let mut out = paint::stdout();
    let printed = || CommandFailure::print("print the sessions");
    if sessions.is_empty() {
        writeln!(out, "There are no sessions. To make one: callgate session new").map_err(printed())?;
    }
    // The newest first: it is the one that is looked for.
    for record in sessions.iter().rev() {
        let (calls, workspace) = (counted(record.calls, "call"), record.workspace.join(", "));
        writeln!(
            out,
            "{}  {:<20}  {:>10}  {}  {}  {}",
            record.id,
            state(record),
            calls,
            minute(&record.updated),
            workspace.escape_debug(),
            title(record)
        )
        .map_err(printed())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn people(
    record: &SessionRecord,
    children: &[SessionRecord],
    calls: &[CallRecord],
) -> Result<ExitCode, CommandFailure> {
    let mut out = paint::stdout();
    let mut text = || -> std::io::Result<()> {
        writeln!(out, "{}  {}  {}", record.id, state(record), title(record))?;
        writeln!(out, "  workspace  {}", record.workspace.join(", ").escape_debug())?;
        writeln!(out, "  made       {}", minute(&record.created))?;
        if let Some(parent) = &record.parent {
            match &record.agent {
                Some(agent) => writeln!(out, "  subagent   {agent}, started by {parent}")?,
                None => writeln!(out, "  fork of    {parent}")?,
            }
        }
        writeln!(out, "  calls      {}, {} failed", record.calls, record.failed)?;
        for child in children {
            let agent = child.agent.as_deref().unwrap_or_default();
            writeln!(out, "  started    {}  {}  {agent}", child.id, state(child))?;
        }
        for todo in &record.todos {
            let mark = match todo.status {
                TodoStatus::Pending => " ",
                TodoStatus::InProgress => ">",
                TodoStatus::Completed => "x",
            };
            writeln!(out, "  [{mark}] {}", shortened(&todo.content, 100))?;
        }
        for call in calls {
            let (word, what) = match (call.outcome.as_deref(), call.waiting.is_some()) {
                (Some("succeeded"), _) => (PaintedWord::Good("ok"), String::new()),
                (Some("cancelled"), _) => (PaintedWord::Warn("cancelled"), String::new()),
                (Some(_), _) => {
                    let why = call.result.as_ref().and_then(|result| result.error_text.clone()).unwrap_or_default();
                    (PaintedWord::Bad("failed"), why)
                }
                (None, true) => {
                    (PaintedWord::Warn("waits"), format!("for {}", call.waiting.as_deref().unwrap_or_default()))
                }
                (None, false) => (PaintedWord::Dim("runs"), String::new()),
            };
            let arguments = shortened(&call.arguments.to_string(), 60);
            let took = call.result.as_ref().map(|result| format!("{} ms", result.metadata.duration_ms));
            writeln!(
                out,
                "{}  {word:<9}  {:>9}  {} {arguments}",
                minute(&call.proposed),
                took.unwrap_or_default(),
                shortened(&call.tool, 40)
            )?;
            if !what.is_empty() {
                writeln!(out, "    {}", shortened(&what, 100))?;
            }
        }
        Ok(())
    };
    text().map_err(CommandFailure::print("print the session"))?;
    Ok(ExitCode::SUCCESS)
}

/// To the minute, as it was in UTC.
fn minute(time: &str) -> String {
    time.get(..16).unwrap_or(time).replace('T', " ")
}

fn state(record: &SessionRecord) -> PaintedWord {
    match record.state {
        SessionState::Idle if record.is_open => PaintedWord::Good("open"),
        SessionState::Idle => PaintedWord::Good("idle"),
        SessionState::Busy => PaintedWord::Warn("busy"),
        SessionState::WaitingOnApproval => PaintedWord::Warn("waiting on approval"),
        SessionState::WaitingOnUserInput => PaintedWord::Warn("waiting on an answer"),
        SessionState::Error => PaintedWord::Bad("halted"),
        SessionState::Closed => PaintedWord::Dim("closed"),
        _ => PaintedWord::Dim("unknown"),
    }
}

fn title(record: &SessionRecord) -> String {
    record.title.as_deref().unwrap_or_default().escape_debug().to_string()
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// In one line of at most so many columns, and harmless on a terminal.
fn shortened(text: &str, most: usize) -> String {
    let harmless = |c: char| match c {
        '"' | '\'' | '\\' => c.to_string(),
        c => c.escape_debug().to_string(),
    };
    // No more of it is looked at than there is room for, and one character.
    let all: String = text.chars().take(most + 1).map(harmless).collect();
    if all.width() <= most && text.chars().nth(most).is_none() {
        return all;
    }
    let (mut line, mut width) = (String::new(), 0);
    for c in text.chars() {
        let next = harmless(c);
        // The last column is for the mark.
        if width + next.width() >= most {
            line.push('…');
            break;
        }
        width += next.width();
        line.push_str(&next);
    }
    line
}
