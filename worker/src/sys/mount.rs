//! The one mount call that no library wraps.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Attributes to add to a mount, and to all mounts below it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MountAttributes {
    pub(crate) read_only: bool,
    pub(crate) no_dev: bool,
}

/// mount_setattr(2) (Linux 5.12) with `AT_EMPTY_PATH | AT_RECURSIVE`: adds `nosuid` and what is asked.
pub(crate) fn restrict(tree: BorrowedFd<'_>, attributes: MountAttributes, recursive: bool) -> io::Result<()> {
    let mut set = libc::MOUNT_ATTR_NOSUID;
    if attributes.read_only {
        set |= libc::MOUNT_ATTR_RDONLY;
    }
    if attributes.no_dev {
        set |= libc::MOUNT_ATTR_NODEV;
    }
    let attr = libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: an empty NUL-terminated path, a live structure and its size; the kernel reads both.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
