//! The acts of the probe as a program of their own: one that knows nothing else of callgate.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    callgate_worker::probe::main(&words).into()
}
