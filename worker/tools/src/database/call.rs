//! One call of a database tool: what it asks for, and how it may fail.

use std::net::IpAddr;

use callgate_policy::databases::TlsMode;
use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;
use callgate_policy::sql::{SqlKind, Statement};
use serde_json::{Map, Value};

use super::{CONNECTION, Connection, ServerConnection, check};
use crate::FileAct;
use crate::arguments::{integer, required_text, text};
use crate::{ToolContext, ToolError, ToolResult};

impl ServerConnection {
    /// True if its certificate has to be one that this host's authorities vouch for. A password would otherwise go to
    /// whoever answers. It goes by the name that was configured: each name has an address of the session's own here.
    pub(super) fn verifies(&self) -> bool {
        let is_here = || self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        match self.tls {
            TlsMode::Verify => true,
            TlsMode::Insecure => false,
            TlsMode::Prefer => self.password.is_some() && !is_here(),
        }
    }

    /// Reason why there is no connection.
    pub(super) fn unreached(&self, why: &str) -> Failed {
        let held = if self.verifies() && self.tls == TlsMode::Prefer {
            "; a password goes only to a server with a certificate that this host's authorities vouch for, unless whoever \
             configured it says `tls: insecure`"
        } else {
            ""
        };
        let why = format!("{}:{} was not reached: {why}{held}", self.host, self.port);
        Failed::because(why, ErrorCode::ToolExecutionFailed)
    }
}

/// One call.
pub(super) struct DatabaseCall {
    pub(super) connection: Connection,
    pub(super) operation: Operation,
    /// The most rows, if the call says.
    pub(super) rows: Option<u64>,
    /// Where the rows go, if that is a file.
    pub(super) output: Option<HostPath>,
}

/// Operation of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operation {
    Query { sql: String },
    Export { sql: String },
    ListTables { pattern: String, schema: Option<String> },
    Describe { table: String, schema: Option<String> },
}

/// Reason why it has no result.
#[derive(Debug)]
pub(super) enum Failed {
    /// In words.
    Because { why: String, code: ErrorCode },
    /// The rows could not be written.
    Sink(std::io::Error),
}

impl Failed {
    pub(super) fn because(why: impl Into<String>, code: ErrorCode) -> Self {
        Self::Because { why: why.into(), code }
    }
}

impl DatabaseCall {
    pub(super) fn read(args: &Value, ctx: &ToolContext) -> Result<Self, ToolError> {
        check(args).map_err(|(name, found)| ToolError::Argument { name, wants: "with its own operation", found })?;
        let wants = "what the supervisor says of it";
        let connection = serde_json::from_value(args[CONNECTION].clone());
        // What is wrong with it is not shown: it may hold a password.
        let connection = connection.map_err(|_hidden| ToolError::Argument {
            name: CONNECTION,
            wants,
            found: "something else".to_owned(),
        })?;
        let sql = || required_text(args, "sql").map(str::to_owned);
        let schema = text(args, "schema", "a string")?.map(str::to_owned);
        let operation = match required_text(args, "operation")? {
            "query" => Operation::Query { sql: sql()? },
            "export_query" => Operation::Export { sql: sql()? },
            "list_tables" => {
                let pattern = text(args, "table_pattern", "a string")?.unwrap_or("%");
                Operation::ListTables { pattern: pattern.replace('*', "%"), schema }
            }
            _ => Operation::Describe { table: required_text(args, "table_name")?.to_owned(), schema },
        };
        let exports = matches!(operation, Operation::Export { .. });
        let rows = integer(args, "row_limit", 1, "a whole number of at least 1")?;
        let output = ctx.paths.last().filter(|_| exports).cloned();
        Ok(Self { connection, operation, rows, output })
    }

    pub(super) fn output(&self, mut data: Map<String, Value>, is_cut: bool) -> ToolResult {
        let operation = match self.operation {
            Operation::Query { .. } => "query",
            Operation::Export { .. } => "export_query",
            Operation::ListTables { .. } => "list_tables",
            Operation::Describe { .. } => "describe",
        };
        data.insert("database".to_owned(), self.connection.database.clone().into());
        data.insert("operation".to_owned(), operation.into());
        data.insert("untrusted".to_owned(), true.into());
        ToolResult::of(Value::Object(data), is_cut)
    }

    /// Judges whether a statement may be run here.
    pub(super) fn judge(&self, statement: &Statement) -> Result<SqlKind, ToolError> {
        let refused = |why: String| Err(self.failed(Failed::because(why, ErrorCode::Forbidden)));
        let verb = &statement.verb;
        match statement.kind {
            SqlKind::Reads => Ok(SqlKind::Reads),
            SqlKind::Neither => {
                refused(format!("{verb} is for no call: a query reads, and a change changes what tables hold or are"))
            }
            SqlKind::Changes if matches!(self.operation, Operation::Export { .. }) => {
                refused(format!("{verb} changes something, and export_query reads"))
            }
            SqlKind::Changes if !self.connection.changes => {
                refused(format!("{verb} changes something, and databases are read-only here"))
            }
            SqlKind::Changes => Ok(SqlKind::Changes),
        }
    }

    pub(super) fn failed(&self, failed: Failed) -> ToolError {
        match (failed, &self.output) {
            (Failed::Because { why, code }, _) => ToolError::Remote { what: self.name(), why, code },
            (Failed::Sink(source), Some(path)) => ToolError::File { act: FileAct::Write, path: path.clone(), source },
            (Failed::Sink(source), None) => {
                ToolError::Remote { what: self.name(), why: source.to_string(), code: ErrorCode::ToolExecutionFailed }
            }
        }
    }

    /// For messages.
    fn name(&self) -> String {
        format!("{} {}", self.connection.dialect.tool(), self.connection.database.escape_debug())
    }
}
