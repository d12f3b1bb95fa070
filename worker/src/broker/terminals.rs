//! The other ends of the pseudo-terminals that calls make. Without a mount namespace `/dev/pts` is the host's, with the
//! terminals of whoever sits before it, and with one the session's other calls have theirs in it: no rule of a call's
//! names it. Who holds a master may have its other end, by `TIOCGPTPEER`, as openpty(3) asks for it (D6).

use rustix::fs::{Mode, OFlags};

use super::caller::Caller;
use super::metadata::int;
use super::state::{Broker, NotificationHandler};
use crate::sys::notify::CallReply;

pub(super) const HANDLERS: &[(libc::c_long, NotificationHandler)] =
    &[(libc::SYS_ioctl, |b, c, n| open_peer(b, c, int(n.args[0]), int(n.args[2])))];

/// The filter asks about `TIOCGPTPEER` alone.
#[expect(
    clippy::disallowed_methods,
    reason = "devpts is the kernel's, and what was opened is compared with the caller's own end"
)]
fn open_peer(broker: &mut Broker, caller: &Caller<'_>, master: i32, flags: i32) -> Result<CallReply, i32> {
    // Only for callers that belong to a call.
    broker.call(caller)?;
    let number = number_of(caller, master)?;
    let asked = OFlags::from_bits_retain(flags as u32);
    // Never as the broker's own terminal, and never waiting for anything.
    let with = (asked & OFlags::ACCMODE) | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let fd =
        rustix::fs::open(format!("/dev/pts/{number}"), with, Mode::empty()).map_err(rustix::io::Errno::raw_os_error)?;
    // A number is given out again only when both ends are closed. This one is open now: if the caller's master has the
    // same number still, it is the other end of what was opened.
    if number_of(caller, master)? != number {
        return Err(libc::EIO);
    }
    if !asked.contains(OFlags::NONBLOCK) {
        let status = rustix::fs::fcntl_getfl(&fd).map_err(rustix::io::Errno::raw_os_error)?;
        rustix::fs::fcntl_setfl(&fd, status - OFlags::NONBLOCK).map_err(rustix::io::Errno::raw_os_error)?;
    }
    Ok(CallReply::Fd { fd, cloexec: asked.contains(OFlags::CLOEXEC) })
}

/// The number of the pseudo-terminal whose master this descriptor of the caller is: the kernel shows it of masters alone
/// (`tty-index` in proc_pid_fdinfo(5), Linux 4.19), and it is read there because containers refuse pidfd_getfd(2).
fn number_of(caller: &Caller<'_>, master: i32) -> Result<u32, i32> {
    let info = caller.fdinfo(master)?;
    let number = info.lines().find_map(|line| line.strip_prefix("tty-index:")).ok_or(libc::ENOTTY)?;
    number.trim().parse().map_err(|_not_a_number| libc::ENOTTY)
}
