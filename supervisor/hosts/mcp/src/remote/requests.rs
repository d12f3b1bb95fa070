//! Requests to a server besides calls of its tools: for resources, prompts and completions.
//!
//! Each such request is a call of a tool that no list has, so that rules, approvals and the record hold for it as they do for a call
//! of a tool: `mcp:SERVER:resources/read`, `mcp:SERVER:prompts/get`, `mcp:SERVER:completion/complete`.

use std::sync::{Arc, Weak};

use callgate::{Answering, Handler, HandlerCall};
use rmcp::model::{GetPromptResponse, ReadResourceResponse};
use rmcp::service::ServiceError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::definition::{clean, digest};
use super::{MESSAGE, Remote, gone, hints};

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
    fn key(self, arguments: &Value) -> String {
        let about = match self {
            Self::Resource => arguments["uri"].to_string(),
            Self::Prompt => json!([arguments["name"], arguments["arguments"]]).to_string(),
            // One is asked for with each letter that is typed.
            Self::Completion => arguments["ref"].to_string(),
        };
        format!("{} {about}", self.method())
    }
}

impl Remote {
    /// Its requests for a session, as tools that are listed to nobody.
    pub(crate) fn requests(self: &Arc<Self>) -> Vec<callgate::Tool> {
        let tool = |request: Request| {
            let server = self.spec.name.clone();
            // An approval is of this server.
            let of = digest(request.method(), &self.spec.argv);
            callgate::Tool::remote(
                &server,
                request.method(),
                Passed { remote: Arc::downgrade(self), server: server.clone(), request },
            )
            .shown_as(request.name())
            .parameters(json!({ "type": "object" }))
            .approval_key(move |arguments| format!("{} (of {of})", request.key(arguments)))
            .side_by_side()
        };
        Request::ALL.map(tool).into()
    }

    async fn pass(&self, request: Request, arguments: Value) -> Result<Value, String> {
        let outcome = self.passed(request, arguments.clone()).await;
        self.told.tell(&self.spec.name, self.session.refused_to(&self.program).await);
        if outcome.is_err() {
            self.told.tell(&self.spec.name, hints::paths(&self.session, &arguments));
        }
        outcome.map(|answer| json!({ (ANSWER): answer }))
    }

    /// The server's answer. Dropped, the request is taken back.
    async fn passed(&self, request: Request, arguments: Value) -> Result<Value, String> {
        let failed = |error| match error {
            ServiceError::McpError(error) => clean(&error.message, MESSAGE),
            ServiceError::UnexpectedResponse => {
                format!("the server `{}` answered with something else than a result", self.spec.name)
            }
            ServiceError::TransportClosed | _ => gone(&self.spec.name),
        };
        // A person would take a server's question for callgate's.
        let asks = || Err("the server asks for input, which it is not offered".to_owned());
        let peer = self.peer();
        match request {
            Request::Resource => match peer.read_resource_once(params(arguments)?).await.map_err(failed)? {
                ReadResourceResponse::Complete(answer) => value(&answer),
                ReadResourceResponse::InputRequired(_) | _ => asks(),
            },
            Request::Prompt => match peer.get_prompt_once(params(arguments)?).await.map_err(failed)? {
                GetPromptResponse::Complete(answer) => value(&answer),
                GetPromptResponse::InputRequired(_) | _ => asks(),
            },
            Request::Completion => value(&peer.complete(params(arguments)?).await.map_err(failed)?),
        }
    }
}

fn params<T: DeserializeOwned>(arguments: Value) -> Result<T, String> {
    serde_json::from_value(arguments).map_err(|error| error.to_string())
}

fn value(answer: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(answer).map_err(|error| error.to_string())
}

/// One kind of request. It keeps no server running.
struct Passed {
    remote: Weak<Remote>,
    server: String,
    request: Request,
}

impl Handler for Passed {
    fn answer(&self, call: HandlerCall) -> Answering {
        let (remote, server, request) = (self.remote.upgrade(), self.server.clone(), self.request);
        Box::pin(async move {
            match remote {
                Some(remote) => remote.pass(request, call.args).await,
                None => Err(gone(&server)),
            }
        })
    }
}
