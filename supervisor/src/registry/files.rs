//! The file tools. They run in the worker; here is what their calls need.

use callgate_policy::call_grant::CallNeeds;
use callgate_policy::path::{HostPath, normalize};
use callgate_policy::pattern::PathTemplate;
use callgate_policy::plan::Work;
use callgate_policy::requirement::{FsRequirement, RequirementSet};
use callgate_worker::tools::{Contract, read as read_tool, write as write_tool};
use serde_json::Value;

use super::{Context, Implementation, InvalidArgument, Prepared, RegistryError, Tool};

/// `read` (S0-10): any file under the root.
pub(super) fn read() -> Result<Tool, RegistryError> {
    let fs = FsRequirement { read: vec![everything("read")?], ..FsRequirement::default() };
    file_tool(&read_tool::CONTRACT, "read", fs, &Read)
}

/// `write` (S0-11): create or overwrite under the root.
pub(super) fn write() -> Result<Tool, RegistryError> {
    let fs = FsRequirement { write: vec![everything("write")?], ..FsRequirement::default() };
    file_tool(&write_tool::CONTRACT, "edit", fs, &Write)
}

fn everything(tool: &'static str) -> Result<PathTemplate, RegistryError> {
    PathTemplate::parse("{workspace}/**").map_err(|e| RegistryError::Requires { tool, reason: e.to_string() })
}

fn file_tool(
    contract: &Contract,
    kind: &'static str,
    fs: FsRequirement,
    implementation: &'static dyn Implementation,
) -> Result<Tool, RegistryError> {
    let requires = RequirementSet { fs, ..RequirementSet::default() };
    Tool::new(contract.name, kind, (contract.description, contract.schema), requires, implementation)
}

struct Read;

impl Implementation for Read {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let needs = CallNeeds { read: vec![path(args, context)?], ..CallNeeds::default() };
        Ok(prepared("read", needs))
    }
}

struct Write;

impl Implementation for Write {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let needs = CallNeeds { write: vec![path(args, context)?], ..CallNeeds::default() };
        Ok(prepared("write", needs))
    }
}

fn prepared(name: &str, needs: CallNeeds) -> Prepared {
    Prepared { needs, work: Work::Tool { name: name.to_owned() }, timeout: None }
}

/// The `path` argument: text, or `{"b64": …}` for a name that is not UTF-8 (C-27).
fn path(args: &Value, context: &Context<'_>) -> Result<HostPath, InvalidArgument> {
    let bad = |reason: String| InvalidArgument { name: "path", reason };
    let given: HostPath = serde_json::from_value(args["path"].clone()).map_err(|e| bad(e.to_string()))?;
    normalize(context.root, &given).map_err(|e| bad(e.to_string()))
}
