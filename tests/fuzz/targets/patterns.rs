//! A pattern and a subject, of each kind: never a panic, and what a pattern says of itself is true of what it matches (S0-36).
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| callgate_fuzz::patterns::target(data));
