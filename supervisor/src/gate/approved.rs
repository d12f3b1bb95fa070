//! Calls that the gate has let pass.
//!
//! Invariant: nothing reaches a worker, a program, the host or another process but by a value of this file, and only the gate
//! makes one. The exceptions are the constructors below whose names say what they are for.

use std::ops::Deref;

use callgate_policy::effective::EffectiveSet;
use callgate_policy::path::HostPath;
use callgate_policy::plan::{CallPlan, CallWork};
use serde_json::{Map, Value};

use super::places::GrantedPlaces;
use crate::registry::{HostTool, ProgramTool, Tool};

/// A plan that may be carried out.
#[derive(Debug)]
pub(crate) struct ApprovedPlan(CallPlan);

impl Deref for ApprovedPlan {
    type Target = CallPlan;

    fn deref(&self) -> &CallPlan {
        &self.0
    }
}

impl ApprovedPlan {
    /// For the gate.
    pub(super) fn of_gate(plan: CallPlan) -> Self {
        Self(plan)
    }

    /// The worker that takes a command line apart: it runs before the gate, which judges what it finds. Its plan grants nothing.
    pub(crate) fn of_the_grammar(plan: CallPlan) -> Self {
        Self(plan)
    }

    /// The worker that looks whether a file is there that says what runs a workspace's tests. It tells nothing else, and its plan grants
    /// that file to read, which the capability check has let pass.
    pub(crate) fn of_the_runner(plan: CallPlan) -> Self {
        Self(plan)
    }

    /// The worker that reads the rows of a file for agents, in a call that the gate has let pass with this file as what it reads.
    pub(crate) fn of_the_rows(plan: CallPlan) -> Self {
        Self(plan)
    }

    /// `doctor --attack`, which shows that the sandbox holds what the layers before it let pass. `clippy.toml` refuses other uses.
    pub(crate) fn past_the_gate(plan: CallPlan) -> Self {
        Self(plan)
    }

    /// This plan, started in another directory: where a program may read the workspace or not is not what was approved of.
    pub(crate) fn starting_in(mut self, directory: HostPath) -> Self {
        if let CallWork::Program { working_dir, .. } = &mut self.0.work {
            *working_dir = directory;
        }
        self
    }

    /// This plan for a program that goes on while the session makes other calls, which reach what it listens on.
    pub(crate) fn serving_session(mut self) -> Self {
        self.0.serves_session = true;
        self
    }

    /// The worker that talks to the server of this plan. It reads what the call has been checked for, and is bound to names where the call
    /// is.
    pub(crate) fn its_client(&self, plan: CallPlan) -> Self {
        Self(CallPlan { as_spelt: self.0.as_spelt, ..plan })
    }

    pub(crate) fn into_plan(self) -> CallPlan {
        self.0
    }
}

/// Passage of a call through the gate: who approved of it, and its plan, which may be carried out now.
pub(crate) struct Passage {
    plan: Option<ApprovedPlan>,
    approved_by: Option<String>,
}

impl Passage {
    /// For the gate.
    pub(super) fn of_gate(plan: Option<CallPlan>, approved_by: Option<String>) -> Self {
        Self { plan: plan.map(ApprovedPlan::of_gate), approved_by }
    }

    pub(crate) fn approved_by(&self) -> Option<String> {
        self.approved_by.clone()
    }

    /// The call of a tool that passed, with the task that its plan makes.
    pub(crate) fn approve<'a, E>(
        self,
        tool: &'a Tool,
        task: impl FnOnce(Option<ApprovedPlan>) -> Result<ApprovedTask<'a>, E>,
    ) -> Result<Approved<'a>, E> {
        Ok(Approved { tool, task: task(self.plan)? })
    }
}

/// A call of a tool that may be carried out.
pub(crate) struct Approved<'a> {
    tool: &'a Tool,
    task: ApprovedTask<'a>,
}

/// Work to be done, and how.
pub(crate) enum ApprovedTask<'a> {
    Worker {
        plan: ApprovedPlan,
        args: Value,
        /// Facts that the worker is told besides.
        told: Map<String, Value>,
    },
    Program(&'a ProgramTool, ProgramTask),
    Host(&'a HostTool, HostTask),
}

/// Work of a program.
pub(crate) struct ProgramTask {
    pub(crate) plan: ApprovedPlan,
    pub(crate) places: GrantedPlaces,
    pub(crate) args: Value,
    /// Facts that the worker which talks to it is told besides.
    pub(crate) told: Map<String, Value>,
    /// Rights in force, if it has a sandbox of its own.
    pub(crate) own: Option<Box<EffectiveSet>>,
}

/// Work of the host.
pub(crate) struct HostTask {
    pub(crate) args: Value,
    /// Facts that its surface says besides.
    pub(crate) told: Map<String, Value>,
    /// Rights at most in force in a session of its own, if one is opened for it.
    pub(crate) most: Option<Box<EffectiveSet>>,
}

impl<'a> Approved<'a> {
    pub(crate) fn into_parts(self) -> (&'a Tool, ApprovedTask<'a>) {
        (self.tool, self.task)
    }
}
