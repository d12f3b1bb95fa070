//! One rule of the file system, as the kernel will be told it.

use serde::{Deserialize, Serialize};

use crate::path::HostPath;

/// Access beneath (or to) one path. Landlock's rights are worked out from it by the worker, for the ABI that the host
/// has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FsAccess {
    /// List directories, and read no file.
    List,
    /// Read files, list directories.
    Read,
    /// Read, and start programs.
    ReadExecute,
    /// Read and start programs, and create, change, rename and remove.
    Write,
    /// Write, but for protected names ([`super::protect`]): the kernel lets a call only read, and the broker writes for it.
    Kept,
    /// A device that is read, written and controlled by ioctl(2), such as `/dev/null`.
    Device,
}

impl FsAccess {
    /// True if what files hold may be read.
    #[must_use]
    pub fn reads_files(self) -> bool {
        match self {
            Self::List => false,
            Self::Read | Self::ReadExecute | Self::Write | Self::Kept | Self::Device => true,
        }
    }

    /// True if something may be changed, by whomever.
    #[must_use]
    pub fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Kept)
    }
}

/// Extent of a rule: what lies beneath a directory, or one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// A directory and all beneath it.
    Subtree,
    /// One file.
    File,
    /// One name in a directory, which may not exist yet and is replaced as a whole. The kernel can be told no less than
    /// that directory; so, where names are kept, the broker alone is, and lets this one name pass.
    Entry,
}

/// Effect of a missing path on its rule. Sandboxes whose rule set silently vanished with one missing path are attack A14.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// The path must exist; otherwise the session is refused.
    Required,
    /// A part of the base system that this host may lack; then the rule is left out, which only takes rights away.
    Optional,
}

/// Exactness of a pattern's rule: whether it says what the pattern says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exactness {
    /// The rule grants what the pattern matches, and nothing else.
    Exact,
    /// Landlock grants whole trees: the rule covers the pattern's literal prefix, which holds more than it matches.
    Widened,
}

/// Identity of a file: no other has it while it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId {
    /// Its device (`st_dev`).
    pub device: u64,
    /// Its number there (`st_ino`).
    pub inode: u64,
}

/// Thing that a rule holds for. A path alone says nothing of who decides where it leads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Binding {
    /// Any file of this name: a path that is written down in this crate, or lies in the session's own directory.
    #[default]
    Name,
    /// The file that the supervisor saw at a path of a grant or of a toolchain ([`super::Seen`]). If something else stands there, there is no
    /// session.
    Seen,
    /// The file that the walk of the system found there, by no link. If something else stands there, or a link is on the way, the rule is left
    /// out.
    Walked(FileId),
}

impl Binding {
    fn is_name(&self) -> bool {
        *self == Self::Name
    }
}

/// One grant of the file system, as the kernel will be told it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FsRule {
    /// An absolute path without `..`.
    pub path: HostPath,
    /// Access that is granted.
    pub access: FsAccess,
    /// Tree or file.
    pub extent: Extent,
    /// Thing that it holds for.
    #[serde(default, skip_serializing_if = "Binding::is_name")]
    pub binding: Binding,
    /// Presence that is demanded of the path.
    pub presence: Presence,
    /// Exactness against its pattern.
    pub exactness: Exactness,
    /// Where it came from, for people: `manifest: fs.read "{workspace}/**"`, `system`.
    pub source: String,
}

impl FsRule {
    /// Rule for reading alone.
    #[must_use]
    pub fn for_reading(&self) -> Self {
        Self { access: FsAccess::Read, ..self.clone() }
    }
}
