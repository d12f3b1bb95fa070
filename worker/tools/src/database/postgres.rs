//! PostgreSQL, by a connection of the call's own.
//!
//! What holds a query to reading:
//! - It runs in a `READ ONLY` transaction that has a snapshot already, so that no `SET TRANSACTION READ WRITE` is possible in it;
//!   and the transaction is rolled back, so that what it does hold for no longer (`set_config`, large objects, `NOTIFY`) is undone.
//! - It is one statement by the extended protocol, in a `DECLARE … CURSOR FOR`, where PostgreSQL's own grammar takes nothing but a
//!   `SELECT` or `VALUES` without `INTO` and without a `WITH` that writes.
//! - A read-only transaction does not hold functions that act beyond it: `pg_read_file`, `lo_export`, `pg_terminate_backend`,
//!   `dblink`. PostgreSQL knows them as volatile. A query that has the name of a volatile function anywhere, be it in a literal or
//!   behind a dot, is not run, but for the few below. Neither is one that names a function which runs a text as a query.
//! - What a view, an operator or a stable function of somebody's calls in turn is for the rights of the database's user. These
//!   rights are the boundary that counts.
#![expect(clippy::wildcard_enum_match_arm, reason = "the enums are libraries', and what they add is one failure more")]

use std::error::Error as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use callgate_policy::failure::ErrorCode;
use callgate_policy::sql::{Dialect, SqlKind};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Client, Config, Error, Row, SimpleQueryMessage};

use super::ServerConnection;
use super::call::{DatabaseCall, Failed, Operation};
use super::rows::{Cell, Column, RowWish, Sink};
use super::sql::Sql;
use super::tls::DatabaseTls;
use crate::ToolError;
use crate::web::fetch;

/// How long a server may take to be reached.
const CONNECTING: Duration = Duration::from_secs(15);
/// Rows that are asked for at once.
const BATCH: usize = 500;

/// Volatile functions that act on nothing: chance, clocks, sizes, and where a session's own sequences stand.
const HARMLESS: [&str; 16] = [
    "random",
    "clock_timestamp",
    "timeofday",
    "gen_random_uuid",
    "pg_relation_size",
    "pg_table_size",
    "pg_indexes_size",
    "pg_total_relation_size",
    "pg_database_size",
    "pg_tablespace_size",
    "pg_column_size",
    "pg_lock_status",
    "pg_show_all_settings",
    "currval",
    "lastval",
    "pg_sequence_last_value",
];

/// How the names of functions begin that run a text as a query, whatever PostgreSQL knows them as.
const RUNS_TEXT: [&str; 10] = [
    "crosstab",
    "connectby",
    "xpath_table",
    "dblink",
    "query_to_xml",
    "cursor_to_xml",
    "table_to_xml",
    "schema_to_xml",
    "database_to_xml",
    "ts_stat",
];

const TABLES: &str = "SELECT n.nspname::text AS schema, c.relname::text AS name, \
    CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'f' THEN 'foreign table' ELSE 'table' END AS type \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relname LIKE $1 \
    AND CASE WHEN $2::text IS NULL THEN pg_catalog.pg_table_is_visible(c.oid) \
        AND n.nspname NOT IN ('pg_catalog', 'information_schema') ELSE n.nspname = $2 END \
    ORDER BY 1, 2";

const COLUMNS: &str = "SELECT a.attname::text AS column_name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS data_type, \
    CASE WHEN a.attnotnull THEN 'NO' ELSE 'YES' END AS is_nullable, \
    pg_catalog.pg_get_expr(d.adbin, d.adrelid) AS column_default \
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
    WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relname = $1 \
    AND CASE WHEN $2::text IS NULL THEN pg_catalog.pg_table_is_visible(c.oid) ELSE n.nspname = $2 END \
    ORDER BY a.attnum";

/// The server cuts a name that is too long, as it does in a query: at 63 bytes of its own encoding.
const VOLATILE: &str = "SELECT DISTINCT proname::text FROM pg_catalog.pg_proc \
    WHERE proname = ANY($1::pg_catalog.text[]::pg_catalog.name[]) AND provolatile = 'v' \
    AND NOT (proname = ANY($2::pg_catalog.text[]::pg_catalog.name[]) AND pronamespace = 'pg_catalog'::pg_catalog.regnamespace)";

/// Carries out one operation there.
///
/// # Errors
/// What keeps it from the server, or what the server says, in words.
pub(super) fn run(asked: &DatabaseCall, certificates: &[u8], sink: &mut dyn Sink) -> Result<Option<u64>, ToolError> {
    let failed = |failed: Failed| asked.failed(failed);
    let sql = match &asked.operation {
        Operation::Query { sql } | Operation::Export { sql } => Some(Sql::read(Dialect::Postgres, sql)?),
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
        let client = connect(server, certificates).await?;
        match kind {
            SqlKind::Reads => read(&client, asked, sql.as_ref(), sink).await.map(|()| None),
            SqlKind::Changes | SqlKind::Neither => change(&client, asked).await.map(Some),
        }
    });
    // A connection that is still there is closed with this process.
    runtime.shutdown_background();
    done.map_err(failed)
}

async fn connect(server: &ServerConnection, certificates: &[u8]) -> Result<Client, Failed> {
    let unreached = |why: &str| server.unreached(why);
    let address = fetch::address_of(&server.host, CONNECTING).map_err(|error| unreached(&error.to_string()))?;
    let stream = TcpStream::connect_timeout(&SocketAddr::new(address, server.port), CONNECTING)
        .and_then(|stream| stream.set_nonblocking(true).map(|()| stream))
        .and_then(tokio::net::TcpStream::from_std)
        .map_err(|error| unreached(&error.to_string()))?;
    let mut config = Config::new();
    config.user(&server.user).dbname(&server.database).application_name("callgate");
    config.ssl_mode(if server.verifies() { SslMode::Require } else { SslMode::Prefer });
    if let Some(password) = &server.password {
        config.password(password);
    }
    let tls = DatabaseTls::to(&server.host, server.verifies(), certificates)
        .map_err(|error| unreached(&error.to_string()))?;
    let connecting = tokio::time::timeout(CONNECTING, config.connect_raw(stream, tls));
    let connected = connecting.await.map_err(|_elapsed| unreached("it does not answer"))?;
    let (client, connection) = connected.map_err(|error| match words(&error) {
        // Nobody there has said anything.
        Failed::Because { why, .. } if error.as_db_error().is_none() => unreached(&why),
        said => said,
    })?;
    // It ends with the client, which is told of its errors.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// Settings that hold from the first word on.
async fn begin(client: &Client, asked: &DatabaseCall, how: &str) -> Result<(), Failed> {
    let limit = asked.connection.server.as_ref().map_or(0, |server| server.timeout_ms);
    // The server ends what nobody waits for any more. Older ones do not know how.
    drop(client.batch_execute("SET client_connection_check_interval = '2s'").await);
    let settings = format!("SET statement_timeout = {limit}; SET standard_conforming_strings = on; {how}");
    client.batch_execute(&settings).await.map_err(|error| words(&error))
}

async fn read(client: &Client, asked: &DatabaseCall, sql: Option<&Sql>, sink: &mut dyn Sink) -> Result<(), Failed> {
    // The first query takes the snapshot: a transaction that has one cannot become one that writes (PostgreSQL's manual, SET TRANSACTION).
    begin(client, asked, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY; BEGIN READ ONLY; SELECT 1").await?;
    match (&asked.operation, sql) {
        (Operation::Query { sql: text } | Operation::Export { sql: text }, Some(sql)) => {
            refuse_what_acts(client, &sql.names).await?;
            if matches!(sql.statement.verb.as_str(), "EXPLAIN" | "SHOW") {
                rows(client, text, &[], sink).await?;
            } else {
                fetch_all(client, text, sink).await?;
            }
        }
        (Operation::ListTables { pattern, schema }, _) => rows(client, TABLES, &[pattern, schema], sink).await?,
        (Operation::Describe { table, schema }, _) => rows(client, COLUMNS, &[table, schema], sink).await?,
        (Operation::Query { .. } | Operation::Export { .. }, None) => {}
    }
    client.batch_execute("ROLLBACK").await.map_err(|error| words(&error))
}

async fn refuse_what_acts(client: &Client, names: &[String]) -> Result<(), Failed> {
    let forbidden = |why: String| Err(Failed::because(why, ErrorCode::Forbidden));
    if let Some(name) = names.iter().find(|name| RUNS_TEXT.iter().any(|known| name.starts_with(known))) {
        return forbidden(format!(
            "`{name}` runs a text as a query, and nobody has looked at that; write the query out"
        ));
    }
    let found = client.query(VOLATILE, &[&names, &&HARMLESS[..]]).await.map_err(|error| words(&error))?;
    let Some(name) = found.first().map(|row| row.get::<_, String>(0)) else { return Ok(()) };
    forbidden(format!(
        "`{name}` may do more than read: PostgreSQL knows a volatile function of this name, and a read-only transaction does not \
         hold that. The name counts wherever it stands, in a text too; leave it out"
    ))
}

/// By a cursor: what comes is text that PostgreSQL has made of each value, and no more of it than is wanted.
async fn fetch_all(client: &Client, sql: &str, sink: &mut dyn Sink) -> Result<(), Failed> {
    let server = |error: Error| words(&error);
    let prepared = client.prepare(sql).await.map_err(server)?;
    let kinds: Vec<Type> = prepared.columns().iter().map(|column| column.type_().clone()).collect();
    let columns = prepared
        .columns()
        .iter()
        .map(|column| Column { name: column.name().to_owned(), kind: Some(column.type_().name().to_owned()) });
    sink.columns(columns.collect()).map_err(Failed::Sink)?;
    client.execute(&format!("DECLARE callgate NO SCROLL CURSOR FOR {sql}"), &[]).await.map_err(server)?;
    // No more than the usual limit at first: of most queries nothing else is wanted.
    let mut batch = 101;
    loop {
        let messages = client.simple_query(&format!("FETCH FORWARD {batch} FROM callgate")).await.map_err(server)?;
        let mut came = 0;
        for message in messages {
            let SimpleQueryMessage::Row(row) = message else { continue };
            came += 1;
            let cells = (0..row.len()).map(|at| row.get(at).map_or(Cell::Null, |text| cell(text, kinds.get(at))));
            if sink.row(cells.collect()).map_err(Failed::Sink)? == RowWish::Enough {
                return Ok(());
            }
        }
        if came < batch {
            return Ok(());
        }
        batch = BATCH;
    }
}

fn cell(text: &str, kind: Option<&Type>) -> Cell {
    let plain = || Cell::Text(text.to_owned());
    match kind {
        Some(&(Type::INT2 | Type::INT4 | Type::INT8)) => text.parse().map_or_else(|_odd| plain(), Cell::Integer),
        Some(&(Type::FLOAT4 | Type::FLOAT8)) => text.parse().map_or_else(|_odd| plain(), Cell::Real),
        Some(&Type::BYTEA) => text.strip_prefix("\\x").and_then(from_hexadecimal).map_or_else(plain, Cell::Bytes),
        _ => plain(),
    }
}

fn from_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// A value whose binary form is its text.
struct Plain(String);

impl<'a> FromSql<'a> for Plain {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(String::from_utf8_lossy(raw).into_owned()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Rows of text, by one statement of the extended protocol.
async fn rows(
    client: &Client,
    sql: &str,
    bound: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    sink: &mut dyn Sink,
) -> Result<(), Failed> {
    let prepared = client.prepare(sql).await.map_err(|error| words(&error))?;
    let columns = prepared
        .columns()
        .iter()
        .map(|column| Column { name: column.name().to_owned(), kind: Some("text".to_owned()) });
    sink.columns(columns.collect()).map_err(Failed::Sink)?;
    let rows: Vec<Row> = client.query(&prepared, bound).await.map_err(|error| words(&error))?;
    for row in rows {
        let text = |at| row.try_get::<_, Option<Plain>>(at).ok().flatten();
        let cells = (0..row.len()).map(|at| text(at).map_or(Cell::Null, |Plain(text)| Cell::Text(text)));
        if sink.row(cells.collect()).map_err(Failed::Sink)? == RowWish::Enough {
            break;
        }
    }
    Ok(())
}

/// One statement that changes something, in a transaction of its own.
async fn change(client: &Client, asked: &DatabaseCall) -> Result<u64, Failed> {
    let Operation::Query { sql } = &asked.operation else { return Ok(0) };
    begin(client, asked, "BEGIN").await?;
    let changed = client.execute(sql.as_str(), &[]).await.map_err(|error| words(&error))?;
    client.batch_execute("COMMIT").await.map_err(|error| words(&error))?;
    Ok(changed)
}

/// Words of the server, for whoever wrote the statement. They never have a password.
fn words(error: &Error) -> Failed {
    let Some(said) = error.as_db_error() else {
        let mut why = error.to_string();
        if let Some(source) = error.source() {
            why.push_str(&format!(": {source}"));
        }
        return Failed::because(why, ErrorCode::ToolExecutionFailed);
    };
    let mut why = said.message().to_owned();
    for more in [said.detail(), said.hint()].into_iter().flatten() {
        why.push_str(&format!("; {more}"));
    }
    let code = match said.code() {
        code if *code == SqlState::READ_ONLY_SQL_TRANSACTION || *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            ErrorCode::Forbidden
        }
        code if *code == SqlState::QUERY_CANCELED => ErrorCode::LimitExceeded,
        _ => ErrorCode::ToolExecutionFailed,
    };
    Failed::because(why, code)
}
