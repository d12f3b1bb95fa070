//! Rights that egress gives up, in its order.

use std::collections::BTreeSet;

use callgate_policy::envelope::StepReport;
use callgate_policy::plan::{Identity, Network};
use callgate_policy::step::Step;
use rustix::process::DumpableBehavior;

use crate::apply::{done, failure, kernel, landlock, limit, privilege};
use crate::filters;
use crate::protocol::StepFailure;
use crate::sys::process;

/// Where names are asked for.
const DNS: u16 = 53;
/// Most ports that are worth a rule each.
const PORTS_MAX: usize = 1024;

/// Steps that come before anything is read or heard.
pub(super) fn become_ready(identity: Identity) -> Result<Vec<StepReport>, StepFailure> {
    rustix::thread::set_name(c"cg-egress").map_err(|e| kernel(Step::Egress, "name itself", e.into()))?;
    // A client that is gone is an error, not the end.
    process::ignore_broken_pipes().map_err(failure(Step::Egress, "ignore SIGPIPE"))?;
    let dumps = limit::no_core_dumps()?; // while its own files in procfs are its own
    let identity = privilege::become_owner(identity)?;
    // No other process of the user looks into this one, whatever it is granted.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| kernel(Step::Egress, "close its memory to others", e.into()))?;
    limit::open_files_as_many();
    Ok(vec![done(Step::CoreDumps, dumps), done(Step::Identity, identity)])
}

/// The rest, when all is read that is in files.
pub(super) fn confine(network: &Network, landlock_abi: u8) -> Result<Vec<StepReport>, StepFailure> {
    let capabilities = privilege::drop_capabilities()?;
    privilege::set_no_new_privs()?; // before landlock and seccomp: both demand it
    let ports = ports(network);
    let domain = match &ports {
        Some(ports) if landlock_abi >= 4 => format!("no file, {} ports", ports.len()),
        Some(_) | None => "no file".to_owned(),
    };
    landlock::restrict(&landlock::connecting_alone(landlock_abi, ports.as_ref())?)?;
    let length = filters::install_egress().map_err(failure(Step::Seccomp, "install egress's filter"))?; // last: it forbids all of the above
    Ok(vec![
        done(Step::Capabilities, capabilities),
        done(Step::NoNewPrivs, "set"),
        done(Step::Landlock, format!("egress's domain, abi {landlock_abi}, {domain}")),
        done(Step::Seccomp, format!("egress's filter, {length} instructions")),
    ])
}

/// The ports that may be connected to, if they are few.
pub(super) fn ports(network: &Network) -> Option<BTreeSet<u16>> {
    let mut ports = BTreeSet::from([DNS]);
    for range in network.hosts.iter().flat_map(|pattern| pattern.ports().ranges()) {
        if ports.len() + range.len() > PORTS_MAX {
            return None;
        }
        ports.extend(range);
    }
    Some(ports)
}
