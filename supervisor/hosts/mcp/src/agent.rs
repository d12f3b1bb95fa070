//! Agents that are programs: each makes the calls of its own session by the protocol, at the socket that it finds in its sandbox.
//!
//! Such a program is confined, and a model may have written what it runs. So what it sends is weighed before it is parsed, and a
//! program that sends too much is served no more. It is the agent: whoever its calls have to ask is asked through the caller of
//! `task`, never through this client, whatever it says that it can do.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use callgate::{AgentEndpoint, AgentService, Session, Traceparent, json};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use crate::asking::{CALLER, Caller};
use crate::server::{self, Whose};

/// Most bytes of one message.
const MESSAGE_MAX: usize = 2 << 20;
/// Most bytes that one may take when it is parsed.
const PARSED_MAX: usize = 4 << 20;
/// Most calls of one agent at once, by all of its connections.
const CALLS_MAX: usize = 16;
/// How much is read at once.
const PIECE: usize = 16 * 1024;

/// Serves agents that are programs ([`SessionSpec::agent_endpoint`](callgate::SessionSpec::agent_endpoint)).
#[derive(Debug, Clone, Copy, Default)]
pub struct Agents;

impl AgentEndpoint for Agents {
    fn service(&self) -> AgentService {
        let caller = CALLER.try_with(Clone::clone).unwrap_or(Caller::Nobody);
        let calls = Arc::new(Semaphore::new(CALLS_MAX));
        let trace = Traceparent::current();
        Box::new(move |session, connection| {
            let (caller, calls, trace) = (caller.clone(), Arc::clone(&calls), trace.clone());
            Box::pin(serve(session, connection, Whose::Agent { caller, calls, trace }))
        })
    }
}

async fn serve(session: Arc<Session>, connection: UnixStream, whose: Whose) {
    let (from, to) = connection.into_split();
    if let Err(error) = server::serve_whose(session, Weighed::new(from), to, (whose, MESSAGE_MAX)).await {
        // What it has said is a program's own, and stays out of this.
        tracing::info!(error = &error as &dyn std::error::Error, "an agent's program is served no more");
    }
}

/// Passes on whole lines that are no longer and take no more than they may. At the first other one there is nothing more to read.
struct Weighed<R> {
    from: R,
    /// Bytes that were read; up to `whole` it may be passed on.
    read: Vec<u8>,
    whole: usize,
    /// Up to where there is no end of a line after `whole`.
    seen: usize,
    passed: usize,
}

impl<R> Weighed<R> {
    fn new(from: R) -> Self {
        Self { from, read: Vec::new(), whole: 0, seen: 0, passed: 0 }
    }

    /// Looks at the lines that have become whole.
    fn weigh(&mut self) -> io::Result<()> {
        while let Some(length) = self.read[self.seen..].iter().position(|byte| *byte == b'\n') {
            let end = self.seen + length + 1;
            let line = &self.read[self.whole..end];
            let is_blank = line.iter().all(u8::is_ascii_whitespace);
            if line.len() > MESSAGE_MAX || !is_blank && json::parse(line, PARSED_MAX).is_err() {
                return Err(refused());
            }
            (self.whole, self.seen) = (end, end);
        }
        self.seen = self.read.len();
        if self.read.len() - self.whole > MESSAGE_MAX { Err(refused()) } else { Ok(()) }
    }
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message that is no JSON, or is larger than one may be")
}

impl<R: AsyncRead + Unpin> AsyncRead for Weighed<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.passed == this.whole {
            this.read.drain(..this.passed);
            this.seen -= this.passed;
            (this.passed, this.whole) = (0, 0);
            let mut piece = [0; PIECE];
            let mut into = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut this.from).poll_read(cx, &mut into))?;
            if into.filled().is_empty() {
                // The begin of a line without its end is none.
                return Poll::Ready(Ok(()));
            }
            this.read.extend_from_slice(into.filled());
            this.weigh()?;
        }
        let ready = &this.read[this.passed..this.whole];
        let taken = ready.len().min(buf.remaining());
        buf.put_slice(&ready[..taken]);
        this.passed += taken;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Part that is passed on of what was sent, and whether that was all of it.
    async fn passed(sent: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::new();
        let ended = Weighed::new(sent).read_to_end(&mut passed).await;
        (passed, ended.is_ok())
    }

    fn message(text: &str) -> Vec<u8> {
        format!("{{\"text\":\"{text}\"}}\n").into_bytes()
    }

    /// Whole lines come through as they are, however they arrive; what is too long, too heavy or no JSON ends it.
    #[tokio::test]
    async fn what_a_program_sends_is_weighed_before_it_is_parsed() {
        let good = [message("one"), b"\n".to_vec(), message(&"x".repeat(MESSAGE_MAX / 2)), message("two")].concat();
        assert_eq!(passed(&good).await, (good.clone(), true));
        assert_eq!(passed(b"{\"no\": \"end\"").await, (Vec::new(), true), "a line without its end");
        let long = message(&"x".repeat(MESSAGE_MAX));
        let endless = vec![b' '; MESSAGE_MAX + PIECE];
        // Each takes a hundred times as many bytes as it has.
        let dense = format!("[{}0]\n", "{\"\":0},".repeat(MESSAGE_MAX / 16)).into_bytes();
        assert!(dense.len() < MESSAGE_MAX && json::parse(&dense, usize::MAX).is_ok(), "the control");
        for bad in [long, endless, dense, b"no JSON\n".to_vec()] {
            let (came, whole) = passed(&[message("one"), bad, message("two")].concat()).await;
            assert!(!whole);
            assert!(came.is_empty() || came == message("one"));
        }
    }
}
