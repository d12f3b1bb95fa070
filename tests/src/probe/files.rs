//! Acts on paths: contents, names and metadata (attacks A5, A6, A7, A12, A13 and the plain ones).

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use callgate_worker::probe::act::{ProbeAct, act};
use callgate_worker::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use callgate_worker::sys::probe::{self as sys, call, fd, from, int, into, len, text};
use serde_json::json;

pub(crate) const ACTS: &[ProbeAct] = &[
    act("mkfifo", "A13", "PATH", "make a FIFO", mkfifo),
    act("getxattr", "A12", "PATH", "read user.callgate", getxattr),
    act("fallocate", "A12", "PATH", "give back the first 8192 bytes", fallocate),
    act(
        "truncate-race",
        "A6",
        "DIRECTORY PATH N",
        "truncate a file of a directory (or TMPDIR) in every way, N times, while threads swap its name with a link to PATH",
        truncate_race,
    ),
    act("open-race", "A6", "PATH_OK PATH_BAD N", "truncate by open(2) N times while threads swap the name", open_race),
    act("metadata-race", "A6", "PATH_OK PATH_BAD N", "chmod 0666 N times while threads swap the name", metadata_race),
];

fn cwd<'a>() -> sys::Arg<'a> {
    int(libc::AT_FDCWD)
}

fn mkfifo(args: &ActArgs<'_>) -> ActOutcome {
    call("mknodat", libc::SYS_mknodat, &[cwd(), text(&args.path(0)?), int(libc::S_IFIFO | 0o600), int(0)])?;
    Ok(json!({}))
}

fn getxattr(args: &ActArgs<'_>) -> ActOutcome {
    let mut value = [0_u8; 64];
    let size = len(&value);
    let path = args.path(0)?;
    call("getxattr", libc::SYS_getxattr, &[text(&path), text(c"user.callgate"), into(&mut value), size])?;
    Ok(json!({}))
}

fn fallocate(args: &ActArgs<'_>) -> ActOutcome {
    let file = sys::open("open", &args.path(0)?, libc::O_WRONLY)?;
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    call("fallocate", libc::SYS_fallocate, &[fd(&file), int(punch), int(0), int(8192)])?;
    Ok(json!({}))
}

fn metadata_race(args: &ActArgs<'_>) -> ActOutcome {
    race((&args.path(0)?, &args.path(1)?), args.number(2)?, |name, _| {
        call("fchmodat", libc::SYS_fchmodat, &[cwd(), from(name), int(0o666)]).map(drop)
    })
}

fn open_race(args: &ActArgs<'_>) -> ActOutcome {
    let flags = libc::O_WRONLY | libc::O_TRUNC;
    race((&args.path(0)?, &args.path(1)?), args.number(2)?, |name, _| {
        sys::call_fd("openat", libc::SYS_openat, &[cwd(), from(name), int(flags)]).map(drop)
    })
}

fn truncate_race(args: &ActArgs<'_>) -> ActOutcome {
    let directory = match args.word(0)? {
        "TMPDIR" => std::env::temp_dir(),
        path => path.into(),
    };
    // Names of one letter are never torn.
    let names = ["x", "y"].map(|name| directory.join(name));
    std::fs::write(&names[0], "x").map_err(|e| ActFailure::io("write", &e))?;
    // There from the last time, perhaps.
    let _absent = std::fs::remove_file(&names[1]);
    std::os::unix::fs::symlink(args.word(1)?, &names[1]).map_err(|e| ActFailure::io("symlink", &e))?;
    let [good, bad] = names.map(|name| CString::new(name.as_os_str().as_bytes()).unwrap_or_default());
    let flags = [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR | libc::O_CREAT].map(|flags| flags | libc::O_TRUNC);
    race((&good, &bad), args.number(2)?, |name, round| {
        let Some(flags) = flags.get(round % 4) else {
            return call("truncate", libc::SYS_truncate, &[from(name), int(0)]).map(drop);
        };
        sys::call_fd("openat", libc::SYS_openat, &[cwd(), from(name), int(*flags), int(0o600)]).map(drop)
    })
}

/// Acts on a name that two other threads keep exchanging in place. A checker that reads the name, decides, and lets the
/// kernel read it again loses (A6). A torn name is no file, so both names should have equal lengths.
fn race(
    (good, bad): (&CString, &CString),
    rounds: i64,
    act: impl Fn(&[AtomicU8], usize) -> Result<(), ActFailure>,
) -> ActOutcome {
    let size = good.as_bytes_with_nul().len().max(bad.as_bytes_with_nul().len());
    let name: Vec<AtomicU8> = (0..size).map(|_| AtomicU8::new(0)).collect();
    let put = |path: &CString| {
        for (slot, &byte) in name.iter().zip(path.as_bytes_with_nul()) {
            slot.store(byte, Ordering::Relaxed);
        }
    };
    put(good);
    let over = AtomicBool::new(false);
    let start = Barrier::new(3);
    let (mut done, mut refused, mut torn) = (0_u64, 0_u64, 0_u64);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                start.wait();
                while !over.load(Ordering::Relaxed) {
                    put(bad);
                    put(good);
                }
            });
        }
        // All three at once: the rounds are over sooner than a thread starts.
        start.wait();
        for round in 0..usize::try_from(rounds).unwrap_or(0) {
            match act(&name, round) {
                Ok(()) => done += 1,
                Err(failure) if failure.is_errno(libc::ENOENT) => torn += 1,
                Err(_) => refused += 1,
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    Ok(json!({ "done": done, "refused": refused, "torn": torn }))
}
