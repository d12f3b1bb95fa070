//! Searches of a session: whom it asks, and how often.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use callgate_policy::manifest::{self, Provider};
use sha2::{Digest as _, Sha256};

/// Searches, and how many there have been.
#[derive(Debug)]
pub(crate) struct Searches {
    pub(super) search: manifest::Search,
    made: AtomicU64,
}

impl Searches {
    pub(crate) fn new(search: manifest::Search) -> Self {
        Self { search, made: AtomicU64::new(0) }
    }

    /// So many were made before.
    pub(super) fn have_been(&self, times: u64) {
        self.made.store(times, Ordering::Relaxed);
    }

    /// How long a call may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.search.timeout
    }

    /// How many can be asked.
    pub(crate) fn providers(&self) -> usize {
        self.search.providers.len()
    }

    /// Counts a call. The error is the sentence of one too many (S0-35).
    pub(crate) fn count(&self) -> Result<(), String> {
        let most = self.search.calls;
        let counted =
            self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |made| (made < most).then_some(made + 1));
        counted.map(drop).map_err(|_all| self.all_made())
    }

    /// Check of one that is not made yet, before anybody is asked about it.
    pub(crate) fn has_room(&self) -> Result<(), String> {
        if self.made.load(Ordering::Relaxed) < self.search.calls { Ok(()) } else { Err(self.all_made()) }
    }

    fn all_made(&self) -> String {
        let most = self.search.calls;
        format!("this session has made its {most} searches (`calls` in [net.search]); work with what was found")
    }

    /// Whom a session asks, after so many others. Each begins with another one, and always with the same (S0-34).
    pub(crate) fn provider(&self, session: &str, hop: usize) -> Option<&Provider> {
        let providers = &self.search.providers;
        let digest = Sha256::digest(session.as_bytes());
        let number = digest.iter().take(4).fold(0_usize, |number, byte| number << 8 | usize::from(*byte));
        let first = number.checked_rem(providers.len())?;
        providers.iter().cycle().skip(first).take(providers.len()).nth(hop)
    }
}
