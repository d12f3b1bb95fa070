//! The contract of a tool, as data, which stands beside the tool's code.

use callgate_worker::toolset::Kind;

/// Contract of a tool: its name, what it needs, and what a model reads about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contract {
    /// The locked name (S0-9).
    pub name: &'static str,
    /// The capabilities that a call needs.
    pub requires: &'static [&'static str],
    /// Prose for the model.
    pub description: &'static str,
    /// JSON Schema 2020-12 of the arguments.
    pub schema: &'static str,
    /// JSON Schema 2020-12 of the result.
    pub output: &'static str,
    /// The system calls that it needs besides those of every tool.
    pub kind: Kind,
}
