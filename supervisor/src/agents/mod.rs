//! Subagents: sessions that calls of another session have opened, and that work for it.
//!
//! `task` waits for its agent; the others are kept by an id ([`kept`]), and a life ([`life`]) is the same for both. What a child may
//! at most is said where sessions are opened (`session/child.rs`).

pub(crate) mod calls;
pub(crate) mod kept;
pub(crate) mod life;
mod program;
pub(crate) mod task;
pub(crate) mod tools;
pub(crate) mod work;
