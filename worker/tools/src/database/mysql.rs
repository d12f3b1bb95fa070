//! MySQL and MariaDB, by a connection of the call's own.
//!
//! What holds a query to reading:
//! - It runs in a `READ ONLY` transaction, in which the server changes no table, and which is rolled back.
//! - It is one prepared statement: the server's protocol has no second one in it.
//! - Such a transaction holds neither files (`INTO OUTFILE`, `LOAD_FILE`) nor locks (`GET_LOCK`, `FOR UPDATE`) nor sequences. So a
//!   query has no `INTO` and no `FOR UPDATE`, and calls none of the functions below. The client sends no file, whatever the server
//!   asks for.
//! - What ends a text or begins a comment is a setting of MySQL's. So each call sets it, and runs nothing if it cannot.
//! - Nor does it hold what a stored function does besides, so a query calls none. What a function of somebody's own library does,
//!   or one that a view calls, is for the rights of the database's user. These rights are the boundary that counts.
#![expect(clippy::wildcard_enum_match_arm, reason = "the enums are libraries', and what they add is one failure more")]

use std::time::Duration;

use callgate_policy::failure::ErrorCode;
use callgate_policy::sql::{Dialect, SqlKind};
use mysql_async::consts::ColumnType;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, DriverError, Error, OptsBuilder, Params, SslOpts, Value};

use super::ServerConnection;
use super::call::{DatabaseCall, Failed, Operation};
use super::rows::{Cell, Column, RowWish, Sink};
use super::sql::Sql;
use crate::ToolError;
use crate::web::fetch;

/// How long a server may take to be reached.
const CONNECTING: Duration = Duration::from_secs(15);
/// The number of the collation of bytes (MySQL's manual, "The binary Collation").
const BINARY: u16 = 63;

/// Functions that act on more than tables.
const REFUSED: [&str; 20] = [
    "load_file",
    "get_lock",
    "release_lock",
    "release_all_locks",
    "nextval",
    "setval",
    "sleep",
    "benchmark",
    "master_pos_wait",
    "source_pos_wait",
    "master_gtid_wait",
    "wait_for_executed_gtid_set",
    "wait_until_sql_thread_after_gtids",
    "is_used_lock",
    "is_free_lock",
    "do_system",
    "load_rewrite_rules",
    "flush_rewrite_cache",
    "set_firewall_mode",
    "read_firewall_users",
];

/// How the names of others begin: of libraries that come with a server or are known, which reach programs, servers, files or
/// settings.
const REFUSED_LIBRARIES: [&str; 16] = [
    "sys_",
    "spider_",
    "gen_",
    "audit_",
    "keyring_",
    "group_replication_",
    "asynchronous_connection_failover_",
    "version_tokens_",
    "firewall_",
    "mysql_firewall_",
    "service_",
    "mysqlx_",
    "lib_mysqludf",
    "http_",
    "masking_",
    "wsrep_",
];

/// Words that no query has, not even in a text.
const REFUSED_WORDS: [&str; 2] = ["outfile", "dumpfile"];

/// How a server reads statements: a backslash escapes, `"` is for texts, and a name has to stand before its parenthesis. Whoever
/// set up the server may have chosen otherwise; `sql.rs` reads them like this.
const MODE: &str = "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'";
/// In which encoding they come: in some, the second byte of a character can be a backslash.
const ENCODING: &str = "SET NAMES utf8mb4";

/// Functions that somebody has written in SQL, and packages of them, in any database of the server that the user sees.
const ROUTINES: &str = "SELECT routine_name FROM information_schema.routines WHERE routine_type <> 'PROCEDURE'";

const TABLES: &str = "SELECT table_schema AS `schema`, table_name AS name, LOWER(table_type) AS type FROM information_schema.tables \
    WHERE table_name LIKE ? AND table_schema = COALESCE(?, DATABASE()) ORDER BY 1, 2";

const COLUMNS: &str = "SELECT column_name AS column_name, column_type AS data_type, is_nullable AS is_nullable, \
    column_default AS column_default, column_key AS column_key \
    FROM information_schema.columns WHERE table_name = ? AND table_schema = COALESCE(?, DATABASE()) ORDER BY ordinal_position";

/// Carries out one operation there.
///
/// # Errors
/// What keeps it from the server, or what the server says, in words.
pub(super) fn run(asked: &DatabaseCall, certificates: &[u8], sink: &mut dyn Sink) -> Result<Option<u64>, ToolError> {
    let failed = |failed: Failed| asked.failed(failed);
    let sql = match &asked.operation {
        Operation::Query { sql } | Operation::Export { sql } => Some(Sql::read(Dialect::Mysql, sql)?),
        Operation::ListTables { .. } | Operation::Describe { .. } => None,
    };
    let kind = match &sql {
        Some(sql) => asked.judge(&sql.statement)?,
        None => SqlKind::Reads,
    };
    let missing = || Failed::because("there is no server for it", ErrorCode::ToolExecutionFailed);
    let server = asked.connection.server.as_ref().ok_or_else(missing).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|error| failed(server.unreached(&error.to_string())))?;
    let done = runtime.block_on(async {
        let mut conn = connect(server, certificates).await?;
        let done = match kind {
            SqlKind::Reads => read(&mut conn, asked, sql.as_ref(), sink).await.map(|()| None),
            SqlKind::Changes | SqlKind::Neither => change(&mut conn, asked).await.map(Some),
        };
        // It would read all that is still to come. The connection is closed with this process.
        std::mem::forget(conn);
        done
    });
    runtime.shutdown_background();
    done.map_err(failed)
}

async fn connect(server: &ServerConnection, certificates: &[u8]) -> Result<Conn, Failed> {
    let address = fetch::address_of(&server.host, CONNECTING).map_err(|error| server.unreached(&error.to_string()))?;
    let options = OptsBuilder::default()
        .ip_or_hostname(address.to_string())
        .tcp_port(server.port)
        .prefer_socket(false)
        .user(Some(server.user.as_str()))
        .pass(server.password.as_deref())
        .db_name(Some(server.database.as_str()));
    let secured = SslOpts::default().with_danger_tls_hostname_override(Some(server.host.clone()));
    let secured = if server.verifies() {
        secured.with_root_certs(vec![certificates.to_owned().into()]).with_disable_built_in_roots(true)
    } else {
        secured.with_danger_accept_invalid_certs(true)
    };
    match connected(server, options.clone().ssl_opts(Some(secured))).await? {
        // It has no TLS.
        Err(Error::Driver(DriverError::NoClientSslFlagFromServer)) if !server.verifies() => {
            connected(server, options).await?.map_err(|error| words(&error))
        }
        // It shows nobody's certificate: the password stays here.
        Err(Error::Driver(error @ DriverError::NoClientSslFlagFromServer)) => Err(server.unreached(&error.to_string())),
        done => done.map_err(|error| words(&error)),
    }
}

async fn connected(server: &ServerConnection, options: OptsBuilder) -> Result<Result<Conn, Error>, Failed> {
    let connecting = tokio::time::timeout(CONNECTING, Conn::new(options));
    match connecting.await {
        Err(_elapsed) => Err(server.unreached("it does not answer")),
        Ok(Err(Error::Io(error))) => Err(server.unreached(&error.to_string())),
        Ok(done) => Ok(done),
    }
}

async fn begin(conn: &mut Conn, asked: &DatabaseCall, how: &str) -> Result<(), Failed> {
    for setting in [ENCODING, MODE] {
        conn.query_drop(setting).await.map_err(|error| words(&error))?;
    }
    let limit = asked.connection.server.as_ref().map_or(0, |server| server.timeout_ms);
    // The one is MySQL's, the other MariaDB's.
    drop(conn.query_drop(format!("SET SESSION max_execution_time = {limit}")).await);
    drop(conn.query_drop(format!("SET SESSION max_statement_time = {}", limit / 1000)).await);
    conn.query_drop(how).await.map_err(|error| words(&error))
}

async fn read(conn: &mut Conn, asked: &DatabaseCall, sql: Option<&Sql>, sink: &mut dyn Sink) -> Result<(), Failed> {
    begin(conn, asked, "START TRANSACTION READ ONLY").await?;
    let of = |name: &String, schema: &Option<String>| Params::Positional(vec![name.into(), schema.into()]);
    match (&asked.operation, sql) {
        (Operation::Query { sql: text } | Operation::Export { sql: text }, Some(sql)) => {
            refuse_what_acts(sql)?;
            let routines: Vec<String> = conn.query(ROUTINES).await.map_err(|error| words(&error))?;
            let is_named =
                |routine: &&String| sql.names.iter().any(|name| name.to_lowercase() == routine.to_lowercase());
            if let Some(name) = routines.iter().find(is_named) {
                let why = format!(
                    "it has the name of the stored function `{name}`, and a read-only transaction does not hold what one does"
                );
                return Err(Failed::because(why, ErrorCode::Forbidden));
            }
            rows(conn, text, Params::Empty, sink).await
        }
        (Operation::ListTables { pattern, schema }, _) => rows(conn, TABLES, of(pattern, schema), sink).await,
        (Operation::Describe { table, schema }, _) => rows(conn, COLUMNS, of(table, schema), sink).await,
        (Operation::Query { .. } | Operation::Export { .. }, None) => Ok(()),
    }
}

fn refuse_what_acts(sql: &Sql) -> Result<(), Failed> {
    let acts = |call: &&String| {
        REFUSED.contains(&call.as_str()) || REFUSED_LIBRARIES.iter().any(|library| call.starts_with(library))
    };
    let why = if let Some(name) = sql.calls.iter().find(acts) {
        format!("`{name}` does more than read tables, and a read-only transaction does not hold that")
    } else if let Some(word) = REFUSED_WORDS.iter().find(|word| sql.names.iter().any(|name| name == *word)) {
        format!("it has the word `{word}`, which writes a file at the server; leave it out, in a text too")
    } else if calls_by_odd_name(&sql.statement.text) {
        // Some servers take é for e in the name of a function.
        "it calls a function by a name that has more than ASCII".to_owned()
    } else if sql.has("NEXT VALUE FOR") {
        "`NEXT VALUE FOR` changes a sequence".to_owned()
    } else if sql.has("SHOW GRANTS") || sql.has("SHOW CREATE USER") {
        "it would show the hash of a password".to_owned()
    } else {
        return Ok(());
    };
    Err(Failed::because(why, ErrorCode::Forbidden))
}

fn calls_by_odd_name(text: &str) -> bool {
    let quoted = |at: usize| text[..at].trim_end().strip_suffix('`')?.rsplit('`').next();
    text.match_indices('(').filter_map(|(at, _)| quoted(at)).any(|name| !name.is_ascii())
}

/// The rows of one prepared statement, as they come.
async fn rows(conn: &mut Conn, sql: &str, bound: Params, sink: &mut dyn Sink) -> Result<(), Failed> {
    let mut result = conn.exec_iter(sql, bound).await.map_err(|error| words(&error))?;
    let columns = result.columns();
    let columns: &[mysql_async::Column] = columns.as_deref().unwrap_or_default();
    let told = columns.iter().map(|column| Column { name: column.name_str().into_owned(), kind: Some(kind(column)) });
    sink.columns(told.collect()).map_err(Failed::Sink)?;
    while let Some(row) = result.next().await.map_err(|error| words(&error))? {
        let cells = row.unwrap().into_iter().zip(columns).map(|(value, column)| cell(value, column));
        if sink.row(cells.collect()).map_err(Failed::Sink)? == RowWish::Enough {
            std::mem::forget(result);
            return Ok(());
        }
    }
    Ok(())
}

fn kind(column: &mysql_async::Column) -> String {
    format!("{:?}", column.column_type()).trim_start_matches("MYSQL_TYPE_").to_ascii_lowercase()
}

fn cell(value: Value, column: &mysql_async::Column) -> Cell {
    match value {
        Value::NULL => Cell::Null,
        Value::Int(number) => Cell::Integer(number),
        Value::UInt(number) => {
            i64::try_from(number).map_or_else(|_large| Cell::Text(number.to_string()), Cell::Integer)
        }
        Value::Float(number) => Cell::Real(number.into()),
        Value::Double(number) => Cell::Real(number),
        Value::Date(year, month, day, hour, minute, second, micros) => {
            let date = format!("{year:04}-{month:02}-{day:02}");
            if column.column_type() == ColumnType::MYSQL_TYPE_DATE {
                return Cell::Text(date);
            }
            Cell::Text(format!("{date} {hour:02}:{minute:02}:{second:02}{}", fraction(micros)))
        }
        Value::Time(is_negative, days, hours, minutes, seconds, micros) => {
            let (sign, hours) = (if is_negative { "-" } else { "" }, days * 24 + u32::from(hours));
            Cell::Text(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{}", fraction(micros)))
        }
        Value::Bytes(bytes) => match column.column_type() {
            ColumnType::MYSQL_TYPE_TINY_BLOB
            | ColumnType::MYSQL_TYPE_MEDIUM_BLOB
            | ColumnType::MYSQL_TYPE_LONG_BLOB
            | ColumnType::MYSQL_TYPE_BLOB
            | ColumnType::MYSQL_TYPE_VAR_STRING
            | ColumnType::MYSQL_TYPE_STRING
            | ColumnType::MYSQL_TYPE_BIT
            | ColumnType::MYSQL_TYPE_GEOMETRY
                if column.character_set() == BINARY =>
            {
                Cell::Bytes(bytes)
            }
            _ => Cell::of_text(&bytes),
        },
    }
}

fn fraction(micros: u32) -> String {
    if micros == 0 { String::new() } else { format!(".{micros:06}") }
}

/// One statement that changes something, in a transaction of its own.
async fn change(conn: &mut Conn, asked: &DatabaseCall) -> Result<u64, Failed> {
    let Operation::Query { sql } = &asked.operation else { return Ok(0) };
    begin(conn, asked, "START TRANSACTION").await?;
    let failed = |error: Error| words(&error);
    conn.exec_drop(sql.as_str(), ()).await.map_err(failed)?;
    let changed = conn.affected_rows();
    conn.query_drop("COMMIT").await.map_err(failed)?;
    Ok(changed)
}

/// Words of the server, for whoever wrote the statement. They never have a password.
fn words(error: &Error) -> Failed {
    match error {
        Error::Server(said) => {
            let code = match said.code {
                // A read-only transaction, and rights that are missing.
                1792 | 1044 | 1045 | 1142 | 1227 | 1370 => ErrorCode::Forbidden,
                // Ended for its time.
                1969 | 3024 | 1317 => ErrorCode::LimitExceeded,
                _ => ErrorCode::ToolExecutionFailed,
            };
            Failed::because(said.message.clone(), code)
        }
        other => Failed::because(other.to_string(), ErrorCode::ToolExecutionFailed),
    }
}
