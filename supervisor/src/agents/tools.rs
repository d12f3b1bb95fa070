//! S2's tools about subagents (S2-21, X2-19): their contracts. What they do is in `calls.rs`, over the way of `task`.

use std::collections::BTreeMap;

use callgate_policy::manifest::Agent;
use callgate_policy::tool::Subject;
use serde_json::Value;

use super::task::{key, listed};
use crate::bounds::{AGENTS_MAX, CSV_WORKERS_MAX, ROWS_MAX, SWARM_MAX};
use crate::registry::acts::{AgentsAct, Delegation};
use crate::registry::executor::{Executor, HostTool};
use crate::registry::{RegistryError, Tool};

/// By which a subagent reads what its parent sends it.
pub(crate) const INBOX: &str = "agent_inbox";
/// By which one that works on a row says what came of it.
pub(crate) const REPORT: &str = "report_agent_job_result";

/// All names, in the order in which they are listed.
pub(crate) const NAMES: [&str; 13] = [
    "agent_spawn",
    "agent_swarm",
    "spawn_agents_on_csv",
    "agent_result",
    "swarm_result",
    "swarm_status",
    "agent_wait",
    "agent_send_input",
    "agent_assign",
    "agent_cancel",
    "resume_agent",
    "agent_list",
    REPORT,
];

/// The parameters that say which agent, and with which tools.
const WHICH: &str = r#"
    "type": {
      "type": "string", "minLength": 1, "maxLength": 64, "default": "general",
      "description": "Which agent: general, explore, plan, review, custom, or another name of the list. Default general. Without an agent of that name, general and custom are the first of the list, and the others are an error. custom needs allowed_tools."
    },
    "allowed_tools": {
      "type": "array", "maxItems": 200, "items": { "type": "string", "minLength": 1, "maxLength": 64 },
      "description": "The only tools that it gets, of those that it would get. Default: all of those."
    }"#;

const AGENT_ID: &str = r#""agent_id": { "type": "string", "minLength": 1, "maxLength": 64, "description": "As agent_spawn returned it." }"#;

const SWARM_ID: &str = r#""swarm_id": { "type": "string", "minLength": 1, "maxLength": 64, "description": "As agent_swarm or spawn_agents_on_csv returned it." }"#;

const BLOCK: &str = r#"
    "block": { "type": "boolean", "default": true, "description": "Whether to wait for the end. Default true." },
    "timeout_ms": { "type": "integer", "default": 30000, "description": "How long to wait at most, milliseconds, from 1000 to 3600000. Default 30000." }"#;

/// Schema of what is known of an agent.
const ONE: &str = r#"
    "agent_id": { "type": "string" },
    "type": { "type": "string", "description": "The agent's name in the manifest." },
    "status": { "enum": ["Pending", "Running", "Completed", "Failed", "Cancelled", "Interrupted"] },
    "session_id": { "type": "string" },
    "prompt": { "type": "string", "description": "The beginning of its task." },
    "runs": { "type": "integer", "description": "How often it was started." },
    "duration_ms": { "type": "integer" },
    "takes_input": { "type": "boolean", "description": "Whether it can read what agent_send_input sends." },
    "unread_messages": { "type": "integer" },
    "swarm_id": { "type": "string" },
    "item_id": { "type": "string" },
    "output": { "type": "string", "description": "Its answer." },
    "output_len": { "type": "integer", "description": "Bytes of the whole answer." },
    "truncated": { "type": "boolean", "description": "The answer is longer than what is kept." },
    "result": { "description": "What it reported of its row." },
    "error": { "type": "string", "description": "Why it has no answer." },
    "timed_out": { "type": "boolean", "description": "It has not ended yet." },
    "delivered": { "enum": ["queued", "started"] }"#;

const MESSAGE: &str =
    r#""message": { "type": "string", "minLength": 1, "maxLength": 262144, "description": "What to tell it." }"#;

fn object(properties: &[&str], required: &[&str]) -> String {
    let required: Vec<String> = required.iter().map(|name| format!("\"{name}\"")).collect();
    format!(
        "{{ \"$schema\": \"https://json-schema.org/draft/2020-12/schema\", \"type\": \"object\", \"properties\": {{ {} }}, \
         \"required\": [{}], \"additionalProperties\": false }}",
        properties.join(","),
        required.join(", ")
    )
}

/// A result is described, and not closed.
fn result(properties: &[&str]) -> String {
    format!("{{ \"type\": \"object\", \"properties\": {{ {} }} }}", properties.join(","))
}

/// Those that start subagents, and those about subagents that were started.
pub(crate) fn tools(agents: &BTreeMap<String, Agent>) -> Result<Vec<Tool>, RegistryError> {
    let mut tools = starters(agents)?;
    tools.extend(others()?);
    tools.sort_by_key(|tool| NAMES.iter().position(|name| *name == tool.name));
    Ok(tools)
}

fn starters(agents: &BTreeMap<String, Agent>) -> Result<Vec<Tool>, RegistryError> {
    let cap = format!("At most {AGENTS_MAX} are in flight at once; only those that run count.");
    let there = format!(" There are:{}", listed(agents));
    let key = key(agents);
    let one = result(&[ONE]);
    let swarm = result(&[SWARM]);
    let starts = |how, name, about: String, (parameters, output): (String, &str)| -> Result<Tool, RegistryError> {
        let tool = Tool::written(name, (&about, &parameters, output), Executor::Host(HostTool::Delegate(how)))?;
        let key = key.clone();
        // As `task`: what subagents change, they change in their own sessions.
        Ok(tool.subject(Subject::Delegate).side_by_side().approval_key(move |args: &Value| {
            // A yes to fewer tools, or to one file, is none to others.
            let more = ["csv_path", "allowed_tools"].iter().filter_map(|name| args.get(name));
            more.fold(key(args), |key, value| format!("{key}: {value}"))
        }))
    };
    let prompt = r#""prompt": { "type": "string", "minLength": 1, "maxLength": 262144, "description": "What it is to do, with all that it needs to know." }"#;
    let tasks = format!(
        r#""tasks": {{
          "type": "array", "minItems": 1, "maxItems": {SWARM_MAX},
          "items": {{
            "type": "object",
            "properties": {{
              "id": {{ "type": "string", "minLength": 1, "maxLength": 64 }},
              "prompt": {{ "type": "string", "minLength": 1, "maxLength": 262144 }}
            }},
            "required": ["prompt"], "additionalProperties": false
          }},
          "description": "What each of them is to do, and perhaps an id by which the results name it. Default ids: 1, 2, …"
        }}"#
    );
    let csv = format!(
        r#""csv_path": {{
          "type": ["string", "object"], "minLength": 1,
          "properties": {{ "b64": {{ "type": "string", "minLength": 1 }} }}, "required": ["b64"], "additionalProperties": false,
          "description": "The CSV file, absolute or relative to the workspace. Its first line names the columns. At most {ROWS_MAX} rows."
        }},
        "instruction": {{ "type": "string", "minLength": 1, "maxLength": 65536, "description": "What each agent is to do. {{column}} stands for the row's value in that column, {{{{ for a brace." }},
        "id_column": {{ "type": "string", "minLength": 1, "maxLength": 256, "description": "The column whose values are the ids of the rows. Default: rows are numbered from 1." }},
        "max_concurrency": {{ "type": "integer", "minimum": 1, "maximum": {CSV_WORKERS_MAX}, "default": {CSV_WORKERS_MAX}, "description": "How many work at once. Default {CSV_WORKERS_MAX}." }},
        "max_runtime_seconds": {{ "type": "integer", "minimum": 1, "maximum": 1800, "default": 1800, "description": "How long each may take. Default 1800." }}"#
    );
    Ok(vec![
        starts(
            Delegation::Spawn,
            "agent_spawn",
            format!(
                "Start a subagent in the background, which works in a session of its own with at most this session's rights. Returns \
                 its agent_id at once; agent_result returns its answer. {cap}{there}"
            ),
            (object(&[prompt, WHICH], &["prompt"]), &one),
        )?,
        starts(
            Delegation::Swarm,
            "agent_swarm",
            format!(
                "Start a subagent for each of several tasks, in the background. Returns a swarm_id at once; swarm_result returns the \
                 answers. {cap} The others wait for their places.{there}"
            ),
            (object(&[&tasks, WHICH], &["tasks"]), &swarm),
        )?,
        starts(
            Delegation::Csv,
            "spawn_agents_on_csv",
            format!(
                "Start a subagent for each row of a CSV file, in the background, at most {CSV_WORKERS_MAX} at once. Returns a job_id at \
                 once, which swarm_status and swarm_result take as swarm_id.{there}"
            ),
            (object(&[&csv, WHICH], &["csv_path", "instruction"]), &swarm),
        )?,
        starts(
            Delegation::Input,
            "agent_send_input",
            format!(
                "Send a message to a subagent that runs. It is kept for the agent until that reads it, with its tool {INBOX}. One \
                 without that tool takes none."
            ),
            (object(&[AGENT_ID, MESSAGE], &["agent_id", "message"]), &one),
        )?,
        starts(
            Delegation::Assign,
            "agent_assign",
            format!(
                "Give a subagent a new task. One that runs gets it as a message; one that has ended is started again, with this task. \
                 {cap}"
            ),
            (object(&[AGENT_ID, prompt], &["agent_id", "prompt"]), &one),
        )?,
        starts(
            Delegation::Resume,
            "resume_agent",
            format!(
                "Start a subagent that has ended once more. It is told its task, how it ended and what it answered, and `message`. {cap}"
            ),
            (object(&[AGENT_ID, MESSAGE], &["agent_id"]), &one),
        )?,
    ])
}

/// Schema of what is known of several.
const SWARM: &str = r#"
    "swarm_id": { "type": "string" },
    "job_id": { "type": "string", "description": "The same, of a CSV." },
    "status": { "enum": ["Running", "Ended"] },
    "total": { "type": "integer" },
    "counts": { "type": "object", "description": "How many have each status." },
    "agents": { "type": "array", "items": { "type": "object" } },
    "timed_out": { "type": "boolean" }"#;

fn others() -> Result<Vec<Tool>, RegistryError> {
    let about = |act, name, about: &str, (parameters, output): (String, String)| -> Result<Tool, RegistryError> {
        Tool::written(name, (about, &parameters, &output), Executor::Host(HostTool::Agents(act)))
    };
    let looks = |tool: Tool| tool.subject(Subject::Think).side_by_side().ungated();
    let agents = r#""agents": { "type": "array", "items": { "type": "object" } }"#;
    let wait = r#"
        "ids": { "type": "array", "maxItems": 64, "items": { "type": "string", "minLength": 1, "maxLength": 64 }, "description": "Which agents, by their agent_id. Default: all that have not ended." },
        "wait_mode": { "enum": ["any", "all"], "default": "any", "description": "Whether to wait until one of them has ended, or all. Default any." },
        "timeout_ms": { "type": "integer", "default": 30000, "description": "How long to wait at most, milliseconds, from 10000 to 3600000. Default 30000." }"#;
    let report = r#"
        "job_id": { "type": "string", "minLength": 1, "maxLength": 64, "description": "As the task said." },
        "item_id": { "type": "string", "minLength": 1, "maxLength": 256, "description": "As the task said." },
        "result": { "type": "object", "description": "What came of the row." },
        "stop": { "type": "boolean", "default": false, "description": "Start no more rows of the job. Default false." }"#;
    let ended = "Of those that have ended the last 64 are remembered.";
    Ok(vec![
        looks(about(
            AgentsAct::Result,
            "agent_result",
            "Return a subagent's answer, or why it has none. With `block` it waits for the agent's end, at most for `timeout_ms`.",
            (object(&[AGENT_ID, BLOCK], &["agent_id"]), result(&[ONE])),
        )?),
        looks(about(
            AgentsAct::SwarmResult,
            "swarm_result",
            "Return the answers of a swarm or of a CSV's agents. With `block` it waits until all have ended, at most for `timeout_ms`.",
            (object(&[SWARM_ID, BLOCK], &["swarm_id"]), result(&[SWARM])),
        )?),
        looks(about(
            AgentsAct::SwarmStatus,
            "swarm_status",
            "Tell how far a swarm or a CSV's agents are, without their answers.",
            (object(&[SWARM_ID], &["swarm_id"]), result(&[SWARM])),
        )?),
        looks(about(
            AgentsAct::Wait,
            "agent_wait",
            "Wait until one of several subagents has ended, or all of them, and tell how far each is.",
            (object(&[wait], &[]), result(&[agents, r#""timed_out": { "type": "boolean" }"#])),
        )?),
        about(
            AgentsAct::Cancel,
            "agent_cancel",
            &format!(
                "End a subagent with all that it has started, and tell how far it came. One that has ended is forgotten, and nothing \
                 else changes. {ended}"
            ),
            (object(&[AGENT_ID], &["agent_id"]), result(&[ONE])),
        )?
        .subject(Subject::Note)
        .ungated(),
        looks(about(
            AgentsAct::List,
            "agent_list",
            &format!("List the subagents that were started in this session, and how far they are. {ended}"),
            (
                object(&[], &[]),
                result(&[agents, r#""running": { "type": "integer" }, "max_running": { "type": "integer" }"#]),
            ),
        )?),
        about(
            AgentsAct::Report,
            REPORT,
            "Report what came of the row that you are working on. Only an agent of spawn_agents_on_csv can, and only of its own row.",
            (object(&[report], &["job_id", "item_id", "result"]), result(&[r#""recorded": { "type": "boolean" }"#])),
        )?
        .subject(Subject::Note)
        .ungated(),
    ])
}

/// Tool by which a subagent reads what was sent to it.
pub(crate) fn inbox() -> Result<Tool, RegistryError> {
    let parameters = object(
        &[
            r#""timeout_ms": { "type": "integer", "default": 0, "description": "How long to wait for a message, milliseconds, up to 600000. Default 0." }"#,
        ],
        &[],
    );
    let output = result(&[r#""messages": { "type": "array", "items": { "type": "string" } }"#]);
    let about = "Return what whoever started you has sent you since you last looked. Look now and then: a message may change your task.";
    let tool = Tool::written(INBOX, (about, &parameters, &output), Executor::Host(HostTool::Agents(AgentsAct::Inbox)))?;
    Ok(tool.subject(Subject::Think).side_by_side().ungated())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use callgate_policy::manifest::{Format, Manifest};

    use super::*;

    /// S2-21, S2-22: all names of the family, and the caps in the descriptions.
    #[test]
    fn s2_21_s2_22_all_are_there_and_the_descriptions_say_how_many() {
        let text = "[agents.general]\ndescription = \"works\"\nrunner = [\"cat\"]\n";
        let manifest = Manifest::parse(text, Format::Toml, "m").unwrap();
        let tools = tools(&manifest.agents).unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, NAMES);
        for (name, cap) in [
            ("agent_spawn", "At most 5 are in flight"),
            ("agent_swarm", "At most 5 are in flight"),
            ("spawn_agents_on_csv", "at most 16 at once"),
        ] {
            let tool = tools.iter().find(|tool| tool.name == name).unwrap();
            assert!(tool.description.contains(cap) && tool.description.contains("- general: works"), "{tool:?}");
        }
    }
    /// A yes that is kept is for the program, the tools and the file that a person saw.
    #[test]
    fn an_always_is_for_one_file_and_these_tools() {
        let text = "[agents.general]\ndescription = \"works\"\nrunner = [\"cat\"]\n";
        let manifest = Manifest::parse(text, Format::Toml, "m").unwrap();
        let tools = tools(&manifest.agents).unwrap();
        let key = |name: &str, more: Value| {
            let mut args = serde_json::json!({ "subagent_type": "general", "prompt": "x" });
            args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            tools.iter().find(|tool| tool.name == name).unwrap().key_of.as_ref().unwrap()(&args)
        };
        let csv = |path: &str| key("spawn_agents_on_csv", serde_json::json!({ "csv_path": path }));
        assert_eq!(csv("a.csv"), csv("a.csv"));
        assert_ne!(csv("a.csv"), csv("b.csv"));
        let all = key("agent_spawn", serde_json::json!({}));
        assert_eq!(all, "general: [\"cat\"]");
        assert_ne!(all, key("agent_spawn", serde_json::json!({ "allowed_tools": ["read"] })));
    }
}
