//! The two filters of this architecture, assembled once: workers inherit the programs by fork.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use callgate_policy::plan::seccomp::{Arch, Filter, Variant, base, tool_delta};

use crate::seccomp::{BpfInsn, Listener, assemble, install};

#[cfg(target_arch = "x86_64")]
const HERE: Arch = Arch::X86_64;
#[cfg(target_arch = "aarch64")]
const HERE: Arch = Arch::Aarch64;

/// Installs the base filter on this thread; returns its listener and its length in instructions.
pub(crate) fn install_base(variant: Variant) -> io::Result<(OwnedFd, usize)> {
    let program = program(&base(variant))?;
    let listener = install(&program, Listener::Wanted)?.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    Ok((listener, program.len()))
}

/// Assembles the tool filter, so that the processes forked from here on need not.
pub(crate) fn prepare_tool_filter() -> io::Result<()> {
    tool_program().map(drop)
}

/// Installs the tool filter on this thread, on top of the base filter.
pub(crate) fn install_tool() -> io::Result<()> {
    install(tool_program()?, Listener::Absent).map(drop)
}

fn tool_program() -> io::Result<&'static [BpfInsn]> {
    static PROGRAM: OnceLock<Vec<BpfInsn>> = OnceLock::new();
    if let Some(program) = PROGRAM.get() {
        return Ok(program);
    }
    let assembled = program(&tool_delta())?;
    Ok(PROGRAM.get_or_init(|| assembled))
}

fn program(filter: &Filter) -> io::Result<Vec<BpfInsn>> {
    assemble(filter, HERE).map_err(io::Error::other)
}
