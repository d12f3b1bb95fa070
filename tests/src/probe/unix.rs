//! Acts on unix sockets: pathname, abstract, pairs, and descriptors sent across (attack B7).

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use callgate_worker::probe::act::{ProbeAct, act};
use callgate_worker::probe::network::{WORD, send_message, word_of, word_of_mut};
use callgate_worker::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use callgate_worker::probe::unix::{name, pair, socket};
use callgate_worker::sys::probe::{call, fd, from, int, into, len};
use serde_json::json;

pub(crate) const ACTS: &[ProbeAct] = &[
    act("unix-abstract-bind", "B7", "NAME", "bind an abstract socket and listen", bind_abstract),
    act("unix-bind", "B7", "PATH", "bind a pathname socket and listen", bind_path),
    act("unix-self", "B7", "DIR", "one's own server and client in DIR", self_path),
    act("unix-self-abstract", "B7", "NAME", "one's own server and client, abstract", self_abstract),
    act("socketpair-stream", "B7", "", "a stream pair carries a word", pair_stream),
    act("socketpair-seqpacket", "B7", "", "a seqpacket pair carries a word", pair_seqpacket),
    act("socketpair-dgram", "B7", "", "a datagram pair carries a word", pair_dgram),
    act("scm-rights-self", "B7", "", "send a descriptor through one's own pair", scm_rights),
];

fn bind_abstract(args: &ActArgs<'_>) -> ActOutcome {
    bind(&name(args.word(0)?, true)?)
}

fn bind_path(args: &ActArgs<'_>) -> ActOutcome {
    bind(&name(args.word(0)?, false)?)
}

fn self_path(args: &ActArgs<'_>) -> ActOutcome {
    let path = format!("{}/probe-{}.sock", args.word(0)?, std::process::id());
    serve(&SocketAddr::from_pathname(path).map_err(|error| ActFailure::unready(error.to_string()))?)
}

fn self_abstract(args: &ActArgs<'_>) -> ActOutcome {
    let name = args.word_or(0, "callgate-probe-self");
    serve(&SocketAddr::from_abstract_name(name).map_err(|error| ActFailure::unready(error.to_string()))?)
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

fn bind(name: &[u8]) -> ActOutcome {
    let socket = socket(libc::SOCK_STREAM)?;
    call("bind", libc::SYS_bind, &[fd(&socket), from(name), len(name)])?;
    call("listen", libc::SYS_listen, &[fd(&socket), int(8)])?;
    Ok(json!({}))
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

fn carry(kind: i32) -> ActOutcome {
    let (one, other) = pair(kind)?;
    call("write", libc::SYS_write, &[fd(&one), from(WORD), len(WORD)])?;
    let mut word = [0_u8; 64];
    let size = len(&word);
    let got = call("read", libc::SYS_read, &[fd(&other), into(&mut word), size])?;
    Ok(json!({ "bytes": got }))
}
