//! What a person at the client is shown. A model wrote parts of it: no control character of those reaches a terminal (E8).

use callgate::{Inquiry, Question};
use rmcp::model::ElicitRequestParams;
use serde_json::{Value, json};

/// The field with the answer to a question about a call, and what it may say.
pub(crate) const ANSWER: &str = "answer";
pub(crate) const ONCE: &str = "once";
pub(crate) const ALWAYS: &str = "always";
const NO: &str = "no";
/// Most characters of one part of a question. What is longer is cut, and says so.
const LONGEST: usize = 2000;

/// The field with the answer to one of several questions of the agent's.
pub(crate) fn field(number: usize) -> String {
    format!("answer_{}", number + 1)
}

/// Whether a call may be made.
pub(crate) fn approval(question: &Question) -> Option<ElicitRequestParams> {
    let mut text = format!("The agent wants to use `{}`.", harmless(&question.tool));
    let command = question.arguments["command"].as_str().map(ToOwned::to_owned);
    let arguments = command.unwrap_or_else(|| question.arguments.to_string());
    let lists = [
        ("Program", vec![question.argv.join(" ")]),
        ("With", vec![arguments]),
        ("It reads", question.reads.clone()),
        ("It changes", question.writes.clone()),
        ("It connects to", question.hosts.clone()),
        ("It may reach", question.reach.clone()),
        ("You are asked because", question.why.clone()),
    ];
    for (what, list) in lists {
        let list: Vec<String> = list.iter().filter(|part| !part.is_empty()).map(|part| harmless(part)).collect();
        if !list.is_empty() {
            text.push_str(&format!("\n{what}: {}", list.join(", ")));
        }
    }
    text.push_str(&format!("\n\"always\" is kept for: {}", harmless(&question.key.to_string())));
    form(
        &text,
        &json!({ ANSWER: {
            "type": "string",
            "title": "May it?",
            "oneOf": [
                { "const": ONCE, "title": "Yes, this call" },
                { "const": ALWAYS, "title": "Yes, and whatever has this key" },
                { "const": NO, "title": "No" },
            ],
        } }),
        &[ANSWER.to_owned()],
    )
}

/// Questions of the agent's.
pub(crate) fn inquiry(inquiry: &Inquiry) -> Option<ElicitRequestParams> {
    let mut properties = serde_json::Map::new();
    for (number, query) in inquiry.questions.iter().enumerate() {
        let options = || {
            query.options.iter().map(|choice| {
                let title = choice
                    .description
                    .as_ref()
                    .map_or_else(|| choice.label.clone(), |description| format!("{}: {description}", choice.label));
                json!({ "const": choice.label, "title": harmless(&title) })
            })
        };
        let title = query.header.as_deref().unwrap_or("Question");
        let mut property = json!({ "title": harmless(title), "description": harmless(&query.question) });
        let kind = match (query.options.is_empty(), query.multi_select) {
            (true, _) => json!({ "type": "string" }),
            (false, false) => json!({ "type": "string", "oneOf": options().collect::<Vec<_>>() }),
            (false, true) => json!({ "type": "array", "items": { "anyOf": options().collect::<Vec<_>>() } }),
        };
        if let (Some(property), Value::Object(kind)) = (property.as_object_mut(), kind) {
            property.extend(kind);
        }
        properties.insert(field(number), property);
    }
    let required: Vec<String> = (0..inquiry.questions.len()).map(field).collect();
    form("The agent asks:", &Value::Object(properties), &required)
}

fn form(message: &str, properties: &Value, required: &[String]) -> Option<ElicitRequestParams> {
    let form = json!({
        "mode": "form",
        "message": message,
        "requestedSchema": { "type": "object", "properties": properties, "required": required },
    });
    match serde_json::from_value(form) {
        Ok(form) => Some(form),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "a question could not be put into a form");
            None
        }
    }
}

/// A text with its control characters spelt out, and at most so long.
fn harmless(text: &str) -> String {
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == LONGEST {
            shown.push_str(" [cut]");
            break;
        }
        let is_plain = c == '\n' || !(c.is_control() || is_invisible(c));
        if is_plain { shown.push(c) } else { shown.extend(c.escape_unicode()) }
    }
    shown
}

/// Characters that change how others are read: marks of direction, and what has no width (E8).
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E8: what a model wrote moves no cursor and hides nothing.
    #[test]
    fn e8_nothing_invisible_is_shown_as_it_is() {
        assert_eq!(harmless("a\u{1b}[2Jb\u{202e}c\nd"), "a\\u{1b}[2Jb\\u{202e}c\nd");
        assert!(harmless(&"x".repeat(LONGEST + 1)).ends_with("x [cut]"));
    }
}
