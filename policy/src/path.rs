//! Paths as the kernel has them: bytes, not text.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path on the host, which need not be UTF-8.
///
/// In JSON it is a string where it is UTF-8, and `{"b64": "…"}` where it is not, so that no file name is lost or
/// confused with another (S0, C-27).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPath(PathBuf);

impl HostPath {
    /// The path itself.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// The path's bytes, as the kernel sees them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }

    /// True if it is absolute and lexically normal: no empty component, no `.`, no `..`, no NUL. Only such a path may
    /// be compared with a grant.
    #[must_use]
    pub fn is_normal(&self) -> bool {
        let bytes = self.as_bytes();
        let Some(rest) = bytes.strip_prefix(b"/") else { return false };
        !bytes.contains(&0) && (rest.is_empty() || rest.split(|b| *b == b'/').all(|c| !matches!(c, b"" | b"." | b"..")))
    }
}

/// Reason why an argument is not a path that can be checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NormalizeError {
    /// No path at all.
    #[error("the path is empty")]
    Empty,
    /// The kernel would stop reading at the NUL and open another file than the one checked.
    #[error("the path {0} holds a NUL byte")]
    Nul(HostPath),
    /// The directory that a relative path starts from.
    #[error("the directory {0} is not an absolute path without `.` and `..`")]
    Base(HostPath),
    /// More `..` than directories.
    #[error("the path {0} climbs above the root")]
    AboveRoot(HostPath),
}

/// Makes of a tool's argument the path to check and to use: joined to the workspace's root, `.` and `..` resolved by
/// name. The result is normal ([`HostPath::is_normal`]) and is what must be opened, so that the path checked and the
/// path used are one; symbolic links are the worker's business, beneath the kernel's rules.
///
/// # Errors
///
/// [`NormalizeError`] if it is empty, holds a NUL or climbs above `/`.
pub fn normalize(workspace_root: &HostPath, arg: &HostPath) -> Result<HostPath, NormalizeError> {
    if arg.as_bytes().is_empty() {
        return Err(NormalizeError::Empty);
    }
    if arg.as_bytes().contains(&0) {
        return Err(NormalizeError::Nul(arg.clone()));
    }
    if !workspace_root.is_normal() {
        return Err(NormalizeError::Base(workspace_root.clone()));
    }
    let mut components: Vec<&OsStr> = Vec::new();
    let joined = workspace_root.as_path().join(arg);
    for component in joined.components() {
        match component {
            Component::Normal(name) => components.push(name),
            Component::ParentDir => {
                components.pop().ok_or_else(|| NormalizeError::AboveRoot(arg.clone()))?;
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Ok(HostPath(Path::new("/").join(components.iter().collect::<PathBuf>())))
}

/// True if a path from a directory leads through links of the kernel's own (`/proc/self/cwd`, `/dev/fd/3`), and so anywhere, whatever
/// names and `..` follow. `is` says whether a name of the path may be one of these.
pub(crate) fn passes_kernel_links(from: &str, path: &str, is: impl Fn(&str, &str) -> bool) -> bool {
    let from = if path.starts_with('/') { "" } else { from };
    let mut kept: Vec<&str> = Vec::new();
    from.split('/').chain(path.split('/')).any(|name| {
        match name {
            "" | "." => {}
            ".." => drop(kept.pop()),
            name => kept.push(name),
        }
        match kept[..] {
            [first, _, ..] if is(first, "proc") => true,
            [first, second, _, ..] => is(first, "dev") && is(second, "fd"),
            _ => false,
        }
    })
}

impl<P: Into<PathBuf>> From<P> for HostPath {
    fn from(path: P) -> Self {
        Self(path.into())
    }
}

impl AsRef<Path> for HostPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<OsStr> for HostPath {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

impl fmt::Debug for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Shown for people: control characters and bytes that are not UTF-8 are escaped, so that a file name cannot forge
/// lines of a message.
impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct NotUtf8 {
    b64: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PathWire {
    Text(String),
    Bytes(NotUtf8),
}

impl Serialize for HostPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => NotUtf8 { b64: STANDARD.encode(self.as_bytes()) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for HostPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match PathWire::deserialize(deserializer)? {
            PathWire::Text(text) => Ok(Self(text.into())),
            PathWire::Bytes(NotUtf8 { b64 }) => {
                let bytes = STANDARD.decode(b64).map_err(serde::de::Error::custom)?;
                Ok(Self(std::ffi::OsString::from_vec(bytes).into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_resolved_by_name() {
        for (arg, path) in [
            ("a/b", "/w/x/a/b"),
            ("../a", "/w/a"),
            ("/etc/./passwd", "/etc/passwd"),
            ("a//b/", "/w/x/a/b"),
            (".", "/w/x"),
            ("../../", "/"),
            ("/", "/"),
        ] {
            assert_eq!(normalize(&"/w/x".into(), &arg.into()), Ok(path.into()), "{arg}");
        }
    }

    #[test]
    fn an_argument_that_is_no_path_is_refused() {
        assert_eq!(normalize(&"/w".into(), &"".into()), Err(NormalizeError::Empty));
        assert_eq!(normalize(&"/w".into(), &"a\0b".into()), Err(NormalizeError::Nul("a\0b".into())));
        assert_eq!(normalize(&"/w".into(), &"../../x".into()), Err(NormalizeError::AboveRoot("../../x".into())));
        assert_eq!(normalize(&"/..".into(), &"/x".into()), Err(NormalizeError::Base("/..".into())));
    }

    #[test]
    fn a_path_that_is_not_utf8_survives_json() {
        let path = HostPath::from(PathBuf::from(std::ffi::OsString::from_vec(b"/tmp/\xff\n".to_vec())));
        let json = serde_json::to_string(&path).expect("paths serialize");
        assert_eq!(json, r#"{"b64":"L3RtcC//Cg=="}"#);
        assert_eq!(serde_json::from_str::<HostPath>(&json).expect("and come back"), path);
        assert_eq!(path.to_string(), "/tmp/\\xff\\n");
    }
}
