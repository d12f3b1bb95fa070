//! Ceiling: the most that may be granted, as a person writes it: `[ceiling]` in a manifest, or a host's own.

use serde::{Deserialize, Serialize};

use crate::effective::Kind;
use crate::pattern::{HostPattern, PathTemplate};
use crate::requirement::{RequirementSet, ShellRunRequirement};

/// An upper bound for each kind of right. A ceiling grants nothing. A kind that is absent is not bounded; an empty list bounds
/// it to nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ceiling {
    /// Files.
    #[serde(skip_serializing_if = "is_default")]
    pub fs: FsCeiling,
    /// Hosts.
    #[serde(skip_serializing_if = "is_default")]
    pub net: NetCeiling,
    /// Programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<Vec<ShellRunRequirement>>,
    /// Named capabilities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<String>>,
}

/// `[ceiling.fs]`. As in `requires`, what may be written may also be read. A bound on reading bounds writing too, because a
/// program can read back what it wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FsCeiling {
    /// To read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Vec<PathTemplate>>,
    /// To read, create, change and remove.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Vec<PathTemplate>>,
}

/// `[ceiling.net]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetCeiling {
    /// To connect to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<HostPattern>>,
}

impl Ceiling {
    /// Bounds each kind that `set` names to what it names, and no other kind.
    #[must_use]
    pub fn of_named(set: &RequirementSet) -> Self {
        fn named<T: Clone>(items: &[T]) -> Option<Vec<T>> {
            (!items.is_empty()).then(|| items.to_vec())
        }
        Self {
            fs: FsCeiling { read: named(&set.fs.read), write: named(&set.fs.write) },
            net: NetCeiling { hosts: named(&set.net.hosts) },
            shell: named(&set.shell),
            capabilities: named(&set.capabilities),
        }
    }

    /// True if it bounds a kind.
    #[must_use]
    pub fn bounds(&self, kind: Kind) -> bool {
        match kind {
            Kind::Read => self.fs.read.is_some(),
            Kind::Write => self.fs.write.is_some() || self.fs.read.is_some(),
            Kind::Hosts => self.net.hosts.is_some(),
            Kind::Shell => self.shell.is_some(),
            Kind::Capabilities => self.capabilities.is_some(),
        }
    }

    /// The items of the table that bounds a kind, as if they were asked for.
    pub(crate) fn items(&self, kind: Kind) -> RequirementSet {
        fn all<T: Clone>(items: &Option<Vec<T>>) -> Vec<T> {
            items.clone().unwrap_or_default()
        }
        let mut set = RequirementSet::default();
        match kind {
            Kind::Read | Kind::Write => (set.fs.read, set.fs.write) = (all(&self.fs.read), all(&self.fs.write)),
            Kind::Hosts => set.net.hosts = all(&self.net.hosts),
            Kind::Shell => set.shell = all(&self.shell),
            Kind::Capabilities => set.capabilities = all(&self.capabilities),
        }
        set
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
