//! Declared tools: a tool as data, in a file of the user's or of a trusted project's.
//!
//! A definition is a TOML file. Its program runs in a sandbox of its own, with what the definition requires and nothing else of
//! the session's; the arguments are JSON on its standard input, and the result is JSON on its standard output.

use std::path::PathBuf;
use std::time::Duration;

use callgate_policy::effect::{Effect, Effects};
use callgate_policy::path::HostPath;
use callgate_policy::plan::CallWork;
use callgate_policy::plan::env::is_fixed;
use callgate_policy::requirement::{Program, RequirementSet};
use serde::Deserialize;
use serde_json::Value;

use super::directory::{self, Directory};
use super::prepare::{Context, InvalidArgument, Prepare, Prepared, started};

/// The longest that a definition may ask for: as long as `bash` (X2-1).
const TIMEOUT_MAX: u64 = 600_000;
/// The most files that belong to one tool.
const FILES_MAX: usize = 64;
/// The variable that names a tool's state directory.
pub(crate) const STATE: &str = "CALLGATE_STATE";
/// Prefix of a word of `command` or an item of `files` that lies beside the definition.
pub(super) const BESIDE: &str = "./";

/// A definition as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default)]
    disable: bool,
    enabled: Option<bool>,
    description: Option<String>,
    parameters: Option<Value>,
    output_schema: Option<Value>,
    requires: Option<RequirementSet>,
    timeout_ms: Option<u64>,
    gated: Option<bool>,
    approval_key: Option<String>,
    command: Option<Vec<String>>,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    state: bool,
    #[serde(default)]
    deferred: bool,
}

/// Content of a file of definitions.
#[derive(Debug, Clone)]
pub(crate) enum Definition {
    /// That a tool of this name is not to be there: one of an earlier layer, or the one that the file defines.
    Without(String),
    /// A tool.
    Tool(Box<Declaration>),
}

/// A tool that a file declares, before its files have been read.
#[derive(Debug, Clone)]
pub(crate) struct Declaration {
    pub(crate) name: String,
    pub(super) description: String,
    pub(super) parameters: Value,
    pub(super) output_schema: Option<Value>,
    pub(super) requires: RequirementSet,
    pub(super) timeout: Option<Duration>,
    pub(super) gated: bool,
    pub(super) key: Key,
    pub(super) command: Vec<String>,
    /// Relative to the definition's directory.
    pub(crate) files: Vec<String>,
    pub(super) env: Vec<String>,
    pub(super) state: bool,
    pub(super) deferred: bool,
}

/// A declared tool, as its calls are carried out.
#[derive(Debug, Clone)]
pub(crate) struct Declared {
    /// Its definition.
    pub(crate) file: PathBuf,
    pub(super) command: Vec<HostPath>,
    /// Where its program was found, if that is named by its name: what was judged is what is started.
    pub(crate) found: Option<HostPath>,
    /// The variables of the caller's that it gets.
    pub(crate) env: Vec<String>,
    /// True if it has a state slot.
    pub(crate) has_state: bool,
    /// Template for an "always", if the definition has one.
    pub(crate) template: Option<String>,
    pub(super) directory: Directory,
    /// The files that belong to it and the digest of each when the definition was read.
    pub(super) files: Vec<(String, String)>,
}

impl Definition {
    /// Reads a definition.
    ///
    /// # Errors
    /// What is wrong with it, for its author, and the tool's name if that much is known.
    pub(crate) fn parse(text: &str) -> Result<Self, (Option<String>, String)> {
        let written: Written = toml::from_str(text).map_err(|error| {
            // A tool of that name is meant, whatever else is wrong.
            let name = toml::from_str::<toml::Table>(text).ok();
            let name = name.and_then(|table| Some(table.get("name")?.as_str()?.to_owned()));
            let line =
                error.span().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count() + 1);
            let at = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            (name, format!("{at}{}", error.message().replace('\n', " ")))
        })?;
        let name = written.name.clone();
        Self::of(written).map_err(|Wrong { key, why }| {
            let line = key.and_then(|key| line_of(text, key)).map(|line| format!("line {line}: ")).unwrap_or_default();
            (Some(name), format!("{line}{why}"))
        })
    }

    fn of(written: Written) -> Result<Self, Wrong> {
        let Written { name, disable, enabled, description, parameters, output_schema, requires, timeout_ms, .. } =
            written;
        if disable {
            return Ok(Self::Without(name));
        }
        let description = description.filter(|text| !text.trim().is_empty());
        let description =
            description.ok_or_else(|| wrong("description", "it has no `description`, which the model decides by"))?;
        let command = written.command.filter(|words| !words.is_empty());
        let command = command.ok_or_else(|| wrong("command", "it has no `command`"))?;
        is_command(&command).map_err(|why| wrong("command", &why))?;
        let none = || serde_json::json!({ "type": "object", "properties": {}, "additionalProperties": false });
        let parameters = parameters.unwrap_or_else(none);
        if parameters["type"] != "object" {
            return Err(wrong("parameters", "`parameters` is not the schema of an object (type = \"object\")"));
        }
        if timeout_ms.is_some_and(|ms| ms == 0 || ms > TIMEOUT_MAX) {
            return Err(wrong("timeout_ms", &format!("`timeout_ms` is not from 1 to {TIMEOUT_MAX}")));
        }
        let requires = requires.unwrap_or_default();
        if !requires.capabilities.is_empty() {
            return Err(wrong("requires", "`requires.capabilities` cannot be given to a declared tool"));
        }
        let beside = command.iter().filter(|word| word.starts_with(BESIDE)).map(|word| ("command", word));
        let mut files: Vec<String> = Vec::new();
        for (key, file) in beside.chain(written.files.iter().map(|file| ("files", file))) {
            let file = file.strip_prefix(BESIDE).unwrap_or(file);
            if !is_plain(file) {
                let why = format!("{file:?} is no file beside the definition: a relative path without `..`");
                return Err(wrong(key, &why));
            }
            if !files.iter().any(|there| there == file) {
                files.push(file.to_owned());
            }
        }
        if files.len() > FILES_MAX {
            return Err(wrong("files", &format!("more than {FILES_MAX} files belong to it")));
        }
        for variable in &written.env {
            if variable.is_empty() || variable.contains(['=', '\0']) {
                return Err(wrong("env", &format!("{variable:?} is not the name of a variable")));
            }
            if variable == STATE || is_fixed(variable) {
                return Err(wrong("env", &format!("callgate itself sets {variable}; take it out of `env`")));
            }
        }
        let key = Key::parse(written.approval_key.as_deref(), &name).map_err(|why| wrong("approval_key", &why))?;
        if let Some(argument) = key.arguments().find(|argument| parameters["properties"].get(argument).is_none()) {
            let why = format!("`approval_key` names {{{argument}}}, which `parameters.properties` does not have");
            return Err(wrong("approval_key", &why));
        }
        if enabled == Some(false) {
            return Ok(Self::Without(name));
        }
        Ok(Self::Tool(Box::new(Declaration {
            name,
            description,
            parameters,
            output_schema,
            requires,
            timeout: timeout_ms.map(Duration::from_millis),
            gated: written.gated.unwrap_or(true),
            key,
            command,
            files,
            env: written.env,
            state: written.state,
            deferred: written.deferred,
        })))
    }
}

/// Mistake in a definition, and the key that has it.
struct Wrong {
    pub(super) key: Option<&'static str>,
    why: String,
}

fn wrong(key: &'static str, why: &str) -> Wrong {
    Wrong { key: Some(key), why: why.to_owned() }
}

/// On which line a key stands, from 1.
pub(super) fn line_of(text: &str, key: &str) -> Option<usize> {
    let table = toml::de::DeTable::parse(text).ok()?;
    let (key, _) = table.get_ref().get_key_value(key)?;
    Some(text.get(..key.span().start)?.matches('\n').count() + 1)
}

/// A program is found by its name, by a whole path, or beside the definition. A path relative to the directory in which a call
/// happens to start would be another program in each project.
fn is_command(command: &[String]) -> Result<(), String> {
    if command.iter().any(|word| word.contains('\0')) {
        return Err("a word of `command` contains a NUL".to_owned());
    }
    let program = command.first().map(String::as_str).unwrap_or_default();
    let is_known = match program {
        _ if program.starts_with(BESIDE) => true,
        _ if program.starts_with('/') => HostPath::from(program).is_normal(),
        _ => matches!(Program::parse(program), Ok(Program::Name(_))),
    };
    match is_known {
        true => Ok(()),
        false => Err(format!(
            "the program {program:?} is neither a name, nor a whole path without `..`, nor beside the definition (./NAME)"
        )),
    }
}

/// True if this is a path that leads downwards and nowhere else.
fn is_plain(path: &str) -> bool {
    !path.is_empty() && !path.contains('\0') && path.split('/').all(|name| !matches!(name, "" | "." | ".."))
}

impl Declaration {
    /// True if a file is a word of its command, and not only one of its `files`.
    pub(super) fn runs(&self, file: &str) -> bool {
        self.command.iter().any(|word| word.strip_prefix(BESIDE) == Some(file))
    }
}

impl Declared {
    /// Its definition, its files, and its program, if that is named by its path.
    pub(crate) fn paths(&self) -> impl Iterator<Item = HostPath> + '_ {
        std::iter::once(HostPath::from(self.file.clone())).chain(self.files()).chain(self.program().cloned())
    }

    /// Its program, if that is named by its path.
    pub(crate) fn program(&self) -> Option<&HostPath> {
        self.command.first().filter(|word| word.as_path().is_absolute())
    }

    /// Its program, if that is to be found by its name.
    pub(crate) fn named(&self) -> Option<&HostPath> {
        self.command.first().filter(|word| !word.as_path().is_absolute())
    }

    /// The files that belong to it.
    pub(crate) fn files(&self) -> impl Iterator<Item = HostPath> + '_ {
        self.files.iter().map(|(name, _)| HostPath::from(self.directory.path.join(name)))
    }

    /// The program and its arguments.
    pub(crate) fn command(&self) -> String {
        self.command.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    /// Confirms that each of its files is what it was when the definition was read, and where it was.
    ///
    /// # Errors
    /// The first that is not.
    pub(crate) fn confirm(&self) -> Result<(), PathBuf> {
        // They are read by descriptor, and run by their paths.
        if !self.directory.is_there() {
            return Err(self.directory.path.clone());
        }
        let is_same = |(name, digest): &&(String, String)| {
            self.directory.read(name, directory::FILE_MAX).is_ok_and(|bytes| directory::digest(&bytes) == *digest)
        };
        match self.files.iter().find(|file| !is_same(file)) {
            None => Ok(()),
            Some((name, _)) => Err(self.directory.path.join(name)),
        }
    }
}

impl Prepare for Declared {
    fn prepare(&self, _args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let working_dir = context.root.clone();
        let effects = Effects::default().by(Effect::Runs(started(&self.command, &working_dir)));
        let mut argv = self.command.clone();
        if let (Some(program), Some(found)) = (argv.first_mut(), &self.found) {
            program.clone_from(found);
        }
        let work = CallWork::program(argv, working_dir);
        Ok(Prepared::new(effects, Some(work), None))
    }
}

/// The text under which a person's answer is kept: a template over the arguments.
///
/// Invariant: what differs in an argument that the template names differs in the text. So strings are quoted as JSON quotes
/// them, and two arguments stand apart by a space, which no other JSON has in its shortest form.
#[derive(Debug, Clone)]
pub(super) enum Key {
    /// The tool's name and all arguments.
    All,
    /// A text, then pairs of an argument and a text.
    Template(String, Vec<(String, String)>),
}

impl Key {
    fn parse(template: Option<&str>, name: &str) -> Result<Self, String> {
        let Some(template) = template else { return Ok(Self::All) };
        let wrong = |why: &str| Err(format!("`approval_key` {template:?} {why}"));
        if template.chars().any(char::is_control) || template.trim().is_empty() {
            return wrong("is empty, or holds control characters");
        }
        let mut pieces = template.split('{');
        let first = pieces.next().unwrap_or_default();
        if first.contains('}') {
            return wrong("has a `}` without a `{`");
        }
        let mut arguments: Vec<(String, String)> = Vec::new();
        for piece in pieces {
            let Some((argument, text)) = piece.split_once('}') else { return wrong("has a `{` without a `}`") };
            if argument.is_empty() || text.contains('}') {
                return wrong("does not name its arguments as {argument}");
            }
            arguments.push((argument.to_owned(), text.to_owned()));
        }
        let apart = arguments.split_last().is_none_or(|(_, rest)| rest.iter().all(|(_, text)| text.contains(' ')));
        if !apart {
            return wrong("has arguments without a space between them, so that different calls would have one key");
        }
        // It names the tool, whatever the template says, and no other tool whose name begins with this one's.
        let names_it = first.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ':']));
        let first = if names_it { first.to_owned() } else { format!("{name}: {first}") };
        Ok(Self::Template(first, arguments))
    }

    /// The template, as it counts.
    pub(super) fn template(&self) -> Option<String> {
        let Self::Template(first, arguments) = self else { return None };
        let rest = arguments.iter().map(|(argument, text)| format!("{{{argument}}}{text}"));
        Some(std::iter::once(first.clone()).chain(rest).collect())
    }

    /// The arguments that the template names.
    fn arguments(&self) -> impl Iterator<Item = &str> {
        let named: &[(String, String)] = match self {
            Self::All => &[],
            Self::Template(_, arguments) => arguments,
        };
        named.iter().map(|(argument, _)| argument.as_str())
    }

    pub(super) fn render(&self, name: &str, args: &Value) -> String {
        match self {
            Self::All => format!("{name} {}", sorted(args)),
            Self::Template(first, arguments) => {
                let mut text = first.clone();
                for (argument, after) in arguments {
                    let value = args.get(argument).map_or_else(|| "-".to_owned(), sorted);
                    text.push_str(&value);
                    text.push_str(after);
                }
                text
            }
        }
    }
}

/// JSON in its shortest form, with keys in order (S1-19).
fn sorted(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let each = fields.iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), sorted(value)));
            format!("{{{}}}", each.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(",")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use serde_json::{Value, json};

    use super::Key;

    /// S1-13, S1-19: two calls that differ in an argument that the template names have two keys, whatever is in the arguments.
    #[test]
    fn s1_13_s1_19_calls_that_differ_have_different_keys() {
        let values = [
            json!(null),
            json!("-"),
            json!(""),
            json!(" "),
            json!("x"),
            json!("x y"),
            json!("x\" \"y"),
            json!("\\"),
            json!("\\\" "),
            json!("1"),
            json!(1),
            json!(11),
            json!(-1),
            json!(1.0),
            json!(true),
            json!([]),
            json!(["x", "y"]),
            json!(["x y"]),
            json!({}),
            json!({ "x": "y" }),
            json!({ "x\":\"": "y" }),
        ];
        let values: Vec<Option<&Value>> = std::iter::once(None).chain(values.iter().map(Some)).collect();
        for template in ["{a} {b}", "do {a} to {b}", "{a}1 1{b}", "{a}\" \"{b}", "{a}- -{b}"] {
            let key = Key::parse(Some(template), "t").unwrap();
            let mut seen = std::collections::BTreeMap::new();
            for (a, b) in values.iter().flat_map(|a| values.iter().map(move |b| (a, b))) {
                let mut args = serde_json::Map::new();
                args.extend(a.map(|a| ("a".to_owned(), a.clone())));
                args.extend(b.map(|b| ("b".to_owned(), b.clone())));
                let text = key.render("t", &Value::Object(args.clone()));
                let other = seen.insert(text.clone(), args.clone());
                assert_eq!(other, None, "{template}: {args:?} is {text}");
            }
        }
    }

    /// S1-33: a key names the tool whose it is, and looks like no other tool's.
    #[test]
    fn s1_33_a_key_names_its_tool() {
        let key = |template: &str| Key::parse(Some(template), "b").unwrap().render("b", &json!({ "a": "x" }));
        assert_eq!(key("bash {a}"), "b: bash \"x\"");
        assert_eq!(key("b {a}"), "b \"x\"");
        assert_eq!(key("{a}"), "b: \"x\"");
    }
}
