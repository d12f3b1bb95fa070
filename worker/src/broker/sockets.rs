//! Sockets: a call reaches what it listens on itself, and what its session's host serves it on loopback. In a network
//! namespace of the session's own, datagrams reach what is in that. The program of an agent reaches its session's endpoint.
//!
//! The broker makes each socket, hands the caller a copy and keeps one: so it can connect, bind and listen on exactly
//! that socket without pidfd_getfd(2), which containers refuse. It lets its copy go as soon as the socket has become
//! what it will be, or a peer would never see the end of a connection; except for listening TCP sockets, which may be
//! listened on again with another backlog.

mod endpoint;
mod held;
mod inet;
mod own_network;
mod unix;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use callgate_policy::envelope::Blocked;
use callgate_policy::remarks;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

pub(super) use self::held::CallSockets;
use self::held::{KeptSocket, OnItsWay, SocketFamily, errno, io_errno, make};
use super::caller::Caller;
use super::metadata::int;
use super::network::PendingConnection;
use super::state::{Broker, NotificationHandler};
use crate::protocol::ConnectTarget;
use crate::sys::notify::{self, CallReply, Notification};
use crate::sys::socket as raw;

pub(super) const HANDLERS: &[(libc::c_long, NotificationHandler)] =
    &[(libc::SYS_socket, socket), (libc::SYS_bind, bind), (libc::SYS_listen, listen), (libc::SYS_connect, connect)];

/// Most connections of a call that are on their way at once.
const WAITING: usize = 1024;

/// Purpose of a socket of the network that is none of TCP. Resolvers do not wait for an answer that may not come
/// (glibc, musl, Go); `getaddrinfo` also makes datagram sockets that could wait, to sort what it has found.
fn refused_kind(kind: i32, protocol: i32) -> Blocked {
    match (kind & 0xf, protocol) {
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) if kind & libc::SOCK_NONBLOCK != 0 => Blocked::NameLookup,
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Blocked::DatagramSocket,
        _ => Blocked::OtherSocket,
    }
}

/// Makes stream and seqpacket sockets of three families, and in a network of the session's own what is harmless there. The
/// filter answers for every other family, and for other kinds of
/// unix sockets; checked again, because the two are written apart. Other kinds for the network are refused here, and counted.
fn socket(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    let (domain, kind, protocol) = (int(n.args[0]), int(n.args[1]), int(n.args[2]));
    if let (Some(network), Some(asked)) = (broker.network, own_network::SocketKind::asked(domain, kind, protocol)) {
        broker.call(caller)?;
        return own_network::make(network, asked, kind);
    }
    let (family, address_family) = match domain {
        libc::AF_UNIX => (SocketFamily::Unix, AddressFamily::UNIX),
        libc::AF_INET => (SocketFamily::V4, AddressFamily::INET),
        libc::AF_INET6 => (SocketFamily::V6, AddressFamily::INET6),
        _ => return Err(libc::EAFNOSUPPORT),
    };
    let socket_type = match (kind & 0xf, family) {
        (libc::SOCK_STREAM, _) => SocketType::STREAM,
        (libc::SOCK_SEQPACKET, SocketFamily::Unix) => SocketType::SEQPACKET,
        (_, SocketFamily::Unix) => return Err(libc::EACCES),
        (_, SocketFamily::V4 | SocketFamily::V6) => {
            broker.call(caller)?.changes.blocked(refused_kind(kind, protocol));
            return Err(libc::EACCES);
        }
    };
    let protocol = match (protocol, family) {
        // PF_UNIX is the same as 0 (unix(7)).
        (0, _) | (1, SocketFamily::Unix) => None,
        (libc::IPPROTO_TCP, SocketFamily::V4 | SocketFamily::V6) => Some(rustix::net::ipproto::TCP),
        (_, SocketFamily::Unix) => return Err(libc::EACCES),
        (_, SocketFamily::V4 | SocketFamily::V6) => {
            broker.call(caller)?.changes.blocked(Blocked::OtherSocket);
            return Err(libc::EACCES);
        }
    };
    let mut flags = SocketFlags::CLOEXEC;
    if kind & libc::SOCK_NONBLOCK != 0 {
        flags |= SocketFlags::NONBLOCK;
    }
    let call = broker.call(caller)?;
    let fd = make(address_family, socket_type, flags, protocol)?;
    let inode = rustix::fs::fstat(&fd).map_err(errno)?.st_ino;
    let copy = fd.try_clone().map_err(io_errno)?;
    call.sockets.keep(inode, KeptSocket { fd: copy, family, server: None, failed: false });
    Ok(CallReply::Fd { fd, cloexec: kind & libc::SOCK_CLOEXEC != 0 })
}

/// The inode of the socket that a descriptor of the caller is.
fn inode_of(caller: &Caller<'_>, number: i32) -> Result<u64, i32> {
    let text = caller.describe_fd(number)?;
    let digits = text.strip_prefix(b"socket:[").and_then(|t| t.strip_suffix(b"]")).ok_or(libc::ENOTSOCK)?;
    std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok()).ok_or(libc::EIO)
}

/// An address as the caller gave it, copied once.
fn address(caller: &Caller<'_>, pointer: u64, len: u64) -> Result<Vec<u8>, i32> {
    // sockaddr_storage, the largest address there is (sockaddr(3type)).
    match int(len) {
        len @ 2..=128 => {
            let address = caller.bytes(pointer, len as usize)?;
            caller.is_about(|| shown(&address, SocketFamily::of(&address)?));
            Ok(address)
        }
        _ => Err(libc::EINVAL),
    }
}

fn bind(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    let number = int(n.args[0]);
    let inode = inode_of(caller, number)?;
    let address = address(caller, n.args[1], n.args[2])?;
    match broker.call(caller)?.sockets.get(inode).map(|kept| kept.family) {
        Some(SocketFamily::Unix) => unix::bind(broker, caller, inode, &address)?,
        Some(SocketFamily::V4 | SocketFamily::V6) => inet::bind(broker, caller, inode, &address)?,
        None => own_network::bind(broker, caller, number, &address)?,
    }
    Ok(CallReply::Return(0))
}

fn listen(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    let number = int(n.args[0]);
    let inode = inode_of(caller, number)?;
    let backlog = int(n.args[1]).max(0);
    let sockets = &mut broker.call(caller)?.sockets;
    let Some(kept) = sockets.get(inode) else { return Err(own_network::listen(broker, caller, number)) };
    if kept.family == SocketFamily::Unix {
        rustix::net::listen(&kept.fd, backlog).map_err(errno)?;
        // Held on, a server that is closed would still seem to be there.
        sockets.forget(inode);
    } else {
        inet::listen(broker, caller, inode, backlog)?;
    }
    Ok(CallReply::Return(0))
}

fn connect(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    let number = int(n.args[0]);
    let inode = inode_of(caller, number)?;
    let address = address(caller, n.args[1], n.args[2])?;
    let Some(family) = broker.call(caller)?.sockets.get(inode).map(|kept| kept.family) else {
        return own_network::connect(broker, caller, number, &address).map(|()| CallReply::Return(0));
    };
    if family == SocketFamily::Unix && endpoint::is_meant(broker.call(caller)?, &address) {
        return endpoint::connect(broker, caller, inode).map(|()| CallReply::Return(0));
    }
    let found = match family {
        SocketFamily::Unix => unix::target(broker, caller, &address),
        SocketFamily::V4 | SocketFamily::V6 => inet::target(broker, caller, &address, family),
    };
    let way = match (found, &broker.egress) {
        (Ok((target, pin)), _) => Ok(ConnectWay::Within(target, pin)),
        // What no server of the session's is, egress judges.
        (Err(e @ (libc::EACCES | libc::ECONNREFUSED)), Some(network)) if family != SocketFamily::Unix => {
            Ok(ConnectWay::Out(network.target(inet::wanted(&address, family)?), e))
        }
        (Err(e), _) => Err(e),
    };
    let call = broker.calls.of(caller).ok_or(libc::EPERM)?;
    let way = match way {
        Ok(way) => {
            if let ConnectWay::Within(..) = way {
                call.changes.reached(|| shown(&address, family));
            }
            way
        }
        Err(e) => {
            if let Some(wanted) = shown(&address, family).filter(|wanted| is_outside(wanted, family, e)) {
                call.changes.not_reached(wanted);
            }
            return Err(e);
        }
    };
    let who = call.asks();
    call.changes.went_out |= matches!(way, ConnectWay::Out(..));
    let sockets = &mut call.sockets;
    if sockets.connecting.count.load(Ordering::Relaxed) >= WAITING {
        return Err(libc::EAGAIN);
    }
    let kept = sockets.forget(inode).ok_or(libc::EISCONN)?;
    let way = match (way, &broker.egress) {
        (ConnectWay::Within(target, pin), _) => Ok(ReadyWay::Within { target, _pin: pin }),
        (ConnectWay::Out(to, refused), Some(network)) => {
            network.ask(who, &kept.fd, family.as_domain(), to).map(|asked| ReadyWay::Out(asked, refused))
        }
        (ConnectWay::Out(..), None) => Err(libc::ENETUNREACH),
    };
    let way = match way {
        Ok(way) => way,
        Err(e) => {
            sockets.keep(inode, kept);
            return Err(e);
        }
    };
    let on_its_way = OnItsWay::begin(&sockets.connecting, inode, &kept)?;
    let (listener, id) = (Arc::clone(&broker.listener), caller.id());
    // A connect that blocks (a full backlog) must not block the broker, which others need. Whether it does is up to the caller:
    // it shares the flag, and can clear it at any moment.
    let work = move || {
        // A caller that is gone needs no answer; a listener that is gone has none left.
        let answer = |answer| drop(notify::answer(listener.as_fd(), id, answer));
        match way.open(family).and_then(|target| raw::connect(kept.fd.as_fd(), &target).map_err(io_errno)) {
            // Before the answer: what is connected ends when the caller closes it, and what is not can be tried again.
            Ok(()) => {
                way.hand_over(&kept.fd);
                drop((kept, on_its_way));
                answer(CallReply::Return(0));
            }
            Err(libc::EINPROGRESS) if is_decided(&kept.fd, PollTimeout::ZERO) => {
                way.hand_over(&kept.fd);
                drop((kept, on_its_way));
                answer(CallReply::Fail(libc::EINPROGRESS));
            }
            Err(libc::EINPROGRESS) => {
                answer(CallReply::Fail(libc::EINPROGRESS));
                // It goes on knocking, so the address stays guarded.
                while !is_decided(&kept.fd, PollTimeout::NONE) {}
                way.hand_over(&kept.fd);
                drop((kept, on_its_way));
            }
            Err(e) => {
                on_its_way.shared().failed.push((inode, KeptSocket { failed: true, ..kept }));
                drop(on_its_way);
                answer(CallReply::Fail(e));
            }
        }
        drop(way);
    };
    match std::thread::Builder::new().stack_size(64 * 1024).spawn(work) {
        Ok(_detached) => Ok(CallReply::Later),
        Err(e) => Err(io_errno(e)),
    }
}

/// How a connection is made.
enum ConnectWay {
    /// Within the session, to an address as bytes; the descriptor keeps what is there in place until it is connected.
    Within(Vec<u8>, Arc<OwnedFd>),
    /// By way of egress, with the error if it was not granted.
    Out(ConnectTarget, i32),
}

/// The way, when nothing but an answer is missing.
enum ReadyWay {
    Within { target: Vec<u8>, _pin: Arc<OwnedFd> },
    Out(PendingConnection, i32),
}

impl ReadyWay {
    /// The address to connect to, once that may be done.
    fn open(&self, family: SocketFamily) -> Result<Vec<u8>, i32> {
        match self {
            Self::Within { target, .. } => Ok(target.clone()),
            Self::Out(asked, refused) => asked.granted(*refused).map(|()| inet::bytes(asked.at, family)),
        }
    }

    /// Hands it over once it is connected.
    fn hand_over(&self, socket: &OwnedFd) {
        match self {
            Self::Within { .. } => {}
            Self::Out(asked, _) => asked.hand_over(socket),
        }
    }
}

/// An address as people write it. Abstract names have no form of their own, and are told of nowhere.
fn shown(address: &[u8], family: SocketFamily) -> Option<String> {
    match family {
        SocketFamily::Unix => unix::path_of(address),
        SocketFamily::V4 | SocketFamily::V6 => inet::wanted(address, family).ok().map(|wanted| wanted.to_string()),
    }
}

/// True if an address that was not reached is one outside. A file that is not there may be one of the call's own that
/// is yet to come, unless a service has its socket by that name: with namespaces those are not there either.
fn is_outside(wanted: &str, family: SocketFamily, errno: i32) -> bool {
    match (family, errno) {
        (_, libc::EACCES) | (SocketFamily::V4 | SocketFamily::V6, libc::ECONNREFUSED) => true,
        (SocketFamily::Unix, libc::ENOENT) => remarks::service(wanted).is_some(),
        _ => false,
    }
}

/// True if a connection is made, or has failed.
fn is_decided(socket: &OwnedFd, wait: PollTimeout) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    match poll(&mut fds, wait) {
        Ok(_) => fds[0].revents().is_none_or(|happened| !happened.is_empty()),
        Err(_interrupted) => false,
    }
}
