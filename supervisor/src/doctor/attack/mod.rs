//! Tries to break out, and tells what held, and which mechanism holds it alone: what `callgate doctor --attack` prints.
//!
//! Invariant: "held" is said only of an act that succeeds outside, in this very run, and left no canary changed.

mod attempts;
mod field;
mod hosts;
mod layers;
mod places;
mod report;
mod subject;
mod table;

pub use callgate_policy::plan::Mechanism;
use callgate_policy::plan::Strength;

use self::attempts::{Control, Tried, make};
pub use self::field::Field;
pub use self::places::{Holder, MECHANISMS, Place, STRENGTHS};
pub use self::report::{
    ActReport, AttackReport, CallReport, HeldBy, Hostless, MissingStrength, Opening, Report, Sighting, Stopped,
    Summary, Verdict,
};
use self::subject::{ActAnswer, AttackSubject};
pub use self::table::Area;
use self::table::{NetworkGrants, Proof, TableAct, attacks, sees};
use super::DoctorError;
use crate::supervisor::Supervisor;

/// Runs a program that was started as `attempt WORDS`: it makes the attempt, with its own rights, and tells what came
/// of it. Returns its exit status. The binary of [`Field::make`] must do so, as `callgate` does.
#[must_use]
pub fn attempt(words: &[String]) -> u8 {
    callgate_worker::probe::main(words)
}

/// Every act outside.
async fn controls(field: &mut Field) -> Result<Vec<Tried>, DoctorError> {
    field.start_hosts().map_err(DoctorError::io("start servers to aim at"))?;
    if let Some(reason) = unusable(&AttackSubject::Bare, field, GRANTED).await? {
        // As where programs may not be started from temporary directories.
        return Err(DoctorError::Untried { what: "no sandbox at all".to_owned(), reason });
    }
    let mut all = Vec::new();
    for attack in attacks() {
        for act in attack.acts {
            let seen = make(&AttackSubject::Bare, field, act).await?;
            let control = if seen.got_through(act, field.token()) {
                Control::Succeeded
            } else {
                Control::Failed(match seen.answer {
                    ActAnswer::Done(_) => "outside it saw nothing of ours either".to_owned(),
                    ActAnswer::Errno { name, at } => format!("outside too: {at} {name}"),
                    ActAnswer::Signal(number) => format!("outside too: signal {number}"),
                    ActAnswer::NotTried(why) => why,
                })
            };
            all.push(Tried { attack, act, control, seen: Vec::new() });
        }
    }
    Ok(all)
}

/// Every act whose control succeeded, in one place, of the attacks that are made where this is granted.
async fn make_all(
    subject: &AttackSubject,
    (place, grants): (Place, NetworkGrants),
    field: &mut Field,
    tried: &mut [Tried],
) -> Result<(), DoctorError> {
    let due = |each: &&mut Tried| matches!(each.control, Control::Succeeded) && each.attack.area.grants() == grants;
    for each in tried.iter_mut().filter(due) {
        let seen = make(subject, field, each.act).await?;
        each.seen.push((place, seen));
    }
    Ok(())
}

/// Acts that the sandbox must let through, for what it stops to mean something.
const GRANTED: &[TableAct] = &[
    TableAct { words: &["read", "{ws}/notes.txt"], proof: Proof::Success, terminal: false },
    TableAct { words: &["create", "{ws}/taken", "x"], proof: Proof::Success, terminal: false },
];

/// The host that is granted answers, which refusals of others mean nothing without.
const REACHED: &[TableAct] = &[sees(&["http", "127.0.0.1", "{port}"])];
/// By the session's own proxy as well, whatever is said of it there.
const REACHED_BY_PROXY: &[TableAct] = &[
    sees(&["by-proxy", "{proxy}", "socks", "127.0.0.1", "{port}"]),
    sees(&["by-proxy", "{proxy}", "socks", "{host}", "{port}"]),
    sees(&["by-proxy", "{proxy}", "connect", "{host}", "{port}"]),
    sees(&["by-proxy", "{proxy}", "request", "{host}", "{port}"]),
    sees(&["by-proxy-as", "{proxy}", "{host}", "{port}", "http", "granted.localhost"]),
    sees(&["by-proxy-as", "{proxy}", "{host}", "{port}", "http-later", "granted.localhost"]),
    sees(&["by-proxy-as", "{proxy}", "{host}", "{port}", "tls", "granted.localhost"]),
];

/// Reason why acts in this place would tell nothing, if they would not: one of these fails, though it is granted.
async fn unusable(
    subject: &AttackSubject,
    field: &mut Field,
    granted: &[TableAct],
) -> Result<Option<String>, DoctorError> {
    for act in granted {
        let seen = make(subject, field, act).await?;
        let succeeded = seen.got_through(act, field.token());
        let refused = match seen.answer {
            ActAnswer::Done(_) if succeeded => continue,
            ActAnswer::Done(_) => "something else answered".to_owned(),
            ActAnswer::Errno { name, at } => format!("{at} {name}"),
            ActAnswer::Signal(number) => format!("signal {number}"),
            ActAnswer::NotTried(why) => why,
        };
        let what = match act.proof {
            Proof::Token => "with the granted host",
            Proof::Success | Proof::Canary => "in the workspace, which is granted,",
        };
        return Ok(Some(format!("{} {what} fails: {refused}", act.words[0])));
    }
    Ok(None)
}

/// Tries to break out of what `command` confines. Each attempt is made outside first, where it must succeed.
///
/// # Errors
/// [`DoctorError`] if the attempts would tell nothing, or could not be made.
pub async fn break_out_of(command: &[String], field: &mut Field) -> Result<Report, DoctorError> {
    let mut tried = controls(field).await?;
    let subject = AttackSubject::Under(command.to_vec());
    if let Some(reason) = unusable(&subject, field, GRANTED).await? {
        return Err(DoctorError::Untried { what: command.join(" "), reason });
    }
    make_all(&subject, (Place::Under, NetworkGrants::NoHost), field, &mut tried).await?;
    let mut hostless = Vec::new();
    match unusable(&subject, field, REACHED).await? {
        None => make_all(&subject, (Place::Under, NetworkGrants::Host), field, &mut tried).await?,
        Some(why) => {
            hostless.push(Hostless { place: Place::Under, why });
            tried.retain(|each| each.attack.area.grants() == NetworkGrants::NoHost);
        }
    }
    Ok(Report::under(command, tried, hostless, field.token()))
}

/// Tries to break out of sessions in each strength, and of sessions that lack a mechanism, in which nothing runs but the
/// attempts. Each attempt is made outside first, where it must succeed.
///
/// # Errors
/// [`DoctorError`] if the attempts would tell nothing, or could not be made.
pub async fn break_out(supervisor: &Supervisor, field: &mut Field) -> Result<Report, DoctorError> {
    let mut tried = controls(field).await?;
    let mut calls = layers::controls(field).await?;
    let (mut missing, mut hostless) = (Vec::new(), Vec::new());
    for strength in STRENGTHS {
        let subject = match AttackSubject::session(supervisor, field, (strength, NetworkGrants::NoHost)).await {
            Ok(subject) => subject,
            Err(error) => {
                missing.push((strength, DoctorError::from(error)));
                continue;
            }
        };
        if let Some(reason) = unusable(&subject, field, GRANTED).await? {
            return Err(DoctorError::Untried { what: "a session".to_owned(), reason });
        }
        let place = Place::Whole(strength);
        make_all(&subject, (place, NetworkGrants::NoHost), field, &mut tried).await?;
        match with_host(supervisor, field, strength).await? {
            Ok(subject) => make_all(&subject, (place, NetworkGrants::Host), field, &mut tried).await?,
            Err(why) => hostless.push(Hostless { place, why }),
        }
        if let AttackSubject::Session(session) = &subject {
            layers::make_all(session, strength, field, &mut calls).await?;
        }
    }
    if missing.len() == STRENGTHS.len() {
        return Err(missing.swap_remove(0).1);
    }
    let there = |strength| missing.iter().all(|(missing, _)| *missing != strength);
    for place in Place::ablated() {
        let Some((strength, lacking)) = place.session().filter(|(strength, _)| there(*strength)) else { continue };
        for grants in [NetworkGrants::NoHost, NetworkGrants::Host] {
            if grants == NetworkGrants::Host && hostless.iter().any(|each| each.place == Place::Whole(strength)) {
                continue;
            }
            let subject = AttackSubject::ablated(supervisor, field, (strength, grants), &lacking).await?;
            make_all(&subject, (place, grants), field, &mut tried).await?;
        }
    }
    let missing =
        missing.into_iter().map(|(strength, error)| MissingStrength { strength, why: error.text() }).collect();
    let calls = calls.into_iter().map(|call| call.report).collect();
    Ok(Report::own(tried, calls, (missing, hostless), field.token()))
}

/// A session to which the host is granted, and in which it answers; or why there is none.
async fn with_host(
    supervisor: &Supervisor,
    field: &mut Field,
    strength: Strength,
) -> Result<Result<AttackSubject, String>, DoctorError> {
    let subject = match AttackSubject::session(supervisor, field, (strength, NetworkGrants::Host)).await {
        Ok(subject) => subject,
        Err(error) => return Ok(Err(DoctorError::from(error).text())),
    };
    for granted in [GRANTED, REACHED, REACHED_BY_PROXY] {
        if let Some(why) = unusable(&subject, field, granted).await? {
            return Ok(Err(why));
        }
    }
    Ok(Ok(subject))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use callgate_worker::probe::FAMILIES;

    use super::{GRANTED, REACHED, REACHED_BY_PROXY, attacks};

    /// Acts that the field makes for itself: its objects, its process, its terminal.
    const OF_THE_FIELD: [&str; 8] = [
        "shm-sysv-create",
        "sem-sysv-create",
        "msg-sysv-create",
        "mq-create",
        "mq-unlink",
        "setxattr",
        "wait",
        "under-terminal",
    ];

    /// An act that is missing would be "not tested" wherever it is made; one that nobody makes here is the suite's (`tests/src/probe`).
    #[test]
    fn the_probe_has_the_acts_that_are_made_here_and_no_others() {
        let listed = attacks().flat_map(|attack| attack.acts).chain(GRANTED).chain(REACHED).chain(REACHED_BY_PROXY);
        let made: BTreeSet<&str> = listed.map(|act| act.words[0]).chain(OF_THE_FIELD).collect();
        let there: BTreeSet<&str> = FAMILIES.iter().flat_map(|(_, acts)| acts.iter()).map(|act| act.name).collect();
        assert_eq!(there, made);
    }
}
