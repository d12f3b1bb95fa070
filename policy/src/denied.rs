//! Files and places that rules deny, as plans have them.

use serde::{Deserialize, Serialize};

use crate::path::HostPath;
use crate::pattern::PathPattern;

/// A path at and below which a rule denies writing to every call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClosedPlace {
    /// Its path, as the pattern spells it.
    pub path: HostPath,
    /// The rule, and where it is written.
    pub rule: String,
}

impl ClosedPlace {
    /// True if all that a pattern matches lies in it.
    pub(crate) fn holds(&self, pattern: &PathPattern) -> bool {
        PathPattern::subtree(&self.path).is_some_and(|own| pattern.within(&own))
    }
}

/// Files that a rule denies within a tree that a call goes through.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeniedFiles {
    /// Which.
    pub pattern: PathPattern,
    /// The rule, and where it is written.
    pub rule: String,
}
