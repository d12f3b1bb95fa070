//! Wire between client and server: bounded in both directions, and its end is noticed.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rmcp::model::{JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, ServiceRole, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{Notify, watch};

use crate::values::Values;

/// Most bytes of one message. A larger one is read to its end and thrown away; nobody knows whose answer it would want.
pub(crate) const MESSAGE_MAX: usize = 8 << 20;
/// Most messages that the other side has not taken. As long as there are so many, nothing more is read from it.
const UNREAD_MAX: usize = 256;

/// Most messages in a second of another side that nobody trusts.
const MESSAGES_MAX: u32 = 1000;
const SECOND: Duration = Duration::from_secs(1);
/// How long a request counts that was taken back: whatever handles it may be about to answer.
const TAKEN_BACK: Duration = Duration::from_secs(10);

/// Reads from the client, and tells when it has closed its end. What of a message comes after too many values is made unreadable, so
/// that the message is none.
pub(crate) struct UntilClosed<R> {
    from: R,
    /// Values of the line that is being read.
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

/// True once the client has closed its end.
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

/// A transport that reads no further from another side that does not read itself.
pub(crate) struct Bounded<T> {
    inner: T,
    unread: Arc<Unread>,
    /// Questions of another side that nobody trusts, which were not answered.
    asked: Option<Asked>,
    /// Since when so many messages have been read.
    pace: (Instant, u32),
}

#[derive(Default)]
struct Unread {
    count: AtomicUsize,
    fewer: Notify,
}

/// Requests, by their ids, until they are answered.
#[derive(Default)]
struct Asked {
    open: HashMap<RequestId, Vec<One>>,
    /// Questions that were taken back: they are answered no more, or a little later.
    taken_back: VecDeque<(Instant, One)>,
}

impl Asked {
    fn answered(&mut self, id: &RequestId) -> Option<One> {
        let open = self.open.get_mut(id)?;
        let one = open.pop();
        if open.is_empty() {
            self.open.remove(id);
        }
        one
    }

    fn take_back(&mut self, id: &RequestId) {
        let ones = self.open.remove(id).unwrap_or_default();
        self.taken_back.extend(ones.into_iter().map(|one| (Instant::now(), one)));
    }

    fn forget_what_is_over(&mut self) {
        while self.taken_back.front().is_some_and(|(since, _)| since.elapsed() >= TAKEN_BACK) {
            self.taken_back.pop_front();
        }
    }
}

/// One message, until it is written or dropped.
struct One(Arc<Unread>);

impl One {
    fn of(unread: &Arc<Unread>) -> Self {
        unread.count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(unread))
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.fewer.notify_one();
    }
}

impl<T> Bounded<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, unread: Arc::default(), asked: None, pace: (Instant::now(), 0) }
    }

    /// To another side that nobody trusts: one that asks, and does not read, is not read either. Nor is one that says too much.
    pub(crate) fn wary(inner: T) -> Self {
        Self { asked: Some(Asked::default()), ..Self::new(inner) }
    }
}

impl<T> Bounded<T> {
    /// Waits until the next second, if there were too many messages in this one: others have the thread as well.
    async fn keep_pace(&mut self) {
        let (since, messages) = self.pace;
        if messages >= MESSAGES_MAX {
            tokio::time::sleep(SECOND.saturating_sub(since.elapsed())).await;
        }
        if since.elapsed() >= SECOND {
            self.pace = (Instant::now(), 0);
        }
    }
}

impl<R: ServiceRole, T: Transport<R>> Transport<R> for Bounded<T> {
    type Error = T::Error;

    fn send(&mut self, item: TxJsonRpcMessage<R>) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answers = match &item {
            JsonRpcMessage::Response(answer) => Some(&answer.id),
            JsonRpcMessage::Error(answer) => answer.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let asked = self.asked.as_mut().zip(answers).and_then(|(asked, id)| asked.answered(id));
        let one = asked.unwrap_or_else(|| One::of(&self.unread));
        let sent = self.inner.send(item);
        async move {
            let sent = sent.await;
            drop(one);
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<R>> {
        loop {
            if let Some(asked) = &mut self.asked {
                asked.forget_what_is_over();
            }
            if self.unread.count.load(Ordering::Relaxed) < UNREAD_MAX {
                break;
            }
            // Some of them are over by themselves.
            drop(tokio::time::timeout(SECOND, self.unread.fewer.notified()).await);
        }
        if self.asked.is_some() {
            self.keep_pace().await;
        }
        let received = self.inner.receive().await;
        self.pace.1 += 1;
        if let (Some(asked), Some(received)) = (&mut self.asked, &received) {
            match received {
                JsonRpcMessage::Request(request) => {
                    asked.open.entry(request.id.clone()).or_default().push(One::of(&self.unread));
                }
                JsonRpcMessage::Notification(notification) => {
                    let taken_back = R::peer_cancelled_params(&notification.notification);
                    if let Some(id) = taken_back.and_then(|params| params.request_id.as_ref()) {
                        asked.take_back(id);
                    }
                }
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
            }
        }
        received
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
