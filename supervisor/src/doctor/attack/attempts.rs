//! Attempts: an act that is made in one place, and what came of it.

use std::time::Duration;

use super::super::DoctorError;
use super::field::{Field, ReachedTargets};
use super::places::Place;
use super::subject::{ActAnswer, AttackSubject};
use super::table::{Attack, Proof, TableAct};

/// How long a datagram that was sent may be on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

/// Result of one act in one place.
#[derive(Debug, Clone)]
pub(super) struct ActResult {
    pub(super) answer: ActAnswer,
    pub(super) changes: ReachedTargets,
}

impl ActResult {
    /// True if it reached what it was aimed at.
    pub(super) fn got_through(&self, act: &TableAct, token: &str) -> bool {
        let proven = match (&self.answer, act.proof) {
            (ActAnswer::Done(_), Proof::Success) => true,
            (ActAnswer::Done(seen), Proof::Token) => seen.to_string().contains(token),
            (ActAnswer::Done(_), Proof::Canary) => false,
            (ActAnswer::Errno { .. } | ActAnswer::Signal(_) | ActAnswer::NotTried(_), _) => false,
        };
        proven || !self.changes.is_empty()
    }
}

/// Makes one attempt, looks at the canaries, and puts them back.
pub(super) async fn make(subject: &AttackSubject, field: &mut Field, act: &TableAct) -> Result<ActResult, DoctorError> {
    let answer = subject.attempt(field, act).await?;
    let mut changes = field.changes();
    if act.proof == Proof::Canary && changes.is_empty() && matches!(answer, ActAnswer::Done(_)) {
        tokio::time::sleep(ON_ITS_WAY).await;
        changes = field.changes();
    }
    let seen = ActResult { answer, changes };
    let mended = if seen.got_through(act, field.token()) {
        // What it did to the process may show only after a while, and would be taken for the next attempt's doing.
        field.mend(act.words.contains(&"{pid}"))
    } else {
        field.tidy_workspace()
    };
    mended.map_err(DoctorError::io("put the canaries back"))?;
    Ok(seen)
}

/// One act, and what came of it wherever it was made.
pub(super) struct Tried {
    pub(super) attack: &'static Attack,
    pub(super) act: &'static TableAct,
    /// Outside, where it must succeed.
    pub(super) control: Control,
    /// By the name of the place.
    pub(super) seen: Vec<(Place, ActResult)>,
}

/// Result of an act outside.
pub(super) enum Control {
    Succeeded,
    /// Nothing can be told by it here, for this reason.
    Failed(String),
}
