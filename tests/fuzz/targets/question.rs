//! Any bytes as a question for names: nobody but egress hears of a name that was not granted, and each answer is a message (B4).
#![no_main]

use callgate_worker::egress::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzzing::question(data));
