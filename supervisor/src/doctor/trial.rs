//! Sessions that are opened to see whether they can be.

use std::path::Path;

use callgate_policy::envelope::StepReport;
use callgate_policy::plan::Strength;
use callgate_policy::step::Step;

use super::check::{Check, State};
use super::{DoctorError, host};
use crate::confine::Stdio;
use crate::error::CallError;
use crate::session::{Session, SessionSpec};
use crate::supervisor::Supervisor;

/// `chmod` is carried out by the broker, which reads the path in the caller's memory (process_vm_readv(2)).
const CHMOD: [&str; 2] = ["/bin/chmod", "/usr/bin/chmod"];

/// Whose mode is changed.
pub(super) const FILE: &str = "notes.txt";

/// Result of one strength.
pub(super) enum Trial {
    /// A session stood, and `true` ran in it.
    Runs {
        steps: Vec<StepReport>,
        /// Result of the broker: whether it could do what it is asked; none if there is no program here to ask it with.
        broker: Option<Result<(), String>>,
    },
    Fails(DoctorError),
}

impl Trial {
    pub(super) async fn of(supervisor: &Supervisor, directory: &Path, strength: Strength) -> Self {
        let spec = SessionSpec::developer(directory).strength(strength.into());
        let session = match supervisor.open(spec).await {
            Ok(session) => session,
            Err(error) => return Self::Fails(error.into()),
        };
        match run(&session, &["true"]).await {
            Ok(Some(0)) => {}
            Ok(code) => {
                let reason = format!("it ended with {code:?}");
                return Self::Fails(DoctorError::Unusable { reason: format!("`true` ran in a session, but {reason}") });
            }
            Err(error) => return Self::Fails(error),
        }
        let broker = match CHMOD.iter().find(|path| rustix::fs::stat(**path).is_ok()) {
            None => None,
            Some(chmod) => Some(match run(&session, &[chmod, "600", FILE]).await {
                Ok(Some(0)) => Ok(()),
                Ok(code) => Err(format!("chmod(2) of an own file failed, {chmod} ended with {code:?}")),
                Err(error) => Err(error.text()),
            }),
        };
        Self::Runs { steps: session.steps().cloned().collect(), broker }
    }

    pub(super) fn runs(&self) -> bool {
        matches!(self, Self::Runs { .. })
    }

    /// Reason why nothing ran, as the host's fault.
    pub(super) fn into_error(self) -> Option<DoctorError> {
        match self {
            Self::Runs { .. } => None,
            Self::Fails(error @ (DoctorError::Open(_) | DoctorError::Unusable { .. })) => Some(error),
            Self::Fails(other) => Some(DoctorError::Unusable { reason: other.text() }),
        }
    }

    fn failed_step(&self) -> Option<&callgate_worker::protocol::StepFailure> {
        match self {
            Self::Fails(error) => error.failed_step(),
            Self::Runs { .. } => None,
        }
    }

    /// The reason in words; a step that failed comes with the kernel's own answer.
    fn reason(&self) -> String {
        match (self, self.failed_step()) {
            (_, Some(failed)) => failed.to_string(),
            (Self::Fails(error), None) => error.text(),
            (Self::Runs { .. }, None) => String::new(),
        }
    }
}

/// How `argv` ended in the session.
async fn run(session: &Session, argv: &[&str]) -> Result<Option<i32>, DoctorError> {
    let stdio = Stdio::null().map_err(DoctorError::io("open /dev/null"))?;
    let program = session.spawn(argv, stdio).await?;
    Ok(program.wait().await.map_err(CallError::from)?.code)
}

fn confirmed(steps: &[StepReport]) -> String {
    let names: Vec<&str> = steps.iter().map(|step| step.step.name()).collect();
    format!("a session opened and ran `true`; confirmed: {}", names.join(", "))
}

pub(super) fn without_namespaces(trial: &Trial) -> Check {
    let name = "without namespaces";
    match trial {
        Trial::Runs { steps, .. } => Check::new(name, State::Ok, confirmed(steps)),
        Trial::Fails(_) => Check::new(name, State::Missing, trial.reason()),
    }
}

pub(super) fn with_namespaces(trial: &Trial) -> Check {
    let name = "namespaces";
    match trial {
        Trial::Runs { steps, .. } => Check::new(name, State::Ok, confirmed(steps)),
        Trial::Fails(_) => Check::new(name, State::Missing, trial.reason())
            .instead("Landlock and seccomp hold alone, with the same grants; every result says so")
            .remedy(host::namespace_remedies()),
    }
}

/// The filter with its listener is a step of every session.
pub(super) fn seccomp(trials: &[&Trial]) -> Check {
    let detail = trials.iter().find_map(|trial| match trial {
        Trial::Runs { steps, .. } => {
            steps.iter().find(|step| step.step == Step::Seccomp).map(|step| step.detail.clone())
        }
        Trial::Fails(_) => None,
    });
    match detail {
        Some(detail) => Check::new("seccomp", State::Ok, detail),
        None => {
            let reason =
                trials.iter().find(|trial| trial.failed_step().is_some_and(|failed| failed.step == Step::Seccomp));
            let found = reason.map_or("no session came to it".to_owned(), |trial| trial.reason());
            Check::new("seccomp", State::Missing, found).remedy([
                "use Linux 5.13 or newer built with CONFIG_SECCOMP_FILTER; a tracer or another filter with a listener in \
                 front of callgate must not have one of its own"
                    .to_owned(),
            ])
        }
    }
}

/// Check whether the broker can read what callers point at.
pub(super) fn broker(trials: &[&Trial]) -> Check {
    let name = "broker";
    let scope = host::ptrace_scope();
    let yama = scope.map_or("no Yama".to_owned(), |scope| format!("kernel.yama.ptrace_scope = {scope}"));
    let tried: Vec<&Result<(), String>> = trials
        .iter()
        .filter_map(|trial| match trial {
            Trial::Runs { broker, .. } => broker.as_ref(),
            Trial::Fails(_) => None,
        })
        .collect();
    match (tried.iter().find_map(|result| result.as_ref().err()), tried.is_empty()) {
        (None, false) => Check::new(
            name,
            State::Ok,
            format!("reads its callers' memory (process_vm_readv), as `chmod` showed; {yama}"),
        ),
        (None, true) => Check::new(name, State::Note, format!("not tried: no session ran a `chmod` here; {yama}")),
        (Some(reason), _) => Check::new(name, State::Missing, format!("{reason}; {yama}"))
            .instead("nothing: what needs it (metadata writes, sockets, signals) is refused to the call")
            .remedy(match scope {
                Some(scope) if scope > 1 => vec!["sudo sysctl -w kernel.yama.ptrace_scope=1".to_owned()],
                _ => vec![
                    "let the seccomp profile around callgate allow process_vm_readv, as Docker's default does"
                        .to_owned(),
                ],
            }),
    }
}
