//! Parts of messages that several tools have.

use serde_json::Value;

/// A value as an error message can carry it.
pub(super) fn shorten(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > 40 {
        text.truncate(text.floor_char_boundary(37));
        text.push_str("...");
    }
    text
}

/// Numbers as a message has them: `3, 8 and 12`.
pub(super) fn listed(numbers: &[u64]) -> String {
    let text: Vec<String> = numbers.iter().map(u64::to_string).collect();
    match text.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => String::new(),
    }
}
