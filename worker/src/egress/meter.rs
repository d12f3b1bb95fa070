//! Bytes that connections have carried, and whether they may carry more.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use callgate_policy::envelope::Carried;
use callgate_policy::limit::LimitName;
use callgate_policy::plan::Carries;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::lock::lock;

/// How far a session may be ahead of its rate: what comes in pieces is not slowed down for that.
const AHEAD: Duration = Duration::from_millis(100);

/// Counts what connections carry.
#[derive(Debug)]
pub(super) struct ConnectionMeter {
    connections: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    most: u64,
    /// It was said that they may carry no more.
    is_told: AtomicBool,
}

impl ConnectionMeter {
    /// For so many bytes, both ways together.
    pub(super) fn new(most: u64) -> Self {
        let none = AtomicU64::default;
        Self { connections: none(), sent: none(), received: none(), most, is_told: AtomicBool::default() }
    }

    /// Bytes carried so far.
    pub(super) fn carried(&self) -> Carried {
        let [connections, sent, received] =
            [&self.connections, &self.sent, &self.received].map(|count| count.load(Ordering::Relaxed));
        Carried { connections, sent, received }
    }

    fn add(&self, sent: u64, received: u64) {
        self.sent.fetch_add(sent, Ordering::Relaxed);
        self.received.fetch_add(received, Ordering::Relaxed);
    }

    /// How much was carried, if that is more than may be.
    fn excess(&self) -> Option<u64> {
        Some(self.carried().bytes()).filter(|bytes| *bytes > self.most)
    }
}

/// The meter of all that a session carries, which paces it as well.
#[derive(Debug)]
pub(super) struct SessionMeter {
    meter: ConnectionMeter,
    /// Bytes a second.
    rate: Option<u64>,
    /// When all that was carried is within the rate.
    even: Mutex<Instant>,
}

impl SessionMeter {
    pub(super) fn new(carries: &Carries) -> Self {
        Self { meter: ConnectionMeter::new(carries.session), rate: carries.rate, even: Mutex::new(Instant::now()) }
    }

    fn add(&self, sent: u64, received: u64) {
        self.meter.add(sent, received);
        if let Some(rate) = self.rate {
            let nanos = u128::from(sent + received) * 1_000_000_000 / u128::from(rate.max(1));
            let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            let mut even = lock(&self.even);
            *even = (*even).max(Instant::now()).checked_add(takes).unwrap_or(*even);
        }
    }

    /// How long to carry nothing.
    fn pause(&self) -> Duration {
        if self.rate.is_none() {
            return Duration::ZERO;
        }
        lock(&self.even).saturating_duration_since(Instant::now()).saturating_sub(AHEAD)
    }
}

/// Says that a call's connections end because they have carried too much: which limit, how much, and how much may be.
pub(super) type LimitNotice = Arc<dyn Fn(String) + Send + Sync>;

/// Whose what a connection carries is.
#[derive(Clone)]
pub(super) struct ConnectionAccount {
    call: Arc<ConnectionMeter>,
    session: Arc<SessionMeter>,
    tell: LimitNotice,
}

impl ConnectionAccount {
    /// For another connection of this call.
    pub(super) fn open(call: Arc<ConnectionMeter>, session: Arc<SessionMeter>, tell: LimitNotice) -> Self {
        for meter in [&*call, &session.meter] {
            meter.connections.fetch_add(1, Ordering::Relaxed);
        }
        Self { call, session, tell }
    }

    /// An error if that was too much.
    fn count(&self, sent: usize, received: usize) -> io::Result<()> {
        let [sent, received] = [sent, received].map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX));
        self.call.add(sent, received);
        self.session.add(sent, received);
        self.check()
    }

    /// An error if too much was carried, by whichever connection: of many that are open, none carries a piece more.
    fn check(&self) -> io::Result<()> {
        let Some(reason) = excess(&self.call, &self.session) else { return Ok(()) };
        // All its connections end, for one reason.
        if !self.call.is_told.swap(true, Ordering::Relaxed) {
            (self.tell)(reason);
        }
        Err(io::ErrorKind::QuotaExceeded.into())
    }
}

/// Reason why a call may carry no more, if it may not.
pub(super) fn excess(call: &ConnectionMeter, session: &SessionMeter) -> Option<String> {
    let of = |limit: LimitName, meter: &ConnectionMeter| {
        let used = meter.excess()?;
        Some(format!("{}; {}", limit.story(used, meter.most), limit.remedy(used, meter.most)))
    };
    of(LimitName::Network, call).or_else(|| of(LimitName::SessionNetwork, &session.meter))
}

/// One side of a connection.
pub(super) trait MeteredSide {
    fn socket(&self) -> &TcpStream;

    /// So many bytes were sent to it, and so many came from it. An error if that was too much.
    fn count(&self, _sent: usize, _received: usize) -> io::Result<()> {
        Ok(())
    }

    /// How long to carry nothing. An error if it may carry no more.
    fn may_carry(&self) -> io::Result<Duration> {
        Ok(Duration::ZERO)
    }
}

impl MeteredSide for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

/// The side outside, for which is counted.
pub(super) struct MeteredServer {
    pub(super) socket: TcpStream,
    account: ConnectionAccount,
    pause: Option<Pin<Box<Sleep>>>,
}

impl MeteredServer {
    pub(super) fn new(socket: TcpStream, account: ConnectionAccount) -> Self {
        Self { socket, account, pause: None }
    }

    /// Waits until it may carry more.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            // Another may have carried something meanwhile.
            let pause = self.may_carry()?;
            if pause.is_zero() {
                return Poll::Ready(Ok(()));
            }
            self.pause = Some(Box::pin(tokio::time::sleep(pause)));
        }
    }

    fn poll_writing(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_rest(cx))?;
        let written = ready!(write(Pin::new(&mut self.socket), cx))?;
        self.count(written, 0)?;
        Poll::Ready(Ok(written))
    }
}

impl MeteredSide for MeteredServer {
    fn socket(&self) -> &TcpStream {
        &self.socket
    }

    fn count(&self, sent: usize, received: usize) -> io::Result<()> {
        self.account.count(sent, received)
    }

    fn may_carry(&self) -> io::Result<Duration> {
        self.account.check()?;
        Ok(self.account.session.pause())
    }
}

impl AsyncRead for MeteredServer {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_rest(cx))?;
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.socket).poll_read(cx, buf))?;
        Poll::Ready(this.count(0, buf.filled().len() - before))
    }
}

impl AsyncWrite for MeteredServer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_writing(cx, |socket, cx| socket.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_writing(cx, |socket, cx| socket.poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}
