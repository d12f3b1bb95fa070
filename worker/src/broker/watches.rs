//! inotify(7) where there is no mount namespace: a call watches what it may read, and nothing else.
//!
//! The broker makes each descriptor and keeps a copy, because only with it can a watch be set on the file that was judged.
//! All such descriptors look alike from outside but for what they watch; so each has a first watch, on a file of its own
//! in the session's directory, by which it is known again.

use std::fs;
use std::os::fd::AsRawFd as _;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};

use super::caller::{Caller, LastLink};
use super::metadata::int;
use super::state::{Broker, NotificationHandler};
use super::watched::Marker;
use crate::sys::notify::{CallReply, Notification};

pub(super) const HANDLERS: &[(libc::c_long, NotificationHandler)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_inotify_init, |b, c, _| make(b, c, 0)),
    (libc::SYS_inotify_init1, |b, c, n| make(b, c, int(n.args[0]))),
    (libc::SYS_inotify_add_watch, watch),
];

/// Most descriptors of one call: the kernel's own default bound for a user is 128 (`fs.inotify.max_user_instances`).
const MOST: usize = 64;

fn errno(e: rustix::io::Errno) -> i32 {
    e.raw_os_error()
}

#[expect(clippy::disallowed_methods, reason = "procfs is the kernel's: nobody puts a link in its files' place")]
fn make(broker: &mut Broker, caller: &Caller<'_>, flags: i32) -> Result<CallReply, i32> {
    let directory = broker.part("ipc")?;
    let call = broker.call(caller)?;
    if call.watches.kept.len() >= MOST {
        return Err(libc::EMFILE);
    }
    let name = format!("watch-{}-{}", call.number, call.watches.made);
    call.watches.made += 1;
    let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, &name, new, Mode::RUSR).map_err(errno)?;
    let marker = Marker { directory, name };
    let wanted = CreateFlags::from_bits(flags as u32).ok_or(libc::EINVAL)?;
    let fd = inotify::init(wanted | CreateFlags::CLOEXEC).map_err(errno)?;
    // Nobody moves it: the watch tells nothing. By a link that the kernel makes, to this very file.
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    inotify::add_watch(&fd, link, WatchFlags::MOVE_SELF).map_err(errno)?;
    let own = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).map_err(|_unreadable| libc::EIO)?;
    let copy = fd.try_clone().map_err(|e| e.raw_os_error().unwrap_or(libc::EMFILE))?;
    call.watches.kept.insert(first_watch(&own).ok_or(libc::EIO)?, (copy, marker));
    Ok(CallReply::Fd { fd, cloexec: wanted.contains(CreateFlags::CLOEXEC) })
}

/// The file that a descriptor watches first: `inotify wd:1 ino:2a sdev:fd00000 …` (proc_pid_fdinfo(5)).
fn first_watch(fdinfo: &str) -> Option<String> {
    let line = fdinfo.lines().find_map(|line| line.strip_prefix("inotify wd:1 "))?;
    Some(line.split_ascii_whitespace().take(2).collect::<Vec<_>>().join(" "))
}

fn watch(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    let info = caller.fdinfo(int(n.args[0]))?;
    let mask = WatchFlags::from_bits_retain(n.args[2] as u32);
    let links = if mask.contains(WatchFlags::DONT_FOLLOW) { LastLink::Keep } else { LastLink::Follow };
    let path = caller.path(n.args[1])?;
    let target = caller.open(libc::AT_FDCWD, &path, links)?;
    let call = broker.calls.of(caller).ok_or(libc::EPERM)?;
    if !call.may_read(target.path()?, &broker.readable) {
        return Err(libc::EACCES);
    }
    let (fd, _) = first_watch(&info).and_then(|first| call.watches.kept.get(&first)).ok_or(libc::EINVAL)?;
    // The descriptor that was judged, by a link that must be followed.
    let link = format!("/proc/self/fd/{}", target.fd.as_raw_fd());
    let wd = inotify::add_watch(fd, link, mask - WatchFlags::DONT_FOLLOW).map_err(errno)?;
    Ok(CallReply::Return(i64::from(wd)))
}
