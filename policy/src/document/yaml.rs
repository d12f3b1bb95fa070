//! YAML as the same tree: the third way to write one, for profiles.

use std::fmt;
use std::ops::Range;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{DuplicateKeyPolicy, Error, Location, MergeKeyPolicy, Spanned};

use super::error::Fault;
use super::tree::{DocumentValue, Entry, NOTHING, Node};

/// Profiles nest three deep.
const MAX_DEPTH: usize = 8;
/// Most values, of which an alias repeats all that it stands for.
const MAX_VALUES: usize = 4096;
/// Most aliases, and names that they can have.
const MAX_ALIASES: usize = 64;

/// Reads one document. A boolean is one as YAML 1.1 has them: `off` is false.
pub(crate) fn parse(text: &str) -> Result<Node, Fault> {
    let mut aliases = serde_saphyr::options::AliasLimits::default();
    aliases.max_total_replayed_events = MAX_VALUES;
    aliases.max_replay_stack_depth = MAX_DEPTH;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_documents: 1,
            max_events: 4 * MAX_VALUES,
            max_nodes: MAX_VALUES,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
            max_recorded_anchor_events: 4 * MAX_VALUES,
        },
        alias_limits: aliases,
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        with_snippet: false,
    };
    let YamlTree(node) = serde_saphyr::from_str_with_options(text, options).map_err(|error| fault(text, &error))?;
    Ok(node)
}

fn fault(text: &str, error: &Error) -> Fault {
    let Some(location) = error.location() else { return Fault::new(0..0, error.to_string()) };
    let span = match location.span().byte_offset() {
        Some(_) => span(&location),
        None => place(text, &location),
    };
    Fault::new(span.start.min(text.len())..span.end.min(text.len()), message(error, &location))
}

/// Message of an error. The place is shown, so it need not be told; nor do options of ours help whoever wrote the text.
fn message(error: &Error, location: &Location) -> String {
    if let Error::DuplicateMappingKey { .. } = error {
        return "duplicate key".to_owned();
    }
    if let Error::Budget { breach: BudgetBreach::Documents { .. }, .. } = error {
        return "there is more than one document".to_owned();
    }
    let too_much = matches!(
        error,
        Error::Budget { .. } | Error::AliasReplayLimitExceeded { .. } | Error::AliasReplayStackDepthExceeded { .. }
    );
    if too_much {
        return "there are more values, aliases or levels than there may be".to_owned();
    }
    if let Error::MergeKeyNotAllowed { .. } = error {
        return "keys cannot be merged by `<<`; write them out".to_owned();
    }
    let message = error.to_string();
    let told = format!(" at line {}, column {}", location.line(), location.column());
    message.strip_suffix(&told).unwrap_or(&message).to_owned()
}

/// Line and column, both from 1 and in characters, as a place in the text.
fn place(text: &str, location: &Location) -> Range<usize> {
    let from = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).saturating_sub(1);
    let line_start: usize = text.split_inclusive('\n').take(from(location.line())).map(str::len).sum();
    let line = text.get(line_start..).unwrap_or_default();
    let column = line.char_indices().nth(from(location.column())).map_or(0, |(at, _)| at);
    line_start + column..line_start + column + 1
}

fn span(location: &Location) -> Range<usize> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset().unwrap_or_default()).unwrap_or_default();
    let length = usize::try_from(span.byte_len().unwrap_or_default()).unwrap_or_default();
    start..start.saturating_add(length)
}

/// A value that knows where it is used, which for an alias is not where it was written.
struct YamlTree(Node);

impl<'de> Deserialize<'de> for YamlTree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: YamlValue(value), referenced, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self(Node { span: span(&referenced), value }))
    }
}

struct YamlValue(DocumentValue);

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InnerVisitor).map(Self)
    }
}

struct InnerVisitor;

impl<'de> Visitor<'de> for InnerVisitor {
    type Value = DocumentValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<DocumentValue, E> {
        Ok(DocumentValue::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<DocumentValue, E> {
        Ok(DocumentValue::Integer(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<DocumentValue, E> {
        Ok(i64::try_from(number).map_or(DocumentValue::Other("a number beyond 64 bits"), DocumentValue::Integer))
    }

    fn visit_f64<E>(self, _fraction: f64) -> Result<DocumentValue, E> {
        Ok(DocumentValue::Other("a fraction"))
    }

    fn visit_unit<E>(self) -> Result<DocumentValue, E> {
        Ok(DocumentValue::Other(NOTHING))
    }

    fn visit_str<E>(self, text: &str) -> Result<DocumentValue, E> {
        Ok(DocumentValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<DocumentValue, A::Error> {
        let mut items = Vec::new();
        while let Some(YamlTree(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(DocumentValue::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DocumentValue, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, YamlTree(node))) = map.next_entry::<Spanned<String>, YamlTree>()? {
            entries.push(Entry { key: key.value, key_span: span(&key.referenced), node });
        }
        Ok(DocumentValue::Table(entries))
    }
}
