//! Layer 2's watchdogs: every call is shown to them before it runs (S0-58).

use callgate_policy::mode::Mode;
use callgate_policy::plan::Watched;
use callgate_policy::watchdog::{Builtin, CallFacts, ExecFacts, Verdict, Wants, Watchdog};

use super::WatchdogProgram;

/// The watchdogs of a family of sessions. There are none without the built-in pack.
#[derive(Default)]
pub(crate) struct Watchdogs {
    /// The host's own, beside the built-in rules.
    own: Vec<Box<dyn Watchdog + Send + Sync>>,
    programs: Vec<WatchdogProgram>,
}

impl std::fmt::Debug for Watchdogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watchdogs({} of the host, {} programs)", self.own.len(), self.programs.len())
    }
}

impl Watchdogs {
    /// Adds a host's own watchdog. It can only tighten: the strictest verdict counts (S0-60).
    pub(crate) fn add(&mut self, watchdog: Box<dyn Watchdog + Send + Sync>) {
        self.own.push(watchdog);
    }

    /// Adds a host's own program, which is asked of each call that the others do not deny.
    pub(crate) fn add_program(&mut self, program: WatchdogProgram) {
        self.programs.push(program);
    }

    /// Union of what they want to see.
    pub(crate) fn wants(&self) -> Wants {
        let wants = self.own.iter().map(|watchdog| watchdog.wants());
        wants.chain(self.programs.iter().map(WatchdogProgram::wants)).fold(Wants::default(), Wants::or)
    }

    /// Who judges the programs that a session starts, if it wants them judged or one of these does.
    pub(crate) fn watched(&self, wanted: bool) -> Option<Watched> {
        let asked = !self.own.is_empty() || self.programs.iter().any(|program| program.wants().execs);
        let by = if asked { Watched::Watchdogs } else { Watched::Rules };
        (wanted || self.wants().execs).then_some(by)
    }

    /// Asks every watchdog; the strictest verdict counts.
    ///
    /// Where a mode asks about nothing (S1-16), the built-in rules only deny: what they ask about a person has allowed by that.
    pub(crate) async fn judge(&self, call: &CallFacts<'_>, mode: Mode) -> Verdict {
        let builtin = match Builtin.judge(call) {
            Verdict::Ask(_) if mode == Mode::Yolo => Verdict::Allow,
            verdict @ (Verdict::Allow | Verdict::Ask(_) | Verdict::Deny(_)) => verdict,
        };
        let each = self.own.iter().map(|watchdog| watchdog.judge(call));
        let mut verdict = each.fold(builtin, Verdict::stricter);
        for program in &self.programs {
            // What is denied already needs no process to say so.
            if matches!(verdict, Verdict::Deny(_)) {
                break;
            }
            verdict = verdict.stricter(program.judge(call).await);
        }
        verdict
    }

    /// Verdict about a program that is about to run.
    pub(crate) async fn judge_exec(&self, exec: &ExecFacts<'_>) -> Verdict {
        let each = self.own.iter().map(|watchdog| watchdog.judge_exec(exec));
        let mut verdict = each.fold(Builtin.judge_exec(exec), Verdict::stricter);
        for program in self.programs.iter().filter(|program| program.wants().execs) {
            if matches!(verdict, Verdict::Deny(_)) {
                break;
            }
            verdict = verdict.stricter(program.judge_exec(exec).await);
        }
        verdict
    }
}
