//! Acts on what the launcher left behind: descriptors, environment, terminal (attacks A20, B17, D6, A17, E5).

use serde_json::json;

use crate::outcome::{Args, Outcome};
use crate::sys::{bits, call, from, int};
use crate::{Act, act};

pub(crate) const ACTS: &[Act] = &[
    act(
        "list-fds",
        "A20",
        "",
        "every open descriptor and what it is",
        list_fds,
    ),
    act("env", "A17", "", "the environment", env),
    act(
        "tty-sti",
        "D6",
        "FD [HIGHBITS]",
        "TIOCSTI, with these bits above the 32nd of the request",
        tty_sti,
    ),
    act(
        "tty-linux",
        "D6",
        "FD",
        "TIOCLINUX paste of the selection",
        tty_linux,
    ),
];

/// Asks about each number rather than reading /proc/self/fd, which needs a descriptor itself and may be closed.
fn list_fds(_args: &Args<'_>) -> Outcome {
    let mut open = serde_json::Map::new();
    for number in 0..65536 {
        if call(
            "fcntl",
            libc::SYS_fcntl,
            &[int(number), int(libc::F_GETFD), int(0)],
        )
        .is_ok()
        {
            let target = std::fs::read_link(format!("/proc/self/fd/{number}"));
            let target = target.map_or_else(|_| "?".to_owned(), |path| path.display().to_string());
            open.insert(number.to_string(), json!(target));
        }
    }
    Ok(json!({ "fds": open }))
}

fn env(_args: &Args<'_>) -> Outcome {
    let variables: serde_json::Map<_, _> = std::env::vars_os()
        .map(|(key, value)| {
            (
                key.to_string_lossy().into_owned(),
                json!(value.to_string_lossy()),
            )
        })
        .collect();
    Ok(json!({ "env": variables }))
}

fn tty_sti(args: &Args<'_>) -> Outcome {
    let high = args.number_or(1, 0)?.cast_unsigned();
    let request = libc::TIOCSTI | high << 32;
    call(
        "TIOCSTI",
        libc::SYS_ioctl,
        &[int(args.number(0)?), bits(request), from(&b'x')],
    )?;
    Ok(json!({}))
}

fn tty_linux(args: &Args<'_>) -> Outcome {
    const TIOCLINUX: u64 = 0x541c;
    const TIOCL_PASTESEL: u8 = 3;
    call(
        "TIOCLINUX",
        libc::SYS_ioctl,
        &[
            int(args.number(0)?),
            bits(TIOCLINUX),
            from(&[TIOCL_PASTESEL, 0]),
        ],
    )
    .map(|_| json!({}))
}
