//! Bytes of one side of a connection: read, written and counted.

use std::io;
use std::time::Duration;

use rustix::net::SendFlags;
use rustix::net::sockopt;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::meter::MeteredSide;

/// How long a side may be silent before the kernel asks whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Small writes leave at once, and a side that is gone without a word is noticed.
pub(super) fn prepare(socket: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    Ok(sockopt::set_tcp_keepidle(socket, KEEP_ALIVE)?)
}

/// Ends a connection so that the other side can tell it from one that came to its end.
pub(super) fn reset(socket: TcpStream) {
    // What does not let itself be set is closed, as anything that is dropped.
    let _closed: io::Result<()> = socket.set_zero_linger();
}

/// Reads what comes next, behind what was heard already. Zero bytes at the end.
pub(super) async fn hear(from: &impl MeteredSide, heard: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        from.socket().readable().await?;
        rest(from).await?;
        match from.socket().try_read_buf(heard) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
            Ok(read) => {
                from.count(0, read)?;
                return Ok(read);
            }
        }
    }
}

/// Waits until a side may carry more: what it carries next is not waited for, so that no other comes between. An error if it may not.
pub(super) async fn rest(side: &impl MeteredSide) -> io::Result<()> {
    loop {
        let pause = side.may_carry()?;
        if pause.is_zero() {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
    }
}

/// Writes all of it.
pub(super) async fn write_all(to: &impl MeteredSide, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let socket = to.socket();
        let send = || Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?);
        socket.writable().await?;
        rest(to).await?;
        let written = match socket.try_io(Interest::WRITABLE, send) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            written => written?,
        };
        to.count(written, 0)?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}
