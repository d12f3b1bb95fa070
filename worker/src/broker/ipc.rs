//! System V IPC: each call has its own objects, and they end with it.
//!
//! Keys are the call's: the broker makes a private object for each. Ids are numbers, not pointers, so once one
//! is known to be the call's own the kernel may be left to carry on.

use super::caller::Caller;
use super::metadata::int;
use super::objects::{OWNERS, ObjectKind, errno};
use super::state::{Broker, NotificationHandler};
use crate::sys::ipc::{self, Access};
use crate::sys::notify::{CallReply, Notification};

pub(super) const HANDLERS: &[(libc::c_long, NotificationHandler)] = &[
    (libc::SYS_shmget, |b, c, n| get(b, c, n, ObjectKind::Memory)),
    (libc::SYS_shmat, |b, c, n| own(b, c, n, ObjectKind::Memory)),
    (libc::SYS_shmctl, |b, c, n| control(b, c, n, ObjectKind::Memory, int(n.args[1]))),
    (libc::SYS_semget, |b, c, n| get(b, c, n, ObjectKind::Semaphores)),
    (libc::SYS_semop, |b, c, n| own(b, c, n, ObjectKind::Semaphores)),
    (libc::SYS_semtimedop, |b, c, n| own(b, c, n, ObjectKind::Semaphores)),
    (libc::SYS_semctl, |b, c, n| control(b, c, n, ObjectKind::Semaphores, int(n.args[2]))),
    (libc::SYS_msgget, |b, c, n| get(b, c, n, ObjectKind::Messages)),
    (libc::SYS_msgsnd, |b, c, n| own(b, c, n, ObjectKind::Messages)),
    (libc::SYS_msgrcv, |b, c, n| own(b, c, n, ObjectKind::Messages)),
    (libc::SYS_msgctl, |b, c, n| control(b, c, n, ObjectKind::Messages, int(n.args[1]))),
];

/// Most objects of a call: a host has room for 4,096 segments (SHMMNI in linux/shm.h).
const MOST: usize = 1024;

/// Bytes that an object of so many, or with so many semaphores, can come to. The kernel keeps a cache line for each
/// semaphore (`struct sem`), and 64 bytes at least for each message, of which a queue takes 16,384 (MSGMNB in linux/msg.h).
fn bytes(kind: ObjectKind, asked: u64) -> u64 {
    const EACH: u64 = 64;
    const MESSAGES: u64 = 16_384;
    match kind {
        ObjectKind::Memory => asked,
        // An int, whatever the upper half of the register holds.
        ObjectKind::Semaphores => (asked & u64::from(u32::MAX)).saturating_mul(EACH),
        ObjectKind::Messages => MESSAGES * EACH,
    }
}

/// shmget(key, size, flags), semget(key, count, flags), msgget(key, flags).
fn get(broker: &mut Broker, caller: &Caller<'_>, n: &Notification, kind: ObjectKind) -> Result<CallReply, i32> {
    let key = int(n.args[0]);
    let flags = if kind == ObjectKind::Messages { int(n.args[1]) } else { int(n.args[2]) };
    let most = broker.shared_memory;
    let objects = &mut broker.call(caller)?.objects;
    let private = key == libc::IPC_PRIVATE;
    let known = objects.keys.get(&(kind, key)).copied().filter(|_| !private);
    if let Some(id) = known.filter(|id| objects.is_own(kind, *id)) {
        let exclusive = libc::IPC_CREAT | libc::IPC_EXCL;
        return if flags & exclusive == exclusive { Err(libc::EEXIST) } else { Ok(CallReply::Return(i64::from(id))) };
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
        ObjectKind::Memory => ipc::shm_create(size, flags | OWNERS),
        ObjectKind::Semaphores => ipc::sem_create(int(n.args[1]), flags),
        ObjectKind::Messages => ipc::msg_create(flags),
    })?;
    objects.ids.insert((kind, id), bytes);
    if !private {
        objects.keys.insert((kind, key), id);
    }
    Ok(CallReply::Return(i64::from(id)))
}

/// A call on an id: the kernel's business if it is the call's own.
fn own(broker: &mut Broker, caller: &Caller<'_>, n: &Notification, kind: ObjectKind) -> Result<CallReply, i32> {
    let id = int(n.args[0]);
    if broker.call(caller)?.objects.is_own(kind, id) { Ok(CallReply::Continue) } else { Err(libc::EACCES) }
}

fn control(
    broker: &mut Broker,
    caller: &Caller<'_>,
    n: &Notification,
    kind: ObjectKind,
    command: i32,
) -> Result<CallReply, i32> {
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
            Ok(CallReply::Return(0))
        }
        // Performed here, for the mode lies behind a pointer. Sets and queues are removed without being looked at.
        libc::IPC_SET if kind == ObjectKind::Memory => {
            let access = Access::of(&caller.bytes(n.args[2], ipc::SHM_SET)?).ok_or(libc::EFAULT)?;
            if !broker.call(caller)?.objects.is_own(kind, id) {
                return Err(libc::EACCES);
            }
            if access.mode & OWNERS as u32 == 0 {
                return Err(libc::EPERM);
            }
            ipc::shm_set(id, access).map_err(errno)?;
            Ok(CallReply::Return(0))
        }
        // The rest either takes an id, or an index into the whole system's table: SHM_STAT and its like.
        command if STAT_BY_INDEX.contains(&command) => Err(libc::EACCES),
        _ => own(broker, caller, n, kind),
    }
}

/// SHM_STAT, SHM_INFO, SHM_STAT_ANY, SEM_STAT, SEM_INFO, SEM_STAT_ANY, MSG_STAT, MSG_INFO, MSG_STAT_ANY, IPC_INFO
/// (linux/shm.h, linux/sem.h, linux/msg.h, linux/ipc.h): they look at others' objects.
const STAT_BY_INDEX: [i32; 8] = [3, 13, 14, 15, 18, 19, 20, 12];
