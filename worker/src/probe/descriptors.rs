//! Acts on what the launcher left behind: descriptors, environment, terminal (attacks A20, B17, D6, A17, E5).

use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::json;

use crate::probe::act::{ProbeAct, act};
use crate::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use crate::sys::probe::{self as sys, ForkSide, bits, call, call_fd, fd, from, int};

pub(crate) const ACTS: &[ProbeAct] = &[
    act(
        "under-terminal",
        "D6",
        "COMMAND…",
        "run a command with a terminal of its own as standard input",
        under_terminal,
    ),
    act("env", "A17", "", "the environment", env),
    act("tty-sti", "D6", "FD [HIGHBITS]", "TIOCSTI, with these bits above the 32nd of the request", tty_sti),
    act("tty-linux", "D6", "FD", "TIOCLINUX paste of the selection", tty_linux),
];

fn env(_args: &ActArgs<'_>) -> ActOutcome {
    #[allow(clippy::disallowed_methods, reason = "what was let through is what this act is about")]
    let variables: serde_json::Map<_, _> = std::env::vars_os()
        .map(|(key, value)| (key.to_string_lossy().into_owned(), json!(value.to_string_lossy())))
        .collect();
    Ok(json!({ "env": variables }))
}

fn tty_sti(args: &ActArgs<'_>) -> ActOutcome {
    let high = args.number_or(1, 0)?.cast_unsigned();
    let request = libc::TIOCSTI | high << 32;
    call("TIOCSTI", libc::SYS_ioctl, &[int(args.number(0)?), bits(request), from(&b'x')])?;
    Ok(json!({}))
}

fn tty_linux(args: &ActArgs<'_>) -> ActOutcome {
    const TIOCLINUX: u64 = 0x541c;
    const TIOCL_PASTESEL: u8 = 3;
    call("TIOCLINUX", libc::SYS_ioctl, &[int(args.number(0)?), bits(TIOCLINUX), from(&[TIOCL_PASTESEL, 0])])
        .map(|_| json!({}))
}

/// Becomes the parent of COMMAND, which gets a new session and, as its standard input and controlling terminal, the other
/// end of a pseudo-terminal. Prints nothing of its own: the command's output and exit status are the answer.
fn under_terminal(args: &ActArgs<'_>) -> ActOutcome {
    const TIOCSPTLCK: u64 = 0x4004_5431;
    const TIOCGPTPEER: u64 = 0x5441;
    const TIOCSCTTY: u64 = 0x540e;
    let program = args.word(0)?;
    let master = sys::open("open", c"/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY)?;
    let unlocked = 0_i32;
    call("TIOCSPTLCK", libc::SYS_ioctl, &[fd(&master), bits(TIOCSPTLCK), from(&unlocked)])?;
    let flags = int(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
    let slave = call_fd("TIOCGPTPEER", libc::SYS_ioctl, &[fd(&master), bits(TIOCGPTPEER), flags])?;
    let ForkSide::Parent(child) = sys::fork_with("fork", 0)? else {
        let ready = call("setsid", libc::SYS_setsid, &[])
            .and_then(|_| call("TIOCSCTTY", libc::SYS_ioctl, &[fd(&slave), bits(TIOCSCTTY), int(0)]))
            .and_then(|_| call("dup3", libc::SYS_dup3, &[fd(&slave), int(0), int(0)]));
        if ready.is_ok() {
            let error = Command::new(program).args(args.rest(1)).exec();
            eprintln!("probe: {program}: {error}");
        }
        sys::exit(75);
    };
    match sys::wait(child)? {
        sys::ChildEnd::Exit(status) => sys::exit(status),
        sys::ChildEnd::Signal(number) => Err(ActFailure::signal(program, number)),
    }
}
