//! An older Landlock, acted by a tracer: it answers landlock_create_ruleset(2) as a kernel of that ABI would.
//!
//! The tracer follows everything the command starts, and is otherwise faithful: signals are delivered, group-stops
//! last until SIGCONT (SEIZE and LISTEN), the command's exit status is passed on, and what outlives the command is let
//! go rather than killed, because a supervisor that forgets a daemon must be seen to. Two things differ for the traced:
//! they cannot be traced by anyone else, so nothing that needs ptrace works under this mode; and a child made with
//! CLONE_UNTRACED gets ENOSYS for the call.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crate::sys;

/// Forks, seizes the child before it goes on, and stays behind as its tracer. Returns in the child only.
pub(crate) fn stay_behind(abi: i64) -> io::Result<()> {
    let (mut wait_for_tracer, mut go) = io::pipe()?;
    let Some(child) = sys::fork()? else {
        drop(go);
        let mut byte = [0];
        wait_for_tracer.read_exact(&mut byte)?;
        return Ok(());
    };
    drop(wait_for_tracer);
    let options = libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL;
    sys::ptrace(libc::PTRACE_SEIZE, child, i64::from(options))?;
    sys::forward_signals(child)?;
    go.write_all(&[1])?;
    drop(go);
    let status = trace(child, abi)?;
    if let Some(signal) = status.signal() {
        sys::die_of(signal);
    }
    std::process::exit(status.code().unwrap_or(1))
}

/// Serves every tracee until the command has ended, then lets go of the rest.
fn trace(command: i32, abi: i64) -> io::Result<ExitStatus> {
    let mut tracees = BTreeSet::from([command]);
    let mut ended = None;
    loop {
        let (tid, status) = match sys::wait_any() {
            Ok(change) => change,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                return ended.ok_or(error);
            }
            Err(error) => return Err(error),
        };
        if libc::WIFSTOPPED(status) {
            tracees.insert(tid);
            let served = match ended {
                Some(_) => let_go(tid, status).map(|()| tracees.remove(&tid)).map(drop),
                None => serve(tid, status, abi, &mut tracees),
            };
            gone_is_fine(served)?;
        } else {
            tracees.remove(&tid);
            if tid == command {
                ended = Some(ExitStatus::from_raw(status));
                for &other in &tracees {
                    gone_is_fine(sys::ptrace(libc::PTRACE_INTERRUPT, other, 0))?;
                }
            }
        }
        if let (Some(status), true) = (ended, tracees.is_empty()) {
            return Ok(status);
        }
    }
}

/// A tracee may be killed between its stop and our request.
fn gone_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other,
    }
}

/// The signal that a stop is about to deliver; none for the stops that ptrace itself makes.
fn pending(status: i32) -> i64 {
    if status >> 16 == 0 { i64::from(libc::WSTOPSIG(status)) } else { 0 }
}

fn let_go(tid: i32, status: i32) -> io::Result<()> {
    sys::ptrace(libc::PTRACE_DETACH, tid, pending(status))
}

fn serve(tid: i32, status: i32, abi: i64, tracees: &mut BTreeSet<i32>) -> io::Result<()> {
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        libc::PTRACE_EVENT_SECCOMP => answer(tid, abi)?,
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
            tracees.insert(i32::try_from(sys::event_message(tid)?).unwrap_or(0));
        }
        libc::PTRACE_EVENT_STOP if matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) => {
            return sys::ptrace(libc::PTRACE_LISTEN, tid, 0);
        }
        _ => {}
    }
    sys::ptrace(libc::PTRACE_CONT, tid, pending(status))
}

/// Verdict of a kernel of this ABI to a landlock_create_ruleset, or that it may go on to the real one.
enum RulesetVerdict {
    Value(i64),
    Proceed,
}

#[cfg(target_arch = "x86_64")]
fn answer(tid: i32, abi: i64) -> io::Result<()> {
    let mut registers = sys::registers(tid)?;
    let (attributes, size, flags) = (registers.rdi, registers.rsi, registers.rdx);
    let mut handled = [0_u64; 3];
    if flags == 0 && size >= 8 {
        let words = usize::try_from(size / 8).unwrap_or(3).min(3);
        let known = handled.get_mut(..words).unwrap_or_default();
        // Unreadable attributes stay zero, and the kernel itself answers EFAULT.
        if sys::read_memory(tid, attributes, known).is_err() {
            handled = [0; 3];
        }
    }
    if let RulesetVerdict::Value(value) = verdict(abi, attributes, size, flags, handled) {
        // No call has the number -1, so the kernel runs none and leaves the value in rax.
        registers.orig_rax = u64::MAX;
        registers.rax = value.cast_unsigned();
        sys::set_registers(tid, &registers)?;
    }
    Ok(())
}

#[cfg(not(target_arch = "x86_64"))]
fn answer(_tid: i32, _abi: i64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Rights of the file system known by ABI: 13 in 1, REFER in 2, TRUNCATE in 3, IOCTL_DEV in 5.
fn known_fs(abi: i64) -> u64 {
    let rights = match abi {
        ..=1 => 13,
        2 => 14,
        3 | 4 => 15,
        _ => 16,
    };
    (1 << rights) - 1
}

fn verdict(abi: i64, attributes: u64, size: u64, flags: u64, handled: [u64; 3]) -> RulesetVerdict {
    const VERSION: u64 = 1;
    let refused = |errno: i32| RulesetVerdict::Value(-i64::from(errno));
    if flags != 0 {
        return match flags {
            VERSION if attributes == 0 && size == 0 => RulesetVerdict::Value(abi),
            // The errata query came with ABI 7's kernel.
            _ if abi < 7 => refused(libc::EINVAL),
            _ => RulesetVerdict::Proceed,
        };
    }
    let [fs, net, scoped] = handled;
    // Fields came with 4 (net) and 6 (scoped): to an older kernel they are bytes past its struct, which must be zero.
    if (abi < 4 && net != 0) || (abi < 6 && scoped != 0) {
        return refused(libc::E2BIG);
    }
    if fs & !known_fs(abi) != 0 {
        return refused(libc::EINVAL);
    }
    RulesetVerdict::Proceed
}
