//! Work that is handed to a subagent.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::shell::starts::HOLE;
use crate::template::{self, TemplatePiece};

/// Work that is handed to a subagent, with everything that decides what it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegatedWork {
    /// The agent's name in the manifest.
    pub agent: String,
    /// Texts that it is told: of several agents one each, of one that goes on its task and a message.
    pub prompts: Vec<AgentPrompt>,
    /// Other arguments of the call, by their names.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
}

/// A text that an agent is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentPrompt {
    /// This text.
    Text(String),
    /// A text for each row of a file, which is read later.
    Rows {
        /// `{column}` stands for the row's value in it ([`template`]).
        instruction: String,
        /// True if a text of the row is added to it, by which it is called.
        is_named: bool,
    },
}

impl DelegatedWork {
    /// One task for an agent, and nothing else.
    #[must_use]
    pub fn new(agent: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self { agent: agent.into(), prompts: vec![AgentPrompt::Text(prompt.into())], settings: Map::new() }
    }
}

impl AgentPrompt {
    /// As it is written.
    #[must_use]
    pub fn written(&self) -> &str {
        match self {
            Self::Text(text) | Self::Rows { instruction: text, .. } => text,
        }
    }

    /// The text as far as it is known, with a [`HOLE`] for what is not.
    #[must_use]
    pub fn known(&self) -> Cow<'_, str> {
        let (instruction, is_named) = match self {
            Self::Text(text) => return Cow::Borrowed(text),
            Self::Rows { instruction, is_named } => (instruction, *is_named),
        };
        // One that cannot be read starts no agent.
        let pieces = template::pieces(instruction).unwrap_or_default();
        let mut known: String = pieces
            .iter()
            .map(|piece| match piece {
                TemplatePiece::Text(text) => Cow::Borrowed(*text),
                TemplatePiece::Name(_) => Cow::Owned(HOLE.to_string()),
            })
            .collect();
        known.extend(is_named.then_some(HOLE));
        Cow::Owned(known)
    }
}

/// Text of a model's stands behind callgate's own, or as JSON.
impl fmt::Display for DelegatedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "has the agent {} work", self.agent)?;
        if !self.settings.is_empty() {
            write!(f, " with {}", Value::Object(self.settings.clone()))?;
        }
        match &self.prompts[..] {
            [AgentPrompt::Text(prompt)] => write!(f, ":\n{prompt}"),
            [AgentPrompt::Rows { instruction, .. }] => write!(f, " on each row:\n{instruction}"),
            prompts => {
                write!(f, " on {} prompts:", prompts.len())?;
                prompts.iter().try_for_each(|prompt| write!(f, "\n{}", Value::from(prompt.written())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn work(prompts: Vec<AgentPrompt>, settings: Value) -> DelegatedWork {
        let settings = settings.as_object().cloned().unwrap_or_default();
        DelegatedWork { agent: "reader".to_owned(), prompts, settings }
    }

    fn text(text: &str) -> AgentPrompt {
        AgentPrompt::Text(text.to_owned())
    }

    /// A person is shown all of it, each in its place.
    #[test]
    fn work_is_shown_with_its_prompts_and_settings() {
        let rows = AgentPrompt::Rows { instruction: "look at {a}".to_owned(), is_named: false };
        for (work, shown) in [
            (work(vec![text("look\nx")], json!({})), "has the agent reader work:\nlook\nx"),
            (
                work(vec![text("x")], json!({ "tools": ["a"] })),
                "has the agent reader work with {\"tools\":[\"a\"]}:\nx",
            ),
            (work(vec![text("x\n"), text("y")], json!({})), "has the agent reader work on 2 prompts:\n\"x\\n\"\n\"y\""),
            (work(vec![rows], json!({})), "has the agent reader work on each row:\nlook at {a}"),
        ] {
            assert_eq!(work.to_string(), shown);
        }
    }

    /// Values of a file are not known before it is read.
    #[test]
    fn a_row_s_values_are_not_known() {
        let known = |instruction: &str, is_named| {
            AgentPrompt::Rows { instruction: instruction.to_owned(), is_named }.known().into_owned()
        };
        assert_eq!(known("at {a}, {{b}}", false), "at \0, {b}");
        assert_eq!(known("x", false), "x");
        assert_eq!(known("x", true), "x\0");
    }
}
