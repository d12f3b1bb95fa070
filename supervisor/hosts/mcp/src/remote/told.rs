//! Lines on standard error, from a thread of their own: a host that does not read them stops no session.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use callgate::shown;

/// Most lines on their way. Those beyond are lost.
const LINES: usize = 1024;
/// How long lines may take that are on their way at the end.
const LAST: Duration = Duration::from_secs(1);

enum Told {
    Line(String),
    /// All that was told before is written.
    Flush(tokio::sync::oneshot::Sender<()>),
}

/// Tells something in one line, whatever is in it.
pub(crate) fn tell(line: &str) {
    if let Some(lines) = lines() {
        // A notice: with too many of them on their way, whoever reads has not read those before.
        drop(lines.try_send(Told::Line(format!("{}\n", shown::escaped(line)))));
    }
}

/// Returns when what was told is written, or nobody reads it.
pub(crate) async fn flush() {
    let (written, told) = tokio::sync::oneshot::channel();
    if let Some(lines) = lines()
        && lines.try_send(Told::Flush(written)).is_ok()
    {
        drop(tokio::time::timeout(LAST, told).await);
    }
}

fn lines() -> Option<&'static SyncSender<Told>> {
    static LINES_TOLD: OnceLock<Option<SyncSender<Told>>> = OnceLock::new();
    let start = || {
        let (lines, told) = sync_channel(LINES);
        let thread = std::thread::Builder::new().name("standard error".to_owned());
        thread.spawn(move || write(&told)).ok().map(|_thread| lines)
    };
    LINES_TOLD.get_or_init(start).as_ref()
}

fn write(told: &Receiver<Told>) {
    while let Ok(told) = told.recv() {
        match told {
            Told::Line(line) => drop(std::io::stderr().write_all(line.as_bytes())),
            Told::Flush(written) => drop(written.send(())),
        }
    }
}
