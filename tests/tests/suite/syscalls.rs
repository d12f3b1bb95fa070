//! The kernel's own surface: namespaces, mounts, tracing, other call tables (B9, C7, D3, D4, D5, D7, D10).

use callgate_tests::{Host, TestEnv, matrix, skip};
use libc::{EACCES, ENOENT, ENOSYS, EPERM};

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
                skip("risky-call", format_args!("control of {act} as {:?}: {control}", target.user));
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
            skip("risky-call", format_args!("control of int80: {control}"));
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
        env.sandbox().probe(&["setuid", "1"]).assert_errno(EPERM);
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
        let run = |run: callgate_tests::ProgramRunner| run.run(&["/usr/bin/python3", "-c", script]);
        let (control, ended) = (run(env.bare()), run(env.sandbox()));
        assert_eq!(control.stdout, "made True\n", "{control:?}");
        assert_eq!(ended.stdout, "ENOSYS \n", "{ended:?}");
    });
}

/// A12, D1, D5, D11: what ioctl(2), fcntl(2) and prctl(2) take is a list. On no descriptor, what the kernel would carry out is
/// EBADF, so that a control that makes a tree of btrfs's is told from one that no file here knows.
#[test]
fn a12_d5_d11_controls_of_files_and_processes_are_a_list() {
    let script = r#"
import ctypes, errno, os, signal
signal.signal(signal.SIGIO, signal.SIG_IGN) # of F_NOTIFY, below
libc = ctypes.CDLL(None, use_errno=True)
def tells(name, call, *args):
    ctypes.set_errno(0)
    done = call(*map(ctypes.c_long, args))
    print(name, "done" if done >= 0 else errno.errorcode[ctypes.get_errno()])
for name, number in (
    ("TCGETS", 0x5401), ("FIONREAD", 0x541b), ("FICLONE", 0x40049409), ("FS_IOC_GETFLAGS", 0x80086601),
    ("BTRFS_IOC_SUBVOL_CREATE", 0x5000940e), ("BTRFS_IOC_SNAP_CREATE_V2", 0x50009417), ("FS_IOC_RESVSP", 0x40305828),
    ("FS_IOC_SETVERSION", 0x40087602), ("FS_IOC_ENABLE_VERITY", 0x40806685), ("FIDEDUPERANGE", 0xc0189436),
    ("SIOCETHTOOL", 0x8946), ("TIOCSETD", 0x5423), ("next year's", 0x40ff94ff),
    ("FS_IOC_SETFLAGS", 0x40086602), ("TIOCSTI", 0x5412),
): tells(name, libc.ioctl, -1, number, 0)
open("own", "w")
own, here = os.open("own", os.O_RDONLY), os.open(".", os.O_RDONLY)
written = os.open("written", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
tells("F_GETFL", libc.fcntl, own, 3, 0)
tells("F_NOTIFY", libc.fcntl, here, 1026, 2)
hint = ctypes.c_uint64(2)
tells("F_SET_RW_HINT", libc.fcntl, own, 1036, ctypes.addressof(hint))
name = ctypes.create_string_buffer(16)
tells("PR_GET_NAME", libc.prctl, 16, ctypes.addressof(name), 0, 0, 0)
tells("PR_SET_TIMING", libc.prctl, 14, 0, 0, 0, 0)
class Space(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int16), ("whence", ctypes.c_int16), ("start", ctypes.c_int64), ("length", ctypes.c_int64),
                ("rest", ctypes.c_uint32 * 6)]
space = Space(0, 0, 0, 1 << 20)
tells("FS_IOC_RESVSP of a file", libc.ioctl, written, 0x40305828, ctypes.addressof(space))
print("reserved" if os.fstat(written).st_blocks else "nothing reserved")
"#;
    let allowed = "TCGETS EBADF\nFIONREAD EBADF\nFICLONE EBADF\nFS_IOC_GETFLAGS EBADF\n";
    let answers = |unknown: &str, refused: &str| {
        let unlisted = [
            "BTRFS_IOC_SUBVOL_CREATE",
            "BTRFS_IOC_SNAP_CREATE_V2",
            "FS_IOC_RESVSP",
            "FS_IOC_SETVERSION",
            "FS_IOC_ENABLE_VERITY",
            "FIDEDUPERANGE",
            "SIOCETHTOOL",
            "TIOCSETD",
            "next year's",
        ];
        let unlisted: String = unlisted.iter().map(|name| format!("{name} {unknown}\n")).collect();
        format!("{allowed}{unlisted}FS_IOC_SETFLAGS {refused}\nTIOCSTI {refused}\nF_GETFL done\n")
    };
    let bare = answers("EBADF", "EBADF")
        + "F_NOTIFY done\nF_SET_RW_HINT done\nPR_GET_NAME done\nPR_SET_TIMING done\nFS_IOC_RESVSP of a file done\nreserved\n";
    let confined = answers("ENOTTY", "EPERM")
        + "F_NOTIFY EPERM\nF_SET_RW_HINT EINVAL\nPR_GET_NAME done\nPR_SET_TIMING EINVAL\nFS_IOC_RESVSP of a file ENOTTY\n\
           nothing reserved\n";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let run = |run: callgate_tests::ProgramRunner| run.run(&["/usr/bin/python3", "-c", script]);
        let (control, ended) = (run(env.bare()), run(env.sandbox()));
        assert_eq!(control.stdout, bare, "the control: {control:?}");
        assert_eq!(ended.stdout, confined, "{ended:?}");
    });
}

/// D8: nobody outside gets a program's memory when it crashes: neither by a file nor by a pipe of `core_pattern` (a limit of
/// one byte), nor by a socket (no memory is in it). A program that sets its limit to 0, as many do, is told that it is, and
/// still none is made: at 0 a pipe would get all.
#[test]
fn d8_no_core_dump_is_made_whatever_a_program_sets() {
    let script = r#"
import ctypes, errno, os, resource, time
libc = ctypes.CDLL(None, use_errno=True)
class Limit(ctypes.Structure): _fields_ = [("soft", ctypes.c_uint64), ("hard", ctypes.c_uint64)]
def sets(*more):
    ctypes.set_errno(0)
    done = libc.prlimit(0, 4, ctypes.byref(Limit(0, 0)), *more)
    print("set" if done == 0 else errno.errorcode[ctypes.get_errno()], end=" ")
def read(): return resource.getrlimit(resource.RLIMIT_CORE)
before = read()
sets(None)
sets(ctypes.byref(Limit()))
print("as before" if read() == before else "changed", *before)
open("ready", "w").close()
while not os.path.exists("go"): time.sleep(0.02)
"#;
    // What the kernel puts into a dump of the program: the file that says so can be read from outside alone.
    let filter_of = |mark: &str| {
        let listing = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let read = |path: &std::path::Path, file| std::fs::read_to_string(path.join(file)).unwrap_or_default();
        let is_it =
            |path: &std::path::PathBuf| read(path, "comm") == "python3\n" && read(path, "cmdline").contains(mark);
        let found: Vec<_> = listing.filter(is_it).map(|path| read(&path, "coredump_filter")).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        u32::from_str_radix(found[0].trim(), 16).unwrap()
    };
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let mark = format!("mark-{}", env.workspace().display());
        let run = |run: callgate_tests::ProgramRunner, limit: &str| {
            let words =
                ["/bin/sh", "-c", &format!("{limit} exec \"$@\""), "sh", "/usr/bin/python3", "-c", script, &mark];
            let (ready, go) = (env.workspace().join("ready"), env.workspace().join("go"));
            let (ended, filter) = std::thread::scope(|scope| {
                let run = scope.spawn(|| run.run(&words));
                callgate_tests::eventually("it waits", || ready.exists() || run.is_finished());
                let filter = ready.exists().then(|| filter_of(&mark));
                std::fs::write(&go, "").unwrap();
                (run.join().unwrap(), filter)
            });
            std::fs::remove_file(ready).unwrap();
            std::fs::remove_file(go).unwrap();
            (ended, filter)
        };
        let (control, has_memory) = run(env.bare(), "ulimit -S -c 1 || :;");
        assert!(control.stdout.starts_with("set set changed "), "{control:?}");
        assert_ne!(has_memory, Some(0), "{control:?}");
        let (ended, has_memory) = run(env.sandbox(), "");
        // A limit that is 0 for good on this host stays.
        let hard = control.stdout.split_whitespace().last().unwrap();
        let most = if hard == "0" { "0 0" } else { "1 1" };
        assert_eq!(ended.stdout, format!("set EPERM as before {most}\n"), "{ended:?}");
        assert_eq!(has_memory, Some(0));
    });
}
