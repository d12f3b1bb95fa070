//! The tools of an open session: their states, and finding them again between turns.

use std::sync::Arc;

use super::Session;
use super::sources::{keep_what_is_their_own, keep_what_leads_nowhere};
use crate::registry::{LeftOut, Registry, RegistryError, Tool, ToolState};
use crate::trust::{Found as FoundProject, TrustError};

/// Reason why tools could not be read again. Those that were there still are.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The project is not what it was.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// Its trust was for one session, or was taken back.
    #[error("the project's tools are not trusted any more")]
    NotTrusted,
    /// The manifest is another than the one that the session was opened with.
    #[error("the project's manifest is another than the one that this session was opened with; open a new session")]
    OtherManifest,
    /// A tool cannot be registered.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl Session {
    /// Tools that are declared and not there, and why.
    #[must_use]
    pub fn left_out_tools(&self) -> Vec<LeftOut> {
        self.registry().left_out().to_vec()
    }

    /// State of a tool: whether its calls are carried out; `None` if there is no such tool.
    #[must_use]
    pub fn tool_state(&self, name: &str) -> Option<ToolState> {
        self.registry().find(name).map(|tool| self.tools.lifecycle.state(&tool.name))
    }

    /// Takes no more calls of a tool, and returns when those in flight have ended (S1-20). A second time it changes nothing.
    /// Dropping the future takes nothing back.
    pub async fn deactivate_tool(&self, name: &str) {
        if let Some(tool) = self.registry().find(name) {
            self.tools.lifecycle.deactivate(&tool.name).await;
        }
    }

    /// Takes calls of a tool again.
    pub fn activate_tool(&self, name: &str) {
        if let Some(tool) = self.registry().find(name) {
            self.tools.lifecycle.activate(&tool.name);
        }
    }

    /// Removes a tool from this session, once its calls in flight have ended (S1-20). Whether it was there: a second time it
    /// changes nothing.
    pub async fn dispose_tool(&self, name: &str) -> bool {
        let registry = self.registry();
        let Some(tool) = registry.find(name).map(|tool| tool.name.clone()) else { return false };
        self.tools.lifecycle.deactivate(&tool).await;
        let without = |now: &Registry| -> Result<_, std::convert::Infallible> {
            let was_there = now.find(&tool).is_some();
            Ok((now.without(&tool), was_there))
        };
        match self.tools.lifecycle.replace(without).await {
            Ok(was_there) => was_there,
            Err(never) => match never {},
        }
    }

    /// Reads again what the user and the project declare. It waits until no call is in flight, and calls that come meanwhile
    /// wait for it (S1-26); so do not call it from a tool. The session's own rights stay what they are: a tool that requires more
    /// does not get it.
    ///
    /// A project's tools must be trusted as they are now.
    ///
    /// # Errors
    /// [`ReloadError`]; then nothing has changed.
    pub async fn reload_tools(&self) -> Result<(), ReloadError> {
        let load = |_now: &Registry| -> Result<_, ReloadError> {
            let mut sources = self.tools.sources.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(project) = &sources.project {
                let found = match project.find_again()? {
                    FoundProject::Trusted(found) => *found,
                    FoundProject::Nothing | FoundProject::Untrusted { .. } => return Err(ReloadError::NotTrusted),
                };
                if found.manifest != project.manifest || found.profile != project.profile {
                    return Err(ReloadError::OtherManifest);
                }
                sources.project = Some(found);
            }
            let mut registry = sources.read(&self.variables, &self.sandbox.host)?;
            if sources.inherited.is_some() {
                keep_what_leads_nowhere(&mut registry, &sources, (&self.effective, &self.variables));
            } else {
                let changeable = || &self.sandbox.changeable;
                keep_what_is_their_own(
                    &mut registry,
                    &self.effective,
                    (&self.variables, &self.sandbox.host),
                    changeable,
                );
            }
            self.gate.rules_to_change().tools.extend(registry.kinds());
            Ok((registry, ()))
        };
        self.tools.lifecycle.replace(load).await
    }

    /// Offers these tools of a server ([`Tool::remote`]), in place of those that it had before: at first, when it has others, and
    /// none when it is gone. Calls in flight keep what they began with. Returns why some of them are not offered.
    pub fn offer_tools_of(&self, server: &str, tools: Vec<Tool>) -> Vec<RegistryError> {
        let swap = |now: &Registry| -> Result<_, std::convert::Infallible> {
            let tools = tools.into_iter().filter(|tool| tool.is_of(server)).collect();
            let (registry, refused) = now.with_tools_of(server, tools, &self.gate.profile);
            let mut sources = self.tools.sources.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // Found there when tools are read again.
            sources.further.retain(|tool| !tool.is_of(server));
            sources.further.extend(registry.tools().filter(|tool| tool.is_of(server)).cloned());
            self.gate.rules_to_change().tools.extend(registry.kinds());
            Ok((registry, refused))
        };
        match self.tools.lifecycle.change(swap) {
            Ok(refused) => refused,
            Err(never) => match never {},
        }
    }

    /// The session's tools, as they are now.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.tools.lifecycle.now()
    }
}
