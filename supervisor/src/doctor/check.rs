//! One thing that was looked at.

use serde::Serialize;

/// How something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is there, and was tried where it can be.
    Ok,
    /// It is not there.
    Missing,
    /// It is not there, or not as it could be, and nothing that callgate promises hangs on it.
    Note,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// Thing that was looked at.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
    /// Finding.
    pub found: String,
    /// Mechanism that holds in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// Steps to do, or to type, to get it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remedy: Vec<String>,
}

impl Check {
    pub(super) fn new(name: &'static str, state: State, found: impl Into<String>) -> Self {
        Self { name, state, found: found.into(), instead: None, remedy: Vec::new() }
    }

    pub(super) fn instead(self, instead: impl Into<String>) -> Self {
        Self { instead: Some(instead.into()), ..self }
    }

    pub(super) fn remedy(mut self, remedy: impl IntoIterator<Item = String>) -> Self {
        self.remedy.extend(remedy);
        self
    }
}
