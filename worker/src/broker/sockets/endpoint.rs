//! The endpoint of a session whose agent is a program: the way by which that program makes the session's calls.
//!
//! The name is no file. The broker knows it, and whose call may use it: no other call of the session, and nobody outside, has
//! anything to connect to. The broker makes both ends itself, and hands the supervisor one of a second pair: bytes are carried from
//! one to the other, and nothing is read out of them.
//!
//! So the supervisor never holds what a program sends beside its bytes. The kernel closes descriptors that were sent to a socket in
//! the thread that reads from it or closes it, and that can take long (an inotify instance, a large file without a name): here it is
//! a thread that nothing waits for.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use callgate_policy::plan::ENDPOINT;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

use super::super::caller::Caller;
use super::super::calls::{CallEndpoint, RunningCall};
use super::super::state::Broker;
use super::held::{errno, io_errno};
use super::unix;
use crate::protocol::AtEndpoint;
use crate::sys::socket as raw;

/// True if an address is the endpoint's, and the call one that has an endpoint.
pub(super) fn is_meant(call: &RunningCall, address: &[u8]) -> bool {
    call.endpoint.is_some() && unix::path_of(address).as_deref() == Some(ENDPOINT)
}

/// Most connections of a call that are carried. One that its program does not close is carried on.
const CARRIED: usize = 64;
/// How much is carried at once.
const PIECE: usize = 16 * 1024;

/// Connects a socket of the caller's. This waits for nobody: the queue is new, and nobody else finds it. Without a place on the
/// channel, the program is refused as it would be by a server that does not listen.
pub(super) fn connect(broker: &mut Broker, caller: &Caller<'_>, inode: u64) -> Result<(), i32> {
    let (listener, file) = unix::listen_for_one(broker, caller)?;
    let address = unix::address_of(&file)?;
    let call = broker.call(caller)?;
    let kept = call.sockets.get(inode).ok_or(libc::EISCONN)?;
    raw::connect(kept.fd.as_fd(), &address).map_err(io_errno)?;
    // What is connected ends when the caller closes it.
    call.sockets.forget(inode);
    let stream = rustix::net::accept_with(&listener, rustix::net::SocketFlags::CLOEXEC).map_err(errno)?;
    hand_over(call, stream)
}

fn hand_over(call: &RunningCall, stream: OwnedFd) -> Result<(), i32> {
    let endpoint = call.endpoint.as_ref().ok_or(libc::ECONNREFUSED)?;
    // Each has one in each of its two threads, and there is one more.
    if Arc::strong_count(&endpoint.carried) > 2 * CARRIED {
        return Err(libc::ECONNREFUSED);
    }
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let (ours, supervisors) = pair.map_err(errno)?;
    endpoint
        .channel
        .send(&AtEndpoint::Connected, &[supervisors.as_fd()])
        .map_err(|_gone_or_full| libc::ECONNREFUSED)?;
    let (program, supervisor) = (Arc::new(stream), Arc::new(ours));
    // Its answers still come when the program has said its last.
    carry(endpoint, (&program, &supervisor), Shutdown::Write)?;
    // A program that is served no more is not heard any more either.
    carry(endpoint, (&supervisor, &program), Shutdown::Both)
}

/// Carries bytes one way, in a thread of its own, until either side is closed; then the other is, as far as `end` says.
fn carry(endpoint: &CallEndpoint, (from, to): (&Arc<OwnedFd>, &Arc<OwnedFd>), end: Shutdown) -> Result<(), i32> {
    let (from, to, carried) = (Arc::clone(from), Arc::clone(to), Arc::clone(&endpoint.carried));
    let work = move || {
        let mut piece = [0; PIECE];
        // Without room for anything else, which the kernel closes.
        while let Ok((read @ 1.., _)) = rustix::net::recv(&from, &mut piece, RecvFlags::empty()) {
            if !send_all(&to, &piece[..read]) {
                let _closed: rustix::io::Result<()> = rustix::net::shutdown(&from, Shutdown::Read);
                break;
            }
        }
        let _closed: rustix::io::Result<()> = rustix::net::shutdown(&to, end);
        drop(carried);
    };
    std::thread::Builder::new().stack_size(64 * 1024).spawn(work).map(drop).map_err(io_errno)
}

/// Sends all of a piece. False if nobody takes it any more.
fn send_all(to: &OwnedFd, mut piece: &[u8]) -> bool {
    while !piece.is_empty() {
        match rustix::net::send(to, piece, SendFlags::NOSIGNAL) {
            Ok(sent) => piece = piece.get(sent..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_closed) => return false,
        }
    }
    true
}
