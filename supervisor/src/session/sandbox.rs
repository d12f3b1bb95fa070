//! Sandbox of a session: what it is confined to, and how.

use callgate_policy::limit::Bounds;
use callgate_policy::manifest::Env;
use callgate_policy::path::HostPath;
use callgate_policy::plan::SessionPlan;
use callgate_policy::plan::compile::HostFacts;

use crate::confine::{Opened, Outputs};
use crate::gate::execs::Watching;
use crate::host_view::HostView;
use crate::place::{Changeable, Looked, Place};

/// Confined processes of a session, and what they are confined to.
pub(crate) struct Sandbox {
    /// Answers for every program that is about to run, where somebody wants to see those. Dropped first: nothing is started then.
    pub(super) _watching: Option<Watching>,
    pub(crate) facts: HostFacts,
    /// Things that it is bound to.
    pub(super) looked: Looked,
    pub(crate) bounds: Bounds,
    pub(crate) opened: Opened,
    /// `None` if nothing is kept of what results have no room for.
    pub(crate) outputs: Option<Outputs>,
    /// Directory in which shells start that do not say, if not the first root.
    pub(crate) shell_dir: Option<HostPath>,
    pub(super) env: Env,
    pub(crate) plan: SessionPlan,
    /// Held, to notice one that is replaced.
    pub(super) roots: Vec<Place>,
    /// Facts about the host that the session was opened with.
    pub(super) host: HostView,
    /// Places where calls may have put links.
    pub(super) changeable: Changeable,
    /// Places that are granted because they were looked at, which was by no link.
    pub(super) unlinked: Vec<HostPath>,
}
