//! Tools of declarations, once the files that belong to them have been read.

use std::path::PathBuf;
use std::sync::Arc;

use callgate_policy::path::HostPath;
use callgate_policy::pattern::PathTemplate;
use callgate_policy::requirement::{Program, ShellRunRequirement};
use callgate_policy::tool::Subject;

use super::declared::{BESIDE, Declaration, Declared};
use super::directory::Directory;
use super::executor::{Executor, ProgramTool};
use super::{Origin, Schema, Tool};

impl Declaration {
    /// The tool, once its files have been read: `digests` has the digest of each, and `digest` that of all together.
    pub(crate) fn tool(
        &self,
        origin: Origin,
        (file, directory): (PathBuf, Directory),
        (digests, digest): (Vec<(String, String)>, &str),
    ) -> Tool {
        let beside = |name: &str| HostPath::from(directory.path.join(name));
        let command: Vec<HostPath> = self
            .command
            .iter()
            .map(|word| word.strip_prefix(BESIDE).map_or_else(|| HostPath::from(word.as_str()), beside))
            .collect();
        let mut requires = self.requires.clone();
        requires.fs.read.extend(self.files.iter().map(|name| PathTemplate::of_file(&beside(name))));
        requires.shell.extend(command.first().and_then(program));
        let (key, name, suffix) = (self.key.clone(), self.name.clone(), digest.get(..16).unwrap_or(digest).to_owned());
        let declared = Arc::new(Declared {
            file,
            command,
            found: None,
            env: self.env.clone(),
            has_state: self.state,
            template: self.key.template(),
            directory,
            files: digests,
        });
        let mut tool = Tool::declared(&self.name, origin, declared)
            .description(&self.description)
            .parameters(self.parameters.clone())
            .requires(requires)
            .subject(Subject::Execute)
            // An answer is for what the tool was: with another definition it is another key.
            .approval_key(move |args| format!("{} (definition {suffix})", key.render(&name, args)));
        tool.output_schema = self.output_schema.clone().map(Schema::from);
        tool.timeout = self.timeout;
        tool.gated = self.gated;
        tool.deferred = self.deferred;
        tool
    }
}

/// That the program of a tool may be started. A path that is no program's is refused when it is to be started.
fn program(word: &HostPath) -> Option<ShellRunRequirement> {
    let path = word.as_path();
    let cmd = match path.is_absolute() {
        true => Program::Path(PathTemplate::of_file(word)),
        false => Program::parse(path.to_str()?).ok()?,
    };
    Some(ShellRunRequirement { cmd, args: None })
}

impl Tool {
    pub(super) fn declared(name: &str, origin: Origin, declared: Arc<Declared>) -> Self {
        Self::new(name, origin, Executor::Program(ProgramTool::Declared(declared)))
    }
}
