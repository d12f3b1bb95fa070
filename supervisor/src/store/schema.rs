//! The database: its tables, and how an older one becomes what this build reads.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

/// Each step makes the next version of the one before. One that was released is never changed.
const MIGRATIONS: &[&str] = &[
    "
CREATE TABLE sessions (
    -- Locks are on bytes of this number, so none is used twice.
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    id        TEXT NOT NULL UNIQUE,
    parent    TEXT,
    title     TEXT,
    -- The roots, as a JSON array.
    workspace TEXT NOT NULL,
    -- The digest of what the manifest asks for.
    manifest  TEXT,
    -- What the host keeps with the session, as JSON.
    settings  TEXT NOT NULL,
    rules     TEXT NOT NULL DEFAULT '[]',
    approvals TEXT NOT NULL DEFAULT '[]',
    -- The directory of outputs, with device and inode.
    outputs   TEXT,
    halted    INTEGER NOT NULL DEFAULT 0,
    -- Set while somebody has it open: after a crash, calls may have no end.
    opened    INTEGER NOT NULL DEFAULT 0,
    created   INTEGER NOT NULL,
    closed    INTEGER
) STRICT;
CREATE TABLE messages (
    number  INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (number) ON DELETE CASCADE,
    id      TEXT NOT NULL,
    role    TEXT NOT NULL,
    created INTEGER NOT NULL
) STRICT;
CREATE INDEX messages_of_session ON messages (session);
CREATE TABLE parts (
    number       INTEGER PRIMARY KEY,
    session      INTEGER NOT NULL REFERENCES sessions (number) ON DELETE CASCADE,
    message      INTEGER NOT NULL REFERENCES messages (number) ON DELETE CASCADE,
    id           TEXT NOT NULL,
    tool         TEXT NOT NULL,
    origin       TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('input-available', 'output-available', 'output-error')),
    -- Who is waited for before it runs.
    waiting      TEXT CHECK (waiting IN ('approval')),
    outcome      TEXT CHECK (outcome IN ('succeeded', 'failed', 'cancelled')),
    -- Of each event: its place in the session, and when it was, in milliseconds of Unix time.
    proposed     INTEGER NOT NULL,
    proposed_at  INTEGER NOT NULL,
    started      INTEGER,
    started_at   INTEGER,
    ended        INTEGER,
    ended_at     INTEGER,
    input        TEXT NOT NULL,
    envelope     TEXT
) STRICT;
CREATE INDEX parts_of_session ON parts (session);
CREATE INDEX parts_of_message ON parts (message);
",
    "
-- Of a subagent's session: the agent, the call of its parent that has started it, and whether lists show it.
ALTER TABLE sessions ADD COLUMN agent TEXT;
ALTER TABLE sessions ADD COLUMN call TEXT;
ALTER TABLE sessions ADD COLUMN listed INTEGER NOT NULL DEFAULT 1;
",
];

/// The version that this build reads and writes.
pub(super) const VERSION: u32 = 2;

/// Has the connection write ahead, and erase what is deleted. An existing database is not written.
pub(super) fn configure(connection: &Connection) -> rusqlite::Result<()> {
    // A database that somebody else has put there does nothing by itself.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    if version(connection)? == 0 {
        // Only a database without tables takes it over.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
    }
    // A commit survives the end of this process; after a power cut the last ones may be gone, and the database is whole.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "secure_delete", true)?;
    connection.pragma_update(None, "trusted_schema", false)
}

/// The database's version.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Makes it what this build reads: whole or not at all.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    if version(connection)? >= VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Somebody else may have been first.
    let from = usize::try_from(version(&transaction)?).unwrap_or(usize::MAX);
    for step in MIGRATIONS.iter().skip(from) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

/// Whether its tables are those that this build makes, and nothing is there besides: no trigger that changes what is written, no
/// view in the place of a table.
pub(super) fn is_callgates(connection: &Connection) -> rusqlite::Result<bool> {
    let mut own = Connection::open_in_memory()?;
    migrate(&mut own)?;
    Ok(objects(connection)? == objects(&own)?)
}

fn objects(connection: &Connection) -> rusqlite::Result<Vec<(String, String, Option<String>)>> {
    let mut statement = connection.prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use super::*;

    /// A10: what stands there besides the tables would act on what is recorded.
    #[test]
    fn a10_only_its_own_tables_are_callgates() {
        let mut connection = Connection::open_in_memory().unwrap();
        configure(&connection).unwrap();
        migrate(&mut connection).unwrap();
        assert!(is_callgates(&connection).unwrap());
        connection
            .execute_batch("CREATE TRIGGER t AFTER INSERT ON sessions BEGIN UPDATE sessions SET title = 'x'; END")
            .unwrap();
        assert!(!is_callgates(&connection).unwrap());
        connection.execute_batch("DROP TRIGGER t; CREATE VIEW v AS SELECT 1").unwrap();
        assert!(!is_callgates(&connection).unwrap());
    }

    #[test]
    fn a_new_database_has_the_last_version_and_a_second_time_changes_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        configure(&connection).unwrap();
        let tables = |connection: &Connection| {
            let mut tables = connection.prepare("SELECT sql FROM sqlite_schema ORDER BY name").unwrap();
            let rows = tables.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
            rows.collect::<Result<Vec<_>, _>>().unwrap()
        };
        migrate(&mut connection).unwrap();
        let first = tables(&connection);
        migrate(&mut connection).unwrap();
        assert_eq!((tables(&connection), version(&connection).unwrap()), (first, VERSION));
        assert_eq!(usize::try_from(VERSION).unwrap(), MIGRATIONS.len());
    }
}
