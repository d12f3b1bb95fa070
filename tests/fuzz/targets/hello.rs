//! Any bytes as the beginning of a connection, and as a TLS hello: what is spoken, and which server it is for, are settled once (B13).
#![no_main]

use callgate_worker::egress::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    fuzzing::opening(data);
    fuzzing::hello(data);
});
