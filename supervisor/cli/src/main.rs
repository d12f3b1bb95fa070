//! The `callgate` binary: the command line over the library's public face.

mod arguments;
mod bench;
mod call;
mod doctor;
mod exit;
mod generate;
mod log;
mod mcp;
mod paint;
mod processes;
mod prompt;
mod run;
mod session;
mod show;
mod skills;
mod supervisor;
mod temporary;
mod terminal;
mod tools;
mod trust;
mod variables;

use std::ffi::OsStr;
use std::process::ExitCode;

use callgate::{Ahead, LAUNCHER_NAME, Launcher};
use clap::{CommandFactory as _, Parser as _};

use self::arguments::{Arguments, Command, Doctor};
use self::exit::CommandFailure;

fn main() -> ExitCode {
    if std::env::args_os().next().as_deref() == Some(OsStr::new(LAUNCHER_NAME)) {
        Launcher::serve_as_started();
    }
    let ahead = start_ahead();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return exit::usage(error, Arguments::command()),
    };
    let json = arguments.json;
    match log::start(arguments.log.as_deref(), json).and_then(|()| dispatch(arguments, ahead)) {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}

/// For commands that open one session. If it cannot be done ahead, it is done when its time has come, and what is wrong
/// is said then.
fn start_ahead() -> Option<Ahead> {
    let command = std::env::args_os().nth(1)?;
    (command == "run" || command == "call").then(Launcher::ahead)?.ok()
}

fn dispatch(arguments: Arguments, ahead: Option<Ahead>) -> Result<ExitCode, CommandFailure> {
    let json = arguments.json;
    match arguments.command {
        Command::Run(run) => run::run(run, Launcher::here(ahead), json),
        Command::Call(call) => call::call(call, Launcher::here(ahead)),
        Command::Mcp(mcp) => mcp::mcp(*mcp),
        Command::Tools(tools) => tools::tools(&tools, json),
        Command::Skills(arguments) => skills::skills(&arguments, json),
        Command::Trust(arguments) => trust::trust(&arguments, json),
        Command::Session(sessions) => session::session(sessions.act, json),
        Command::Doctor(Doctor { attack: false, .. }) => doctor::doctor(json),
        Command::Doctor(Doctor { under, .. }) => doctor::attack(under.as_deref(), json),
        Command::Bench(bench) => bench::bench(&bench, json),
        Command::Completions(completions) => generate::completions(&completions),
        Command::Man(man) => generate::man(&man),
        Command::Attempt(attempt) => Ok(callgate::doctor::attack::attempt(&attempt.words).into()),
    }
}
