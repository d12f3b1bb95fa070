//! Bytes from one side to the other.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, Shutdown};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::hello::Hellos;
use super::meter::{MeteredServer, MeteredSide};
use super::other::Other;
use super::stream::{reset, rest, write_all};

/// Most bytes that are read at once.
const BUFFER: usize = 256 * 1024;
/// How long a side may be silent when the other has said all: nobody may be there any more to hear it.
const HALF_CLOSED: Duration = Duration::from_secs(300);

thread_local! {
    /// Read into and written from within one step: one is enough for all connections, and an idle connection holds none.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

/// First bytes of a client, which are looked at while they are passed on.
pub(super) enum FirstBytes<'a> {
    Nothing,
    /// A TLS hello of so many bytes.
    Hello(&'a Hellos<'a>, usize),
    /// Bytes that are not known to be HTTP or TLS, and must not be.
    Other(&'a Other<'a>),
}

/// Copies both ways until both sides have said all. A side that has said all is told to the other, which may go on for as long as
/// it says something. If either fails, both are reset. What was heard of the client already is passed on first.
pub(super) async fn relay(client: TcpStream, server: MeteredServer, heard: Vec<u8>, first: FirstBytes<'_>) {
    if both_ways(&client, &server, heard, &first).await.is_err() {
        reset(client);
        reset(server.socket);
    }
}

async fn both_ways(
    client: &TcpStream,
    server: &MeteredServer,
    heard: Vec<u8>,
    first: &FirstBytes<'_>,
) -> io::Result<()> {
    let passed = AtomicU64::new(0);
    let there = async {
        match first {
            FirstBytes::Nothing => write_all(server, &heard).await?,
            FirstBytes::Hello(hellos, length) => hellos.pass((heard, *length), client, server).await?,
            FirstBytes::Other(other) => other.pass(heard, client, server).await?,
        }
        one_way(client, server, &passed).await
    };
    let back = async {
        match first {
            FirstBytes::Nothing => {}
            FirstBytes::Hello(hellos, _) => hellos.listen(server, client).await?,
            FirstBytes::Other(other) => other.listen(server, client).await?,
        }
        one_way(server, client, &passed).await
    };
    tokio::pin!(there, back);
    tokio::select! {
        done = &mut there => {
            done?;
            unless_silent(back, &passed).await
        }
        done = &mut back => {
            done?;
            unless_silent(there, &passed).await
        }
    }
}

async fn unless_silent(mut way: Pin<&mut impl Future<Output = io::Result<()>>>, passed: &AtomicU64) -> io::Result<()> {
    loop {
        let before = passed.load(Ordering::Relaxed);
        match timeout(HALF_CLOSED, &mut way).await {
            Ok(done) => return done,
            Err(_) if passed.load(Ordering::Relaxed) == before => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => {}
        }
    }
}

async fn one_way(from: &impl MeteredSide, to: &impl MeteredSide, passed: &AtomicU64) -> io::Result<()> {
    let (source, sink) = (from.socket(), to.socket());
    loop {
        let pass = || SCRATCH.with_borrow_mut(|scratch| pass(source, sink, scratch));
        source.readable().await?;
        rest(from).await?;
        rest(to).await?;
        let (step, read, written) = match source.try_io(Interest::READABLE, pass) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            passed => passed?,
        };
        passed.fetch_add(1, Ordering::Relaxed);
        from.count(0, read)?;
        to.count(written, 0)?;
        match step {
            PassedBytes::All => {}
            PassedBytes::Left(rest) => write_all(to, &rest).await?,
            // Whoever has closed already need not hear that nothing more comes.
            PassedBytes::End => return Ok(rustix::net::shutdown(sink, Shutdown::Write).or_else(not_connected)?),
        }
    }
}

fn not_connected(errno: rustix::io::Errno) -> rustix::io::Result<()> {
    if errno == rustix::io::Errno::NOTCONN { Ok(()) } else { Err(errno) }
}

enum PassedBytes {
    All,
    /// The other side had no room for this.
    Left(Vec<u8>),
    /// Nothing more will come.
    End,
}

/// Passes bytes on. It returns what became of what was read, how much that was, and how much of it was written.
fn pass(from: &TcpStream, to: &TcpStream, scratch: &mut [u8]) -> io::Result<(PassedBytes, usize, usize)> {
    let (_, read) = rustix::net::recv(from, &mut *scratch, RecvFlags::empty())?;
    if read == 0 {
        return Ok((PassedBytes::End, 0, 0));
    }
    let bytes = scratch.get(..read).unwrap_or_default();
    let written = match rustix::net::send(to, bytes, SendFlags::NOSIGNAL) {
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => 0,
        other => other?,
    };
    let passed = match bytes.get(written..) {
        None | Some([]) => PassedBytes::All,
        Some(rest) => PassedBytes::Left(rest.to_vec()),
    };
    Ok((passed, read, written))
}
