//! The acts of the probe as a program of their own: those of `callgate doctor --attack`, and those that only the suite makes.
//!
//! It has the rights of who starts it and no others, and knows nothing else of callgate.
#![allow(clippy::disallowed_methods, reason = "it tries what a confined program can do, as one or as its control")]

mod campaign;
mod chaos;
mod descriptors;
mod exec;
mod files;
mod ipc;
mod kernel;
mod network;
mod processes;
mod sequences;
mod straddling;
mod sys;
mod tracing;
mod unix;

use std::process::ExitCode;

use callgate_worker::probe::act::Family;
use callgate_worker::probe::{FAMILIES, act_of};

/// Acts of this program alone. Those of a family that the product has as well are listed with its.
const OWN: &[Family] = &[
    ("files", files::ACTS),
    ("descriptors", descriptors::ACTS),
    ("network", network::ACTS),
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

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut families = [FAMILIES, OWN].concat();
    // By name, so that each is listed once; in the order that they have above.
    let place = |family: &Family| FAMILIES.iter().chain(OWN).position(|(name, _)| *name == family.0);
    families.sort_by_key(place);
    act_of(&families, &words).into()
}
