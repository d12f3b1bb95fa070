//! Acts on the kernel's own surface: namespaces, mounts, tracing, other call tables (attacks B9, C7, D3 to D5, D7).

use serde_json::{Value, json};

use crate::probe::act::{ProbeAct, act};
use crate::probe::outcome::{self, ActArgs, ActFailure, ActOutcome};
use crate::sys::probe::{self as sys, ForkSide, bits, call, call_fd, fd, from, int, into, len, null, text};

pub(crate) const ACTS: &[ProbeAct] = &[
    act("unshare-user", "D3", "", "unshare a user namespace", unshare_user),
    act("unshare-all", "D3", "", "unshare user, mount, network, IPC, UTS and PID namespaces", unshare_all),
    act("unshare", "D3", "FLAGS", "unshare these flags", unshare),
    act("clone-newuser", "D3", "", "clone(CLONE_NEWUSER), the raw call", clone_newuser),
    act("clone3-newuser", "D3", "", "clone3 with CLONE_NEWUSER behind a pointer", clone3_newuser),
    act("clone-fs", "D3", "", "clone(CLONE_FS): a child that shares the current directory", clone_fs),
    act("clone-untraced", "D1", "", "clone(CLONE_UNTRACED)", clone_untraced),
    act("mount-tmpfs", "D3", "DIR", "mount a tmpfs", mount_tmpfs),
    act("mount-after-userns", "D3", "DIR", "the same in a new user and mount namespace", mount_after_userns),
    act("fsopen", "D3", "", "fsopen(2) of tmpfs", fsopen),
    act("open-tree-clone", "D3", "DIR", "open_tree(2) OPEN_TREE_CLONE", open_tree),
    act("pivot-root", "D3", "DIR", "pivot_root(2)", pivot_root),
    act("umount", "D3", "DIR", "umount2(2)", umount),
    act("chroot", "D3", "DIR", "chroot(2)", chroot),
    act("bpf", "D4", "", "bpf(BPF_MAP_CREATE)", bpf),
    act("perf", "D4", "", "perf_event_open of one's own task clock", perf),
    act("userfaultfd", "D4", "", "userfaultfd(2)", userfaultfd),
    act("keyctl", "D4", "", "keyctl(KEYCTL_GET_KEYRING_ID, user)", keyctl),
    act("add-key", "D4", "", "add_key(user) to the process's keyring", add_key),
    act("request-key", "D4", "", "request_key(user)", request_key),
    act("personality", "D4", "VALUE", "personality(2)", personality),
    act("memfd-exec", "C7", "[PATH]", "copy PATH (/bin/true) to a memfd and execveat it", memfd_exec),
    act("ldt", "D5", "", "modify_ldt: a 16-bit code segment", ldt),
    act("sethostname", "D3", "NAME", "sethostname(2)", sethostname),
    act("setuid", "D7", "UID", "setuid(2)", setuid),
    act("syslog", "D4", "", "read the kernel's log", syslog),
    act("dumpable", "D1", "VALUE", "prctl(PR_SET_DUMPABLE)", dumpable),
    act("capabilities", "D7", "", "capability sets, groups, no_new_privs, seccomp mode", capabilities),
    act("landlock-abi", "D10", "", "the Landlock ABI that the kernel answers", landlock_abi),
    act(
        "landlock-layer",
        "D10",
        "[FS_RIGHTS [NET_RIGHTS [SCOPES]]]",
        "one more Landlock layer of these rights",
        landlock_layer,
    ),
    act("seccomp-listener", "D9", "", "install a filter with a notification listener", seccomp_listener),
    act("syscall", "D5", "NAME|NR [ARG…]", "any call, its arguments as integers", any_call),
    act("bad-pointers", "D5", "NAME|NR", "a call whose six arguments are all bad pointers", bad_pointers),
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

fn unshare(args: &ActArgs<'_>) -> ActOutcome {
    unshare_flags("unshare", args.number(0)?)
}

/// Clones with `flags` a child that leaves at once.
fn cloned(flags: i32) -> ActOutcome {
    match sys::fork_with("clone", u64::from(flags.cast_unsigned()))? {
        ForkSide::Child => sys::exit(0),
        ForkSide::Parent(pid) => sys::wait(pid)?,
    };
    done()
}

fn clone_newuser(_args: &ActArgs<'_>) -> ActOutcome {
    cloned(libc::CLONE_NEWUSER)
}

fn clone_fs(_args: &ActArgs<'_>) -> ActOutcome {
    cloned(libc::CLONE_FS)
}

fn clone_untraced(_args: &ActArgs<'_>) -> ActOutcome {
    cloned(libc::CLONE_UNTRACED)
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

fn mount_tmpfs(args: &ActArgs<'_>) -> ActOutcome {
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

fn pivot_root(args: &ActArgs<'_>) -> ActOutcome {
    let path = args.path(0)?;
    call("pivot_root", libc::SYS_pivot_root, &[text(&path), text(&path)])?;
    done()
}

fn umount(args: &ActArgs<'_>) -> ActOutcome {
    call("umount2", libc::SYS_umount2, &[text(&args.path(0)?), int(libc::MNT_DETACH)])?;
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

fn personality(args: &ActArgs<'_>) -> ActOutcome {
    let before = call("personality", libc::SYS_personality, &[int(args.number(0)?)])?;
    Ok(json!({ "before": before }))
}

fn memfd_exec(args: &ActArgs<'_>) -> ActOutcome {
    let program = std::fs::read(args.word_or(0, "/bin/true")).map_err(|error| ActFailure::io("read", &error))?;
    let flags = bits(u64::from(libc::MFD_CLOEXEC));
    let file = call_fd("memfd_create", libc::SYS_memfd_create, &[text(c"callgate"), flags])?;
    let mut left = program.as_slice();
    while !left.is_empty() {
        let written = call("write", libc::SYS_write, &[fd(&file), from(left), len(left)])?;
        left = left.get(usize::try_from(written).unwrap_or(usize::MAX)..).unwrap_or_default();
    }
    let argv = [c"true".as_ptr().expose_provenance(), 0];
    let envp = [0_usize];
    sys::in_child("execveat", || {
        let empty = int(libc::AT_EMPTY_PATH);
        sys::raw(libc::SYS_execveat, &[fd(&file), text(c""), from(&argv), from(&envp), empty])
    })?;
    done()
}

fn ldt(_args: &ActArgs<'_>) -> ActOutcome {
    // struct user_desc {entry 0, base 0, limit 0xfffff, bits: contents code (2 << 1), limit in pages (1 << 4)}
    let description = [0_u32, 0, 0xf_ffff, 2 << 1 | 1 << 4];
    call("modify_ldt", sys::legacy::MODIFY_LDT, &[int(1), from(&description), len(&description)])?;
    done()
}

fn sethostname(args: &ActArgs<'_>) -> ActOutcome {
    let name = args.word(0)?.as_bytes();
    call("sethostname", libc::SYS_sethostname, &[from(name), len(name)])?;
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

fn dumpable(args: &ActArgs<'_>) -> ActOutcome {
    call("prctl", libc::SYS_prctl, &[int(libc::PR_SET_DUMPABLE), int(args.number(0)?), int(0), int(0), int(0)])?;
    let value = call("prctl", libc::SYS_prctl, &[int(libc::PR_GET_DUMPABLE), int(0), int(0), int(0), int(0)])?;
    Ok(json!({ "value": value }))
}

/// Asked of the calls, not of /proc, which may be closed.
fn capabilities(_args: &ActArgs<'_>) -> ActOutcome {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    // Two structs of {effective, permitted, inheritable}, low and high half.
    let mut sets = [0_u32; 6];
    call("capget", libc::SYS_capget, &[from(&header), into(&mut sets)])?;
    let whole = |low: usize| format!("{:016x}", u64::from(sets[low]) | u64::from(sets[low + 3]) << 32);
    let asked = |option: i32, first: i32| {
        (0..64).fold(0_u64, |set, capability| {
            let words = if first == 0 { [capability, 0] } else { [first, capability] };
            match call("prctl", libc::SYS_prctl, &[int(option), int(words[0]), int(words[1]), int(0), int(0)]) {
                Ok(1) => set | 1 << capability,
                Ok(_) | Err(_) => set,
            }
        })
    };
    let one = |option: i32| call("prctl", libc::SYS_prctl, &[int(option), int(0), int(0), int(0), int(0)]);
    let mut groups = [0_u32; 1024];
    let count = call("getgroups", libc::SYS_getgroups, &[int(1024), into(&mut groups)])?;
    let groups = groups.get(..usize::try_from(count).unwrap_or(0)).unwrap_or_default();
    Ok(json!({
        "effective": whole(0),
        "permitted": whole(1),
        "inheritable": whole(2),
        "bounding": format!("{:016x}", asked(libc::PR_CAPBSET_READ, 0)),
        "ambient": format!("{:016x}", asked(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_IS_SET)),
        "securebits": one(libc::PR_GET_SECUREBITS).unwrap_or(-1),
        "no_new_privs": one(libc::PR_GET_NO_NEW_PRIVS).unwrap_or(-1),
        "seccomp": one(libc::PR_GET_SECCOMP).unwrap_or(-1),
        "uid": call("geteuid", libc::SYS_geteuid, &[])?,
        "gid": call("getegid", libc::SYS_getegid, &[])?,
        "groups": groups,
    }))
}

fn landlock_abi(_args: &ActArgs<'_>) -> ActOutcome {
    const VERSION: i32 = 1;
    let abi = call("landlock_create_ruleset", 444, &[null(), int(0), int(VERSION)])?;
    Ok(json!({ "abi": abi }))
}

fn landlock_layer(args: &ActArgs<'_>) -> ActOutcome {
    // struct landlock_ruleset_attr: u64 handled_access_fs, handled_access_net, scoped; a shorter one is an older one.
    let attributes = [args.number_or(0, 1)?, args.number_or(1, 0)?, args.number_or(2, 0)?];
    let size = 8 * args.rest(0).len().clamp(1, 3);
    let size = i64::try_from(size).unwrap_or(8);
    let ruleset = call_fd("landlock_create_ruleset", 444, &[from(&attributes), int(size), int(0)])?;
    let quiet = [int(libc::PR_SET_NO_NEW_PRIVS), int(1), int(0), int(0), int(0)];
    call("prctl", libc::SYS_prctl, &quiet)?;
    call("landlock_restrict_self", 446, &[fd(&ruleset), int(0)])?;
    done()
}

fn seccomp_listener(_args: &ActArgs<'_>) -> ActOutcome {
    const SET_MODE_FILTER: i32 = 1;
    const NEW_LISTENER: i32 = 1 << 3;
    const ALLOW: u64 = 0x7fff_0000;
    // One struct sock_filter {u16 BPF_RET|BPF_K (6), u8 jt, u8 jf, u32 k} and the struct sock_fprog about it.
    let program = [6 | ALLOW << 32];
    let about = [1_u64, crate::probe::network::word_of(&program)];
    let quiet = [int(libc::PR_SET_NO_NEW_PRIVS), int(1), int(0), int(0), int(0)];
    call("prctl", libc::SYS_prctl, &quiet)?;
    call_fd("seccomp", libc::SYS_seccomp, &[int(SET_MODE_FILTER), int(NEW_LISTENER), from(&about)])?;
    done()
}

fn number(word: &str) -> Result<i64, ActFailure> {
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

/// A call that a filter lets through answers EFAULT, EBADF or EINVAL; the filter's own answer is told from those.
fn bad_pointers(args: &ActArgs<'_>) -> ActOutcome {
    let number = number(args.word(0)?)?;
    value(sys::in_child("syscall", || sys::raw(number, &[int(-1); 6])))
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
