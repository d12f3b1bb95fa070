//! Places in which attempts are made: sessions whole and without mechanisms, and what another command confines.

use std::fmt;

use callgate_policy::plan::{Mechanism, Strength};
use serde::{Serialize, Serializer};

/// The mechanisms that are switched off in turn.
pub const MECHANISMS: [Mechanism; 3] = [Mechanism::Landlock, Mechanism::Seccomp, Mechanism::Capabilities];
/// The strengths in which attempts are made.
pub const STRENGTHS: [Strength; 2] = [Strength::Landlock, Strength::Namespaces];

/// Where an act was made. Its text is its key in the JSON of `doctor --attack`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A session of this strength, as everybody has it.
    Whole(Strength),
    /// Under a given command.
    Under,
    /// A session with nothing but what every session starts with.
    Nothing,
    /// With one of the parts of the third layer and no other.
    Alone(Holder),
    /// Without one mechanism.
    Without(Strength, Mechanism),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = |strength: Strength| match strength {
            Strength::Landlock => "landlock",
            Strength::Namespaces => "namespaces",
        };
        match *self {
            Self::Whole(strength) => f.write_str(key(strength)),
            Self::Under => f.write_str("under"),
            Self::Nothing => f.write_str("nothing"),
            Self::Alone(holder) => write!(f, "only {holder}"),
            Self::Without(strength, mechanism) => {
                write!(f, "{} without {}", key(strength), Holder::Kernel(mechanism))
            }
        }
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Place {
    /// The strength that a session there has, and what it lacks.
    pub(super) fn session(self) -> Option<(Strength, Vec<Mechanism>)> {
        let all_but = |kept: Option<Mechanism>| MECHANISMS.into_iter().filter(|each| Some(*each) != kept).collect();
        match self {
            Self::Whole(_) | Self::Under => None,
            Self::Nothing => Some((Strength::Landlock, all_but(None))),
            Self::Alone(Holder::Namespaces) => Some((Strength::Namespaces, all_but(None))),
            Self::Alone(Holder::Kernel(kept)) => Some((Strength::Landlock, all_but(Some(kept)))),
            Self::Without(strength, lacking) => Some((strength, vec![lacking])),
        }
    }

    /// Each place that lacks a mechanism.
    pub(super) fn ablated() -> impl Iterator<Item = Self> {
        let alone = MECHANISMS.into_iter().map(Holder::Kernel).chain([Holder::Namespaces]).map(Self::Alone);
        let without = STRENGTHS
            .into_iter()
            .flat_map(|strength| MECHANISMS.into_iter().map(move |lacking| Self::Without(strength, lacking)));
        [Self::Nothing].into_iter().chain(alone).chain(without)
    }
}

/// A part of the third layer that may hold something alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// Namespaces, which the strength decides about.
    Namespaces,
    /// A mechanism that both strengths have.
    Kernel(Mechanism),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespaces => "namespaces",
            Self::Kernel(Mechanism::Landlock) => "landlock",
            Self::Kernel(Mechanism::Seccomp) => "seccomp",
            Self::Kernel(Mechanism::Capabilities) => "capabilities",
        })
    }
}

impl Serialize for Holder {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
