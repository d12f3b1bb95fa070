//! Tracing within a call (`debug`): what of ptrace(2) the filter cannot judge by numbers alone, and what procfs tells debuggers.
//!
//! Whom a process may trace, the kernel says: Landlock lets a domain trace itself and what lies below it, from its first ABI
//! on, and each program that callgate starts has a domain of its own. The broker, the zygotes and the call's init are above
//! all of them, other calls beside. What a tracer makes of another's system call is judged after it has made it.
//!
//! What is left to the kernel here depends on numbers alone, which nobody changes while the caller waits: a thread that sleeps
//! in its question is in no stop, in which a tracer could set its registers.

use std::os::fd::OwnedFd;

use callgate_policy::envelope::StepReport;
use callgate_policy::plan::{Mechanism, SessionPlan, Strength};
use callgate_policy::step::Step;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::process::PidfdFlags;

use super::caller::{Caller, Thread, process_of};
use super::calls::ExitTracer;
use super::gate::can_trace;
use super::refused::refuse;
use super::state::{Broker, NotificationHandler};
use crate::apply::done;
use crate::procfs::{Procfs, TOLD_OF_SIBLINGS};
use crate::protocol::StepFailure;
use crate::sys::notify::{CallReply, Notification};
use crate::sys::process::{OneThread, Pid};

pub(super) const HANDLERS: &[(libc::c_long, NotificationHandler)] = &[(libc::SYS_ptrace, ptrace)];

/// Advice where tracing is barred.
const BARRED: &str = "this host lets nobody trace, so that debuggers would not work; set kernel.yama.ptrace_scope to 0 or 1 and \
                      let a container's seccomp profile allow ptrace, or leave `debug` out";

/// Confirms that a session may have `debug`: this host lets processes trace their children, and Landlock bounds whom else.
pub(super) fn confirm(plan: &SessionPlan, one_thread: OneThread) -> Result<StepReport, StepFailure> {
    if !plan.keeps(Mechanism::Landlock) {
        return Err(StepFailure::new(Step::Debug, "nothing but Landlock bounds whom a call may trace"));
    }
    can_trace(one_thread)
        .map_err(|e| StepFailure { errno: e.raw_os_error(), ..StepFailure::new(Step::Debug, BARRED) })?;
    Ok(done(Step::Debug, "ptrace within the call, by Landlock"))
}

/// The bits of a request's options that take an answer of the broker's: PTRACE_O_TRACEEXIT beside those that the filter lets
/// pass.
const OPTIONS: u64 = 0x10_00ff;

fn ptrace(broker: &mut Broker, caller: &Caller<'_>, n: &Notification) -> Result<CallReply, i32> {
    if !broker.debug {
        return refuse(broker, caller, callgate_policy::envelope::Blocked::Ptrace);
    }
    let Ok(request) = u32::try_from(n.args[0]) else { return Err(libc::EPERM) };
    match request {
        libc::PTRACE_TRACEME => ask_to_be_traced(broker, caller),
        libc::PTRACE_SEIZE | libc::PTRACE_SETOPTIONS if n.args[3] & !OPTIONS == 0 => stop_at_exit(broker, caller),
        // What the filter does not list.
        _ => Err(libc::EPERM),
    }
}

/// PTRACE_TRACEME: by whoever is the parent. Not by the call's init, which would have to let go of each stop. A parent that
/// ends meanwhile leaves its child to the init all the same, which then kills it ([`crate::sys::process::reap`]).
fn ask_to_be_traced(broker: &mut Broker, caller: &Caller<'_>) -> Result<CallReply, i32> {
    let worker = broker.calls.worker_of_caller(caller).ok_or(libc::EPERM)?;
    match Procfs::USUAL.parent_of(caller.tid()) {
        Some(parent) if parent != worker => Ok(CallReply::Continue),
        _ => Err(libc::EPERM),
    }
}

/// PTRACE_O_TRACEEXIT, which has a tracee stop while it ends, be it killed, until its tracer lets it go or ends itself. Two
/// that have set it on one another would never end. So one process of a call may have set it, as long as it lives.
fn stop_at_exit(broker: &mut Broker, caller: &Caller<'_>) -> Result<CallReply, i32> {
    let process = process_of(caller.tid()).ok_or(libc::EPERM)?;
    let number = rustix::process::Pid::from_raw(process).ok_or(libc::EPERM)?;
    let fd = rustix::process::pidfd_open(number, PidfdFlags::empty()).map_err(rustix::io::Errno::raw_os_error)?;
    // The caller waits still, so that its process has had its number all the while.
    caller.confirm()?;
    let call = broker.call(caller)?;
    match &call.exit_tracer {
        Some(other) if other.process != process && other.is_alive() => Err(libc::EPERM),
        Some(own) if own.process == process && own.is_alive() => Ok(CallReply::Continue),
        _ => {
            call.exit_tracer = Some(ExitTracer { process, fd });
            Ok(CallReply::Continue)
        }
    }
}

/// Path below `/proc`, and the process that it is of.
struct ProcPath {
    /// `None` for `/proc` itself.
    process: Option<Pid>,
    /// From the process's directory on; empty for that.
    rest: String,
}

impl Broker {
    /// True if it opens what procfs tells of a call's processes: where it is the host's, and Landlock's rules could
    /// name only directories of processes that there are already.
    pub(super) fn shows_processes(&self) -> bool {
        self.debug && self.strength == Strength::Landlock
    }

    /// Opens for reading what procfs tells of a process of the caller's call. `None` if it is about something else.
    ///
    /// What the caller named is read once and parsed here; by what was parsed it is opened. No link is followed, and the
    /// process is the one that was judged: it has its number before and after.
    pub(super) fn show(
        &mut self,
        caller: &Caller<'_>,
        dirfd: i32,
        path: &[u8],
        asked: OFlags,
    ) -> Result<Option<CallReply>, i32> {
        let changes = OFlags::WRONLY | OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::PATH;
        if !self.shows_processes() || asked.intersects(changes) {
            return Ok(None);
        }
        let Some(shown) = shown(caller, dirfd, path) else { return Ok(None) };
        let with = (asked & (OFlags::DIRECTORY | OFlags::NONBLOCK)) | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = match shown.process {
            // Which processes there are shows without it, by kill(2).
            None => open_proc(with | OFlags::DIRECTORY)?,
            Some(process) => {
                // A number that is nobody's is told as such.
                let thread = Thread::open(process)?;
                if process_of(caller.tid()) != Some(process) && !self.calls.are_siblings(caller, process) {
                    return Err(libc::EACCES);
                }
                let fd = thread.open_below(&shown.rest, with)?;
                if !thread.is_there() {
                    return Err(libc::ESRCH);
                }
                fd
            }
        };
        Ok(Some(CallReply::Fd { fd, cloexec: asked.contains(OFlags::CLOEXEC) }))
    }
}

fn open_proc(flags: OFlags) -> Result<OwnedFd, i32> {
    let without = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, "/proc", flags, Mode::empty(), without).map_err(rustix::io::Errno::raw_os_error)
}

/// Subject of a path below `/proc`, if it is about processes and listed.
fn shown(caller: &Caller<'_>, dirfd: i32, path: &[u8]) -> Option<ProcPath> {
    let whole;
    let text = match path.strip_prefix(b"/") {
        Some(_) => std::str::from_utf8(path).ok()?,
        // Relative to a directory that was opened here before. (Of those in the working directory nobody asks.)
        None if dirfd != libc::AT_FDCWD => {
            let base = String::from_utf8(caller.describe_fd(dirfd).ok()?).ok()?;
            whole = format!("{base}/{}", std::str::from_utf8(path).ok()?);
            &whole
        }
        None => return None,
    };
    let mut names = text.split('/').filter(|name| !name.is_empty() && *name != ".");
    if names.next() != Some("proc") {
        return None;
    }
    let Some(first) = names.next() else { return Some(ProcPath { process: None, rest: String::new() }) };
    let mut rest: Vec<&str> = names.collect();
    let (own, thread) = (process_of(caller.tid())?, caller.tid().to_string());
    let process = match first {
        "self" => own,
        "thread-self" => {
            rest.splice(0..0, ["task", &thread]);
            own
        }
        number => number.parse().ok().filter(|number: &Pid| *number > 0)?,
    };
    is_listed(&rest).then(|| ProcPath { process: Some(process), rest: rest.join("/") })
}

/// True if a process's file is shown to the others of its call.
fn is_listed(rest: &[&str]) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match rest {
        [] | ["task"] => true,
        ["task", thread, rest @ ..] => is_number(thread) && (rest.is_empty() || is_told(rest)),
        rest => is_told(rest),
    }
}

fn is_told(rest: &[&str]) -> bool {
    match rest {
        ["fd" | "fdinfo"] => true,
        ["fdinfo", number] => number.parse::<u32>().is_ok(),
        [name] => TOLD_OF_SIBLINGS.contains(name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_a_process_is_a_list() {
        for (path, told) in [
            ("", true),
            ("stat", true),
            ("maps", true),
            ("fd", true),
            ("fdinfo/3", true),
            ("task", true),
            ("task/7", true),
            ("task/7/status", true),
            ("task/7/fd", true),
            ("mem", false),
            ("environ", false),
            ("root", false),
            ("root/etc/shadow", false),
            ("cwd/x", false),
            ("fd/3", false),
            ("ns/net", false),
            ("net/tcp", false),
            ("mountinfo", false),
            ("task/../mem", false),
            ("task/7/../../mem", false),
            ("task/7/mem", false),
            ("task/7/task/7/stat", false),
            ("..", false),
            ("../7/stat", false),
        ] {
            let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
            assert_eq!(is_listed(&names), told, "{path}");
        }
    }
}
