//! Repositories that a call has made, under any name and at any place: git, run outside, runs what their settings and hooks say.
//! A call may make them; its result names them, and what in them runs a program.
#![expect(
    clippy::disallowed_methods,
    reason = "it only looks, in the session's domain; what it finds is reported and nothing else"
)]

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use callgate_policy::plan::protect::gitconfig;
use rustix::fs::AtFlags;

use super::settings::settings;

/// Parts that make a directory a repository, together: whatever comes last completes it.
pub(super) const PARTS: &[&[u8]] = &[b"HEAD", b"objects", b"refs", b"commondir"];
/// Files by which a repository says what git runs.
const SETTINGS: &[&str] = &["config", "config.worktree"];
/// Most hooks that are looked at in one repository.
const HOOKS: usize = 256;

/// True if git would take a directory for a repository (`is_git_directory` in its `setup.c`): it has a `HEAD`, and
/// objects and references of its own or elsewhere. What git looks at besides, in `HEAD`, can change later.
pub(super) fn is_repository(directory: &Path) -> bool {
    has_parts(|name| fs::symlink_metadata(directory.join(name)).is_ok())
}

/// True if git would take one for a repository that is open.
pub(super) fn is_repository_at(directory: &OwnedFd) -> bool {
    has_parts(|name| rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
}

fn has_parts(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && ((has("objects") && has("refs")) || has("commondir"))
}

/// The directory that would be a repository in which something has this path, if its name has a part in that.
pub(super) fn may_be_repository(path: &Path) -> Option<&Path> {
    let directory = path.parent()?;
    let name = path.file_name()?.as_encoded_bytes();
    let named = |names: &[&str]| names.iter().any(|own| own.as_bytes() == name);
    if PARTS.contains(&name) || named(SETTINGS) || name == b"hooks" {
        return Some(directory);
    }
    (directory.file_name()? == "hooks").then(|| directory.parent()).flatten()
}

/// Parts of a repository that have git run a program or read other settings, each with the reason, as far as can be told.
pub(super) fn programs(repository: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for name in SETTINGS {
        let path = repository.join(name);
        let why = match settings(&path).map(|text| gitconfig::first_not_harmless(&text)) {
            Some(Ok(Some(key))) => format!("git in this repository does what {key} says"),
            Some(Err(_unreadable)) => "git may read in it what could not be read here".to_owned(),
            // A link to somewhere, or too long.
            None if fs::symlink_metadata(&path).is_ok() => "git may read in it what could not be read here".to_owned(),
            Some(Ok(None)) | None => continue,
        };
        all.push((path, why));
    }
    let common = repository.join("commondir");
    if fs::symlink_metadata(&common).is_ok() {
        all.push((common, "git takes this repository's settings and hooks from where it leads".to_owned()));
    }
    let hooks = fs::read_dir(repository.join("hooks")).into_iter().flatten().flatten().take(HOOKS);
    let runs = |path: &PathBuf| path.extension().is_none_or(|end| end != "sample");
    let hooks = hooks.map(|entry| entry.path()).filter(runs);
    all.extend(hooks.map(|path| (path, "git in this repository runs it".to_owned())));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_have_a_part_in_a_repository() {
        for (path, repository) in [
            ("/w/x/HEAD", Some("/w/x")),
            ("/w/x/config", Some("/w/x")),
            ("/w/x/hooks/pre-push", Some("/w/x")),
            ("/w/x/hooks", Some("/w/x")),
            ("/w/x/main.rs", None),
            ("/w/x/head", None),
        ] {
            assert_eq!(may_be_repository(Path::new(path)), repository.map(Path::new), "{path}");
        }
    }
}
