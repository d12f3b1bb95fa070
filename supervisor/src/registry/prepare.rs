//! Effects and work of a call, from its arguments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use callgate_policy::effect::{Effect, Effects, ProgramRun};
use callgate_policy::effective::EffectiveSet;
use callgate_policy::manifest::{Credential, LanguageServer};
use callgate_policy::path::{HostPath, normalize};
use callgate_policy::plan::{CallWork, Secured};
use callgate_policy::profile::Profile;
use serde_json::{Map, Value};

use super::databases::Databases;

/// How a tool turns validated arguments into work for the sandbox.
pub(crate) trait Prepare: Send + Sync {
    /// Effects of the call, and the work that it runs.
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument>;
}

impl<P: Prepare + ?Sized> Prepare for Arc<P> {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        (**self).prepare(args, context)
    }
}

/// A program that reads a document for callgate.
pub(crate) trait ReadsDocument: Prepare {
    /// The result, of what a program with these arguments has printed. The error is for the model.
    fn result_of(&self, argv: &[HostPath], ran: &Value) -> Result<Value, String>;

    /// The result where there is no such program, or it may not start here.
    fn without_program(&self, argv: &[HostPath], reason: &str) -> Value;
}

/// A text that is read in a worker which can open nothing.
pub(crate) struct ReadFirst {
    /// Argument that holds it, for errors.
    pub(crate) argument: &'static str,
    /// Tool of the worker's that reads it.
    pub(crate) reader: &'static str,
    pub(crate) args: Value,
}

/// Which time it is that a call is made, if it is made once more elsewhere.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attempt {
    /// How many hosts were asked before.
    pub(crate) number: usize,
    /// Rest of the call's time, if it was bounded.
    pub(crate) left: Option<Duration>,
}

/// Context that arguments are resolved against.
pub(crate) struct Context<'a> {
    /// The workspace's first root: relative paths start there.
    pub(crate) root: &'a HostPath,
    /// Where a shell starts that does not say.
    pub(crate) shell_dir: &'a HostPath,
    /// The most of the result that is shown, in the tool's own unit (S0-48).
    pub(crate) limit: u64,
    /// The session's id.
    pub(crate) session: &'a str,
    /// For which hosts there are credentials.
    pub(crate) credentials: &'a [Credential],
    /// Finding of a worker on the text that was to be read first; null if there was none.
    pub(crate) read: &'a Value,
    pub(crate) attempt: Attempt,
    /// Databases that are configured.
    pub(crate) databases: &'a Databases,
    /// The session's.
    pub(crate) profile: &'a Profile,
    /// Rights of the session.
    pub(crate) effective: &'a EffectiveSet,
    /// The language servers that its manifest names.
    pub(crate) servers: &'a BTreeMap<String, LanguageServer>,
}

impl Context<'_> {
    /// The argument `name` as the path to check and to use: text, or `{"b64": …}` for one that is not UTF-8 (C-27).
    pub(super) fn path_argument(&self, args: &Value, name: &str) -> Result<HostPath, InvalidArgument> {
        let bad = |reason: String| InvalidArgument { name: name.to_owned(), reason };
        let given: HostPath = serde_json::from_value(args[name].clone()).map_err(|e| bad(e.to_string()))?;
        normalize(self.root, &given).map_err(|e| bad(e.to_string()))
    }
}

/// A call, ready to be checked.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) effects: Effects,
    /// `None` for what does not run in the sandbox.
    pub(crate) work: Option<CallWork>,
    /// Asked for by the call itself.
    pub(crate) timeout: Option<Duration>,
    /// Additions of egress to its requests, for a person who is asked.
    pub(crate) credentials: Vec<Credential>,
    /// How egress makes the TLS, with credentials, if it does.
    pub(crate) secured: Option<Secured>,
    /// Facts that the worker is told besides the arguments.
    pub(crate) told: Map<String, Value>,
}

impl Prepared {
    pub(super) fn new(effects: Effects, work: Option<CallWork>, timeout: Option<Duration>) -> Self {
        Self { effects, work, timeout, credentials: Vec::new(), secured: None, told: Map::new() }
    }
}

/// An argument that passed the schema and still makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("argument `{name}`: {reason}")]
pub(crate) struct InvalidArgument {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// A program and its arguments, from the arguments of a call.
pub(super) struct Argv(pub(super) ArgvOf);

type ArgvOf = Box<dyn Fn(&Value) -> Result<Vec<String>, String> + Send + Sync>;

impl Prepare for Argv {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let bad = |reason: String| InvalidArgument { name: "*".to_owned(), reason };
        let words = (self.0)(args).map_err(bad)?;
        if words.first().is_none_or(String::is_empty) || words.iter().any(|word| word.contains('\0')) {
            return Err(bad("they make no command that can be started".to_owned()));
        }
        let argv: Vec<HostPath> = words.iter().map(|word| HostPath::from(word.as_str())).collect();
        let effects = Effects::of(Effect::Runs(started(&argv, context.shell_dir)));
        let work = CallWork::program(argv, context.shell_dir.clone());
        Ok(Prepared::new(effects, Some(work), None))
    }
}

/// The start of a program: one that is named by a path is compared with grants by its absolute path.
pub(crate) fn started(argv: &[HostPath], working_dir: &HostPath) -> ProgramRun {
    let mut argv = argv.to_vec();
    if let Some(program) = argv.first_mut().filter(|program| program.as_bytes().contains(&b'/'))
        && let Ok(path) = normalize(working_dir, program)
    {
        *program = path;
    }
    ProgramRun::program(argv, working_dir.clone())
}

/// The names of the argument that is a program's input (X2-1, X2-3).
pub(super) const INPUT: [&str; 3] = ["stdin", "input", "data"];

/// The argument that is a program's input, by any of its names.
pub(crate) fn input(args: &Value) -> Option<&str> {
    INPUT.iter().find_map(|name| args[*name].as_str())
}
