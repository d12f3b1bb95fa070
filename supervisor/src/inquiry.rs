//! Asking a person something that is no approval (S0-26): what is asked, and what comes of it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use callgate_policy::failure::ErrorCode;
use serde::{Deserialize, Serialize};

/// Most bytes of one answer.
const ANSWER_MAX: usize = 16 * 1024;

/// Questions that are put to a person together.
///
/// A model wrote them: whoever shows them must make control characters harmless (E8), and must not let them pass for its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Inquiry {
    /// Its own id, by which a host tells it from others.
    pub id: String,
    /// The session.
    pub session: String,
    /// At least one.
    pub questions: Vec<Query>,
}

impl Inquiry {
    /// For a host that tries its own [`Approver`](crate::Approver).
    #[must_use]
    pub fn new(questions: Vec<Query>) -> Self {
        Self { id: String::new(), session: String::new(), questions }
    }
}

/// One question (S0-27).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Query {
    /// The question.
    pub question: String,
    /// A word or two above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Choices to offer. The person may answer in other words all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Choice>,
    /// True if several may be chosen.
    pub multi_select: bool,
}

impl Query {
    /// A question, with what may be chosen.
    #[must_use]
    pub fn new(question: impl Into<String>, options: Vec<Choice>) -> Self {
        Self { question: question.into(), options, ..Self::default() }
    }
}

/// Something that may be chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Choice {
    /// The answer that it stands for.
    pub label: String,
    /// Meaning of the choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl Choice {
    /// By its label.
    #[must_use]
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), description: None }
    }
}

/// Reply of a person to an inquiry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum Reply {
    /// For each question, in their order: one text, or any number where several may be chosen (S0-28).
    Answers(Vec<Vec<String>>),
    /// They do not want to answer.
    Dismissed,
}

impl Reply {
    /// True if it answers these questions (X1-19). What a host passes on is looked at as what a model passes on is.
    pub(crate) fn fits(&self, inquiry: &Inquiry) -> bool {
        let Self::Answers(answers) = self else { return true };
        let fits = |(query, answer): (&Query, &Vec<String>)| {
            let count = if query.multi_select { answer.len() <= query.options.len().max(1) } else { answer.len() == 1 };
            count && answer.iter().all(|text| !text.trim().is_empty() && text.len() <= ANSWER_MAX)
        };
        answers.len() == inquiry.questions.len() && inquiry.questions.iter().zip(answers).all(fits)
    }
}

/// Result of [`Approver::inquire`](crate::Approver::inquire); `None` if it has no way to ask.
pub type Inquired = Pin<Box<dyn Future<Output = Option<Reply>> + Send>>;

/// Reason why there is no answer. Nobody makes one up (S0-57).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unanswered {
    /// There is nobody to ask (S0-29).
    Nobody,
    /// Nobody answered in time.
    TooLate(Duration),
    /// The session gives nobody any time.
    NoTime,
    /// A person did not want to answer.
    Dismissed,
    /// Reply to something else.
    Unfit {
        /// Who sent it.
        by: String,
    },
}

impl Unanswered {
    /// Its name, as S1's interaction protocol has it (X1-19).
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Nobody => ErrorCode::NoInteractorAttached,
            Self::TooLate(_) => ErrorCode::InteractionTimeout,
            Self::NoTime => ErrorCode::TimeoutMsInvalid,
            Self::Dismissed => ErrorCode::TurnCancelled,
            Self::Unfit { .. } => ErrorCode::InteractionPayloadMismatch,
        }
    }
}

impl std::error::Error for Unanswered {}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Always the same (S0-29): a model learns nothing else from it.
            Self::Nobody => f.write_str(
                "there is nobody to answer questions in this session; go on with what is known, or end the work and say what is \
                 missing",
            ),
            Self::TooLate(patience) => write!(f, "nobody answered within {patience:?}"),
            Self::NoTime => f.write_str("this session gives nobody any time to answer; have its host set one above zero"),
            Self::Dismissed => f.write_str("the person did not want to answer; go on without, or ask something else"),
            Self::Unfit { by } => write!(f, "what came back from {by} does not answer the questions"),
        }
    }
}
