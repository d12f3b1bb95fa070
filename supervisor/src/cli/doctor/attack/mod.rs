//! `callgate doctor --attack`: tries to break out, and tells what held, and which mechanism holds it alone.
//!
//! Invariant: "held" is said only of an act that succeeds outside, in this very run, and left no canary changed.

mod field;
mod layers;
mod report;
mod subject;
mod table;

use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;
use std::time::Duration;

use callgate_policy::plan::Mechanism;
use tokio::signal::unix::{SignalKind, signal};

use self::field::{Changes, Field};
use self::report::Report;
use self::subject::{Answer, Subject};
use self::table::{Act, Attack, Proof, attacks};
use super::super::exit::Failure;
use super::super::{forked, supervise};
use crate::host::HostSupport;
use crate::session::StrengthChoice;
use crate::supervisor::Supervisor;

/// The secret that no sandbox may let through. Callgate reads it nowhere else: it is here to be found, or not.
const SECRET: &str = "CALLGATE_ATTACK_SECRET";
/// Something is open.
const OPEN: u8 = 1;

/// How long a datagram that was sent may be on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

/// What a person presses or sends to stop this, which must leave nothing behind.
const STOPPED_BY: [SignalKind; 3] = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];

pub(crate) fn attack(under: Option<&str>, json: bool) -> Result<ExitCode, Failure> {
    let token = planted()?;
    if under.is_none() {
        HostSupport::probe()?;
    }
    let mut field = Field::make(&token)?;
    let command = under.map(|line| subject::command(line, &field.workspace())).transpose()?;
    // After the descriptors that are left open for it: it must close them.
    let launcher = forked()?;
    let work = async |supervisor: Supervisor| {
        let attempts = async {
            match &command {
                Some(command) => under_another(&mut field, command).await,
                None => under_callgate(&supervisor, &mut field).await,
            }
        };
        tokio::select! {
            report = attempts => report.map(Ok),
            number = stopped() => Ok(Err(number?)),
        }
    };
    let ended = supervise(launcher, work);
    drop(field);
    match ended? {
        Ok(report) => {
            report.print(json)?;
            Ok(if report.open() == 0 { ExitCode::SUCCESS } else { ExitCode::from(OPEN) })
        }
        Err(signal) => Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(130))),
    }
}

/// The secret in this process's environment. What a launcher passes on is what it was started with, so that it takes a
/// start to plant one.
fn planted() -> Result<String, Failure> {
    #[allow(clippy::disallowed_methods, reason = "whether this process was started with the secret that it looks for")]
    let there =
        std::env::var_os(SECRET).and_then(|secret| secret.into_string().ok()).filter(|secret| secret.len() >= 16);
    if let Some(secret) = there {
        return Ok(secret);
    }
    let secret = crate::host::random().map_err(Failure::io("get random bytes"))?;
    let error =
        std::process::Command::new("/proc/self/exe").args(std::env::args_os().skip(1)).env(SECRET, secret).exec();
    Err(Failure::Io { what: "start again with a secret in the environment".to_owned(), source: error })
}

/// Waits for a signal that ends this.
async fn stopped() -> Result<i32, Failure> {
    let mut signals = Vec::new();
    for kind in STOPPED_BY {
        signals.push((kind.as_raw_value(), signal(kind).map_err(Failure::runtime)?));
    }
    Ok(std::future::poll_fn(|context| {
        let ready =
            signals.iter_mut().find_map(|(number, signal)| signal.poll_recv(context).is_ready().then_some(*number));
        ready.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
    })
    .await)
}

/// What came of one act in one place.
#[derive(Debug, Clone)]
struct Seen {
    answer: Answer,
    changes: Changes,
}

impl Seen {
    /// It reached what it was aimed at.
    fn got_through(&self, act: &Act, token: &str) -> bool {
        let proven = match (&self.answer, act.proof) {
            (Answer::Done(_), Proof::Success) => true,
            (Answer::Done(seen), Proof::Token) => seen.to_string().contains(token),
            (Answer::Done(_), Proof::Canary) => false,
            (Answer::Errno { .. } | Answer::Signal(_) | Answer::NotTried(_), _) => false,
        };
        proven || !self.changes.is_empty()
    }
}

/// Makes one attempt, looks at the canaries, and puts them back.
async fn make(subject: &Subject, field: &mut Field, act: &Act) -> Result<Seen, Failure> {
    let answer = subject.attempt(field, act).await?;
    let mut changes = field.changes();
    if act.proof == Proof::Canary && changes.is_empty() && matches!(answer, Answer::Done(_)) {
        tokio::time::sleep(ON_ITS_WAY).await;
        changes = field.changes();
    }
    let seen = Seen { answer, changes };
    let mended = if seen.got_through(act, field.token()) {
        // What it did to the process may show only after a while, and would be taken for the next attempt's doing.
        field.mend(act.words.contains(&"{pid}"))
    } else {
        field.tidy_workspace()
    };
    mended.map_err(Failure::io("put the canaries back"))?;
    Ok(seen)
}

/// One act, and what came of it wherever it was made.
struct Tried {
    attack: &'static Attack,
    act: &'static Act,
    /// Outside, where it must succeed.
    control: Control,
    /// By the name of the place.
    seen: Vec<(Place, Seen)>,
}

/// What came of an act outside.
enum Control {
    Succeeded,
    /// Why nothing can be told by it here.
    Failed(String),
}

/// Where an act was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A session of this strength, as everybody has it.
    Whole(StrengthChoice),
    /// Under a given command.
    Under,
    /// A session with nothing but what every session starts with.
    Nothing,
    /// With one mechanism and no other.
    Alone(Part),
    /// Without one mechanism.
    Without(StrengthChoice, Mechanism),
}

/// A part of the third layer that may hold something alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Namespaces,
    Kernel(Mechanism),
}

const MECHANISMS: [Mechanism; 3] = [Mechanism::Landlock, Mechanism::Seccomp, Mechanism::Capabilities];
const STRENGTHS: [StrengthChoice; 2] = [StrengthChoice::Landlock, StrengthChoice::Namespaces];

impl Place {
    /// The strength that a session there has, and what it lacks.
    fn session(self) -> Option<(StrengthChoice, Vec<Mechanism>)> {
        let all_but = |kept: Option<Mechanism>| MECHANISMS.into_iter().filter(|each| Some(*each) != kept).collect();
        match self {
            Self::Whole(_) | Self::Under => None,
            Self::Nothing => Some((StrengthChoice::Landlock, all_but(None))),
            Self::Alone(Part::Namespaces) => Some((StrengthChoice::Namespaces, all_but(None))),
            Self::Alone(Part::Kernel(kept)) => Some((StrengthChoice::Landlock, all_but(Some(kept)))),
            Self::Without(strength, lacking) => Some((strength, vec![lacking])),
        }
    }

    fn ablated() -> impl Iterator<Item = Self> {
        let alone = MECHANISMS.into_iter().map(Part::Kernel).chain([Part::Namespaces]).map(Self::Alone);
        let without = STRENGTHS
            .into_iter()
            .flat_map(|strength| MECHANISMS.into_iter().map(move |lacking| Self::Without(strength, lacking)));
        [Self::Nothing].into_iter().chain(alone).chain(without)
    }
}

/// Every act outside.
async fn controls(field: &mut Field) -> Result<Vec<Tried>, Failure> {
    if let Some(reason) = unusable(&Subject::Bare, field).await? {
        // As where programs may not be started from temporary directories.
        return Err(Failure::Untried { what: "no sandbox at all".to_owned(), reason });
    }
    let mut all = Vec::new();
    for attack in attacks() {
        for act in attack.acts {
            let seen = make(&Subject::Bare, field, act).await?;
            let control = if seen.got_through(act, field.token()) {
                Control::Succeeded
            } else {
                Control::Failed(match seen.answer {
                    Answer::Done(_) => "outside it saw nothing of ours either".to_owned(),
                    Answer::Errno { name, at } => format!("outside too: {at} {name}"),
                    Answer::Signal(number) => format!("outside too: signal {number}"),
                    Answer::NotTried(why) => why,
                })
            };
            all.push(Tried { attack, act, control, seen: Vec::new() });
        }
    }
    Ok(all)
}

/// Every act whose control succeeded, in one place.
async fn make_all(subject: &Subject, place: Place, field: &mut Field, tried: &mut [Tried]) -> Result<(), Failure> {
    for each in tried.iter_mut().filter(|each| matches!(each.control, Control::Succeeded)) {
        let seen = make(subject, field, each.act).await?;
        each.seen.push((place, seen));
    }
    Ok(())
}

/// What the sandbox must let through, for what it stops to mean something.
const GRANTED: &[Act] = &[
    Act { words: &["read", "{ws}/notes.txt"], proof: Proof::Success, terminal: false },
    Act { words: &["create", "{ws}/taken", "x"], proof: Proof::Success, terminal: false },
];

/// Why acts in this place would tell nothing, if they would not.
async fn unusable(subject: &Subject, field: &mut Field) -> Result<Option<String>, Failure> {
    for act in GRANTED {
        let seen = make(subject, field, act).await?;
        let refused = match seen.answer {
            Answer::Done(_) => continue,
            Answer::Errno { name, at } => format!("{at} {name}"),
            Answer::Signal(number) => format!("signal {number}"),
            Answer::NotTried(why) => why,
        };
        return Ok(Some(format!("{} in the workspace, which is granted, fails: {refused}", act.words[0])));
    }
    Ok(None)
}

async fn under_another(field: &mut Field, command: &[String]) -> Result<Report, Failure> {
    let mut tried = controls(field).await?;
    let subject = Subject::Under(command.to_vec());
    if let Some(reason) = unusable(&subject, field).await? {
        return Err(Failure::Untried { what: command.join(" "), reason });
    }
    make_all(&subject, Place::Under, field, &mut tried).await?;
    Ok(Report::under(command, tried, field.token()))
}

async fn under_callgate(supervisor: &Supervisor, field: &mut Field) -> Result<Report, Failure> {
    let mut tried = controls(field).await?;
    let mut calls = layers::controls(field).await?;
    let mut missing = Vec::new();
    for strength in STRENGTHS {
        let subject = match Subject::session(supervisor, field, strength).await {
            Ok(subject) => subject,
            Err(error) => {
                missing.push((strength, Failure::from(error)));
                continue;
            }
        };
        if let Some(reason) = unusable(&subject, field).await? {
            return Err(Failure::Untried { what: "a session".to_owned(), reason });
        }
        make_all(&subject, Place::Whole(strength), field, &mut tried).await?;
        if let Subject::Session(session) = &subject {
            layers::make_all(session, strength, field, &mut calls).await?;
        }
    }
    if missing.len() == STRENGTHS.len() {
        return Err(missing.swap_remove(0).1);
    }
    let there = |strength| missing.iter().all(|(missing, _)| *missing != strength);
    for place in Place::ablated() {
        let Some((strength, lacking)) = place.session().filter(|(strength, _)| there(*strength)) else { continue };
        let subject = Subject::ablated(supervisor, field, strength, &lacking).await?;
        make_all(&subject, place, field, &mut tried).await?;
    }
    let missing = missing.into_iter().map(|(strength, failure)| (strength, failure.text())).collect();
    Ok(Report::own(tried, calls, missing, field.token()))
}
