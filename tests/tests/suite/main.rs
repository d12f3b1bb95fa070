//! The suite: one behaviour per module, every denial with its control.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test reports by panicking"
)]

// The programs that the others rely on.
mod probe;
mod weaken;
