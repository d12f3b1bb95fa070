//! Any bytes as a manifest: an error that says something, or rights that are within what was asked for (S0-36 to S0-41, C-1).
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| callgate_fuzz::manifest::target(data));
