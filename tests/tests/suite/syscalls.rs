//! The kernel's own surface: namespaces, mounts, tracing, other call tables (B9, C7, D3, D4, D5, D7, D10).

use callgate_tests::{Host, TestEnv, matrix};
use libc::{EACCES, EINVAL, ENOENT, ENOSYS, EPERM};

/// D3: no new namespace, by any call, flags in a register or behind a pointer.
#[test]
fn d3_no_new_namespaces() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for act in ["unshare-user", "unshare-all", "clone-newuser", "clone3-newuser"] {
            env.bare().probe(&[act]).assert_ok();
            // clone3's flags lie behind a pointer, so it is absent; every libc falls back.
            let errno = if act.starts_with("clone3") { ENOSYS } else { EPERM };
            env.sandbox().probe(&[act]).assert_errno(errno);
        }
    });
}

/// D3: nothing can be mounted, unmounted or made the root. Bare, root may; others after a user namespace.
#[test]
fn d3_no_mounts() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let directory = env.workspace().join("mount");
        std::fs::create_dir(&directory).unwrap();
        env.give(&directory);
        let directory = directory.to_str().unwrap();
        env.bare().probe(&["mount-after-userns", directory]).assert_ok();
        for act in [
            &["mount-tmpfs", directory][..],
            &["mount-after-userns", directory],
            &["open-tree-clone", directory],
            &["umount", directory],
            &["pivot-root", directory],
            &["chroot", directory],
            &["fsopen"],
        ] {
            env.sandbox().probe(act).assert_errno(EPERM);
        }
    });
}

/// D4: subsystems with a history of kernel bugs that no tool call needs.
#[test]
fn d4_no_risky_subsystems() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for act in ["bpf", "perf", "userfaultfd", "keyctl", "add-key", "request-key", "syslog"] {
            let control = env.bare().probe(&[act]);
            if !control.is_ok() {
                eprintln!("SKIP control of {act} as {:?}: {control}", target.user);
            }
            env.sandbox().probe(&[act]).assert_errno(EPERM);
        }
    });
}

/// D5: the 32-bit gate reaches a table of which the filter knows nothing, so it is closed or deadly.
#[test]
#[cfg(target_arch = "x86_64")]
fn d5_no_32_bit_calls() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let control = env.bare().probe(&["int80", "20"]);
        if !control.is_ok() {
            eprintln!("SKIP control of int80: {control}");
        }
        let denied = env.sandbox().probe(&["int80", "20"]);
        if denied.fact("signal").is_null() {
            denied.assert_errno(EPERM);
        } else {
            denied.assert_killed_by(libc::SIGSYS);
        }
    });
}

/// D5: the x32 table, with the bit that makes one number another.
#[test]
#[cfg(target_arch = "x86_64")]
fn d5_no_x32_calls() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let denied = env.sandbox().probe(&["x32", "39"]);
        if denied.fact("signal").is_null() {
            denied.assert_errno(EPERM);
        } else {
            denied.assert_killed_by(libc::SIGSYS);
        }
    });
}

/// D5: numbers past the table are unknown, not let through; every libc expects ENOSYS for them.
#[test]
fn d5_unknown_numbers_are_enosys() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for number in ["600", "1023"] {
            env.bare().probe(&["syscall", number]).assert_errno(ENOSYS);
            env.sandbox().probe(&["syscall", number]).assert_errno(ENOSYS);
        }
    });
}

/// D5: a personality that makes reading imply execution, or the address space predictable.
#[test]
fn d5_no_other_personality() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.sandbox().probe(&["personality", "0xffffffff"]).assert_ok();
        // Debuggers and builds switch off address randomization (0x40000); READ_IMPLIES_EXEC, MMAP_PAGE_ZERO and
        // ADDR_COMPAT_LAYOUT weaken programs.
        env.sandbox().probe(&["personality", "0x0040000"]).assert_ok();
        for value in ["0x0400000", "0x0100000", "0x0200000", "0x0440000"] {
            env.bare().probe(&["personality", value]).assert_ok();
            env.sandbox().probe(&["personality", value]).assert_errno(EPERM);
        }
    });
}

/// D5: segments of one's own are what 16-bit code and some exploits need.
#[test]
#[cfg(target_arch = "x86_64")]
fn d5_no_local_descriptor_table() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.bare().probe(&["ldt"]).assert_ok();
        env.sandbox().probe(&["ldt"]).assert_errno(EPERM);
    });
}

/// D7: no capability, no group, no way back to another user.
#[test]
fn d7_no_privilege_is_left() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let seen = env.sandbox().probe(&["capabilities"]);
        seen.assert_ok();
        for set in ["effective", "permitted", "inheritable", "ambient", "bounding"] {
            // An ordinary user without namespaces cannot empty the bounding set; no_new_privs makes it moot.
            if set != "bounding" || target.user.uid() == 0 {
                assert_eq!(seen.fact(set), "0000000000000000", "{set}: {seen}");
            }
        }
        assert_eq!(seen.fact("no_new_privs"), 1, "{seen}");
        assert_eq!(seen.fact("seccomp"), 2, "{seen}");
        if target.user.uid() == 0 {
            env.bare().probe(&["setuid", "1"]).assert_ok();
        }
        env.sandbox().probe(&["setuid", "1"]).assert_errno(target.by_strength(EINVAL, EPERM));
        // The name that it has: should the call succeed, nothing is lost.
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let words = ["sethostname", name.trim()];
        if target.user.uid() == 0 {
            env.bare().probe(&words).assert_ok();
        }
        env.sandbox().probe(&words).assert_errno(EPERM);
    });
}

/// D7: root's files need no capability to be written by uid 0, so they are closed by other means.
#[test]
fn d7_root_s_own_files_are_closed() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let denied = [EACCES, EPERM, ENOENT, libc::EROFS];
        for path in ["/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/etc/passwd", "/sys/fs/cgroup/cgroup.procs"] {
            // Opening without a byte to write leaves the host alone, should it succeed.
            let tried = env.sandbox().probe(&["write", path, ""]);
            assert!(tried.errno().is_some_and(|errno| denied.contains(&errno)), "{tried}");
        }
    });
}

/// D10: tools that confine themselves find layers left.
#[test]
fn d10_a_tool_can_add_a_landlock_layer_of_its_own() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.bare().probe(&["landlock-layer"]).assert_ok();
        env.sandbox().probe(&["landlock-layer"]).assert_ok();
    });
}

/// D11: the events that all processes of a host may have waiting are one number, and the kernel gives all of them to who asks
/// first.
#[test]
fn d11_nobody_takes_the_host_s_asynchronous_events() {
    let script = "
import ctypes, errno, os
number = 206 if os.uname().machine == 'x86_64' else 0
context = ctypes.c_ulong(0)
done = ctypes.CDLL(None, use_errno=True).syscall(number, 128, ctypes.byref(context))
print(errno.errorcode[ctypes.get_errno()] if done else 'made', open('/proc/sys/fs/aio-nr').read().strip() != '0' if not done else '')";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let run = |run: callgate_tests::Run| run.run(&["/usr/bin/python3", "-c", script]);
        let (control, ended) = (run(env.bare()), run(env.sandbox()));
        assert_eq!(control.stdout, "made True\n", "{control:?}");
        assert_eq!(ended.stdout, "ENOSYS \n", "{ended:?}");
    });
}
