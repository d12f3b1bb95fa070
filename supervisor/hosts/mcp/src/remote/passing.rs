//! Requests that are passed on to a server, each as the call of a tool that is listed to nobody.

use std::sync::{Arc, Weak};

use callgate::{Answering, Handler, HandlerCall};
use rmcp::model::{GetPromptResponse, ReadResourceResponse};
use rmcp::service::ServiceError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::definition::{clean, digest};
use super::requests::{ANSWER, Request};
use super::{MESSAGE, Remote, gone, hints};

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
