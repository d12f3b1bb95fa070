//! Performs one named act against the kernel and prints what came of it, as one line of JSON.
//!
//! The suite runs the same act bare (the control, which must succeed) and confined (the claim, which must fail with
//! the errno expected, at the call expected). The exit status is 0 whenever the act was really tried, however it
//! ended, and 75 when it was not: a misspelt path or a missing argument must fail a test, never pass for a denial.

mod descriptors;
mod files;
mod ipc;
mod kernel;
mod network;
mod outcome;
mod processes;
mod straddling;
mod sys;
mod unix;

use std::process::ExitCode;

use outcome::{Args, Outcome};

/// One thing an attacker would try.
struct Act {
    name: &'static str,
    /// The id in the list of attacks that this act belongs to.
    attack: &'static str,
    args: &'static str,
    about: &'static str,
    run: fn(&Args<'_>) -> Outcome,
}

const fn act(
    name: &'static str,
    attack: &'static str,
    args: &'static str,
    about: &'static str,
    run: fn(&Args<'_>) -> Outcome,
) -> Act {
    Act { name, attack, args, about, run }
}

const FAMILIES: &[(&str, &[Act])] = &[
    ("files", files::ACTS),
    ("descriptors", descriptors::ACTS),
    ("network", network::ACTS),
    ("unix sockets", unix::ACTS),
    ("what is half mapped", straddling::ACTS),
    ("processes", processes::ACTS),
    ("ipc", ipc::ACTS),
    ("kernel", kernel::ACTS),
];

/// The act was not tried.
const NOT_TRIED: u8 = 75;

/// An act that has not ended by now hangs; those that sleep on purpose ask for less.
const DEADLINE_SECONDS: u32 = 120;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = words.split_first() else {
        eprintln!("usage: probe ACT [ARGUMENT…] | probe --list");
        return ExitCode::from(NOT_TRIED);
    };
    if name == "--list" {
        list();
        return ExitCode::SUCCESS;
    }
    let mut acts = FAMILIES.iter().flat_map(|(_, acts)| acts.iter());
    let Some(act) = acts.find(|act| act.name == name) else {
        eprintln!("probe: no act is called {name}");
        return ExitCode::from(NOT_TRIED);
    };
    sys::deadline(DEADLINE_SECONDS);
    match outcome::line(name, (act.run)(&Args(rest))) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("probe: {name} was not tried: {why}");
            ExitCode::from(NOT_TRIED)
        }
    }
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
