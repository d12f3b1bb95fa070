//! Messages of broker and egress to each other.
//!
//! Egress stands in the host's network. The broker makes the sockets that egress listens on, in the session's network, and
//! hands them over with [`Serve`]. For each connection that a call asks for, the broker sends [`Reach`] with one end of a
//! channel that is made for that one answer ([`Reached`]). Egress hears [`Reach`] on a channel that never carries what a
//! confined program wrote, but for the addresses, which are numbers.

use std::net::SocketAddr;

use callgate_policy::manifest::Credential;
use callgate_policy::plan::Network;
use serde::{Deserialize, Serialize};

/// Broker to egress, first and once. Carries the listening TCP socket to which calls' connections are made; and, with
/// namespaces, the UDP socket on which the session's programs ask for names.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Serve {
    /// Network that may be reached.
    pub(crate) network: Network,
    /// True if the UDP socket comes with it.
    pub(crate) names: bool,
}

/// Supervisor to egress: one of those in the file that comes with [`OpenSession`](super::OpenSession). Neither launcher nor broker reads
/// it, for workers are copies of theirs.
#[derive(Serialize, Deserialize)]
pub struct SealedCredential {
    /// Credential and the requests that it is for.
    pub credential: Credential,
    /// Its value.
    pub value: String,
}

impl std::fmt::Debug for SealedCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealedCredential").field("credential", &self.credential).finish_non_exhaustive()
    }
}

/// Broker to egress, after that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ToEgress {
    /// A call wants to connect. Carries the other end of a channel for [`Reached`].
    Reach(Reach),
    /// A call begins that may reach less than its session.
    Narrowed {
        /// Which: as in [`Reach`].
        call: u64,
    },
    /// Asks what a call's connections have carried. Carries the other end of a channel for
    /// [`Carried`](callgate_policy::envelope::Carried).
    Count {
        /// Which: as in [`Reach`].
        call: u64,
    },
    /// A call is over, and so are its connections.
    Gone {
        /// Which: as in [`Reach`].
        call: u64,
    },
}

/// A call wants to connect. Carries the other end of a channel for [`Reached`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reach {
    /// Whose: the number of the call's worker.
    pub(crate) call: u64,
    /// Network that it may connect to, if that is less than what its session may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) within: Option<Network>,
    /// Target of the connection.
    pub(crate) to: ConnectTarget,
    /// The port on loopback from which the connection will come. Whatever else comes is not served.
    pub(crate) from: u16,
    /// Answer when it is known whether the host can be reached, not before.
    pub(crate) wait: bool,
}

/// Target that a call wants to connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ConnectTarget {
    /// An address and a port: one that egress has given for a name, or any other.
    Address(SocketAddr),
    /// The names that egress knows, asked for by TCP.
    Names,
    /// A proxy, HTTP or SOCKS 5: the client says on the connection what it wants to reach.
    Proxy,
}

/// Broker to egress, on the channel of a [`Reach`] that was found [ready](Reached::Ready), when the connection is made.
///
/// Whoever else is on the machine may have connected from the same port before, or may when the call's socket is closed. Of two sockets
/// between the same ports one is dead. So what egress finds alive while the call's socket is, before and after, is that one's other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ConnectionMade {
    /// The call's socket is connected.
    Connected,
    /// It still is, now that egress has [taken](Reached::Taken) the other end.
    Sure,
}

/// Egress to broker: the answer to [`Reach`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reached {
    /// The connection may be made: egress will serve it.
    Ready {
        /// Host that it leads to, as people write it: `name:port`.
        host: String,
    },
    /// Egress has the other end of what is connected.
    Taken,
    /// It was not granted.
    Refused {
        /// Host that it would have led to, as people write it.
        host: String,
    },
    /// It was granted, and there is nothing to be reached.
    Failed {
        /// Host that it would have led to.
        host: String,
        /// As connect(2) tells of it.
        errno: i32,
    },
}

/// Egress to broker, by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FromEgress {
    /// It serves; these steps confined it.
    Serving(Vec<callgate_policy::envelope::StepReport>),
    /// A step failed: there is no egress.
    Failed(super::StepFailure),
    /// A program asked for a name that was not granted.
    NameRefused {
        /// Whose: as in [`Reach`]. `None` where nobody can tell.
        call: Option<u64>,
        /// In its one normal form.
        name: String,
    },
    /// A connection was not made: its target was not granted, or leads to where nothing may be reached.
    Refused {
        /// Whose: as in [`Reach`].
        call: u64,
        /// Host that it would have led to, as people write it: `name:port`.
        host: String,
        /// Reason, if it is another than that it was not granted.
        reason: Option<String>,
    },
    /// A connection was ended for what was said in it: another name in TLS or HTTP than the one that it was made for, an
    /// encrypted hello, a message that is none.
    Ended {
        /// Whose: as in [`Reach`].
        call: u64,
        /// Where it led, as people write it.
        host: String,
        /// Reason, as people write it.
        reason: String,
    },
}
