//! Mounts, as the kernel reports them (proc_pid_mountinfo(5)).

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Bytes that most hosts' lists need at most.
const USUAL: usize = 64 * 1024;

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
pub struct Mount {
    id: u64,
    /// That of the mount on which it lies.
    parent: u64,
    /// The mount point.
    pub at: PathBuf,
    /// The file system, as `major:minor`.
    pub device: Vec<u8>,
    /// The directory of that file system which is seen there.
    pub root: PathBuf,
}

/// All mounts that this process sees.
///
/// # Errors
/// The kernel's own; [`io::ErrorKind::InvalidData`] for lines of no known form.
#[allow(clippy::disallowed_methods, reason = "procfs is the kernel's: nobody puts a link in its files' place")]
pub fn read() -> io::Result<Vec<Mount>> {
    // The kernel says that it has no length: without room for all of it, it is read in pieces of a few bytes.
    let mut text = Vec::with_capacity(USUAL);
    fs::File::open("/proc/self/mountinfo")?.read_to_end(&mut text)?;
    parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/mountinfo is in no known form"))
}

/// Other names of the place at a path: by other mounts that show it (bind mounts). The path has no links in it.
#[must_use]
pub fn other_names(mounts: &[Mount], path: &Path) -> Vec<PathBuf> {
    let Some(over) = over(mounts, path) else { return Vec::new() };
    let within = over.root.join(path.strip_prefix(&over.at).unwrap_or(path));
    let views = mounts.iter().filter(|mount| mount.device == over.device);
    let names = views.filter_map(|mount| Some(below(&mount.at, within.strip_prefix(&mount.root).ok()?)));
    names.filter(|name| name != path).collect()
}

/// Mount that shows what has a path. One that lies beneath a later mount on a directory above is not reached by its own path.
#[must_use]
pub fn over<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let covers = || mounts.iter().filter(|mount| path.starts_with(&mount.at));
    let length = |mount: &&Mount| mount.at.as_os_str().len();
    let is_first = |mount: &&Mount| !mounts.iter().any(|other| other.id == mount.parent && other.id != mount.id);
    // In a chroot(2) the first is not known; then the last of those that are nearest.
    let Some(mut over) = covers().filter(|mount| mount.at == Path::new("/")).find(is_first) else {
        return covers().max_by_key(length);
    };
    // As the kernel goes: each name leads from one mount to the first that lies on it there.
    for _ in mounts {
        let on_it = covers().filter(|mount| mount.parent == over.id && mount.id != over.id);
        let Some(next) = on_it.min_by_key(length) else { break };
        over = next;
    }
    Some(over)
}

/// Joins two paths. Nothing joined to the name of a file is that name: [`Path::join`] would end it with a slash, which is
/// another name by its bytes and to the kernel.
fn below(at: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { at.to_owned() } else { at.join(rest) }
}

/// `None` if a line has no known form.
pub(crate) fn parse(text: &[u8]) -> Option<Vec<Mount>> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(Mount::parse).collect()
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
        let (id, parent) = (number(fields.next()?)?, number(fields.next()?)?);
        let (device, root, at) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Self { id, parent, at: unescaped(at)?, device: device.to_owned(), root: unescaped(root)? })
    }
}

/// Blanks and backslashes stand as `\040` in it.
fn unescaped(field: &[u8]) -> Option<PathBuf> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'\\' {
            plain.push(*first);
            continue;
        }
        let (digits, after) = after.split_at_checked(3)?;
        let digits = std::str::from_utf8(digits).ok()?;
        plain.push(u8::from_str_radix(digits, 8).ok()?);
        rest = after;
    }
    Some(PathBuf::from(OsStr::from_bytes(&plain)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a10_a_place_has_a_name_by_each_mount_that_shows_it() {
        let text = b"1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 / /data rw - ext4 b rw\n3 1 8:2 /homes /home rw - ext4 b rw\n";
        let mounts = parse(text).unwrap_or_default();
        let names = |path| other_names(&mounts, Path::new(path));
        assert_eq!(names("/home/u/.ssh"), [PathBuf::from("/data/homes/u/.ssh")]);
        assert_eq!(names("/data/homes/u"), [PathBuf::from("/home/u")]);
        assert_eq!(names("/home"), [PathBuf::from("/data/homes/")]);
        // Later mounts on top, of the same place and of one above.
        let text = b"1 0 8:1 / / rw\n2 1 8:2 / /a/b rw\n3 1 8:3 / /a rw\n4 3 8:4 / /a rw\n5 4 8:5 / /a/c rw\n";
        let hidden = parse(text).unwrap_or_default();
        let over = |path: &str| over(&hidden, Path::new(path)).map(|mount| mount.id);
        assert_eq!(["/", "/a/b/x", "/a", "/a/c/x"].map(over), [Some(1), Some(4), Some(4), Some(5)]);
        assert!(names("/data/other").is_empty() && names("/etc").is_empty(), "the control");
    }
}
