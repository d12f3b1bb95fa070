//! Directories in which something was done a moment ago. To see that a path leads to one of them takes less time than to open
//! it and to ask where it is.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callgate_policy::plan::exec::FileId;

use super::caller::{Target, identity};

/// Most directories that are held.
const KNOWN: usize = 16;
/// For how long a path counts. The host may move a directory at any time (calls do by the broker, which forgets): what is done by
/// the old path within this time comes out as if it had been done before the move.
const FRESH: Duration = Duration::from_millis(5);

/// A directory, opened, and where it is.
#[derive(Clone)]
pub(super) struct Directory {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) path: Arc<Path>,
}

struct Known {
    /// Its own for as long as it is held.
    id: FileId,
    directory: Directory,
    since: Instant,
}

/// The latest last.
#[derive(Default)]
pub(super) struct Directories(VecDeque<Known>);

impl Directories {
    /// Whether it is worth asking.
    pub(super) fn is_empty(&mut self) -> bool {
        self.0.retain(|known| known.since.elapsed() < FRESH);
        self.0.is_empty()
    }

    pub(super) fn find(&self, id: FileId) -> Option<Directory> {
        self.0.iter().rev().find(|known| known.id == id).map(|known| known.directory.clone())
    }

    pub(super) fn learn(&mut self, target: Target) -> Directory {
        let id = identity(std::os::fd::AsFd::as_fd(&target.fd));
        let directory = Directory { fd: Arc::new(target.fd), path: target.path.into() };
        if let Ok(id) = id {
            if self.0.len() >= KNOWN {
                self.0.pop_front();
            }
            self.0.push_back(Known { id, directory: directory.clone(), since: Instant::now() });
        }
        directory
    }

    /// A directory has moved.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}
