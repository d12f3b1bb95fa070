//! A directory of definitions, read by its descriptor, through no link.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::host;

/// The longest file that belongs to a tool, bytes.
pub(crate) const FILE_MAX: u64 = 1024 * 1024;
/// The most that definitions and files of a layer are together, bytes.
pub(super) const LAYER_MAX: u64 = 64 * 1024 * 1024;
/// The most names that are looked at in a directory of definitions.
const NAMES_MAX: usize = 4096;

/// A directory of definitions, held.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    fd: Arc<OwnedFd>,
    /// Name of it when it was opened.
    pub(crate) path: PathBuf,
    /// True if others of this host must not be able to write what is read in it.
    private: bool,
}

impl Directory {
    /// Opens a directory below another one. `None` if there is none.
    pub(super) fn below(held: BorrowedFd<'_>, (path, name): (&Path, &str), private: bool) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat2(held, name, flags, Mode::empty(), inside()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(told(errno)),
        };
        if private {
            refuse_others(&rustix::fs::fstat(&fd)?)?;
        }
        Ok(Some(Self { fd: Arc::new(fd), path: path.join(name), private }))
    }

    /// True if its path still leads to what is held.
    pub(crate) fn is_there(&self) -> bool {
        let held = rustix::fs::fstat(&self.fd).ok().map(|stat| (stat.st_dev, stat.st_ino));
        held.is_some() && held == host::identity_of(&self.path)
    }

    /// The names of definitions in it, in order.
    pub(super) fn definitions(&self) -> io::Result<Vec<CString>> {
        let mut names = Vec::new();
        for (number, entry) in rustix::fs::Dir::read_from(&self.fd)?.enumerate() {
            if number >= NAMES_MAX {
                return Err(io::Error::other(format!("it has more than {NAMES_MAX} files")));
            }
            let name = entry?.file_name().to_owned();
            if name.as_bytes().ends_with(b".toml") && !name.as_bytes().starts_with(b".") {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Reads a file, and together with what was read before at most what there is room for.
    pub(super) fn read_within(&self, name: &str, most: u64, room: &mut u64) -> io::Result<Vec<u8>> {
        let bytes = self.read(name, most)?;
        *room = room.checked_sub(bytes.len() as u64).ok_or_else(|| {
            io::Error::other(format!("what the layer's tools consist of is longer than {} MiB", LAYER_MAX >> 20))
        })?;
        Ok(bytes)
    }

    /// Content of a regular file of it, through no link, of at most so many bytes. What is opened is what was looked
    /// at: a FIFO or a device is not opened at all.
    pub(crate) fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let found = rustix::fs::openat2(&self.fd, name, flags, Mode::empty(), inside()).map_err(told)?;
        let stat = rustix::fs::fstat(&found)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("it is not a regular file"));
        }
        // By another name, calls may write what they may not write by this one.
        if stat.st_nlink != 1 {
            return Err(io::Error::other("it has another name elsewhere (a hard link); replace it by a copy"));
        }
        if self.private {
            refuse_others(&stat)?;
        }
        let opened = File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
        let mut bytes = Vec::new();
        opened.take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            return Err(io::Error::other(format!("it is longer than {} KiB", most / 1024)));
        }
        Ok(bytes)
    }
}

fn inside() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV
}

fn told(errno: Errno) -> io::Error {
    match errno {
        Errno::LOOP => io::Error::other("a symbolic link leads there, and none is followed"),
        Errno::XDEV => io::Error::other("it lies on another file system"),
        errno => errno.into(),
    }
}

/// Refuses what others could have written: it is not the user's.
pub(super) fn refuse_others(stat: &Stat) -> io::Result<()> {
    let me = rustix::process::geteuid().as_raw();
    match stat {
        stat if stat.st_uid != me && stat.st_uid != 0 => Err(io::Error::other("it belongs to another user")),
        stat if stat.st_mode & 0o022 != 0 => Err(io::Error::other("its mode lets others write it (chmod go-w)")),
        _ => Ok(()),
    }
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    host::hex(&Sha256::digest(bytes))
}
