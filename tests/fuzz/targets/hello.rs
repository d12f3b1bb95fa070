//! Any bytes as the beginning of a connection, and as a TLS hello: what is spoken, and which server it is for, are settled once (B13).
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| callgate_fuzz::egress::hello(data));
