//! The steps of confinement, each in a file of its own; `session` and `call` are their order.

pub(crate) mod call;
pub mod landlock;
pub mod limit;
pub(crate) mod mount;
pub(crate) mod namespace;
pub(crate) mod privilege;
mod seen;
pub(crate) mod session;

use std::io;

use callgate_policy::envelope::StepReport;

use crate::protocol::{StepFailure, shortened};

impl StepFailure {
    /// The step in which what is granted is compared with what the supervisor saw. That it fails says nothing of the host.
    pub const REPLACED: &'static str = "replaced";

    pub(crate) fn new(step: &str, what: impl Into<String>) -> Self {
        Self { step: step.to_owned(), what: shortened(what.into()), errno: None }
    }
}

/// A step that the kernel refused.
pub(crate) fn kernel(step: &str, what: impl Into<String>, source: io::Error) -> StepFailure {
    StepFailure { errno: source.raw_os_error(), ..StepFailure::new(step, what) }
}

/// The same, for `map_err`.
pub(crate) fn failure(step: &str, what: &str) -> impl FnOnce(io::Error) -> StepFailure {
    move |source| kernel(step, what, source)
}

/// A step that was done and confirmed.
pub(crate) fn done(step: &str, detail: impl Into<String>) -> StepReport {
    StepReport { step: step.to_owned(), detail: detail.into() }
}
