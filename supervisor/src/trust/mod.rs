//! Whose manifests count: a project's own has no effect until its owner has said that it may (X1-35, E1).
//!
//! What is trusted is a content, not a place: the directory's real path with the SHA-256 of its manifest, and of its profile
//! if that is in a file. When one of them is changed, by whoever it may be, nothing is opened before somebody has looked again:
//! what is in force without a manifest may be more than it granted. Nothing of a manifest is read before its directory is in the
//! list, and nothing of it is parsed before its digest is the one there.
//!
//! The list is the user's (`~/.callgate/trust.json`), never the project's, so that no repository can bring its own. Programs
//! in a session cannot change it even where the home directory is granted: `.callgate` is among the protected names (E4).

mod store;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_policy::approval::{Approval, Approvals};
use callgate_policy::manifest::{Format, MAX_BYTES, Manifest, ManifestError};
use callgate_policy::path::HostPath;
use callgate_policy::profile::{Profile, ProfileName};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use self::store::Store;
use crate::host;
use crate::place::Place;
use crate::profile::{self, ProfileError};
use crate::registry::hosted::skill;
use crate::registry::{Layer, LeftOut, Tool};

/// Names of a project's manifest, in the project's own directory and in none above it (X1-35).
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
#[non_exhaustive]
pub struct Trusted {
    /// The project's directory, without symbolic links.
    pub canonical_path: HostPath,
    /// How long.
    pub decision: Decision,
    /// The SHA-256 of each file that was trusted, in hexadecimal: the manifest by its name, its profile as the manifest names it.
    pub files: BTreeMap<String, String>,
    /// The SHA-256 of each skill's file, in hexadecimal, by its path in the directory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skills: BTreeMap<String, String>,
    /// When, ISO 8601.
    pub granted_at: String,
    /// Lines that whoever trusted it was shown, to compare with what is shown next time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<String>,
    /// Approvals by people for the project (S1-18, X1-5). It goes with the trust.
    #[serde(default, skip_serializing_if = "Approvals::is_empty")]
    pub approvals: Approvals,
}

/// Contents of a directory.
#[derive(Debug)]
pub enum Found {
    /// No manifest.
    Nothing,
    /// One that has no effect: nobody has said that it may.
    Untrusted {
        /// Its path.
        file: PathBuf,
    },
    /// One that counts.
    Trusted(Box<Project>),
}

/// A project whose manifest is trusted.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Project {
    /// Content of its manifest.
    pub manifest: Manifest,
    /// Content of its profile, if that is in a file.
    pub profile: Option<Profile>,
    root: HostPath,
    /// The directory, held: what stands at its path later is it or another.
    directory: Arc<OwnedFd>,
    files: BTreeMap<String, String>,
    skills: BTreeMap<String, String>,
    list: TrustList,
    decision: Decision,
    approvals: Approvals,
    /// The tools that it declares.
    layer: Layer,
}

/// Reason why trust could not be looked up, given or taken back.
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
        /// Cause.
        source: io::Error,
    },
    /// Nothing to trust.
    #[error(
        "there is nothing to trust in {0}: it has neither callgate.toml nor callgate.json; a project with tools needs one of them, \
             at least with an `id`"
    )]
    NoManifest(PathBuf),
    /// Which one would count?
    #[error("{0} has both callgate.toml and callgate.json; keep one")]
    TwoManifests(PathBuf),
    /// A thing that was trusted is not there any more as it was.
    #[error("{file} {what} since it was trusted ({since}), and without it more may be granted than it did")]
    Changed {
        /// The project's directory.
        root: PathBuf,
        /// The manifest, or its profile.
        file: PathBuf,
        /// Change to it.
        what: &'static str,
        /// When it was trusted.
        since: String,
    },
    /// A manifest that cannot be read.
    #[error("read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Cause.
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
        /// Cause.
        source: io::Error,
    },
    /// Others could have written it.
    #[error("{path} is not yours alone ({what}), so that nothing in it can be believed")]
    NotYours {
        /// Which file or directory.
        path: PathBuf,
        /// Mistake.
        what: &'static str,
    },
    /// The list is not one.
    #[error("{path} is not a list of trusted projects")]
    Damaged {
        /// Where it is.
        path: PathBuf,
        /// Cause.
        source: serde_json::Error,
    },
}

impl TrustError {
    /// Advice about it.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::NotYours { path, .. } => {
                Some(format!("look at what it says, then: chown $(id -u) {0}; chmod go-w {0}", path.display()))
            }
            Self::Damaged { path, .. } => {
                Some(format!("mend it, or remove it and trust your projects again: rm {}", path.display()))
            }
            Self::Changed { root, .. } => {
                let dir = root.to_str().and_then(|dir| shlex::try_quote(dir).ok());
                let dir = dir.as_deref().unwrap_or("DIR");
                Some(format!(
                    "look at it, then: callgate trust {dir}  (for the defaults: callgate trust --revoke {dir})"
                ))
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
    /// [`TrustError`], if the list cannot be used, if there are two manifests, or if what was trusted has changed or gone.
    /// Then there is no trust either.
    pub fn find(&self, directory: &Path) -> Result<Found, TrustError> {
        self.found(directory, true)
    }

    /// Looks at it for whoever only looks: trust for once stays.
    ///
    /// # Errors
    /// The same.
    pub fn look(&self, directory: &Path) -> Result<Found, TrustError> {
        self.found(directory, false)
    }

    fn found(&self, directory: &Path, uses_up: bool) -> Result<Found, TrustError> {
        let root = real(directory)?;
        let held = hold(&root)?;
        let file = manifest_of(&root)?;
        let trusted = self.store.read()?.into_iter().find(|trusted| trusted.canonical_path == root);
        let (file, trusted) = match (file, trusted) {
            (None, None) => return Ok(Found::Nothing),
            (Some(file), None) => return Ok(Found::Untrusted { file }),
            (Some(file), Some(trusted)) => (file, trusted),
            (None, Some(trusted)) => {
                let was = MANIFESTS.into_iter().find(|name| trusted.files.contains_key(*name)).unwrap_or(MANIFESTS[0]);
                return Err(trusted.changed(root.as_path().join(was), "has gone"));
            }
        };
        let Contents { files, manifest, profile, layer, .. } = Contents::trusted((&file, held.as_fd()), &trusted)?;
        if uses_up && trusted.decision == Decision::Once && !self.use_up(&trusted)? {
            return Ok(Found::Untrusted { file });
        }
        tracing::info!(project = %root, ?files, granted_at = trusted.granted_at, "the project's manifest is trusted");
        Ok(Found::Trusted(Box::new(Project {
            manifest,
            profile,
            root,
            directory: Arc::new(held),
            files,
            skills: trusted.skills,
            decision: trusted.decision,
            approvals: if trusted.decision == Decision::Trusted { trusted.approvals } else { Approvals::default() },
            list: self.clone(),
            layer,
        })))
    }

    /// Trusts a directory's manifest, as it is now. What people approved of for what it was before is forgotten.
    ///
    /// # Errors
    /// [`TrustError`]; then nothing is trusted that was not before. A manifest with a mistake cannot be trusted.
    pub fn trust(&self, directory: &Path, decision: Decision) -> Result<(Trusted, Manifest), TrustError> {
        self.trust_all(directory, decision).map(|(trusted, manifest, _)| (trusted, manifest))
    }

    /// Trusts it, with the tools that are trusted with it: each with its command, and what of them cannot be used.
    ///
    /// # Errors
    /// The same.
    pub fn trust_all(
        &self,
        directory: &Path,
        decision: Decision,
    ) -> Result<(Trusted, Manifest, TrustedTools), TrustError> {
        let proposal = self.propose(directory, decision)?;
        let tools = proposal.tools();
        let manifest = proposal.project.manifest.clone();
        Ok((proposal.trust(Vec::new())?, manifest, tools))
    }

    /// Reads what there is to trust, for whoever is asked about it. Nothing is trusted by that.
    ///
    /// # Errors
    /// The same.
    pub fn propose(&self, directory: &Path, decision: Decision) -> Result<Proposal, TrustError> {
        let root = real(directory)?;
        let held = hold(&root)?;
        let file = manifest_of(&root)?.ok_or_else(|| TrustError::NoManifest(root.as_path().to_owned()))?;
        let Contents { files, text, manifest, profile, layer } = Contents::read((&file, held.as_fd()), |_, _| true)?
            .map_err(|_name| TrustError::NoManifest(root.as_path().to_owned()))?;
        let skills = skill::digests((held.as_fd(), root.as_path()));
        let before = self.store.read()?.into_iter().find(|before| before.canonical_path == root);
        let (approvals, list) = (Approvals::default(), self.clone());
        let directory = Arc::new(held);
        let project = Project { manifest, profile, root, directory, files, skills, list, decision, approvals, layer };
        Ok(Proposal { project, text, before })
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

impl Trusted {
    fn changed(&self, file: PathBuf, what: &'static str) -> TrustError {
        let root = self.canonical_path.as_path().to_owned();
        TrustError::Changed { root, file, what, since: self.granted_at.clone() }
    }
}

impl Project {
    /// The project's directory, without symbolic links.
    #[must_use]
    pub fn root(&self) -> &HostPath {
        &self.root
    }

    /// Files of its skills, by their paths in the directory.
    pub fn skill_files(&self) -> impl ExactSizeIterator<Item = &str> {
        self.skills.keys().map(String::as_str)
    }

    /// The digests of its skills, as they were trusted.
    pub(crate) fn skills(&self) -> &BTreeMap<String, String> {
        &self.skills
    }

    /// True if this is the directory in which the trusted manifest was found: by what it is, and not by its path alone.
    pub(crate) fn is_at(&self, place: &Place) -> bool {
        let held = rustix::fs::fstat(&self.directory).map(|stat| (stat.st_dev, stat.st_ino));
        *place.path() == self.root && held.ok() == Some(place.id())
    }

    /// The tools that it declares.
    pub(crate) fn layer(&self) -> &Layer {
        &self.layer
    }

    /// Finds the project as it is now.
    pub(crate) fn find_again(&self) -> Result<Found, TrustError> {
        self.list.find(self.root.as_path())
    }

    /// This project with what has been approved of for it by now.
    ///
    /// # Errors
    /// It is no longer trusted as it was; with the error of its files, if that is why.
    pub(crate) fn again(&self) -> Result<Self, Option<TrustError>> {
        match self.find_again() {
            Ok(Found::Trusted(found)) if found.files == self.files => Ok(*found),
            Ok(Found::Trusted(_) | Found::Nothing | Found::Untrusted { .. }) => Err(None),
            Err(error) => Err(Some(error)),
        }
    }

    /// True if it was trusted for one session.
    #[must_use]
    pub fn is_for_once(&self) -> bool {
        self.decision == Decision::Once
    }

    /// True if nothing has been approved of for the project, or forgotten, since it was found as this one.
    #[must_use]
    pub fn has_same_approvals(&self, earlier: &Self) -> bool {
        self.approvals == earlier.approvals
    }

    /// Earlier approvals for the project.
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

/// A project that somebody is asked to trust, as it was read.
#[derive(Debug, Clone)]
pub struct Proposal {
    project: Project,
    text: String,
    before: Option<Trusted>,
}

impl Proposal {
    /// The project as a session of it would find it. Nobody trusts it yet.
    #[must_use]
    pub fn project(&self) -> &Project {
        &self.project
    }

    /// The trust that there is already, for what the project was then.
    #[must_use]
    pub fn before(&self) -> Option<&Trusted> {
        self.before.as_ref()
    }

    /// Line of the manifest on which a text stands in quotes, from 1: the first.
    #[must_use]
    pub fn line_with(&self, text: &str) -> Option<usize> {
        let is_there = |line: &str| ['"', '\''].iter().any(|quote| line.contains(&format!("{quote}{text}{quote}")));
        self.text.lines().position(is_there).map(|line| line + 1)
    }

    /// The tools that would be trusted with it, each with its command, and what of them cannot be used.
    #[must_use]
    pub fn tools(&self) -> TrustedTools {
        let layer = self.project.layer();
        TrustedTools { tools: layer.tools().cloned().collect(), left_out: layer.left_out() }
    }

    /// Trusts it as it was read, whatever its files say by now. `shown` is what whoever trusts it was shown: lines that are too long
    /// in all to be kept are left out.
    ///
    /// # Errors
    /// [`TrustError`]; then nothing is trusted that was not before.
    pub fn trust(self, shown: Vec<String>) -> Result<Trusted, TrustError> {
        let Project { root, files, skills, decision, list, .. } = self.project;
        let length: usize = shown.iter().map(String::len).sum();
        let shown = if length > SHOWN_MAX { Vec::new() } else { shown };
        let (granted_at, approvals) = (now(), Approvals::default());
        let mut trusted = Trusted { canonical_path: root, decision, files, skills, granted_at, shown, approvals };
        list.store.change(|all| {
            let before = all.iter().position(|before| before.canonical_path == trusted.canonical_path);
            if let Some(before) = before.map(|at| all.remove(at))
                && before.files == trusted.files
            {
                trusted.approvals = before.approvals;
            }
            all.push(trusted.clone());
        })?;
        tracing::info!(project = %trusted.canonical_path, ?decision, "trust given");
        Ok(trusted)
    }
}

/// Most bytes of what somebody was shown that are kept with their trust.
const SHOWN_MAX: usize = 128 * 1024;

/// The tools that a project declares, for whoever trusts it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TrustedTools {
    /// Those that can be used.
    pub tools: Vec<Tool>,
    /// Tools that cannot be used, and why.
    pub left_out: Vec<LeftOut>,
}

/// Content of a project's files, each read once.
struct Contents {
    /// The digest of each.
    files: BTreeMap<String, String>,
    /// The manifest, as it is written.
    text: String,
    manifest: Manifest,
    profile: Option<Profile>,
    layer: Layer,
}

impl Contents {
    /// Reads them, if they are what was trusted.
    fn trusted((file, held): (&Path, BorrowedFd<'_>), trusted: &Trusted) -> Result<Self, TrustError> {
        let is_believed = |name: &str, digest: &str| trusted.files.get(name).is_some_and(|known| known == digest);
        match Self::read((file, held), is_believed) {
            Ok(Ok(found)) => match trusted.files.keys().find(|name| !found.files.contains_key(*name)) {
                None => Ok(found),
                Some(gone) => {
                    let gone = file.parent().unwrap_or(Path::new("")).join(gone);
                    Err(trusted.changed(gone, "has gone, or cannot be read,"))
                }
            },
            Ok(Err(other)) if other != file && !is_known(&other, file, trusted) => {
                Err(trusted.changed(other, "is new"))
            }
            Ok(Err(other)) => Err(trusted.changed(other, "has changed")),
            Err(TrustError::Read { path, .. } | TrustError::Profile(ProfileError::Read { path, .. })) => {
                Err(trusted.changed(path, "has changed, or cannot be read,"))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads them; the path of one that is not believed, by its name and digest, of which then nothing is parsed.
    fn read(
        (file, held): (&Path, BorrowedFd<'_>),
        is_believed: impl Fn(&str, &str) -> bool,
    ) -> Result<Result<Self, PathBuf>, TrustError> {
        let mut files = BTreeMap::new();
        let mut believed = |name: &str, text: &str| {
            let digest = digest(text);
            let believed = is_believed(name, &digest);
            files.insert(name.to_owned(), digest);
            believed
        };
        let text = read(file).map_err(|source| TrustError::Read { path: file.to_owned(), source })?;
        if !believed(&name(file), &text) {
            return Ok(Err(file.to_owned()));
        }
        let manifest = parse(file, &text)?;
        let profile = match &manifest.profile {
            ProfileName::BuiltIn(_) => None,
            ProfileName::File(named) => {
                let path = profile::path_of(file, named);
                let text = profile::text(&path)?;
                if !believed(named, &text) {
                    return Ok(Err(path));
                }
                Some(profile::parse(&path, &text)?)
            }
        };
        let root = file.parent().unwrap_or(Path::new(""));
        let mut is_believed = |name: &str, digest: &str| {
            files.insert(name.to_owned(), digest.to_owned());
            is_believed(name, digest)
        };
        match Layer::of_project((held, root), &mut is_believed) {
            Ok(layer) => Ok(Ok(Self { files, text, manifest, profile, layer })),
            Err(name) => Ok(Err(root.join(name))),
        }
    }
}

/// True if a file of a project was there when that was trusted.
fn is_known(file: &Path, manifest: &Path, trusted: &Trusted) -> bool {
    let below = manifest.parent().and_then(|root| file.strip_prefix(root).ok()).unwrap_or(file);
    trusted
        .files
        .keys()
        .any(|known| Path::new(known) == below || manifest.parent().is_some_and(|root| root.join(known) == file))
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

/// Opens a project's directory, to know it again.
fn hold(root: &HostPath) -> Result<OwnedFd, TrustError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(root.as_path(), flags, Mode::empty())
        .map_err(|e| TrustError::Project { path: root.as_path().to_owned(), source: e.into() })
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

/// Reads a manifest that a person has named, which is to say that they trust it.
///
/// # Errors
/// [`TrustError::Read`] and [`TrustError::Manifest`]; what is longer than a manifest may be is not read to its end.
pub fn read_manifest(file: &Path) -> Result<Manifest, TrustError> {
    let text = read(file).map_err(|source| TrustError::Read { path: file.to_owned(), source })?;
    Ok(parse(file, &text)?)
}

/// A manifest's text. One byte more than may be: the parser then says that it is too long.
fn read(file: &Path) -> io::Result<String> {
    host::text_of(file, MAX_BYTES as u64 + 1)
}

fn parse(file: &Path, text: &str) -> Result<Manifest, ManifestError> {
    let format = match file.extension() {
        Some(extension) if extension == "json" => Format::Json,
        _ => Format::Toml,
    };
    Manifest::parse(text, format, &file.display().to_string())
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn digest(content: &str) -> String {
    host::hex(&Sha256::digest(content))
}

#[cfg(test)]
mod tests;
