//! Acts on the network: every family and every way to reach an address (attacks B1 to B4, B8, B9).

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use serde_json::json;

use crate::probe::act::{ProbeAct, act};
use crate::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use crate::sys::probe::{call, call_fd, fd, from, int, into, len, null};

pub(crate) const ACTS: &[ProbeAct] = &[
    act("tcp-connect", "B5", "ADDR PORT", "connect a TCP socket of ADDR's family", tcp_connect),
    act("v4mapped-connect", "B10", "ADDR PORT", "connect an IPv6 socket to ::ffff:ADDR", tcp6_connect),
    act("mptcp-connect", "B1", "ADDR PORT", "connect a Multipath TCP socket", mptcp_connect),
    act("sctp", "B3", "[ADDR PORT]", "make an SCTP socket; connect it", sctp),
    act("smc", "B1", "", "make an SMC socket", smc),
    act("udp-sendto", "B4", "ADDR PORT", "send a datagram by address", udp_sendto),
    act("udp-connect", "B4", "ADDR PORT", "connect a datagram socket and send", udp_connect),
    act("ping-socket", "B4", "", "make an ICMP datagram socket", ping_socket),
    act("raw", "B8", "", "make a raw ICMP socket", raw),
    act("packet", "B8", "", "make an AF_PACKET socket", packet),
    act("alg", "B8", "", "make an AF_ALG socket", alg),
    act("key", "B8", "", "make an AF_KEY socket", key),
    act("socket", "B8", "FAMILY TYPE PROTOCOL", "make any socket", socket_any),
    act("fastopen-sendto", "B2", "ADDR PORT", "sendto MSG_FASTOPEN", fastopen_sendto),
    act("fastopen-sendmsg", "B2", "ADDR PORT", "sendmsg MSG_FASTOPEN", fastopen_sendmsg),
    act("fastopen-sendmmsg", "B2", "ADDR PORT", "sendmmsg MSG_FASTOPEN", fastopen_sendmmsg),
    act("fastopen-connect", "B2", "ADDR PORT", "TCP_FASTOPEN_CONNECT, connect, write", fastopen_connect),
    act("io-uring-setup", "B9", "", "make an io_uring", io_uring_setup),
];

/// `struct sockaddr_in` or `sockaddr_in6`, byte by byte.
pub fn sockaddr(address: SocketAddr) -> Vec<u8> {
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

pub fn address(args: &ActArgs<'_>) -> Result<SocketAddr, ActFailure> {
    let (ip, port) = (args.word(0)?, args.number(1)?);
    let ip: IpAddr = ip.parse().map_err(|_not_ip| ActFailure::unready(format!("{ip} is no address")))?;
    let port = u16::try_from(port).map_err(|_too_large| ActFailure::unready(format!("{port} is no port")))?;
    Ok(SocketAddr::new(ip, port))
}

pub fn family(address: SocketAddr) -> i32 {
    if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

pub fn socket(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd, ActFailure> {
    call_fd("socket", libc::SYS_socket, &[int(family), int(kind | libc::SOCK_CLOEXEC), int(protocol)])
}

pub fn connect_to(socket: &OwnedFd, address: &[u8]) -> ActOutcome {
    call("connect", libc::SYS_connect, &[fd(socket), from(address), len(address)])?;
    Ok(json!({}))
}

fn tcp_connect(args: &ActArgs<'_>) -> ActOutcome {
    let address = address(args)?;
    connect_to(&socket(family(address), libc::SOCK_STREAM, 0)?, &sockaddr(address))
}

pub fn tcp6_connect(args: &ActArgs<'_>) -> ActOutcome {
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
pub const WORD: &[u8] = b"callgate-probe";

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
pub struct MessageHeader {
    pub words: [u64; 8],
}

pub fn word_of<T: ?Sized>(memory: &T) -> u64 {
    std::ptr::from_ref(memory).cast::<u8>().expose_provenance() as u64
}

pub fn word_of_mut<T: ?Sized>(memory: &mut T) -> u64 {
    std::ptr::from_mut(memory).cast::<u8>().expose_provenance() as u64
}

impl MessageHeader {
    /// The parts must outlive the call that is made with this.
    pub fn new(name: &[u8], vector: &[u64; 2], control: &[u8]) -> Self {
        let at = |part: &[u8]| if part.is_empty() { 0 } else { word_of(part) };
        Self { words: [at(name), name.len() as u64, word_of(vector), 1, at(control), control.len() as u64, 0, 0] }
    }
}

pub fn send_message(socket: &OwnedFd, name: &[u8], data: &[u8], control: &[u8], flags: i32) -> Result<i64, ActFailure> {
    let vector = [word_of(data), data.len() as u64];
    let message = MessageHeader::new(name, &vector, control);
    call("sendmsg", libc::SYS_sendmsg, &[fd(socket), from(&message.words[..7]), int(flags)])
}

pub fn send_messages(socket: &OwnedFd, name: &[u8], data: &[u8], flags: i32) -> Result<i64, ActFailure> {
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

fn io_uring_setup(_args: &ActArgs<'_>) -> ActOutcome {
    let mut parameters = [0_u64; 15];
    call_fd("io_uring_setup", libc::SYS_io_uring_setup, &[int(4), into(&mut parameters)]).map(|_| json!({}))
}
