//! Any bytes as a profile: an error that says where, or one that means what it says (X4-2, S4-13).
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| callgate_fuzz::profile::target(data));
