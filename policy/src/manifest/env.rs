//! `[env]`: the environment of programs.

use std::collections::BTreeMap;

/// The environment of programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Env {
    /// Names to take over from the supervisor's environment.
    pub pass: Vec<String>,
    /// Names with their values.
    pub set: BTreeMap<String, String>,
}
