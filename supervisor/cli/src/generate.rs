//! `callgate completions` and `callgate man`: made from the same definitions that parse the command line.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;

use super::arguments::{Arguments, Completions, Man};
use super::exit::Failure;

pub(super) fn completions(completions: &Completions) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    // Into memory first: the generator panics if it cannot write, and `| head` is no reason to.
    clap_complete::generate(completions.shell, &mut Arguments::command(), "callgate", &mut script);
    print(&script)
}

pub(super) fn man(man: &Man) -> Result<ExitCode, Failure> {
    match &man.directory {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Arguments::command())
                .render(&mut page)
                .map_err(Failure::io("make the manual page"))?;
            print(&page)
        }
        Some(directory) => {
            write_all(directory)
                .map_err(Failure::named(format!("write the manual pages into {}", directory.display())))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn write_all(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Arguments::command(), directory)
}

fn print(bytes: &[u8]) -> Result<ExitCode, Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(Failure::print("print it"))?;
    Ok(ExitCode::SUCCESS)
}
