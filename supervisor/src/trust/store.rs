//! The list on disk: one small file, replaced as a whole, of which nobody else may write.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};

use super::{TrustError, Trusted};
use crate::registry::counts;

/// The version that this build reads and writes (X1-35).
const VERSION: u32 = 1;
/// The longest list that is read, bytes.
const LONGEST: u64 = 16 * 1024 * 1024;

#[derive(Debug, Clone)]
pub(super) struct Store {
    directory: PathBuf,
}

/// The file's form.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Form {
    schema_version: u32,
    projects: Vec<Trusted>,
}

impl Store {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// All lines; none if there is no list.
    pub(super) fn read(&self) -> Result<Vec<Trusted>, TrustError> {
        let path = self.file();
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
        let file = match File::options().read(true).custom_flags(flags).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            // A home that is somebody else's (`sudo -u`) has no list of ours. One of ours that cannot be read is no empty one.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !self.is_my_own() => {
                return Ok(Vec::new());
            }
            Err(source) => return Err(TrustError::List { path, source }),
        };
        is_ours(&self.directory, &self.directory.metadata().map_err(|source| self.failed(source))?)?;
        self.is_protected()?;
        let about = file.metadata().map_err(|source| self.failed(source))?;
        is_ours(&path, &about)?;
        if !about.is_file() || about.len() > LONGEST {
            return Err(self.failed(io::Error::other("it is not a regular file of at most 16 MiB")));
        }
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text).map_err(|source| self.failed(source))?;
        let damaged = |source| TrustError::Damaged { path: path.clone(), source };
        let form: Form = serde_json::from_slice(&text).map_err(damaged)?;
        if form.schema_version != VERSION {
            let text = format!("schemaVersion is {}, and this callgate knows {VERSION}", form.schema_version);
            return Err(damaged(serde::de::Error::custom(text)));
        }
        Ok(form.projects)
    }

    /// Changes the list: whole or not at all, and nobody else at the same time.
    pub(super) fn change(&self, change: impl FnOnce(&mut Vec<Trusted>)) -> Result<(), TrustError> {
        let failed = |source| self.failed(source);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory).map_err(failed)?;
        let directory = File::open(&self.directory).map_err(failed)?;
        is_ours(&self.directory, &directory.metadata().map_err(failed)?)?;
        self.is_protected()?;
        // The lock goes with the open file.
        rustix::fs::flock(&directory, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
        let before = self.read()?;
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return Ok(());
        }
        self.replace(&Form { schema_version: VERSION, projects: after }, &directory).map_err(failed)
    }

    fn replace(&self, form: &Form, directory: &File) -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(".trust-")
            .permissions(Permissions::from_mode(0o600))
            .tempfile_in(&self.directory)?;
        serde_json::to_writer_pretty(&mut file, form)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(self.file())?;
        directory.sync_all()
    }

    fn file(&self) -> PathBuf {
        self.directory.join("trust.json")
    }

    /// Confirms that a path is protected. What a link leads to is believed only under a name that no call writes: in a
    /// repository of dotfiles calls may have worked.
    fn is_protected(&self) -> Result<(), TrustError> {
        let real = self.directory.canonicalize().map_err(|source| self.failed(source))?;
        if real == self.directory || counts(&real) {
            return Ok(());
        }
        let what = "a link leads there, to a directory that is not called .callgate, where calls could have written";
        Err(TrustError::NotYours { path: self.directory.clone(), what })
    }

    fn is_my_own(&self) -> bool {
        let me = rustix::process::geteuid().as_raw();
        self.directory.metadata().is_ok_and(|about| about.uid() == me)
    }

    fn failed(&self, source: io::Error) -> TrustError {
        TrustError::List { path: self.file(), source }
    }
}

/// As ssh asks of its own files: what others could have written is not believed.
fn is_ours(path: &Path, about: &std::fs::Metadata) -> Result<(), TrustError> {
    let not_ours = |what| Err(TrustError::NotYours { path: path.to_owned(), what });
    let me = rustix::process::geteuid().as_raw();
    match about {
        about if about.uid() != me => not_ours("it belongs to another user"),
        about if about.mode() & 0o022 != 0 => not_ours("its mode lets others write it"),
        _ => Ok(()),
    }
}
