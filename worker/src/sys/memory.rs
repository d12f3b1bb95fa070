//! Another process's memory, read; and what forks copy of one's own.

use std::io;

// A page of code that nobody runs.
std::arch::global_asm!(
    ".pushsection .text.callgate_nobody_runs, \"ax\"",
    ".balign 4096",
    ".globl callgate_nobody_runs",
    "callgate_nobody_runs:",
    ".zero 4096",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "callgate_nobody_runs"]
    static NOBODY_RUNS: MemoryPage;
}

/// A page of constants that nobody reads.
static NOBODY_READS: MemoryPage = MemoryPage([0; 4096]);

#[repr(C, align(4096))]
struct MemoryPage([u8; 4096]);

/// Has forks of this process copy where the pages of its code and of its constants are. The kernel leaves that out for files
/// that a process has not changed, and each fork then finds again, fault by fault, what it runs: three quarters of a
/// worker's faults. It copies them for a mapping that has ever had a guard (`MADV_GUARD_INSTALL`; Linux 6.15 for files), so a
/// page of each that nobody uses gets one for a moment. An older kernel refuses, and nothing changes but what a fork costs.
pub(crate) fn have_forks_copy_page_tables() {
    const INSTALL: libc::c_int = 102;
    const REMOVE: libc::c_int = 103;
    // SAFETY: no pointers.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if usize::try_from(page_size) != Ok(size_of::<MemoryPage>()) {
        return;
    }
    for page in [&raw const NOBODY_RUNS, &raw const NOBODY_READS] {
        for advice in [INSTALL, REMOVE] {
            // SAFETY: the range is one whole page of its own (`MemoryPage` is as large as it is aligned, and a page is as large)
            // that nothing runs, reads or writes; it holds the same after the second call as before the first.
            unsafe { libc::madvise(page.cast_mut().cast(), size_of::<MemoryPage>(), advice) };
        }
    }
}

/// Reads up to `buffer.len()` bytes at `address` of process `pid` (process_vm_readv(2)), stopping at the first page that
/// is not mapped. What is read is a copy: whoever judges it must also act on the copy (A6, B18).
///
/// # Errors
/// `EFAULT` if nothing is mapped there; `EPERM` if this process may not look (Yama, a non-dumpable target).
pub(crate) fn read(pid: libc::pid_t, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        let at = address.wrapping_add(done as u64);
        // Page by page, because a range that runs into an unmapped page fails as a whole.
        let in_page = 4096 - (at % 4096) as usize;
        let len = in_page.min(buffer.len() - done);
        let local = libc::iovec { iov_base: buffer[done..].as_mut_ptr().cast(), iov_len: len };
        let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: len };
        // SAFETY: `local` is `len` writable bytes of `buffer`; `remote` is only an address, checked by the kernel in the
        // other process. One of each, no flags.
        let n = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(n) {
            Ok(n) if n > 0 => done += n,
            Ok(_) => break,
            Err(_negative) if done > 0 => break,
            Err(_negative) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(done)
}
