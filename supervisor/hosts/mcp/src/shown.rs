//! Questions to a person at the client.

use callgate::{Inquiry, Query, Question, shown};
use rmcp::model::ElicitRequestParams;
use serde_json::{Value, json};

/// The field with the answer to a question about a call, and what it may say.
pub(crate) const ANSWER: &str = "answer";
pub(crate) const NO: &str = "no";
pub(crate) const ONCE: &str = "once";
pub(crate) const ALWAYS: &str = "always";
pub(crate) const WIDER: &str = "wider";
/// How wide a text is laid out, columns. Clients show it in panels of their own.
const COLUMNS: usize = 100;

/// The field with the answer to one of several questions of the agent's.
pub(crate) fn field(number: usize) -> String {
    format!("answer_{}", number + 1)
}

/// An option as it is given to choose: by its number, for what it says may be anything.
fn option(number: usize, label: &str) -> String {
    format!("{}. {}", number + 1, shown::escaped(label))
}

/// The label of the option that was chosen; other words are themselves.
pub(crate) fn chosen(query: &Query, said: &str) -> String {
    let mut options = query.options.iter().enumerate();
    let found = options.find(|(number, choice)| option(*number, &choice.label) == said);
    found.map_or_else(|| said.to_owned(), |(_, choice)| choice.label.clone())
}

/// Question whether a call may be made. The answers are words that say what they mean: clients of the older versions
/// show no titles.
pub(crate) fn approval(question: &Question) -> Option<ElicitRequestParams> {
    let text = shown::question(question, COLUMNS);
    let (mut answers, mut about) =
        (vec![NO, ONCE, ALWAYS], "no; once: this call alone; always: exactly this".to_owned());
    if question.wider.is_some() {
        answers.push(WIDER);
        about.push_str("; wider: and what is said above");
    }
    form(
        &text,
        &json!({ ANSWER: {
            "type": "string",
            "title": "Allow it?",
            "description": about,
            "enum": answers,
        } }),
        &[ANSWER.to_owned()],
    )
}

/// Questions of the agent's.
pub(crate) fn inquiry(inquiry: &Inquiry) -> Option<ElicitRequestParams> {
    let mut properties = serde_json::Map::new();
    for (number, query) in inquiry.questions.iter().enumerate() {
        let options: Vec<String> =
            query.options.iter().enumerate().map(|(number, choice)| option(number, &choice.label)).collect();
        let title = query.header.as_deref().unwrap_or("Question");
        let mut property = json!({ "title": shown::escaped(title), "description": shown::query(query, COLUMNS) });
        let kind = match (options.is_empty(), query.multi_select) {
            (true, _) => json!({ "type": "string" }),
            (false, false) => json!({ "type": "string", "enum": options }),
            (false, true) => json!({ "type": "array", "items": { "type": "string", "enum": options } }),
        };
        if let (Some(property), Value::Object(kind)) = (property.as_object_mut(), kind) {
            property.extend(kind);
        }
        properties.insert(field(number), property);
    }
    let required: Vec<String> = (0..inquiry.questions.len()).map(field).collect();
    form("The agent asks; what you answer is given to it.", &Value::Object(properties), &required)
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
