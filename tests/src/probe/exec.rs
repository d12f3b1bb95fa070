//! Acts on what may be started (attacks C2 to C18): plain, and in races with whoever judges.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::Duration;

use callgate_worker::probe::act::{ProbeAct, act};
use callgate_worker::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use callgate_worker::sys::probe::{self as sys, ChildEnd, ForkSide, bits, call, int, null, text};
use serde_json::json;

use crate::sys::{shared_counter, spawn};

pub(crate) const ACTS: &[ProbeAct] = &[
    act("exec", "C2", "PROGRAM [ARGUMENT…]", "execve(2) in a child", exec),
    act("exec-memfd", "C7", "PROGRAM", "memfd_create(2) with MFD_EXEC, and execveat(2) of what is in it", exec_memfd),
    act(
        "exec-race",
        "C14",
        "string|pointer|shared N PROGRAM GOOD BAD",
        "N times PROGRAM with one letter, while that is exchanged for another",
        exec_race,
    ),
    act("exec-threads", "C14", "THREADS ROUNDS PROGRAM [ARGUMENT…]", "execute from all threads at once", exec_threads),
    act(
        "exec-storm",
        "C14",
        "ROUNDS PROGRAM [ARGUMENT…]",
        "kill, stop and fork while a program is executed",
        exec_storm,
    ),
];

/// An argument vector, and what it points to.
struct Vector {
    /// Kept: the pointers lead here.
    _words: Vec<CString>,
    pointers: Vec<usize>,
}

impl Vector {
    fn new(words: &[String]) -> Self {
        // Made before anything is forked that has no memory to ask for.
        environment();
        Self::of(words.iter().map(|word| sys::c(word)).collect())
    }

    fn of(words: Vec<CString>) -> Self {
        let pointers = words.iter().map(|word| word.as_ptr().expose_provenance()).chain([0]).collect();
        Self { _words: words, pointers }
    }
}

/// This process's own environment: what starts with another is judged by that.
fn environment() -> &'static [usize] {
    static OWN: OnceLock<Vector> = OnceLock::new();
    let entry = |(name, value): (OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    #[allow(clippy::disallowed_methods, reason = "what an act starts is to have what the act was given")]
    let entries = || std::env::vars_os().filter_map(|pair| CString::new(entry(pair)).ok()).collect();
    &OWN.get_or_init(|| Vector::of(entries())).pointers
}

/// Executes, with what it prints going nowhere. Returns -errno if that fails.
fn execute(file: &CString, argv: &[usize]) -> i64 {
    if let Ok(null) = sys::open("open", c"/dev/null", libc::O_WRONLY) {
        let placed = call("dup3", libc::SYS_dup3, &[sys::fd(&null), int(1), int(0)]);
        debug_assert!(placed.is_ok(), "1 can always be replaced");
    }
    sys::raw(libc::SYS_execve, &[text(file), sys::from(argv), sys::from(environment())])
}

fn exec(args: &ActArgs<'_>) -> ActOutcome {
    let (file, argv) = (args.path(0)?, Vector::new(args.rest(0)));
    sys::in_child("execve", || execute(&file, &argv.pointers))?;
    Ok(json!({}))
}

fn exec_memfd(args: &ActArgs<'_>) -> ActOutcome {
    const EXEC: u32 = 0x10;
    let program = std::fs::read(args.word(0)?).map_err(|error| ActFailure::io("read", &error))?;
    let flags = bits(u64::from(libc::MFD_CLOEXEC | EXEC));
    let file = sys::call_fd("memfd_create", libc::SYS_memfd_create, &[text(c"callgate"), flags])?;
    std::io::Write::write_all(
        &mut std::fs::File::from(file.try_clone().map_err(|e| ActFailure::io("dup", &e))?),
        &program,
    )
    .map_err(|error| ActFailure::io("write", &error))?;
    let argv = Vector::new(args.rest(0));
    sys::in_child("execveat", || {
        let words = [sys::fd(&file), text(c""), sys::from(argv.pointers.as_slice()), sys::from(environment())];
        let [fd, path, argv, env] = words;
        sys::raw(libc::SYS_execveat, &[fd, path, argv, env, int(libc::AT_EMPTY_PATH)])
    })?;
    Ok(json!({}))
}

/// Results of many tries. PROGRAM tells by its status what it was started with.
#[derive(Default)]
struct RaceTally {
    /// Status 0.
    good: u64,
    /// Any other status of the program.
    bad: u64,
    /// The call failed with EACCES.
    refused: u64,
    /// It was killed before it ran.
    killed: u64,
    other: u64,
}

impl RaceTally {
    fn count(&mut self, ended: Result<ChildEnd, i32>) {
        let slot = match ended {
            Ok(ChildEnd::Exit(0)) => &mut self.good,
            Ok(ChildEnd::Exit(_)) => &mut self.bad,
            Ok(ChildEnd::Signal(libc::SIGKILL)) => &mut self.killed,
            Err(libc::EACCES) => &mut self.refused,
            Ok(ChildEnd::Signal(_)) | Err(_) => &mut self.other,
        };
        *slot += 1;
    }

    fn facts(&self) -> serde_json::Value {
        let Self { good, bad, refused, killed, other } = self;
        json!({ "good": good, "bad": bad, "refused": refused, "killed": killed, "other": other })
    }
}

/// A racer that outlives who started it ends by itself.
const RACER_SECONDS: u32 = 600;

/// How a racer exchanges the argument.
enum ExchangeKind {
    /// Writes other letters in its place.
    Letters(&'static AtomicU64),
    /// Points to another word.
    Pointer(AtomicUsize),
}

fn exec_race(args: &ActArgs<'_>) -> ActOutcome {
    let (tries, file) = (args.number(1)?, args.path(2)?);
    let letters = |index| -> Result<u64, ActFailure> {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(args.word(index)?.bytes().take(7)).for_each(|(to, from)| *to = from);
        Ok(u64::from_ne_bytes(bytes))
    };
    let (good, bad) = (letters(3)?, letters(4)?);
    let words = [sys::c(args.word(3)?), sys::c(args.word(4)?)];
    let places = [words[0].as_ptr().expose_provenance(), words[1].as_ptr().expose_provenance()];
    // Memory that all children share, and this process too.
    let shared = shared_counter()?;
    shared.store(good, Ordering::Relaxed);
    let how = match args.word(0)? {
        "string" | "shared" => ExchangeKind::Letters(shared),
        "pointer" => ExchangeKind::Pointer(AtomicUsize::new(places[0])),
        _ => return Err(ActFailure::unready("string, pointer or shared")),
    };
    let word = match &how {
        ExchangeKind::Letters(letters) => AtomicUsize::new(std::ptr::from_ref(*letters).expose_provenance()),
        ExchangeKind::Pointer(word) => AtomicUsize::new(word.load(Ordering::Relaxed)),
    };
    let argv = [AtomicUsize::new(file.as_ptr().expose_provenance()), word, AtomicUsize::new(0)];
    let exchange = |round: u64| match &how {
        ExchangeKind::Letters(letters) => letters.store(if round & 1 == 0 { good } else { bad }, Ordering::Relaxed),
        ExchangeKind::Pointer(_) => argv[1].store(places[usize::from(round & 1 == 1)], Ordering::Relaxed),
    };
    // Another process, with other memory but for the shared page; or a thread of this one.
    let other = match args.word(0)? {
        "shared" => match sys::fork_with("fork", 0)? {
            ForkSide::Child => {
                sys::deadline(RACER_SECONDS);
                (0..u64::MAX).for_each(exchange);
                sys::exit(0)
            }
            ForkSide::Parent(other) => Some(other),
        },
        _ => None,
    };
    let over = AtomicBool::new(false);
    let mut tally = RaceTally::default();
    std::thread::scope(|threads| -> Result<(), ActFailure> {
        if other.is_none() {
            threads.spawn(|| (0..).take_while(|_| !over.load(Ordering::Relaxed)).for_each(exchange));
        }
        for _ in 0..tries {
            // Shares this process's memory until its exec, as vfork(2).
            let ended = match spawn(&file, &argv, environment()) {
                Ok(pid) => Ok(sys::wait(pid)?),
                Err(errno) => Err(errno),
            };
            tally.count(ended);
        }
        over.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    if let Some(other) = other {
        call("kill", libc::SYS_kill, &[int(other), int(libc::SIGKILL)])?;
        sys::wait(other)?;
    }
    Ok(tally.facts())
}

fn exec_threads(args: &ActArgs<'_>) -> ActOutcome {
    let (threads, rounds) = (usize::try_from(args.number(0)?).unwrap_or(2), args.number(1)?);
    let (file, argv) = (args.path(2)?, Vector::new(args.rest(2)));
    let mut tally = RaceTally::default();
    for _ in 0..rounds {
        let ForkSide::Parent(child) = sys::fork_with("fork", 0)? else {
            let all = Barrier::new(threads);
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        all.wait();
                        execute(&file, &argv.pointers)
                    });
                }
            });
            sys::exit(77);
        };
        tally.count(Ok(sys::wait(child)?));
    }
    Ok(tally.facts())
}

fn exec_storm(args: &ActArgs<'_>) -> ActOutcome {
    let (rounds, file, argv) = (args.number(0)?, args.path(1)?, Vector::new(args.rest(1)));
    let mut tally = RaceTally::default();
    for round in 0..rounds {
        let ForkSide::Parent(child) = sys::fork_with("fork", 0)? else {
            if round % 4 == 3 {
                // It makes others while it executes, which execute as well.
                std::thread::spawn(|| {
                    loop {
                        match sys::fork_with("fork", 0) {
                            Ok(ForkSide::Child) => sys::exit(0),
                            Ok(ForkSide::Parent(other)) => drop(sys::wait(other)),
                            Err(_) => {}
                        }
                    }
                });
            }
            sys::exit(i32::from(execute(&file, &argv.pointers) != 0) * 77);
        };
        std::thread::sleep(Duration::from_micros(u64::try_from(round * 37 % 900).unwrap_or(0)));
        let signals: &[i32] = match round % 4 {
            0 => &[libc::SIGKILL],
            1 => &[libc::SIGSTOP, libc::SIGCONT],
            2 => &[libc::SIGTSTP, libc::SIGCONT, libc::SIGTERM],
            _ => &[],
        };
        for signal in signals {
            // It may be over.
            let _sent: Result<i64, ActFailure> = call("kill", libc::SYS_kill, &[int(child), int(*signal)]);
        }
        tally.count(Ok(sys::wait(child)?));
    }
    // Whatever is left is a child that was lost.
    let left = call("wait4", libc::SYS_wait4, &[int(-1), null(), int(libc::WNOHANG), null()]);
    let left = !matches!(left, Err(failure) if failure.is_errno(libc::ECHILD));
    let mut facts = tally.facts();
    facts["left"] = json!(left);
    Ok(facts)
}
