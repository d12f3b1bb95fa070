//! The tools there are, each under one contract whatever its origin (S0-1).

mod bash;
mod files;
mod surface;

use std::sync::OnceLock;

use callgate_policy::call_grant::CallNeeds;
use callgate_policy::path::HostPath;
use callgate_policy::plan::Work;
use callgate_policy::profile::{FileWrite, Profile};
use callgate_policy::requirement::RequirementSet;
use serde_json::Value;

use crate::turn::Concurrency;

pub use surface::Surface;

/// A tool: what it publishes (S0-2 to S0-5, S0-65), and how a call of it is carried out.
pub struct Tool {
    /// Stable, the same across agents and sessions (S0-2).
    pub id: &'static str,
    /// Prose for the model to decide on (S0-3).
    pub description: String,
    /// JSON Schema 2020-12 of the arguments (S0-4).
    pub parameters: Value,
    /// What the tool adds to a session's requirements (S0-5, S0-8).
    pub requires: RequirementSet,
    /// The kind that an ACP host shows (X0-50).
    pub kind: &'static str,
    /// Whether its calls may run beside others; not, unless it says so (C-17).
    pub concurrency: Concurrency,
    /// Where the tool comes from; `locked` for the thirteen (S0-9).
    pub origin: &'static str,
    pub(crate) implementation: &'static dyn Implementation,
    /// Built when first used: it takes longer than most calls, and `run` needs none.
    validator: OnceLock<jsonschema::Validator>,
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tool").field("id", &self.id).field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// How a tool turns validated arguments into work.
pub(crate) trait Implementation: Sync {
    /// What the call needs, and what it runs.
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument>;
}

/// What arguments are resolved against.
pub(crate) struct Context<'a> {
    /// The workspace's first root: relative paths start there.
    pub(crate) root: &'a HostPath,
    /// Where a shell starts that does not say.
    pub(crate) shell_dir: &'a HostPath,
    /// The most of the result that is shown, in the tool's own unit (S0-48).
    pub(crate) limit: u64,
}

/// A call, ready to be checked.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) needs: CallNeeds,
    pub(crate) work: Work,
    /// Asked for by the call itself.
    pub(crate) timeout: Option<std::time::Duration>,
}

/// An argument that passed the schema and still makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("argument `{name}`: {reason}")]
pub(crate) struct InvalidArgument {
    pub(crate) name: &'static str,
    pub(crate) reason: String,
}

/// All tools of one surface.
#[derive(Debug)]
pub struct Registry {
    surface: Surface,
    tools: Vec<Tool>,
}

/// A contract that cannot be published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Its parameters are not a JSON Schema.
    #[error("the parameters of {tool} are not a JSON Schema: {reason}")]
    Schema {
        /// Which tool.
        tool: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A manifest offers a tool that is not there.
    #[error("the manifest offers the tool `{tool}`, which there is not; there are: {known}")]
    Unknown {
        /// The name.
        tool: String,
        /// What there is.
        known: String,
    },
    /// What it requires cannot be compiled.
    #[error("the requirements of {tool}: {reason}")]
    Requires {
        /// Which tool.
        tool: &'static str,
        /// What is wrong.
        reason: String,
    },
}

impl Registry {
    /// The locked tools that this build has, under their locked names.
    ///
    /// # Errors
    /// [`RegistryError`]; none in practice, since the contracts are constants that a test builds.
    pub fn locked() -> Result<Self, RegistryError> {
        let tools =
            vec![files::read()?, files::write()?, files::edit()?, files::glob()?, files::grep()?, bash::bash()?];
        Ok(Self { surface: Surface::locked(), tools })
    }

    /// Keeps only the tools that a profile offers (S4-1): the others are not there, whatever else is said of them (C-7).
    /// What they promise is what they do under it.
    ///
    /// # Errors
    /// [`RegistryError`]; none in practice, as of [`Registry::locked`].
    pub(crate) fn offer(&mut self, profile: &Profile) -> Result<(), RegistryError> {
        self.tools.retain(|tool| profile.offers(tool.id));
        for tool in &mut self.tools {
            match tool.id {
                "write" if profile.file_write == FileWrite::CreateOnly => *tool = files::create()?,
                "bash" => bash::tell_defaults(&mut tool.parameters, profile),
                _ => {}
            }
        }
        Ok(())
    }

    /// Keeps only the tools that a manifest offers (S4-1).
    ///
    /// # Errors
    /// [`RegistryError::Unknown`] for a name that no tool has: a misspelt one would be missed only when it is called.
    pub(crate) fn offer_only(&mut self, names: &[String]) -> Result<(), RegistryError> {
        if let Some(unknown) = names.iter().find(|name| self.find(name).is_none()) {
            let known = self.names().join(", ");
            return Err(RegistryError::Unknown { tool: unknown.clone(), known });
        }
        self.tools.retain(|tool| names.iter().any(|name| name == tool.id));
        Ok(())
    }

    /// The tools, in the order in which they are listed.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter()
    }

    /// The tool that a visible name stands for.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Tool> {
        let id = self.surface.resolve(name)?;
        self.tools.iter().find(|tool| tool.id == id)
    }

    /// The most of a tool's output that is shown, in its own unit (S0-48).
    pub(crate) fn output_limit(&self, id: &str) -> u64 {
        self.surface.output_limit(id)
    }

    /// The visible names.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.tools.iter().map(|tool| tool.id).collect()
    }
}

impl Tool {
    fn new(
        id: &'static str,
        kind: &'static str,
        (description, schema): (&str, &str),
        requires: RequirementSet,
        implementation: &'static dyn Implementation,
    ) -> Result<Self, RegistryError> {
        let bad = |reason: String| RegistryError::Schema { tool: id, reason };
        let parameters: Value = serde_json::from_str(schema).map_err(|e| bad(e.to_string()))?;
        let description = description.to_owned();
        Ok(Self {
            id,
            description,
            parameters,
            requires,
            kind,
            concurrency: Concurrency::default(),
            origin: "locked",
            implementation,
            validator: OnceLock::new(),
        })
    }

    /// Lets its calls run side by side.
    fn side_by_side(self) -> Self {
        Self { concurrency: Concurrency::SideBySide, ..self }
    }

    /// Validates arguments against the schema (S0-4, S0-66). The message names each offending place and what it must be.
    ///
    /// # Errors
    /// The message, for the model.
    pub fn validate(&self, args: &Value) -> Result<(), String> {
        let validator = self.validator()?;
        if validator.is_valid(args) {
            return Ok(());
        }
        let mut problems: Vec<String> = validator
            .iter_errors(args)
            .take(8)
            .map(|error| {
                let place = error.instance_path().to_string();
                let what = shorten(&error.to_string());
                if place.is_empty() { what } else { format!("`{place}`: {what}") }
            })
            .collect();
        problems.dedup();
        Err(format!("invalid arguments for `{}`: {}. Its parameters: {}", self.id, problems.join("; "), self.outline()))
    }

    fn validator(&self) -> Result<&jsonschema::Validator, String> {
        if let Some(validator) = self.validator.get() {
            return Ok(validator);
        }
        let built = jsonschema::options()
            .build(&self.parameters)
            .map_err(|e| format!("the parameters of `{}` are not a JSON Schema: {e}", self.id))?;
        Ok(self.validator.get_or_init(|| built))
    }

    /// The parameters in a line: `path: string, start_line?: integer`.
    fn outline(&self) -> String {
        let required: Vec<&str> =
            self.parameters["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let properties = self.parameters["properties"].as_object().into_iter().flatten();
        let lines: Vec<String> = properties
            .map(|(name, schema)| {
                let optional = if required.contains(&name.as_str()) { "" } else { "?" };
                format!("{name}{optional}: {}", schema["type"].as_str().unwrap_or("any"))
            })
            .collect();
        lines.join(", ")
    }
}

/// A message may quote what it complains about, which may be very long.
fn shorten(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
