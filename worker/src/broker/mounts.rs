//! Other names of a directory: the same one may be mounted in several places (bind mounts), and a name that is kept in
//! one of them is kept in all.
//!
//! Only somebody privileged makes such mounts. They are read when the session begins, before it has a mount tree of its own,
//! and are the same in it; a directory that is one, or leads to one, stays where it is.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use callgate_policy::plan::protect::{Match, State, names};
use callgate_policy::step::Step;

use super::paths::lies_in;
use crate::apply::failure;
use crate::mountinfo::{self, Mount};
use crate::protocol::StepFailure;

/// All mounts that the session's processes can reach.
#[derive(Debug)]
pub(super) struct Mounts(Vec<Mount>);

/// A tree or a single name that was granted for writing.
#[derive(Debug, Clone, Copy)]
pub(super) struct GrantedTree<'a> {
    pub(super) path: &'a Path,
    /// True if its own path says what is kept in it, not only other grants.
    pub(super) is_tree: bool,
}

/// Another name of what has one in a granted tree.
#[derive(Debug, Clone)]
pub(super) struct AliasName {
    /// The one in a granted tree.
    local: PathBuf,
    /// The other, unless only its file system knows it.
    other: Option<PathBuf>,
    /// Judgement of the other place, where it lies in no granted tree.
    outside: Match,
}

/// Part of the file system of a mount, as it is seen in a granted tree.
struct Window<'a> {
    path: PathBuf,
    mount: &'a Mount,
    root: PathBuf,
    /// It is all that was granted: by this name, so that no part of the name is held against it.
    granted: Option<GrantedTree<'a>>,
}

impl Mounts {
    pub(super) fn read() -> Result<Self, StepFailure> {
        mountinfo::read().map(Self).map_err(failure(Step::KeptNames, "read the mounts"))
    }

    /// The other names of what lies in granted trees, as far as they make a difference.
    pub(super) fn aliases(&self, granted: &[GrantedTree<'_>]) -> Result<Vec<AliasName>, StepFailure> {
        let windows = self.windows(granted)?;
        let mut aliases = Vec::new();
        for window in &windows {
            let here = self.0.iter().filter(|mount| mount.device == window.mount.device);
            let views = here.map(|mount| (mount.root.as_path(), Some(mount.at.as_path())));
            // What the file system itself calls it, if that is mounted nowhere.
            for (root, at) in views.chain([(Path::new("/"), None)]) {
                let alias = window.alias(root, at).filter(|alias| alias.makes_a_difference(granted));
                aliases.extend(alias);
            }
        }
        Ok(aliases)
    }

    /// Granted trees, and what is mounted in them.
    fn windows<'a>(&'a self, granted: &[GrantedTree<'a>]) -> Result<Vec<Window<'a>>, StepFailure> {
        let mut windows = Vec::new();
        let mut unknown = None;
        for &tree in granted {
            match self.over(tree.path) {
                Some(mount) => windows.push(Window {
                    path: tree.path.to_owned(),
                    mount,
                    root: joined(&mount.root, tree.path.strip_prefix(&mount.at).unwrap_or(tree.path)),
                    granted: Some(tree),
                }),
                None => unknown = Some(tree.path),
            }
        }
        let is_within = |mount: &&Mount| granted.iter().any(|tree| tree.is_tree && is_below(&mount.at, tree.path));
        let within = self.0.iter().filter(is_within);
        windows.extend(within.map(|mount| Window {
            path: mount.at.clone(),
            mount,
            root: mount.root.clone(),
            granted: None,
        }));
        match unknown {
            // In a chroot(2) that is no mount: then nothing that is granted may be one.
            Some(path) if !windows.is_empty() => {
                let what = format!(
                    "which directories are mounted twice cannot be told for {}: it lies in no mount that shows here; grant \
                     nothing for writing that is a mount or has one in it",
                    path.display()
                );
                Err(StepFailure::new(Step::KeptNames, what))
            }
            Some(_) | None => Ok(windows),
        }
    }

    /// Mount that shows what has a path.
    fn over(&self, path: &Path) -> Option<&Mount> {
        mountinfo::over(&self.0, path)
    }
}

impl Window<'_> {
    /// Its name, or that of a part of it, by a mount of the same file system; `at` is none for the file system itself.
    fn alias(&self, root: &Path, at: Option<&Path>) -> Option<AliasName> {
        let base = at.unwrap_or(Path::new("/"));
        let (local, other) = match (self.root.strip_prefix(root), root.strip_prefix(&self.root)) {
            (Ok(rest), _) => (self.path.clone(), joined(base, rest)),
            (Err(_), Ok(rest)) => (joined(&self.path, rest), base.to_owned()),
            (Err(_), Err(_)) => return None,
        };
        let bytes = other.as_os_str().as_bytes();
        let outside = match self.granted.filter(|_| local == self.path) {
            Some(granted) if granted.is_tree => Match::Open(names().root(bytes)),
            Some(_) => Match::Open(State::FREE),
            None => names().find(State::default(), bytes),
        };
        (local != other).then(|| AliasName { local, other: at.is_some().then_some(other), outside })
    }
}

impl AliasName {
    fn makes_a_difference(&self, granted: &[GrantedTree<'_>]) -> bool {
        let is_granted = |tree: &GrantedTree<'_>| {
            self.other.as_ref().is_some_and(|other| lies_in(other, tree.path) || lies_in(tree.path, other))
        };
        let keeps = match self.outside {
            Match::Kept { .. } => true,
            Match::Open(state) => state.is_begun(),
        };
        keeps || granted.iter().any(is_granted)
    }

    pub(super) fn local(&self) -> &Path {
        &self.local
    }

    pub(super) fn outside(&self) -> Match {
        self.outside
    }

    /// Rest of this path below it.
    pub(super) fn rest<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        lies_in(path, &self.local).then(|| path.strip_prefix(&self.local).unwrap_or(path))
    }

    /// The other name of what lies below it.
    pub(super) fn other(&self, rest: &Path) -> Option<PathBuf> {
        self.other.as_ref().map(|other| joined(other, rest))
    }

    /// Both names, for what must stay where it is.
    pub(super) fn both(&self) -> impl Iterator<Item = &PathBuf> {
        [Some(&self.local), self.other.as_ref()].into_iter().flatten()
    }
}

fn is_below(path: &Path, tree: &Path) -> bool {
    path != tree && lies_in(path, tree)
}

/// Without the slash that [`Path::join`] leaves behind for nothing.
fn joined(path: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { path.to_owned() } else { path.join(rest) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use super::*;

    fn aliases(mounts: &[(&str, &str, &str)], granted: &[&str]) -> Vec<(String, Option<String>, bool)> {
        // All lie on the first.
        let line = |(place, (device, root, at)): (usize, &(&str, &str, &str))| {
            format!("{} {} {device} {root} {at} rw - ext4 /dev/sda rw\n", place + 1, usize::from(place > 0))
        };
        let text: String = mounts.iter().enumerate().map(line).collect();
        let mounts = Mounts(mountinfo::parse(text.as_bytes()).unwrap());
        let granted: Vec<_> =
            granted.iter().map(|path| GrantedTree { path: Path::new(*path), is_tree: true }).collect();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let shown = |alias: &AliasName| {
            let keeps = !matches!(alias.outside, Match::Open(state) if !state.is_begun());
            (text(&alias.local), alias.other.as_deref().map(text), keeps)
        };
        mounts.aliases(&granted).unwrap().iter().map(shown).collect()
    }

    const ROOT: (&str, &str, &str) = ("8:1", "/", "/");

    #[test]
    fn a18_most_mounts_make_no_difference() {
        let mounts = [
            ROOT,
            ("8:2", "/", "/home"),
            ("0:5", "/", "/proc"),
            ("8:1", "/var/lib/hosts", "/etc/hosts"),
            ("8:3", "/", "/home/u/w/data"),
            ("8:1", "/srv/cache", "/home/u/w/cache"),
        ];
        assert_eq!(aliases(&mounts, &["/home/u/w"]), []);
        // As in a container, where another name is the host's affair.
        assert_eq!(aliases(&[("0:9", "/", "/"), ("8:1", "/home/u/.claude/worktrees/x", "/w")], &["/w"]), []);
    }

    #[test]
    fn a18_a_directory_that_is_mounted_twice_has_both_names() {
        let inner = [ROOT, ("8:1", "/w/.git", "/w/a\\040b")];
        let (git, alias) = ("/w/.git".to_owned(), "/w/a b".to_owned());
        assert_eq!(
            aliases(&inner, &["/w"]),
            [
                (git.clone(), Some(alias.clone()), false),
                (alias.clone(), Some(git.clone()), true),
                (alias.clone(), None, true),
            ]
        );
        // The second is a grant of its own.
        let granted = aliases(&[ROOT, ("8:1", "/w/.git", "/x")], &["/w", "/x"]);
        assert!(granted.contains(&("/x".to_owned(), Some(git.clone()), true)), "{granted:?}");
        assert!(granted.contains(&(git, Some("/x".to_owned()), false)), "{granted:?}");
        // What lies in no grant, and what is seen of a grant from outside.
        let outside = aliases(&[ROOT, ("8:1", "/home/u/.ssh", "/w/k")], &["/w"]);
        assert!(outside.contains(&("/w/k".to_owned(), Some("/home/u/.ssh".to_owned()), true)), "{outside:?}");
        let seen = aliases(&[ROOT, ("8:1", "/w/fish", "/home/u/.config/fish")], &["/w"]);
        assert_eq!(seen, [("/w/fish".to_owned(), Some("/home/u/.config/fish".to_owned()), true)]);
    }

    #[test]
    fn a18_what_cannot_be_told_is_refused() {
        let mounts = |lines: &[u8]| mountinfo::parse(lines).map(Mounts);
        assert!(mounts(b"1 0 8:1 / /w\\04 rw - ext4 a rw\n").is_none() && mounts(b"1 0 8:1 /\n").is_none());
        let tree = |path| GrantedTree { path: Path::new(path), is_tree: true };
        let chroot = mounts(b"1 0 8:1 /c/w/x /w/x rw - ext4 a rw\n").unwrap();
        assert!(chroot.aliases(&[tree("/w")]).is_err());
        assert!(chroot.aliases(&[tree("/v")]).unwrap().is_empty(), "the control: nothing that is granted is a mount");
    }
}
