//! Processes that carry calls out: a worker, a program in a sandbox, or the host.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use callgate_policy::effect::{Effect, Effects, ProgramRun};
use callgate_policy::manifest::Credential;
use callgate_policy::sql::Dialect;
use callgate_tools::database::sql;
use serde_json::{Value, json};

use super::acts::{AgentsAct, BackgroundAct, Delegation, Hosted};
use super::declared::Declared;
use super::prepare::{Context, InvalidArgument, Prepare, Prepared, ReadFirst, ReadsDocument, input};
use super::searches::Searches;

/// Process that carries a tool's calls out.
#[derive(Clone)]
pub(crate) enum Executor {
    /// A worker of the session's sandbox, which does one call and ends.
    Worker(WorkerTool),
    /// A program in a sandbox, with all that it starts.
    Program(ProgramTool),
    /// The host: the session itself, or whoever embeds it.
    Host(HostTool),
}

/// Tool whose calls a worker carries out.
#[derive(Clone)]
pub(crate) struct WorkerTool {
    pub(crate) prepare: Arc<dyn Prepare>,
    pub(crate) first: First,
    pub(crate) then: Then,
    /// Credential that egress adds to its requests and to no others, from the caller's environment.
    pub(crate) credential: Option<Credential>,
}

/// Tool whose calls start a program.
#[derive(Clone)]
pub(crate) enum ProgramTool {
    /// A program that runs to its end; its output is the result.
    Plain(Arc<dyn Prepare>),
    /// Such a program, where a file in the workspace says which.
    Tests(Arc<dyn Prepare>),
    /// A program that reads a document, and can do nothing else; the result is made of its output.
    Document(Arc<dyn ReadsDocument>),
    /// A program with streams of its own, which may go on in the background.
    Interactive(Arc<dyn Prepare>),
    /// A program that a worker talks to, such as a language server. It can do nothing but read.
    Server(Arc<dyn Prepare>),
    /// A program that a definition names, in a sandbox of its own.
    Declared(Arc<Declared>),
}

/// Tool whose calls the host answers.
#[derive(Clone)]
pub(crate) enum HostTool {
    /// The session itself.
    Session(Hosted),
    /// The session itself, about programs in the background.
    Background(BackgroundAct),
    /// The session itself, about subagents that were started before.
    Agents(AgentsAct),
    /// A subagent, in a session of its own.
    Delegate(Delegation),
    /// Whoever embeds the session: the host's own code, or a connection of its to another process, such as an MCP server.
    Handler(Arc<dyn Handler>),
}

/// Finding of workers that has to be made before anything is known of a call: its arguments are text that a model wrote, or a file says
/// what it is.
#[derive(Clone, Copy)]
pub(crate) enum First {
    Nothing,
    /// A text among the arguments, which a worker that can open nothing reads.
    Text(fn(&Value) -> Option<ReadFirst>),
    /// The statement of a query of this dialect.
    Statement(Dialect),
    /// The file that says what runs a workspace's tests.
    Runner,
}

/// Other calls as which a call goes on once its worker has ended. Each passes all layers.
#[derive(Clone)]
pub(crate) enum Then {
    Nothing,
    /// To another host, if that is where its page has moved.
    Redirect,
    /// To the next provider, if this one does not answer.
    NextProvider(Arc<Searches>),
    /// As `read_pdf`, if that is what was read and it was told to look for one.
    Pdf,
    /// As programs that say their versions.
    Versions,
}

/// Answers calls outside the sandbox. A closure that returns a future is one.
pub trait Handler: Send + Sync {
    /// Answers one call. Dropping the future aborts it (S0-69).
    fn answer(&self, call: HandlerCall) -> Answering;
}

/// Result of a [`Handler`]: the result's `data`, or what went wrong, in words for the model.
pub type Answering = Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>;

/// A call that layers 1 and 2 let pass.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HandlerCall {
    /// The tool's name.
    pub tool: String,
    /// The session's id.
    pub session: String,
    /// The arguments, validated.
    pub args: Value,
}

impl<F, A> Handler for F
where
    F: Fn(HandlerCall) -> A + Send + Sync,
    A: Future<Output = Result<Value, String>> + Send + 'static,
{
    fn answer(&self, call: HandlerCall) -> Answering {
        Box::pin(self(call))
    }
}

impl Executor {
    /// The definition of a declared tool.
    pub(crate) fn declared(&self) -> Option<&Arc<Declared>> {
        match self {
            Self::Program(ProgramTool::Declared(declared)) => Some(declared),
            Self::Worker(_) | Self::Program(_) | Self::Host(_) => None,
        }
    }

    /// How subagents work for its calls, if it starts some.
    pub(crate) fn delegation(&self) -> Option<Delegation> {
        match self {
            Self::Host(HostTool::Delegate(how)) => Some(*how),
            Self::Worker(_) | Self::Program(_) | Self::Host(_) => None,
        }
    }

    /// True if its program may do nothing but read, whatever was granted.
    pub(crate) fn reads_alone(&self) -> bool {
        matches!(self, Self::Program(ProgramTool::Document(_) | ProgramTool::Server(_)))
    }

    /// Finding that its calls need first.
    pub(crate) fn first(&self) -> First {
        match self {
            Self::Worker(tool) => tool.first,
            Self::Program(ProgramTool::Tests(_)) => First::Runner,
            Self::Program(_) | Self::Host(_) => First::Nothing,
        }
    }

    /// Other calls as which its calls go on.
    pub(crate) fn then(&self) -> Then {
        match self {
            Self::Worker(tool) => tool.then.clone(),
            Self::Program(_) | Self::Host(_) => Then::Nothing,
        }
    }

    /// Dialect of the SQL that it takes, if it queries databases.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        match self.first() {
            First::Statement(dialect) => Some(dialect),
            First::Nothing | First::Text(_) | First::Runner => None,
        }
    }

    /// Searches that it makes.
    pub(super) fn searches(&self) -> Option<&Searches> {
        match self {
            Self::Worker(WorkerTool { then: Then::NextProvider(searches), .. }) => Some(searches),
            Self::Worker(_) | Self::Program(_) | Self::Host(_) => None,
        }
    }

    /// Credential that egress is to add to its requests and to no others.
    pub(crate) fn credential(&self) -> Option<Credential> {
        match self {
            Self::Worker(tool) => tool.credential.clone(),
            Self::Program(_) | Self::Host(_) => None,
        }
    }

    pub(crate) fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        match self {
            Self::Worker(tool) => tool.prepare.prepare(args, context),
            Self::Program(
                ProgramTool::Plain(tool)
                | ProgramTool::Tests(tool)
                | ProgramTool::Interactive(tool)
                | ProgramTool::Server(tool),
            ) => tool.prepare(args, context),
            Self::Program(ProgramTool::Document(tool)) => tool.prepare(args, context),
            Self::Program(ProgramTool::Declared(tool)) => tool.prepare(args, context),
            Self::Host(HostTool::Delegate(Delegation::Csv)) => {
                let path = context.path_argument(args, "csv_path")?;
                Ok(Prepared::new(Effects::default().showing(path), None, None))
            }
            Self::Host(host) => Ok(Prepared::new(effects_of_host(host, args), None, None)),
        }
    }
}

/// Effects of a call that the host answers, as far as its arguments say them.
fn effects_of_host(host: &HostTool, args: &Value) -> Effects {
    let notes = |what: &str| Effects::of(Effect::Notes(what.to_owned()));
    match host {
        HostTool::Session(Hosted::Todo) => notes("list of what is to be done"),
        HostTool::Session(Hosted::Plan) => notes("plan"),
        HostTool::Session(Hosted::Question) => Effects::of(Effect::Asks),
        HostTool::Session(Hosted::Skill) => {
            Effects::of(Effect::Notes(format!("skill {}", args["name"].as_str().unwrap_or_default())))
        }
        HostTool::Session(Hosted::ToolSearch) => notes("list of tools"),
        HostTool::Background(BackgroundAct::Interact) => {
            let text = input(args).unwrap_or_default().to_owned();
            let to = args["task_id"].as_str().unwrap_or_default().to_owned();
            let closes = args["close_stdin"].as_bool() == Some(true);
            // Without input it only waits.
            if text.is_empty() && !closes {
                notes("programs in the background")
            } else {
                Effects::of(Effect::Runs(ProgramRun::Typed { to, before: String::new(), on_terminal: false, text }))
            }
        }
        HostTool::Background(BackgroundAct::Wait | BackgroundAct::Cancel | BackgroundAct::List) => {
            notes("programs in the background")
        }
        HostTool::Agents(_) => notes("subagents"),
        // What they do is known once it is known who does it.
        HostTool::Delegate(_) | HostTool::Handler(_) => Effects::default(),
    }
}

impl WorkerTool {
    /// A tool that needs nothing first, and goes on as no other.
    pub(super) fn new(prepare: impl Prepare + 'static) -> Self {
        Self { prepare: Arc::new(prepare), first: First::Nothing, then: Then::Nothing, credential: None }
    }

    pub(super) fn first(self, first: First) -> Self {
        Self { first, ..self }
    }

    pub(super) fn then(self, then: Then) -> Self {
        Self { then, ..self }
    }
}

impl First {
    /// The text that a worker has to read, if the arguments have one.
    pub(crate) fn text(self, args: &Value) -> Option<ReadFirst> {
        match self {
            Self::Nothing | Self::Runner => None,
            Self::Text(text) => text(args),
            Self::Statement(dialect) => {
                let has_sql = matches!(args["operation"].as_str(), Some("query" | "export_query"));
                let sql = args["sql"].as_str().filter(|_| has_sql)?;
                Some(ReadFirst { argument: "sql", reader: sql::NAME, args: json!({ "sql": sql, "dialect": dialect }) })
            }
        }
    }
}
