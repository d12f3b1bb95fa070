//! The session's way to what it was granted of the network: egress, a process of its own that stands outside (design
//! "Network"). The broker asks it for each connection, and connects the call's socket to it; it parses nothing that a program
//! or a server wrote.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use callgate_policy::envelope::{Carried, StepReport};
use callgate_policy::pattern::{Host, HostPattern};
use callgate_policy::plan::{self, SessionPlan, Strength};
use callgate_policy::step::Step;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, sockopt};

use crate::apply::{done, failure};
use crate::egress::BACKLOG;
use crate::protocol::{
    Channel, ConnectTarget, ConnectionMade, FromEgress, Reach, Reached, Received, Serve, StepFailure, ToEgress,
};
use crate::sys;

/// Most bytes of questions for names that wait to be read. The kernel takes twice as much, for what it needs besides.
const QUESTIONS_MAX: usize = 128 * 1024;
/// How long egress may take to say what a call has carried.
const COUNTING: u16 = 10_000; // milliseconds
/// Where names are asked for (resolver(5)).
const DNS: u16 = 53;

/// The broker's end of egress.
pub(super) struct EgressEnd {
    egress: Arc<Channel>,
    /// The port on loopback where egress takes connections, in the network of the session's calls.
    port: u16,
    granted: plan::Network,
}

impl EgressEnd {
    /// Makes the sockets on which egress listens, in the network of the session's calls, and hands them over. With namespaces
    /// it takes the privileges that they brought.
    pub(super) fn begin(session: &SessionPlan, egress: Option<Channel>) -> Result<Option<Self>, StepFailure> {
        let Some(granted) = session.network.clone() else { return Ok(None) };
        let egress = egress.ok_or_else(|| StepFailure::new(Step::Egress, "it was not started"))?;
        let fail = |what| move |e: rustix::io::Errno| failure(Step::Egress, what)(e.into());
        let listener = socket(SocketType::STREAM).map_err(fail("make its socket"))?;
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        rustix::net::bind(&listener, &anywhere)
            .and_then(|()| rustix::net::listen(&listener, BACKLOG))
            .map_err(fail("listen for it"))?;
        let port = bound_to(&listener).map_err(fail("listen for it"))?.port();
        let names = match session.strength {
            Strength::Landlock => None,
            Strength::Namespaces => {
                let names = socket(SocketType::DGRAM).map_err(fail("make a socket for names"))?;
                sys::socket::add_to_loopback(names.as_fd(), plan::NAMES_NETWORK)
                    .map_err(failure(Step::Egress, "give lo the addresses of names"))?;
                let here = SocketAddr::from((Ipv4Addr::LOCALHOST, DNS));
                rustix::net::bind(&names, &here).map_err(fail("bind port 53"))?;
                // No more questions wait there than egress sets aside.
                sockopt::set_socket_recv_buffer_size(&names, QUESTIONS_MAX).map_err(fail("bound the questions"))?;
                Some(names)
            }
        };
        let serve = Serve { network: granted.clone(), names: names.is_some() };
        let fds: Vec<_> = std::iter::once(&listener).chain(&names).map(OwnedFd::as_fd).collect();
        egress.send(&serve, &fds).map_err(failure(Step::Egress, "hand its sockets over"))?;
        Ok(Some(Self { egress: Arc::new(egress), port, granted }))
    }

    /// Waits until egress is confined, and says by what.
    pub(super) fn confirm(&self) -> Result<StepReport, StepFailure> {
        match self.egress.receive().map_err(failure(Step::Egress, "hear from it"))? {
            Received::Message(FromEgress::Serving(steps), _) => {
                let steps: Vec<String> = steps.iter().map(|step| format!("{}: {}", step.step, step.detail)).collect();
                Ok(done(Step::Egress, format!("a process of its own, for granted hosts alone ({})", steps.join("; "))))
            }
            Received::Message(FromEgress::Failed(failed), _) => Err(failed),
            Received::Message(_, _) | Received::Data(_) | Received::Closed => {
                Err(StepFailure::new(Step::Egress, "it ended before it was confined"))
            }
        }
    }

    /// To be waited on, for what it says by itself.
    pub(super) fn channel(&self) -> Arc<Channel> {
        Arc::clone(&self.egress)
    }

    /// Target of a call's connection to an address.
    pub(super) fn target(&self, wanted: SocketAddr) -> ConnectTarget {
        target(wanted, &self.granted)
    }

    /// Readies a call's socket to be connected to egress, and asks for it.
    pub(super) fn ask(
        &self,
        (call, within): (u64, Option<plan::Network>),
        socket: &OwnedFd,
        family: AddressFamily,
        to: ConnectTarget,
    ) -> Result<PendingConnection, i32> {
        let errno = rustix::io::Errno::raw_os_error;
        let v6 = family == AddressFamily::INET6;
        if bound_to(socket).map_err(errno)?.port() == 0 {
            // Else the kernel would choose the port only when it connects, and egress could not be told.
            sys::socket::bind_port_at_once(socket.as_fd()).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
            let at = if v6 {
                // Egress is at an IPv4 address; the caller may have asked for the other kind alone.
                sockopt::set_ipv6_v6only(socket, false).map_err(errno)?;
                SocketAddr::from(SocketAddrV6::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 0, 0, 0))
            } else {
                SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
            };
            rustix::net::bind(socket, &at).map_err(errno)?;
        }
        // Of another address the port would be somebody else's for egress.
        let bound = bound_to(socket).map_err(errno)?;
        let from = bound.port();
        if bound.ip().to_canonical() != IpAddr::V4(Ipv4Addr::LOCALHOST) || from == 0 {
            return Err(libc::EADDRNOTAVAIL);
        }
        // It is the caller's to change, and decides only whether it learns the errno.
        let flags = rustix::fs::fcntl_getfl(socket).map_err(errno)?;
        let (ours, theirs) = Channel::pair().map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
        let reach = ToEgress::Reach(Reach { call, within, to, from, wait: !flags.contains(OFlags::NONBLOCK) });
        // Without egress there is no network.
        self.egress.send(&reach, &[theirs.as_fd()]).map_err(|_gone| libc::ENETUNREACH)?;
        let ip = if v6 { IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped()) } else { Ipv4Addr::LOCALHOST.into() };
        Ok(PendingConnection { answer: ours, at: SocketAddr::new(ip, self.port) })
    }

    /// A call begins that may reach less than its session.
    pub(super) fn narrowed(&self, call: u64) {
        // Without egress it reaches nothing.
        let _gone: io::Result<()> = self.egress.send(&ToEgress::Narrowed { call }, &[]);
    }

    /// Bytes that a call's connections have carried, if it had some.
    pub(super) fn carried(&self, call: u64) -> Option<Carried> {
        let (ours, theirs) = Channel::pair().ok()?;
        self.egress.send(&ToEgress::Count { call }, &[theirs.as_fd()]).ok()?;
        drop(theirs);
        let mut fds = [PollFd::new(ours.as_fd(), PollFlags::POLLIN)];
        // Egress may have been taken over: it is not waited for long.
        poll(&mut fds, PollTimeout::from(COUNTING)).ok().filter(|ready| *ready > 0)?;
        match ours.receive() {
            Ok(Received::Message(carried, _)) => Some(carried).filter(|carried| *carried != Carried::default()),
            Ok(Received::Data(_) | Received::Closed) | Err(_) => None,
        }
    }

    /// A call is over.
    pub(super) fn gone(&self, call: u64) {
        // Without egress nothing of it is left.
        let _ended: io::Result<()> = self.egress.send(&ToEgress::Gone { call }, &[]);
    }

    /// Message that egress sends by itself, if it has said something. `None` for nothing more.
    pub(super) fn heard(&self) -> Option<FromEgress> {
        self.egress.receive_if_there().ok().flatten()
    }
}

fn target(wanted: SocketAddr, granted: &plan::Network) -> ConnectTarget {
    let host = Host::Address(wanted.ip());
    // A grant of all ports of a network is hardly one of its name servers, and must not take the names away.
    let names_port = |pattern: &&HostPattern| pattern.ports().ranges().any(|ports| ports == (DNS..=DNS));
    let is_server_granted = || granted.hosts.iter().filter(names_port).any(|pattern| pattern.covers(&host, DNS));
    if wanted == SocketAddr::from(plan::PROXY) {
        ConnectTarget::Proxy
    } else if wanted == SocketAddr::from(plan::NAMES) || (wanted.port() == DNS && !is_server_granted()) {
        ConnectTarget::Names
    } else {
        ConnectTarget::Address(wanted)
    }
}

/// A connection that egress was asked for.
pub(super) struct PendingConnection {
    answer: Channel,
    /// Where to connect to.
    pub(super) at: SocketAddr,
}

impl PendingConnection {
    /// Waits for the answer. `refused` is the error if it was not granted.
    pub(super) fn granted(&self, refused: i32) -> Result<(), i32> {
        match self.answer.receive() {
            Ok(Received::Message(Reached::Ready { .. }, _)) => Ok(()),
            Ok(Received::Message(Reached::Refused { .. }, _)) => Err(refused),
            Ok(Received::Message(Reached::Failed { errno, .. }, _)) => Err(errno),
            Ok(Received::Message(Reached::Taken, _) | Received::Data(_) | Received::Closed) | Err(_) => {
                Err(libc::ENETUNREACH)
            }
        }
    }

    /// Has egress take the other end of this socket, if it is connected, and of no other (B17). Else it ends: egress may be gone, and
    /// somebody else listen where it did.
    pub(super) fn hand_over(&self, socket: &OwnedFd) {
        // Fails for a socket that is connected no more.
        let is_connected = || rustix::net::getpeername(socket).is_ok();
        let taken = is_connected()
            && self.answer.send(&ConnectionMade::Connected, &[]).is_ok()
            && matches!(self.answer.receive(), Ok(Received::Message(Reached::Taken, _)));
        if !(taken && is_connected() && self.answer.send(&ConnectionMade::Sure, &[]).is_ok()) {
            // One that is connected to nobody has ended.
            let _ended: rustix::io::Result<()> = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }
}

fn socket(kind: SocketType) -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

fn bound_to(socket: &OwnedFd) -> rustix::io::Result<SocketAddr> {
    let address: SocketAddrAny = rustix::net::getsockname(socket)?;
    SocketAddr::try_from(address)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;

    #[test]
    fn a_wide_grant_takes_no_names_away() {
        let target = |wanted: &str, granted: &str| {
            target(
                wanted.parse().unwrap(),
                &plan::Network {
                    hosts: vec![HostPattern::parse(granted).unwrap()],
                    secured: None,
                    past_session: false,
                    carries: plan::Carries::UNBOUNDED,
                },
            )
        };
        for (wanted, granted) in [
            ("10.0.0.1:53", "10.0.0.0/8:*"),
            ("127.0.0.1:53", "127.0.0.1:1-1000"),
            ("198.18.0.1:53", "198.18.0.1:53"),
            ("10.0.0.1:53", "10.0.0.2:53"),
        ] {
            assert_eq!(target(wanted, granted), ConnectTarget::Names, "{granted}");
        }
        for (wanted, granted) in [("10.0.0.1:53", "10.0.0.1:53"), ("10.0.0.1:54", "10.0.0.0/8:*")] {
            assert_eq!(target(wanted, granted), ConnectTarget::Address(wanted.parse().unwrap()), "{granted}");
        }
    }
}
