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
-- What the session's own tools keep, as JSON.
ALTER TABLE sessions ADD COLUMN notes TEXT NOT NULL DEFAULT '{}';
-- A call may wait for an answer too.
CREATE TABLE parts_with_answers (
    number       INTEGER PRIMARY KEY,
    session      INTEGER NOT NULL REFERENCES sessions (number) ON DELETE CASCADE,
    message      INTEGER NOT NULL REFERENCES messages (number) ON DELETE CASCADE,
    id           TEXT NOT NULL,
    tool         TEXT NOT NULL,
    origin       TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('input-available', 'output-available', 'output-error')),
    -- What a person is waited for: before it runs, or to get done.
    waiting      TEXT CHECK (waiting IN ('approval', 'answer')),
    outcome      TEXT CHECK (outcome IN ('succeeded', 'failed', 'cancelled')),
    proposed     INTEGER NOT NULL,
    proposed_at  INTEGER NOT NULL,
    started      INTEGER,
    started_at   INTEGER,
    ended        INTEGER,
    ended_at     INTEGER,
    input        TEXT NOT NULL,
    envelope     TEXT
) STRICT;
INSERT INTO parts_with_answers SELECT * FROM parts;
DROP TABLE parts;
ALTER TABLE parts_with_answers RENAME TO parts;
CREATE INDEX parts_of_session ON parts (session);
CREATE INDEX parts_of_message ON parts (message);
",
    "
-- Of a subagent's session: the agent, the call of its parent that has started it, and whether lists show it.
ALTER TABLE sessions ADD COLUMN agent TEXT;
ALTER TABLE sessions ADD COLUMN call TEXT;
ALTER TABLE sessions ADD COLUMN listed INTEGER NOT NULL DEFAULT 1;
",
    "
-- The digest of the profile's file.
ALTER TABLE sessions ADD COLUMN profile TEXT;
",
];

/// The version that this build reads and writes.
pub(super) const VERSION: u32 = 4;

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

/// Makes it what this build reads: whole or not at all. Whether it is callgate's; if not, nothing has been written.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<bool> {
    if version(connection)? < VERSION {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Somebody else may have been first.
        let from = version(&transaction)?;
        if !is_of(&transaction, from)? {
            return Ok(false);
        }
        take(&transaction, from, VERSION)?;
        transaction.commit()?;
    }
    is_of(connection, VERSION)
}

/// True if it is empty, or has a version by now.
pub(super) fn is_nobodys(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(version(connection)? > 0 || is_of(connection, 0)?)
}

/// Takes the steps between two versions.
fn take(connection: &Connection, from: u32, to: u32) -> rusqlite::Result<()> {
    let at = |version| usize::try_from(version).unwrap_or(usize::MAX);
    for step in MIGRATIONS.iter().take(at(to)).skip(at(from)) {
        connection.execute_batch(step)?;
    }
    connection.pragma_update(None, "user_version", to.max(from))
}

/// True if its tables are those that callgate makes for a version, and nothing is there besides: no trigger that
/// changes what is written, no view in the place of a table.
pub(super) fn is_of(connection: &Connection, version: u32) -> rusqlite::Result<bool> {
    let own = Connection::open_in_memory()?;
    take(&own, 0, version)?;
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
        assert!(is_of(&connection, VERSION).unwrap());
        connection
            .execute_batch("CREATE TRIGGER t AFTER INSERT ON sessions BEGIN UPDATE sessions SET title = 'x'; END")
            .unwrap();
        assert!(!is_of(&connection, VERSION).unwrap());
        connection.execute_batch("DROP TRIGGER t; CREATE VIEW v AS SELECT 1").unwrap();
        assert!(!is_of(&connection, VERSION).unwrap());
    }

    /// A10: what is somebody else's is not changed, whatever version it says it has.
    #[test]
    fn a10_another_s_database_is_left_as_it_is() {
        for version in 0..=VERSION {
            let mut connection = Connection::open_in_memory().unwrap();
            let theirs = format!(
                "CREATE TABLE parts (kept TEXT); INSERT INTO parts VALUES ('theirs'); PRAGMA user_version = {version}"
            );
            connection.execute_batch(&theirs).unwrap();
            let before = objects(&connection).unwrap();
            assert!(!migrate(&mut connection).unwrap(), "{version}");
            assert_eq!((objects(&connection).unwrap(), self::version(&connection).unwrap()), (before, version));
            let kept: String = connection.query_row("SELECT kept FROM parts", [], |row| row.get(0)).unwrap();
            assert_eq!(kept, "theirs");
        }
        let mut connection = Connection::open_in_memory().unwrap();
        assert!(migrate(&mut connection).unwrap(), "the control: an empty one is nobody's");
    }

    /// A database of an earlier version keeps what is in it, and has the tables of a new one then.
    #[test]
    fn an_older_database_keeps_its_records() {
        for from in 1..VERSION {
            let mut connection = Connection::open_in_memory().unwrap();
            configure(&connection).unwrap();
            take(&connection, 0, from).unwrap();
            connection
                .execute_batch(
                    "INSERT INTO sessions (number, id, workspace, settings, created) VALUES (7, 'ses_1', '[]', 'null', 5); \
                     INSERT INTO messages (number, session, id, role, created) VALUES (3, 7, 'msg_1', 'user', 5); \
                     INSERT INTO parts (number, session, message, id, tool, origin, state, waiting, proposed, proposed_at, input) \
                     VALUES (9, 7, 3, 'prt_1', 'bash', 'bundled', 'input-available', 'approval', 1, 5, '{}')",
                )
                .unwrap();
            let notes = if from == 1 { "{}" } else { r#"{"todo":[]}"# };
            if from > 1 {
                connection.execute("UPDATE sessions SET notes = ?1", [notes]).unwrap();
            }
            assert!(migrate(&mut connection).unwrap(), "{from}");
            let kept: (i64, String, String, String) = connection
                .query_row(
                    "SELECT parts.number, tool, waiting, notes FROM parts JOIN sessions ON sessions.number = session",
                    [],
                    |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
                )
                .unwrap();
            assert_eq!(kept, (9, "bash".to_owned(), "approval".to_owned(), notes.to_owned()), "{from}");
            let (agent, is_listed): (Option<String>, bool) = connection
                .query_row("SELECT agent, listed FROM sessions", [], |row| Ok((row.get(0)?, row.get(1)?)))
                .unwrap();
            assert_eq!((agent, is_listed), (None, true), "what was there is nobody's subagent, and listed");
        }
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
