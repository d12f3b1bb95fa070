//! `callgate run`.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::ExitCode;
use std::time::Instant;

use callgate::{AskedBy, Launcher, Program, ResultEnvelope, Session, Stdio};
use callgate_policy::plan::Calls;
use callgate_worker::protocol::ProgramEnd;
use rustix::fs::FileType;
use tokio::signal::unix::{SignalKind, signal};

use super::arguments::RunArguments;
use super::exit::CommandFailure;
use super::session::Recorded;
use super::supervisor::supervise_with;
use super::terminal::{Outer, Relay};
use super::{show, variables};
use callgate::shown::{escaped_json, escaped_lines};

/// Signals from a terminal or a process manager that are meant for the command.
const PASSED_ON: [SignalKind; 6] = [
    SignalKind::interrupt(),
    SignalKind::terminate(),
    SignalKind::hangup(),
    SignalKind::quit(),
    SignalKind::user_defined1(),
    SignalKind::user_defined2(),
];

pub(super) fn run(run: RunArguments, launcher: Launcher, json: bool) -> Result<ExitCode, CommandFailure> {
    let recorded = run.session.as_deref().map(|id| Recorded::find(id, &run.grants)).transpose()?;
    let mut spec = show::spec(recorded.as_ref().map_or(&run.grants, Recorded::grants))?;
    if let Some(profile) = recorded.as_ref().and_then(Recorded::profile) {
        // What it takes away is taken away from every program of the session.
        spec.profile = show::profile(Some(profile), &spec)?;
    }
    spec.resume = recorded.as_ref().map(Recorded::id);
    spec.asked_by = AskedBy::Person;
    // No tool is called, so nothing that one requires is granted.
    spec.tools = false;
    if run.explain_env {
        spec.calls = Calls::One;
        return variables::explain(spec, launcher, json);
    }
    let status = status_target(&run)?;
    refuse_directories()?;
    let outer = Outer::find(run.tty)?;
    spec.calls = Calls::One;
    let from = show::ManifestFrom::of(&spec);
    supervise_with(recorded.map(Recorded::into_store), launcher, async |supervisor| {
        let started = Instant::now();
        let session = supervisor.open(spec).await?;
        show::tell_warnings(&session, from);
        // Before the command runs, so that none is lost between.
        let mut signals = PassedSignals::listen().map_err(CommandFailure::runtime)?;
        let (stdio, relay) = match outer {
            Some(outer) => outer.lend(&session).map(|(stdio, relay)| (stdio, Some(relay)))?,
            None => (Stdio::inherit().map_err(CommandFailure::io("take over standard input, output and error"))?, None),
        };
        let program = session.spawn(&run.argv, stdio).await.inspect_err(|_| tell_not_shared(&session, &run.argv))?;
        let end = wait(&program, &mut signals, relay).await?;
        tell_limit(&session, &end);
        tell_left(&end);
        tell_not_started(&program);
        let names_git = run.argv.iter().any(|word| show::names_git(&word.to_string_lossy()));
        show::tell_repository(&session, names_git, end.code.map(i64::from));
        // In a recorded session this is the end of the command's record.
        let envelope = session.report(&program, &end, started.elapsed());
        tell_refused(&envelope);
        if let Some(reason) = &envelope.metadata.not_recorded {
            tell(&format!("callgate: the end of the command is not recorded: {reason}\n"));
        }
        if let Some(file) = status {
            report(&envelope, file)?;
        }
        Ok(exit_code(end))
    })
}

/// A descriptor of a directory is a way into it that no rule of ours names: fchmod(2) on it works under Landlock, and it
/// leads out of a mount namespace. A stream that is closed needs no check: Rust opens /dev/null in its place at start, so
/// nothing that is opened later can take its number.
fn refuse_directories() -> Result<(), CommandFailure> {
    let streams = [
        ("input", std::io::stdin().as_fd().try_clone_to_owned()),
        ("output", std::io::stdout().as_fd().try_clone_to_owned()),
        ("error", std::io::stderr().as_fd().try_clone_to_owned()),
    ];
    for (name, stream) in streams {
        let look = || CommandFailure::io(format!("look at standard {name}"));
        let stat = rustix::fs::fstat(stream.map_err(look())?).map_err(|e| look()(e.into()))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Err(CommandFailure::Usage(format!(
                "standard {name} is a directory, which would lead the command past its grants; redirect a file"
            )));
        }
    }
    Ok(())
}

async fn wait(
    program: &Program,
    signals: &mut PassedSignals,
    mut relay: Option<Relay>,
) -> Result<ProgramEnd, CommandFailure> {
    let held = relay.as_mut().and_then(Relay::take_end);
    let mut copying = relay.is_some();
    let mut copied = std::pin::pin!(async {
        if let Some(relay) = relay {
            relay.run().await;
        }
    });
    let end = loop {
        tokio::select! {
            end = program.wait() => break end.map_err(callgate::CallError::from)?,
            () = &mut copied, if copying => copying = false,
            number = signals.next() => program.signal(number).await.map_err(callgate::CallError::from)?,
        }
    };
    drop(held);
    if copying {
        tokio::select! {
            // What was written before the end is still on its way.
            () = &mut copied => {}
            _ = signals.next() => {}
        }
    }
    Ok(end)
}

struct PassedSignals(Vec<(i32, tokio::signal::unix::Signal)>);

impl PassedSignals {
    fn listen() -> std::io::Result<Self> {
        PASSED_ON.iter().map(|kind| Ok((kind.as_raw_value(), signal(*kind)?))).collect::<std::io::Result<_>>().map(Self)
    }

    async fn next(&mut self) -> i32 {
        std::future::poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// Opened before the command runs: a result that cannot be written is a reason not to start.
fn status_target(run: &RunArguments) -> Result<Option<std::fs::File>, CommandFailure> {
    if let Some(path) = &run.status {
        // Never through a link: an earlier call may have planted one where this was expected (A21).
        let file = std::fs::File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags((rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed())
            .open(path)
            .map_err(CommandFailure::named(format!("create {}", path.display())))?;
        return Ok(Some(file));
    }
    let Some(number) = run.status_fd else { return Ok(None) };
    let fd: OwnedFd = callgate_worker::sys::fd::inherited(number)
        .map_err(|e| CommandFailure::Usage(format!("--status-fd {number}: {e}")))?;
    Ok(Some(fd.into()))
}

/// Tells why the command was ended, if it was ended for a limit: it can no longer say so itself.
fn tell_limit(session: &Session, end: &ProgramEnd) {
    let Some(denial) = session.ended_for(end) else { return };
    let remedy = denial.remedy_to_type().unwrap_or_default();
    tell(&format!("callgate: the command met its `{}` limit: {}\n  {remedy}\n", denial.asked, denial.reason));
}

/// The command's own exit status says nothing of what it has left behind.
fn tell_left(end: &ProgramEnd) {
    if end.left > 0 {
        tell(&format!("callgate: processes that the command has left, and that could not be ended: {}\n", end.left));
    }
}

/// A notice. With standard error gone as well, the exit status is all that is left to tell.
fn tell(text: &str) {
    drop(std::io::stderr().write_all(escaped_lines(text).as_bytes()));
}

/// Most refused starts that are told.
const TOLD: usize = 5;

/// Which programs were refused to the command. It has had an errno, and may not have said of what.
fn tell_not_started(program: &Program) {
    let refused = program.changes().map_or(&[][..], |changes| &changes.not_started);
    let mut text = String::new();
    for start in refused.iter().take(TOLD) {
        let (path, why) = (start.path.escape_debug(), start.why.escape_debug());
        text.push_str(&format!("callgate: not started: {path} ({why})\n"));
    }
    if !refused.is_empty() {
        let more = refused.len().saturating_sub(TOLD);
        let more = if more > 0 { format!("{more} more; ") } else { String::new() };
        text.push_str(&format!("  {more}grant a program by --exec, or by [[requires.shell]] in a manifest\n"));
    }
    tell(&text);
}

/// Tells what would have to be granted, where the program lies beside the system's and is somebody's own.
fn tell_not_shared(session: &Session, argv: &[OsString]) {
    if let Some(own) = argv.first().and_then(|program| session.not_shared(program)) {
        let own = own.display().to_string();
        let own = own.escape_debug();
        tell(&format!(
            "callgate: {own} is not root's, or not for everybody to read, so it is granted by name alone\n  try: --read {own}\n"
        ));
    }
}

/// Tells what else was refused: protected names, the network, sockets of other programs.
fn tell_refused(envelope: &ResultEnvelope) {
    let notes = envelope.data.as_ref().and_then(|data| data["notes"].as_array());
    let lines = notes.into_iter().flatten().filter_map(|note| note.as_str());
    tell(&lines.map(|note| format!("callgate: {note}\n")).collect::<String>());
}

fn report(envelope: &ResultEnvelope, mut file: std::fs::File) -> Result<(), CommandFailure> {
    let text = serde_json::to_string(envelope).map_err(|e| CommandFailure::runtime(e.into()))?;
    file.write_all(escaped_json(&format!("{text}\n")).as_bytes()).map_err(CommandFailure::io("write the status"))
}

/// The command's own, or 128 and the signal's number, as a shell has it.
fn exit_code(end: ProgramEnd) -> ExitCode {
    if end.timed_out {
        return ExitCode::from(super::exit::TIMEOUT);
    }
    let number = end.code.or(end.signal.map(|signal| 128 + signal)).unwrap_or(70);
    ExitCode::from(u8::try_from(number).unwrap_or(70))
}
