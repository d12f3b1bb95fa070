//! A session's private directory.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use callgate_policy::plan::{Identity, PrivateDir};

/// The directory from its making until the launcher has been told to look after it.
#[derive(Debug)]
pub(crate) struct Private {
    path: PathBuf,
    kept: bool,
}

impl Private {
    /// Makes it under the system's temporary directory, with a name that cannot be guessed (A11), for this user alone.
    pub(crate) fn make(owner: Identity) -> io::Result<Self> {
        let path = make_unpredictable(&std::env::temp_dir())?;
        let made = Self { path, kept: false };
        for name in PrivateDir::PARTS {
            DirBuilder::new().mode(0o700).create(made.path.join(name))?;
        }
        if rustix::process::geteuid().as_raw() != owner.uid {
            for path in PrivateDir::PARTS.map(|name| made.path.join(name)).iter().chain([&made.path]) {
                std::os::unix::fs::chown(path, Some(owner.uid), Some(owner.gid))?;
            }
        }
        Ok(made)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The session stands: its broker empties the directory, its launcher removes it.
    pub(crate) fn hand_over(mut self) {
        self.kept = true;
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if !self.kept {
            // Nothing but what `make` made is in it: no session has run.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

fn make_unpredictable(parent: &Path) -> io::Result<PathBuf> {
    for _ in 0..16 {
        let path = parent.join(format!("callgate-{}", crate::host::random()?));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}
