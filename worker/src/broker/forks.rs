//! How many processes and threads a call makes.
//!
//! Its init watches their number, but a bomb's processes take the processor from it, and each of them makes others
//! meanwhile. None of them is made without an answer from here (D11). To answer quickly, nobody is looked up and nothing is
//! counted as long as no call can have too many: the calls have a spare in common that any one of them may use up.
//!
//! Who asks for too many waits until there are fewer, or until the init has seen it and ends the call: what waits takes no
//! processor from it.

use std::time::{Duration, Instant};

use super::caller::Caller;
use super::calls::Calls;
use super::{Broker, Handler};
use crate::family;
use crate::sys::notify::{Answer, Notification};
use crate::sys::process::Pid;

pub(super) const HANDLERS: &[(libc::c_long, Handler)] = &[
    (libc::SYS_clone, fork),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_fork, fork),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_vfork, fork),
];

pub(super) fn asks_for_one(notification: &Notification) -> bool {
    HANDLERS.iter().any(|(nr, _)| *nr == libc::c_long::from(notification.nr))
}

/// How long a call that was found full is taken to be.
pub(super) const FULL: Duration = Duration::from_millis(5);

/// What all calls of a session may make.
pub(super) struct Forks {
    /// Most that one call may have. One more than its limit, for its init to see that this was passed.
    most: u64,
    /// So many can be made, whoever does, before any call can have more than that.
    spare: u64,
    /// Makes workers, and belongs to no call.
    zygote: Pid,
    /// Who waits for room, by the number of the question, and in which call.
    waiting: Vec<(u64, Pid)>,
}

impl Forks {
    pub(super) fn new(limit: u64, zygote: Pid) -> Self {
        let most = limit.saturating_add(1);
        Self { most, spare: most, zygote, waiting: Vec::new() }
    }

    /// Whether whoever asks may make one, whichever call it belongs to.
    pub(super) fn take_spare(&mut self) -> bool {
        let some = self.spare > 0;
        self.spare -= u64::from(some);
        some
    }
}

/// What one call may make besides the spare.
pub(super) struct Room {
    left: u64,
    counted: Option<Instant>,
}

impl Room {
    /// Of a call that has nothing yet.
    pub(super) fn new(forks: &Forks) -> Self {
        Self { left: forks.most - forks.spare, counted: None }
    }

    /// Counts what a call has, if all that it might have would be too much. Nobody can make more meanwhile, but for those
    /// who have had their answer: at most each one that there is makes one.
    fn make(&mut self, worker: Pid, most: u64) {
        if self.left == 0 && self.counted.is_none_or(|counted| counted.elapsed() > FULL) {
            self.left = most.saturating_sub(family::count(worker, most));
            self.counted = Some(Instant::now());
        }
    }
}

impl Calls {
    /// Once there is no spare, counts again where there is no room either, and sets aside what every call has room for.
    fn make_room(&mut self) {
        if self.forks.spare > 0 {
            return;
        }
        let most = self.forks.most;
        self.each_room().for_each(|(worker, room)| room.make(worker, most));
        let spare = self.each_room().map(|(_, room)| room.left).min().unwrap_or(0);
        self.each_room().for_each(|(_, room)| room.left -= spare);
        self.forks.spare = spare;
    }

    /// Whether a call may make one.
    fn take_room(&mut self, worker: Pid) -> bool {
        let Some((_, room)) = self.each_room().find(|(other, _)| *other == worker) else { return false };
        let some = room.left > 0;
        room.left -= u64::from(some);
        some || self.forks.take_spare()
    }

    pub(super) fn is_any_waiting(&self) -> bool {
        !self.forks.waiting.is_empty()
    }

    /// Takes out who need not wait any longer.
    pub(super) fn done_waiting(&mut self, is_there: impl Fn(u64) -> bool) -> Vec<u64> {
        self.make_room();
        let mut waiting = std::mem::take(&mut self.forks.waiting);
        waiting.retain(|(id, _)| is_there(*id));
        let (go, wait): (Vec<_>, _) = waiting.into_iter().partition(|(_, worker)| self.take_room(*worker));
        self.forks.waiting = wait;
        go.into_iter().map(|(id, _)| id).collect()
    }

    /// Its questions are nobody's any more.
    pub(super) fn forget_waiting(&mut self, worker: Pid) {
        self.forks.waiting.retain(|(_, other)| *other != worker);
    }
}

fn fork(broker: &mut Broker, caller: &Caller<'_>, _: &Notification) -> Result<Answer, i32> {
    let calls = &mut broker.calls;
    calls.make_room();
    if caller.tid() == calls.forks.zygote {
        return Ok(Answer::Continue);
    }
    let worker = calls.worker_of_caller(caller).ok_or(libc::EPERM)?;
    if calls.take_room(worker) {
        return Ok(Answer::Continue);
    }
    calls.forks.waiting.push((caller.id(), worker));
    Ok(Answer::Later)
}
