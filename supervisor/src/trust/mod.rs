//! Whose manifests count: a project's own has no effect until its owner has said that it may (X1-35, E1).
//!
//! What is trusted is a content, not a place: the directory's real path with the SHA-256 of its manifest, and of its profile
//! if that is in a file. When one of them is changed, by whoever it may be, it is asked about again. Nothing of a manifest is
//! read before its directory is in the list, and nothing of it is parsed before its digest is the one there.
//!
//! The list is the user's (`~/.callgate/trust.json`), never the project's, so that no repository can bring its own. Programs
//! in a session cannot change it even where the home directory is granted: `.callgate` is among the protected names (E4).

mod store;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use callgate_policy::approval::{Approval, Approvals};
use callgate_policy::manifest::{Format, MAX_BYTES, Manifest, ManifestError};
use callgate_policy::path::HostPath;
use callgate_policy::profile::{Profile, ProfileName};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use self::store::Store;
use crate::host;
use crate::profile::{self, ProfileError};

/// What a project's manifest may be called, in the project's own directory and in none above it (X1-35).
pub const MANIFESTS: [&str; 2] = ["callgate.toml", "callgate.json"];

/// How long trust lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// As long as the manifest stays what it is.
    Trusted,
    /// For the next session.
    Once,
}

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Trusted {
    /// The project's directory, without symbolic links.
    pub canonical_path: HostPath,
    /// How long.
    pub decision: Decision,
    /// The SHA-256 of each file that was trusted, in hexadecimal: the manifest by its name, its profile as the manifest names it.
    pub files: BTreeMap<String, String>,
    /// When, ISO 8601.
    pub granted_at: String,
    /// What people have approved of for the project (S1-18, X1-5). It goes with the trust.
    #[serde(default, skip_serializing_if = "Approvals::is_empty")]
    pub approvals: Approvals,
}

/// Why a manifest that is there has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untrusted {
    /// Nobody has said that it may.
    Unknown,
    /// It is not what was trusted.
    Changed,
}

/// What a directory has.
#[derive(Debug)]
pub enum Found {
    /// No manifest.
    Nothing,
    /// One that has no effect.
    Untrusted {
        /// Its path.
        file: PathBuf,
        /// Why.
        why: Untrusted,
    },
    /// One that counts.
    Trusted(Box<Project>),
}

/// A project whose manifest is trusted.
#[derive(Debug, Clone)]
pub struct Project {
    /// What its manifest says.
    pub manifest: Manifest,
    /// What its profile says, if that is in a file.
    pub profile: Option<Profile>,
    root: HostPath,
    files: BTreeMap<String, String>,
    list: TrustList,
    approvals: Approvals,
}

/// Why trust could not be looked up, given or taken back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// Whose list it is, is not known.
    #[error(
        "find your home directory, which holds the list of trusted projects: neither HOME nor the user database names it"
    )]
    NoHome,
    /// A directory that cannot be used as a project.
    #[error("use {path} as a project")]
    Project {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nothing to trust.
    #[error("there is nothing to trust in {0}: it has neither callgate.toml nor callgate.json")]
    NoManifest(PathBuf),
    /// Which one would count?
    #[error("{0} has both callgate.toml and callgate.json; keep one")]
    TwoManifests(PathBuf),
    /// A manifest that cannot be read.
    #[error("read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A manifest with a mistake.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A profile that cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The list cannot be read or written.
    #[error("use the list of trusted projects, {path}")]
    List {
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others could have written it.
    #[error("{path} is not yours alone ({what}), so that nothing in it can be believed")]
    NotYours {
        /// Which file or directory.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The list is not one.
    #[error("{path} is not a list of trusted projects")]
    Damaged {
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

impl TrustError {
    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::NotYours { path, .. } => {
                Some(format!("look at what it says, then: chown $(id -u) {0}; chmod go-w {0}", path.display()))
            }
            Self::Damaged { path, .. } => {
                Some(format!("mend it, or remove it and trust your projects again: rm {}", path.display()))
            }
            Self::NoHome
            | Self::Project { .. }
            | Self::NoManifest(_)
            | Self::TwoManifests(_)
            | Self::Read { .. }
            | Self::Manifest(_)
            | Self::Profile(_)
            | Self::List { .. } => None,
        }
    }
}

/// The projects that a user trusts.
#[derive(Debug, Clone)]
pub struct TrustList {
    store: Store,
}

impl TrustList {
    /// The list of the user who runs this: `~/.callgate/trust.json`. It need not be there.
    ///
    /// # Errors
    /// [`TrustError::NoHome`].
    pub fn of_user() -> Result<Self, TrustError> {
        Ok(Self::at(host::home().ok_or(TrustError::NoHome)?.join(".callgate")))
    }

    /// A list of the host's own, in this directory. No session must be able to write there.
    #[must_use]
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { store: Store::new(directory.into()) }
    }

    /// Looks for a manifest in a directory, and at whether it counts. Trust for once is used up by it.
    ///
    /// # Errors
    /// [`TrustError`], if the list cannot be used or there are two manifests. Then there is no trust either.
    pub fn find(&self, directory: &Path) -> Result<Found, TrustError> {
        let root = real(directory)?;
        let Some(file) = manifest_of(&root)? else { return Ok(Found::Nothing) };
        let untrusted = |why| Ok(Found::Untrusted { file: file.clone(), why });
        let Some(trusted) = self.store.read()?.into_iter().find(|trusted| trusted.canonical_path == root) else {
            return untrusted(Untrusted::Unknown);
        };
        let found = match Contents::read(&file, |name, digest| trusted.files.get(name) == Some(digest)) {
            Ok(Some(found)) => found,
            // Whatever cannot be read is not what was trusted.
            Ok(None) | Err(TrustError::Read { .. } | TrustError::Profile(ProfileError::Read { .. })) => {
                return untrusted(Untrusted::Changed);
            }
            Err(error) => return Err(error),
        };
        let Contents { files, manifest, profile } = found;
        if trusted.decision == Decision::Once && !self.use_up(&trusted)? {
            return untrusted(Untrusted::Unknown);
        }
        tracing::info!(project = %root, ?files, granted_at = trusted.granted_at, "the project's manifest is trusted");
        Ok(Found::Trusted(Box::new(Project {
            manifest,
            profile,
            root,
            files,
            approvals: if trusted.decision == Decision::Trusted { trusted.approvals } else { Approvals::default() },
            list: self.clone(),
        })))
    }

    /// Trusts a directory's manifest, as it is now. What people approved of for what it was before is forgotten.
    ///
    /// # Errors
    /// [`TrustError`]; then nothing is trusted that was not before. A manifest with a mistake cannot be trusted.
    pub fn trust(&self, directory: &Path, decision: Decision) -> Result<(Trusted, Manifest), TrustError> {
        let root = real(directory)?;
        let file = manifest_of(&root)?.ok_or_else(|| TrustError::NoManifest(root.as_path().to_owned()))?;
        let read = Contents::read(&file, |_, _| true)?;
        let Contents { files, manifest, .. } = read.ok_or_else(|| TrustError::NoManifest(root.as_path().to_owned()))?;
        let mut trusted =
            Trusted { canonical_path: root, decision, files, granted_at: now(), approvals: Approvals::default() };
        self.store.change(|all| {
            let before = all.iter().position(|before| before.canonical_path == trusted.canonical_path);
            if let Some(before) = before.map(|at| all.remove(at))
                && before.files == trusted.files
            {
                trusted.approvals = before.approvals;
            }
            all.push(trusted.clone());
        })?;
        tracing::info!(project = %trusted.canonical_path, ?decision, "trust given");
        Ok((trusted, manifest))
    }

    /// Takes trust back, with all that was approved of for the project; whether there was any. The directory need not be there
    /// any more.
    ///
    /// # Errors
    /// [`TrustError`], if the list cannot be changed.
    pub fn revoke(&self, directory: &Path) -> Result<bool, TrustError> {
        let root = match real(directory) {
            Ok(root) => root,
            Err(_gone) => std::path::absolute(directory)
                .map_err(|source| TrustError::Project { path: directory.to_owned(), source })?
                .into(),
        };
        let mut was_there = false;
        self.store.change(|all| {
            let before = all.len();
            all.retain(|trusted| trusted.canonical_path != root);
            was_there = all.len() < before;
        })?;
        tracing::info!(project = %root, was_there, "trust taken back");
        Ok(was_there)
    }

    /// All that is trusted.
    ///
    /// # Errors
    /// [`TrustError`], if the list cannot be read.
    pub fn all(&self) -> Result<Vec<Trusted>, TrustError> {
        self.store.read()
    }

    /// Takes trust for once, if nobody else has by now.
    fn use_up(&self, once: &Trusted) -> Result<bool, TrustError> {
        let mut taken = false;
        self.store.change(|all| {
            let before = all.len();
            all.retain(|trusted| trusted != once);
            taken = all.len() < before;
        })?;
        Ok(taken)
    }
}

impl Project {
    /// What was approved of for the project before.
    pub(crate) fn approvals(&self) -> &Approvals {
        &self.approvals
    }

    /// Keeps an approval for the sessions to come; only as long as the manifest is trusted that it was given under (S1-18).
    ///
    /// # Errors
    /// [`TrustError`], if the list cannot be changed.
    pub(crate) fn keep(&self, approval: &Approval) -> Result<(), TrustError> {
        self.list.store.change(|all| {
            let mine = |trusted: &&mut Trusted| {
                trusted.canonical_path == self.root
                    && trusted.decision == Decision::Trusted
                    && trusted.files == self.files
            };
            if let Some(trusted) = all.iter_mut().find(mine) {
                trusted.approvals.keep(approval.clone());
            }
        })
    }
}

/// What a project's files say, each read once.
struct Contents {
    /// The digest of each.
    files: BTreeMap<String, String>,
    manifest: Manifest,
    profile: Option<Profile>,
}

impl Contents {
    /// Reads them; `None` if one is not believed, by its name and digest, of which then nothing is parsed.
    fn read(file: &Path, is_believed: impl Fn(&str, &String) -> bool) -> Result<Option<Self>, TrustError> {
        let mut files = BTreeMap::new();
        let mut believed = |name: &str, text: &str| {
            let digest = digest(text);
            let believed = is_believed(name, &digest);
            files.insert(name.to_owned(), digest);
            believed
        };
        let text = read(file).map_err(|source| TrustError::Read { path: file.to_owned(), source })?;
        if !believed(&name(file), &text) {
            return Ok(None);
        }
        let manifest = parse(file, text)?;
        let profile = match &manifest.profile {
            ProfileName::BuiltIn(_) => None,
            ProfileName::File(named) => {
                let path = profile::path_of(file, named);
                let text = profile::text(&path)?;
                if !believed(named, &text) {
                    return Ok(None);
                }
                Some(profile::parse(&path, &text)?)
            }
        };
        Ok(Some(Self { files, manifest, profile }))
    }
}

/// The time, ISO 8601, in UTC.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().to_string()
}

fn real(directory: &Path) -> Result<HostPath, TrustError> {
    let failed = |source| TrustError::Project { path: directory.to_owned(), source };
    let real = std::fs::canonicalize(directory).map_err(failed)?;
    if real.is_dir() { Ok(real.into()) } else { Err(failed(io::ErrorKind::NotADirectory.into())) }
}

/// Which manifest a directory has, by the names in it alone.
fn manifest_of(root: &HostPath) -> Result<Option<PathBuf>, TrustError> {
    let there = MANIFESTS.map(|name| root.as_path().join(name));
    let mut there = there.into_iter().filter(|file| file.symlink_metadata().is_ok());
    match (there.next(), there.next()) {
        (Some(_), Some(_)) => Err(TrustError::TwoManifests(root.as_path().to_owned())),
        (one, _) => Ok(one),
    }
}

/// A manifest's text. One byte more than may be: the parser then says that it is too long.
pub(crate) fn read(file: &Path) -> io::Result<String> {
    host::text_of(file, MAX_BYTES as u64 + 1)
}

pub(crate) fn parse(file: &Path, text: String) -> Result<Manifest, ManifestError> {
    let format = match file.extension() {
        Some(extension) if extension == "json" => Format::Json,
        _ => Format::Toml,
    };
    Manifest::parse(&text, format, &file.display().to_string())
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn digest(content: &str) -> String {
    host::hex(&Sha256::digest(content))
}

#[cfg(test)]
mod tests;
