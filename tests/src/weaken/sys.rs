//! The system calls that weakening a process and tracing it take; the program's only unsafe code.
#![allow(unsafe_code, reason = "seccomp, capabilities and ptrace have no safe wrapper in the standard library")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

fn check(answer: i64) -> io::Result<i64> {
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

/// Installs a filter on this thread and all it will exec, without `no_new_privs` where the kernel lets it: with
/// CAP_SYS_ADMIN. A root that had it would otherwise not be the root that the test is about.
pub(crate) fn install(program: &[libc::sock_filter]) -> io::Result<()> {
    const SET_MODE_FILTER: i64 = 1;
    let about = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_too_long| io::ErrorKind::InvalidInput)?,
        filter: program.as_ptr().cast_mut(),
    };
    let attempt = || {
        // SAFETY: `about` points at `program`, both alive here; the kernel copies the instructions and writes nothing.
        check(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0_i64, &raw const about) })
    };
    match attempt() {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0)?;
            attempt().map(drop)
        }
        other => other.map(drop),
    }
}

fn prctl(option: i32, first: u64, second: u64) -> io::Result<i64> {
    // SAFETY: the options used here take integers only and read no memory.
    check(i64::from(unsafe { libc::prctl(option, first, second, 0_u64, 0_u64) }))
}

/// Keeps `kept` of the capabilities, in the bounding, the permitted and the effective set; drops all inheritable ones.
pub(crate) fn keep_capabilities(kept: &[u32]) -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    for capability in 0..64 {
        let known = prctl(libc::PR_CAPBSET_READ, u64::from(capability), 0).is_ok_and(|held| held == 1);
        if known && !kept.contains(&capability) {
            prctl(libc::PR_CAPBSET_DROP, u64::from(capability), 0)?;
        }
    }
    let header = [VERSION_3, 0_u32];
    let mut sets = [0_u32; 6];
    // SAFETY: version 3 reads eight bytes of header and writes 24 bytes of sets, which is what the arrays hold.
    check(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) })?;
    let mask = kept.iter().fold(0_u32, |mask, capability| mask | 1 << capability);
    // Effective and permitted of the low half; the high half holds none of Docker's.
    sets = [sets[0] & mask, sets[1] & mask, 0, 0, 0, 0];
    // SAFETY: as above, read only.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) })?;
    Ok(())
}

/// Becomes user and group `id`, without supplementary groups, for good.
pub(crate) fn become_user(id: u32) -> io::Result<()> {
    let none: [libc::gid_t; 0] = [];
    // SAFETY: no group is read from the array, whose length is given as zero.
    check(i64::from(unsafe { libc::setgroups(0, none.as_ptr()) }))?;
    // SAFETY: takes integers only.
    check(i64::from(unsafe { libc::setresgid(id, id, id) }))?;
    // SAFETY: takes integers only.
    check(i64::from(unsafe { libc::setresuid(id, id, id) }))?;
    Ok(())
}

/// Enters the network and mount namespaces of a process, and there the directory of the same name.
pub(crate) fn enter(pid: u32) -> io::Result<()> {
    let directory = std::env::current_dir()?;
    // All are opened first: in another mount namespace /proc may be another's.
    let open = |(name, kind)| File::open(format!("/proc/{pid}/ns/{name}")).map(|file| (file, kind));
    let [net, mnt] = [("net", libc::CLONE_NEWNET), ("mnt", libc::CLONE_NEWNS)].map(open);
    for (namespace, kind) in [net?, mnt?] {
        // SAFETY: takes integers only; the descriptor is open until the end of this block.
        check(i64::from(unsafe { libc::setns(namespace.as_raw_fd(), kind) }))?;
    }
    std::env::set_current_dir(directory)
}

/// The effective user.
pub(crate) fn user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Forks; `None` in the child. The program has one thread, so the child may do anything.
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: single-threaded, so no lock is held by a thread that the child lacks.
    match check(i64::from(unsafe { libc::fork() }))? {
        0 => Ok(None),
        pid => Ok(Some(i32::try_from(pid).unwrap_or(0))),
    }
}

/// Waits for any child or tracee.
pub(crate) fn wait_any() -> io::Result<(i32, i32)> {
    let mut status = 0;
    // SAFETY: `status` is a live i32, which the kernel may write.
    let pid = check(i64::from(unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) }))?;
    Ok((i32::try_from(pid).unwrap_or(0), status))
}

/// A request of ptrace(2) that takes an integer or nothing.
pub(crate) fn ptrace(request: u32, tid: i32, data: i64) -> io::Result<()> {
    let data = usize::try_from(data).unwrap_or(0);
    let none = std::ptr::null_mut::<libc::c_void>();
    let data = std::ptr::without_provenance_mut::<libc::c_void>(data);
    // SAFETY: the requests used here (SEIZE, CONT, LISTEN, INTERRUPT, DETACH) take data as an integer and no address.
    check(unsafe { libc::ptrace(request, tid, none, data) }).map(drop)
}

/// The message of a ptrace event, such as the number of a new child.
pub(crate) fn event_message(tid: i32) -> io::Result<u64> {
    let mut message = 0_u64;
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: GETEVENTMSG writes one unsigned long, which `message` is.
    check(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, none, &raw mut message) })?;
    Ok(message)
}

/// The registers of a stopped tracee.
#[cfg(target_arch = "x86_64")]
pub(crate) fn registers(tid: i32) -> io::Result<libc::user_regs_struct> {
    let none = std::ptr::null_mut::<libc::c_void>();
    let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
    // SAFETY: GETREGS writes one whole user_regs_struct.
    check(unsafe { libc::ptrace(libc::PTRACE_GETREGS, tid, none, registers.as_mut_ptr()) })?;
    // SAFETY: integers only, zeroed before and written by the kernel since.
    Ok(unsafe { registers.assume_init() })
}

/// Sets the registers of a stopped tracee.
#[cfg(target_arch = "x86_64")]
pub(crate) fn set_registers(tid: i32, registers: &libc::user_regs_struct) -> io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: SETREGS reads one whole user_regs_struct, borrowed here.
    check(unsafe { libc::ptrace(libc::PTRACE_SETREGS, tid, none, std::ptr::from_ref(registers)) }).map(drop)
}

/// Reads words of a tracee's memory at `address`; what is not mapped stays zero, and the number read is returned.
pub(crate) fn read_memory(tid: i32, address: u64, words: &mut [u64]) -> io::Result<usize> {
    let length = size_of_val(words);
    let local = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: length };
    let remote = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0)),
        iov_len: length,
    };
    // SAFETY: the kernel writes at most `length` bytes to `words`, exclusively borrowed; `remote` is an address in the
    // tracee, which nothing here dereferences.
    let got = check(unsafe { libc::process_vm_readv(tid, &raw const local, 1, &raw const remote, 1, 0) } as i64)?;
    Ok(usize::try_from(got).unwrap_or(0))
}

/// Hands signals that somebody sends to this process on to `child`. Those that the terminal sends have reached the
/// child already, so they are only ignored here.
pub(crate) fn forward_signals(child: i32) -> io::Result<()> {
    use std::sync::atomic::{AtomicI32, Ordering};
    static CHILD: AtomicI32 = AtomicI32::new(0);
    extern "C" fn forward(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
        // SAFETY: the kernel passes a valid siginfo_t to a handler that was installed with SA_SIGINFO.
        let from_a_process = unsafe { (*info).si_code } <= 0;
        if from_a_process {
            // SAFETY: kill(2) is async-signal-safe and takes integers.
            unsafe { libc::kill(CHILD.load(Ordering::Relaxed), signal) };
        }
    }
    CHILD.store(child, Ordering::Relaxed);
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: all-zero is a valid sigaction: no flags, an empty mask, no restorer.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = forward as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: `action` is live and holds a handler of the type that SA_SIGINFO asks for; the old one is not wanted.
        check(i64::from(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) }))?;
    }
    Ok(())
}

/// Ends this process by `signal`, so that whoever waits for it sees how the command ended.
pub(crate) fn die_of(signal: i32) {
    // A core of weaken would tell nothing about the command.
    let dumped = prctl(libc::PR_SET_DUMPABLE, 0, 0);
    // SAFETY: SIG_DFL is a disposition, no handler runs.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: takes an integer only.
    unsafe { libc::raise(signal) };
    drop(dumped);
}
