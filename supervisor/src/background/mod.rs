//! Programs that a call has started and not waited for: their tools, the calls about them, and what is kept of them.

pub(crate) mod calls;
pub(crate) mod kept;
pub(crate) mod tools;
pub(crate) mod typed;
