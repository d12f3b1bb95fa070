//! The values of `[[net.credentials]]` (decision 0033): read when a session is opened, and handed to its egress.
//!
//! They go there in a file that has no name, by a descriptor. The launcher and the broker, of which workers are copies, pass that on or
//! never have it, and do not read it. What is kept here is for the record, in which they are not written down.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callgate_policy::effective::EffectiveSet;
use callgate_policy::manifest::{Credential, CredentialSource, Form};
use callgate_policy::path::HostPath;
use callgate_policy::plan::{Extent, SessionPlan};
use callgate_worker::protocol::SealedCredential;
use callgate_worker::way::FollowedPath;
use rustix::fs::MemfdFlags;
use zeroize::{Zeroize as _, Zeroizing};

use crate::host;
use crate::place::{Changeable, PrivateFile};

/// A shorter value is no secret worth the name, and would be found everywhere.
pub(crate) const SHORTEST: usize = 8;
/// The longest value, bytes.
const VALUE_MAX: usize = 8 * 1024;

/// True if this process has read a value: its memory may hold one from then on, and so may the memory of all that is
/// forked from it.
static WERE_READ: AtomicBool = AtomicBool::new(false);

/// True if this process may hold a value in its memory. Whoever is forked from it would hold that too.
pub(crate) fn were_read() -> bool {
    WERE_READ.load(Ordering::Relaxed)
}

/// True if this process has a variable with a value, which is not kept.
pub(crate) fn is_set(variable: &str) -> bool {
    let value = host::variable(variable).map(Zeroizing::new).filter(|value| !value.is_empty());
    if value.is_some() {
        WERE_READ.store(true, Ordering::Relaxed);
    }
    value.is_some()
}

/// From now on it may.
pub(crate) fn are_read() {
    WERE_READ.store(true, Ordering::Relaxed);
}

/// Reason why a credential cannot be used. None of this has its value.
#[derive(Debug, thiserror::Error)]
#[error("the credential {credential}: {why}")]
pub struct CredentialError {
    /// Which, with where its value is to come from.
    pub credential: String,
    /// Reason.
    pub why: String,
}

/// Those of a session.
#[derive(Default)]
pub(crate) struct Credentials(Vec<Held>);

struct Held {
    credential: Credential,
    value: Zeroizing<String>,
    /// The file that it was in.
    file: Option<PathBuf>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|held| &held.credential)).finish()
    }
}

impl Credentials {
    /// Reads those for which a session with these rights has a use: of the others it needs no value.
    pub(crate) fn read(
        declared: &[Credential],
        effective: &EffectiveSet,
        changeable: &Changeable,
    ) -> Result<Self, CredentialError> {
        let granted = || effective.hosts_of_calls();
        let used = declared.iter().filter(|credential| credential.has_use(granted()));
        used.map(|credential| {
            let held = Held::read(credential, changeable);
            held.map_err(|why| CredentialError { credential: credential.to_string(), why })
        })
        .collect::<Result<_, _>>()
        .map(Self)
    }

    /// Hosts and requests that they are for, without their values.
    pub(crate) fn declared(&self) -> Vec<Credential> {
        self.0.iter().map(|held| held.credential.clone()).collect()
    }

    /// For whoever keeps them out of what is written down.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|held| held.value.as_str())
    }

    /// Refuses those that calls could read by themselves: in a file that they may read, or in their environment.
    pub(crate) fn refuse_reach(&self, effective: &EffectiveSet, plan: &SessionPlan) -> Result<(), CredentialError> {
        let bad = |held: &Held, why: &str| {
            Err(CredentialError { credential: held.credential.to_string(), why: why.to_owned() })
        };
        for held in &self.0 {
            match (&held.credential.from, &held.file) {
                (_, Some(file)) if may_read(effective, plan, file) => {
                    return bad(
                        held,
                        "calls may read that file; keep it where nothing is granted, outside the workspace",
                    );
                }
                (CredentialSource::Variable(name), _) if plan.env.contains_key(name) => {
                    return bad(held, "calls get that variable as well; leave it out of what they get (--env, [env])");
                }
                (CredentialSource::Variable(_) | CredentialSource::File(_), _) => {}
            }
        }
        Ok(())
    }

    /// For egress: a file without a name. `None` if there are none.
    pub(crate) fn sealed(&self) -> io::Result<Option<OwnedFd>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let mut all: Vec<SealedCredential> = self.0.iter().map(Held::sealed).collect();
        let room = all.iter().map(|one| 2 * one.value.len() + 4096).sum();
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        let written = serde_json::to_writer(&mut *bytes, &all);
        all.iter_mut().for_each(|one| one.value.zeroize());
        written?;
        let mut file = File::from(rustix::fs::memfd_create("callgate-credentials", MemfdFlags::CLOEXEC)?);
        file.write_all(&bytes)?;
        file.rewind()?;
        Ok(Some(file.into()))
    }
}

/// True if calls could read a file: it is granted, or a part of what every call of the session can read.
pub(crate) fn may_read(effective: &EffectiveSet, plan: &SessionPlan, file: &Path) -> bool {
    let path = HostPath::from(file.to_owned());
    let granted = effective.allows_read(&path) || effective.rights().allows_write(&path);
    let in_workspace = plan.workspace.iter().any(|root| file.starts_with(root.as_path()));
    // `/tmp` among these is the session's own, and not the host's.
    let surroundings = plan.surroundings.iter().filter(|rule| rule.path.as_path() != Path::new("/tmp"));
    // What the kernel is told may be wider than what was asked for.
    let mut told = surroundings.chain(&plan.grants).filter(|rule| rule.access.reads_files() || rule.access.changes());
    let in_rule = told.any(|rule| match rule.extent {
        Extent::Subtree => file.starts_with(rule.path.as_path()),
        Extent::File => file == rule.path.as_path(),
        Extent::Entry => rule.path.as_path().parent().is_some_and(|directory| file.starts_with(directory)),
    });
    granted || in_workspace || in_rule
}

impl Held {
    fn read(credential: &Credential, changeable: &Changeable) -> Result<Self, String> {
        are_read();
        let (value, file) = match &credential.from {
            CredentialSource::Variable(name) => {
                let value = host::variable(name).ok_or("callgate was started without that variable")?;
                (Zeroizing::new(value), None)
            }
            CredentialSource::File(path) => {
                let (value, file) = in_file(path, changeable)?;
                (value, Some(file))
            }
        };
        if value.is_empty() {
            return Err("its value is empty".to_owned());
        }
        if value.len() < SHORTEST {
            let why =
                "it could be guessed, and could not be kept out of the record, for such a text is found everywhere";
            return Err(format!("its value is shorter than {SHORTEST} bytes: {why}"));
        }
        if value.len() > VALUE_MAX || !value.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
            let most = VALUE_MAX / 1024;
            return Err(format!("its value must be one line of ASCII, of at most {most} KiB, to be a header"));
        }
        Ok(Self { credential: credential.clone(), value, file })
    }

    fn sealed(&self) -> SealedCredential {
        let value = match self.credential.form {
            Form::Plain => self.value.to_string(),
            Form::Password => STANDARD.encode(Zeroizing::new(format!(":{}", *self.value)).as_bytes()),
        };
        SealedCredential { credential: self.credential.clone(), value }
    }
}

/// The one line in a file that nobody but this user reads, and its path without links.
fn in_file(path: &HostPath, changeable: &Changeable) -> Result<(Zeroizing<String>, PathBuf), String> {
    let path = match path.as_path().strip_prefix("~") {
        Ok(below) => host::home().ok_or("there is no home directory")?.join(below),
        Err(_) => path.as_path().to_owned(),
    };
    let way = FollowedPath::follow(&path).map_err(|errno| io::Error::from(errno).to_string())?;
    let file = PrivateFile::at(way, changeable, "read")?;
    let real = file.real_path()?;
    let opened = file.open()?;
    let mut text = Zeroizing::new(String::with_capacity(VALUE_MAX + 4));
    let most = u64::try_from(VALUE_MAX + 3).unwrap_or(u64::MAX);
    opened.take(most).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    Ok((Zeroizing::new(line.to_owned()), real))
}
