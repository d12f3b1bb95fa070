//! Any bytes as a question for names: nobody but egress hears of a name that was not granted, and each answer is a message (B4).
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| callgate_fuzz::egress::question(data));
