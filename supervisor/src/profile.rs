//! Reading a profile's file. What it says is [`callgate_policy::profile`]'s to say.

use std::io;
use std::path::{Path, PathBuf};

use callgate_policy::manifest::{Manifest, ManifestError};
use callgate_policy::profile::{MAX_BYTES, OutsideWorkspace, Profile, ProfileFile, ProfileName};
use sha2::{Digest as _, Sha256};

use crate::host;

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Its file cannot be read; one that is not UTF-8 is none.
    #[error("read the profile {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Its content makes no sense.
    #[error(transparent)]
    Content(#[from] ManifestError),
    /// Where its shells start is not a part of what the work is about.
    #[error(transparent)]
    Outside(#[from] OutsideWorkspace),
}

/// Reads a profile that is written as S4's are (X4-2).
///
/// # Errors
/// [`ProfileError`]; what is longer than a profile may be is not read to its end.
pub fn read(path: &Path) -> Result<Profile, ProfileError> {
    parse(path, &text(path)?)
}

pub(crate) fn parse(path: &Path, text: &str) -> Result<Profile, ProfileError> {
    let name = path.display().to_string();
    let mut profile = Profile::parse(text, &name)?;
    profile.file = Some(ProfileFile { path: name, digest: host::hex(&Sha256::digest(text)) });
    Ok(profile)
}

/// Text of a profile's file.
pub(crate) fn text(path: &Path) -> Result<String, ProfileError> {
    // One byte more than may be: the parser then says that it is too long.
    host::text_of(path, MAX_BYTES as u64 + 1).map_err(|source| ProfileError::Read { path: path.to_owned(), source })
}

/// The profile that a manifest names; a file's path is relative to the manifest's directory.
///
/// # Errors
/// [`ProfileError`], as of [`read`].
pub fn of_manifest(manifest: &Manifest) -> Result<Profile, ProfileError> {
    match &manifest.profile {
        ProfileName::BuiltIn(_) => Ok(manifest.profile.built_in().unwrap_or_default()),
        ProfileName::File(path) => read(&path_of(Path::new(&manifest.file), path)),
    }
}

/// Where a profile is that a manifest names.
pub(crate) fn path_of(manifest: &Path, named: &str) -> PathBuf {
    manifest.parent().unwrap_or(Path::new("")).join(named)
}
