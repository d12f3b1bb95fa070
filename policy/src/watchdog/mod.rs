//! Layer 2: a look at every call before it runs, after the capability check (S0-58 to S0-62), and at every program that it
//! starts, where somebody wants to see those.
//!
//! It tightens and never grants: whatever it says, layer 1 has been passed and layer 3 still holds.

mod packs;
pub(crate) mod words;

use std::fmt;

use serde_json::Value;

use crate::effect::Effects;
use crate::manifest::Manifest;
use crate::path::HostPath;
use crate::shell::Line;
use crate::tool::Subject;

pub use packs::{Builtin, Faulty, Guard, PACKS, Pack, check};

/// Facts that a watchdog is shown (S0-58).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CallFacts<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// Subject of the tool, as it says itself.
    pub subject: Subject,
    /// Its arguments, validated.
    pub args: &'a Value,
    /// Effects, worked out from them: paths are resolved.
    pub effects: &'a Effects,
    /// The workspace's first root.
    pub root: &'a HostPath,
    /// The manifest.
    pub manifest: Option<&'a Manifest>,
    /// The session.
    pub session: &'a str,
    /// Its command line as bash's grammar reads it, if it has one and somebody wanted that: a watchdog ([`Wants::lines`]), a rule
    /// about commands, or a shell that only reads. A line that was not understood says so ([`Line::understood`]).
    pub line: Option<&'a Line>,
}

impl<'a> CallFacts<'a> {
    /// A call of `tool` with these arguments, which has these effects, in a workspace with this first root. Its subject is that of a
    /// tool that says nothing of it, and all else is empty: for a host that tries its own [`Watchdog`].
    #[must_use]
    pub fn new(tool: &'a str, args: &'a Value, effects: &'a Effects, root: &'a HostPath) -> Self {
        Self { tool, subject: Subject::default(), args, effects, root, manifest: None, session: "", line: None }
    }
}

/// A program that is about to run below a call, as the kernel has it: nobody can change any of this before it runs.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ExecFacts<'a> {
    /// The file that runs, by the name that the session has for it. Of a script it is the interpreter.
    pub program: &'a HostPath,
    /// Its arguments. The first is what the caller says that the program is called.
    pub argv: &'a [HostPath],
    /// The manifest.
    pub manifest: Option<&'a Manifest>,
    /// The session.
    pub session: &'a str,
}

impl<'a> ExecFacts<'a> {
    /// This program is about to run with these arguments, in a session without a manifest.
    #[must_use]
    pub fn new(program: &'a HostPath, argv: &'a [HostPath]) -> Self {
        Self { program, argv, manifest: None, session: "" }
    }
}

/// Things that a watchdog wants to see, besides every call. Each has its price, paid by the sessions that it watches
/// and by no others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wants {
    /// Command lines, taken apart ([`CallFacts::line`]).
    pub lines: bool,
    /// Every program that is started ([`Watchdog::judge_exec`]). A session on a host that lets nobody trace is then refused.
    pub execs: bool,
}

impl Wants {
    /// Union of both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { lines: self.lines || other.lines, execs: self.execs || other.execs }
    }
}

/// Verdict of a watchdog (S0-59). In the order of their strength.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing against it. Not a grant (S0-60).
    Allow,
    /// A person must say yes.
    Ask(Reason),
    /// No.
    Deny(Reason),
}

/// Reason in words that the model is shown, and by which rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The rule's name.
    pub rule: String,
    /// A sentence for model and person.
    pub text: String,
}

impl Reason {
    /// For a model that meets it among other errors: with what refused.
    #[must_use]
    pub fn told(&self) -> String {
        format!("{} (watchdog rule `{}`)", self.text, self.rule)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.rule)
    }
}

/// Judges calls before they run. A call that it denies fails, and the reason goes to the model as a tool error (S0-59).
pub trait Watchdog {
    /// Judges one call.
    fn judge(&self, call: &CallFacts<'_>) -> Verdict;

    /// Things that it wants to see besides.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// Judges a program that is about to run, in sessions where somebody wants that. One that is denied is killed before its
    /// first instruction, and the call's result names it.
    fn judge_exec(&self, exec: &ExecFacts<'_>) -> Verdict {
        // A watchdog of calls alone has nothing to say.
        let _ = exec;
        Verdict::Allow
    }
}

impl Verdict {
    /// The stricter of two; the first of two that are equally strict.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Allow => 0,
            Self::Ask(_) => 1,
            Self::Deny(_) => 2,
        }
    }
}

/// Asks every watchdog; deny over ask over allow, so that adding one can only tighten (S0-60).
#[must_use]
pub fn judge_all(watchdogs: &[&dyn Watchdog], call: &CallFacts<'_>) -> Verdict {
    watchdogs.iter().map(|watchdog| watchdog.judge(call)).fold(Verdict::Allow, Verdict::stricter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(rule: &str) -> Reason {
        Reason { rule: rule.to_owned(), text: "because".to_owned() }
    }

    struct FixedVerdict(Verdict);

    impl Watchdog for FixedVerdict {
        fn judge(&self, _call: &CallFacts<'_>) -> Verdict {
            self.0.clone()
        }
    }

    /// S0-60: in any order, the strictest wins.
    #[test]
    fn the_strictest_verdict_wins() {
        let (allow, ask, deny) = (
            FixedVerdict(Verdict::Allow),
            FixedVerdict(Verdict::Ask(reason("a"))),
            FixedVerdict(Verdict::Deny(reason("d"))),
        );
        let (effects, root) = (Effects::default(), HostPath::from("/w"));
        let call = CallFacts {
            tool: "bash",
            subject: Subject::Execute,
            args: &Value::Null,
            effects: &effects,
            root: &root,
            manifest: None,
            session: "s",
            line: None,
        };
        assert_eq!(judge_all(&[], &call), Verdict::Allow);
        assert_eq!(judge_all(&[&allow, &ask], &call), Verdict::Ask(reason("a")));
        assert_eq!(judge_all(&[&ask, &allow], &call), Verdict::Ask(reason("a")));
        assert_eq!(judge_all(&[&deny, &ask, &allow], &call), Verdict::Deny(reason("d")));
        assert_eq!(judge_all(&[&allow, &ask, &deny], &call), Verdict::Deny(reason("d")));
    }
}
