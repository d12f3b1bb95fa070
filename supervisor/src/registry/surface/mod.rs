//! A surface: the names under which one session sees its tools (S2-1, C-22).
//!
//! It is data over one implementation each: a visible name, its parameters and where each of them goes, a limit, and what becomes of
//! the result. Everything that decides about a call (rules, profile, watchdogs, people) sees the tool's own name and arguments, so a
//! rule holds whatever the tool is called.

mod deepseek;
mod engine;
mod face;
mod rho;
mod shape;

use std::collections::BTreeMap;

use callgate_policy::manifest::Agent;
use callgate_policy::tool::{Subject, Surface};

pub(super) use face::{Face, Shown};
pub(crate) use face::{TASKS, Understood};
pub(super) use shape::Shape;

use super::{Origin, Registry, RegistryError, Tool};

/// S0-48's limit for `read` and `bash`, and of what says nothing else, bytes.
const OUTPUT: u64 = 200 * 1024;
/// S0-48's limit for `glob`, paths.
const PATHS: u64 = 1000;
/// S0-48's limit for `grep`, matches.
const MATCHES: u64 = 200;

/// The most of a locked tool's output that is shown, in its own unit.
pub(super) fn output_limit(tool: &str) -> u64 {
    match tool {
        "glob" => PATHS,
        "grep" => MATCHES,
        _ => OUTPUT,
    }
}

fn faces(surface: Surface) -> &'static [Face] {
    match surface {
        Surface::Deepseek => deepseek::FACES,
        Surface::Engine => engine::FACES,
        Surface::Rho => rho::FACES,
        // That is what they are called, and one that this build does not know has no others.
        Surface::Locked | _ => &[],
    }
}

/// The tools outside the lock that a surface has.
pub(crate) fn further(surface: Surface) -> impl Iterator<Item = &'static str> {
    faces(surface).iter().map(|face| face.of)
}

impl Registry {
    /// These tools as a surface shows them: those that it has, by its names, and those that are not callgate's.
    ///
    /// `agents` are those that `task` starts: where a call does not name one, it is `general`, or the first.
    ///
    /// # Errors
    /// [`RegistryError::Taken`] for a tool of the host's, the user's or the project's that has one of the surface's names.
    pub(crate) fn seen_through(
        mut self,
        surface: Surface,
        agents: &BTreeMap<String, Agent>,
    ) -> Result<Self, RegistryError> {
        if surface == Surface::Locked {
            return Ok(self);
        }
        let faces = faces(surface);
        // Of the tools of others only those that stand for a locked one, whose parameters are the same (C-10).
        let stands = |tool: &Tool| tool.is_bundled() || Subject::of_locked(&tool.name).is_some();
        let is_shown = |tool: &Tool| stands(tool) && faces.iter().any(|face| face.of == tool.name);
        let (own, others): (Vec<Tool>, Vec<Tool>) = self.tools.into_iter().partition(is_shown);
        let mut named = agents.iter().filter(|(_, agent)| agent.mode.is_subagent()).map(|(name, _)| name);
        let agent = agents.get_key_value("general").filter(|(_, agent)| agent.mode.is_subagent()).map(|(name, _)| name);
        let agent = agent.or_else(|| named.next()).cloned();
        let seen =
            |face: &'static Face| Some(own.iter().find(|tool| tool.name == face.of)?.seen_as(face, agent.clone()));
        let shown = faces.iter().filter_map(seen);
        self.tools = shown.collect();
        for tool in others.into_iter().filter(|tool| !tool.is_bundled()) {
            if self.has(&tool.name) {
                return Err(RegistryError::Taken { tool: tool.name, origin: Origin::Bundled });
            }
            // S3-8: there are eight, and what else there is has to be looked for.
            self.tools.push(if surface == Surface::Engine { tool.deferred() } else { tool });
        }
        Ok(self)
    }
}
