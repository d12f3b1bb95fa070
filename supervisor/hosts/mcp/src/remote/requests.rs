//! Requests to a server besides calls of its tools: for resources, prompts and completions.
//!
//! Each such request is a call of a tool that no list has, so that rules, approvals and the record hold for it as they do for a call
//! of a tool: `mcp:SERVER:resources/read`, `mcp:SERVER:prompts/get`, `mcp:SERVER:completion/complete`.

use serde_json::{Value, json};

/// The field of a call's data that holds the server's answer.
pub(crate) const ANSWER: &str = "answer";

/// A request that is passed on to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// For what a resource holds.
    Resource,
    /// For the text of a prompt.
    Prompt,
    /// For what an argument may be.
    Completion,
}

impl Request {
    pub(crate) const ALL: [Self; 3] = [Self::Resource, Self::Prompt, Self::Completion];

    /// The method of the protocol, by which rules name it.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Resource => "resources/read",
            Self::Prompt => "prompts/get",
            Self::Completion => "completion/complete",
        }
    }

    /// The name by which its calls are made and recorded.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Resource => "mcp-resources-read",
            Self::Prompt => "mcp-prompts-get",
            Self::Completion => "mcp-completion-complete",
        }
    }

    /// The part of a request that an "always" is kept for.
    pub(super) fn key(self, arguments: &Value) -> String {
        let about = match self {
            Self::Resource => arguments["uri"].to_string(),
            Self::Prompt => json!([arguments["name"], arguments["arguments"]]).to_string(),
            // One is asked for with each letter that is typed.
            Self::Completion => arguments["ref"].to_string(),
        };
        format!("{} {about}", self.method())
    }
}
