//! Acts on the network: every family and every way to reach an address (attacks B1 to B4, B8, B9).

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use serde_json::{Value, json};

use crate::probe::act::{ProbeAct, act};
use crate::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use crate::sys::probe::{call, call_fd, fd, from, int, into, len, null};

pub(crate) const ACTS: &[ProbeAct] = &[
    act("tcp-connect", "B5", "ADDR PORT", "connect a TCP socket of ADDR's family", tcp_connect),
    act("tcp6-connect", "B5", "ADDR PORT", "the same by an IPv6 socket; an IPv4 ADDR is mapped", tcp6_connect),
    act("v4mapped-connect", "B10", "ADDR PORT", "connect an IPv6 socket to ::ffff:ADDR", tcp6_connect),
    act("mptcp-connect", "B1", "ADDR PORT", "connect a Multipath TCP socket", mptcp_connect),
    act("sctp", "B3", "[ADDR PORT]", "make an SCTP socket; connect it", sctp),
    act("smc", "B1", "", "make an SMC socket", smc),
    act("udp-sendto", "B4", "ADDR PORT", "send a datagram by address", udp_sendto),
    act("udp-connect", "B4", "ADDR PORT", "connect a datagram socket and send", udp_connect),
    act("ping-socket", "B4", "", "make an ICMP datagram socket", ping_socket),
    act("raw", "B8", "", "make a raw ICMP socket", raw),
    act("packet", "B8", "", "make an AF_PACKET socket", packet),
    act("netlink", "B8", "", "make a route netlink socket and ask for links; their names", netlink),
    act("vsock", "B8", "", "make an AF_VSOCK socket and connect to the host", vsock),
    act("alg", "B8", "", "make an AF_ALG socket", alg),
    act("key", "B8", "", "make an AF_KEY socket", key),
    act("socket", "B8", "FAMILY TYPE PROTOCOL", "make any socket", socket_any),
    act("fastopen-sendto", "B2", "ADDR PORT", "sendto MSG_FASTOPEN", fastopen_sendto),
    act("fastopen-sendmsg", "B2", "ADDR PORT", "sendmsg MSG_FASTOPEN", fastopen_sendmsg),
    act("fastopen-sendmmsg", "B2", "ADDR PORT", "sendmmsg MSG_FASTOPEN", fastopen_sendmmsg),
    act("fastopen-connect", "B2", "ADDR PORT", "TCP_FASTOPEN_CONNECT, connect, write", fastopen_connect),
    act("tcp-listen", "B5", "[ADDR] [SECONDS]", "bind ADDR:0 (0.0.0.0), listen, stay", tcp_listen),
    act("listen-without-bind", "B5", "", "listen on a socket that was never bound", listen_without_bind),
    act("bind", "B5", "ADDR PORT", "bind a TCP socket", bind),
    act("io-uring-setup", "B9", "", "make an io_uring", io_uring_setup),
    act(
        "loopback-self",
        "B5",
        "[FORM]",
        "one's own server and client: 127.0.0.1, ::1, 0.0.0.0, dual, localhost",
        loopback_self,
    ),
];

/// `struct sockaddr_in` or `sockaddr_in6`, byte by byte.
pub(crate) fn sockaddr(address: SocketAddr) -> Vec<u8> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut bytes = u16::try_from(family).unwrap_or(0).to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes.extend(ip.octets());
            bytes.extend([0; 8]);
        }
        IpAddr::V6(ip) => {
            bytes.extend([0; 4]);
            bytes.extend(ip.octets());
            bytes.extend([0; 4]);
        }
    }
    bytes
}

pub(crate) fn address(args: &ActArgs<'_>) -> Result<SocketAddr, ActFailure> {
    let (ip, port) = (args.word(0)?, args.number(1)?);
    let ip: IpAddr = ip.parse().map_err(|_not_ip| ActFailure::unready(format!("{ip} is no address")))?;
    let port = u16::try_from(port).map_err(|_too_large| ActFailure::unready(format!("{port} is no port")))?;
    Ok(SocketAddr::new(ip, port))
}

pub(crate) fn family(address: SocketAddr) -> i32 {
    if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

pub(crate) fn socket(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd, ActFailure> {
    call_fd("socket", libc::SYS_socket, &[int(family), int(kind | libc::SOCK_CLOEXEC), int(protocol)])
}

fn connect_to(socket: &OwnedFd, address: &[u8]) -> ActOutcome {
    call("connect", libc::SYS_connect, &[fd(socket), from(address), len(address)])?;
    Ok(json!({}))
}

fn tcp_connect(args: &ActArgs<'_>) -> ActOutcome {
    let address = address(args)?;
    connect_to(&socket(family(address), libc::SOCK_STREAM, 0)?, &sockaddr(address))
}

fn tcp6_connect(args: &ActArgs<'_>) -> ActOutcome {
    let given = address(args)?;
    let ip = match given.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    connect_to(&socket(libc::AF_INET6, libc::SOCK_STREAM, 0)?, &sockaddr(SocketAddr::new(ip.into(), given.port())))
}

fn mptcp_connect(args: &ActArgs<'_>) -> ActOutcome {
    let address = address(args)?;
    connect_to(&socket(family(address), libc::SOCK_STREAM, libc::IPPROTO_MPTCP)?, &sockaddr(address))
}

fn sctp(args: &ActArgs<'_>) -> ActOutcome {
    let socket = socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP)?;
    if args.rest(0).is_empty() {
        return Ok(json!({}));
    }
    connect_to(&socket, &sockaddr(address(args)?))
}

fn smc(_args: &ActArgs<'_>) -> ActOutcome {
    const AF_SMC: i32 = 43;
    socket(AF_SMC, libc::SOCK_STREAM, 0).map(|_| json!({}))
}

/// Word that the datagram acts and the fast-open acts send; a listener of the test knows it again.
const WORD: &[u8] = b"callgate-probe";

fn send_to(at: &str, socket: &OwnedFd, flags: i32, address: &[u8]) -> ActOutcome {
    let sent =
        call(at, libc::SYS_sendto, &[fd(socket), from(WORD), len(WORD), int(flags), from(address), len(address)])?;
    Ok(json!({ "sent": sent }))
}

fn udp_sendto(args: &ActArgs<'_>) -> ActOutcome {
    let address = address(args)?;
    send_to("sendto", &socket(family(address), libc::SOCK_DGRAM, 0)?, 0, &sockaddr(address))
}

fn udp_connect(args: &ActArgs<'_>) -> ActOutcome {
    let address = address(args)?;
    let socket = socket(family(address), libc::SOCK_DGRAM, 0)?;
    connect_to(&socket, &sockaddr(address))?;
    let sent = call("send", libc::SYS_sendto, &[fd(&socket), from(WORD), len(WORD), int(0), null(), int(0)])?;
    Ok(json!({ "sent": sent }))
}

fn ping_socket(_args: &ActArgs<'_>) -> ActOutcome {
    socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP).map(|_| json!({}))
}

fn raw(_args: &ActArgs<'_>) -> ActOutcome {
    socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP).map(|_| json!({}))
}

fn packet(_args: &ActArgs<'_>) -> ActOutcome {
    socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map(|_| json!({}))
}

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

fn alg(_args: &ActArgs<'_>) -> ActOutcome {
    socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0).map(|_| json!({}))
}

fn key(_args: &ActArgs<'_>) -> ActOutcome {
    const PF_KEY_V2: i32 = 2;
    socket(libc::AF_KEY, libc::SOCK_RAW, PF_KEY_V2).map(|_| json!({}))
}

fn socket_any(args: &ActArgs<'_>) -> ActOutcome {
    let (family, kind, protocol) = (args.number(0)?, args.number(1)?, args.number_or(2, 0)?);
    call_fd("socket", libc::SYS_socket, &[int(family), int(kind), int(protocol)]).map(|_| json!({}))
}

fn fastopen_sendto(args: &ActArgs<'_>) -> ActOutcome {
    let address = address(args)?;
    send_to("sendto", &socket(family(address), libc::SOCK_STREAM, 0)?, libc::MSG_FASTOPEN, &sockaddr(address))
}

/// `struct iovec` and `struct msghdr`, as words: name, its length, iov, how many, control, its length, flags.
pub(crate) struct MessageHeader {
    pub(crate) words: [u64; 8],
}

pub(crate) fn word_of<T: ?Sized>(memory: &T) -> u64 {
    std::ptr::from_ref(memory).cast::<u8>().expose_provenance() as u64
}

pub(crate) fn word_of_mut<T: ?Sized>(memory: &mut T) -> u64 {
    std::ptr::from_mut(memory).cast::<u8>().expose_provenance() as u64
}

impl MessageHeader {
    /// The parts must outlive the call that is made with this.
    pub(crate) fn new(name: &[u8], vector: &[u64; 2], control: &[u8]) -> Self {
        let at = |part: &[u8]| if part.is_empty() { 0 } else { word_of(part) };
        Self { words: [at(name), name.len() as u64, word_of(vector), 1, at(control), control.len() as u64, 0, 0] }
    }
}

pub(crate) fn send_message(
    socket: &OwnedFd,
    name: &[u8],
    data: &[u8],
    control: &[u8],
    flags: i32,
) -> Result<i64, ActFailure> {
    let vector = [word_of(data), data.len() as u64];
    let message = MessageHeader::new(name, &vector, control);
    call("sendmsg", libc::SYS_sendmsg, &[fd(socket), from(&message.words[..7]), int(flags)])
}

pub(crate) fn send_messages(socket: &OwnedFd, name: &[u8], data: &[u8], flags: i32) -> Result<i64, ActFailure> {
    let vector = [word_of(data), data.len() as u64];
    let message = MessageHeader::new(name, &vector, &[]);
    // One struct mmsghdr: the msghdr and, in the eighth word, the count that the kernel fills in.
    let mut messages = message.words;
    call("sendmmsg", libc::SYS_sendmmsg, &[fd(socket), into(&mut messages), int(1), int(flags)])
}

fn fastopen_sendmsg(args: &ActArgs<'_>) -> ActOutcome {
    let address = address(args)?;
    let socket = socket(family(address), libc::SOCK_STREAM, 0)?;
    let sent = send_message(&socket, &sockaddr(address), WORD, &[], libc::MSG_FASTOPEN)?;
    Ok(json!({ "sent": sent }))
}

fn fastopen_sendmmsg(args: &ActArgs<'_>) -> ActOutcome {
    let address = address(args)?;
    let socket = socket(family(address), libc::SOCK_STREAM, 0)?;
    let sent = send_messages(&socket, &sockaddr(address), WORD, libc::MSG_FASTOPEN)?;
    Ok(json!({ "sent": sent }))
}

fn fastopen_connect(args: &ActArgs<'_>) -> ActOutcome {
    let address = address(args)?;
    let socket = socket(family(address), libc::SOCK_STREAM, 0)?;
    let on = 1_i32;
    call(
        "TCP_FASTOPEN_CONNECT",
        libc::SYS_setsockopt,
        &[fd(&socket), int(libc::IPPROTO_TCP), int(libc::TCP_FASTOPEN_CONNECT), from(&on), int(4)],
    )?;
    connect_to(&socket, &sockaddr(address))?;
    call("write", libc::SYS_write, &[fd(&socket), from(WORD), len(WORD)])?;
    Ok(json!({}))
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

fn io_uring_setup(_args: &ActArgs<'_>) -> ActOutcome {
    let mut parameters = [0_u64; 15];
    call_fd("io_uring_setup", libc::SYS_io_uring_setup, &[int(4), into(&mut parameters)]).map(|_| json!({}))
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
    let facts: Value = json!({ "client_peer": peer, "client_local": local, "server_peer": seen });
    Ok(facts)
}
