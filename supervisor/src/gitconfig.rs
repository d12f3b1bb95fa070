//! Finds the person's own git configuration. What sessions get of it is decided by
//! [`personal`](callgate_policy::plan::protect::personal).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use callgate_policy::path::HostPath;
use callgate_policy::plan::protect::personal;

use crate::place;

/// Most bytes of a file that is read; a larger one is passed over.
const LONGEST: u64 = 64 * 1024;

/// Content of `~/.gitconfig` in sessions. Empty if the person has no such file, or nothing in it is for sessions.
pub(crate) fn for_sessions(env: &BTreeMap<String, HostPath>, home: Option<&Path>) -> String {
    let files: Vec<Vec<u8>> = places(env, home).iter().filter_map(|path| read(path)).collect();
    personal::for_sessions(&files)
}

/// Where git looks, in its order (git-config(1), FILES). `GIT_CONFIG_GLOBAL` stands for both others, and may be `/dev/null`.
fn places(env: &BTreeMap<String, HostPath>, home: Option<&Path>) -> Vec<PathBuf> {
    if let Some(only) = env.get("GIT_CONFIG_GLOBAL") {
        return vec![only.as_path().to_owned()];
    }
    let of_person = env.get("XDG_CONFIG_HOME").map(|path| path.as_path().to_owned());
    let xdg = of_person.filter(|path| path.is_absolute()).or_else(|| Some(home?.join(".config")));
    let files = [xdg.map(|directory| directory.join("git/config")), home.map(|home| home.join(".gitconfig"))];
    files.into_iter().flatten().collect()
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    place::open_own_file(path)?.take(LONGEST + 1).read_to_end(&mut text).ok()?;
    (text.len() as u64 <= LONGEST).then_some(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    fn env(pairs: &[(&str, &Path)]) -> BTreeMap<String, HostPath> {
        pairs.iter().map(|(name, path)| ((*name).to_owned(), HostPath::from(*path))).collect()
    }

    #[test]
    fn files_are_found_where_git_looks() {
        let top = tempfile::tempdir().unwrap();
        let home = top.path().join("home");
        fs::create_dir_all(home.join(".config/git")).unwrap();
        fs::create_dir_all(top.path().join("xdg/git")).unwrap();
        for (name, who) in
            [("home/.config/git/config", "a"), ("xdg/git/config", "x"), ("home/.gitconfig", "b"), ("only", "o")]
        {
            fs::write(top.path().join(name), format!("[user]\nname = {who}\n")).unwrap();
        }
        let names = |pairs: &[(&str, &Path)]| {
            let text = for_sessions(&env(pairs), Some(&home));
            text.lines().filter_map(|line| Some(line.split_once('"')?.1.replace('"', ""))).collect::<String>()
        };
        assert_eq!(names(&[]), "ab");
        assert_eq!(names(&[("XDG_CONFIG_HOME", &top.path().join("xdg"))]), "xb");
        assert_eq!(names(&[("XDG_CONFIG_HOME", Path::new("xdg"))]), "ab");
        assert_eq!(names(&[("GIT_CONFIG_GLOBAL", &top.path().join("only"))]), "o");
        assert_eq!(names(&[("GIT_CONFIG_GLOBAL", Path::new("/dev/null"))]), "");
        assert_eq!(for_sessions(&env(&[]), None), "");
    }

    /// A file that is no plain file of this user's, or too large, is passed over; nothing waits for a FIFO.
    #[test]
    fn only_a_file_of_this_user_s_is_read() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::write(at("file"), "[user]\n").unwrap();
        symlink("file", at("link")).unwrap();
        fs::write(at("large"), "#".repeat(usize::try_from(LONGEST).unwrap() + 1)).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(read(&at("file")).as_deref(), Some(&b"[user]\n"[..]));
        // As it is where dotfiles are kept in a repository.
        assert_eq!(read(&at("link")).as_deref(), Some(&b"[user]\n"[..]));
        for name in ["large", "fifo", "absent", ""] {
            assert_eq!(read(&at(name)), None, "{name}");
        }
        if rustix::process::geteuid().is_root() {
            fs::write(at("theirs"), "[user]\n").unwrap();
            chown(at("theirs"), Some(4242), None).unwrap();
            symlink("file", at("their-link")).unwrap();
            std::os::unix::fs::lchown(at("their-link"), Some(4242), None).unwrap();
            assert_eq!((read(&at("theirs")), read(&at("their-link"))), (None, None));
        }
    }
}
