//! Sub-policy that a call of a shell is narrowed to, within what its session may do (S0-15).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::rule::RuleGrant;
use crate::effective::{EffectiveSet, PathRegion, Region, Scope};
use crate::pattern::{Host, HostPattern};
use crate::plan::Network;
use crate::variable::Variables;

/// The narrower grant of one rule, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Narrower {
    place: String,
    write: Option<Scope<PathRegion>>,
    net: Option<Scope<HostPattern>>,
}

impl Narrower {
    pub(super) fn new(grant: &RuleGrant, place: &str, variables: &Variables) -> Self {
        let write = grant.write.as_ref().map(|templates| {
            let mut scope = Scope::default();
            for pattern in templates.iter().flat_map(|template| template.expand(variables)) {
                scope.insert(pattern.into(), []);
            }
            scope
        });
        let net = grant.net.as_ref().map(|hosts| {
            let mut scope = Scope::default();
            hosts.iter().for_each(|host| scope.insert(host.clone(), []));
            scope
        });
        Self { place: place.to_owned(), write, net }
    }
}

/// Reason why a call may do less than its session, and the rest that is left. A kind that is `None` is not narrowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubPolicy {
    by: JudgedBy,
    write: Option<Scope<PathRegion>>,
    net: Option<Scope<HostPattern>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum JudgedBy {
    Reading,
    Rules(BTreeSet<String>),
}

impl SubPolicy {
    /// Sub-policy of a line whose commands all only read: nothing that was granted is changed. The restricted shell has
    /// commands that fetch, and they reach what was granted (C-20).
    #[must_use]
    pub fn reading() -> Self {
        Self { by: JudgedBy::Reading, write: Some(Scope::default()), net: None }
    }

    pub(super) fn of_rule(narrower: &Narrower) -> Self {
        let by = JudgedBy::Rules(BTreeSet::from([narrower.place.clone()]));
        Self { by, write: narrower.write.clone(), net: narrower.net.clone() }
    }

    /// Within another, too: what the rule of another command in the line grants, or what holds where it is carried out.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        fn both<T: Region>(one: Option<Scope<T>>, other: Option<Scope<T>>) -> Option<Scope<T>> {
            match (one, other) {
                (Some(one), Some(other)) => Some(one.meet(&other)),
                (one, other) => one.or(other),
            }
        }
        let by = match (self.by, other.by) {
            (JudgedBy::Rules(places), JudgedBy::Rules(others)) => {
                JudgedBy::Rules(places.into_iter().chain(others).collect())
            }
            (JudgedBy::Reading, _) | (_, JudgedBy::Reading) => JudgedBy::Reading,
        };
        Self { by, write: both(self.write, other.write), net: both(self.net, other.net) }
    }

    /// True if it says what may be changed.
    #[must_use]
    pub fn bounds_writing(&self) -> bool {
        self.write.is_some()
    }

    /// Cause of the narrowing: `reading`, or `rule` and where the rules stand.
    #[must_use]
    pub fn by(&self) -> String {
        match &self.by {
            JudgedBy::Reading => "reading".to_owned(),
            JudgedBy::Rules(places) => format!("rule {}", places.iter().cloned().collect::<Vec<_>>().join(", ")),
        }
    }

    /// Rest of what may be changed. A name that is kept stays kept, also if a rule names it.
    #[must_use]
    pub fn write_within(&self, session: &Scope<PathRegion>) -> Scope<PathRegion> {
        self.write.as_ref().map_or_else(|| session.clone(), |write| session.meet_without_naming(write))
    }

    /// Rest of whom may be reached.
    #[must_use]
    pub fn net_within(&self, session: &Scope<HostPattern>) -> Scope<HostPattern> {
        self.net.as_ref().map_or_else(|| session.clone(), |net| session.meet(net))
    }

    /// True if it leaves this host, of those that the session may reach.
    #[must_use]
    pub fn leaves_host(&self, host: &Host, port: u16) -> bool {
        self.net.as_ref().is_none_or(|net| net.iter().any(|(pattern, _)| pattern.covers(host, port)))
    }

    /// Network as plans have it; `None` if it says nothing of that.
    pub(crate) fn network_within(&self, session: &Network) -> Option<Network> {
        let net = self.net.as_ref()?;
        let mut hosts = Scope::default();
        session.hosts.iter().for_each(|host| hosts.insert(host.clone(), []));
        let hosts = hosts.meet(net).iter().map(|(host, _)| host.clone()).collect();
        Some(Network { hosts, ..session.clone() })
    }

    /// Report of what is left, for people and the envelope.
    #[must_use]
    pub fn told(&self, effective: &EffectiveSet) -> SubPolicyReport {
        let (write, net) = (self.write_within(effective.rights().write()), self.net_within(effective.rights().hosts()));
        SubPolicyReport {
            by: self.by(),
            write: write.iter().map(|(region, _)| region.to_string()).collect(),
            net: net.iter().map(|(host, _)| host.to_string()).collect(),
        }
    }
}

/// The sub-policy of a call, as the envelope has it (S0-15).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubPolicyReport {
    /// Cause of the narrowing: `reading`, `profile` and its name, or `rule` and where the rules stand.
    pub by: String,
    /// Granted places that the call may change. Its own directories (`TMPDIR`, `HOME`) are not counted.
    pub write: Vec<String>,
    /// Whom it may reach.
    pub net: Vec<String>,
}
