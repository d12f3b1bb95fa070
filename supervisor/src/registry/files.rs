//! The file tools. They run in the worker; here is what their calls need.

use std::path::PathBuf;
use std::sync::Arc;
#[cfg(feature = "spreadsheets")]
use std::time::Duration;

#[cfg(feature = "spreadsheets")]
use callgate_policy::limit::Limits;
use callgate_policy::need::CallNeeds;
use callgate_policy::path::HostPath;
use callgate_policy::pattern::PathTemplate;
use callgate_policy::plan::Work;
use callgate_policy::requirement::{FsRequirement, RequirementSet};
use callgate_policy::tool::Subject;
#[cfg(feature = "spreadsheets")]
use callgate_policy::unit::ByteSize;
use callgate_tools::{
    Contract, edit as edit_tool, glob as glob_tool, grep as grep_tool, list as list_tool, note as note_tool,
    read as read_tool, write as write_tool,
};
use serde_json::Value;

use super::executor::Executor;
use super::kin::Kin;
use super::prepare::{Context, InvalidArgument, Prepare, Prepared};
use super::{RegistryError, Tool};

/// `read` (S0-10): any file under the root.
pub(super) fn read() -> Result<Tool, RegistryError> {
    Ok(file_tool(&read_tool::CONTRACT, Read)?.side_by_side())
}

/// `write` (S0-11): create or overwrite under the root.
pub(super) fn write() -> Result<Tool, RegistryError> {
    file_tool(&write_tool::CONTRACT, Write)
}

/// `write` where it makes new files alone (S4-14): the same tool to whoever calls it, with another promise.
pub(super) fn create() -> Result<Tool, RegistryError> {
    file_tool(&write_tool::CREATE_CONTRACT, Create)
}

/// `edit` (S0-12): change a file that is there.
pub(super) fn edit() -> Result<Tool, RegistryError> {
    file_tool(&edit_tool::CONTRACT, Edit)
}

/// `note` (S2-20): add to the workspace's notes.
pub(super) fn note() -> Result<Tool, RegistryError> {
    Ok(file_tool(&note_tool::CONTRACT, Note)?.subject(Subject::Edit).kin(&[Kin::Write, Kin::Edit]))
}

/// `glob` (S0-13): list files.
pub(super) fn glob() -> Result<Tool, RegistryError> {
    Ok(file_tool(&glob_tool::CONTRACT, Glob)?.side_by_side())
}

/// `grep` (S0-14): search all files under the root.
pub(super) fn grep() -> Result<Tool, RegistryError> {
    Ok(file_tool(&grep_tool::CONTRACT, Grep)?.side_by_side())
}

/// `list` (S4-6): what is in a directory.
pub(super) fn list() -> Result<Tool, RegistryError> {
    Ok(file_tool(&list_tool::CONTRACT, List)?.subject(Subject::Search).side_by_side().kin(&[Kin::Glob]))
}

/// `file_search` (S2-8): files by names that are like a query.
#[cfg(feature = "file-search")]
pub(super) fn file_search() -> Result<Tool, RegistryError> {
    Ok(file_tool(&callgate_tools::file_search::CONTRACT, FileSearch)?
        .subject(Subject::Search)
        .side_by_side()
        .kin(&[Kin::Glob]))
}

/// `read_excel` (S4-7): a spreadsheet. Its parser has bounds of its own.
#[cfg(feature = "spreadsheets")]
pub(super) fn read_excel() -> Result<Tool, RegistryError> {
    let limits = Limits { memory: Some(WORKBOOK_MEMORY), ..Limits::default() };
    let tool = file_tool(&callgate_tools::read_excel::CONTRACT, ReadExcel)?.subject(Subject::Read).side_by_side();
    Ok(tool.limits(limits).timeout(WORKBOOK_TIME).kin(&[Kin::Read]))
}

/// Memory that the largest workbook takes that the worker reads, bytes.
#[cfg(feature = "spreadsheets")]
const WORKBOOK_MEMORY: ByteSize = ByteSize(2 << 30);
/// Time that it takes.
#[cfg(feature = "spreadsheets")]
const WORKBOOK_TIME: Duration = Duration::from_secs(60);

/// Requirement of a tool that may read any file of the workspace.
pub(super) fn reads_everything(tool: &str) -> Result<FsRequirement, RegistryError> {
    let bad = |reason: String| RegistryError::Requires { tool: tool.to_owned(), reason };
    let everything = PathTemplate::parse("{workspace}/**").map_err(|e| bad(e.to_string()))?;
    Ok(FsRequirement { read: vec![everything], ..FsRequirement::default() })
}

/// A tool that asks for the whole workspace, in the ways that its contract says.
pub(super) fn file_tool(contract: &'static Contract, prepare: impl Prepare + 'static) -> Result<Tool, RegistryError> {
    let everything = |capability: &str| -> Result<Vec<PathTemplate>, RegistryError> {
        let bad = |reason: String| RegistryError::Requires { tool: contract.name.to_owned(), reason };
        let wanted = contract.requires.contains(&capability).then(|| PathTemplate::parse("{workspace}/**"));
        Ok(wanted.transpose().map_err(|e| bad(e.to_string()))?.into_iter().collect())
    };
    let fs = FsRequirement { read: everything("fs.read")?, write: everything("fs.write")?, ..FsRequirement::default() };
    let requires = RequirementSet { fs, ..RequirementSet::default() };
    let texts = (contract.description, contract.schema, contract.output);
    // The one that makes new files alone is the same tool to whoever calls it.
    let name = if contract.name == write_tool::CREATE { write_tool::CONTRACT.name } else { contract.name };
    Ok(Tool::bundled(name, texts, Executor::Worker(Arc::new(prepare)))?.requires(requires))
}

struct Read;

impl Prepare for Read {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let path = context.path_argument(args, "path")?;
        let needs = CallNeeds { read: vec![path.clone()], ..CallNeeds::default() };
        Ok(prepared("read", needs, path, context))
    }
}

#[cfg(feature = "spreadsheets")]
struct ReadExcel;

#[cfg(feature = "spreadsheets")]
impl Prepare for ReadExcel {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let path = context.path_argument(args, "path")?;
        let needs = CallNeeds { read: vec![path.clone()], ..CallNeeds::default() };
        Ok(prepared("read_excel", needs, path, context))
    }
}

struct Write;

impl Prepare for Write {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let path = context.path_argument(args, "path")?;
        let needs = CallNeeds { write: vec![path.clone()], ..CallNeeds::default() };
        Ok(prepared("write", needs, path, context))
    }
}

struct Create;

impl Prepare for Create {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let path = context.path_argument(args, "path")?;
        let needs = CallNeeds { write: vec![path.clone()], ..CallNeeds::default() };
        Ok(prepared(write_tool::CREATE, needs, path, context))
    }
}

struct Edit;

impl Prepare for Edit {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let path = context.path_argument(args, "path")?;
        let needs = CallNeeds { read: vec![path.clone()], write: vec![path.clone()], ..CallNeeds::default() };
        Ok(prepared("edit", needs, path, context))
    }
}

struct Note;

impl Prepare for Note {
    fn prepare(&self, _: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let path = HostPath::from(context.root.as_path().join(note_tool::FILE));
        let needs = CallNeeds { read: vec![path.clone()], write: vec![path.clone()], ..CallNeeds::default() };
        Ok(prepared("note", needs, path, context))
    }
}

struct Glob;

impl Prepare for Glob {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        search("glob", args, context)
    }
}

struct Grep;

impl Prepare for Grep {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        search("grep", args, context)
    }
}

struct List;

impl Prepare for List {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        search("list", args, context)
    }
}

#[cfg(feature = "file-search")]
struct FileSearch;

#[cfg(feature = "file-search")]
impl Prepare for FileSearch {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        search("file_search", args, context)
    }
}

/// Files above a search that say which files it leaves out, as ripgrep reads it.
const IGNORE_FILES: [&str; 4] = [".gitignore", ".ignore", ".rgignore", ".git/info/exclude"];

/// A search needs all that was granted of a tree.
fn search(name: &str, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
    let path = if args.get("path").is_some() { context.path_argument(args, "path")? } else { context.root.clone() };
    let above = path.as_path().ancestors().skip(1);
    let ignore = above.flat_map(|dir| IGNORE_FILES.map(|name| HostPath::from(PathBuf::from(dir).join(name)))).collect();
    let needs = CallNeeds { read_below: vec![path.clone()], read_if_granted: ignore, ..CallNeeds::default() };
    Ok(prepared(name, needs, path, context))
}

fn prepared(name: &str, needs: CallNeeds, path: HostPath, context: &Context<'_>) -> Prepared {
    let work = Work::Tool { name: name.to_owned(), paths: vec![path], limit: context.limit };
    Prepared::new(needs, Some(work), None)
}
