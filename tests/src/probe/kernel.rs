//! Acts on the kernel's own surface: namespaces, mounts, tracing, other call tables (attacks B9, C7, D3 to D5, D7).

use callgate_worker::probe::act::{ProbeAct, act};
use callgate_worker::probe::kernel::{cloned, mount_tmpfs, number};
use callgate_worker::probe::network::word_of;
use callgate_worker::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use callgate_worker::sys::probe::{self as sys, bits, call, call_fd, fd, from, int, into, len, null, text};
use serde_json::json;

pub(crate) const ACTS: &[ProbeAct] = &[
    act("unshare", "D3", "FLAGS", "unshare these flags", unshare),
    act("clone-fs", "D3", "", "clone(CLONE_FS): a child that shares the current directory", clone_fs),
    act("clone-untraced", "D1", "", "clone(CLONE_UNTRACED)", clone_untraced),
    act("mount-tmpfs", "D3", "DIR", "mount a tmpfs", mount_tmpfs),
    act("pivot-root", "D3", "DIR", "pivot_root(2)", pivot_root),
    act("umount", "D3", "DIR", "umount2(2)", umount),
    act("personality", "D4", "VALUE", "personality(2)", personality),
    act("memfd-exec", "C7", "[PATH]", "copy PATH (/bin/true) to a memfd and execveat it", memfd_exec),
    act("sethostname", "D3", "NAME", "sethostname(2)", sethostname),
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
    act("bad-pointers", "D5", "NAME|NR", "a call whose six arguments are all bad pointers", bad_pointers),
];

fn unshare(args: &ActArgs<'_>) -> ActOutcome {
    call("unshare", libc::SYS_unshare, &[int(args.number(0)?)])?;
    Ok(json!({}))
}

fn clone_fs(_args: &ActArgs<'_>) -> ActOutcome {
    cloned(libc::CLONE_FS)
}

fn clone_untraced(_args: &ActArgs<'_>) -> ActOutcome {
    cloned(libc::CLONE_UNTRACED)
}

fn pivot_root(args: &ActArgs<'_>) -> ActOutcome {
    let path = args.path(0)?;
    call("pivot_root", libc::SYS_pivot_root, &[text(&path), text(&path)])?;
    Ok(json!({}))
}

fn umount(args: &ActArgs<'_>) -> ActOutcome {
    call("umount2", libc::SYS_umount2, &[text(&args.path(0)?), int(libc::MNT_DETACH)])?;
    Ok(json!({}))
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
    Ok(json!({}))
}

fn sethostname(args: &ActArgs<'_>) -> ActOutcome {
    let name = args.word(0)?.as_bytes();
    call("sethostname", libc::SYS_sethostname, &[from(name), len(name)])?;
    Ok(json!({}))
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
    Ok(json!({}))
}

fn seccomp_listener(_args: &ActArgs<'_>) -> ActOutcome {
    const SET_MODE_FILTER: i32 = 1;
    const NEW_LISTENER: i32 = 1 << 3;
    const ALLOW: u64 = 0x7fff_0000;
    // One struct sock_filter {u16 BPF_RET|BPF_K (6), u8 jt, u8 jf, u32 k} and the struct sock_fprog about it.
    let program = [6 | ALLOW << 32];
    let about = [1_u64, word_of(&program)];
    let quiet = [int(libc::PR_SET_NO_NEW_PRIVS), int(1), int(0), int(0), int(0)];
    call("prctl", libc::SYS_prctl, &quiet)?;
    call_fd("seccomp", libc::SYS_seccomp, &[int(SET_MODE_FILTER), int(NEW_LISTENER), from(&about)])?;
    Ok(json!({}))
}

/// A call that a filter lets through answers EFAULT, EBADF or EINVAL; the filter's own answer is told from those.
fn bad_pointers(args: &ActArgs<'_>) -> ActOutcome {
    let number = number(args.word(0)?)?;
    let value = sys::in_child("syscall", || sys::raw(number, &[int(-1); 6]))?;
    Ok(json!({ "value": value }))
}
