//! Acts on the network: every family and every way to reach an address (attacks B1 to B4, B8, B9).

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use callgate_worker::probe::act::{ProbeAct, act};
use callgate_worker::probe::network::{WORD, address, connect_to, family, sockaddr, socket, tcp6_connect};
use callgate_worker::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use callgate_worker::sys::probe::{call, fd, from, int, into, len, null};
use serde_json::json;

pub(crate) const ACTS: &[ProbeAct] = &[
    act("tcp6-connect", "B5", "ADDR PORT", "the same by an IPv6 socket; an IPv4 ADDR is mapped", tcp6_connect),
    act("netlink", "B8", "", "make a route netlink socket and ask for links; their names", netlink),
    act("vsock", "B8", "", "make an AF_VSOCK socket and connect to the host", vsock),
    act("tcp-listen", "B5", "[ADDR] [SECONDS]", "bind ADDR:0 (0.0.0.0), listen, stay", tcp_listen),
    act("listen-without-bind", "B5", "", "listen on a socket that was never bound", listen_without_bind),
    act("bind", "B5", "ADDR PORT", "bind a TCP socket", bind),
    act(
        "loopback-self",
        "B5",
        "[FORM]",
        "one's own server and client: 127.0.0.1, ::1, 0.0.0.0, dual, localhost",
        loopback_self,
    ),
];

fn netlink(_args: &ActArgs<'_>) -> ActOutcome {
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    // nlmsghdr {len 32, RTM_GETLINK 18, NLM_F_REQUEST|NLM_F_DUMP 0x301, seq 1, pid 0} and an empty ifinfomsg.
    let mut request = [0_u8; 32];
    request[0] = 32;
    request[4] = 18;
    request[6..8].copy_from_slice(&0x301_u16.to_ne_bytes());
    request[8] = 1;
    call("sendto", libc::SYS_sendto, &[fd(&socket), from(&request), len(&request), int(0), null(), int(0)])?;
    let mut links = Vec::new();
    loop {
        let mut answer = vec![0_u8; 32 * 1024];
        let size = len(&answer);
        let into = into(answer.as_mut_slice());
        let got = call("recvfrom", libc::SYS_recvfrom, &[fd(&socket), into, size, int(0), null(), null()])?;
        let got = usize::try_from(got).unwrap_or(0);
        if !names_of_links(answer.get(..got).unwrap_or_default(), &mut links) {
            return Ok(json!({ "links": links }));
        }
    }
}

fn vsock(_args: &ActArgs<'_>) -> ActOutcome {
    let socket = socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)?;
    // struct sockaddr_vm: u16 family, u16 zero, u32 port, u32 cid (2 is the host), 4 bytes of zero.
    let mut host = [0_u8; 16];
    host[0..2].copy_from_slice(&u16::try_from(libc::AF_VSOCK).unwrap_or(0).to_ne_bytes());
    host[4..8].copy_from_slice(&1_u32.to_ne_bytes());
    host[8..12].copy_from_slice(&2_u32.to_ne_bytes());
    // Whether somebody listens there is the host's business; that the socket exists is what counts.
    let connected = connect_to(&socket, &host).is_ok();
    Ok(json!({ "connected": connected }))
}

fn tcp_listen(args: &ActArgs<'_>) -> ActOutcome {
    let ip: IpAddr = args.word_or(0, "0.0.0.0").parse().map_err(|_not_ip| ActFailure::unready("no address"))?;
    let at = SocketAddr::new(ip, 0);
    let socket = socket(family(at), libc::SOCK_STREAM, 0)?;
    let name = sockaddr(at);
    call("bind", libc::SYS_bind, &[fd(&socket), from(name.as_slice()), len(&name)])?;
    call("listen", libc::SYS_listen, &[fd(&socket), int(8)])?;
    let listener = TcpListener::from(socket);
    let bound = listener.local_addr().map_err(|error| ActFailure::io("getsockname", &error))?;
    let seconds = args.number_or(1, 0)?;
    if seconds > 0 {
        // The test needs the address while somebody still listens there.
        println!("{}", json!({ "act": "tcp-listen", "ok": true, "address": bound.to_string() }));
        std::thread::sleep(Duration::from_secs(seconds.unsigned_abs()));
    }
    Ok(json!({ "address": bound.to_string() }))
}

fn listen_without_bind(_args: &ActArgs<'_>) -> ActOutcome {
    let socket = socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
    call("listen", libc::SYS_listen, &[fd(&socket), int(8)])?;
    let bound = TcpListener::from(socket).local_addr().map_err(|error| ActFailure::io("getsockname", &error))?;
    Ok(json!({ "address": bound.to_string() }))
}

fn bind(args: &ActArgs<'_>) -> ActOutcome {
    let address = address(args)?;
    let socket = socket(family(address), libc::SOCK_STREAM, 0)?;
    let name = sockaddr(address);
    call("bind", libc::SYS_bind, &[fd(&socket), from(name.as_slice()), len(&name)])?;
    Ok(json!({}))
}

/// A server thread and a client of one process: what every test suite of every tool does, and must keep working.
fn loopback_self(args: &ActArgs<'_>) -> ActOutcome {
    let forms: Vec<&str> = match args.rest(0) {
        [] => vec!["127.0.0.1", "::1", "0.0.0.0", "dual", "localhost"],
        given => given.iter().map(String::as_str).collect(),
    };
    let mut seen = serde_json::Map::new();
    for form in forms {
        seen.insert(form.to_owned(), echo(form)?);
    }
    Ok(json!({ "forms": seen }))
}

/// The names in one answer (rtnetlink(7)). False if it says that it was the last.
fn names_of_links(mut messages: &[u8], links: &mut Vec<String>) -> bool {
    const RTM_NEWLINK: u16 = 16;
    const IFLA_IFNAME: u16 = 3;
    let half = |bytes: &[u8], at: usize| bytes.get(at..at + 2).map_or(0, |half| u16::from_ne_bytes([half[0], half[1]]));
    let step = |length: usize| length.next_multiple_of(4);
    while messages.len() >= 16 {
        // nlmsghdr: its length in 4 bytes, of which the lower half is enough for one link; its type; then an ifinfomsg.
        let (length, kind) = (usize::from(half(messages, 0)), half(messages, 4));
        if kind != RTM_NEWLINK || length < 32 {
            return false;
        }
        let mut attributes = messages.get(32..length).unwrap_or_default();
        while attributes.len() >= 4 {
            let (length, kind) = (usize::from(half(attributes, 0)).max(4), half(attributes, 2));
            if kind == IFLA_IFNAME {
                let name = attributes.get(4..length).unwrap_or_default();
                links.push(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned());
            }
            attributes = attributes.get(step(length)..).unwrap_or_default();
        }
        messages = messages.get(step(length)..).unwrap_or_default();
    }
    true
}

fn echo(form: &str) -> ActOutcome {
    let failed = |at: &'static str| move |error: std::io::Error| ActFailure::io(&format!("{form}: {at}"), &error);
    let bind_to = match form {
        "dual" => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        "localhost" => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        ip => SocketAddr::new(ip.parse().map_err(|_not_ip| ActFailure::unready(format!("{form}: no form")))?, 0),
    };
    let listener = TcpListener::bind(bind_to).map_err(failed("bind"))?;
    let port = listener.local_addr().map_err(failed("getsockname"))?.port();
    let server = std::thread::spawn(move || -> std::io::Result<String> {
        let (mut stream, peer) = listener.accept()?;
        let mut word = [0_u8; WORD.len()];
        stream.read_exact(&mut word)?;
        stream.write_all(&word)?;
        Ok(peer.to_string())
    });
    let mut stream = match form {
        "dual" => TcpStream::connect((Ipv4Addr::LOCALHOST, port)),
        "localhost" => TcpStream::connect(("localhost", port)),
        _ => TcpStream::connect((bind_to.ip(), port)),
    }
    .map_err(failed("connect"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(failed("setsockopt"))?;
    stream.write_all(WORD).map_err(failed("write"))?;
    let mut answer = [0_u8; WORD.len()];
    stream.read_exact(&mut answer).map_err(failed("read"))?;
    let peer = stream.peer_addr().map_err(failed("getpeername"))?.to_string();
    let local = stream.local_addr().map_err(failed("getsockname"))?.to_string();
    let seen = server.join().map_err(|_panic| ActFailure::unready("the server thread panicked"))?;
    let seen = seen.map_err(failed("accept"))?;
    if answer != *WORD {
        return Err(ActFailure::unready(format!("{form}: the echo differs")));
    }
    let facts = json!({ "client_peer": peer, "client_local": local, "server_peer": seen });
    Ok(facts)
}
