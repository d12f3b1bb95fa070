//! What a server says of its tools, bounded: a stranger wrote it, and a model reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rmcp::model::{JsonObject, Tool};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Most tools of a server.
pub(super) const TOOLS_MAX: usize = 256;
/// Most bytes of a schema, as JSON.
const SCHEMA_MAX: usize = 64 * 1024;
/// How deep a schema may be nested.
const DEPTH_MAX: usize = 32;
/// Most parts of a schema with all its references followed: what comparing arguments with it may cost.
const PARTS_MAX: usize = 2_000;
/// Most characters of a name (MCP 2025-11-25).
const NAME_MAX: usize = 128;
/// Most characters of a text about an argument.
const TEXT_MAX: usize = 4096;
/// The keys of a schema that lead to another part of it.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// The keys by which a part says that references in it start elsewhere.
const BASES: [&str; 2] = ["$id", "id"];

/// A tool, as much of it as is believed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Definition {
    /// As its server has it, with clean texts.
    pub(crate) tool: Tool,
    /// Whether arguments can be compared with its schema at a bounded cost.
    pub(crate) compares: bool,
    /// What a person has approved of is this definition. 12 hexadecimal digits.
    pub(crate) digest: String,
}

/// Why a tool is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error(
        "its name is empty, longer than {NAME_MAX} characters, or has others than letters, digits, `_`, `-`, `.` and `/`"
    )]
    Name,
    #[error("its schema has more than {SCHEMA_MAX} bytes")]
    Size,
    #[error("its schema is nested deeper than {DEPTH_MAX}")]
    Depth,
}

impl Definition {
    /// Takes a tool, with a description of at most so many characters.
    pub(super) fn of(mut tool: Tool, description_max: usize) -> Result<Self, Unfit> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        if tool.name.is_empty() || tool.name.len() > NAME_MAX || !tool.name.chars().all(plain) {
            return Err(Unfit::Name);
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
        let compares = parts(&schema) <= PARTS_MAX;
        (tool.input_schema, tool.output_schema) = (Arc::new(schema), output.map(Arc::new));
        let digest = digest(&tool);
        Ok(Self { tool, compares, digest })
    }
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
        0xad | 0x61c | 0x180e | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f | 0xfe00..=0xfe0f | 0xfeff
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
        Value::Object(fields) => fields.values_mut().try_for_each(|field| clean_below(field, depth + 1))?,
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

/// How many parts a schema has with all its references followed; `usize::MAX` if one leads back to where it stands, or elsewhere
/// than to another part.
fn parts(schema: &JsonObject) -> usize {
    let whole = Value::Object(schema.clone());
    Parts { whole: &whole, known: BTreeMap::new(), open: BTreeSet::new() }.of(&whole)
}

struct Parts<'a> {
    whole: &'a Value,
    /// By the pointer that leads there.
    known: BTreeMap<&'a str, usize>,
    open: BTreeSet<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(&mut self, value: &'a Value) -> usize {
        match value {
            Value::Object(fields) => fields.iter().fold(1, |sum: usize, (key, field)| {
                let below = match field.as_str() {
                    Some(_) if BASES.contains(&key.as_str()) => usize::MAX,
                    Some(pointer) if REFERENCES.contains(&key.as_str()) => self.referenced(pointer),
                    Some(_) | None => self.of(field),
                };
                sum.saturating_add(below)
            }),
            Value::Array(items) => items.iter().fold(1, |sum: usize, item| sum.saturating_add(self.of(item))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        }
    }

    fn referenced(&mut self, pointer: &'a str) -> usize {
        if let Some(known) = self.known.get(pointer) {
            return *known;
        }
        let part = pointer.strip_prefix('#').and_then(|path| self.whole.pointer(path));
        let Some(part) = part.filter(|_| self.open.insert(pointer)) else { return usize::MAX };
        let parts = self.of(part);
        self.open.remove(pointer);
        self.known.insert(pointer, parts);
        parts
    }
}

fn digest(tool: &Tool) -> String {
    let text = serde_json::to_string(tool).unwrap_or_default();
    Sha256::digest(text).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
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
        Definition::of(tool(schema), 100)
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
    fn a_schema_costs_no_more_than_is_said() {
        let plain = json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/a" } }, "$defs": { "a": { "type": "string" } } });
        assert!(definition(plain).unwrap().compares);
        // Each part is two of the next: 2^30 with the references followed.
        let doubled: JsonObject = (0..30)
            .map(|n| {
                let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
                (format!("d{n}"), json!({ "anyOf": [next, next] }))
            })
            .chain([("d30".to_owned(), json!({ "type": "string" }))])
            .collect();
        let doubled = json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/d0" } }, "$defs": doubled });
        assert!(!definition(doubled).unwrap().compares);
        let based = json!({ "type": "object", "properties": { "a": { "$id": "http://x/", "$ref": "#/b", "b": {} } } });
        assert!(!definition(based).unwrap().compares);
        for circle in ["#", "#/properties/a", "http://example.com/schema", "#a"] {
            let schema = json!({ "type": "object", "properties": { "a": { "$ref": circle } } });
            assert!(!definition(schema).unwrap().compares, "{circle}");
        }
    }

    #[test]
    fn what_is_too_large_or_too_deep_is_left_out() {
        let large = json!({ "type": "object", "description": "x".repeat(SCHEMA_MAX) });
        assert_eq!(definition(large), Err(Unfit::Size));
        let deep = (0..DEPTH_MAX).fold(json!({ "type": "object" }), |inner, _| json!({ "not": inner }));
        assert_eq!(definition(deep), Err(Unfit::Depth));
        let named = |name: &str| {
            let mut tool = tool(json!({}));
            tool.name = name.to_owned().into();
            Definition::of(tool, 100)
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
    }
}
