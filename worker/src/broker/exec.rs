//! Starting programs, where a session may start only some.
//!
//! Two looks. The first, by the [`gate`](super::gate), is at the caller's own memory, while it waits: an honest program that may
//! not start something gets an errno, and the result names it. It refuses and never allows, because a thread, or whoever shares
//! the memory, may write something else there before the kernel reads it (C14). The second is the [`tracer`](super::tracer)'s, at what the kernel has
//! made ready to run. Where tracing is barred the second is Landlock's alone: it knows files, and no arguments.

use std::ffi::CStr;
use std::sync::Arc;

use callgate_policy::plan::exec::OWN_STARTS;
use rustix::fs::MemfdFlags;

use super::caller::{Caller, LastLink};
use super::gate::{ExecGate, ExecRequest, Job, SHOWN, arguments, text};
use super::metadata::int;
use super::state::{Broker, NotificationHandler};
use crate::sys::notify::{CallReply, Notification};

pub(super) const HANDLERS: &[(libc::c_long, NotificationHandler)] = &[
    (libc::SYS_execve, |b, c, n| {
        let path = c.path(n.args[0])?;
        let (argv, environment) = (n.args[1], n.args[2]);
        start(b, c, n, ExecRequest { directory: libc::AT_FDCWD, path, argv, environment, links: LastLink::Follow })
    }),
    (libc::SYS_execveat, |b, c, n| {
        let flags = int(n.args[4]);
        let path = c.path(n.args[1])?;
        if path.is_empty() && flags & libc::AT_EMPTY_PATH == 0 {
            return Err(libc::ENOENT);
        }
        let links = if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { LastLink::Follow } else { LastLink::Keep };
        let (argv, environment) = (n.args[2], n.args[3]);
        start(b, c, n, ExecRequest { directory: int(n.args[0]), path, argv, environment, links })
    }),
    (libc::SYS_memfd_create, memfd),
];

/// Reason for a refusal.
const NOT_GRANTED: &str = "it is not granted";
/// Reason for a refusal to a call that only reads.
const NOT_FOR_READING: &str = "the shell of this profile starts only programs that read, whoever starts them";

/// True if what callgate starts itself need not be looked at: its own shell, for a line that layer 1 has judged. Of
/// anything else layer 1 knows how its path is spelt, and not which file that leads to.
fn is_settled(path: &CStr) -> bool {
    OWN_STARTS.iter().any(|own| own.as_bytes() == path.to_bytes())
}

fn start(broker: &mut Broker, caller: &Caller<'_>, n: &Notification, asked: ExecRequest) -> Result<CallReply, i32> {
    let worker = broker.calls.worker_of_caller(caller).ok_or(libc::EPERM)?;
    let call = broker.calls.of(caller).ok_or(libc::EPERM)?;
    let gate = broker.gate.as_ref().ok_or(libc::EPERM)?;
    let own = gate.is_own(caller, worker, &call.started).then(|| Arc::clone(&call.started));
    let reads = call.only_reads;
    let is_settled = own.is_some() && is_settled(&asked.path);
    if !is_settled {
        let (errno, why) = match gate.look(caller, &asked, reads) {
            Ok(judged) => (libc::EACCES, judged.refusal()),
            // A directory of PATH that callgate may not search on the way to a program.
            Err(errno) if own.is_some() => return Err(errno),
            Err(errno) => (errno, Some(NOT_GRANTED.to_owned())),
        };
        if let Some(why) = why {
            // A name that leads nowhere is what a search along PATH asks for.
            if !matches!(errno, libc::ENOENT | libc::ENOTDIR) {
                let why = if reads && why == NOT_GRANTED { NOT_FOR_READING.into() } else { why.into() };
                call.changes.not_started(shown(caller, &asked), why);
            }
            return Err(if errno == libc::ELOOP { libc::EACCES } else { errno });
        }
    }
    let job = Job { id: n.id, tid: caller.tid(), call: (worker, call.number), own, is_settled, reads };
    broker.gate.as_mut().map(|gate| gate.pass(job)).ok_or(libc::EPERM)
}

/// A refused start, for people: the file, what the caller calls it if that is another name, and the arguments as it had them.
fn shown(caller: &Caller<'_>, asked: &ExecRequest) -> String {
    let base = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
    let path = asked.path.as_bytes();
    let argv = arguments(caller, asked.argv, SHOWN.0).unwrap_or_default();
    let mut words = vec![path.to_vec()];
    if let Some((name, args)) = argv.split_first() {
        if base(name) != base(path) {
            words.push([b"(as ", name.as_slice(), b")"].concat());
        }
        words.extend_from_slice(args);
    }
    text(&words)
}

/// A file in memory has no place that a rule of Landlock's could name, so Landlock lets it be executed. Made here it cannot be
/// (`MFD_NOEXEC_SEAL`, Linux 6.3): no mode that the caller sets makes it so (C7).
fn memfd(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    const EXEC: u32 = 0x10;
    let name = caller.string(n.args[0], 250).map_err(|e| if e == libc::ENAMETOOLONG { libc::EINVAL } else { e })?;
    let flags = n.args[1] as u32;
    if flags & EXEC != 0 {
        return Err(libc::EACCES);
    }
    let wanted = MemfdFlags::from_bits_retain(flags) | MemfdFlags::CLOEXEC;
    let cloexec = flags & MemfdFlags::CLOEXEC.bits() != 0;
    let traced = broker.gate.as_ref().is_some_and(ExecGate::traces);
    let made = match rustix::fs::memfd_create(&name, wanted | MemfdFlags::NOEXEC_SEAL) {
        // An older kernel: the tracer alone holds it, by what it is.
        Err(rustix::io::Errno::INVAL) if traced => rustix::fs::memfd_create(&name, wanted),
        other => other,
    };
    Ok(CallReply::Fd { fd: made.map_err(rustix::io::Errno::raw_os_error)?, cloexec })
}
