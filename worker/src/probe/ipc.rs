//! Acts on what outlives a process without being a file of the workspace: System V and POSIX IPC, `/dev/shm`.

use serde_json::json;

use crate::probe::act::{ProbeAct, act};
use crate::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use crate::sys::probe::{self as sys, call, call_fd, fd, from, int, null, text};

pub(crate) const ACTS: &[ProbeAct] = &[
    act("shm-sysv-create", "D4", "KEY", "make a shared memory segment", shm_create),
    act("shm-sysv-get", "D4", "KEY", "find a segment by key", shm_get),
    act("shm-sysv-attach", "D4", "ID", "attach a segment and read its first byte", shm_attach),
    act("shm-sysv-remove", "D4", "ID", "remove a segment", shm_remove),
    act("sem-sysv-create", "D4", "KEY", "make a semaphore set", sem_create),
    act("sem-sysv-get", "D4", "KEY", "find a semaphore set by key", sem_get),
    act("sem-sysv-op", "D4", "ID", "raise a semaphore", sem_op),
    act("sem-sysv-remove", "D4", "ID", "remove a semaphore set", sem_remove),
    act("msg-sysv-create", "D4", "KEY", "make a message queue", msg_create),
    act("msg-sysv-get", "D4", "KEY", "find a message queue by key", msg_get),
    act("msg-sysv-send", "D4", "ID", "send to a message queue", msg_send),
    act("msg-sysv-remove", "D4", "ID", "remove a message queue", msg_remove),
    act("shm-posix-open", "D4", "NAME", "open an existing /dev/shm/NAME and read", shm_posix_open),
    act("mq-open-existing", "D4", "NAME", "open an existing POSIX queue", mq_existing),
    act("mq-create", "D4", "NAME", "create a POSIX queue, leave it", mq_create),
    act("mq-unlink", "D4", "NAME", "remove a POSIX queue", mq_unlink),
];

const PRIVATE_MODE: i32 = 0o600;

fn made(at: &str, number: i64, key: i64, middle: Option<i64>, flags: i32) -> ActOutcome {
    let id = match middle {
        Some(size) => call(at, number, &[int(key), int(size), int(flags)])?,
        None => call(at, number, &[int(key), int(flags)])?,
    };
    Ok(json!({ "id": id }))
}

fn shm_create(args: &ActArgs<'_>) -> ActOutcome {
    made("shmget", libc::SYS_shmget, args.number(0)?, Some(4096), libc::IPC_CREAT | libc::IPC_EXCL | PRIVATE_MODE)
}

fn shm_get(args: &ActArgs<'_>) -> ActOutcome {
    made("shmget", libc::SYS_shmget, args.number(0)?, Some(0), 0)
}

fn shm_attach(args: &ActArgs<'_>) -> ActOutcome {
    let address = call("shmat", libc::SYS_shmat, &[int(args.number(0)?), null(), int(0)])?;
    // Read through the kernel, not by a pointer of our own: a write of one byte from there to a memfd.
    let sink = call_fd("memfd_create", libc::SYS_memfd_create, &[text(c"sink"), int(0)])?;
    call("write", libc::SYS_write, &[fd(&sink), int(address), int(1)])?;
    Ok(json!({}))
}

fn removed(at: &str, number: i64, args: &[sys::Arg<'_>]) -> ActOutcome {
    call(at, number, args)?;
    Ok(json!({}))
}

fn shm_remove(args: &ActArgs<'_>) -> ActOutcome {
    removed("shmctl", libc::SYS_shmctl, &[int(args.number(0)?), int(libc::IPC_RMID), null()])
}

fn sem_create(args: &ActArgs<'_>) -> ActOutcome {
    made("semget", libc::SYS_semget, args.number(0)?, Some(1), libc::IPC_CREAT | libc::IPC_EXCL | PRIVATE_MODE)
}

fn sem_get(args: &ActArgs<'_>) -> ActOutcome {
    made("semget", libc::SYS_semget, args.number(0)?, Some(0), 0)
}

fn sem_op(args: &ActArgs<'_>) -> ActOutcome {
    // struct sembuf {u16 number 0, i16 operation +1, i16 flags 0}
    let raise = [0_i16, 1, 0];
    removed("semop", libc::SYS_semop, &[int(args.number(0)?), from(&raise), int(1)])
}

fn sem_remove(args: &ActArgs<'_>) -> ActOutcome {
    removed("semctl", libc::SYS_semctl, &[int(args.number(0)?), int(0), int(libc::IPC_RMID), null()])
}

fn msg_create(args: &ActArgs<'_>) -> ActOutcome {
    made("msgget", libc::SYS_msgget, args.number(0)?, None, libc::IPC_CREAT | libc::IPC_EXCL | PRIVATE_MODE)
}

fn msg_get(args: &ActArgs<'_>) -> ActOutcome {
    made("msgget", libc::SYS_msgget, args.number(0)?, None, 0)
}

fn msg_send(args: &ActArgs<'_>) -> ActOutcome {
    // struct msgbuf {i64 type 1; text of 8 bytes}
    let message = [1_i64, 0];
    removed("msgsnd", libc::SYS_msgsnd, &[int(args.number(0)?), from(&message), int(8), int(libc::IPC_NOWAIT)])
}

fn msg_remove(args: &ActArgs<'_>) -> ActOutcome {
    removed("msgctl", libc::SYS_msgctl, &[int(args.number(0)?), int(libc::IPC_RMID), null()])
}

fn shm_posix_open(args: &ActArgs<'_>) -> ActOutcome {
    let path = format!("/dev/shm/{}", args.word(0)?.trim_start_matches('/'));
    sys::open("open", &sys::c(&path), libc::O_RDWR | libc::O_NOFOLLOW)?;
    Ok(json!({}))
}

pub fn queue(args: &ActArgs<'_>, flags: i32) -> Result<(std::ffi::CString, std::os::fd::OwnedFd), ActFailure> {
    // The kernel wants the name without the slash that mq_open(3) demands.
    let name = sys::c(args.word(0)?.trim_start_matches('/'));
    let flags = int(libc::O_RDWR | flags);
    let queue = call_fd("mq_open", libc::SYS_mq_open, &[text(&name), flags, int(PRIVATE_MODE), null()])?;
    Ok((name, queue))
}

fn mq_create(args: &ActArgs<'_>) -> ActOutcome {
    queue(args, libc::O_CREAT | libc::O_EXCL)?;
    Ok(json!({}))
}

fn mq_unlink(args: &ActArgs<'_>) -> ActOutcome {
    let name = sys::c(args.word(0)?.trim_start_matches('/'));
    removed("mq_unlink", libc::SYS_mq_unlink, &[text(&name)])
}

fn mq_existing(args: &ActArgs<'_>) -> ActOutcome {
    queue(args, 0)?;
    Ok(json!({}))
}
