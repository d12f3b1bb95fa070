//! Opening a file to read, inside and outside: the same program does it, in a call's full confinement and without any.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::Instant;

use callgate::Stdio;
use rustix::fs::{Mode, OFlags};

use super::sessions::Opener;
use crate::arguments::BenchOpens;
use crate::exit::CommandFailure;

/// Opens in one run of the helper.
const COUNT: u32 = 20_000;
/// Runs of it, inside and outside in turns.
const ROUNDS: usize = 9;

/// Nanoseconds for one open and close, medians.
pub(super) struct Opens {
    pub(super) inside: f64,
    pub(super) outside: f64,
}

/// The helper: prints the nanoseconds of one open and close.
pub(crate) fn opens(arguments: &BenchOpens) -> Result<ExitCode, CommandFailure> {
    let open = || -> rustix::io::Result<OwnedFd> {
        rustix::fs::open(&arguments.file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    };
    let failed =
        |errno: rustix::io::Errno| CommandFailure::named(format!("open {}", arguments.file.display()))(errno.into());
    for _ in 0..arguments.count / 10 {
        drop(open().map_err(failed)?);
    }
    let started = Instant::now();
    for _ in 0..arguments.count {
        drop(open().map_err(failed)?);
    }
    let each = started.elapsed().as_secs_f64() * 1e9 / f64::from(arguments.count.max(1));
    writeln!(std::io::stdout(), "{each:.1}").map_err(CommandFailure::print("print it"))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn measure(opener: &Opener<'_>) -> Result<Opens, CommandFailure> {
    let opened = opener.open().await?;
    let words = [
        opener.scratch.program().as_os_str().to_owned(),
        "bench-opens".into(),
        opener.scratch.file().into_os_string(),
        COUNT.to_string().into(),
    ];
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (in_, out) = (run_inside(&opened.session, &words).await?, run_outside(&words)?);
        // The first warms up.
        if round > 0 {
            inside.push(in_);
            outside.push(out);
        }
    }
    Ok(Opens { inside: median(inside), outside: median(outside) })
}

async fn run_inside(session: &callgate::Session, words: &[std::ffi::OsString]) -> Result<f64, CommandFailure> {
    let pipe = || std::io::pipe().map_err(CommandFailure::io("make a pipe"));
    let (mut reader, writer) = pipe()?;
    let null = || std::fs::File::open("/dev/null").map_err(CommandFailure::io("open /dev/null"));
    let error = std::fs::File::options().write(true).open("/dev/null").map_err(CommandFailure::io("open /dev/null"))?;
    let program = session.spawn(words, Stdio::new(null()?.into(), writer.into(), error.into())).await?;
    let end = program.wait().await.map_err(callgate::CallError::from)?;
    // It has ended, and its few bytes are in the pipe.
    let mut text = String::new();
    reader.read_to_string(&mut text).map_err(CommandFailure::io("read what the helper printed"))?;
    parse(&text).ok_or_else(|| failed(format!("inside it ended with {end:?} and printed `{text}`")))
}

#[allow(clippy::disallowed_methods, reason = "the unconfined side of the comparison")]
fn run_outside(words: &[std::ffi::OsString]) -> Result<f64, CommandFailure> {
    let [program, arguments @ ..] = words else { return Err(failed("no program".to_owned())) };
    let output = std::process::Command::new(program)
        .args(arguments)
        .output()
        .map_err(CommandFailure::io("start the helper outside"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).ok_or_else(|| failed(format!("outside it ended with {} and printed `{text}`", output.status)))
}

fn failed(reason: String) -> CommandFailure {
    CommandFailure::Subject { subject: "opening a file".to_owned(), reason }
}

fn parse(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
