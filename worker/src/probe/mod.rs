//! Performs one named act against the kernel and prints what came of it, as one line of JSON.
//!
//! The suite and `callgate doctor --attack` run the same act bare (the control, which must succeed) and confined (the
//! claim, which must fail with the errno expected, at the call expected). The exit status is 0 whenever the act was
//! really tried, however it ended, and 75 when it was not: a misspelt path or a missing argument must fail a test, never
//! pass for a denial.
//!
//! An act has the rights of who starts it and no others: confined, it is what any program there could do as well.
#![expect(clippy::disallowed_methods, reason = "it tries what a confined program can do, as one or as its control")]

mod act;
mod campaign;
mod chaos;
mod descriptors;
pub mod dice;
pub mod errno;
mod exec;
mod files;
mod granted;
mod ipc;
mod kernel;
mod network;
pub(crate) mod outcome;
mod processes;
mod sequences;
mod straddling;
mod tracing;
mod unix;

use crate::sys::probe as sys;

use self::act::ProbeAct;
use self::outcome::ActArgs;

const FAMILIES: &[(&str, &[ProbeAct])] = &[
    ("files", files::ACTS),
    ("descriptors", descriptors::ACTS),
    ("network", network::ACTS),
    ("where a host is granted", granted::ACTS),
    ("unix sockets", unix::ACTS),
    ("what is half mapped", straddling::ACTS),
    ("processes", processes::ACTS),
    ("tracing", tracing::ACTS),
    ("programs", exec::ACTS),
    ("ipc", ipc::ACTS),
    ("kernel", kernel::ACTS),
    ("chaos", chaos::ACTS),
    ("sequences", sequences::ACTS),
    ("campaign", campaign::ACTS),
];

/// The exit status of an act that was not tried.
pub const NOT_TRIED: u8 = 75;

/// An act that has not ended by now hangs; those that sleep on purpose ask for less.
const DEADLINE_SECONDS: u32 = 120;

/// Performs the act that the words name, with its arguments, and prints what came of it. Returns the exit status.
#[must_use]
pub fn main(words: &[String]) -> u8 {
    match words {
        [] => {
            eprintln!("usage: probe ACT [ARGUMENT…] | probe --list");
            return NOT_TRIED;
        }
        [list_all] if list_all == "--list" => {
            list();
            return 0;
        }
        _ => {}
    }
    sys::deadline(DEADLINE_SECONDS);
    match perform(words) {
        Ok(line) => {
            println!("{line}");
            0
        }
        Err(why) => {
            eprintln!("probe: {why}");
            NOT_TRIED
        }
    }
}

/// Performs an act in this very process.
///
/// # Errors
/// Why it was not tried.
pub fn perform<S: AsRef<str>>(words: &[S]) -> Result<serde_json::Value, String> {
    let words: Vec<String> = words.iter().map(|word| word.as_ref().to_owned()).collect();
    let (name, rest) = words.split_first().ok_or("no act is named")?;
    let mut acts = FAMILIES.iter().flat_map(|(_, acts)| acts.iter());
    let act = acts.find(|act| act.name == name).ok_or_else(|| format!("no act is called {name}"))?;
    outcome::line(name, (act.run)(&ActArgs(rest))).map_err(|why| format!("{name} was not tried: {why}"))
}

fn list() {
    for (family, acts) in FAMILIES {
        println!("{family}");
        for act in *acts {
            let usage = format!("{} {}", act.name, act.args);
            println!("  {usage:<44} {:<4} {}", act.attack, act.about);
        }
    }
}
