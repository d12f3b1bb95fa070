//! System calls that change files, carried out by the broker where names are kept ([`super::keeper`]).
//!
//! Each act is on a descriptor that was judged by where the kernel says it is, and on one name in it that is not followed.
//! Everywhere else the answer is "continue": Landlock judges the real call there, and lets it only read where the broker
//! writes, so that a pointer that changes meanwhile gains nothing.

mod batch;

use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use callgate_policy::plan::protect::gitconfig;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::time::ClockId;

use super::caller::{Caller, LastLink, PinnedFile};
use super::keeper::{Judgement, MadeKind};
use super::made::{self, FileIdentity};
use super::metadata::int;
use super::settings::settings_in;
use super::state::{Broker, NotificationHandler};
use super::writable::{Grant, NewName, Twin, new_of, unknown_name};
use super::{fifos, shm};
use crate::sys::notify::CallReply;

pub(super) const HANDLERS: &[(libc::c_long, NotificationHandler)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, |b, c, n| open(b, c, (libc::AT_FDCWD, n.args[0]), int(n.args[1]), n.args[2] as u32)),
    (libc::SYS_openat, |b, c, n| open(b, c, (int(n.args[0]), n.args[1]), int(n.args[2]), n.args[3] as u32)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, |b, c, n| {
        let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
        open(b, c, (libc::AT_FDCWD, n.args[0]), flags, n.args[1] as u32)
    }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, |b, c, n| mkdir(b, c, (libc::AT_FDCWD, n.args[0]), n.args[1] as u32)),
    (libc::SYS_mkdirat, |b, c, n| mkdir(b, c, (int(n.args[0]), n.args[1]), n.args[2] as u32)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, |b, c, n| mknod(b, c, (libc::AT_FDCWD, n.args[0]), n.args[1] as u32, n.args[2])),
    (libc::SYS_mknodat, |b, c, n| mknod(b, c, (int(n.args[0]), n.args[1]), n.args[2] as u32, n.args[3])),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, |b, c, n| symlink(b, c, n.args[0], (libc::AT_FDCWD, n.args[1]))),
    (libc::SYS_symlinkat, |b, c, n| symlink(b, c, n.args[0], (int(n.args[1]), n.args[2]))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, |b, c, n| link(b, c, (libc::AT_FDCWD, n.args[0]), (libc::AT_FDCWD, n.args[1]), 0)),
    (libc::SYS_linkat, |b, c, n| link(b, c, (int(n.args[0]), n.args[1]), (int(n.args[2]), n.args[3]), int(n.args[4]))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, |b, c, n| unlink(b, c, (libc::AT_FDCWD, n.args[0]), 0)),
    (libc::SYS_unlinkat, |b, c, n| unlink(b, c, (int(n.args[0]), n.args[1]), int(n.args[2]))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, |b, c, n| unlink(b, c, (libc::AT_FDCWD, n.args[0]), libc::AT_REMOVEDIR)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, |b, c, n| rename(b, c, (libc::AT_FDCWD, n.args[0]), (libc::AT_FDCWD, n.args[1]), 0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_renameat, |b, c, n| rename(b, c, (int(n.args[0]), n.args[1]), (int(n.args[2]), n.args[3]), 0)),
    (libc::SYS_renameat2, |b, c, n| {
        let flags = n.args[4] as u32;
        if batch::is_asked_for(flags) {
            return batch::take(b, c, n.args[0], n.args[1], flags);
        }
        rename(b, c, (int(n.args[0]), n.args[1]), (int(n.args[2]), n.args[3]), flags)
    }),
    (libc::SYS_umask, |b, c, _| {
        b.masks.changed = Some((c.tid(), Instant::now()));
        b.calls.forget_masks();
        c.thread.umask.set(None);
        Ok(CallReply::Continue)
    }),
];

/// A directory's descriptor and the address of a name, as system calls take them.
type NameAt = (i32, u64);

/// As many links as the kernel follows (path_resolution(7)).
const LINKS: usize = 40;
const DONE: CallReply = CallReply::Return(0);

fn errno(e: rustix::io::Errno) -> i32 {
    e.raw_os_error()
}

fn by_proc(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Kind of a path's last component.
enum Last {
    Name(CString),
    /// `/`, `.` or `..`.
    Special,
}

/// A path's directory and its last component, and whether a slash follows.
fn split(path: &[u8]) -> Result<(CString, Last, bool), i32> {
    if path.is_empty() {
        return Err(libc::ENOENT);
    }
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    let (trimmed, slash) = (&path[..end], end < path.len());
    let start = trimmed.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    let (parent, name) = trimmed.split_at(start);
    let parent = if parent.is_empty() && !name.is_empty() {
        b"."
    } else if name.is_empty() {
        &b"/"[..]
    } else {
        parent
    };
    let string = |bytes: &[u8]| CString::new(bytes).map_err(|_nul| libc::EINVAL);
    let last = if matches!(name, b"" | b"." | b"..") { Last::Special } else { Last::Name(string(name)?) };
    Ok((string(parent)?, last, slash))
}

/// Where a name is: the directory, opened; the name in it; the whole, as the kernel has it.
struct EntryPlace {
    parent: OwnedFd,
    name: CString,
    path: PathBuf,
    /// Written with a slash behind it: it must be a directory.
    slash: bool,
}

impl EntryPlace {
    fn stat(&self) -> Result<Stat, rustix::io::Errno> {
        rustix::fs::statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// To be acted on.
    fn at(&self) -> (BorrowedFd<'_>, &CStr) {
        (self.parent.as_fd(), &self.name)
    }

    /// Identity of what is there, if it may be remembered: to be forgotten when it is there no longer.
    fn identity(&self, is_remembered: bool) -> Option<FileIdentity> {
        is_remembered.then(|| made::identity(&self.parent, &self.name)).flatten()
    }

    /// Where it leads, if it is a link.
    fn link(&self) -> Result<CString, rustix::io::Errno> {
        rustix::fs::readlinkat(&self.parent, &self.name, Vec::new())
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Paths that are another thing for the broker than for the caller. (A descriptor of the caller's is looked up.)
fn is_magic(path: &CString) -> bool {
    path.as_bytes().starts_with(b"/proc/")
}

/// A path that a call takes. `None` if it cannot be read for another reason than one of the caller's: the kernel is to judge.
fn named(caller: &Caller<'_>, pointer: u64) -> Result<Option<CString>, i32> {
    match caller.path(pointer) {
        Ok(path) if path.is_empty() => Err(libc::ENOENT),
        Err(e @ (libc::EFAULT | libc::ENAMETOOLONG)) => Err(e),
        path => Ok(path.ok()),
    }
}

/// Result of a look. What cannot be found here, the kernel refuses as well.
enum Lookup {
    Here(EntryPlace, Judgement),
    /// If that is known, where.
    Elsewhere(Option<EntryPlace>),
    /// `/`, `.` or `..`, of a directory that is there.
    Special,
}

impl Broker {
    /// Finds the place of a name. `special` is the errno for `/`, `.` and `..`.
    fn place(&mut self, caller: &Caller<'_>, at: NameAt, special: i32) -> Result<Lookup, i32> {
        match self.look(caller, at)? {
            Lookup::Special => Err(special),
            looked @ (Lookup::Here(..) | Lookup::Elsewhere(_)) => Ok(looked),
        }
    }

    fn look(&mut self, caller: &Caller<'_>, (dirfd, pointer): NameAt) -> Result<Lookup, i32> {
        if self.keeper.is_idle() {
            return Ok(Lookup::Elsewhere(None));
        }
        let path = named(caller, pointer)?.filter(|path| !is_magic(path));
        let Some(path) = path else { return Ok(Lookup::Elsewhere(None)) };
        let (parent, last, slash) = split(path.as_bytes())?;
        let base = caller.base(dirfd, &parent)?;
        let base = base.as_ref().map(|fd| fd.as_fd());
        match last {
            Last::Name(name) => self.place_in(base, &parent, name, slash, caller),
            Last::Special => caller.open_from(base, &parent, OFlags::DIRECTORY).map(|_there| Lookup::Special),
        }
    }

    fn place_in(
        &mut self,
        base: Option<BorrowedFd<'_>>,
        parent: &CString,
        name: CString,
        slash: bool,
        caller: &Caller<'_>,
    ) -> Result<Lookup, i32> {
        let parent = match caller.open_from(base, parent, OFlags::DIRECTORY) {
            Ok(parent) => parent,
            // Links in a circle, or one that is another for each process.
            Err(libc::ELOOP) => {
                let with = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let followed = rustix::fs::openat(base.unwrap_or(CWD), parent, with, Mode::empty()).map_err(errno);
                return followed.map(|_there| Lookup::Elsewhere(None));
            }
            Err(e) => return Err(e),
        };
        // In another mount tree, or removed: Landlock judges the directory itself.
        let Ok(directory) = parent.path() else { return Ok(Lookup::Elsewhere(None)) };
        let path = directory.join(OsStr::from_bytes(name.as_bytes()));
        let judgement = self.keeper.judge(&path);
        let place = EntryPlace { parent: parent.fd, name, path, slash };
        Ok(match judgement {
            Some(judgement) => Lookup::Here(place, judgement),
            None => Lookup::Elsewhere(Some(place)),
        })
    }

    /// The call may change what is there; by what grant.
    fn may_change(&mut self, caller: &Caller<'_>, path: &Path, stat: &Stat) -> Result<Grant, i32> {
        self.call(caller)?.written.grant_of(path, stat).ok_or(libc::EACCES)
    }

    /// The call may make this; by what grant.
    fn may_make(&mut self, caller: &Caller<'_>, path: &Path, new: NewName) -> Result<Grant, i32> {
        self.call(caller)?.written.grant_of_new(path, new).ok_or(libc::EACCES)
    }

    /// A name here and one elsewhere are as in two file systems. Where the call may not write there, that comes first, unless
    /// they really are (in a mount tree of its own).
    fn apart(&mut self, caller: &Caller<'_>, elsewhere: Option<&Path>) -> i32 {
        let call = self.call(caller).ok();
        let mine = elsewhere.is_none_or(|path| call.is_some_and(|call| call.written.grant(path).is_some()));
        if mine || !self.names_shm() { libc::EXDEV } else { libc::EACCES }
    }

    /// Refuses, and remembers why.
    fn refuse(
        &mut self,
        caller: &Caller<'_>,
        path: &Path,
        reason: Option<impl Into<Cow<'static, str>>>,
    ) -> Result<(), i32> {
        let Some(reason) = reason else { return Ok(()) };
        self.call(caller)?.changes.refused(path, reason);
        Err(libc::EACCES)
    }

    /// Notes what a call has made.
    pub(super) fn made(&mut self, caller: &Caller<'_>, path: &Path, judgement: &Judgement) -> Result<(), i32> {
        let repository = self.keeper.was_made(path, judgement);
        let changes = &mut self.call(caller)?.changes;
        changes.created(path);
        if repository {
            changes.repository(path);
        }
        self.note_repository(caller, path)
    }

    /// Notes the repository that a call has made, or changed, by what has come to this path.
    fn note_repository(&mut self, caller: &Caller<'_>, path: &Path) -> Result<(), i32> {
        if let Some(repository) = self.keeper.own_repository(path) {
            self.call(caller)?.changes.repository(&repository);
        }
        Ok(())
    }

    /// Notes what a call has made to be renamed. If nothing can be held of it, it is as if it had not been made.
    fn made_twin(&mut self, caller: &Caller<'_>, place: &EntryPlace, made: &OwnedFd) -> Result<(), i32> {
        let twin = Twin::of(&place.path, (place.parent.as_fd(), &place.name), made);
        match (twin, self.call(caller)) {
            (Ok(twin), Ok(call)) => {
                call.written.add(twin);
                call.changes.unfinished = true;
                Ok(())
            }
            (Err(e), _) => {
                rustix::fs::unlinkat(&place.parent, &place.name, AtFlags::empty()).map_err(errno)?;
                Err(errno(e))
            }
            (_, Err(e)) => Err(e),
        }
    }

    /// Refuses an open descriptor that may not be changed: by its name, and by its other names.
    pub(super) fn refuse_kept(&mut self, caller: &Caller<'_>, target: &PinnedFile) -> Result<(), i32> {
        let path = target.path()?;
        let Some(judgement) = self.keeper.judge(path) else { return Ok(()) };
        let stat = rustix::fs::fstat(&target.fd).map_err(errno)?;
        let is_dir = kind(&stat) == FileType::Directory;
        let closed = self.keeper.closes((target.fd.as_fd(), c""), &judgement, is_dir);
        self.refuse(caller, path, closed)?;
        let closed = if is_dir || stat.st_nlink <= 1 { None } else { self.keeper.closes_linked(&target.fd) };
        self.refuse(caller, path, closed)
    }

    /// Refuses a new name for a socket that may not be made. Returns what is to be said of it, where the broker is the
    /// writer.
    pub(super) fn refuse_new(&mut self, caller: &Caller<'_>, path: &Path) -> Result<Option<Judgement>, i32> {
        let Some(judgement) = self.keeper.judge(path) else { return Ok(None) };
        let closed = self.keeper.closes_to_new(&judgement, MadeKind::File);
        self.refuse(caller, path, closed)?;
        Ok(Some(judgement))
    }
}

fn open(broker: &mut Broker, caller: &Caller<'_>, at: NameAt, flags: i32, mode: u32) -> Result<CallReply, i32> {
    let asked = OFlags::from_bits_retain(flags as u32);
    // Landlock sees a descriptor that only reads, and lets a kept file be truncated by it.
    let truncates = asked.contains(OFlags::TRUNC) && !asked.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::PATH);
    let answer = judge_opening(broker, caller, at, flags, mode)?;
    let left = matches!(answer, CallReply::Continue) && !broker.keeper.is_idle();
    if left && truncates { Err(libc::EACCES) } else { Ok(answer) }
}

fn judge_opening(
    broker: &mut Broker,
    caller: &Caller<'_>,
    at: NameAt,
    flags: i32,
    mode: u32,
) -> Result<CallReply, i32> {
    let asked = OFlags::from_bits_retain(flags as u32);
    // What does not go together is said before the path is looked at. The kernel knows.
    let odd = asked.intersects(OFlags::TMPFILE) && !broker.keeper.is_idle();
    if odd && rustix::fs::openat(CWD, "", asked, Mode::empty()).err() == Some(rustix::io::Errno::INVAL) {
        return Err(libc::EINVAL);
    }
    let Some(path) = named(caller, at.1)? else { return Ok(CallReply::Continue) };
    if broker.names_shm()
        && let Some(name) = shm::object(&path)
    {
        return shm::open(broker, caller, name, flags, mode);
    }
    if let Some(shown) = broker.show(caller, at.0, path.as_bytes(), asked)? {
        return Ok(shown);
    }
    let changes = OFlags::WRONLY | OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
    let own = caller.own_descriptor(path.as_bytes()).is_some();
    let magic = is_magic(&path) && !own;
    if broker.keeper.is_idle() || asked.contains(OFlags::PATH) || magic {
        return Ok(CallReply::Continue);
    }
    if !asked.intersects(changes) {
        return if broker.reads_too {
            open_to_read(broker, caller, at.0, &path, asked)
        } else {
            Ok(CallReply::Continue)
        };
    }
    let (parent, last, slash) = split(path.as_bytes())?;
    if asked.contains(OFlags::CREATE) && slash && matches!(last, Last::Name(_)) {
        return Err(caller.open(at.0, &parent, LastLink::Follow).err().unwrap_or(libc::EISDIR));
    }
    let exclusive = asked.contains(OFlags::CREATE | OFlags::EXCL);
    let links = if exclusive || asked.contains(OFlags::NOFOLLOW) { LastLink::Keep } else { LastLink::Follow };
    // What is to be made is mostly not there.
    if asked.contains(OFlags::CREATE)
        && !own
        && let Some(answer) = make(broker, caller, at.0, &path, asked, mode)?
    {
        return Ok(answer);
    }
    // Again, if a name came or went meanwhile.
    for _ in 0..LINKS {
        match caller.open(at.0, &path, links) {
            Ok(target) => return open_existing(broker, caller, target, asked, mode, &path),
            Err(libc::ENOENT) if asked.contains(OFlags::CREATE) => {}
            Err(libc::ELOOP) => return Ok(CallReply::Continue),
            Err(e) => return Err(e),
        }
        match create(broker, caller, at.0, &path, asked, mode)? {
            Some(answer) => return Ok(answer),
            None if exclusive => return Err(libc::EEXIST),
            None => {}
        }
    }
    Err(libc::ELOOP)
}

/// Landlock knows the file that had a granted name when the session began. What has it now, a call's own file beside it, and
/// their directory, by which programs rename and sync, are opened here; everything else is Landlock's.
#[expect(
    clippy::disallowed_methods,
    reason = "a link of procfs to a descriptor that was judged: the file itself, whatever its name leads to now"
)]
fn open_to_read(
    broker: &mut Broker,
    caller: &Caller<'_>,
    dirfd: i32,
    path: &CString,
    asked: OFlags,
) -> Result<CallReply, i32> {
    let links = if asked.contains(OFlags::NOFOLLOW) { LastLink::Keep } else { LastLink::Follow };
    let Ok(target) = caller.open(dirfd, path, links) else { return Ok(CallReply::Continue) };
    let Ok(at) = target.path() else { return Ok(CallReply::Continue) };
    let stat = rustix::fs::fstat(&target.fd).map_err(errno)?;
    let call = broker.call(caller)?;
    let written = &call.written;
    let single = match kind(&stat) {
        FileType::Directory => written.may_list(at),
        FileType::RegularFile if !path.as_bytes().ends_with(b"/") => {
            matches!(written.grant_of(at, &stat), Some(Grant::Name | Grant::Twin)) || call.may_read_name(at, &stat)
        }
        FileType::RegularFile
        | FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => false,
    };
    if !single {
        return Ok(CallReply::Continue);
    }
    let with = (asked - OFlags::NOFOLLOW) | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = rustix::fs::open(by_proc(&target.fd), with, Mode::empty()).map_err(errno)?;
    Ok(CallReply::Fd { fd, cloexec: asked.contains(OFlags::CLOEXEC) })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a link of procfs to a descriptor that was judged: the file itself, whatever its name leads to now"
)]
fn open_existing(
    broker: &mut Broker,
    caller: &Caller<'_>,
    target: PinnedFile,
    asked: OFlags,
    mode: u32,
    path: &CString,
) -> Result<CallReply, i32> {
    if broker.keeper.judge(target.last_path()).is_none() {
        return Ok(CallReply::Continue);
    }
    let stat = rustix::fs::fstat(&target.fd).map_err(errno)?;
    if asked.contains(OFlags::TMPFILE) {
        return open_unnamed(broker, caller, &target, asked, mode);
    }
    if asked.contains(OFlags::CREATE | OFlags::EXCL) {
        return Err(libc::EEXIST);
    }
    match kind(&stat) {
        FileType::Symlink => return Err(libc::ELOOP),
        FileType::Directory => return Err(libc::EISDIR),
        FileType::RegularFile
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => {}
    }
    if path.as_bytes().ends_with(b"/") {
        return Err(libc::ENOTDIR);
    }
    let writes = asked.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC);
    if !writes || matches!(kind(&stat), FileType::CharacterDevice | FileType::BlockDevice) {
        // Reading is Landlock's to allow, and devices are not files of the tree.
        return Ok(CallReply::Continue);
    }
    let mut grant = Grant::Twin;
    if stat.st_nlink == 0 {
        // A removed file that the caller still holds: if it may write to it already. (One that has another name, nobody
        // knows which, is refused below.)
        let number = caller.own_descriptor(path.as_bytes()).ok_or(libc::ENOENT)?;
        if !caller.is_writable_fd(number)? {
            return Err(libc::EACCES);
        }
    } else {
        grant = broker.may_change(caller, target.path()?, &stat)?;
        broker.refuse_kept(caller, &target)?;
    }
    let with = (asked - OFlags::CREATE - OFlags::EXCL - OFlags::NOFOLLOW) | OFlags::CLOEXEC | OFlags::NOCTTY;
    let cloexec = asked.contains(OFlags::CLOEXEC);
    if kind(&stat) == FileType::Fifo && !asked.intersects(OFlags::NONBLOCK | OFlags::RDWR) {
        let waiting = broker.call(caller)?.fifos.clone();
        return fifos::open_later(&waiting, &broker.listener, caller.id(), target.fd, (with, cloexec));
    }
    let fd = rustix::fs::open(by_proc(&target.fd), with | OFlags::NONBLOCK, Mode::empty()).map_err(errno)?;
    if !asked.contains(OFlags::NONBLOCK) {
        let status = rustix::fs::fcntl_getfl(&fd).map_err(errno)?;
        rustix::fs::fcntl_setfl(&fd, status - OFlags::NONBLOCK).map_err(errno)?;
    }
    if grant != Grant::Twin {
        broker.call(caller)?.changes.changed(target.path()?);
        broker.note_repository(caller, target.path()?)?;
    }
    Ok(CallReply::Fd { fd, cloexec })
}

/// O_TMPFILE: a file without a name, in the file system of a directory.
#[expect(
    clippy::disallowed_methods,
    reason = "a link of procfs to a descriptor that was judged: the file itself, whatever its name leads to now"
)]
fn open_unnamed(
    broker: &mut Broker,
    caller: &Caller<'_>,
    directory: &PinnedFile,
    asked: OFlags,
    mode: u32,
) -> Result<CallReply, i32> {
    if !broker.call(caller)?.written.may_hold_unnamed(directory.path()?) {
        return Err(libc::EACCES);
    }
    broker.refuse_kept(caller, directory)?;
    let link = by_proc(&directory.fd);
    let with = asked | OFlags::CLOEXEC;
    let fd = broker.masked(caller, || rustix::fs::open(link, with, Mode::from_raw_mode(mode & 0o7777)))?;
    Ok(CallReply::Fd { fd, cloexec: asked.contains(OFlags::CLOEXEC) })
}

/// Creates the file that an opening asks for, without looking first whether there is one. `None` if it may be there, or where a
/// link leads.
fn make(
    broker: &mut Broker,
    caller: &Caller<'_>,
    dirfd: i32,
    path: &CString,
    asked: OFlags,
    mode: u32,
) -> Result<Option<CallReply>, i32> {
    let (parent, Last::Name(name), _) = split(path.as_bytes())? else { return Ok(None) };
    let base = caller.base(dirfd, &parent)?;
    let (place, judgement) = match broker.place_in(base.as_ref().map(|fd| fd.as_fd()), &parent, name, false, caller)? {
        Lookup::Here(place, judgement) => (place, judgement),
        Lookup::Elsewhere(place) => {
            let stays = asked.contains(OFlags::EXCL) || asked.contains(OFlags::NOFOLLOW);
            // No link is there. (Should one come by now, Landlock judges where it leads.)
            let stays = stays || place.is_some_and(|place| place.link().is_err());
            return Ok(stays.then_some(CallReply::Continue));
        }
        Lookup::Special => return Ok(None),
    };
    // Of what is there already, something else is to be said.
    let refused = broker.keeper.closes_to_new(&judgement, MadeKind::Opened).is_some();
    match broker.may_make(caller, &place.path, NewName::File) {
        Ok(grant) if !refused => make_at(broker, caller, (&place, &judgement, grant), asked, mode),
        Ok(_) | Err(_) => Ok(None),
    }
}

/// Creates a file that may be made. `None` if there is one by now.
fn make_at(
    broker: &mut Broker,
    caller: &Caller<'_>,
    (place, judgement, grant): (&EntryPlace, &Judgement, Grant),
    asked: OFlags,
    mode: u32,
) -> Result<Option<CallReply>, i32> {
    // With O_EXCL no link is followed.
    let with = asked | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOCTTY;
    let mode = Mode::from_raw_mode(mode & 0o7777);
    match broker.masked(caller, || rustix::fs::openat(&place.parent, &place.name, with, mode)) {
        Ok(fd) => {
            broker.keeper.was_opened(&fd, judgement);
            match grant {
                Grant::Tree | Grant::Name => broker.made(caller, &place.path, judgement)?,
                Grant::Twin => broker.made_twin(caller, place, &fd)?,
            }
            Ok(Some(CallReply::Fd { fd, cloexec: asked.contains(OFlags::CLOEXEC) }))
        }
        Err(libc::EEXIST) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Creates the file that an opening asks for, where its name leads. `None` if there is one by now.
fn create(
    broker: &mut Broker,
    caller: &Caller<'_>,
    dirfd: i32,
    path: &CString,
    asked: OFlags,
    mode: u32,
) -> Result<Option<CallReply>, i32> {
    let follow = !asked.intersects(OFlags::EXCL | OFlags::NOFOLLOW);
    let (mut parent, last, _) = split(path.as_bytes())?;
    let Last::Name(mut name) = last else { return Err(libc::ENOENT) };
    let mut base = caller.base(dirfd, &parent)?;
    for _ in 0..LINKS {
        let looked = broker.place_in(base.as_ref().map(|fd| fd.as_fd()), &parent, name, false, caller)?;
        let (place, judgement) = match looked {
            Lookup::Here(place, judgement) => (place, Some(judgement)),
            Lookup::Elsewhere(Some(place)) => (place, None),
            Lookup::Elsewhere(None) | Lookup::Special => return Ok(Some(CallReply::Continue)),
        };
        match place.link() {
            Ok(_) if !follow => return Ok(None),
            // It dangles: the file is made where it leads.
            Ok(link) if is_magic(&link) => return Ok(Some(CallReply::Continue)),
            Ok(link) => {
                let (directory, Last::Name(next), false) = split(link.as_bytes())? else { return Err(libc::EISDIR) };
                base = (!link.as_bytes().starts_with(b"/")).then_some(place.parent);
                (parent, name) = (directory, next);
            }
            Err(rustix::io::Errno::NOENT) => {
                let Some(judgement) = judgement else { return Ok(Some(CallReply::Continue)) };
                let grant = broker.may_make(caller, &place.path, NewName::File)?;
                let closed = broker.keeper.closes_to_new(&judgement, MadeKind::Opened);
                broker.refuse(caller, &place.path, closed)?;
                return make_at(broker, caller, (&place, &judgement, grant), asked, mode);
            }
            // It is there now.
            Err(rustix::io::Errno::INVAL) => return Ok(None),
            Err(e) => return Err(errno(e)),
        }
    }
    Err(libc::ELOOP)
}

/// Check that every new name has in common: it is free, the call may write there, and it is not kept.
fn check_new(
    broker: &mut Broker,
    caller: &Caller<'_>,
    place: &EntryPlace,
    judgement: &Judgement,
    (what, new): (MadeKind, NewName),
) -> Result<(), i32> {
    match place.stat() {
        Ok(_) => return Err(libc::EEXIST),
        Err(rustix::io::Errno::NOENT) if place.slash && what != MadeKind::Directory => return Err(libc::ENOENT),
        Err(rustix::io::Errno::NOENT) => {}
        Err(e) => return Err(errno(e)),
    }
    broker.may_make(caller, &place.path, new)?;
    let closed = broker.keeper.closes_to_new(judgement, what);
    broker.refuse(caller, &place.path, closed)
}

fn mkdir(broker: &mut Broker, caller: &Caller<'_>, at: NameAt, mode: u32) -> Result<CallReply, i32> {
    let Lookup::Here(place, judgement) = broker.place(caller, at, libc::EEXIST)? else {
        return Ok(CallReply::Continue);
    };
    check_new(broker, caller, &place, &judgement, (MadeKind::Directory, NewName::Directory))?;
    let mode = Mode::from_raw_mode(mode & 0o7777);
    let since = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    broker.masked(caller, || rustix::fs::mkdirat(&place.parent, &place.name, mode))?;
    broker.keeper.was_made_directory(place.at(), &judgement, since);
    broker.made(caller, &place.path, &judgement)?;
    Ok(DONE)
}

fn mknod(broker: &mut Broker, caller: &Caller<'_>, at: NameAt, mode: u32, device: u64) -> Result<CallReply, i32> {
    if mode & libc::S_IFMT == libc::S_IFDIR {
        return Err(libc::EPERM);
    }
    // No type is a regular file (mknod(2)).
    let mode = if mode & libc::S_IFMT == 0 { mode | libc::S_IFREG } else { mode };
    let kind = FileType::from_raw_mode(mode);
    if matches!(kind, FileType::Unknown | FileType::Symlink) {
        return Err(libc::EINVAL);
    }
    let Lookup::Here(place, judgement) = broker.place(caller, at, libc::EEXIST)? else {
        return Ok(CallReply::Continue);
    };
    check_new(broker, caller, &place, &judgement, (MadeKind::File, new_of(kind)))?;
    let mode = Mode::from_raw_mode(mode & 0o7777);
    broker.masked(caller, || rustix::fs::mknodat(&place.parent, &place.name, kind, mode, device))?;
    broker.made(caller, &place.path, &judgement)?;
    Ok(DONE)
}

fn symlink(broker: &mut Broker, caller: &Caller<'_>, target: u64, at: NameAt) -> Result<CallReply, i32> {
    let Some(target) = named(caller, target)? else { return Ok(CallReply::Continue) };
    let Lookup::Here(place, judgement) = broker.place(caller, at, libc::EEXIST)? else {
        return Ok(CallReply::Continue);
    };
    check_new(broker, caller, &place, &judgement, (MadeKind::Link, NewName::Other))?;
    let closed = broker.keeper.closes_to_target(&place.path, &judgement, &target);
    broker.refuse(caller, &place.path, closed)?;
    rustix::fs::symlinkat(&target, &place.parent, &place.name).map_err(errno)?;
    broker.made(caller, &place.path, &judgement)?;
    Ok(DONE)
}

fn link(broker: &mut Broker, caller: &Caller<'_>, from: NameAt, to: NameAt, flags: i32) -> Result<CallReply, i32> {
    if broker.names_shm()
        && let Some(answer) = shm::link(broker, caller, from.1, to.1)?
    {
        return Ok(answer);
    }
    if broker.keeper.is_idle() {
        return Ok(CallReply::Continue);
    }
    if flags & !(libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) != 0 {
        return Err(libc::EINVAL);
    }
    let Ok(old) = caller.path(from.1) else { return Ok(CallReply::Continue) };
    let links = if flags & libc::AT_SYMLINK_FOLLOW != 0 { LastLink::Follow } else { LastLink::Keep };
    let source = if old.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
        caller.open_start(from.0)
    } else if links == LastLink::Keep && caller.own_descriptor(old.as_bytes()).is_some() {
        // The link in /proc itself, which is in another file system.
        return Err(libc::EXDEV);
    } else {
        caller.open(from.0, &old, links)
    };
    let source = match source {
        Ok(source) => source,
        Err(libc::ELOOP) => return Ok(CallReply::Continue),
        Err(e) => return Err(e),
    };
    let from_here = broker.keeper.judge(source.last_path());
    let (place, judgement) = match (broker.place(caller, to, libc::EEXIST)?, &from_here) {
        // As Landlock says of a link that would gain rights.
        (Lookup::Here(..), None) | (Lookup::Elsewhere(_) | Lookup::Special, Some(_)) => return Err(libc::EXDEV),
        (Lookup::Elsewhere(_) | Lookup::Special, None) => return Ok(CallReply::Continue),
        (Lookup::Here(place, judgement), Some(_)) => (place, judgement),
    };
    let stat = rustix::fs::fstat(&source.fd).map_err(errno)?;
    check_new(broker, caller, &place, &judgement, (MadeKind::File, new_of(kind(&stat))))?;
    // A file that is granted alone is mounted by itself where there are namespaces. By another name no session would know it.
    if from_here.is_some_and(|judgement| judgement.is_single()) {
        return Err(libc::EXDEV);
    }
    if kind(&stat) == FileType::Directory {
        return Err(libc::EPERM);
    }
    if kind(&stat) == FileType::Symlink {
        // Not by its descriptor, which would be followed.
        let Lookup::Here(old, _) = broker.place(caller, from, libc::EPERM)? else { return Err(libc::EXDEV) };
        broker.may_change(caller, &old.path, &stat)?;
        let target = old.link().map_err(errno)?;
        let closed = broker.keeper.closes_to_new(&judgement, MadeKind::Link);
        let closed = closed.or_else(|| broker.keeper.closes_to_target(&place.path, &judgement, &target));
        broker.refuse(caller, &place.path, closed)?;
        broker.refuse_kept(caller, &source)?;
        // One of its own that says what was judged: by that name another session may have put another meanwhile.
        rustix::fs::symlinkat(&target, &place.parent, &place.name).map_err(errno)?;
        broker.made(caller, &place.path, &judgement)?;
        return Ok(DONE);
    }
    if stat.st_nlink > 0 {
        if broker.calls.are_apart(source.path()?, &place.path) {
            return Err(libc::EXDEV);
        }
        let grant = broker.may_change(caller, source.path()?, &stat)?;
        if judgement.is_single() && grant != Grant::Twin {
            return Err(libc::EXDEV);
        }
        broker.refuse_kept(caller, &source)?;
    } else {
        // An unnamed file is the caller's if it may write to it.
        let number = if old.is_empty() { Some(from.0) } else { caller.own_descriptor(old.as_bytes()) };
        if !caller.is_writable_fd(number.ok_or(libc::ENOENT)?)? {
            return Err(libc::EACCES);
        }
    }
    rustix::fs::linkat(CWD, by_proc(&source.fd), &place.parent, &place.name, AtFlags::SYMLINK_FOLLOW).map_err(errno)?;
    if stat.st_nlink == 1 {
        broker.keeper.was_linked(&source.fd);
    }
    if stat.st_nlink > 0 {
        broker.call(caller)?.changes.linked(source.path()?);
    }
    broker.made(caller, &place.path, &judgement)?;
    Ok(DONE)
}

fn unlink(broker: &mut Broker, caller: &Caller<'_>, at: NameAt, flags: i32) -> Result<CallReply, i32> {
    if broker.names_shm()
        && let Some(answer) = shm::unlink(broker, caller, at.1)?
    {
        return Ok(answer);
    }
    if flags & !libc::AT_REMOVEDIR != 0 {
        return Err(libc::EINVAL);
    }
    // What `/`, `.` and `..` give depends on which it is: the kernel's answer changes nothing.
    let removing = match Removing::judge(broker, caller, at, flags & libc::AT_REMOVEDIR != 0) {
        Err(libc::EOPNOTSUPP) => return Ok(CallReply::Continue),
        judged => judged?,
    };
    match removing {
        Some(removing) => removing.carry_out(broker, caller).map(|()| DONE),
        None => Ok(CallReply::Continue),
    }
}

/// A name that may be removed.
struct Removing {
    place: EntryPlace,
    grant: Grant,
    is_directory: bool,
    is_pointer: bool,
}

impl Removing {
    /// Judges whether a name may be removed; `None` if that is not to be said here.
    fn judge(broker: &mut Broker, caller: &Caller<'_>, at: NameAt, directory: bool) -> Result<Option<Self>, i32> {
        let Lookup::Here(place, judgement) = broker.place(caller, at, libc::EOPNOTSUPP)? else { return Ok(None) };
        let stat = place.stat().map_err(errno)?;
        let is_dir = kind(&stat) == FileType::Directory;
        match (directory, is_dir) {
            (true, false) => return Err(libc::ENOTDIR),
            (false, true) => return Err(libc::EISDIR),
            (false, false) if place.slash => return Err(libc::ENOTDIR),
            (true, true) | (false, false) => {}
        }
        let grant = broker.may_change(caller, &place.path, &stat)?;
        if is_dir && grant != Grant::Tree {
            return Err(libc::EACCES);
        }
        let closed = broker.keeper.closes(place.at(), &judgement, is_dir);
        broker.refuse(caller, &place.path, closed)?;
        Ok(Some(Self { place, grant, is_directory: is_dir, is_pointer: judgement.is_pointer() }))
    }

    fn carry_out(&self, broker: &mut Broker, caller: &Caller<'_>) -> Result<(), i32> {
        let Self { place, grant, is_directory, .. } = self;
        let gone = place.identity(broker.keeper.has_made_any(*is_directory));
        let flags = if *is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(&place.parent, &place.name, flags).map_err(errno)?;
        broker.keeper.forget(gone);
        let call = broker.call(caller)?;
        match grant {
            Grant::Tree | Grant::Name => call.changes.removed(&place.path),
            Grant::Twin => call.written.forget(&place.path),
        }
        Ok(())
    }
}

fn rename(broker: &mut Broker, caller: &Caller<'_>, from: NameAt, to: NameAt, flags: u32) -> Result<CallReply, i32> {
    match Renaming::judge(broker, caller, (from, to), RenameFlags::from_bits_retain(flags))? {
        RenameVerdict::Elsewhere => Ok(CallReply::Continue),
        RenameVerdict::Same => Ok(DONE),
        RenameVerdict::Settings(Renaming { source, was, target, moved, .. }) => {
            replace_settings(broker, caller, (&source, &was), &target, &moved)
        }
        RenameVerdict::May(renaming) => renaming.carry_out(broker, caller).map(|()| DONE),
    }
}

/// A name that may be given to another file.
struct Renaming {
    source: EntryPlace,
    was: Judgement,
    target: EntryPlace,
    will: Judgement,
    flags: RenameFlags,
    moved: Stat,
    is_replaced: bool,
    grant: Grant,
}

/// Judgement on a renaming that is not refused.
enum RenameVerdict {
    /// It is not to be said here.
    Elsewhere,
    /// There is nothing to do.
    Same,
    /// The settings that are to be there have to be looked at.
    Settings(Renaming),
    May(Renaming),
}

impl Renaming {
    fn judge(
        broker: &mut Broker,
        caller: &Caller<'_>,
        (from, to): (NameAt, NameAt),
        flags: RenameFlags,
    ) -> Result<RenameVerdict, i32> {
        let known = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
        // With both, the kernel says EINVAL; a whiteout is a device (A13).
        if !known.contains(flags) || flags.contains(known) {
            return Err(libc::EINVAL);
        }
        let special = if flags.contains(RenameFlags::NOREPLACE) { libc::EEXIST } else { libc::EBUSY };
        // Both directories come before either name.
        let looked = (broker.look(caller, from)?, broker.look(caller, to)?);
        let ((source, was), (target, will)) = match looked {
            (Lookup::Special, _) => return Err(libc::EBUSY),
            (_, Lookup::Special) => return Err(special),
            (Lookup::Elsewhere(_), Lookup::Elsewhere(_)) => return Ok(RenameVerdict::Elsewhere),
            (Lookup::Here(source, was), Lookup::Here(target, will)) => ((source, was), (target, will)),
            (Lookup::Here(..), Lookup::Elsewhere(other)) | (Lookup::Elsewhere(other), Lookup::Here(..)) => {
                return Err(broker.apart(caller, other.as_ref().map(|place| place.path.as_path())));
            }
        };
        let moved = source.stat().map_err(errno)?;
        let replaced = match target.stat() {
            Ok(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(libc::EEXIST),
            Ok(stat) => Some(stat),
            Err(rustix::io::Errno::NOENT) if flags.contains(RenameFlags::EXCHANGE) => return Err(libc::ENOENT),
            Err(rustix::io::Errno::NOENT) => None,
            Err(e) => return Err(errno(e)),
        };
        let is_dir = |stat: &Stat| kind(stat) == FileType::Directory;
        let exchanged = flags.contains(RenameFlags::EXCHANGE);
        let comes = if exchanged { replaced.as_ref().unwrap_or(&moved) } else { &moved };
        if (source.slash && !is_dir(&moved)) || (target.slash && !is_dir(comes)) {
            return Err(libc::ENOTDIR);
        }
        // Two names of one file stay as they are (rename(2)).
        if replaced.as_ref().is_some_and(|other| (other.st_dev, other.st_ino) == (moved.st_dev, moved.st_ino)) {
            return Ok(RenameVerdict::Same);
        }
        if broker.calls.are_apart(&source.path, &target.path) {
            return Err(libc::EXDEV);
        }
        let grant = broker.may_change(caller, &source.path, &moved)?;
        may_take(broker, caller, (grant, &moved), &target, replaced.as_ref().filter(|_| exchanged))?;
        let closed = broker.keeper.closes(source.at(), &was, is_dir(&moved));
        broker.refuse(caller, &source.path, closed)?;
        if will.is_settings() && !exchanged && kind(&moved) == FileType::RegularFile {
            let is_replaced = replaced.is_some();
            return Ok(RenameVerdict::Settings(Self { source, was, target, will, flags, moved, is_replaced, grant }));
        }
        let closed = match &replaced {
            Some(stat) => broker.keeper.closes(target.at(), &will, is_dir(stat)),
            None => None,
        };
        let closed = closed.or_else(|| broker.keeper.closes_to_new(&will, what_is(&moved)));
        broker.refuse(caller, &target.path, closed)?;
        let other = replaced.as_ref().filter(|_| exchanged);
        let closed = other.and_then(|other| broker.keeper.closes_to_new(&was, what_is(other)));
        broker.refuse(caller, &source.path, closed)?;
        let sides = [(Some(&moved), &source, &was, &will), (other, &target, &will, &was)];
        for (_, place, now, then) in sides.into_iter().filter(|(stat, ..)| stat.is_some_and(is_dir)) {
            let closed = broker.keeper.holds(&place.path, now);
            broker.refuse(caller, &place.path, closed)?;
            if then.is_above() {
                return Err(libc::EXDEV);
            }
        }
        // As if it were another file system: each name is then copied, and looked at.
        if !was.may_become(&will, what_is(&moved)) || other.is_some_and(|other| !will.may_become(&was, what_is(other)))
        {
            return Err(libc::EXDEV);
        }
        // Somebody outside may be at work in it, with what is kept here and would not be there; or just be making that: what is
        // looked at while it is filled is not known.
        let is_freed = is_dir(&moved) && will.is_free() && !was.is_free();
        if is_freed && (!broker.keeper.has_made_directory(source.at()) || holds_directories(&source)?) {
            return Err(libc::EXDEV);
        }
        // A link is judged where it is made, and one in a directory as well.
        let leads_in = |stat: &Stat, from: &EntryPlace, to: &EntryPlace| {
            kind(stat) != FileType::RegularFile && broker.keeper.leads_in(&from.path, &to.path)
        };
        if (was.is_free() && will.is_free())
            && (leads_in(&moved, &source, &target) || other.is_some_and(|other| leads_in(other, &target, &source)))
        {
            return Err(libc::EXDEV);
        }
        // Under the name of a file that is granted alone it would be changed by its other names.
        let has_others = |stat: &Stat| kind(stat) == FileType::RegularFile && stat.st_nlink > 1;
        if grant != Grant::Twin
            && ((will.is_single() && has_others(&moved)) || (was.is_single() && other.is_some_and(has_others)))
        {
            return Err(libc::EXDEV);
        }
        let is_replaced = replaced.is_some();
        Ok(RenameVerdict::May(Self { source, was, target, will, flags, moved, is_replaced, grant }))
    }

    fn carry_out(&self, broker: &mut Broker, caller: &Caller<'_>) -> Result<(), i32> {
        let Self { source, was, target, will, flags, moved, is_replaced, grant } = self;
        let exchanged = flags.contains(RenameFlags::EXCHANGE);
        let temporary = source.identity(was.is_temporary());
        rustix::fs::renameat_with(&source.parent, &source.name, &target.parent, &target.name, *flags).map_err(errno)?;
        broker.keeper.forget(temporary);
        if will.is_pointer() && kind(moved) != FileType::Directory {
            broker.made(caller, &target.path, will)?;
        }
        let call = broker.call(caller)?;
        match grant {
            Grant::Tree | Grant::Name if exchanged => call.changes.exchanged(&source.path, &target.path),
            Grant::Tree | Grant::Name => call.changes.moved(&source.path, &target.path, *is_replaced),
            Grant::Twin => {
                call.written.forget(&source.path);
                call.changes.came(&target.path, *is_replaced);
            }
        }
        broker.note_repository(caller, &target.path)?;
        if exchanged {
            broker.note_repository(caller, &source.path)?;
        }
        Ok(())
    }
}

/// Most names in a directory that is looked at in one step.
const FEW: usize = 64;

/// True if a directory has others in it, or more names than are looked at.
fn holds_directories(place: &EntryPlace) -> Result<bool, i32> {
    let with = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(&place.parent, &place.name, with, Mode::empty()).map_err(errno)?;
    // With `.` and `..`.
    for (count, entry) in rustix::fs::Dir::new(directory).map_err(errno)?.enumerate() {
        let entry = entry.map_err(errno)?;
        let is_itself = matches!(entry.file_name().to_bytes(), b"." | b"..");
        if count >= FEW || (entry.file_type() == FileType::Directory && !is_itself) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Kind of what comes with what is there.
fn what_is(stat: &Stat) -> MadeKind {
    match kind(stat) {
        FileType::Directory => MadeKind::Directory,
        FileType::Symlink => MadeKind::Link,
        FileType::RegularFile
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => MadeKind::File,
    }
}

/// Refuses a name that what is moved there may not take; and, if the two are exchanged, what is there by the other's.
fn may_take(
    broker: &mut Broker,
    caller: &Caller<'_>,
    (from, moved): (Grant, &Stat),
    target: &EntryPlace,
    exchanged: Option<&Stat>,
) -> Result<(), i32> {
    let to = broker.call(caller)?.written.grant(&target.path).ok_or(libc::EACCES)?;
    if (from, to) == (Grant::Tree, Grant::Tree) {
        return Ok(());
    }
    // A single name is a regular file's; and what was there would stay, as a twin has no name of its own.
    let regular = |stat: &Stat| kind(stat) == FileType::RegularFile;
    let stays = exchanged.is_some() && from == Grant::Twin;
    if regular(moved) && exchanged.is_none_or(regular) && !stays { Ok(()) } else { Err(libc::EACCES) }
}

/// Settings that may take the place of others.
struct RepositorySettings {
    old: Vec<u8>,
    new: Vec<u8>,
    /// The place's own, if there is something.
    mode: Mode,
}

/// git writes `config.lock`, and renames it. What is judged is what will be there: a copy, in a file that the broker makes,
/// of which no caller has a descriptor, a mapping or another name, nor can get one: a session's calls are served one after
/// another, and no other session lets its calls open a temporary file (A6, A18).
///
/// While the lock is there, nobody else changes the settings: if it is not what is renamed, the copy itself has its name.
fn replace_settings(
    broker: &mut Broker,
    caller: &Caller<'_>,
    (source, was): (&EntryPlace, &Judgement),
    target: &EntryPlace,
    moved: &Stat,
) -> Result<CallReply, i32> {
    let lock = CString::new([target.name.as_bytes(), b".lock"].concat()).map_err(|_nul| libc::EIO)?;
    let is_lock = was.is_temporary() && source.path.parent() == target.path.parent() && source.name == lock;
    let copy = if is_lock { unknown_name().ok_or(libc::EIO)? } else { lock };
    let with = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&target.parent, &copy, with, Mode::RUSR | Mode::WUSR);
    let file = file.map_err(|e| if e == rustix::io::Errno::EXIST { libc::EBUSY } else { errno(e) })?;
    let judged = judged_settings(source, target, moved);
    let placed = judged.as_ref().map_or(Ok(()), |settings| {
        rustix::fs::fchmod(&file, settings.mode).map_err(errno)?;
        fs::File::from(file).write_all(&settings.new).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
        rustix::fs::renameat(&target.parent, &copy, &target.parent, &target.name).map_err(errno)
    });
    if judged.is_err() || placed.is_err() {
        // What cannot be removed either is left; the error is what matters.
        let _left = rustix::fs::unlinkat(&target.parent, &copy, AtFlags::empty());
    }
    let RepositorySettings { old, new, .. } = match judged {
        Ok(settings) => settings,
        Err(reason) => return broker.refuse(caller, &target.path, Some(reason)).map(|()| DONE),
    };
    placed?;
    let temporary = source.identity(was.is_temporary());
    rustix::fs::unlinkat(&source.parent, &source.name, AtFlags::empty()).map_err(errno)?;
    broker.keeper.forget(temporary);
    let changes = &mut broker.call(caller)?.changes;
    changes.removed(&source.path);
    changes.changed(&target.path);
    changes.settings_replaced(&target.path, &old, &new);
    Ok(DONE)
}

/// Settings that are to be there, if they are known to run no program that did not run before; otherwise, why not.
fn judged_settings(
    source: &EntryPlace,
    target: &EntryPlace,
    moved: &Stat,
) -> Result<RepositorySettings, Cow<'static, str>> {
    let new = settings_in(&source.parent, &source.name).ok_or("it cannot be read, or is too long")?;
    let (old, mode) = match target.stat() {
        Ok(stat) if kind(&stat) == FileType::RegularFile => {
            (settings_in(&target.parent, &target.name).ok_or("it cannot be read, or is too long")?, stat.st_mode)
        }
        Ok(_) => return Err("it is not a file".into()),
        Err(_absent) => (Vec::new(), moved.st_mode),
    };
    gitconfig::may_replace(&old, &new).map_err(|reason| reason.to_string())?;
    Ok(RepositorySettings { old, new, mode: Mode::from_raw_mode(mode & 0o777) })
}
