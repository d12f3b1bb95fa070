//! Whose home a directory is, or holds: where keys lie.
//!
//! A grant of a home directory is a grant of the keys in it, and seldom what was meant: somebody forgot to go to the project
//! first. It is refused as a grant of `/` is, and told by what a directory is, not by its name.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use callgate_policy::effective::EffectiveSet;
use callgate_policy::path::HostPath;
use callgate_worker::mountinfo;
use callgate_worker::way::Id;

use crate::host::{self, identity_of};
use crate::mounts::MountTable;

/// Names directly in a home directory that hold what opens other doors. (A project has an `.npmrc` or `.env` as well,
/// so that these tell nothing.)
const KEYS: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".oci",
    ".kube/config",
    ".docker/config.json",
    ".config/gcloud",
    ".config/gh",
    ".config/op",
    ".password-store",
    ".netrc",
    ".git-credentials",
    ".vault-token",
    ".terraform.d/credentials.tfrc.json",
];

/// Reason why a directory is not granted unless somebody insists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Home {
    /// It is somebody's home directory.
    Itself,
    /// A home directory lies in it.
    Above(PathBuf),
    /// It has this.
    Keys(&'static str),
}

impl std::fmt::Display for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Itself => f.write_str("it is a home directory, with all the keys in it"),
            Self::Above(home) => {
                write!(f, "the home directory {} lies in it, with all the keys in that", home.display())
            }
            Self::Keys(name) => write!(f, "it holds keys ({name})"),
        }
    }
}

/// The home directories of this host's people, as they were looked at once.
#[derive(Debug)]
pub(crate) struct Homes(Vec<HomeDirectory>);

/// A home directory by one of its names.
#[derive(Debug)]
struct HomeDirectory {
    path: PathBuf,
    /// Identities of itself, the first, and of the directories above it.
    chain: Vec<Option<Id>>,
}

impl HomeDirectory {
    fn at(path: PathBuf) -> Self {
        Self { chain: path.ancestors().map(identity_of).collect(), path }
    }
}

impl Homes {
    /// Finds that of whoever runs this, by HOME and by the user database, and those of all who can log in.
    ///
    /// # Errors
    /// The reason why the user database cannot be read. A host that has none has no other users.
    pub(crate) fn find(mounts: &MountTable) -> io::Result<Self> {
        let users = match host::bytes_of(Path::new("/etc/passwd"), LONGEST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            users => users?,
        };
        let own = rustix::process::getuid().as_raw();
        let in_database = users.split(|byte| *byte == b'\n').filter_map(|line| home_in(line, own));
        let all = host::home().into_iter().chain(in_database);
        let found = all.filter_map(|home| std::fs::canonicalize(home).ok()).filter(|home| home != Path::new("/"));
        // Where the mounts cannot be read, a session is refused for its names.
        let mounts = mounts.known().unwrap_or_default();
        Ok(Self::of(found.flat_map(|home| [mountinfo::other_names(mounts, &home), vec![home]].concat())))
    }

    fn of(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(paths.into_iter().map(HomeDirectory::at).collect())
    }

    /// Each of them, by every name that it has.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|home| home.path.as_path())
    }

    /// Finding whether a directory is a home, holds one or is like one.
    pub(crate) fn found_in(&self, directory: &Path) -> Option<Home> {
        // By any name that leads there: a link, a bind mount.
        let identity = identity_of(directory)?;
        match self.0.iter().find(|home| home.chain.contains(&Some(identity))) {
            Some(home) if home.chain.first() == Some(&Some(identity)) => Some(Home::Itself),
            Some(home) => Some(Home::Above(home.path.clone())),
            None => {
                let is_there = |name: &&&str| directory.join(name).symlink_metadata().is_ok();
                KEYS.iter().find(is_there).map(|name| Home::Keys(name))
            }
        }
    }

    /// The first tree that is granted, and is or holds one.
    pub(crate) fn granted(&self, effective: &EffectiveSet) -> Option<(HostPath, Home)> {
        let trees = effective.rights().read().iter().map(|(region, _)| region).filter(|region| !region.is_literal());
        trees
            .map(|region| region.literal_prefix())
            .find_map(|tree| Some((tree.clone(), self.found_in(tree.as_path())?)))
    }
}

/// Most bytes of the user database that are read.
const LONGEST: u64 = 4 * 1024 * 1024;

/// The home directory of a line of passwd(5), if it is a person's: root's, one's own, or that of somebody with a shell.
fn home_in(line: &[u8], own: u32) -> Option<PathBuf> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
    let [_, _, uid, _, _, home, shell] = fields.as_slice() else { return None };
    let uid: u32 = std::str::from_utf8(uid).ok()?.parse().ok()?;
    let logs_in = uid >= 1000 && !(shell.ends_with(b"/nologin") || shell.ends_with(b"/false"));
    (uid == 0 || uid == own || logs_in)
        .then(|| PathBuf::from(OsStr::from_bytes(home)))
        .filter(|home| home.is_absolute())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;

    #[test]
    fn a_home_is_a_person_s() {
        for (line, home) in [
            ("root:x:0:0:root:/root:/bin/bash", Some("/root")),
            ("u:x:1000:1000::/home/u:/bin/zsh", Some("/home/u")),
            ("me:x:7:7::/srv/me:/usr/sbin/nologin", Some("/srv/me")),
            ("www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin", None),
            ("nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin", None),
            ("nixbld1:x:30001:30000::/var/empty:/sbin/nologin", None),
            ("odd:x:1000", None),
            ("u:x:1000:1000::relative:/bin/sh", None),
        ] {
            assert_eq!(home_in(line.as_bytes(), 7), home.map(PathBuf::from), "{line}");
        }
    }

    /// A name that is not UTF-8 hides no home: any user may give themselves one (chfn(1)).
    #[test]
    fn a_line_of_the_user_database_is_bytes() {
        let line = b"m:x:1000:1000:M\xfcller:/home/m\xfc:/bin/sh";
        assert_eq!(home_in(line, 7).unwrap().as_os_str().as_bytes(), b"/home/m\xfc");
    }

    #[test]
    fn a_home_is_known_by_what_it_is() {
        let place = tempfile::tempdir().unwrap();
        let (home, project) = (place.path().join("u"), place.path().join("u/project"));
        std::fs::create_dir_all(&project).unwrap();
        std::os::unix::fs::symlink(&home, place.path().join("link")).unwrap();
        let homes = Homes::of([std::fs::canonicalize(&home).unwrap()]);
        assert_eq!(homes.found_in(&home), Some(Home::Itself));
        assert_eq!(homes.found_in(&place.path().join("link")), Some(Home::Itself));
        assert_eq!(homes.found_in(place.path()), Some(Home::Above(homes.0[0].path.clone())));
        assert_eq!(homes.found_in(&project), None);
        std::fs::create_dir(project.join(".aws")).unwrap();
        assert_eq!(homes.found_in(&project), Some(Home::Keys(".aws")));
    }
}
