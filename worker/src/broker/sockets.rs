//! Sockets: a call reaches what it listens on itself, and nothing else.
//!
//! The broker makes each socket, hands the caller a copy and keeps one: so it can connect, bind and listen on exactly
//! that socket without pidfd_getfd(2), which containers refuse. It lets its copy go as soon as the socket has become
//! what it will be, or a peer would never see the end of a connection; except for listening TCP sockets, which pin
//! their port: while the copy is held, no stranger can take the port and be taken for the call's own server.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::net::{AddressFamily, Protocol, SocketAddrAny, SocketFlags, SocketType};

use super::caller::{Caller, Links, Target};
use super::metadata::int;
use super::{Broker, Handler};
use crate::procfs::Procfs;
use crate::sys::notify::{self, Answer, Notification};
use crate::sys::process::Pid;
use crate::sys::socket as raw;

pub(super) const HANDLERS: &[(libc::c_long, Handler)] =
    &[(libc::SYS_socket, socket), (libc::SYS_bind, bind), (libc::SYS_listen, listen), (libc::SYS_connect, connect)];

/// Most sockets of one call that are neither connected nor listening; the oldest gives way, and can then no longer
/// become either.
const KEPT: usize = 1024;
/// Most connections of a session that wait at once for a full backlog.
const WAITING: usize = 64;

/// Connects that wait in threads of their own.
static CONNECTING: AtomicUsize = AtomicUsize::new(0);

/// A call's sockets.
#[derive(Default)]
pub(super) struct Sockets {
    /// The broker's copies, by inode: what the caller's descriptor is, whatever its number.
    kept: HashMap<u64, Kept>,
    order: Vec<u64>,
    /// The socket files that this call has bound: (device, inode).
    files: HashSet<(u64, u64)>,
    /// Abstract names that this call has bound.
    names: HashMap<Vec<u8>, Name>,
    /// What could not be connected, by inode: it may be tried again.
    failed: Arc<Mutex<Vec<(u64, Kept)>>>,
}

/// What stands for an abstract name.
struct Name {
    file: PathBuf,
    /// The socket that was bound to it.
    inode: u64,
}

struct Kept {
    fd: OwnedFd,
    family: Family,
    /// Where it listens, once it does.
    listening: Option<SocketAddr>,
    /// It could not be connected.
    failed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Unix,
    V4,
    V6,
}

impl Sockets {
    fn keep(&mut self, inode: u64, kept: Kept) {
        if self.order.len() >= KEPT
            && let Some(at) = self.order.iter().position(|i| self.kept.get(i).is_some_and(|k| k.listening.is_none()))
        {
            self.kept.remove(&self.order.remove(at));
        }
        self.kept.insert(inode, kept);
        self.order.push(inode);
    }

    fn get(&mut self, inode: u64) -> Option<&mut Kept> {
        let failed = std::mem::take(&mut *self.failed.lock().unwrap_or_else(PoisonError::into_inner));
        failed.into_iter().for_each(|(inode, kept)| self.keep(inode, kept));
        self.kept.get_mut(&inode)
    }

    fn forget(&mut self, inode: u64) -> Option<Kept> {
        self.order.retain(|i| *i != inode);
        self.kept.remove(&inode)
    }
}

fn errno(e: rustix::io::Errno) -> i32 {
    e.raw_os_error()
}

fn io_errno(e: io::Error) -> i32 {
    e.raw_os_error().unwrap_or(libc::EIO)
}

/// The filter has let only stream and seqpacket sockets of three families through to here; checked again, because the
/// two are written apart.
fn socket(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<Answer, i32> {
    let (domain, kind, protocol) = (int(n.args[0]), int(n.args[1]), int(n.args[2]));
    let (family, address_family) = match domain {
        libc::AF_UNIX => (Family::Unix, AddressFamily::UNIX),
        libc::AF_INET => (Family::V4, AddressFamily::INET),
        libc::AF_INET6 => (Family::V6, AddressFamily::INET6),
        _ => return Err(libc::EAFNOSUPPORT),
    };
    let socket_type = match (kind & 0xf, family) {
        (libc::SOCK_STREAM, _) => SocketType::STREAM,
        (libc::SOCK_SEQPACKET, Family::Unix) => SocketType::SEQPACKET,
        _ => return Err(libc::EACCES),
    };
    let protocol = match (protocol, family) {
        // PF_UNIX is the same as 0 (unix(7)).
        (0, _) | (1, Family::Unix) => None,
        (libc::IPPROTO_TCP, Family::V4 | Family::V6) => Some(rustix::net::ipproto::TCP),
        _ => return Err(libc::EPROTONOSUPPORT),
    };
    let mut flags = SocketFlags::CLOEXEC;
    if kind & libc::SOCK_NONBLOCK != 0 {
        flags |= SocketFlags::NONBLOCK;
    }
    let call = broker.call(caller)?;
    let fd = make(address_family, socket_type, flags, protocol)?;
    let inode = rustix::fs::fstat(&fd).map_err(errno)?.st_ino;
    let copy = fd.try_clone().map_err(io_errno)?;
    call.sockets.keep(inode, Kept { fd: copy, family, listening: None, failed: false });
    Ok(Answer::Fd { fd, cloexec: kind & libc::SOCK_CLOEXEC != 0 })
}

fn make(
    family: AddressFamily,
    kind: SocketType,
    flags: SocketFlags,
    protocol: Option<Protocol>,
) -> Result<OwnedFd, i32> {
    rustix::net::socket_with(family, kind, flags, protocol).map_err(errno)
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
        len @ 2..=128 => caller.bytes(pointer, len as usize),
        _ => Err(libc::EINVAL),
    }
}

fn family_in(address: &[u8]) -> i32 {
    i32::from(u16::from_ne_bytes([address[0], address[1]]))
}

fn bind(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<Answer, i32> {
    let inode = inode_of(caller, int(n.args[0]))?;
    let address = address(caller, n.args[1], n.args[2])?;
    let family = broker.call(caller)?.sockets.get(inode).ok_or(libc::EINVAL)?.family;
    match family {
        Family::Unix => bind_unix(broker, caller, inode, &address),
        Family::V4 | Family::V6 => {
            let wanted = inet(&address, family)?;
            release_stale(broker, caller)?;
            let call = broker.call(caller)?;
            let kept = call.sockets.get(inode).ok_or(libc::EINVAL)?;
            let at = to_loopback(wanted, &kept.fd, family)?;
            rustix::net::bind(&kept.fd, &at).map_err(errno)?;
            Ok(Answer::Return(0))
        }
    }
}

fn inet(address: &[u8], family: Family) -> Result<SocketAddr, i32> {
    let part = |range: std::ops::Range<usize>| address.get(range).ok_or(libc::EINVAL);
    let port = || -> Result<u16, i32> { Ok(u16::from_be_bytes([part(2..3)?[0], part(3..4)?[0]])) };
    match (family_in(address), family) {
        (libc::AF_INET, Family::V4) => {
            let mut ip = [0; 4];
            ip.copy_from_slice(part(4..8)?);
            Ok(SocketAddr::from((Ipv4Addr::from(ip), port()?)))
        }
        (libc::AF_INET6, Family::V6) => {
            let mut ip = [0; 16];
            ip.copy_from_slice(part(8..24)?);
            Ok(SocketAddr::from((Ipv6Addr::from(ip), port()?)))
        }
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// Where a socket is bound instead: "every address" becomes loopback, for outside a server would be reachable.
fn to_loopback(wanted: SocketAddr, socket: &OwnedFd, family: Family) -> Result<SocketAddr, i32> {
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
        (IpAddr::V6(ip), Family::V6) => Ok(SocketAddrV6::new(ip, wanted.port(), 0, 0).into()),
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

/// The parts of a unix address: a path, an abstract name, or none (autobind).
enum UnixName {
    Path(CString),
    Abstract(Vec<u8>),
    None,
}

fn unix_name(address: &[u8]) -> Result<UnixName, i32> {
    if family_in(address) != libc::AF_UNIX {
        return Err(libc::EINVAL);
    }
    match address.get(2..).unwrap_or_default() {
        [] => Ok(UnixName::None),
        [0, name @ ..] => Ok(UnixName::Abstract(name.to_vec())),
        path => {
            let end = path.iter().position(|b| *b == 0).unwrap_or(path.len());
            CString::new(&path[..end]).map(UnixName::Path).map_err(|_nul| libc::EINVAL)
        }
    }
}

fn bind_unix(broker: &mut Broker, caller: &Caller<'_>, inode: u64, address: &[u8]) -> Result<Answer, i32> {
    match unix_name(address)? {
        UnixName::Path(path) => {
            let (parent, name) = caller.open_parent(libc::AT_FDCWD, &path)?;
            if !broker.call(caller)?.may_write(&parent.path) {
                return Err(libc::EACCES);
            }
            broker.refuse_new(caller, &parent.path.join(OsStr::from_bytes(name.as_bytes())))?;
            let mask = broker.mask(caller)?;
            bind_file(broker, caller, inode, &parent, &name, mask)
        }
        UnixName::Abstract(name) => bind_name(broker, caller, inode, name),
        UnixName::None => {
            let name = format!("auto-{inode}").into_bytes();
            bind_name(broker, caller, inode, name)
        }
    }
}

fn bind_file(
    broker: &mut Broker,
    caller: &Caller<'_>,
    inode: u64,
    parent: &Target,
    name: &CString,
    mask: u32,
) -> Result<Answer, i32> {
    let call = broker.call(caller)?;
    let kept = call.sockets.get(inode).ok_or(libc::EINVAL)?;
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    // By its real path, because programs hand on what getsockname(2) then says (Python's managers do). A directory that
    // is exchanged in between leads the name astray, though not out of what the session may write; that is an error
    // then. A path too long for an address goes by the descriptor.
    let real = parent.path.join(OsStr::from_bytes(name.as_bytes()));
    match unix_address(real.as_os_str().as_bytes()) {
        Ok(address) => {
            raw::bind(kept.fd.as_fd(), &address).map_err(io_errno)?;
            let bound = rustix::fs::statat(CWD, &real, flags).map_err(errno)?;
            let wanted = rustix::fs::statat(&parent.fd, name, flags).map_err(|_elsewhere| libc::EACCES)?;
            if (bound.st_dev, bound.st_ino) != (wanted.st_dev, wanted.st_ino) {
                return Err(libc::EACCES);
            }
        }
        Err(_too_long) => {
            let path = [format!("/proc/self/fd/{}/", parent.fd.as_raw_fd()).as_bytes(), name.as_bytes()].concat();
            raw::bind(kept.fd.as_fd(), &unix_address(&path)?).map_err(io_errno)?;
        }
    }
    let parent = &parent.fd;
    let stat = rustix::fs::statat(parent, name, flags).map_err(errno)?;
    rustix::fs::chmodat(parent, name, Mode::from_raw_mode(0o777 & !mask), rustix::fs::AtFlags::empty())
        .map_err(errno)?;
    call.sockets.files.insert((stat.st_dev, stat.st_ino));
    Ok(Answer::Return(0))
}

/// An abstract name has no owner and no permissions: anybody on the host may take or reach it. So a call's names are
/// files in the session's private directory, known to this call alone.
fn bind_name(broker: &mut Broker, caller: &Caller<'_>, inode: u64, name: Vec<u8>) -> Result<Answer, i32> {
    let directory = broker.private.join("ipc");
    release_name(broker, caller, &name)?;
    let call = broker.call(caller)?;
    let file = format!("{}-{inode}", call.number);
    let parent = rustix::fs::open(&directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(errno)?;
    let path = directory.join(&file);
    let file = CString::new(file).map_err(|_nul| libc::EIO)?;
    let parent = Target { fd: parent, path: directory };
    let bound = bind_file(broker, caller, inode, &parent, &file, 0o077)?;
    broker.call(caller)?.sockets.names.insert(name, Name { file: path, inode });
    Ok(bound)
}

/// An abstract name is free again when its socket is closed (unix(7)), which nobody is told of: so whoever wants it next
/// has it looked up. `EADDRINUSE` while a process of the call holds the socket.
fn release_name(broker: &mut Broker, caller: &Caller<'_>, name: &[u8]) -> Result<(), i32> {
    let Some(Name { inode, .. }) = broker.call(caller)?.sockets.names.get(name) else { return Ok(()) };
    let inode = *inode;
    if held_sockets(&broker.calls.family_of(caller)).is_none_or(|held| held.contains(&inode)) {
        return Err(libc::EADDRINUSE);
    }
    let sockets = &mut broker.call(caller)?.sockets;
    sockets.forget(inode);
    let Some(Name { file, .. }) = sockets.names.remove(name) else { return Ok(()) };
    // Its number may be given to a file of somebody else's.
    let stat = rustix::fs::lstat(&file).map_err(errno)?;
    sockets.files.remove(&(stat.st_dev, stat.st_ino));
    rustix::fs::unlink(&file).map_err(errno)
}

fn unix_address(path: &[u8]) -> Result<Vec<u8>, i32> {
    // sun_path is 108 bytes with its NUL (unix(7)).
    if path.len() > 107 {
        return Err(libc::ENAMETOOLONG);
    }
    let family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or_default();
    Ok([&family.to_ne_bytes()[..], path, &[0]].concat())
}

/// Performed here, not continued: between a look at the socket and the kernel's own, the descriptor could become another
/// that is not bound, which listen(2) would bind to every address.
fn listen(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<Answer, i32> {
    let inode = inode_of(caller, int(n.args[0]))?;
    let backlog = int(n.args[1]).max(0);
    let sockets = &mut broker.call(caller)?.sockets;
    let kept = sockets.get(inode).ok_or(libc::EINVAL)?;
    if kept.family == Family::Unix {
        rustix::net::listen(&kept.fd, backlog).map_err(errno)?;
        // Held on, a server that is closed would still seem to be there.
        sockets.forget(inode);
        return Ok(Answer::Return(0));
    }
    if bound_to(&kept.fd)?.port() == 0 {
        let every =
            if kept.family == Family::V4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
        let at = to_loopback(SocketAddr::new(every, 0), &kept.fd, kept.family)?;
        rustix::net::bind(&kept.fd, &at).map_err(errno)?;
    }
    rustix::net::listen(&kept.fd, backlog).map_err(errno)?;
    kept.listening = Some(plain(bound_to(&kept.fd)?));
    Ok(Answer::Return(0))
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

fn connect(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<Answer, i32> {
    let inode = inode_of(caller, int(n.args[0]))?;
    let address = address(caller, n.args[1], n.args[2])?;
    // One that was made and is no longer kept is connected, or on its way: EISCONN is what the kernel would say.
    let family = broker.call(caller)?.sockets.get(inode).ok_or(libc::EISCONN)?.family;
    // What is connected to, as bytes, and what keeps it in place until it is.
    let (target, pin) = match family {
        Family::Unix => unix_target(broker, caller, &address)?,
        Family::V4 | Family::V6 => (inet_target(broker, caller, &address, family)?, None),
    };
    // A connect that blocks (a full backlog) must not block the broker, which others need. Whether it does is up to the caller:
    // it shares the flag, and can clear it at any moment.
    if CONNECTING.fetch_add(1, Ordering::Relaxed) >= WAITING {
        CONNECTING.fetch_sub(1, Ordering::Relaxed);
        return Err(libc::EAGAIN);
    }
    let sockets = &mut broker.call(caller)?.sockets;
    let (kept, failed) = (sockets.forget(inode).ok_or(libc::EISCONN)?, Arc::clone(&sockets.failed));
    let (listener, id) = (Arc::clone(&broker.listener), caller.id());
    let work = move || {
        let done = raw::connect(kept.fd.as_fd(), &target).map_err(io_errno);
        // Before the answer: what is connected ends when the caller closes it, and what is not can be tried again.
        match done {
            Ok(()) | Err(libc::EINPROGRESS) => drop(kept),
            Err(_) => {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push((inode, Kept { failed: true, ..kept }))
            }
        }
        drop(pin);
        let answer = done.map_or_else(Answer::Fail, |()| Answer::Return(0));
        CONNECTING.fetch_sub(1, Ordering::Relaxed);
        // A caller that is gone needs no answer; a listener that is gone has none left.
        drop(notify::answer(listener.as_fd(), id, answer));
    };
    match std::thread::Builder::new().stack_size(64 * 1024).spawn(work) {
        Ok(_) => Ok(Answer::Later),
        Err(e) => {
            CONNECTING.fetch_sub(1, Ordering::Relaxed);
            Err(io_errno(e))
        }
    }
}

fn unix_target(broker: &mut Broker, caller: &Caller<'_>, address: &[u8]) -> Result<(Vec<u8>, Option<OwnedFd>), i32> {
    let file = match unix_name(address)? {
        UnixName::Path(path) => caller.open(libc::AT_FDCWD, &path, Links::Follow)?.fd,
        UnixName::Abstract(name) => {
            let file: &Path = &broker.call(caller)?.sockets.names.get(&name).ok_or(libc::ECONNREFUSED)?.file;
            rustix::fs::openat(CWD, file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(errno)?
        }
        UnixName::None => return Err(libc::EINVAL),
    };
    let stat = rustix::fs::fstat(&file).map_err(errno)?;
    // Only a socket that this call has bound itself: any other belongs to a stranger who trusts its user (B7).
    if !broker.call(caller)?.sockets.files.contains(&(stat.st_dev, stat.st_ino)) {
        return Err(libc::EACCES);
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok((unix_address(path.as_bytes())?, Some(file)))
}

fn inet_target(broker: &mut Broker, caller: &Caller<'_>, address: &[u8], family: Family) -> Result<Vec<u8>, i32> {
    let wanted = plain(inet(address, family)?);
    if !is_loopback(wanted.ip()) {
        return Err(libc::EACCES);
    }
    release_stale(broker, caller)?;
    let sockets = &broker.call(caller)?.sockets;
    if !sockets.kept.values().any(|kept| kept.listening == Some(wanted)) {
        // Nobody of this call listens there: what a stranger has there is as if it were not (B5).
        return Err(if sockets.kept.is_empty() { libc::EACCES } else { libc::ECONNREFUSED });
    }
    Ok(inet_bytes(wanted, family))
}

fn inet_bytes(address: SocketAddr, family: Family) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    let kind = if family == Family::V4 { libc::AF_INET } else { libc::AF_INET6 };
    bytes.extend(u16::try_from(kind).unwrap_or_default().to_ne_bytes());
    bytes.extend(address.port().to_be_bytes());
    match (address.ip(), family) {
        (IpAddr::V4(ip), Family::V4 | Family::Unix) => bytes.extend(ip.octets().iter().chain(&[0; 8])),
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
fn release_stale(broker: &mut Broker, caller: &Caller<'_>) -> Result<(), i32> {
    let lasts = |kept: &Kept| kept.listening.is_some() || kept.failed;
    if !broker.call(caller)?.sockets.kept.values().any(lasts) {
        return Ok(());
    }
    let Some(held) = held_sockets(&broker.calls.family_of(caller)) else { return Ok(()) };
    let sockets = &mut broker.call(caller)?.sockets;
    let stale: Vec<u64> =
        sockets.kept.iter().filter(|(inode, kept)| lasts(kept) && !held.contains(inode)).map(|(i, _)| *i).collect();
    stale.into_iter().for_each(|inode| drop(sockets.forget(inode)));
    Ok(())
}

/// The inodes of all sockets that these processes hold. `None` if that cannot be told: then it may be any.
fn held_sockets(pids: &[Pid]) -> Option<HashSet<u64>> {
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
