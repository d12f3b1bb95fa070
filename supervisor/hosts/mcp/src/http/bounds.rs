//! Bounds of all clients together: connections, and bytes of messages on their way. Each token may have a part.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::door::Holder;

/// Most connections at once that have not: whoever may connect can make them.
pub(super) const STRANGERS_MAX: usize = 64;
/// Connections for each session that there may be. A connection has one request at a time: a client listens on one (GET), waits for a
/// call on another, and answers what that call asks on a third. With fewer, as many clients as there are sessions could all wait.
const CONNECTIONS_PER_SESSION: usize = 4;
/// Least connections, however few the sessions: one client may make many calls at once.
const CONNECTIONS_MIN: usize = 128;
/// Most bytes of large messages that are on their way, or are parsed.
const BYTES_MAX: usize = 64 << 20;

/// How often it is looked whether a client is still there, where nothing else shows that.
const LOOK: Duration = Duration::from_secs(1);

/// Most connections at once of those who have a token, for so many sessions.
pub(super) fn connections(sessions: usize) -> usize {
    sessions.saturating_mul(CONNECTIONS_PER_SESSION).max(CONNECTIONS_MIN)
}

pub(super) struct Bounds {
    pub(super) connections: Arc<Connections>,
    pub(super) bytes: Arc<Shares>,
    /// A large message is parsed when no other one is, so that one client's take neither all of the memory nor all of the time.
    pub(super) parsing: Semaphore,
}

impl Bounds {
    /// With at most so many connections at once of those who have shown a token. Each has one request at a time.
    pub(super) fn new(connections: usize, holders: usize) -> Self {
        Self {
            connections: Arc::new(Connections::new(connections, holders)),
            bytes: Arc::new(Shares::new(BYTES_MAX, holders)),
            parsing: Semaphore::new(1),
        }
    }
}

/// An amount that no holder has more than half of, if there are several.
pub(super) struct Shares {
    most: usize,
    each: usize,
    taken: Mutex<HashMap<Holder, usize>>,
}

/// A part of it, until it is dropped.
pub(super) struct Share {
    of: Arc<Shares>,
    holder: Holder,
    amount: usize,
}

impl Shares {
    fn new(most: usize, holders: usize) -> Self {
        Self { most, each: if holders > 1 { most / 2 } else { most }, taken: Mutex::default() }
    }

    /// `None` if there is not so much left, at all or for this holder.
    pub(super) fn take(self: &Arc<Self>, holder: Holder, amount: usize) -> Option<Share> {
        let mut taken = self.taken();
        let (all, own) = (taken.values().sum::<usize>(), taken.get(&holder).copied().unwrap_or_default());
        if all.saturating_add(amount) > self.most || own.saturating_add(amount) > self.each {
            return None;
        }
        taken.insert(holder, own + amount);
        Some(Share { of: Arc::clone(self), holder, amount })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Holder, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(taken) = self.of.taken().get_mut(&self.holder) {
            *taken = taken.saturating_sub(self.amount);
        }
    }
}

/// The connections. Those without a token are counted apart, so that they keep out nobody who has one.
pub(super) struct Connections {
    admitted: Arc<Shares>,
    strangers: Mutex<Strangers>,
}

#[derive(Default)]
struct Strangers {
    last: u64,
    /// In the order in which they came.
    all: BTreeMap<u64, CancellationToken>,
}

impl Connections {
    fn new(most: usize, holders: usize) -> Self {
        Self { admitted: Arc::new(Shares::new(most, holders)), strangers: Mutex::default() }
    }

    /// For a connection that has come. If there are too many of which nothing is known, the oldest of them is over.
    pub(super) fn arrive(self: &Arc<Self>) -> Seat {
        let mut strangers = self.strangers();
        if strangers.all.len() >= STRANGERS_MAX
            && let Some((_, oldest)) = strangers.all.pop_first()
        {
            oldest.cancel();
        }
        strangers.last += 1;
        let (number, over) = (strangers.last, CancellationToken::new());
        strangers.all.insert(number, over.clone());
        Seat { of: Arc::clone(self), number, over, share: Mutex::default(), stream: None }
    }

    fn strangers(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place among them, until it is dropped.
pub(super) struct Seat {
    of: Arc<Connections>,
    number: u64,
    over: CancellationToken,
    share: Mutex<Option<Share>>,
    stream: Option<Arc<TcpStream>>,
}

impl Seat {
    pub(super) fn of_connection(mut self, stream: Arc<TcpStream>) -> Self {
        self.stream = Some(stream);
        self
    }

    /// Returns when the other end of the connection was closed. Hyper does not notice that as long as it has sent something more that
    /// is not to be read yet.
    pub(super) async fn left(&self) {
        let mut look = tokio::time::interval(LOOK);
        loop {
            look.tick().await;
            if self.stream.as_deref().is_some_and(is_closed) {
                return;
            }
        }
    }

    /// Returns when the connection has to make room for another one.
    pub(super) async fn lost(&self) {
        self.over.cancelled().await;
    }

    /// The connection is this holder's from now on: whether there is room for it.
    pub(super) fn admit(&self, holder: Holder) -> bool {
        let mut share = self.share.lock().unwrap_or_else(PoisonError::into_inner);
        if share.as_ref().is_none_or(|share| share.holder != holder) {
            let Some(taken) = self.of.admitted.take(holder, 1) else { return false };
            *share = Some(taken);
            self.of.strangers().all.remove(&self.number);
        }
        true
    }
}

fn is_closed(stream: &TcpStream) -> bool {
    let mut ends = [PollFd::new(stream, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut ends, Some(&now)).is_ok_and(|found| found > 0)
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.of.strangers().all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_keep_out_nobody_who_has_a_token() {
        let connections = Arc::new(Connections::new(4, 2));
        let known = connections.arrive();
        assert!(known.admit(Holder::of(0)));
        let mut strangers: Vec<Seat> = (0..STRANGERS_MAX).map(|_| connections.arrive()).collect();
        assert!(strangers.iter().all(|stranger| !stranger.over.is_cancelled()));
        strangers.push(connections.arrive());
        let lost: Vec<bool> = strangers.iter().map(|stranger| stranger.over.is_cancelled()).collect();
        assert_eq!(lost.iter().filter(|lost| **lost).count(), 1);
        assert!(lost[0] && !known.over.is_cancelled());
        // One that ends makes room, and one that shows a token does.
        drop(strangers.pop());
        assert!(strangers[1].admit(Holder::of(1)));
        strangers.extend([connections.arrive(), connections.arrive()]);
        assert!(!strangers[2].over.is_cancelled());
    }

    #[test]
    fn a_holder_has_half_if_there_are_several() {
        let shares = Arc::new(Shares::new(8, 2));
        let first = shares.take(Holder::of(0), 4);
        assert!(first.is_some() && shares.take(Holder::of(0), 1).is_none());
        let second = shares.take(Holder::of(1), 3);
        assert!(second.is_some() && shares.take(Holder::of(2), 2).is_none());
        drop(first);
        assert!(shares.take(Holder::of(0), 4).is_some());
        let alone = Arc::new(Shares::new(8, 1));
        assert!(alone.take(Holder::of(0), 8).is_some() && alone.take(Holder::of(0), 9).is_none());
    }
}
