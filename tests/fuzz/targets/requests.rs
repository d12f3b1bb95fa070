//! Any bytes as requests to a granted host: another reader finds in what leaves only whole requests for that host (B13).
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| callgate_fuzz::egress::requests(data));
