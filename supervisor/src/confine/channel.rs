//! A worker crate channel that a tokio task can wait on.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use callgate_worker::protocol::{Channel, ChannelMessage, Received};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// One end of a channel, non-blocking.
pub(crate) struct AsyncChannel(AsyncFd<Channel>);

impl AsyncChannel {
    pub(super) fn new(channel: Channel) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(channel.as_fd())?;
        rustix::fs::fcntl_setfl(channel.as_fd(), flags | rustix::fs::OFlags::NONBLOCK)?;
        // For reading alone: else each message that the other side takes, which makes room, wakes this side.
        #[allow(
            deprecated,
            reason = "its replacement is unsafe; a Channel owns its descriptor and never gives another"
        )]
        Ok(Self(AsyncFd::with_interest(channel, Interest::READABLE)?))
    }

    /// Sends if there is room now; `WouldBlock` otherwise.
    pub(super) fn try_send<T: ChannelMessage>(&self, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.0.get_ref().send(message, fds)
    }

    pub(crate) async fn send<T: ChannelMessage>(&self, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        // Most of the time there is room, and nothing to wait for.
        match self.try_send(message, fds) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
        #[allow(deprecated, reason = "as above; an OwnedFd is one descriptor as long as it lives")]
        let room = AsyncFd::with_interest(self.0.get_ref().as_fd().try_clone_to_owned()?, Interest::WRITABLE)?;
        room.async_io(Interest::WRITABLE, |_| self.try_send(message, fds)).await
    }

    /// Receives a frame if one is there; `WouldBlock` otherwise.
    pub(super) fn try_receive<T: ChannelMessage>(&self) -> io::Result<Received<T>> {
        self.0.get_ref().receive()
    }

    /// Waits until there is something to receive, or the other side is gone.
    pub(super) async fn readable(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            let mut fds = [PollFd::new(self.0.get_ref().as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, PollTimeout::ZERO)? > 0 {
                ready.retain_ready();
                return Ok(());
            }
            ready.clear_ready();
        }
    }

    pub(crate) async fn receive<T: ChannelMessage>(&self) -> io::Result<Received<T>> {
        self.0.async_io(Interest::READABLE, Channel::receive).await
    }
}
