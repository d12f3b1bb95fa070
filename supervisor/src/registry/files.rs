//! The file tools. They run in the worker; their contracts say what their calls need.

use std::path::PathBuf;

use callgate_policy::effect::{Effect, EffectKind, Effects, FileScope, WriteKind};
use callgate_policy::limit::Limits;
use callgate_policy::path::HostPath;
use callgate_policy::pattern::PathTemplate;
use callgate_policy::plan::CallWork;
use callgate_policy::requirement::{FsRequirement, RequirementSet};
use callgate_policy::tool::Subject;
use callgate_tools::{CONTRACTS, Contract, Needs, Outside, note as note_tool, read as read_tool, write as write_tool};
use serde_json::Value;

use super::executor::{Executor, Then, WorkerTool};
use super::prepare::{Context, InvalidArgument, Prepare, Prepared};
use super::{RegistryError, Tool};

/// Tool of a contract whose calls need one file or one tree.
pub(super) fn tool(contract: &'static Contract) -> Result<Tool, RegistryError> {
    let bad = |reason: String| RegistryError::Requires { tool: contract.name.to_owned(), reason };
    let files = contract.files.ok_or_else(|| bad("its contract does not say which files".to_owned()))?;
    let worker = WorkerTool::new(OfFiles { name: contract.name, needs: files.needs });
    // A PDF is text as well, to some surfaces.
    let worker = if contract.name == read_tool::CONTRACT.name { worker.then(Then::Pdf) } else { worker };
    let kinds: &[EffectKind] = match files.needs {
        Needs::Read => &[EffectKind::Shows],
        Needs::Write => &[EffectKind::Writes],
        Needs::Change => &[EffectKind::Writes, EffectKind::Shows],
        Needs::Search => &[EffectKind::Shows, EffectKind::Lists],
        Needs::List => &[EffectKind::Lists],
    };
    let tool = file_tool(contract, worker)?.does(kinds);
    let tool = match files.needs {
        Needs::Read => tool.side_by_side(),
        Needs::Search | Needs::List => tool.side_by_side().searching(),
        Needs::Write | Needs::Change => tool,
    };
    let Some(Outside { subject, memory, timeout }) = files.outside else { return Ok(tool) };
    let tool = tool.subject(subject).limits(Limits { memory, ..Limits::default() });
    Ok(match timeout {
        Some(timeout) => tool.timeout(timeout),
        None => tool,
    })
}

/// Tools outside the lock whose contract says all, in the order in which they are listed.
pub(super) fn outside() -> impl Iterator<Item = Result<Tool, RegistryError>> {
    CONTRACTS.iter().filter(|contract| contract.files.is_some_and(|files| files.outside.is_some())).map(tool)
}

/// `write` where it makes new files alone (S4-14): the same tool to whoever calls it, with another promise.
pub(super) fn create() -> Result<Tool, RegistryError> {
    tool(&write_tool::CREATE_CONTRACT)
}

/// `note` (S2-20): add to the workspace's notes.
pub(super) fn note() -> Result<Tool, RegistryError> {
    Ok(file_tool(&note_tool::CONTRACT, WorkerTool::new(Note))?.subject(Subject::Edit).does(&[EffectKind::Writes]))
}

/// Requirement of a tool that may read any file of the workspace.
pub(super) fn reads_everything(tool: &str) -> Result<FsRequirement, RegistryError> {
    let bad = |reason: String| RegistryError::Requires { tool: tool.to_owned(), reason };
    let everything = PathTemplate::parse("{workspace}/**").map_err(|e| bad(e.to_string()))?;
    Ok(FsRequirement { read: vec![everything], ..FsRequirement::default() })
}

/// A tool that asks for the whole workspace, in the ways that its contract says.
pub(super) fn file_tool(contract: &'static Contract, worker: WorkerTool) -> Result<Tool, RegistryError> {
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
    Ok(Tool::bundled(name, texts, Executor::Worker(worker)).requires(requires))
}

/// A tool whose argument `path` names its file or tree.
struct OfFiles {
    name: &'static str,
    needs: Needs,
}

impl Prepare for OfFiles {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        if matches!(self.needs, Needs::Search | Needs::List) {
            return search(self.name, self.needs, args, context);
        }
        let path = context.path_argument(args, "path")?;
        let how = if self.name == write_tool::CREATE { WriteKind::Create } else { WriteKind::Write };
        let writes = || Effect::Writes { path: path.clone(), how };
        let effects = match self.needs {
            Needs::Write => Effects::of(writes()),
            Needs::Change => Effects::of(writes()).showing(path.clone()),
            Needs::Read | Needs::Search | Needs::List => Effects::default().showing(path.clone()),
        };
        Ok(prepared(self.name, effects, path, context))
    }
}

struct Note;

impl Prepare for Note {
    fn prepare(&self, _: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let path = HostPath::from(context.root.as_path().join(note_tool::FILE));
        Ok(prepared("note", Effects::default().writing(path.clone()), path, context))
    }
}

/// Files above a search that say which files it leaves out, as ripgrep reads it.
const IGNORE_FILES: [&str; 4] = [".gitignore", ".ignore", ".rgignore", ".git/info/exclude"];

/// A search needs all that was granted of a tree. One that shows lines tells the names of their files as well.
fn search(name: &str, needs: Needs, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
    let path = if args.get("path").is_some() { context.path_argument(args, "path")? } else { context.root.clone() };
    let above = path.as_path().ancestors().skip(1);
    let consulted =
        above.flat_map(|dir| IGNORE_FILES.map(|name| HostPath::from(PathBuf::from(dir).join(name)))).collect();
    let tree = || FileScope::Tree(path.clone());
    let shows = (needs == Needs::Search).then(|| Effect::Shows(tree()));
    let own = shows.into_iter().chain([Effect::Lists(tree())]).collect();
    let effects = Effects { own, consulted, ..Effects::default() };
    Ok(prepared(name, effects, path, context))
}

fn prepared(name: &str, effects: Effects, path: HostPath, context: &Context<'_>) -> Prepared {
    let work = CallWork::Tool { name: name.to_owned(), paths: vec![path], limit: context.limit };
    Prepared::new(effects, Some(work), None)
}
