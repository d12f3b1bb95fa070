//! Acts on the kernel's own surface: namespaces, mounts, tracing, other call tables (attacks B9, C7, D3 to D5, D7).

use serde_json::{Value, json};

use crate::probe::act::{ProbeAct, act};
use crate::probe::outcome::{self, ActArgs, ActFailure, ActOutcome};
use crate::sys::probe::{self as sys, ForkSide, call, call_fd, from, int, into, len, null, text};

pub(crate) const ACTS: &[ProbeAct] = &[
    act("unshare-user", "D3", "", "unshare a user namespace", unshare_user),
    act("unshare-all", "D3", "", "unshare user, mount, network, IPC, UTS and PID namespaces", unshare_all),
    act("clone-newuser", "D3", "", "clone(CLONE_NEWUSER), the raw call", clone_newuser),
    act("clone3-newuser", "D3", "", "clone3 with CLONE_NEWUSER behind a pointer", clone3_newuser),
    act("mount-after-userns", "D3", "DIR", "the same in a new user and mount namespace", mount_after_userns),
    act("fsopen", "D3", "", "fsopen(2) of tmpfs", fsopen),
    act("open-tree-clone", "D3", "DIR", "open_tree(2) OPEN_TREE_CLONE", open_tree),
    act("chroot", "D3", "DIR", "chroot(2)", chroot),
    act("bpf", "D4", "", "bpf(BPF_MAP_CREATE)", bpf),
    act("perf", "D4", "", "perf_event_open of one's own task clock", perf),
    act("userfaultfd", "D4", "", "userfaultfd(2)", userfaultfd),
    act("keyctl", "D4", "", "keyctl(KEYCTL_GET_KEYRING_ID, user)", keyctl),
    act("add-key", "D4", "", "add_key(user) to the process's keyring", add_key),
    act("request-key", "D4", "", "request_key(user)", request_key),
    act("ldt", "D5", "", "modify_ldt: a 16-bit code segment", ldt),
    act("setuid", "D7", "UID", "setuid(2)", setuid),
    act("syslog", "D4", "", "read the kernel's log", syslog),
    act("syscall", "D5", "NAME|NR [ARG…]", "any call, its arguments as integers", any_call),
    act("int80", "D5", "NR [ARG…]", "a call of the 32-bit table by int 0x80", int80),
    act("x32", "D5", "NR [ARG…]", "a call of the x32 table", x32),
];

fn done() -> ActOutcome {
    Ok(json!({}))
}

fn unshare_flags(at: &str, flags: i64) -> ActOutcome {
    call(at, libc::SYS_unshare, &[int(flags)])?;
    done()
}

fn unshare_user(_args: &ActArgs<'_>) -> ActOutcome {
    unshare_flags("unshare", i64::from(libc::CLONE_NEWUSER))
}

fn unshare_all(_args: &ActArgs<'_>) -> ActOutcome {
    let all = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWPID;
    unshare_flags("unshare", i64::from(all))
}

/// Clones with `flags` a child that leaves at once.
pub fn cloned(flags: i32) -> ActOutcome {
    match sys::fork_with("clone", u64::from(flags.cast_unsigned()))? {
        ForkSide::Child => sys::exit(0),
        ForkSide::Parent(pid) => sys::wait(pid)?,
    };
    done()
}

fn clone_newuser(_args: &ActArgs<'_>) -> ActOutcome {
    cloned(libc::CLONE_NEWUSER)
}

fn clone3_newuser(_args: &ActArgs<'_>) -> ActOutcome {
    // struct clone_args, version 0: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls.
    let mut how = [0_u64; 8];
    how[0] = u64::from(libc::CLONE_NEWUSER.cast_unsigned());
    how[4] = u64::from(libc::SIGCHLD.cast_unsigned());
    match call("clone3", libc::SYS_clone3, &[from(&how), len(&how)])? {
        0 => sys::exit(0),
        pid => sys::wait(i32::try_from(pid).unwrap_or(0))?,
    };
    done()
}

pub fn mount_tmpfs(args: &ActArgs<'_>) -> ActOutcome {
    call("mount", libc::SYS_mount, &[text(c"none"), text(&args.path(0)?), text(c"tmpfs"), int(0), null()])?;
    done()
}

fn mount_after_userns(args: &ActArgs<'_>) -> ActOutcome {
    unshare_flags("unshare", i64::from(libc::CLONE_NEWUSER | libc::CLONE_NEWNS))?;
    mount_tmpfs(args)
}

fn fsopen(_args: &ActArgs<'_>) -> ActOutcome {
    call_fd("fsopen", libc::SYS_fsopen, &[text(c"tmpfs"), int(1)])?;
    done()
}

fn open_tree(args: &ActArgs<'_>) -> ActOutcome {
    const OPEN_TREE_CLONE: i32 = 1;
    let path = args.path(0)?;
    let flags = int(OPEN_TREE_CLONE | libc::O_CLOEXEC);
    call_fd("open_tree", libc::SYS_open_tree, &[int(libc::AT_FDCWD), text(&path), flags])?;
    done()
}

fn chroot(args: &ActArgs<'_>) -> ActOutcome {
    call("chroot", libc::SYS_chroot, &[text(&args.path(0)?)])?;
    done()
}

fn bpf(_args: &ActArgs<'_>) -> ActOutcome {
    // union bpf_attr of BPF_MAP_CREATE (0): u32 type ARRAY (2), key_size 4, value_size 4, max_entries 1.
    let mut how = [0_u32; 32];
    how[..4].copy_from_slice(&[2, 4, 4, 1]);
    call_fd("bpf", libc::SYS_bpf, &[int(0), from(&how), len(&how)])?;
    done()
}

fn perf(_args: &ActArgs<'_>) -> ActOutcome {
    // struct perf_event_attr, 64 bytes: u32 type PERF_TYPE_SOFTWARE (1), u32 size, u64 config TASK_CLOCK (1), …,
    // bit field at 40: exclude_kernel and exclude_hv, so that perf_event_paranoid 2 allows it to anyone.
    let mut how = [0_u64; 8];
    how[0] = 1 | 64 << 32;
    how[1] = 1;
    how[5] = 1 << 5 | 1 << 6;
    call_fd("perf_event_open", libc::SYS_perf_event_open, &[from(&how), int(0), int(-1), int(-1), int(0)])?;
    done()
}

fn userfaultfd(_args: &ActArgs<'_>) -> ActOutcome {
    const UFFD_USER_MODE_ONLY: i32 = 1;
    call_fd("userfaultfd", libc::SYS_userfaultfd, &[int(UFFD_USER_MODE_ONLY)])?;
    done()
}

fn keyctl(_args: &ActArgs<'_>) -> ActOutcome {
    const KEYCTL_GET_KEYRING_ID: i32 = 0;
    const KEY_SPEC_PROCESS_KEYRING: i32 = -2;
    call("keyctl", libc::SYS_keyctl, &[int(KEYCTL_GET_KEYRING_ID), int(KEY_SPEC_PROCESS_KEYRING), int(1)])?;
    done()
}

fn add_key(_args: &ActArgs<'_>) -> ActOutcome {
    const KEY_SPEC_PROCESS_KEYRING: i32 = -2;
    let payload = b"probe";
    let ring = int(KEY_SPEC_PROCESS_KEYRING);
    call("add_key", libc::SYS_add_key, &[text(c"user"), text(c"callgate"), from(payload), len(payload), ring])?;
    done()
}

/// There is no such key: `ENOKEY` shows that the kernel looked, so it counts as done.
fn request_key(_args: &ActArgs<'_>) -> ActOutcome {
    match call("request_key", libc::SYS_request_key, &[text(c"user"), text(c"callgate:none"), null(), int(0)]) {
        Err(failure) if !failure.is_errno(libc::ENOKEY) => Err(failure),
        Ok(_) | Err(_) => done(),
    }
}

fn ldt(_args: &ActArgs<'_>) -> ActOutcome {
    // struct user_desc {entry 0, base 0, limit 0xfffff, bits: contents code (2 << 1), limit in pages (1 << 4)}
    let description = [0_u32, 0, 0xf_ffff, 2 << 1 | 1 << 4];
    call("modify_ldt", sys::legacy::MODIFY_LDT, &[int(1), from(&description), len(&description)])?;
    done()
}

fn setuid(args: &ActArgs<'_>) -> ActOutcome {
    call("setuid", libc::SYS_setuid, &[int(args.number(0)?)])?;
    done()
}

fn syslog(_args: &ActArgs<'_>) -> ActOutcome {
    const SYSLOG_ACTION_READ_ALL: i32 = 3;
    let mut log = [0_u8; 256];
    let size = len(&log);
    call("syslog", libc::SYS_syslog, &[int(SYSLOG_ACTION_READ_ALL), into(&mut log), size])?;
    done()
}

pub fn number(word: &str) -> Result<i64, ActFailure> {
    outcome::number(word)
        .or_else(|| word.parse::<syscalls::Sysno>().ok().map(|known| i64::from(known.id())))
        .ok_or_else(|| ActFailure::unready(format!("{word} is no system call")))
}

fn numbers(words: &[String]) -> Result<Vec<i64>, ActFailure> {
    words
        .iter()
        .map(|word| outcome::number(word).ok_or_else(|| ActFailure::unready(format!("{word} is no number"))))
        .collect()
}

fn any_call(args: &ActArgs<'_>) -> ActOutcome {
    let number = number(args.word(0)?)?;
    let given = numbers(args.rest(1))?;
    let given: Vec<_> = given.into_iter().map(int).collect();
    value(sys::in_child("syscall", || sys::raw(number, &given)))
}

fn value(answer: Result<i64, ActFailure>) -> ActOutcome {
    let facts: Value = json!({ "value": answer? });
    Ok(facts)
}

#[cfg(target_arch = "x86_64")]
fn int80(args: &ActArgs<'_>) -> ActOutcome {
    let narrow = |wide: i64| i32::try_from(wide).unwrap_or(-1);
    let number = narrow(args.number(0)?);
    let mut three = [0_i32; 3];
    for (slot, given) in three.iter_mut().zip(numbers(args.rest(1))?) {
        *slot = narrow(given);
    }
    value(sys::in_child("int80", || sys::int80(number, three)))
}

#[cfg(target_arch = "x86_64")]
fn x32(args: &ActArgs<'_>) -> ActOutcome {
    const X32_BIT: i64 = 0x4000_0000;
    let number = number(args.word(0)?)? | X32_BIT;
    let given = numbers(args.rest(1))?;
    let given: Vec<_> = given.into_iter().map(int).collect();
    value(sys::in_child("x32", || sys::raw(number, &given)))
}

#[cfg(not(target_arch = "x86_64"))]
fn int80(_args: &ActArgs<'_>) -> ActOutcome {
    Err(ActFailure::unready("there is no int 0x80 on this architecture"))
}

#[cfg(not(target_arch = "x86_64"))]
fn x32(_args: &ActArgs<'_>) -> ActOutcome {
    Err(ActFailure::unready("there is no x32 on this architecture"))
}
