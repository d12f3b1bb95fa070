//! One rule of the file system, as the kernel will be told it.

use serde::{Deserialize, Serialize};

use crate::path::HostPath;

/// What may be done beneath (or to) one path. Landlock's rights are worked out from it by the worker, for the ABI that
/// the host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FsAccess {
    /// List directories, and read no file.
    List,
    /// Read files, list directories.
    Read,
    /// The same, and start programs.
    ReadExecute,
    /// The same, and create, change, rename and remove.
    Write,
    /// The same, but for protected names ([`super::protect`]): the kernel lets a call only read, and the broker writes for it.
    Kept,
    /// A device that is read, written and controlled by ioctl(2), such as `/dev/null`.
    Device,
}

impl FsAccess {
    /// Whether what files hold may be read.
    #[must_use]
    pub fn reads_files(self) -> bool {
        match self {
            Self::List => false,
            Self::Read | Self::ReadExecute | Self::Write | Self::Kept | Self::Device => true,
        }
    }

    /// Whether something may be changed, by whomever.
    #[must_use]
    pub fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Kept)
    }
}

/// Whether a rule covers what lies beneath a directory, or one file.
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

/// What a rule's absence means. Sandboxes whose rule set silently vanished with one missing path are attack A14.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// The path must exist; otherwise the session is refused.
    Required,
    /// A part of the base system that this host may lack; then the rule is left out, which only takes rights away.
    Optional,
}

/// Whether a pattern's rule says exactly what the pattern says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exactness {
    /// The rule grants what the pattern matches, and nothing else.
    Exact,
    /// Landlock grants whole trees: the rule covers the pattern's literal prefix, which holds more than it matches.
    Widened,
}

/// One grant of the file system, as the kernel will be told it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FsRule {
    /// An absolute path without `..`.
    pub path: HostPath,
    /// What is granted.
    pub access: FsAccess,
    /// Tree or file.
    pub extent: Extent,
    /// Whether the path must exist.
    pub presence: Presence,
    /// Whether this says what its pattern says.
    pub exactness: Exactness,
    /// Where it came from, for people: `manifest: fs.read "{workspace}/**"`, `system`.
    pub source: String,
}

impl FsRule {
    /// The same for reading alone.
    #[must_use]
    pub fn for_reading(&self) -> Self {
        Self { access: FsAccess::Read, ..self.clone() }
    }
}
