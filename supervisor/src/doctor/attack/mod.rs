//! Tries to break out, and tells what held, and which mechanism holds it alone: what `callgate doctor --attack` prints.
//!
//! Invariant: "held" is said only of an act that succeeds outside, in this very run, and left no canary changed.

mod field;
mod layers;
mod report;
mod subject;
mod table;

use std::time::Duration;

pub use callgate_policy::plan::Mechanism;
use callgate_policy::plan::Strength;

use self::field::Changes;
pub use self::field::Field;
pub use self::report::{
    ActReport, AttackReport, CallReport, HeldBy, Holder, MissingStrength, Opening, Place, Report, Sighting, Stopped,
    Summary, Verdict,
};
use self::subject::{Answer, Subject};
pub use self::table::Area;
use self::table::{Act, Attack, Proof, attacks};
use super::DoctorError;
use crate::supervisor::Supervisor;

/// How long a datagram that was sent may be on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

/// What a program does that was started as `attempt WORDS`: it makes the attempt, with its own rights, and tells what came of
/// it. Returns its exit status. The binary of [`Field::make`] must do so, as `callgate` does.
#[must_use]
pub fn attempt(words: &[String]) -> u8 {
    callgate_worker::probe::main(words)
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
async fn make(subject: &Subject, field: &mut Field, act: &Act) -> Result<Seen, DoctorError> {
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
    mended.map_err(DoctorError::io("put the canaries back"))?;
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

/// The mechanisms that are switched off in turn.
pub const MECHANISMS: [Mechanism; 3] = [Mechanism::Landlock, Mechanism::Seccomp, Mechanism::Capabilities];
/// The strengths in which attempts are made.
pub const STRENGTHS: [Strength; 2] = [Strength::Landlock, Strength::Namespaces];

impl Place {
    /// The strength that a session there has, and what it lacks.
    fn session(self) -> Option<(Strength, Vec<Mechanism>)> {
        let all_but = |kept: Option<Mechanism>| MECHANISMS.into_iter().filter(|each| Some(*each) != kept).collect();
        match self {
            Self::Whole(_) | Self::Under => None,
            Self::Nothing => Some((Strength::Landlock, all_but(None))),
            Self::Alone(Holder::Namespaces) => Some((Strength::Namespaces, all_but(None))),
            Self::Alone(Holder::Kernel(kept)) => Some((Strength::Landlock, all_but(Some(kept)))),
            Self::Without(strength, lacking) => Some((strength, vec![lacking])),
        }
    }

    fn ablated() -> impl Iterator<Item = Self> {
        let alone = MECHANISMS.into_iter().map(Holder::Kernel).chain([Holder::Namespaces]).map(Self::Alone);
        let without = STRENGTHS
            .into_iter()
            .flat_map(|strength| MECHANISMS.into_iter().map(move |lacking| Self::Without(strength, lacking)));
        [Self::Nothing].into_iter().chain(alone).chain(without)
    }
}

/// Every act outside.
async fn controls(field: &mut Field) -> Result<Vec<Tried>, DoctorError> {
    if let Some(reason) = unusable(&Subject::Bare, field).await? {
        // As where programs may not be started from temporary directories.
        return Err(DoctorError::Untried { what: "no sandbox at all".to_owned(), reason });
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
async fn make_all(subject: &Subject, place: Place, field: &mut Field, tried: &mut [Tried]) -> Result<(), DoctorError> {
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
async fn unusable(subject: &Subject, field: &mut Field) -> Result<Option<String>, DoctorError> {
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

/// Tries to break out of what `command` confines. Each attempt is made outside first, where it must succeed.
///
/// # Errors
/// [`DoctorError`] if the attempts would tell nothing, or could not be made.
pub async fn break_out_of(command: &[String], field: &mut Field) -> Result<Report, DoctorError> {
    let mut tried = controls(field).await?;
    let subject = Subject::Under(command.to_vec());
    if let Some(reason) = unusable(&subject, field).await? {
        return Err(DoctorError::Untried { what: command.join(" "), reason });
    }
    make_all(&subject, Place::Under, field, &mut tried).await?;
    Ok(Report::under(command, tried, field.token()))
}

/// Tries to break out of sessions in each strength, and of sessions that lack a mechanism, in which nothing runs but the
/// attempts. Each attempt is made outside first, where it must succeed.
///
/// # Errors
/// [`DoctorError`] if the attempts would tell nothing, or could not be made.
pub async fn break_out(supervisor: &Supervisor, field: &mut Field) -> Result<Report, DoctorError> {
    let mut tried = controls(field).await?;
    let mut calls = layers::controls(field).await?;
    let mut missing = Vec::new();
    for strength in STRENGTHS {
        let subject = match Subject::session(supervisor, field, strength).await {
            Ok(subject) => subject,
            Err(error) => {
                missing.push((strength, DoctorError::from(error)));
                continue;
            }
        };
        if let Some(reason) = unusable(&subject, field).await? {
            return Err(DoctorError::Untried { what: "a session".to_owned(), reason });
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
    let missing =
        missing.into_iter().map(|(strength, error)| MissingStrength { strength, why: error.text() }).collect();
    let calls = calls.into_iter().map(|call| call.report).collect();
    Ok(Report::own(tried, calls, missing, field.token()))
}
