//! Network that a session may connect to (design "Network"): egress, a process of its own, holds it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::limit::Bounds;
use crate::pattern::{Host, HostPattern};

mod special;

/// Where the addresses lie that stand for names inside: a network for benchmarks, which nobody routes (RFC 2544), and the
/// length of its prefix. Not 127.0.0.0/8: with nothing else on its interfaces, glibc's `AI_ADDRCONFIG` finds no address.
pub const NAMES_NETWORK: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 1), 15);

/// Where programs that insist on a proxy find one: HTTP (CONNECT and absolute form) and SOCKS5 on one port.
pub const PROXY: (Ipv4Addr, u16) = (NAMES_NETWORK.0, 3128);

/// Where tools ask for names, by TCP.
pub const NAMES: (Ipv4Addr, u16) = (NAMES_NETWORK.0, 53);

/// The hosts that were granted. Egress reaches these and no others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Each with its ports. Empty only for a call that was narrowed to nothing.
    pub hosts: Vec<HostPattern>,
    /// For a call of one of callgate's own tools, to a host with credentials: what it says there in the clear goes on by TLS, with
    /// these. The supervisor says so for each call; no session has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secured: Option<Secured>,
    /// Its connections pass by what listens in the session, such as a task in the background: the call is told a secret that is for a
    /// server of the host's. The supervisor says so for each call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub past_session: bool,
    /// How much it may carry. Of a call's network only the least for the call is looked at.
    pub carries: Carries,
}

/// Requests that egress makes by TLS on behalf of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secured {
    /// The tool whose call it is: some credentials are for one tool alone.
    pub tool: String,
    /// The methods of its requests, in capitals. No other request passes, so that a call which reads changes nothing by another method,
    /// whoever has taken its worker over.
    pub methods: Vec<String>,
}

impl Secured {
    /// Requests of a tool that makes them with these methods.
    #[must_use]
    pub fn of(tool: &str, methods: &[&str]) -> Self {
        Self { tool: tool.to_owned(), methods: methods.iter().map(|method| (*method).to_owned()).collect() }
    }
}

/// How much the connections of a session may carry, both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carries {
    /// Those of one call together, bytes.
    pub call: u64,
    /// All of the session together, bytes.
    pub session: u64,
    /// All of the session together, bytes a second, if that is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
}

impl Carries {
    /// As much as comes.
    pub const UNBOUNDED: Self = Self { call: u64::MAX, session: u64::MAX, rate: None };

    /// Bounds on what is carried.
    #[must_use]
    pub fn of(bounds: &Bounds) -> Self {
        Self { call: bounds.network, session: bounds.session_network, rate: bounds.network_rate }
    }
}

impl Network {
    /// True if a connection to a host at a port was granted.
    #[must_use]
    pub fn allows(&self, host: &Host, port: u16) -> bool {
        self.hosts.iter().any(|pattern| pattern.covers(host, port))
    }

    /// True if an address was granted as such: by itself, in a network, or as `localhost`. What a granted name leads to
    /// is not, so a [special](Self::special) address is reached only if this is true.
    #[must_use]
    pub fn allows_address(&self, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        self.allows(&Host::Address(address), port)
            || (loopback.contains(&address) && self.allows(&Host::Name(LOCALHOST.to_owned()), port))
    }

    /// True if a port of a host is granted for HTTP and TLS alone, as a pattern without ports does.
    #[must_use]
    pub fn only_web(&self, host: &Host, port: u16) -> bool {
        let mut covering = self.hosts.iter().filter(|pattern| pattern.covers(host, port)).peekable();
        covering.peek().is_some() && covering.all(|pattern| !pattern.ports().holds_for_all(port))
    }

    /// Reason why a name of the public Internet does not lead to an address: this machine, its networks, its cloud's
    /// metadata, and whatever is not in the parts of the address space that are given out for the Internet. Addresses
    /// that hold an IPv4 address are judged by that.
    #[must_use]
    pub fn special(address: IpAddr) -> Option<&'static str> {
        special::special(address)
    }

    /// Unstated consequences of a grant of hosts, for a person who grants it (attack F16).
    pub fn cautions<'a>(hosts: impl IntoIterator<Item = &'a HostPattern>) -> Vec<String> {
        let localhost = Host::Name(LOCALHOST.to_owned());
        let is_inside = |host: &HostPattern| match host.network() {
            Some((address, prefix)) => special::is_in(address, prefix),
            None => host.ports().ranges().any(|ports| host.covers(&localhost, *ports.start())),
        };
        let mut hosts = hosts.into_iter().peekable();
        let way_out = hosts.peek().map(|_| WAY_OUT.to_owned());
        let inside = hosts.filter(|host| is_inside(host)).map(|host| format!("{host} {INSIDE}"));
        way_out.into_iter().chain(inside).collect()
    }
}

const WAY_OUT: &str = "whatever may be read can be sent to these hosts; where strangers can publish (package registries, model hubs, \
                       code hosts, pastes), that is to anybody";

const INSIDE: &str =
    "has addresses that are not the Internet's: of this machine, of private networks or of a cloud's metadata";

/// The name of the machine that a program runs on (RFC 6761).
const LOCALHOST: &str = "localhost";
