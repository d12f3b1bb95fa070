//! Layer 2: every call is shown to the watchdogs before it runs (S0-58).

use callgate_policy::watchdog::{self, CallFacts, Verdict, Watchdog};

/// The watchdogs of a session. There is no gate without the built-in pack.
pub struct Gate {
    watchdogs: Vec<Box<dyn Watchdog + Send + Sync>>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gate({} watchdogs)", self.watchdogs.len())
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self { watchdogs: vec![Box::new(watchdog::Builtin)] }
    }
}

impl Gate {
    /// Adds a host's own watchdog. It can only tighten: the strictest verdict counts (S0-60).
    pub fn add(&mut self, watchdog: Box<dyn Watchdog + Send + Sync>) {
        self.watchdogs.push(watchdog);
    }

    /// Asks every watchdog; the strictest verdict counts.
    pub(crate) fn judge(&self, call: &CallFacts<'_>) -> Verdict {
        let watchdogs: Vec<&dyn Watchdog> = self.watchdogs.iter().map(|w| w.as_ref() as &dyn Watchdog).collect();
        watchdog::judge_all(&watchdogs, call)
    }
}
