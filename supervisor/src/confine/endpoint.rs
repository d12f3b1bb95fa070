//! The supervisor's side of a session's endpoint: what the session's broker hands over.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use callgate_worker::protocol::{AtEndpoint, Channel, Received};
use rustix::fs::OFlags;
use tokio::net::UnixStream;

use super::channel::AsyncChannel;

/// Where the connections of an agent's program come.
pub(crate) struct Endpoint(AsyncChannel);

/// The broker's end, which goes to it with the program.
pub(crate) struct EndpointOfBroker(Channel);

impl Endpoint {
    /// Two ends.
    pub(crate) fn pair() -> io::Result<(Self, EndpointOfBroker)> {
        let (ours, theirs) = Channel::pair()?;
        // The broker serves the whole session, and must not wait for this side.
        let flags = rustix::fs::fcntl_getfl(theirs.as_fd())?;
        rustix::fs::fcntl_setfl(theirs.as_fd(), flags | OFlags::NONBLOCK)?;
        Ok((Self(AsyncChannel::new(ours)?), EndpointOfBroker(theirs)))
    }

    /// The next connection. `None` once the program has ended with all that it started.
    pub(crate) async fn accept(&self) -> Option<UnixStream> {
        match self.0.receive::<AtEndpoint>().await.ok()? {
            Received::Message(AtEndpoint::Connected, fds) => stream(fds.into_iter().next()?).ok(),
            Received::Data(_) | Received::Closed => None,
        }
    }
}

impl EndpointOfBroker {
    pub(super) fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn stream(connection: OwnedFd) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(connection);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
