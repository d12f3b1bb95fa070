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
mod temporary;
mod terminal;
mod tools;
mod trust;
mod variables;

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use callgate::{Ahead, ConfineError, LAUNCHER_NAME, Launcher, OpenError, Store, Supervisor, close_process};
use callgate_worker::protocol::Leftover;
use clap::Parser as _;

use self::arguments::{Arguments, Command, Doctor};
use self::exit::Failure;

fn main() -> ExitCode {
    if std::env::args_os().next().as_deref() == Some(OsStr::new(LAUNCHER_NAME)) {
        Launcher::serve_as_started();
    }
    let ahead = start_ahead();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return exit::usage(error),
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

fn dispatch(arguments: Arguments, ahead: Option<Ahead>) -> Result<ExitCode, Failure> {
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
        Command::BenchOpens(opens) => bench::opens(&opens),
        Command::BenchNetwork(part) => part.play(),
        Command::Attempt(attempt) => Ok(callgate::doctor::attack::attempt(&attempt.words).into()),
    }
}

/// A launcher of its own process, for commands that open many sessions.
fn forked() -> Result<Launcher, Failure> {
    Ok(Launcher::fork().map_err(OpenError::from)?)
}

/// Becomes a supervisor: the process is closed to others of the same user, then the runtime starts, in this one thread,
/// from which brokers are forked.
fn supervise<T>(launcher: Launcher, work: impl AsyncFnOnce(Supervisor) -> Result<T, Failure>) -> Result<T, Failure> {
    supervise_with(None, launcher, work)
}

/// How long threads may take that still read or write when all else is over.
const STUCK: Duration = Duration::from_secs(5);

/// Supervises with a store in which sessions are recorded.
fn supervise_with<T>(
    store: Option<Store>,
    launcher: Launcher,
    work: impl AsyncFnOnce(Supervisor) -> Result<T, Failure>,
) -> Result<T, Failure> {
    close_process().map_err(|failed| OpenError::Confine(ConfineError::Refused(failed)))?;
    let mut builder = Supervisor::builder().launcher(launcher.clone());
    if let Some(store) = store {
        builder = builder.store(store);
    }
    let supervisor = builder.build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::runtime)?;
    let done = runtime.block_on(work(supervisor));
    // With it all that was left of sessions: they end. A thread that is stuck in a write which nobody reads holds nobody up.
    runtime.shutdown_timeout(STUCK);
    end_sessions(&launcher);
    done
}

/// Returns when nothing is left of them on the host, and reports what could not be removed. A signal ends the wait, and not
/// what is waited for.
fn end_sessions(launcher: &Launcher) {
    callgate_worker::sys::process::be_ended_by_signals();
    launcher.wait_for_its_end().iter().for_each(tell_left);
}

/// Says what could not be removed, or does not end.
fn tell_left(leftover: &Leftover) {
    let said = writeln!(std::io::stderr(), "callgate: {}", callgate::shown::escaped(&leftover.to_string()));
    // With nobody to read it there is nothing more to do.
    said.unwrap_or(());
}
