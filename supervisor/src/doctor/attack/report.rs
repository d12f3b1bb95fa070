//! Findings, as data.

use std::collections::BTreeSet;

use callgate_policy::envelope::Layer;
use callgate_policy::plan::{Mechanism, Strength};
use serde::Serialize;

use super::attempts::{ActResult, Control, Tried};
use super::places::{Holder, MECHANISMS, Place, STRENGTHS};
use super::subject::ActAnswer;
use super::table::{Area, Attack};

/// All attempts to break out, and what came of them.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The command that they were made under; `None` for callgate's own sandbox.
    pub under: Option<Vec<String>>,
    /// Line by line.
    pub attacks: Vec<AttackReport>,
    /// Calls that layers 1 and 2 judge before anything starts. None under another command.
    pub calls: Vec<CallReport>,
    /// Strengths that this host does not have.
    pub missing: Vec<MissingStrength>,
    /// Places in which the attacks of [`Area::Host`] could not be made.
    pub hostless: Vec<Hostless>,
}

/// A place in which the host that was granted cannot be reached, so that it means nothing that others cannot.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Hostless {
    /// Where.
    pub place: Place,
    /// Reason.
    pub why: String,
}

/// A strength in which no session could be opened.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct MissingStrength {
    /// Which.
    pub strength: Strength,
    /// Reason.
    pub why: String,
}

/// One line of the table: acts that try the same in different ways.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct AttackReport {
    /// Its id in the list of attacks, such as `A2`.
    pub id: &'static str,
    /// Area: what a success would mean.
    pub area: Area,
    /// Description of the attempt.
    pub attempt: &'static str,
    /// All its acts.
    pub acts: Vec<ActReport>,
}

/// One act, and what came of it wherever it was made.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ActReport {
    /// The probe's words, with `{…}` for what is aimed at.
    pub act: String,
    /// Reason why it tells nothing here, if it fails outside too.
    pub not_tested: Option<String>,
    /// Place by place.
    pub seen: Vec<Sighting>,
}

/// Result of an act in one place.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Sighting {
    /// Where it was made.
    pub place: Place,
    /// Verdict on it.
    pub verdict: Verdict,
    /// The system call that was refused, if one was.
    pub at: Option<String>,
}

/// Verdict on one act in one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "why", rename_all = "snake_case")]
pub enum Verdict {
    /// It was stopped, by this.
    Held(String),
    /// It got through, as this shows.
    Open(String),
    /// It could not be made, for this reason.
    NotTested(String),
}

impl Verdict {
    fn of(seen: &ActResult, through: bool) -> Self {
        if through {
            let how = if seen.changes.is_empty() { "succeeded".to_owned() } else { seen.changes.join(", ") };
            return Self::Open(how);
        }
        match &seen.answer {
            ActAnswer::Done(_) => Self::Held("nothing reached".to_owned()),
            ActAnswer::Errno { name, .. } => Self::Held(name.clone()),
            ActAnswer::Signal(number) => Self::Held(format!("signal {number}")),
            ActAnswer::NotTried(why) => Self::NotTested(why.clone()),
        }
    }

    /// In a word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Held(_) => "held",
            Self::Open(_) => "open",
            Self::NotTested(_) => "not tested",
        }
    }

    /// Reason.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Self::Held(why) | Self::Open(why) | Self::NotTested(why) => why,
        }
    }
}

/// Summary of all acts of an attack in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Summary {
    /// All that could be tried were stopped, by these.
    Held(BTreeSet<String>),
    /// Some got through.
    Open(Vec<Opening>),
    /// None could be tried.
    NotTested,
    /// None was made there.
    Absent,
}

impl Summary {
    /// In a word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Held(_) => "held",
            Self::Open(_) => "open",
            Self::NotTested => "not tested",
            Self::Absent => "absent",
        }
    }
}

/// An act that got through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// The act.
    pub act: String,
    /// Fact that shows it.
    pub how: String,
}

/// Which mechanisms hold an attack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldBy {
    /// Each of these sets, alone: a set of several holds all of it only between them.
    Any(Vec<BTreeSet<Holder>>),
    /// State that every session starts with: its user, a session without a terminal, three descriptors, an environment
    /// of its own.
    Start,
    /// Nothing shows it.
    Unknown,
}

impl ActReport {
    fn at(&self, place: Place) -> Option<&Verdict> {
        self.seen.iter().find(|each| each.place == place).map(|each| &each.verdict)
    }

    fn held_at(&self, place: Place) -> bool {
        matches!(self.at(place), Some(Verdict::Held(_)))
    }

    /// Holders that hold it alone; `None` if what every session starts with does: nothing that was switched off mattered.
    fn held_alone_by(&self) -> Option<BTreeSet<Holder>> {
        if self.held_at(Place::Nothing) {
            return None;
        }
        let holders = MECHANISMS.into_iter().map(Holder::Kernel).chain([Holder::Namespaces]);
        Some(holders.filter(|holder| self.held_at(Place::Alone(*holder))).collect())
    }
}

impl AttackReport {
    /// Summary of all its acts in one place.
    #[must_use]
    pub fn summary(&self, place: Place) -> Summary {
        let (mut answers, mut open, mut untested) = (BTreeSet::new(), Vec::new(), false);
        for act in &self.acts {
            match (&act.not_tested, act.at(place)) {
                (Some(_), _) | (None, Some(Verdict::NotTested(_))) => untested = true,
                (None, Some(Verdict::Held(answer))) => drop(answers.insert(answer.clone())),
                (None, Some(Verdict::Open(how))) => open.push(Opening { act: act.act.clone(), how: how.clone() }),
                (None, None) => return if open.is_empty() { Summary::Absent } else { Summary::Open(open) },
            }
        }
        match untested {
            _ if !open.is_empty() => Summary::Open(open),
            true if answers.is_empty() => Summary::NotTested,
            _ => Summary::Held(answers),
        }
    }

    /// Its acts that tell nothing in these places, each with the reason.
    #[must_use]
    pub fn untested(&self, places: &[Place]) -> BTreeSet<String> {
        let why = |act: &ActReport| {
            let inside = places.iter().find_map(|place| match act.at(*place) {
                Some(Verdict::NotTested(why)) => Some(why.clone()),
                Some(Verdict::Held(_) | Verdict::Open(_)) | None => None,
            });
            act.not_tested.clone().or(inside).map(|why| format!("{}: {why}", act.act))
        };
        self.acts.iter().filter_map(why).collect()
    }

    /// Which mechanisms hold it.
    #[must_use]
    pub fn held_by(&self) -> HeldBy {
        let tested = || self.acts.iter().filter(|act| act.not_tested.is_none() && !act.seen.is_empty());
        let alone: Vec<_> = tested().filter_map(ActReport::held_alone_by).collect();
        if tested().next().is_none() {
            return HeldBy::Unknown;
        }
        let Some(first) = alone.first() else { return HeldBy::Start };
        let every = alone.iter().fold(first.clone(), |all, each| all.intersection(each).copied().collect());
        let mut holders: Vec<BTreeSet<Holder>> = every.iter().map(|holder| BTreeSet::from([*holder])).collect();
        // Where there are no namespaces.
        let without: Vec<BTreeSet<Holder>> = alone
            .iter()
            .map(|holders| holders.iter().copied().filter(|holder| *holder != Holder::Namespaces).collect())
            .collect();
        let only_namespaces = every.iter().all(|holder| *holder == Holder::Namespaces);
        if only_namespaces && without.iter().all(|holders| !holders.is_empty()) {
            // Of what holds some of it, only what the rest needs.
            let alone = without.iter().filter(|holders| holders.len() == 1);
            let needed = alone.flatten().copied().collect::<BTreeSet<_>>();
            let enough = without.iter().all(|holders| !holders.is_disjoint(&needed));
            holders.push(if enough { needed } else { without.iter().flatten().copied().collect() });
        }
        if holders.is_empty() { HeldBy::Unknown } else { HeldBy::Any(holders) }
    }

    /// True if a success counts: what shows by design in one strength does not.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.area != Area::Visible
    }
}

/// A call that one of the first two layers must stop.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct CallReport {
    /// Its id in the list of attacks.
    pub id: &'static str,
    /// Description of the attempt.
    pub attempt: &'static str,
    /// Which layer is to stop it first.
    pub layer: Layer,
    /// Reason why it can tell nothing here, if so.
    pub not_tested: Option<String>,
    /// By strength.
    pub results: Vec<(Strength, Stopped)>,
}

/// Which layers stop a call, as found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stopped {
    /// The layer that denied the call, if one did and nothing was reached.
    pub by: Option<Layer>,
    /// With that layer passed by, whether the third one stopped it.
    pub by_the_sandbox_alone: bool,
    /// Targets that were reached with all layers on.
    pub reached: Vec<String>,
}

impl CallReport {
    /// True if it reached something, or another layer had to stop it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.results.iter().any(|(_, stopped)| stopped.by != Some(self.layer) || !stopped.by_the_sandbox_alone)
    }
}

impl Report {
    pub(super) fn under(command: &[String], tried: Vec<Tried>, hostless: Vec<Hostless>, token: &str) -> Self {
        let (calls, missing) = (Vec::new(), Vec::new());
        Self { under: Some(command.to_vec()), attacks: attacks(tried, token), calls, missing, hostless }
    }

    pub(super) fn own(
        tried: Vec<Tried>,
        calls: Vec<CallReport>,
        (missing, hostless): (Vec<MissingStrength>, Vec<Hostless>),
        token: &str,
    ) -> Self {
        Self { under: None, attacks: attacks(tried, token), calls, missing, hostless }
    }

    /// The places whose verdicts count.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        match &self.under {
            Some(_) => vec![Place::Under],
            None => STRENGTHS.into_iter().map(Place::Whole).collect(),
        }
    }

    /// How many attempts got through, in places where none may.
    #[must_use]
    pub fn open(&self) -> usize {
        let places = self.places();
        let acts = self.attacks.iter().filter(|attack| attack.counts()).flat_map(|attack| &attack.acts);
        let through = |act: &&ActReport| places.iter().any(|place| matches!(act.at(*place), Some(Verdict::Open(_))));
        acts.filter(through).count() + self.calls.iter().filter(|call| call.is_open()).count()
    }

    /// How many attacks were held, of those that count.
    #[must_use]
    pub fn held(&self) -> usize {
        self.count(|summary| matches!(summary, Summary::Held(_)))
    }

    /// How many could not be tried, of those that count.
    #[must_use]
    pub fn untested(&self) -> usize {
        self.count(|summary| matches!(summary, Summary::NotTested))
    }

    fn count(&self, wanted: fn(&Summary) -> bool) -> usize {
        let places = self.places();
        let attacks = self.attacks.iter().filter(|attack| attack.counts());
        attacks.filter(|attack| places.iter().any(|place| wanted(&attack.summary(*place)))).count()
    }

    /// How many of the attacks that count would be open in sessions that lack one mechanism.
    #[must_use]
    pub fn open_without(&self, strength: Strength, mechanism: Mechanism) -> usize {
        let place = Place::Without(strength, mechanism);
        let open = |attack: &&AttackReport| matches!(attack.summary(place), Summary::Open(_));
        self.attacks.iter().filter(|attack| attack.counts()).filter(open).count()
    }
}

fn attacks(tried: Vec<Tried>, token: &str) -> Vec<AttackReport> {
    let mut all: Vec<AttackReport> = Vec::new();
    let mut last: Option<&'static Attack> = None;
    for Tried { attack, act, control, seen } in tried {
        let not_tested = match control {
            Control::Succeeded => None,
            Control::Failed(why) => Some(why),
        };
        let judged = seen.into_iter().map(|(place, seen)| {
            let verdict = Verdict::of(&seen, seen.got_through(act, token));
            let at = match seen.answer {
                ActAnswer::Errno { at, .. } => Some(at),
                ActAnswer::Done(_) | ActAnswer::Signal(_) | ActAnswer::NotTried(_) => None,
            };
            Sighting { place, verdict, at }
        });
        let act = ActReport { act: act.words.join(" "), not_tested, seen: judged.collect() };
        match all.last_mut().filter(|_| last.is_some_and(|last| std::ptr::eq(last, attack))) {
            Some(line) => line.acts.push(act),
            None => {
                let Attack { id, area, what, .. } = *attack;
                all.push(AttackReport { id, area, attempt: what, acts: vec![act] });
            }
        }
        last = Some(attack);
    }
    all
}
