//! Attempts: an act that is made in one place, and what came of it.

use std::time::Duration;

use super::super::DoctorError;
use super::field::{Changes, Field};
use super::places::Place;
use super::subject::{Answer, Subject};
use super::table::{Act, Attack, Proof};

/// How long a datagram that was sent may be on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

/// Result of one act in one place.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) answer: Answer,
    pub(super) changes: Changes,
}

impl Seen {
    /// True if it reached what it was aimed at.
    pub(super) fn got_through(&self, act: &Act, token: &str) -> bool {
        let proven = match (&self.answer, act.proof) {
            (Answer::Done(_), Proof::Success) => true,
            (Answer::Done(seen), Proof::Token) => seen.to_string().contains(token),
            (Answer::Done(_), Proof::Canary) => false,
            (Answer::Errno { .. } | Answer::Signal(_) | Answer::NotTried(_), _) => false,
        };
        proven || !self.changes.is_empty()
    }
}

/// Makes one attempt, looks at the canaries, and puts them back.
pub(super) async fn make(subject: &Subject, field: &mut Field, act: &Act) -> Result<Seen, DoctorError> {
    let answer = subject.attempt(field, act).await?;
    let mut changes = field.changes();
    if act.proof == Proof::Canary && changes.is_empty() && matches!(answer, Answer::Done(_)) {
        tokio::time::sleep(ON_ITS_WAY).await;
        changes = field.changes();
    }
    let seen = Seen { answer, changes };
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
    pub(super) act: &'static Act,
    /// Outside, where it must succeed.
    pub(super) control: Control,
    /// By the name of the place.
    pub(super) seen: Vec<(Place, Seen)>,
}

/// Result of an act outside.
pub(super) enum Control {
    Succeeded,
    /// Nothing can be told by it here, for this reason.
    Failed(String),
}
