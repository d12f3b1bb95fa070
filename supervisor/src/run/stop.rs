//! Orders to a program that runs, and how long is waited for each.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Sleep;

use crate::confine::Program;

/// How much longer a worker may take to end a program whose time is up, and all that it started: it gives up after a minute
/// for each, and reports what is left.
pub(crate) const GRACE: Duration = Duration::from_secs(150);
/// How long a program may take to end once it was asked to.
const FAREWELL: Duration = Duration::from_secs(5);
/// SIGTERM.
const TERMINATE: i32 = 15;

/// Order to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Run.
    No,
    /// End, as SIGTERM asks it to; if it does not, it is killed.
    Terminate,
    /// End at once.
    Kill,
}

/// Whoever gives a program its orders.
pub(crate) enum Orders {
    /// Nobody: whoever waits for it ends it by waiting no more.
    None,
    /// This one, at once.
    Given(Stop),
    /// Whoever has the other end, now and later.
    Of(watch::Receiver<Stop>),
}

impl Orders {
    /// Those of this sender, with what it has said before.
    pub(crate) fn of(mut stops: watch::Receiver<Stop>) -> Self {
        stops.mark_changed();
        Self::Of(stops)
    }

    /// Waits for the next.
    pub(super) async fn next(&mut self) -> Stop {
        match self {
            Self::None => {}
            Self::Given(_) => {
                if let Self::Given(stop) = std::mem::replace(self, Self::None) {
                    return stop;
                }
            }
            Self::Of(stops) => match stops.changed().await {
                Ok(()) => return *stops.borrow_and_update(),
                Err(_closed) => *self = Self::None,
            },
        }
        std::future::pending().await
    }
}

/// How long is waited for a program, and for what.
pub(super) struct Patience {
    /// The last order that it was given.
    pub(super) order: Stop,
    until: Pin<Box<Sleep>>,
}

impl Patience {
    /// With a program whose worker ends it after `timeout`.
    pub(super) fn with(timeout: Duration) -> Self {
        Self { order: Stop::No, until: Box::pin(tokio::time::sleep(timeout.saturating_add(GRACE))) }
    }

    /// Waits until it has an end.
    pub(super) async fn ends(&mut self) {
        self.until.as_mut().await;
    }

    /// Has the program end. What it was told before and is stronger stays.
    pub(super) async fn order(&mut self, program: &Program, stop: Stop) {
        let (asked, time) = match (self.order, stop) {
            (_, Stop::No) | (Stop::Terminate, Stop::Terminate) | (Stop::Kill, _) => return,
            (_, Stop::Terminate) => (program.signal(TERMINATE).await, FAREWELL),
            (_, Stop::Kill) => (program.abort().await, GRACE),
        };
        // One whose worker is gone has ended.
        drop(asked);
        *self = Self { order: stop, until: Box::pin(tokio::time::sleep(time)) };
    }
}
