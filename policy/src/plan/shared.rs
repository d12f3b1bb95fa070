//! Parts of `/usr` and `/opt` that a session reads and may start programs from: those that root owns and everybody may read (decision
//! 0040).
//!
//! The trees are too large to be walked at each start. So the supervisor looks where people put things besides the distribution
//! ([`entries`]), and takes what lies deeper for what the directory above it is: there root alone can have put something.

use std::path::Path;

use super::etc::{Attributes, EntryKind};

/// The trees, outermost first.
pub const TREES: [&str; 2] = ["/usr", "/opt"];

/// How deep below a directory its entries are looked at, besides the entries of `/usr` itself.
const LOOKED_INTO: &[(&str, usize)] = &[("/usr/local", 2), ("/usr/src", 2), ("/opt", 2)];

/// Settings lie in directories of this name (hier(7)), which are looked at as a whole.
const SETTINGS: &str = "etc";

/// True if the entries of this directory are looked at, each by itself. `path` is one of the trees or lies in one.
#[must_use]
pub fn entries(path: &Path) -> bool {
    let depth = |top: &str| path.strip_prefix(top).ok().map(|below| below.components().count());
    let near = LOOKED_INTO.iter().any(|(top, most)| depth(top).is_some_and(|depth| depth < *most));
    path == Path::new("/usr") || near || path.iter().any(|name| name == SETTINGS)
}

/// True if root owns it and everybody may read it. A directory for everybody's own files, as `/tmp` is one (sticky and writable for
/// all), is not the system's: what lies in it is not looked at, and may be anybody's. A directory without that bit that everybody may
/// change is a toolchain that was opened to all users, as in many container images.
#[must_use]
pub fn is_everybodys(about: &Attributes) -> bool {
    let open = match about.kind {
        EntryKind::Directory => 0o5,
        EntryKind::File => 0o4,
        EntryKind::Other => return false,
    };
    about.uid == 0 && about.mode & open == open && about.mode & 0o1002 != 0o1002
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::FileId;

    #[test]
    fn what_is_looked_at() {
        for (path, is) in [
            ("/usr", true),
            ("/usr/bin", false),
            ("/usr/lib/python3", false),
            ("/usr/etc/x", true),
            ("/usr/local", true),
            ("/usr/local/lib", true),
            ("/usr/local/lib/python3", false),
            ("/usr/local/etc/a/b/c", true),
            ("/usr/src/app", true),
            ("/usr/src/app/src", false),
            ("/opt", true),
            ("/opt/x", true),
            ("/opt/x/lib", false),
            ("/opt/x/etc", true),
        ] {
            assert_eq!(entries(Path::new(path)), is, "{path}");
        }
    }

    #[test]
    fn what_is_everybodys() {
        let about = |kind, uid, gid, mode| Attributes {
            kind,
            uid,
            gid,
            mode,
            is_mount: false,
            id: FileId { device: 1, inode: 2 },
        };
        for (attributes, is) in [
            (about(EntryKind::Directory, 0, 0, 0o755), true),
            (about(EntryKind::Directory, 0, 50, 0o2775), true),
            (about(EntryKind::Directory, 0, 0, 0o1777), false),
            (about(EntryKind::Directory, 0, 0, 0o777), true),
            (about(EntryKind::File, 0, 0, 0o777), true),
            (about(EntryKind::Directory, 0, 0, 0o711), false),
            (about(EntryKind::Directory, 0, 0, 0o750), false),
            (about(EntryKind::Directory, 1000, 0, 0o755), false),
            (about(EntryKind::File, 0, 0, 0o644), true),
            (about(EntryKind::File, 0, 0, 0o4755), true),
            (about(EntryKind::File, 0, 0, 0o600), false),
            (about(EntryKind::File, 1000, 1000, 0o644), false),
            (about(EntryKind::Other, 0, 0, 0o644), false),
        ] {
            assert_eq!(is_everybodys(&attributes), is, "{attributes:?}");
        }
    }
}
