//! Reading a profile's file. What it says is [`callgate_policy::profile`]'s to say.

use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use callgate_policy::manifest::{Manifest, ManifestError};
use callgate_policy::profile::{MAX_BYTES, OutsideWorkspace, Profile, ProfileName};

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Its file cannot be read; one that is not UTF-8 is none.
    #[error("read the profile {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something that is no file, and may never end.
    #[error("the profile {path} is not a regular file")]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// What it says makes no sense.
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
    Ok(Profile::parse(text, &path.display().to_string())?)
}

/// What is in a profile's file.
pub(crate) fn text(path: &Path) -> Result<String, ProfileError> {
    let failed = |source| ProfileError::Read { path: path.to_owned(), source };
    // Without waiting: a FIFO that nobody writes would hold us for ever.
    let file = std::fs::File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(ProfileError::NotAFile { path: path.to_owned() });
    }
    let mut text = String::new();
    // One byte more than may be: the parser then says that it is too long.
    file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// The profile that a manifest names; a file's path is relative to the manifest's directory.
///
/// # Errors
/// [`ProfileError`], as of [`read`].
pub fn of_manifest(manifest: &Manifest) -> Result<Profile, ProfileError> {
    match &manifest.profile {
        ProfileName::BuiltIn(_) => Ok(manifest.profile.built_in().unwrap_or_default()),
        ProfileName::File(path) => read(&path_of(manifest, path)),
    }
}

/// Where a profile is that a manifest names.
pub(crate) fn path_of(manifest: &Manifest, named: &str) -> PathBuf {
    Path::new(&manifest.file).parent().unwrap_or(Path::new("")).join(named)
}
