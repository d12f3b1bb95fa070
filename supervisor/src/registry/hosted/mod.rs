//! The tools that the session itself answers.

mod task;

pub(super) use task::task;
