//! Egress.

use callgate_policy::plan::Identity;

use crate::protocol::Channel;

pub(crate) fn run(_broker: Channel, _identity: Identity, _landlock_abi: u8) -> i32 {
    70
}
