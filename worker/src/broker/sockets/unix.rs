//! Unix sockets: a call reaches those that it has bound itself (B7).
//!
//! A file's number is no identity: it is given out again once the file is gone. So the files of a call's sockets are held by
//! descriptor for as long as they are taken for its own, and connected to by that descriptor. One file is one socket's for
//! good, for bind(2) makes a new file each time: who holds the file reaches that socket or nobody.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::super::caller::{Caller, LastLink, PinnedFile};
use super::super::state::Broker;
use super::super::writable::Grant;
use super::held::{Name, errno, family_in, identity, io_errno, make};
use super::inet;
use crate::apply::landlock;
use crate::sys::socket as raw;

/// Most abstract names of one call.
const NAMES: usize = 1024;

/// The parts of a unix address: a path, an abstract name, or none (autobind).
enum UnixName {
    Path(CString),
    Abstract(Vec<u8>),
    None,
}

fn unix_name(address: &[u8]) -> Result<UnixName, i32> {
    if family_in(address) != libc::AF_UNIX {
        return Err(libc::EINVAL);
    }
    match address.get(2..).unwrap_or_default() {
        [] => Ok(UnixName::None),
        [0, name @ ..] => Ok(UnixName::Abstract(name.to_vec())),
        path => {
            let end = path.iter().position(|b| *b == 0).unwrap_or(path.len());
            CString::new(&path[..end]).map(UnixName::Path).map_err(|_nul| libc::EINVAL)
        }
    }
}

/// The path in an address, if it is one.
pub(super) fn path_of(address: &[u8]) -> Option<String> {
    match unix_name(address) {
        Ok(UnixName::Path(path)) => Some(path.to_string_lossy().into_owned()),
        _ => None,
    }
}

pub(super) fn bind(broker: &mut Broker, caller: &Caller<'_>, inode: u64, address: &[u8]) -> Result<(), i32> {
    match unix_name(address)? {
        UnixName::Path(path) => {
            let (parent, name) = caller.open_parent(libc::AT_FDCWD, &path)?;
            let directory = parent.path()?;
            if broker.call(caller)?.written.grant(directory) != Some(Grant::Tree) {
                return Err(libc::EACCES);
            }
            let path = directory.join(OsStr::from_bytes(name.as_bytes()));
            let judgement = broker.refuse_new(caller, &path)?;
            let mask = broker.mask(caller)?;
            bind_file(broker, caller, inode, &parent, &name, mask)?;
            judgement.map_or(Ok(()), |judgement| broker.made(caller, &path, &judgement))
        }
        UnixName::Abstract(name) => bind_name(broker, caller, inode, name),
        UnixName::None => {
            let name = format!("auto-{inode}").into_bytes();
            bind_name(broker, caller, inode, name)
        }
    }
}

fn bind_file(
    broker: &mut Broker,
    caller: &Caller<'_>,
    inode: u64,
    parent: &PinnedFile,
    name: &CString,
    mask: u32,
) -> Result<Arc<OwnedFd>, i32> {
    broker.set_mask(mask);
    let sockets = &mut broker.call(caller)?.sockets;
    let kept = sockets.get(inode).ok_or(libc::EINVAL)?;
    let file = Arc::new(make_file(&kept.fd, parent, name)?);
    sockets.files.hold(Arc::clone(&file))?;
    Ok(file)
}

/// Mode that no call can give a file that is no directory: [`super::super::metadata`] and the filter refuse it.
const MARK: Mode = Mode::SUID;

/// Binds, and opens the file that this has made. By its name, which may be another's by then: so the file is made with a mark,
/// which is taken away by its descriptor. A new file's mode is that of the socket's own inode, less the mask
/// (`unix_bind_bsd`).
#[expect(
    clippy::disallowed_methods,
    reason = "a link of procfs to a descriptor that was judged: the file itself, whatever its name leads to now"
)]
fn make_file(socket: &OwnedFd, parent: &PinnedFile, name: &CString) -> Result<OwnedFd, i32> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(socket).map_err(errno)?.st_mode);
    rustix::fs::fchmod(socket, mode | MARK).map_err(errno)?;
    let bound = bind_in(socket, parent, name);
    rustix::fs::fchmod(socket, mode).map_err(errno)?;
    bound?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&parent.fd, name, flags, Mode::empty()).map_err(|_elsewhere| libc::EACCES)?;
    let stat = rustix::fs::fstat(&file).map_err(errno)?;
    let made = Mode::from_raw_mode(stat.st_mode);
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket || !made.contains(MARK) {
        return Err(libc::EACCES);
    }
    rustix::fs::chmod(by_proc(&file), made - MARK).map_err(errno)?;
    Ok(file)
}

/// By its real path, because programs hand on what getsockname(2) then says (Python's managers do). A directory that is
/// exchanged in between would lead the name astray: so the thread that binds can make sockets below that directory only.
/// A path too long for an address goes by the descriptor.
fn bind_in(socket: &OwnedFd, parent: &PinnedFile, name: &CString) -> Result<(), i32> {
    let real = parent.path()?.join(OsStr::from_bytes(name.as_bytes()));
    let Ok(address) = unix_address(real.as_os_str().as_bytes()) else {
        let path = [by_proc(&parent.fd).as_bytes(), b"/", name.as_bytes()].concat();
        return raw::bind(socket.as_fd(), &unix_address(&path)?).map_err(io_errno);
    };
    let ruleset = landlock::sockets_below(&parent.fd).map_err(|_none| libc::EACCES)?;
    let bind = || {
        landlock::restrict(&ruleset).map_err(|_unconfined| libc::EACCES)?;
        raw::bind(socket.as_fd(), &address).map_err(io_errno)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn_scoped(scope, bind).map_err(io_errno)?;
        thread.join().unwrap_or(Err(libc::EIO))
    })
}

/// The path by which this process reaches what it has open.
fn by_proc(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// An abstract name has no owner and no permissions: anybody on the host may take or reach it. So a call's names are
/// files in the session's private directory, known to this call alone.
fn bind_name(broker: &mut Broker, caller: &Caller<'_>, inode: u64, name: Vec<u8>) -> Result<(), i32> {
    release_names(broker, caller, Some(&name))?;
    if broker.call(caller)?.sockets.names.len() >= NAMES {
        release_names(broker, caller, None)?;
    }
    let parent = directory_of_names(broker)?;
    let call = broker.call(caller)?;
    if call.sockets.names.contains_key(&name) {
        return Err(libc::EADDRINUSE);
    }
    if call.sockets.names.len() >= NAMES {
        return Err(libc::ENOMEM);
    }
    let file_name = CString::new(format!("{}-{inode}", call.number)).map_err(|_nul| libc::EIO)?;
    let file = bind_file(broker, caller, inode, &parent, &file_name, 0o077)?;
    broker.call(caller)?.sockets.names.insert(name, Name { name: file_name, file, inode });
    Ok(())
}

/// Listens by a name that nobody reaches any more when this returns, for one connection: the socket, and the file that it is
/// connected to by.
pub(super) fn listen_for_one(broker: &mut Broker, caller: &Caller<'_>) -> Result<(OwnedFd, Arc<OwnedFd>), i32> {
    let directory = directory_of_names(broker)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = make(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let name = CString::new(format!("{}-endpoint", broker.call(caller)?.number)).map_err(|_nul| libc::EIO)?;
    broker.set_mask(0o077);
    let file = Arc::new(make_file(&socket, &directory, &name)?);
    rustix::fs::unlinkat(&directory.fd, &name, AtFlags::empty()).map_err(errno)?;
    rustix::net::listen(&socket, 1).map_err(errno)?;
    Ok((socket, file))
}

/// The address that leads to a file, whatever its name leads to.
pub(super) fn address_of(file: &OwnedFd) -> Result<Vec<u8>, i32> {
    unix_address(by_proc(file).as_bytes())
}

fn directory_of_names(broker: &Broker) -> Result<PinnedFile, i32> {
    Ok(PinnedFile::own(broker.part("ipc")?, broker.private.path.join("ipc")))
}

/// An abstract name is free again when its socket is closed (unix(7)), which nobody is told of: so whoever wants it next
/// has it looked up. All of the call's, if none is said.
fn release_names(broker: &mut Broker, caller: &Caller<'_>, wanted: Option<&[u8]>) -> Result<(), i32> {
    let names = &broker.call(caller)?.sockets.names;
    if wanted.map_or(names.is_empty(), |name| !names.contains_key(name)) {
        return Ok(());
    }
    let Some(held) = inet::held_sockets(&broker.calls.family_of(caller)) else { return Ok(()) };
    let directory = directory_of_names(broker)?;
    let sockets = &mut broker.call(caller)?.sockets;
    let gone = |key: &[u8], name: &Name| wanted.is_none_or(|wanted| wanted == key) && !held.contains(&name.inode);
    for (_, Name { name, file, inode }) in sockets.names.extract_if(|key, name| gone(key, name)).collect::<Vec<_>>() {
        sockets.forget(inode);
        let stat = rustix::fs::fstat(&file).map_err(errno)?;
        sockets.files.forget(&stat);
        let there = rustix::fs::statat(&directory.fd, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(errno)?;
        if identity(&there) == identity(&stat) {
            rustix::fs::unlinkat(&directory.fd, &name, AtFlags::empty()).map_err(errno)?;
        }
    }
    Ok(())
}

fn unix_address(path: &[u8]) -> Result<Vec<u8>, i32> {
    // sun_path is 108 bytes with its NUL (unix(7)).
    if path.len() > 107 {
        return Err(libc::ENAMETOOLONG);
    }
    let family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or_default();
    Ok([&family.to_ne_bytes()[..], path, &[0]].concat())
}

/// Where to connect to, and the file that keeps it what it is.
pub(super) fn target(broker: &mut Broker, caller: &Caller<'_>, address: &[u8]) -> Result<(Vec<u8>, Arc<OwnedFd>), i32> {
    let file = match unix_name(address)? {
        UnixName::Path(path) => {
            let target = caller.open(libc::AT_FDCWD, &path, LastLink::Follow)?;
            let stat = rustix::fs::fstat(&target.fd).map_err(errno)?;
            // Only a socket that this call has bound itself: any other belongs to a stranger who trusts its user (B7).
            broker.call(caller)?.sockets.files.get(&stat).ok_or(libc::EACCES)?
        }
        UnixName::Abstract(name) => {
            let names = &broker.call(caller)?.sockets.names;
            Arc::clone(&names.get(&name).ok_or(libc::ECONNREFUSED)?.file)
        }
        UnixName::None => return Err(libc::EINVAL),
    };
    Ok((address_of(&file)?, file))
}
