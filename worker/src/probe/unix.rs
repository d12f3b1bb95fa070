//! Acts on unix sockets: pathname, abstract, pairs, and descriptors sent across (attack B7).

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use serde_json::json;

use crate::probe::act::{ProbeAct, act};
use crate::probe::network::{send_message, send_messages, word_of, word_of_mut};
use crate::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use crate::sys::probe::{call, call_fd, fd, from, int, into, len};

pub(crate) const ACTS: &[ProbeAct] = &[
    act("unix-connect", "B7", "PATH [stream|seqpacket|dgram]", "connect to a pathname socket", connect_path),
    act("unix-dgram", "B7", "PATH", "sendto a pathname datagram socket", dgram),
    act("unix-dgram-sendmmsg", "B7", "PATH", "sendmmsg to a pathname datagram socket", dgram_sendmmsg),
    act("unix-dgram-pair-sendmsg", "B7", "PATH", "a datagram pair's end sends to PATH by msg_name", pair_sendmsg),
    act("unix-dgram-pair-sendto", "B7", "PATH", "a datagram pair's end sends to PATH by sendto", pair_sendto),
    act("unix-abstract", "B7", "NAME", "connect to an abstract socket", connect_abstract),
    act("unix-abstract-bind", "B7", "NAME", "bind an abstract socket and listen", bind_abstract),
    act("unix-abstract-dgram", "B7", "NAME", "sendto an abstract datagram socket", dgram_abstract),
    act("unix-bind", "B7", "PATH", "bind a pathname socket and listen", bind_path),
    act("unix-self", "B7", "DIR", "one's own server and client in DIR", self_path),
    act("unix-self-abstract", "B7", "NAME", "one's own server and client, abstract", self_abstract),
    act("socketpair-stream", "B7", "", "a stream pair carries a word", pair_stream),
    act("socketpair-seqpacket", "B7", "", "a seqpacket pair carries a word", pair_seqpacket),
    act("socketpair-dgram", "B7", "", "a datagram pair carries a word", pair_dgram),
    act("scm-rights-self", "B7", "", "send a descriptor through one's own pair", scm_rights),
];

const WORD: &[u8] = b"callgate-probe";

pub(crate) fn name(path: &str, abstract_name: bool) -> Result<Vec<u8>, ActFailure> {
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

fn socket(kind: i32) -> Result<OwnedFd, ActFailure> {
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

pub(crate) fn pair(kind: i32) -> Result<(OwnedFd, OwnedFd), ActFailure> {
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

fn bind(name: &[u8]) -> ActOutcome {
    let socket = socket(libc::SOCK_STREAM)?;
    call("bind", libc::SYS_bind, &[fd(&socket), from(name), len(name)])?;
    call("listen", libc::SYS_listen, &[fd(&socket), int(8)])?;
    Ok(json!({}))
}

fn bind_abstract(args: &ActArgs<'_>) -> ActOutcome {
    bind(&name(args.word(0)?, true)?)
}

fn bind_path(args: &ActArgs<'_>) -> ActOutcome {
    bind(&name(args.word(0)?, false)?)
}

fn serve(address: &SocketAddr) -> ActOutcome {
    let failed = |at: &'static str| move |error: std::io::Error| ActFailure::io(at, &error);
    let listener = UnixListener::bind_addr(address).map_err(failed("bind"))?;
    let server = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _peer) = listener.accept()?;
        let mut word = [0_u8; WORD.len()];
        stream.read_exact(&mut word)?;
        stream.write_all(&word)
    });
    let mut stream = UnixStream::connect_addr(address).map_err(failed("connect"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(failed("setsockopt"))?;
    stream.write_all(WORD).map_err(failed("write"))?;
    let mut answer = [0_u8; WORD.len()];
    stream.read_exact(&mut answer).map_err(failed("read"))?;
    server.join().map_err(|_panic| ActFailure::unready("the server thread panicked"))?.map_err(failed("accept"))?;
    Ok(json!({}))
}

fn self_path(args: &ActArgs<'_>) -> ActOutcome {
    let path = format!("{}/probe-{}.sock", args.word(0)?, std::process::id());
    serve(&SocketAddr::from_pathname(path).map_err(|error| ActFailure::unready(error.to_string()))?)
}

fn self_abstract(args: &ActArgs<'_>) -> ActOutcome {
    let name = args.word_or(0, "callgate-probe-self");
    serve(&SocketAddr::from_abstract_name(name).map_err(|error| ActFailure::unready(error.to_string()))?)
}

fn carry(kind: i32) -> ActOutcome {
    let (one, other) = pair(kind)?;
    call("write", libc::SYS_write, &[fd(&one), from(WORD), len(WORD)])?;
    let mut word = [0_u8; 64];
    let size = len(&word);
    let got = call("read", libc::SYS_read, &[fd(&other), into(&mut word), size])?;
    Ok(json!({ "bytes": got }))
}

fn pair_stream(_args: &ActArgs<'_>) -> ActOutcome {
    carry(libc::SOCK_STREAM)
}

fn pair_seqpacket(_args: &ActArgs<'_>) -> ActOutcome {
    carry(libc::SOCK_SEQPACKET)
}

fn pair_dgram(_args: &ActArgs<'_>) -> ActOutcome {
    carry(libc::SOCK_DGRAM)
}

fn scm_rights(_args: &ActArgs<'_>) -> ActOutcome {
    let (one, other) = pair(libc::SOCK_STREAM)?;
    let (gift, _end) = pair(libc::SOCK_STREAM)?;
    // struct cmsghdr {u64 len 20, i32 SOL_SOCKET, i32 SCM_RIGHTS}, the descriptor, 4 bytes of padding.
    let mut control = 20_u64.to_ne_bytes().to_vec();
    control.extend(libc::SOL_SOCKET.to_ne_bytes());
    control.extend(libc::SCM_RIGHTS.to_ne_bytes());
    control.extend(gift.as_raw_fd().to_ne_bytes());
    control.extend([0; 4]);
    send_message(&one, &[], WORD, &control, 0)?;
    let (mut word, mut taken) = ([0_u8; 64], [0_u8; 24]);
    let vector = [word_of_mut(&mut word), 64];
    let mut message = [0, 0, word_of(&vector), 1, word_of_mut(&mut taken), 24, 0_u64];
    call("recvmsg", libc::SYS_recvmsg, &[fd(&other), into(&mut message), int(0)])?;
    Ok(json!({ "control": message[5] }))
}
