//! The endpoint of a session whose agent is a program: who serves it, and on which streams.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::Session;
use crate::confine::Endpoint;

/// Most connections of an agent's program at once. One more is closed as soon as it is made.
const CONNECTIONS_MAX: usize = 4;
/// How long what serves a program may go on when the program has ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// Serves the manifest's agents that are programs ([`SessionSpec::agent_endpoint`](super::SessionSpec::agent_endpoint)): each finds
/// a socket in its sandbox by which it makes the calls of its own session. What is spoken there is for whoever implements this.
pub trait AgentEndpoint: Send + Sync + fmt::Debug {
    /// Service for the program of an agent. The call of `task` that starts it asks for this, within its own future: so
    /// what belongs to a task of the runtime is its caller's.
    fn service(&self) -> AgentService;
}

/// Serves one connection of an agent's program, on its session, until either side closes it.
///
/// The program is confined, and may have been written by a model: what comes from it is to be bounded before it is read. It is
/// the agent, so it must not be asked about its own calls.
pub type AgentService = Box<dyn Fn(Arc<Session>, UnixStream) -> AgentServed + Send + Sync>;

/// Result of an [`AgentService`]. It is dropped when the session ends.
pub type AgentServed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The endpoint of an agent's program while that runs. Dropping it ends all connections.
pub(crate) struct Served {
    endpoint: Endpoint,
    service: Arc<AgentService>,
    connections: JoinSet<()>,
}

impl Served {
    pub(crate) fn new(endpoint: Endpoint, service: Arc<AgentService>) -> Self {
        Self { endpoint, service, connections: JoinSet::new() }
    }

    /// Serves until the program has ended.
    pub(crate) async fn serve(&mut self, session: &Arc<Session>) {
        while let Some(connection) = self.endpoint.accept().await {
            while self.connections.try_join_next().is_some() {}
            if self.connections.len() < CONNECTIONS_MAX {
                self.connections.spawn((self.service)(Arc::clone(session), connection));
            }
        }
    }

    /// Waits until nothing is served any more. All who were have ended.
    pub(crate) async fn end(mut self) {
        let all = async { while self.connections.join_next().await.is_some() {} };
        if tokio::time::timeout(FAREWELL, all).await.is_err() {
            self.connections.shutdown().await;
        }
    }
}
