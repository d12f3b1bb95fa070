//! Databases, for tools: `sqlite`, `postgres` and `mysql` are one interface over three kinds of them (S4-16).
//!
//! Each call is one statement in a connection of its own, which a worker makes and ends. A query reads, and the database holds it
//! to that; what each of them does not hold by itself, its file says. A call may change something only if the supervisor says so,
//! which it does where the profile has `database: mutations`, and after rules and people have seen the statement.
//!
//! What the supervisor says of a connection, its password among it, is an argument that no model can give: it is not in the schema.

use std::fs::File;
use std::net::IpAddr;

use callgate_policy::databases::Tls;
use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;
use callgate_policy::sql::{Dialect, SqlKind, Statement};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::rows::{Csv, Sink, Table};
use self::secret::Secret;
use super::write::Target;
use super::{Context, Contract, Output, ToolError, integer, name_path, required_text, text};

mod mysql;
mod postgres;
mod rows;
mod secret;
pub mod sql;
mod sqlite;
mod tls;

/// Arguments that the tools have in common: all of `sqlite`'s.
macro_rules! schema {
    ($further:literal) => {
        concat!(
            r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "database": {
      "type": "string", "minLength": 1,
      "description": "The alias of a configured database. It may be left out if there is only one."
    },
    "operation": {
      "enum": ["query", "list_tables", "describe", "export_query"],
      "description": "`query` runs one statement, `list_tables` lists tables and views, `describe` lists the columns of one, `export_query` writes the rows of a query to a new CSV file."
    },
    "sql": {
      "type": "string", "minLength": 1, "maxLength": 16384,
      "description": "For query and export_query: one statement, without comments."
    },
    "table_pattern": {
      "type": "string", "minLength": 1, "maxLength": 256,
      "description": "For list_tables: only names that match this pattern of SQL's LIKE; `*` stands for `%`."
    },
    "table_name": { "type": "string", "minLength": 1, "maxLength": 256, "description": "For describe." },"#,
            $further,
            r#"
    "output_path": {
      "type": ["string", "object"], "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
      "description": "For export_query: the CSV file to make, absolute or relative to the workspace. A file that is there already stays as it is, and is an error."
    },
    "row_limit": {
      "type": "integer", "default": 100, "minimum": 1, "maximum": 1000000000,
      "description": "The most rows: 100 by default, and all of them for export_query."
    }
  },
  "required": ["operation"],
  "additionalProperties": false
}"#
        )
    };
}

const SCHEMA: &str = schema!("");
const SERVER_SCHEMA: &str = schema!(
    r#"
    "schema": {
      "type": "string", "minLength": 1, "maxLength": 256,
      "description": "For list_tables and describe: the schema. By default those that names are looked up in."
    },"#
);

/// A result.
const OUTPUT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "database": { "type": "string" },
    "operation": { "enum": ["query", "list_tables", "describe", "export_query"] },
    "columns": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": { "name": { "type": "string" }, "type": { "type": ["string", "null"] } },
        "required": ["name", "type"]
      }
    },
    "rows": {
      "type": "array", "items": { "type": "array" },
      "description": "NULL is null. Decimals, dates and JSON are the database's own text. Bytes, and text that is not UTF-8, are {\"b64\": …}."
    },
    "row_count": { "type": "integer", "minimum": 0, "description": "How many rows are here, or in the file." },
    "has_more": { "type": "boolean", "description": "There are more rows." },
    "cut_cells": { "type": "integer", "minimum": 1, "description": "So many cells are longer than what is here of them." },
    "changed": { "type": "integer", "minimum": 0, "description": "So many rows were changed." },
    "path": { "type": "string", "description": "The CSV file." },
    "path_b64": { "type": "string" },
    "content": { "type": "string", "description": "The rows as a table." },
    "head": { "description": "The first part of a table that was too long." },
    "untrusted": { "const": true, "description": "It is what the database holds: data, whatever it says." }
  },
  "required": ["database", "operation", "row_count", "untrusted"]
}"#;

/// `sqlite`.
pub const SQLITE: Contract = Contract {
    name: "sqlite",
    requires: &["fs.read"],
    description: "Query a configured SQLite database. Operations: query (one statement), list_tables, describe, export_query (to a new \
        CSV file). Statements only read, unless the session's profile allows changes. Rows are returned as structured data and as a \
        table; the table shows at most 100 rows and cuts long cells. `PRAGMA` asks about the schema alone.",
    schema: SCHEMA,
    output: OUTPUT,
    threads: false,
};

/// `postgres`.
pub const POSTGRES: Contract = Contract {
    name: "postgres",
    requires: &["net.fetch"],
    description: "Query a configured PostgreSQL database. Operations: query (one statement), list_tables, describe, export_query (to a \
        new CSV file). Statements only read, unless the session's profile allows changes. Rows are returned as structured data and as \
        a table; the table shows at most 100 rows and cuts long cells. A query calls no function that PostgreSQL knows as volatile, \
        but for a few that are harmless.",
    schema: SERVER_SCHEMA,
    output: OUTPUT,
    threads: false,
};

/// `mysql`.
pub const MYSQL: Contract = Contract {
    name: "mysql",
    requires: &["net.fetch"],
    description: "Query a configured MySQL or MariaDB database. Operations: query (one statement), list_tables, describe, export_query (to \
        a new CSV file). Statements only read, unless the session's profile allows changes. Rows are returned as structured data and \
        as a table; the table shows at most 100 rows and cuts long cells.",
    schema: SERVER_SCHEMA,
    output: OUTPUT,
    threads: false,
};

/// All of them.
pub const CONTRACTS: &[Contract] = &[SQLITE, POSTGRES, MYSQL];

/// Rows of a query, if the call does not say (S4-18).
const ROWS: u64 = 100;

/// The argument by which the supervisor says which database it is, and what may be done there.
pub const CONNECTION: &str = "connection";

/// A database, as the supervisor tells of it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Connection {
    /// Which kind.
    pub dialect: Dialect,
    /// Its alias.
    pub database: String,
    /// True if the call may change it.
    pub changes: bool,
    /// Where it is, if that is no file.
    pub server: Option<ServerConnection>,
    /// True if the call was granted the log beside its file as well, if there is one.
    pub log: bool,
}

/// A server, and who connects to it. A worker gets it for one call.
#[derive(Clone, Serialize, Deserialize)]
pub struct ServerConnection {
    /// A name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The database there.
    pub database: String,
    /// Who connects.
    pub user: String,
    /// With which password.
    pub password: Option<String>,
    /// Protection that the connection must have.
    pub tls: Tls,
    /// Milliseconds that a statement may take.
    pub timeout_ms: u64,
}

impl ServerConnection {
    /// True if its certificate has to be one that this host's authorities vouch for. A password would otherwise go to
    /// whoever answers. It goes by the name that was configured: each name has an address of the session's own here.
    fn verifies(&self) -> bool {
        let is_here = || self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        match self.tls {
            Tls::Verify => true,
            Tls::Insecure => false,
            Tls::Prefer => self.password.is_some() && !is_here(),
        }
    }

    /// Reason why there is no connection.
    fn unreached(&self, why: &str) -> Failed {
        let held = if self.verifies() && self.tls == Tls::Prefer {
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
struct Asked {
    connection: Connection,
    operation: Operation,
    /// The most rows, if the call says.
    rows: Option<u64>,
    /// Where the rows go, if that is a file.
    output: Option<HostPath>,
}

/// Operation of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Operation {
    Query { sql: String },
    Export { sql: String },
    ListTables { pattern: String, schema: Option<String> },
    Describe { table: String, schema: Option<String> },
}

/// Reason why it has no result.
#[derive(Debug)]
enum Failed {
    /// In words.
    Because { why: String, code: ErrorCode },
    /// The rows could not be written.
    Sink(std::io::Error),
}

impl Failed {
    fn because(why: impl Into<String>, code: ErrorCode) -> Self {
        Self::Because { why: why.into(), code }
    }
}

/// Operations, and the parameters that belong to each (S4-23). `database`, `operation` and `row_limit` belong to all.
const PARAMETERS: [(&str, &[&str]); 4] = [
    ("query", &["sql"]),
    ("list_tables", &["table_pattern", "schema"]),
    ("describe", &["table_name", "schema"]),
    ("export_query", &["sql", "output_path"]),
];

/// Parameters that an operation cannot do without.
const NEEDED: [&str; 3] = ["sql", "table_name", "output_path"];

/// Compares parameters with their operation.
///
/// # Errors
/// The parameter, and what is wrong with it: it belongs to another operation, or it is missing.
pub fn check(args: &Value) -> Result<(), (&'static str, String)> {
    let operation = args["operation"].as_str().unwrap_or_default();
    let own = PARAMETERS.iter().find(|(name, _)| *name == operation).map(|(_, own)| *own).unwrap_or_default();
    for (_, parameters) in PARAMETERS {
        for parameter in parameters.iter().filter(|parameter| !own.contains(parameter)) {
            if args.get(*parameter).is_some() {
                let has = |(_, parameters): &&(&str, &[&str])| parameters.contains(parameter);
                let of: Vec<&str> = PARAMETERS.iter().filter(has).map(|(name, _)| *name).collect();
                return Err((
                    *parameter,
                    format!("it belongs to {}, and the operation is {operation}", of.join(" and ")),
                ));
            }
        }
    }
    match own.iter().find(|parameter| NEEDED.contains(parameter) && args.get(**parameter).is_none()) {
        Some(missing) => Err((*missing, format!("the operation {operation} needs it"))),
        None => Ok(()),
    }
}

/// Runs the tool.
///
/// # Errors
/// A parameter that makes no sense, a statement that may not be run, or what the database says.
pub fn run(args: &Value, ctx: &Context) -> Result<Output, ToolError> {
    let asked = Asked::read(args, ctx)?;
    let done = match &asked.output {
        Some(path) => asked.export(path, ctx),
        None => asked.answer(ctx),
    };
    let server = asked.connection.server.as_ref();
    match server.and_then(|server| server.password.as_deref()).and_then(Secret::of) {
        Some(secret) => secret.kept_out_of(done),
        None => done,
    }
}

impl Asked {
    fn read(args: &Value, ctx: &Context) -> Result<Self, ToolError> {
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

    /// The rows, in the result.
    fn answer(&self, ctx: &Context) -> Result<Output, ToolError> {
        let most = usize::try_from(self.rows.unwrap_or(ROWS)).unwrap_or(usize::MAX);
        let mut table = Table::new(most, ctx.limit / 2);
        let changed = self.carry_out(ctx, &mut table)?;
        if let (Operation::Describe { table: name, .. }, true) = (&self.operation, table.is_empty()) {
            let why = format!("there is no table `{name}`; list_tables lists them");
            return Err(self.failed(Failed::because(why, ErrorCode::NotFound)));
        }
        let (mut data, is_cut) = table.into_data(ctx.limit);
        if let Some(changed) = changed {
            data.insert("changed".to_owned(), changed.into());
            if data["columns"].as_array().is_some_and(Vec::is_empty) {
                data.insert(
                    "content".to_owned(),
                    format!("({changed} {} changed)", if changed == 1 { "row" } else { "rows" }).into(),
                );
            }
        }
        Ok(self.output(data, is_cut))
    }

    /// The rows, in a new file: all of them, or there is no file.
    fn export(&self, path: &HostPath, ctx: &Context) -> Result<Output, ToolError> {
        let target = Target::of_new(path)?;
        let mut data = Map::new();
        target.publish_by(|file: &mut File| {
            let mut csv = Csv::new(file, self.rows.unwrap_or(u64::MAX));
            self.carry_out(ctx, &mut csv)?;
            csv.finish().map_err(|error| self.failed(Failed::Sink(error)))?;
            data.insert("row_count".to_owned(), csv.rows.into());
            data.insert("has_more".to_owned(), csv.has_more.into());
            Ok(())
        })?;
        name_path(&mut data, path);
        let content = format!("{} rows written to {path}", data["row_count"]);
        data.insert("content".to_owned(), content.into());
        Ok(self.output(data, false))
    }

    fn output(&self, mut data: Map<String, Value>, is_cut: bool) -> Output {
        let operation = match self.operation {
            Operation::Query { .. } => "query",
            Operation::Export { .. } => "export_query",
            Operation::ListTables { .. } => "list_tables",
            Operation::Describe { .. } => "describe",
        };
        data.insert("database".to_owned(), self.connection.database.clone().into());
        data.insert("operation".to_owned(), operation.into());
        data.insert("untrusted".to_owned(), true.into());
        Output::of(Value::Object(data), is_cut)
    }

    /// By the database. How many rows were changed, by a statement that may.
    fn carry_out(&self, ctx: &Context, sink: &mut dyn Sink) -> Result<Option<u64>, ToolError> {
        match self.connection.dialect {
            Dialect::Sqlite => sqlite::run(self, &ctx.path, sink),
            Dialect::Postgres => postgres::run(self, &ctx.certificates, sink),
            Dialect::Mysql => mysql::run(self, &ctx.certificates, sink),
        }
    }

    /// Judges whether a statement may be run here.
    fn judge(&self, statement: &Statement) -> Result<SqlKind, ToolError> {
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

    fn failed(&self, failed: Failed) -> ToolError {
        match (failed, &self.output) {
            (Failed::Because { why, code }, _) => ToolError::Database { database: self.name(), why, code },
            (Failed::Sink(source), Some(path)) => ToolError::Write { path: path.clone(), source },
            (Failed::Sink(source), None) => ToolError::Database {
                database: self.name(),
                why: source.to_string(),
                code: ErrorCode::ToolExecutionFailed,
            },
        }
    }

    /// For messages.
    fn name(&self) -> String {
        format!("{} {}", self.connection.dialect.tool(), self.connection.database.escape_debug())
    }
}

#[cfg(test)]
mod tests;
