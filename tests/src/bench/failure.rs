//! Reason why nothing was measured.

use std::error::Error;
use std::fmt;
use std::io;

use callgate::with_causes;

/// A text with its causes: nobody but a person reads it.
#[derive(Debug)]
pub(crate) struct BenchFailure(String);

impl BenchFailure {
    /// Something that is to be measured does not run.
    pub(crate) fn of(subject: &str, reason: impl fmt::Display) -> Self {
        Self(format!("measure {subject}: {reason}"))
    }

    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

impl<E: Error> From<E> for BenchFailure {
    fn from(error: E) -> Self {
        Self(with_causes(&error))
    }
}

impl fmt::Display for BenchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
