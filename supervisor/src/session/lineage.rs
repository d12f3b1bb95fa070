//! Lineage of a session that another has started.

use std::sync::Arc;

use callgate_policy::effective::Bound;
use callgate_policy::rules::RuleSet;
use callgate_worker::way::Id;

use super::family::Ancestry;
use super::sources::Inherited;
use crate::agents::kept::KeptAgent;
use crate::gate::{Halt, Watchdogs};
use crate::store::Parent;
use crate::supervisor::Supervisor;

/// Relation of a child to its ancestors.
#[derive(Clone)]
pub(crate) struct Lineage {
    pub(crate) supervisor: Supervisor,
    pub(crate) parent: String,
    /// The call that has started it.
    pub(crate) call: String,
    pub(crate) agent: String,
    pub(crate) is_listed: bool,
    pub(crate) depth: usize,
    pub(crate) bound: Bound,
    pub(crate) rules: RuleSet,
    pub(crate) watchdogs: Arc<Watchdogs>,
    /// Taken when it is opened.
    pub(crate) inherited: Option<Inherited>,
    pub(crate) roots: Vec<Id>,
    pub(crate) ancestry: Ancestry,
    pub(crate) halt: Arc<Halt>,
    /// Held while a person is asked.
    pub(crate) asking: Arc<tokio::sync::Mutex<()>>,
    /// Record that its parent keeps of it, if it does.
    pub(crate) kept: Option<Arc<KeptAgent>>,
}

impl Lineage {
    pub(super) fn asking(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.asking)
    }

    pub(super) fn halt(&self) -> Arc<Halt> {
        Arc::clone(&self.halt)
    }

    /// Relation to its parent, as it is recorded.
    pub(crate) fn parent(&self) -> Parent<'_> {
        let Self { parent, agent, call, is_listed, .. } = self;
        Parent { session: parent, agent, call, is_listed: *is_listed, room: &self.ancestry.room }
    }
}
