//! The only unsafe code: one safe wrapper per system call, each proving what the kernel is handed.
#![allow(
    unsafe_code,
    reason = "system calls that no dependency wraps; every block proves its own pointers"
)]

pub(crate) mod seccomp;
