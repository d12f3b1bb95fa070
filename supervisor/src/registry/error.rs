//! Reasons why a tool cannot be registered.

use crate::origin::Origin;

/// A contract that cannot be published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Its parameters are not a JSON Schema.
    #[error("the parameters of {tool} are not a JSON Schema: {reason}")]
    Schema {
        /// Which tool.
        tool: String,
        /// Mistake.
        reason: String,
    },
    /// Its output schema is not a JSON Schema.
    #[error("the output schema of {tool} is not a JSON Schema: {reason}")]
    OutputSchema {
        /// Which tool.
        tool: String,
        /// Mistake.
        reason: String,
    },
    /// No such name: a model must be able to say it, and a rule to name it.
    #[error("a tool cannot be called {tool:?}: a name has 1 to 64 of a-z, A-Z, 0-9, `_` and `-`")]
    Name {
        /// The name.
        tool: String,
    },
    /// Names are flat (S1-4), and what is locked stays what it is (S0-24).
    #[error("there is a tool `{tool}` already ({origin})")]
    Taken {
        /// The name.
        tool: String,
        /// Where the one that has it comes from.
        origin: Origin,
    },
    /// A manifest offers a tool that is not there.
    #[error("the manifest offers the tool `{tool}`, which there is not; there are: {known}")]
    Unknown {
        /// The name.
        tool: String,
        /// Names that there are.
        known: String,
    },
    /// A manifest or a host asks for a tool outside the lock that is not there.
    #[error("there is no further tool `{tool}`; there are: {known}")]
    NotInTheCatalogue {
        /// The name.
        tool: String,
        /// Names that there are.
        known: String,
    },
    /// A manifest offers one of its agents a tool that is not there.
    #[error("the manifest offers its agent `{agent}` the tool `{tool}`, which there is not; there are: {known}")]
    UnknownToAgent {
        /// The agent.
        agent: String,
        /// The name.
        tool: String,
        /// Names that there are.
        known: String,
    },
    /// Its requirements cannot be compiled.
    #[error("the requirements of {tool}: {reason}")]
    Requires {
        /// Which tool.
        tool: String,
        /// Mistake.
        reason: String,
    },
}
