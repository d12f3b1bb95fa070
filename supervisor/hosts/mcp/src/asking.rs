//! Asking the person at the client.

use std::sync::Arc;

use callgate::{Answer, Approver, Asked, Inquired, Inquiry, Question, Reply};
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ProgressNotificationParam,
    ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleServer, ServiceError};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::shown;
use crate::taken_back::TakenBack;

tokio::task_local! {
    /// Who made the call that is under way.
    pub(crate) static CALLER: Caller;
    /// Where a server tells how far the call has come.
    pub(crate) static STEPS: mpsc::Sender<ProgressNotificationParam>;
}

/// How whoever made a call can be asked.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// By whoever handles the request that the call is of.
    Handler(mpsc::Sender<Ask>),
    /// The client has no way to ask anybody.
    Nobody,
}

/// Something that a person is to be asked.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) what: ElicitRequestParams,
    pub(crate) answer: oneshot::Sender<ElicitResult>,
}

impl Caller {
    /// Answer that comes back; `None` if nobody can be asked.
    async fn ask(self, what: ElicitRequestParams) -> Option<ElicitResult> {
        match self {
            Self::Handler(asks) => {
                let (answer, answered) = oneshot::channel();
                asks.send(Ask { what, answer }).await.ok()?;
                answered.await.ok()
            }
            Self::Nobody => None,
        }
    }
}

impl Ask {
    /// Asks by a request of the server's: until 2025-11-25. The SDK sends it on the stream of the request that is being handled, if
    /// there are several; so whoever handles that has to wait for this itself.
    pub(crate) async fn by_request(self, peer: Peer<RoleServer>) {
        let Self { what, mut answer } = self;
        let answered = tokio::select! {
            biased;
            () = answer.closed() => None,
            answered = request(peer, what) => answered,
        };
        if let Some(result) = answered {
            // If nobody waits for it by now, the call says so itself.
            drop(answer.send(result));
        }
    }
}

/// Asks by a request. One that nobody waits for any more is taken back.
async fn request(peer: Peer<RoleServer>, what: ElicitRequestParams) -> Option<ElicitResult> {
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(what));
    let options = PeerRequestOptions::no_options();
    let handle = match peer.send_cancellable_request(request, options).await {
        Ok(handle) => handle,
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the client could not be asked");
            return None;
        }
    };
    let asked = TakenBack::new(peer, handle.id.clone(), "it is no longer asked");
    let answer = handle.await_response().await;
    asked.answered();
    match answer {
        Ok(ClientResult::ElicitResult(result)) => Some(result),
        // What is no answer of this protocol is no yes.
        Ok(_) | Err(ServiceError::UnexpectedResponse) => Some(ElicitResult::new(ElicitationAction::Decline)),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the client could not be asked");
            None
        }
    }
}

/// The person at the client, for [`SessionSpec::approver`](callgate::SessionSpec::approver).
#[derive(Debug, Clone, Copy, Default)]
pub struct Client;

impl Client {
    /// Asks whoever made the call that this is called in.
    fn ask(what: Option<ElicitRequestParams>) -> impl Future<Output = Option<ElicitResult>> + Send + 'static {
        let caller = CALLER.try_with(Clone::clone).unwrap_or(Caller::Nobody);
        async move { caller.ask(what?).await }
    }
}

impl Approver for Client {
    fn name(&self) -> &str {
        "mcp"
    }

    fn ask(&self, question: Arc<Question>) -> Asked {
        let asked = Self::ask(shown::approval(&question));
        Box::pin(async move { Some(answer(&asked.await?)) })
    }

    fn inquire(&self, inquiry: Arc<Inquiry>) -> Inquired {
        let asked = Self::ask(shown::inquiry(&inquiry));
        Box::pin(async move { Some(reply(&inquiry, &asked.await?)) })
    }
}

/// Answer of a person. What is not plainly a yes is a no.
fn answer(result: &ElicitResult) -> Answer {
    let said = result.content.as_ref().and_then(|content| content.get(shown::ANSWER)).and_then(Value::as_str);
    match (&result.action, said) {
        (ElicitationAction::Accept, Some(shown::ONCE)) => Answer::Once,
        (ElicitationAction::Accept, Some(shown::ALWAYS)) => Answer::Always,
        (ElicitationAction::Accept, Some(shown::WIDER)) => Answer::Wider,
        _ => Answer::Reject,
    }
}

fn reply(inquiry: &Inquiry, result: &ElicitResult) -> Reply {
    let (ElicitationAction::Accept, Some(content)) = (&result.action, &result.content) else { return Reply::Dismissed };
    let text = |number: usize, value: &Value| Some(shown::chosen(&inquiry.questions[number], value.as_str()?));
    let answers = (0..inquiry.questions.len()).map(|number| match content.get(shown::field(number)) {
        Some(Value::Array(several)) => several.iter().filter_map(|one| text(number, one)).collect(),
        Some(one) => text(number, one).into_iter().collect(),
        None => Vec::new(),
    });
    // Whether they fit the questions is looked at by the session.
    Reply::Answers(answers.collect())
}
