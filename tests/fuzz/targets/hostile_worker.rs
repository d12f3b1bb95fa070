//! A broker, zygotes and workers that send what they like, with whatever descriptors: the supervisor answers every call, and
//! an output is one that a worker really sent after its confinement (S0-68).
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| callgate_fuzz::hostile_worker::target(data));
