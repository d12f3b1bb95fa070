//! Paths that are kept because a repository's settings or a kept name leads there; and places that nobody looked at, where
//! more of them may be named.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::paths::lies_in;

/// Most bytes that kept paths take, about. What a workspace holds chooses how many there are.
const BYTES: usize = 16 << 20;
/// Most places that results name.
const PLACES: usize = 16;

/// Kept paths, as the kernel spells them. Looked up in every judgement: by their bytes, which takes a fraction of the time of
/// comparing components.
#[derive(Debug, Default)]
pub(super) struct Ends {
    why: HashMap<OsString, &'static str>,
    /// The paths in order, to find what lies below a path.
    sorted: BTreeSet<OsString>,
    /// Directories that stay where they are, though what is in them may change.
    passed: BTreeSet<OsString>,
    bytes: usize,
}

/// Result of keeping a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepResult {
    Now,
    Already,
    /// There is no room for more.
    Full,
}

impl Ends {
    pub(super) fn is_empty(&self) -> bool {
        self.why.is_empty() && self.passed.is_empty()
    }

    pub(super) fn insert(&mut self, path: PathBuf, why: &'static str) -> KeepResult {
        // By its names alone: what is looked for is compared by bytes.
        let path = path.components().collect::<PathBuf>().into_os_string();
        if self.why.contains_key(&path) {
            return KeepResult::Already;
        }
        let bytes = 2 * (path.len() + size_of::<(OsString, &str)>());
        if self.bytes + bytes > BYTES {
            return KeepResult::Full;
        }
        self.bytes += bytes;
        self.sorted.insert(path.clone());
        self.why.insert(path, why);
        KeepResult::Now
    }

    /// Keeps a directory where it is: the way to a kept path leads out of it by `..`.
    pub(super) fn pass(&mut self, directory: PathBuf) -> KeepResult {
        let bytes = directory.as_os_str().len() + size_of::<OsString>();
        if self.bytes + bytes > BYTES {
            return KeepResult::Full;
        }
        self.bytes += bytes;
        if self.passed.insert(directory.into_os_string()) { KeepResult::Now } else { KeepResult::Already }
    }

    /// Reason why a path is kept, if it is one of these or lies below one.
    pub(super) fn why(&self, path: &Path) -> Option<&'static str> {
        let bytes = path.as_os_str().as_bytes();
        let slashes = bytes.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        slashes.chain([bytes.len()]).find_map(|end| self.why.get(OsStr::from_bytes(&bytes[..end])).copied())
    }

    /// Reason why what would be the lock of one of these is its maker's alone, if it would.
    pub(super) fn why_of_lock(&self, path: &Path) -> Option<&'static str> {
        let of = path.as_os_str().as_bytes().strip_suffix(b".lock")?;
        self.why.get(OsStr::from_bytes(of)).copied()
    }

    /// True if a path is one of these, or one of these or a directory that stays lies at it or below it.
    pub(super) fn at_or_below(&self, path: &Path) -> bool {
        let path = path.as_os_str();
        if self.why.contains_key(path) || self.passed.contains(path) {
            return true;
        }
        let below = OsString::from_vec([path.as_bytes(), b"/"].concat());
        [&self.sorted, &self.passed].iter().any(|places| {
            let next = places.range::<OsStr, _>((Bound::Included(below.as_os_str()), Bound::Unbounded)).next();
            next.is_some_and(|next| lies_in(Path::new(next), Path::new(path)))
        })
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.sorted.iter().map(Path::new)
    }
}

/// Places that were not looked at, and why. A result names them, since what its call has changed may be run from there.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    places: Vec<(PathBuf, &'static str)>,
    /// Those that there was no room for.
    more: u64,
}

impl Unseen {
    pub(super) fn add(&mut self, path: &Path, why: &'static str) {
        if self.places.iter().any(|(place, _)| place == path) {
            return;
        }
        if self.places.len() < PLACES {
            self.places.push((path.to_owned(), why));
        } else {
            self.more += 1;
        }
    }

    /// Names places otherwise, where that is asked for.
    pub(super) fn rename(&mut self, otherwise: impl Fn(&Path) -> Option<PathBuf>) {
        for (place, why) in std::mem::take(&mut self.places) {
            self.add(&otherwise(&place).unwrap_or(place), why);
        }
    }

    pub(super) fn places(&self) -> &[(PathBuf, &'static str)] {
        &self.places
    }

    pub(super) fn more(&self) -> u64 {
        self.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_kept_with_all_below_it() {
        let mut ends = Ends::default();
        assert_eq!(ends.insert("/w/a/b".into(), "one"), KeepResult::Now);
        assert_eq!(ends.insert("/w/a-b".into(), "two"), KeepResult::Now);
        assert_eq!(ends.insert("/w/a/b".into(), "three"), KeepResult::Already);
        for (path, why) in [
            ("/w/a/b", Some("one")),
            ("/w/a/b/c/d", Some("one")),
            ("/w/a-b", Some("two")),
            ("/w/a", None),
            ("/w/a/bc", None),
            ("/", None),
        ] {
            assert_eq!(ends.why(Path::new(path)), why, "{path}");
        }
        for (path, is) in
            [("/w/a", true), ("/w/a/b", true), ("/w", true), ("/", true), ("/w/a/b/c", false), ("/w/a-", false)]
        {
            assert_eq!(ends.at_or_below(Path::new(path)), is, "{path}");
        }
    }

    /// Content of a directory that only stays where it is may change.
    #[test]
    fn a_directory_that_is_passed_stays() {
        let mut ends = Ends::default();
        assert_eq!(ends.pass("/w/a/b".into()), KeepResult::Now);
        assert!(!ends.is_empty() && ends.paths().next().is_none());
        for (path, stays) in [("/w/a/b", true), ("/w/a", true), ("/w/a/b/c", false), ("/w/a/bc", false)] {
            assert_eq!((ends.at_or_below(Path::new(path)), ends.why(Path::new(path))), (stays, None), "{path}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut ends = Ends::default();
        let name = |n: usize| PathBuf::from(format!("/{n}/{}", "x".repeat(4000)));
        let kept = (0..5000).filter(|n| ends.insert(name(*n), "why") == KeepResult::Now).count();
        assert!((1000..5000).contains(&kept) && ends.bytes <= BYTES, "{kept}");
        assert_eq!(ends.insert(name(0), "why"), KeepResult::Already);
        let mut unseen = Unseen::default();
        (0..100).for_each(|n| unseen.add(&name(n), "why"));
        assert_eq!((unseen.places().len(), unseen.more()), (PLACES, 100 - PLACES as u64));
    }
}
