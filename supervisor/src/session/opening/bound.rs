//! Fifth stage: the plan of the session's processes for one strength, bound to the things that were seen.
//!
//! Owes: no place for private files or outputs; rights that cannot be told the kernel; variables that no program gets; a grant that is
//! missing, was replaced, or hangs on a link of a call or on a stranger's directory; one that leads out of its bound, or to what no session
//! reaches; a credential that calls could read; a file of the policy that they could change; debugging where every program is judged.
//! Leaves out databases whose file calls could read.

use std::os::fd::OwnedFd;

use callgate_policy::effective::EffectiveSet;
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile::{self, HostFacts};
use callgate_policy::plan::{Ablation, AskedFor, Calls, PrivateDir, PrivateKind, SessionPlan, Strength};
use callgate_policy::shell::restricted;
use callgate_policy::step::Step;

use super::super::{Overflow, SessionSpec, Warning};
use super::closed;
use super::judged::{JudgedRights, barred};
use super::recorded::RecordedRights;
use crate::confine::{ConfineError, Opened, Outputs, private_directory};
use crate::facts;
use crate::open_error::OpenError;
use crate::place::{self, Looked, Place};
use crate::registry::Databases;
use crate::supervisor::Supervisor;

/// Plan of a session's processes that may be carried out.
pub(super) struct BoundPlan {
    effective: EffectiveSet,
    facts: HostFacts,
    looked: Looked,
    plan: SessionPlan,
    outputs: Option<Outputs>,
    databases: Databases,
    sealed: Option<OwnedFd>,
}

/// A session that the kernel has confirmed.
pub(super) struct ConfinedSession {
    pub(super) effective: EffectiveSet,
    pub(super) facts: HostFacts,
    pub(super) looked: Looked,
    pub(super) plan: SessionPlan,
    pub(super) opened: Opened,
    pub(super) outputs: Option<Outputs>,
    pub(super) databases: Databases,
    /// Only the constructor below makes one.
    _made: (),
}

impl BoundPlan {
    /// Compiles the plan for a strength, and binds it to what is seen.
    pub(super) fn of(
        supervisor: &Supervisor,
        strength: Strength,
        recorded: &RecordedRights,
        spec: &SessionSpec,
        (is_child, ablation): (bool, Option<&Ablation>),
    ) -> Result<Self, OpenError> {
        let judged = &recorded.judged;
        let (roots, changeable) = (judged.held.roots(), &judged.changeable);
        let identity = judged.held.identity();
        let private = private(strength, judged)?;
        let outputs = outputs(supervisor, recorded, spec, ablation.is_some())?;
        let effective = match outputs.as_ref().and_then(Outputs::of_session) {
            Some(path) => judged.effective().clone().with_session_dir(path),
            None => judged.effective().clone(),
        };
        let mut facts = facts::collect(
            (strength, spec.calls),
            supervisor.support.landlock_abi,
            identity,
            private,
            judged.held.workspace(),
            (&effective, judged.ancestry.most.as_deref().filter(|_| is_child)),
            (changeable, judged.held.host()),
        );
        facts.closed = closed::find(judged.rules.closed_places(), changeable);
        let plan = compile::session(&effective, &facts, &judged.env, &judged.bounds)?;
        let plan = SessionPlan { ablation: ablation.cloned(), ..plan };
        // A directory that stays is a grant like others. Nobody removes it when the session ends.
        let is_removed = outputs.as_ref().is_some_and(|outputs| outputs.descriptors().is_some());
        let plan = SessionPlan { outputs: plan.outputs.filter(|_| is_removed), ..plan };
        let toolchains = plan.surroundings.iter().filter(|rule| facts.toolchains.contains(&rule.path));
        let trees = plan.program_trees();
        let granted = plan.grants.iter().chain(toolchains).chain(&trees);
        let looked = place::look((roots, judged.tools.beside()), changeable, granted, identity)
            .map_err(|(path, misled)| OpenError::misled(format!("grant {path}"), misled))?;
        // Where a path leads is asked now that it is known what the session will be bound to.
        if let Some(error) = judged.tools.leads_out(&effective, |path| looked.real(path)) {
            return Err(error);
        }
        let led = effective.led_to(|path| looked.real(path));
        barred(supervisor, spec, &judged.held).refuse(&led)?;
        // What is granted as it is spelt, the plan says.
        judged.credentials.refuse_reach(&led, &plan)?;
        let databases = judged.databases.out_of_reach(&led, &plan);
        let plan = plan.keeping(&recorded.policy).bound_to(looked.seen.clone(), &facts.toolchains);
        let plan = match judged.watched {
            Some(by) => plan.watched(by),
            None => plan,
        };
        let reads = judged.held.profile().restricts_the_shell();
        let plan = if reads { plan.with_reading_calls(restricted::programs()) } else { plan };
        if plan.debug && plan.exec.is_judged() {
            return Err(OpenError::DebugJudged);
        }
        let sealed = judged.credentials.sealed().map_err(OpenError::Sealed)?;
        Ok(Self { effective, facts, looked, plan, outputs, databases, sealed })
    }

    /// Has the launcher confine the session's processes.
    pub(super) async fn confine(self, supervisor: &Supervisor) -> Result<ConfinedSession, OpenError> {
        let Self { effective, facts, looked, plan, mut outputs, databases, sealed } = self;
        let groups = supervisor.groups.clone();
        let opened = Opened::open(&supervisor.launcher, plan.clone(), (outputs.as_ref(), sealed), groups).await;
        if let Err(ConfineError::Refused(failed)) = &opened {
            let what = failed.what.clone();
            if failed.step == Step::Replaced {
                return Err(OpenError::Replaced { what });
            }
            if failed.step == Step::Policy {
                return Err(OpenError::Policy { what });
            }
        }
        let opened = opened?;
        outputs.iter_mut().for_each(Outputs::hand_over);
        Ok(ConfinedSession { effective, facts, looked, plan, opened, outputs, databases, _made: () })
    }
}

impl ConfinedSession {
    /// Warning of an environment that is active outside and not inside.
    pub(super) fn warning(&self) -> Option<Warning> {
        not_active(&self.facts)
    }
}

/// Places where calls of the session may write, or another session of the workspace.
fn written(judged: &JudgedRights) -> Vec<HostPath> {
    let asked = judged.effective().asked_for();
    judged.ancestry.written.iter().cloned().chain(asked.iter().map(AskedFor::directory)).collect()
}

/// Those places, and the workspace.
fn reached(judged: &JudgedRights) -> Vec<HostPath> {
    written(judged).into_iter().chain(judged.held.roots().iter().map(Place::path).cloned()).collect()
}

/// Place of the session's private files.
fn private(strength: Strength, judged: &JudgedRights) -> Result<PrivateDir, OpenError> {
    Ok(match strength {
        Strength::Landlock => {
            let path = private_directory(judged.held.identity(), &reached(judged), judged.held.host().mounts())?;
            PrivateDir { inside: path.into(), kind: PrivateKind::OnHost }
        }
        Strength::Namespaces => PrivateDir { inside: "/run/callgate".into(), kind: PrivateKind::InNamespace },
    })
}

/// Place of what results have no room for, if something is kept.
fn outputs(
    supervisor: &Supervisor,
    recorded: &RecordedRights,
    spec: &SessionSpec,
    is_ablated: bool,
) -> Result<Option<Outputs>, OpenError> {
    let judged = &recorded.judged;
    let (identity, mounts) = (judged.held.identity(), judged.held.host().mounts());
    let lasting = recorded.lasting(supervisor).filter(|_| !is_ablated);
    Ok(match (&spec.overflow, spec.calls, lasting) {
        (Overflow::Session, _, Some((beside, known))) => {
            Outputs::keep(known, beside, identity, (&written(judged), mounts))
        }
        (Overflow::Session, Calls::Many, None) => Outputs::make(identity, &reached(judged), mounts),
        (Overflow::Directory(path), ..) => {
            let outputs = Outputs::in_directory(path, &recorded.kept.id, &written(judged), &judged.changeable);
            Some(outputs.map_err(|source| OpenError::Outputs { path: path.clone(), source })?)
        }
        // Who makes one call and goes has nobody left to read what it had no room for.
        (Overflow::Session, Calls::One, None) | (Overflow::Nowhere, ..) => None,
    })
}

/// An environment that is active outside and not inside.
fn not_active(facts: &HostFacts) -> Option<Warning> {
    let directory = facts.env.get("VIRTUAL_ENV")?;
    let bin = HostPath::from(directory.as_path().join("bin"));
    let (_, why) = facts.path_left_out.iter().find(|(left_out, _)| *left_out == bin)?;
    Some(Warning::EnvironmentNotActive { directory: directory.clone(), why: *why })
}
