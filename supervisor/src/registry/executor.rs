//! Who carries a call out: a worker, a program in the sandbox, the host itself, or another process.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use callgate_policy::manifest::Credential;
use callgate_policy::need::CallNeeds;
use callgate_policy::sql::Dialect;
use serde_json::Value;

use super::acts::{Act, Delegation, Hosted};
use super::declared::Declared;
use super::prepare::{Context, InvalidArgument, Prepare, Prepared, ReadFirst};
use super::searches::Searches;

/// Who carries calls out.
#[derive(Clone)]
pub(crate) enum Executor {
    /// A tool of the worker's own, which does one call and ends.
    Worker(Arc<dyn Prepare>),
    /// A program, with all that it starts.
    Program(Arc<dyn Prepare>),
    /// A program with streams of its own, which may go on in the background.
    Shell(Arc<dyn Prepare>),
    /// A program that a worker talks to, such as a language server.
    Server(Arc<dyn Prepare>),
    /// A program that a definition names, in a sandbox of its own.
    Declared(Arc<Declared>),
    /// The session itself.
    Session(Hosted),
    /// The session itself, about what it has started in the background.
    Background(Act),
    /// The host that embeds it.
    Host(Arc<dyn Handler>),
    /// Another process, such as an MCP server.
    Remote(Arc<dyn Handler>),
    /// A subagent, in a session of its own.
    Delegate(Delegation),
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
    pub(super) fn is_declared(&self) -> bool {
        matches!(self, Self::Declared(_))
    }

    /// The tool, if the worker itself carries its calls out.
    fn worker(&self) -> Option<&dyn Prepare> {
        match self {
            Self::Worker(tool) => Some(&**tool),
            Self::Program(_)
            | Self::Shell(_)
            | Self::Server(_)
            | Self::Declared(_)
            | Self::Session(_)
            | Self::Background(_)
            | Self::Host(_)
            | Self::Remote(_)
            | Self::Delegate(_) => None,
        }
    }

    /// Searches of a tool that searches: whom it asks, and how often.
    pub(crate) fn searches(&self) -> Option<&Searches> {
        self.worker()?.searches()
    }

    /// True if its program may do nothing but read.
    pub(crate) fn reads_alone(&self) -> bool {
        matches!(self, Self::Program(tool) | Self::Server(tool) if tool.reads_alone())
    }

    /// True if the session adds to the result what it alone knows of itself.
    pub(crate) fn diagnoses(&self) -> bool {
        self.worker().is_some_and(Prepare::diagnoses)
    }

    /// Text that has to be read before the call can be prepared.
    pub(crate) fn read_first(&self, args: &Value) -> Option<ReadFirst> {
        self.worker()?.read_first(args)
    }

    /// Credential that egress is to add to its requests and to no others, from the caller's environment.
    pub(crate) fn credential(&self) -> Option<Credential> {
        self.worker()?.credential()
    }

    /// Dialect of the SQL that it takes, if it queries databases.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        self.worker()?.dialect()
    }

    /// True if it runs the tests of a workspace, by what the session finds there.
    pub(crate) fn runs_tests(&self) -> bool {
        matches!(self, Self::Program(tool) if tool.runs_tests())
    }

    pub(crate) fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        match self {
            Self::Worker(tool) | Self::Program(tool) | Self::Shell(tool) | Self::Server(tool) => {
                tool.prepare(args, context)
            }
            Self::Declared(tool) => tool.prepare(args, context),
            Self::Delegate(Delegation::Csv) => {
                let path = context.path_argument(args, "csv_path")?;
                Ok(Prepared::new(CallNeeds { read: vec![path], ..CallNeeds::default() }, None, None))
            }
            Self::Session(_) | Self::Background(_) | Self::Host(_) | Self::Remote(_) | Self::Delegate(_) => {
                Ok(Prepared::new(CallNeeds::default(), None, None))
            }
        }
    }
}
