//! The harness of the suite: what a test needs to attack callgate, and to show that the same act works bare.
//!
//! A test asks for the hosts it is about ([`matrix`]), makes a [`TestEnv`] on each, and runs acts of the `probe` program
//! there: [`TestEnv::bare`] for the control, [`TestEnv::sandbox`] for the claim. A [`Probe`] that was not really tried
//! fails either assertion, so no test passes because a program was missing or a path misspelt.
#![allow(clippy::panic, clippy::unwrap_used, reason = "this library is part of tests, where a panic is the report")]

mod binaries;
mod dice;
mod environment;
mod extent;
mod host;
pub mod mcp;
mod person;
pub mod projects;
mod random_rules;
mod run;
mod skips;

pub use callgate_worker::probe::errno;

pub use binaries::Binaries;
pub use dice::Dice;
pub use environment::{Bystander, TestEnv, TestFile, condition_of, eventually, parent_of};
pub use extent::{SuiteExtent, repetitions};
pub use host::{Host, Target, User, matrix, matrix_as};
pub use person::UserShell;
pub use random_rules::random_rules;
pub use run::{Probe, ProgramOutcome, ProgramRunner};
pub use skips::skip;
