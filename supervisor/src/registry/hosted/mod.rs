//! The locked tools that the session itself answers. They read, write and start nothing outside it, so they need no sandbox;
//! what they are given is a model's all the same, and is bounded by their schemas.

mod plan;
mod question;
pub(crate) mod skill;
mod todo;
pub(crate) mod tool_search;

use super::{RegistryError, Tool};

pub(super) use plan::update_plan;

pub use skill::{Skill, SkillLeftOut, Skills};

/// All of them, in the order in which they are listed.
pub(super) fn tools() -> Result<Vec<Tool>, RegistryError> {
    Ok(vec![todo::todo()?, question::question()?, skill::skill()?, tool_search::tool_search()?])
}
