//! The filters of this architecture.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use callgate_policy::plan::seccomp::{Arch, Filter, Variant, base, reader_delta, readers, tool_delta};

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

/// Installs the readers' filter on this thread; returns its length in instructions.
pub(crate) fn install_readers() -> io::Result<usize> {
    let program = program(&readers())?;
    install(&program, Listener::Absent)?;
    Ok(program.len())
}

/// A filter that is stacked upon another in each worker: assembled once, before the processes that use it are forked.
pub(crate) struct Delta(OnceLock<Vec<BpfInsn>>, fn() -> Filter);

/// For tools below the broker.
pub(crate) static TOOL: Delta = Delta(OnceLock::new(), tool_delta);
/// For readers.
pub(crate) static READER: Delta = Delta(OnceLock::new(), reader_delta);

impl Delta {
    /// Assembles it, so that the processes forked from here on need not.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        self.program().map(drop)
    }

    /// Installs it on this thread.
    pub(crate) fn install(&self) -> io::Result<()> {
        install(self.program()?, Listener::Absent).map(drop)
    }

    fn program(&self) -> io::Result<&[BpfInsn]> {
        if let Some(program) = self.0.get() {
            return Ok(program);
        }
        let assembled = program(&self.1())?;
        Ok(self.0.get_or_init(|| assembled))
    }
}

fn program(filter: &Filter) -> io::Result<Vec<BpfInsn>> {
    assemble(filter, HERE).map_err(io::Error::other)
}
