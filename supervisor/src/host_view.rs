//! Facts about the host that one session is opened with: its mounts, the home directories of its people, and the parts of the system that
//! everybody may read.
//!
//! Each is looked at once, and lent to whoever asks: mounts and homes when an opening begins, the trees of the system when a plan first
//! needs them. No call changes any of it: calls mount nothing in the namespace of the supervisor, no home directory is granted, and the
//! walk of the system enters nothing that somebody else than root may change.

use std::io;
use std::sync::OnceLock;

use callgate_policy::plan::etc::Readable;

use crate::etc;
use crate::home::Homes;
use crate::mounts::MountTable;

/// Facts about the host that one session is opened with.
#[derive(Debug)]
pub(crate) struct HostView {
    mounts: MountTable,
    homes: Homes,
    system: OnceLock<SystemTrees>,
}

/// Parts of the system that everybody may read.
#[derive(Debug)]
pub(crate) struct SystemTrees {
    /// Those of `/etc`.
    pub(crate) etc: Vec<Readable>,
    /// Those of `/usr` and `/opt`.
    pub(crate) shared: Vec<Readable>,
}

impl HostView {
    /// Looks at mounts and homes.
    ///
    /// # Errors
    /// The reason why it is unknown whose homes there are.
    pub(crate) fn look() -> io::Result<Self> {
        let mounts = MountTable::read();
        Ok(Self { homes: Homes::find(&mounts)?, mounts, system: OnceLock::new() })
    }

    /// Mounts of the host.
    pub(crate) fn mounts(&self) -> &MountTable {
        &self.mounts
    }

    /// Home directories of this host's people.
    pub(crate) fn homes(&self) -> &Homes {
        &self.homes
    }

    /// Parts of the system that everybody may read.
    pub(crate) fn system(&self) -> &SystemTrees {
        self.system.get_or_init(|| SystemTrees { etc: etc::readable(), shared: etc::shared() })
    }
}
