//! Kinds of files that are not regular ones.

use std::fmt;

use rustix::fs::FileType;

/// Kind of what a path names when it is not a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A named pipe.
    Fifo,
    /// A unix socket.
    Socket,
    /// A character device, such as a terminal or `/dev/zero`.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A symbolic link where none can be followed.
    Symlink,
    /// Something that this code does not know.
    Unknown,
}

impl FileKind {
    /// `None` for a regular file.
    pub(super) fn of_other(mode: rustix::fs::RawMode) -> Option<Self> {
        match FileType::from_raw_mode(mode) {
            FileType::RegularFile => None,
            FileType::Directory => Some(Self::Directory),
            FileType::Fifo => Some(Self::Fifo),
            FileType::Socket => Some(Self::Socket),
            FileType::CharacterDevice => Some(Self::CharacterDevice),
            FileType::BlockDevice => Some(Self::BlockDevice),
            FileType::Symlink => Some(Self::Symlink),
            FileType::Unknown => Some(Self::Unknown),
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::CharacterDevice => "a character device",
            Self::BlockDevice => "a block device",
            Self::Symlink => "a symbolic link",
            Self::Unknown => "of a kind unknown here",
        })
    }
}
