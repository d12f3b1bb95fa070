//! Opening a file to read, inside and outside: the same program does it, in a call's full confinement and without any.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use callgate::Stdio;
use rustix::fs::{Mode, OFlags};
use serde_json::json;

use crate::failure::BenchFailure;
use crate::figures::{FigureTarget, median, print};
use crate::sessions::BenchOpener;

/// Opens in one run of the helper.
const COUNT: u32 = 20_000;
/// Runs of it, inside and outside in turns.
const ROUNDS: usize = 9;

/// The helper: prints the nanoseconds of one open and close.
pub(crate) fn play(file: &Path, count: u32) -> Result<(), BenchFailure> {
    let open =
        || -> rustix::io::Result<OwnedFd> { rustix::fs::open(file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) };
    for _ in 0..count / 10 {
        drop(open()?);
    }
    let started = Instant::now();
    for _ in 0..count {
        drop(open()?);
    }
    let each = started.elapsed().as_secs_f64() * 1e9 / f64::from(count.max(1));
    writeln!(std::io::stdout(), "{each:.1}").map_err(BenchFailure::io("print it"))
}

/// Measures, and prints.
pub(crate) async fn measure(opener: &BenchOpener<'_>, as_json: bool) -> Result<(), BenchFailure> {
    let session = opener.open().await?;
    let words = [
        opener.scratch.program().as_os_str().to_owned(),
        "play".into(),
        "opens".into(),
        opener.scratch.file().into_os_string(),
        COUNT.to_string().into(),
    ];
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (in_, out) = (run_inside(&session, &words).await?, run_outside(&words)?);
        // The first warms up.
        if round > 0 {
            inside.push(in_);
            outside.push(out);
        }
    }
    let (inside, outside) = (median(inside), median(outside));
    let figures = json!({ "open_ns": { "inside": inside, "outside": outside } });
    let lines = format!("open and close a file: {inside:.0} ns inside, {outside:.0} ns outside\n");
    let ratio = FigureTarget { what: "open inside / outside", at_most: 1.5, measured: inside / outside, unit: "×" };
    print(figures, &lines, &[ratio], as_json).map_err(BenchFailure::io("print the figures"))
}

async fn run_inside(session: &callgate::Session, words: &[std::ffi::OsString]) -> Result<f64, BenchFailure> {
    let pipe = || std::io::pipe().map_err(BenchFailure::io("make a pipe"));
    let (mut reader, writer) = pipe()?;
    let null = || std::fs::File::open("/dev/null").map_err(BenchFailure::io("open /dev/null"));
    let error = std::fs::File::options().write(true).open("/dev/null").map_err(BenchFailure::io("open /dev/null"))?;
    let program = session.spawn(words, Stdio::new(null()?.into(), writer.into(), error.into())).await?;
    let end = program.wait().await?;
    // It has ended, and its few bytes are in the pipe.
    let mut text = String::new();
    reader.read_to_string(&mut text).map_err(BenchFailure::io("read what the helper printed"))?;
    parse(&text).ok_or_else(|| failed(format!("inside it ended with {end:?} and printed `{text}`")))
}

fn run_outside(words: &[std::ffi::OsString]) -> Result<f64, BenchFailure> {
    let [program, arguments @ ..] = words else { return Err(failed("no program".to_owned())) };
    let output = std::process::Command::new(program)
        .args(arguments)
        .output()
        .map_err(BenchFailure::io("start the helper outside"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).ok_or_else(|| failed(format!("outside it ended with {} and printed `{text}`", output.status)))
}

fn failed(reason: String) -> BenchFailure {
    BenchFailure::of("opening a file", reason)
}

fn parse(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}
