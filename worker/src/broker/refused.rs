//! Acts that no call may do. They are rare, and known to whoever runs the call only if somebody counts them: the program that was
//! refused often says something else.

use callgate_policy::envelope::Blocked;

use super::caller::Caller;
use super::state::{Broker, NotificationHandler};
use crate::sys::notify::{CallReply, Notification};

pub(super) const HANDLERS: &[(libc::c_long, NotificationHandler)] = &[
    (libc::SYS_unshare, |b, c, _| refuse(b, c, Blocked::Namespace)),
    (libc::SYS_setns, |b, c, _| refuse(b, c, Blocked::Namespace)),
    (libc::SYS_clone, clone),
    (libc::SYS_setuid, |b, c, n| identity(b, c, &n.args[..1], own_user())),
    (libc::SYS_setreuid, |b, c, n| identity(b, c, &n.args[..2], own_user())),
    (libc::SYS_setresuid, |b, c, n| identity(b, c, &n.args[..3], own_user())),
    (libc::SYS_setgid, |b, c, n| identity(b, c, &n.args[..1], own_group())),
    (libc::SYS_setregid, |b, c, n| identity(b, c, &n.args[..2], own_group())),
    (libc::SYS_setresgid, |b, c, n| identity(b, c, &n.args[..3], own_group())),
    // The kernel refuses any list, the empty one too (setgroups(2)).
    (libc::SYS_setgroups, |b, c, _| refuse(b, c, Blocked::Identity)),
    (libc::SYS_seccomp, |b, c, _| {
        b.call(c)?.changes.blocked(Blocked::SeccompListener);
        Err(libc::EBUSY)
    }),
    (libc::SYS_mount, |b, c, _| refuse(b, c, Blocked::Mount)),
    (libc::SYS_umount2, |b, c, _| refuse(b, c, Blocked::Mount)),
    (libc::SYS_pivot_root, |b, c, _| refuse(b, c, Blocked::Mount)),
    (libc::SYS_chroot, |b, c, _| refuse(b, c, Blocked::Mount)),
    (libc::SYS_move_mount, |b, c, _| refuse(b, c, Blocked::Mount)),
    (libc::SYS_open_tree, |b, c, _| refuse(b, c, Blocked::Mount)),
    (libc::SYS_fsopen, |b, c, _| refuse(b, c, Blocked::Mount)),
    (libc::SYS_fsconfig, |b, c, _| refuse(b, c, Blocked::Mount)),
    (libc::SYS_fsmount, |b, c, _| refuse(b, c, Blocked::Mount)),
    (libc::SYS_fspick, |b, c, _| refuse(b, c, Blocked::Mount)),
    (libc::SYS_mount_setattr, |b, c, _| refuse(b, c, Blocked::Mount)),
];

/// Answer that the filter would give.
pub(super) fn refuse(broker: &mut Broker, caller: &Caller<'_>, kind: Blocked) -> Result<CallReply, i32> {
    broker.call(caller)?.changes.blocked(kind);
    Err(libc::EPERM)
}

/// All processes of a session have the broker's user and group, and no other, since nobody in it ever had a capability.
fn own_user() -> u32 {
    rustix::process::getuid().as_raw()
}

fn own_group() -> u32 {
    rustix::process::getgid().as_raw()
}

/// Request for an id; one that the process has is the kernel's to judge. `-1` leaves an id as it is (setresuid(2));
/// setuid(2) refuses it.
fn identity(broker: &mut Broker, caller: &Caller<'_>, asked: &[u64], own: u32) -> Result<CallReply, i32> {
    match asked.iter().all(|id| matches!(*id as u32, id if id == own || id == u32::MAX)) {
        true => Ok(CallReply::Continue),
        false => refuse(broker, caller, Blocked::Identity),
    }
}

/// The filter has let every thread and child pass that may be.
fn clone(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    const NAMESPACES: i32 = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    match super::metadata::int(n.args[0]) & NAMESPACES {
        0 => Err(libc::EPERM),
        _ => refuse(broker, caller, Blocked::Namespace),
    }
}
