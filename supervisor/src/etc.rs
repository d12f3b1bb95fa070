//! The walk of the system: which of `/etc`, `/usr` and `/opt` a session may read ([`callgate_policy::plan::etc`] and
//! [`callgate_policy::plan::shared`] have the rules).
//!
//! Once per session, by descriptor and through no link. Directories that anybody may change are not entered, so that nothing changes
//! under the walk but by root's hand.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::owner;
use callgate_policy::path::HostPath;
use callgate_policy::plan::FileId;
use callgate_policy::plan::etc::{
    Attributes, ByName, EntryKind, EtcReading, Readable, ReadablePart, WalkedDirectory, by_name,
};
use callgate_policy::plan::shared::{self, TREES};
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
    walked(top, ETC, Rule::Etc)
}

/// Finds the parts of `/usr` and `/opt` that are readable. A tree that is not as it should be is not: that only takes rights away.
pub(crate) fn shared() -> Vec<Readable> {
    let trees = TREES.into_iter().filter_map(|tree| Some((tree, open(CWD, OsStr::new(tree))?)));
    trees.flat_map(|(tree, top)| walked(top, tree, Rule::Shared)).collect()
}

/// The outermost directory, or file, of `/usr` or `/opt` that holds this path and nothing that is readable: what has to be granted by
/// name. `None` if the path is readable, or lies elsewhere.
pub(crate) fn not_shared(path: &Path, shared: &[Readable]) -> Option<PathBuf> {
    let lies_in_tree = TREES.iter().any(|tree| path.starts_with(tree) && path != Path::new(tree));
    let is_readable = |readable: &Readable| readable.reading != EtcReading::Names && path.starts_with(&readable.path);
    if !lies_in_tree || shared.iter().any(is_readable) {
        return None;
    }
    let holds = |above: &&Path| shared.iter().any(|readable| readable.path.as_path().starts_with(above));
    let above: Vec<&Path> = path.ancestors().collect();
    above.into_iter().rev().skip(2).find(|above| !holds(above)).map(Path::to_owned)
}

fn walked(top: OwnedFd, path: &str, rule: Rule) -> Vec<Readable> {
    // As a whole it may be a mount, as in some images.
    let whole = attributes(top.as_fd(), OsStr::new(".")).map(|about| Attributes { is_mount: false, ..about });
    let Some(whole) = whole.filter(|about| rule.fits(about)) else { return Vec::new() };
    let mut walk = Walk { left: ENTRIES, rule };
    let found = walk.directory(top, (path.into(), whole.id), DEPTH);
    if walk.left == 0 {
        tracing::warn!(
            most = ENTRIES,
            "{path} has more entries than are looked at; the rest is not readable in the sandbox"
        );
    }
    match found {
        ReadablePart::Whole => vec![Readable { path: path.into(), reading: EtcReading::Tree, id: whole.id }],
        ReadablePart::Parts { mut parts, .. } => {
            parts.sort_unstable(); // the order of a directory is nobody's
            parts
        }
    }
}

/// Rule that decides about an entry.
#[derive(Debug, Clone, Copy)]
enum Rule {
    /// That of `/etc`.
    Etc,
    /// That of the trees of programs.
    Shared,
}

impl Rule {
    fn by_name(self, path: &HostPath) -> ByName {
        match self {
            Self::Etc => by_name(path),
            Self::Shared => ByName::Open,
        }
    }

    fn fits(self, about: &Attributes) -> bool {
        match self {
            Self::Etc => about.fit(),
            // What root of an outer user namespace owns is shown as nobody's, and this one's processes cannot act as them.
            Self::Shared => {
                let uid = if owner::is_somebody(about.uid) { about.uid } else { 0 };
                shared::is_everybodys(&Attributes { uid, ..*about })
            }
        }
    }

    /// True if what lies in the directory is looked at.
    fn enters(self, path: &HostPath) -> bool {
        match self {
            Self::Etc => true,
            Self::Shared => shared::entries(path.as_path()),
        }
    }
}

struct Walk {
    left: usize,
    rule: Rule,
}

impl Walk {
    fn directory(&mut self, opened: OwnedFd, (path, id): (HostPath, FileId), depth: usize) -> ReadablePart {
        let mut directory = WalkedDirectory::new(path.clone(), id);
        // It takes what is open; to open it once more for its own would be every third call of the walk.
        let Ok(mut entries) = Dir::new(opened) else {
            directory.hidden(true);
            return directory.close();
        };
        while let Some(entry) = entries.read() {
            let (Ok(entry), Ok(opened)) = (entry, entries.fd()) else {
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
        directory: &mut WalkedDirectory,
        (parent, name, kind): (BorrowedFd<'_>, &OsStr, FileType),
        path: HostPath,
        depth: usize,
    ) {
        if kind == FileType::Symlink {
            return; // it holds nothing, and the kernel judges what it leads to
        }
        match self.rule.by_name(&path) {
            ByName::Granted => return,
            ByName::Hidden => return directory.hidden(kind != FileType::RegularFile),
            ByName::Open => {}
        }
        match attributes(parent, name).filter(|about| self.rule.fits(about)) {
            Some(about) if about.kind == EntryKind::File => directory.file(path, about.id),
            Some(about) if !self.rule.enters(&path) => directory.directory(path, about.id, ReadablePart::Whole),
            // What is entered is what was judged: another directory may have its name by now.
            Some(about) if depth > 0 => match open(parent, name).filter(|opened| is_still(opened, about.id)) {
                Some(opened) => {
                    let found = self.directory(opened, (path.clone(), about.id), depth - 1);
                    directory.directory(path, about.id, found);
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

fn is_still(opened: &OwnedFd, id: FileId) -> bool {
    rustix::fs::fstat(opened).is_ok_and(|stat| FileId { device: stat.st_dev, inode: stat.st_ino } == id)
}

/// `None` where the kernel does not say, and for a link.
fn attributes(parent: impl AsFd, name: &OsStr) -> Option<Attributes> {
    // An automounter is not to be woken.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let wanted = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::UID | StatxFlags::GID | StatxFlags::INO;
    let about = rustix::fs::statx(parent, name, flags, wanted).ok()?;
    let kind = match FileType::from_raw_mode(about.stx_mode.into()) {
        FileType::Directory => EntryKind::Directory,
        FileType::RegularFile => EntryKind::File,
        FileType::Symlink => return None,
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            EntryKind::Other
        }
    };
    Some(Attributes {
        kind,
        uid: about.stx_uid,
        gid: about.stx_gid,
        mode: about.stx_mode & 0o7777,
        is_mount: about.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        id: FileId { device: rustix::fs::makedev(about.stx_dev_major, about.stx_dev_minor), inode: about.stx_ino },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    const ID: FileId = FileId { device: 1, inode: 2 };

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

    fn parts(top: &tempfile::TempDir) -> Vec<(String, EtcReading)> {
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
            ("/etc/closing/f", EtcReading::File),
            ("/etc/mixed", EtcReading::Names),
            ("/etc/mixed/f", EtcReading::File),
            ("/etc/mixed/sub", EtcReading::Tree),
            ("/etc/open", EtcReading::Tree),
            ("/etc/plain", EtcReading::File),
        ];
        assert_eq!(parts(&top), wanted.map(|(path, reading)| (path.to_owned(), reading)));
        fs::set_permissions(top.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(parts(&top), []);
    }

    #[test]
    fn a_walk_ends() {
        let top = furnished();
        let opened = || open(CWD, top.path().as_os_str()).unwrap();
        let found = Walk { left: 3, rule: Rule::Etc }.directory(opened(), (ETC.into(), ID), DEPTH);
        assert!(matches!(found, ReadablePart::Parts { parts, lists: false } if parts.len() <= 3));
        let found = Walk { left: ENTRIES, rule: Rule::Etc }.directory(opened(), (ETC.into(), ID), 0);
        let is_shallow = |parts: &[Readable]| parts.iter().all(|part| part.reading == EtcReading::File);
        assert!(
            matches!(&found, ReadablePart::Parts { parts, .. } if !parts.is_empty() && is_shallow(parts)),
            "{found:?}"
        );
    }

    /// Files that somebody else than root keeps beside toolchains, and what root keeps for itself, is not shared.
    #[test]
    fn a_walk_of_programs_grants_what_root_owns_and_everyone_may_read() {
        let top = tempfile::tempdir().unwrap();
        if fs::metadata(top.path()).unwrap().uid() != 0 {
            eprintln!("SKIP: it takes files of root's");
            return;
        }
        let at = |name: &str| top.path().join(name);
        let mode = |name: &str, mode| fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        for directory in ["", "tool", "tool/bin", "tool/lib", "mine", "app", "app/etc", "app/etc/deep"] {
            fs::create_dir_all(at(directory)).unwrap();
            mode(directory, 0o755);
        }
        for (file, bits) in [
            ("tool/bin/tool", 0o755),
            ("tool/lib/closed", 0o600),
            ("mine/.env", 0o600),
            ("app/.env", 0o600),
            ("app/run", 0o755),
            ("app/etc/deep/key", 0o600),
            ("app/etc/deep/open", 0o644),
        ] {
            fs::write(at(file), "x").unwrap();
            mode(file, bits);
        }
        std::os::unix::fs::chown(at("mine"), Some(4242), Some(4242)).unwrap();
        let parts = || {
            let found = walked(open(CWD, top.path().as_os_str()).unwrap(), "/opt", Rule::Shared);
            found.into_iter().map(|part| (part.path.to_string(), part.reading)).collect::<Vec<_>>()
        };
        let wanted = [
            ("/opt/app", EtcReading::Names),
            ("/opt/app/etc/deep/open", EtcReading::File),
            ("/opt/app/run", EtcReading::File),
            // What lies deeper than is looked at goes with its directory.
            ("/opt/tool", EtcReading::Tree),
        ];
        assert_eq!(parts(), wanted.map(|(path, reading)| (path.to_owned(), reading)));
        std::os::unix::fs::chown(at("mine"), Some(0), Some(0)).unwrap();
        ["mine/.env", "app/.env", "app/etc/deep/key"].iter().for_each(|file| mode(file, 0o644));
        assert_eq!(
            parts(),
            [("/opt".to_owned(), EtcReading::Tree)],
            "one rule is enough where nothing is anybody's own"
        );
        mode("", 0o777);
        assert_eq!(parts(), [("/opt".to_owned(), EtcReading::Tree)], "a toolchain that was opened to all users");
        mode("", 0o1777);
        assert_eq!(parts(), [], "a place for everybody's files");
    }
}
