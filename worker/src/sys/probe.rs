//! One raw system call, with arguments that can only be integers or borrows; and the few things that are no system call.
//!
//! The probe goes past libc's wrappers because they hide what an attacker would do: glibc turns `open` into `openat`,
//! validates, falls back, caches. Everything unsafe in the probe is in this file.

use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::probe::outcome::ActFailure;

/// One argument of a system call: an integer, or an address that stays borrowed while the call runs.
#[derive(Clone, Copy)]
pub struct Arg<'a> {
    value: i64,
    lives: PhantomData<&'a ()>,
}

/// An integer, or a descriptor's number.
pub fn int<'a>(value: impl Into<i64>) -> Arg<'a> {
    Arg { value: value.into(), lives: PhantomData }
}

/// An unsigned constant whose top bit may be set, as it is.
pub fn bits<'a>(value: u64) -> Arg<'a> {
    int(value.cast_signed())
}

/// A length.
pub fn len<'a, T>(of: &[T]) -> Arg<'a> {
    bits(size_of_val(of) as u64)
}

/// An open descriptor.
pub fn fd<'a>(fd: &'a impl AsRawFd) -> Arg<'a> {
    int(fd.as_raw_fd())
}

/// A string that the kernel reads.
pub fn text(text: &CStr) -> Arg<'_> {
    bits(text.as_ptr().expose_provenance() as u64)
}

/// Memory that the kernel reads.
pub fn from<T: ?Sized>(memory: &T) -> Arg<'_> {
    bits(std::ptr::from_ref(memory).expose_provenance() as u64)
}

/// Memory that the kernel may write.
pub fn into<T: ?Sized>(memory: &mut T) -> Arg<'_> {
    bits(std::ptr::from_mut(memory).expose_provenance() as u64)
}

/// A null pointer.
pub fn null<'a>() -> Arg<'a> {
    int(0)
}

/// Performs call `number` and names it `at` when it fails.
///
/// The caller owes what the type cannot say: that a length passed beside `into` is not longer than its memory.
pub fn call(at: &str, number: i64, args: &[Arg<'_>]) -> Result<i64, ActFailure> {
    let mut six = [0_i64; 6];
    for (slot, arg) in six.iter_mut().zip(args) {
        *slot = arg.value;
    }
    let [a, b, c, d, e, f] = six;
    // SAFETY: every address among the six comes from a borrow that `args` keeps alive until after the call, exclusive
    // where the kernel writes (`into`); the acts pass the length of that same memory. `syscall NR ARGS…` passes what
    // its user wrote, which is its purpose: the process does nothing afterwards but print the answer.
    let answer = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if answer == -1 {
        return Err(ActFailure::errno(at, last_errno()));
    }
    Ok(answer)
}

/// Makes a call that makes a descriptor.
pub fn call_fd(at: &str, number: i64, args: &[Arg<'_>]) -> Result<OwnedFd, ActFailure> {
    let made = call(at, number, args)?;
    let made = i32::try_from(made)
        .map_err(|_too_large| ActFailure::unready(format!("{at} answered {made}, no descriptor")))?;
    // SAFETY: the kernel has just made this descriptor for us and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Takes hold of a descriptor that the kernel has just written into memory of ours.
pub fn own(number: i32) -> OwnedFd {
    // SAFETY: socketpair(2) or pipe2(2) has just made this number, and nobody else holds it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Opens `path`, relative to the current directory.
pub fn open(at: &str, path: &CStr, flags: i32) -> Result<OwnedFd, ActFailure> {
    let flags = flags | libc::O_CLOEXEC;
    call_fd(at, libc::SYS_openat, &[int(libc::AT_FDCWD), text(path), int(flags), int(0o600)])
}

fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// A C string; the words of a command line hold no NUL.
pub fn c(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// Which side of a fork this is.
pub enum ForkSide {
    Child,
    Parent(i32),
}

/// Forks by the raw call, so that a filter sees `clone` with the flags given and nothing else.
pub fn fork_with(at: &str, flags: u64) -> Result<ForkSide, ActFailure> {
    let flags = flags | libc::SIGCHLD as u64;
    match call(at, libc::SYS_clone, &[bits(flags), null(), null(), null(), null()])? {
        0 => Ok(ForkSide::Child),
        pid => Ok(ForkSide::Parent(i32::try_from(pid).unwrap_or(i32::MAX))),
    }
}

/// How a child ended.
pub enum ChildEnd {
    Exit(i32),
    Signal(i32),
}

/// Waits for a child of ours.
pub fn wait(pid: i32) -> Result<ChildEnd, ActFailure> {
    let mut status = 0_i32;
    loop {
        match call("wait4", libc::SYS_wait4, &[int(pid), into(&mut status), int(0), null()]) {
            Ok(_) if libc::WIFSIGNALED(status) => return Ok(ChildEnd::Signal(libc::WTERMSIG(status))),
            Ok(_) => return Ok(ChildEnd::Exit(libc::WEXITSTATUS(status))),
            Err(failure) if failure.is_errno(libc::EINTR) => {}
            Err(failure) => return Err(failure),
        }
    }
}

/// Ends this process at once: no destructor, no buffer, as a forked copy must.
pub fn exit(status: i32) -> ! {
    // SAFETY: takes an integer and does not return.
    unsafe { libc::_exit(status) }
}

/// Runs `work` in a forked child and brings its answer home through a pipe; a child that the kernel kills is
/// reported by its signal.
pub fn in_child(at: &str, work: impl FnOnce() -> i64) -> Result<i64, ActFailure> {
    let mut ends = [0_i32; 2];
    call("pipe2", libc::SYS_pipe2, &[into(&mut ends), int(libc::O_CLOEXEC)])?;
    let (reader, writer) = (own(ends[0]), own(ends[1]));
    let ForkSide::Parent(pid) = fork_with("fork", 0)? else {
        let answer = work().to_ne_bytes();
        let told = call("write", libc::SYS_write, &[fd(&writer), from(&answer), len(&answer)]);
        exit(i32::from(told.is_err()));
    };
    drop(writer);
    if let ChildEnd::Signal(signal) = wait(pid)? {
        return Err(ActFailure::signal(at, signal));
    }
    // A child that executed another program has nothing to say: the pipe is at its end and the answer stays 0.
    let mut answer = [0_u8; 8];
    call("read", libc::SYS_read, &[fd(&reader), into(&mut answer), int(8)])?;
    match i64::from_ne_bytes(answer) {
        value @ -4095..=-1 => Err(ActFailure::errno(at, i32::try_from(-value).unwrap_or(libc::EIO))),
        value => Ok(value),
    }
}

/// A system call with the kernel's own return value, for a child of `in_child`.
pub fn raw(number: i64, args: &[Arg<'_>]) -> i64 {
    match call("", number, args) {
        Ok(value) => value,
        Err(failure) => -i64::from(failure.errno_number()),
    }
}

/// Call `number` of the 32-bit table by its own gate, which a filter sees as another architecture (D5).
#[cfg(target_arch = "x86_64")]
pub fn int80(number: i32, args: [i32; 3]) -> i64 {
    let mut answer = number;
    // SAFETY: the gate clobbers eax and r8 to r11 at most, and rbx is put back; the arguments are integers, and those
    // that a call takes for addresses lie below 4 GiB, where this process has nothing mapped that it depends on.
    unsafe {
        std::arch::asm!(
            "xchg {first:r}, rbx",
            "int 0x80",
            "xchg {first:r}, rbx",
            first = inout(reg) i64::from(args[0]) => _,
            inout("eax") answer,
            in("ecx") args[1],
            in("edx") args[2],
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    i64::from(answer)
}

/// Kills the probe by SIGALRM after this many seconds: a probe that hangs must fail its test, not stall it.
pub fn deadline(seconds: u32) {
    // SAFETY: takes an integer only; the answer is what remained of an earlier alarm, of which there is none.
    unsafe { libc::alarm(seconds) };
}

/// Calls of the first tables, which newer architectures never had: there the number answers ENOSYS.
pub mod legacy {
    macro_rules! numbers {
        ($($name:ident = $number:ident)*) => {
            $(
                #[cfg(target_arch = "x86_64")]
                pub const $name: i64 = libc::$number;
                #[cfg(not(target_arch = "x86_64"))]
                pub const $name: i64 = -1;
            )*
        };
    }

    numbers! {
        OPEN = SYS_open
        CREAT = SYS_creat
        CHMOD = SYS_chmod
        CHOWN = SYS_chown
        LCHOWN = SYS_lchown
        UTIME = SYS_utime
        MODIFY_LDT = SYS_modify_ldt
    }
}
