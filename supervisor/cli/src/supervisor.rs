//! The supervisor of a command: how this process becomes one, and how it ends with all of its sessions.

use std::io::Write as _;
use std::time::Duration;

use callgate::{ConfineError, Launcher, OpenError, Store, Supervisor, close_process};
use callgate_worker::protocol::Leftover;

use super::exit::CommandFailure;

/// A launcher of its own process, for commands that open many sessions.
pub(super) fn forked() -> Result<Launcher, CommandFailure> {
    Ok(Launcher::fork().map_err(OpenError::from)?)
}

/// Becomes a supervisor: the process is closed to others of the same user, then the runtime starts, in this one thread,
/// from which brokers are forked.
pub(super) fn supervise<T>(
    launcher: Launcher,
    work: impl AsyncFnOnce(Supervisor) -> Result<T, CommandFailure>,
) -> Result<T, CommandFailure> {
    supervise_with(None, launcher, work)
}

/// How long threads may take that still read or write when all else is over.
const STUCK: Duration = Duration::from_secs(5);

/// Supervises with a store in which sessions are recorded.
pub(super) fn supervise_with<T>(
    store: Option<Store>,
    launcher: Launcher,
    work: impl AsyncFnOnce(Supervisor) -> Result<T, CommandFailure>,
) -> Result<T, CommandFailure> {
    close_process().map_err(|failed| OpenError::Confine(ConfineError::Refused(failed)))?;
    let mut builder = Supervisor::builder().launcher(launcher.clone());
    if let Some(store) = store {
        builder = builder.store(store);
    }
    let supervisor = builder.build()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CommandFailure::runtime)?;
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
pub(super) fn tell_left(leftover: &Leftover) {
    let said = writeln!(std::io::stderr(), "callgate: {}", callgate::shown::escaped(&leftover.to_string()));
    // With nobody to read it there is nothing more to do.
    said.unwrap_or(());
}
