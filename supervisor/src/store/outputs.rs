//! Directories of outputs that recorded sessions have, which are removed when those are closed.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

/// Beginning of the names of directories of outputs.
pub(crate) const DIRECTORY: &str = "callgate-out-";

/// A directory of outputs that a session has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub(crate) struct KnownOutputs {
    pub(crate) path: String,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl KnownOutputs {
    /// Opens it, if it is still what it was.
    pub(crate) fn open(&self) -> rustix::io::Result<std::os::fd::OwnedFd> {
        open_known(Path::new(&self.path), (self.device, self.inode))
    }

    /// Removes the directory of a session that was closed, with its files. What is removed has a name that only callgate gives: the
    /// record says where, and a record is not believed further than that. Only names that lie directly in the directory are removed,
    /// each by its descriptor: what else its owner has put there stays, and so does the directory then.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let path = Path::new(&self.path);
        let (Some(place), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if !name.as_encoded_bytes().starts_with(DIRECTORY.as_bytes()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not called as a directory of outputs"));
        }
        let held = self.open()?;
        for name in names(&held)?.iter().filter(|name| is_output(name.as_bytes())) {
            rustix::fs::unlinkat(&held, name.as_c_str(), AtFlags::empty())?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = rustix::fs::openat(rustix::fs::CWD, place, flags, Mode::empty())?;
        let there = rustix::fs::statat(&place, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (there.st_dev, there.st_ino) != (self.device, self.inode) {
            return Err(rustix::io::Errno::STALE.into());
        }
        // It is empty, and has the name that was made up for it.
        Ok(rustix::fs::unlinkat(&place, name, AtFlags::REMOVEDIR)?)
    }
}

/// True if a file has a name that [`Outputs::create`](crate::confine::Outputs::create) gives: `0001-bash.txt`.
fn is_output(name: &[u8]) -> bool {
    let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits >= 4 && name.get(digits) == Some(&b'-') && name.ends_with(b".txt")
}

/// Names in a directory.
pub(crate) fn names(directory: &OwnedFd) -> io::Result<Vec<std::ffi::CString>> {
    let entries = rustix::fs::Dir::read_from(directory)?.collect::<Result<Vec<_>, _>>()?;
    let names = entries.into_iter().map(|entry| entry.file_name().to_owned());
    Ok(names.filter(|name| !matches!(name.as_bytes(), b"." | b"..")).collect())
}

/// Opens a directory that was made for a session's outputs, if it is still what it was.
fn open_known(path: &Path, id: (u64, u64)) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(opened.as_fd())?;
    if (stat.st_dev, stat.st_ino) == id { Ok(opened) } else { Err(Errno::STALE) }
}
