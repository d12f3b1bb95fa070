//! Acts that trace a child of their own (attacks D1, D5, D12). None of them makes two processes trace one another: what
//! comes of that may never end.

use callgate_worker::probe::act::{ProbeAct, act};
use callgate_worker::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use callgate_worker::sys::probe::{self as sys, ChildEnd, ForkSide, bits, call, from, int, into, null};
use serde_json::json;

pub(crate) const ACTS: &[ProbeAct] = &[
    act("trace-child", "D1", "[OPTIONS]", "seize a child with these options, read and write its memory", trace_child),
    act("trace-call", "D5", "", "have a child make another system call than it asks for: add_key(2)", trace_call),
    act("trace-exits", "D12", "", "PTRACE_O_TRACEEXIT by this process, again, and by another", trace_exits),
    act("trace-me", "D1", "", "PTRACE_TRACEME", trace_me),
];

fn ptrace(at: &str, request: u32, pid: i32, address: sys::Arg<'_>, data: sys::Arg<'_>) -> Result<i64, ActFailure> {
    call(at, libc::SYS_ptrace, &[int(request), int(pid), address, data])
}

/// A child that sleeps until it is killed.
fn sleeper() -> Result<i32, ActFailure> {
    match sys::fork_with("fork", 0)? {
        ForkSide::Parent(pid) => Ok(pid),
        ForkSide::Child => loop {
            let _interrupted: Result<i64, ActFailure> =
                call("ppoll", libc::SYS_ppoll, &[null(), int(0), null(), null()]);
        },
    }
}

fn seize(pid: i32, options: i64) -> Result<i64, ActFailure> {
    ptrace("seize", libc::PTRACE_SEIZE, pid, null(), int(options))
}

/// It may stop once more while it ends: who traces it has ended by then, or does so next.
fn end(pid: i32) -> Result<i64, ActFailure> {
    call("kill", libc::SYS_kill, &[int(pid), int(libc::SIGKILL)])
}

fn stopped(pid: i32) -> Result<i32, ActFailure> {
    let mut status = 0_i32;
    call("wait4", libc::SYS_wait4, &[int(pid), into(&mut status), int(libc::__WALL), null()])?;
    if libc::WIFSTOPPED(status) {
        Ok(status)
    } else {
        Err(ActFailure::unready(format!("a stop was due, not {status:#x}")))
    }
}

fn trace_child(args: &ActArgs<'_>) -> ActOutcome {
    const MINE: u64 = 0x6d69_6e65;
    let options = args.number_or(0, 0)?;
    let memory = Box::leak(Box::new([MINE]));
    let address = std::ptr::from_ref(memory).expose_provenance() as u64;
    let child = sleeper()?;
    let traced = (|| {
        seize(child, options)?;
        ptrace("interrupt", libc::PTRACE_INTERRUPT, child, null(), null())?;
        stopped(child)?;
        let mut peeked = [0_u64];
        ptrace("peek", libc::PTRACE_PEEKDATA, child, bits(address), into(&mut peeked))?;
        ptrace("poke", libc::PTRACE_POKEDATA, child, bits(address), bits(MINE + 1))?;
        let mut read = [0_u64];
        let here = [std::ptr::from_mut(&mut read).expose_provenance() as u64, 8];
        let there = [address, 8];
        let vectors = |here| [int(child), from(here), int(1), from(&there), int(1), int(0)];
        call("process_vm_readv", libc::SYS_process_vm_readv, &vectors(&here))?;
        let written = [MINE + 2];
        let here = [std::ptr::from_ref(&written).expose_provenance() as u64, 8];
        call("process_vm_writev", libc::SYS_process_vm_writev, &vectors(&here))?;
        let mut last = [0_u64];
        ptrace("peek", libc::PTRACE_PEEKDATA, child, bits(address), into(&mut last))?;
        ptrace("detach", libc::PTRACE_DETACH, child, null(), null())?;
        let seen = [peeked[0], std::hint::black_box(read)[0], last[0]].map(|word| word.wrapping_sub(MINE));
        Ok(json!({ "seen": seen }))
    })();
    end(child)?;
    traced
}

/// Where the number of a system call stands in the registers that a tracer sets, which of them these are, and how many words.
#[cfg(target_arch = "x86_64")]
const NUMBER: (usize, i64, usize) = (15, 1, 27);
#[cfg(target_arch = "aarch64")]
const NUMBER: (usize, i64, usize) = (0, 0x404, 1);

fn trace_call(_args: &ActArgs<'_>) -> ActOutcome {
    let (at, set, words) = NUMBER;
    let child = match sys::fork_with("fork", 0)? {
        ForkSide::Parent(pid) => pid,
        ForkSide::Child => {
            let asked = ptrace("traceme", libc::PTRACE_TRACEME, 0, null(), null());
            if asked.is_err() {
                sys::exit(125);
            }
            let own = int(std::process::id());
            let _stopped = call("kill", libc::SYS_kill, &[own, int(libc::SIGSTOP)]);
            let answer = call("getppid", libc::SYS_getppid, &[]);
            sys::exit(answer.map_or_else(|failure| failure.errno_number(), |_parent| 0));
        }
    };
    let replaced = (|| {
        stopped(child)?;
        ptrace("syscall", libc::PTRACE_SYSCALL, child, null(), null())?;
        // Of the call that is to be replaced: what it was stopped in ends in user mode.
        stopped(child)?;
        let mut registers = vec![0_u64; words];
        let vector = [registers.as_mut_ptr().expose_provenance() as u64, 8 * words as u64];
        ptrace("get registers", libc::PTRACE_GETREGSET, child, int(set), from(&vector))?;
        let asked = registers[at] & 0xffff_ffff;
        registers[at] = libc::SYS_add_key.cast_unsigned();
        let vector = [registers.as_mut_ptr().expose_provenance() as u64, if words == 1 { 4 } else { 8 * words as u64 }];
        ptrace("set registers", libc::PTRACE_SETREGSET, child, int(set), from(&vector))?;
        ptrace("go on", libc::PTRACE_DETACH, child, null(), null())?;
        Ok(asked)
    })();
    if replaced.is_err() {
        end(child)?;
    }
    let ended = sys::wait(child)?;
    let asked = replaced?;
    match ended {
        ChildEnd::Exit(0) => Ok(json!({ "asked": asked })),
        ChildEnd::Exit(errno) => Err(ActFailure::errno("add_key", errno)),
        ChildEnd::Signal(number) => Err(ActFailure::signal("add_key", number)),
    }
}

/// Each traces children of its own that trace nobody.
fn trace_exits(_args: &ActArgs<'_>) -> ActOutcome {
    let once = |options: i32| {
        let child = sleeper()?;
        let seized = seize(child, options.into());
        end(child)?;
        Ok(seized.map_or_else(|failure| failure.errno_number(), |_zero| 0))
    };
    let exits = libc::PTRACE_O_TRACEEXIT;
    let (first, again) = (once(exits)?, once(exits)?);
    let by_another = |options| sys::in_child("another", || once(options).map_or(-i64::from(libc::EIO), i64::from));
    let (other, plain) = (by_another(exits)?, by_another(0)?);
    Ok(json!({ "first": first, "again": again, "other": other, "plain": plain }))
}

fn trace_me(_args: &ActArgs<'_>) -> ActOutcome {
    ptrace("ptrace", libc::PTRACE_TRACEME, 0, null(), null())?;
    Ok(json!({}))
}
