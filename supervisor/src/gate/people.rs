//! Asking a person (S0-59, S1-14): what is asked, who answers, and that the answer is for what then runs.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callgate_policy::approval::{Approval, ApprovalScope, Approvals, EffectKey, GrantedBy, Wider};
use callgate_policy::effect::{Effect, EffectKind};
use callgate_policy::path::HostPath;
use callgate_policy::plan::CallPlan;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;

use crate::host;
use crate::inquiry::{Inquired, Inquiry, Reply, Unanswered};
use crate::store::Recorder;
use crate::trust::{Project, now};

/// How long a question waits, unless the session says otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// A question: what a person needs to know to answer it.
///
/// Everything in it that a model wrote is untrusted: whoever shows it must make control characters harmless (E8).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Question {
    /// The session.
    pub session: String,
    /// The subagent whose call it is, by its name in the manifest. Without one it is the call of the session that began.
    pub agent: Option<String>,
    /// The tool's id.
    pub tool: String,
    /// The kind that an ACP host shows (X0-50).
    pub kind: String,
    /// The arguments, validated.
    pub arguments: Value,
    /// Reasons why it is asked: the rule, the watchdog, or that nothing allows it.
    pub why: Vec<String>,
    /// Effects of the call, the most dangerous first. None is left out.
    pub effects: Vec<ShownEffect>,
    /// Headers with a secret that callgate adds to its requests, or could add, each with the host that it is for. The values are not
    /// here.
    pub credentials: Vec<String>,
    /// Places that a program may read and change besides, if it is one.
    pub reach: Vec<String>,
    /// Effects that [`Answer::Wider`] would allow besides, in words; `None` if there is nothing wider to choose.
    pub wider: Option<String>,
    /// For how long an "always" would be kept (S1-18).
    pub kept_for: ApprovalScope,
    /// Digest of the canonical arguments, the plan and the program that starts, SHA-256 in hexadecimal: an answer is
    /// for these.
    pub digest: String,
}

/// An effect as a person is shown it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShownEffect {
    /// Its kind.
    pub kind: EffectKind,
    /// The effect in words.
    pub text: String,
    /// True if the call does something else by it.
    pub is_implied: bool,
    /// Commands of a command line, variables that it sets and files that the shell writes; empty for anything else, `None` for a line
    /// that could not be taken apart.
    pub parts: Option<Vec<String>>,
}

impl ShownEffect {
    /// An effect without parts.
    #[must_use]
    pub fn new(effect: &Effect) -> Self {
        Self { kind: effect.kind(), text: effect.to_string(), is_implied: false, parts: Some(Vec::new()) }
    }
}

impl Question {
    /// A question about a call of `tool`, with all else empty: for a host that tries its own [`Approver`].
    #[must_use]
    pub fn new(tool: impl Into<String>, kind: impl Into<String>, arguments: Value) -> Self {
        Self {
            session: String::new(),
            agent: None,
            tool: tool.into(),
            kind: kind.into(),
            arguments,
            why: Vec::new(),
            effects: Vec::new(),
            credentials: Vec::new(),
            reach: Vec::new(),
            wider: None,
            kept_for: ApprovalScope::Session,
            digest: String::new(),
        }
    }
}

/// The most lines of effects that a person is shown, and how wide one is taken to be, columns: of a call with more nobody is asked, for
/// nobody would see all of it.
const EFFECT_LINES: usize = 300;
const COLUMNS: usize = 70;
/// Columns of a character that is shown as its number, at most.
const ESCAPED: usize = 10;

impl Question {
    /// True if a person can be shown all effects of the call.
    fn is_shown_whole(&self) -> bool {
        let width = |line: &str| {
            line.chars()
                .map(|c| if c.is_alphanumeric() || c.is_ascii_graphic() || c == ' ' { 1 } else { ESCAPED })
                .sum::<usize>()
        };
        let lines = |text: &str| text.split('\n').map(|line| 1 + width(line) / COLUMNS).sum::<usize>();
        let of_effect = |effect: &ShownEffect| {
            lines(&effect.text) + effect.parts.iter().flatten().map(|part| lines(part)).sum::<usize>()
        };
        self.effects.iter().map(of_effect).sum::<usize>() <= EFFECT_LINES
    }
}

/// Effects that an answer is kept for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Approvable {
    /// Keys of the call's own effects.
    pub(crate) effects: Vec<EffectKey>,
    /// Keys of those by which it does them.
    pub(crate) implied: Vec<EffectKey>,
    /// More that a person may choose.
    pub(crate) wider: Option<Wider>,
}

/// Answer of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Answer {
    /// This call.
    Once,
    /// And every call with exactly these effects, as long as the session lasts (S1-17), or the project's manifest stays what it is
    /// (S1-18): [`Question::kept_for`]. A rule that denies, or one that asks and says more, comes before it.
    Always,
    /// As [`Answer::Always`], with what [`Question::wider`] says besides.
    Wider,
    /// Not this call.
    Reject,
}

/// Result of an approver; `None` if it has no way to ask (no terminal, nobody connected).
pub type Asked = Pin<Box<dyn Future<Output = Option<Answer>> + Send>>;

/// Puts questions to a person. Several may be asked at once: the first answer is the answer, and the others' questions are
/// dropped, which is how they learn of it.
pub trait Approver: Send + Sync + fmt::Debug {
    /// Who answers, for the envelope: `terminal`, `acp`.
    fn name(&self) -> &str;

    /// Asks. Dropping what it returns withdraws the question. The session's later calls wait for the answer: to wait for one
    /// of them in here is to wait for ever.
    fn ask(&self, question: Arc<Question>) -> Asked;

    /// Puts questions of the agent's to the person (S0-26). As [`Approver::ask`] otherwise. One that does not say how has no way
    /// to.
    fn inquire(&self, inquiry: Arc<Inquiry>) -> Inquired {
        drop(inquiry);
        Box::pin(async { None })
    }
}

/// Reason why there was no yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// There is nobody to ask (S0-57).
    Nobody,
    /// Nobody answered in time.
    TooLate(Duration),
    /// A person said no.
    Rejected,
    /// A person said yes to what is no longer what would run (X3-3).
    Changed,
    /// There is more of it than a person can be shown.
    TooLong,
}

impl NoAnswer {
    /// For a denial, with why somebody was asked.
    pub(crate) fn text(self, why: &str) -> String {
        match self {
            Self::Nobody => format!("{why}; there is nobody to ask"),
            Self::TooLate(patience) => format!("{why}; nobody answered within {patience:?}"),
            Self::Rejected => "a person said no".to_owned(),
            Self::Changed => "what was approved has changed since".to_owned(),
            Self::TooLong => format!("{why}; it is too long for a person to be shown all of it"),
        }
    }
}

/// Who said yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Yes {
    /// By now, in this session or in one of the project's before.
    Kept(ApprovalScope),
    /// Just now.
    Now { by: String, answer: Answer },
}

/// The people of a session, and what they have said.
#[derive(Debug)]
pub(crate) struct People {
    approvers: Vec<Arc<dyn Approver>>,
    patience: Duration,
    kept: Mutex<Approvals>,
    /// Where approvals are kept beyond the session.
    project: Option<Project>,
    /// Where those of the session are kept.
    recorder: Option<Arc<Recorder>>,
    /// One question at a time; of calls, in their order (C-17, `Session::questions`).
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl People {
    pub(crate) fn new(approvers: Vec<Arc<dyn Approver>>, patience: Duration, project: Option<Project>) -> Self {
        let kept = project.as_ref().map(|project| project.approvals().clone()).unwrap_or_default();
        Self { approvers, patience, kept: Mutex::new(kept), project, recorder: None, turn: Arc::default() }
    }

    /// Takes turns with its family of sessions: one asks at a time, for it is the same person (C-17).
    pub(crate) fn in_turn_with(self, turn: Arc<tokio::sync::Mutex<()>>) -> Self {
        Self { turn, ..self }
    }

    pub(crate) fn turn(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.turn)
    }

    /// With what the session's earlier openings have kept, and where this one's are kept.
    pub(crate) fn remember(mut self, kept: Approvals, recorder: &Arc<Recorder>) -> Self {
        let all = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
        kept.iter().for_each(|approval| all.keep(approval.clone()));
        self.recorder = Some(Arc::clone(recorder));
        self
    }

    /// For how long "always" is kept.
    pub(crate) fn kept_for(&self) -> ApprovalScope {
        if self.project.is_some() { ApprovalScope::Project } else { ApprovalScope::Session }
    }

    /// Approvals that are kept.
    pub(crate) fn approvals(&self) -> MutexGuard<'_, Approvals> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, unless the answer is there by the time that it is this question's turn. `holds` tells whether what would run is
    /// still what the question shows. A yes to anything else is void, and is kept for nothing.
    pub(crate) async fn ask(
        &self,
        question: Question,
        about: Approvable,
        answered: impl Fn(&Approvals) -> Option<ApprovalScope>,
        holds: impl Fn() -> bool,
    ) -> Result<Yes, NoAnswer> {
        if self.approvers.is_empty() {
            return Err(NoAnswer::Nobody);
        }
        if !question.is_shown_whole() {
            return Err(NoAnswer::TooLong);
        }
        let _turn = self.turn.lock().await;
        let said = answered(&self.approvals());
        if let Some(scope) = said {
            return if holds() { Ok(Yes::Kept(scope)) } else { Err(NoAnswer::Changed) };
        }
        let question = Arc::new(question);
        let ask = |approver: &dyn Approver| approver.ask(Arc::clone(&question));
        // A wider answer to what offers none is no answer.
        let fits = |_: &str, answer: &Answer| *answer != Answer::Wider || about.wider.is_some();
        match tokio::time::timeout(self.patience, self.first(ask, fits)).await {
            Err(_elapsed) => Err(NoAnswer::TooLate(self.patience)),
            Ok(None) => Err(NoAnswer::Nobody),
            Ok(Some((_, Answer::Reject))) => Err(NoAnswer::Rejected),
            Ok(Some(_)) if !holds() => Err(NoAnswer::Changed),
            Ok(Some((by, answer))) => {
                match answer {
                    Answer::Always => self.keep(&question.tool, Approvable { wider: None, ..about.clone() }),
                    Answer::Wider => self.keep(&question.tool, about.clone()),
                    Answer::Once | Answer::Reject => {}
                }
                Ok(Yes::Now { by, answer })
            }
        }
    }

    /// Asks something else, when it is its turn: a person has one question before them at a time (X1-20). Returns who answered,
    /// and what.
    pub(crate) async fn inquire(&self, inquiry: Inquiry) -> Result<(String, Vec<Vec<String>>), Unanswered> {
        if !self.is_anybody_there() {
            return Err(Unanswered::Nobody);
        }
        if self.patience.is_zero() {
            return Err(Unanswered::NoTime);
        }
        let _turn = self.turn.lock().await;
        let inquiry = Arc::new(inquiry);
        let unfit = Mutex::new(None);
        let fits = |by: &str, reply: &Reply| {
            let fits = reply.fits(&inquiry);
            if !fits {
                *unfit.lock().unwrap_or_else(PoisonError::into_inner) = Some(by.to_owned());
            }
            fits
        };
        let ask = |approver: &dyn Approver| approver.inquire(Arc::clone(&inquiry));
        match tokio::time::timeout(self.patience, self.first(ask, fits)).await {
            Err(_elapsed) => Err(Unanswered::TooLate(self.patience)),
            Ok(Some((by, Reply::Answers(answers)))) => Ok((by, answers)),
            Ok(Some((_, Reply::Dismissed))) => Err(Unanswered::Dismissed),
            Ok(None) => match unfit.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(by) => Err(Unanswered::Unfit { by }),
                None => Err(Unanswered::Nobody),
            },
        }
    }

    /// True if anybody could be asked. They may still have no way to be.
    pub(crate) fn is_anybody_there(&self) -> bool {
        !self.approvers.is_empty()
    }

    fn keep(&self, tool: &str, Approvable { effects, implied, wider }: Approvable) {
        let approval = Approval {
            tool: tool.to_owned(),
            effects,
            implied,
            wider,
            granted_at: now(),
            granted_by: GrantedBy::User,
            scope: self.kept_for(),
        };
        let is_secret = self.recorder.as_ref().is_some_and(|recorder| recorder.is_secret(&approval));
        if let Some(project) = self.project.as_ref().filter(|_| !is_secret)
            && let Err(error) = project.keep(&approval)
        {
            // The person will be asked again in the next session, which loses nothing but their time.
            tracing::warn!(error = &error as &dyn std::error::Error, "an approval could not be kept for the project");
        }
        let mut kept = self.approvals();
        kept.keep(approval);
        if let Some(recorder) = &self.recorder
            && let Err(error) = recorder.keep_approvals(kept.iter().filter(|kept| kept.scope == ApprovalScope::Session))
        {
            // As above.
            tracing::warn!(error = &error as &dyn std::error::Error, "an approval could not be kept for the session");
        }
    }

    /// The first answer of anybody. Whoever falls over has not answered.
    /// An answer that does not fit is none either.
    async fn first<T: Send + 'static>(
        &self,
        ask: impl Fn(&dyn Approver) -> Pin<Box<dyn Future<Output = Option<T>> + Send>>,
        fits: impl Fn(&str, &T) -> bool,
    ) -> Option<(String, T)> {
        let mut asked = JoinSet::new();
        for approver in &self.approvers {
            let answer = ask(&**approver);
            let name = approver.name().to_owned();
            asked.spawn(async move { answer.await.map(|answer| (name, answer)) });
        }
        while let Some(answer) = asked.join_next().await {
            if let Ok(Some((name, answer))) = answer
                && fits(&name, &answer)
            {
                return Some((name, answer));
            }
        }
        None
    }
}

/// Digest that an answer is bound to: the arguments, the plan, and the program that would start, as it is now. What
/// changes any of them makes the answer stale.
pub(crate) fn digest(tool: &str, args: &Value, plan: Option<&CallPlan>, program: Option<&HostPath>) -> String {
    let mut hash = Sha256::new();
    // Of a map in the order of its keys: serde_json keeps them sorted.
    for part in [Value::from(tool), args.clone(), serde_json::to_value(plan).unwrap_or_default()] {
        let text = part.to_string();
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    }
    if let Some(program) = program {
        hash.update(format!("{:?}", Some(host::version_of(program.as_path()))));
    }
    host::hex(&hash.finalize())
}

/// Digest of a text alone.
pub(crate) fn digest_of(text: &str) -> String {
    host::hex(&Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test may stop")]
    use std::sync::atomic::{AtomicU32, Ordering};

    use callgate_policy::effect::ProgramRun;
    use serde_json::json;

    use super::*;

    #[derive(Debug)]
    struct Says {
        answer: Option<Answer>,
        after: Duration,
        times: AtomicU32,
    }

    impl Says {
        fn new(answer: Option<Answer>, ms: u64) -> Arc<Self> {
            Arc::new(Self { answer, after: Duration::from_millis(ms), times: AtomicU32::new(0) })
        }

        fn times(&self) -> u32 {
            self.times.load(Ordering::Relaxed)
        }
    }

    impl Approver for Says {
        fn name(&self) -> &'static str {
            "test"
        }

        fn ask(&self, _question: Arc<Question>) -> Asked {
            self.times.fetch_add(1, Ordering::Relaxed);
            let (answer, after) = (self.answer, self.after);
            Box::pin(async move {
                tokio::time::sleep(after).await;
                answer
            })
        }
    }

    #[derive(Debug)]
    struct Falls;

    impl Approver for Falls {
        fn name(&self) -> &'static str {
            "falls"
        }

        fn ask(&self, _question: Arc<Question>) -> Asked {
            Box::pin(async { panic!("an approver with a mistake") })
        }
    }

    fn question() -> Question {
        Question { session: "s".to_owned(), ..Question::new("bash", "execute", json!({})) }
    }

    fn key(line: &str) -> EffectKey {
        EffectKey::of(&Effect::Runs(ProgramRun::shell(line, "/w".into())), str::to_owned)
    }

    fn answered(approvals: &Approvals, line: &str) -> Option<ApprovalScope> {
        let effect = Effect::Runs(ProgramRun::shell(line, "/w".into()));
        approvals.cover([(&effect, key(line))], ("bash", None))
    }

    fn ask(people: &People, keys: &[&str]) -> Vec<Result<Yes, NoAnswer>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut said = Vec::new();
            for key in keys {
                let about = Approvable { effects: vec![self::key(key)], ..Approvable::default() };
                said.push(people.ask(question(), about, |kept| answered(kept, key), || true).await);
            }
            said
        })
    }

    /// E8: a call of which a person could not be shown all is not asked about, and what they could be shown is.
    #[test]
    fn e8_what_cannot_be_shown_whole_is_not_asked() {
        let with = |parts: usize, text: &str| {
            let effect = ShownEffect::new(&Effect::Runs(ProgramRun::shell(text, "/w".into())));
            let parts = Some((0..parts).map(|number| format!("true {number}")).collect());
            Question { effects: vec![ShownEffect { parts, ..effect }], ..question() }
        };
        assert!(with(200, "true").is_shown_whole());
        for long in [with(400, "true"), with(0, &"true\n".repeat(100_000)), with(0, &"\u{202e}".repeat(5000))] {
            assert!(!long.is_shown_whole());
        }
        let person = Says::new(Some(Answer::Once), 0);
        let people = People::new(vec![person.clone()], LONG, None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let said = |asked| runtime.block_on(people.ask(asked, Approvable::default(), |_| None, || true));
        assert_eq!(said(with(400, "true")), Err(NoAnswer::TooLong));
        assert_eq!(person.times(), 0);
        assert!(said(with(2, "true")).is_ok(), "the control");
    }

    const LONG: Duration = Duration::from_secs(60);

    /// S0-57: nobody is not a yes; nor is one who cannot ask, or falls over.
    #[test]
    fn nobody_is_a_no() {
        assert_eq!(ask(&People::new(vec![], LONG, None), &["k"]), [Err(NoAnswer::Nobody)]);
        let absent = People::new(vec![Says::new(None, 0), Arc::new(Falls)], LONG, None);
        assert_eq!(ask(&absent, &["k"]), [Err(NoAnswer::Nobody)]);
    }

    /// The first answer is the answer, whoever else is still asked or has fallen over.
    #[test]
    fn the_first_answer_wins() {
        let slow = Says::new(Some(Answer::Once), 60_000);
        let people = People::new(vec![slow.clone(), Says::new(Some(Answer::Reject), 1), Arc::new(Falls)], LONG, None);
        assert_eq!(ask(&people, &["k"]), [Err(NoAnswer::Rejected)]);
        assert_eq!(slow.times(), 1, "it was asked too");
    }

    /// A timeout denies.
    #[test]
    fn a_late_answer_is_a_no() {
        let patience = Duration::from_millis(20);
        let people = People::new(vec![Says::new(Some(Answer::Always), 60_000)], patience, None);
        assert_eq!(ask(&people, &["k"]), [Err(NoAnswer::TooLate(patience))]);
        assert!(answered(&people.approvals(), "k").is_none());
    }

    /// S1-14, S1-17: an answer that is kept is asked for once for the same effects; a no is never kept, nor is a wider one that was not offered.
    #[test]
    fn always_is_kept_for_its_effects() {
        let always = Says::new(Some(Answer::Always), 0);
        let people = People::new(vec![always.clone()], LONG, None);
        let said = ask(&people, &["k", "k", "other"]);
        assert_eq!(said[1], Ok(Yes::Kept(ApprovalScope::Session)));
        assert_eq!(always.times(), 2);
        let once = Says::new(Some(Answer::Once), 0);
        ask(&People::new(vec![once.clone()], LONG, None), &["k", "k"]);
        assert_eq!(once.times(), 2);
        let no = Says::new(Some(Answer::Reject), 0);
        ask(&People::new(vec![no.clone()], LONG, None), &["k", "k"]);
        assert_eq!(no.times(), 2);
        let wider = Says::new(Some(Answer::Wider), 0);
        assert_eq!(ask(&People::new(vec![wider], LONG, None), &["k"]), [Err(NoAnswer::Nobody)]);
    }
}
