//! What a session may connect to (design "Network"): egress, a process of its own, holds it.

use serde::{Deserialize, Serialize};

use crate::pattern::{Host, HostPattern};

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
