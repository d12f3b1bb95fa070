//! Denials of a part of what a call could do, which leave the rest.
//!
//! Places that rules deny for writing can be closed by a sandbox to everything in it, so that its programs may run. Only a path with
//! all below it is such a place: it is kept by its path, whatever comes or moves. Of a tree that is searched,
//! files that rules deny are left out.

use crate::denied::{ClosedPlace, DeniedFiles};
use crate::effect::{EffectKind, EffectKinds};
use crate::pattern::PathPattern;

use super::act::{Act, JudgedEffect};
use super::pattern::Matcher;
use super::permission::{Capability, Permission};
use super::rule::Action;
use super::{Compiled, JudgedCall, RuleKey, RuleSet};

const WRITES: EffectKinds = EffectKinds::of(&[EffectKind::Writes]);

impl Compiled {
    /// The pattern of a rule that denies paths.
    fn denied_paths(&self) -> Option<&PathPattern> {
        match &self.matcher {
            Matcher::Path(pattern, _) if self.action == Action::Deny => Some(pattern),
            Matcher::All
            | Matcher::Command(_)
            | Matcher::Phrase(_)
            | Matcher::Path(..)
            | Matcher::Host(..)
            | Matcher::Agent(_)
            | Matcher::Request(_) => None,
        }
    }
}

impl RuleSet {
    /// Places that rules close for writing, if nothing that ranks before lets a call write there all the same. A pattern
    /// that is not a path with all below it names none.
    #[must_use]
    pub fn closed_places(&self) -> Vec<ClosedPlace> {
        let mut all = Vec::new();
        for (at, (key, rule)) in self.with_keys().enumerate() {
            let is_about_writing = match &self.permissions[key.permission] {
                Permission::Effect { kinds, .. } => *kinds == WRITES,
                Permission::Capability(capability) => *capability == Capability::FsWrite,
                Permission::Tool(_) | Permission::Mcp { .. } | Permission::Any => false,
            };
            let Some(pattern) = rule.denied_paths().filter(|_| is_about_writing) else { continue };
            let place = ClosedPlace { path: pattern.literal_prefix(), rule: rule.told.to_string() };
            // One path is denied with all below it, which is a pattern of its own.
            if pattern.is_subtree() && !self.with_keys().take(at).any(|before| self.opens(before, pattern)) {
                all.push(place);
            }
        }
        all
    }

    /// Files that a call leaves out of the trees that it searches: those that rules deny which come before the one that decides about
    /// the tree. What an approval or a mode lets pass changes nothing here.
    #[must_use]
    pub fn left_out(&self, call: &JudgedCall<'_>) -> Vec<DeniedFiles> {
        let mut all = Vec::new();
        for JudgedEffect { effect, standing, acts } in &call.effects {
            for act in acts {
                let Act::Search(tree) = act else { continue };
                let Some(tree) = PathPattern::subtree(tree) else { continue };
                let is_about = |permission: &Permission| permission.covers(call.tool, effect.kind(), *standing);
                let before = self.about(is_about, act).take_while(|rule| !rule.applies(act));
                let denied = before.filter_map(|rule| rule.denied_paths().map(|pattern| (rule, pattern)));
                let denied = denied.filter(|(_, pattern)| !pattern.disjoint(&tree));
                all.extend(
                    denied.map(|(rule, pattern)| DeniedFiles { pattern: pattern.clone(), rule: rule.told.to_string() }),
                );
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// True if a rule may let a call write what a pattern matches.
    fn opens(&self, (key, rule): (&RuleKey, &Compiled), pattern: &PathPattern) -> bool {
        let touches = match &rule.matcher {
            Matcher::All => true,
            Matcher::Path(other, _) => !other.disjoint(pattern),
            Matcher::Request(_) | Matcher::Command(_) | Matcher::Phrase(_) | Matcher::Host(..) | Matcher::Agent(_) => {
                false
            }
        };
        rule.action != Action::Deny && touches && self.kinds_of(&self.permissions[key.permission]).meets(WRITES)
    }

    /// Takes these places for closed by the sandbox: rules about them no longer deny programs as a whole.
    pub fn hold(&mut self, places: impl IntoIterator<Item = ClosedPlace>) {
        self.held.extend(places);
    }

    /// The places that the sandbox closes.
    #[must_use]
    pub fn held(&self) -> &[ClosedPlace] {
        &self.held
    }

    /// True if the sandbox keeps programs from everything that a rule denies them.
    pub(super) fn is_held(&self, capability: Capability, rule: &Compiled) -> bool {
        let is_closed = |pattern: &PathPattern| self.held.iter().any(|place| place.holds(pattern));
        capability == Capability::FsWrite && rule.denied_paths().is_some_and(is_closed)
    }

    /// The first rule about a capability that says something of what programs could do, beyond what the sandbox sees to.
    pub(super) fn first_of_reach(&self, capability: Capability) -> Option<&Compiled> {
        let is_about = |permission: &Permission| *permission == Permission::Capability(capability);
        let mut about = self.about(is_about, &Act::Anything).filter(|rule| self.speaks(rule));
        about.find(|rule| rule.applies(&Act::Anything) && !self.is_held(capability, rule))
    }
}
