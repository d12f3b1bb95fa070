//! Files that are read whole: settings of git, and what says where a repository is.
#![expect(
    clippy::disallowed_methods,
    reason = "a link of procfs to a descriptor that was looked at: the file itself, whatever its name leads to now"
)]

use std::ffi::CStr;
use std::fs;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// A file of settings that is longer is not read.
const SETTINGS: u64 = 1024 * 1024;

/// A small file that is one. Nothing else is opened, which would be felt at the other end of a FIFO, or by a device.
pub(super) fn settings(path: &Path) -> Option<Vec<u8>> {
    text_of(&rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?)
}

/// Settings of a name in a directory, which is not followed.
pub(super) fn settings_in(directory: impl AsFd, name: &CStr) -> Option<Vec<u8>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    text_of(&rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?)
}

fn text_of(found: &OwnedFd) -> Option<Vec<u8>> {
    let stat = rustix::fs::fstat(found).ok()?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
        return None;
    }
    // A file of the kernel's own may keep whoever reads it waiting, however regular it looks (/proc/kmsg).
    let kind = rustix::fs::fstatfs(found).ok()?.f_type;
    if [libc::PROC_SUPER_MAGIC, libc::SYSFS_MAGIC, libc::TRACEFS_MAGIC, libc::DEBUGFS_MAGIC].contains(&kind) {
        return None;
    }
    let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
    let file = fs::File::from(rustix::fs::open(itself, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?);
    let mut text = Vec::new();
    let read = file.take(SETTINGS + 1).read_to_end(&mut text).ok()?;
    (read as u64 <= SETTINGS).then_some(text)
}
