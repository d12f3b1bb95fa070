//! The life of a call of a database tool: the driver of its database, and where the rows go.

use std::fs::File;

use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;
use callgate_policy::sql::Dialect;
use serde_json::{Map, Value};

use super::call::{DatabaseCall, Failed, Operation};
use super::rows::{Csv, ResultTable, Sink};
use super::secret::Secret;
use super::{mysql, postgres, sqlite};
use crate::write::WriteTarget;
use crate::{ToolContext, ToolError, ToolResult, name_path};

/// Rows of a query, if the call does not say (S4-18).
const ROWS: u64 = 100;

/// Runs the tool.
///
/// # Errors
/// A parameter that makes no sense, a statement that may not be run, or what the database says.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let asked = DatabaseCall::read(args, ctx)?;
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

impl DatabaseCall {
    /// The rows, in the result.
    fn answer(&self, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
        let most = usize::try_from(self.rows.unwrap_or(ROWS)).unwrap_or(usize::MAX);
        let mut table = ResultTable::new(most, ctx.limit / 2);
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
    fn export(&self, path: &HostPath, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
        let target = WriteTarget::of_new(path)?;
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

    /// By the database. How many rows were changed, by a statement that may.
    fn carry_out(&self, ctx: &ToolContext, sink: &mut dyn Sink) -> Result<Option<u64>, ToolError> {
        match self.connection.dialect {
            Dialect::Sqlite => sqlite::run(self, &ctx.path, sink),
            Dialect::Postgres => postgres::run(self, &ctx.certificates, sink),
            Dialect::Mysql => mysql::run(self, &ctx.certificates, sink),
        }
    }
}
