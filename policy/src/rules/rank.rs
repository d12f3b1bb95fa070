//! Which of two rules that match decides (C-3): the one published comparator.

use std::cmp::Reverse;

use super::pattern::Matcher;
use super::permission::Permission;
use super::rule::{Action, RuleScope};

/// Values that are compared, in this order; the smaller decides. No two rules of a set are equal, for each was added at
/// another time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// A manifest's deny is before everything: nothing lifts it (S0-55).
    pinned: Reverse<bool>,
    /// A written rule before a default, however much more the default names.
    is_default: bool,
    /// Exact tool, then tools of servers by glob, then capability, then `*`.
    permission: u8,
    /// An exact pattern before any other.
    exact: Reverse<bool>,
    /// The longer literal prefix, bytes.
    prefix: Reverse<usize>,
    /// The fewer wildcards; no pattern, and `*`, come last.
    wildcards: usize,
    /// Deny, then ask, then allow.
    action: Reverse<Action>,
    /// Session, then project, then manifest, then default.
    scope: RuleScope,
    /// The newest.
    added: Reverse<u64>,
}

impl Rank {
    pub(super) fn of(permission: &Permission, matcher: &Matcher, action: Action, scope: RuleScope, added: u64) -> Self {
        let specificity = matcher.specificity();
        Self {
            pinned: Reverse(scope == RuleScope::Manifest && action == Action::Deny),
            is_default: scope == RuleScope::Default,
            permission: match permission {
                Permission::Effect { .. } | Permission::Tool(_) => 0,
                Permission::Mcp { .. } => 1,
                Permission::Capability(_) => 2,
                Permission::Any => 3,
            },
            exact: Reverse(specificity.is_exact),
            prefix: Reverse(specificity.prefix),
            wildcards: specificity.wildcards,
            action: Reverse(action),
            scope,
            added: Reverse(added),
        }
    }

    /// Rank of a rule that a subagent inherits: what denies cannot be lifted there.
    pub(super) fn pinned(self, action: Action) -> Self {
        Self { pinned: Reverse(self.pinned.0 || action == Action::Deny), ..self }
    }
}
