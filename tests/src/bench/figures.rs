//! Figures of many samples, and the order in which subjects take turns.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use callgate_tests::Dice;
use serde_json::{Value, json};

/// Figures of one subject's samples.
pub(crate) struct MeasuredFigures {
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
}

impl MeasuredFigures {
    pub(crate) fn of(samples: &[Duration]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let at = |part: usize| {
            // Nearest rank, as `callgate bench` has it.
            let rank = (sorted.len() * part).div_ceil(100).max(1) - 1;
            sorted.get(rank).copied().unwrap_or_default()
        };
        Self { median: at(50), p99: at(99) }
    }
}

/// Microseconds.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The median of figures that are no times; NaN if there is none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A pause before each sample, so that what the sample before has left to tidy up does not run into it.
const SETTLE: Duration = Duration::from_millis(1);

/// Lets what the sample before has left come to its end. Busy, so that no processor is put to sleep.
pub(crate) async fn settle() {
    tokio::task::yield_now().await;
    let started = Instant::now();
    while started.elapsed() < SETTLE {
        std::hint::spin_loop();
    }
}

/// An order of so many subjects.
pub(crate) fn order(dice: &mut Dice, len: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    for at in (1..len).rev() {
        order.swap(at, dice.below(at + 1));
    }
    order
}

/// A figure that is to be this much at most.
pub(crate) struct FigureTarget {
    pub(crate) what: &'static str,
    pub(crate) at_most: f64,
    pub(crate) measured: f64,
    pub(crate) unit: &'static str,
}

impl FigureTarget {
    fn met(&self) -> bool {
        self.measured <= self.at_most
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "target": self.what, "relation": "at most", "bound": self.at_most, "unit": self.unit,
            "measured": self.measured, "met": self.met(),
        })
    }

    pub(crate) fn print(&self, out: &mut impl io::Write) -> io::Result<()> {
        let Self { what, at_most, measured, unit } = self;
        let met = if self.met() { "met" } else { "not met" };
        writeln!(out, "{what:<38} {:>8} {:>12}  {met}", format!("≤ {at_most}"), format!("{measured:.2} {unit}"))
    }
}

/// Prints figures with the targets for them: one line of JSON, or lines for people before the targets.
pub(crate) fn print(mut figures: Value, lines: &str, targets: &[FigureTarget], as_json: bool) -> io::Result<()> {
    let mut out = io::stdout();
    if as_json {
        figures["debug_build"] = json!(cfg!(debug_assertions));
        figures["targets"] = targets.iter().map(FigureTarget::json).collect();
        return writeln!(out, "{figures}");
    }
    if cfg!(debug_assertions) {
        writeln!(out, "debug build: not the figures of a shipped one")?;
    }
    writeln!(out, "{lines}")?;
    targets.iter().try_for_each(|target| target.print(&mut out))
}
