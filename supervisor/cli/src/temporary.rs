//! Directories that commands work in.

use std::path::{Path, PathBuf};

use callgate_policy::plan::Identity;
use callgate_worker::directory::OwnDirectory;
use callgate_worker::launcher::{remove_at_the_end, wait_for_the_end};
use callgate_worker::protocol::Channel;

use super::exit::CommandFailure;
use super::supervisor::tell_left;

/// Made with a name that cannot be guessed, for this user alone. It is removed when this is dropped, or the process has
/// ended: another process does so, which this one's end does not touch.
#[derive(Debug)]
pub(super) struct Temporary {
    path: PathBuf,
    remover: Channel,
}

impl Temporary {
    /// This process must have one thread.
    pub(super) fn make(prefix: &str) -> Result<Self, CommandFailure> {
        let random = random()?;
        let place = std::env::temp_dir();
        let named = || CommandFailure::named(format!("use {} for temporary files, as TMPDIR says", place.display()));
        if !std::fs::metadata(&place).map_err(named())?.is_dir() {
            return Err(named()(std::io::ErrorKind::NotADirectory.into()));
        }
        let path = place.join(format!("{prefix}-{random}"));
        let user = Identity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        let directory =
            OwnDirectory::make(&path, &[], user).map_err(CommandFailure::io(format!("make {}", path.display())))?;
        let remover = remove_at_the_end(directory).map_err(CommandFailure::io("start what removes it"))?;
        Ok(Self { path, remover })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        wait_for_the_end(&self.remover).iter().for_each(tell_left);
    }
}

/// 128 random bits, in hexadecimal.
pub(super) fn random() -> Result<String, CommandFailure> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|e| CommandFailure::io("get random bytes")(e.into()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
