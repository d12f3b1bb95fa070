//! TCP: servers are on loopback, and a call's connections reach its own, and those of the programs that the session's host has
//! started beside the calls (`Session::spawn`), alone (B5).
//!
//! That a socket listens is the call's to end at any moment, by shutdown(2) or by closing it, and its port is then free for a
//! stranger's server. So beside each there is a guard: a socket of the broker's own that is bound to the same address, does
//! not listen, and shares it with nobody (no `SO_REUSEADDR`). While the guard is there nobody else can come to listen on that
//! address: bind(2), and listen(2) on what was bound before, fail with EADDRINUSE (`inet_csk_get_port`, which both go
//! through). A connection of the call's holds the guard from before it is begun until it is made or has failed; so it
//! reaches the call's own server or nobody.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, sockopt};

use super::super::caller::Caller;
use super::super::calls::RunningCalls;
use super::super::state::Broker;
use super::held::{CallSockets, KeptSocket, ListeningSocket, SocketFamily, errno, family_in, make};
use crate::procfs::Procfs;
use crate::sys::process::Pid;

/// Most servers of one call.
const SERVERS: usize = 1024;
/// Most servers of all calls of a session together: each takes two descriptors of the broker's, which serves them all.
const SERVERS_OF_ALL: usize = 4096;

pub(super) fn bind(broker: &mut Broker, caller: &Caller<'_>, inode: u64, address: &[u8]) -> Result<(), i32> {
    release_stale(broker, caller)?;
    let kept = broker.call(caller)?.sockets.get(inode).ok_or(libc::EINVAL)?;
    let at = to_loopback(inet(address, kept.family)?, &kept.fd, kept.family)?;
    rustix::net::bind(&kept.fd, &at).map_err(errno)
}

fn inet(address: &[u8], family: SocketFamily) -> Result<SocketAddr, i32> {
    let part = |range: std::ops::Range<usize>| address.get(range).ok_or(libc::EINVAL);
    let port = || -> Result<u16, i32> { Ok(u16::from_be_bytes([part(2..3)?[0], part(3..4)?[0]])) };
    match (family_in(address), family) {
        (libc::AF_INET, SocketFamily::V4) => {
            let mut ip = [0; 4];
            ip.copy_from_slice(part(4..8)?);
            Ok(SocketAddr::from((Ipv4Addr::from(ip), port()?)))
        }
        (libc::AF_INET6, SocketFamily::V6) => {
            let mut ip = [0; 16];
            ip.copy_from_slice(part(8..24)?);
            Ok(SocketAddr::from((Ipv6Addr::from(ip), port()?)))
        }
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// Where a socket is bound instead: "every address" becomes loopback, for outside a server would be reachable.
fn to_loopback(wanted: SocketAddr, socket: &OwnedFd, family: SocketFamily) -> Result<SocketAddr, i32> {
    let ip = match wanted.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => {
            // A dual-stack server is one that 127.0.0.1 reaches; names for the local host lead there first or next.
            let only = rustix::net::sockopt::ipv6_v6only(socket).map_err(errno)?;
            IpAddr::V6(if only { Ipv6Addr::LOCALHOST } else { Ipv4Addr::LOCALHOST.to_ipv6_mapped() })
        }
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    if !is_loopback(ip) {
        return Err(libc::EACCES);
    }
    match (ip, family) {
        (IpAddr::V6(ip), SocketFamily::V6) => Ok(SocketAddrV6::new(ip, wanted.port(), 0, 0).into()),
        (ip, _) => Ok(SocketAddr::new(ip, wanted.port())),
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        // `::ffff:127.0.0.1` is the same address by another name (B10).
        IpAddr::V6(ip) => ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback()),
    }
}

/// Performed here, not continued: between a look at the socket and the kernel's own, the descriptor could become another
/// that is not bound, which listen(2) would bind to every address.
pub(super) fn listen(broker: &mut Broker, caller: &Caller<'_>, inode: u64, backlog: i32) -> Result<(), i32> {
    if broker.call(caller)?.sockets.servers() >= SERVERS {
        release_stale(broker, caller)?;
    }
    let all = broker.calls.servers();
    let sockets = &mut broker.call(caller)?.sockets;
    let room = sockets.servers() < SERVERS && all < SERVERS_OF_ALL;
    let kept = sockets.get(inode).ok_or(libc::EINVAL)?;
    if kept.server.is_some() && is_listening(&kept.fd)? {
        // Another backlog. If it stops listening right now, the guard stands in its way: EADDRINUSE.
        return rustix::net::listen(&kept.fd, backlog).map_err(errno);
    }
    // One that was shut down begins anew: nobody may count on a guard that gives way for a moment.
    kept.server = None;
    if !room {
        return Err(libc::ENOBUFS);
    }
    if bound_to(&kept.fd)?.port() == 0 {
        let every = if kept.family == SocketFamily::V4 {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let at = to_loopback(SocketAddr::new(every, 0), &kept.fd, kept.family)?;
        rustix::net::bind(&kept.fd, &at).map_err(errno)?;
    }
    kept.server = listen_guarded(kept, backlog)?;
    Ok(())
}

/// `None` if it has stopped listening already.
fn listen_guarded(kept: &KeptSocket, backlog: i32) -> Result<Option<ListeningSocket>, i32> {
    let at = bound_to(&kept.fd)?;
    let guard = guard_beside(&kept.fd, at, kept.family)?;
    let shares = sockopt::socket_reuseaddr(&kept.fd).map_err(errno)?;
    sockopt::set_socket_reuseaddr(&kept.fd, true).map_err(errno)?;
    let listens = rustix::net::bind(&guard, &at).and_then(|()| rustix::net::listen(&kept.fd, backlog));
    sockopt::set_socket_reuseaddr(&kept.fd, shares).map_err(errno)?;
    listens.map_err(errno)?;
    sockopt::set_socket_reuseaddr(&guard, false).map_err(errno)?;
    // From here on nobody else can begin to listen there. If this one still listens, it has since it began, for it cannot
    // begin again without the broker; so nobody else has begun meanwhile.
    let listens = is_listening(&kept.fd)?;
    Ok(listens.then(|| ListeningSocket { at: plain(at), guard: Arc::new(guard) }))
}

/// A guard that is not bound yet: beside a socket that does not listen yet, it must share the address.
fn guard_beside(socket: &OwnedFd, at: SocketAddr, family: SocketFamily) -> Result<OwnedFd, i32> {
    let address_family = if family == SocketFamily::V4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let guard = make(address_family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if at.is_ipv6() {
        let only = sockopt::ipv6_v6only(socket).map_err(errno)?;
        sockopt::set_ipv6_v6only(&guard, only).map_err(errno)?;
    }
    sockopt::set_socket_reuseaddr(&guard, true).map_err(errno)?;
    Ok(guard)
}

/// As the kernel has it at this moment.
fn is_listening(socket: &OwnedFd) -> Result<bool, i32> {
    sockopt::socket_acceptconn(socket).map_err(errno)
}

/// True if the broker's copy outlives what the caller does with the socket: it listened, or could not be connected.
fn lasts(kept: &KeptSocket) -> bool {
    kept.server.is_some() || kept.failed
}

fn bound_to(socket: &OwnedFd) -> Result<SocketAddr, i32> {
    let address: SocketAddrAny = rustix::net::getsockname(socket).map_err(errno)?;
    SocketAddr::try_from(address).map_err(errno)
}

/// An address in its plainest spelling, so that two that mean the same compare equal.
fn plain(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// The address that is meant.
pub(super) fn wanted(address: &[u8], family: SocketFamily) -> Result<SocketAddr, i32> {
    inet(address, family).map(plain)
}

/// Where to connect to, and what keeps strangers away from there until that is done.
pub(super) fn target(
    broker: &mut Broker,
    caller: &Caller<'_>,
    address: &[u8],
    family: SocketFamily,
) -> Result<(Vec<u8>, Arc<OwnedFd>), i32> {
    let wanted = wanted(address, family)?;
    if !is_loopback(wanted.ip()) {
        return Err(libc::EACCES);
    }
    // The call's own first, then those of the host's programs in the session, which may have let go of theirs as well.
    for worker in broker.calls.serving(caller) {
        let Some(call) = broker.calls.by_worker(worker) else { continue };
        if call.sockets.server_at(wanted).is_some() {
            release_stale_of(broker, worker);
            let server = broker.calls.by_worker(worker).and_then(|call| call.sockets.server_at(wanted));
            if let Some(server) = server {
                return Ok((bytes(wanted, family), Arc::clone(&server.guard)));
            }
        }
    }
    release_stale(broker, caller)?;
    // Nobody whom this call may reach listens there: what a stranger has there is as if it were not (B5).
    let sockets = &broker.call(caller)?.sockets;
    Err(if sockets.kept.is_empty() { libc::EACCES } else { libc::ECONNREFUSED })
}

impl CallSockets {
    /// The server that listens at an address at this moment.
    fn server_at(&self, wanted: SocketAddr) -> Option<&ListeningSocket> {
        let here = |kept: &&KeptSocket| kept.server.as_ref().is_some_and(|server| server.at == wanted);
        let mut listening = self.kept.values().filter(here).filter(|kept| is_listening(&kept.fd) == Ok(true));
        listening.find_map(|kept| kept.server.as_ref())
    }
}

pub(super) fn bytes(address: SocketAddr, family: SocketFamily) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    let kind = if family == SocketFamily::V4 { libc::AF_INET } else { libc::AF_INET6 };
    bytes.extend(u16::try_from(kind).unwrap_or_default().to_ne_bytes());
    bytes.extend(address.port().to_be_bytes());
    match (address.ip(), family) {
        (IpAddr::V4(ip), SocketFamily::V4 | SocketFamily::Unix) => bytes.extend(ip.octets().iter().chain(&[0; 8])),
        (ip, _) => {
            let ip = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            bytes.extend([0; 4]);
            bytes.extend(ip.octets());
            bytes.extend([0; 4]);
        }
    }
    bytes
}

/// Lets go of sockets that no process of the call holds any more, if they listened or were to be connected: their ports are
/// free again, and whoever listens there next is a stranger.
pub(super) fn release_stale(broker: &mut Broker, caller: &Caller<'_>) -> Result<(), i32> {
    broker.call(caller)?;
    if let Some(worker) = broker.calls.worker_of_caller(caller) {
        release_stale_of(broker, worker);
    }
    Ok(())
}

fn release_stale_of(broker: &mut Broker, worker: Pid) {
    let Some(call) = broker.calls.by_worker(worker) else { return };
    if !call.sockets.kept.values().any(lasts) {
        return;
    }
    let Some(held) = held_sockets(&RunningCalls::family(worker)) else { return };
    let Some(call) = broker.calls.by_worker(worker) else { return };
    let sockets = &mut call.sockets;
    let stale: Vec<u64> =
        sockets.kept.iter().filter(|(inode, kept)| lasts(kept) && !held.contains(inode)).map(|(i, _)| *i).collect();
    stale.into_iter().for_each(|inode| drop(sockets.forget(inode)));
}

/// The inodes of all sockets that these processes hold. `None` if that cannot be told: then it may be any.
#[expect(clippy::disallowed_methods, reason = "procfs is the kernel's: nobody puts a link in its files' place")]
pub(super) fn held_sockets(pids: &[Pid]) -> Option<HashSet<u64>> {
    let mut inodes = HashSet::new();
    for pid in pids {
        // Of any thread that lives, for there is one table: that of the first is gone if it has ended before the others.
        for thread in Procfs::USUAL.threads(*pid).filter(|thread| !Procfs::USUAL.is_zombie(*thread)) {
            match fs::read_dir(format!("/proc/{thread}/fd")) {
                Ok(entries) => {
                    let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
                    inodes.extend(links.filter_map(|link| socket_inode(link.as_os_str().as_bytes())));
                    break;
                }
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return None,
                Err(_gone) => {}
            }
        }
    }
    Some(inodes)
}

/// As `/proc/PID/fd` names a socket: `socket:[INODE]` (proc_pid_fd(5)).
fn socket_inode(link: &[u8]) -> Option<u64> {
    let digits = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
