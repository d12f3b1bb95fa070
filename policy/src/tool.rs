//! Subject of a tool, as rules, profiles, modes and watchdogs see it.
//!
//! A tool says it of itself when it is registered. Nothing else about a call is decided by the text of a tool's name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Subject of a tool's calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Subject {
    /// Reads files that it names.
    Read,
    /// Searches trees.
    Search,
    /// Creates files, or writes them anew.
    Create,
    /// Changes files that are there.
    Edit,
    /// Starts programs.
    Execute,
    /// Fetches from hosts.
    Fetch,
    /// Queries a database.
    Query,
    /// Changes what a database holds.
    Mutate,
    /// Looks something up that the session itself knows, such as a skill.
    Think,
    /// Asks a person something.
    Ask,
    /// Keeps notes of the session's own, such as a list of what is to be done.
    Note,
    /// Has another agent do something.
    Delegate,
    /// Has a server do something, which is confined by itself, and was granted what it can do.
    Serve,
    /// Anything else: whoever does not know what a tool does takes it for one that changes things.
    #[default]
    Change,
}

impl Subject {
    /// The locked tools (S0-9) and what they are about.
    pub const LOCKED: [(&str, Self); 13] = [
        ("read", Self::Read),
        ("write", Self::Create),
        ("edit", Self::Edit),
        ("glob", Self::Search),
        ("grep", Self::Search),
        ("bash", Self::Execute),
        ("todo", Self::Note),
        ("task", Self::Delegate),
        ("question", Self::Ask),
        ("web_search", Self::Fetch),
        ("web_fetch", Self::Fetch),
        ("skill", Self::Think),
        ("tool_search", Self::Search),
    ];

    /// Subject of a locked tool; `None` for a name that is not locked.
    #[must_use]
    pub fn of_locked(name: &str) -> Option<Self> {
        Self::LOCKED.iter().find(|(locked, _)| *locked == name).map(|(_, subject)| *subject)
    }

    /// True if a call changes nothing outside the session, starts nothing and reaches nobody.
    #[must_use]
    pub fn changes_nothing(self) -> bool {
        match self {
            Self::Read | Self::Search | Self::Think | Self::Ask | Self::Note => true,
            Self::Create
            | Self::Edit
            | Self::Execute
            | Self::Fetch
            | Self::Query
            | Self::Mutate
            | Self::Delegate
            | Self::Serve
            | Self::Change => false,
        }
    }

    /// The most that a call may change outside the session, as far as the subject alone says.
    #[must_use]
    pub fn changes(self) -> Changes {
        match self {
            Self::Read | Self::Search | Self::Think | Self::Fetch => Changes::Nothing,
            // A query may be exported to a file that was not there.
            Self::Query => Changes::Adds,
            Self::Create
            | Self::Edit
            | Self::Execute
            | Self::Mutate
            | Self::Ask
            | Self::Note
            | Self::Delegate
            | Self::Serve
            | Self::Change => Changes::Anything,
        }
    }

    /// True if a call changes files by the tool's own hand, as the mode `auto-edit` allows (X3-2).
    #[must_use]
    pub fn edits(self) -> bool {
        matches!(self, Self::Create | Self::Edit)
    }

    /// The kind that an ACP host shows (X0-50).
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Search => "search",
            Self::Create | Self::Edit => "edit",
            Self::Execute | Self::Mutate => "execute",
            Self::Fetch | Self::Query => "fetch",
            Self::Think => "think",
            Self::Ask | Self::Note | Self::Delegate | Self::Serve | Self::Change => "other",
        }
    }
}

/// The most that calls of a tool may change, for whoever shows the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// They only read.
    Nothing,
    /// They make what was not there, and leave the rest as it is.
    Adds,
    /// They may change or remove what is there.
    Anything,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "reads files",
            Self::Search => "searches",
            Self::Create => "creates files",
            Self::Edit => "edits files",
            Self::Execute => "starts programs",
            Self::Fetch => "fetches",
            Self::Query => "queries a database",
            Self::Mutate => "changes a database",
            Self::Think => "looks things up in the session",
            Self::Ask => "asks a person",
            Self::Note => "keeps the session's notes",
            Self::Delegate => "has another agent work",
            Self::Serve => "has a server work",
            Self::Change => "changes things",
        })
    }
}

/// Under which names a session's tools are seen (C-22): a model calls them best by those that it was trained on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Surface {
    /// The locked names (S0-9).
    #[default]
    Locked,
    /// `read_file`, `exec_shell` and others (S2).
    Deepseek,
    /// `Read`, `Bash` and others, eight in all (S3).
    Engine,
    /// `read`, `list`, `read_excel` and others, and databases (S4).
    Rho,
}

impl Surface {
    /// The names in a manifest.
    pub const NAMES: [&str; 4] = ["locked", "deepseek", "engine", "rho"];

    /// Reads a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "locked" => Some(Self::Locked),
            "deepseek" => Some(Self::Deepseek),
            "engine" => Some(Self::Engine),
            "rho" => Some(Self::Rho),
            _ => None,
        }
    }

    /// Its name in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Locked => "locked",
            Self::Deepseek => "deepseek",
            Self::Engine => "engine",
            Self::Rho => "rho",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X0-50: the kind map of the locked tools, whole.
    #[test]
    fn x0_50_kinds_of_the_locked_tools() {
        let kinds: Vec<(&str, &str)> = Subject::LOCKED.iter().map(|(name, subject)| (*name, subject.kind())).collect();
        let expected = [
            ("read", "read"),
            ("write", "edit"),
            ("edit", "edit"),
            ("glob", "search"),
            ("grep", "search"),
            ("bash", "execute"),
            ("todo", "other"),
            ("task", "other"),
            ("question", "other"),
            ("web_search", "fetch"),
            ("web_fetch", "fetch"),
            ("skill", "think"),
            ("tool_search", "search"),
        ];
        assert_eq!(kinds, expected);
    }
}
