//! The directory that a benchmark works in.

use std::path::{Path, PathBuf};

use crate::cli::exit::Failure;

/// Made with a name that cannot be guessed, for this user alone; removed when dropped.
#[derive(Debug)]
pub(in crate::cli) struct Scratch {
    path: PathBuf,
    program: PathBuf,
}

/// What is read: 4 KiB of text.
pub(super) const FILE: &str = "notes.txt";

impl Scratch {
    pub(in crate::cli) fn make() -> Result<Self, Failure> {
        let template = std::env::temp_dir().join("callgate-scratch-XXXXXX");
        let path = nix::unistd::mkdtemp(&template)
            .map_err(|e| Failure::Io { what: format!("make {}", template.display()), source: e.into() })?;
        let program = std::env::current_exe().map_err(Failure::io("find this program's own file"))?;
        let scratch = Self { path, program };
        let line = "sixty-three characters of text, so that sixty-four lines are 4K\n";
        std::fs::write(scratch.file(), line.repeat(64)).map_err(Failure::io("write into the scratch directory"))?;
        Ok(scratch)
    }

    pub(in crate::cli) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> PathBuf {
        self.path.join(FILE)
    }

    /// This very binary.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the scratch directory stays behind");
        }
    }
}
