//! Acts on what outlives a process without being a file of the workspace: System V and POSIX IPC, `/dev/shm`.

use std::os::fd::OwnedFd;

use callgate_worker::probe::act::{ProbeAct, act};
use callgate_worker::probe::ipc::queue;
use callgate_worker::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use callgate_worker::sys::probe::{self as sys, bits, call, call_fd, fd, from, int, into, len, null, text};
use serde_json::json;

pub(crate) const ACTS: &[ProbeAct] = &[
    act("shm-posix", "D4", "NAME", "create and read /dev/shm/NAME, leave it", shm_posix),
    act("sem-posix", "D4", "NAME", "create /dev/shm/sem.NAME as sem_open does", sem_posix),
    act("mq-open", "D4", "NAME", "create a POSIX queue, send, receive, unlink", mq_open),
    act("memfd-seal", "D4", "", "make a memfd, write, seal", memfd_seal),
];

fn shared(args: &ActArgs<'_>, prefix: &str) -> Result<OwnedFd, ActFailure> {
    let path = format!("/dev/shm/{prefix}{}", args.word(0)?.trim_start_matches('/'));
    sys::open("open", &sys::c(&path), libc::O_RDWR | libc::O_NOFOLLOW | libc::O_CREAT | libc::O_EXCL)
}

fn shm_posix(args: &ActArgs<'_>) -> ActOutcome {
    use_shared(&shared(args, "")?, 4096)
}

fn sem_posix(args: &ActArgs<'_>) -> ActOutcome {
    use_shared(&shared(args, "sem.")?, 32)
}

fn mq_open(args: &ActArgs<'_>) -> ActOutcome {
    let (name, queue) = queue(args, libc::O_CREAT | libc::O_EXCL)?;
    let word = b"callgate-probe";
    call("mq_timedsend", libc::SYS_mq_timedsend, &[fd(&queue), from(word), len(word), int(0), null()])?;
    let mut taken = vec![0_u8; 8192];
    let size = len(&taken);
    call(
        "mq_timedreceive",
        libc::SYS_mq_timedreceive,
        &[fd(&queue), into(taken.as_mut_slice()), size, null(), null()],
    )?;
    call("mq_unlink", libc::SYS_mq_unlink, &[text(&name)])?;
    Ok(json!({}))
}

fn memfd_seal(_args: &ActArgs<'_>) -> ActOutcome {
    let flags = bits(u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING));
    let file = call_fd("memfd_create", libc::SYS_memfd_create, &[text(c"callgate"), flags])?;
    call("write", libc::SYS_write, &[fd(&file), from(b"sealed"), int(6)])?;
    let seals = int(libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL);
    call("F_ADD_SEALS", libc::SYS_fcntl, &[fd(&file), int(libc::F_ADD_SEALS), seals])?;
    Ok(json!({}))
}

fn use_shared(file: &OwnedFd, size: i64) -> ActOutcome {
    call("ftruncate", libc::SYS_ftruncate, &[fd(file), int(size)])?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    call("mmap", libc::SYS_mmap, &[null(), int(size), int(protection), int(libc::MAP_SHARED), fd(file), int(0)])?;
    Ok(json!({}))
}
