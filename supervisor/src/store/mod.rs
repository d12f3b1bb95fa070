//! Sessions that last: what was asked for and what came of it, kept in a database of the user's.
//!
//! Each call is written down before it runs, and again when it has ended. After a crash, the next opening of the store ends
//! what has no end, with an error; nothing runs twice. A session is open in one process at a time, and a lock of the kernel's
//! says in which. Secrets are taken out before anything is written (X1-31).
//!
//! Whoever could write here could give a session rules and approvals of their own. So the directory and its files belong to the
//! user alone, no link leads there, and a session whose grants would reach it is refused.

mod database;
mod error;
mod event;
mod forms;
mod notes;
mod outputs;
mod place;
mod recorder;
mod redact;
mod schema;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use callgate_policy::approval::Approvals;
use callgate_policy::effective::EffectiveSet;
use callgate_policy::envelope::{Metadata, ResultEnvelope};
use callgate_policy::failure;
use callgate_policy::manifest::Manifest;
use callgate_policy::path::HostPath;
use callgate_policy::profile::Profile;
use callgate_policy::rules::Rule;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, params};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use self::database::{AGAIN, PATIENCE, is_busy, now, row_id};
use self::place::Place;
use crate::host;
use crate::id::new_id;
use crate::mounts::MountTable;

pub use self::error::StoreError;
pub use self::event::{Event, EventKind, Events, MissedEvents};
pub(crate) use self::notes::{Notes, Plan};
pub use self::notes::{Todo, TodoStatus};
pub(crate) use self::outputs::{DIRECTORY, KnownOutputs, names};
pub(crate) use self::recorder::{Recorder, Recording, Room, Stored};
pub(crate) use self::redact::Redaction;

/// End of a call that had none when its process had gone.
const ORPHANED: &str =
    "callgate ended before this call did; what the call had done by then stays done, and it was not made again";
/// End of a call that was waiting for an answer when its session was closed.
const CLOSED: &str = "the session was closed before anybody answered; the call was not made";

/// A store of sessions: [`Builder::store`](crate::Builder::store) has a supervisor record its sessions there.
///
/// Its copies are one store.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    place: Place,
    path: PathBuf,
    connection: Mutex<Connection>,
}

/// Activity of a session (X0-57).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SessionState {
    /// Nothing.
    Idle,
    /// A call of it runs.
    Busy,
    /// A call of it waits for a person's yes.
    WaitingOnApproval,
    /// A call of it waits for a person's answers.
    WaitingOnUserInput,
    /// It is halted: a person would have had to be asked, and there was none.
    Error,
    /// It is closed.
    Closed,
}

/// Facts known of a recorded session.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SessionRecord {
    /// Its id.
    pub id: String,
    /// Title of it.
    pub title: Option<String>,
    /// Activity of it.
    pub state: SessionState,
    /// True if some process has it open, asked of the kernel.
    pub is_open: bool,
    /// The workspace's roots.
    pub workspace: Vec<String>,
    /// The session that it was forked from, or whose call has started it.
    pub parent: Option<String>,
    /// The agent whose session it is, if a call of its parent has started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// That call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// When it was made, ISO 8601.
    pub created: String,
    /// When something last happened in it, ISO 8601.
    pub updated: String,
    /// How many calls it has.
    pub calls: u64,
    /// How many of them failed or were denied.
    pub failed: u64,
    /// Items to be done in it, as its agent keeps it with `todo`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub todos: Vec<Todo>,
    /// Settings that the host keeps with it.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub settings: Value,
    #[serde(skip)]
    number: i64,
}

/// A recorded call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CallRecord {
    /// Its id.
    pub id: String,
    /// The message that it is a part of.
    pub message: String,
    /// Whose it is: `assistant` for an agent's, `user` for one that a person typed.
    pub role: String,
    /// The tool; `run` for a program that the host started.
    pub tool: String,
    /// `input-available`, `output-available` or `output-error` (X0-58).
    pub state: String,
    /// `approval` or `answer` if it waits for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// `succeeded`, `failed` or `cancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// When it was asked for, ISO 8601.
    pub proposed: String,
    /// When it started, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// When it ended, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The arguments.
    pub arguments: Value,
    /// The result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultEnvelope>,
}

/// Sessions to be kept: [`Store::prune`] removes the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// Sessions in which nothing has happened for longer go.
    pub age: Option<Duration>,
    /// The oldest sessions go until the database takes no more than so many bytes.
    pub bytes: Option<u64>,
}

impl Retention {
    /// Keeps what is not older than this.
    #[must_use]
    pub fn age(self, age: Duration) -> Self {
        Self { age: Some(age), ..self }
    }

    /// Keeps the newest sessions that fit into so many bytes.
    #[must_use]
    pub fn bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }
}

/// Things that the session's earlier openings have left for the next.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) id: String,
    pub(crate) approvals: Approvals,
    pub(crate) rules: Vec<Rule>,
    pub(crate) is_halted: bool,
    /// Notes of its own tools.
    pub(crate) notes: Notes,
    /// How often it has searched the web.
    pub(crate) searches: u64,
    /// The place of the last event.
    pub(crate) last: u64,
    /// The directory of its outputs, as it was made.
    pub(crate) outputs: Option<KnownOutputs>,
}

/// Facts that a session is made with.
pub(crate) struct NewSession<'a> {
    pub(crate) id: &'a str,
    pub(crate) title: Option<&'a str>,
    pub(crate) workspace: &'a [HostPath],
    pub(crate) policy: PolicyDigests,
    pub(crate) settings: &'a Value,
    /// Whose its calls are.
    pub(crate) role: &'static str,
    /// Parent of a session that another has started.
    pub(crate) parent: Option<Parent<'a>>,
}

/// Relation of a session to the one whose call has started it.
#[derive(Clone, Copy)]
pub(crate) struct Parent<'a> {
    /// Its id.
    pub(crate) session: &'a str,
    /// The agent that was started.
    pub(crate) agent: &'a str,
    /// The call that has started it.
    pub(crate) call: &'a str,
    pub(crate) is_listed: bool,
    /// Room for what the whole family records.
    pub(crate) room: &'a Room,
}

impl Store {
    /// The store of the user who runs this: `callgate` in `$XDG_STATE_HOME`, or in `~/.local/state`. It is made if it is not
    /// there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn of_user() -> Result<Self, StoreError> {
        Self::at(&Self::place_of_user().ok_or(StoreError::NoHome)?)
    }

    /// Where the store of the user who runs this is, or would be.
    #[must_use]
    pub fn place_of_user() -> Option<PathBuf> {
        host::state().map(|state| state.join("callgate"))
    }

    /// A store of the host's own, in this directory, which is made if it is not there. It is for this user alone: nobody else
    /// may read it, no session may reach it, and no symbolic link may lead there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn at(directory: &Path) -> Result<Self, StoreError> {
        let place = Place::make(directory)?;
        let path = place.prepare()?;
        let failed = |act: &'static str| {
            let path = path.clone();
            move |error: rusqlite::Error| StoreError::Database { act, path, source: Box::new(error) }
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW
            | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let mut connection = Connection::open_with_flags(&path, flags).map_err(failed("open the database"))?;
        // While it is opened. Later whoever writes decides how to wait.
        connection.busy_timeout(PATIENCE).map_err(failed("open the database"))?;
        let found = schema::version(&connection).map_err(failed("read the database"))?;
        if found > schema::VERSION {
            return Err(StoreError::Newer { path, found, known: schema::VERSION });
        }
        // One process makes the tables. Changing the journal of a database is not waited for by others.
        let _alone = if found == 0 { Some(place.set_up()?) } else { None };
        // Of one that has a version, that is judged before it is written.
        let is_fit = found > 0 || schema::is_nobodys(&connection).map_err(failed("read the database"))?;
        if is_fit {
            schema::configure(&connection).map_err(failed("set the database up"))?;
        }
        if !is_fit || !schema::migrate(&mut connection).map_err(failed("bring the database up to date"))? {
            return Err(StoreError::NotYours {
                path,
                what: "it has tables, views or triggers that callgate did not make",
            });
        }
        connection.busy_timeout(Duration::ZERO).map_err(failed("open the database"))?;
        connection.set_prepared_statement_cache_capacity(32);
        // What SQLite has opened lies in the directory that was looked at.
        place.confirm()?;
        place.prepare()?;
        let store = Self(Arc::new(Inner { place, path, connection: Mutex::new(connection) }));
        store.end_orphans()?;
        Ok(store)
    }

    /// The database.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// All sessions, the newest last. Those of subagents that are not to be inspected are left out; [`Store::children`] has them.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn sessions(&self) -> Result<Vec<SessionRecord>, StoreError> {
        let rows = self.read("list the sessions", |connection| {
            let mut statement = connection.prepare_cached(&session_sql("WHERE listed ORDER BY id"))?;
            statement.query_map([], SessionRow::of)?.collect::<Result<Vec<_>, _>>()
        })?;
        rows.into_iter().map(|row| self.shown(row)).collect()
    }

    /// The sessions of the subagents that calls of a session have started, the newest last (X0-29).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn children(&self, session: &SessionRecord) -> Result<Vec<SessionRecord>, StoreError> {
        let rows = self.read("list the session's subagents", |connection| {
            let mut statement =
                connection.prepare_cached(&session_sql("WHERE parent = ?1 AND agent IS NOT NULL ORDER BY id"))?;
            statement.query_map([&session.id], SessionRow::of)?.collect::<Result<Vec<_>, _>>()
        })?;
        rows.into_iter().map(|row| self.shown(row)).collect()
    }

    /// The session with this id, or with one that begins so.
    ///
    /// # Errors
    /// [`StoreError::NoSession`], [`StoreError::Ambiguous`].
    pub fn session(&self, id: &str) -> Result<SessionRecord, StoreError> {
        let mut found = self.read("look for the session", |connection| {
            // As text, and not as a pattern.
            let mut statement =
                connection.prepare_cached(&session_sql("WHERE substr(id, 1, length(?1)) = ?1 LIMIT 2"))?;
            statement.query_map([id], SessionRow::of)?.collect::<Result<Vec<_>, _>>()
        })?;
        match (found.pop(), found.is_empty()) {
            (Some(row), true) if !id.is_empty() => self.shown(row),
            (Some(_), _) => Err(StoreError::Ambiguous { id: id.to_owned() }),
            (None, _) => Err(StoreError::NoSession { id: id.to_owned() }),
        }
    }

    /// The calls of a session, in the order in which they were asked for.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn calls(&self, session: &SessionRecord) -> Result<Vec<CallRecord>, StoreError> {
        self.read("read the session's calls", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT parts.id, messages.id, role, tool, state, waiting, outcome, proposed_at, started_at, ended_at, input, \
                 envelope FROM parts JOIN messages ON messages.number = parts.message WHERE parts.session = ?1 ORDER BY proposed",
            )?;
            let rows = statement.query_map([session.number], |row| {
                let time = |at| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(iso));
                let (input, envelope): (String, Option<String>) = (row.get(10)?, row.get(11)?);
                Ok(CallRecord {
                    id: row.get(0)?,
                    message: row.get(1)?,
                    role: row.get(2)?,
                    tool: row.get(3)?,
                    state: row.get(4)?,
                    waiting: row.get(5)?,
                    outcome: row.get(6)?,
                    proposed: time(7)?.unwrap_or_default(),
                    started: time(8)?,
                    ended: time(9)?,
                    arguments: serde_json::from_str(&input).unwrap_or_default(),
                    result: envelope.and_then(|envelope| serde_json::from_str(&envelope).ok()),
                })
            })?;
            rows.collect()
        })
    }

    /// Tells the events of a session again, in their order and as they were told when they happened. Nothing is executed, and
    /// neither workspace nor manifest need be there.
    ///
    /// # Errors
    /// [`StoreError`], or what `tell` returns.
    pub fn replay<E: From<StoreError>>(
        &self,
        session: &SessionRecord,
        mut tell: impl FnMut(Event) -> Result<(), E>,
    ) -> Result<(), E> {
        const PLACES: &str = "SELECT proposed, 0, number FROM parts WHERE session = ?1 \
             UNION ALL SELECT started, 1, number FROM parts WHERE session = ?1 AND started IS NOT NULL \
             UNION ALL SELECT ended, 2, number FROM parts WHERE session = ?1 AND ended IS NOT NULL ORDER BY 1";
        let places = self.read("read the session's events", |connection| {
            let mut statement = connection.prepare_cached(PLACES)?;
            let rows =
                statement.query_map([session.number], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))?;
            rows.collect::<Result<Vec<_>, _>>()
        })?;
        // One at a time: together they may be more than fits into memory.
        for (moment, number) in places {
            let event = self.read("read an event", |connection| event_at(connection, &session.id, moment, number))?;
            event.map_or(Ok(()), &mut tell)?;
        }
        Ok(())
    }

    /// Makes a session that goes on where this one is: with its workspace, its settings, what has happened in it, and the added
    /// rules that deny or ask. Approvals, added rules that allow, and the files of its outputs stay behind. The fork of a halted
    /// session is halted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn fork(&self, session: &SessionRecord) -> Result<SessionRecord, StoreError> {
        let id = new_id("ses_").map_err(StoreError::Random)?;
        self.write("fork the session", |connection| {
            let transaction = connection.transaction()?;
            transaction.execute(
                "INSERT INTO sessions (id, parent, title, workspace, manifest, profile, settings, notes, halted, rules, created) \
                 SELECT ?2, id, title, workspace, manifest, profile, settings, notes, halted, \
                 (SELECT json_group_array(json(value)) FROM json_each(rules) \
                 WHERE json_extract(value, '$.action') IS NOT 'allow'), ?3 FROM sessions WHERE number = ?1",
                params![session.number, id, now()],
            )?;
            let fork = transaction.last_insert_rowid();
            let numbers = |sql: &str, of: i64| -> rusqlite::Result<Vec<i64>> {
                transaction.prepare_cached(sql)?.query_map([of], |row| row.get(0))?.collect()
            };
            for message in numbers("SELECT number FROM messages WHERE session = ?1 ORDER BY number", session.number)? {
                transaction
                    .prepare_cached(
                        "INSERT INTO messages (session, id, role, created) SELECT ?2, ?3, role, created FROM messages \
                         WHERE number = ?1",
                    )?
                    .execute(params![message, fork, row_id("msg_")?])?;
                let copy = transaction.last_insert_rowid();
                // What has not ended is the other session's.
                let parts = "SELECT number FROM parts WHERE message = ?1 AND ended IS NOT NULL ORDER BY proposed";
                for part in numbers(parts, message)? {
                    transaction
                        .prepare_cached(
                            "INSERT INTO parts (session, message, id, tool, origin, state, outcome, proposed, proposed_at, \
                             started, started_at, ended, ended_at, input, envelope) SELECT ?2, ?3, ?4, tool, origin, state, \
                             outcome, proposed, proposed_at, started, started_at, ended, ended_at, input, envelope \
                             FROM parts WHERE number = ?1",
                        )?
                        .execute(params![part, fork, copy, row_id("prt_")?])?;
                }
            }
            transaction.commit()
        })?;
        self.session(&id)
    }

    /// Closes a session: nobody continues it, the files of its outputs are removed, and a call that waits for an answer ends
    /// without one. What was recorded stays.
    ///
    /// # Errors
    /// [`StoreError::InUse`] while it is open.
    pub fn close(&self, session: &SessionRecord) -> Result<SessionRecord, StoreError> {
        let Some(_lock) = self.0.place.lock(session.number)? else {
            return Err(StoreError::InUse { id: session.id.clone() });
        };
        self.close_locked(session.number)?;
        self.session(&session.id)
    }

    /// Closes a session whose lock is held.
    pub(crate) fn close_locked(&self, number: i64) -> Result<(), StoreError> {
        self.write("close the session", |connection| {
            let transaction = connection.transaction()?;
            end_all(&transaction, number, ORPHANED, false)?;
            end_all(&transaction, number, CLOSED, true)?;
            let sql = "UPDATE sessions SET closed = ?2, opened = 0 WHERE number = ?1 AND closed IS NULL";
            transaction.execute(sql, params![number, now()])?;
            transaction.commit()
        })?;
        self.remove_outputs(number)
    }

    /// Removes sessions, with all that is recorded of them. Those that are open stay. Returns which went.
    ///
    /// # Errors
    /// [`StoreError`]; those that have gone by then are gone.
    pub fn prune(&self, keep: Retention) -> Result<Vec<SessionRecord>, StoreError> {
        let rows = self.read("list the sessions", |connection| {
            let mut statement = connection.prepare_cached(&session_sql(""))?;
            statement.query_map([], SessionRow::of)?.collect::<Result<Vec<_>, _>>()
        })?;
        let mut oldest_first = rows.into_iter().map(|row| self.shown(row)).collect::<Result<Vec<_>, _>>()?;
        oldest_first.sort_by(|a, b| a.updated.cmp(&b.updated));
        let since = keep.age.map(|age| now().saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)));
        let mut gone = Vec::new();
        for session in oldest_first {
            let is_old = since.is_some_and(|since| session.updated < iso(since));
            let is_too_much =
                || Ok::<_, StoreError>(keep.bytes.is_some_and(|most| self.bytes().is_ok_and(|now| now > most)));
            if !is_old && !is_too_much()? {
                continue;
            }
            let Some(_lock) = self.0.place.lock(session.number)? else { continue };
            self.remove_outputs(session.number)?;
            self.write("remove a session", |connection| {
                connection.execute("DELETE FROM sessions WHERE number = ?1", [session.number]).map(drop)
            })?;
            gone.push(session);
        }
        if !gone.is_empty() {
            self.write("give room back", |connection| {
                connection.execute_batch("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE);")
            })?;
        }
        Ok(gone)
    }

    /// The bytes that the sessions take in the database.
    fn bytes(&self) -> Result<u64, StoreError> {
        self.read("measure the database", |connection| {
            let value = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            let used = value("page_count")?.saturating_sub(value("freelist_count")?);
            Ok(u64::try_from(used.saturating_mul(value("page_size")?)).unwrap_or(0))
        })
    }

    /// Makes a session, open.
    pub(crate) fn begin(&self, new: &NewSession<'_>) -> Result<Stored, StoreError> {
        let workspace: Vec<String> = new.workspace.iter().map(place::text).collect();
        let number = self.write("make the session", |connection| {
            let sql = "INSERT INTO sessions (id, title, workspace, manifest, settings, opened, created, parent, agent, call, listed, \
                       profile) VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7, ?8, ?9, ?10, ?11)";
            let (parent, agent, call, is_listed) = match new.parent {
                Some(Parent { session, agent, call, is_listed, .. }) => (Some(session), Some(agent), Some(call), is_listed),
                None => (None, None, None, true),
            };
            let PolicyDigests { manifest, profile } = &new.policy;
            let (workspace, settings) = (json!(workspace).to_string(), new.settings.to_string());
            connection.execute(
                sql,
                params![new.id, new.title, workspace, manifest, settings, now(), parent, agent, call, is_listed, profile],
            )?;
            Ok(connection.last_insert_rowid())
        })?;
        let stored = self.open(number, new.id, new.role, true)?;
        Ok(match new.parent {
            Some(parent) => stored.of_agent(parent.room.clone()),
            None => stored,
        })
    }

    /// Continues a session, if it is the one that it was.
    pub(crate) fn resume(
        &self,
        id: &str,
        workspace: &[HostPath],
        policy: &PolicyDigests,
        role: &'static str,
    ) -> Result<(Stored, Kept), StoreError> {
        let session = self.session(id)?;
        let id = session.id.clone();
        let now: Vec<String> = workspace.iter().map(place::text).collect();
        if session.workspace != now {
            let (was, now) = (session.workspace.join(", "), now.join(", "));
            return Err(StoreError::OtherWorkspace { id, was, now });
        }
        let stored = self.open(session.number, &id, role, false)?;
        // Now that nobody else changes it.
        let (is_closed, was, kept) =
            self.read("read the session", |connection| kept(connection, session.number, &id))?;
        if is_closed {
            return Err(StoreError::Closed { id });
        }
        if was.manifest != policy.manifest {
            return Err(StoreError::OtherManifest { id });
        }
        if was.profile != policy.profile {
            return Err(StoreError::OtherProfile { id });
        }
        Ok((stored, kept))
    }

    /// Locks a session and marks it as open.
    fn open(&self, number: i64, id: &str, role: &'static str, is_new: bool) -> Result<Stored, StoreError> {
        let Some(lock) = self.0.place.lock(number)? else { return Err(StoreError::InUse { id: id.to_owned() }) };
        self.write("open the session", |connection| {
            let transaction = connection.transaction()?;
            end_all(&transaction, number, ORPHANED, false)?;
            transaction.execute("UPDATE sessions SET opened = 1 WHERE number = ?1", [number])?;
            transaction.commit()
        })?;
        Ok(Stored::new(self.clone(), number, role, is_new, lock))
    }

    /// Refuses a session whose grants reach this store.
    pub(crate) fn refuse_reach(&self, effective: &EffectiveSet, mounts: &MountTable) -> Result<(), StoreError> {
        self.0.place.refuse_reach(effective, mounts)
    }

    /// Where a new session's outputs are to lie.
    pub(crate) fn outputs(&self) -> &Path {
        self.0.place.path()
    }

    /// Ends the calls of sessions that were open when their process ended, whatever ended it.
    fn end_orphans(&self) -> Result<(), StoreError> {
        let marked = self.read("look for calls without an end", |connection| {
            let mut statement = connection.prepare("SELECT number FROM sessions WHERE opened = 1")?;
            statement.query_map([], |row| row.get::<_, i64>(0))?.collect::<Result<Vec<_>, _>>()
        })?;
        for number in marked {
            let Some(_lock) = self.0.place.lock(number)? else { continue };
            self.write("end what has no end", |connection| {
                let transaction = connection.transaction()?;
                end_all(&transaction, number, ORPHANED, false)?;
                transaction.execute("UPDATE sessions SET opened = 0 WHERE number = ?1", [number])?;
                transaction.commit()
            })?;
        }
        Ok(())
    }

    /// Removes the files of a session's outputs. They were all made by callgate, in one directory: what else has been put there
    /// stays, and the directory with it.
    fn remove_outputs(&self, number: i64) -> Result<(), StoreError> {
        let known = self.read("look for the session's outputs", |connection| outputs_of(connection, number))?;
        let Some(known) = known else { return Ok(()) };
        let failed = StoreError::place(Path::new(&known.path));
        match known.remove() {
            Ok(()) => {}
            // It was removed with the rest of its place, or another thing has its name.
            Err(error)
                if matches!(error.raw_os_error(), Some(nix::libc::ENOENT | nix::libc::ESTALE | nix::libc::ENOTDIR)) => {
            }
            Err(error) => return Err(failed(error)),
        }
        self.write("forget the session's outputs", |connection| {
            connection.execute("UPDATE sessions SET outputs = NULL WHERE number = ?1", [number]).map(drop)
        })
    }

    fn shown(
        &self,
        SessionRow { mut record, is_halted, is_closed, unended, waiting, asking }: SessionRow,
    ) -> Result<SessionRecord, StoreError> {
        record.is_open = self.0.place.is_locked(record.number)?;
        record.state = match () {
            () if is_closed => SessionState::Closed,
            () if waiting > 0 => SessionState::WaitingOnApproval,
            () if asking > 0 => SessionState::WaitingOnUserInput,
            () if record.is_open && unended > 0 => SessionState::Busy,
            () if is_halted => SessionState::Error,
            () => SessionState::Idle,
        };
        Ok(record)
    }

    fn once<T>(&self, act: &mut dyn FnMut(&mut Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        act(&mut self.0.connection.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for other processes that write.
    fn write<T>(
        &self,
        act: &'static str,
        mut write: impl FnMut(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.once(&mut write) {
                Err(error) if is_busy(&error) && Instant::now() < deadline => std::thread::sleep(AGAIN),
                done => return done.map_err(|error| self.failed(act, error)),
            }
        }
    }

    /// Readers wait for nobody, but for one who recovers the database after a crash.
    fn read<T>(
        &self,
        act: &'static str,
        mut read: impl FnMut(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.write(act, |connection| read(connection))
    }

    fn failed(&self, act: &'static str, error: rusqlite::Error) -> StoreError {
        StoreError::Database { act, path: self.0.path.clone(), source: Box::new(error) }
    }
}

/// Refuses a session whose grants reach the store of the user who runs this, if there is one, or lie in one that somebody has at the
/// usual place.
pub(crate) fn refuse_reach_of_user(effective: &EffectiveSet, mounts: &MountTable) -> Result<(), StoreError> {
    let rights = effective.rights();
    for (region, _) in rights.read().iter().chain(rights.write().iter()) {
        let granted = region.literal_prefix().as_path().to_owned();
        if let Some(path) = crate::host::named_in(&granted, &[".local", "state", "callgate"]) {
            return Err(StoreError::Reached { granted, path });
        }
    }
    Store::place_of_user().map_or(Ok(()), |place| place::refuse_reach(&place, effective, mounts))
}

/// Grant, if any, that lets a session read or write what is at `path`, or decide what stands there.
pub(crate) fn reached(
    path: &Path,
    effective: &EffectiveSet,
    mounts: &MountTable,
) -> Result<Option<PathBuf>, StoreError> {
    match place::refuse_system(path).and_then(|()| place::refuse_reach(path, effective, mounts)) {
        Ok(()) => Ok(None),
        Err(StoreError::Reached { granted, .. }) => Ok(Some(granted)),
        Err(StoreError::NotYours { path, .. }) => Ok(Some(path)),
        Err(other) => Err(other),
    }
}

/// Path of a directory, or in it, that a session may write.
pub(crate) fn granted_within(path: &Path, effective: &EffectiveSet) -> Option<PathBuf> {
    place::granted_within(path, effective)
}

/// The directory of one declared tool's state, which is made if it is not there: below the store's, which no session may reach.
/// A project's tools have theirs with the project, known by its path.
pub(crate) fn slot(tool: &str, origin: &crate::Origin, root: &HostPath) -> Result<HostPath, StoreError> {
    use sha2::Digest as _;
    let place = Store::place_of_user().ok_or(StoreError::NoHome)?;
    let of = match origin {
        crate::Origin::Project => format!("project-{}", crate::host::hex(&sha2::Sha256::digest(root.as_bytes())[..16])),
        crate::Origin::Bundled | crate::Origin::User | crate::Origin::Mcp(_) => origin.to_string(),
    };
    let path = place.join("tools").join(of).join(tool);
    Ok(place::Place::make(&path)?.path().to_owned().into())
}

/// A row of the list, and what its state is made of.
struct SessionRow {
    record: SessionRecord,
    is_halted: bool,
    is_closed: bool,
    unended: i64,
    /// Calls among those that wait for a yes, and for answers.
    waiting: i64,
    asking: i64,
}

fn session_sql(which: &str) -> String {
    format!(
        "SELECT number, id, parent, title, workspace, settings, halted, closed, created, \
         (SELECT max(max(proposed_at, coalesce(started_at, 0), coalesce(ended_at, 0))) FROM parts WHERE session = sessions.number), \
         (SELECT count(*) FROM parts WHERE session = sessions.number), \
         (SELECT count(*) FROM parts WHERE session = sessions.number AND outcome = 'failed'), \
         (SELECT count(*) FROM parts WHERE session = sessions.number AND ended IS NULL), \
         (SELECT count(*) FROM parts WHERE session = sessions.number AND ended IS NULL AND waiting = 'approval'), \
         (SELECT count(*) FROM parts WHERE session = sessions.number AND ended IS NULL AND waiting = 'answer'), \
         notes, agent, call FROM sessions {which}"
    )
}

impl SessionRow {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (workspace, settings, notes): (String, String, String) = (row.get(4)?, row.get(5)?, row.get(15)?);
        let notes: Notes = serde_json::from_str(&notes).unwrap_or_default();
        let (closed, created): (Option<i64>, i64) = (row.get(7)?, row.get(8)?);
        let last: Option<i64> = row.get(9)?;
        let count = |at| Ok::<_, rusqlite::Error>(u64::try_from(row.get::<_, i64>(at)?).unwrap_or(0));
        Ok(Self {
            record: SessionRecord {
                number: row.get(0)?,
                id: row.get(1)?,
                parent: row.get(2)?,
                agent: row.get(16)?,
                call: row.get(17)?,
                title: row.get(3)?,
                state: SessionState::Idle,
                is_open: false,
                workspace: serde_json::from_str(&workspace).unwrap_or_default(),
                created: iso(created),
                updated: iso(last.unwrap_or(0).max(closed.unwrap_or(0)).max(created)),
                calls: count(10)?,
                failed: count(11)?,
                todos: notes.todo,
                settings: serde_json::from_str(&settings).unwrap_or_default(),
            },
            is_halted: row.get(6)?,
            is_closed: closed.is_some(),
            unended: row.get(12)?,
            waiting: row.get(13)?,
            asking: row.get(14)?,
        })
    }
}

/// State of a session: whether it is closed, what its policy was, and what it has kept.
fn kept(connection: &Connection, number: i64, id: &str) -> rusqlite::Result<(bool, PolicyDigests, Kept)> {
    let last: Option<i64> = connection.query_row(
        "SELECT max(max(proposed, coalesce(started, 0), coalesce(ended, 0))) FROM parts WHERE session = ?1",
        [number],
        |row| row.get(0),
    )?;
    let searches = connection.query_row(
        "WITH RECURSIVE family (number, id) AS (SELECT number, id FROM sessions WHERE number = ?1 \
         UNION SELECT s.number, s.id FROM sessions s JOIN family f ON s.parent = f.id WHERE s.agent IS NOT NULL) \
         SELECT count(*) FROM parts JOIN family ON parts.session = family.number \
         WHERE tool = 'web_search' AND started IS NOT NULL",
        [number],
        |row| row.get(0),
    )?;
    let outputs = outputs_of(connection, number)?;
    let sql = "SELECT closed IS NOT NULL, manifest, approvals, rules, halted, notes, profile FROM sessions \
               WHERE number = ?1";
    connection.query_row(sql, [number], |row| {
        // What cannot be read is not taken for what is not there: it would be a rule less.
        let json = |at| -> rusqlite::Result<String> { row.get(at) };
        let unreadable = |at, error: serde_json::Error| {
            rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, Box::new(error))
        };
        let approvals = serde_json::from_str(&json(2)?).map_err(|error| unreadable(2, error))?;
        let rules = serde_json::from_str(&json(3)?).map_err(|error| unreadable(3, error))?;
        let notes = serde_json::from_str(&json(5)?).map_err(|error| unreadable(5, error))?;
        let last = u64::try_from(last.unwrap_or(0)).unwrap_or(0);
        let kept = Kept { id: id.to_owned(), approvals, rules, is_halted: row.get(4)?, notes, searches, last, outputs };
        Ok((row.get(0)?, PolicyDigests { manifest: row.get(1)?, profile: row.get(6)? }, kept))
    })
}

fn outputs_of(connection: &Connection, number: i64) -> rusqlite::Result<Option<KnownOutputs>> {
    let text: Option<String> =
        connection.query_row("SELECT outputs FROM sessions WHERE number = ?1", [number], |row| row.get(0))?;
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
}

/// Ends the calls of a session that have no end, as errors; those that wait for a person only `with_waiting`.
fn end_all(connection: &Connection, session: i64, why: &str, with_waiting: bool) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "SELECT number, coalesce(started_at, proposed_at) FROM parts \
         WHERE session = ?1 AND ended IS NULL AND (?2 OR waiting IS NULL) ORDER BY proposed",
    )?;
    let unended = statement
        .query_map(params![session, with_waiting], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?
        .collect::<Result<Vec<_>, _>>()?;
    for (number, _since) in unended {
        // How long it took, nobody knows.
        let mut metadata = Metadata::new(0);
        metadata.error = Some(failure::ErrorCode::SessionEnded.into());
        let envelope = serde_json::to_string(&ResultEnvelope::error(why, metadata)).unwrap_or_default();
        connection.execute(
            "UPDATE parts SET state = 'output-error', outcome = 'failed', waiting = NULL, ended_at = ?2, envelope = ?3, \
             ended = (SELECT max(max(proposed, coalesce(started, 0), coalesce(ended, 0))) + 1 FROM parts WHERE session = ?4) \
             WHERE number = ?1",
            params![number, now(), envelope, session],
        )?;
    }
    Ok(())
}

fn event_at(connection: &Connection, session: &str, moment: i64, number: i64) -> rusqlite::Result<Option<Event>> {
    let body = match moment {
        0 => "input",
        1 => "NULL",
        _ => "envelope",
    };
    let (place, at) = match moment {
        0 => ("proposed", "proposed_at"),
        1 => ("started", "started_at"),
        _ => ("ended", "ended_at"),
    };
    let sql = format!("SELECT {place}, {at}, id, tool, origin, outcome, {body} FROM parts WHERE number = ?1");
    connection
        .prepare_cached(&sql)?
        .query_row([number], |row| {
            let outcome: Option<String> = row.get(5)?;
            let kind = match (moment, outcome.as_deref()) {
                (0, _) => EventKind::Proposed,
                (1, _) => EventKind::Started,
                (_, Some("succeeded")) => EventKind::Succeeded,
                (_, Some("cancelled")) => EventKind::Cancelled,
                _ => EventKind::Failed,
            };
            let place = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
            let text = |at| row.get::<_, String>(at);
            Ok(Event::new(kind, (place, row.get(1)?), session, &text(2)?, &text(3)?, &text(4)?, row.get(6)?))
        })
        .optional()
}

/// Digests of the policy that a recorded session is bound to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyDigests {
    /// Digest of all that the manifest says.
    manifest: Option<String>,
    /// Digest of the profile's file, if it has one. Which of the built-in profiles it is, the session's settings say.
    profile: Option<String>,
}

impl PolicyDigests {
    pub(crate) fn of(manifest: Option<&Manifest>, profile: &Profile) -> Self {
        let all = |manifest: &Manifest| host::hex(&Sha256::digest(json!(manifest.entries()).to_string()));
        Self { manifest: manifest.map(all), profile: profile.file.as_ref().map(|file| file.digest.clone()) }
    }
}

/// ISO 8601, with milliseconds: times compare as text.
fn iso(milliseconds: i64) -> String {
    format!("{:.3}", jiff::Timestamp::from_millisecond(milliseconds).unwrap_or_default())
}
