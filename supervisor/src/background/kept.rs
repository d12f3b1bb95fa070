//! The background tasks of a session: programs that a call has started and not waited for (S2-11 to S2-13, X2-1 to X2-4).
//!
//! What they print is kept until it is read, up to a bound; of more than that the oldest goes, and whoever reads next hears how
//! much. The tasks are the session's: no other session has their ids, and they end with it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use callgate_policy::envelope::Changes;
use callgate_policy::limit::LimitReport;
use serde::Serialize;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

use super::typed::UnfinishedLine;
use crate::bounds::RUNNING_MAX;
use crate::confine::Aborter;
use crate::run::{ProgramInput, Stop};
use crate::turn::Turn;

/// Most of those that have ended that are remembered.
pub(crate) const ENDED_MAX: usize = 64;
/// Most bytes of a stream that are kept for whoever reads next. With all tasks at their bounds a session holds 64 MiB.
pub(crate) const UNREAD_MAX: usize = 256 * 1024;

/// The background tasks of one session.
#[derive(Debug)]
pub(crate) struct Background {
    /// In the order of their starts.
    tasks: Mutex<Vec<Arc<BackgroundTask>>>,
    places: Arc<Semaphore>,
}

/// How far a task is (X2-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Status {
    Running,
    /// It has ended by itself, with status 0.
    Completed,
    /// It has ended by itself with another status, by a signal, or for a limit.
    Failed,
    /// It was cancelled.
    Killed,
    /// Its time was up.
    TimedOut,
}

/// How a task has ended.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) status: Status,
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) took: Duration,
    /// Reason, if it did not end by itself.
    pub(crate) why: Option<String>,
    /// Notes on what the sandbox has refused to it.
    pub(crate) notes: Vec<String>,
    pub(crate) limits: Vec<LimitReport>,
    pub(crate) changes: Option<Changes>,
}

impl Ended {
    /// One of whose end nothing is known but why.
    pub(crate) fn unknown(took: Duration, why: String) -> Self {
        let (limits, notes) = (Vec::new(), Vec::new());
        Self { status: Status::Failed, code: None, signal: None, took, why: Some(why), notes, limits, changes: None }
    }
}

/// A program in the background.
#[derive(Debug)]
pub(crate) struct BackgroundTask {
    pub(crate) id: String,
    pub(crate) command: String,
    pub(crate) has_terminal: bool,
    started: Instant,
    heard: Mutex<TaskOutput>,
    /// Tells that `heard` has changed.
    news: watch::Sender<()>,
    stop: watch::Sender<Stop>,
    /// Held while something is written to it, so that two inputs do not mix.
    pub(crate) input: tokio::sync::Mutex<ProgramInput>,
    /// The line that it has been typed, as far as it is not ended. It changes while `input` is held.
    line: Mutex<UnfinishedLine>,
    /// Whoever follows it has the program.
    aborter: Option<Aborter>,
    follows: Mutex<Option<AbortHandle>>,
}

/// Facts known of a task.
#[derive(Debug, Default)]
pub(crate) struct TaskOutput {
    pub(crate) stdout: UnreadOutput,
    pub(crate) stderr: UnreadOutput,
    pub(crate) end: Option<Ended>,
}

/// Output of a stream that nobody has read.
#[derive(Debug, Default)]
pub(crate) struct UnreadOutput {
    bytes: VecDeque<u8>,
    /// All that the stream has given.
    pub(crate) total: u64,
    /// How much of it has gone since somebody read last.
    omitted: u64,
    has_ended: bool,
}

/// The next part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Increment {
    pub(crate) text: String,
    /// How many bytes of the stream that is.
    pub(crate) len: usize,
    /// How many bytes before it are gone.
    pub(crate) omitted: u64,
    /// True if there is more to read at once.
    pub(crate) has_more: bool,
}

impl Default for Background {
    fn default() -> Self {
        Self { tasks: Mutex::default(), places: Arc::new(Semaphore::new(RUNNING_MAX)) }
    }
}

impl Background {
    /// A place for one more; `None` if as many run as may.
    pub(crate) fn enter(&self) -> Option<Turn> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(Turn::Background { _place: place })
    }

    /// Remembers a task. Of those that have ended the oldest are forgotten.
    pub(crate) fn add(&self, task: Arc<BackgroundTask>) {
        let mut tasks = self.tasks();
        let ended = tasks.iter().filter(|task| !task.runs()).count();
        let mut excess = (ended + 1).saturating_sub(ENDED_MAX);
        tasks.retain(|task| {
            let goes = excess > 0 && !task.runs();
            excess -= usize::from(goes);
            !goes
        });
        tasks.push(task);
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<BackgroundTask>> {
        self.tasks().iter().find(|task| task.id == id).map(Arc::clone)
    }

    /// All that are remembered, in the order of their starts.
    pub(crate) fn all(&self) -> Vec<Arc<BackgroundTask>> {
        self.tasks().clone()
    }

    /// Ends all of them, and waits until nothing of them runs and their ends are recorded.
    pub(crate) async fn end(&self) {
        let running: Vec<_> = self.all().into_iter().filter(|task| task.runs()).collect();
        running.iter().for_each(|task| task.stop(Stop::Kill));
        for task in running {
            task.until(|heard| heard.end.is_some()).await;
        }
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<Arc<BackgroundTask>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Background {
    /// Nobody is there to wait: each is told to end, and whoever follows it does not any more.
    fn drop(&mut self) {
        for task in self.all() {
            if let Some(aborter) = &task.aborter {
                aborter.abort_now();
            }
            if let Some(follows) = task.follows().take() {
                follows.abort();
            }
        }
    }
}

impl BackgroundTask {
    pub(crate) fn new(
        (id, command): (String, String),
        has_terminal: bool,
        (input, first): (ProgramInput, Option<&str>),
        aborter: Option<Aborter>,
    ) -> Self {
        Self {
            id,
            command,
            has_terminal,
            started: Instant::now(),
            heard: Mutex::default(),
            news: watch::Sender::new(()),
            stop: watch::Sender::new(Stop::No),
            input: tokio::sync::Mutex::new(input),
            line: Mutex::new(UnfinishedLine::default().and(first.unwrap_or_default().as_bytes())),
            aborter,
            follows: Mutex::default(),
        }
    }

    /// Who follows it.
    pub(crate) fn is_followed_by(&self, follows: AbortHandle) {
        *self.follows() = Some(follows);
    }

    pub(crate) fn heard(&self) -> MutexGuard<'_, TaskOutput> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line that it has been typed, as far as it is not ended.
    pub(crate) fn line(&self) -> UnfinishedLine {
        self.line.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_line(&self, line: UnfinishedLine) {
        *self.line.lock().unwrap_or_else(PoisonError::into_inner) = line;
    }

    /// Takes in what came, and tells those who wait for it.
    pub(crate) fn hear(&self, take: impl FnOnce(&mut TaskOutput)) {
        take(&mut self.heard());
        self.news.send_replace(());
    }

    pub(crate) fn runs(&self) -> bool {
        self.heard().end.is_none()
    }

    /// How long it has run.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits until this holds of what is known.
    pub(crate) async fn until(&self, holds: impl Fn(&TaskOutput) -> bool) {
        let mut news = self.news.subscribe();
        while !holds(&self.heard()) {
            // The sender is here.
            drop(news.changed().await);
        }
    }

    /// Asks it to end. What was asked before and is stronger stays.
    pub(crate) fn stop(&self, stop: Stop) {
        self.stop.send_if_modified(|asked| {
            let is_more = matches!((*asked, stop), (Stop::No, _) | (Stop::Terminate, Stop::Kill));
            if is_more {
                *asked = stop;
            }
            is_more
        });
    }

    /// Hears when it is to end.
    pub(crate) fn stops(&self) -> watch::Receiver<Stop> {
        self.stop.subscribe()
    }

    fn follows(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.follows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskOutput {
    /// Nothing else will come of the streams.
    pub(crate) fn has_ended(&mut self, end: Ended) {
        self.stdout.has_ended = true;
        self.stderr.has_ended = true;
        self.end = Some(end);
    }

    pub(crate) fn total(&self) -> u64 {
        self.stdout.total + self.stderr.total
    }

    pub(crate) fn status(&self) -> Status {
        self.end.as_ref().map_or(Status::Running, |end| end.status)
    }

    /// True if there is something to read.
    pub(crate) fn is_readable(&self) -> bool {
        self.stdout.is_readable() || self.stderr.is_readable()
    }
}

impl UnreadOutput {
    pub(crate) fn add(&mut self, piece: &[u8]) {
        let excess = (self.bytes.len() + piece.len()).saturating_sub(UNREAD_MAX);
        self.bytes.drain(..excess.min(self.bytes.len()));
        self.bytes.extend(&piece[piece.len().saturating_sub(UNREAD_MAX)..]);
        self.omitted += excess as u64;
        self.total += piece.len() as u64;
    }

    /// How much of it is unread.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn is_readable(&self) -> bool {
        match self.bytes.len() {
            0 => false,
            // Perhaps the beginning of a character.
            len @ 1..=3 if !self.has_ended => {
                let mut begun = [0; 3];
                self.bytes.iter().zip(&mut begun).for_each(|(byte, copy)| *copy = *byte);
                whole(&begun[..len]) > 0
            }
            _ => true,
        }
    }

    /// The next part, of at most so many bytes. A character is not cut, by the bound or because the rest of it has not come yet.
    pub(crate) fn take(&mut self, most: usize) -> Increment {
        if self.omitted > 0 {
            // The rest of a character of which the beginning is gone.
            let rest = self.bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
            self.bytes.drain(..rest);
            self.omitted += rest as u64;
        }
        let bytes = self.bytes.make_contiguous();
        let mut len = bytes.len().min(most);
        if len < bytes.len() || !self.has_ended {
            len = whole(&bytes[..len]);
        }
        let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        self.bytes.drain(..len);
        if self.bytes.is_empty() {
            self.bytes = VecDeque::new();
        }
        let omitted = std::mem::take(&mut self.omitted);
        Increment { text, len, omitted, has_more: self.is_readable() }
    }
}

/// How many of these bytes come before a character that is only begun at their end.
fn whole(bytes: &[u8]) -> usize {
    let begun = bytes.utf8_chunks().last().map_or(0, |last| {
        let invalid = last.invalid();
        let is_begun = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
        if is_begun { invalid.len() } else { 0 }
    });
    bytes.len() - begun
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use super::*;

    fn unread(pieces: &[&[u8]]) -> UnreadOutput {
        let mut unread = UnreadOutput::default();
        pieces.iter().for_each(|piece| unread.add(piece));
        unread
    }

    /// X2-3: what was read once is not read again, and nothing in between is missing, however the pieces and the reads fall.
    #[test]
    fn x2_3_increments_make_the_stream() {
        let stream = "aä€😀\n".repeat(50);
        for piece in 1..=7 {
            for most in 4..=9 {
                let (mut unread, mut read, mut omitted) = (UnreadOutput::default(), String::new(), 0);
                for bytes in stream.as_bytes().chunks(piece) {
                    unread.add(bytes);
                    let increment = unread.take(most);
                    read.push_str(&increment.text);
                    omitted += increment.omitted;
                }
                unread.has_ended = true;
                while unread.is_readable() {
                    read.push_str(&unread.take(most).text);
                }
                assert_eq!((read == stream, omitted), (true, 0), "pieces of {piece}, reads of {most}");
                assert_eq!(unread.total, stream.len() as u64);
            }
        }
    }

    /// X2-3: what there is no room for is the oldest, and whoever reads next is told how much it was.
    #[test]
    fn x2_3_what_is_dropped_is_counted() {
        let mut full = unread(&[&[b'a'; 10], &vec![b'b'; UNREAD_MAX - 4]]);
        let increment = full.take(10);
        assert_eq!(increment, Increment { text: "aaaabbbbbb".to_owned(), len: 10, omitted: 6, has_more: true });
        assert_eq!(full.take(10).omitted, 0, "once");
        let mut at_once = unread(&[b"old", &[&vec![b'x'; UNREAD_MAX], &b"end"[..]].concat()]);
        let increment = at_once.take(usize::MAX);
        assert_eq!((increment.omitted, increment.len), (6, UNREAD_MAX));
        assert!(increment.text.ends_with("xend"));
        let mut fits = unread(&[&vec![b'x'; UNREAD_MAX]]);
        assert_eq!(fits.take(1).omitted, 0, "the control");
    }

    #[test]
    fn a_character_waits_for_its_rest_and_no_longer() {
        let euro = "€".as_bytes();
        let mut begun = unread(&[b"1", &euro[..2]]);
        assert_eq!(begun.take(100).text, "1");
        assert!(!begun.is_readable());
        begun.add(&euro[2..]);
        assert!(begun.is_readable());
        assert_eq!(begun.take(100).text, "€");
        begun.add(&euro[..2]);
        begun.has_ended = true;
        assert!(begun.is_readable(), "nothing else will come");
        assert_eq!(begun.take(100).text, "\u{fffd}");
        let mut not_utf8 = unread(&[b"\xff\xfe\x80"]);
        assert_eq!((not_utf8.is_readable(), not_utf8.take(100).len), (true, 3));
        // A character of which the beginning was dropped is gone altogether.
        let mut cut = unread(&[euro, &vec![b'x'; UNREAD_MAX - 2]]);
        let increment = cut.take(3);
        assert_eq!((increment.omitted, &*increment.text), (3, "xxx"));
    }
}
