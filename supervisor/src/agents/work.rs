//! Work that a call hands to a subagent, as rules and people see it.

use callgate_policy::delegated::{AgentPrompt, DelegatedWork};
use serde_json::{Map, Value};

use crate::registry::{Delegation, TASKS};

/// Work of a call that has an agent work. `told` is found in the call by a surface, besides its arguments; `before` is the task of an
/// agent that is to go on.
pub(crate) fn work_of(
    (how, agent): (Delegation, &str),
    (args, told): (&Value, &Map<String, Value>),
    before: Option<String>,
) -> DelegatedWork {
    let texts = |texts: Vec<&str>| texts.into_iter().map(|text| AgentPrompt::Text(text.to_owned())).collect();
    let text = |name: &str| texts(args[name].as_str().into_iter().collect());
    let prompts = match how {
        Delegation::Task => match told.get(TASKS).and_then(Value::as_array) {
            Some(tasks) => texts(tasks.iter().filter_map(Value::as_str).collect()),
            None => text("prompt"),
        },
        Delegation::Spawn | Delegation::Assign => text("prompt"),
        Delegation::Swarm => texts(tasks_of(args).filter_map(|task| task["prompt"].as_str()).collect()),
        Delegation::Csv => vec![AgentPrompt::Rows {
            instruction: args["instruction"].as_str().unwrap_or_default().to_owned(),
            // It reports by the row's id, which its prompt says.
            is_named: args["id_column"].is_string(),
        }],
        Delegation::Input => text("message"),
        Delegation::Resume => {
            let before = before.as_deref().into_iter();
            texts(before.chain(args["message"].as_str()).collect())
        }
    };
    DelegatedWork { agent: agent.to_owned(), prompts, settings: settings_of(how, args) }
}

fn tasks_of(args: &Value) -> impl Iterator<Item = &Value> {
    args["tasks"].as_array().into_iter().flatten()
}

/// The arguments that are neither the agent nor a prompt, and say something.
fn settings_of(how: Delegation, args: &Value) -> Map<String, Value> {
    let is_prompt = |name: &str| match how {
        Delegation::Task | Delegation::Spawn | Delegation::Assign => name == "prompt",
        Delegation::Swarm => name == "tasks",
        Delegation::Csv => name == "instruction",
        Delegation::Resume | Delegation::Input => name == "message",
    };
    let says_nothing =
        |name: &str, value: &Value| value.is_null() || (name == "background" && *value == Value::Bool(false));
    let all = args.as_object().into_iter().flatten();
    let others = all.filter(|(name, value)| {
        !is_prompt(name) && !matches!(name.as_str(), "subagent_type" | "type") && !says_nothing(name, value)
    });
    let mut settings: Map<String, Value> = others.map(|(name, value)| (name.clone(), value.clone())).collect();
    if how == Delegation::Swarm && tasks_of(args).any(|task| task["id"].is_string()) {
        settings.insert("ids".to_owned(), tasks_of(args).map(|task| task["id"].clone()).collect());
    }
    settings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Each argument is the agent, a prompt or a setting: nothing that a call says is lost.
    #[test]
    fn what_is_no_prompt_is_a_setting() {
        for (how, args, settings) in [
            (Delegation::Task, json!({ "subagent_type": "a", "prompt": "x", "background": false }), json!({})),
            (
                Delegation::Task,
                json!({ "subagent_type": "a", "prompt": "x", "background": true, "metadata": { "k": 1 } }),
                json!({ "background": true, "metadata": { "k": 1 } }),
            ),
            (
                Delegation::Spawn,
                json!({ "type": "a", "prompt": "x", "allowed_tools": ["read"], "message": "y" }),
                json!({ "allowed_tools": ["read"], "message": "y" }),
            ),
            (
                Delegation::Swarm,
                json!({ "tasks": [{ "prompt": "x" }, { "id": "i", "prompt": "y" }] }),
                json!({ "ids": [null, "i"] }),
            ),
            (
                Delegation::Csv,
                json!({ "csv_path": "f", "instruction": "x", "id_column": "c" }),
                json!({ "csv_path": "f", "id_column": "c" }),
            ),
            (Delegation::Resume, json!({ "agent_id": "i", "message": "x" }), json!({ "agent_id": "i" })),
        ] {
            assert_eq!(Value::Object(settings_of(how, &args)), settings, "{how:?} {args}");
        }
    }
}
