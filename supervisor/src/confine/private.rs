//! A session's private directory.

use std::io;
use std::path::PathBuf;

/// Where it will be: under the system's temporary directory, with a name that cannot be guessed (A11). The launcher makes it,
/// which also removes it: whenever the supervisor is killed, somebody is left to do so.
pub(crate) fn private_directory() -> io::Result<PathBuf> {
    Ok(std::env::temp_dir().join(format!("callgate-{}", crate::host::random()?)))
}
