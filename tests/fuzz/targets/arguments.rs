//! Any JSON as the arguments of any tool: an answer always (S0-68); and what reaches a worker lies within what was granted
//! (S0-4, X0-1), with the arguments as they were written.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| callgate_fuzz::arguments::target(data));
