//! What a tool call may do, decided without touching the machine.
//!
//! This crate is pure: no files, no clock, no environment, no system calls. The supervisor reads files and asks the
//! kernel, and hands *values* in; what comes out is plain data that a worker performs.
//!
//! The flow, one type per stage:
//!
//! ```text
//! Manifest ─parse→ RequirementSet ─┐
//! tools' `requires` ───────────────┴union→ declared ─narrow→ EffectiveSet ─check→ CallGrant ─compile→ plan
//! ```
#![forbid(unsafe_code)]

pub mod effective;
pub mod envelope;
pub mod manifest;
pub mod mode;
pub mod path;
pub mod pattern;
pub mod plan;
pub mod profile;
pub mod requirement;
pub mod rules;
pub mod variable;
