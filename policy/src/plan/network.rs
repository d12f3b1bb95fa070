//! What a session may connect to (design "Network"): egress, a process of its own, holds it.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::pattern::{Host, HostPattern};

/// Where the addresses lie that stand for names inside: a network for benchmarks, which nobody routes (RFC 2544), and the
/// length of its prefix. Not 127.0.0.0/8: with nothing else on its interfaces, glibc's `AI_ADDRCONFIG` finds no address.
pub const NAMES_NETWORK: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 1), 15);

/// The hosts that were granted. Egress reaches these and no others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Each with its ports. Never empty.
    pub hosts: Vec<HostPattern>,
}

impl Network {
    /// Whether a connection to a host at a port was granted.
    #[must_use]
    pub fn allows(&self, host: &Host, port: u16) -> bool {
        self.hosts.iter().any(|pattern| pattern.covers(host, port))
    }
}
