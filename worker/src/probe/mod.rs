//! Performs one named act against the kernel and prints what came of it, as one line of JSON.
//!
//! `callgate doctor --attack` and the suite run the same act bare (the control, which must succeed) and confined (the
//! claim, which must fail with the errno expected, at the call expected). The exit status is 0 whenever the act was
//! really tried, however it ended, and 75 when it was not: a misspelt path or a missing argument must fail a test, never
//! pass for a denial.
//!
//! An act has the rights of who starts it and no others: confined, it is what any program there could do as well.
//!
//! Here are the acts that `doctor --attack` makes, and no others. The suite's are in `tests/src/probe`, made of the same parts: these
//! are public for it, and hidden.
#![expect(clippy::disallowed_methods, reason = "it tries what a confined program can do, as one or as its control")]

#[doc(hidden)]
pub mod act;
mod descriptors;
pub mod errno;
mod files;
mod granted;
#[doc(hidden)]
pub mod ipc;
#[doc(hidden)]
pub mod kernel;
#[doc(hidden)]
pub mod network;
#[doc(hidden)]
pub mod outcome;
mod processes;
#[doc(hidden)]
pub mod unix;

use crate::sys::probe as sys;

use self::act::{Family, ProbeAct};
use self::outcome::ActArgs;

/// All acts of the product.
#[doc(hidden)]
pub const FAMILIES: &[Family] = &[
    ("files", files::ACTS),
    ("descriptors", descriptors::ACTS),
    ("network", network::ACTS),
    ("where a host is granted", granted::ACTS),
    ("unix sockets", unix::ACTS),
    ("processes", processes::ACTS),
    ("ipc", ipc::ACTS),
    ("kernel", kernel::ACTS),
];

/// The exit status of an act that was not tried.
pub const NOT_TRIED: u8 = 75;

/// An act that has not ended by now hangs; those that sleep on purpose ask for less.
const DEADLINE_SECONDS: u32 = 120;

/// Performs the act that the words name, with its arguments, and prints what came of it. Returns the exit status.
#[must_use]
pub fn main(words: &[String]) -> u8 {
    act_of(FAMILIES, words)
}

/// Performs one of these acts, as [`main`] does: the suite has others besides.
#[doc(hidden)]
#[must_use]
pub fn act_of(families: &[Family], words: &[String]) -> u8 {
    match words {
        [] => {
            eprintln!("usage: probe ACT [ARGUMENT…] | probe --list");
            return NOT_TRIED;
        }
        [list_all] if list_all == "--list" => {
            list(families);
            return 0;
        }
        _ => {}
    }
    sys::deadline(DEADLINE_SECONDS);
    match perform_one_of(families, words) {
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
    perform_one_of(FAMILIES, &words)
}

fn perform_one_of(families: &[Family], words: &[String]) -> Result<serde_json::Value, String> {
    let (name, rest) = words.split_first().ok_or("no act is named")?;
    let act = find(families, name).ok_or_else(|| format!("no act is called {name}"))?;
    outcome::line(name, (act.run)(&ActArgs(rest))).map_err(|why| format!("{name} was not tried: {why}"))
}

/// The act of this name.
#[doc(hidden)]
#[must_use]
pub fn find(families: &[Family], name: &str) -> Option<&'static ProbeAct> {
    families.iter().flat_map(|(_, acts)| acts.iter()).find(|act| act.name == name)
}

fn list(families: &[Family]) {
    let mut last = "";
    for (family, acts) in families {
        if *family != last {
            println!("{family}");
            last = family;
        }
        for act in *acts {
            let usage = format!("{} {}", act.name, act.args);
            println!("  {usage:<44} {:<4} {}", act.attack, act.about);
        }
    }
}
