//! The tools there are, each under one contract whatever its origin (S0-1).

pub(crate) mod acts;
mod aliases;
mod bash;
pub(crate) mod catalogue;
mod coerce;
mod database;
mod databases;
mod declared;
mod declaring;
mod directory;
mod error;
mod exec_shell;
pub(crate) mod executor;
mod files;
pub(crate) mod hosted;
pub(crate) mod layers;
mod lifecycle;
mod lsp;
mod nearest;
mod patch;
mod pdf;
mod prepare;
mod repositories;
mod run_tests;
mod schema;
mod searches;
mod services;
mod surface;
mod tool;
mod web;

use std::collections::BTreeMap;
use std::sync::Arc;

use callgate_policy::effect::EffectKinds;
use callgate_policy::envelope::Deprecation;
use callgate_policy::profile::{Database, FileWrite, Profile};
use callgate_policy::sql::Dialect;
use callgate_policy::tool::{Changes, Subject};

use callgate_tools::{edit, glob, grep, read, write};

use crate::origin::Origin;

pub(crate) use acts::{AgentsAct, BackgroundAct, Delegation, Hosted};
pub(crate) use aliases::{VERSION, removed};
pub(crate) use databases::Databases;
pub(crate) use declared::{Declared, STATE};
pub use error::RegistryError;
pub(crate) use exec_shell::{ShellCall, refuse_two_inputs, time};
pub use executor::{Answering, Handler, HandlerCall};
pub(crate) use executor::{Executor, First, HostTool, ProgramTool, Then};
pub use hosted::{Skill, SkillLeftOut, Skills};
pub use layers::LeftOut;
pub(crate) use layers::{Layer, counts};
pub use lifecycle::ToolState;
pub(crate) use lifecycle::{InFlight, Inactive, Lifecycle};
pub(crate) use nearest::nearest;
pub(crate) use pdf::{instead_of_read, is_one as is_a_pdf, read_pdf};
pub(crate) use prepare::{Attempt, Context, Prepared, ReadFirst, ReadsDocument, input, started};
pub(crate) use repositories::versions;
pub(crate) use run_tests::{MARKERS, RUNNER};
pub use schema::Schema;
pub(crate) use services::{Azure, Rlm, TOKEN};
pub(crate) use surface::{TASKS, Understood, further as of_surface};
pub use tool::Tool;

pub(crate) use searches::Searches;
pub(crate) use web::{Hop, NO_PROVIDER, with_failed};

/// All tools of one surface.
#[derive(Debug, Clone)]
pub struct Registry {
    tools: Vec<Tool>,
    /// Tools that are declared and not there.
    left_out: Vec<LeftOut>,
}

impl Registry {
    /// The locked tools that this build has, under their locked names.
    ///
    /// # Errors
    /// [`RegistryError`]; none in practice, since the contracts are constants that a test builds.
    pub fn locked() -> Result<Self, RegistryError> {
        let mut tools =
            vec![files::tool(&read::CONTRACT)?, files::tool(&write::CONTRACT)?, files::tool(&edit::CONTRACT)?];
        tools.extend([files::tool(&glob::CONTRACT)?, files::tool(&grep::CONTRACT)?, bash::bash()?]);
        tools.push(web::web_fetch()?);
        tools.extend(hosted::tools()?);
        Ok(Self { tools, left_out: Vec::new() })
    }

    /// Adds a tool, under its own name.
    ///
    /// # Errors
    /// [`RegistryError`] for a name that is taken, locked or no name, and for schemas that are none.
    pub fn add(&mut self, tool: Tool) -> Result<(), RegistryError> {
        tool.check()?;
        let taken = |origin| RegistryError::Taken { tool: tool.name.clone(), origin };
        if let Some(other) = self.tools.iter().find(|other| other.name == tool.name) {
            return Err(taken(other.origin.clone()));
        }
        if Subject::of_locked(&tool.name).is_some() {
            return Err(taken(Origin::Bundled));
        }
        self.tools.push(tool);
        Ok(())
    }

    /// Adds `web_search`, which asks whom a manifest names.
    ///
    /// # Errors
    /// [`RegistryError`]; none in practice, as of [`Registry::locked`].
    pub(crate) fn add_search(&mut self, searches: Arc<Searches>) -> Result<(), RegistryError> {
        let tool = web::web_search(searches)?;
        let after = self.tools.iter().position(|other| other.name == "web_fetch").map_or(self.tools.len(), |at| at + 1);
        self.tools.insert(after, tool);
        Ok(())
    }

    /// Searches that a session has made before, in an earlier process.
    pub(crate) fn have_searched(&self, times: u64) {
        self.tools.iter().filter_map(|tool| tool.executor.searches()).for_each(|searches| searches.have_been(times));
    }

    /// Those of its tools for which something holds.
    pub(crate) fn only(&self, holds: impl Fn(&Tool) -> bool) -> Self {
        let tools = self.tools.iter().filter(|tool| holds(tool)).cloned().collect();
        Self { tools, left_out: self.left_out.clone() }
    }

    /// Kinds of the effects of each tool, by the name that rules have for it.
    pub(crate) fn kinds(&self) -> BTreeMap<String, EffectKinds> {
        self.tools.iter().map(|tool| (tool.rule_name(), tool.kinds())).collect()
    }

    /// Keeps only the tools that a profile offers (S4-1): the others are not there, whatever else is said of them (C-7).
    /// What they promise is what they do under it.
    ///
    /// # Errors
    /// [`RegistryError`]; none in practice, as of [`Registry::locked`].
    pub(crate) fn offer(&mut self, profile: &Profile) -> Result<(), RegistryError> {
        // It runs whatever its author wrote, which the kernel cannot hold to reading as it holds the programs of such a shell.
        let restricts = profile.restricts_the_shell();
        self.leave_out(|tool| {
            let why = || format!("the profile `{}` has only tools and programs that read", profile.name);
            (restricts || !profile.offers(tool.subject)).then(why)
        });
        self.tools.retain(|tool| profile.offers(tool.subject));
        for tool in self.tools.iter_mut().filter(|tool| tool.origin == Origin::Bundled) {
            if tool.subject == Subject::Create && profile.file_write == FileWrite::CreateOnly {
                *tool = files::create()?;
            }
            if tool.subject == Subject::Query {
                // To whoever decides it changes things, unless a call says otherwise.
                match profile.database {
                    Database::Mutations => tool.subject = Subject::Mutate,
                    Database::Readonly | Database::Off => {
                        tool.conduct.narrowed = (profile.file_write == FileWrite::Off).then_some(Changes::Nothing);
                    }
                }
            }
            if tool.subject == Subject::Execute {
                let mut parameters = serde_json::Value::clone(&tool.parameters);
                bash::tell_defaults(&mut parameters, profile);
                *tool = tool.clone().parameters(parameters);
            }
        }
        Ok(())
    }

    /// The tools, in the order in which they are listed.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter()
    }

    /// Dialects of the SQL that tools of it take.
    pub(crate) fn dialects(&self) -> impl Iterator<Item = Dialect> {
        self.tools.iter().filter_map(|tool| tool.executor.dialect())
    }

    /// The tool that a name stands for: one that is listed, or a deprecated one (S2-24).
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Tool> {
        let listed = self.tools.iter().find(|tool| tool.name == name);
        listed.or_else(|| {
            let alias = aliases::deprecated(name, aliases::VERSION)?;
            self.tools.iter().find(|tool| tool.is_bundled() && tool.own_name() == alias.instead)
        })
    }

    /// True if a tool is listed by this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
    }

    /// Notice to whoever calls by this name, if it will go.
    pub(crate) fn deprecation(&self, name: &str) -> Option<Deprecation> {
        let alias = aliases::deprecated(name, aliases::VERSION).filter(|_| !self.has(name))?;
        let tool = self.find(name)?;
        Some(Deprecation::new(alias.name, tool.name.clone(), aliases::REMOVED_IN))
    }

    /// This registry with these tools in place of those that a server had before, as far as they can be added and the
    /// profile offers them; and why the others cannot.
    pub(crate) fn with_tools_of(
        &self,
        server: &str,
        tools: Vec<Tool>,
        profile: &Profile,
    ) -> (Self, Vec<RegistryError>) {
        let mut registry = self.only(|tool| !tool.is_of(server));
        let refused = tools
            .into_iter()
            .filter(|tool| profile.offers(tool.subject))
            .filter_map(|tool| registry.add(tool).err())
            .collect();
        (registry, refused)
    }

    /// The most of a tool's output that is shown, in its own unit (S0-48).
    pub(crate) fn output_limit(&self, tool: &str) -> u64 {
        let tool = self.tools.iter().find(|other| other.name == tool);
        tool.and_then(|tool| tool.shows).unwrap_or_else(|| surface::output_limit(tool.map_or("", Tool::own_name)))
    }

    /// The visible names.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.tools.iter().map(|tool| tool.name.as_str()).collect()
    }
}
