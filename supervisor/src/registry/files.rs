//! The file tools. They run in the worker; here is what their calls need.

use std::path::PathBuf;

use callgate_policy::call_grant::CallNeeds;
use callgate_policy::path::{HostPath, normalize};
use callgate_policy::pattern::PathTemplate;
use callgate_policy::plan::Work;
use callgate_policy::requirement::{FsRequirement, RequirementSet};
use callgate_worker::tools::{
    Contract, edit as edit_tool, glob as glob_tool, grep as grep_tool, read as read_tool, write as write_tool,
};
use serde_json::Value;

use super::{Context, Implementation, InvalidArgument, Prepared, RegistryError, Tool};

/// `read` (S0-10): any file under the root.
pub(super) fn read() -> Result<Tool, RegistryError> {
    Ok(file_tool(&read_tool::CONTRACT, "read", &Read)?.side_by_side())
}

/// `write` (S0-11): create or overwrite under the root.
pub(super) fn write() -> Result<Tool, RegistryError> {
    file_tool(&write_tool::CONTRACT, "edit", &Write)
}

/// `write` where it makes new files alone (S4-14): the same tool to whoever calls it, with another promise.
pub(super) fn create() -> Result<Tool, RegistryError> {
    Ok(Tool { id: "write", ..file_tool(&write_tool::CREATE_CONTRACT, "edit", &Create)? })
}

/// `edit` (S0-12): change a file that is there.
pub(super) fn edit() -> Result<Tool, RegistryError> {
    file_tool(&edit_tool::CONTRACT, "edit", &Edit)
}

/// `glob` (S0-13): list files.
pub(super) fn glob() -> Result<Tool, RegistryError> {
    Ok(file_tool(&glob_tool::CONTRACT, "search", &Glob)?.side_by_side())
}

/// `grep` (S0-14): search all files under the root.
pub(super) fn grep() -> Result<Tool, RegistryError> {
    Ok(file_tool(&grep_tool::CONTRACT, "search", &Grep)?.side_by_side())
}

/// A tool that asks for the whole workspace, in the ways that its contract says.
fn file_tool(
    contract: &'static Contract,
    kind: &'static str,
    implementation: &'static dyn Implementation,
) -> Result<Tool, RegistryError> {
    let everything = |capability: &str| -> Result<Vec<PathTemplate>, RegistryError> {
        let bad = |reason: String| RegistryError::Requires { tool: contract.name, reason };
        let wanted = contract.requires.contains(&capability).then(|| PathTemplate::parse("{workspace}/**"));
        Ok(wanted.transpose().map_err(|e| bad(e.to_string()))?.into_iter().collect())
    };
    let fs = FsRequirement { read: everything("fs.read")?, write: everything("fs.write")?, ..FsRequirement::default() };
    let requires = RequirementSet { fs, ..RequirementSet::default() };
    Tool::new(contract.name, kind, (contract.description, contract.schema), requires, implementation)
}

struct Read;

impl Implementation for Read {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let path = path(args, context)?;
        let needs = CallNeeds { read: vec![path.clone()], ..CallNeeds::default() };
        Ok(prepared("read", needs, path, context))
    }
}

struct Write;

impl Implementation for Write {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let path = path(args, context)?;
        let needs = CallNeeds { write: vec![path.clone()], ..CallNeeds::default() };
        Ok(prepared("write", needs, path, context))
    }
}

struct Create;

impl Implementation for Create {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let path = path(args, context)?;
        let needs = CallNeeds { write: vec![path.clone()], ..CallNeeds::default() };
        Ok(prepared(write_tool::CREATE, needs, path, context))
    }
}

struct Edit;

impl Implementation for Edit {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let path = path(args, context)?;
        let needs = CallNeeds { read: vec![path.clone()], write: vec![path.clone()], ..CallNeeds::default() };
        Ok(prepared("edit", needs, path, context))
    }
}

struct Glob;

impl Implementation for Glob {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        search("glob", args, context)
    }
}

struct Grep;

impl Implementation for Grep {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        search("grep", args, context)
    }
}

/// What lies above a search and says which files it leaves out, as ripgrep reads it.
const IGNORE_FILES: [&str; 4] = [".gitignore", ".ignore", ".rgignore", ".git/info/exclude"];

/// A search needs all that was granted of a tree.
fn search(name: &str, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
    let path = if args.get("path").is_some() { path(args, context)? } else { context.root.clone() };
    let above = path.as_path().ancestors().skip(1);
    let ignore = above.flat_map(|dir| IGNORE_FILES.map(|name| HostPath::from(PathBuf::from(dir).join(name)))).collect();
    let needs = CallNeeds { read_below: vec![path.clone()], read_if_granted: ignore, ..CallNeeds::default() };
    Ok(prepared(name, needs, path, context))
}

fn prepared(name: &str, needs: CallNeeds, path: HostPath, context: &Context<'_>) -> Prepared {
    let work = Work::Tool { name: name.to_owned(), path, limit: context.limit };
    Prepared { needs, work, timeout: None }
}

/// The `path` argument: text, or `{"b64": …}` for a name that is not UTF-8 (C-27).
fn path(args: &Value, context: &Context<'_>) -> Result<HostPath, InvalidArgument> {
    let bad = |reason: String| InvalidArgument { name: "path", reason };
    let given: HostPath = serde_json::from_value(args["path"].clone()).map_err(|e| bad(e.to_string()))?;
    normalize(context.root, &given).map_err(|e| bad(e.to_string()))
}
