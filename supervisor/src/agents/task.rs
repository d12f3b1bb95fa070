//! `task` (S0-17, S0-30, X0-20): hands work to a subagent. What starts it is in `life.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use callgate_policy::manifest::Agent;
use serde_json::{Value, json};

use crate::bounds::{AGENT_DEPTH_MAX, AGENTS_MAX, FAMILY_MAX};
use crate::registry::acts::Delegation;
use crate::registry::executor::{Executor, HostTool};
use crate::registry::{RegistryError, Tool};

/// How long a subagent may take.
const TIMEOUT: Duration = Duration::from_secs(60 * 60);

const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "subagent_type": { "type": "string", "description": "The subagent's name." },
    "prompt": { "type": "string", "minLength": 1, "description": "What it is to do, with all that it needs to know." },
    "background": {
      "type": "boolean",
      "description": "Return at once with its `session_id`; its answer comes later, as a message of its own. Default false."
    },
    "metadata": { "type": "object", "description": "Passed on to whoever runs the subagent." }
  },
  "required": ["subagent_type", "prompt"],
  "additionalProperties": false
}"#;

const OUTPUT: &str = r#"{
  "type": "object",
  "properties": {
    "output": { "type": "string", "description": "The subagent's answer." },
    "session_id": { "type": "string", "description": "Its session, if it runs in the background or can be inspected." },
    "notes": { "type": "array", "items": { "type": "string" }, "description": "What its program changed or was refused." }
  }
}"#;

/// The tool, with the agents that it can start.
pub(crate) fn task(agents: &BTreeMap<String, Agent>) -> Result<Tool, RegistryError> {
    let listed = listed(agents);
    let description = format!(
        "Hand a task to a subagent, which works in a session of its own with at most this session's rights, and returns its \
         answer. At most {AGENTS_MAX} subagents of a session are in flight at once, they are nested at most \
         {AGENT_DEPTH_MAX} deep, and {FAMILY_MAX} are in flight together. Calls of the same message that only read run beside \
         them. There are:{listed}"
    );
    let key = key(agents);
    let tool = Tool::bundled("task", ("", SCHEMA, OUTPUT), Executor::Host(HostTool::Delegate(Delegation::Task)));
    // What subagents change, they change in their own sessions, each one thing at a time.
    Ok(tool.description(description).side_by_side().timeout(TIMEOUT).approval_key(key))
}

/// Those that can be started, a line each.
pub(super) fn listed(agents: &BTreeMap<String, Agent>) -> String {
    let subagents = agents.iter().filter(|(_, agent)| agent.mode.is_subagent());
    subagents.map(|(name, agent)| format!("\n- {name}: {}", agent.description)).collect()
}

/// Key that a person's "always" is kept for. Whoever said it of an agent has seen its program, and did not say it of
/// another.
pub(super) fn key(agents: &BTreeMap<String, Agent>) -> impl Fn(&Value) -> String + Send + Sync + Clone + 'static {
    let runners: BTreeMap<String, String> = agents
        .iter()
        .filter(|(_, agent)| !agent.runner.is_empty())
        .map(|(name, agent)| (name.clone(), json!(agent.runner).to_string()))
        .collect();
    move |args: &Value| {
        let name = args["subagent_type"].as_str().unwrap_or_default();
        runners.get(name).map_or_else(|| name.to_owned(), |runner| format!("{name}: {runner}"))
    }
}
