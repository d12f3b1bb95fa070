//! The endpoint of a session whose agent is a program: who serves it, and on which streams.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::Session;
use super::family::AgentService;
use crate::confine::Endpoint;

/// Most connections of an agent's program at once. One more is closed as soon as it is made.
const CONNECTIONS_MAX: usize = 4;
/// How long what serves a program may go on when the program has ended.
const FAREWELL: Duration = Duration::from_secs(5);

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
