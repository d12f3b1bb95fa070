//! Plans in the log (`--log debug` and `--log trace`), for whoever asks why something is refused.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use callgate_policy::plan::{CallPlan, CallRules, CallWork, FsRule, SessionPlan};
use callgate_worker::protocol::{Received, SyscallAnswer, SyscallQuestion};
use nix::errno::Errno;

use super::channel::AsyncChannel;

/// Logs the plan of a session: its outline at `debug`; each of its rules, and the names of its variables, at `trace`. The values of
/// variables may be secrets and stay out. At `trace` the plan returned has the broker report its questions.
pub(super) fn session(plan: SessionPlan) -> SessionPlan {
    tracing::debug!(
        strength = ?plan.strength,
        landlock_abi = plan.landlock_abi,
        uid = plan.identity.uid,
        gid = plan.identity.gid,
        calls = ?plan.calls,
        grants = plan.grants.len(),
        writer = ?plan.writer(),
        starter = ?plan.starter(),
        network = plan.network.is_some(),
        "a session is opened"
    );
    if !tracing::enabled!(tracing::Level::TRACE) {
        return plan;
    }
    plan.surroundings.iter().chain(&plan.grants).for_each(rule);
    for name in plan.env.keys() {
        tracing::trace!(name, "a variable of the session");
    }
    SessionPlan { log_questions: true, ..plan }
}

/// Most questions that are logged before others have their turn: the log may be read slowly, and the runtime has one thread.
const AT_ONCE: usize = 16;
/// More questions than a channel holds (unix(7), at the usual size of its buffer).
const QUEUED: usize = 2048;

/// Questions that a session's broker was asked, on their way to the log.
pub(super) struct Questions {
    channel: AsyncChannel,
    /// One reads at a time.
    reading: Mutex<()>,
}

/// State of the channel after some questions were logged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// More may have come.
    Some,
    /// All that had come were logged.
    Nothing,
    /// The broker is gone.
    Closed,
}

/// Logs a broker's questions until it is gone.
pub(super) fn questions(channel: AsyncChannel) -> Arc<Questions> {
    let questions = Arc::new(Questions { channel, reading: Mutex::default() });
    let logged = Arc::clone(&questions);
    tokio::spawn(async move {
        while logged.channel.readable().await.is_ok() {
            match logged.log_some() {
                Left::Some | Left::Nothing => tokio::task::yield_now().await,
                Left::Closed => return,
            }
        }
    });
    questions
}

impl Questions {
    /// Logs those that had come by now. Others have their turn meanwhile.
    pub(super) async fn log_queued(&self) {
        for _ in 0..QUEUED / AT_ONCE {
            if self.log_some() != Left::Some {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    fn log_some(&self) -> Left {
        let _one = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..AT_ONCE {
            match self.channel.try_receive::<SyscallQuestion>() {
                Ok(Received::Message(question, _)) => log_question(&question),
                Ok(Received::Data(_)) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Left::Nothing,
                Ok(Received::Closed) | Err(_) => return Left::Closed,
            }
        }
        Left::Some
    }
}

/// Logs how many questions were left out.
pub(super) fn lost_questions(lost: u64) {
    if lost > 0 {
        tracing::trace!(lost, "questions of the broker were not logged: they came faster than they could be written");
    }
}

fn log_question(question: &SyscallQuestion) {
    let SyscallQuestion { worker, thread, about, answer, why, lost, .. } = question;
    lost_questions(*lost);
    let errno = |errno: &i32| Errno::from_raw(*errno).to_string();
    let answer = match answer {
        SyscallAnswer::Returned(value) => format!("done: {value}"),
        SyscallAnswer::Failed(number) => format!("refused: {}", errno(number)),
        SyscallAnswer::Kernel => "left to the kernel".to_owned(),
        SyscallAnswer::Later => "answered later".to_owned(),
        SyscallAnswer::Ended => "ended before its first instruction".to_owned(),
    };
    tracing::trace!(worker, thread, call = question.name(), ?about, answer, why, "the broker was asked");
}

/// Logs the plan of a call: its outline at `debug`, its rules at `trace`. Its arguments stay out.
pub(super) fn call(plan: &CallPlan) {
    let work = match &plan.work {
        CallWork::Tool { name, .. } => format!("tool {name}"),
        CallWork::Program { argv, .. } => argv.first().map(|program| format!("program {program}")).unwrap_or_default(),
    };
    let rules = match &plan.rules {
        CallRules::OfSession => "all of the session's",
        CallRules::Own(_) => "its own",
        CallRules::Narrowed(_) => "narrowed",
        CallRules::Reading => "reading alone",
    };
    tracing::debug!(work, rules, timeout = ?plan.timeout, network = plan.network.is_some(), "a call is carried out");
    if tracing::enabled!(tracing::Level::TRACE) {
        plan.rules.own().iter().for_each(rule);
    }
}

fn rule(rule: &FsRule) {
    let FsRule { path, access, extent, source, .. } = rule;
    tracing::trace!(%path, ?access, ?extent, source, "a rule of the plan");
}
