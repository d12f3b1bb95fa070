//! The report of all figures, for people and for programs.

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::figures::Figures;
use super::sessions::{AT_ONCE, Many, Rates};
use crate::exit::CommandFailure;
use crate::paint::{self, PaintedWord};

pub(super) struct ReportRow {
    pub(super) key: &'static str,
    pub(super) name: String,
    pub(super) figures: Figures,
}

pub(super) struct BenchReport {
    pub(super) runs: u32,
    pub(super) strength: &'static str,
    pub(super) landlock_abi: u8,
    pub(super) rows: Vec<ReportRow>,
    pub(super) absent: Vec<String>,
    pub(super) rates: Rates,
    /// Programs per second, by two callers of posix_spawn(3).
    pub(super) spawned: f64,
    pub(super) memory: u64,
    pub(super) many: Many,
}

/// A figure that is aimed at.
struct FigureTarget {
    what: &'static str,
    /// At most, or at least, this.
    bound: FigureBound,
    /// `None` where it could not be measured.
    measured: Option<f64>,
    unit: &'static str,
}

#[derive(Clone, Copy)]
enum FigureBound {
    AtMost(f64),
    AtLeast(f64),
}

impl FigureTarget {
    fn met(&self) -> Option<bool> {
        self.measured.map(|measured| match self.bound {
            FigureBound::AtMost(most) => measured <= most,
            FigureBound::AtLeast(least) => measured >= least,
        })
    }
}

impl BenchReport {
    pub(super) fn print(&self, json: bool) -> Result<(), CommandFailure> {
        let mut out = paint::stdout();
        if json { writeln!(out, "{}", self.json()) } else { self.people(&mut out) }
            .map_err(CommandFailure::print("print the figures"))
    }

    /// The ratio of two medians.
    fn ratio(&self, of: &str, to: &str) -> Option<f64> {
        let median = |key| self.rows.iter().find(|row| row.key == key).map(|row| row.figures.median.as_secs_f64());
        Some(median(of)? / median(to)?)
    }

    fn targets(&self) -> Vec<FigureTarget> {
        use FigureBound::{AtLeast, AtMost};
        let target = |what, bound, measured, unit| FigureTarget { what, bound, measured, unit };
        let all_open = self.many.alive == self.many.asked;
        vec![
            target("read / posix_spawn", AtMost(0.5), self.ratio("read", "posix_spawn"), "×"),
            target("bash tool / unconfined bash", AtMost(1.3), self.ratio("bash", "bash_bare"), "×"),
            target("session.spawn / posix_spawn", AtMost(1.2), self.ratio("spawn", "posix_spawn"), "×"),
            target("callgate run / bwrap", AtMost(0.6), self.ratio("run", "bwrap"), "×"),
            target("reads per second, two callers", AtLeast(5000.0), Some(self.rates.two_callers), "/s"),
            target("private memory, idle session", AtMost(3.0), Some(kib_as_mib(self.memory)), "MiB"),
            target(
                "sessions open at once",
                AtLeast(1000.0),
                // Opening fewer, all of which worked, says nothing about the target.
                (!all_open || self.many.asked >= 1000).then_some(f64::from(self.many.alive)),
                "",
            ),
        ]
    }

    fn people(&self, out: &mut impl std::io::Write) -> std::io::Result<()> {
        let build =
            if cfg!(debug_assertions) { "debug build: not the figures of a shipped one" } else { "release build" };
        let machine = rustix::system::uname();
        writeln!(
            out,
            "callgate {} ({build}), Linux {}, {} CPUs\n{}, ABI {}; {} runs of each, in turns, after {} to warm up\n",
            env!("CARGO_PKG_VERSION"),
            machine.release().to_string_lossy(),
            cpus(),
            self.strength,
            self.landlock_abi,
            self.runs,
            (self.runs / 10).max(3),
        )?;
        writeln!(out, "{:<42} {:>10} {:>10} {:>10} {:>8}", "", "median", "p99", "CPU", "× spawn")?;
        for row in &self.rows {
            let cpu = row.figures.cpu.map_or_else(|| "n/a".to_owned(), micros);
            let ratio = self.ratio(row.key, "posix_spawn").map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            let Figures { median, p99, .. } = row.figures;
            writeln!(out, "{:<42} {:>10} {:>10} {cpu:>10} {ratio:>8}", row.name, micros(median), micros(p99))?;
        }
        for absent in &self.absent {
            writeln!(out, "absent: {absent}")?;
        }
        writeln!(out, "\nCPU: mean of one run, user and system, with the session's processes and all children.")?;
        writeln!(out, "n/a: `run` leaves its processes to the kernel to reap, which tells nobody what they used.\n")?;
        self.people_sessions(out)?;
        self.people_targets(out)
    }

    fn people_sessions(&self, out: &mut impl std::io::Write) -> std::io::Result<()> {
        let Self { rates, many, .. } = self;
        writeln!(
            out,
            "reads per second: {:.0} by one caller, {:.0} by two of one session, {:.0} by two of two sessions",
            rates.one_caller, rates.two_callers, rates.two_sessions
        )?;
        writeln!(out, "reads per second of {AT_ONCE} sessions at once: {:.0}", rates.many_sessions)?;
        writeln!(
            out,
            "programs per second: {:.0} by two callers of posix_spawn; {:.2} reads for each",
            self.spawned,
            rates.two_callers / self.spawned
        )?;
        writeln!(
            out,
            "an idle session: {:.2} MiB of private memory (broker, zygotes, ready workers)",
            kib_as_mib(self.memory)
        )?;
        write!(
            out,
            "{} sessions at once: {} each to open, {} at most; {:.1} MiB of private memory in all; {} answered a call",
            many.opened,
            micros(many.per_session),
            micros(many.slowest),
            kib_as_mib(many.private_kib),
            many.alive
        )?;
        match &many.stopped {
            Some(reason) => writeln!(out, "; the next of {} was not opened: {reason}\n", many.asked),
            None => writeln!(out, "\n"),
        }
    }

    fn people_targets(&self, out: &mut impl std::io::Write) -> std::io::Result<()> {
        writeln!(out, "{:<32} {:>12} {:>12}", "target", "", "measured")?;
        for target in self.targets() {
            let bound = match target.bound {
                FigureBound::AtMost(most) => format!("≤ {most}"),
                FigureBound::AtLeast(least) => format!("≥ {least}"),
            };
            let measured = target.measured.map_or_else(String::new, |measured| {
                if measured >= 100.0 {
                    format!("{measured:.0} {}", target.unit)
                } else {
                    format!("{measured:.2} {}", target.unit)
                }
            });
            let word = match target.met() {
                Some(true) => PaintedWord::Good("met"),
                Some(false) => PaintedWord::Bad("not met"),
                None => PaintedWord::Dim("not measured"),
            };
            writeln!(out, "{:<32} {bound:>12} {:>12}  {word}", target.what, measured.trim_end())?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let us = |time: Duration| (time.as_secs_f64() * 1e7).round() / 10.0;
        let machine = rustix::system::uname();
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "subject": row.key,
                    "name": row.name,
                    "median_us": us(row.figures.median),
                    "p99_us": us(row.figures.p99),
                    "cpu_us": row.figures.cpu.map(us),
                    "ratio_to_posix_spawn": self.ratio(row.key, "posix_spawn"),
                })
            })
            .collect();
        let targets: Vec<Value> = self
            .targets()
            .iter()
            .map(|target| {
                let (relation, bound) = match target.bound {
                    FigureBound::AtMost(most) => ("at most", most),
                    FigureBound::AtLeast(least) => ("at least", least),
                };
                json!({
                    "target": target.what, "relation": relation, "bound": bound, "unit": target.unit,
                    "measured": target.measured, "met": target.met(),
                })
            })
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "debug_build": cfg!(debug_assertions),
            "kernel": machine.release().to_string_lossy(),
            "cpus": cpus(),
            "strength": self.strength,
            "landlock_abi": self.landlock_abi,
            "runs": self.runs,
            "subjects": rows,
            "absent": self.absent,
            "reads_per_second": {
                "one_caller": self.rates.one_caller,
                "two_callers_one_session": self.rates.two_callers,
                "two_callers_two_sessions": self.rates.two_sessions,
                "fifty_sessions": self.rates.many_sessions,
                "posix_spawn_two_callers": self.spawned,
            },
            "idle_session_private_kib": self.memory,
            "sessions": {
                "asked": self.many.asked,
                "opened": self.many.opened,
                "answered": self.many.alive,
                "stopped": self.many.stopped,
                "open_us": us(self.many.per_session),
                "slowest_us": us(self.many.slowest),
                "private_kib": self.many.private_kib,
            },
            "targets": targets,
        })
    }
}

fn micros(time: Duration) -> String {
    format!("{:.0} µs", time.as_secs_f64() * 1e6)
}

fn kib_as_mib(kib: u64) -> f64 {
    u32::try_from(kib).map_or(f64::INFINITY, f64::from) / 1024.0
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_at_its_bound_and_unknown_without_a_figure() {
        let target = |bound, measured| FigureTarget { what: "", bound, measured, unit: "" }.met();
        assert_eq!(target(FigureBound::AtMost(0.5), Some(0.5)), Some(true));
        assert_eq!(target(FigureBound::AtMost(0.5), Some(0.51)), Some(false));
        assert_eq!(target(FigureBound::AtLeast(5000.0), Some(4999.0)), Some(false));
        assert_eq!(target(FigureBound::AtLeast(5000.0), None), None);
    }
}
