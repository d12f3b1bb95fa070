//! Seeds of the fuzz targets (`tests/fuzz/seeds`), tried without a fuzzer; those of egress are the worker's.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a failed unwrap fails the test")]

use std::fs;

#[path = "../../tests/fuzz/src/lib.rs"]
#[allow(
    clippy::panic,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    reason = "a fuzz target is to stop, and is a program of its own"
)]
mod targets;

fn each(target: &str, tried: fn(&[u8])) {
    let seeds = format!("{}/../tests/fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
    let seeds: Vec<_> = fs::read_dir(seeds).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|seed| tried(&fs::read(seed).unwrap()));
}

/// S0-4, X0-1, S0-68: what reaches a worker lies within what was granted.
#[test]
fn s0_4_x0_1_s0_68_seeds_of_arguments() {
    each("arguments", targets::arguments::target);
}

/// S0-68: the supervisor answers every call, whatever broker, zygotes and workers send.
#[test]
fn s0_68_seeds_of_a_hostile_worker() {
    each("hostile_worker", targets::hostile_worker::target);
}

/// S0-36 to S0-41, C-1: an error that says something, or rights that are within what was asked for.
#[test]
fn s0_36_c_1_seeds_of_manifests() {
    each("manifest", targets::manifest::target);
}

/// S0-36: what a pattern says of itself is true of what it matches.
#[test]
fn s0_36_seeds_of_patterns() {
    each("patterns", targets::patterns::target);
}

/// X4-2, S4-13: an error that says where, or a profile that means what it says.
#[test]
fn x4_2_s4_13_seeds_of_profiles() {
    each("profile", targets::profile::target);
}
