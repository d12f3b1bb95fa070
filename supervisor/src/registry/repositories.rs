//! Tools that look at repositories. They run in the worker; here is what their calls need: to read, and nothing else.

use callgate_policy::need::CallNeeds;
use callgate_policy::plan::Work;
use callgate_policy::tool::Subject;
use callgate_worker::tools::git::{diff, status};
use callgate_worker::tools::overview;
use serde_json::Value;

use super::executor::{Context, InvalidArgument, Prepare, Prepared};
use super::files::file_tool;
use super::{RegistryError, Tool};

/// All of them.
pub(super) fn tools() -> Result<Vec<Tool>, RegistryError> {
    let contracts = [&status::CONTRACT, &diff::CONTRACT, &overview::CONTRACT];
    let tool = |contract: &'static callgate_worker::tools::Contract| {
        Ok(file_tool(contract, Look { tool: contract.name })?.subject(Subject::Search).side_by_side())
    };
    contracts.into_iter().map(tool).collect()
}

/// A look at a part of a tree.
struct Look {
    tool: &'static str,
}

impl Prepare for Look {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let path = if args.get("path").is_some() { context.path_argument(args, "path")? } else { context.root.clone() };
        // The repository of what lies in the workspace may lie above it, up to the workspace's own root.
        let is_inside = path.as_path().starts_with(context.root);
        let most = if is_inside && self.tool != overview::NAME { context.root.clone() } else { path.clone() };
        let needs = CallNeeds { read_below: vec![most.clone()], ..CallNeeds::default() };
        let work = Work::Tool { name: self.tool.to_owned(), paths: vec![path, most], limit: context.limit };
        Ok(Prepared::new(needs, Some(work), None))
    }
}
