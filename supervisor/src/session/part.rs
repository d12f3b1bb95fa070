//! Sandbox of a declared tool: a sandbox of its own, with its part of what is in force in the session.
//!
//! It has its own private directory, its own environment and its own processes. So nothing that another call has left behind
//! (a start-up file in `HOME`, a module in `TMPDIR`) decides what a tool does that may do more than that call.

use std::path::Path;

use callgate_policy::effective::EffectiveSet;
use callgate_policy::envelope::{Denial, Layer};
use callgate_policy::limit::Bounds;
use callgate_policy::manifest::Env;
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile;
use callgate_policy::plan::{
    AskedFor, Binding, CallPlan, Calls, Exactness, Extent, FsAccess, FsRule, Presence, PrivateDir, PrivateKind,
    SessionPlan, Strength,
};

use super::Session;
use super::opening::Barred;
use super::sources::{leads_out, part};
use super::written::real_path;
use crate::causes::with_causes;
use crate::confine::{Opened, private_directory};
use crate::error::CallError;
use crate::facts;
use crate::gate::execs::Watching;
use crate::open_error::OpenError;
use crate::place;
use crate::registry::Tool;

/// A sandbox for one call. What runs in it ends when it is dropped.
pub(crate) struct Part {
    pub(crate) opened: Opened,
    /// Where its temporary files are.
    pub(crate) temporary: HostPath,
    /// Answers for every program that is about to run, where somebody wants to see those.
    _watching: Option<Watching>,
}

impl Session {
    /// Rights in force for a tool: what it requires, as far as the session has it.
    pub(crate) fn part_for(&self, tool: &Tool) -> Result<EffectiveSet, CallError> {
        let own = part(tool, &self.effective, &self.variables).map_err(|error| CallError::Tool(error.to_string()))?;
        // A link may lead elsewhere since the session was opened.
        match leads_out(&own, real_path, |path| self.sandbox.looked.real(path).or_else(|| real_path(path))) {
            None => Ok(own),
            Some(error) => {
                let denial = Denial::new(Layer::Host, format!("what {} requires", tool.name), with_causes(&error));
                Err(CallError::Denied(Box::new(denial)))
            }
        }
    }

    /// Rights of a sandbox of its own for a call of one of callgate's tools, if it works on files that the session's programs may not.
    pub(crate) fn own_of_worker(&self, tool: &Tool, plan: &CallPlan) -> Option<EffectiveSet> {
        let is_beyond = |rule: &FsRule| {
            let is_written = rule.access.changes();
            !self.effective.allows_read(&rule.path) || (is_written && !self.effective.allows_write(&rule.path))
        };
        let own = || self.effective.for_tool(tool.own_name()).into_owned();
        (tool.is_alone() && plan.rules.own().iter().any(is_beyond)).then(own)
    }

    /// Makes it. `env` are the variables that the tool declares, `slot` is its state.
    pub(crate) async fn open_part(
        &self,
        own: &EffectiveSet,
        (env, slot): (&Env, Option<&HostPath>),
        bounds: &Bounds,
    ) -> Result<Part, CallError> {
        let plan = self.plan_of_part(own, (env, slot), bounds)?;
        let temporary = plan.private.inside.as_path().join("tmp").into();
        let mut opened = Opened::open(&self.launcher, plan, (None, None), self.sandbox.opened.groups()).await?;
        let watching = opened.tracer().map(|tracer| self.gate.watch(tracer));
        Ok(Part { opened, temporary, _watching: watching })
    }

    fn plan_of_part(
        &self,
        own: &EffectiveSet,
        (env, slot): (&Env, Option<&HostPath>),
        bounds: &Bounds,
    ) -> Result<SessionPlan, CallError> {
        let (strength, identity) = (self.sandbox.facts.strength, self.sandbox.facts.identity);
        // What other calls may write, of this session or another one of the workspace, must not hold it either.
        let ancestry = &self.family.rearing.ancestry;
        let asked = ancestry.asked.iter().map(AskedFor::directory);
        let others = ancestry.written.iter().chain(&self.sandbox.facts.workspace).cloned().chain(asked);
        let written: Vec<HostPath> = compile::written(own).into_iter().chain(others).chain(slot.cloned()).collect();
        let private = match strength {
            Strength::Landlock => {
                let path = private_directory(identity, &written, self.sandbox.host.mounts())
                    .map_err(|error| CallError::Tool(with_causes(&OpenError::from(error))))?;
                PrivateDir { inside: path.into(), kind: PrivateKind::OnHost }
            }
            Strength::Namespaces => PrivateDir { inside: "/run/callgate".into(), kind: PrivateKind::InNamespace },
        };
        let mut facts = facts::collect(
            (strength, Calls::One),
            self.sandbox.facts.landlock_abi,
            identity,
            private,
            self.sandbox.facts.workspace.clone(),
            (own, Some(self.family.rearing.ancestry.most.as_deref().unwrap_or(&self.effective))),
            (&self.sandbox.changeable, &self.sandbox.host),
        );
        // It sees what it declares, and of the caller's nothing else.
        facts.env.retain(|name, _| env.pass.contains(name));
        let protection = &self.sandbox.plan.protection;
        facts.closed.clone_from(&protection.closed);
        let plan = compile::session(own, &facts, env, bounds)?;
        // All of them: its rules were judged as those of the session.
        let plan = plan.keeping(&protection.policy).closing(&protection.closed);
        let state = slot.map(|slot| FsRule {
            path: slot.clone(),
            access: FsAccess::Kept,
            extent: Extent::Subtree,
            binding: Binding::Seen,
            presence: Presence::Required,
            exactness: Exactness::Exact,
            source: "the tool's state".to_owned(),
        });
        let plan = match state {
            Some(state) => compile::with_grant(plan, state),
            None => plan,
        };
        let toolchains = plan.surroundings.iter().filter(|rule| facts.toolchains.contains(&rule.path));
        let trees = plan.program_trees();
        let grants = plan.grants.iter().chain(toolchains).chain(&trees);
        let denied = |what: String, error: &OpenError| {
            CallError::Denied(Box::new(Denial::new(Layer::Host, what, with_causes(error))))
        };
        let looked =
            place::look((&self.sandbox.roots, &self.sandbox.unlinked), &self.sandbox.changeable, grants, identity)
                .map_err(|(path, misled)| {
                    denied(path.to_string(), &OpenError::misled(format!("grant {path}"), misled))
                })?;
        // What was asked of the tool's grants before is asked of what they turned out to be.
        let most = |path: &Path| self.sandbox.looked.real(path).or_else(|| real_path(path));
        let barred = Barred { allow_home: false, host: &self.sandbox.host, user_tools: None, store: None };
        let refused = match leads_out(own, |path| looked.real(path), most) {
            Some(error) => Err(error),
            None => barred.refuse(&own.led_to(|path| looked.real(path))),
        };
        refused.map_err(|error| denied("what the tool requires".to_owned(), &error))?;
        let plan = plan.bound_to(looked.seen, &facts.toolchains);
        Ok(match self.sandbox.plan.watched {
            Some(by) => plan.watched(by),
            None => plan,
        })
    }
}
