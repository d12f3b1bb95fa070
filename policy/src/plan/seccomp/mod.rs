//! The system call filters, as data: which call does what, and why.
//!
//! [`base`] is an allow list that the zygote installs once and every worker inherits; [`tool_delta`] is a short second
//! filter for callgate's own in-process tools. Nothing here knows a system call number: the worker's assembler turns
//! names into numbers and the table into a program, and its tests hold the program against this table.
//!
//! Rules that hold throughout:
//! - What is not named fails with [`Errno::Enosys`], as on a kernel that does not have the call. So a call that a
//!   later kernel brings is closed until someone has thought about it, and C libraries fall back by themselves.
//! - A call of another architecture or of x32 kills the process (D5): its numbers mean other calls.
//! - `int` arguments are compared in their low 32 bits, because the kernel drops the upper half; a comparison of all
//!   64 bits is bypassed by setting one of those (D5; TIOCSTI in snapd).
//! - The filter judges integers. What depends on pointed-to memory goes to the broker ([`CallVerdict::Notify`]), which
//!   acts on its own copy, or is refused.

mod base;
mod commands;
mod constants;
mod egress;
mod groups;
mod tools;
mod types;

pub use self::base::base;
pub use self::constants::X86_64_ONLY;
pub use self::egress::egress;
pub use self::tools::{ask_delta, fetch_delta, reader_delta, readers, search_delta, searcher_delta, tool_delta};
pub use self::types::{
    Arch, ArgRule, CallAction, CallGroup, CallVerdict, Condition, Errno, Filter, Operand, Variant, Width,
};

#[cfg(test)]
mod tests;
