//! How much of the suite is run, and what of it where that is not everything.

use std::thread;

/// How much of the suite is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuiteExtent {
    /// The run that every change must pass: a part of all users, hosts and repetitions.
    Ordinary,
    /// Everything (`.ci/test --full`).
    Full,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl SuiteExtent {
    /// Full if `CALLGATE_TESTS_FULL` is 1.
    pub fn of_this_run() -> Self {
        if variable("CALLGATE_TESTS_FULL").is_some_and(|value| value == "1") { Self::Full } else { Self::Ordinary }
    }
}

/// One of two numbers: of an ordinary run and of a full one.
pub fn repetitions<T>(ordinary: T, full: T) -> T {
    match SuiteExtent::of_this_run() {
        SuiteExtent::Ordinary => ordinary,
        SuiteExtent::Full => full,
    }
}

/// A number that is the test's and, with `CALLGATE_TESTS_SEED`, the commit's: the same each time the test is run again.
pub(crate) fn of_this_test() -> u64 {
    // A single test may run on the main thread, which is not named for it.
    let named = thread::current().name().filter(|&name| name != "main").map(str::to_owned);
    let test = variable("NEXTEST_TEST_NAME").or(named).unwrap_or_default();
    hash(&[&variable("CALLGATE_TESTS_SEED").unwrap_or_default(), &test])
}

/// FNV-1a, of which the same words give the same number with every compiler.
fn hash(words: &[&str]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn every_word_counts() {
        assert_eq!(hash(&["a", "b"]), hash(&["a", "b"]));
        assert_ne!(hash(&["a", "b"]), hash(&["b", "a"]));
        assert_ne!(hash(&["ab", ""]), hash(&["a", "b"]));
    }
}
