//! Sockets by their raw addresses, as a caller gave them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

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

/// Brings the loopback interface of this network namespace up (netdevice(7), `SIOCSIFFLAGS`).
pub(crate) fn raise_loopback(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain integers and bytes, for which all zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = (*from).cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: a live ifreq whose name is NUL-terminated by its zeroes.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    errno_if_negative(done).map(drop)
}
