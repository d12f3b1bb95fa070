//! UDP and route netlink: sockets of the session's own network namespace, and of no other (B4, B8).
//!
//! Their messages carry addresses behind pointers, and nobody asks the broker about a message. So they exist only where each
//! address is one of the session's: in a network namespace whose one interface is loopback. Which namespace a socket belongs
//! to is the kernel's to say, of each socket when it is made and again whenever something is done to it: one that came from
//! elsewhere, inherited or handed over by another process, is not acted on.
//!
//! The broker keeps no copies of these: they may be bound and connected at any time, and one that is kept holds its port
//! and takes datagrams. It fetches the caller's own (pidfd_getfd(2)), judges that descriptor and acts on it. If the caller ends
//! meanwhile, the broker is the last to close it: nothing that a call can make lingers (the base filter), and the session's end waits
//! for no thread that serves it.

use std::os::fd::{AsFd as _, OwnedFd};

use callgate_policy::envelope::Blocked;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, sockopt};

use super::super::caller::Caller;
use super::super::state::Broker;
use super::held::{self, SocketFamily, errno, family_in, io_errno};
use super::inet;
use crate::sys::notify::CallReply;
use crate::sys::socket as raw;

/// A kind of socket that is harmless in a network of one's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketKind {
    Datagram(SocketFamily),
    /// `NETLINK_ROUTE`: what interfaces, addresses and routes there are. Changing them takes a capability.
    Route,
}

impl SocketKind {
    /// Kind that socket(2) is asked for.
    pub(super) fn asked(domain: i32, kind: i32, protocol: i32) -> Option<Self> {
        match (domain, kind & 0xf, protocol) {
            (libc::AF_INET, libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Some(Self::Datagram(SocketFamily::V4)),
            (libc::AF_INET6, libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Some(Self::Datagram(SocketFamily::V6)),
            (libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_DGRAM, libc::NETLINK_ROUTE) => Some(Self::Route),
            _ => None,
        }
    }

    /// Kind of a socket, as the kernel has it.
    fn of(socket: &OwnedFd) -> Result<Option<Self>, i32> {
        let domain = sockopt::socket_domain(socket).map_err(errno)?;
        let kind = sockopt::socket_type(socket).map_err(errno)?;
        let protocol = sockopt::socket_protocol(socket).map_err(errno)?.map_or(0, |protocol| protocol.as_raw().get());
        let kind = i32::try_from(kind.as_raw()).map_err(|_none| libc::EIO)?;
        let protocol = i32::try_from(protocol).map_err(|_none| libc::EIO)?;
        Ok(Self::asked(domain.as_raw().into(), kind, protocol))
    }

    fn make(self, kind: i32) -> Result<OwnedFd, i32> {
        let (family, socket_type, protocol): (_, _, Option<Protocol>) = match self {
            Self::Datagram(SocketFamily::V4) => {
                (AddressFamily::INET, SocketType::DGRAM, Some(rustix::net::ipproto::UDP))
            }
            Self::Datagram(SocketFamily::V6) => {
                (AddressFamily::INET6, SocketType::DGRAM, Some(rustix::net::ipproto::UDP))
            }
            Self::Datagram(SocketFamily::Unix) => return Err(libc::EACCES),
            Self::Route if kind & 0xf == libc::SOCK_DGRAM => (AddressFamily::NETLINK, SocketType::DGRAM, None),
            Self::Route => (AddressFamily::NETLINK, SocketType::RAW, None),
        };
        let nonblocking = if kind & libc::SOCK_NONBLOCK != 0 { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
        held::make(family, socket_type, SocketFlags::CLOEXEC | nonblocking, protocol)
    }
}

/// True if a socket belongs to this network namespace.
fn is_in(network: u64, socket: &OwnedFd) -> bool {
    raw::network_cookie(socket.as_fd()).is_ok_and(|cookie| cookie == network)
}

/// Makes one. `network` is the session's own.
pub(super) fn make(network: u64, asked: SocketKind, kind: i32) -> Result<CallReply, i32> {
    let fd = asked.make(kind)?;
    if !is_in(network, &fd) {
        return Err(libc::EACCES);
    }
    Ok(CallReply::Fd { fd, cloexec: kind & libc::SOCK_CLOEXEC != 0 })
}

/// The caller's own socket, if it is of such a kind and in the session's network. `None` if not.
fn fetched(broker: &mut Broker, caller: &Caller<'_>, number: i32) -> Result<Option<(OwnedFd, SocketKind)>, i32> {
    // Whoever belongs to no call is refused.
    broker.call(caller)?;
    let Some(network) = broker.network else { return Ok(None) };
    let socket = caller.fetch_fd(number)?;
    let kind = SocketKind::of(&socket)?.filter(|_| is_in(network, &socket));
    Ok(kind.map(|kind| (socket, kind)))
}

/// Binds, to whatever address: the kernel takes those of this namespace, and ports from 1024 on.
pub(super) fn bind(broker: &mut Broker, caller: &Caller<'_>, number: i32, address: &[u8]) -> Result<(), i32> {
    // One that the broker has made and no longer keeps is bound or connected: EINVAL is what the kernel would say.
    let (socket, _) = fetched(broker, caller, number)?.ok_or(libc::EINVAL)?;
    raw::bind(socket.as_fd(), address).map_err(io_errno)
}

/// Errno for a kind of socket that does not listen here.
pub(super) fn listen(broker: &mut Broker, caller: &Caller<'_>, number: i32) -> i32 {
    match fetched(broker, caller, number) {
        Ok(Some(_)) => libc::EOPNOTSUPP,
        Ok(None) => libc::EINVAL,
        Err(e) => e,
    }
}

/// Connects, which only sets where messages without an address go: the kernel knows no way to any address outside.
pub(super) fn connect(broker: &mut Broker, caller: &Caller<'_>, number: i32, address: &[u8]) -> Result<(), i32> {
    const DNS: u16 = 53;
    // One that is of another kind is connected, or on its way: EISCONN is what the kernel would say.
    let (socket, kind) = fetched(broker, caller, number)?.ok_or(libc::EISCONN)?;
    let done = raw::connect(socket.as_fd(), address).map_err(io_errno);
    let SocketKind::Datagram(family) = kind else { return done };
    if family_in(address) == libc::AF_UNSPEC {
        return done;
    }
    let Ok(wanted) = inet::wanted(address, family) else { return done };
    if broker.egress.is_some() {
        // It answers there, and tells of what was refused.
        return done;
    }
    let changes = &mut broker.call(caller)?.changes;
    match done {
        // Nobody in the session can answer there, for the port is below 1024: a resolver that looks up a name.
        _ if wanted.port() == DNS => changes.blocked(Blocked::NameLookup),
        Err(libc::ENETUNREACH | libc::EHOSTUNREACH) => changes.not_reached(wanted.to_string()),
        _ => {}
    }
    done
}
