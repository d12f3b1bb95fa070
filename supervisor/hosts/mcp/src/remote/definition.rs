//! Definitions of a server's tools, bounded: a stranger wrote it, and a model reads it.

use std::ffi::OsString;
use std::sync::Arc;

use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::requests::Request;

/// Most tools of a server.
pub(super) const TOOLS_MAX: usize = 256;
/// Most bytes of a schema, as JSON.
const SCHEMA_MAX: usize = 64 * 1024;
/// How deep a schema may be nested.
const DEPTH_MAX: usize = 32;
/// The types of JSON Schema.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
/// Most characters of a name (MCP 2025-11-25).
const NAME_MAX: usize = 128;
/// Most characters of a text about an argument.
const TEXT_MAX: usize = 4096;
/// A tool, as much of it as is believed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Definition {
    /// As its server has it, with clean texts.
    pub(crate) tool: Tool,
    /// Schema that arguments are compared with: of its schema, what costs little.
    pub(crate) outline: Value,
    /// Digest of what a person has approved of: it is this definition, of this server: SHA-256, in hexadecimal.
    pub(crate) digest: String,
    /// How much of a list it is, bytes.
    pub(crate) size: usize,
}

/// Reason why a tool is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error(
        "its name is empty, longer than {NAME_MAX} characters, or has others than letters, digits, `_`, `-`, `.` and `/`"
    )]
    Name,
    #[error("a request of the protocol has its name")]
    Request,
    #[error("its schema has more than {SCHEMA_MAX} bytes")]
    Size,
    #[error("its schema is nested deeper than {DEPTH_MAX}")]
    Depth,
    #[error("its schema has a name with characters that nobody sees")]
    Key,
}

impl Definition {
    /// Takes a tool of the server that this command starts, with a description of at most so many characters.
    pub(super) fn of(mut tool: Tool, command: &[OsString], description_max: usize) -> Result<Self, Unfit> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        if tool.name.is_empty() || tool.name.len() > NAME_MAX || !tool.name.chars().all(plain) {
            return Err(Unfit::Name);
        }
        if Request::ALL.iter().any(|request| request.method() == tool.name) {
            return Err(Unfit::Request);
        }
        let schema = bounded(&tool.input_schema)?;
        let output = tool.output_schema.as_deref().map(bounded).transpose()?;
        tool.description = tool.description.map(|text| clean(&text, description_max).into());
        tool.title = tool.title.map(|text| clean(&text, NAME_MAX));
        if let Some(annotations) = &mut tool.annotations {
            annotations.title = annotations.title.take().map(|text| clean(&text, NAME_MAX));
        }
        // Pictures that a host would fetch, and words for whatever reads them.
        (tool.icons, tool.meta) = (None, None);
        let outline = outline(&schema);
        (tool.input_schema, tool.output_schema) = (Arc::new(schema), output.map(Arc::new));
        let text = serde_json::to_string(&tool).unwrap_or_default();
        Ok(Self { outline, digest: digest(&text, command), size: text.len(), tool })
    }
}

/// The names of arguments, which are required, and of which type they are. All else in a schema may cost any time to compare with,
/// and its server compares it.
fn outline(schema: &JsonObject) -> Value {
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let typed = |(name, schema): (&String, &Value)| {
        let types =
            schema.get("type").filter(|types| is_type(types) || types.as_array().is_some_and(|types| is_types(types)));
        (name.clone(), types.map_or(json!({}), |types| json!({ "type": types })))
    };
    let names: JsonObject = properties.map(typed).collect();
    let required =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter(|name| name.is_string());
    let mut required: Vec<&Value> = required.collect();
    required.sort_by_key(|name| name.as_str());
    required.dedup();
    let mut outline = json!({ "type": "object", "properties": names, "required": required });
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) && !schema.contains_key("patternProperties") {
        outline["additionalProperties"] = false.into();
    }
    outline
}

fn is_type(name: &Value) -> bool {
    name.as_str().is_some_and(|name| TYPES.contains(&name))
}

fn is_types(names: &[Value]) -> bool {
    let is_first = |at: usize| !names[..at].contains(&names[at]);
    !names.is_empty() && names.iter().all(is_type) && (0..names.len()).all(is_first)
}

/// A text without characters that say something else to a person than to a model, and not too long.
pub(super) fn clean(text: &str, most: usize) -> String {
    let mut characters = text.chars().filter(|c| !is_hidden(*c));
    let mut kept: String = characters.by_ref().take(most).collect();
    if characters.next().is_some() {
        kept.push('…');
    }
    kept
}

/// Control characters, and those that have no width or turn the direction of what follows.
fn is_hidden(c: char) -> bool {
    let is_format = matches!(
        u32::from(c),
        0xad | 0x34f | 0x61c | 0x115f | 0x1160 | 0x17b4 | 0x17b5 | 0x180e | 0x2800 | 0x3164 | 0xffa0 | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f | 0xfe00..=0xfe0f | 0xfeff
            | 0xfff9..=0xfffb | 0xe0000..=0xe0fff
    );
    is_format || (c.is_control() && c != '\n' && c != '\t')
}

/// A schema with clean texts.
fn bounded(schema: &JsonObject) -> Result<JsonObject, Unfit> {
    let mut schema = schema.clone();
    if serde_json::to_string(&schema).map_or(true, |text| text.len() > SCHEMA_MAX) {
        return Err(Unfit::Size);
    }
    if schema.keys().any(|key| key.chars().any(is_hidden)) {
        return Err(Unfit::Key);
    }
    schema.values_mut().try_for_each(|value| clean_below(value, 1))?;
    Ok(schema)
}

fn clean_below(value: &mut Value, depth: usize) -> Result<(), Unfit> {
    if depth > DEPTH_MAX {
        return Err(Unfit::Depth);
    }
    match value {
        Value::String(text) => *text = clean(text, TEXT_MAX),
        Value::Array(items) => items.iter_mut().try_for_each(|item| clean_below(item, depth + 1))?,
        Value::Object(fields) if fields.keys().any(|key| key.chars().any(is_hidden)) => return Err(Unfit::Key),
        Value::Object(fields) => fields.values_mut().try_for_each(|field| clean_below(field, depth + 1))?,
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

/// Digest of a definition and the command that starts its server: another program of the same name is another server.
pub(super) fn digest(definition: &str, command: &[OsString]) -> String {
    let mut digest = Sha256::new();
    for word in command {
        digest.update((word.len() as u64).to_le_bytes());
        digest.update(word.as_encoded_bytes());
    }
    digest.update(definition);
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use serde_json::json;

    use super::*;

    fn tool(schema: Value) -> Tool {
        serde_json::from_value(json!({ "name": "t", "description": "d", "inputSchema": schema })).unwrap()
    }

    fn definition(schema: Value) -> Result<Definition, Unfit> {
        Definition::of(tool(schema), &[], 100)
    }

    #[test]
    fn texts_say_to_a_person_what_they_say_to_a_model() {
        let hidden = "Adds.\u{202e}\u{200b}\u{e0041}\u{1b}[2J\u{7} two\nnumbers";
        assert_eq!(clean(hidden, 100), "Adds.[2J two\nnumbers");
        assert_eq!(clean("abcd", 3), "abc…");
        let schema = json!({ "type": "object", "properties": { "a": { "description": "x\u{202e}y" } } });
        let definition = definition(schema).unwrap();
        assert_eq!(definition.tool.input_schema["properties"]["a"]["description"], "xy");
    }

    #[test]
    fn arguments_are_compared_with_what_costs_little() {
        let circle = json!({ "anyOf": [{ "$ref": "#/properties/a" }, { "$ref": "#/properties/a" }] });
        let schema = json!({
            "type": "object",
            "properties": { "a": circle, "b": { "type": ["string", "null"], "pattern": "(a+)+$" }, "c": { "type": "of mine" } },
            "required": ["b", "b", 7],
            "additionalProperties": false,
        });
        let outline = json!({
            "type": "object",
            "properties": { "a": {}, "b": { "type": ["string", "null"] }, "c": {} },
            "required": ["b"],
            "additionalProperties": false,
        });
        assert_eq!(definition(schema).unwrap().outline, outline);
        let odd = json!({ "properties": 7, "required": { "a": 1 }, "additionalProperties": { "$ref": "#" } });
        assert_eq!(definition(odd).unwrap().outline, json!({ "type": "object", "properties": {}, "required": [] }));
    }

    #[test]
    fn what_is_too_large_or_too_deep_is_left_out() {
        let large = json!({ "type": "object", "description": "x".repeat(SCHEMA_MAX) });
        assert_eq!(definition(large), Err(Unfit::Size));
        let deep = (0..DEPTH_MAX).fold(json!({ "type": "object" }), |inner, _| json!({ "not": inner }));
        assert_eq!(definition(deep), Err(Unfit::Depth));
        let unseen = json!({ "type": "object", "properties": { "a\u{202e}": {} } });
        assert_eq!(definition(unseen), Err(Unfit::Key));
        assert_eq!(definition(json!({ "type": "object", "\u{202e}": 1 })), Err(Unfit::Key));
        let named = |name: &str| {
            let mut tool = tool(json!({}));
            tool.name = name.to_owned().into();
            Definition::of(tool, &[], 100)
        };
        assert_eq!(named("a b").err(), Some(Unfit::Name));
        assert_eq!(named("").err(), Some(Unfit::Name));
        assert!(named("git.log/all").is_ok());
    }

    #[test]
    fn another_definition_has_another_digest() {
        let one = definition(json!({ "type": "object" })).unwrap();
        let same = definition(json!({ "type": "object" })).unwrap();
        let other = definition(json!({ "type": "object", "required": ["a"] })).unwrap();
        assert_eq!(one.digest, same.digest);
        assert_ne!(one.digest, other.digest);
        let elsewhere = Definition::of(tool(json!({ "type": "object" })), &["x".into()], 100).unwrap();
        assert_ne!(one.digest, elsewhere.digest);
    }
}
