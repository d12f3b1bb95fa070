//! Acts on unix sockets: pathname, abstract, pairs, and descriptors sent across (attack B7).

use std::os::fd::OwnedFd;

use serde_json::json;

use crate::probe::act::{ProbeAct, act};
use crate::probe::network::{WORD, send_message, send_messages};
use crate::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use crate::sys::probe::{call, call_fd, fd, from, int, into, len};

pub(crate) const ACTS: &[ProbeAct] = &[
    act("unix-connect", "B7", "PATH [stream|seqpacket|dgram]", "connect to a pathname socket", connect_path),
    act("unix-dgram", "B7", "PATH", "sendto a pathname datagram socket", dgram),
    act("unix-dgram-sendmmsg", "B7", "PATH", "sendmmsg to a pathname datagram socket", dgram_sendmmsg),
    act("unix-dgram-pair-sendmsg", "B7", "PATH", "a datagram pair's end sends to PATH by msg_name", pair_sendmsg),
    act("unix-dgram-pair-sendto", "B7", "PATH", "a datagram pair's end sends to PATH by sendto", pair_sendto),
    act("unix-abstract", "B7", "NAME", "connect to an abstract socket", connect_abstract),
    act("unix-abstract-dgram", "B7", "NAME", "sendto an abstract datagram socket", dgram_abstract),
];

pub fn name(path: &str, abstract_name: bool) -> Result<Vec<u8>, ActFailure> {
    let mut bytes = u16::try_from(libc::AF_UNIX).unwrap_or(0).to_ne_bytes().to_vec();
    if abstract_name {
        bytes.push(0);
        bytes.extend(path.as_bytes());
    } else {
        bytes.extend(path.as_bytes());
        bytes.push(0);
    }
    if bytes.len() > 110 {
        return Err(ActFailure::unready(format!("{path} is longer than sun_path")));
    }
    Ok(bytes)
}

pub fn socket(kind: i32) -> Result<OwnedFd, ActFailure> {
    call_fd("socket", libc::SYS_socket, &[int(libc::AF_UNIX), int(kind | libc::SOCK_CLOEXEC), int(0)])
}

fn kind(word: &str) -> Result<i32, ActFailure> {
    match word {
        "stream" => Ok(libc::SOCK_STREAM),
        "seqpacket" => Ok(libc::SOCK_SEQPACKET),
        "dgram" => Ok(libc::SOCK_DGRAM),
        _ => Err(ActFailure::unready(format!("{word}: stream, seqpacket or dgram"))),
    }
}

fn connect(name: &[u8], kind: i32) -> ActOutcome {
    let socket = socket(kind)?;
    call("connect", libc::SYS_connect, &[fd(&socket), from(name), len(name)])?;
    call("write", libc::SYS_write, &[fd(&socket), from(WORD), len(WORD)])?;
    Ok(json!({}))
}

fn connect_path(args: &ActArgs<'_>) -> ActOutcome {
    connect(&name(args.word(0)?, false)?, kind(args.word_or(1, "stream"))?)
}

fn connect_abstract(args: &ActArgs<'_>) -> ActOutcome {
    connect(&name(args.word(0)?, true)?, libc::SOCK_STREAM)
}

fn send_by_name(socket: &OwnedFd, name: &[u8]) -> ActOutcome {
    call("sendto", libc::SYS_sendto, &[fd(socket), from(WORD), len(WORD), int(0), from(name), len(name)])?;
    Ok(json!({}))
}

fn dgram(args: &ActArgs<'_>) -> ActOutcome {
    send_by_name(&socket(libc::SOCK_DGRAM)?, &name(args.word(0)?, false)?)
}

fn dgram_abstract(args: &ActArgs<'_>) -> ActOutcome {
    send_by_name(&socket(libc::SOCK_DGRAM)?, &name(args.word(0)?, true)?)
}

fn dgram_sendmmsg(args: &ActArgs<'_>) -> ActOutcome {
    send_messages(&socket(libc::SOCK_DGRAM)?, &name(args.word(0)?, false)?, WORD, 0)?;
    Ok(json!({}))
}

pub fn pair(kind: i32) -> Result<(OwnedFd, OwnedFd), ActFailure> {
    let mut ends = [0_i32; 2];
    let kind = int(kind | libc::SOCK_CLOEXEC);
    call("socketpair", libc::SYS_socketpair, &[int(libc::AF_UNIX), kind, int(0), into(&mut ends)])?;
    Ok((crate::sys::probe::own(ends[0]), crate::sys::probe::own(ends[1])))
}

fn pair_sendmsg(args: &ActArgs<'_>) -> ActOutcome {
    let (end, _other) = pair(libc::SOCK_DGRAM)?;
    send_message(&end, &name(args.word(0)?, false)?, WORD, &[], 0)?;
    Ok(json!({}))
}

fn pair_sendto(args: &ActArgs<'_>) -> ActOutcome {
    let (end, _other) = pair(libc::SOCK_DGRAM)?;
    send_by_name(&end, &name(args.word(0)?, false)?)
}
