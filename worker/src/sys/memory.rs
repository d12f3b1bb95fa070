//! Reading another process's memory.

use std::io;

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
