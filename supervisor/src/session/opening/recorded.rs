//! Fourth stage: the session in its store, if there is one, with what it has kept if it goes on.
//!
//! Owes: a session to go on with that is not there, has another workspace, policy or role, or is open elsewhere; rules of its own that make
//! no sense any more; a store that cannot be written.

use std::path::Path;

use callgate_policy::path::HostPath;
use callgate_policy::plan::PolicyFiles;
use callgate_policy::profile::Profile;
use callgate_policy::rules::{RuleScope, RuleSource};

use super::super::{Lineage, SessionSpec};
use super::judged::JudgedRights;
use super::policy_files;
use crate::id::new_id;
use crate::open_error::OpenError;
use crate::store::{Kept, KnownOutputs, NewSession, PolicyDigests, Redaction, StoreError, Stored};
use crate::supervisor::Supervisor;

/// A session in the record, and the rights that it will have.
pub(super) struct RecordedRights {
    pub(super) judged: JudgedRights,
    pub(super) stored: Option<Stored>,
    pub(super) kept: Kept,
    pub(super) redaction: Redaction,
    /// Where its policy came from.
    pub(super) policy: PolicyFiles,
    /// Only the constructor below makes one.
    _made: (),
}

impl RecordedRights {
    /// Begins the record, or goes on with it.
    pub(super) fn of(
        supervisor: &Supervisor,
        mut judged: JudgedRights,
        spec: &SessionSpec,
        lineage: Option<&Lineage>,
    ) -> Result<Self, OpenError> {
        let of_family = judged.ancestry.credentials.values();
        let values = of_family.chain(judged.credentials.values()).chain(judged.databases.secrets());
        let redaction = Redaction::of(&judged.ancestry.env).and(values);
        let title = spec.title.as_deref().map(|title| redaction.text(title));
        let workspace = judged.held.workspace();
        let profile = judged.held.profile();
        let (stored, kept) = recorded(supervisor, (spec, profile), title.as_deref(), &workspace, lineage)?;
        for rule in &kept.rules {
            let source = RuleSource { scope: RuleScope::Session, place: "this session".to_owned() };
            judged.rules.add(rule, &source, judged.held.variables()).map_err(OpenError::Rule)?;
        }
        // A subagent's count is its family's.
        if lineage.is_none() {
            judged.tools.registry().have_searched(kept.searches);
        }
        let policy = policy_files::find(spec, judged.held.profile(), &supervisor.watchdogs, &judged.changeable);
        Ok(Self { judged, stored, kept, redaction, policy, _made: () })
    }

    /// Where outputs go that stay after the session: beside the store, or where they were before.
    pub(super) fn lasting<'a>(&'a self, supervisor: &'a Supervisor) -> Option<(&'a Path, Option<&'a KnownOutputs>)> {
        supervisor.store.as_ref().map(|store| (store.outputs(), self.kept.outputs.as_ref()))
    }
}

/// Makes the session in the store, or takes up the one that it continues; without a store, its id alone.
fn recorded(
    supervisor: &Supervisor,
    (spec, profile): (&SessionSpec, &Profile),
    title: Option<&str>,
    workspace: &[HostPath],
    lineage: Option<&Lineage>,
) -> Result<(Option<Stored>, Kept), OpenError> {
    let role = spec.asked_by.role();
    let policy = PolicyDigests::of(spec.manifest.as_ref(), profile);
    let new = || -> Result<Kept, OpenError> {
        Ok(Kept { id: new_id("ses_").map_err(OpenError::Random)?, ..Kept::default() })
    };
    match (&supervisor.store, &spec.resume) {
        (None, None) => Ok((None, new()?)),
        (None, Some(id)) => Err(StoreError::NoStore { id: id.clone() }.into()),
        (Some(store), Some(id)) => {
            let (stored, kept) = store.resume(id, workspace, &policy, role)?;
            Ok((Some(stored), kept))
        }
        (Some(store), None) => {
            let kept = new()?;
            let (id, settings) = (&kept.id, &spec.settings);
            let parent = lineage.map(Lineage::parent);
            let stored = store.begin(&NewSession { id, title, workspace, policy, settings, role, parent })?;
            Ok((Some(stored), kept))
        }
    }
}
