//! User, groups, capabilities and `no_new_privs`.

use std::io;

use callgate_policy::plan::Identity;
use callgate_policy::step::Step;
use caps::CapSet;
use rustix::process::{Gid, Uid};
use rustix::thread::CapabilitiesSecureBits;

use super::{failure, kernel};
use crate::protocol::StepFailure;

/// Becomes the workspace owner, groups included (D7). Needs `CAP_SETUID` and `CAP_SETGID` unless it is so already.
///
/// Without those capabilities supplementary groups cannot be dropped: `docs/threat-model.md` says what remains.
pub(crate) fn become_owner(identity: Identity) -> Result<String, StepFailure> {
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    let may = caps::has_cap(None, CapSet::Effective, caps::Capability::CAP_SETUID)
        .and_then(|uid| Ok(uid && caps::has_cap(None, CapSet::Effective, caps::Capability::CAP_SETGID)?))
        .map_err(|e| StepFailure::new(Step::Identity, format!("read capabilities ({e})")))?;
    if may {
        let fail = |what| failure(Step::Identity, what);
        rustix::thread::set_thread_groups(&[gid]).map_err(io::Error::from).map_err(fail("setgroups"))?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(io::Error::from).map_err(fail("setresgid"))?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(io::Error::from).map_err(fail("setresuid"))?;
    }
    let now = (rustix::process::geteuid(), rustix::process::getuid(), rustix::process::getegid());
    if now != (uid, uid, gid) {
        return Err(StepFailure::new(
            Step::Identity,
            format!("become user {} group {}: the workspace belongs to somebody else", identity.uid, identity.gid),
        ));
    }
    let groups = if may { "no other groups" } else { "the caller's groups" };
    Ok(format!("uid {} gid {}, {groups}", identity.uid, identity.gid))
}

/// Sets `no_new_privs`, for good, on this thread and all it will exec. Without it (or CAP_SYS_ADMIN) seccomp(2) filters
/// fail with EACCES and landlock_restrict_self(2) with EPERM.
pub(crate) fn set_no_new_privs() -> Result<(), StepFailure> {
    rustix::thread::set_no_new_privs(true)
        .and_then(|()| rustix::thread::no_new_privs())
        .map_err(|e| kernel(Step::NoNewPrivs, "prctl", e.into()))?
        .then_some(())
        .ok_or_else(|| StepFailure::new(Step::NoNewPrivs, "the kernel did not keep it"))
}

/// Empties all five capability sets and locks the way back (`SECBIT_NOROOT` and its lock: uid 0 gains nothing from an
/// exec). Reads the sets back.
pub(crate) fn drop_capabilities() -> Result<String, StepFailure> {
    let fail = |what: &'static str| {
        move |e: caps::errors::CapsError| StepFailure::new(Step::Capabilities, format!("{what} ({e})"))
    };
    if caps::has_cap(None, CapSet::Effective, caps::Capability::CAP_SETPCAP).map_err(fail("read the effective set"))? {
        let locked = CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
        rustix::thread::set_capabilities_secure_bits(locked)
            .map_err(|e| kernel(Step::Capabilities, "lock the secure bits", e.into()))?;
        // Before the effective set, which holds the right to do so.
        for capability in caps::all() {
            let dropped = caps::drop(None, CapSet::Bounding, capability);
            // One that this kernel does not know cannot be dropped, nor had.
            if dropped.is_err() && caps::has_cap(None, CapSet::Bounding, capability).is_ok() {
                dropped.map_err(fail("drop from the bounding set"))?;
            }
        }
    }
    caps::clear(None, CapSet::Ambient).map_err(fail("clear the ambient set"))?;
    caps::clear(None, CapSet::Effective).map_err(fail("clear the effective set"))?;
    caps::clear(None, CapSet::Permitted).map_err(fail("clear the permitted set"))?;
    caps::clear(None, CapSet::Inheritable).map_err(fail("clear the inheritable set"))?;
    confirm_empty()
}

fn confirm_empty() -> Result<String, StepFailure> {
    // The ambient set is within the permitted and the inheritable, always (capabilities(7)).
    for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        let left = caps::read(None, set)
            .map_err(|e| StepFailure::new(Step::Capabilities, format!("read the {set:?} set back ({e})")))?;
        if !left.is_empty() {
            return Err(StepFailure::new(Step::Capabilities, format!("the {set:?} set still holds {left:?}")));
        }
    }
    let bounding = caps::read(None, CapSet::Bounding)
        .map_err(|e| StepFailure::new(Step::Capabilities, format!("read the bounding set back ({e})")))?;
    // An ordinary user cannot drop from it; without a permitted capability and with no_new_privs it gives nothing.
    Ok(if bounding.is_empty() {
        "all five sets empty".to_owned()
    } else {
        "four sets empty, bounding inert".to_owned()
    })
}
