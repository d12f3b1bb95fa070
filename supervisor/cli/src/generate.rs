//! `callgate completions` and `callgate man`: made from the same definitions that parse the command line.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::arguments::{Arguments, Completions, Man};
use super::exit::CommandFailure;

pub(super) fn completions(completions: &Completions) -> Result<ExitCode, CommandFailure> {
    let mut script = Vec::new();
    // Into memory first: the generator panics if it cannot write, and `| head` is no reason to.
    clap_complete::generate(completions.shell, &mut Arguments::command(), "callgate", &mut script);
    print(&script)
}

pub(super) fn man(man: &Man) -> Result<ExitCode, CommandFailure> {
    match &man.directory {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Arguments::command())
                .render(&mut page)
                .map_err(CommandFailure::io("make the manual page"))?;
            print(&page)
        }
        Some(directory) => {
            write_all(directory)
                .map_err(CommandFailure::named(format!("write the manual pages into {}", directory.display())))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn write_all(directory: &Path) -> io::Result<()> {
    let directory = make(directory)?;
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, &directory)
}

fn write_pages(command: &clap::Command, directory: &OwnedFd) -> io::Result<()> {
    command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .try_for_each(|command| write_pages(command, directory))?;
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    // A call may have put a link or a FIFO in its place.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, page.get_filename(), flags, Mode::from_raw_mode(0o666))?;
    File::from(file).write_all(&text)
}

/// Makes a directory and those above it, and opens it: each by its name in the one above, and none by a link, which a call of an
/// earlier session may have put there.
fn make(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::openat(CWD, ".", flags, Mode::empty())?;
    for part in directory.components() {
        let part = part.as_os_str();
        at = match rustix::fs::openat(&at, part, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o777))?;
                rustix::fs::openat(&at, part, flags, Mode::empty())
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let (part, what) = (part.display(), "is no directory, or a symbolic link; name what it leads to");
                return Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{part} {what}")));
            }
            opened => opened,
        }?;
    }
    Ok(at)
}

fn print(bytes: &[u8]) -> Result<ExitCode, CommandFailure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(CommandFailure::print("print it"))?;
    Ok(ExitCode::SUCCESS)
}
