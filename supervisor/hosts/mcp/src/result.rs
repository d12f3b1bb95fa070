//! A result envelope as a result of the protocol.

use callgate::{Outcome, ResultEnvelope};
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::Value;

/// Where the envelope is, without what is in the result already.
const ENVELOPE: &str = "callgate/envelope";
/// Fields of a result, of which a model reads the first that is there.
const TEXTS: &[&str] = &["output", "content", "text", "head"];

/// The fields of a server's answer.
pub(crate) const CONTENT: &str = "content";
pub(crate) const STRUCTURED: &str = "structuredContent";

pub(crate) fn result(envelope: &ResultEnvelope) -> CallToolResult {
    let mut text = envelope.error_text.clone().unwrap_or_else(|| text(envelope.data.as_ref().unwrap_or(&Value::Null)));
    if envelope.metadata.truncated == Some(true) {
        let rest = envelope.metadata.output_path.as_ref().map(|path| format!("; all of it is in {path}"));
        text.push_str(&format!("\n[cut{}]", rest.unwrap_or_default()));
    }
    let content = remotes(envelope).unwrap_or_else(|| vec![ContentBlock::text(text)]);
    let mut result = match envelope.kind {
        Outcome::Error => CallToolResult::error(content),
        _ => CallToolResult::success(content),
    };
    result.structured_content = match &envelope.data {
        Some(data) if is_remotes(data) => data.get(STRUCTURED).cloned(),
        data => data.clone().filter(Value::is_object),
    };
    let mut told = serde_json::to_value(envelope).unwrap_or_default();
    if let Some(told) = told.as_object_mut() {
        told.remove("data");
        told.remove("error_text");
    }
    let mut meta = MetaObject::default();
    meta.0.insert(ENVELOPE.to_owned(), told);
    result.with_meta(Some(meta))
}

/// True if data is what a server has answered ([`crate::Remote`]): no tool of callgate's own has a list by that name.
fn is_remotes(data: &Value) -> bool {
    data.get(CONTENT).is_some_and(Value::is_array)
}

/// Answer of a server, as it came.
fn remotes(envelope: &ResultEnvelope) -> Option<Vec<ContentBlock>> {
    let data = envelope.data.as_ref().filter(|data| is_remotes(data))?;
    serde_json::from_value(data.get(CONTENT)?.clone()).ok()
}

/// The text of a result as it is, with its other fields below; any other as JSON.
fn text(data: &Value) -> String {
    match data {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let Some((name, text)) = TEXTS.iter().find_map(|name| Some((*name, fields.get(*name)?.as_str()?))) else {
                return data.to_string();
            };
            let others = fields.iter().filter(|(other, value)| *other != name && !value.is_null());
            let others: Vec<String> = others.map(|(name, value)| format!("{name}: {value}")).collect();
            if others.is_empty() { text.to_owned() } else { format!("{text}\n[{}]", others.join(", ")) }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => data.to_string(),
    }
}
