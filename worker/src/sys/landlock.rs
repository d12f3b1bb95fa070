//! Enforcing and extending a ruleset that was built before, which the landlock crate does not offer.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Puts this thread, for good, into a new Landlock domain below its present one (landlock_restrict_self(2), Linux 5.13).
///
/// # Errors
/// `EPERM` without `no_new_privs`; `E2BIG` at the 17th layer (D10).
pub(crate) fn restrict_self(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an open ruleset descriptor and no flags; the kernel copies the rules.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `LANDLOCK_ACCESS_FS_READ_FILE` (linux/landlock.h): to open a file for reading.
pub(crate) const READ_FILE: u64 = 1 << 2;
/// `LANDLOCK_ACCESS_FS_READ_DIR`: to list a directory.
pub(crate) const READ_DIR: u64 = 1 << 3;

/// `struct landlock_path_beneath_attr` (linux/landlock.h).
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: libc::c_int,
}

/// Adds a rule for what this descriptor stands for to a ruleset (landlock_add_rule(2)).
///
/// # Errors
/// `EINVAL` for rights that the ruleset does not handle, `EBADFD` for what is not in the file tree.
pub(crate) fn add_beneath(ruleset: BorrowedFd<'_>, place: BorrowedFd<'_>, rights: u64) -> io::Result<()> {
    const LANDLOCK_RULE_PATH_BENEATH: u32 = 1;
    let rule = PathBeneath { allowed_access: rights, parent_fd: place.as_raw_fd() };
    // SAFETY: two open descriptors and a live structure of the kind that the rule's type names, which the kernel reads.
    let done = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            LANDLOCK_RULE_PATH_BENEATH,
            &raw const rule,
            0_u32,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The kernel's ABI (landlock_create_ruleset(2) with `LANDLOCK_CREATE_RULESET_VERSION`).
///
/// # Errors
/// `ENOSYS` without Landlock; `EOPNOTSUPP` where it was switched off at boot.
pub(crate) fn abi() -> io::Result<i32> {
    // SAFETY: the version query takes a null attribute, size 0 and the flag 1.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, 1_u32) };
    if abi < 0 { Err(io::Error::last_os_error()) } else { i32::try_from(abi).map_err(io::Error::other) }
}
