//! The launcher: a small process with one thread that forks brokers.
//!
//! The supervisor never forks: its size and its threads would make that slow and unsafe. It starts the launcher first,
//! while it is small, and asks it for each session.

use std::io;
use std::os::fd::AsFd as _;

use callgate_policy::plan::{PROTOCOL_VERSION, SessionPlan, Strength};

use crate::apply::{failure, namespace, privilege};
use crate::broker;
use crate::protocol::{Channel, OpenSession, Received, SessionReply, StepFailure};
use crate::sys::fd;
use crate::sys::process::{self, Fork};

/// What a caller of [`start`] gets.
#[derive(Debug)]
pub struct Launcher {
    /// Where sessions are asked for. The launcher ends when it is closed.
    pub channel: Channel,
}

/// Forks the launcher.
///
/// # Errors
/// `EBUSY` if this process already has threads; fork's own.
pub fn start() -> io::Result<Launcher> {
    let (ours, theirs) = Channel::pair()?;
    match process::fork()? {
        Fork::Parent(_) => Ok(Launcher { channel: ours }),
        Fork::Child => {
            drop(ours);
            run(theirs)
        }
    }
}

/// Serves sessions until the other side is gone. Never returns: this process has no other purpose.
pub fn run(channel: Channel) -> ! {
    let code = match serve(channel) {
        Ok(()) => 0,
        Err(_) => 70,
    };
    process::exit_now(code)
}

fn serve(channel: Channel) -> io::Result<()> {
    fd::close_all_but(&[channel.as_fd()])?;
    // A session of its own: a terminal's Ctrl-C is for the program, not for those that watch it.
    rustix::process::setsid().map(drop).or_else(ignore_permission)?;
    rustix::thread::set_name(c"cg-launcher")?;
    process::ignore_children()?;
    loop {
        match channel.receive::<OpenSession>()? {
            Received::Message(OpenSession { plan }, fds) => {
                let Some(session) = fds.into_iter().next() else { continue };
                open(&plan, &Channel::from(session))?;
            }
            Received::Data(_) => {}
            Received::Closed => return Ok(()),
        }
    }
}

fn ignore_permission(errno: rustix::io::Errno) -> rustix::io::Result<()> {
    // Already a session leader.
    if errno == rustix::io::Errno::PERM { Ok(()) } else { Err(errno) }
}

/// Which process came out of [`fork_broker`].
enum Side {
    Launcher,
    Broker,
}

/// Forks the broker of one session, into its namespaces where the plan has them. A failure is the session's, told on
/// its channel; the launcher goes on.
fn open(plan: &SessionPlan, session: &Channel) -> io::Result<()> {
    match fork_broker(plan, session) {
        Ok(Side::Launcher) => Ok(()),
        Ok(Side::Broker) => process::exit_now(broker::run(plan, session)),
        // A supervisor that is gone needs no answer.
        Err(failed) => session.send(&SessionReply::Failed(failed), &[]).or(Ok(())),
    }
}

fn fork_broker(plan: &SessionPlan, session: &Channel) -> Result<Side, StepFailure> {
    if plan.version != PROTOCOL_VERSION {
        return Err(StepFailure::new(
            "protocol",
            format!("the supervisor speaks version {}, this launcher {PROTOCOL_VERSION}: restart both", plan.version),
        ));
    }
    let same_user = rustix::process::geteuid().as_raw() == plan.identity.uid
        && rustix::process::getegid().as_raw() == plan.identity.gid;
    if same_user {
        // Here already, because groups cannot be dropped in the user namespace (D7); they are no use to a launcher.
        privilege::become_owner(plan.identity)?;
        return fork_into_namespaces(plan);
    }
    // Become the other user in a process between, so that the user namespace is that user's.
    match process::fork().map_err(failure("fork", "fork"))? {
        Fork::Parent(_) => Ok(Side::Launcher),
        Fork::Child => match privilege::become_owner(plan.identity).and_then(|_| fork_into_namespaces(plan)) {
            Ok(Side::Broker) => Ok(Side::Broker),
            Ok(Side::Launcher) => process::exit_now(0),
            Err(failed) => {
                let told = session.send(&SessionReply::Failed(failed), &[]);
                process::exit_now(if told.is_ok() { 0 } else { 70 })
            }
        },
    }
}

fn fork_into_namespaces(plan: &SessionPlan) -> Result<Side, StepFailure> {
    let namespaces = match plan.strength {
        Strength::Namespaces => namespace::ALL,
        Strength::Landlock => 0,
    };
    match process::fork_into(namespaces).map_err(failure("namespaces", "clone"))? {
        Fork::Child => Ok(Side::Broker),
        Fork::Parent(_) => Ok(Side::Launcher),
    }
}
