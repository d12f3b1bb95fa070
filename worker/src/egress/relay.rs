//! Bytes from one side to the other.

use std::cell::RefCell;
use std::io;

use rustix::net::sockopt;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Most bytes that are read at once.
const BUFFER: usize = 256 * 1024;
/// How long a side may be silent before the kernel asks whether it is still there.
const KEEP_ALIVE: std::time::Duration = std::time::Duration::from_secs(60);

thread_local! {
    /// Read into and written from within one step: one is enough for all connections, and an idle connection holds none.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

/// Small writes leave at once, and a side that is gone without a word is noticed.
pub(super) fn prepare(socket: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    Ok(sockopt::set_tcp_keepidle(socket, KEEP_ALIVE)?)
}

/// Copies both ways until both sides have said all. A side that has said all is told to the other, which may go on. If either
/// fails, both are reset.
pub(super) async fn relay(one: TcpStream, other: TcpStream) {
    if tokio::try_join!(one_way(&one, &other), one_way(&other, &one)).is_err() {
        reset(one);
        reset(other);
    }
}

/// Ends a connection so that the other side can tell it from one that came to its end.
pub(super) fn reset(socket: TcpStream) {
    // What does not let itself be set is closed, as anything that is dropped.
    let _closed: io::Result<()> = socket.set_zero_linger();
}

/// Writes all of it.
pub(super) async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written =
            to.async_io(Interest::WRITABLE, || Ok(rustix::net::send(to, bytes, SendFlags::NOSIGNAL)?)).await?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

async fn one_way(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    loop {
        match from.async_io(Interest::READABLE, || SCRATCH.with_borrow_mut(|scratch| pass(from, to, scratch))).await? {
            Passed::All => {}
            Passed::Left(rest) => write_all(to, &rest).await?,
            // Whoever has closed already need not hear that nothing more comes.
            Passed::End => return Ok(rustix::net::shutdown(to, Shutdown::Write).or_else(not_connected)?),
        }
    }
}

fn not_connected(errno: rustix::io::Errno) -> rustix::io::Result<()> {
    if errno == rustix::io::Errno::NOTCONN { Ok(()) } else { Err(errno) }
}

enum Passed {
    All,
    /// What the other side had no room for.
    Left(Vec<u8>),
    /// Nothing more will come.
    End,
}

fn pass(from: &TcpStream, to: &TcpStream, scratch: &mut [u8]) -> io::Result<Passed> {
    let (_, read) = rustix::net::recv(from, &mut *scratch, RecvFlags::empty())?;
    if read == 0 {
        return Ok(Passed::End);
    }
    let bytes = scratch.get(..read).unwrap_or_default();
    let written = match rustix::net::send(to, bytes, SendFlags::NOSIGNAL) {
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => 0,
        other => other?,
    };
    match bytes.get(written..) {
        None | Some([]) => Ok(Passed::All),
        Some(rest) => Ok(Passed::Left(rest.to_vec())),
    }
}
