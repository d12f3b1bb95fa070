//! SQLite, in the worker itself.
//!
//! A connection that reads is held to that three times: the file is opened for reading, `query_only` is on, and an authorizer
//! lets SQLite compile nothing but reading. The kernel holds it a fourth time: the call was granted the file to read. A connection
//! that changes compiles no `ATTACH` and no setting, so that it reaches no other file.
#![expect(clippy::wildcard_enum_match_arm, reason = "what a library adds to its enums is refused")]

use std::time::Duration;

use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;
use callgate_policy::sql::{Dialect, SqlKind};
use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, ErrorCode as Primary, OpenFlags, Statement, ffi};
use rustix::fs::{Mode, OFlags};

use super::call::{DatabaseCall, Failed, Operation};
use super::rows::{Cell, Column, RowWish, Sink};
use super::sql::{PRAGMAS, Sql};
use crate::FileAct;
use crate::{FileKind, ToolError};

/// How long it waits for somebody who writes.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that SQLite itself may use.
const HEAP: i64 = 256 << 20;
/// The longest value, bytes.
const VALUE: i32 = 64 << 20;

/// Functions that do more than work something out.
const REFUSED: [&str; 3] = ["load_extension", "fts3_tokenizer", "sqlite_log"];

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    Reading,
    Changing,
}

/// Carries out one operation on the file.
///
/// # Errors
/// What SQLite says, in words.
pub(super) fn run(asked: &DatabaseCall, path: &HostPath, sink: &mut dyn Sink) -> Result<Option<u64>, ToolError> {
    let failed = |failed: Failed| asked.failed(failed);
    let purpose = match &asked.operation {
        Operation::Query { sql } | Operation::Export { sql } => {
            match asked.judge(&Sql::read(Dialect::Sqlite, sql)?.statement)? {
                SqlKind::Reads => For::Reading,
                SqlKind::Changes | SqlKind::Neither => For::Changing,
            }
        }
        Operation::ListTables { .. } | Operation::Describe { .. } => For::Reading,
    };
    let has_log = require_file(path)?;
    if has_log && !asked.connection.log {
        let why = "it is in WAL mode, where the newest rows are in a log beside it, and the log is not granted; grant the \
                   directory, or the files with `-wal` and `-shm` at the end of their names as well";
        return Err(failed(Failed::because(why, ErrorCode::Forbidden)));
    }
    let connection = open(path, purpose).map_err(|error| failed(words(&error)))?;
    match &asked.operation {
        Operation::Query { sql } | Operation::Export { sql } => {
            let changed = query(&connection, sql, &[], sink).map_err(failed)?;
            Ok((purpose == For::Changing).then_some(changed))
        }
        Operation::ListTables { pattern, .. } => {
            query(&connection, TABLES, &[pattern], sink).map_err(failed)?;
            Ok(None)
        }
        Operation::Describe { table, .. } => {
            query(&connection, COLUMNS, &[table], sink).map_err(failed)?;
            Ok(None)
        }
    }
}

const TABLES: &str = "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') \
    AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name LIKE ?1 ORDER BY name";

const COLUMNS: &str = "SELECT name AS column_name, type AS data_type, CASE \"notnull\" WHEN 0 THEN 'YES' ELSE 'NO' END AS is_nullable, \
    dflt_value AS column_default, pk AS primary_key FROM pragma_table_xinfo(?1)";

/// Where a database's header says whether it has a log (SQLite's database file format, "File format version numbers").
const VERSIONS: u64 = 18;
/// Value that it has then.
const WAL: u8 = 2;

/// A FIFO would keep SQLite waiting for somebody who writes to it. Whether it is in WAL mode.
fn require_file(path: &HostPath) -> Result<bool, ToolError> {
    let failed = |e: rustix::io::Errno| ToolError::File { act: FileAct::Open, path: path.clone(), source: e.into() };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path.as_path(), flags, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    match FileKind::of_other(stat.st_mode) {
        None => {
            let mut versions = [0; 2];
            let read = rustix::io::pread(&file, &mut versions, VERSIONS).map_err(failed)?;
            Ok(read == versions.len() && versions.contains(&WAL))
        }
        Some(what) => Err(ToolError::NotRegular { path: path.clone(), what }),
    }
}

pub(super) fn open(path: &HostPath, purpose: For) -> Result<Connection, Error> {
    let access = match purpose {
        For::Reading => OpenFlags::SQLITE_OPEN_READ_ONLY,
        For::Changing => OpenFlags::SQLITE_OPEN_READ_WRITE,
    };
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = ready(Connection::open_with_flags(path.as_path(), flags)?, purpose)?;
    match looked(&connection) {
        // Beside a database in WAL mode SQLite would make an index of the log, which only a writer may. There is none where nobody
        // has the file open: so nobody is kept out.
        Err(error) if purpose == For::Reading && is_primary(&error, Primary::CannotOpen) => alone(path, flags),
        result => result.map(|()| connection),
    }
}

/// Opens a database in WAL mode that nobody else has open: without locks, with an index of its log in memory; or as it is, if it
/// has no log.
fn alone(path: &HostPath, flags: OpenFlags) -> Result<Connection, Error> {
    let log = [path.as_bytes(), b"-wal"].concat();
    let connection = if rustix::fs::stat(log.as_slice()).is_ok_and(|log| log.st_size > 0) {
        let connection = Connection::open_with_flags_and_vfs(path.as_path(), flags, c"unix-none")?;
        connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE")?;
        connection
    } else {
        Connection::open_with_flags(immutable(path), flags | OpenFlags::SQLITE_OPEN_URI)?
    };
    let connection = ready(connection, For::Reading)?;
    looked(&connection)?;
    Ok(connection)
}

/// The file's URI, as one that nobody changes.
fn immutable(path: &HostPath) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte);
    let spelt = |&byte: &u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    format!("file:{}?immutable=1", path.as_bytes().iter().map(spelt).collect::<String>())
}

/// Settled before a word of a model's is compiled.
fn ready(mut connection: Connection, purpose: For) -> Result<Connection, Error> {
    connection.busy_timeout(PATIENCE)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, false)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE)?;
    let mut settings = format!(
        "PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0; PRAGMA cell_size_check = ON; PRAGMA hard_heap_limit = {HEAP};"
    );
    if purpose == For::Reading {
        settings.push_str("PRAGMA query_only = ON;");
    }
    connection.execute_batch(&settings)?;
    connection.authorizer(Some(move |context: AuthContext<'_>| authorized(purpose, &context.action)))?;
    Ok(connection)
}

/// Reads the first page.
fn looked(connection: &Connection) -> Result<(), Error> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_row| Ok(()))
}

/// Permission for SQLite to compile. It asks about each part of a statement, those of views and triggers included.
fn authorized(purpose: For, action: &AuthAction<'_>) -> Authorization {
    let allowed = match action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => {
            !REFUSED.iter().any(|refused| refused.eq_ignore_ascii_case(function_name))
        }
        AuthAction::Pragma { pragma_name, pragma_value } => {
            PRAGMAS.iter().any(|known| known.eq_ignore_ascii_case(pragma_name))
                && (pragma_value.is_none() || asks_about(pragma_name))
        }
        AuthAction::Insert { .. }
        | AuthAction::Update { .. }
        | AuthAction::Delete { .. }
        | AuthAction::CreateIndex { .. }
        | AuthAction::CreateTable { .. }
        | AuthAction::CreateTrigger { .. }
        | AuthAction::CreateView { .. }
        | AuthAction::CreateVtable { .. }
        | AuthAction::DropIndex { .. }
        | AuthAction::DropTable { .. }
        | AuthAction::DropTrigger { .. }
        | AuthAction::DropView { .. }
        | AuthAction::DropVtable { .. }
        | AuthAction::AlterTable { .. }
        | AuthAction::Reindex { .. }
        | AuthAction::Analyze { .. } => purpose == For::Changing,
        _ => false,
    };
    if allowed { Authorization::Allow } else { Authorization::Deny }
}

/// True if the value of a pragma is what it asks about. That of any other would be a setting.
fn asks_about(pragma: &str) -> bool {
    let pragma = pragma.to_ascii_lowercase();
    ["table_", "index_", "foreign_key_"].iter().any(|start| pragma.starts_with(start)) || pragma.ends_with("_check")
}

/// Runs one statement; how many rows it has changed.
pub(super) fn query(connection: &Connection, sql: &str, bound: &[&String], sink: &mut dyn Sink) -> Result<u64, Failed> {
    let sqlite = |error: Error| words(&error);
    let kept = |error: std::io::Error| Failed::Sink(error);
    let mut statement = connection.prepare(sql).map_err(sqlite)?;
    if statement.parameter_count() != bound.len() {
        return Err(Failed::because(
            "it has parameters (`?`), and a call has no values for them",
            ErrorCode::InputInvalid,
        ));
    }
    for (at, value) in bound.iter().enumerate() {
        statement.raw_bind_parameter(at + 1, value).map_err(sqlite)?;
    }
    let columns = columns(&statement);
    let width = columns.len();
    sink.columns(columns).map_err(kept)?;
    let before = connection.total_changes();
    let mut rows = statement.raw_query();
    let mut wants = RowWish::Another;
    while let Some(row) = rows.next().map_err(sqlite)? {
        // A statement that changes something is carried out to its end.
        if wants == RowWish::Enough {
            continue;
        }
        let cells = (0..width).map(|at| row.get_ref(at).map(cell)).collect::<Result<_, _>>().map_err(sqlite)?;
        wants = sink.row(cells).map_err(kept)?;
        if wants == RowWish::Enough && connection.total_changes() == before {
            break;
        }
    }
    Ok(connection.total_changes() - before)
}

fn columns(statement: &Statement<'_>) -> Vec<Column> {
    let column = |column: rusqlite::Column<'_>| Column {
        name: column.name().to_owned(),
        kind: column.decl_type().map(str::to_owned),
    };
    statement.columns().map(column).collect()
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Integer(number),
        ValueRef::Real(number) => Cell::Real(number),
        ValueRef::Text(bytes) => Cell::of_text(bytes),
        ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_owned()),
    }
}

fn is_primary(error: &Error, code: Primary) -> bool {
    error.sqlite_error_code() == Some(code)
}

/// Words of SQLite, for whoever wrote the statement.
fn words(error: &Error) -> Failed {
    let extended = error.sqlite_error().map(|error| error.extended_code).unwrap_or_default();
    let message = match error {
        Error::SqlInputError { msg, offset, .. } if *offset >= 0 => format!("{msg} (at byte {offset})"),
        Error::SqliteFailure(_, Some(message)) => message.clone(),
        other => other.to_string(),
    };
    match error.sqlite_error_code() {
        _ if extended == ffi::SQLITE_READONLY_ROLLBACK || extended == ffi::SQLITE_READONLY_RECOVERY => Failed::because(
            "a program that wrote to it was interrupted, and its journal has to be played back first; open it once with a program that may write, such as sqlite3",
            ErrorCode::ResourceBusy,
        ),
        Some(Primary::NotADatabase) => {
            Failed::because("the file is not an SQLite database", ErrorCode::ToolExecutionFailed)
        }
        Some(Primary::DatabaseBusy | Primary::DatabaseLocked) => {
            Failed::because("somebody else is writing to it; try again", ErrorCode::ResourceBusy)
        }
        Some(Primary::AuthorizationForStatementDenied | Primary::ReadOnly) => {
            Failed::because(format!("{message}; a query may read, and nothing else"), ErrorCode::Forbidden)
        }
        Some(Primary::OutOfMemory | Primary::TooBig) => {
            Failed::because(format!("{message}; ask for less at a time"), ErrorCode::LimitExceeded)
        }
        Some(Primary::DatabaseCorrupt) => {
            Failed::because(format!("the file is damaged: {message}"), ErrorCode::ToolExecutionFailed)
        }
        Some(_) => Failed::because(message, ErrorCode::ToolExecutionFailed),
        None if matches!(error, Error::MultipleStatement) => {
            Failed::because("it has more than one statement; a call runs one", ErrorCode::InputInvalid)
        }
        None => Failed::because(message, ErrorCode::ToolExecutionFailed),
    }
}
