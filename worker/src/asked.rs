//! Places that were asked for to write in, whatever bounds left of it: who asks for the same and is bounded less may
//! have changed it, in an earlier session or beside this one. By one rule for all that must not be a call's work:
//! links, programs, and where those lie.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use callgate_policy::plan::AskedFor;

use crate::way::{FollowedPath, Id, Link, SYSTEM, is_the_systems, would_lead_to};

/// Places that were asked for.
#[derive(Debug, Default)]
pub struct AskedPlaces {
    places: Vec<AskedPlace>,
    /// As whom calls write.
    user: u32,
}

#[derive(Debug)]
struct AskedPlace {
    is_tree: bool,
    /// Identity of a tree.
    id: Option<Id>,
    /// As it is spelt, and without links.
    names: Vec<PathBuf>,
}

impl AskedPlace {
    fn of(asked: &AskedFor) -> Self {
        let path = asked.path.as_path();
        let names = |real: Option<PathBuf>| std::iter::once(path.to_owned()).chain(real).collect();
        if asked.is_tree {
            let id = FollowedPath::follow(path).ok().map(|way| way.id());
            return Self { is_tree: true, id, names: names(would_lead_to(path)) };
        }
        // A call puts what it likes at the name itself.
        let directory = path.parent().and_then(would_lead_to);
        let real = directory.zip(path.file_name()).map(|(directory, name)| directory.join(name));
        Self { is_tree: false, id: None, names: names(real) }
    }

    fn holds(&self, path: &Path) -> bool {
        self.names.iter().any(|name| if self.is_tree { path.starts_with(name) } else { path == name })
    }

    /// True if names can be made in a directory.
    fn fills(&self, directory: &Path) -> bool {
        if self.is_tree {
            self.holds(directory)
        } else {
            self.names.iter().any(|name| name.parent() == Some(directory))
        }
    }

    fn counts_at(&self, (path, directory): (&Path, &Path), user: u32) -> bool {
        counts_at((path, directory), &self.names, user)
    }
}

impl AskedPlaces {
    /// `user` is who the session's calls run as.
    #[must_use]
    pub fn of<'a>(places: impl IntoIterator<Item = &'a AskedFor>, user: u32) -> Self {
        Self { places: places.into_iter().map(AskedPlace::of).collect(), user }
    }

    /// True if a call could have changed what has this path, or have put another thing there.
    #[must_use]
    pub fn holds(&self, path: &Path) -> bool {
        let directory = path.parent().unwrap_or(path);
        self.places.iter().any(|place| place.holds(path) && place.counts_at((path, directory), self.user))
    }

    /// True if a call could have made something in this directory.
    #[must_use]
    pub fn fills(&self, directory: &Path) -> bool {
        self.places.iter().any(|place| place.fills(directory) && place.counts_at((directory, directory), self.user))
    }

    /// True if a call could have made a link. `names` are those of the directory that it lies in, its own first; all of
    /// them count where they are not known.
    #[must_use]
    pub fn holds_link(&self, link: &Link, names: Option<&[PathBuf]>) -> bool {
        let directory = link.path.parent().unwrap_or(Path::new("/"));
        let name = link.path.file_name().unwrap_or_default();
        self.places.iter().any(|place| {
            let by_id = || place.id.is_some_and(|id| link.may_lie_in(&[id]));
            // The way to a tree is not in it.
            let holds = |directory: &PathBuf| {
                if place.is_tree { place.holds(directory) } else { place.holds(&directory.join(name)) }
            };
            let by_name = || names.is_none_or(|all| all.iter().any(holds));
            place.counts_at((directory, directory), self.user) && (by_id() || by_name())
        })
    }

    /// True if somebody asked to work where the system's own files are.
    #[must_use]
    pub fn is_among_the_systems(&self) -> bool {
        self.places.iter().flat_map(|place| &place.names).any(|name| is_the_systems(name))
    }
}

/// True if it matters that a place which was asked for by these names holds a path in a directory. Who could change the
/// directories that the system is made of needs no session, unless he asked for that; what lies deeper may have been
/// granted alone, to a user who could write there.
#[must_use]
pub fn counts_at((path, directory): (&Path, &Path), names: &[PathBuf], user: u32) -> bool {
    let top = || SYSTEM.iter().chain(&[ALTERNATIVES]).map(Path::new).find(|top| path.starts_with(top));
    names.iter().any(|name| is_the_systems(name))
        || (!is_a_system_directory(directory) && top().is_none_or(|top| could_write(path, top, user)))
}

/// Where Debian says which of several programs a name means: root's links.
const ALTERNATIVES: &str = "/etc/alternatives";

/// Where the system's own programs and libraries lie, itself: one of [`SYSTEM`], what holds those, or where a multiarch system has its
/// libraries (`/usr/lib/x86_64-linux-gnu`).
fn is_a_system_directory(directory: &Path) -> bool {
    let is = |path: &Path| ["/", "/usr"].iter().chain(SYSTEM).any(|system| path == Path::new(system));
    let is_triplet = |name: &str| name.contains("-linux-");
    let name = directory.file_name().and_then(|name| name.to_str());
    let above = directory.parent().unwrap_or(directory);
    is(directory) || (name.is_some_and(is_triplet) && above.ends_with("lib") && is(above))
}

/// True if a user could have changed what has a path below a directory of the system's, or have put another thing
/// there. Root could anywhere.
#[expect(clippy::disallowed_methods, reason = "only says whether it counts; what is run or followed is held")]
fn could_write(path: &Path, top: &Path, user: u32) -> bool {
    // A link has no rights of its own.
    let is_open = |is: &std::fs::Metadata| !is.file_type().is_symlink() && is.mode() & 0o022 != 0;
    let lets = |at: &Path| match at.symlink_metadata() {
        Ok(is) => is.uid() == user || is_open(&is),
        // What is not there is made where it lies.
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    };
    user == 0 || path.ancestors().take_while(|above| above.starts_with(top)).any(lets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C12: who asks for everything has not written what the system is made of, nor what only root may write there; all else he may
    /// have.
    #[test]
    fn c12_what_the_system_is_made_of_was_written_by_no_session() {
        let of = |path: &str, is_tree, user| AskedPlaces::of(&[AskedFor { path: path.into(), is_tree }], user);
        let (everything, of_root) = (of("/", true, 4242), of("/", true, 0));
        for (path, by_user, by_root) in [
            ("/usr/bin/env", false, false),
            ("/usr/lib/x86_64-linux-gnu/x", false, false),
            ("/etc/alternatives/awk", false, true),
            ("/usr/share/doc/x", false, true),
            ("/usr/local/bin/x", true, true),
            ("/srv/x/y", true, true),
        ] {
            let held = [&everything, &of_root].map(|asked| asked.holds(Path::new(path)));
            assert_eq!(held, [by_user, by_root], "{path}");
        }
        assert!(of("/usr/bin", true, 0).holds(Path::new("/usr/bin/env")), "asked for by itself");
        // A single name is replaced in its directory, and is no other there.
        let single = of("/srv/x/y", false, 4242);
        assert!(single.holds(Path::new("/srv/x/y")) && !single.holds(Path::new("/srv/x/z")));
        assert!(single.fills(Path::new("/srv/x")) && !single.fills(Path::new("/srv")));
    }
}
