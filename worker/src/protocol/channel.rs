//! Frames with descriptors over a pair of `SOCK_SEQPACKET` sockets.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest frame, bytes, tag included.
pub const FRAME_MAX: usize = 32 * 1024;
/// The largest message of a side that is believed, bytes: what it may make the other hold.
pub const LARGE: usize = 64 * 1024 * 1024;
/// Most descriptors in a frame: of a program with a terminal, an endpoint and a cgroup, and the memfd of a message that is long.
const FDS_MAX: usize = 10;

const TAG_INLINE: u8 = b'J';
const TAG_MEMFD: u8 = b'M';
const TAG_DATA: u8 = b'D';

/// Message of one process to another.
///
/// Invariant: a longer one is refused before it is read. Read as JSON it is many times as long in memory, and who sends may have
/// been taken over; so each kind says how long it has reason to be.
pub trait ChannelMessage: Serialize + DeserializeOwned {
    /// Most bytes of one, as JSON. Up to [`FRAME_MAX`] it travels in a frame, and never as a memfd.
    const LONGEST: usize;
}

/// Nothing is said: who listens waits for the other side's end.
impl ChannelMessage for () {
    const LONGEST: usize = FRAME_MAX;
}

/// One end of a connection between two of callgate's processes.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// One frame.
#[derive(Debug)]
pub enum Received<T> {
    /// A message, and the descriptors that came with it.
    Message(T, Vec<OwnedFd>),
    /// Result bytes.
    Data(Vec<u8>),
    /// The other side is gone.
    Closed,
}

impl Channel {
    /// Two connected ends, both closed on exec.
    ///
    /// # Errors
    /// socketpair(2)'s own.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(a), Self(b)))
    }

    /// Sends a message with descriptors.
    ///
    /// # Errors
    /// `EPIPE` if the other side is gone; `EAGAIN` on a full non-blocking channel; `InvalidData` for a message that is longer
    /// than its kind may be.
    pub fn send<T: ChannelMessage>(&self, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let frame = inline(message)?;
        if frame.len() <= FRAME_MAX {
            return self.send_frame(&frame, fds);
        }
        if frame.len() > T::LONGEST {
            return Err(invalid("a message longer than its kind may be"));
        }
        let memfd = sealed_memfd(&frame[1..])?;
        let mut all = fds.to_vec();
        all.push(memfd.as_fd());
        self.send_frame(&[TAG_MEMFD], &all)
    }

    /// Sends a message in one frame if it fits; says whether it did.
    ///
    /// # Errors
    /// As [`Channel::send`].
    pub fn send_if_it_fits<T: ChannelMessage>(&self, message: &T) -> io::Result<bool> {
        let frame = inline(message)?;
        let fits = frame.len() <= FRAME_MAX;
        if fits {
            self.send_frame(&frame, &[])?;
        }
        Ok(fits)
    }

    /// Sends result bytes; at most [`FRAME_MAX`] - 1 of them in a frame.
    ///
    /// # Errors
    /// As [`Channel::send`].
    pub fn send_data(&self, data: &[u8]) -> io::Result<()> {
        for chunk in data.chunks(FRAME_MAX - 1) {
            let parts = [IoSlice::new(&[TAG_DATA]), IoSlice::new(chunk)];
            self.send_parts(&parts, &[])?;
        }
        Ok(())
    }

    fn send_frame(&self, frame: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_parts(&[IoSlice::new(frame)], fds)
    }

    fn send_parts(&self, parts: &[IoSlice<'_>], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        loop {
            match rustix::net::sendmsg(&self.0, parts, &mut control, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => return other.map(drop).map_err(io::Error::from),
            }
        }
    }

    /// Receives a message if one is there, and waits for none. `None` also for frames that are no message, and if the other
    /// side is gone.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub fn receive_if_there<T: ChannelMessage>(&self) -> io::Result<Option<T>> {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(0) | Err(nix::Error::EINTR) => return Ok(None),
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        match self.receive()? {
            Received::Message(message, _) => Ok(Some(message)),
            Received::Data(_) | Received::Closed => Ok(None),
        }
    }

    /// The other side will hear that this one is gone; it can still be heard.
    ///
    /// # Errors
    /// shutdown(2)'s own.
    pub fn say_no_more(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write)?)
    }

    /// Receives one frame; waits for it unless the channel is non-blocking.
    ///
    /// # Errors
    /// `EAGAIN` on an empty non-blocking channel; `InvalidData` for a frame that is not one of ours.
    pub fn receive<T: ChannelMessage>(&self) -> io::Result<Received<T>> {
        let Some(mut buffer) = self.wait_for_frame()? else { return Ok(Received::Closed) };
        let mut fds = self.receive_frame(&mut buffer)?;
        let Some((tag, body)) = buffer.split_first() else {
            return Ok(Received::Closed);
        };
        match *tag {
            TAG_INLINE => Ok(Received::Message(serde_json::from_slice(body)?, fds)),
            TAG_MEMFD => {
                let memfd = fds.pop().ok_or_else(|| invalid("a large message without its memfd"))?;
                Ok(Received::Message(serde_json::from_slice(&read_memfd(memfd, T::LONGEST)?)?, fds))
            }
            TAG_DATA => {
                buffer.remove(0);
                Ok(Received::Data(buffer))
            }
            _ => Err(invalid("an unknown frame tag")),
        }
    }

    /// Waits for a frame and makes room for exactly it: most are small, and every page that a fork touches is copied.
    /// `None` if the other side is gone.
    fn wait_for_frame(&self) -> io::Result<Option<Vec<u8>>> {
        let len = loop {
            match rustix::net::recv(&self.0, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::TRUNC) {
                Err(rustix::io::Errno::INTR) => {}
                // A peer that was killed with our frames unread.
                Err(rustix::io::Errno::CONNRESET) => break 0,
                other => break other?.1,
            }
        };
        match len {
            0 => Ok(None),
            1..=FRAME_MAX => Ok(Some(vec![0; len])),
            _ => Err(invalid("a frame longer than the largest")),
        }
    }

    fn receive_frame(&self, buffer: &mut [u8]) -> io::Result<Vec<OwnedFd>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(buffer)];
            match rustix::net::recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if received.bytes != buffer.len() {
            return Err(invalid("a frame that changed while it was received"));
        }
        Ok(fds)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::os::fd::AsRawFd for Channel {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

impl From<OwnedFd> for Channel {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0
    }
}

fn inline<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    // To grow is to copy, and each page is a fault in a process that was just forked.
    let mut frame = Vec::with_capacity(1024);
    frame.push(TAG_INLINE);
    serde_json::to_writer(&mut frame, message)?;
    Ok(frame)
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn sealed_memfd(bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(c"callgate-frame", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    rustix::fs::fcntl_add_seals(&file, sealed())?;
    Ok(file.into())
}

fn sealed() -> SealFlags {
    SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

/// Reads a message out of a memfd, which must be sealed: the sender cannot change it while it is read, nor shrink it
/// under a mapping.
fn read_memfd(fd: OwnedFd, longest: usize) -> io::Result<Vec<u8>> {
    if longest <= FRAME_MAX {
        return Err(invalid("a large message of a kind that is never large"));
    }
    // Another file has no seals, or may not be asked for them.
    if !rustix::fs::fcntl_get_seals(&fd)?.contains(sealed()) {
        return Err(invalid("a large message that is not sealed"));
    }
    let mut file = File::from(fd);
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    if length > longest {
        return Err(invalid("a message longer than its kind may be"));
    }
    file.rewind()?;
    let mut bytes = vec![0; length];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use super::*;
    use callgate_policy::step::Step;

    impl ChannelMessage for String {
        const LONGEST: usize = 4 * FRAME_MAX;
    }

    /// As a process would that was taken over.
    fn send_memfd(channel: &Channel, bytes: &[u8]) {
        channel.send_frame(&[TAG_MEMFD], &[sealed_memfd(bytes).unwrap().as_fd()]).unwrap();
    }

    fn is_refused<T: ChannelMessage>(channel: &Channel) -> bool {
        channel.receive::<T>().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData)
    }

    /// D11: what is longer than its kind may be is neither read nor parsed; what is as long is.
    #[test]
    fn d11_a_message_longer_than_its_kind_may_be_is_refused() {
        let (a, b) = Channel::pair().unwrap();
        let quoted = |length: usize| format!("\"{}\"", "x".repeat(length - 2)).into_bytes();
        send_memfd(&a, &quoted(String::LONGEST));
        assert!(matches!(b.receive::<String>(), Ok(Received::Message(..))), "the control");
        send_memfd(&a, &quoted(String::LONGEST + 1));
        assert!(is_refused::<String>(&b));
        assert_eq!(a.send(&"x".repeat(String::LONGEST), &[]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        // A file of 64 GiB that takes none: nobody makes room for it.
        let sparse = rustix::fs::memfd_create(c"x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&sparse, 64 << 30).unwrap();
        rustix::fs::fcntl_add_seals(&sparse, sealed()).unwrap();
        a.send_frame(&[TAG_MEMFD], &[sparse.as_fd()]).unwrap();
        assert!(is_refused::<String>(&b));
    }

    /// D11: what a worker that was taken over can say is never large, whichever frame it is.
    #[test]
    fn d11_no_frame_of_a_worker_is_large() {
        use callgate_policy::failure::ErrorCode;

        use crate::protocol::{FromWorker, StepFailure, ToolEnd};
        let long = "x".repeat(2 * FRAME_MAX);
        let step = |detail: String| callgate_policy::envelope::StepReport::new(Step::Session, detail);
        let output = |data| FromWorker::ToolEnded(ToolEnd::Output { truncated: false, lost: false, data: Some(data) });
        let frames = [
            FromWorker::Confined { steps: vec![step(long.clone())] },
            FromWorker::Confined { steps: (0..FRAME_MAX).map(|_| step(String::new())).collect() },
            FromWorker::Failed(StepFailure { step: Step::Session, what: long.clone(), errno: None }),
            output(long.clone().into()),
            output(vec![serde_json::Value::Null; FRAME_MAX].into()),
            FromWorker::ToolEnded(ToolEnd::Error { text: long, errno: None, code: ErrorCode::NotFound }),
        ];
        let (a, b) = Channel::pair().unwrap();
        for frame in frames {
            assert!(a.send(&frame, &[]).is_err(), "an honest one does not send it");
            send_memfd(&a, &serde_json::to_vec(&frame).unwrap());
            assert!(is_refused::<FromWorker>(&b), "{frame:?}");
        }
        a.send(&output("x".into()), &[]).unwrap();
        assert!(matches!(b.receive::<FromWorker>(), Ok(Received::Message(..))), "the control");
    }

    #[test]
    fn a_message_larger_than_a_frame_arrives_whole_with_its_descriptors() {
        let (a, b) = Channel::pair().unwrap();
        let large = "x".repeat(3 * FRAME_MAX);
        a.send(&large, &[a.as_fd()]).unwrap();
        let Received::Message(text, fds) = b.receive::<String>().unwrap() else { unreachable!() };
        assert_eq!((text, fds.len()), (large, 1));
    }

    #[test]
    fn a_memfd_that_is_not_sealed_is_refused() {
        let (a, b) = Channel::pair().unwrap();
        let fd = rustix::fs::memfd_create(c"x", MemfdFlags::CLOEXEC).unwrap();
        a.send_frame(&[TAG_MEMFD], &[fd.as_fd()]).unwrap();
        assert_eq!(b.receive::<String>().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn the_end_of_the_other_side_is_closed() {
        let (a, b) = Channel::pair().unwrap();
        drop(a);
        assert!(matches!(b.receive::<String>().unwrap(), Received::Closed));
    }
}
