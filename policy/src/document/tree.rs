//! TOML and JSON as one tree of values that know their places.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::Fault;

/// Manifests nest five deep; what is deeper is an attack on the reader's stack or a mistake.
const MAX_DEPTH: usize = 16;

/// How a manifest is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `callgate.toml`.
    Toml,
    /// `callgate.json`, with the same keys.
    Json,
}

/// A value and where it stands.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) span: Range<usize>,
    pub(crate) value: DocumentValue,
}

/// The kind of a value that is left out, in YAML.
pub(crate) const NOTHING: &str = "nothing";

#[derive(Debug)]
pub(crate) enum DocumentValue {
    Table(Vec<Entry>),
    Array(Vec<Node>),
    Text(String),
    Integer(i64),
    Bool(bool),
    /// A kind of value that manifests do not use, by name.
    Other(&'static str),
}

/// A key and its value.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Range<usize>,
    pub(crate) node: Node,
}

/// Reads one document, which may be any value.
pub(crate) fn parse(text: &str, format: Format) -> Result<Node, Fault> {
    match format {
        Format::Toml => from_toml(text),
        Format::Json => from_json(text),
    }
}

/// Limits on a text that is read as a whole.
pub(crate) struct Whole {
    /// Its name in messages.
    pub(crate) what: &'static str,
    /// The most that is read, bytes.
    pub(crate) most: usize,
    /// Advice if it is empty.
    pub(crate) empty: &'static str,
}

impl Whole {
    /// Reads a table that is not empty.
    pub(crate) fn parse(&self, text: &str, read: impl FnOnce(&str) -> Result<Node, Fault>) -> Result<Node, Fault> {
        let what = self.what;
        let empty = || Fault::new(0..0, format!("the {what} is empty")).with_help(self.empty);
        if text.len() > self.most {
            return Err(Fault::new(0..0, format!("the {what} is larger than {} KiB", self.most / 1024)));
        }
        if text.trim().is_empty() {
            return Err(empty());
        }
        let node = read(text)?;
        match &node.value {
            DocumentValue::Table(entries) if entries.is_empty() => Err(empty()),
            // All that there is are comments.
            DocumentValue::Other(NOTHING) => Err(empty()),
            DocumentValue::Table(_) => Ok(node),
            other @ (DocumentValue::Array(_)
            | DocumentValue::Text(_)
            | DocumentValue::Integer(_)
            | DocumentValue::Bool(_)
            | DocumentValue::Other(_)) => {
                Err(Fault::new(node.span.clone(), format!("a {what} is a table of keys, not {}", other.kind())))
            }
        }
    }
}

impl DocumentValue {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Table(_) => "a table",
            Self::Array(_) => "an array",
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Bool(_) => "a boolean",
            Self::Other(kind) => kind,
        }
    }
}

fn from_toml(text: &str) -> Result<Node, Fault> {
    let table = DeTable::parse(text).map_err(|error| Fault::new(error.span().unwrap_or(0..0), error.message()))?;
    let span = table.span();
    Ok(Node { span, value: toml_table(table.into_inner(), 0)? })
}

fn toml_table(table: DeTable<'_>, depth: usize) -> Result<DocumentValue, Fault> {
    let entry = |(key, value): (Spanned<Cow<'_, str>>, Spanned<DeValue<'_>>)| {
        let key_span = key.span();
        Ok(Entry { key: key.into_inner().into_owned(), key_span, node: toml_value(value, depth + 1)? })
    };
    Ok(DocumentValue::Table(table.into_iter().map(entry).collect::<Result<_, Fault>>()?))
}

fn toml_value(value: Spanned<DeValue<'_>>, depth: usize) -> Result<Node, Fault> {
    let span = value.span();
    check_depth(depth, &span)?;
    let value = match value.into_inner() {
        DeValue::String(text) => DocumentValue::Text(text.into_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(DocumentValue::Integer)
            .map_err(|_too_large| Fault::new(span.clone(), "the number does not fit in 64 bits"))?,
        DeValue::Boolean(truth) => DocumentValue::Bool(truth),
        DeValue::Float(_) => DocumentValue::Other("a fraction"),
        DeValue::Datetime(_) => DocumentValue::Other("a date"),
        DeValue::Array(items) => DocumentValue::Array(
            items.into_iter().map(|item| toml_value(item, depth + 1)).collect::<Result<_, Fault>>()?,
        ),
        DeValue::Table(table) => toml_table(table, depth)?,
    };
    Ok(Node { span, value })
}

fn check_depth(depth: usize, span: &Range<usize>) -> Result<(), Fault> {
    if depth > MAX_DEPTH { Err(Fault::new(span.clone(), "the manifest is nested too deeply")) } else { Ok(()) }
}

/// One level of JSON. What is inside stays text, borrowed from the manifest, so that its place is known.
enum JsonLevel<'a> {
    Map(Vec<(&'a RawValue, &'a RawValue)>),
    Seq(Vec<&'a RawValue>),
    Leaf(DocumentValue),
}

fn from_json(text: &str) -> Result<Node, Fault> {
    // The whole first: the messages of nested pieces would have the wrong lines.
    let root: &RawValue = serde_json::from_str(text).map_err(|error| json_fault(text, &error))?;
    json_value(text, root, 0)
}

fn json_value(text: &str, raw: &RawValue, depth: usize) -> Result<Node, Fault> {
    let span = json_span(text, raw);
    check_depth(depth, &span)?;
    let level: JsonLevel<'_> =
        serde_json::from_str(raw.get()).map_err(|error| Fault::new(span.clone(), error.to_string()))?;
    let value = match level {
        JsonLevel::Leaf(value) => value,
        JsonLevel::Seq(items) => DocumentValue::Array(
            items.into_iter().map(|item| json_value(text, item, depth + 1)).collect::<Result<_, Fault>>()?,
        ),
        JsonLevel::Map(pairs) => {
            let mut entries: Vec<Entry> = Vec::new();
            for (key, value) in pairs {
                let key_span = json_span(text, key);
                let key: String =
                    serde_json::from_str(key.get()).map_err(|error| Fault::new(key_span.clone(), error.to_string()))?;
                if entries.iter().any(|entry| entry.key == key) {
                    return Err(Fault::new(key_span, "duplicate key"));
                }
                entries.push(Entry { key, key_span, node: json_value(text, value, depth + 1)? });
            }
            DocumentValue::Table(entries)
        }
    };
    Ok(Node { span, value })
}

/// A raw value is a slice of the manifest's text, so the distance between their addresses is its place.
fn json_span(text: &str, raw: &RawValue) -> Range<usize> {
    let start = raw.get().as_ptr().addr().saturating_sub(text.as_ptr().addr());
    start..start + raw.get().len()
}

fn json_fault(text: &str, error: &serde_json::Error) -> Fault {
    let line_start = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let at = (line_start + error.column().saturating_sub(1)).min(text.len());
    let message = error.to_string();
    // The place is shown, so it need not be told.
    let told = format!(" at line {} column {}", error.line(), error.column());
    Fault::new(at..(at + 1).min(text.len()), message.strip_suffix(&told).unwrap_or(&message))
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonLevel<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LevelVisitor(std::marker::PhantomData))
    }
}

struct LevelVisitor<'a>(std::marker::PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for LevelVisitor<'a> {
    type Value = JsonLevel<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<JsonLevel<'a>, E> {
        Ok(JsonLevel::Leaf(DocumentValue::Bool(truth)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<JsonLevel<'a>, E> {
        Ok(JsonLevel::Leaf(DocumentValue::Integer(number)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<JsonLevel<'a>, E> {
        Ok(JsonLevel::Leaf(
            i64::try_from(number).map_or(DocumentValue::Other("a number beyond 64 bits"), DocumentValue::Integer),
        ))
    }

    fn visit_f64<E>(self, _fraction: f64) -> Result<JsonLevel<'a>, E> {
        Ok(JsonLevel::Leaf(DocumentValue::Other("a fraction")))
    }

    fn visit_unit<E>(self) -> Result<JsonLevel<'a>, E> {
        Ok(JsonLevel::Leaf(DocumentValue::Other("null")))
    }

    fn visit_str<E>(self, text: &str) -> Result<JsonLevel<'a>, E> {
        Ok(JsonLevel::Leaf(DocumentValue::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<JsonLevel<'a>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<&'a RawValue>()? {
            items.push(item);
        }
        Ok(JsonLevel::Seq(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonLevel<'a>, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry::<&'a RawValue, &'a RawValue>()? {
            pairs.push(pair);
        }
        Ok(JsonLevel::Map(pairs))
    }
}
