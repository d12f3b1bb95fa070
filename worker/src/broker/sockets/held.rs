//! The sockets of a call that the broker holds, and what it knows of each.

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::Stat;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType};

/// Most sockets of one call that are neither connected nor listening; the oldest gives way, and can then no longer
/// become either.
const KEPT: usize = 1024;
/// Most files of sockets that one call is known to have bound; the removed and then the oldest give way, and can no longer
/// be connected to.
const FILES: usize = 1024;

/// A call's sockets.
#[derive(Default)]
pub(in crate::broker) struct CallSockets {
    /// The broker's copies, by inode: what the caller's descriptor is, whatever its number. Should two sockets of a call ever
    /// have one number (there are 2^32), the one that is kept is acted on: one that the call has made as well.
    pub(super) kept: HashMap<u64, KeptSocket>,
    order: Vec<u64>,
    pub(super) files: SocketFiles,
    /// Abstract names that this call has bound.
    pub(super) names: HashMap<Vec<u8>, Name>,
    pub(super) connecting: Connecting,
}

pub(super) struct KeptSocket {
    pub(super) fd: OwnedFd,
    pub(super) family: SocketFamily,
    /// Where it listens, or did last.
    pub(super) server: Option<ListeningSocket>,
    /// It could not be connected.
    pub(super) failed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketFamily {
    Unix,
    V4,
    V6,
}

impl SocketFamily {
    /// Family that an address says that it is of.
    pub(super) fn of(address: &[u8]) -> Option<Self> {
        match family_in(address) {
            libc::AF_UNIX => Some(Self::Unix),
            libc::AF_INET => Some(Self::V4),
            libc::AF_INET6 => Some(Self::V6),
            _ => None,
        }
    }

    pub(super) fn as_domain(self) -> AddressFamily {
        match self {
            Self::Unix => AddressFamily::UNIX,
            Self::V4 => AddressFamily::INET,
            Self::V6 => AddressFamily::INET6,
        }
    }
}

impl CallSockets {
    pub(super) fn keep(&mut self, inode: u64, kept: KeptSocket) {
        if self.order.len() >= KEPT
            && let Some(at) = self.order.iter().position(|i| self.kept.get(i).is_some_and(|k| k.server.is_none()))
        {
            self.kept.remove(&self.order.remove(at));
        }
        if self.kept.insert(inode, kept).is_none() {
            self.order.push(inode);
        }
    }

    pub(super) fn get(&mut self, inode: u64) -> Option<&mut KeptSocket> {
        let failed = std::mem::take(&mut self.connecting.shared().failed);
        failed.into_iter().for_each(|(inode, kept)| self.keep(inode, kept));
        self.kept.get_mut(&inode)
    }

    pub(super) fn forget(&mut self, inode: u64) -> Option<KeptSocket> {
        self.order.retain(|i| *i != inode);
        self.kept.remove(&inode)
    }

    /// How many of them listen, or did.
    pub(in crate::broker) fn servers(&self) -> usize {
        self.kept.values().filter(|kept| kept.server.is_some()).count()
    }
}

/// The connections of a call that are on their way, each in a thread of its own.
#[derive(Default)]
pub(super) struct Connecting {
    pub(super) count: Arc<AtomicUsize>,
    shared: Arc<Mutex<SharedSockets>>,
}

#[derive(Default)]
pub(super) struct SharedSockets {
    /// Sockets that could not be connected, by inode: they may be tried again.
    pub(super) failed: Vec<(u64, KeptSocket)>,
    /// Copies of what is on its way, by inode.
    pub(super) ends: HashMap<u64, OwnedFd>,
}

impl Connecting {
    pub(super) fn shared(&self) -> MutexGuard<'_, SharedSockets> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connecting {
    /// With the call, its connections end, or its ports would be taken for as long as the kernel goes on knocking.
    fn drop(&mut self) {
        for fd in self.shared().ends.values() {
            // One that is connected by now is let go of by its thread.
            let _ended: rustix::io::Result<()> = rustix::net::shutdown(fd, rustix::net::Shutdown::Both);
        }
    }
}

/// One of them, for as long as this lives.
pub(super) struct OnItsWay {
    pub(super) count: Arc<AtomicUsize>,
    shared: Arc<Mutex<SharedSockets>>,
    pub(super) inode: u64,
}

impl OnItsWay {
    pub(super) fn begin(connecting: &Connecting, inode: u64, kept: &KeptSocket) -> Result<Self, i32> {
        let copy = kept.fd.try_clone().map_err(io_errno)?;
        connecting.count.fetch_add(1, Ordering::Relaxed);
        connecting.shared().ends.insert(inode, copy);
        Ok(Self { count: Arc::clone(&connecting.count), shared: Arc::clone(&connecting.shared), inode })
    }

    pub(super) fn shared(&self) -> MutexGuard<'_, SharedSockets> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        // Closed when the lock is free again: whoever ends the call takes it.
        let _end = self.shared().ends.remove(&self.inode);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) fn errno(e: rustix::io::Errno) -> i32 {
    e.raw_os_error()
}

pub(super) fn io_errno(e: io::Error) -> i32 {
    e.raw_os_error().unwrap_or(libc::EIO)
}

/// Where a socket of a call listens, or has listened.
pub(super) struct ListeningSocket {
    pub(super) at: SocketAddr,
    pub(super) guard: Arc<OwnedFd>,
}

/// The files of a call's sockets, by (device, inode), each with a descriptor that keeps that number its own.
#[derive(Default)]
pub(super) struct SocketFiles {
    held: HashMap<(u64, u64), Arc<OwnedFd>>,
    order: VecDeque<(u64, u64)>,
}

impl SocketFiles {
    pub(super) fn hold(&mut self, file: Arc<OwnedFd>) -> Result<(), i32> {
        if self.held.len() >= FILES {
            let has_name = |fd: &OwnedFd| rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_nlink > 0);
            self.held.retain(|_, fd| has_name(fd));
            self.order.retain(|known| self.held.contains_key(known));
        }
        if self.held.len() >= FILES
            && let Some(oldest) = self.order.pop_front()
        {
            self.held.remove(&oldest);
        }
        let known = identity(&rustix::fs::fstat(&file).map_err(errno)?);
        if self.held.insert(known, file).is_none() {
            self.order.push_back(known);
        }
        Ok(())
    }

    /// The one that was bound, if this file is one.
    pub(super) fn get(&self, stat: &Stat) -> Option<Arc<OwnedFd>> {
        self.held.get(&identity(stat)).map(Arc::clone)
    }

    pub(super) fn forget(&mut self, stat: &Stat) {
        self.held.remove(&identity(stat));
        self.order.retain(|known| *known != identity(stat));
    }
}

pub(super) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// File that stands for an abstract name.
pub(super) struct Name {
    /// Its name in the session's directory for such, and the file.
    pub(super) name: CString,
    pub(super) file: Arc<OwnedFd>,
    /// The socket that was bound to it.
    pub(super) inode: u64,
}

pub(super) fn make(
    family: AddressFamily,
    kind: SocketType,
    flags: SocketFlags,
    protocol: Option<Protocol>,
) -> Result<OwnedFd, i32> {
    rustix::net::socket_with(family, kind, flags, protocol).map_err(errno)
}

pub(super) fn family_in(address: &[u8]) -> i32 {
    i32::from(u16::from_ne_bytes([address[0], address[1]]))
}
