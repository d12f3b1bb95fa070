//! What is between client and server: bounded in both directions, and its end is noticed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{Notify, watch};

use crate::values::Values;

/// Most messages that a client has not taken. As long as there are so many, nothing more is read from it.
const UNREAD_MAX: usize = 256;

/// Reads from the client, and tells when it has closed its end. What of a message comes after too many values is made unreadable, so
/// that the message is none.
pub(crate) struct UntilClosed<R> {
    from: R,
    /// Of the line that is being read.
    values: Values,
    closed: watch::Sender<bool>,
}

impl<R> UntilClosed<R> {
    pub(crate) fn new(from: R) -> (Self, Closed) {
        let (closed, seen) = Closed::channel();
        (Self { from, values: Values::default(), closed }, seen)
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for UntilClosed<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.from).poll_read(cx, buf);
        if let Poll::Ready(done) = &read
            && (done.is_err() || (buf.filled().len() == before && buf.remaining() > 0))
        {
            self.closed.send_replace(true);
        }
        for byte in buf.filled_mut().iter_mut().skip(before) {
            self.values.add(*byte);
            if *byte == b'\n' {
                self.values = Values::default();
            } else if self.values.are_too_many() {
                *byte = 0;
            }
        }
        read
    }
}

/// Whether the client has closed its end.
#[derive(Debug, Clone)]
pub(crate) struct Closed(watch::Receiver<bool>);

impl Closed {
    /// For a client that is told of otherwise: it is gone when this says so, or is dropped.
    pub(crate) fn channel() -> (watch::Sender<bool>, Self) {
        let (closed, seen) = watch::channel(false);
        (closed, Self(seen))
    }

    pub(crate) fn is(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when it has.
    pub(crate) async fn wait(&mut self) {
        // Nobody who could tell means that nobody reads any more.
        drop(self.0.wait_for(|closed| *closed).await);
    }
}

/// A transport that reads no further from a client that does not read itself.
pub(crate) struct Bounded<T> {
    inner: T,
    unread: Arc<Unread>,
}

#[derive(Default)]
struct Unread {
    count: AtomicUsize,
    fewer: Notify,
}

/// One message, until it is written or dropped.
struct One(Arc<Unread>);

impl Drop for One {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.fewer.notify_one();
    }
}

impl<T> Bounded<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, unread: Arc::default() }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Bounded<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.unread.count.fetch_add(1, Ordering::Relaxed);
        let one = One(Arc::clone(&self.unread));
        let sent = self.inner.send(item);
        async move {
            let sent = sent.await;
            drop(one);
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        while self.unread.count.load(Ordering::Relaxed) >= UNREAD_MAX {
            self.unread.fewer.notified().await;
        }
        self.inner.receive().await
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]

    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::values::VALUES_MAX;

    #[tokio::test]
    async fn a_line_with_too_many_values_is_no_message_and_the_next_one_is() {
        let list = |values: usize| format!("[{}0]\n", "0,".repeat(values));
        let sent = list(VALUES_MAX - 1) + &list(VALUES_MAX) + "{}\n";
        let mut read = String::new();
        UntilClosed::new(sent.as_bytes()).0.read_to_string(&mut read).await.unwrap();
        let lines: Vec<&str> = read.lines().collect();
        let is_message = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok();
        assert_eq!(lines.iter().map(|line| is_message(line)).collect::<Vec<_>>(), [true, false, true]);
    }
}
