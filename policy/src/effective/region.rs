//! Sets that can be compared and intersected: what rights are made of.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::path::HostPath;
use crate::pattern::{ArgPatterns, HostPattern, PathPattern, ProgramPattern};
use crate::plan::Exactness;

use super::origin::Origin;
use crate::plan::protect::{Match, names};

/// A set of paths, hosts, programs or names.
///
/// `within` is a partial order that may miss an inclusion but never claims a false one; `meet` holds exactly what both
/// hold, `None` only if that is nothing.
pub(crate) trait Region: Clone + Ord + fmt::Display {
    fn within(&self, other: &Self) -> bool;
    fn meet(&self, other: &Self) -> Option<Self>;
    /// True if it says more than what it lies within.
    fn adds_to(&self, _wider: &Self) -> bool {
        false
    }
    /// True if another says all that it does.
    fn is_spared_by(&self, other: &Self) -> bool {
        other != self && self.within(other) && !self.adds_to(other)
    }
}

/// The paths that *every* pattern of a list matches. Two globs have no glob that is their intersection, so it is kept as
/// the two.
///
/// Invariant: not empty, no pattern within another, no two known to be disjoint. So the literal parts lie beneath each
/// other, and two lists that were made of the same patterns in any order are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Vec<PathPattern>", into = "Vec<PathPattern>")]
pub struct PathRegion(BTreeSet<PathPattern>);

impl From<Vec<PathPattern>> for PathRegion {
    fn from(patterns: Vec<PathPattern>) -> Self {
        Self(patterns.into_iter().collect())
    }
}

impl From<PathRegion> for Vec<PathPattern> {
    fn from(region: PathRegion) -> Self {
        region.0.into_iter().collect()
    }
}

impl PathRegion {
    /// True if a path is in it.
    #[must_use]
    pub fn matches(&self, path: &HostPath) -> bool {
        self.0.iter().all(|pattern| pattern.matches(path))
    }

    /// The deepest directory (or the file) that holds all of it: what the kernel is told.
    #[must_use]
    pub fn literal_prefix(&self) -> HostPath {
        let deepest = self.0.iter().map(PathPattern::literal_prefix).max_by_key(|prefix| prefix.as_bytes().len());
        deepest.unwrap_or_else(|| "/".into())
    }

    /// Exactness with which the kernel can be told it.
    #[must_use]
    pub fn exactness(&self) -> Exactness {
        match self.single() {
            Some(pattern) => pattern.exactness(),
            None => Exactness::Widened,
        }
    }

    /// True if it is one path.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.single().is_some_and(PathPattern::is_literal)
    }

    fn single(&self) -> Option<&PathPattern> {
        if self.0.len() == 1 { self.0.first() } else { None }
    }
}

impl From<PathPattern> for PathRegion {
    fn from(pattern: PathPattern) -> Self {
        Self(BTreeSet::from([pattern]))
    }
}

impl Region for PathRegion {
    fn within(&self, other: &Self) -> bool {
        other.0.iter().all(|theirs| self.0.iter().any(|mine| mine.within(theirs)))
    }

    #[allow(clippy::mutable_key_type, reason = "a glob's cache is inside its matcher, which order and equality ignore")]
    fn meet(&self, other: &Self) -> Option<Self> {
        let apart = self.0.iter().any(|mine| other.0.iter().any(|theirs| mine.disjoint(theirs)));
        let all: BTreeSet<&PathPattern> = self.0.union(&other.0).collect();
        let needed = |pattern: &PathPattern| !all.iter().any(|other| *other != pattern && other.within(pattern));
        let patterns = all.iter().copied().filter(|pattern| needed(pattern)).cloned().collect();
        (!apart).then_some(Self(patterns))
    }

    /// A name that would be kept in the wider one is granted by being named ([`protect`](crate::plan::protect)).
    fn adds_to(&self, wider: &Self) -> bool {
        let (own, top) = (self.literal_prefix(), wider.literal_prefix());
        let below = own.as_path().strip_prefix(&top).map(|below| below.as_os_str().as_encoded_bytes());
        let find = |below| names().find(names().root(top.as_bytes()), below);
        below.is_ok_and(|below| matches!(find(below), Match::Kept { .. }))
    }
}

impl fmt::Display for PathRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, pattern) in self.0.iter().enumerate() {
            write!(f, "{}{pattern}", if place == 0 { "" } else { " ∩ " })?;
        }
        Ok(())
    }
}

impl Region for HostPattern {
    fn within(&self, other: &Self) -> bool {
        self.within(other)
    }

    fn meet(&self, other: &Self) -> Option<Self> {
        self.meet(other)
    }
}

/// Programs and their arguments, with variables expanded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShellRegion {
    pub(super) programs: ProgramPattern,
    pub(super) args: ArgPatterns,
}

impl ShellRegion {
    /// Which programs.
    #[must_use]
    pub fn programs(&self) -> &ProgramPattern {
        &self.programs
    }

    /// Their arguments.
    #[must_use]
    pub fn args(&self) -> &ArgPatterns {
        &self.args
    }

    /// True if starting this argv is meant.
    #[must_use]
    pub fn matches(&self, argv: &[HostPath]) -> bool {
        let Some((program, args)) = argv.split_first() else { return false };
        let args: Vec<&[u8]> = args.iter().map(HostPath::as_bytes).collect();
        self.programs.matches(program) && self.args.matches(&args)
    }
}

impl Region for ShellRegion {
    fn within(&self, other: &Self) -> bool {
        self.programs.within(&other.programs) && self.args.within(&other.args)
    }

    fn meet(&self, other: &Self) -> Option<Self> {
        let programs = self.programs.meet(&other.programs)?;
        self.args.meet(&other.args).map(|args| Self { programs, args })
    }
}

impl fmt::Display for ShellRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.programs)?;
        if self.args.is_any() { Ok(()) } else { write!(f, " [{}]", self.args) }
    }
}

impl Region for String {
    fn within(&self, other: &Self) -> bool {
        self == other
    }

    fn meet(&self, other: &Self) -> Option<Self> {
        (self == other).then(|| self.clone())
    }
}

/// A union of regions, each with where it came from. A copy shares them until it is changed: every call of a shell is granted all
/// that its session may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope<T>(Arc<BTreeMap<T, BTreeSet<Origin>>>);

impl<T> Default for Scope<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Scope<T> {
    /// Each region and its origins, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&T, &BTreeSet<Origin>)> {
        self.0.iter()
    }

    /// True if it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[allow(private_bounds, reason = "what a scope is made of is this crate's choice; callers only read it")]
impl<T: Region> Scope<T> {
    /// Adds a region; one that is there already gains the origins.
    pub(crate) fn insert(&mut self, region: T, origins: impl IntoIterator<Item = Origin>) {
        Arc::make_mut(&mut self.0).entry(region).or_default().extend(origins);
    }

    /// Adds a region to a scope that is reduced, and leaves it so.
    pub(crate) fn add(&mut self, region: T, origins: impl IntoIterator<Item = Origin>) {
        if !self.0.keys().any(|other| region.is_spared_by(other)) {
            Arc::make_mut(&mut self.0).retain(|other, _| !other.is_spared_by(&region));
            self.insert(region, origins);
        }
    }

    /// Without the regions that lie within another and add nothing: the same set, in the one form that order does not change.
    pub(crate) fn reduced(&self) -> Self {
        let is_needed = |(region, _): &(&T, _)| !self.0.keys().any(|other| region.is_spared_by(other));
        let needed = self.iter().filter(is_needed).map(|(region, origins)| (region.clone(), origins.clone()));
        Self(Arc::new(needed.collect()))
    }

    /// Intersection, reduced, without what only `most` says by being narrower. A name that is kept in a tree is
    /// released by whoever asks for it; a bound that names it releases nothing.
    pub(crate) fn meet_without_naming(&self, most: &Self) -> Self {
        self.met(most, |region, mine, _| region.adds_to(mine))
    }

    /// Intersection with what a parent has: a name that is kept in its trees is released for the child only if the
    /// parent has it by its name too (X0-25).
    pub(crate) fn meet_without_further_naming(&self, parents: &Self) -> Self {
        self.met(parents, |region, mine, theirs| region.adds_to(mine) || region.adds_to(theirs))
    }

    /// Intersection, reduced.
    pub(crate) fn meet(&self, other: &Self) -> Self {
        self.met(other, |_, _, _| false)
    }

    fn met(&self, other: &Self, is_left_out: impl Fn(&T, &T, &T) -> bool) -> Self {
        let mut met = Self::default();
        for (mine, my_origins) in self.iter() {
            for (theirs, their_origins) in other.iter() {
                if let Some(region) = mine.meet(theirs).filter(|region| !is_left_out(region, mine, theirs)) {
                    met.insert(region, my_origins.iter().chain(their_origins).cloned());
                }
            }
        }
        met.reduced()
    }
}
