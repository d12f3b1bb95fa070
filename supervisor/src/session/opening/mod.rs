//! Opening a session: five stages, each a value that only its own constructor makes, of the one before it.
//!
//! [`HeldRoots`] → [`BelievedTools`] → [`JudgedRights`] → [`RecordedRights`] → [`BoundPlan`] → [`ConfinedSession`]. Each file says which
//! refusals its stage owes. None can be left out, nor its order changed: the next one takes it by value.
//! After the last, a directory that has taken the name of a trusted project since that was found is refused here.

mod barred;
mod believed;
mod bound;
mod closed;
mod examined;
mod judged;
mod policy_files;
mod recorded;
mod roots;
#[cfg(test)]
mod tests;

use std::sync::{Arc, RwLock};

use callgate_policy::limit::Limits;
use callgate_policy::manifest::Env;
use callgate_policy::plan::{Ablation, Strength};

pub(super) use self::barred::Barred;
use self::believed::BelievedTools;
pub(super) use self::believed::effective;
use self::bound::{BoundPlan, ConfinedSession};
pub use self::examined::{Examined, MissingPlace};
use self::judged::JudgedRights;
use self::recorded::RecordedRights;
use self::roots::HeldRoots;
pub(super) use self::roots::bounds;
use super::family::Ancestry;
use super::{Family, Lineage, Notebook, Rearing, Sandbox, Session, SessionSpec, StrengthChoice, Tools};
use crate::aborts::Aborts;
use crate::background::kept::Background;
use crate::confine::{ConfineError, Outputs};
use crate::gate::people::People;
use crate::gate::{Gate, Halt};
use crate::host::{self, Missing};
use crate::open_error::OpenError;
use crate::store::Recorder;
use crate::supervisor::Supervisor;
use crate::turn::Turns;

/// Whoever has a session opened.
pub(crate) enum OpenedBy {
    /// Somebody who embeds it.
    Host,
    /// The probe: the session lacks a mechanism, and nothing runs in it but acts of the probe.
    Probe(Ablation),
    /// Another session, for an agent.
    Parent(Box<Lineage>),
}

impl OpenedBy {
    fn lineage(&self) -> Option<&Lineage> {
        if let Self::Parent(lineage) = self { Some(lineage) } else { None }
    }

    fn into_lineage(self) -> Option<Lineage> {
        if let Self::Parent(lineage) = self { Some(*lineage) } else { None }
    }

    fn ablation(&self) -> Option<&Ablation> {
        if let Self::Probe(ablation) = self { Some(ablation) } else { None }
    }
}

impl Supervisor {
    /// Opens a session.
    ///
    /// # Errors
    /// [`OpenError`]; nothing has run, and nothing is left behind.
    pub async fn open(&self, spec: SessionSpec) -> Result<Session, OpenError> {
        self.open_for(spec, OpenedBy::Host).await
    }

    /// Opens a session for whoever it may be.
    pub(crate) async fn open_for(&self, mut spec: SessionSpec, mut by: OpenedBy) -> Result<Session, OpenError> {
        let inherited = match &mut by {
            OpenedBy::Parent(lineage) => lineage.inherited.take(),
            OpenedBy::Host | OpenedBy::Probe(_) => None,
        };
        let found_in = spec.project.clone();
        let held = HeldRoots::find(&mut spec, by.lineage())?;
        let tools = BelievedTools::of(&held, &mut spec, inherited)?;
        let judged = JudgedRights::of(self, (held, tools), &mut spec, by.lineage())?;
        let recorded = RecordedRights::of(self, judged, &spec, by.lineage())?;
        let confined = self.confined(&recorded, &spec, &by).await?;
        // Now that the kernel is bound to it. What takes its place later is noticed by each call.
        let first = recorded.judged.held.roots().first();
        if let Some(project) = found_in.filter(|project| !first.is_some_and(|root| project.is_at(root))) {
            return Err(OpenError::OtherProject { path: project.root().clone() });
        }
        self.session(recorded, confined, spec, by)
    }

    /// Confines it with the strength that was chosen, or with the best that the host has.
    async fn confined(
        &self,
        recorded: &RecordedRights,
        spec: &SessionSpec,
        by: &OpenedBy,
    ) -> Result<ConfinedSession, OpenError> {
        let about = (by.lineage().is_some(), by.ablation());
        let first = match (spec.strength, self.without_namespaces.get()) {
            (StrengthChoice::Landlock, _) | (StrengthChoice::Best, Some(_)) => Strength::Landlock,
            (StrengthChoice::Best | StrengthChoice::Namespaces, _) => Strength::Namespaces,
        };
        match BoundPlan::of(self, first, recorded, spec, about)?.confine(self).await {
            Err(OpenError::Confine(ConfineError::Refused(failed)))
                if spec.strength == StrengthChoice::Best
                    && first == Strength::Namespaces
                    && host::refuses_namespaces(&failed) =>
            {
                // Not a downgrade: the first strength holds the same grants by other means, and every result says so.
                tracing::info!(%failed, "this host refuses namespaces; Landlock and seccomp hold alone");
                let missing = Missing::namespaces(&failed);
                self.without_namespaces.get_or_init(|| missing);
                BoundPlan::of(self, Strength::Landlock, recorded, spec, about)?.confine(self).await
            }
            confined => confined,
        }
    }

    /// The session of what all stages have made.
    fn session(
        &self,
        recorded: RecordedRights,
        confined: ConfinedSession,
        spec: SessionSpec,
        by: OpenedBy,
    ) -> Result<Session, OpenError> {
        let RecordedRights { judged, stored, kept, redaction, .. } = recorded;
        let JudgedRights { held, tools, ancestry, mut rules, credentials, watchdogs, .. } = judged;
        let (profile, roots, host, variables, shell_dir) = held.into_parts();
        let (registry, sources, skills, beside, mut warnings) = tools.into_parts();
        warnings.extend(judged.warnings);
        warnings.extend(confined.warning());
        let ConfinedSession { effective, facts, looked, plan, mut opened, outputs, databases, .. } = confined;
        rules.hold(plan.protection.closed.iter().map(|closed| closed.place.clone()));
        let id = kept.id.clone();
        let recorder = Recorder::new(id.clone(), redaction, stored, kept.last);
        let lineage = by.into_lineage();
        let rearing = self.rearing(&spec, lineage.as_ref(), (ancestry, judged.limits, judged.env.clone()));
        let people = People::new(spec.approvers, spec.patience, judged.project).remember(kept.approvals, &recorder);
        let people = people.in_turn_with(lineage.as_ref().map(Lineage::asking).unwrap_or_default());
        let manifest = spec.manifest.map(Arc::new);
        let gate = Gate {
            session: id.clone(),
            agent: rearing.agent.clone(),
            manifest: manifest.clone(),
            rules: RwLock::new(rules),
            profile,
            watchdogs,
            people: Arc::new(people),
            questions: Turns::default(),
            asked_by: spec.asked_by,
            headless: manifest.as_ref().map(|manifest| manifest.headless).unwrap_or_default(),
            halt: Halt::new(kept.is_halted, &recorder, lineage.as_ref().map(Lineage::halt)),
            credentials: credentials.declared(),
            #[cfg(feature = "ablation")]
            ablated: None,
            #[cfg(feature = "ablation")]
            forgotten: callgate_policy::effect::EffectKinds::default(),
        };
        let watching = opened.tracer().map(|tracer| gate.watch(tracer));
        recorder.stands(outputs.as_ref().and_then(Outputs::to_know))?;
        let sandbox = Sandbox {
            _watching: watching,
            facts,
            looked,
            bounds: judged.bounds,
            opened,
            outputs,
            shell_dir,
            env: judged.env,
            plan,
            roots,
            host,
            changeable: judged.changeable,
            unlinked: beside,
        };
        Ok(Session {
            id,
            manifest,
            tools: Tools::new(registry, sources, databases, spec.coercion),
            effective,
            warnings,
            gate,
            variables,
            sandbox,
            recorder,
            notebook: Notebook::new(kept.notes, skills),
            turns: Turns::default(),
            aborts: Aborts::default(),
            background: Background::default(),
            family: Family::new(rearing, lineage.and_then(|lineage| lineage.kept)),
            launcher: self.launcher.clone(),
        })
    }

    /// Facts with which its children are opened.
    fn rearing(
        &self,
        spec: &SessionSpec,
        lineage: Option<&Lineage>,
        (ancestry, limits, env): (Ancestry, Limits, Env),
    ) -> Rearing {
        Rearing {
            supervisor: self.clone(),
            depth: lineage.map_or(0, |lineage| lineage.depth),
            agent: lineage.map(|lineage| lineage.agent.clone()),
            ancestry,
            ad_hoc: spec.ad_hoc.clone(),
            user_data: spec.user_data.clone(),
            limits,
            env,
            approvers: spec.approvers.clone(),
            patience: spec.patience,
            allow_home: spec.allow_home,
            watch_execs: spec.watch_execs,
            runner: spec.agent_runner.clone(),
            endpoint: spec.agent_endpoint.clone(),
        }
    }
}
