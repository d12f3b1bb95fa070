//! Tools for repositories, and for what a session works in. Those that look run in the worker, and need nothing but to read;
//! `repo_clone` runs git in the sandbox.

use std::sync::Arc;
use std::time::Duration;

use callgate_policy::effect::{Effect, EffectKind, Effects, FileScope, HostConnection, ProgramRun, WriteKind};
use callgate_policy::path::{HostPath, normalize};
use callgate_policy::plan::CallWork;
use callgate_policy::requirement::{Program, RequirementSet, ShellRunRequirement};
use callgate_policy::tool::Subject;
use callgate_tools::web::fetch;
use callgate_tools::{Contract, diagnostics, overview};
use serde_json::Value;

use super::executor::{Executor, ProgramTool, Then, WorkerTool};
use super::files::file_tool;
use super::prepare::{Argv, Context, InvalidArgument, Prepare, Prepared};
use super::{Origin, RegistryError, Tool};

/// All of them.
pub(super) fn tools() -> Result<Vec<Tool>, RegistryError> {
    let contracts = [
        #[cfg(feature = "git")]
        &callgate_tools::git::status::CONTRACT,
        #[cfg(feature = "git")]
        &callgate_tools::git::diff::CONTRACT,
        &overview::CONTRACT,
        #[cfg(feature = "git")]
        &diagnostics::CONTRACT,
    ];
    let look = |contract: &'static Contract| {
        let worker = WorkerTool::new(Look { tool: contract.name });
        let worker = if contract.name == diagnostics::NAME { worker.then(Then::Versions) } else { worker };
        let tool = file_tool(contract, worker)?.subject(Subject::Search).side_by_side();
        let kinds: &[EffectKind] =
            if shows_lines(contract.name) { &[EffectKind::Shows, EffectKind::Lists] } else { &[EffectKind::Lists] };
        Ok(tool.does(kinds))
    };
    contracts.into_iter().map(look).chain([repo_clone()]).collect()
}

/// True if a tool shows lines of files; the others tell names and numbers of a whole tree.
fn shows_lines(tool: &str) -> bool {
    tool == "git_diff"
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
        let shows = shows_lines(self.tool).then(|| Effect::Shows(FileScope::Tree(most.clone())));
        let own = shows.into_iter().chain([Effect::Lists(FileScope::Tree(most.clone()))]).collect();
        let effects = Effects { own, ..Effects::default() };
        let work = CallWork::Tool { name: self.tool.to_owned(), paths: vec![path, most], limit: context.limit };
        Ok(Prepared::new(effects, Some(work), None))
    }
}

/// How long a program has to say its version.
const VERSION: Duration = Duration::from_secs(10);

/// The programs whose versions `diagnostics` tells, each as what is started for that.
pub(crate) fn versions() -> Vec<(&'static str, Tool)> {
    let plain = ["git", "cargo", "rustc", "python3", "node", "npm", "gcc", "clang", "make", "cmake"];
    let all = plain.into_iter().map(|program| (program, "--version")).chain([("go", "version")]);
    all.map(|(program, word)| {
        let argv = Argv(Box::new(move |_| Ok(vec![program.to_owned(), word.to_owned()])));
        let tool = Tool::new(diagnostics::NAME, Origin::Bundled, Executor::Program(ProgramTool::Plain(Arc::new(argv))));
        (program, tool.subject(Subject::Execute).timeout(VERSION))
    })
    .collect()
}

const CLONE: &str = "Clone a git repository of a granted host, over https, into a new directory of the workspace. Runs git in the \
sandbox, with none of the hooks, templates and credential helpers that settings could name; submodules are not followed. \
Returns what git printed and its `exit_code`, which is not 0 if the clone failed; git then removes what it had made.";

const CLONE_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "url": {
      "type": "string", "minLength": 1, "maxLength": 2048,
      "description": "The repository: an https URL without a user name or a password."
    },
    "directory": {
      "type": ["string", "object"], "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
      "description": "The directory to make, absolute or relative to the workspace. Default: what the URL ends in, in the workspace. One that holds something is left as it is, and the clone fails."
    },
    "depth": { "type": "integer", "minimum": 1, "description": "So many of the last commits alone. Default: all." },
    "branch": {
      "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[^-]",
      "description": "The branch or tag to check out. Default: that of the repository's HEAD."
    }
  },
  "required": ["url"],
  "additionalProperties": false
}"#;

/// Nothing counts but what the call says: no file of settings, of which some name programs, and no attributes (git(1)).
const WITHOUT_SETTINGS: &[&str] =
    &["GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_COUNT=0", "GIT_ATTR_NOSYSTEM=1"];

/// Settings with which git runs nothing but itself, and connects by https alone.
const SETTINGS: &[&str] = &[
    "advice.detachedHead=false",
    "core.askPass=",
    "core.attributesFile=/dev/null",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "credential.helper=",
    "fetch.recurseSubmodules=false",
    "http.followRedirects=false",
    "protocol.allow=never",
    "protocol.https.allow=always",
    "submodule.recurse=false",
];

/// `repo_clone` (S0-25): git itself, which a session has to be able to start.
fn repo_clone() -> Result<Tool, RegistryError> {
    let git = Program::Name("git".to_owned());
    let shell = vec![ShellRunRequirement { cmd: git, args: None }];
    let requires = RequirementSet { shell, ..RequirementSet::default() };
    let texts = (CLONE, CLONE_SCHEMA, super::bash::OUTPUT);
    Ok(Tool::bundled("repo_clone", texts, Executor::Program(ProgramTool::Plain(Arc::new(Clone))))
        .requires(requires)
        .timeout(Duration::from_secs(600)))
}

struct Clone;

impl Prepare for Clone {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let bad = |name: &str, reason: String| InvalidArgument { name: name.to_owned(), reason };
        let url = args["url"].as_str().unwrap_or_default();
        let place = fetch::place(url).map_err(|reason| bad("url", reason))?;
        if !place.tls || !url.starts_with("https://") {
            return Err(bad("url", "only https:// is cloned from".to_owned()));
        }
        // A user name and a password would stand in the record; anything else is what git and the gate might read in two ways.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
        if !url.split('/').nth(2).is_some_and(|authority| authority.chars().all(is_plain)) {
            return Err(bad("url", "it has more than a host and a port before its path".to_owned()));
        }
        if !url.chars().all(|c| c.is_ascii_graphic() && c != '\\') {
            return Err(bad("url", "it has characters that have to be escaped (%20 for a blank)".to_owned()));
        }
        let directory = if args.get("directory").is_some() {
            context.path_argument(args, "directory")?
        } else {
            let name = named_by(url).ok_or_else(|| bad("url", "it names no directory; give one".to_owned()))?;
            normalize(context.root, &HostPath::from(name)).map_err(|e| bad("directory", e.to_string()))?
        };
        let mut argv: Vec<HostPath> = vec!["git".into()];
        SETTINGS.iter().for_each(|setting| argv.extend(["-c".into(), HostPath::from(*setting)]));
        argv.extend(["clone", "--no-recurse-submodules", "--template="].map(HostPath::from));
        let depth = args["depth"].as_u64().map(|depth| format!("--depth={depth}"));
        let branch = args["branch"].as_str().map(|branch| format!("--branch={branch}"));
        let options: Vec<HostPath> = [depth, branch].iter().flatten().map(|option| option.as_str().into()).collect();
        argv.extend(options.iter().cloned());
        argv.extend(["--".into(), url.into(), directory.clone()]);
        // What a rule would be written against, without what is the same for every call.
        let plain: Vec<HostPath> = vec!["git".into(), "clone".into(), url.into(), directory.clone()];
        let seen = [plain, options].concat();
        if argv.iter().any(|word| word.as_bytes().contains(&0)) {
            return Err(bad("*", "it contains a NUL, which no command can".to_owned()));
        }
        let runs = Effect::Runs(ProgramRun::program(seen, context.root.clone()));
        let effects = Effects::of(runs)
            .by(Effect::Writes { path: directory, how: WriteKind::Create })
            .by(Effect::Connects(HostConnection::new(place.host, place.port)));
        let env = WITHOUT_SETTINGS.iter().map(|variable| HostPath::from(*variable)).collect();
        let work = CallWork::Program { argv, working_dir: context.root.clone(), env };
        Ok(Prepared::new(effects, Some(work), None))
    }
}

/// Last part of a URL, as git takes it for the name of a directory.
fn named_by(url: &str) -> Option<&str> {
    let path = url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    let (_, name) = path.strip_prefix("https://")?.rsplit_once('/')?;
    let name = name.strip_suffix(".git").unwrap_or(name);
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "._-".contains(c));
    (is_name && !name.starts_with(['.', '-'])).then_some(name)
}
