//! System V IPC: each call has its own objects, and they end with it.
//!
//! Keys are the call's: the broker makes a private object for each. Ids are numbers, not pointers, so once one
//! is known to be the call's own the kernel may be left to carry on.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::caller::Caller;
use super::metadata::int;
use super::{Broker, Handler};
use crate::sys::ipc::{self, Access};
use crate::sys::notify::{Answer, Notification};

pub(super) const HANDLERS: &[(libc::c_long, Handler)] = &[
    (libc::SYS_shmget, |b, c, n| get(b, c, n, Kind::Memory)),
    (libc::SYS_shmat, |b, c, n| own(b, c, n, Kind::Memory)),
    (libc::SYS_shmctl, |b, c, n| control(b, c, n, Kind::Memory, int(n.args[1]))),
    (libc::SYS_semget, |b, c, n| get(b, c, n, Kind::Semaphores)),
    (libc::SYS_semop, |b, c, n| own(b, c, n, Kind::Semaphores)),
    (libc::SYS_semtimedop, |b, c, n| own(b, c, n, Kind::Semaphores)),
    (libc::SYS_semctl, |b, c, n| control(b, c, n, Kind::Semaphores, int(n.args[2]))),
    (libc::SYS_msgget, |b, c, n| get(b, c, n, Kind::Messages)),
    (libc::SYS_msgsnd, |b, c, n| own(b, c, n, Kind::Messages)),
    (libc::SYS_msgrcv, |b, c, n| own(b, c, n, Kind::Messages)),
    (libc::SYS_msgctl, |b, c, n| control(b, c, n, Kind::Messages, int(n.args[1]))),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Memory,
    Semaphores,
    Messages,
}

impl Kind {
    fn remove(self, id: i32) -> std::io::Result<()> {
        match self {
            Self::Memory => ipc::shm_remove(id),
            Self::Semaphores => ipc::sem_remove(id),
            Self::Messages => ipc::msg_remove(id),
        }
    }
}

/// A call's objects. Dropped with the call, and with it everything in it.
pub(super) struct Objects {
    /// Each with the bytes that it can come to: memory that belongs to no process.
    ids: HashMap<(Kind, i32), u64>,
    keys: HashMap<(Kind, i32), i32>,
    all: AllObjects,
}

/// The objects of all calls of a session. They have a lock of their own, under which nothing waits, so that the session's end can
/// remove them while the broker's lock is held.
#[derive(Clone, Default)]
pub(super) struct AllObjects(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    ids: HashSet<(Kind, i32)>,
    /// True if the session has ended: no more are made.
    closed: bool,
}

impl AllObjects {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one, unless the session has ended.
    fn make(&self, kind: Kind, make: impl FnOnce() -> std::io::Result<i32>) -> Result<i32, i32> {
        let mut known = self.known();
        if known.closed {
            return Err(libc::EPERM);
        }
        let id = make().map_err(errno)?;
        known.ids.insert((kind, id));
        Ok(id)
    }

    fn forget(&self, kind: Kind, id: i32) {
        self.known().ids.remove(&(kind, id));
    }

    /// Removes one, if it is still the broker's.
    fn remove(&self, kind: Kind, id: i32) {
        let mut known = self.known();
        if known.ids.remove(&(kind, id)) {
            remove(kind, id);
        }
    }

    /// Removes all of them; no more are made.
    pub(super) fn close(&self) {
        let mut known = self.known();
        known.closed = true;
        known.ids.drain().for_each(|(kind, id)| remove(kind, id));
    }
}

/// Removes an object, if it is still the broker's.
fn remove(kind: Kind, id: i32) {
    if kind != Kind::Memory || is_of_the_broker(id) {
        // Removed by the call itself in the meantime: as well.
        drop(kind.remove(id));
    }
}

/// Most objects of a call: a host has room for 4,096 segments (SHMMNI in linux/shm.h).
const MOST: usize = 1024;

impl Objects {
    /// Makes the record of a call that has none yet.
    pub(super) fn new(all: &AllObjects) -> Self {
        Self { ids: HashMap::new(), keys: HashMap::new(), all: all.clone() }
    }

    /// True if an id is of an object of the call. A segment may have gone without having been removed here, for the kernel
    /// removes those that nobody is attached to where `kernel.shm_rmid_forced` says so; its id is another's one day.
    fn is_own(&mut self, kind: Kind, id: i32) -> bool {
        if !self.ids.contains_key(&(kind, id)) {
            return false;
        }
        let is_there = kind != Kind::Memory || is_of_the_broker(id);
        if !is_there {
            self.forget(kind, id);
        }
        is_there
    }

    fn forget(&mut self, kind: Kind, id: i32) -> Option<u64> {
        self.keys.retain(|(k, _), known| !(*k == kind && *known == id));
        self.all.forget(kind, id);
        self.ids.remove(&(kind, id))
    }
}

/// Mode that a segment's owner always has. The broker is that owner, and has to look at it before it removes it;
/// without this right not even the owner may look.
const OWNERS: i32 = 0o400;

/// True if a segment is the broker's; another's is not. The call's own may be looked at: [`OWNERS`].
fn is_of_the_broker(id: i32) -> bool {
    ipc::shm_creator(id).is_ok_and(|creator| creator == rustix::process::getpid().as_raw_nonzero().get())
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.ids.keys().for_each(|(kind, id)| self.all.remove(*kind, *id));
    }
}

fn errno(e: std::io::Error) -> i32 {
    e.raw_os_error().unwrap_or(libc::EIO)
}

/// Bytes that an object of so many, or with so many semaphores, can come to. The kernel keeps a cache line for each
/// semaphore (`struct sem`), and 64 bytes at least for each message, of which a queue takes 16,384 (MSGMNB in linux/msg.h).
fn bytes(kind: Kind, asked: u64) -> u64 {
    const EACH: u64 = 64;
    const MESSAGES: u64 = 16_384;
    match kind {
        Kind::Memory => asked,
        // An int, whatever the upper half of the register holds.
        Kind::Semaphores => (asked & u64::from(u32::MAX)).saturating_mul(EACH),
        Kind::Messages => MESSAGES * EACH,
    }
}

/// shmget(key, size, flags), semget(key, count, flags), msgget(key, flags).
fn get(broker: &mut Broker, caller: &Caller<'_>, n: &Notification, kind: Kind) -> Result<Answer, i32> {
    let key = int(n.args[0]);
    let flags = if kind == Kind::Messages { int(n.args[1]) } else { int(n.args[2]) };
    let most = broker.shared_memory;
    let objects = &mut broker.call(caller)?.objects;
    let private = key == libc::IPC_PRIVATE;
    let known = objects.keys.get(&(kind, key)).copied().filter(|_| !private);
    if let Some(id) = known.filter(|id| objects.is_own(kind, *id)) {
        let exclusive = libc::IPC_CREAT | libc::IPC_EXCL;
        return if flags & exclusive == exclusive { Err(libc::EEXIST) } else { Ok(Answer::Return(i64::from(id))) };
    }
    if !private && flags & libc::IPC_CREAT == 0 {
        return Err(libc::ENOENT);
    }
    let flags = flags & !libc::IPC_EXCL;
    let bytes = bytes(kind, n.args[1]);
    if objects.ids.len() >= MOST || objects.ids.values().fold(bytes, |sum, size| sum.saturating_add(*size)) > most {
        // As shmget(2), semget(2) and msgget(2) say it of the system's own bounds.
        return Err(libc::ENOSPC);
    }
    let size = usize::try_from(n.args[1]).map_err(|_too_large| libc::EINVAL)?;
    let id = objects.all.make(kind, || match kind {
        Kind::Memory => ipc::shm_create(size, flags | OWNERS),
        Kind::Semaphores => ipc::sem_create(int(n.args[1]), flags),
        Kind::Messages => ipc::msg_create(flags),
    })?;
    objects.ids.insert((kind, id), bytes);
    if !private {
        objects.keys.insert((kind, key), id);
    }
    Ok(Answer::Return(i64::from(id)))
}

/// A call on an id: the kernel's business if it is the call's own.
fn own(broker: &mut Broker, caller: &Caller<'_>, n: &Notification, kind: Kind) -> Result<Answer, i32> {
    let id = int(n.args[0]);
    if broker.call(caller)?.objects.is_own(kind, id) { Ok(Answer::Continue) } else { Err(libc::EACCES) }
}

fn control(
    broker: &mut Broker,
    caller: &Caller<'_>,
    n: &Notification,
    kind: Kind,
    command: i32,
) -> Result<Answer, i32> {
    let id = int(n.args[0]);
    // IPC_64 is a flag of some old callers.
    match command & !0x100 {
        libc::IPC_RMID => {
            let objects = &mut broker.call(caller)?.objects;
            // Whoever is still attached to a segment has it among its own memory.
            if !objects.is_own(kind, id) {
                return Err(libc::EACCES);
            }
            objects.forget(kind, id);
            kind.remove(id).map_err(errno)?;
            Ok(Answer::Return(0))
        }
        // Performed here, for the mode lies behind a pointer. Sets and queues are removed without being looked at.
        libc::IPC_SET if kind == Kind::Memory => {
            let access = Access::of(&caller.bytes(n.args[2], ipc::SHM_SET)?).ok_or(libc::EFAULT)?;
            if !broker.call(caller)?.objects.is_own(kind, id) {
                return Err(libc::EACCES);
            }
            if access.mode & OWNERS as u32 == 0 {
                return Err(libc::EPERM);
            }
            ipc::shm_set(id, access).map_err(errno)?;
            Ok(Answer::Return(0))
        }
        // The rest either takes an id, or an index into the whole system's table: SHM_STAT and its like.
        command if STAT_BY_INDEX.contains(&command) => Err(libc::EACCES),
        _ => own(broker, caller, n, kind),
    }
}

/// SHM_STAT, SHM_INFO, SHM_STAT_ANY, SEM_STAT, SEM_INFO, SEM_STAT_ANY, MSG_STAT, MSG_INFO, MSG_STAT_ANY, IPC_INFO
/// (linux/shm.h, linux/sem.h, linux/msg.h, linux/ipc.h): they look at others' objects.
const STAT_BY_INDEX: [i32; 8] = [3, 13, 14, 15, 18, 19, 20, 12];
