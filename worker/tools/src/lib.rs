//! The tools, as they run inside an already confined worker.
//!
//! Nothing here decides what is allowed: the plan granted a path, the kernel holds the worker to it, and a tool does its
//! work or says which operation failed. What comes from the model (the arguments) and what lies in the workspace (the
//! files) are both hostile: a tool never blocks on what it opens, never holds more than its limit of a file in memory,
//! and never panics.
//!
//! Each tool's [`Contract`] stands beside its code, as data, so that the supervisor can list and validate a tool without
//! running it.
#![cfg_attr(
    not(all(feature = "databases", feature = "file-search", feature = "git", feature = "spreadsheets")),
    allow(dead_code, reason = "what only a tool that is left out uses")
)]
#![expect(clippy::disallowed_methods, reason = "they run in a worker, which may do what its call may")]

use callgate_policy::failure::ErrorCode;
use callgate_policy::plan::CallPlan;
use callgate_worker::toolset::{Given, ToolFailure, Toolset};
use serde_json::Value;

mod arguments;
mod context;
mod contract;
pub mod csv_tasks;
pub mod database;
pub mod diagnostics;
pub mod edit;
mod error;
mod file_kind;
#[cfg(feature = "file-search")]
pub mod file_search;
#[cfg(feature = "git")]
pub mod git;
pub mod glob;
pub mod grep;
pub mod list;
pub mod lsp;
mod message;
pub mod note;
pub mod numbered;
pub mod overview;
pub mod patch;
pub mod read;
pub mod read_csv;
#[cfg(feature = "spreadsheets")]
pub mod read_excel;
mod results;
mod search;
pub mod shell;
pub mod skill;
pub mod web;
pub mod workbook;
pub mod write;

pub use callgate_worker::toolset::{SyscallNeed, ToolResult};
pub use context::{LinkTreatment, ToolContext};
pub use contract::{Contract, FileNeed, Needs, Outside, ToolFunction};
pub use error::{FileAct, ToolError, ToolReason, is_refusal};
pub use file_kind::FileKind;
pub use results::{HEAD, name_path};
pub use search::{EXCLUDE, INCLUDE};

/// The tools that this module carries out.
pub const CONTRACTS: &[Contract] = &[
    read::CONTRACT,
    write::CONTRACT,
    edit::CONTRACT,
    patch::CONTRACT,
    note::CONTRACT,
    glob::CONTRACT,
    grep::CONTRACT,
    list::CONTRACT,
    #[cfg(feature = "file-search")]
    file_search::CONTRACT,
    #[cfg(feature = "spreadsheets")]
    read_excel::CONTRACT,
    read_csv::CONTRACT,
    web::fetch::CONTRACT,
    web::search::CONTRACT,
    #[cfg(feature = "git")]
    git::status::CONTRACT,
    #[cfg(feature = "git")]
    git::diff::CONTRACT,
    overview::CONTRACT,
    #[cfg(feature = "git")]
    diagnostics::CONTRACT,
    web::azure::CONTRACT,
    web::rlm::CONTRACT,
    lsp::CONTRACT,
];

/// The kind of the tool of this name; of one without a contract, which only the supervisor calls, [`SyscallNeed::Plain`].
#[must_use]
pub fn kind_of(name: &str) -> SyscallNeed {
    contract(name).map_or(SyscallNeed::Plain, |contract| contract.kind)
}

fn contract(name: &str) -> Option<&'static Contract> {
    CONTRACTS.iter().chain([&write::CREATE_CONTRACT]).chain(database::CONTRACTS).find(|contract| contract.name == name)
}

/// The tools of this crate, for a launcher.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn;

impl Toolset for BuiltIn {
    fn kind(&self, name: &str) -> SyscallNeed {
        kind_of(name)
    }

    fn run(&self, plan: &CallPlan, arguments: &Value, given: Given) -> Result<ToolResult, ToolFailure> {
        let Some((name, context)) = ToolContext::of(plan, given) else {
            let text = "the plan of a program".to_owned();
            return Err(ToolFailure { text, errno: None, code: ErrorCode::ToolExecutionFailed });
        };
        run(name, arguments, &context).map_err(ToolFailure::from)
    }
}

/// Runs the tool `name`.
///
/// # Errors
///
/// The operation that failed. Nothing was changed then, but for parent directories that `write` may have made.
pub fn run(name: &str, args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    ctx.refuse_links()?;
    if let Some(contract) = contract(name) {
        return (contract.run)(args, ctx);
    }
    match name {
        patch::READER => patch::read_names(args),
        database::sql::NAME => database::sql::run(args),
        shell::NAME => shell::run(args),
        skill::NAME => skill::run(args),
        csv_tasks::NAME => csv_tasks::run(args, ctx),
        _ => Err(ToolError::UnknownTool { name: name.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_policy::path::HostPath;
    use serde_json::json;

    #[test]
    fn contracts_are_closed_json_schemas_and_carry_the_locked_names() {
        for contract in CONTRACTS {
            let schema: Value = serde_json::from_str(contract.schema).expect("a schema is JSON");
            assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
            assert_eq!(schema["additionalProperties"], false, "{}", contract.name);
            let properties = schema["properties"].as_object().expect("properties");
            for (name, property) in properties {
                assert!(property["description"].is_string(), "{}: {name} has no description", contract.name);
            }
            for name in schema["required"].as_array().expect("required") {
                assert!(properties.contains_key(name.as_str().expect("a name")));
            }
            assert!(!contract.description.is_empty());
        }
        let names = [
            "read",
            "write",
            "edit",
            "apply_patch",
            "note",
            "glob",
            "grep",
            "list",
            "file_search",
            "read_excel",
            "read_csv",
        ];
        let others = [
            "web_fetch",
            "web_search",
            "git_status",
            "git_diff",
            "repo_overview",
            "diagnostics",
            "azure_devops",
            "rlm_query",
            "lsp",
        ];
        assert_eq!(CONTRACTS.iter().map(|c| c.name).collect::<Vec<_>>(), [&names[..], &others].concat());
        assert_eq!(read::CONTRACT.requires, ["fs.read"]); // S0-10
        assert_eq!(write::CONTRACT.requires, ["fs.write"]); // S0-11
        assert_eq!(edit::CONTRACT.requires, ["fs.read", "fs.write"]); // S0-12
        assert_eq!(patch::CONTRACT.requires, ["fs.read", "fs.write"]); // S0-25
        assert_eq!(glob::CONTRACT.requires, ["fs.read"]); // S0-13
        assert_eq!(grep::CONTRACT.requires, ["fs.read"]); // S0-14
        assert_eq!(web::fetch::CONTRACT.requires, ["net.fetch"]); // S0-20
        assert_eq!(web::search::CONTRACT.requires, ["net.fetch"]); // S0-19
    }

    #[test]
    fn an_unknown_tool_is_named() {
        let ctx = ToolContext::new(HostPath::from("/"), 10);
        let error = run("raed", &json!({}), &ctx).expect_err("no such tool");
        assert_eq!(error.text(), "unknown tool \"raed\"; call one of the tools that the registry lists");
        assert_eq!(error.errno(), None);
    }
}
