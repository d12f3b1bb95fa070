//! Seeds of the fuzz targets of egress (`tests/fuzz/seeds`), tried without a fuzzer.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a failed unwrap fails the test")]

use std::fs;

#[path = "../../../tests/fuzz/src/egress.rs"]
#[allow(clippy::panic, missing_docs, unreachable_pub, reason = "a fuzz target is to stop, and is a program of its own")]
mod targets;

fn each(target: &str, tried: fn(&[u8])) {
    let seeds = format!("{}/../tests/fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
    let seeds: Vec<_> = fs::read_dir(seeds).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(seeds.len() >= 5, "{seeds:?}");
    seeds.iter().for_each(|seed| tried(&fs::read(seed).unwrap()));
}

/// B4: nobody but egress hears of a name that was not granted.
#[test]
fn b4_seeds_of_questions_for_names() {
    each("question", targets::question);
}

/// B13: what is spoken, and which server it is for, are settled once.
#[test]
fn b13_seeds_of_the_beginnings_of_connections() {
    each("hello", targets::hello);
}

/// B13: another reader finds in what leaves only whole requests for the granted host.
#[test]
fn b13_seeds_of_requests_to_a_granted_host() {
    each("requests", targets::requests);
}
