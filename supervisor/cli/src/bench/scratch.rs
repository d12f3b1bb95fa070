//! The directory that a benchmark works in.

use std::path::{Path, PathBuf};

use crate::exit::CommandFailure;
use crate::temporary::Temporary;

/// It is removed when this is dropped, or the process has ended.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: Temporary,
    program: PathBuf,
}

/// File that is read: 4 KiB of text.
pub(super) const FILE: &str = "notes.txt";

impl Scratch {
    /// This process must have one thread.
    pub(crate) fn make() -> Result<Self, CommandFailure> {
        let directory = Temporary::make("callgate-scratch")?;
        let program = std::env::current_exe().map_err(CommandFailure::io("find this program's own file"))?;
        let scratch = Self { directory, program };
        let line = "sixty-three characters of text, so that sixty-four lines are 4K\n";
        std::fs::write(scratch.file(), line.repeat(64))
            .map_err(CommandFailure::io("write into the scratch directory"))?;
        Ok(scratch)
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn file(&self) -> PathBuf {
        self.path().join(FILE)
    }

    /// This very binary.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }
}
