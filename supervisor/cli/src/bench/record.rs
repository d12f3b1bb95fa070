//! Costs of recording a call, beside the least that its two writes can cost.

use std::path::Path;
use std::time::{Duration, Instant};

use callgate::{Launcher, Store, Supervisor};
use rusqlite::{Connection, params};

use super::figures::Figures;
use super::rounds::settle;
use super::sessions::{Opener, RATE_CALLS_PER_RUN, at_once, reads};
use crate::exit::CommandFailure;

/// Bytes that the floor writes each time.
const WRITTEN: usize = 1024;

/// A `read` in a session that is not recorded and in one that is, and the floor: inserting a row of 1 kB and updating it, each
/// alone, in a database with the same settings.
pub(super) struct RecordedRead {
    pub(super) plain: Figures,
    pub(super) recorded: Figures,
    pub(super) floor: Figures,
    /// Reads per second of many recorded sessions at once.
    pub(super) many_sessions: f64,
}

impl RecordedRead {
    /// Time that recording adds.
    pub(super) fn added(&self) -> Duration {
        self.recorded.median.saturating_sub(self.plain.median)
    }
}

/// The three take turns.
pub(super) async fn measure(
    opener: &Opener<'_>,
    launcher: Launcher,
    place: &Path,
    runs: u32,
) -> Result<RecordedRead, CommandFailure> {
    let store = Store::at(&place.join("store"))?;
    let supervisor = Supervisor::builder().launcher(launcher).store(store).build()?;
    let plain = opener.open().await?.session;
    let recorded = supervisor.open(opener.spec()).await?;
    let mut floor = Floor::make(&place.join("floor.db")).map_err(unmeasured)?;
    let mut samples = [const { Vec::new() }; 3];
    for run in 0..runs + runs.div_ceil(10) {
        let mut took = [Duration::ZERO; 3];
        // In an order that changes from round to round.
        for subject in (0..3).map(|subject| (subject + run as usize) % 3) {
            settle().await;
            let started = Instant::now();
            match subject {
                0 => reads(&plain, 1).await?,
                1 => reads(&recorded, 1).await?,
                _ => floor.write().map_err(unmeasured)?,
            }
            took[subject] = started.elapsed();
        }
        // The first ones warm up.
        if run >= runs.div_ceil(10) {
            samples.iter_mut().zip(took).for_each(|(samples, took)| samples.push(took));
        }
    }
    let [plain, recorded, floor] = samples.map(|samples| Figures::of(&samples, None));
    let many_sessions = at_once(&supervisor, opener, runs.saturating_mul(RATE_CALLS_PER_RUN)).await?;
    Ok(RecordedRead { plain, recorded, floor, many_sessions })
}

struct Floor(Connection);

impl Floor {
    fn make(path: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch("CREATE TABLE rows (number INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT")?;
        Ok(Self(connection))
    }

    fn write(&mut self) -> rusqlite::Result<()> {
        let text = |letter: &str| letter.repeat(WRITTEN);
        self.0.prepare_cached("INSERT INTO rows (text) VALUES (?1)")?.execute([text("a")])?;
        let number = self.0.last_insert_rowid();
        self.0.prepare_cached("UPDATE rows SET text = ?2 WHERE number = ?1")?.execute(params![number, text("b")])?;
        Ok(())
    }
}

fn unmeasured(error: rusqlite::Error) -> CommandFailure {
    CommandFailure::Subject { subject: "a database".to_owned(), reason: error.to_string() }
}
