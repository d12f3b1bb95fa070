//! `lsp` (S0-25): which language server is asked about a file.
//!
//! A server runs what its project configures: plugins, environments, build scripts. It runs as a program of its own, which of all that was
//! granted changes nothing and reaches nobody ([`ProgramTool::Server`]); a worker that can only read talks to it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callgate_policy::effect::{Effect, EffectKind, Effects, FileScope};
use callgate_policy::limit::Limits;
use callgate_policy::manifest::LanguageServer;
use callgate_policy::path::HostPath;
use callgate_policy::plan::CallWork;
use callgate_policy::requirement::{Program, RequirementSet, ShellRunRequirement};
use callgate_policy::tool::Subject;
use callgate_policy::unit::ByteSize;
use callgate_tools::lsp::{CONTRACT, LANGUAGE, NAME, OPTIONS, SAYS_WHEN_READY, SERVER};
use serde_json::{Map, Value, json};

use super::executor::{Executor, ProgramTool};
use super::prepare::{Context, InvalidArgument, Prepare, Prepared, started};
use super::{RegistryError, Tool, files};

/// Many times what a server takes for a large project, bytes.
const MEMORY: ByteSize = ByteSize(4 << 30);

/// The servers that need no manifest: name, program, the files that they are asked about.
const KNOWN: [(&str, &str, &[&str]); 2] =
    [("python", "pylsp", &["*.py", "*.pyi"]), ("rust", "rust-analyzer", &["*.rs"])];

/// `lsp`. It starts a program, and says so.
pub(super) fn lsp() -> Result<Tool, RegistryError> {
    let shell = vec![ShellRunRequirement { cmd: Program::Any, args: None }];
    let requires = RequirementSet { fs: files::reads_everything(NAME)?, shell, ..RequirementSet::default() };
    let texts = (CONTRACT.description, CONTRACT.schema, CONTRACT.output);
    let tool = Tool::bundled(NAME, texts, Executor::Program(ProgramTool::Server(Arc::new(Lsp))));
    let limits = Limits { memory: Some(MEMORY), ..Limits::default() };
    Ok(tool.requires(requires).subject(Subject::Execute).limits(limits).does(&[EffectKind::Runs, EffectKind::Shows]))
}

struct Lsp;

impl Prepare for Lsp {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let path = context.path_argument(args, "path")?;
        let (name, server) = server_for(path.as_path(), context.servers).ok_or_else(|| {
            let reason = "no language server is known for such a file; name one in [lsp.NAME] of the manifest";
            InvalidArgument { name: "path".to_owned(), reason: reason.to_owned() }
        })?;
        let argv: Vec<HostPath> = server.command.iter().map(|word| HostPath::from(word.as_str())).collect();
        let working_dir = context.root.clone();
        let effects = Effects::of(Effect::Runs(started(&argv, &working_dir)))
            .showing(path)
            .and(Effect::Shows(FileScope::Tree(working_dir.clone())));
        let told = told(&name, &server);
        let timeout = args["timeout_ms"].as_u64().map(Duration::from_millis);
        let prepared = Prepared::new(effects, Some(CallWork::program(argv, working_dir)), timeout);
        Ok(Prepared { told, ..prepared })
    }
}

/// The server that is asked about a file, and its name: one of the manifest before one that is known.
fn server_for(file: &Path, named: &BTreeMap<String, LanguageServer>) -> Option<(String, LanguageServer)> {
    let named = named.iter().map(|(name, server)| (name.clone(), server.clone()));
    let known = KNOWN.iter().map(|(name, program, files)| {
        let files = files.iter().map(|pattern| (*pattern).to_owned()).collect();
        let command = vec![(*program).to_owned()];
        ((*name).to_owned(), LanguageServer { command, files, language: None })
    });
    named.chain(known).find(|(_, server)| server.serves(file))
}

/// Facts for the worker that talks to it.
fn told(name: &str, server: &LanguageServer) -> Map<String, Value> {
    let mut told = Map::new();
    told.insert(SERVER.to_owned(), name.into());
    told.insert(LANGUAGE.to_owned(), server.language.as_deref().unwrap_or(name).into());
    let program = server.command.first().and_then(|program| Path::new(program).file_name());
    if program.is_some_and(|program| program == "rust-analyzer") {
        told.insert(SAYS_WHEN_READY.to_owned(), 1.into());
        // A question takes none of them, and each would run what the project says.
        let options = json!({
            "cargo": { "buildScripts": { "enable": false } },
            "procMacro": { "enable": false },
            "checkOnSave": false,
            "cachePriming": { "enable": false },
        });
        told.insert(OPTIONS.to_owned(), options);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S0-25: what a manifest names comes before what is known.
    #[test]
    fn s0_25_the_server_for_a_file() {
        let own = LanguageServer {
            command: vec!["/opt/pyright".to_owned(), "--stdio".to_owned()],
            files: vec!["*.py".to_owned()],
            language: Some("python".to_owned()),
        };
        let named = BTreeMap::from([("mine".to_owned(), own)]);
        let of = |file: &str, named: &BTreeMap<String, LanguageServer>| {
            server_for(Path::new(file), named).map(|(name, server)| (name, server.command.join(" ")))
        };
        let pair = |name: &str, command: &str| Some((name.to_owned(), command.to_owned()));
        assert_eq!(of("/w/a.py", &BTreeMap::new()), pair("python", "pylsp"));
        assert_eq!(of("/w/a.py", &named), pair("mine", "/opt/pyright --stdio"));
        assert_eq!(of("/w/a.pyi", &named), pair("python", "pylsp"));
        assert_eq!(of("/w/a.rs", &named), pair("rust", "rust-analyzer"));
        assert_eq!(of("/w/a.txt", &named), None);
    }

    /// S0-25: rust-analyzer is asked without build scripts and procedural macros.
    #[test]
    fn s0_25_a_question_runs_no_build_script() {
        let (name, server) = server_for(Path::new("/w/a.rs"), &BTreeMap::new()).expect("a server");
        let told = told(&name, &server);
        assert_eq!(told[OPTIONS]["cargo"]["buildScripts"]["enable"], false);
        assert_eq!(told[OPTIONS]["procMacro"]["enable"], false);
        assert_eq!(told[SAYS_WHEN_READY], 1);
    }
}
