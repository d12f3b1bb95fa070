//! The record of one session while it is open: each call before it runs and when it has ended, and the events of both.
//!
//! A call takes two writes to the database, one before it runs and one after. Where a person is asked first there is one more,
//! so that a question that nobody has answered is still there after a crash.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use callgate_policy::approval::Approval;
use callgate_policy::envelope::{Metadata, Outcome, ResultEnvelope};
use callgate_policy::rules::Rule;
use rusqlite::{Connection, params};
use serde_json::Value;
use tokio::sync::broadcast;

use super::database::{AGAIN, PATIENCE, is_busy, now, row_id};
use super::event::{Event, EventKind, Events};
use super::place::Lock;
use super::redact::Redaction;
use super::{KnownOutputs, Notes, Store, StoreError};
use crate::causes::with_causes;
use crate::id::new_id;

/// How many events a reader may be behind.
const BEHIND: usize = 1024;

/// Most bytes that the session of a subagent records.
const AGENT_MAX: u64 = 256 << 20;
/// Most bytes that all subagents of a session record, and theirs, while it is open.
const FAMILY_MAX: u64 = 1 << 30;
/// Bytes that a row takes besides its texts, about.
const ROW: u64 = 256;

/// A session's recorder. Without a store it only tells events, and nothing at all while nobody listens.
#[derive(Debug)]
pub(crate) struct Recorder {
    session: String,
    redaction: Redaction,
    feed: broadcast::Sender<Event>,
    /// The place of the last event. Held while it is told, so that events are told in their order.
    place: Mutex<u64>,
    stored: Option<Stored>,
}

/// A session that this process has open in a store.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(super) store: Store,
    pub(super) number: i64,
    /// The message that this opening's calls belong to; 0 until the first is made.
    message: AtomicI64,
    role: &'static str,
    /// Ends that could not be written. Nothing runs before they are.
    unwritten: Mutex<Vec<End>>,
    /// Rooms that bound how much is recorded. Empty where a person decides how many calls there are.
    rooms: Vec<Room>,
    /// Made by this opening, which has not succeeded yet.
    is_new: AtomicBool,
    _lock: Lock,
}

/// Room for what is recorded. Each clone takes from the same.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    left: Arc<AtomicU64>,
    /// Bytes that it had in the beginning.
    most: u64,
    /// Whose it is.
    who: &'static str,
}

/// How a call ended.
#[derive(Debug, Clone)]
struct End {
    number: i64,
    started: Option<Stamp>,
    ended: Stamp,
    kind: EventKind,
    envelope: Option<String>,
}

/// Facts known of a call when its row is written.
#[derive(Debug, Clone, Copy, Default)]
struct Written<'a> {
    is_waited_for: bool,
    started: Option<Stamp>,
    end: Option<&'a End>,
}

/// The place of an event, and its time.
type Stamp = (u64, i64);

/// A call that is recorded. Dropping it before its end records that nobody waited for it.
#[derive(Debug)]
pub(crate) struct Recording {
    /// `None` where nobody wants to know.
    recorder: Option<Arc<Recorder>>,
    id: String,
    tool: String,
    origin: String,
    input: String,
    /// Its row, once it is written.
    number: Option<i64>,
    proposed: Stamp,
    started: Option<Stamp>,
    has_ended: bool,
}

impl Recorder {
    /// `last` is the place of the last event that is recorded.
    pub(crate) fn new(session: String, redaction: Redaction, stored: Option<Stored>, last: u64) -> Arc<Self> {
        let (feed, _) = broadcast::channel(BEHIND);
        Arc::new(Self { session, redaction, feed, place: Mutex::new(last), stored })
    }

    pub(crate) fn events(&self) -> Events {
        Events::new(self.feed.subscribe())
    }

    /// A call is asked for.
    pub(crate) fn propose(self: &Arc<Self>, tool: &str, origin: &str, input: &Value) -> Recording {
        let mut recording = Recording {
            recorder: None,
            id: String::new(),
            tool: tool.to_owned(),
            origin: origin.to_owned(),
            input: String::new(),
            number: None,
            proposed: (0, 0),
            started: None,
            has_ended: false,
        };
        if self.stored.is_some() || self.feed.receiver_count() > 0 {
            recording.recorder = Some(Arc::clone(self));
            // Without random bytes there is no session either.
            recording.id = new_id("prt_").unwrap_or_default();
            recording.input = self.redaction.value(input).to_string();
            recording.proposed = recording.tell(EventKind::Proposed, Some(recording.input.clone()));
        }
        recording
    }

    /// True if an approval holds a secret. It is then written nowhere: without the secret it would be the key of
    /// another call.
    pub(crate) fn is_secret(&self, approval: &Approval) -> bool {
        let holds = |text: &str| match serde_json::from_str::<serde_json::Value>(text) {
            Ok(effect) => self.redaction.value(&effect) != effect,
            Err(_) => self.redaction.finds_in(text),
        };
        let wider = approval.wider.as_ref().map(ToString::to_string);
        approval.effects.iter().any(|key| holds(key.as_str()))
            || wider.is_some_and(|text| self.redaction.finds_in(&text))
    }

    /// Keeps approvals for the session's next openings.
    pub(crate) fn keep_approvals<'a>(&self, kept: impl Iterator<Item = &'a Approval>) -> Result<(), StoreError> {
        let Some(stored) = &self.stored else { return Ok(()) };
        let kept = kept.filter(|approval| !self.is_secret(approval));
        let text = serde_json::to_string(&kept.collect::<Vec<_>>()).unwrap_or_default();
        let sql = "UPDATE sessions SET approvals = ?2 WHERE number = ?1";
        stored
            .store
            .write("keep an approval", |connection| connection.execute(sql, params![stored.number, text]).map(drop))
    }

    /// Keeps a rule that was added while the session runs.
    pub(crate) fn keep_rule(&self, rule: &Rule) -> Result<(), StoreError> {
        let Some(stored) = &self.stored else { return Ok(()) };
        let text = serde_json::to_string(rule).unwrap_or_default();
        let sql = "UPDATE sessions SET rules = json_insert(rules, '$[#]', json(?2)) WHERE number = ?1";
        stored.store.write("keep a rule", |connection| connection.execute(sql, params![stored.number, text]).map(drop))
    }

    /// Keeps what the session's own tools have noted.
    pub(crate) fn keep_notes(&self, notes: &Notes) -> Result<(), StoreError> {
        let Some(stored) = &self.stored else { return Ok(()) };
        let text = self.redaction.value(&serde_json::to_value(notes).unwrap_or_default()).to_string();
        let sql = "UPDATE sessions SET notes = ?2 WHERE number = ?1";
        stored.store.write("keep the session's notes", |connection| {
            connection.execute(sql, params![stored.number, text]).map(drop)
        })
    }

    /// Nothing else runs in the session.
    pub(crate) fn keep_halt(&self) {
        let Some(stored) = &self.stored else { return };
        let sql = "UPDATE sessions SET halted = 1 WHERE number = ?1";
        let kept = stored.store.write("record that the session is halted", |connection| {
            connection.execute(sql, [stored.number]).map(drop)
        });
        if let Err(error) = kept {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the next opening does not know that it is halted"
            );
        }
    }

    /// The session is closed.
    pub(crate) fn close(&self) -> Result<(), StoreError> {
        self.stored.as_ref().map_or(Ok(()), |stored| stored.store.close_locked(stored.number))
    }

    /// The session stands, with its outputs in this directory.
    pub(crate) fn stands(&self, outputs: Option<KnownOutputs>) -> Result<(), StoreError> {
        let Some(stored) = &self.stored else { return Ok(()) };
        let sql = "UPDATE sessions SET outputs = ?2 WHERE number = ?1";
        let text = outputs.and_then(|outputs| serde_json::to_string(&outputs).ok());
        stored.store.write("record the session", |connection| {
            connection.execute(sql, params![stored.number, text]).map(drop)
        })?;
        stored.is_new.store(false, Ordering::Relaxed);
        Ok(())
    }
}

impl Stored {
    pub(super) fn new(store: Store, number: i64, role: &'static str, is_new: bool, lock: Lock) -> Self {
        let (message, unwritten, is_new) = (AtomicI64::new(0), Mutex::default(), AtomicBool::new(is_new));
        Self { store, number, message, role, unwritten, rooms: Vec::new(), is_new, _lock: lock }
    }

    /// Recorder for a subagent: it takes from its own room and from its family's.
    pub(super) fn of_agent(mut self, family: Room) -> Self {
        self.rooms = vec![Room::new(AGENT_MAX, "the session of a subagent"), family];
        self
    }

    /// Takes room for a text that is written. Once there is none left, nothing new is.
    fn take_room(&self, text: &str) -> Result<(), StoreError> {
        self.rooms.iter().try_for_each(|room| room.take(ROW + text.len() as u64))
    }

    /// Tried again while another process writes: this thread may have others to serve.
    async fn write<T>(
        &self,
        act: &'static str,
        mut write: impl FnMut(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.store.once(&mut write) {
                Err(error) if is_busy(&error) && Instant::now() < deadline => tokio::time::sleep(AGAIN).await,
                done => return done.map_err(|error| self.store.failed(act, error)),
            }
        }
    }

    /// Writes ends that could not be written before.
    fn catch_up(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(end) = unwritten.first() {
            end.write(connection)?;
            unwritten.remove(0);
        }
        Ok(())
    }

    /// Inserts a call's row.
    fn insert(&self, connection: &mut Connection, call: &Recording, what: Written<'_>) -> rusqlite::Result<i64> {
        self.catch_up(connection)?;
        let message = self.message.load(Ordering::Relaxed);
        if message != 0 {
            return call.insert(connection, (self.number, message), what);
        }
        let transaction = connection.transaction()?;
        transaction
            .prepare_cached("INSERT INTO messages (session, id, role, created) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![self.number, row_id("msg_")?, self.role, call.proposed.1])?;
        let message = transaction.last_insert_rowid();
        let number = call.insert(&transaction, (self.number, message), what)?;
        transaction.commit()?;
        self.message.store(message, Ordering::Relaxed);
        Ok(number)
    }
}

/// For all subagents of a session, and theirs.
impl Default for Room {
    fn default() -> Self {
        Self::new(FAMILY_MAX, "all subagents of a session together")
    }
}

impl Room {
    fn new(most: u64, who: &'static str) -> Self {
        Self { left: Arc::new(AtomicU64::new(most)), most, who }
    }

    /// The last that takes may take more than there is.
    fn take(&self, bytes: u64) -> Result<(), StoreError> {
        let take = |left: u64| (left > 0).then(|| left.saturating_sub(bytes));
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(drop).map_err(|_none| StoreError::Full { who: self.who, most: self.most })
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        let ended = self.store.write("close the session", |connection| {
            self.catch_up(connection)?;
            let sql = match self.is_new.load(Ordering::Relaxed) {
                // It was never opened.
                true => "DELETE FROM sessions WHERE number = ?1",
                false => "UPDATE sessions SET opened = 0 WHERE number = ?1",
            };
            connection.execute(sql, [self.number]).map(drop)
        });
        if let Err(error) = ended {
            // As after a crash: the next opening of the store finds calls without an end, and ends them.
            tracing::warn!(error = &error as &dyn std::error::Error, "the end of the session is not recorded");
        }
    }
}

impl End {
    fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let (state, outcome) = states(self.kind);
        connection
            .prepare_cached(
                "UPDATE parts SET state = ?2, outcome = ?3, started = ?4, started_at = ?5, ended = ?6, ended_at = ?7, \
                 envelope = ?8, waiting = NULL WHERE number = ?1",
            )?
            .execute(params![
                self.number,
                state,
                outcome,
                self.started.map(|stamp| stamp.0),
                self.started.map(|stamp| stamp.1),
                self.ended.0,
                self.ended.1,
                self.envelope
            ])
            .map(drop)
    }
}

/// The state and the outcome of a call that has ended so. One that was cancelled stays as it was (X0-56).
fn states(kind: EventKind) -> (&'static str, &'static str) {
    match kind {
        EventKind::Succeeded => ("output-available", "succeeded"),
        EventKind::Proposed | EventKind::Started | EventKind::Cancelled => ("input-available", "cancelled"),
        EventKind::Failed => ("output-error", "failed"),
    }
}

impl Recording {
    /// Its id; empty where nobody wants to know.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// A person is asked before it runs.
    pub(crate) async fn wait_for_approval(&mut self) -> Result<(), StoreError> {
        let Some(recorder) = self.recorder.clone() else { return Ok(()) };
        let (Some(stored), None) = (&recorder.stored, self.number) else { return Ok(()) };
        stored.take_room(&self.input)?;
        let waiting = Written { is_waited_for: true, ..Written::default() };
        let insert = |connection: &mut Connection| stored.insert(connection, self, waiting);
        let number = stored.write("record the call", insert).await?;
        self.number = Some(number);
        Ok(())
    }

    /// It runs, and a person is waited for.
    pub(crate) async fn wait_for_answer(&mut self) -> Result<(), StoreError> {
        let Some(recorder) = self.recorder.clone() else { return Ok(()) };
        let (Some(stored), Some(number)) = (&recorder.stored, self.number) else { return Ok(()) };
        let sql = "UPDATE parts SET waiting = 'answer' WHERE number = ?1";
        stored.write("record the call", |connection| connection.execute(sql, [number]).map(drop)).await
    }

    /// It is about to run, or one more step of it is. With an error it must not.
    pub(crate) async fn start(&mut self) -> Result<(), StoreError> {
        if self.started.is_some() {
            return Ok(());
        }
        let Some(recorder) = self.recorder.clone() else { return Ok(()) };
        let Some(stored) = &recorder.stored else {
            self.started = Some(self.tell(EventKind::Started, None));
            return Ok(());
        };
        if self.number.is_none() {
            stored.take_room(&self.input)?;
        }
        let start = |connection: &mut Connection| {
            // Nothing takes a place in between, and what could not be written takes none.
            let mut place = recorder.place.lock().unwrap_or_else(PoisonError::into_inner);
            let stamp = (*place + 1, now());
            let number = self.write_start(stored, connection, stamp)?;
            *place += 1;
            self.publish(EventKind::Started, stamp, None);
            Ok((number, stamp))
        };
        let (number, stamp) = stored.write("record the call", start).await?;
        (self.number, self.started) = (Some(number), Some(stamp));
        Ok(())
    }

    fn write_start(&self, stored: &Stored, connection: &mut Connection, stamp: Stamp) -> rusqlite::Result<i64> {
        let Some(number) = self.number else {
            return stored.insert(connection, self, Written { started: Some(stamp), ..Written::default() });
        };
        stored.catch_up(connection)?;
        let sql = "UPDATE parts SET started = ?2, started_at = ?3, waiting = NULL WHERE number = ?1";
        connection.prepare_cached(sql)?.execute(params![number, stamp.0, stamp.1])?;
        Ok(number)
    }

    /// It has ended, with this result. What could not be recorded of it is told in the result.
    pub(crate) async fn end(mut self, envelope: &mut ResultEnvelope) {
        let end = self.ended(envelope);
        self.record_end(end, envelope).await;
    }

    /// It was aborted. Its caller gets an envelope; the record says that nobody waited, as when a call is dropped.
    pub(crate) async fn cancel(mut self, envelope: &mut ResultEnvelope) {
        let end = self.cancelled();
        self.record_end(end, envelope).await;
    }

    async fn record_end(self, end: Option<(Arc<Recorder>, End)>, envelope: &mut ResultEnvelope) {
        let Some((recorder, end)) = end else { return };
        let Some(stored) = &recorder.stored else { return };
        let written = match self.take_room_for(stored, &end) {
            Ok(()) => stored.write("record the result", |connection| self.write_end(stored, connection, &end)).await,
            full => full,
        };
        self.tell_unwritten(stored, written, end, envelope);
    }

    /// Ends it where nothing else is to be done meanwhile.
    pub(crate) fn end_now(mut self, envelope: &mut ResultEnvelope) {
        let Some((recorder, end)) = self.ended(envelope) else { return };
        let Some(stored) = &recorder.stored else { return };
        let written = self.take_room_for(stored, &end).and_then(|()| {
            stored.store.write("record the result", |connection| self.write_end(stored, connection, &end))
        });
        self.tell_unwritten(stored, written, end, envelope);
    }

    /// The end of a call that has begun is written whatever room there is: it is as long as a result may be, once.
    fn take_room_for(&self, stored: &Stored, end: &End) -> Result<(), StoreError> {
        let of_envelope = stored.take_room(end.envelope.as_deref().unwrap_or_default());
        match self.number {
            Some(_) => Ok(()),
            None => of_envelope.and_then(|()| stored.take_room(&self.input)),
        }
    }

    fn ended(&mut self, envelope: &ResultEnvelope) -> Option<(Arc<Recorder>, End)> {
        self.has_ended = true;
        let recorder = self.recorder.clone()?;
        let kind = match envelope.kind {
            Outcome::Output => EventKind::Succeeded,
            Outcome::Error => EventKind::Failed,
        };
        let text = recorder.redacted(envelope);
        let ended = self.tell(kind, Some(text.clone()));
        let number = self.number.unwrap_or(0);
        Some((recorder, End { number, started: self.started, ended, kind, envelope: Some(text) }))
    }

    fn cancelled(&mut self) -> Option<(Arc<Recorder>, End)> {
        self.has_ended = true;
        let recorder = self.recorder.clone()?;
        let (number, ended) = (self.number.unwrap_or(0), self.tell(EventKind::Cancelled, None));
        Some((recorder, End { number, started: self.started, ended, kind: EventKind::Cancelled, envelope: None }))
    }

    fn write_end(&self, stored: &Stored, connection: &mut Connection, end: &End) -> rusqlite::Result<()> {
        match self.number {
            Some(_) => stored.catch_up(connection).and_then(|()| end.write(connection)),
            // It was refused before it could run.
            None => stored.insert(connection, self, Written { end: Some(end), ..Written::default() }).map(drop),
        }
    }

    fn tell_unwritten(
        &self,
        stored: &Stored,
        written: Result<(), StoreError>,
        end: End,
        envelope: &mut ResultEnvelope,
    ) {
        let Err(error) = written else { return };
        envelope.metadata.not_recorded = Some(with_causes(&error));
        if self.number.is_some() {
            stored.unwritten.lock().unwrap_or_else(PoisonError::into_inner).push(end);
        }
    }

    fn tell(&self, kind: EventKind, body: Option<String>) -> Stamp {
        let Some(recorder) = &self.recorder else { return (0, 0) };
        let mut place = recorder.place.lock().unwrap_or_else(PoisonError::into_inner);
        *place += 1;
        let stamp = (*place, now());
        self.publish(kind, stamp, body);
        stamp
    }

    fn publish(&self, kind: EventKind, stamp: Stamp, body: Option<String>) {
        if let Some(recorder) = self.recorder.as_ref().filter(|recorder| recorder.feed.receiver_count() > 0) {
            let event = Event::new(kind, stamp, &recorder.session, &self.id, &self.tool, &self.origin, body);
            // A reader that has gone meanwhile misses nothing.
            drop(recorder.feed.send(event));
        }
    }

    fn insert(
        &self,
        connection: &Connection,
        (session, message): (i64, i64),
        Written { is_waited_for, started, end }: Written<'_>,
    ) -> rusqlite::Result<i64> {
        let states = end.map(|end| states(end.kind));
        connection
            .prepare_cached(
                "INSERT INTO parts (session, message, id, tool, origin, state, waiting, outcome, proposed, proposed_at, \
                 started, started_at, ended, ended_at, input, envelope) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
            )?
            .execute(params![
                session,
                message,
                self.id,
                self.tool,
                self.origin,
                states.map_or("input-available", |(state, _)| state),
                is_waited_for.then_some("approval"),
                states.map(|(_, outcome)| outcome),
                self.proposed.0,
                self.proposed.1,
                started.map(|stamp| stamp.0),
                started.map(|stamp| stamp.1),
                end.map(|end| end.ended.0),
                end.map(|end| end.ended.1),
                self.input,
                end.and_then(|end| end.envelope.as_deref()),
            ])?;
        Ok(connection.last_insert_rowid())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let Some((recorder, end)) = self.cancelled() else { return };
        let Some(stored) = &recorder.stored else { return };
        if self.take_room_for(stored, &end).is_err() {
            return;
        }
        // Nobody is left to wait for another process's write.
        let written = stored.store.once(&mut |connection| self.write_end(stored, connection, &end));
        if let Err(error) = written {
            tracing::debug!(%error, "the end of a call is recorded later");
            if self.number.is_some() {
                stored.unwritten.lock().unwrap_or_else(PoisonError::into_inner).push(end);
            }
        }
    }
}

impl Recorder {
    /// An envelope as it is recorded.
    fn redacted(&self, envelope: &ResultEnvelope) -> String {
        let value = serde_json::to_value(envelope).unwrap_or_default();
        let clean = self.redaction.value(&value);
        // In an envelope's own order.
        match serde_json::from_value::<ResultEnvelope>(clean.clone()) {
            Ok(envelope) => serde_json::to_string(&envelope).unwrap_or_default(),
            // There was more of it than is kept.
            Err(_) => {
                let (marker, mut metadata) = (clean, Metadata::new(envelope.metadata.duration_ms));
                metadata.error = envelope.metadata.error.clone();
                let cut = match envelope.kind {
                    Outcome::Output => ResultEnvelope::output(marker, metadata),
                    Outcome::Error => ResultEnvelope::error(marker.as_str().unwrap_or_default(), metadata),
                };
                serde_json::to_string(&cut).unwrap_or_default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use callgate_policy::envelope::Metadata;
    use serde_json::json;

    use super::super::{NewSession, PolicyDigests};
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(&directory.path().canonicalize().unwrap().join("store")).unwrap();
        (directory, store)
    }

    fn begin(store: &Store, id: &str) -> Stored {
        let settings = &Value::Null;
        let new = NewSession {
            id,
            title: None,
            workspace: &[],
            policy: PolicyDigests::default(),
            settings,
            role: "assistant",
            parent: None,
        };
        store.begin(&new).unwrap()
    }

    /// D11: one subagent after the other does not fill the disk either; the session that has started them goes on.
    #[test]
    fn d11_subagents_do_not_fill_the_disk_together() {
        let (_directory, store) = store();
        let family = Room::default();
        family.left.store(1500, Ordering::Relaxed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let starts = |id: &str, stored| {
            let recorder = Recorder::new(id.to_owned(), Redaction::default(), Some(stored), 0);
            runtime.block_on(recorder.propose("read", "bundled", &json!({ "path": "x".repeat(500) })).start())
        };
        for id in ["ses_1", "ses_2"] {
            starts(id, begin(&store, id).of_agent(family.clone())).unwrap();
        }
        let full = starts("ses_3", begin(&store, "ses_3").of_agent(family.clone())).unwrap_err();
        assert!(matches!(full, StoreError::Full { most: FAMILY_MAX, .. }), "{full}");
        starts("ses_first", begin(&store, "ses_first")).unwrap();
    }

    /// D11: a subagent's calls are recorded up to a bound, denied ones too; a call that began before it keeps its end, and after it
    /// nothing of its runs.
    #[test]
    fn d11_a_subagent_does_not_fill_the_disk_with_its_record() {
        let (_directory, store) = store();
        let id = "ses_x";
        let stored = begin(&store, id).of_agent(Room::default());
        stored.rooms[0].left.store(2300, Ordering::Relaxed);
        let recorder = Recorder::new(id.to_owned(), Redaction::default(), Some(stored), 0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let denied = || ResultEnvelope::error("no", Metadata::new(0));
        let propose = || recorder.propose("read", "bundled", &json!({ "path": "x".repeat(500) }));
        let mut begun = propose();
        runtime.block_on(begun.start()).unwrap();
        let mut not_recorded = 0;
        for _ in 0..10 {
            let mut envelope = denied();
            runtime.block_on(propose().end(&mut envelope));
            not_recorded += usize::from(envelope.metadata.not_recorded.is_some());
        }
        assert_eq!(not_recorded, 8, "two had room");
        let full = runtime.block_on(propose().start()).unwrap_err();
        assert!(matches!(full, StoreError::Full { .. }), "{full}");
        runtime.block_on(begun.end(&mut denied()));
        let calls = store.calls(&store.session(id).unwrap()).unwrap();
        assert_eq!(calls.len(), 3);
        assert!(calls.iter().all(|call| call.result.is_some()), "the one that had begun has its end");
    }
}
