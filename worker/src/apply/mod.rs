//! The steps of confinement, each in a file of its own; `session` and `call` are their order.

pub(crate) mod call;
pub mod landlock;
pub mod limit;
pub(crate) mod mount;
pub(crate) mod namespace;
mod own;
pub(crate) mod privilege;
pub(crate) mod seen;
pub(crate) mod session;

use std::io;

use callgate_policy::envelope::StepReport;
use callgate_policy::step::Step;

use crate::protocol::{StepFailure, shortened};

impl StepFailure {
    /// This step failed at `what`, the operation and its object. A long text is shortened.
    #[must_use]
    pub fn new(step: Step, what: impl Into<String>) -> Self {
        Self { step, what: shortened(what.into()), errno: None }
    }

    /// With the kernel's answer, if it was the kernel's.
    #[must_use]
    pub fn errno(self, errno: Option<i32>) -> Self {
        Self { errno, ..self }
    }
}

/// A step that the kernel refused.
pub(crate) fn kernel(step: Step, what: impl Into<String>, source: io::Error) -> StepFailure {
    StepFailure { errno: source.raw_os_error(), ..StepFailure::new(step, what) }
}

/// Makes a function for `map_err` of it.
pub(crate) fn failure(step: Step, what: &str) -> impl FnOnce(io::Error) -> StepFailure {
    move |source| kernel(step, what, source)
}

/// A step that was done and confirmed.
pub(crate) fn done(step: Step, detail: impl Into<String>) -> StepReport {
    StepReport::new(step, detail)
}
