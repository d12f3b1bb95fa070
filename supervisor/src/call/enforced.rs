//! Confinement in a result: per kind of right, the steps that hold it, each confirmed by the kernel.

use callgate_policy::envelope::{Enforced, StepReport};
use callgate_policy::plan::Strength;
use callgate_policy::step::Step;

use crate::session::Session;

/// The kinds of right, and which steps hold each. A step that was not confirmed is not named, so a kind whose list is
/// empty is one that nothing held: a test makes each step fail and sees the refusal instead.
const HOLDS: &[(&str, &[Step])] = &[
    ("fs", &[Step::Landlock, Step::Mounts, Step::Seccomp, Step::KeptNames]),
    ("net", &[Step::Seccomp, Step::Namespaces, Step::Landlock, Step::Egress]),
    ("ipc", &[Step::Seccomp, Step::Namespaces, Step::Landlock]),
    ("processes", &[Step::Landlock, Step::Seccomp, Step::Namespaces, Step::Debug]),
    ("privilege", &[Step::Capabilities, Step::NoNewPrivs, Step::Seccomp]),
    ("descriptors", &[Step::CloseFds]),
    ("limits", &[Step::Limits, Step::Cgroup, Step::CoreDumps]),
];

/// Steps of sessions that may start only some programs. Others have no step of that name, and claim nothing.
const PROGRAMS: (&str, &[Step]) = ("shell", &[Step::Programs, Step::Landlock, Step::Seccomp]);

/// Sums up the steps that confined a call.
pub(crate) fn summarize(strength: Strength, all: &[StepReport]) -> Vec<Enforced> {
    let judged = all.iter().any(|report| report.step == Step::Programs);
    HOLDS
        .iter()
        .chain(judged.then_some(&PROGRAMS))
        .map(|(what, steps)| {
            let mut by: Vec<String> = Vec::new();
            for step in all.iter().filter(|report| steps.contains(&report.step)) {
                let text = format!("{}: {}", step.step, step.detail);
                // Namespaces are confirmed as a whole; they are named only in the strength that has them.
                if (step.step != Step::Namespaces || strength == Strength::Namespaces) && !by.contains(&text) {
                    by.push(text);
                }
            }
            Enforced::new(*what, by)
        })
        .collect()
}

/// Mechanisms that hold each kind of right, put together from steps that the kernel confirmed and nothing else (C-18).
pub(crate) fn enforced(session: &Session, steps: &[StepReport]) -> Vec<Enforced> {
    summarize(session.sandbox.facts.strength, steps)
}
