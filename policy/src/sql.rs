//! Effects of a statement in SQL, as far as its words say it: for rules, watchdogs and people, and for what its call needs.
//!
//! A worker reads the words (a model wrote them). Its answer decides what layer 2 says and what a call is granted. That a call which
//! reads does not write is for the database to hold, and for the kernel.

use serde::{Deserialize, Serialize};

/// The longest statement, bytes: rules and people see all of it.
pub const SQL_MAX: usize = 16 * 1024;

/// Whose SQL it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// SQLite's.
    Sqlite,
    /// PostgreSQL's.
    Postgres,
    /// MySQL's and MariaDB's.
    Mysql,
}

impl Dialect {
    /// The name of its tool.
    #[must_use]
    pub fn tool(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }
}

/// Effect of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SqlKind {
    /// It reads.
    Reads,
    /// It changes what the database holds (S4-16).
    Changes,
    /// It does something else, and no call may.
    Neither,
}

/// One statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// Effect of it.
    pub kind: SqlKind,
    /// Its first words, in capitals: `SELECT`, `DELETE`, `SELECT FOR UPDATE`.
    pub verb: String,
    /// All of it, with one blank between two words and with its keywords in capitals. What is in quotes is there to the byte.
    pub text: String,
}
