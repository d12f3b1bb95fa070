//! The confined side of callgate: launcher, broker, zygote and worker, and the tools that run inside.
//!
//! The worker decides nothing: it performs a plan, or stops and says which step failed.

pub mod apply;
mod broker;
pub mod directory;
mod family;
mod filters;
pub mod launcher;
pub mod probe;
mod procfs;
mod programs;
pub mod protocol;
pub mod seccomp;
pub mod sys;
pub mod tools;
mod watch;
mod worker;
mod zygote;
