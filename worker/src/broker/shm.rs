//! `/dev/shm` where there is no mount namespace to have one's own in: names there stand for files in the session's
//! private directory. Other names are the kernel's business: Landlock judges the real call, so it may carry on even
//! though a pointer was looked at.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use callgate_policy::plan::PrivateKind;
use rustix::fs::{AtFlags, Mode, OFlags};

use super::caller::Caller;
use super::state::Broker;
use crate::sys::notify::CallReply;

/// The name of a shared memory object, if this is one's path: `/dev/shm/NAME`.
pub(super) fn object(path: &CString) -> Option<CString> {
    let name = path.as_bytes().strip_prefix(b"/dev/shm/")?;
    let plain = !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/');
    if plain { CString::new(name).ok() } else { None }
}

/// Act on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShmAct {
    Reads,
    Changes,
}

impl Broker {
    /// True if names there are the broker's: without a mount tree.
    pub(super) fn names_shm(&self) -> bool {
        self.private.kind == PrivateKind::OnHost
    }

    fn shm(&mut self, caller: &Caller<'_>, act: ShmAct) -> Result<OwnedFd, i32> {
        // Only for callers that belong to a call, and nothing is made there by one that only reads.
        if self.call(caller)?.only_reads && act == ShmAct::Changes {
            return Err(libc::EACCES);
        }
        self.part("shm")
    }
}

/// A path that cannot be read is the kernel's to refuse, too.
fn object_at(caller: &Caller<'_>, pointer: u64) -> Option<CString> {
    caller.path(pointer).ok().as_ref().and_then(object)
}

pub(super) fn open(
    broker: &mut Broker,
    caller: &Caller<'_>,
    name: CString,
    flags: i32,
    mode: u32,
) -> Result<CallReply, i32> {
    let mode = Mode::from_raw_mode(mode & 0o777);
    let asked = OFlags::from_bits_retain(flags as u32);
    let changes = OFlags::WRONLY | OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
    let directory = broker.shm(caller, if asked.intersects(changes) { ShmAct::Changes } else { ShmAct::Reads })?;
    // Without blocking, whatever was put there: a FIFO would hold the broker.
    let with = asked | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = broker.masked(caller, || rustix::fs::openat(directory, name, with, mode))?;
    if !asked.contains(OFlags::NONBLOCK) {
        let status = rustix::fs::fcntl_getfl(&fd).map_err(rustix::io::Errno::raw_os_error)?;
        rustix::fs::fcntl_setfl(&fd, status - OFlags::NONBLOCK).map_err(rustix::io::Errno::raw_os_error)?;
    }
    Ok(CallReply::Fd { fd, cloexec: asked.contains(OFlags::CLOEXEC) })
}

/// `None` if it is no such name.
pub(super) fn unlink(broker: &mut Broker, caller: &Caller<'_>, path: u64) -> Result<Option<CallReply>, i32> {
    let Some(name) = object_at(caller, path) else { return Ok(None) };
    let directory = broker.shm(caller, ShmAct::Changes)?;
    rustix::fs::unlinkat(directory, name, AtFlags::empty()).map_err(rustix::io::Errno::raw_os_error)?;
    Ok(Some(CallReply::Return(0)))
}

/// sem_open(3) makes a semaphore under another name and links it into place.
pub(super) fn link(broker: &mut Broker, caller: &Caller<'_>, from: u64, to: u64) -> Result<Option<CallReply>, i32> {
    let (Some(from), Some(to)) = (object_at(caller, from), object_at(caller, to)) else {
        return Ok(None);
    };
    let directory = broker.shm(caller, ShmAct::Changes)?;
    rustix::fs::linkat(&directory, from, &directory, to, AtFlags::empty()).map_err(rustix::io::Errno::raw_os_error)?;
    Ok(Some(CallReply::Return(0)))
}
