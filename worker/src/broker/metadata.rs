//! Modes, owners, times and extended attributes: what Landlock does not cover (A12). Each is carried out on a descriptor
//! that was judged by where the kernel says it is.

use std::ffi::CString;
use std::os::fd::{AsFd as _, AsRawFd as _};

use callgate_policy::envelope::Blocked;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::caller::{Caller, LastLink, PinnedFile};
use super::refused::refuse;
use super::state::{Broker, NotificationHandler};
use crate::sys::notify::{CallReply, Notification};

pub(super) const HANDLERS: &[(libc::c_long, NotificationHandler)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, |b, c, n| chmod(b, c, libc::AT_FDCWD, n.args[0], n.args[1])),
    (libc::SYS_fchmodat, |b, c, n| chmod(b, c, int(n.args[0]), n.args[1], n.args[2])),
    (libc::SYS_fchmod, |b, c, n| {
        let target = b.own_open_fd(c, int(n.args[0]))?;
        set_mode(&target, n.args[1])
    }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chown, |b, c, n| chown(b, c, (libc::AT_FDCWD, n.args[0], LastLink::Follow), n.args[1], n.args[2])),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_lchown, |b, c, n| chown(b, c, (libc::AT_FDCWD, n.args[0], LastLink::Keep), n.args[1], n.args[2])),
    (libc::SYS_fchownat, fchownat),
    (libc::SYS_fchown, |b, c, n| {
        let target = b.own_open_fd(c, int(n.args[0]))?;
        set_owner(b, c, &target, n.args[1], n.args[2])
    }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_utime, |b, c, n| {
        let times = utime_times(c, n.args[1])?;
        let target = b.own_path(c, libc::AT_FDCWD, n.args[0], LastLink::Follow)?;
        set_times(&target, &times)
    }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_utimes, |b, c, n| utimes(b, c, libc::AT_FDCWD, n.args[0], n.args[1])),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_futimesat, |b, c, n| utimes(b, c, int(n.args[0]), n.args[1], n.args[2])),
    (libc::SYS_utimensat, utimensat),
    (libc::SYS_truncate, |b, c, n| {
        if n.args[1].cast_signed() < 0 {
            return Err(libc::EINVAL);
        }
        let target = b.own_path(c, libc::AT_FDCWD, n.args[0], LastLink::Follow)?;
        truncate(&target, n.args[1])
    }),
    (libc::SYS_setxattr, |b, c, n| setxattr(b, c, n, LastLink::Follow)),
    (libc::SYS_lsetxattr, |b, c, n| setxattr(b, c, n, LastLink::Keep)),
    (libc::SYS_fsetxattr, |b, c, n| {
        let attribute = Attribute::of(c, n)?;
        attribute.set(&b.own_open_fd(c, int(n.args[0]))?)
    }),
    (libc::SYS_removexattr, |b, c, n| removexattr(b, c, n, LastLink::Follow)),
    (libc::SYS_lremovexattr, |b, c, n| removexattr(b, c, n, LastLink::Keep)),
    (libc::SYS_fremovexattr, |b, c, n| {
        let name = attribute_name(c, n.args[1])?;
        remove_attribute(&b.own_open_fd(c, int(n.args[0]))?, &name)
    }),
];

/// truncate(2), where Landlock has no right for it.
#[expect(
    clippy::disallowed_methods,
    reason = "a link of procfs to a descriptor that was judged: the file itself, whatever its name leads to now"
)]
fn truncate(target: &PinnedFile, length: u64) -> Result<CallReply, i32> {
    let raw = rustix::io::Errno::raw_os_error;
    let stat = rustix::fs::fstat(&target.fd).map_err(raw)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(libc::EISDIR),
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => return Err(libc::EINVAL),
    }
    // The descriptor that was judged is opened again, not its name.
    let link = format!("/proc/self/fd/{}", target.fd.as_raw_fd());
    let file = rustix::fs::open(link, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map_err(raw)?;
    rustix::fs::ftruncate(&file, length).map_err(raw)?;
    Ok(CallReply::Return(0))
}

/// A C `int` argument: its low 32 bits, whatever the caller put above them (D5).
pub(super) fn int(argument: u64) -> i32 {
    (argument as u32).cast_signed()
}

impl Broker {
    /// Target of a name, if it lies where the call may write.
    fn own_path(&mut self, caller: &Caller<'_>, dirfd: i32, path: u64, links: LastLink) -> Result<PinnedFile, i32> {
        let path = caller.path(path)?;
        if links == LastLink::Keep && caller.own_descriptor(path.as_bytes()).is_some() {
            // The link in /proc itself.
            return Err(libc::EPERM);
        }
        self.own(caller, caller.open(dirfd, &path, links)?)
    }

    fn own(&mut self, caller: &Caller<'_>, target: PinnedFile) -> Result<PinnedFile, i32> {
        let stat = rustix::fs::fstat(&target.fd).map_err(errno)?;
        if self.call(caller)?.written.grant_of(target.path()?, &stat).is_none() {
            return Err(libc::EACCES);
        }
        self.refuse_kept(caller, &target)?;
        Ok(target)
    }

    /// Target of an empty path.
    fn own_start(&mut self, caller: &Caller<'_>, dirfd: i32) -> Result<PinnedFile, i32> {
        if dirfd == libc::AT_FDCWD { self.own(caller, caller.open_start(dirfd)?) } else { self.own_fd(caller, dirfd) }
    }

    /// Target of a descriptor for a call that takes none that was opened with O_PATH.
    fn own_open_fd(&mut self, caller: &Caller<'_>, number: i32) -> Result<PinnedFile, i32> {
        let target = self.own_fd(caller, number)?;
        if caller.is_path_fd(number)? { Err(libc::EBADF) } else { Ok(target) }
    }

    /// Target of a descriptor, if it lies where the call may write; or a file without a name that the call has opened
    /// for writing (a removed temporary file, a memfd).
    fn own_fd(&mut self, caller: &Caller<'_>, number: i32) -> Result<PinnedFile, i32> {
        let target = caller.open_fd(number)?;
        let stat = rustix::fs::fstat(&target.fd).map_err(errno)?;
        if let Ok(path) = target.path() {
            return match self.call(caller)?.written.grant_of(path, &stat) {
                Some(_) => self.refuse_kept(caller, &target).map(|()| target),
                None => Err(libc::EACCES),
            };
        }
        let nameless = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 0;
        if nameless && caller.is_writable_fd(number)? { Ok(target) } else { Err(libc::EACCES) }
    }
}

/// The path by which this process reaches a descriptor without the right to read or write.
fn by_proc(target: &PinnedFile) -> String {
    format!("/proc/self/fd/{}", target.fd.as_raw_fd())
}

fn errno(e: rustix::io::Errno) -> i32 {
    e.raw_os_error()
}

const DONE: CallReply = CallReply::Return(0);

fn chmod(broker: &mut Broker, caller: &Caller<'_>, dirfd: i32, path: u64, mode: u64) -> Result<CallReply, i32> {
    let target = broker.own_path(caller, dirfd, path, LastLink::Follow)?;
    set_mode(&target, mode)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a link of procfs to a descriptor that was judged: the file itself, whatever its name leads to now"
)]
fn set_mode(target: &PinnedFile, mode: u64) -> Result<CallReply, i32> {
    let mode = (mode as u32) & 0o7777;
    // A set-user-ID program left in the workspace would lend the owner's identity, root's perhaps, to whoever runs it.
    if mode & 0o6000 != 0 {
        let stat = rustix::fs::fstat(&target.fd).map_err(errno)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(libc::EPERM);
        }
    }
    rustix::fs::chmod(by_proc(target), Mode::from_raw_mode(mode)).map_err(errno)?;
    Ok(DONE)
}

fn fchownat(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    let (dirfd, flags) = (int(n.args[0]), int(n.args[4]));
    if flags & !(libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
        return Err(libc::EINVAL);
    }
    let path = caller.path(n.args[1])?;
    if flags & libc::AT_EMPTY_PATH != 0 && path.is_empty() {
        let target = broker.own_start(caller, dirfd)?;
        return set_owner(broker, caller, &target, n.args[2], n.args[3]);
    }
    let links = if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { LastLink::Keep } else { LastLink::Follow };
    chown(broker, caller, (dirfd, n.args[1], links), n.args[2], n.args[3])
}

fn chown(
    broker: &mut Broker,
    caller: &Caller<'_>,
    (dirfd, path, links): (i32, u64, LastLink),
    uid: u64,
    gid: u64,
) -> Result<CallReply, i32> {
    let target = broker.own_path(caller, dirfd, path, links)?;
    set_owner(broker, caller, &target, uid, gid)
}

fn set_owner(
    broker: &mut Broker,
    caller: &Caller<'_>,
    target: &PinnedFile,
    uid: u64,
    gid: u64,
) -> Result<CallReply, i32> {
    // -1: leave as it is (chown(2)).
    let id = |raw: u64| Some(raw as u32).filter(|id| *id != u32::MAX);
    let (uid, gid) = (id(uid).map(Uid::from_raw), id(gid).map(Gid::from_raw));
    match rustix::fs::chownat(target.fd.as_fd(), "", uid, gid, AtFlags::EMPTY_PATH) {
        Ok(()) => Ok(DONE),
        // With namespaces the kernel does not know the other user (EINVAL); without, it does not let the broker (EPERM).
        Err(Errno::INVAL | Errno::PERM) => refuse(broker, caller, Blocked::Owner),
        Err(other) => Err(errno(other)),
    }
}

fn utimes(broker: &mut Broker, caller: &Caller<'_>, dirfd: i32, path: u64, times: u64) -> Result<CallReply, i32> {
    let times = timestamps(caller, times, 1_000)?;
    if path == 0 && dirfd != libc::AT_FDCWD {
        // futimesat(fd, NULL, times) means the descriptor itself.
        let target = broker.own_open_fd(caller, dirfd)?;
        return set_times(&target, &times);
    }
    let target = broker.own_path(caller, dirfd, path, LastLink::Follow)?;
    set_times(&target, &times)
}

fn utimensat(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    let (dirfd, path, flags) = (int(n.args[0]), n.args[1], int(n.args[3]));
    let times = timestamps(caller, n.args[2], 1)?;
    let omitted = |time: &Timespec| time.tv_nsec == libc::UTIME_OMIT;
    if omitted(&times.last_access) && omitted(&times.last_modification) {
        return Ok(DONE);
    }
    let by_fd = path == 0 && dirfd != libc::AT_FDCWD;
    let known = if by_fd { 0 } else { libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH };
    if flags & !known != 0 {
        return Err(libc::EINVAL);
    }
    let target = if by_fd {
        broker.own_open_fd(caller, dirfd)?
    } else if flags & libc::AT_EMPTY_PATH != 0 && caller.path(path)?.is_empty() {
        broker.own_start(caller, dirfd)?
    } else {
        let links = if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { LastLink::Keep } else { LastLink::Follow };
        broker.own_path(caller, dirfd, path, links)?
    };
    set_times(&target, &times)
}

fn set_times(target: &PinnedFile, times: &Timestamps) -> Result<CallReply, i32> {
    rustix::fs::utimensat(target.fd.as_fd(), "", times, AtFlags::EMPTY_PATH).map_err(errno)?;
    Ok(DONE)
}

/// Two pairs of longs: seconds, and nanoseconds (`scale` 1) or microseconds (`scale` 1000). A null pointer means now.
fn timestamps(caller: &Caller<'_>, address: u64, scale: i64) -> Result<Timestamps, i32> {
    if address == 0 {
        let now = Timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
        return Ok(Timestamps { last_access: now, last_modification: now });
    }
    let raw = caller.bytes(address, 32)?;
    let long = |index: usize| -> i64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&raw[index * 8..index * 8 + 8]);
        i64::from_ne_bytes(bytes)
    };
    let part = |at: usize| -> Result<Timespec, i32> {
        let fraction = long(at + 1);
        if scale != 1 && !(0..1_000_000).contains(&fraction) {
            return Err(libc::EINVAL);
        }
        Ok(Timespec { tv_sec: long(at), tv_nsec: fraction * scale })
    };
    Ok(Timestamps { last_access: part(0)?, last_modification: part(2)? })
}

/// utime(2)'s two longs, in seconds.
#[cfg(target_arch = "x86_64")]
fn utime_times(caller: &Caller<'_>, address: u64) -> Result<Timestamps, i32> {
    if address == 0 {
        return timestamps(caller, 0, 1);
    }
    let raw = caller.bytes(address, 16)?;
    let second = |range: std::ops::Range<usize>| -> Timespec {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&raw[range]);
        Timespec { tv_sec: i64::from_ne_bytes(bytes), tv_nsec: 0 }
    };
    Ok(Timestamps { last_access: second(0..8), last_modification: second(8..16) })
}

fn setxattr(broker: &mut Broker, caller: &Caller<'_>, n: &Notification, links: LastLink) -> Result<CallReply, i32> {
    let attribute = Attribute::of(caller, n)?;
    let target = broker.own_path(caller, libc::AT_FDCWD, n.args[0], links)?;
    refuse_link(&target)?;
    attribute.set(&target)
}

/// setxattr's arguments 1 to 4: name, value, size, flags. The kernel looks at them before the file.
struct Attribute {
    name: CString,
    value: Vec<u8>,
    flags: XattrFlags,
}

impl Attribute {
    fn of(caller: &Caller<'_>, n: &Notification) -> Result<Self, i32> {
        let flags = XattrFlags::from_bits_retain(n.args[4] as u32);
        if !(XattrFlags::CREATE | XattrFlags::REPLACE).contains(flags) {
            return Err(libc::EINVAL);
        }
        let name = attribute_name(caller, n.args[1])?;
        let size = usize::try_from(n.args[3]).unwrap_or(usize::MAX);
        // XATTR_SIZE_MAX (linux/limits.h).
        if size > 65_536 {
            return Err(libc::E2BIG);
        }
        Ok(Self { name, value: caller.bytes(n.args[2], size)?, flags })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a link of procfs to a descriptor that was judged: the file itself, whatever its name leads to now"
    )]
    fn set(&self, target: &PinnedFile) -> Result<CallReply, i32> {
        rustix::fs::setxattr(by_proc(target), &self.name, &self.value, self.flags).map_err(errno)?;
        Ok(DONE)
    }
}

fn removexattr(broker: &mut Broker, caller: &Caller<'_>, n: &Notification, links: LastLink) -> Result<CallReply, i32> {
    let name = attribute_name(caller, n.args[1])?;
    let target = broker.own_path(caller, libc::AT_FDCWD, n.args[0], links)?;
    refuse_link(&target)?;
    remove_attribute(&target, &name)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a link of procfs to a descriptor that was judged: the file itself, whatever its name leads to now"
)]
fn remove_attribute(target: &PinnedFile, name: &CString) -> Result<CallReply, i32> {
    rustix::fs::removexattr(by_proc(target), name).map_err(errno)?;
    Ok(DONE)
}

fn attribute_name(caller: &Caller<'_>, address: u64) -> Result<CString, i32> {
    // XATTR_NAME_MAX and the NUL (linux/limits.h).
    let name = caller.string(address, 256).map_err(|e| if e == libc::ENAMETOOLONG { libc::ERANGE } else { e })?;
    if name.is_empty() { Err(libc::ERANGE) } else { Ok(name) }
}

/// A link's own attributes cannot be reached through a descriptor of it; user attributes it cannot have (xattr(7)).
fn refuse_link(target: &PinnedFile) -> Result<(), i32> {
    let stat = rustix::fs::fstat(&target.fd).map_err(errno)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink { Err(libc::EPERM) } else { Ok(()) }
}
