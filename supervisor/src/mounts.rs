//! Mounts of the host, by which a place may have more names than one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_worker::mountinfo::{self, Mount};

/// Mounts of the host, as they were read once; or the reason why they are unknown.
#[derive(Debug, Clone)]
pub(crate) struct MountTable(Result<Arc<[Mount]>, Arc<str>>);

impl MountTable {
    /// Reads them.
    pub(crate) fn read() -> Self {
        Self(mountinfo::read().map(Arc::from).map_err(|error| error.to_string().into()))
    }

    /// All of them.
    ///
    /// # Errors
    /// The reason why they could not be read.
    pub(crate) fn known(&self) -> Result<&[Mount], &str> {
        self.0.as_deref().map_err(AsRef::as_ref)
    }

    /// All names of the place at a path without links, its own first. `None` where the mounts are unknown that show it elsewhere.
    pub(crate) fn names(&self, place: &Path) -> Option<Vec<PathBuf>> {
        let others = mountinfo::other_names(self.known().ok()?, place);
        Some(std::iter::once(place.to_owned()).chain(others).collect())
    }
}
