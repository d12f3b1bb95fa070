//! The inotify descriptors of a call.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::fs::AtFlags;

/// A call's descriptors, by their first watch.
#[derive(Default)]
pub(super) struct Watches {
    pub(super) kept: HashMap<String, (OwnedFd, Marker)>,
    pub(super) made: u64,
}

/// First watch of a descriptor: a file in a directory that is the session's own.
pub(super) struct Marker {
    pub(super) directory: OwnedFd,
    pub(super) name: String,
}

impl Drop for Marker {
    fn drop(&mut self) {
        match rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty()) {
            // If it is gone the session is, and its directory with it.
            Ok(()) | Err(_) => {}
        }
    }
}
