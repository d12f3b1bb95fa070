//! Sockets by their raw addresses, as a caller gave them.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd};

use super::errno_if_negative;

/// connect(2) with the address's bytes as they are.
pub(crate) fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(address.len()).map_err(io::Error::other)?;
    // SAFETY: `len` readable bytes; the kernel copies them and checks their form.
    errno_if_negative(unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), len) }).map(drop)
}

/// bind(2) with the address's bytes as they are.
pub(crate) fn bind(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(address.len()).map_err(io::Error::other)?;
    // SAFETY: `len` readable bytes; the kernel copies them and checks their form.
    errno_if_negative(unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), len) }).map(drop)
}

/// Has bind(2) choose the port, and not connect(2) later (`IP_BIND_ADDRESS_NO_PORT`, ip(7)).
pub(crate) fn bind_port_at_once(socket: BorrowedFd<'_>) -> io::Result<()> {
    let off: libc::c_int = 0;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: a live int and its length, which the kernel reads.
    errno_if_negative(unsafe {
        let from = (&raw const off).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, from, len)
    })
    .map(drop)
}

/// The number of the network namespace that a socket belongs to, which no other has until the next boot (`SO_NETNS_COOKIE`,
/// Linux 5.14).
pub(crate) fn network_cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: a live u64 and its length, which the kernel fills.
    errno_if_negative(unsafe {
        let to = (&raw mut cookie).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, to, &raw mut len)
    })?;
    Ok(cookie)
}

/// The user namespace that owns the network namespace of a socket: `SIOCGSKNS` (linux/sockios.h), which takes CAP_NET_ADMIN
/// there, and `NS_GET_USERNS` (ioctl_nsfs(2)).
pub(crate) fn owner_of_network(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const SIOCGSKNS: libc::c_ulong = 0x894c;
    const NS_GET_USERNS: libc::c_ulong = 0xb701;
    let opened = |of: BorrowedFd<'_>, request: libc::c_ulong| -> io::Result<OwnedFd> {
        // SAFETY: neither request reads or writes memory of this process.
        let number = errno_if_negative(unsafe { libc::ioctl(of.as_raw_fd(), request as _) })?;
        // SAFETY: just opened by the kernel for this process, which has it nowhere else.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    };
    let network = opened(socket, SIOCGSKNS)?;
    opened(network.as_fd(), NS_GET_USERNS)
}

/// Gives the loopback interface of this network namespace one more address, with its network (netdevice(7), `SIOCSIFADDR` and
/// `SIOCSIFNETMASK` on an alias): every address of that network is local then.
pub(crate) fn add_to_loopback(socket: BorrowedFd<'_>, (address, prefix): (Ipv4Addr, u8)) -> io::Result<()> {
    let mask = Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0));
    for (request, value) in [(libc::SIOCSIFADDR, address), (libc::SIOCSIFNETMASK, mask)] {
        let mut ifreq = interface(b"lo:1");
        let at = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(value.octets()) },
            sin_zero: [0; 8],
        };
        // SAFETY: a sockaddr_in is as large as the sockaddr that it stands for, and has its family first.
        ifreq.ifr_ifru.ifru_addr = unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(at) };
        // SAFETY: a live ifreq whose name is NUL-terminated by its zeroes.
        errno_if_negative(unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw const ifreq) })?;
    }
    Ok(())
}

/// A request about an interface, with nothing but its name.
fn interface(name: &[u8]) -> libc::ifreq {
    // SAFETY: plain integers and bytes, for which all zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = (*from).cast_signed();
    }
    request
}

/// Brings the loopback interface of this network namespace up (netdevice(7), `SIOCSIFFLAGS`).
pub(crate) fn raise_loopback(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut request = interface(b"lo");
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: a live ifreq whose name is NUL-terminated by its zeroes.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    errno_if_negative(done).map(drop)
}
