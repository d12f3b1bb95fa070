//! The broker: one per session. It answers what the kernel asks about (seccomp_unotify(2)), inside the session's mount
//! namespace and Landlock domain, so that a mistake here stays inside too. It holds no secret and opens nothing a call
//! could not be granted.
//!
//! Invariant: nothing is judged in the caller's memory. What a pointer names is copied once; the copy is judged, and
//! the copy is acted on (A6, B18). "Continue" is answered only where the decision hangs on numbers, or where Landlock
//! judges the real call as well.

mod caller;
mod calls;
mod ipc;
mod metadata;
mod processes;
mod shm;
mod sockets;
mod watches;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use callgate_policy::envelope::StepReport;
use callgate_policy::path::HostPath;
use callgate_policy::plan::seccomp::Variant;
use callgate_policy::plan::{Calls as CallCount, PrivateDir, PrivateKind, SessionPlan};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::caller::Caller;
use self::calls::{Call, Calls};
use crate::apply::{done, failure, kernel, session};
use crate::family;
use crate::filters;
use crate::protocol::{Channel, Received, Register, SessionReply, StepFailure};
use crate::sys::fd;
use crate::sys::notify::{self, Answer, Notification};
use crate::sys::process::{self, Fork};
use crate::worker::SessionFacts;
use crate::zygote;

/// How long what is left of a session may resist being killed.
const SWEEP: Duration = Duration::from_secs(10);

/// A handler: one kind of notification, performed or refused. An error is the caller's errno.
type Handler = fn(&mut Broker, &Caller<'_>, &Notification) -> Result<Answer, i32>;

/// Confines itself, starts the zygote, serves until the supervisor is gone. Returns the exit code for this process.
pub(crate) fn run(plan: &SessionPlan, supervisor: &Channel) -> i32 {
    match start(plan, supervisor) {
        Ok(mut broker) => {
            let served = broker.serve(supervisor);
            let ended = broker.end();
            i32::from(served.is_err() || ended.is_err()) * 70
        }
        Err(failed) => match supervisor.send(&SessionReply::Failed(failed), &[]) {
            Ok(()) => 0,
            Err(_) => 70,
        },
    }
}

/// What the zygote says to the broker first; the listener comes with it.
#[derive(serde::Serialize, serde::Deserialize)]
enum ZygoteReply {
    Confined(Vec<StepReport>),
    Failed(StepFailure),
}

fn start(plan: &SessionPlan, supervisor: &Channel) -> Result<Broker, StepFailure> {
    fd::close_all_but(&[supervisor.as_fd()]).map_err(failure("close_fds", "close_range"))?;
    process::ignore_children().map_err(failure("family", "ignore SIGCHLD"))?;
    family::become_subreaper().map_err(failure("family", "become a subreaper"))?;
    rustix::thread::set_name(c"cg-broker").map_err(|e| kernel("family", "name the broker", e.into()))?;
    // Modes are worked out from each caller's own mask.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    let confined = session::confine(plan)?;
    let pair = || Channel::pair().map_err(failure("channels", "socketpair"));
    let ((supervisors, zygotes), (registrations, workers)) = (pair()?, pair()?);
    let facts = SessionFacts {
        landlock_abi: plan.landlock_abi,
        rules: plan.rules.clone(),
        call_domain: confined.call_domain,
        env: plan.env.clone(),
    };
    let inherited =
        zygote::Inherited { supervisor: zygotes, broker: workers, ruleset: confined.call_ruleset, session: facts };
    filters::prepare_tool_filter().map_err(failure("seccomp", "assemble the tool filter"))?;
    let zygote_pid;
    match process::fork().map_err(failure("zygote", "fork"))? {
        Fork::Child => {
            rustix::process::umask(umask);
            process::exit_now(start_zygote(plan, inherited))
        }
        Fork::Parent(pid) => {
            drop(inherited);
            zygote_pid = pid;
        }
    }
    let mut steps = confined.steps;
    let listener = match registrations.receive::<ZygoteReply>().map_err(failure("zygote", "hear from it"))? {
        Received::Message(ZygoteReply::Confined(more), fds) => {
            steps.extend(more);
            fds.into_iter().next().ok_or_else(|| StepFailure::new("seccomp", "no listener came"))?
        }
        Received::Message(ZygoteReply::Failed(failed), _) => return Err(failed),
        Received::Data(_) | Received::Closed => return Err(StepFailure::new("zygote", "it ended while it started")),
    };
    // It has just spoken; were it gone since, this would fail, for its number is not given out again so soon.
    let zygote = rustix::process::Pid::from_raw(zygote_pid)
        .ok_or_else(|| StepFailure::new("zygote", "it has no number"))
        .and_then(|pid| {
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
                .map_err(|e| kernel("zygote", "pidfd_open", e.into()))
        })?;
    let broker = Broker {
        zygote,
        handlers: handlers(),
        listener: Arc::new(listener),
        registrations: Some(registrations),
        calls: Calls::default(),
        readable: plan.rules.iter().map(|rule| rule.path.clone()).collect(),
        private: plan.private.inside.as_path().to_owned(),
        private_kind: plan.private.kind,
    };
    supervisor
        .send(&SessionReply::Ready { steps }, &[supervisors.as_fd()])
        .map_err(failure("channels", "report to the supervisor"))?;
    Ok(broker)
}

fn start_zygote(plan: &SessionPlan, inherited: zygote::Inherited) -> i32 {
    let keep = [inherited.supervisor.as_fd(), inherited.broker.as_fd(), inherited.ruleset.as_fd()];
    let variant = Variant { strength: plan.strength, landlock_abi: plan.landlock_abi };
    let installed = fd::close_all_but(&keep)
        .map_err(failure("close_fds", "close_range"))
        .and_then(|()| filters::install_base(variant).map_err(failure("seccomp", "install the base filter")));
    let (reply, listener) = match installed {
        Ok((listener, length)) => {
            let detail = format!("base filter, {length} instructions, with a listener");
            (ZygoteReply::Confined(vec![done("seccomp", detail)]), Some(listener))
        }
        Err(failed) => (ZygoteReply::Failed(failed), None),
    };
    let fds: Vec<_> = listener.iter().map(OwnedFd::as_fd).collect();
    if inherited.broker.send(&reply, &fds).is_err() || listener.is_none() {
        return 70;
    }
    // Held on, it would be in every worker: a call could then answer its own notifications.
    drop(listener);
    match plan.calls {
        CallCount::Many => i32::from(zygote::run(inherited).is_err()) * 70,
        CallCount::One => zygote::serve_only_call(inherited),
    }
}

/// The session's broker.
struct Broker {
    /// A pidfd: workers hold the same channels as the zygote, so that none of them tells of its end.
    zygote: OwnedFd,
    handlers: HashMap<i64, Handler>,
    /// Shared with threads that wait for a blocking connect.
    listener: Arc<OwnedFd>,
    /// Until all who could register have let go of it.
    registrations: Option<Channel>,
    calls: Calls,
    /// What the session may read, as the plan names it.
    readable: Vec<HostPath>,
    /// The session's private directory, as seen inside.
    private: std::path::PathBuf,
    private_kind: PrivateKind,
}

/// Who handles what. The base filter's `Notify` entries and this table name the same calls; a test compares them.
fn handlers() -> HashMap<i64, Handler> {
    let groups: [&[(libc::c_long, Handler)]; 6] =
        [metadata::HANDLERS, sockets::HANDLERS, ipc::HANDLERS, processes::HANDLERS, shm::HANDLERS, watches::HANDLERS];
    groups.into_iter().flatten().map(|(nr, handler)| (*nr, *handler)).collect()
}

impl Broker {
    fn serve(&mut self, supervisor: &Channel) -> io::Result<()> {
        loop {
            let mut fds = vec![
                PollFd::new(supervisor.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.zygote.as_fd(), PollFlags::POLLIN),
            ];
            fds.extend(self.registrations.as_ref().map(|channel| PollFd::new(channel.as_fd(), PollFlags::POLLIN)));
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            let happened: Vec<PollFlags> = fds.iter().map(|fd| fd.revents().unwrap_or(PollFlags::empty())).collect();
            let [supervisor, notification, zygote, registration @ ..] = happened.as_slice() else { return Ok(()) };
            // The supervisor sends nothing here: anything that comes is its end.
            if !supervisor.is_empty() || !zygote.is_empty() || notification.contains(PollFlags::POLLHUP) {
                return Ok(());
            }
            // A registration may have come while we polled; whoever asks now was registered before it ran.
            if !registration.iter().all(PollFlags::is_empty) || notification.contains(PollFlags::POLLIN) {
                self.register_all()?;
            }
            if notification.contains(PollFlags::POLLIN) {
                self.answer()?;
            }
        }
    }

    /// Takes every registration that has come. The only worker of a session lets go of the channel once it is confined.
    fn register_all(&mut self) -> io::Result<()> {
        while let Some(channel) = &self.registrations {
            let mut fds = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::ZERO) {
                Ok(0) | Err(nix::Error::EINTR) => return Ok(()),
                Ok(_) => {}
                Err(e) => return Err(e.into()),
            }
            match channel.receive::<Register>()? {
                Received::Message(Register::Call { pid, call, write, read }, _) => {
                    self.calls.add(pid, Call::new(call, &write, read));
                }
                Received::Message(Register::Gone { pid }, _) => self.calls.remove(pid),
                Received::Data(_) => {}
                Received::Closed => self.registrations = None,
            }
        }
        Ok(())
    }

    fn answer(&mut self) -> io::Result<()> {
        let Some(notification) = notify::receive(self.listener.as_fd())? else { return Ok(()) };
        let listener = Arc::clone(&self.listener);
        let caller = Caller::new(&listener, &notification);
        let answer = match self.handlers.get(&i64::from(notification.nr)) {
            Some(handler) => handler(self, &caller, &notification).unwrap_or_else(Answer::Fail),
            // The filter asks only about calls in the table; a gap between the two fails closed.
            None => Answer::Fail(libc::EPERM),
        };
        if matches!(answer, Answer::Later) {
            return Ok(());
        }
        notify::answer(listener.as_fd(), notification.id, &answer)
    }

    /// The call that the caller belongs to. Whoever belongs to none (a leftover on its way out) is refused.
    fn call(&mut self, caller: &Caller<'_>) -> Result<&mut Call, i32> {
        self.calls.of(caller).ok_or(libc::EPERM)
    }

    /// The session is over: ends whatever still runs, and empties the private directory.
    fn end(&mut self) -> io::Result<()> {
        self.calls.clear();
        if self.private_kind == PrivateKind::InNamespace {
            // This process is the init of the session's PID namespace: the kernel ends all in it, and then its mounts.
            return Ok(());
        }
        family::end_all(&|_| false, SWEEP)?;
        for name in PrivateDir::PARTS {
            empty(&self.private.join(name))?;
        }
        Ok(())
    }
}

/// Removes a directory with all in it. Iterative, by moving what lies deep to the top: a tree of any depth that a call
/// has built costs neither stack nor an error (`ENAMETOOLONG`).
pub(crate) fn empty(directory: &std::path::Path) -> io::Result<()> {
    let trash = |n: u64| directory.join(format!(".trash-{n}"));
    let mut moved = 0;
    let mut pending = vec![directory.to_owned()];
    while let Some(current) = pending.pop() {
        let entries = match fs::read_dir(&current) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                use std::os::unix::fs::PermissionsExt as _;
                fs::set_permissions(&current, fs::Permissions::from_mode(0o700))?;
                fs::read_dir(&current)?
            }
            Err(e) => return Err(e),
        };
        for entry in entries {
            let path = entry?.path();
            if fs::remove_file(&path).is_ok() || fs::remove_dir(&path).is_ok() {
                continue;
            }
            // A directory that holds something: to the top, to be emptied in its turn.
            moved += 1;
            let target = trash(moved);
            match fs::rename(&path, &target) {
                Ok(()) => pending.push(target),
                Err(_) => pending.push(path),
            }
        }
        if current != directory && fs::remove_dir(&current).is_err() {
            // Filled while it was emptied? Nobody is left to do so: something here cannot be removed.
            continue;
        }
    }
    fs::remove_dir(directory)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use std::collections::BTreeSet;
    use std::str::FromStr as _;

    use callgate_policy::plan::Strength;
    use callgate_policy::plan::seccomp::{Action, Verdict, base};

    use super::*;

    fn asks(action: &Action) -> bool {
        match action {
            Action::Always(verdict) => *verdict == Verdict::Notify,
            Action::Args { rules, otherwise } => {
                *otherwise == Verdict::Notify || rules.iter().any(|rule| rule.then == Verdict::Notify)
            }
        }
    }

    /// The filter and the table are written apart. A call that is asked about and has no handler would always be refused;
    /// a handler that is never asked would be dead.
    #[test]
    fn every_notified_call_has_a_handler_and_every_handler_is_asked() {
        let mut asked = BTreeSet::new();
        for strength in [Strength::Landlock, Strength::Namespaces] {
            for landlock_abi in 1..=7 {
                let filter = base(Variant { strength, landlock_abi });
                let names = filter.calls().filter(|(_, action)| asks(action)).map(|(name, _)| name);
                asked.extend(names.filter_map(|name| syscalls::Sysno::from_str(name).ok()).map(|nr| nr.id() as i64));
            }
        }
        assert_eq!(handlers().into_keys().collect::<BTreeSet<_>>(), asked);
    }

    /// A tree of any depth, with directories that may not be entered, costs neither stack nor an error.
    #[test]
    fn a_deep_tree_is_emptied() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("tmp");
        fs::create_dir(&directory).unwrap();
        let mut at = rustix::fs::open(&directory, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
            rustix::fs::openat(&at, "f", rustix::fs::OFlags::CREATE | rustix::fs::OFlags::RDWR, 0o600.into()).unwrap();
            at = rustix::fs::openat(&at, "d", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        }
        empty(&directory).unwrap();
        assert!(rustix::fs::stat(&directory).is_err());
    }
}
