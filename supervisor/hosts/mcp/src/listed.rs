//! The tools as the protocol lists them.

use std::sync::Arc;

use callgate::{Changes, Tool};
use rmcp::model::{self, JsonObject, ToolAnnotations};
use serde_json::{Value, json};

/// A tool, as it is listed. Of one that is to be found first ([`Tool::deferred`]), the name and what it is for.
pub(crate) fn listed(tool: &Tool, is_found: bool) -> model::Tool {
    let (parameters, output) = match is_found {
        true => (object(&tool.parameters), tool.output_schema.as_deref()),
        false => (object(&json!({ "type": "object" })), None),
    };
    let description = match is_found {
        true => tool.description.clone(),
        false => format!("{} (Its arguments are what tool_search returns for it.)", tool.description),
    };
    let mut listed = model::Tool::new(tool.name.clone(), description, Arc::new(parameters));
    // The protocol has objects alone.
    if let Some(output) = output.filter(|output| output["type"] == "object") {
        listed = listed.with_raw_output_schema(Arc::new(object(output)));
    }
    listed.with_annotations(annotations(tool))
}

fn object(value: &Value) -> JsonObject {
    value.as_object().cloned().unwrap_or_default()
}

/// Hints, for whoever shows the tool.
fn annotations(tool: &Tool) -> ToolAnnotations {
    let changes = tool.changes();
    let mut annotations = ToolAnnotations::new();
    annotations.read_only_hint = Some(changes == Changes::Nothing);
    annotations.destructive_hint = Some(changes == Changes::Anything);
    annotations.open_world_hint = Some(matches!(tool.kind(), "fetch" | "execute" | "other"));
    annotations
}
