//! seccomp(2).

use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{FromRawFd, OwnedFd};

use seccompiler::sock_filter;

// The kernel reads `struct sock_filter`; seccompiler's is its own type and must be laid out alike.
const _: () = assert!(
    size_of::<sock_filter>() == size_of::<libc::sock_filter>()
        && offset_of!(sock_filter, code) == offset_of!(libc::sock_filter, code)
        && offset_of!(sock_filter, jt) == offset_of!(libc::sock_filter, jt)
        && offset_of!(sock_filter, jf) == offset_of!(libc::sock_filter, jf)
        && offset_of!(sock_filter, k) == offset_of!(libc::sock_filter, k)
);

/// Adds a filter to this thread, for good.
pub(crate) fn set_filter(program: &[sock_filter]) -> io::Result<()> {
    set_mode_filter(program, 0).map(|_zero| ())
}

/// Sets a filter, and returns the descriptor on which the kernel asks about notified calls. `WAIT_KILLABLE_RECV` (Linux
/// 5.19) comes with it: without it any signal aborts and restarts a call that the listener already carried out.
pub(crate) fn set_filter_with_listener(program: &[sock_filter]) -> io::Result<OwnedFd> {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let fd = set_mode_filter(program, flags)?;
    // SAFETY: with NEW_LISTENER a successful seccomp(2) returns a new descriptor, which nobody else knows of yet, so
    // the OwnedFd is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_mode_filter(program: &[sock_filter], flags: libc::c_ulong) -> io::Result<i32> {
    let Ok(len) = u16::try_from(program.len()) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    let fprog = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: `fprog` lives on this stack until the call returns, and its pointer covers `len` instructions of
    // `program`, whose layout is checked above. The kernel copies both before it returns and writes to neither, so
    // that the cast to a mutable pointer takes nothing away from the shared borrow.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const fprog) };
    // The kernel returns an int: 0, a descriptor or -1.
    match i32::try_from(result) {
        Ok(value) if value >= 0 => Ok(value),
        Ok(_) | Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The kernel agrees: filters installed in forked children.
#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Instant;

    use callgate_policy::plan::seccomp::{Variant, base, tool_delta};
    use callgate_policy::plan::{Starter, Strength, Writer};
    use nix::sys::signal::Signal;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use crate::filters::{FilterListener, install};
    use crate::seccomp::{Arch, BpfInsn, assemble};

    const HERE: Arch = if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 };

    fn base_program(strength: Strength) -> Vec<BpfInsn> {
        let (writer, starter) = (Writer::Kernel, Starter::Kernel);
        let variant = Variant { strength, landlock_abi: 7, writer, starter, debug: false };
        assemble(&base(variant), HERE).expect("the table is sound")
    }

    /// Makes a system call with integers, or with pointers to nothing, and returns its result or -errno.
    fn call(nr: libc::c_long, args: [u64; 4]) -> i64 {
        // SAFETY: every line below passes integers, descriptors that are not open, null pointers or an empty range, so
        // that the kernel has no memory of this process to read, write or unmap.
        let result = unsafe { libc::syscall(nr, args[0], args[1], args[2], args[3]) };
        if result == -1 { -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { result }
    }

    /// How the child ended that installed these programs and then did `act`: its result is the exit status.
    fn confined(programs: &[&[BpfInsn]], act: impl FnOnce() -> i32) -> WaitStatus {
        // SAFETY: the child makes system calls, allocates nothing and ends in _exit, so that it needs no lock that
        // another thread may hold.
        match unsafe { fork() }.expect("fork") {
            ForkResult::Parent { child } => waitpid(child, None).expect("wait"),
            ForkResult::Child => {
                // A wrong filter may leave the child waiting for an answer from itself; SIGALRM then ends it.
                let _earlier = nix::unistd::alarm::set(30);
                let status = match no_new_privs().and_then(|()| {
                    programs.iter().try_for_each(|program| install(program, FilterListener::Absent).map(|_none| ()))
                }) {
                    Ok(()) => act(),
                    Err(_) => 99,
                };
                // SAFETY: takes an integer and ends the process; no destructor of the copied test runs.
                unsafe { libc::_exit(status) }
            }
        }
    }

    fn no_new_privs() -> io::Result<()> {
        nix::sys::prctl::set_no_new_privs().map_err(io::Error::from)
    }

    /// The index of the first line that does not hold, plus one; 0 if all do.
    fn first_wrong(lines: &[(libc::c_long, [u64; 4], Expect)]) -> i32 {
        let wrong = lines.iter().position(|(nr, args, expect)| {
            let result = call(*nr, *args);
            match expect {
                Expect::Passes => result < 0,
                Expect::Is(wanted) => result != *wanted,
                Expect::Reaches => result == -i64::from(libc::EPERM) || result == -i64::from(libc::ENOSYS),
            }
        });
        wrong.map_or(0, |index| i32::try_from(index).unwrap_or(97) + 1)
    }

    #[derive(Clone, Copy)]
    enum Expect {
        /// The kernel carries it out.
        Passes,
        /// This result, or -errno.
        Is(i64),
        /// The kernel's own error, from behind the filter.
        Reaches,
    }

    const EPERM: Expect = Expect::Is(-(libc::EPERM as i64));
    const EACCES: Expect = Expect::Is(-(libc::EACCES as i64));
    const ENOSYS: Expect = Expect::Is(-(libc::ENOSYS as i64));
    const EAFNOSUPPORT: Expect = Expect::Is(-(libc::EAFNOSUPPORT as i64));
    const EOPNOTSUPP: Expect = Expect::Is(-(libc::EOPNOTSUPP as i64));
    const HIGH: u64 = 1 << 32;

    /// Checks the base filter: what is refused is refused with this very errno, and what lies next to it passes. Nobody
    /// listens in this test, so that what the broker would be asked fails with ENOSYS.
    fn check_base(strength: Strength) {
        let program = base_program(strength);
        // Route netlink is the broker's to give, of the session's own network.
        let route = if strength == Strength::Namespaces { ENOSYS } else { EAFNOSUPPORT };
        let lines = [
            (libc::SYS_getpid, [0; 4], Expect::Passes),
            (libc::SYS_getuid, [0; 4], Expect::Passes),
            (600, [0; 4], ENOSYS),
            // D1, D3, D4, B9.
            (libc::SYS_ptrace, [0; 4], ENOSYS),
            (libc::SYS_unshare, [0; 4], ENOSYS),
            (libc::SYS_keyctl, [0; 4], EPERM),
            (libc::SYS_bpf, [0; 4], EPERM),
            (libc::SYS_io_uring_setup, [0; 4], ENOSYS),
            (libc::SYS_clone3, [0; 4], ENOSYS),
            (libc::SYS_clone, [libc::CLONE_NEWUSER as u64, 0, 0, 0], ENOSYS),
            // D5, D6: whatever the upper half says; a request next to it fails as the kernel has it.
            (libc::SYS_ioctl, [u64::MAX, libc::TIOCSTI, 0, 0], EPERM),
            (libc::SYS_ioctl, [u64::MAX, HIGH | libc::TIOCSTI, 0, 0], EPERM),
            (libc::SYS_ioctl, [u64::MAX, libc::TIOCGWINSZ, 0, 0], Expect::Is(-(libc::EBADF as i64))),
            // B1, B4, B7, B8.
            (libc::SYS_socket, [2, 1, 0, 0], ENOSYS),
            (libc::SYS_socket, [2, 1, 262, 0], ENOSYS),
            (libc::SYS_socket, [2, 2, 0, 0], ENOSYS),
            (libc::SYS_socket, [1, 2, 0, 0], EACCES),
            (libc::SYS_socket, [16, 3, 0, 0], route),
            (libc::SYS_socket, [HIGH | 16, 3, 0, 0], route),
            (libc::SYS_socket, [HIGH | 16, 3, HIGH | 16, 0], EAFNOSUPPORT),
            (libc::SYS_socket, [16, 5, 0, 0], EAFNOSUPPORT),
            (libc::SYS_socketpair, [1, 2, 0, 0], EACCES),
            (libc::SYS_socketpair, [1, 1, 0, 0], Expect::Is(-(libc::EFAULT as i64))),
            // B2.
            (libc::SYS_sendto, [u64::MAX, 0, 0, 0x2000_0000], EOPNOTSUPP),
            (libc::SYS_sendto, [u64::MAX, 0, 0, 0], Expect::Is(-(libc::EBADF as i64))),
            // A12.
            (libc::SYS_fchmod, [u64::MAX, 0, 0, 0], ENOSYS),
            // C14: said to be done, and not done.
            (libc::SYS_prctl, [libc::PR_SET_DUMPABLE as u64, 0, 0, 0], Expect::Is(0)),
            (libc::SYS_prctl, [libc::PR_GET_DUMPABLE as u64, 0, 0, 0], Expect::Is(1)),
            (libc::SYS_personality, [0xffff_ffff, 0, 0, 0], Expect::Passes),
            (libc::SYS_personality, [0x40_0000, 0, 0, 0], EPERM),
            (libc::SYS_landlock_restrict_self, [u64::MAX, 0, 0, 0], Expect::Reaches),
        ];
        let status = confined(&[&program], || first_wrong(&lines));
        assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?} (n: line n is wrong)");
    }

    #[test]
    fn kernel_does_what_the_base_filter_says_without_namespaces() {
        check_base(Strength::Landlock);
    }

    #[test]
    fn kernel_does_what_the_base_filter_says_with_namespaces() {
        check_base(Strength::Namespaces);
    }

    /// The controls: without a filter the same calls pass, or fail with another errno, wherever tests may run.
    #[test]
    fn without_a_filter_the_same_calls_reach_the_kernel() {
        let lines = [
            (libc::SYS_prctl, [libc::PR_SET_DUMPABLE as u64, 0, 0, 0], Expect::Is(0)),
            (libc::SYS_prctl, [libc::PR_GET_DUMPABLE as u64, 0, 0, 0], Expect::Is(0)),
            (libc::SYS_ioctl, [u64::MAX, libc::TIOCSTI, 0, 0], Expect::Is(-(libc::EBADF as i64))),
            (libc::SYS_socket, [2, 2, 0, 0], Expect::Passes),
            (libc::SYS_socket, [1, 2, 0, 0], Expect::Passes),
            (libc::SYS_sendto, [u64::MAX, 0, 0, 0x2000_0000], Expect::Is(-(libc::EBADF as i64))),
            (libc::SYS_fchmod, [u64::MAX, 0, 0, 0], Expect::Is(-(libc::EBADF as i64))),
        ];
        let status = confined(&[], || first_wrong(&lines));
        assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?} (n: line n is wrong)");
    }

    /// The stricter of two filters holds: in a tool nothing that the base filter allows starts a program.
    #[test]
    fn tool_delta_narrows_the_base_filter() {
        let base = base_program(Strength::Landlock);
        let delta = assemble(&tool_delta(), HERE).expect("the table is sound");
        let exec = [(libc::SYS_execve, [0; 4], EPERM), (libc::SYS_socket, [2, 1, 0, 0], EPERM)];
        let exec_bits = [
            (libc::SYS_mprotect, [0, 0, libc::PROT_EXEC as u64, 0], EPERM),
            (libc::SYS_mprotect, [0, 0, libc::PROT_READ as u64, 0], Expect::Passes),
        ];
        let status = confined(&[&base, &delta], || first_wrong(&exec) + 10 * first_wrong(&exec_bits));
        assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");

        let alone = [(libc::SYS_execve, [0; 4], Expect::Is(-(libc::EFAULT as i64)))];
        let status = confined(&[&base], || first_wrong(&alone));
        assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
    }

    /// D5: x32 numbers mean other calls, or the same ones past a deny list.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn x32_call_kills() {
        let program = base_program(Strength::Landlock);
        let getpid = 0x4000_0000 | libc::SYS_getpid;
        let control = confined(&[], || i32::from(call(getpid, [0; 4]) == -i64::from(libc::EPERM)));
        assert!(matches!(control, WaitStatus::Exited(_, 0)), "{control:?}");
        let status = confined(&[&program], || i32::from(call(getpid, [0; 4]) == 0));
        assert!(matches!(status, WaitStatus::Signaled(_, Signal::SIGSYS, _)), "{status:?}");
    }

    /// D5: through `int 0x80` 20 is getpid and writev is 146; a filter that reads numbers alone mistakes them.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn i386_call_kills() {
        fn getpid() -> i32 {
            let mut eax: i64 = 20;
            // SAFETY: the 32-bit getpid takes no arguments and touches no memory; the entry saves all registers but
            // eax, and r8 to r11, which older kernels clear.
            unsafe {
                std::arch::asm!("int 0x80", inlateout("rax") eax, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
            }
            i32::from(eax <= 0)
        }
        let program = base_program(Strength::Landlock);
        let control = confined(&[], getpid);
        if !matches!(control, WaitStatus::Exited(_, 0)) {
            eprintln!("skipped: this kernel has no 32-bit calls ({control:?})");
            return;
        }
        let status = confined(&[&program], getpid);
        assert!(matches!(status, WaitStatus::Signaled(_, Signal::SIGSYS, _)), "{status:?}");
    }

    #[test]
    fn listener_is_returned_and_only_one() {
        // Under the base filter, whoever listens is asked about a second one; here the kernel answers.
        let program = assemble(&tool_delta(), HERE).expect("the table is sound");
        let status = confined(&[], || {
            let Ok(Some(_listener)) = install(&program, FilterListener::Wanted) else {
                return 1;
            };
            match install(&program, FilterListener::Wanted) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => 0,
                _ => 2,
            }
        });
        assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
    }

    #[test]
    fn malformed_program_is_refused() {
        let status = confined(&[], || match install(&[], FilterListener::Absent) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => 0,
            _ => 1,
        });
        assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
    }

    /// Not a test of speed, which this machine's load decides: it prints what an installation costs.
    #[test]
    fn installing_is_measured() {
        for (name, program) in [
            ("base, without namespaces", base_program(Strength::Landlock)),
            ("base, with namespaces", base_program(Strength::Namespaces)),
            ("tool delta", assemble(&tool_delta(), HERE).expect("the table is sound")),
        ] {
            let mut micros: Vec<i32> = (0..100)
                .filter_map(|_| {
                    let status = confined(&[], || {
                        let start = Instant::now();
                        match install(&program, FilterListener::Absent) {
                            // An exit status has eight bits.
                            Ok(_) => i32::try_from(start.elapsed().as_micros() / 4).map_or(255, |us| us.min(255)),
                            Err(_) => 255,
                        }
                    });
                    if let WaitStatus::Exited(_, quarter) = status { Some(quarter * 4) } else { None }
                })
                .collect();
            micros.sort_unstable();
            println!("{name}: {} instructions, min {:?} median {:?} µs", program.len(), micros.first(), micros.get(50));
            assert_eq!(micros.len(), 100, "{name}");
        }
    }
}
