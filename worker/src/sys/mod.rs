//! The repository's only unsafe code: one safe wrapper per system call that no library wraps safely.
#![allow(unsafe_code, reason = "system calls; each block says why it holds")]

use std::io;

pub mod fd;
pub(crate) mod ipc;
pub(crate) mod landlock;
pub(crate) mod memory;
pub(crate) mod mount;
pub mod names;
pub(crate) mod notify;
#[doc(hidden)]
pub mod probe;
pub mod process;
pub(crate) mod ptrace;
pub(crate) mod seccomp;
pub(crate) mod socket;

fn errno_if_negative(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
