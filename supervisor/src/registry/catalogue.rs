//! The tools outside the lock (S0-25): a session has those that its manifest, its host or its surface names.

use std::collections::BTreeMap;
use std::sync::Arc;

use callgate_policy::effect::EffectKinds;
use callgate_policy::manifest::{Agent, Net};
use callgate_policy::tool::Subject;
use callgate_tools::web::{azure, rlm};

use super::services::{Azure, NO_MODEL, Rlm};
use super::{
    Registry, RegistryError, Tool, database, exec_shell, files, hosted, lsp, patch, pdf, repositories, run_tests,
    services,
};
use crate::{agents, background};

impl Registry {
    /// Adds tools outside the lock (S0-25).
    ///
    /// # Errors
    /// [`RegistryError::NotInTheCatalogue`] for a name that none of them has.
    pub(crate) fn add_further<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) -> Result<(), RegistryError> {
        let catalogue = tools()?;
        // Those that have to be configured are added by what they are configured with.
        for name in names.into_iter().filter(|name| !is_configured(name)) {
            let Some(tool) = catalogue.iter().find(|tool| tool.name == name) else {
                let known = Self::further()?.join(", ");
                return Err(RegistryError::NotInTheCatalogue { tool: name.to_owned(), known });
            };
            if self.find(name).is_none() {
                self.tools.push(tool.clone());
            }
        }
        Ok(())
    }

    /// The names of the tools outside the lock, which a session has if it asks for them.
    ///
    /// # Errors
    /// [`RegistryError`]; none in practice, as of [`Registry::locked`].
    pub fn further() -> Result<Vec<String>, RegistryError> {
        let configured = configured().map(str::to_owned);
        Ok(tools()?.into_iter().map(|tool| tool.name).chain(configured).collect())
    }

    /// Kinds of the effects of all tools outside the lock, by their names: rules are about them also where they are not offered.
    ///
    /// # Errors
    /// [`RegistryError`]; none in practice, as of [`Registry::locked`].
    pub(crate) fn kinds_of_further() -> Result<BTreeMap<String, EffectKinds>, RegistryError> {
        Ok(tools()?.into_iter().map(|tool| (tool.name.clone(), tool.kinds())).collect())
    }

    /// Adds `azure_devops`, for an organization.
    ///
    /// # Errors
    /// [`RegistryError`]; none in practice, as of [`Registry::locked`].
    pub(crate) fn add_azure(&mut self, azure: Arc<Azure>) -> Result<(), RegistryError> {
        self.tools.push(services::azure_devops(azure)?);
        Ok(())
    }

    /// Adds `rlm_query`, which asks whom a manifest names.
    ///
    /// # Errors
    /// [`RegistryError`]; none in practice, as of [`Registry::locked`].
    pub(crate) fn add_rlm(&mut self, rlm: Arc<Rlm>) -> Result<(), RegistryError> {
        self.tools.push(services::rlm_query(rlm)?);
        Ok(())
    }

    /// True if a tool of this name is there only where it is configured: a rule about it is no mistake elsewhere.
    pub(crate) fn has_to_be_configured(name: &str) -> bool {
        is_configured(name)
    }

    /// Adds `task`, if there is an agent that it can start.
    ///
    /// # Errors
    /// [`RegistryError`]; none in practice, as of [`Registry::locked`].
    pub(crate) fn add_task(&mut self, declared: &BTreeMap<String, Agent>) -> Result<(), RegistryError> {
        if declared.values().any(|agent| agent.mode.is_subagent()) {
            self.tools.push(agents::task::task(declared)?);
        }
        Ok(())
    }

    /// Adds those of the tools about subagents that are asked for, if there is an agent that they can start. A name that others have
    /// is theirs.
    ///
    /// # Errors
    /// [`RegistryError`]; none in practice, as of [`Registry::locked`].
    pub(crate) fn add_agents(
        &mut self,
        declared: &BTreeMap<String, Agent>,
        is_asked_for: impl Fn(&str) -> bool,
    ) -> Result<(), RegistryError> {
        if !declared.values().any(|agent| agent.mode.is_subagent()) {
            return Ok(());
        }
        for tool in agents::tools::tools(declared)? {
            if is_asked_for(&tool.name) && !self.has(&tool.name) {
                self.tools.push(tool);
            }
        }
        Ok(())
    }

    /// Adds the tool by which a subagent reads what its parent sends it, if that has the one that sends.
    ///
    /// # Errors
    /// [`RegistryError`]; none in practice, as of [`Registry::locked`].
    pub(crate) fn add_inbox(&mut self) -> Result<(), RegistryError> {
        if self.has("agent_send_input") && !self.has(agents::tools::INBOX) {
            self.tools.push(agents::tools::inbox()?);
        }
        Ok(())
    }

    /// A misspelt name would be missed only when the agent is at work.
    pub(crate) fn know_tools_of(&self, declared: &BTreeMap<String, Agent>) -> Result<(), RegistryError> {
        let is_known = |name: &str| Subject::of_locked(name).is_some() || self.knows(name);
        for (agent, its) in declared {
            if let Some(tool) = its.tools.iter().flatten().find(|name| !is_known(name)) {
                let known = self.names().join(", ");
                return Err(RegistryError::UnknownToAgent { agent: agent.clone(), tool: tool.clone(), known });
            }
        }
        Ok(())
    }

    /// True if a tool of this name is there, or could be: servers come and go.
    fn knows(&self, name: &str) -> bool {
        let is_here = self.tools.iter().any(|tool| tool.is_called(name));
        is_here || self.is_left_out(name) || is_configured(name) || name.starts_with("mcp__")
    }

    /// Keeps only the tools that a manifest offers (S4-1).
    ///
    /// # Errors
    /// [`RegistryError::Unknown`] for a name that no tool has: a misspelt one would be missed only when it is called.
    pub(crate) fn offer_only(&mut self, names: &[String]) -> Result<(), RegistryError> {
        if let Some(unknown) = names.iter().find(|name| !self.knows(name)) {
            let known = self.names().join(", ");
            return Err(RegistryError::Unknown { tool: unknown.clone(), known });
        }
        self.tools.retain(|tool| names.iter().any(|name| tool.is_called(name)));
        Ok(())
    }
}

/// All of them, in the order in which they are listed.
fn tools() -> Result<Vec<Tool>, RegistryError> {
    let mut tools = files::outside().collect::<Result<Vec<_>, _>>()?;
    tools.push(pdf::read_pdf()?);
    tools.extend([patch::apply_patch()?, files::note()?, hosted::update_plan()?]);
    tools.push(exec_shell::exec_shell()?);
    tools.extend(background::tools::tools()?);
    tools.push(run_tests::run_tests()?);
    tools.push(lsp::lsp()?);
    tools.extend(repositories::tools()?);
    if cfg!(feature = "databases") {
        tools.extend([database::sqlite()?, database::postgres()?, database::mysql()?]);
    }
    Ok(tools)
}

/// Those that are there only where the caller or a manifest has configured them.
fn configured() -> impl Iterator<Item = &'static str> {
    [azure::NAME, rlm::NAME].into_iter().chain(agents::tools::NAMES)
}

/// True if a tool is one of those.
fn is_configured(name: &str) -> bool {
    name == agents::tools::INBOX || configured().any(|configured| configured == name)
}

/// Reason why one of those is not there, if it is for that it is not configured.
pub(crate) fn not_configured(name: &str, net: Option<&Net>) -> Option<String> {
    match name {
        azure::NAME => Azure::of_caller().err(),
        rlm::NAME => net.is_none_or(|net| net.rlm.is_none()).then(|| NO_MODEL.to_owned()),
        _ if agents::tools::NAMES.contains(&name) => Some(
            "there is no agent to start: the manifest declares none (`[agents.NAME]`), or the session did not ask for this tool \
             (`extra`)"
                .to_owned(),
        ),
        _ => None,
    }
}
