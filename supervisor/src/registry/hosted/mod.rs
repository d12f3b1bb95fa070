//! The locked tools that the session itself answers. They read, write and start nothing outside it, so they need no sandbox;
//! what they are given is a model's all the same, and is bounded by their schemas.

pub(crate) mod agents;
pub(crate) mod background;
mod plan;
mod question;
pub(crate) mod skill;
mod task;
mod todo;
mod tool_search;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::executor::Executor;
use super::{Registry, RegistryError, Tool};
use crate::call::CallError;
use crate::session::Session;
use crate::store::{Recording, StoreError};

pub(super) use plan::update_plan;
pub(super) use task::task;

pub use skill::{Skill, SkillLeftOut, Skills};
pub use todo::{Todo, TodoStatus};

/// Which of them a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hosted {
    Todo,
    Plan,
    Question,
    Skill,
    ToolSearch,
}

/// All of them, in the order in which they are listed.
pub(super) fn tools() -> Result<Vec<Tool>, RegistryError> {
    Ok(vec![todo::todo()?, question::question()?, skill::skill()?, tool_search::tool_search()?])
}

fn tool(hosted: Hosted, name: &'static str, contract: (&str, &str, &str)) -> Result<Tool, RegistryError> {
    Tool::bundled(name, contract, Executor::Session(hosted))
}

/// State that the session keeps for them.
#[derive(Debug)]
pub(crate) struct State {
    notes: Mutex<Notes>,
    skills: skill::Known,
}

/// Part of that which is recorded with the session, for its next openings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Notes {
    pub(crate) todo: Vec<Todo>,
    pub(crate) plan: plan::Plan,
    /// Deferred tools that were searched for.
    pub(crate) loaded: BTreeSet<String>,
}

impl State {
    pub(crate) fn new(notes: Notes, found: Arc<skill::Found>) -> Self {
        Self { notes: Mutex::new(notes), skills: skill::Known::new(found) }
    }

    /// Where skills were found.
    pub(crate) fn skills(&self) -> Arc<skill::Found> {
        self.skills.found()
    }

    fn has_loaded(&self, tool: &str) -> bool {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).loaded.contains(tool)
    }

    fn notes(&self) -> Notes {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Session {
    /// Answers a call that all layers let pass.
    pub(crate) async fn answer_itself(
        &self,
        hosted: Hosted,
        registry: &Registry,
        args: Value,
        recording: &mut Recording,
    ) -> Result<Value, CallError> {
        match hosted {
            Hosted::Todo => todo::answer(self, args),
            Hosted::Plan => plan::answer(self, args),
            Hosted::Question => question::answer(self, args, recording).await,
            Hosted::Skill => skill::answer(self, &args).await,
            Hosted::ToolSearch => tool_search::answer(self, registry, &args),
        }
    }

    /// Changes what is kept. What cannot be recorded is not changed.
    fn change_notes(&self, change: impl FnOnce(&mut Notes)) -> Result<(), StoreError> {
        let mut notes = self.hosted.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = notes.clone();
        change(&mut changed);
        if changed != *notes {
            self.recorder.keep_notes(&changed)?;
            *notes = changed;
        }
        Ok(())
    }
}
