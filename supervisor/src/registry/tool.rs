//! A tool: what it publishes, and who carries its calls out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callgate_policy::effect::{Effect, EffectKind, EffectKinds, ServedRequest};
use callgate_policy::effective::{Contribution, Source};
use callgate_policy::envelope::Coerced;
use callgate_policy::limit::Limits;
use callgate_policy::requirement::RequirementSet;
use callgate_policy::tool::{Changes, Subject};
use serde_json::Value;

use super::acts::{BackgroundAct, Hosted};
use super::executor::{Executor, Handler, HostTool, ProgramTool};
use super::prepare::{Argv, Context, InvalidArgument, Prepare, Prepared};
use super::schema::Schema;
use super::surface::{Face, Shape, Shown, Understood};
use super::{Declared, RegistryError, coerce};
use crate::origin::Origin;
use crate::turn::Concurrency;

/// Derives the text under which a person's answer is kept from a call's arguments (S1-13).
type KeyOf = Arc<dyn Fn(&Value) -> String + Send + Sync>;

/// A tool: what it publishes (S0-2 to S0-5, S0-65), and how a call of it is carried out.
///
/// A host adds its own with [`Tool::host`], [`Tool::remote`] and [`Tool::program`], each of which starts from the strictest
/// contract: it takes no arguments, requires nothing, changes things ([`Subject::Change`]), runs alone, and is asked about.
#[derive(Clone)]
#[non_exhaustive]
pub struct Tool {
    /// Stable, the same across agents and sessions (S0-2).
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Prose for the model to decide on (S0-3).
    pub description: String,
    /// JSON Schema 2020-12 of the arguments (S0-4).
    pub parameters: Schema,
    /// JSON Schema 2020-12 of the result's `data`, given to the model with the tool (S1-34).
    pub output_schema: Option<Schema>,
    /// Requirements that the tool adds to a session's (S0-5, S0-8).
    pub requires: RequirementSet,
    /// Subject of its calls. Rules, profiles, modes and watchdogs go by this and by what a call needs.
    pub subject: Subject,
    /// Concurrency of its calls: they may run beside others only if it says so; a tool has to opt in (C-17).
    pub concurrency: Concurrency,
    /// True if somebody is asked about calls that no rule decides (S1-12).
    pub gated: bool,
    /// How long a call may take that does not say.
    pub timeout: Option<Duration>,
    /// True if it is listed by name alone, and called only once `tool_search` has returned it (S3-8).
    pub deferred: bool,
    /// Tighter limits for its calls than the session's.
    pub limits: Limits,
    pub(crate) executor: Executor,
    pub(crate) key_of: Option<KeyOf>,
    /// Effects that its calls may have.
    pub(super) conduct: ToolConduct,
    /// Name at its server, if it is shown by another name.
    at_server: Option<String>,
    /// Schema that its arguments are compared with, if that is not its own.
    compared: Option<Schema>,
    /// The most of its answer that is shown, in its own unit; without it, what tools show otherwise.
    pub(super) shows: Option<u64>,
    /// How it is seen, if that is by another surface than the locked one.
    shown: Option<Shown>,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.name).field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// Effects that a tool's calls may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolConduct {
    /// Kinds of the effects.
    does: EffectKinds,
    /// True if what it requires is in force for its own calls alone, and not for the session's programs.
    requires_alone: bool,
    /// Its calls go through trees and leave out what rules deny.
    leaves_out: bool,
    /// The most that its calls may change, if the session's profile leaves less than the subject says.
    pub(super) narrowed: Option<Changes>,
}

/// Parameters of a tool that takes none.
const NOTHING: &str = r#"{ "type": "object", "additionalProperties": false }"#;

impl Tool {
    pub(super) fn new(name: impl Into<String>, origin: Origin, executor: Executor) -> Self {
        let does = EffectKinds::of(&[kind_of(&executor)]);
        let conduct = ToolConduct { does, requires_alone: false, leaves_out: false, narrowed: None };
        Self {
            name: name.into(),
            origin,
            description: String::new(),
            parameters: Schema::bundled(NOTHING),
            output_schema: None,
            requires: RequirementSet::default(),
            subject: Subject::default(),
            concurrency: Concurrency::default(),
            gated: true,
            timeout: None,
            deferred: false,
            limits: Limits::default(),
            executor,
            key_of: None,
            conduct,
            at_server: None,
            compared: None,
            shows: None,
            shown: None,
        }
    }

    /// A tool that the host itself answers. It runs in the host's process, outside the sandbox, so it must treat its arguments
    /// as what they are: a model's.
    #[must_use]
    pub fn host(name: impl Into<String>, handler: impl Handler + 'static) -> Self {
        Self::new(name, Origin::User, Executor::Host(HostTool::Handler(Arc::new(handler))))
    }

    /// A tool that another process answers, such as an MCP server. `handler` talks to it; the server should itself be confined
    /// ([`Session::spawn`](crate::Session::spawn)). Rules name the tool `mcp:SERVER:NAME`.
    #[must_use]
    pub fn remote(server: impl Into<String>, name: impl Into<String>, handler: impl Handler + 'static) -> Self {
        Self::new(name, Origin::Mcp(server.into()), Executor::Host(HostTool::Handler(Arc::new(handler))))
    }

    /// A tool that runs a program in the sandbox. `argv` makes the program and its arguments from the validated arguments;
    /// layer 1 checks that the session may start it.
    #[must_use]
    pub fn program(
        name: impl Into<String>,
        argv: impl Fn(&Value) -> Result<Vec<String>, String> + Send + Sync + 'static,
    ) -> Self {
        let prepare: Arc<dyn Prepare> = Arc::new(Argv(Box::new(argv)));
        let tool = Self::new(name, Origin::User, Executor::Program(ProgramTool::Plain(prepare)));
        tool.subject(Subject::Execute)
    }

    /// One of callgate's own, with its contract as text.
    pub(crate) fn bundled(
        name: &'static str,
        (description, parameters, output): (&'static str, &'static str, &'static str),
        executor: Executor,
    ) -> Self {
        let schemas = (Schema::bundled(parameters), Schema::bundled(output));
        Self::own(name, description, schemas, executor)
    }

    /// One of callgate's own, with a contract that was written for this session.
    pub(crate) fn written(
        name: &'static str,
        (description, parameters, output): (&str, &str, &str),
        executor: Executor,
    ) -> Result<Self, RegistryError> {
        let schema = |text: &str| -> Result<Schema, RegistryError> {
            let value: Value = serde_json::from_str(text)
                .map_err(|error| RegistryError::Schema { tool: name.to_owned(), reason: error.to_string() })?;
            Ok(value.into())
        };
        Ok(Self::own(name, description, (schema(parameters)?, schema(output)?), executor))
    }

    fn own(name: &'static str, description: &str, (parameters, output): (Schema, Schema), executor: Executor) -> Self {
        let subject = Subject::of_locked(name).unwrap_or_default();
        let tool = Self { subject, ..Self::new(name, Origin::Bundled, executor) };
        tool.description(description).parameters(parameters).output_schema(output)
    }

    /// With prose for the model.
    #[must_use]
    pub fn description(self, description: impl Into<String>) -> Self {
        Self { description: description.into(), ..self }
    }

    /// With arguments of this JSON Schema. [`Registry::add`](super::Registry::add) refuses one that is not valid.
    #[must_use]
    pub fn parameters(self, parameters: impl Into<Schema>) -> Self {
        Self { parameters: parameters.into(), ..self }
    }

    /// With results of this JSON Schema.
    #[must_use]
    pub fn output_schema(self, schema: impl Into<Schema>) -> Self {
        Self { output_schema: Some(schema.into()), ..self }
    }

    /// With what it requires of a session.
    #[must_use]
    pub fn requires(self, requires: RequirementSet) -> Self {
        Self { requires, ..self }
    }

    /// With what it requires of a session for its own calls: the session's programs do not get it.
    #[must_use]
    pub(crate) fn requires_alone(self, requires: RequirementSet) -> Self {
        let conduct = ToolConduct { requires_alone: true, ..self.conduct };
        Self { requires, conduct, ..self }
    }

    /// True if what it requires is in force for its own calls alone.
    pub(crate) fn is_alone(&self) -> bool {
        self.conduct.requires_alone
    }

    /// Contribution to the session, of those of its requirements that count.
    pub(crate) fn asks<'a>(&'a self, source: &'a Source, counts: &'a RequirementSet) -> Contribution<'a> {
        if self.conduct.requires_alone {
            Contribution::of_tool_alone(self.own_name(), source, counts)
        } else {
            Contribution::from_source(source, counts)
        }
    }

    /// With calls that go through trees, and leave out what rules deny there.
    #[must_use]
    pub(crate) fn searching(self) -> Self {
        let conduct = ToolConduct { leaves_out: true, ..self.conduct };
        Self { conduct, ..self }
    }

    /// True if its calls leave out what rules deny of a tree.
    pub(crate) fn leaves_out(&self) -> bool {
        self.conduct.leaves_out
    }

    /// With calls that have effects of these kinds.
    #[must_use]
    pub(crate) fn does(self, kinds: &[EffectKind]) -> Self {
        let conduct = ToolConduct { does: EffectKinds::of(kinds), ..self.conduct };
        Self { conduct, ..self }
    }

    /// About this.
    #[must_use]
    pub fn subject(self, subject: Subject) -> Self {
        Self { subject, ..self }
    }

    /// Run side by side with others that only read.
    #[must_use]
    pub fn side_by_side(self) -> Self {
        Self { concurrency: Concurrency::SideBySide, ..self }
    }

    /// Asked about only where a rule or a watchdog says so (S1-12).
    #[must_use]
    pub fn ungated(self) -> Self {
        Self { gated: false, ..self }
    }

    /// Ended after this long, if a call does not say.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Listed by name alone, and called only once `tool_search` has returned it (S3-8): for one of many.
    #[must_use]
    pub fn deferred(self) -> Self {
        Self { deferred: true, ..self }
    }

    /// With tighter limits than the session's.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Shown to models by this name. Rules go by the one that its server has for it (C-9).
    #[must_use]
    pub fn shown_as(self, name: impl Into<String>) -> Self {
        let before = self.at_server.unwrap_or(self.name);
        Self { name: name.into(), at_server: Some(before), ..self }
    }

    /// With arguments that are compared with this JSON Schema, in place of the one that is published: for one that a stranger
    /// wrote, which may cost any time to compare with.
    #[must_use]
    pub fn compared_with(self, schema: impl Into<Schema>) -> Self {
        Self { compared: Some(schema.into()), ..self }
    }

    /// With answers that are shown up to this many bytes of JSON. At most 4 MiB are.
    #[must_use]
    pub fn shows(self, bytes: u64) -> Self {
        Self { shows: Some(bytes), ..self }
    }

    /// With a key of its own for a person's "always" (S1-13). Without one it is the command line, the files' directory, or the
    /// arguments.
    #[must_use]
    pub fn approval_key(self, key_of: impl Fn(&Value) -> String + Send + Sync + 'static) -> Self {
        Self { key_of: Some(Arc::new(key_of)), ..self }
    }

    /// The name by which rules know it: `mcp:server:tool` for one of a server's (X0-10).
    #[must_use]
    pub fn rule_name(&self) -> String {
        match &self.origin {
            Origin::Mcp(server) => format!("mcp:{server}:{}", self.at_server.as_ref().unwrap_or(&self.name)),
            Origin::Bundled | Origin::User | Origin::Project => self.own_name().to_owned(),
        }
    }

    /// Which tool it is, whatever a surface calls it.
    #[must_use]
    pub fn own_name(&self) -> &str {
        match &self.shown {
            Some(shown) => shown.of_tool(),
            None => &self.name,
        }
    }

    /// True if it is called that, by this session's surface or otherwise.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.own_name() == name
    }

    /// True if subagents do not have it (S4-22).
    pub(crate) fn is_single_level(&self) -> bool {
        self.shown.as_ref().is_some_and(Shown::is_single_level)
    }

    pub(super) fn is_bundled(&self) -> bool {
        self.origin == Origin::Bundled
    }

    /// The tool as a surface shows it.
    pub(super) fn seen_as(&self, face: &'static Face, agent: Option<String>) -> Self {
        let mut seen = Self { shown: Some(Shown::of(face, agent)), shows: face.limit.or(self.shows), ..self.clone() };
        face.name.clone_into(&mut seen.name);
        if !face.description.is_empty() {
            face.description.clone_into(&mut seen.description);
        }
        if let Some(parameters) = face.schema() {
            seen.compared = Some(self.compared().clone());
            seen.parameters = parameters.into();
        }
        if face.shape != Shape::AsItIs {
            seen.output_schema = None;
        }
        seen
    }

    /// The tool's own arguments, from those of a call by the name that its surface has for it.
    ///
    /// # Errors
    /// The message, for the model.
    pub(crate) fn understand(&self, args: Value) -> Result<Understood, String> {
        let Some(shown) = &self.shown else {
            return Ok(Understood::of(args));
        };
        self.compare(&self.parameters, &args)?;
        shown.understand(args)
    }

    /// A result as its surface has it, and whether some of it was cut off.
    pub(crate) fn shape(&self, data: Value, truncated: bool) -> (Value, bool) {
        match &self.shown {
            Some(shown) => shown.shape(data, truncated),
            None => (data, truncated),
        }
    }

    /// True if this MCP server offers it.
    #[must_use]
    pub fn is_of(&self, server: &str) -> bool {
        matches!(&self.origin, Origin::Mcp(of) if of == server)
    }

    pub(crate) fn is_a_servers(&self) -> bool {
        matches!(self.origin, Origin::Mcp(_))
    }

    fn as_declared(&self) -> Option<&Declared> {
        self.executor.declared().map(|declared| &**declared)
    }

    /// Effects of a call, and the work that it runs.
    pub(crate) fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let mut prepared = self.executor.prepare(args, context)?;
        let own = &mut prepared.effects.own;
        // Whoever carries it out does what the arguments say, and nobody else knows what that is.
        if let Executor::Host(HostTool::Handler(_)) | Executor::Program(ProgramTool::Declared(_)) = &self.executor {
            own.push(Effect::Serves(ServedRequest {
                tool: self.rule_name(),
                arguments: args.clone(),
                key: None,
                words: None,
            }));
        }
        let without_object = |name: &&String| matches!(name.as_str(), "secrets.has" | "stream.send");
        own.extend(self.requires.capabilities.iter().filter(without_object).cloned().map(Effect::Uses));
        Ok(prepared)
    }

    /// Command that runs when it is called, if it is declared.
    #[must_use]
    pub fn command(&self) -> String {
        self.as_declared().map(|declared| declared.command()).unwrap_or_default()
    }

    /// The names of the caller's variables that its program gets, if it is declared.
    #[must_use]
    pub fn variables(&self) -> &[String] {
        self.as_declared().map(|declared| declared.env.as_slice()).unwrap_or_default()
    }

    /// True if its calls have a directory for what is to last, if it is declared.
    #[must_use]
    pub fn has_state(&self) -> bool {
        self.as_declared().is_some_and(|declared| declared.has_state)
    }

    /// Template for an "always", if it is declared and says so: a template over its arguments, or a text for all of them.
    #[must_use]
    pub fn approval_template(&self) -> Option<&str> {
        self.as_declared().and_then(|declared| declared.template.as_deref())
    }

    /// Kinds of the effects that its calls may have.
    pub(crate) fn kinds(&self) -> EffectKinds {
        self.conduct.does
    }

    /// True if its key stands for more than one call: a server's tool, and a declared one that says nothing of it, have one for each.
    pub(crate) fn has_wider_key(&self) -> bool {
        self.key_of.is_some()
            && !self.is_a_servers()
            && self.as_declared().is_none_or(|declared| declared.template.is_some())
    }

    /// The file that declares it, if one does.
    #[must_use]
    pub fn file(&self) -> Option<&std::path::Path> {
        self.as_declared().map(|declared| declared.file.as_path())
    }

    /// The kind that an ACP host shows (X0-50).
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.subject.kind()
    }

    /// The most that its calls may change, under the profile of its session.
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.conduct.narrowed.unwrap_or_else(|| self.subject.changes())
    }

    /// Validates arguments against the schema (S0-4, S0-66). The message names each offending place and what it must be.
    ///
    /// # Errors
    /// The message, for the model.
    pub fn validate(&self, args: &Value) -> Result<(), String> {
        self.compare(self.compared(), args)
    }

    fn compare(&self, schema: &Schema, args: &Value) -> Result<(), String> {
        let validator = schema
            .validator()
            .map_err(|error| format!("the parameters of `{}` are not a JSON Schema: {error}", self.name))?;
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
        Err(format!(
            "invalid arguments for `{}`: {}. Its parameters: {}",
            self.name,
            problems.join("; "),
            outline(schema)
        ))
    }

    /// Compares a result with the schema that the tool publishes, if it does.
    pub(crate) fn validate_result(&self, data: &Value) -> Result<(), String> {
        let Some(schema) = &self.output_schema else { return Ok(()) };
        let validator = schema
            .validator()
            .map_err(|error| format!("the output schema of `{}` is not a JSON Schema: {error}", self.name))?;
        let Err(error) = validator.validate(data) else { return Ok(()) };
        let place = error.instance_path().to_string();
        let at = if place.is_empty() { String::new() } else { format!(" at `{place}`") };
        Err(format!(
            "the result of `{}` does not match its output schema{at}: {}",
            self.name,
            shorten(&error.to_string())
        ))
    }

    /// The arguments in the types that the schema asks for, as far as that loses nothing, and what was coerced (C-21).
    pub(crate) fn coerce(&self, args: Value) -> (Value, Vec<Coerced>) {
        let schema = if self.shown.is_some() { &self.parameters } else { self.compared() };
        coerce::coerce(schema, args)
    }

    /// Schema that its arguments are compared with.
    fn compared(&self) -> &Schema {
        self.compared.as_ref().unwrap_or(&self.parameters)
    }

    /// Check that its contract can be published.
    pub(super) fn check(&self) -> Result<(), RegistryError> {
        let bad = |reason: String| RegistryError::Schema { tool: self.name.clone(), reason };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(plain) {
            return Err(RegistryError::Name { tool: self.name.clone() });
        }
        if !self.parameters.is_object() {
            return Err(bad("they are not an object".to_owned()));
        }
        let of_parameters =
            |error: &str| bad(format!("the parameters of `{}` are not a JSON Schema: {error}", self.name));
        self.compared().validator().map_err(of_parameters)?;
        let Some(output) = &self.output_schema else { return Ok(()) };
        let of_output =
            |reason: &str| RegistryError::OutputSchema { tool: self.name.clone(), reason: reason.to_owned() };
        output.validator().map(drop).map_err(of_output)
    }
}

/// Kind of the effect of calls that are carried out so, where a tool does not say more.
fn kind_of(executor: &Executor) -> EffectKind {
    match executor {
        Executor::Program(ProgramTool::Declared(_)) | Executor::Worker(_) => EffectKind::Serves,
        Executor::Program(_) => EffectKind::Runs,
        Executor::Host(HostTool::Session(Hosted::Question)) => EffectKind::Asks,
        Executor::Host(HostTool::Background(BackgroundAct::Interact)) => EffectKind::Runs,
        Executor::Host(HostTool::Session(_) | HostTool::Background(_) | HostTool::Agents(_)) => EffectKind::Notes,
        Executor::Host(HostTool::Delegate(_)) => EffectKind::Delegates,
        Executor::Host(HostTool::Handler(_)) => EffectKind::Serves,
    }
}

/// The parameters of a schema in a line: `path: string, start_line?: integer`.
fn outline(schema: &Value) -> String {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let lines: Vec<String> = properties
        .map(|(name, schema)| {
            let optional = if required.contains(&name.as_str()) { "" } else { "?" };
            format!("{name}{optional}: {}", types(schema).join(" or "))
        })
        .collect();
    lines.join(", ")
}

/// The types that a schema allows.
pub(super) fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => vec!["any"],
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
