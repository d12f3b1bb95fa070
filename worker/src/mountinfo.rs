//! What is mounted where, as the kernel reports it (proc_pid_mountinfo(5)).

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
pub struct Mount {
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
    let text = fs::read("/proc/self/mountinfo")?;
    parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/mountinfo is in no known form"))
}

/// `None` if a line has no known form.
pub(crate) fn parse(text: &[u8]) -> Option<Vec<Mount>> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(Mount::parse).collect()
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let (device, root, at) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Self { at: unescaped(at)?, device: device.to_owned(), root: unescaped(root)? })
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
