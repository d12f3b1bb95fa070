//! What was found, for people and for programs.

use std::collections::BTreeSet;
use std::io::{self, Write};

use callgate_policy::envelope::Layer;
use callgate_policy::plan::Mechanism;
use serde_json::{Value, json};

use super::super::super::exit::Failure;
use super::super::super::paint::{self, Word};
use super::layers::Call;
use super::subject::Answer;
use super::table::{self, Attack};
use super::{Control, MECHANISMS, Part, Place, STRENGTHS, Seen, Tried};
use crate::session::StrengthChoice;

/// All attempts, and what came of them.
pub(super) struct Report {
    /// The command that they were made under; `None` for callgate.
    under: Option<Vec<String>>,
    lines: Vec<Line>,
    calls: Vec<Call>,
    /// Strengths that this host does not have, and why.
    missing: Vec<(StrengthChoice, String)>,
}

/// All acts of one attack.
struct Line {
    attack: &'static Attack,
    acts: Vec<Act>,
}

/// One act's verdicts.
struct Act {
    words: String,
    /// Why it tells nothing here.
    untested: Option<String>,
    seen: Vec<(Place, Seen, Verdict)>,
}

/// What one attempt came to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Held(String),
    Open(String),
    NotTested(String),
}

impl Verdict {
    fn of(seen: &Seen, through: bool) -> Self {
        if through {
            let how = if seen.changes.is_empty() { "succeeded".to_owned() } else { seen.changes.join(", ") };
            return Self::Open(how);
        }
        match &seen.answer {
            Answer::Done(_) => Self::Held("nothing reached".to_owned()),
            Answer::Errno { name, .. } => Self::Held(name.clone()),
            Answer::Signal(number) => Self::Held(format!("signal {number}")),
            Answer::NotTried(why) => Self::NotTested(why.clone()),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Held(_) => "held",
            Self::Open(_) => "open",
            Self::NotTested(_) => "not tested",
        }
    }

    fn why(&self) -> &str {
        match self {
            Self::Held(why) | Self::Open(why) | Self::NotTested(why) => why,
        }
    }
}

impl Act {
    fn at(&self, place: Place) -> Option<&Verdict> {
        self.seen.iter().find(|(each, ..)| *each == place).map(|(.., verdict)| verdict)
    }

    fn held_at(&self, place: Place) -> bool {
        matches!(self.at(place), Some(Verdict::Held(_)))
    }

    /// What holds it alone; `None` if what every session starts with does: nothing that was switched off mattered.
    fn held_alone_by(&self) -> Option<BTreeSet<Part>> {
        if self.held_at(Place::Nothing) {
            return None;
        }
        let parts = MECHANISMS.into_iter().map(Part::Kernel).chain([Part::Namespaces]);
        Some(parts.filter(|part| self.held_at(Place::Alone(*part))).collect())
    }
}

/// What is told of a whole line in one place.
enum Cell {
    Held(BTreeSet<String>),
    Open(Vec<(String, String)>),
    NotTested,
    Absent,
}

/// Which mechanisms hold a line.
enum HeldBy {
    /// Each of these sets, alone: a set of several holds all of it only between them.
    Any(Vec<BTreeSet<Part>>),
    /// What every session starts with: its user, a session without a terminal, three descriptors, an environment of its own.
    Start,
    Unknown,
}

impl Line {
    fn cell(&self, place: Place) -> Cell {
        let (mut answers, mut open, mut untested) = (BTreeSet::new(), Vec::new(), false);
        for act in &self.acts {
            match (&act.untested, act.at(place)) {
                (Some(_), _) | (None, Some(Verdict::NotTested(_))) => untested = true,
                (None, Some(Verdict::Held(answer))) => drop(answers.insert(answer.clone())),
                (None, Some(Verdict::Open(how))) => open.push((act.words.clone(), how.clone())),
                (None, None) => return if open.is_empty() { Cell::Absent } else { Cell::Open(open) },
            }
        }
        match untested {
            _ if !open.is_empty() => Cell::Open(open),
            true if answers.is_empty() => Cell::NotTested,
            _ => Cell::Held(answers),
        }
    }

    /// Acts that told nothing, and why.
    fn untested(&self, places: &[Place]) -> BTreeSet<String> {
        let why = |act: &Act| {
            let inside = places.iter().find_map(|place| match act.at(*place) {
                Some(Verdict::NotTested(why)) => Some(why.clone()),
                Some(Verdict::Held(_) | Verdict::Open(_)) | None => None,
            });
            act.untested.clone().or(inside).map(|why| format!("not tested: {}: {why}", act.words))
        };
        self.acts.iter().filter_map(why).collect()
    }

    fn held_by(&self) -> HeldBy {
        let tested = || self.acts.iter().filter(|act| act.untested.is_none() && !act.seen.is_empty());
        let alone: Vec<_> = tested().filter_map(Act::held_alone_by).collect();
        if tested().next().is_none() {
            return HeldBy::Unknown;
        }
        let Some(first) = alone.first() else { return HeldBy::Start };
        let every = alone.iter().fold(first.clone(), |all, each| all.intersection(each).copied().collect());
        let mut holders: Vec<BTreeSet<Part>> = every.iter().map(|part| BTreeSet::from([*part])).collect();
        // Where there are no namespaces.
        let without: Vec<BTreeSet<Part>> = alone
            .iter()
            .map(|parts| parts.iter().copied().filter(|part| *part != Part::Namespaces).collect())
            .collect();
        if every.iter().all(|part| *part == Part::Namespaces) && without.iter().all(|parts| !parts.is_empty()) {
            // Of what holds some of it, only what the rest needs.
            let needed = without.iter().filter(|parts| parts.len() == 1).flatten().copied().collect::<BTreeSet<_>>();
            let enough = without.iter().all(|parts| !parts.is_disjoint(&needed));
            holders.push(if enough { needed } else { without.iter().flatten().copied().collect() });
        }
        if holders.is_empty() { HeldBy::Unknown } else { HeldBy::Any(holders) }
    }

    fn counts(&self) -> bool {
        self.attack.part != table::Part::Visible
    }
}

impl Report {
    pub(super) fn under(command: &[String], tried: Vec<Tried>, token: &str) -> Self {
        Self { under: Some(command.to_vec()), lines: lines(tried, token), calls: Vec::new(), missing: Vec::new() }
    }

    pub(super) fn own(
        tried: Vec<Tried>,
        calls: Vec<Call>,
        missing: Vec<(StrengthChoice, String)>,
        token: &str,
    ) -> Self {
        Self { under: None, lines: lines(tried, token), calls, missing }
    }

    /// The places whose verdicts count.
    fn places(&self) -> Vec<Place> {
        match &self.under {
            Some(_) => vec![Place::Under],
            None => STRENGTHS.into_iter().map(Place::Whole).collect(),
        }
    }

    /// How many attempts got through, in places where none may.
    pub(super) fn open(&self) -> usize {
        let places = self.places();
        let acts = self.lines.iter().filter(|line| line.counts()).flat_map(|line| &line.acts);
        let through = |act: &&Act| places.iter().any(|place| matches!(act.at(*place), Some(Verdict::Open(_))));
        acts.filter(through).count() + self.calls.iter().filter(|call| call_is_open(call)).count()
    }

    fn count(&self, wanted: fn(&Cell) -> bool) -> usize {
        let places = self.places();
        let lines = self.lines.iter().filter(|line| line.counts());
        lines.filter(|line| places.iter().any(|place| wanted(&line.cell(*place)))).count()
    }

    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        let mut out = paint::stdout();
        let written = if json { writeln!(out, "{:#}", self.record()) } else { self.people(&mut out) };
        written.map_err(Failure::print("print what was found"))
    }

    fn record(&self) -> Value {
        let strength_missing = |strength| self.missing.iter().find(|(each, _)| *each == strength).map(|(_, why)| why);
        let mut record = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "open": self.open(),
            "attacks": self.lines.iter().map(|line| self.line_record(line)).collect::<Vec<_>>(),
        });
        match &self.under {
            Some(command) => record["under"] = json!(command),
            None => {
                record["strengths"] = json!({
                    "landlock": strength_missing(StrengthChoice::Landlock).map_or(json!(true), |why| json!(why)),
                    "namespaces": strength_missing(StrengthChoice::Namespaces).map_or(json!(true), |why| json!(why)),
                });
                record["calls"] = self.calls.iter().map(call_record).collect();
            }
        }
        record
    }

    fn line_record(&self, line: &Line) -> Value {
        let verdicts: serde_json::Map<String, Value> =
            self.places().into_iter().map(|place| (name(place), json!(cell_word(&line.cell(place))))).collect();
        let mut record = json!({
            "id": line.attack.id,
            "part": line.attack.part,
            "attempt": line.attack.what,
            "counts": line.counts(),
            "verdicts": verdicts,
            "acts": line.acts.iter().map(act_record).collect::<Vec<_>>(),
        });
        if self.under.is_none() {
            record["held_by"] = match line.held_by() {
                HeldBy::Any(sets) => sets
                    .into_iter()
                    .map(|set| set.into_iter().map(part_name).collect::<Vec<_>>())
                    .map(Value::from)
                    .collect(),
                HeldBy::Start => json!([["session start"]]),
                HeldBy::Unknown => json!([]),
            };
        }
        record
    }

    fn people(&self, out: &mut impl Write) -> io::Result<()> {
        match &self.under {
            Some(command) => writeln!(out, "Attempts to break out of: {}", command.join(" "))?,
            None => writeln!(out, "Attempts to break out of callgate's own sandbox")?,
        }
        self.people_calls(out)?;
        let width = self.lines.iter().map(|line| line.attack.what.chars().count()).max().unwrap_or(0);
        if self.under.is_none() {
            let (one, two) = ("no namespaces", "namespaces");
            writeln!(out, "\n       {:<width$}  {one:<CELL$}  {two:<CELL$}  held by", "")?;
        }
        for part in table::Part::ALL {
            let mut lines = self.lines.iter().filter(|line| line.attack.part == part).peekable();
            if lines.peek().is_none() {
                continue;
            }
            writeln!(out, "\n{}", part.title())?;
            for line in lines {
                self.people_line(out, line, width)?;
            }
        }
        self.people_end(out)
    }

    fn people_calls(&self, out: &mut impl Write) -> io::Result<()> {
        if self.calls.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nCalls that layers 1 and 2 judge before anything starts")?;
        let width = self.calls.iter().map(|call| call.what.chars().count()).max().unwrap_or(0);
        for call in &self.calls {
            write!(out, "  {:<4} {:<width$}  ", call.id, call.what)?;
            if let Some(why) = &call.untested {
                writeln!(out, "{}: {why}", Word::Dim("not tested"))?;
                continue;
            }
            if call_is_open(call) {
                writeln!(out, "{}", Word::Bad("OPEN"))?;
                continue;
            }
            let alone = call.results.iter().all(|(_, stopped)| stopped.by_the_sandbox_alone);
            let sandbox = if alone { "; with that off, the sandbox alone" } else { "; with that off, NOTHING" };
            writeln!(out, "{}  {}{sandbox}", Word::Good("held"), layer_name(call.layer))?;
        }
        Ok(())
    }

    fn people_line(&self, out: &mut impl Write, line: &Line, width: usize) -> io::Result<()> {
        write!(out, "  {:<4} {:<width$}", line.attack.id, line.attack.what)?;
        let mut below = Vec::new();
        for place in self.places() {
            let cell = line.cell(place);
            let (word, length, detail) = match &cell {
                Cell::Held(answers) => (Word::Good("held"), 4, answers.iter().cloned().collect::<Vec<_>>().join(" ")),
                Cell::Open(_) if !line.counts() => (Word::Warn("shows"), 5, String::new()),
                Cell::Open(open) => (Word::Bad("OPEN"), 4, format!("{} of {}", open.len(), line.acts.len())),
                Cell::NotTested => (Word::Dim("not tested"), 10, String::new()),
                Cell::Absent => (Word::Dim("-"), 1, String::new()),
            };
            write!(out, "  {word} {detail:<room$}", room = CELL - 1 - length)?;
            match cell {
                Cell::Open(open) if line.counts() => {
                    below.extend(open.into_iter().map(|(words, how)| format!("{words}: {how}")));
                }
                Cell::Open(_) | Cell::Held(_) | Cell::NotTested | Cell::Absent => {}
            }
        }
        below.extend(line.untested(&self.places()));
        let mut by = String::new();
        if self.under.is_none() {
            match line.held_by() {
                HeldBy::Any(sets) => {
                    by = sets.into_iter().map(|set| join(set, " + ")).collect::<Vec<_>>().join(", ");
                }
                HeldBy::Start => by.push_str("session start"),
                HeldBy::Unknown => {}
            }
        }
        writeln!(out, "  {by}")?;
        for more in below {
            writeln!(out, "         {more}")?;
        }
        Ok(())
    }

    fn people_end(&self, out: &mut impl Write) -> io::Result<()> {
        let held = self.count(|cell| matches!(cell, Cell::Held(_)));
        let untested = self.count(|cell| matches!(cell, Cell::NotTested));
        let open = self.open();
        let rest = match untested {
            0 => String::new(),
            _ => format!(", {untested} not tested"),
        };
        writeln!(out, "\n{held} attacks held, {open} attempts open{rest}.")?;
        for (strength, why) in &self.missing {
            writeln!(out, "Not tried {}: {why}", strength_name(*strength))?;
        }
        if self.under.is_none() {
            for mechanism in MECHANISMS {
                let opens = |strength| {
                    let open = |line: &&Line| matches!(line.cell(Place::Without(strength, mechanism)), Cell::Open(_));
                    self.lines.iter().filter(|line| line.counts()).filter(open).count()
                };
                let [landlock, namespaces] = STRENGTHS.map(opens);
                let name = part_name(Part::Kernel(mechanism));
                writeln!(out, "Without {name} {landlock} of them would be open, with namespaces {namespaces}.")?;
            }
            writeln!(
                out,
                "held by `a, b`: each of them alone; `a + b`: between them; `session start`: what no session can be \
                 opened without\n(its user, no terminal, three descriptors, an environment of its own)."
            )?;
        }
        Ok(())
    }
}

/// Room for a verdict, in characters.
const CELL: usize = 24;

fn lines(tried: Vec<Tried>, token: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for Tried { attack, act, control, seen } in tried {
        let untested = match control {
            Control::Succeeded => None,
            Control::Failed(why) => Some(why),
        };
        let judged = seen.into_iter().map(|(place, seen)| {
            let verdict = Verdict::of(&seen, seen.got_through(act, token));
            (place, seen, verdict)
        });
        let act = Act { words: act.words.join(" "), untested, seen: judged.collect() };
        match lines.last_mut().filter(|line| std::ptr::eq(line.attack, attack)) {
            Some(line) => line.acts.push(act),
            None => lines.push(Line { attack, acts: vec![act] }),
        }
    }
    lines
}

fn act_record(act: &Act) -> Value {
    let mut record = json!({ "act": act.words });
    if let Some(why) = &act.untested {
        record["not_tested"] = json!(why);
    }
    let seen: serde_json::Map<String, Value> = act
        .seen
        .iter()
        .map(|(place, seen, verdict)| {
            let mut one = json!({ "verdict": verdict.word(), "why": verdict.why() });
            if let Answer::Errno { at, .. } = &seen.answer {
                one["at"] = json!(at);
            }
            (name(*place), one)
        })
        .collect();
    record["seen"] = Value::Object(seen);
    record
}

fn call_record(call: &Call) -> Value {
    let results: serde_json::Map<String, Value> =
        call.results.iter().map(|(strength, stopped)| (strength_key(*strength).to_owned(), json!(stopped))).collect();
    json!({
        "id": call.id,
        "attempt": call.what,
        "layer": call.layer,
        "not_tested": call.untested,
        "open": call_is_open(call),
        "results": results,
    })
}

/// It reached something, or another layer had to stop it.
fn call_is_open(call: &Call) -> bool {
    call.results.iter().any(|(_, stopped)| stopped.by != Some(call.layer) || !stopped.by_the_sandbox_alone)
}

fn cell_word(cell: &Cell) -> &'static str {
    match cell {
        Cell::Held(_) => "held",
        Cell::Open(_) => "open",
        Cell::NotTested => "not tested",
        Cell::Absent => "absent",
    }
}

fn name(place: Place) -> String {
    match place {
        Place::Whole(strength) => strength_key(strength).to_owned(),
        Place::Under => "under".to_owned(),
        Place::Nothing => "nothing".to_owned(),
        Place::Alone(part) => format!("only {}", part_name(part)),
        Place::Without(strength, mechanism) => {
            format!("{} without {}", strength_key(strength), part_name(Part::Kernel(mechanism)))
        }
    }
}

fn strength_key(strength: StrengthChoice) -> &'static str {
    match strength {
        StrengthChoice::Landlock => "landlock",
        StrengthChoice::Namespaces | StrengthChoice::Best => "namespaces",
    }
}

fn strength_name(strength: StrengthChoice) -> &'static str {
    match strength {
        StrengthChoice::Landlock => "without namespaces",
        StrengthChoice::Namespaces | StrengthChoice::Best => "with namespaces",
    }
}

fn part_name(part: Part) -> &'static str {
    match part {
        Part::Namespaces => "namespaces",
        Part::Kernel(Mechanism::Landlock) => "landlock",
        Part::Kernel(Mechanism::Seccomp) => "seccomp",
        Part::Kernel(Mechanism::Capabilities) => "capabilities",
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
    }
}

fn join(parts: BTreeSet<Part>, by: &str) -> String {
    parts.into_iter().map(part_name).collect::<Vec<_>>().join(by)
}
