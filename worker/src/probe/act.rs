//! Acts of the probe: what each is called, what it needs, and what it does.

use super::outcome::{ActArgs, ActOutcome};

/// One thing an attacker would try.
pub(super) struct ProbeAct {
    pub(super) name: &'static str,
    /// The id in the list of attacks that this act belongs to.
    pub(super) attack: &'static str,
    pub(super) args: &'static str,
    pub(super) about: &'static str,
    pub(super) run: fn(&ActArgs<'_>) -> ActOutcome,
}

pub(super) const fn act(
    name: &'static str,
    attack: &'static str,
    args: &'static str,
    about: &'static str,
    run: fn(&ActArgs<'_>) -> ActOutcome,
) -> ProbeAct {
    ProbeAct { name, attack, args, about, run }
}
