//! Rights in force if everything were granted.

use super::{Bound, Contribution, Declared, EffectiveSet, Source, narrow};
use crate::pattern::PathTemplate;
use crate::requirement::{FsRequirement, Program, RequirementSet, ShellRunRequirement};
use crate::variable::Variables;

/// Grants every path and every program: the capability check as an attacker would like it. `callgate doctor --attack` uses
/// it to show that the sandbox holds without the check; `clippy.toml` refuses every other use.
#[must_use]
pub fn everything() -> Option<EffectiveSet> {
    let all = || PathTemplate::parse("/**").ok();
    let set = RequirementSet {
        fs: FsRequirement { read: vec![all()?], write: vec![all()?], exact: false },
        shell: vec![ShellRunRequirement { cmd: Program::Any, args: None }],
        ..RequirementSet::default()
    };
    let contribution = Contribution::from_source(&Source::Default, &set);
    let declared = Declared::union(&[contribution], &Variables::default(), &[]).ok()?;
    Some(narrow(&declared, &[Bound::unlimited(Source::Ceiling)]))
}
