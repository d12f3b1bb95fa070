//! Mechanisms that this host can enforce, found out by doing it: what `callgate doctor` prints.
//!
//! [`examine`] opens a session in each strength and runs a program in it; [`attack`] tries to break out.

pub mod attack;
mod check;
mod error;
mod host;
mod trial;

use std::path::Path;

use callgate_policy::plan::Strength;
use serde::{Serialize, Serializer};

pub use self::check::{Check, State};
pub use self::error::DoctorError;
use self::trial::Trial;
use crate::host::HostError;
use crate::open_error::OpenError;
use crate::supervisor::Supervisor;

/// Findings on a host.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Everything that was looked at.
    pub checks: Vec<Check>,
    /// The greater strength that sessions have here, or why none runs. Serialised as `null` then.
    #[serde(serialize_with = "strength_or_null")]
    pub strength: Result<Strength, DoctorError>,
}

fn strength_or_null<S: Serializer>(strength: &Result<Strength, DoctorError>, to: S) -> Result<S::Ok, S::Error> {
    strength.as_ref().ok().serialize(to)
}

impl Report {
    /// For a host on which no [`Supervisor`] can be made.
    #[must_use]
    pub fn without_supervisor(error: HostError) -> Self {
        let landlock = Check::new("landlock", State::Missing, error.to_string()).remedy([error.remedy().to_owned()]);
        let checks = [host::kernel(), landlock].into_iter().chain(host::always()).collect();
        Self { checks, strength: Err(OpenError::Host(error).into()) }
    }
}

/// Examines this host. `directory` is an empty one, which the sessions' programs may change.
///
/// # Errors
/// [`DoctorError::Io`] if nothing can be written there. What the host lacks is no error, but in the report.
pub async fn examine(supervisor: &Supervisor, directory: &Path) -> Result<Report, DoctorError> {
    std::fs::write(directory.join(trial::FILE), "notes\n")
        .map_err(DoctorError::io("write into the scratch directory"))?;
    let landlock = Trial::of(supervisor, directory, Strength::Landlock).await;
    let namespaces = Trial::of(supervisor, directory, Strength::Namespaces).await;
    let abi = supervisor.support().landlock_abi;
    let mut checks = vec![host::kernel(), host::landlock(abi), trial::seccomp(&[&landlock, &namespaces])];
    checks.extend([trial::without_namespaces(&landlock), trial::with_namespaces(&namespaces)]);
    checks.extend(host::missing_rights(abi, namespaces.runs()));
    checks.push(trial::broker(&[&landlock, &namespaces]));
    checks.push(host::other_processes(namespaces.runs()));
    checks.extend(host::always());
    let strength = match (namespaces.into_error(), landlock.into_error()) {
        (None, _) => Ok(Strength::Namespaces),
        (_, None) => Ok(Strength::Landlock),
        (Some(_), Some(error)) => Err(error),
    };
    Ok(Report { checks, strength })
}
