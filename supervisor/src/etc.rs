//! The walk of `/etc`: which of it a session may read ([`callgate_policy::plan::etc`] has the rule).
//!
//! Once per session, by descriptor and through no link. Directories that may be changed by anybody but root are not entered, so
//! that nothing changes under the walk but by root's hand.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use callgate_policy::path::HostPath;
use callgate_policy::plan::etc::{Attributes, ByName, Directory, Found, Kind, Readable, Reading, by_name};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, StatxAttributes, StatxFlags};

/// Most entries that are looked at. A large `/etc` has five thousand; what comes after these is not readable.
const ENTRIES: usize = 20_000;
/// How deep directories lie that are looked at.
const DEPTH: usize = 16;

/// Readable part of `/etc`. Nothing, if it is not as it should be: that only takes rights away.
pub(crate) fn readable() -> Vec<Readable> {
    open(CWD, OsStr::new(ETC)).map(readable_in).unwrap_or_default()
}

/// Where what is walked stands.
const ETC: &str = "/etc";

fn readable_in(top: OwnedFd) -> Vec<Readable> {
    // As a whole it may be a mount, as in some images.
    let is_fit = |about: Attributes| Attributes { is_mount: false, ..about }.fit();
    if !attributes(&top, OsStr::new(".")).is_some_and(is_fit) {
        return Vec::new();
    }
    let mut walk = Walk { left: ENTRIES };
    let found = walk.directory(&top, ETC.into(), DEPTH);
    if walk.left == 0 {
        tracing::warn!(
            most = ENTRIES,
            "/etc has more entries than are looked at; the rest is not readable in the sandbox"
        );
    }
    match found {
        Found::Whole => vec![Readable { path: ETC.into(), reading: Reading::Tree }],
        Found::Parts { mut parts, .. } => {
            parts.sort_unstable(); // the order of a directory is nobody's
            parts
        }
    }
}

struct Walk {
    left: usize,
}

impl Walk {
    fn directory(&mut self, opened: &OwnedFd, path: HostPath, depth: usize) -> Found {
        let mut directory = Directory::new(path.clone());
        let Ok(entries) = Dir::read_from(opened) else {
            directory.hidden(true);
            return directory.close();
        };
        for entry in entries {
            let Ok(entry) = entry else {
                directory.hidden(true);
                break;
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let Some(left) = self.left.checked_sub(1) else {
                directory.hidden(true);
                break;
            };
            self.left = left;
            let path = HostPath::from(path.as_path().join(name));
            self.entry(&mut directory, (opened, name, entry.file_type()), path, depth);
        }
        directory.close()
    }

    fn entry(
        &mut self,
        directory: &mut Directory,
        (parent, name, kind): (&OwnedFd, &OsStr, FileType),
        path: HostPath,
        depth: usize,
    ) {
        if kind == FileType::Symlink {
            return; // it holds nothing, and the kernel judges what it leads to
        }
        match by_name(&path) {
            ByName::Granted => return,
            ByName::Hidden => return directory.hidden(kind != FileType::RegularFile),
            ByName::Open => {}
        }
        match attributes(parent.as_fd(), name).filter(Attributes::fit) {
            Some(about) if about.kind == Kind::File => directory.file(path),
            Some(_) if depth > 0 => match open(parent.as_fd(), name) {
                Some(opened) => {
                    let found = self.directory(&opened, path.clone(), depth - 1);
                    directory.directory(path, found);
                }
                None => directory.hidden(true),
            },
            Some(_) | None => directory.hidden(kind != FileType::RegularFile),
        }
    }
}

fn open(parent: impl AsFd, name: &OsStr) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty()).ok()
}

/// `None` where the kernel does not say, and for a link.
fn attributes(parent: impl AsFd, name: &OsStr) -> Option<Attributes> {
    // An automounter is not to be woken.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let wanted = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::UID | StatxFlags::GID;
    let about = rustix::fs::statx(parent, name, flags, wanted).ok()?;
    let kind = match FileType::from_raw_mode(about.stx_mode.into()) {
        FileType::Directory => Kind::Directory,
        FileType::RegularFile => Kind::File,
        FileType::Symlink => return None,
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            Kind::Other
        }
    };
    Some(Attributes {
        kind,
        uid: about.stx_uid,
        gid: about.stx_gid,
        mode: about.stx_mode & 0o7777,
        is_mount: about.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    /// A directory to stand for `/etc`, as one would be: a tree, a file that is closed, links, names of secrets.
    fn furnished() -> tempfile::TempDir {
        let top = tempfile::tempdir().expect("a scratch directory");
        let mode = |name: &str, mode| fs::set_permissions(top.path().join(name), fs::Permissions::from_mode(mode));
        for directory in
            ["", "open", "open/sub", "mixed", "mixed/sub", "closed", "closing", "closing/closed", "openvpn"]
        {
            fs::create_dir_all(top.path().join(directory)).expect("a scratch directory");
            mode(directory, if directory.ends_with("closed") { 0o700 } else { 0o755 }).expect("a scratch directory");
        }
        for (file, bits) in [
            ("plain", 0o644),
            ("shadow", 0o644),
            ("group-readable", 0o640),
            ("open/f", 0o644),
            ("open/sub/f", 0o644),
            ("mixed/f", 0o644),
            ("mixed/password", 0o644),
            ("mixed/sub/f", 0o644),
            ("closed/f", 0o644),
            ("closing/f", 0o644),
            ("closing/closed/f", 0o644),
            ("openvpn/office.conf", 0o644),
        ] {
            fs::write(top.path().join(file), "x").expect("a scratch directory");
            mode(file, bits).expect("a scratch directory");
        }
        symlink("/root/key", top.path().join("open/link")).expect("a scratch directory");
        top
    }

    fn parts(top: &tempfile::TempDir) -> Vec<(String, Reading)> {
        let found = readable_in(open(CWD, top.path().as_os_str()).expect("a scratch directory"));
        found.into_iter().map(|part| (part.path.to_string(), part.reading)).collect()
    }

    #[test]
    fn a_walk_grants_what_everyone_may_read() {
        let top = furnished();
        if fs::metadata(top.path()).unwrap().uid() != 0 {
            assert_eq!(parts(&top), [], "what is not root's is no part of the system");
            eprintln!("SKIP the rest: it takes files of root's");
            return;
        }
        let wanted = [
            ("/etc/closing/f", Reading::File),
            ("/etc/mixed", Reading::Names),
            ("/etc/mixed/f", Reading::File),
            ("/etc/mixed/sub", Reading::Tree),
            ("/etc/open", Reading::Tree),
            ("/etc/plain", Reading::File),
        ];
        assert_eq!(parts(&top), wanted.map(|(path, reading)| (path.to_owned(), reading)));
        fs::set_permissions(top.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(parts(&top), []);
    }

    #[test]
    fn a_walk_ends() {
        let top = furnished();
        let opened = open(CWD, top.path().as_os_str()).unwrap();
        let found = Walk { left: 3 }.directory(&opened, ETC.into(), DEPTH);
        assert!(matches!(found, Found::Parts { parts, lists: false } if parts.len() <= 3));
        let found = Walk { left: ENTRIES }.directory(&opened, ETC.into(), 0);
        let is_shallow = |parts: &[Readable]| parts.iter().all(|part| part.reading == Reading::File);
        assert!(matches!(&found, Found::Parts { parts, .. } if !parts.is_empty() && is_shallow(parts)), "{found:?}");
    }
}
