//! Acts on other processes, and the processes that an act leaves behind (attacks A7, D1, D2 and kill-tree).

use std::time::Duration;

use serde_json::json;

use crate::probe::act::{ProbeAct, act};
use crate::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use crate::probe::{files, network};
use crate::sys::probe::{self as sys, call, call_fd, fd, int, into, null};

pub(crate) const ACTS: &[ProbeAct] = &[
    act("kill", "D2", "PID SIGNAL", "kill(2); signal 0 asks only", kill),
    act("tkill", "D2", "TID SIGNAL", "tkill(2)", tkill),
    act("tgkill", "D2", "PID SIGNAL", "tgkill(2) of the main thread", tgkill),
    act("sigqueue", "D2", "PID SIGNAL", "rt_sigqueueinfo(2)", sigqueue),
    act("pidfd-signal", "D2", "PID SIGNAL", "pidfd_send_signal(2)", pidfd_signal),
    act("pidfd-getfd", "D1", "PID FD", "take a descriptor of another process", pidfd_getfd),
    act("ptrace-attach", "D1", "PID", "PTRACE_ATTACH, then detach", ptrace_attach),
    act("ptrace-seize", "D1", "PID", "PTRACE_SEIZE", ptrace_seize),
    act("process-vm-readv", "D1", "PID", "read memory of another process", process_vm_readv),
    act("proc-pid", "A7", "PID environ|cmdline|maps|mem|root|cwd|fd|exe", "look through /proc/PID", proc_pid),
    act("prlimit", "D1", "PID [RESOURCE LIMIT]", "set another process's limit: core to 4096", prlimit),
    act("setpriority", "D1", "PID", "renice another process to 19", setpriority),
    act("sched-affinity", "D1", "PID", "bind another process to CPU 0", sched_affinity),
    act("setns", "D3", "PID", "join the network namespace of PID", setns),
    act("kcmp", "D1", "PID", "compare file tables with another process", kcmp),
    act("ps", "A7", "", "every process in /proc with a readable command line", ps),
    act("wait", "D2", "SECONDS", "sleep", wait),
];

fn done() -> ActOutcome {
    Ok(json!({}))
}

fn signal<'a>(args: &ActArgs<'_>) -> Result<sys::Arg<'a>, ActFailure> {
    args.number_or(1, 0).map(int)
}

fn kill(args: &ActArgs<'_>) -> ActOutcome {
    call("kill", libc::SYS_kill, &[int(args.pid(0)?), signal(args)?])?;
    done()
}

fn tkill(args: &ActArgs<'_>) -> ActOutcome {
    call("tkill", libc::SYS_tkill, &[int(args.pid(0)?), signal(args)?])?;
    done()
}

fn tgkill(args: &ActArgs<'_>) -> ActOutcome {
    let pid = args.pid(0)?;
    call("tgkill", libc::SYS_tgkill, &[int(pid), int(pid), signal(args)?])?;
    done()
}

fn sigqueue(args: &ActArgs<'_>) -> ActOutcome {
    // siginfo_t of 128 bytes; si_code SI_QUEUE (-1) in the third word.
    let mut info = [0_i32; 32];
    info[2] = -1;
    call("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, &[int(args.pid(0)?), signal(args)?, into(&mut info)])?;
    done()
}

fn pidfd(args: &ActArgs<'_>) -> Result<std::os::fd::OwnedFd, ActFailure> {
    call_fd("pidfd_open", libc::SYS_pidfd_open, &[int(args.pid(0)?), int(0)])
}

fn pidfd_signal(args: &ActArgs<'_>) -> ActOutcome {
    call("pidfd_send_signal", libc::SYS_pidfd_send_signal, &[fd(&pidfd(args)?), signal(args)?, null(), int(0)])?;
    done()
}

fn pidfd_getfd(args: &ActArgs<'_>) -> ActOutcome {
    let process = pidfd(args)?;
    call_fd("pidfd_getfd", libc::SYS_pidfd_getfd, &[fd(&process), int(args.number_or(1, 0)?), int(0)])?;
    done()
}

fn ptrace(at: &str, request: u32, pid: i32) -> Result<i64, ActFailure> {
    call(at, libc::SYS_ptrace, &[int(request), int(pid), null(), null()])
}

fn ptrace_attach(args: &ActArgs<'_>) -> ActOutcome {
    let pid = args.pid(0)?;
    ptrace("ptrace", libc::PTRACE_ATTACH, pid)?;
    // The target stops; it goes on when the tracer detaches, or dies.
    call("wait4", libc::SYS_wait4, &[int(pid), null(), int(libc::__WALL), null()])?;
    ptrace("detach", libc::PTRACE_DETACH, pid)?;
    done()
}

fn ptrace_seize(args: &ActArgs<'_>) -> ActOutcome {
    ptrace("ptrace", libc::PTRACE_SEIZE, args.pid(0)?)?;
    done()
}

/// Where the target has something mapped; 0x400000, which is refused just the same, where its maps are closed.
fn mapped(pid: i32) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok()).unwrap_or(0x40_0000)
}

fn process_vm_readv(args: &ActArgs<'_>) -> ActOutcome {
    let pid = args.pid(0)?;
    let mut bytes = [0_u8; 4];
    let local = [network::word_of_mut(&mut bytes), 4];
    let remote = [mapped(pid), 4];
    let (local, remote) = (sys::from(&local), sys::from(&remote));
    call("process_vm_readv", libc::SYS_process_vm_readv, &[int(pid), local, int(1), remote, int(1), int(0)])?;
    Ok(json!({ "magic": bytes }))
}

fn proc_pid(args: &ActArgs<'_>) -> ActOutcome {
    let (pid, what) = (args.word(0)?, args.word(1)?);
    let path = format!("/proc/{pid}/{what}");
    match what {
        "root" | "cwd" | "exe" => {
            let target = std::fs::read_link(&path).map_err(|error| ActFailure::io("readlink", &error))?;
            Ok(json!({ "target": target }))
        }
        "fd" => {
            let listing = std::fs::read_dir(&path).map_err(|error| ActFailure::io("open", &error))?;
            Ok(json!({ "count": listing.count() }))
        }
        "mem" => {
            let memory = sys::open("open", &sys::c(&path), libc::O_RDONLY)?;
            let mut bytes = [0_u8; 4];
            let at = mapped(pid.parse().unwrap_or(0)).cast_signed();
            call("pread64", libc::SYS_pread64, &[fd(&memory), into(&mut bytes), int(4), int(at)])?;
            Ok(json!({ "magic": bytes }))
        }
        _ => files::read_path(&path),
    }
}

fn prlimit(args: &ActArgs<'_>) -> ActOutcome {
    let resource = args.number_or(1, i64::from(libc::RLIMIT_MSGQUEUE))?;
    let limit = [args.number_or(2, 4096)?; 2];
    call("prlimit64", libc::SYS_prlimit64, &[int(args.pid(0)?), int(resource), sys::from(&limit), null()])?;
    done()
}

/// The lowest priority: anybody may go there, also where the tests themselves run at a low one.
const LEAST: i32 = 19;

fn setpriority(args: &ActArgs<'_>) -> ActOutcome {
    call("setpriority", libc::SYS_setpriority, &[int(libc::PRIO_PROCESS), int(args.pid(0)?), int(LEAST)])?;
    done()
}

fn sched_affinity(args: &ActArgs<'_>) -> ActOutcome {
    let first = [1_u64; 1];
    call("sched_setaffinity", libc::SYS_sched_setaffinity, &[int(args.pid(0)?), int(8), sys::from(&first)])?;
    done()
}

fn setns(args: &ActArgs<'_>) -> ActOutcome {
    let process = pidfd(args)?;
    call("setns", libc::SYS_setns, &[fd(&process), int(libc::CLONE_NEWNET)])?;
    done()
}

fn kcmp(args: &ActArgs<'_>) -> ActOutcome {
    const KCMP_FILES: i32 = 2;
    let me = i64::from(std::process::id());
    call("kcmp", libc::SYS_kcmp, &[int(me), int(args.pid(0)?), int(KCMP_FILES), int(0), int(0)])?;
    done()
}

fn ps(_args: &ActArgs<'_>) -> ActOutcome {
    let mut seen = serde_json::Map::new();
    let listing = std::fs::read_dir("/proc").map_err(|error| ActFailure::io("open", &error))?;
    for entry in listing.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        if let Ok(line) = std::fs::read(entry.path().join("cmdline")) {
            seen.insert(name, json!(String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    Ok(json!({ "processes": seen }))
}

fn sleep(seconds: i64) {
    std::thread::sleep(Duration::from_secs(seconds.unsigned_abs()));
}

fn wait(args: &ActArgs<'_>) -> ActOutcome {
    sleep(args.number(0)?);
    done()
}
