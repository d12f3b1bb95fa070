//! How one tool is seen: its parameters as data, and the way from them to the tool's own arguments.

use serde_json::{Map, Value, json};

use super::shape::Shape;

/// Argument of `task` on a surface where one call has several tasks.
pub(crate) const TASKS: &str = "tasks";

/// The tool that starts subagents.
const TASK: &str = "task";

/// A tool as a surface shows it.
#[derive(Debug)]
pub(crate) struct Face {
    /// Name on the surface.
    pub(in crate::registry) name: &'static str,
    /// Name of the tool that it is.
    pub(super) of: &'static str,
    /// Prose for the model. Empty for the tool's own.
    pub(in crate::registry) description: &'static str,
    /// `None` if they are the tool's own.
    pub(super) params: Option<&'static [Param]>,
    /// Facts that its worker is told besides.
    pub(super) told: &'static [(&'static str, u64)],
    /// The most of its output that is shown, in the tool's own unit.
    pub(in crate::registry) limit: Option<u64>,
    /// Adaptation of its arguments beyond that.
    pub(super) adapt: Option<Adapt>,
    /// Shape of a result.
    pub(in crate::registry) shape: Shape,
    /// True if only the session that began has it, and none of its subagents.
    pub(super) is_single_level: bool,
}

/// Changes arguments that have been mapped. It is given those of the call as well. The error is for the model.
type Adapt = fn(&Map<String, Value>, &mut Understood) -> Result<(), String>;

/// A parameter, and where its argument goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Param {
    name: &'static str,
    /// Other names that are taken as well.
    also: &'static [&'static str],
    kind: Kind,
    is_required: bool,
    /// True if what counts without an argument is what the tool does anyway. It is not passed on then: what a call is
    /// known by would be another than that of the same call by the tool's own name.
    is_own_default: bool,
    to: To,
    about: &'static str,
}

/// Kind of value.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Text {
        default: Option<&'static str>,
    },
    Texts,
    TextOrTexts,
    Flag {
        default: bool,
    },
    /// Whole number; what lies outside the bounds is taken for the nearest that does not.
    Whole {
        default: Option<u64>,
        least: u64,
        most: u64,
    },
    Choice {
        of: &'static [&'static str],
        default: &'static str,
    },
    /// Value of this schema.
    Json(&'static str),
}

/// Where an argument goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// To the tool's argument of this name.
    Argument(&'static str),
    /// To the worker, which is told it by this name.
    Told(&'static str),
    /// It bounds what is shown.
    Limit,
    /// It is for [`Face::adapt`], or for nothing.
    Nowhere,
}

impl Param {
    const fn of(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, also: &[], kind, is_required: false, is_own_default: false, to: To::Argument(name), about }
    }

    pub(super) const fn text(name: &'static str, about: &'static str) -> Self {
        Self::of(name, Kind::Text { default: None }, about)
    }

    pub(super) const fn text_or(name: &'static str, default: &'static str, about: &'static str) -> Self {
        Self::of(name, Kind::Text { default: Some(default) }, about)
    }

    pub(super) const fn texts(name: &'static str, about: &'static str) -> Self {
        Self::of(name, Kind::Texts, about)
    }

    pub(super) const fn text_or_texts(name: &'static str, about: &'static str) -> Self {
        Self::of(name, Kind::TextOrTexts, about)
    }

    pub(super) const fn flag(name: &'static str, default: bool, about: &'static str) -> Self {
        Self::of(name, Kind::Flag { default }, about)
    }

    pub(super) const fn whole(name: &'static str, (least, most): (u64, u64), about: &'static str) -> Self {
        Self::of(name, Kind::Whole { default: None, least, most }, about)
    }

    pub(super) const fn whole_or(
        name: &'static str,
        default: u64,
        (least, most): (u64, u64),
        about: &'static str,
    ) -> Self {
        Self::of(name, Kind::Whole { default: Some(default), least, most }, about)
    }

    pub(super) const fn choice(
        name: &'static str,
        of: &'static [&'static str],
        default: &'static str,
        about: &'static str,
    ) -> Self {
        Self::of(name, Kind::Choice { of, default }, about)
    }

    pub(super) const fn json(name: &'static str, schema: &'static str, about: &'static str) -> Self {
        Self::of(name, Kind::Json(schema), about)
    }

    pub(super) const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    pub(super) const fn stated(self) -> Self {
        Self { is_own_default: true, ..self }
    }

    pub(super) const fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }

    pub(super) const fn to(self, argument: &'static str) -> Self {
        Self { to: To::Argument(argument), ..self }
    }

    pub(super) const fn told(self, name: &'static str) -> Self {
        Self { to: To::Told(name), ..self }
    }

    pub(super) const fn limit(self) -> Self {
        Self { to: To::Limit, ..self }
    }

    pub(super) const fn nowhere(self) -> Self {
        Self { to: To::Nowhere, ..self }
    }

    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            Kind::Text { default: None } => json!({ "type": "string" }),
            Kind::Text { default: Some(default) } => json!({ "type": "string", "default": default }),
            Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            Kind::TextOrTexts => json!({ "type": ["string", "array"], "items": { "type": "string" } }),
            Kind::Flag { default } => json!({ "type": "boolean", "default": default }),
            Kind::Whole { default: None, .. } => json!({ "type": "integer" }),
            Kind::Whole { default: Some(default), .. } => json!({ "type": "integer", "default": default }),
            Kind::Choice { of, default } => json!({ "enum": of, "default": default }),
            // A test builds each of them.
            Kind::Json(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        };
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("description".to_owned(), self.description().into());
        }
        schema
    }

    fn description(&self) -> String {
        let mut text = self.about.to_owned();
        if let Kind::Whole { least, most, .. } = self.kind {
            let bounds = match most {
                u64::MAX if least == 0 => String::new(),
                u64::MAX => format!(" At least {least}."),
                most => format!(" From {least} to {most}; what is outside is taken for the nearest of the two."),
            };
            text.push_str(&bounds);
        }
        text
    }

    /// The argument that was given for it, or what counts without one.
    fn value(&self, args: &Map<String, Value>) -> Option<Value> {
        let given = std::iter::once(&self.name).chain(self.also).find_map(|name| args.get(*name));
        let default = || match self.kind {
            Kind::Text { default } => default.map(Value::from),
            Kind::Whole { default, .. } => default.map(Value::from),
            Kind::Choice { default, .. } => Some(default.into()),
            // All are false without one.
            Kind::Flag { .. } | Kind::Texts | Kind::TextOrTexts | Kind::Json(_) => None,
        };
        let default = || default().filter(|_| !self.is_own_default);
        let value = given.cloned().or_else(default)?;
        Some(match self.kind {
            // A negative number is below whatever bound there is, and 2.0 is a whole number too.
            Kind::Whole { least, most, .. } => match value.as_u64() {
                Some(whole) => whole.clamp(least, most).into(),
                None => value.as_f64().map_or(value, |number| {
                    if number < 1.0 { least.into() } else { whole(number).clamp(least, most).into() }
                }),
            },
            Kind::Text { .. }
            | Kind::Texts
            | Kind::TextOrTexts
            | Kind::Flag { .. }
            | Kind::Choice { .. }
            | Kind::Json(_) => value,
        })
    }
}

/// A number that is whole and at least one, as far as there are such.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates, and is clamped after that")]
fn whole(number: f64) -> u64 {
    number as u64
}

/// Result of reading a call's arguments.
#[derive(Debug, Clone, Default)]
pub(crate) struct Understood {
    /// The tool's own.
    pub(crate) args: Value,
    /// Facts that its worker is told besides.
    pub(crate) told: Map<String, Value>,
    /// The most that is shown, in the tool's own unit.
    pub(crate) limit: Option<u64>,
}

impl Understood {
    /// Arguments that are the tool's own already. What is no object does not have its schema.
    pub(crate) fn of(args: Value) -> Self {
        Self { args, ..Self::default() }
    }

    pub(super) fn argument(&self, name: &str) -> &Value {
        &self.args[name]
    }

    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) {
        if let Value::Object(args) = &mut self.args {
            args.insert(name.to_owned(), value.into());
        }
    }
}

impl Face {
    /// With the tool's own parameters, limit and result.
    pub(super) const fn same(name: &'static str) -> Self {
        Self {
            name,
            of: name,
            description: "",
            params: None,
            told: &[],
            limit: None,
            adapt: None,
            shape: Shape::AsItIs,
            is_single_level: false,
        }
    }

    pub(super) const fn new(
        (name, of): (&'static str, &'static str),
        description: &'static str,
        params: &'static [Param],
    ) -> Self {
        Self { of, description, params: Some(params), ..Self::same(name) }
    }

    /// By another name.
    pub(super) const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    pub(super) const fn telling(self, told: &'static [(&'static str, u64)]) -> Self {
        Self { told, ..self }
    }

    pub(super) const fn limit(self, limit: u64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    pub(super) const fn adapted(self, adapt: Adapt) -> Self {
        Self { adapt: Some(adapt), ..self }
    }

    pub(super) const fn single_level(self) -> Self {
        Self { is_single_level: true, ..self }
    }

    pub(super) const fn shaped(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    /// The schema of its parameters, if they are not the tool's own.
    pub(in crate::registry) fn schema(&self) -> Option<Value> {
        let params = self.params?;
        let mut properties = Map::new();
        for param in params {
            properties.insert(param.name.to_owned(), param.schema());
            for also in param.also {
                let mut schema = param.schema();
                if let Some(schema) = schema.as_object_mut() {
                    schema.insert("description".to_owned(), format!("The same as `{}`.", param.name).into());
                }
                properties.insert((*also).to_owned(), schema);
            }
        }
        // One that has other names is asked for when it is looked for.
        let required = params.iter().filter(|param| param.is_required && param.also.is_empty());
        let required: Vec<&str> = required.map(|param| param.name).collect();
        Some(json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        }))
    }

    /// From the arguments of a call, which the schema has let pass, to the tool's own. The error is for the model.
    fn understand(&self, given: Map<String, Value>) -> Result<Understood, String> {
        let mut understood = Understood::of(Value::Object(Map::new()));
        understood.told.extend(self.told.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())));
        let Some(params) = self.params else {
            return Ok(Understood { args: given.into(), ..understood });
        };
        for param in params {
            let Some(value) = param.value(&given) else {
                if param.is_required {
                    return Err(format!("invalid arguments for `{}`: `{}` is missing", self.name, param.name));
                }
                continue;
            };
            match param.to {
                To::Argument(name) => understood.set(name, value),
                To::Told(name) => drop(understood.told.insert(name.to_owned(), value)),
                To::Limit => understood.limit = value.as_u64(),
                To::Nowhere => {}
            }
        }
        if let Some(adapt) = self.adapt {
            adapt(&given, &mut understood).map_err(|why| format!("invalid arguments for `{}`: {why}", self.name))?;
        }
        Ok(understood)
    }
}

/// Face by which a tool is seen, as the tool keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    face: &'static Face,
    /// Which subagent is started where a call names none.
    agent: Option<String>,
}

impl Shown {
    pub(crate) fn of(face: &'static Face, agent: Option<String>) -> Self {
        Self { face, agent }
    }

    pub(crate) fn is_single_level(&self) -> bool {
        self.face.is_single_level
    }

    /// Which tool it is.
    pub(crate) fn of_tool(&self) -> &'static str {
        self.face.of
    }

    pub(crate) fn understand(&self, args: Value) -> Result<Understood, String> {
        match args {
            Value::Object(args) => {
                let mut understood = self.face.understand(args)?;
                if let Some(agent) = self.agent.as_ref().filter(|_| self.face.of == TASK)
                    && understood.argument("subagent_type").is_null()
                {
                    understood.set("subagent_type", agent.clone());
                }
                Ok(understood)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(format!("invalid arguments for `{}`: they are no object", self.face.name))
            }
        }
    }

    pub(crate) fn shape(&self, data: Value, truncated: bool) -> (Value, bool) {
        self.face.shape.apply(data, truncated)
    }
}
