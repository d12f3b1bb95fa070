//! Several names taken in one step, by the broker (`broker/files/batch.rs`).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// All of the entries are carried out, if all may be. A flag of renameat2(2) that the kernel does not know.
pub const ALL: u32 = 1 << 31;
/// They are only judged.
pub const JUDGE: u32 = 1 << 30;
/// Most entries.
pub const MOST: usize = 64;
/// One entry, as the broker reads it: four numbers of 64 bits. The directory's descriptor, the address of a name in it, the
/// address of the name that it is to have, or 0 to remove it, and the flags of renameat2(2).
pub const NUMBERS: usize = 4;

/// One of them.
pub struct NamedEntry<'a> {
    /// The directory of both names.
    pub directory: BorrowedFd<'a>,
    /// Name of the file that is moved or removed.
    pub from: &'a CStr,
    /// Name that it gets; without one it is removed.
    pub to: Option<&'a CStr>,
    /// The flags of renameat2(2).
    pub flags: u32,
}

/// Takes them, or has them judged, as `flags` say. How many were taken.
///
/// # Errors
/// `EINVAL` where there is no broker that does it; else the broker's own, and then nothing was done.
pub fn take(entries: &[NamedEntry<'_>], flags: u32) -> io::Result<usize> {
    let address = |name: &CStr| name.as_ptr().expose_provenance() as u64;
    let numbers: Vec<[u64; NUMBERS]> = entries
        .iter()
        .map(|entry| {
            let directory = u64::try_from(entry.directory.as_raw_fd()).unwrap_or(u64::MAX);
            [directory, address(entry.from), entry.to.map_or(0, address), u64::from(entry.flags)]
        })
        .collect();
    // SAFETY: the broker reads `numbers`, as many as it is told, and the strings at the addresses in it; all of them are
    // borrowed until this returns, and nothing is written. A kernel that answers itself knows no such flag: it reads the first
    // bytes of `numbers` and the empty string as names, up to a NUL or PATH_MAX or to what is not mapped, and says EINVAL.
    let taken = unsafe { libc::syscall(libc::SYS_renameat2, numbers.len(), numbers.as_ptr(), -1, c"".as_ptr(), flags) };
    usize::try_from(taken).map_err(|_negative| io::Error::last_os_error())
}
