//! A server that somebody has already, with callgate in front: its client notices nothing but what is refused.
//!
//! Calls of tools, and requests for resources, prompts and completions, pass by the session, with its rules, its approvals and its
//! record. The lists of what there is are passed through, as the list of tools is. What a server asks of a client (sampling,
//! elicitation, roots) is not offered to it: such a question would stand beside callgate's own.

use std::sync::Arc;
use std::time::Duration;

use callgate::{Session, Subject};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, GetPromptRequestParams,
    GetPromptResponse, Implementation, InputRequiredResult, InputResponses, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams, PromptsCapability,
    ReadResourceRequestParams, ReadResourceResponse, ResourcesCapability, ServerCapabilities, ServerConfig,
};
use rmcp::service::{Peer, RequestContext, RoleServer, ServiceError};
use rmcp::{ErrorData, ServerHandler};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::remote::requests::{ANSWER, Request};
use crate::remote::{Remote, told};
use crate::server::{Came, ServeError, Server, over_with, room, serve_by};
use crate::wire::MESSAGE_MAX;

/// Most bytes of an answer that are shown: as much as an answer may have.
const SHOWN: u64 = 4 * 1024 * 1024;
/// How long a call may take: its client decides, which can cancel it.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a server's tools stay as they were listed, however often it says that they are others.
const AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// Serves a client by a server that runs in the session's sandbox, until one of them closes its end. Both have ended then. Whether it
/// was the server: it ended, or closed its end.
///
/// The session's rules decide about its calls, as `mcp:NAME:TOOL`.
///
/// # Errors
/// [`ServeError`]
pub async fn wrap<R, W>(session: Arc<Session>, remote: Remote, from: R, to: W) -> Result<bool, ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let remote = Arc::new(remote);
    offer(&session, &remote);
    let wrapped =
        |closed| Wrapped { inner: Server::new(Arc::clone(&session), closed, room()), remote: Arc::clone(&remote) };
    let served = match serve_by(wrapped, from, to, (MESSAGE_MAX, true)).await? {
        None => Ok(false),
        Some((running, closed)) => {
            let peer = running.peer().clone();
            tokio::select! {
                over = over_with(running, closed) => over.map(|()| false),
                () = remote.over() => Ok(true),
                () = follow(&session, &remote, &peer) => Ok(true),
            }
        }
    };
    remote.end().await;
    told::flush().await;
    served
}

/// The server's tools become the session's, by the names that they have.
fn offer(session: &Session, remote: &Arc<Remote>) {
    // A tool of the server's that has the name of a request is the one that is left out.
    let tools = remote
        .requests()
        .into_iter()
        .chain(remote.tools(shown_as))
        .map(|tool| tool.subject(Subject::Serve).shows(SHOWN).timeout(LONGEST))
        .collect();
    for refused in session.offer_tools_of(remote.name(), tools) {
        remote.tell(&format!("a tool is left out: {refused}"));
    }
}

/// A name that a model can say.
fn shown_as(name: &str) -> String {
    name.chars().map(|c| if matches!(c, '.' | '/') { '_' } else { c }).collect()
}

/// Has the client list the tools again when they have changed.
async fn follow(session: &Session, remote: &Arc<Remote>, client: &Peer<RoleServer>) {
    let mut changes = remote.changes();
    while changes.changed().await.is_ok() {
        match remote.refresh().await {
            Ok(true) => {
                offer(session, remote);
                // A client that is gone is noticed where it is read from.
                drop(client.notify_tool_list_changed().await);
            }
            Ok(false) => {}
            Err(error) => remote.tell(&error.to_string()),
        }
        tokio::time::sleep(AT_MOST_EVERY).await;
    }
    std::future::pending().await
}

struct Wrapped {
    inner: Server,
    remote: Arc<Remote>,
}

/// A person's answers to what an earlier try of a request has asked, and which try that was.
type Answers = (Option<InputResponses>, Option<String>);

/// Outcome of a request.
enum Made<T> {
    Answer(T),
    /// The client asks its person first.
    Question(InputRequiredResult),
}

/// Answer of the server to a request that is passed on, unless the client takes it back.
async fn passed_on<T>(
    answer: impl Future<Output = Result<T, ServiceError>>,
    context: &RequestContext<RoleServer>,
) -> Result<T, ErrorData> {
    let answer = tokio::select! {
        answer = answer => answer,
        () = context.ct.cancelled() => return Err(ErrorData::internal_error("the request was cancelled", None)),
    };
    answer.map_err(|error| match error {
        ServiceError::McpError(error) => error,
        other @ (ServiceError::TransportClosed | _) => {
            ErrorData::internal_error(format!("the server did not answer: {other}"), None)
        }
    })
}

impl Wrapped {
    /// Makes a request as a call of the session, which its rules decide about and which is recorded.
    async fn make<T: DeserializeOwned>(
        &self,
        request: Request,
        (params, answers): (&impl Serialize, Answers),
        context: &RequestContext<RoleServer>,
    ) -> Result<Made<T>, ErrorData> {
        let failed = |what: String| ErrorData::internal_error(what, None);
        let mut call = CallToolRequestParams::new(request.name());
        let params = serde_json::to_value(params).map_err(|error| failed(error.to_string()))?;
        call.arguments = params.as_object().cloned();
        (call.input_responses, call.request_state) = answers;
        let envelope = match self.inner.carry_out(call, context).await? {
            Came::Result(envelope) => envelope,
            Came::Question(question) => return Ok(Made::Question(question)),
        };
        if let Some(why) = envelope.error_text {
            return Err(failed(why));
        }
        if envelope.metadata.truncated == Some(true) {
            return Err(failed(format!("the answer has more than {SHOWN} bytes")));
        }
        let answer = envelope.data.as_ref().map(|data| data[ANSWER].clone()).unwrap_or_default();
        serde_json::from_value(answer).map(Made::Answer).map_err(|error| failed(error.to_string()))
    }
}

impl ServerHandler for Wrapped {
    fn get_info(&self) -> ServerConfig {
        let theirs = self.remote.info();
        let has = theirs.as_ref().map(|theirs| &theirs.capabilities);
        let mut capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        capabilities.prompts = has.and_then(|has| has.prompts.as_ref()).map(|_| PromptsCapability::default());
        capabilities.resources = has.and_then(|has| has.resources.as_ref()).map(|_| ResourcesCapability::default());
        capabilities.completions = has.and_then(|has| has.completions.clone());
        let mut info = ServerConfig::new(capabilities);
        info.instructions = self.remote.instructions();
        let callgate = || Implementation::new("callgate", env!("CARGO_PKG_VERSION"));
        info.server_info = self.remote.implementation().unwrap_or_else(callgate);
        info
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.remote.listed(&self.inner.session().registry())))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let registry = self.inner.session().registry();
        // The session has tools of its own, which are not for this client; and requests are no tools for it.
        let is_request = Request::ALL.iter().any(|its| its.name() == request.name);
        if is_request || !registry.find(&request.name).is_some_and(|tool| tool.is_of(self.remote.name())) {
            return Err(ErrorData::invalid_params(format!("there is no tool `{}`", request.name), None));
        }
        self.inner.call_tool(request, context).await
    }

    async fn list_prompts(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        passed_on(self.remote.peer().list_prompts(page), &context).await
    }

    async fn get_prompt(
        &self,
        mut request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let answers = (request.input_responses.take(), request.request_state.take());
        Ok(match self.make(Request::Prompt, (&request, answers), &context).await? {
            Made::Answer(answer) => GetPromptResponse::Complete(answer),
            Made::Question(question) => question.into(),
        })
    }

    async fn list_resources(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        passed_on(self.remote.peer().list_resources(page), &context).await
    }

    async fn list_resource_templates(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        passed_on(self.remote.peer().list_resource_templates(page), &context).await
    }

    async fn read_resource(
        &self,
        mut request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let answers = (request.input_responses.take(), request.request_state.take());
        Ok(match self.make(Request::Resource, (&request, answers), &context).await? {
            Made::Answer(answer) => ReadResourceResponse::Complete(answer),
            Made::Question(question) => question.into(),
        })
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        match self.make(Request::Completion, (&request, Answers::default()), &context).await? {
            Made::Answer(answer) => Ok(answer),
            // The protocol has no answer that asks for this one.
            Made::Question(_) => Err(ErrorData::internal_error("a person has to be asked about completions", None)),
        }
    }
}
