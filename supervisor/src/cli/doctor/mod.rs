//! `callgate doctor`: what this host can enforce, found out by doing it.

mod attack;
mod host;
mod trial;

use std::io::Write as _;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

pub(crate) use self::attack::attack;
use self::trial::Trial;
use super::bench::Scratch;
use super::exit::Failure;
use super::paint::{self, Word};
use super::{forked, supervise};
use crate::host::{HostError, HostSupport};
use crate::session::StrengthChoice;

/// How something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// It is there, and was tried where it can be.
    Ok,
    /// It is not there.
    Missing,
    /// It is not there, or not as it could be, and nothing that callgate promises hangs on it.
    Note,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    /// What was seen.
    found: String,
    /// What holds in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    instead: Option<String>,
    /// What to do, or to type, to get it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remedy: Vec<String>,
}

impl Check {
    fn new(name: &'static str, state: State, found: impl Into<String>) -> Self {
        Self { name, state, found: found.into(), instead: None, remedy: Vec::new() }
    }

    fn instead(self, instead: impl Into<String>) -> Self {
        Self { instead: Some(instead.into()), ..self }
    }

    fn remedy(mut self, remedy: impl IntoIterator<Item = String>) -> Self {
        self.remedy.extend(remedy);
        self
    }
}

pub(super) fn doctor(json: bool) -> Result<ExitCode, Failure> {
    let mut checks = vec![host::kernel()];
    let support = match HostSupport::probe() {
        Ok(support) => support,
        Err(error) => {
            checks.push(Check::new("landlock", State::Missing, error.to_string()).remedy([error.remedy().to_owned()]));
            checks.extend(host::always());
            return conclude(&checks, Err(HostError::NoLandlock.into()), json);
        }
    };
    let scratch = Scratch::make()?;
    let (landlock, namespaces) = supervise(forked()?, async |supervisor| {
        let landlock = Trial::of(&supervisor, &scratch, StrengthChoice::Landlock).await;
        let namespaces = Trial::of(&supervisor, &scratch, StrengthChoice::Namespaces).await;
        Ok((landlock, namespaces))
    })?;
    checks.push(host::landlock(support.landlock_abi));
    checks.push(trial::seccomp(&[&landlock, &namespaces]));
    checks.push(trial::without_namespaces(&landlock));
    checks.push(trial::with_namespaces(&namespaces));
    checks.extend(host::missing_rights(support.landlock_abi, namespaces.runs()));
    checks.push(trial::broker(&[&landlock, &namespaces]));
    checks.push(host::other_processes(namespaces.runs()));
    checks.extend(host::always());
    let strength = match (namespaces.into_failure(), landlock.into_failure()) {
        (None, _) => Ok("with namespaces; results name what enforced them"),
        (_, None) => Ok("without namespaces: Landlock and seccomp hold alone; results name what enforced them"),
        (Some(_), Some(error)) => Err(error),
    };
    conclude(&checks, strength, json)
}

/// Prints everything; an error if nothing can run here, with the status of the host's fault.
fn conclude(checks: &[Check], strength: Result<&str, Failure>, json: bool) -> Result<ExitCode, Failure> {
    let mut out = paint::stdout();
    let written = if json {
        let record = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "can_run": strength.is_ok(),
            "sessions": strength.as_ref().ok(),
            "checks": checks,
        });
        writeln!(out, "{record:#}")
    } else {
        people(&mut out, checks)
            .and_then(|()| strength.as_ref().map_or(Ok(()), |how| writeln!(out, "\nSessions run here {how}.")))
    };
    written.map_err(Failure::print("print what was found"))?;
    strength.map(|_| ExitCode::SUCCESS)
}

fn people(out: &mut impl std::io::Write, checks: &[Check]) -> std::io::Result<()> {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in checks {
        let word = match check.state {
            State::Ok => Word::Good("ok"),
            State::Missing => Word::Bad("missing"),
            State::Note => Word::Warn("note"),
        };
        writeln!(out, "{:<width$}  {word:<7}  {}", check.name, check.found)?;
        let indent = " ".repeat(width + 11);
        if let Some(instead) = &check.instead {
            writeln!(out, "{indent}instead: {instead}")?;
        }
        for remedy in &check.remedy {
            writeln!(out, "{indent}to do:   {remedy}")?;
        }
    }
    Ok(())
}
