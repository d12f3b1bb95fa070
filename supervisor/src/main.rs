//! The `callgate` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    callgate::cli::main()
}
