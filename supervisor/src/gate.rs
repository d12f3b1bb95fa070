//! Layer 2: every call is shown to the watchdogs before it runs (S0-58).

mod program;

use callgate_policy::watchdog::{self, CallFacts, Verdict, Watchdog};

pub use program::{WatchdogProgram, WatchdogProgramError};

/// The watchdogs of a session. There is no gate without the built-in pack.
pub struct Gate {
    watchdogs: Vec<Box<dyn Watchdog + Send + Sync>>,
    programs: Vec<WatchdogProgram>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gate({} watchdogs, {} programs)", self.watchdogs.len(), self.programs.len())
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self { watchdogs: vec![Box::new(watchdog::Builtin)], programs: Vec::new() }
    }
}

impl Gate {
    /// Adds a host's own watchdog. It can only tighten: the strictest verdict counts (S0-60).
    pub fn add(&mut self, watchdog: Box<dyn Watchdog + Send + Sync>) {
        self.watchdogs.push(watchdog);
    }

    /// Adds a host's own program, which is asked of each call that the others do not deny.
    pub fn add_program(&mut self, program: WatchdogProgram) {
        self.programs.push(program);
    }

    /// Asks every watchdog; the strictest verdict counts.
    pub(crate) async fn judge(&self, call: &CallFacts<'_>) -> Verdict {
        let mut verdict = {
            let watchdogs: Vec<&(dyn Watchdog + Send + Sync)> = self.watchdogs.iter().map(AsRef::as_ref).collect();
            watchdogs.iter().map(|watchdog| watchdog.judge(call)).fold(Verdict::Allow, Verdict::stricter)
        };
        for program in &self.programs {
            // What is denied already needs no process to say so.
            if matches!(verdict, Verdict::Deny(_)) {
                break;
            }
            verdict = verdict.stricter(program.judge(call).await);
        }
        verdict
    }
}
