//! Which programs are meant: one, those of a tree, or any.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::path::HostPath;

/// Programs, with variables expanded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramPattern {
    /// Whichever.
    Any,
    /// A bare name, looked up on the session's `PATH` when it is opened, or an absolute path: the file that is found then.
    One(HostPath),
    /// Every program that lies below this directory when it is started.
    Below(HostPath),
    /// The file that is found at a path, if it lies below a directory itself: what is left where one side grants the path and
    /// the other the tree. A link in the tree may lead out of it.
    OneBelow {
        /// As in [`ProgramPattern::One`].
        path: HostPath,
        /// As in [`ProgramPattern::Below`].
        directory: HostPath,
    },
}

impl ProgramPattern {
    /// True if starting what is called so is meant, as far as its name tells.
    #[must_use]
    pub fn matches(&self, program: &HostPath) -> bool {
        match self {
            Self::Any => true,
            Self::One(path) | Self::OneBelow { path, .. } => path == program,
            Self::Below(directory) => is_below(program, directory),
        }
    }

    /// The directory below which they lie, if there is one.
    #[must_use]
    pub fn directory(&self) -> Option<&HostPath> {
        match self {
            Self::Below(directory) | Self::OneBelow { directory, .. } => Some(directory),
            Self::Any | Self::One(_) => None,
        }
    }

    /// True if all of it certainly lies in another; a name alone proves nothing.
    pub(crate) fn within(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Any) => true,
            (Self::One(mine) | Self::OneBelow { path: mine, .. }, Self::One(theirs)) => mine == theirs,
            (Self::Below(mine) | Self::OneBelow { directory: mine, .. }, Self::Below(theirs)) => holds(theirs, mine),
            (
                Self::OneBelow { path: my_path, directory: mine },
                Self::OneBelow { path: their_path, directory: theirs },
            ) => my_path == their_path && holds(theirs, mine),
            _ => false,
        }
    }

    /// Intersection of both. A name and a tree have nothing in common, nor have a tree and a path that does not lead
    /// into it: where a link leads is not known here.
    pub(crate) fn meet(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, one) | (one, Self::Any) => Some(one.clone()),
            (Self::Below(mine), Self::Below(theirs)) => Some(Self::Below(deeper(mine, theirs)?.clone())),
            (Self::One(path), Self::Below(directory)) | (Self::Below(directory), Self::One(path)) => {
                one_below(path, directory)
            }
            (Self::OneBelow { path, directory: mine }, Self::Below(theirs))
            | (Self::Below(theirs), Self::OneBelow { path, directory: mine }) => one_below(path, deeper(mine, theirs)?),
            (Self::OneBelow { path, directory: mine }, Self::OneBelow { path: other, directory: theirs }) => {
                if path == other { one_below(path, deeper(mine, theirs)?) } else { None }
            }
            (one @ (Self::One(path) | Self::OneBelow { path, .. }), Self::One(other))
            | (Self::One(other), one @ Self::OneBelow { path, .. }) => (path == other).then(|| one.clone()),
        }
    }
}

impl fmt::Display for ProgramPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any program"),
            Self::One(path) => write!(f, "{path}"),
            Self::Below(directory) if directory.as_bytes() == b"/" => f.write_str("/**"),
            Self::Below(directory) => write!(f, "{directory}/**"),
            Self::OneBelow { path, directory } => write!(f, "{path} (if it lies in {directory})"),
        }
    }
}

/// True if a path leads to something below a directory, as it is spelt.
fn is_below(path: &HostPath, directory: &HostPath) -> bool {
    path != directory && holds(directory, path)
}

fn holds(directory: &HostPath, path: &HostPath) -> bool {
    path.is_normal() && path.as_path().starts_with(directory)
}

/// The inner one of two trees; `None` if they are apart.
fn deeper<'a>(one: &'a HostPath, other: &'a HostPath) -> Option<&'a HostPath> {
    match (holds(one, other), holds(other, one)) {
        (true, _) => Some(other),
        (false, true) => Some(one),
        (false, false) => None,
    }
}

fn one_below(path: &HostPath, directory: &HostPath) -> Option<ProgramPattern> {
    is_below(path, directory).then(|| ProgramPattern::OneBelow { path: path.clone(), directory: directory.clone() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use proptest::prelude::*;

    use super::*;

    /// Files by their real paths.
    const FILES: [&str; 6] = ["/w/t/x", "/w/t/d/x", "/w/tx", "/w/x", "/usr/bin/x", "/o/x"];
    const DIRECTORIES: [&str; 5] = ["/", "/w", "/w/t", "/w/t/d", "/o"];
    /// Names, of which the last is found on the `PATH`.
    const NAMES: [&str; 6] = ["/w/t/x", "/w/t/d/x", "/w/tx", "/w/x", "/usr/bin/x", "x"];

    fn pattern() -> impl Strategy<Value = ProgramPattern> {
        let name = || proptest::sample::select(&NAMES[..]).prop_map(HostPath::from);
        let directory = || proptest::sample::select(&DIRECTORIES[..]).prop_map(HostPath::from);
        let both = (name(), directory())
            .prop_map(|(path, directory)| one_below(&path, &directory).unwrap_or(ProgramPattern::Below(directory)));
        prop_oneof![
            Just(ProgramPattern::Any),
            name().prop_map(ProgramPattern::One),
            directory().prop_map(ProgramPattern::Below),
            both
        ]
    }

    /// The files that it grants, where each name leads to one of them.
    fn files(pattern: &ProgramPattern, leads: &[usize]) -> Vec<bool> {
        let found =
            |path: &HostPath| FILES[leads[NAMES.iter().position(|name| HostPath::from(*name) == *path).unwrap()]];
        let lies = |file: &str, directory: &HostPath| is_below(&file.into(), directory);
        let granted = |file: &&str| match pattern {
            ProgramPattern::Any => true,
            ProgramPattern::One(path) => found(path) == *file,
            ProgramPattern::Below(directory) => lies(file, directory),
            ProgramPattern::OneBelow { path, directory } => found(path) == *file && lies(file, directory),
        };
        FILES.iter().map(granted).collect()
    }

    fn all_in(inner: &[bool], outer: &[bool]) -> bool {
        inner.iter().zip(outer).all(|(inner, outer)| !inner || *outer)
    }

    proptest! {
        /// Wherever links lead, what is within another, or left of two, grants no file that the other, or one of the two, does
        /// not. Without links nothing is lost.
        #[test]
        fn s0_39_programs_of_a_tree_are_a_set_of_files(
            (one, other, third) in (pattern(), pattern(), pattern()),
            leads in proptest::collection::vec(0..FILES.len(), NAMES.len()),
        ) {
            let (mine, theirs) = (files(&one, &leads), files(&other, &leads));
            prop_assert!(!one.within(&other) || all_in(&mine, &theirs), "{} within {}", one, other);
            let met = one.meet(&other);
            let left = met.as_ref().map_or(vec![false; FILES.len()], |met| files(met, &leads));
            prop_assert!(all_in(&left, &mine) && all_in(&left, &theirs), "{} and {}", one, other);
            prop_assert_eq!(&met, &other.meet(&one));
            prop_assert!(one.within(&one) && one.meet(&one) == Some(one.clone()));
            let grouped = |first: Option<ProgramPattern>, last: &ProgramPattern| first.and_then(|met| met.meet(last));
            prop_assert_eq!(grouped(met, &third), grouped(other.meet(&third), &one));
        }

        #[test]
        fn s0_39_without_links_nothing_is_lost((one, other) in (pattern(), pattern())) {
            // A bare name leads to the fifth.
            let leads = [0, 1, 2, 3, 4, 4];
            let is_path = |pattern: &ProgramPattern| *pattern != ProgramPattern::One("x".into());
            prop_assume!(is_path(&one) && is_path(&other));
            let (mine, theirs) = (files(&one, &leads), files(&other, &leads));
            let both: Vec<bool> = mine.iter().zip(&theirs).map(|(mine, theirs)| *mine && *theirs).collect();
            let left = one.meet(&other).map_or(vec![false; FILES.len()], |met| files(&met, &leads));
            prop_assert_eq!(left, both, "{} and {}", one, other);
        }
    }

    /// A program below a directory is known by its name, and shown by it.
    #[test]
    fn s0_39_what_lies_below_a_directory_is_meant() {
        let tree = ProgramPattern::Below("/w/t".into());
        for (program, meant) in [
            ("/w/t/x", true),
            ("/w/t/d/x", true),
            ("/w/t", false),
            ("/w/tx", false),
            ("x", false),
            ("/w/t/../x", false),
        ] {
            assert_eq!(tree.matches(&program.into()), meant, "{program}");
        }
        assert_eq!(tree.to_string(), "/w/t/**");
        let left = tree.meet(&ProgramPattern::One("/w/t/x".into())).unwrap();
        assert_eq!(left.to_string(), "/w/t/x (if it lies in /w/t)");
        assert_eq!(left.directory(), Some(&"/w/t".into()));
        assert_eq!(tree.meet(&ProgramPattern::One("x".into())), None);
    }
}
