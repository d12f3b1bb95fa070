//! Namespaces: entered in one step, before mounts, because CAP_SYS_ADMIN comes from the new user namespace.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use callgate_policy::plan::Identity;
use callgate_policy::step::Step;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{PidfdFlags, PidfdGetfdFlags};

use super::failure;
use crate::protocol::StepFailure;
use crate::sys;

/// User, mount, PID, network, IPC and UTS.
pub(crate) const ALL: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// Settles in namespaces that were just entered: with ids, and with a loopback interface that is up. Needs the privileges
/// that come with them, and no plan.
pub(crate) fn settle(identity: Identity) -> Result<(), StepFailure> {
    map_identity(identity)?; // first: until then this process has no user id in its namespace
    raise_loopback()
}

/// Bounds the processes and threads of this PID namespace, of which this process is the init; says how far, as the kernel
/// has it then. `None` where namespaces have no bound of their own: before Linux 6.14 `pid_max` is the host's, and must not
/// be touched.
#[expect(clippy::disallowed_methods, reason = "procfs is the kernel's: nobody puts a link in its files' place")]
pub(crate) fn bound_processes(most: u64) -> Option<String> {
    const PID_MAX: &str = "/proc/sys/kernel/pid_max";
    let release = rustix::system::uname();
    let mut numbers = release.release().to_str().ok()?.split('.').map_while(|number| number.parse::<u32>().ok());
    if (numbers.next()?, numbers.next()?) < (6, 14) || !rustix::process::getpid().is_init() {
        return None;
    }
    let read = || fs::read_to_string(PID_MAX).ok()?.trim().parse::<u64>().ok();
    // 301 is the least that the kernel takes (`RESERVED_PIDS`).
    let wanted = most.max(301).min(read()?);
    fs::write(PID_MAX, wanted.to_string()).ok()?;
    (read()? == wanted).then(|| format!("pid_max {wanted}"))
}

/// Maps this user and group onto themselves, and no others: files keep their owners, and no other id can be taken.
#[expect(clippy::disallowed_methods, reason = "procfs is the kernel's: nobody puts a link in its files' place")]
fn map_identity(identity: Identity) -> Result<(), StepFailure> {
    let fail = |what| failure(Step::Namespaces, what);
    // setgroups(2) must be refused before an unprivileged gid_map (user_namespaces(7), CVE-2014-8989).
    fs::write("/proc/self/setgroups", "deny").map_err(fail("deny setgroups"))?;
    let line = |id: u32| format!("{id} {id} 1");
    fs::write("/proc/self/uid_map", line(identity.uid)).map_err(fail("write uid_map"))?;
    fs::write("/proc/self/gid_map", line(identity.gid)).map_err(fail("write gid_map"))
}

/// The number of this process's network namespace, if that is owned by its own user namespace, as one is that was made with
/// it: nothing of the host is there. Needs the privileges that come with them. `None` also where sockets cannot be fetched from
/// other processes, or cannot be told apart.
#[expect(clippy::disallowed_methods, reason = "procfs is the kernel's: nobody puts a link in its files' place")]
pub(crate) fn own_network() -> Option<u64> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    let owner = rustix::fs::fstat(sys::socket::owner_of_network(socket.as_fd()).ok()?).ok()?;
    let own = rustix::fs::stat("/proc/self/ns/user").ok()?;
    if (owner.st_dev, owner.st_ino) != (own.st_dev, own.st_ino) {
        return None;
    }
    // Some containers' filters refuse it.
    let itself = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).ok()?;
    drop(rustix::process::pidfd_getfd(itself, socket.as_raw_fd(), PidfdGetfdFlags::empty()).ok()?);
    sys::socket::network_cookie(socket.as_fd()).ok()
}

/// Brings up the loopback interface of the network namespace, the only one in it.
fn raise_loopback() -> Result<(), StepFailure> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
        .map_err(io::Error::from)
        .map_err(failure(Step::Namespaces, "open a socket"))?;
    sys::socket::raise_loopback(socket.as_fd()).map_err(failure(Step::Namespaces, "bring lo up"))
}
