//! `apply_patch` (S0-25). Its files are named in the patch, which a model wrote: a worker of the readers reads them, and
//! what it says decides what the call needs. It is confined to that, so an answer that leaves something out gains nothing.

use callgate_policy::effect::{Effect, EffectKind, Effects, WriteKind};
use callgate_policy::path::{HostPath, normalize};
use callgate_policy::plan::CallWork;
use callgate_policy::tool::Subject;
use callgate_tools::patch;
use serde_json::{Value, json};

use super::executor::{First, WorkerTool};
use super::prepare::{Context, InvalidArgument, Prepare, Prepared, ReadFirst};
use super::{RegistryError, Tool, files};

pub(super) fn apply_patch() -> Result<Tool, RegistryError> {
    // What it copies is read in the copy, and the errors of a hunk that does not fit tell lines.
    let worker = WorkerTool::new(Patch).first(First::Text(patch_of));
    Ok(files::file_tool(&patch::CONTRACT, worker)?
        .subject(Subject::Edit)
        .does(&[EffectKind::Writes, EffectKind::Shows]))
}

fn patch_of(args: &Value) -> Option<ReadFirst> {
    let args = json!({ "patch": args.get("patch")? });
    Some(ReadFirst { argument: "patch", reader: patch::READER, args })
}

struct Patch;

impl Prepare for Patch {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        if let (Some(Value::Array(changes)), None) = (args.get("changes"), args.get("patch")) {
            let paths = changes.iter().map(|change| context.path_argument(change, "path"));
            let paths = paths.collect::<Result<Vec<_>, _>>()?;
            return Ok(prepared(effects(&paths, WriteKind::Write, &paths), paths, context));
        }
        let bad = |reason: String| InvalidArgument { name: "patch".to_owned(), reason };
        if args.get("changes").is_some() || args.get("patch").is_none() {
            return Err(bad("give either `patch` or `changes`".to_owned()));
        }
        // What a worker says that has read a stranger's text is as hostile as the text.
        let Ok(names) = serde_json::from_value::<patch::PatchNames>(context.read.clone()) else {
            return Err(bad("its names could not be read".to_owned()));
        };
        let path = |name: &HostPath| normalize(context.root, name).map_err(|e| bad(e.to_string()));
        let paths = |names: &[HostPath]| names.iter().map(path).collect::<Result<Vec<_>, _>>();
        let (read, change, write) = (paths(&names.read)?, paths(&names.change)?, paths(&names.write)?);
        // Who lets files be edited has not said that they may be removed, or run.
        let how = if names.is_more_than_an_edit { WriteKind::Replace } else { WriteKind::Write };
        let effects = effects(&[change.as_slice(), &write].concat(), how, &[read.as_slice(), &change].concat());
        let mut prepared = prepared(effects, [read, change, write].concat(), context);
        prepared.told.insert(patch::CHECKED.to_owned(), json!(names.all().collect::<Vec<_>>()));
        Ok(prepared)
    }
}

/// Changes to some files, with what the result and its errors tell of some.
fn effects(written: &[HostPath], how: WriteKind, shown: &[HostPath]) -> Effects {
    let writes = written.iter().map(|path| Effect::Writes { path: path.clone(), how });
    let effects = Effects { own: writes.collect(), ..Effects::default() };
    shown.iter().cloned().fold(effects, Effects::showing)
}

fn prepared(effects: Effects, paths: Vec<HostPath>, context: &Context<'_>) -> Prepared {
    let work = CallWork::Tool { name: patch::NAME.to_owned(), paths, limit: context.limit };
    Prepared::new(effects, Some(work), None)
}
