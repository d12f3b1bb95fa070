//! The System V objects of calls, and their end.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sys::ipc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ObjectKind {
    Memory,
    Semaphores,
    Messages,
}

impl ObjectKind {
    pub(super) fn remove(self, id: i32) -> std::io::Result<()> {
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
    pub(super) ids: HashMap<(ObjectKind, i32), u64>,
    pub(super) keys: HashMap<(ObjectKind, i32), i32>,
    pub(super) all: AllObjects,
}

/// The objects of all calls of a session. They have a lock of their own, under which nothing waits, so that the session's end can
/// remove them while the broker's lock is held.
#[derive(Clone, Default)]
pub(super) struct AllObjects(Arc<Mutex<KnownObjects>>);

#[derive(Default)]
struct KnownObjects {
    ids: HashSet<(ObjectKind, i32)>,
    /// True if the session has ended: no more are made.
    closed: bool,
}

impl AllObjects {
    fn known(&self) -> MutexGuard<'_, KnownObjects> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one, unless the session has ended.
    pub(super) fn make(&self, kind: ObjectKind, make: impl FnOnce() -> std::io::Result<i32>) -> Result<i32, i32> {
        let mut known = self.known();
        if known.closed {
            return Err(libc::EPERM);
        }
        let id = make().map_err(errno)?;
        known.ids.insert((kind, id));
        Ok(id)
    }

    fn forget(&self, kind: ObjectKind, id: i32) {
        self.known().ids.remove(&(kind, id));
    }

    /// Removes one, if it is still the broker's.
    fn remove(&self, kind: ObjectKind, id: i32) {
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
fn remove(kind: ObjectKind, id: i32) {
    if kind != ObjectKind::Memory || is_of_the_broker(id) {
        // Removed by the call itself in the meantime: as well.
        drop(kind.remove(id));
    }
}

impl Objects {
    /// Makes the record of a call that has none yet.
    pub(super) fn new(all: &AllObjects) -> Self {
        Self { ids: HashMap::new(), keys: HashMap::new(), all: all.clone() }
    }

    /// True if an id is of an object of the call. A segment may have gone without having been removed here, for the kernel
    /// removes those that nobody is attached to where `kernel.shm_rmid_forced` says so; its id is another's one day.
    pub(super) fn is_own(&mut self, kind: ObjectKind, id: i32) -> bool {
        if !self.ids.contains_key(&(kind, id)) {
            return false;
        }
        let is_there = kind != ObjectKind::Memory || is_of_the_broker(id);
        if !is_there {
            self.forget(kind, id);
        }
        is_there
    }

    pub(super) fn forget(&mut self, kind: ObjectKind, id: i32) -> Option<u64> {
        self.keys.retain(|(k, _), known| !(*k == kind && *known == id));
        self.all.forget(kind, id);
        self.ids.remove(&(kind, id))
    }
}

/// Mode that a segment's owner always has. The broker is that owner, and has to look at it before it removes it;
/// without this right not even the owner may look.
pub(super) const OWNERS: i32 = 0o400;

/// True if a segment is the broker's; another's is not. The call's own may be looked at: [`OWNERS`].
fn is_of_the_broker(id: i32) -> bool {
    ipc::shm_creator(id).is_ok_and(|creator| creator == rustix::process::getpid().as_raw_nonzero().get())
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.ids.keys().for_each(|(kind, id)| self.all.remove(*kind, *id));
    }
}

pub(super) fn errno(e: std::io::Error) -> i32 {
    e.raw_os_error().unwrap_or(libc::EIO)
}
