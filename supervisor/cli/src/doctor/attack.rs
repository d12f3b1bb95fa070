//! `callgate doctor --attack`: plants the secret, makes the attempts, and prints what came of them, for people and for
//! programs.

use std::io::{self, Write};
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

use callgate::doctor::attack::{
    self, ActReport, Area, AttackReport, CallReport, Field, HeldBy, Holder, MECHANISMS, Place, Report, STRENGTHS,
    Summary,
};
use callgate::{HostSupport, Supervisor};
use callgate_policy::envelope::Layer;
use callgate_policy::plan::Strength;
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::super::exit::CommandFailure;
use super::super::paint::{self, PaintedWord};
use super::super::supervisor::{forked, supervise};
use super::super::temporary::{Temporary, random};

/// The secret that no sandbox may let through. Callgate reads it nowhere else: it is here to be found, or not.
const SECRET: &str = "CALLGATE_ATTACK_SECRET";
/// Something is open.
const OPEN: u8 = 1;
/// Room for a verdict, in characters.
const CELL: usize = 24;

/// Signals that a person presses or sends to stop this, which must leave nothing behind.
const STOPPED_BY: [SignalKind; 3] = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];

pub(crate) fn attack(under: Option<&str>, json: bool) -> Result<ExitCode, CommandFailure> {
    let token = planted()?;
    if under.is_none() {
        HostSupport::probe()?;
    }
    // Dropped after the field, which is in it.
    let directory = Temporary::make("callgate-attack")?;
    let made = |source| CommandFailure::io(format!("make canaries in {}", directory.path().display()))(source);
    let program = std::env::current_exe().map_err(made)?;
    let mut field = Field::make(directory.path(), &program, &token)?;
    let command = under.map(|line| command(line, &field)).transpose()?;
    // After the descriptors that are left open for it: it must close them.
    let launcher = forked()?;
    let work = async |supervisor: Supervisor| {
        let attempts = async {
            match &command {
                Some(command) => attack::break_out_of(command, &mut field).await,
                None => attack::break_out(&supervisor, &mut field).await,
            }
        };
        tokio::select! {
            report = attempts => Ok(Ok(report?)),
            number = stopped() => Ok(Err(number?)),
        }
    };
    let ended = supervise(launcher, work);
    drop(field);
    drop(directory);
    match ended? {
        Ok(report) => {
            let mut out = paint::stdout();
            let written = if json { writeln!(out, "{:#}", record(&report)) } else { people(&mut out, &report) };
            written.map_err(CommandFailure::print("print what was found"))?;
            Ok(if report.open() == 0 { ExitCode::SUCCESS } else { ExitCode::from(OPEN) })
        }
        Err(signal) => Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(130))),
    }
}

/// The secret in this process's environment. What a launcher passes on is what it was started with, so that it takes a
/// start to plant one.
fn planted() -> Result<String, CommandFailure> {
    #[allow(clippy::disallowed_methods, reason = "whether this process was started with the secret that it looks for")]
    let there =
        std::env::var_os(SECRET).and_then(|secret| secret.into_string().ok()).filter(|secret| secret.len() >= 16);
    if let Some(secret) = there {
        return Ok(secret);
    }
    let secret = random()?;
    let error =
        std::process::Command::new("/proc/self/exe").args(std::env::args_os().skip(1)).env(SECRET, secret).exec();
    Err(CommandFailure::Io { what: "start again with a secret in the environment".to_owned(), source: error })
}

/// The words of a command line, with the workspace and the host to be granted in them.
fn command(line: &str, field: &Field) -> Result<Vec<String>, CommandFailure> {
    let words = shlex::split(line)
        .filter(|words| !words.is_empty())
        .ok_or_else(|| CommandFailure::Usage(format!("--under '{line}': give a command, with its quotes closed")))?;
    let workspace = field.workspace().display().to_string();
    Ok(words.into_iter().map(|word| word.replace("{dir}", &workspace).replace("{host}", &field.host())).collect())
}

/// Waits for a signal that ends this.
async fn stopped() -> Result<i32, CommandFailure> {
    let mut signals = Vec::new();
    for kind in STOPPED_BY {
        signals.push((kind.as_raw_value(), signal(kind).map_err(CommandFailure::runtime)?));
    }
    Ok(std::future::poll_fn(|context| {
        let ready =
            signals.iter_mut().find_map(|(number, signal)| signal.poll_recv(context).is_ready().then_some(*number));
        ready.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
    })
    .await)
}

fn record(report: &Report) -> Value {
    let attacks = report.attacks.iter().map(|attack| attack_record(report, attack)).collect::<Vec<_>>();
    let mut record = json!({ "version": env!("CARGO_PKG_VERSION"), "open": report.open(), "attacks": attacks });
    let hostless = report.hostless.iter().map(|each| (each.place.to_string(), json!(each.why)));
    record["without_a_host"] = hostless.collect::<Map<_, _>>().into();
    match &report.under {
        Some(command) => record["under"] = json!(command),
        None => {
            let why = |strength| report.missing.iter().find(|each| each.strength == strength).map(|each| &each.why);
            let there = |strength| why(strength).map_or(json!(true), |why| json!(why));
            record["strengths"] = json!({
                "landlock": there(Strength::Landlock),
                "namespaces": there(Strength::Namespaces),
            });
            record["calls"] = report.calls.iter().map(call_record).collect();
        }
    }
    record
}

fn attack_record(report: &Report, attack: &AttackReport) -> Value {
    let verdicts: Map<String, Value> =
        report.places().into_iter().map(|place| (place.to_string(), json!(attack.summary(place).word()))).collect();
    let mut record = json!({
        "id": attack.id,
        "part": attack.area,
        "attempt": attack.attempt,
        "counts": attack.counts(),
        "verdicts": verdicts,
        "acts": attack.acts.iter().map(act_record).collect::<Vec<_>>(),
    });
    if report.under.is_none() {
        record["held_by"] = match attack.held_by() {
            HeldBy::Any(sets) => json!(sets),
            HeldBy::Start => json!([["session start"]]),
            HeldBy::Unknown => json!([]),
        };
    }
    record
}

fn act_record(act: &ActReport) -> Value {
    let mut record = json!({ "act": act.act });
    if let Some(why) = &act.not_tested {
        record["not_tested"] = json!(why);
    }
    let seen: Map<String, Value> = act
        .seen
        .iter()
        .map(|seen| {
            let mut one = json!({ "verdict": seen.verdict.word(), "why": seen.verdict.why() });
            if let Some(at) = &seen.at {
                one["at"] = json!(at);
            }
            (seen.place.to_string(), one)
        })
        .collect();
    record["seen"] = Value::Object(seen);
    record
}

fn call_record(call: &CallReport) -> Value {
    let results: Map<String, Value> =
        call.results.iter().map(|(strength, stopped)| (key(*strength).to_owned(), json!(stopped))).collect();
    json!({
        "id": call.id,
        "attempt": call.attempt,
        "layer": call.layer,
        "not_tested": call.not_tested,
        "open": call.is_open(),
        "results": results,
    })
}

fn people(out: &mut impl Write, report: &Report) -> io::Result<()> {
    match &report.under {
        Some(command) => writeln!(out, "Attempts to break out of: {}", command.join(" "))?,
        None => writeln!(out, "Attempts to break out of callgate's own sandbox")?,
    }
    people_calls(out, &report.calls)?;
    let width = report.attacks.iter().map(|attack| attack.attempt.chars().count()).max().unwrap_or(0);
    if report.under.is_none() {
        let (one, two) = ("no namespaces", "namespaces");
        writeln!(out, "\n       {:<width$}  {one:<CELL$}  {two:<CELL$}  held by", "")?;
    }
    for area in Area::ALL {
        let mut attacks = report.attacks.iter().filter(|attack| attack.area == area).peekable();
        if attacks.peek().is_none() {
            continue;
        }
        writeln!(out, "\n{}", title(area))?;
        for attack in attacks {
            people_attack(out, report, attack, width)?;
        }
    }
    people_end(out, report)
}

fn people_calls(out: &mut impl Write, calls: &[CallReport]) -> io::Result<()> {
    if calls.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nCalls that layers 1 and 2 judge before anything starts")?;
    let width = calls.iter().map(|call| call.attempt.chars().count()).max().unwrap_or(0);
    for call in calls {
        write!(out, "  {:<4} {:<width$}  ", call.id, call.attempt)?;
        if let Some(why) = &call.not_tested {
            writeln!(out, "{}: {why}", PaintedWord::Dim("not tested"))?;
            continue;
        }
        if call.is_open() {
            writeln!(out, "{}", PaintedWord::Bad("OPEN"))?;
            continue;
        }
        let alone = call.results.iter().all(|(_, stopped)| stopped.by_the_sandbox_alone);
        let sandbox = if alone { "; with that off, the sandbox alone" } else { "; with that off, NOTHING" };
        writeln!(out, "{}  {}{sandbox}", PaintedWord::Good("held"), layer_name(call.layer))?;
    }
    Ok(())
}

fn people_attack(out: &mut impl Write, report: &Report, attack: &AttackReport, width: usize) -> io::Result<()> {
    write!(out, "  {:<4} {:<width$}", attack.id, attack.attempt)?;
    let mut below = Vec::new();
    let places = report.places();
    for place in &places {
        let summary = attack.summary(*place);
        let (word, length, detail) = match &summary {
            Summary::Held(answers) => {
                (PaintedWord::Good("held"), 4, answers.iter().cloned().collect::<Vec<_>>().join(" "))
            }
            Summary::Open(_) if !attack.counts() => (PaintedWord::Warn("shows"), 5, String::new()),
            Summary::Open(open) => (PaintedWord::Bad("OPEN"), 4, format!("{} of {}", open.len(), attack.acts.len())),
            Summary::NotTested => (PaintedWord::Dim("not tested"), 10, String::new()),
            Summary::Absent => (PaintedWord::Dim("-"), 1, String::new()),
        };
        write!(out, "  {word} {detail:<room$}", room = CELL - 1 - length)?;
        match summary {
            Summary::Open(open) if attack.counts() => {
                below.extend(open.into_iter().map(|open| format!("{}: {}", open.act, open.how)));
            }
            Summary::Open(_) | Summary::Held(_) | Summary::NotTested | Summary::Absent => {}
        }
    }
    below.extend(attack.untested(&places).into_iter().map(|why| format!("not tested: {why}")));
    let by = match (&report.under, attack.held_by()) {
        (None, HeldBy::Any(sets)) => {
            let set = |set: &std::collections::BTreeSet<Holder>| {
                set.iter().map(Holder::to_string).collect::<Vec<_>>().join(" + ")
            };
            sets.iter().map(set).collect::<Vec<_>>().join(", ")
        }
        (None, HeldBy::Start) => "session start".to_owned(),
        (None, HeldBy::Unknown) | (Some(_), _) => String::new(),
    };
    writeln!(out, "  {by}")?;
    below.iter().try_for_each(|more| writeln!(out, "         {more}"))
}

fn people_end(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let rest = match report.untested() {
        0 => String::new(),
        untested => format!(", {untested} not tested"),
    };
    writeln!(out, "\n{} attacks held, {} attempts open{rest}.", report.held(), report.open())?;
    for missing in &report.missing {
        let how = match missing.strength {
            Strength::Landlock => "without namespaces",
            Strength::Namespaces => "with namespaces",
        };
        writeln!(out, "Not tried {how}: {}", missing.why)?;
    }
    for each in &report.hostless {
        let how = match each.place {
            Place::Whole(Strength::Landlock) => "without namespaces",
            Place::Whole(Strength::Namespaces) => "with namespaces",
            Place::Under => "under this command, in which {host} stands for the host to grant",
            Place::Nothing | Place::Alone(_) | Place::Without(..) => continue,
        };
        writeln!(out, "Not tried with a host granted, {how}: {}", each.why)?;
    }
    if report.under.is_some() {
        return Ok(());
    }
    for mechanism in MECHANISMS {
        let [landlock, namespaces] = STRENGTHS.map(|strength| report.open_without(strength, mechanism));
        let name = Holder::Kernel(mechanism);
        writeln!(out, "Without {name} {landlock} of them would be open, with namespaces {namespaces}.")?;
    }
    writeln!(
        out,
        "held by `a, b`: each of them alone; `a + b`: between them; `session start`: what no session can be \
         opened without\n(its user, no terminal, three descriptors, an environment of its own)."
    )
}

fn title(area: Area) -> &'static str {
    match area {
        Area::Files => "Files outside the workspace",
        Area::Network => "Servers outside",
        Area::Host => "Servers outside, where one of them is granted",
        Area::Processes => "Other processes",
        Area::Leaks => "What the launcher left behind",
        Area::Ipc => "IPC objects of others",
        Area::Kernel => "Kernel surface: reaches nobody yet, and is where kernels broke",
        Area::Visible => "What shows without being opened (not counted: it takes namespaces to close)",
    }
}

fn key(strength: Strength) -> &'static str {
    match strength {
        Strength::Landlock => "landlock",
        Strength::Namespaces => "namespaces",
    }
}

fn layer_name(layer: Layer) -> &'static str {
    match layer {
        Layer::Capability => "capability check",
        Layer::Watchdog => "watchdog",
        Layer::Schema => "schema",
        Layer::Sandbox => "sandbox",
        Layer::Host => "host",
        Layer::Rule => "rules",
        Layer::Person => "person",
        Layer::Limit => "limit",
        _ => "another layer",
    }
}
