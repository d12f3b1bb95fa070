//! The manifest: what a person writes in `callgate.toml` or `callgate.json`.
//!
//! Both formats are read into one tree of values ([`crate::document`]), so that every mistake, of syntax or of sense, is
//! shown at its line.

mod agent;
mod child;
mod decode;
mod env;
mod lsp;
mod mcp;
mod net;
mod shown;

use std::collections::BTreeMap;

use crate::approval::ApprovalScope;
use crate::ceiling::Ceiling;
use crate::document::error::{Fault, position};
use crate::document::tree::{self, Whole};
use crate::effective::{Bound, Contribution, DeclareError, ItemLines, Kind, Source, line_of};
use crate::limit::Limits;
use crate::mode::{Headless, Mode};
use crate::path::HostPath;
use crate::profile::ProfileName;
use crate::requirement::RequirementSet;
use crate::rules::{AllowEntry, Rule};
use crate::tool::Surface;
use crate::variable::Variables;

pub use self::agent::{Agent, AgentMode};
pub use self::env::Env;
pub use self::lsp::LanguageServer;
pub use self::mcp::{MCP_DESCRIPTION, MCP_START, McpServer};
pub use self::net::{Credential, CredentialSource, Form, Net, Over, Provider, ProviderKind, Rlm, Search};
pub use crate::document::{Format, ManifestError};

/// The largest manifest that is read, bytes.
pub const MAX_BYTES: usize = 1024 * 1024;

/// A manifest that is well formed. What it asks for is not granted by that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The file's name, as the person gave it.
    pub file: String,
    /// Its name for rules, watchdog and audit.
    pub id: Option<String>,
    /// Treatment of a call that no rule decides; without it, what the profile says.
    pub mode: Option<Mode>,
    /// Calls that the mode `allowlist` allows (C-4).
    pub allowlist: Vec<AllowEntry>,
    /// Treatment of a call that nobody is there to be asked about (C-6).
    pub headless: Headless,
    /// For how long a person's "always" is kept (S1-18).
    pub approvals: ApprovalScope,
    /// Which tools are offered, and what they may do: by name, or in a file.
    pub profile: ProfileName,
    /// The tools offered; without it, all that the profile offers.
    pub tools: Option<Vec<String>>,
    /// Under which names its tools are seen (C-22); without it, what the host says.
    pub surface: Option<Surface>,
    /// Tools outside the lock that are there as well (S0-25).
    pub extra: Vec<String>,
    /// Further roots of the workspace (S0-39): absolute, or relative to the first.
    pub roots: Vec<HostPath>,
    /// Rights that it asks for (S0-36).
    pub requires: RequirementSet,
    /// The most that it, its tools and whoever else asks may be granted (C-1).
    pub ceiling: Ceiling,
    /// True if the watchdog sees every program that is about to run.
    pub watch_execs: bool,
    /// Its rules, in order (S0-49).
    pub rules: Vec<Rule>,
    /// Bounds for each call.
    pub limits: Limits,
    /// Environment of programs.
    pub env: Env,
    /// Whom `web_search` asks, and what requests get that no call sees.
    pub net: Net,
    /// Whom `task` may start, by name.
    pub agents: BTreeMap<String, Agent>,
    /// Servers whose tools its sessions have as well, by name.
    pub mcp: BTreeMap<String, McpServer>,
    /// Language servers that `lsp` asks, besides those that it knows, by name.
    pub lsp: BTreeMap<String, LanguageServer>,
    lines: ItemLines,
    rule_lines: Vec<usize>,
    ceiling_lines: BTreeMap<&'static str, usize>,
}

impl Manifest {
    /// Reads a manifest. `file` is only for messages.
    ///
    /// # Errors
    ///
    /// [`ManifestError`] with the line shown: a mistake of syntax, an unknown key, a wrong type, an undefined variable
    /// (S0-41), an empty file, a pattern that is none.
    pub fn parse(text: &str, format: Format, file: &str) -> Result<Self, ManifestError> {
        let fault = |fault: Fault| fault.into_error(text, file);
        let empty = "to grant nothing, say so: write at least an `id`; to use the defaults, give no manifest";
        let whole = Whole { what: "manifest", most: MAX_BYTES, empty };
        let tree = whole.parse(text, |text| tree::parse(text, format)).map_err(fault)?;
        let (manifest, places) = decode::manifest(tree, file).map_err(fault)?;
        Ok(manifest.with_lines(text, places))
    }

    /// On which line an item of `requires` stands, from 1.
    #[must_use]
    pub fn line(&self, kind: Kind, place: usize) -> usize {
        line_of(&self.lines, kind, place)
    }

    /// On which line the table of the ceiling stands that bounds a kind, from 1.
    #[must_use]
    pub fn ceiling_line(&self, kind: Kind) -> usize {
        self.ceiling_lines.get(kind.ceiling_table()).copied().unwrap_or(1)
    }

    /// Bounds of its ceiling, with the variables expanded.
    ///
    /// # Errors
    ///
    /// [`DeclareError`] naming the item and where it stands.
    pub fn ceiling_bounds(&self, variables: &Variables) -> Result<Vec<Bound>, DeclareError> {
        let source = |kind| Source::ManifestCeiling { file: self.file.clone(), line: self.ceiling_line(kind), kind };
        Bound::of_ceiling(&self.ceiling, source, variables, &[])
    }

    /// On which line a rule stands, from 1.
    #[must_use]
    pub fn rule_line(&self, place: usize) -> usize {
        self.rule_lines.get(place).copied().unwrap_or(1)
    }

    /// Turns the places of items into lines.
    fn with_lines(mut self, text: &str, places: ItemLines) -> Self {
        let line = |at: usize| position(text, at).0;
        self.rule_lines.iter_mut().for_each(|place| *place = line(*place));
        self.ceiling_lines.values_mut().for_each(|place| *place = line(*place));
        for agent in self.agents.values_mut() {
            let items = agent.lines.values_mut().flatten();
            let places = items.chain(&mut agent.rule_lines).chain(agent.ceiling_lines.values_mut());
            places.for_each(|place| *place = line(*place));
        }
        for server in self.mcp.values_mut() {
            server.lines.values_mut().flatten().for_each(|place| *place = line(*place));
        }
        self.lines = places.into_iter().map(|(kind, at)| (kind, at.into_iter().map(line).collect())).collect();
        self
    }
}

impl<'a> Contribution<'a> {
    /// A manifest's; each item is told by its line.
    #[must_use]
    pub fn manifest(manifest: &'a Manifest) -> Self {
        Self::from_lines(&manifest.requires, &manifest.file, &manifest.lines)
    }
}

#[cfg(test)]
mod tests;
