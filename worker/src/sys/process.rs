//! Making, replacing and waiting for processes.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use callgate_policy::step::Step;

use super::errno_if_negative;

/// A process id in the caller's PID namespace.
pub type Pid = libc::pid_t;

/// Which side of a fork this is.
#[derive(Debug)]
pub enum Fork {
    /// The new process.
    Child,
    /// The old one, with the new one's id.
    Parent(Pid),
}

/// That this process has one thread, and so may be forked: a copy of a process with several may hold a lock for ever.
/// Whoever holds this makes none.
#[derive(Debug, Clone, Copy)]
pub struct OneThread(());

impl OneThread {
    /// Looks.
    ///
    /// # Errors
    /// `EBUSY` if this process has more than one thread.
    #[expect(clippy::disallowed_methods, reason = "procfs is the kernel's: nobody puts a link in its files' place")]
    pub fn confirm() -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        // A link for each thread, and two more.
        let links = std::fs::metadata("/proc/self/task")?.nlink();
        if links == 3 { Ok(Self(())) } else { Err(io::Error::from_raw_os_error(libc::EBUSY)) }
    }
}

/// fork(2) into new namespaces in one step: clone(2) with `CLONE_NEW*` flags, or none, and no shared memory.
///
/// The kernel's own call: glibc's fork(3) writes to a dozen pages for handlers and locks that a process with one thread
/// does not need, and each is a fault in both processes.
///
/// # Errors
/// clone's own (`EPERM` and `ENOSPC` where user namespaces are refused).
pub fn fork(_: OneThread, namespaces: libc::c_int) -> io::Result<Fork> {
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    // SAFETY: without CLONE_VM this is fork(2) with other namespaces: a null stack keeps the caller's, in a copy. The process
    // has exactly one thread, so the child's memory is in no other thread's half-done state and may be used without limits.
    // The order of the two pointer arguments that differs by architecture does not matter: all are null.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match libc::c_int::try_from(pid).map_err(io::Error::other).and_then(errno_if_negative)? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Ends the process at once, without exit handlers: for forked children, whose handlers are their parent's.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: takes an integer, never returns.
    unsafe { libc::_exit(code) }
}

/// How a process ended, and what it used.
#[derive(Debug, Clone, Copy)]
pub struct ProcessEnd {
    /// Which process.
    pub pid: Pid,
    /// wait(2)'s status word.
    pub status: i32,
    /// User and system CPU time, microseconds, of it and of the children it waited for.
    pub cpu_us: u64,
    /// Largest resident set, KiB.
    pub max_rss_kib: u64,
}

/// Takes one ended child, without waiting: `None` if there are children but none has ended.
///
/// # Errors
/// `ECHILD` if there are no children.
pub fn reap() -> io::Result<Option<ProcessEnd>> {
    // Whoever has this process trace it (PTRACE_TRACEME, by a child or what has become one) would stop for ever.
    loop {
        match wait_for_any()? {
            Some(stopped) if libc::WIFSTOPPED(stopped.status) => {
                let _gone_is_fine: io::Result<()> = kill(stopped.pid, libc::SIGKILL);
            }
            ended => return Ok(ended),
        }
    }
}

fn wait_for_any() -> io::Result<Option<ProcessEnd>> {
    let mut status = 0;
    // SAFETY: `rusage` is plain integers, for which all zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals of the types that wait4(2) writes.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG | libc::__WALL, &raw mut usage) };
    match errno_if_negative(pid)? {
        0 => Ok(None),
        pid => {
            let micros = |t: libc::timeval| u64::try_from(t.tv_sec * 1_000_000 + t.tv_usec).unwrap_or(0);
            Ok(Some(ProcessEnd {
                pid,
                status,
                cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
                max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
            }))
        }
    }
}

/// This process.
#[must_use]
pub fn id() -> Pid {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::getpid() }
}

/// Waits for one child.
///
/// # Errors
/// `ECHILD` if it is not one.
pub fn wait_for(pid: Pid) -> io::Result<()> {
    loop {
        // SAFETY: a null status pointer: it is not wanted.
        match errno_if_negative(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(drop),
        }
    }
}

/// kill(2). `pid` as there: negative for a process group.
///
/// # Errors
/// kill's own.
pub fn kill(pid: Pid, signal: i32) -> io::Result<()> {
    // SAFETY: takes integers only.
    errno_if_negative(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// True if a thread is the first of its process, whose number it has: only then is there a thread of that number in a
/// process of that number (tgkill(2)). A fiftieth of what its status costs.
pub(crate) fn is_leader(tid: Pid) -> bool {
    is_thread_of(tid, tid)
}

/// True if a thread is one of a process (tgkill(2)).
pub(crate) fn is_thread_of(process: Pid, tid: Pid) -> bool {
    // The signal 0 is none. One that may not be sent a signal is one that is there.
    signal_thread(process, tid, 0).map_or_else(|e| e.raw_os_error() == Some(libc::EPERM), |()| true)
}

/// tgkill(2).
///
/// # Errors
/// tgkill's own; ESRCH also for a thread that is another process's.
pub(crate) fn signal_thread(process: Pid, tid: Pid, signal: i32) -> io::Result<()> {
    // SAFETY: takes integers only.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, tid, signal) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// getpgid(2); 0 for a group whose leader is outside of this PID namespace, of which rustix makes an impossible value.
pub(crate) fn group_of(pid: Pid) -> Option<Pid> {
    // SAFETY: takes an integer only.
    errno_if_negative(unsafe { libc::getpgid(pid) }).ok()
}

/// Data that a signal carries (sigaction(2)), as its sender wrote it.
#[repr(C, align(8))]
pub(crate) struct SignalInfo([u8; Self::LENGTH]);

impl SignalInfo {
    /// The kernel's `siginfo_t`.
    pub(crate) const LENGTH: usize = 128;

    /// With the number of the signal that it is for, which is its first word. `None` of another length.
    pub(crate) fn of(signal: i32, written: &[u8]) -> Option<Self> {
        let mut bytes: [u8; Self::LENGTH] = written.try_into().ok()?;
        bytes[..4].copy_from_slice(&signal.to_ne_bytes());
        Some(Self(bytes))
    }
}

/// pidfd_send_signal(2); without any information with that which kill(2) would send. Unlike rustix's, takes any signal
/// number, 0 too.
///
/// # Errors
/// pidfd_send_signal's own.
pub(crate) fn pidfd_signal(pidfd: BorrowedFd<'_>, signal: i32, info: Option<&SignalInfo>) -> io::Result<()> {
    let info = info.map_or(std::ptr::null(), |info| info.0.as_ptr());
    // SAFETY: an open descriptor, integers, and null or 128 live bytes, aligned as the kernel's siginfo_t, which it reads.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, info, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Arguments of a program's start. Everything is made before the clone: the child may not allocate.
pub(crate) struct ExecArguments<'a> {
    /// Candidates for the executable, tried in order as execvp(3) does.
    pub(crate) files: &'a [CString],
    pub(crate) argv: &'a [CString],
    pub(crate) env: &'a [CString],
    pub(crate) working_dir: &'a CStr,
    /// Descriptors that become 0, 1 and 2.
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    /// Terminal that becomes its controlling one. It must be nobody's.
    pub(crate) terminal: Option<BorrowedFd<'a>>,
    /// The ruleset of its domain, and that of a second one upon it.
    pub(crate) landlock: (BorrowedFd<'a>, Option<BorrowedFd<'a>>),
    /// Files of its own procfs directory that are added to the first ruleset, which must be this program's alone.
    pub(crate) own: &'a [OwnFile],
    /// The cgroup.procs of its cgroup.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
    pub(crate) limits: &'a [(u32, libc::rlimit)],
}

/// A part of a process's own directory in procfs, and Landlock's rights to it.
pub(crate) struct OwnFile {
    /// Below `/proc/self`.
    pub(crate) path: &'static CStr,
    /// As landlock_add_rule(2) takes them.
    pub(crate) rights: u64,
}

/// Which of [`spawn`]'s steps failed, in the child but for the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpawnStep {
    Clone,
    Cgroup,
    Session,
    Terminal,
    Stdio,
    WorkingDir,
    Limit,
    CloseFds,
    Landlock,
    SignalMask,
    Exec,
}

impl SpawnStep {
    /// As it appears in reports and refusals.
    pub(crate) fn step(self) -> Step {
        match self {
            Self::Clone => Step::Fork,
            Self::Cgroup => Step::Cgroup,
            Self::Session => Step::Session,
            Self::Terminal => Step::Terminal,
            Self::Stdio => Step::Stdio,
            Self::WorkingDir => Step::WorkingDir,
            Self::Limit => Step::Limits,
            Self::CloseFds => Step::CloseFds,
            Self::Landlock => Step::Landlock,
            Self::SignalMask => Step::SignalMask,
            Self::Exec => Step::Exec,
        }
    }
}

/// True if two processes have one memory (kcmp(2), `KCMP_VM`): one is in vfork(2), most likely. False if that cannot be
/// told.
pub(crate) fn share_memory(one: Pid, other: Pid) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: takes integers only.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) };
    order == 0
}

/// The stack of a child until its exec, in units of 16 bytes.
const CHILD_STACK: usize = 1024;

/// Shared with the child while it borrows this process's memory.
struct ChildShared<'a> {
    exec: &'a ExecArguments<'a>,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    failed: Option<(SpawnStep, i32)>,
    landlocked: bool,
}

/// A started program.
pub(crate) struct Spawned {
    pub(crate) pid: Pid,
    /// landlock_restrict_self(2) returned 0 in the child before its exec, for each ruleset.
    pub(crate) landlocked: bool,
}

/// Starts a program in a child that borrows this process's memory until its exec, as vfork(2): the cost does not
/// depend on the caller's size, and errors come back by memory instead of by a pipe.
///
/// The child is a session leader, has the three given descriptors and no others, the given controlling terminal or none,
/// the given limits, and the Landlock domain on top of the caller's.
///
/// # Errors
/// The step that failed, with its errno.
pub(crate) fn spawn(exec: &ExecArguments<'_>) -> Result<Spawned, (SpawnStep, io::Error)> {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let mut shared =
        ChildShared { exec, argv: pointers(exec.argv), env: pointers(exec.env), failed: None, landlocked: false };
    // Not filled: only what the child touches of it costs a page.
    let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(CHILD_STACK);
    let all = Signals::all();
    // A handler that ran in the child would run in our memory; so nothing is delivered between here and the exec.
    let before = all.block().map_err(|e| (SpawnStep::SignalMask, e))?;
    // SAFETY: one past the end of what the vector has reserved, which outlives the child's use of it (CLONE_VFORK returns after the exec).
    let top = unsafe { stack.as_mut_ptr().add(CHILD_STACK) };
    // SAFETY: `child` gets a pointer to `shared`, which lives until after the clone returns; CLONE_VFORK suspends this
    // thread, the only one that could touch it, until the child has exec'ed or exited. The stack is 16-byte aligned
    // (u128), 16 KiB, and unused by anyone else. `child` makes system calls only: it neither allocates nor unwinds.
    let pid = unsafe {
        libc::clone(child, top.cast(), libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, (&raw mut shared).cast())
    };
    let cloned = errno_if_negative(pid);
    before.restore().map_err(|e| (SpawnStep::SignalMask, e))?;
    let pid = cloned.map_err(|e| (SpawnStep::Clone, e))?;
    match shared.failed {
        None => Ok(Spawned { pid, landlocked: shared.landlocked }),
        Some((step, errno)) => Err((step, io::Error::from_raw_os_error(errno))),
    }
}

extern "C" fn child(shared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` passes its `ChildShared`, alive and untouched until this process execs or exits.
    let shared = unsafe { &mut *shared.cast::<ChildShared<'_>>() };
    let (step, errno) = child_steps(shared);
    shared.failed = Some((step, errno));
    exit_now(127)
}

/// The child's steps in order; returns only on failure. No allocation, no lock, no panic: it runs in borrowed memory.
fn child_steps(shared: &mut ChildShared<'_>) -> (SpawnStep, i32) {
    let exec = shared.exec;
    // First: whatever it does is done in there. "0" is whoever writes (cgroups(7)).
    if let Some(cgroup) = exec.cgroup {
        // SAFETY: an open descriptor and one byte of static memory.
        if unsafe { libc::write(cgroup.as_raw_fd(), c"0".as_ptr().cast(), 1) } != 1 {
            return (SpawnStep::Cgroup, last_errno());
        }
    }
    // SAFETY: takes nothing. A session of its own: no terminal of anybody else's to type into (D6), one group to signal.
    if unsafe { libc::setsid() } < 0 {
        return (SpawnStep::Session, last_errno());
    }
    if let Some(terminal) = exec.terminal {
        // SAFETY: an open descriptor and an integer: 0, so that a terminal is not taken away from who has it.
        if unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) } < 0 {
            return (SpawnStep::Terminal, last_errno());
        }
    }
    if let Err(errno) = place_stdio(exec.stdio) {
        return (SpawnStep::Stdio, errno);
    }
    // SAFETY: a NUL-terminated string that outlives the call.
    if unsafe { libc::chdir(exec.working_dir.as_ptr()) } < 0 {
        return (SpawnStep::WorkingDir, last_errno());
    }
    // Only now is it known which directory that is, and only this process can say so without naming a number.
    add_own(exec.own, exec.landlock.0);
    for ruleset in [Some(exec.landlock.0), exec.landlock.1].into_iter().flatten() {
        // SAFETY: an open ruleset descriptor and no flags.
        let restricted = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
        if restricted < 0 {
            return (SpawnStep::Landlock, last_errno());
        }
    }
    shared.landlocked = true;
    // Entering a directory needs no right of Landlock's, so a link could lead out of what is granted; listing it does (A10).
    // SAFETY: a NUL-terminated string; the descriptor is closed with all others below.
    if unsafe { libc::open(c".".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) } < 0 {
        return (SpawnStep::WorkingDir, last_errno());
    }
    // After the ruleset's descriptor was used: whatever else was open ends here (A20).
    // SAFETY: takes integers only; what is closed belongs to this process's own copy of the table (no CLONE_FILES).
    if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } < 0 {
        return (SpawnStep::CloseFds, last_errno());
    }
    // Now that only the program's own is left: a bound on open files is not to meet what this process had open.
    for (resource, limit) in exec.limits {
        // SAFETY: a null old limit and a live new one; prlimit64(2) reads the latter.
        let done = unsafe { libc::prlimit(0, *resource, limit, std::ptr::null_mut()) };
        if done < 0 {
            return (SpawnStep::Limit, last_errno());
        }
    }
    // Dispositions are the defaults since the launcher reset them; only the mask is this moment's.
    unblock_signals();
    let mut errno = libc::ENOENT;
    for file in exec.files {
        // SAFETY: the file is NUL-terminated; both arrays end in a null pointer and their strings outlive the call.
        unsafe { libc::execve(file.as_ptr(), shared.argv.as_ptr(), shared.env.as_ptr()) };
        match last_errno() {
            libc::ENOENT | libc::ENOTDIR => {}
            // As execvp(3): a candidate that may not be run does not end the search, but is what is reported.
            libc::EACCES => errno = libc::EACCES,
            other => return (SpawnStep::Exec, other),
        }
    }
    (SpawnStep::Exec, errno)
}

/// Adds what this process may read of itself to its ruleset. What is not there, or cannot be added, is not readable.
fn add_own(own: &[OwnFile], ruleset: BorrowedFd<'_>) {
    for file in own {
        // SAFETY: a NUL-terminated string of static memory.
        let fd = unsafe { libc::open(file.path.as_ptr(), libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) };
        if fd >= 0 {
            // SAFETY: it was opened above, is nobody else's, and is closed once.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            let _less_is_readable = super::landlock::add_beneath(ruleset, fd.as_fd(), file.rights);
        }
    }
}

/// Moves three descriptors onto 0, 1 and 2 whatever their numbers, without one overwriting another.
fn place_stdio(stdio: [BorrowedFd<'_>; 3]) -> Result<(), i32> {
    let mut high: [RawFd; 3] = [0; 3];
    for (slot, fd) in high.iter_mut().zip(&stdio) {
        // SAFETY: an open descriptor; the copy gets the lowest free number from 10 and is closed on exec.
        *slot = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 10) };
        if *slot < 0 {
            return Err(last_errno());
        }
    }
    for (target, fd) in (0..).zip(high) {
        // SAFETY: takes integers only; the target is this process's own 0, 1 or 2.
        if unsafe { libc::dup2(fd, target) } < 0 {
            return Err(last_errno());
        }
    }
    Ok(())
}

/// Default dispositions for all and an empty mask: ignored signals would survive the exec.
pub(crate) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: takes integers only; SIGKILL, SIGSTOP and glibc's own two are refused, which is as well.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    unblock_signals();
}

/// Has signals that a person or an operator sends to end this process do so again, whatever was to be done about it.
pub fn be_ended_by_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: takes integers only; the signals are none that are refused.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

fn unblock_signals() {
    let none: u64 = 0;
    // SAFETY: a live 8-byte set, its size in bytes, no old set wanted. The raw call, because glibc's hides two signals.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const none, std::ptr::null_mut::<u64>(), 8)
    };
}

fn last_errno() -> i32 {
    // SAFETY: takes nothing; glibc and musl return a valid pointer to this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: valid, as above, and nobody else's: errno is the thread's own.
    unsafe { *errno }
}

/// A set of signals.
pub(crate) struct Signals(libc::sigset_t);

impl Signals {
    pub(crate) fn all() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigfillset(3) initialises the set it is given.
        unsafe { libc::sigfillset(set.as_mut_ptr()) };
        // SAFETY: initialised by the line above.
        Self(unsafe { set.assume_init() })
    }

    /// Blocks these; returns what was blocked before.
    pub(crate) fn block(&self) -> io::Result<Self> {
        let mut old = MaybeUninit::uninit();
        // SAFETY: a live set to read and a place to write the old one.
        let done = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const self.0, old.as_mut_ptr()) };
        if done != 0 {
            return Err(io::Error::from_raw_os_error(done));
        }
        // SAFETY: written by the successful call above.
        Ok(Self(unsafe { old.assume_init() }))
    }

    /// Makes this the mask.
    pub(crate) fn restore(&self) -> io::Result<()> {
        // SAFETY: a live set to read; the old one is not wanted.
        let done = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
        if done == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(done)) }
    }
}

/// Has the kernel reap this process's children: for those that never ask how a child ended.
///
/// # Errors
/// signal(2)'s own.
pub fn ignore_children() -> io::Result<()> {
    // SAFETY: SIG_IGN installs no code.
    if unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Has writing beyond RLIMIT_FSIZE fail with EFBIG instead of ending the process: one that reports it.
///
/// # Errors
/// signal(2)'s own.
pub(crate) fn ignore_file_size_signal() -> io::Result<()> {
    // SAFETY: SIG_IGN installs no code.
    if unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Has writing to a connection whose other end is gone fail with EPIPE instead of ending the process.
///
/// # Errors
/// signal(2)'s own.
pub(crate) fn ignore_broken_pipes() -> io::Result<()> {
    // SAFETY: SIG_IGN installs no code.
    if unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The signal that [`interrupt`] sends. Its default is to be ignored, so that one which comes too early does no harm.
const INTERRUPTION: libc::c_int = libc::SIGURG;

extern "C" fn do_nothing(_signal: libc::c_int) {}

/// Has [`interrupt`] end what a thread of this process waits for in the kernel, with EINTR.
///
/// # Errors
/// sigaction(2)'s own.
pub(crate) fn let_waits_be_interrupted() -> io::Result<()> {
    // SAFETY: plain integers and a pointer, for which all zero is a value: an empty mask, and no SA_RESTART.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = do_nothing as *const () as libc::sighandler_t;
    // SAFETY: a live structure; the handler touches nothing, so it may run at any moment.
    errno_if_negative(unsafe { libc::sigaction(INTERRUPTION, &raw const action, std::ptr::null_mut()) }).map(drop)
}

/// The number of this thread.
pub(crate) fn own_tid() -> Pid {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Interrupts what a thread of this process waits for (tgkill(2)). None is there any more: as well.
pub(crate) fn interrupt(tid: Pid) {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let _gone_is_as_well = signal_thread(own, tid, INTERRUPTION);
}

/// Blocks `SIGCHLD` and gives it back as a descriptor to poll (signalfd(2)); undoes [`ignore_children`].
///
/// # Errors
/// signalfd's own.
pub(crate) fn children_as_fd() -> io::Result<OwnedFd> {
    // SAFETY: SIG_DFL installs no code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) initialises the set it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised by the line above; a valid signal number.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD) };
    // SAFETY: initialised above.
    let set = Signals(unsafe { set.assume_init() });
    set.block().map(drop)?;
    // SAFETY: a live set; -1 asks for a new descriptor.
    let fd =
        errno_if_negative(unsafe { libc::signalfd(-1, &raw const set.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
    // SAFETY: a descriptor that the kernel has just given to this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Overwrites this process's environment, which its forks would all hold a copy of, and leaves it empty.
///
/// It takes one thread: another could be reading it.
pub(crate) fn erase_environment(_: OneThread) {
    unsafe extern "C" {
        static mut environ: *mut *mut libc::c_char;
    }
    // SAFETY: libc's own variable; one thread exists, so nobody changes it meanwhile.
    let mut entry = unsafe { environ };
    // SAFETY: `environ` is null or an array that ends in a null pointer (environ(7)).
    while !entry.is_null() && !unsafe { *entry }.is_null() {
        // SAFETY: not the end, as just seen; a NUL-terminated string.
        let text = unsafe { *entry };
        // SAFETY: a NUL-terminated string.
        let len = unsafe { libc::strlen(text) };
        // SAFETY: `len` bytes before its NUL, in memory that is writable: the kernel's copy on the stack, or the heap.
        unsafe { std::ptr::write_bytes(text, 0, len) };
        // SAFETY: within the array, or at its null end.
        entry = unsafe { entry.add(1) };
    }
    // SAFETY: libc's own variable, as above; a null environment is an empty one.
    unsafe { environ = std::ptr::null_mut() };
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    /// D12: who asks to be traced by a process that only reaps would stop for ever. It is killed, and reaped as that.
    #[test]
    fn d12_who_stops_before_its_reaper_is_killed() {
        // SAFETY: the child makes system calls, allocates nothing and ends in _exit.
        let child = match unsafe { fork() }.expect("fork") {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                let _earlier = nix::unistd::alarm::set(60);
                // SAFETY: as above.
                match unsafe { fork() } {
                    Ok(ForkResult::Child) => {
                        // SAFETY: takes no address.
                        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
                        // SAFETY: takes an integer.
                        unsafe { libc::raise(libc::SIGSTOP) };
                        exit_now(1);
                    }
                    Ok(ForkResult::Parent { child }) => {
                        let ended = loop {
                            match reap() {
                                Ok(None) => std::thread::yield_now(),
                                ended => break ended,
                            }
                        };
                        let was_killed = |end: ProcessEnd| {
                            end.pid == child.as_raw()
                                && libc::WIFSIGNALED(end.status)
                                && libc::WTERMSIG(end.status) == libc::SIGKILL
                        };
                        exit_now(i32::from(!matches!(ended, Ok(Some(end)) if was_killed(end))));
                    }
                    Err(_) => exit_now(2),
                }
            }
        };
        assert_eq!(waitpid(child, None).expect("wait"), WaitStatus::Exited(child, 0));
    }
}
