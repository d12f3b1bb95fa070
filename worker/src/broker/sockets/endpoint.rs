//! The endpoint of a session whose agent is a program: the way by which that program makes the session's calls.
//!
//! The name is no file. The broker knows it, and whose call may use it: no other call of the session, and nobody outside, has
//! anything to connect to. The broker makes both ends itself and hands one to the supervisor; it reads nothing of what is said.

use std::os::fd::AsFd as _;
use std::os::fd::OwnedFd;

use callgate_policy::plan::ENDPOINT;

use super::super::Broker;
use super::super::caller::Caller;
use super::super::calls::Call;
use super::{errno, io_errno, unix};
use crate::protocol::AtEndpoint;
use crate::sys::socket as raw;

/// True if an address is the endpoint's, and the call one that has an endpoint.
pub(super) fn is_meant(call: &Call, address: &[u8]) -> bool {
    call.endpoint.is_some() && unix::path_of(address).as_deref() == Some(ENDPOINT)
}

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
    hand_over(call, &stream)
}

fn hand_over(call: &Call, stream: &OwnedFd) -> Result<(), i32> {
    let endpoint = call.endpoint.as_ref().ok_or(libc::ECONNREFUSED)?;
    endpoint.send(&AtEndpoint::Connected, &[stream.as_fd()]).map_err(|_gone_or_full| libc::ECONNREFUSED)
}
