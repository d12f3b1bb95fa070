//! Costs of recording a call, beside the least that its two writes can cost.

use std::path::Path;
use std::time::{Duration, Instant};

use callgate::{Launcher, Store, Supervisor};
use rusqlite::{Connection, params};
use serde_json::json;

use crate::failure::BenchFailure;
use crate::figures::{FigureTarget, MeasuredFigures, micros, print, settle};
use crate::sessions::{AT_ONCE, BenchOpener, at_once, reads};

/// Calls of many sessions together, for each run.
const CALLS_PER_RUN: u32 = 10;
/// Bytes that the floor writes each time.
const WRITTEN: usize = 1024;

/// A `read` in a session that is not recorded and in one that is, and the floor: inserting a row of 1 kB and updating it, each
/// alone, in a database with the same settings. The three take turns. Measures, and prints.
pub(crate) async fn measure(
    opener: &BenchOpener<'_>,
    (launcher, place): (Launcher, &Path),
    runs: u32,
    as_json: bool,
) -> Result<(), BenchFailure> {
    let store = Store::at(&place.join("store"))?;
    let supervisor = Supervisor::builder().launcher(launcher).store(store).build()?;
    let plain = opener.open().await?;
    let recorded = supervisor.open(opener.spec()).await?;
    let mut floor = Floor::make(&place.join("floor.db"))?;
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
                _ => floor.write()?,
            }
            took[subject] = started.elapsed();
        }
        // The first ones warm up.
        if run >= runs.div_ceil(10) {
            samples.iter_mut().zip(took).for_each(|(samples, took)| samples.push(took));
        }
    }
    let [plain, recorded, floor] = samples.map(|samples| MeasuredFigures::of(&samples));
    let calls = runs.saturating_mul(CALLS_PER_RUN);
    let (many, many_recorded) =
        (at_once(opener.supervisor, opener, calls).await?, at_once(&supervisor, opener, calls).await?);
    let [plain, recorded, floor] = [plain, recorded, floor].map(|figures| micros(figures.median));
    let figures = json!({
        "recording_us": { "read": plain, "recorded_read": recorded, "floor": floor },
        "reads_per_second": { "fifty_sessions": many, "fifty_recorded_sessions": many_recorded },
    });
    let lines = format!(
        "a read that is recorded: {recorded:.0} µs, one that is not: {plain:.0} µs; inserting 1 kB into a database and updating it: \
         {floor:.0} µs\n\
         reads per second of {AT_ONCE} sessions at once: {many:.0}, and {many_recorded:.0} where they are recorded\n"
    );
    let added = FigureTarget {
        what: "recording a read / two writes of 1 kB",
        at_most: 3.0,
        measured: (recorded - plain).max(0.0) / floor,
        unit: "×",
    };
    print(figures, &lines, &[added], as_json).map_err(BenchFailure::io("print the figures"))
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
