//! Acts of the probe: what each is called, what it needs, and what it does.

use super::outcome::{ActArgs, ActOutcome};

/// One thing an attacker would try.
pub struct ProbeAct {
    pub name: &'static str,
    /// The id in the list of attacks that this act belongs to.
    pub attack: &'static str,
    pub args: &'static str,
    pub about: &'static str,
    pub run: fn(&ActArgs<'_>) -> ActOutcome,
}

pub const fn act(
    name: &'static str,
    attack: &'static str,
    args: &'static str,
    about: &'static str,
    run: fn(&ActArgs<'_>) -> ActOutcome,
) -> ProbeAct {
    ProbeAct { name, attack, args, about, run }
}

/// Acts under the name of what they are about.
pub type Family = (&'static str, &'static [ProbeAct]);
