//! Notes of a session that are recorded with it: what its agent keeps with `todo`, `update_plan` and `tool_search`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Notes of a session, recorded for its next openings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Notes {
    pub(crate) todo: Vec<Todo>,
    pub(crate) plan: Plan,
    /// Deferred tools that were searched for.
    pub(crate) loaded: BTreeSet<String>,
}

/// Something that is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Todo {
    /// Text of the item.
    pub content: String,
    /// How far it is.
    pub status: TodoStatus,
}

/// How far something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// It is being done.
    InProgress,
    /// Done.
    Completed,
}

/// Plan of what a session means to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) explanation: Option<String>,
    pub(crate) plan: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) step: String,
    pub(crate) status: TodoStatus,
}
