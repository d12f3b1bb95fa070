//! Where a path leads, found out once and held from then on.
//!
//! A path is looked up anew by whoever is handed it, and whoever owns a directory or a link on its way says where it leads.
//! So a workspace is its descriptor here: whose it is, which it is and what it is called is asked of that. Those who confine
//! the session compare what they open with it ([`callgate_policy::plan::Seen`]).

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use callgate_policy::path::HostPath;
use callgate_policy::plan::{AskedFor, Extent, FsRule, Identity, Seen};
use callgate_worker::asked::AskedPlaces;
use callgate_worker::way::{FollowedPath, Id, Link, would_lead_to, would_lead_to_by};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::home::Homes;
use crate::host;
use crate::host_view::HostView;
use crate::mounts::MountTable;
use crate::owner::is_somebody;

/// Who can have a path lead elsewhere, and is neither root nor the owner of what it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stranger {
    /// The directory or link that is theirs.
    pub(crate) on_the_way: PathBuf,
    pub(crate) uid: u32,
    /// Whose it is what the path leads to.
    pub(crate) owner: u32,
}

/// Reason why a place cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    Io(io::Error),
    NotADirectory,
    /// It has no name any more that leads to it.
    Replaced,
    Strangers(Stranger),
}

impl From<Errno> for Unusable {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// A directory that is held.
#[derive(Debug)]
pub(crate) struct Place {
    path: HostPath,
    /// As it was spelt, and absolute.
    spelt: HostPath,
    fd: OwnedFd,
    /// Device and inode. While it is held they are no other's.
    id: Id,
    owner: Identity,
    /// That led to it.
    links: Vec<Link>,
}

impl Place {
    /// Finds a directory. Root goes no way that a stranger laid.
    pub(crate) fn find(path: &Path) -> Result<Self, Unusable> {
        let spelt = HostPath::from(std::path::absolute(path).map_err(Unusable::Io)?);
        let way = FollowedPath::follow(path)?;
        let stat = *way.stat();
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(Unusable::NotADirectory);
        }
        if let Some(stranger) = stranger_to_root(&way) {
            return Err(Unusable::Strangers(stranger));
        }
        let (id, links) = (way.id(), way.links.clone());
        let fd = way.into_fd();
        let path = std::fs::read_link(link(&fd)).map_err(Unusable::Io)?;
        if host::identity_of(&path) != Some(id) {
            return Err(Unusable::Replaced);
        }
        Ok(Self { path: path.into(), spelt, fd, id, owner: Identity { uid: stat.st_uid, gid: stat.st_gid }, links })
    }

    /// The link on the way to it that a call may have put there, if there is one.
    pub(crate) fn planted_link(&self, changeable: &Changeable) -> Option<PathBuf> {
        changeable.planted(&self.links)
    }

    /// The repositories that it is a part of, and those that hold a link on the way to it: calls of another session may have
    /// worked in the whole of each. Every one counts, since a call can put a `.git` in between. A home directory does not,
    /// which may be under version control as well.
    fn repositories(&self, homes: &Homes) -> Vec<HostPath> {
        let parts = std::iter::once(self.path.as_path()).chain(self.links.iter().map(|link| link.path.as_path()));
        let above: BTreeSet<&Path> = parts.flat_map(|part| part.ancestors().skip(1)).collect();
        let is_repository =
            |above: &&Path| above.join(".git").symlink_metadata().is_ok() && homes.found_in(above).is_none();
        above.into_iter().filter(is_repository).map(|above| HostPath::from(above.to_owned())).collect()
    }

    /// Name of it when it was found, without links.
    pub(crate) fn path(&self) -> &HostPath {
        &self.path
    }

    /// Whose it is.
    pub(crate) fn owner(&self) -> Identity {
        self.owner
    }

    /// Device and inode.
    pub(crate) fn id(&self) -> Id {
        self.id
    }

    /// A name that leads to it, whatever has its own by now.
    pub(crate) fn link(&self) -> PathBuf {
        link(&self.fd)
    }

    /// True if the name that it was found by still leads to it.
    pub(crate) fn is_there(&self) -> bool {
        host::identity_of(self.path.as_path()) == Some(self.id)
    }
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A link that the kernel makes, to what a descriptor is open for.
fn link(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// As whom a session runs: the owner of the workspace if we may become that, else ourselves.
pub(crate) fn owner(workspace: Option<&Place>) -> Identity {
    let me = Identity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    workspace.filter(|_| me.uid == 0).map(Place::owner).filter(|owner| owner.uid != 0).unwrap_or(me)
}

/// The directories below which calls may have put links: the workspace's roots, where calls of earlier sessions may have worked,
/// and what calls of this session may write.
#[derive(Debug)]
pub(crate) struct Changeable {
    /// Identities.
    ids: Vec<Id>,
    /// Names: another directory may have the name for a moment.
    paths: Vec<HostPath>,
    /// How many of these, the first, are only what this session may write.
    written: usize,
    /// Those names without links, of what is not there too.
    led_to: Vec<PathBuf>,
    /// Places that were asked for, and that only an earlier session may have been able to write.
    asked: AskedPlaces,
    /// By which each may have further names; without them anything may be one.
    mounts: MountTable,
}

impl Changeable {
    /// `written` are the paths at or below which the session may change something, and `asked` those of which an earlier one
    /// could, that was asked for the same and bounded less.
    pub(crate) fn of<'a>(
        host: &HostView,
        held: impl IntoIterator<Item = &'a Place>,
        written: &[HostPath],
        asked: &[AskedFor],
    ) -> Self {
        let (mut ids, mut paths) = (Vec::new(), written.to_vec());
        let held: Vec<&Place> = held.into_iter().collect();
        let user = owner(held.first().copied()).uid;
        for place in held {
            ids.push(place.id());
            paths.extend([place.path.clone(), place.spelt.clone()]);
            paths.extend(place.repositories(host.homes()));
        }
        let ids_of = |paths: &[HostPath]| -> Vec<Id> {
            paths.iter().filter_map(|path| Some(FollowedPath::follow(path.as_path()).ok()?.id())).collect()
        };
        ids.extend(ids_of(&paths));
        let led_to = paths.iter().filter_map(|path| would_lead_to(path.as_path())).collect();
        let (asked, mounts) = (AskedPlaces::of(asked, user), host.mounts().clone());
        Self { ids, paths, written: written.len(), led_to, asked, mounts }
    }

    /// Where calls of earlier sessions may have worked, by name.
    pub(crate) fn earlier(&self) -> impl Iterator<Item = PathBuf> {
        self.paths.iter().skip(self.written).map(|path| path.as_path().to_owned())
    }

    /// Mounts by which places have further names.
    pub(crate) fn mounts(&self) -> &MountTable {
        &self.mounts
    }

    /// True if calls of an earlier session may have put something into a directory that was asked for the same and
    /// bounded less.
    pub(crate) fn asked(&self, directory: &Path) -> bool {
        self.asked.fills(directory)
    }

    /// All names of a place, its own first. `None` where the mounts are not known that show it elsewhere.
    pub(crate) fn names(&self, place: &Path) -> Option<Vec<PathBuf>> {
        self.mounts.names(place)
    }

    pub(crate) fn planted(&self, links: &[Link]) -> Option<PathBuf> {
        // A person's own link to a root is called what the root is, and lies beside it.
        let names = || self.paths.iter().map(HostPath::as_path).chain(self.led_to.iter().map(PathBuf::as_path));
        let by_name = |directory: &Path| names().any(|path| directory.starts_with(path));
        let is_below =
            |directory: &Path| self.names(directory).is_none_or(|names| names.iter().any(|name| by_name(name)));
        let below = |link: &Link| link.path.parent().is_some_and(is_below);
        let asked = |link: &Link| {
            let names = self.names(link.path.parent().unwrap_or(Path::new("/")));
            self.asked.holds_link(link, names.as_deref())
        };
        let planted = |link: &&Link| link.may_lie_in(&self.ids) || below(link) || asked(link);
        links.iter().find(planted).map(|link| link.path.clone())
    }

    /// Follows a path. `None` if it is not there, or if a call may have put a link in its way; then the link comes with it.
    pub(crate) fn follow(&self, path: &Path) -> Result<Option<FollowedPath>, PathBuf> {
        let Ok(way) = FollowedPath::follow(path) else { return Ok(None) };
        self.planted(&way.links).map_or(Ok(Some(way)), Err)
    }
}

/// A path that was typed and will be granted, followed once: what it leads to is granted by its path without links. The session
/// that it is granted to refuses it if a link on the way is one that a call may have made ([`crate::SessionSpec::typed`]).
#[derive(Debug, Clone)]
pub struct TypedPath {
    typed: PathBuf,
    real: PathBuf,
    links: Vec<Link>,
}

impl TypedPath {
    /// Follows a path.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn follow(path: &Path) -> io::Result<Self> {
        let way = FollowedPath::follow(path)?;
        Ok(Self { typed: path.to_owned(), real: way.real_path()?, links: way.links })
    }

    /// Path as typed.
    #[must_use]
    pub fn typed(&self) -> &Path {
        &self.typed
    }

    /// Path that it leads to, without links.
    #[must_use]
    pub fn real(&self) -> &Path {
        &self.real
    }

    pub(crate) fn planted_link(&self, changeable: &Changeable) -> Option<PathBuf> {
        changeable.planted(&self.links)
    }
}

/// Things that stood at the paths of grants when they were looked at.
#[derive(Debug, Default, Clone)]
pub(crate) struct Looked {
    pub(crate) seen: Vec<Seen>,
    /// Paths of grants at which nothing stood, and where each would lead.
    absent: Vec<(HostPath, PathBuf)>,
}

impl Looked {
    /// Where a path led that was looked at.
    pub(crate) fn real(&self, path: &Path) -> Option<PathBuf> {
        let seen = self.seen.iter().map(|seen| (&seen.path, seen.real().as_path()));
        let mut all = seen.chain(self.absent.iter().map(|(path, real)| (path, real.as_path())));
        all.find(|(looked_at, _)| looked_at.as_path() == path).map(|(_, real)| real.to_owned())
    }
}

/// Reason why a grant cannot be bound to what is there.
#[derive(Debug)]
pub(crate) enum Misled {
    /// The session runs as root.
    ByAStranger(Stranger),
    /// By this link, which a call may have made.
    ByALink(PathBuf),
}

/// Looks at what stands at the paths of grants, and at those above a single name, which is made there: from the
/// workspace's roots on where a path lies in one, wherever that is now. A link that a call may have made is an error,
/// and so is, for a session that runs as root, a stranger's say in it. Those of `unlinked` were looked at by no link:
/// whatever is granted in them is gone to by none.
pub(crate) fn look<'a>(
    (roots, unlinked): (&[Place], &[HostPath]),
    changeable: &Changeable,
    grants: impl IntoIterator<Item = &'a FsRule>,
    session: Identity,
) -> Result<Looked, (HostPath, Misled)> {
    let Looked { mut seen, mut absent } = Looked::default();
    for rule in grants {
        let (is_entry, mut decided) = (rule.extent == Extent::Entry, false);
        for path in rule.path.as_path().ancestors().take(if is_entry { usize::MAX } else { 1 }) {
            let Ok(way) = from_roots(roots, path) else {
                if path == rule.path.as_path() && !absent.iter().any(|(looked_at, _)| *looked_at == rule.path) {
                    let would_lead = would_lead_to_by(|above| from_roots(roots, above), path);
                    absent.extend(would_lead.map(|to| (rule.path.clone(), to)));
                }
                continue;
            };
            if is_entry && path == rule.path.as_path() && way.has_links() {
                continue; // what the name itself leads to is not granted; where it lies is looked at next
            }
            // A single name is replaced in the nearest directory.
            let decides = !decided && (!is_entry || path != rule.path.as_path());
            decided |= decides;
            if let Some(stranger) = stranger_on(&way).filter(|_| decides && session.uid == 0) {
                return Err((rule.path.clone(), Misled::ByAStranger(stranger)));
            }
            let is_on_the_way = |link: &&Link| {
                unlinked.iter().any(|looked_at| {
                    path.starts_with(looked_at.as_path()) && looked_at.as_path().starts_with(&link.path)
                })
            };
            let exchanged = way.links.iter().find(is_on_the_way).map(|link| link.path.clone());
            if let Some(link) = exchanged.or_else(|| changeable.planted(&way.links)) {
                return Err((rule.path.clone(), Misled::ByALink(link)));
            }
            let path = HostPath::from(path.to_owned());
            if !seen.iter().any(|seen| seen.path == path)
                && let Ok(leads_to) = way.real_path()
            {
                let (device, inode) = way.id();
                let directory = FileType::from_raw_mode(way.stat().st_mode) == FileType::Directory;
                let leads_to = Some(HostPath::from(leads_to)).filter(|leads_to| *leads_to != path);
                seen.push(Seen { path, device, inode, directory, leads_to });
            }
        }
    }
    Ok(Looked { seen, absent })
}

fn from_roots(roots: &[Place], path: &Path) -> rustix::io::Result<FollowedPath> {
    let below = roots.iter().find_map(|root| Some((root, path.strip_prefix(root.path.as_path()).ok()?)));
    match below {
        Some((root, rest)) => FollowedPath::follow_from((root.fd.as_fd(), root.path.as_path()), rest),
        None => FollowedPath::follow(path),
    }
}

/// Who else has a say in where this path leads, if root is about to go there.
pub(crate) fn stranger_to(path: &Path) -> Option<Stranger> {
    stranger_to_root(&FollowedPath::follow(path).ok()?)
}

fn stranger_to_root(way: &FollowedPath) -> Option<Stranger> {
    rustix::process::geteuid().is_root().then(|| stranger_on(way)).flatten()
}

/// Opens a regular file of this user's or root's for reading. Root goes no way that a stranger laid. What is opened is what was
/// looked at: a FIFO or a device is not opened at all. `None` if it is not such a file.
pub(crate) fn open_own_file(path: &Path) -> Option<std::fs::File> {
    let way = FollowedPath::follow(path).ok()?;
    let is_file = FileType::from_raw_mode(way.stat().st_mode) == FileType::RegularFile;
    let is_own = [0, rustix::process::geteuid().as_raw()].contains(&way.stat().st_uid);
    let is_fit = is_file && is_own && stranger_to_root(&way).is_none();
    is_fit.then(|| std::fs::File::open(link(&way.into_fd())).ok())?
}

/// A file in which a person keeps what calls must not know: a regular one of this user's that nobody else reads, with one name, and
/// no link that a call may have made leads there.
pub(crate) struct PrivateFile(FollowedPath);

impl PrivateFile {
    /// Judges the file that a way leads to. `act` is what calls could do by a second name, for the error.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn at(way: FollowedPath, changeable: &Changeable, act: &str) -> Result<Self, String> {
        if let Some(link) = changeable.planted(&way.links) {
            return Err(format!("{} on the way is a link that a call may have made", link.display()));
        }
        let stat = way.stat();
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err("it is no regular file".to_owned());
        }
        let me = rustix::process::geteuid().as_raw();
        if stat.st_uid != me || stat.st_mode & 0o077 != 0 {
            return Err("others can read it, or it is not yours; it must belong to you, with mode 0600".to_owned());
        }
        if stat.st_nlink != 1 {
            return Err(format!("it has a second name (a hard link), by which calls could {act} it"));
        }
        Ok(Self(way))
    }

    /// Its path without links.
    ///
    /// # Errors
    /// The kernel's, in words.
    pub(crate) fn real_path(&self) -> Result<PathBuf, String> {
        self.0.real_path().map_err(|error| error.to_string())
    }

    /// Opens what was judged for reading, whatever has its name by now.
    ///
    /// # Errors
    /// The kernel's, in words.
    pub(crate) fn open(self) -> Result<std::fs::File, String> {
        std::fs::File::open(link(&self.0.into_fd())).map_err(|error| error.to_string())
    }
}

/// Whose it is where a way leads, and who else has a say in it.
fn stranger_on(way: &FollowedPath) -> Option<Stranger> {
    let owner = way.stat().st_uid;
    let (on_the_way, uid) = way.owners.iter().find(|(_, uid)| *uid != 0 && *uid != owner && is_somebody(*uid))?;
    Some(Stranger { on_the_way: on_the_way.clone(), uid: *uid, owner })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use std::os::unix::fs::{chown, lchown, symlink};

    use callgate_policy::plan::{Binding, Exactness, FsAccess, Presence};

    use super::*;

    /// A10: what was looked at by no link is granted by none, if it has been exchanged for one since.
    #[test]
    fn a10_what_was_looked_at_is_granted_by_no_link() {
        let top = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(top.path()).unwrap();
        for name in ["skills", "skills/x", "skills/x/sub", "keys", "keys/sub"] {
            std::fs::create_dir(top.join(name)).unwrap();
        }
        symlink("../keys", top.join("skills/y")).unwrap();
        symlink("sub", top.join("skills/x/own")).unwrap();
        let look = |unlinked: &[&str], granted: &str| {
            let unlinked: Vec<HostPath> = unlinked.iter().map(|name| HostPath::from(top.join(name))).collect();
            let rule = FsRule {
                path: top.join(granted).into(),
                access: FsAccess::Read,
                extent: Extent::Subtree,
                binding: Binding::Seen,
                presence: Presence::Required,
                exactness: Exactness::Exact,
                source: String::new(),
            };
            look(
                (&[], &unlinked),
                &Changeable::of(&HostView::look().unwrap(), [].iter(), &[], &[]),
                [&rule],
                Identity { uid: 1, gid: 1 },
            )
        };
        for granted in ["skills/x", "skills/x/sub", "skills/x/own"] {
            assert!(look(&["skills/x"], granted).is_ok(), "{granted}");
        }
        let refused = |looked: Result<Looked, (HostPath, Misled)>| match looked {
            Err((_, Misled::ByALink(link))) => Some(link),
            _ => None,
        };
        for granted in ["skills/y", "skills/y/sub"] {
            assert_eq!(refused(look(&["skills/y"], granted)), Some(top.join("skills/y")), "{granted}");
            assert!(look(&[], granted).is_ok(), "the control: a person's own link may be granted by");
        }
        std::fs::rename(top.join("skills"), top.join("other")).unwrap();
        symlink("other", top.join("skills")).unwrap();
        assert_eq!(refused(look(&["skills/x"], "skills/x/sub")), Some(top.join("skills")), "above it, too");
    }

    /// A10: what lies on the way is root's, or the owner's of what it leads to.
    #[test]
    fn a10_root_goes_no_way_that_a_stranger_laid() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        for name in ["roots/ws", "users/ws", "users/roots"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        symlink(at("roots"), at("users/to-roots")).unwrap();
        symlink("../roots/ws", at("users/to-ws")).unwrap();
        symlink(at("users/ws"), at("users/to-own")).unwrap();
        symlink(at("users/ws"), at("to-users")).unwrap();
        symlink("users/to-roots/ws", at("far")).unwrap();
        ["users", "users/ws"].iter().for_each(|name| chown(at(name), Some(4242), Some(4242)).unwrap());
        ["users/to-roots", "users/to-ws", "users/to-own"]
            .iter()
            .for_each(|name| lchown(at(name), Some(4242), None).unwrap());
        let ours =
            ["", "roots/ws", "users", "users/ws", "users/ws/", "users/to-own", "to-users", "roots/../users/./ws"];
        for name in ours {
            let place = Place::find(&at(name)).map_err(|why| format!("{name}: {why:?}")).unwrap();
            assert_eq!(place.path().as_path(), std::fs::canonicalize(at(name)).unwrap(), "{name}");
            assert!(place.is_there());
        }
        for name in ["users/to-roots/ws", "users/to-ws", "users/roots", "far", "users/ws/../../roots/ws", "users/.."] {
            let refused = Place::find(&at(name));
            assert!(
                matches!(&refused, Err(Unusable::Strangers(Stranger { uid: 4242, owner: 0, .. }))),
                "{name}: {refused:?}"
            );
        }
        assert_eq!(Place::find(&at("users/ws")).unwrap().owner(), Identity { uid: 4242, gid: 4242 });
    }

    /// A10: what is held is what was found, whatever has its name since.
    #[test]
    fn a10_a_place_is_not_what_takes_its_name() {
        let top = tempfile::tempdir().unwrap();
        let (ws, aside) = (top.path().join("ws"), top.path().join("aside"));
        std::fs::create_dir_all(ws.join("sub")).unwrap();
        let place = Place::find(&ws).unwrap();
        let rule = |name: &str| FsRule {
            path: ws.join(name).into(),
            access: callgate_policy::plan::FsAccess::Read,
            extent: Extent::Subtree,
            binding: Binding::Seen,
            presence: callgate_policy::plan::Presence::Optional,
            exactness: callgate_policy::plan::Exactness::Exact,
            source: String::new(),
        };
        std::fs::rename(&ws, &aside).unwrap();
        std::fs::create_dir_all(ws.join("sub")).unwrap();
        assert!(!place.is_there());
        let changeable = Changeable::of(&HostView::look().unwrap(), [&place], &[], &[]);
        let session = Identity { uid: 4242, gid: 4242 };
        let looked = look((&[place], &[]), &changeable, &[rule("sub"), rule("absent")], session).unwrap();
        let held = host::identity_of(&aside.join("sub")).unwrap();
        let leads_to = Some(aside.join("sub").into());
        assert_eq!(
            looked.seen,
            [Seen { path: ws.join("sub").into(), device: held.0, inode: held.1, directory: true, leads_to }],
            "where it is now"
        );
        for name in ["sub", "absent"] {
            assert_eq!(looked.real(&ws.join(name)), Some(aside.join(name)), "where it is now, and would be");
        }
        assert!(matches!(Place::find(&ws.join("absent")), Err(Unusable::Io(_))));
        std::fs::write(ws.join("file"), "").unwrap();
        assert!(matches!(Place::find(&ws.join("file")), Err(Unusable::NotADirectory)));
    }

    /// A2, A10: a link in what may be written, or was asked for, by way of a link is one that a call may have made, whatever had that name
    /// when it was looked at, and if nothing had.
    #[test]
    fn a2_a10_links_below_what_a_link_leads_to_may_be_a_call_s() {
        let top = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(top.path()).unwrap();
        std::fs::create_dir_all(top.join("real/there")).unwrap();
        symlink("real", top.join("spelt")).unwrap();
        for (name, is_there) in [("there", true), ("new", false)] {
            let spelt = top.join("spelt").join(name);
            let asked = [AskedFor { path: spelt.clone().into(), is_tree: true }];
            let (host, written) = (HostView::look().unwrap(), [HostPath::from(spelt)]);
            let of = |written, asked| Changeable::of(&host, [].iter(), written, asked);
            let all = [of(&written, &[]), of(&[], &asked)];
            let real = top.join("real").join(name);
            if is_there {
                std::fs::rename(&real, top.join("aside")).unwrap();
            }
            std::fs::create_dir(&real).unwrap();
            symlink(&top, real.join("link")).unwrap();
            for changeable in all {
                assert_eq!(changeable.follow(&real.join("link")).err(), Some(real.join("link")), "{name}");
            }
            assert!(of(&[], &[]).follow(&real.join("link")).is_ok(), "the control");
        }
    }

    /// A2, A10: a link in what was asked for is one that an earlier session may have made, whatever it is called; one of the
    /// system's is not, whatever was asked for.
    #[test]
    fn a2_a10_links_in_what_was_asked_for_may_be_a_call_s() {
        let top = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(top.path()).unwrap();
        for name in ["asked", "asked/sub", "own"] {
            std::fs::create_dir(top.join(name)).unwrap();
        }
        for name in ["asked/link", "asked/sub/link", "own/link"] {
            symlink(top.join("own"), top.join(name)).unwrap();
        }
        symlink("asked", top.join("spelt")).unwrap();
        let tree = |path: &Path| AskedFor { path: path.to_owned().into(), is_tree: true };
        let asked = vec![tree(&top.join("asked")), tree(&top.join("spelt"))];
        let planted = |asked: &[AskedFor], path: &Path| {
            Changeable::of(&HostView::look().unwrap(), [].iter(), &[], asked).follow(path).err()
        };
        for name in ["asked/link", "asked/sub/link", "spelt/sub/link", "asked/../asked/link"] {
            let link = planted(&asked, &top.join(name)).unwrap_or_else(|| unreachable!("{name}"));
            assert!(link.ends_with("link"), "{name}: {link:?}");
            assert_eq!(planted(&[], &top.join(name)), None, "the control: {name}");
        }
        for name in ["own/link", "asked/sub", "spelt", "spelt/sub"] {
            assert_eq!(planted(&asked, &top.join(name)), None, "{name}");
        }
        // A single name is that link alone.
        let single = [AskedFor { path: top.join("own/link").into(), is_tree: false }];
        assert_eq!(planted(&single, &top.join("own/link")), Some(top.join("own/link")));
        assert_eq!(planted(&single, &top.join("asked/link")), None);
        let changeable = Changeable::of(&HostView::look().unwrap(), [].iter(), &[], &single);
        assert!(changeable.asked(&top.join("own")) && !changeable.asked(&top.join("asked")), "where it is replaced");
        let everything = [tree(Path::new("/"))];
        assert_eq!(planted(&everything, &top.join("own/link")), Some(top.join("own/link")));
        let changeable = Changeable::of(&HostView::look().unwrap(), [].iter(), &[], &everything);
        for (path, is_asked) in
            [("/", false), ("/usr", false), ("/usr/bin", false), ("/usr/local/bin", true), ("/srv", true)]
        {
            assert_eq!(changeable.asked(Path::new(path)), is_asked, "{path}");
        }
        // Of a tree above the system's, those themselves are nobody's that a session could be granted alone.
        let changeable = Changeable::of(&HostView::look().unwrap(), [].iter(), &[], &[tree(Path::new("/usr"))]);
        let may_write = rustix::process::geteuid().is_root();
        for (path, is_asked) in [("/usr", false), ("/usr/share", false), ("/usr/share/doc", may_write)] {
            assert_eq!(changeable.asked(Path::new(path)), is_asked, "{path}");
        }
        let changeable = Changeable::of(&HostView::look().unwrap(), [].iter(), &[], &[tree(Path::new("/usr/share/x"))]);
        for (path, is_asked) in [("/usr/share/x/bin", true), ("/usr/share/y", false), ("/usr/bin", false)] {
            assert_eq!(changeable.asked(Path::new(path)), is_asked, "somebody works there: {path}");
        }
    }
}
