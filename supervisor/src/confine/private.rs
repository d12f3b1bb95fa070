//! Where a session's own directories on the host are made.

use std::io;
use std::path::{Path, PathBuf};

use callgate_policy::path::HostPath;
use callgate_policy::plan::Identity;
use callgate_worker::directory::{OWN_PREFIX, open_trusted};

use crate::host;
use crate::mounts::MountTable;

/// There can be no private directory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrivateError {
    #[error("use {path} for temporary files, as TMPDIR says")]
    NoTemporary { path: PathBuf, source: io::Error },
    #[error("make up a name for the session's private directory")]
    Name(#[source] io::Error),
}

/// Where a session's private directory will be, with a name that cannot be guessed (A11). The launcher makes it, which also
/// removes it: whenever the supervisor is killed, somebody is left to do so.
///
/// It lies where the session cannot put something else in its place, if there is such a place. If not, the system's
/// temporary directory is as good as any: the processes of callgate hold it by descriptor.
pub(crate) fn private_directory(
    owner: Identity,
    written: &[HostPath],
    mounts: &MountTable,
) -> Result<PathBuf, PrivateError> {
    let place = places(owner, written, mounts).into_iter().next();
    let place = match place.or_else(|| places(owner, &[], mounts).into_iter().next()) {
        Some(place) => place,
        None => host::temporary().map_err(|(path, source)| PrivateError::NoTemporary { path, source })?,
    };
    Ok(place.join(format!("{OWN_PREFIX}{}", host::random().map_err(PrivateError::Name)?)))
}

/// Directories for temporary files that a session cannot replace, or what lies in them, which may change what lies at or below
/// `written`: the system's own first. Where a process makes directories there for another user, nobody else can do so either.
pub(super) fn places(owner: Identity, written: &[HostPath], mounts: &MountTable) -> Vec<PathBuf> {
    let places = [std::env::temp_dir(), "/var/tmp".into(), "/run".into()];
    let gives = rustix::process::geteuid().as_raw() != owner.uid;
    let is_trusted = |place: &Path| !gives || open_trusted(place).is_ok();
    let places = places.iter().filter_map(|place| std::fs::canonicalize(place).ok());
    places.filter(|place| is_out_of_reach(place, written, mounts) && is_trusted(place)).collect()
}

/// True if a session that may change what lies at or below `written` can neither replace this directory, nor what lies
/// in it.
pub(super) fn is_out_of_reach(place: &Path, written: &[HostPath], mounts: &MountTable) -> bool {
    let written: Vec<_> = written.iter().filter_map(nearest).collect();
    // The place of a mount is where its source is as well.
    let Some(names) = mounts.names(&std::fs::canonicalize(place).unwrap_or_else(|_| place.to_owned())) else {
        return false;
    };
    names
        .iter()
        .map(PathBuf::as_path)
        .chain([place])
        .flat_map(Path::ancestors)
        .all(|above| !written.contains(&host::identity_of(above)))
}

/// Identity of what stands at a path, or else at the nearest directory above it, by which the kernel was told.
fn nearest(path: &HostPath) -> Option<Option<(u64, u64)>> {
    path.as_path().ancestors().map(host::identity_of).find(Option::is_some)
}
