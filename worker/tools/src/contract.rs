//! The contract of a tool, as data, which stands beside the tool's code.

use std::time::Duration;

use callgate_policy::tool::Subject;
use callgate_policy::unit::ByteSize;
use callgate_worker::toolset::{SyscallNeed, ToolResult};
use serde_json::Value;

use super::{ToolContext, ToolError};

/// Contract of a tool: its name, what it needs, what a model reads about it, and what carries its calls out.
#[derive(Debug, Clone, Copy)]
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
    pub kind: SyscallNeed,
    /// Carries a call out, in a confined worker.
    pub run: ToolFunction,
    /// For a tool whose calls need one file or one tree: that is then all that the supervisor has to know of it. `None` for one
    /// whose calls it prepares in its own code.
    pub files: Option<FileNeed>,
}

/// Function that carries a call out.
pub type ToolFunction = fn(&Value, &ToolContext) -> Result<ToolResult, ToolError>;

/// Stands for the function of a tool that a build leaves out, with its feature. Such a build offers no call of it.
#[cfg(not(all(feature = "databases", feature = "git")))]
pub(super) fn left_out(_: &Value, _: &ToolContext) -> Result<ToolResult, ToolError> {
    Err(ToolError::UnknownTool { name: "one that this build leaves out".to_owned() })
}

/// Need of a tool that works on one file or one tree, which its argument `path` names.
#[derive(Debug, Clone, Copy)]
pub struct FileNeed {
    /// Use that a call makes of it.
    pub needs: Needs,
    /// How it is judged and bounded, if its name is outside the lock.
    pub outside: Option<Outside>,
}

/// Use that a call makes of its file or tree. Calls that change nothing run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Reads the file.
    Read,
    /// Writes the file, whatever is in it.
    Write,
    /// Reads the file and writes it.
    Change,
    /// Reads the files below the directory; the first root if none is named.
    Search,
    /// Tells the names of the files below the directory; the first root if none is named.
    List,
}

/// Tool outside the lock (S0-25).
#[derive(Debug, Clone, Copy)]
pub struct Outside {
    /// Subject of its calls, by which modes and profiles go.
    pub subject: Subject,
    /// Memory that a call may hold, if not the usual.
    pub memory: Option<ByteSize>,
    /// Time that a call may take, if not the usual.
    pub timeout: Option<Duration>,
}

impl FileNeed {
    /// Files of a locked tool.
    #[must_use]
    pub const fn locked(needs: Needs) -> Self {
        Self { needs, outside: None }
    }

    /// Files of a tool outside the lock, with the usual bounds.
    #[must_use]
    pub const fn outside(needs: Needs, subject: Subject) -> Self {
        Self { needs, outside: Some(Outside { subject, memory: None, timeout: None }) }
    }

    /// These, with bounds of their own.
    #[must_use]
    pub const fn bounded(self, memory: ByteSize, timeout: Duration) -> Self {
        let Some(outside) = self.outside else { return self };
        Self { outside: Some(Outside { memory: Some(memory), timeout: Some(timeout), ..outside }), ..self }
    }
}
