//! `callgate doctor`: prints what this host can enforce.

mod attack;

use std::process::ExitCode;

use callgate::HostSupport;
use callgate::doctor::{Check, Report, State, examine};
use callgate_policy::plan::Strength;
use serde_json::json;

pub(super) use self::attack::attack;
use super::exit::CommandFailure;
use super::paint::{self, PaintedWord};
use super::supervisor::{forked, supervise};
use super::temporary::Temporary;

pub(super) fn doctor(json: bool) -> Result<ExitCode, CommandFailure> {
    if let Err(error) = HostSupport::probe() {
        return conclude(Report::without_supervisor(error), json);
    }
    let scratch = Temporary::make("callgate-scratch")?;
    let report = supervise(forked()?, async |supervisor| Ok(examine(&supervisor, scratch.path()).await?))?;
    conclude(report, json)
}

/// Prints everything; an error if nothing can run here, with the status of the host's fault.
fn conclude(report: Report, json: bool) -> Result<ExitCode, CommandFailure> {
    use std::io::Write as _;
    let Report { checks, strength, .. } = report;
    let sessions = strength.as_ref().ok().map(|strength| match strength {
        Strength::Namespaces => "with namespaces; results name what enforced them",
        Strength::Landlock => "without namespaces: Landlock and seccomp hold alone; results name what enforced them",
    });
    let mut out = paint::stdout();
    let written = if json {
        let record = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "can_run": sessions.is_some(),
            "sessions": sessions,
            "checks": checks,
        });
        writeln!(out, "{record:#}")
    } else {
        people(&mut out, &checks)
            .and_then(|()| sessions.map_or(Ok(()), |how| writeln!(out, "\nSessions run here {how}.")))
    };
    written.map_err(CommandFailure::print("print what was found"))?;
    strength?;
    Ok(ExitCode::SUCCESS)
}

fn people(out: &mut impl std::io::Write, checks: &[Check]) -> std::io::Result<()> {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in checks {
        let word = match check.state {
            State::Ok => PaintedWord::Good("ok"),
            State::Missing => PaintedWord::Bad("missing"),
            State::Note => PaintedWord::Warn("note"),
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
